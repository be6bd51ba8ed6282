"""Sums of rounded Gaussian noise of large scale: normal up to a bound on what rounding moves.

A rounded Gaussian variable is σZ + U with |U| ≤ ½, so Σ wᵢeᵢ is within ½ Σ|wᵢ| of a normal variable
of variance Σ wᵢ²σᵢ². Where that bound is far below a standard deviation this is the quickest proven
law there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from subspacedp.mechanisms.error_laws.sums import Part, Rounding, SumLaw, WeightedSum
from subspacedp.noise.laws import RoundedGaussian
from subspacedp.special import normal_quantile

NEAR = 0.002  # of a standard deviation: what rounding may move at most
CELLS = 500.0  # a standard deviation in steps of the lattice that carries roundings
WIDEST = 1e-4  # of the largest deviation that keeps a target
NEGLECTED = 3e-4  # of a tail: where bounded variables may be beyond their bound


@lru_cache(maxsize=64)
def _on_lattice(deviation: float, rounding: Rounding) -> tuple[WeightedSum, float]:
    """A normal variable rounded to a lattice, with roundings; the lattice is fine beside both."""
    cell = math.sqrt(deviation**2 + rounding.squared / 4) / CELLS
    lattice = Part(RoundedGaussian(deviation / cell), np.array([cell]), np.ones(1))
    return WeightedSum(parts=(lattice,), rounding=rounding), cell


@dataclass(frozen=True, eq=False, repr=False)
class NearNormal:
    """A variable within `off` of a normal one, or of a normal one and roundings.

    Parameters
    ----------
    deviation
        At least that of the normal variable.
    step
        The variable is a multiple of it; None when nothing is known.

    Guarantees
    ----------
    1. `tail(x)` is at least P(|S| ≥ x), and `margin_of_error(alpha)` a q with P(|S| > q) ≤ alpha.
    """

    deviation: float
    off: float
    rounding: Rounding | None = None
    step: float | None = None
    method: str = "conservative"

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        if self.step is not None:
            distance = math.ceil(distance / self.step - 1e-6) * self.step
        left = distance - self.off
        if left <= 0:
            return 1.0
        if self.rounding is not None:
            law, cell = _on_lattice(self.deviation, self.rounding)
            return law.tail(left - cell / 2)
        return min(1.0, math.erfc(left / (self.deviation * math.sqrt(2.0))) * (1 + 1e-12))

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        if self.rounding is None:
            return -normal_quantile(alpha / 2) * self.deviation * (1 + 1e-12) + self.off
        # A normal variable is within half a step of its rounding to a lattice.
        law, cell = _on_lattice(self.deviation, self.rounding)
        reached = law.margin_of_error(alpha) + cell / 2 + self.off
        if self.step is None:
            return reached
        # P(|S| ≥ reached) ≤ alpha, and S is a multiple of the step: the last one below is enough.
        return max(math.ceil(reached / self.step) - 1, 0) * self.step


@dataclass(frozen=True, eq=False, repr=False)
class NormalAndBounded:
    """Rounded Gaussian noise of which only sums of squares are known, and perhaps roundings.

    Parameters
    ----------
    deviation
        At least √Σ wᵢ²σᵢ².
    squared
        At least Σ wᵢ².
    rounding, step
        The randomised roundings, and what the figure is off by multiples of.

    Guarantees
    ----------
    1. `tail(x)` is at least P(|S| ≥ x), and `margin_of_error(alpha)` a q with P(|S| > q) ≤ alpha.

    Notes
    -----
    S = N + D + U, N normal, D a sum of independent wᵢUᵢ with |Uᵢ| ≤ ½ and mean zero, U of roundings
    that are bounded whatever the noise. Hoeffding: P(|D| ≥ s) ≤ 2exp(−2s²/squared).
    """

    deviation: float
    squared: float
    rounding: Rounding | None = None
    step: float | None = None
    method: str = "conservative"

    def _unless(self, probability: float) -> NearNormal:
        """The law where |D| is no larger than it is but for this probability."""
        bound = math.sqrt(self.squared * math.log(2 / probability) / 2)
        return NearNormal(self.deviation, bound, self.rounding, self.step)

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        given = [10.0**-k for k in (2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 30, 50, 80, 120, 200, 300)]
        return min(1.0, min(self._unless(p).tail(distance) + p for p in given))

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        shares = [NEGLECTED] if self.rounding else [0.3, 0.2, 0.1, 0.05, 0.02, 0.01]
        return min(
            self._unless(alpha * share).margin_of_error(alpha * (1 - share)) for share in shares
        )


def near_normal(
    parts: Sequence[Part], rounding: Rounding | None, step: float | None = None
) -> SumLaw | None:
    """The law of a sum of parts where all are Gaussian and rounding moves it little; else None."""
    variance = moved = 0.0
    for p in parts:
        sigma = p.law.normal_within
        if sigma is None:
            return None
        variance += sigma**2 * float(p.counts @ p.weights**2)
        moved += 0.5 * float(p.counts @ p.weights)
    deviation = math.sqrt(variance)
    if not 0 < moved <= NEAR * deviation:
        return None
    return NearNormal(deviation, moved, rounding, step if rounding else None)


def widest_normal(
    target: float, alpha: float, rounding: Rounding | None, step: float | None
) -> float | None:
    """The largest deviation of normal noise that keeps a margin of error, beside roundings.

    To a part in 10⁴, from below; None where the roundings alone are beyond the target.
    """

    def meets(deviation: float) -> bool:
        law = NearNormal(deviation, 0.0, rounding, step if rounding else None)
        return law.margin_of_error(alpha) <= target

    low, high = target / 100, target
    if not meets(low):
        return None
    while high > low * (1 + WIDEST):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
