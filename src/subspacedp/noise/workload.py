"""What the joint noises of a release of margins have in common."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from subspacedp.noise.model import JointNoise
from subspacedp.noise.near_normal import near_normal
from subspacedp.noise.sums import Part, Rounding, SumLaw, WeightedSum
from subspacedp.subspace import Contrasts, WorkloadDigits
from subspacedp.tables import Margin, Margins

__all__ = ["WorkloadNoise"]

FloatArray = npt.NDArray[np.float64]


class WorkloadNoise(JointNoise):
    """Noise whose weights in any question follow from the question's weights on parts."""

    query: Margins
    digits: WorkloadDigits | None
    capped: bool  # held totals count all records: what is true of the bounded ones is a fraction

    @property
    @abstractmethod
    def contrasts(self) -> Contrasts:
        """The parts of the workload."""

    @abstractmethod
    def margin_variance(self, margin: Margin) -> FloatArray:
        """The variance of every total of a margin whose levels are in use."""

    @property
    def each(self) -> float:
        """`inside` counts in standard deviations."""
        return 1.0

    @property
    def grid(self) -> float | None:
        """What published and true values are multiples of; None where either can be real."""
        return None if self.digits is None or self.capped else 1.0 / self.digits.step

    def cell_variance(self) -> FloatArray:
        """The variance of every answer; with digits the rounding part is a bound."""
        return np.concatenate([self.margin_variance(m).reshape(-1) for m in self.query.margins])

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each coin of the rounding adds, and a bound on its variance."""
        if self.digits is None:
            return np.zeros(0), np.zeros(0)
        return self.digits.coefficients(weights)

    def law_from(
        self,
        parts: tuple[Part, ...],
        coefficients: FloatArray,
        step: float | None,
        variance: float,
    ) -> SumLaw:
        """The law of a weighted sum: as a normal one with a bound where that is close."""
        used = coefficients[np.abs(coefficients) > 1e-12]
        rounding = Rounding(float(used @ used), float(np.abs(used).sum())) if used.size else None
        found = near_normal(parts, rounding)
        return found or super().law_from(parts, coefficients, step, variance)

    def total_law(self, margin: Margin, place: tuple[int, ...]) -> SumLaw:
        """The law of the error of one total of a margin whose levels are in use."""
        one = np.zeros(margin.shape)
        one[place] = 1.0
        if self.digits is not None and margin not in self.digits.family:
            return self.law_of(self.query.indicator(margin, one))
        parts = self.total_parts(margin, one)
        if not parts:
            return WeightedSum(parts=())
        coins = self.digits.largest_coins(margin, place) if self.digits else np.zeros(0)
        variance = float(self.margin_variance(margin)[place])
        return self.law_from(parts, coins, self.grid, variance)

    @abstractmethod
    def total_parts(self, margin: Margin, weights: FloatArray) -> tuple[Part, ...]:
        """The independent noise in a weighted sum of totals of one margin."""

    def _with_rounding(self, found: FloatArray, margin: Margin) -> FloatArray:
        if self.digits is None:
            return found
        return np.where(found > 0, found + self.digits.margin_variance(margin), 0.0)
