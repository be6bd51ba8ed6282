"""Controlled rounding of one table of cells, estimated from several levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.marginals.estimate import Estimate
from subspacedp.rounding.controlled import WordSource
from subspacedp.rounding.levels import LevelRounding

__all__ = ["CellRounding"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class CellRounding(LevelRounding):
    """`LevelRounding` of an estimate: the table of cells, the first of its workload."""

    def round_estimate(self, estimate: Estimate, dither: WordSource) -> Int64Array:
        """The cells in steps, with the held totals."""
        return self.round(*self._in_parts(estimate), dither)

    def _in_parts(self, estimate: Estimate) -> tuple[Int64Array, FloatArray]:
        """Whole numbers and what is left of cells, whose sums keep the held totals.

        Of large counts float64 loses the sums of what is left. These are known: the held totals
        less the sums of whole numbers, and the difference, of rounding error, is spread evenly.
        """
        cells = estimate.table(0)
        near = np.rint(cells)
        whole, rest = near.astype(np.int64), cells - near
        off = tuple(
            margin.sum(rest) - (totals - margin.sum(whole))
            for margin, totals in zip(estimate.held.margins, estimate.held_totals, strict=True)
        )
        return whole, rest - self.space.lift(off, error=1.0) if off else rest
