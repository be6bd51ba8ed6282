"""Cells known to be empty, in the least squares of a table of cells.

The two passes give the best estimate x̃ of all cells, with error covariance V. That the cells Z are
empty is one more thing that is known, so the best estimate with it is

    x̂ = x̃ − V_Z (V_ZZ)⁺ x̃_Z,      V_Z the columns and V_ZZ the block of V at Z,

and its covariance V − V_Z (V_ZZ)⁺ V_Zᵀ. The columns of V keep what is held, so x̂ does. Setting x̃_Z
to zero alone would undo what margins were measured for: a total would be off by the noise of all
its empty cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.tables import Margin

MAX_EMPTY_ENTRIES = 1 << 25  # of the covariances between all cells and the empty ones
MAX_EMPTY_CELLS = 4096
NO_VARIANCE = 1e-11  # of the largest: a combination of empty cells with less is exact


@dataclass(frozen=True, eq=False, repr=False)
class EmptyCells:
    """What knowing that cells are empty does to an estimate of all cells.

    Parameters
    ----------
    mask
        True where a cell is known to be empty.
    column
        The column of V for weights of one cell.

    Guarantees
    ----------
    1. `impose` is linear in the estimate and gives zeros at empty cells, exactly.
    2. For every weighted sum the variance is at most that of the estimate before.
    """

    mask: npt.NDArray[np.bool_]
    column: Callable[[FloatArray], FloatArray]

    def __post_init__(self) -> None:
        number = int(self.mask.sum())
        if number > MAX_EMPTY_CELLS or number * self.mask.size > MAX_EMPTY_ENTRIES:
            raise ReleaseError(
                f"{number:,} cells known to be empty among {self.mask.size:,} are too many for the "
                f"least squares of the marginals mechanism (at most {MAX_EMPTY_CELLS:,}, and "
                f"{MAX_EMPTY_ENTRIES:,} pairs with a cell): write mechanism='projected', or a "
                "domain without labels that nobody can have."
            )

    @cached_property
    def places(self) -> Int64Array:
        """The empty cells by number."""
        return np.flatnonzero(self.mask.reshape(-1))

    @cached_property
    def _columns(self) -> FloatArray:
        """V_Z, one row per empty cell."""
        out = np.empty((len(self.places), self.mask.size))
        for row, place in zip(out, self.places, strict=True):
            one = np.zeros(self.mask.size)
            one[place] = 1.0
            row[:] = self.column(one.reshape(self.mask.shape)).reshape(-1)
        return out

    @cached_property
    def _gain(self) -> FloatArray:
        """(V_ZZ)⁺ V_Zᵀ, one row per empty cell."""
        block = self._columns[:, self.places]
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        kept = values > NO_VARIANCE * max(float(values.max(initial=0.0)), 0.0)
        inner = vectors[:, kept]
        return np.asarray((inner / values[kept]) @ (inner.T @ self._columns))

    def impose(self, cells: FloatArray) -> FloatArray:
        """The best estimate with the empty cells, from the best one without."""
        flat = cells.reshape(-1)
        out = flat - flat[self.places] @ self._gain
        out[self.places] = 0.0
        return out.reshape(cells.shape)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        """Weights of the estimate before, for the same weighted sum of the one after."""
        flat = weights.reshape(-1).copy()
        flat[self.places] = 0.0
        flat[self.places] = -(self._gain @ flat)
        return flat.reshape(weights.shape)

    def as_dict(self) -> dict[str, Any]:
        """Which cells are empty, and what `adjoint` multiplies with."""
        gain = {"shape": list(self._gain.shape), "values": self._gain.reshape(-1).tolist()}
        return {"cells": self.places.tolist(), "gain": gain}

    def variance_taken_off(self, margin: Margin) -> FloatArray:
        """By how much the variance of every total of a margin is smaller."""
        out = np.zeros(margin.shape)
        for column, gain in zip(self._columns, self._gain, strict=True):
            out += margin.sum(column.reshape(self.mask.shape)) * margin.sum(
                gain.reshape(self.mask.shape)
            )
        return out
