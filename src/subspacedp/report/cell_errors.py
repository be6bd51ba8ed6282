"""How exact the published figures are, from published values and standard errors alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.figures import Figures
from subspacedp.report.estimates import Estimates

__all__ = ["THRESHOLDS", "CellErrors", "KindErrors", "Share", "SizeClass"]

THRESHOLDS = (0.05, 0.10, 0.30)
CELLS = 1 << 20  # at a time

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

    @property
    def relative(self) -> FloatArray:
        """The relative standard error of every cell."""
        out = np.concatenate([relative for _, _, relative in self._parts()] or [np.zeros(0)])
        return np.asarray(out, np.float64)

    def _parts(self) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Value, value of at least 1 and relative standard error, some cells at a time."""
        value, stderr = self.estimates.value, self.estimates.stderr
        for at in range(0, value.size, CELLS):
            own = value[at : at + CELLS].astype(np.float64)
            size = np.maximum(own, 1.0)
            yield own, size, stderr[at : at + CELLS] / size

    @property
    def exact(self) -> int:
        """How many cells the held figures fix."""
        return int(np.count_nonzero(self.estimates.stderr == 0.0))

    @property
    def median(self) -> float:
        """The median standard error."""
        return float(np.median(self.estimates.stderr))

    @property
    def stderr(self) -> FloatArray:
        """All standard errors."""
        return self.estimates.stderr

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
        cells = np.zeros(len(THRESHOLDS), np.int64)
        for _, _, relative in self._parts():
            cells += [int(np.count_nonzero(relative < t)) for t in THRESHOLDS]
        number = self.estimates.value.size
        return [Share(t, n, n / number) for t, n in zip(THRESHOLDS, cells.tolist(), strict=True)]

    def classes(self) -> list[SizeClass]:
        """The cells by published value, in powers of ten; empty classes are left out."""
        value, relative = self.estimates.value, self.relative
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
                        float(np.median(relative[inside])),
                    )
                )
        return out

    def clusters(self, columns: int = 64, rows: int = 40) -> list[dict[str, float]]:
        """Cells as points of size and relative error; those that would overlap are one point."""
        ends = [
            [end(own[relative > 0]) for own in (size, relative) for end in (np.min, np.max)]
            for _, size, relative in self._parts()
            if np.any(relative > 0)
        ]
        if not ends:
            return []
        lows, highs = np.log10(np.min(ends, axis=0)), np.log10(np.max(ends, axis=0))
        sums = np.zeros((3, columns * rows))
        for _, size, relative in self._parts():
            x, y = np.log10(size[relative > 0]), np.log10(relative[relative > 0])
            place = _bins(x, lows[0], highs[1], columns) * rows + _bins(y, lows[2], highs[3], rows)
            for total, weights in zip(sums, (None, x, y), strict=True):
                total += np.bincount(place, weights, minlength=columns * rows)
        cells, x, y = sums[:, sums[0] > 0]
        return [
            {"value": float(10**a), "relative": float(10**b), "cells": int(n)}
            for a, b, n in zip(x / cells, y / cells, cells, strict=True)
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


@dataclass(frozen=True, eq=False, repr=False)
class KindErrors(CellErrors):
    """How exact the cells of a table are that is too large to look at cell by cell.

    By the kinds of its cells, of which there are far fewer; `estimates` are not looked at.
    """

    figures: Figures

    @cached_property
    def _kinds(self) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        parts = [(kinds.variance, kinds.number) for kinds in self.figures.kinds()]
        variance, number = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(variance, kind="stable")
        return np.sqrt(variance[order]), number[order]

    @property
    def known(self) -> bool:
        """Whether the standard errors are known at all."""
        return not bool(np.isnan(self.stderr).any())

    @property
    def exact(self) -> int:
        """How many cells the held figures fix."""
        stderr, number = self._kinds
        return int(number[stderr == 0.0].sum())

    @property
    def median(self) -> float:
        """The median standard error of the cells."""
        stderr, number = self._kinds
        return float(stderr[np.searchsorted(np.cumsum(number), number.sum() / 2)])

    @property
    def stderr(self) -> FloatArray:
        """One standard error per kind of cell."""
        return self._kinds[0]

    @property
    def noisy(self) -> FloatArray:
        """One standard error per kind of cell that the held figures do not fix."""
        return self.stderr[self.stderr > 0]

    def shares(self) -> list[Share]:
        """Not counted: the values would have to be looked at one by one."""
        return []


def _bins(x: FloatArray, low: float, high: float, number: int) -> npt.NDArray[np.int64]:
    width = max(high - low, 1e-9) / number
    return np.asarray(np.minimum((x - low) / width, number - 1), np.int64)
