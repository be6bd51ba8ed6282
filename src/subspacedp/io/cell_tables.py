"""Counts per cell, added up as an engine's answer comes: in memory, or in a file."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from subspacedp.tables import Domain, Table

__all__ = ["CellTable"]

Int64Array = npt.NDArray[np.int64]
CELLS = 1 << 24  # subtracted at a time


class CellTable:
    """The counts of all cells; it takes memory, or a place on disk, with the first of them.

    Parameters
    ----------
    domain
        Its cells.
    folder, name
        Where the .npy file is made, and what it is called; without a folder, nowhere.
    """

    def __init__(self, domain: Domain, folder: Path | None, name: str) -> None:
        self._domain = domain
        self._path = None if folder is None else folder / f"{name}.npy"
        self.total = 0  # of the counts that were added

    @cached_property
    def array(self) -> Int64Array:
        """All counts, in the domain's shape; zero until they are added."""
        if self._path is None:
            return np.zeros(self._domain.shape, np.int64)
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        return np.lib.format.open_memmap(self._path, "w+", np.dtype("<i8"), self._domain.shape)

    def add(self, cells: Int64Array, counts: Int64Array) -> None:
        """Add counts to cells; what has a negative cell has no place, and is left out."""
        placed = cells >= 0
        if placed.any():
            self.total += int(counts[placed].sum())
            np.add.at(self.array.reshape(-1), cells[placed], counts[placed])

    def rest_of(self, whole: CellTable) -> Table | Path:
        """What another table has beyond this one; it takes this one's place."""
        rest, all_cells = self.array.reshape(-1), whole.array.reshape(-1)
        for at in range(0, rest.size, CELLS):
            part = slice(at, at + CELLS)
            np.subtract(all_cells[part], rest[part], out=rest[part])
        return self.table()

    def table(self) -> Table | Path:
        """The table; the path of one on disk."""
        array = self.array
        if self._path is None:
            return Table(array, self._domain)
        array.flush()  # type: ignore[attr-defined]  # of a mapped file
        return self._path

    def __repr__(self) -> str:
        return "CellTable(hidden)"
