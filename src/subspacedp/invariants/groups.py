"""Cells in the disjoint groups of one held margin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants.held import HeldMargins
from subspacedp.invariants.linear import HeldMatrix
from subspacedp.invariants.margin_space import MarginNullSpace

__all__ = ["HeldGroups"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class HeldGroups:
    """Cells group after group, where one margin determines all that are held.

    Vectors on the cells are taken up to a constant in every group: that is what the totals of the
    groups leave open.
    """

    space: MarginNullSpace
    order: Int64Array  # cells by group
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, held: HeldMargins | HeldMatrix) -> HeldGroups:
        """The groups of the one margin that determines all that are held."""
        family = held.family
        if family is None or len(family.essential) != 1:
            raise ReleaseError("This needs the totals of disjoint groups to be held.")
        (margin,) = family.essential
        codes = np.ix_(*(level.codes for level in margin.levels))
        code = np.zeros(family.domain.shape, np.int64)
        for axis, size in zip(codes, margin.shape, strict=True):
            code = code * size + axis
        flat = code.reshape(-1)
        sizes = tuple(int(n) for n in np.bincount(flat) if n)
        return cls(family.cell_space, np.argsort(flat, kind="stable"), sizes)

    def placed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values group after group, in the domain's shape."""
        out = np.empty(values.size, values.dtype)
        out[self.order] = values
        return out.reshape(self.space.shape)

    def differences(self, counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Counts minus that of their group's first cell: all that is left up to constants."""
        flat = counts.reshape(-1)
        starts = np.cumsum([0, *self.sizes[:-1]])
        first = np.repeat(flat[self.order[starts]], self.sizes)
        return self.placed(flat[self.order] - first)
