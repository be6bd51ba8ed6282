"""Sums of rounded Gaussian noise of large scale: normal up to a bound on what rounding moves.

A rounded Gaussian variable is σZ + U with |U| ≤ ½, so Σ wᵢeᵢ is within ½ Σ|wᵢ| of a normal variable
of variance Σ wᵢ²σᵢ². Where that bound is far below a standard deviation this is the quickest proven
law there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from subspacedp.mechanisms.error_laws.sums import Part, Rounding, SumLaw, WeightedSum
from subspacedp.noise.laws import RoundedGaussian

__all__ = ["NearNormal", "NormalAndBounded", "near_normal"]

NEAR = 0.002  # of a standard deviation: what rounding may move at most
CELLS = 500.0  # a standard deviation in steps of the lattice that carries digits


@dataclass(frozen=True, eq=False, repr=False)
class NearNormal:
    """A variable within `off` of a normal one, or of a given law.

    Guarantees
    ----------
    1. `tail(x)` is at least P(|S| ≥ x), and `margin_of_error(alpha)` a q with P(|S| > q) ≤ alpha.
    """

    deviation: float
    off: float
    inner: WeightedSum | None = None  # with digits: the normal part on a lattice, and coins
    method: str = "conservative"

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        left = distance - self.off
        if left <= 0:
            return 1.0
        if self.inner is not None:
            return self.inner.tail(left)
        return min(1.0, math.erfc(left / (self.deviation * math.sqrt(2.0))) * (1 + 1e-12))

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        if self.inner is not None:
            return self.inner.margin_of_error(alpha) + self.off
        from scipy.special import ndtri

        return float(-ndtri(alpha / 2)) * self.deviation * (1 + 1e-12) + self.off


@dataclass(frozen=True, eq=False, repr=False)
class NormalAndBounded:
    """Rounded Gaussian noise and coins of which only sums of squares are known: a bound by these.

    Parameters
    ----------
    deviation
        At least √Σ wᵢ²σᵢ².
    squared
        At least Σ wᵢ² + Σ vⱼ², vⱼ the weights of coins.

    Guarantees
    ----------
    1. `tail(x)` is at least P(|S| ≥ x), and `margin_of_error(alpha)` a q with P(|S| > q) ≤ alpha.

    Notes
    -----
    S = N + D, N normal, D a sum of independent wᵢUᵢ with |Uᵢ| ≤ ½ and mean zero and of coins that,
    given the noise, have mean zero and a range of vⱼ. Hoeffding: P(|D| ≥ s) ≤ 2exp(−2s²/squared).
    """

    deviation: float
    squared: float
    method: str = "conservative"

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        shares = np.linspace(0.0, 1.0, 201)[1:-1] * max(distance, 0.0)
        found = [
            math.erfc((distance - s) / (self.deviation * math.sqrt(2.0)))
            + 2 * math.exp(-2 * s**2 / self.squared)
            for s in shares.tolist()
        ]
        return min(1.0, min(found) * (1 + 1e-12))

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        from scipy.special import ndtri

        given = alpha * np.array([0.3, 0.2, 0.1, 0.05, 0.02, 0.01])  # to D; the rest to N
        bounded = np.sqrt(self.squared * np.log(2 / given) / 2)
        normal = -ndtri((alpha - given) / 2) * self.deviation
        return float(np.min(bounded + normal)) * (1 + 1e-12)


def near_normal(parts: Sequence[Part], rounding: Rounding | None) -> SumLaw | None:
    """The law of a sum of parts where all are Gaussian and rounding moves it little; else None."""
    variance = moved = 0.0
    for p in parts:
        deviation = p.transform.normal_deviation
        if deviation is None:
            return None
        variance += deviation**2 * float(p.counts @ p.weights**2)
        moved += 0.5 * float(p.counts @ p.weights)
    deviation = math.sqrt(variance)
    if not 0 < moved <= NEAR * deviation:
        return None
    if rounding is None:
        return NearNormal(deviation, moved)
    # A normal variable is within half a step of its rounding to a lattice.
    step = deviation / CELLS
    lattice = Part(RoundedGaussian(CELLS), np.array([step]), np.ones(1))
    return NearNormal(deviation, moved + step / 2, WeightedSum(parts=(lattice,), rounding=rounding))
