"""Controlled rounding of an estimated table of cells where held classifications cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.marginals.estimate import Estimate
from subspacedp.rounding import CrossingRounding
from subspacedp.rounding.controlled import WordSource
from subspacedp.tables import Margin

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class CrossingCellRounding(CrossingRounding):
    """`CrossingRounding` of an estimate: the table of cells, the first of its workload.

    Guarantees
    ----------
    1. Integers with the held totals, whatever the dither; unbiased over it up to the rounding error
       of float64 (docs/proofs/crossing-digits.md, of any real table with these totals).
    """

    counted: ClassVar[bool] = False

    def round_estimate(self, estimate: Estimate, dither: WordSource) -> Int64Array:
        """The cells in steps, with the held totals."""
        held, cells = self.space.held, estimate.table(0)
        whole = np.rint(cells).astype(np.int64)
        rest = (cells - whole) * self.step
        turns = np.rint(rest)
        whole = whole * self.step + turns.astype(np.int64)
        totals = [totals.reshape(-1) * self.step for totals in estimate.held_totals]
        missing = np.concatenate(totals) - held.sums(whole)[0]
        rest -= turns
        # Sums of what is left are known; what float64 lost of them is spread evenly.
        rest -= self.space.lift((held.real_sums(rest)[0] - missing,), error=1.0)
        words = dither.words(0, rest.size) if self.needed else np.zeros(rest.size, np.uint64)
        return np.asarray(whole + self._rounded(rest, missing, words), np.int64)

    def of_kind(self, margin: Margin, kind: int, group: int) -> FloatArray:
        """What each rounding adds to totals of a kind, from those of one of them."""
        del kind
        return self.group_coefficients(margin, group)

    def total_variance(self) -> float:
        """What rounding adds to the variances of all cells together, at most."""
        return float(np.sum(self.variance()))
