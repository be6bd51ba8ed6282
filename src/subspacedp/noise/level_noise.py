"""The joint noise of a table estimated from measurements at several levels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import KnownLaw, RoundedGaussian
from subspacedp.noise.model import JointNoise, grid_of
from subspacedp.noise.near_normal import NormalAndBounded
from subspacedp.noise.sums import Part, SumLaw, part
from subspacedp.subspace.hierarchy_digits import LevelDigits
from subspacedp.subspace.hierarchy_estimate import LevelEstimate
from subspacedp.subspace.hierarchy_weights import total_weights
from subspacedp.tables import Margin

__all__ = ["LevelNoise"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LevelNoise(JointNoise):
    """Release minus truth: least squares of independent noise at every measured level.

    Guarantees
    ----------
    1. Without digits, variances are exact: those of the rounded laws, combined by the weights that
       the estimate uses.
    2. With digits, the rounding part is uncorrelated with the rest and bounded as the digits say.

    Notes
    -----
    Var(wᵀx̂) = Σ_j t_j |S_j V w|², V the covariance inside N: the noise of level j, of variance
    1/t_j, enters with the weights t_j S_j V w.
    """

    estimate: LevelEstimate
    laws: Mapping[int, KnownLaw]  # by step of the axis; step 0 is there
    digits: LevelDigits | None = None

    @property
    def each(self) -> float:
        """The variance of the noise on one cell; other levels are weighed by theirs."""
        return self.laws[0].variance

    @property
    def nothing(self) -> float:
        """Group means leave 1e-15 of the weights."""
        return 1e-26

    @property
    def grid(self) -> float | None:
        """What published and true values are multiples of; None where either can be real."""
        return grid_of(self.digits)

    @cached_property
    def _steps(self) -> list[int]:
        """The measured levels, finest first."""
        return [0, *(self.estimate.tree.steps[i] for i in self.estimate.measured)]

    def cell_variance(self) -> FloatArray:
        """The variance of every cell, in closed form."""
        return self.group_variance(self.estimate.space.domain.cells)

    def group_variance(self, margin: Margin) -> FloatArray:
        """The variance of every group total of a margin, in closed form."""
        out = self.estimate.group_variance(margin)
        if self.digits is not None:
            out = np.where(out > 0, out + self.digits.group_variance(margin), 0.0)
        return out

    def inside(self, weights: FloatArray) -> FloatArray:
        """√(t_0 t_j)·S_j V w for all measured levels, one after another; t_0 belongs to `each`."""
        estimate = self.estimate
        w = np.asarray(weights, np.float64).reshape(estimate.space.shape)
        inner = estimate.space.project(w)
        if float(np.vdot(inner, inner)) <= self.nothing * float(np.vdot(w, w)):
            return np.zeros(sum(estimate.sizes()))
        solved = estimate.solve(inner)
        levels = [solved, *estimate.sums(solved).values()]
        first = estimate.precision[0]
        return np.concatenate(
            [
                np.sqrt(estimate.precision[step] * first) * values.reshape(-1)
                for step, values in zip(self._steps, levels, strict=True)
            ]
        )

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """One law a level."""
        ends = np.cumsum(self.estimate.sizes())[:-1]
        first = self.estimate.precision[0]
        return tuple(
            part(self.laws[step], values * np.sqrt(self.estimate.precision[step] / first))
            for step, values in zip(self._steps, np.split(inside, ends), strict=True)
        )

    def total_law(self, margin: Margin, place: tuple[int, ...], coins: int) -> SumLaw:
        """The law of one group's total, into whose rounding so many coins enter.

        In the time of the groups: their labels are alike.
        """
        weights = total_weights(self.estimate, margin, place)
        parts = tuple(
            part(self.laws[step], own, occurring) for step, (own, occurring) in weights.items()
        )
        step = 1.0 if self.digits is None else 1.0 / self.digits.step
        variance = math.fsum(p.variance for p in parts) + 0.25 * coins * step**2
        return self.law_from(parts, np.full(coins, step), self.grid, variance)

    def law_by_variance(self, variance: float, coins: int) -> SumLaw | None:
        """A bound for one group's total from its variance and number of coins alone.

        For Gaussian noise; None for Laplace noise. With v the variance of the noise Σ wᵢ² is at
        most v·max t_j, and Σ wᵢ²σᵢ² at most v·max t_j σ_j².
        """
        laws = [law for law in self.laws.values() if isinstance(law, RoundedGaussian)]
        if len(laws) < len(self.laws):
            return None
        step = 0.0 if self.digits is None else 1.0 / self.digits.step
        most = max(law.sigma**2 / law.variance for law in laws)
        least = min(law.variance for law in laws)
        return NormalAndBounded(math.sqrt(variance * most), variance / least + coins * step**2)

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each coin of the rounding adds, and a bound on its variance."""
        if self.digits is None:
            return np.zeros(0), np.zeros(0)
        return self.digits.coefficients(weights)
