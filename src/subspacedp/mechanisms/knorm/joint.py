"""The joint noise of a release with k-norm noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.error_laws.joint import JointNoise
from subspacedp.mechanisms.error_laws.simulated import Simulated
from subspacedp.mechanisms.error_laws.sums import (
    Least,
    OnlyVariance,
    Part,
    SumLaw,
    WeightedSum,
    part,
)
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.mechanisms.knorm.norm_balls.groups import HeldGroups
from subspacedp.mechanisms.knorm.tails import Dominated
from subspacedp.noise.laws import DiscreteLaplace

__all__ = ["GroupedNoise", "KNormNoise", "independent_parts", "weighted_sum"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KNormNoise(JointNoise):
    """Release minus truth: B z, z with a k-norm law.

    Guarantees
    ----------
    1. The mean is zero, and stated variances are never too small.
    2. Laws of weighted sums are exact for a cross-polytope, whose entries are independent;
       otherwise proven bounds on their tails.
    """

    law: KNormLaw
    unit: float
    back: FloatArray  # (answers, entries of z)
    shape: tuple[int, ...]

    @property
    def each(self) -> float:
        """One: `inside` carries the covariance."""
        return 1.0

    @property
    def known(self) -> bool:
        """Whether a weighted sum has independent parts."""
        return self.law.norm_ball.independent is not None

    @cached_property
    def _deviations(self) -> FloatArray:
        """Of independent entries."""
        return np.sqrt(np.diag(self.law.covariance))

    @cached_property
    def _root(self) -> FloatArray:
        """L with L Lᵀ = B E[z zᵀ] Bᵀ."""
        if self.known:
            return np.asarray(self.unit * self.back * self._deviations)
        values, vectors = np.linalg.eigh(self.law.covariance)
        return np.asarray(self.unit * self.back @ (vectors * np.sqrt(np.maximum(values, 0.0))))

    @property
    def nothing(self) -> float:
        """Relative to weights in units of the answers, which noise multiplies."""
        return 1e-20 * max(self.law.variance * self.unit**2, 1e-300)

    @property
    def excess(self) -> float:
        """The noise is log-concave, so that no direction has more than 3."""
        return 3.0

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return np.asarray(np.square(self._root).sum(axis=1)).reshape(self.shape)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Lᵀw."""
        return np.asarray(self._root.T @ weights.reshape(-1))

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """Those of a cross-polytope; none for others."""
        widths = self.law.norm_ball.independent
        if widths is None:
            return ()
        return independent_parts(widths, self.law.rate, inside / self._deviations)

    def law_of(self, weights: npt.ArrayLike) -> SumLaw:
        """The law of the error of Σ wᵢ·answerᵢ, or a bound on its tails."""
        w = np.asarray(weights, np.float64)
        if self.known or self.is_fixed(w):
            return super().law_of(w)
        flat = np.asarray(self.unit * (w.reshape(-1) @ self.back))
        return weighted_sum(self.law, flat, self.variance(w))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupedNoise(JointNoise):
    """Release minus truth: Π_N z for k-norm noise on counts, of one variance in every group.

    Guarantees
    ----------
    1. The mean is zero, and variances and covariances are exact.
    2. The total of some cells has an exact law where one total is held and noise is exchanged;
       other weighted sums have proven bounds on their tails.
    """

    law: KNormLaw
    groups: HeldGroups

    @property
    def each(self) -> float:
        """One: `inside` carries the variances."""
        return 1.0

    @property
    def known(self) -> bool:
        """There are no independent parts."""
        return False

    @cached_property
    def _deviations(self) -> FloatArray:
        """√s² of the group of every cell, in the domain's shape."""
        each = np.repeat(np.sqrt(self.law.group_variances), self.groups.sizes)
        return self.groups.placed(each)

    @property
    def nothing(self) -> float:
        """Relative to weights in units of the answers, which noise multiplies."""
        return 1e-26 * max(float(self._deviations.max()) ** 2, 1e-300)

    @property
    def excess(self) -> float:
        """The noise is log-concave, so that no direction has more than 3."""
        return 3.0

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return np.asarray(self.groups.space.diagonal() * self._deviations**2)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w times the deviation of each group; groups do not mix."""
        return np.asarray(self.groups.space.project(weights) * self._deviations)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """None."""
        return ()

    def law_of(self, weights: npt.ArrayLike) -> SumLaw:
        """The law of the error of Σ wᵢ·answerᵢ, or a bound on its tails."""
        w = np.asarray(weights, np.float64)
        if self.is_fixed(w):
            return WeightedSum(parts=())
        inside = self.groups.space.project(w).reshape(-1)[self.groups.order]
        inside[np.abs(inside) < 1e-13 * np.abs(inside).max()] = 0.0
        return weighted_sum(self.law, inside, self.variance(w))


def weighted_sum(law: KNormLaw, weights: FloatArray, variance: float) -> SumLaw:
    """Σ aᵢzᵢ for dependent entries, its variance known: exact, simulated, or a proven bound.

    The noise is at most e^(2·rate·c) times as likely as continuous noise that is rounded, c the
    norm of half a cell; and noise on groups of counts is independent noise under a condition, or
    is simulated. The least of these bounds and Chebyshev's is taken (docs/proofs/knorm.md).
    """
    bounds: list[SumLaw] = [_rounded(law, weights), OnlyVariance(variance)]
    near = law.norm_ball.conditioned(law.rate, weights)
    if near is not None:
        bounds = [near, *bounds]
        drawn = None if near.method == "exact" else law.norm_ball.whole_noise(law.rate)
        if drawn is not None:
            bounds = [Simulated.of(drawn @ weights), *bounds]
    return Least(tuple(bounds))


def _rounded(law: KNormLaw, weights: FloatArray) -> Dominated:
    """By continuous noise."""
    norm_ball, rate = law.norm_ball, law.rate
    factor = math.exp(min(2 * float(rate * norm_ball.free_half_cell), 700.0))
    return Dominated(
        norm_ball.smooth_sum(float(rate), weights), factor, norm_ball.rounded_off(weights)
    )


def independent_parts(
    widths: tuple[Fraction, ...], rate: Fraction, weights: FloatArray
) -> tuple[Part, ...]:
    """Σ aᵢzᵢ for the independent entries of a cross-polytope's noise, one part per width."""
    kinds = {w: j for j, w in enumerate(sorted(set(widths)))}
    member = np.array([kinds[w] for w in widths])
    return tuple(part(DiscreteLaplace(rate / w), weights[member == j]) for w, j in kinds.items())
