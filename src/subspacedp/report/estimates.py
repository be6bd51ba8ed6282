"""Estimates as the page shows them: flat, with standard errors and intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.estimates import Estimate
from subspacedp.mechanisms.figures import Figures
from subspacedp.release import Release
from subspacedp.tables import Margin

__all__ = [
    "THRESHOLDS",
    "CellErrors",
    "Estimates",
    "cell_estimates",
    "margin_estimates",
    "within_reach",
]

LEVEL = 0.95
MOST_APART = 60  # figures whose error laws are computed one by one, some ten milliseconds each
MOST_WORK = 1 << 24  # groups × cells, where each group's variance is a sweep over the table

FloatArray = npt.NDArray[np.float64]

THRESHOLDS = (0.05, 0.10, 0.30)
CELLS = 1 << 20  # at a time


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """Some rows of a family of estimates.

    A standard error is NaN where the noise is another mechanism's and nothing was declared of it.
    """

    family: Estimate
    rows: npt.NDArray[np.int64] | None = None  # all of them, in order, if not given

    @cached_property
    def value(self) -> npt.NDArray[Any]:
        """The published values."""
        return self._chosen(np.asarray(self.family.value))

    @cached_property
    def stderr(self) -> FloatArray:
        """Their standard errors."""
        return self._chosen(np.asarray(self.family.stderr, np.float64))

    def _chosen(self, figures: npt.NDArray[Any]) -> npt.NDArray[Any]:
        flat = np.ravel(figures)
        return flat if self.rows is None else flat[self.rows]

    @property
    def exact(self) -> bool:
        """Whether the intervals come from the law of the noise, not from a normal one."""
        figures = self.family.figures
        if figures.closed or self.value.size <= MOST_APART:
            return True
        return not figures.apart and _kinds(figures) <= MOST_APART

    @cached_property
    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper limits."""
        if np.isnan(self.stderr).any():
            unknown = np.full(self.value.size, np.nan)
            return unknown, unknown
        limits = self.family.interval(LEVEL, method="exact" if self.exact else "normal")
        # Limits on a lattice are a few units in the last place off it; readers need not see that.
        lower, upper = (np.round(self._chosen(np.asarray(limit)), 6) for limit in limits)
        return lower, upper

    def take(self, rows: npt.NDArray[np.int64]) -> Estimates:
        """Some of the rows, in the order asked for; their intervals stay the same."""
        return _Part(self.family, rows if self.rows is None else self.rows[rows], whole=self)


@dataclass(frozen=True, eq=False, repr=False)
class _Part(Estimates):
    """Rows of other estimates, which decide how intervals are found."""

    whole: Estimates = field(kw_only=True)

    @property
    def exact(self) -> bool:
        """As for the whole."""
        return self.whole.exact


def cell_estimates(release: Release) -> Estimates:
    """The estimate of every answer."""
    return Estimates(release.cells())


def margin_estimates(release: Release, margin: Margin) -> Estimates:
    """The estimate of every group of a margin."""
    return Estimates(release.margin(*margin.names))


def within_reach(release: Release, margin: Margin) -> bool:
    """Whether the standard errors of a margin can be had in about a second."""
    groups, cells = math.prod(margin.shape), release.mechanism.query.size
    apart = release.mechanism.margin_accuracy(*margin.names).figures.apart
    return not apart or groups * cells <= MOST_WORK


def _kinds(figures: Figures) -> int:
    """How many laws there are."""
    return int(np.unique(figures.classes()).size)


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
            some = value[at : at + CELLS].astype(np.float64)
            size = np.maximum(some, 1.0)
            yield some, size, stderr[at : at + CELLS] / size

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
        ranges = [
            [limit(axis[relative > 0]) for axis in (size, relative) for limit in (np.min, np.max)]
            for _, size, relative in self._parts()
            if np.any(relative > 0)
        ]
        if not ranges:
            return []
        lows, highs = np.log10(np.min(ranges, axis=0)), np.log10(np.max(ranges, axis=0))
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


def _bins(x: FloatArray, low: float, high: float, number: int) -> npt.NDArray[np.int64]:
    width = max(high - low, 1e-9) / number
    return np.asarray(np.minimum((x - low) / width, number - 1), np.int64)
