"""Estimates as the page shows them: flat, with standard errors, and intervals where asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.estimates import Estimate
from subspacedp.mechanisms.figures import Figures
from subspacedp.release import Release
from subspacedp.tables import Margin

__all__ = ["LEVEL", "Estimates", "cell_estimates", "margin_estimates", "within_reach"]

LEVEL = 0.95
MOST_APART = 60  # figures whose error laws are found one by one, some ten milliseconds each
MOST_WORK = 1 << 24  # groups × cells, where each group's variance is a sweep over the table

FloatArray = npt.NDArray[np.float64]


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
        """Lower and upper ends."""
        if np.isnan(self.stderr).any():
            unknown = np.full(self.value.size, np.nan)
            return unknown, unknown
        ends = self.family.interval(LEVEL, method="exact" if self.exact else "normal")
        # Ends on a lattice are a few units in the last place off it; readers need not see that.
        lower, upper = (np.round(self._chosen(np.asarray(end)), 6) for end in ends)
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
    return _all(release.cells())


def margin_estimates(release: Release, margin: Margin) -> Estimates:
    """The estimate of every group of a margin."""
    return _all(release.margin(*margin.names))


def within_reach(release: Release, margin: Margin) -> bool:
    """Whether the standard errors of a margin can be had in about a second."""
    groups, cells = math.prod(margin.shape), release.mechanism.query.size
    apart = release.mechanism.margin_accuracy(*margin.names).figures.apart
    return not apart or groups * cells <= MOST_WORK


def _kinds(figures: Figures) -> int:
    """How many laws there are."""
    return int(np.unique(figures.classes()).size)


def _all(family: Estimate) -> Estimates:
    return Estimates(family)
