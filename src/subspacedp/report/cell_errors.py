"""How exact the published figures are, from published values and standard errors alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from subspacedp.report.estimates import Estimates

__all__ = ["THRESHOLDS", "CellErrors", "Share", "SizeClass"]

THRESHOLDS = (0.05, 0.10, 0.30)

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """How many cells have a relative standard error below a threshold."""

    below: float
    cells: int
    share: float


@dataclass(frozen=True)
class SizeClass:
    """The cells whose published value lies in one range."""

    least: float | None  # None: no lower bound
    most: float | None
    cells: int
    stderr: float  # median
    relative: float  # median


@dataclass(frozen=True, eq=False, repr=False)
class CellErrors:
    """Relative standard errors of the cells: standard error over max(published value, 1).

    Sizes of cells are confidential; the published values stand for them.
    """

    estimates: Estimates

    @property
    def known(self) -> bool:
        """Whether the standard errors are known at all."""
        return not bool(np.isnan(self.estimates.stderr).any())

    @cached_property
    def sizes(self) -> FloatArray:
        """Published values, at least 1."""
        return np.maximum(self.estimates.value.astype(np.float64), 1.0)

    @cached_property
    def relative(self) -> FloatArray:
        """The relative standard error of every cell."""
        return self.estimates.stderr / self.sizes

    @property
    def exact(self) -> int:
        """How many cells the held figures fix."""
        return int(np.count_nonzero(self.estimates.stderr == 0.0))

    @property
    def median(self) -> float:
        """The median standard error."""
        return float(np.median(self.estimates.stderr))

    @property
    def noisy(self) -> FloatArray:
        """The standard errors of the cells that the held figures do not fix."""
        return self.estimates.stderr[self.estimates.stderr > 0]

    @property
    def alike(self) -> bool:
        """Whether all cells with noise have the same standard error, to two parts in a hundred."""
        return not self.noisy.size or bool(np.ptp(self.noisy) <= 0.02 * self.noisy.max())

    def shares(self) -> list[Share]:
        """The cells below each threshold."""
        cells = [int(np.count_nonzero(self.relative < t)) for t in THRESHOLDS]
        return [Share(t, n, n / self.relative.size) for t, n in zip(THRESHOLDS, cells, strict=True)]

    def classes(self) -> list[SizeClass]:
        """The cells by published value, in powers of ten; empty classes are left out."""
        value = self.estimates.value.astype(np.float64)
        top = max(1, math.ceil(math.log10(max(float(value.max()), 1.0) + 1)))
        edges = [-math.inf, 1.0, *(10.0**k for k in range(1, top)), math.inf]
        out = []
        for low, high in pairwise(edges):
            inside = (value >= low) & (value < high)
            if inside.any():
                out.append(
                    SizeClass(
                        None if math.isinf(low) else low,
                        None if math.isinf(high) else high,
                        int(inside.sum()),
                        float(np.median(self.estimates.stderr[inside])),
                        float(np.median(self.relative[inside])),
                    )
                )
        return out

    def clusters(self, columns: int = 64, rows: int = 40) -> list[dict[str, float]]:
        """Cells as points of size and relative error; those that would overlap are one point."""
        inside = self.relative > 0
        x, y = np.log10(self.sizes[inside]), np.log10(self.relative[inside])
        if not x.size:
            return []
        number = _bins(x, columns) * rows + _bins(y, rows)
        of_each = np.unique(number, return_inverse=True)[1]
        cells = np.bincount(of_each)
        mean_x = np.bincount(of_each, x) / cells
        mean_y = np.bincount(of_each, y) / cells
        return [
            {"value": float(10**a), "relative": float(10**b), "cells": int(n)}
            for a, b, n in zip(mean_x, mean_y, cells, strict=True)
        ]

    def histogram(self, bins: int = 20) -> list[dict[str, float]]:
        """Cells by their standard error, cells that are fixed left out; empty if all are alike."""
        if self.alike:
            return []
        cells, edges = np.histogram(self.noisy, bins)
        return [
            {"from": float(a), "to": float(b), "cells": int(n)}
            for a, b, n in zip(edges, edges[1:], cells, strict=False)
        ]


def _bins(x: FloatArray, number: int) -> npt.NDArray[np.int64]:
    width = max(float(np.ptp(x)), 1e-9) / number
    return np.asarray(np.minimum((x - x.min()) / width, number - 1), np.int64)
