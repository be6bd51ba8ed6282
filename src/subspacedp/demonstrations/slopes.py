"""Slopes of errors on log size, over many runs: how often negative, how often significant.

Errors without bias have slopes of both signs alike, and about one in a hundred is significant at
0.01. This is the check of the paper's census demonstration, repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference import bias_trend

__all__ = ["SlopeCounts", "count_slopes"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class SlopeCounts:
    """How many slopes of every run were negative, and how many significant."""

    groups: int
    negative: Int64Array  # one a run
    significant_negative: Int64Array
    significant_positive: Int64Array

    @property
    def runs(self) -> int:
        """How many runs."""
        return len(self.negative)

    @property
    def share_negative(self) -> float:
        """Of all slopes of all runs."""
        return float(self.negative.mean() / self.groups)

    @property
    def share_significant(self) -> float:
        """Of all slopes, those significant in either direction."""
        return self.share_significant_negative + self.share_significant_positive

    @property
    def share_significant_negative(self) -> float:
        """Of all slopes, those negative and significant."""
        return float(self.significant_negative.mean() / self.groups)

    @property
    def share_significant_positive(self) -> float:
        """Of all slopes, those positive and significant."""
        return float(self.significant_positive.mean() / self.groups)

    def reaching(self, number: int) -> int:
        """In how many runs at least so many slopes were negative."""
        return int(np.count_nonzero(self.negative >= number))

    def summary(self) -> dict[str, float | int]:
        """The shares, for programs."""
        return {
            "groups": self.groups,
            "runs": self.runs,
            "negative": self.share_negative,
            "significant": self.share_significant,
            "significant_negative": self.share_significant_negative,
            "significant_positive": self.share_significant_positive,
        }


def count_slopes(
    errors: Iterable[npt.NDArray[Any]],
    size: npt.ArrayLike,
    groups: npt.ArrayLike | None = None,
    *,
    level: float = 0.01,
) -> SlopeCounts:
    """Regress the errors of every run on log size, in every group with more than five members.

    Examples
    --------
    >>> size = [10, 20, 50, 100, 200, 1000]
    >>> up, down = np.log(size), -np.log(size)
    >>> count_slopes([down, down, up], size).negative.tolist()
    [1, 1, 0]
    """
    found = [bias_trend(run, size, groups, level=level) for run in errors]
    if not found:
        raise ReleaseError("Slopes need at least one run.")

    def counted(name: str) -> Int64Array:
        return np.array([getattr(one, name) for one in found], np.int64)

    return SlopeCounts(
        groups=found[0].groups,
        negative=counted("negative"),
        significant_negative=counted("significant_negative"),
        significant_positive=counted("significant_positive"),
    )
