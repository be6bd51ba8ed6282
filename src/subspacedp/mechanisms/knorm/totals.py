"""Noise on counts in groups as independent noise under a condition.

Noise of exchanges with rate λ is discrete Laplace noise of rate λ/2 in every cell, given that it
adds up to zero. Noise of deviations is discrete Laplace noise of rate λ, given that the lower
median of every group is zero. A condition of probability p makes nothing more than 1/p times as
likely; and the total of some cells of exchanges has an exact law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball, round_down
from subspacedp.mechanisms.error_laws.sums import FLOAT_ERROR, SMALLEST, SumLaw, WeightedSum, part
from subspacedp.mechanisms.knorm.bounds import Stretched
from subspacedp.noise.laws import DiscreteLaplace

__all__ = ["TotalLaw", "above", "chance_of", "given"]

if TYPE_CHECKING:
    from flint import arb

FloatArray = npt.NDArray[np.float64]

MOST_POINTS = 1 << 18
NEGLECTED = 1e-16


def given(law: DiscreteLaplace, weights: FloatArray, chance: float) -> Stretched:
    """Σ aᵢzᵢ of independent noise, under a condition of at least that probability."""
    return Stretched(WeightedSum(parts=(part(law, weights),)), 1 / chance)


def chance_of(total: Callable[[], arb], each: Fraction, cells: int) -> float:
    """The probability of the condition, rounded down: Σ_y e^(−r|y|) = coth(r/2) for every cell."""
    return round_down(lambda: total() * (ball(each) / 2).tanh() ** cells)


@lru_cache(maxsize=256)
def above(n: int, m: int, rate: Fraction, chance: float) -> FloatArray | None:
    """At least P(T ≥ j), j = 0, 1, …, for the total T of m of n cells; None if it spreads too far.

    P(T = s) = P(L_m = s)·P(L_{n−m} = s)/P(L_n = 0), L_m a sum of m discrete Laplace variables and
    `chance` at most P(L_n = 0).
    """
    from scipy.fft import irfft, next_fast_len

    law = DiscreteLaplace(rate / 2)
    larger = WeightedSum(parts=(part(law, np.ones(max(m, n - m))),))
    size = 2 * math.ceil(larger.margin_of_error(NEGLECTED)) + 2
    if size > MOST_POINTS:
        return None
    size = next_fast_len(size, real=True)
    angles = np.arange(size // 2 + 1) * (2 * np.pi / size)
    turn = -np.log1p(2 * law.variance * np.sin(angles / 2) ** 2)
    few, many = (irfft(np.exp(j * turn), size)[: size // 2] for j in (m, n - m))
    mass = np.maximum(few, 0.0) * np.maximum(many, 0.0) / chance
    error = FLOAT_ERROR + 1e-15 * size * float(max(few[0], many[0])) / chance
    return np.cumsum(mass[::-1])[::-1] + error


@dataclass(frozen=True, eq=False, repr=False)
class TotalLaw:
    """A whole symmetric variable times a step."""

    step: float
    above: FloatArray  # at least P(T ≥ j)
    far: SumLaw  # a bound for small probabilities
    method: str = "exact"

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        place = math.ceil(distance / self.step - 1e-6)
        if place <= 0:
            return 1.0
        near = 2 * float(self.above[place]) if place < self.above.size else 1.0
        return min(1.0, near, self.far.tail(distance))

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        enough = 2 * self.above <= alpha
        if alpha < SMALLEST or not enough.any():
            return self.far.margin_of_error(alpha)
        # P(|S| > q) = P(|S| ≥ q + step); endpoints must survive the rounding of float64.
        place = max(int(np.argmax(enough)) - 1, 0)
        return self.step * (place * (1 + 1e-9) + 1e-9)
