"""Bounds on the tails of weighted sums of k-norm noise.

Proofs: docs/proofs/knorm.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from subspacedp.mechanisms.error_laws.sums import SumLaw

__all__ = ["Radial", "Stretched", "Unimodal"]

PIECES = 16_000  # of the law of a radius
FARTHEST = 1e-18  # of a radius that is not cut into pieces
POWERS = np.linspace(2.0, 60.0, 233)  # of the moments in a bound


@dataclass(frozen=True)
class Stretched:
    """S within `shift` of a variable, its law at most `factor` times that variable's."""

    law: SumLaw
    factor: float
    shift: float = 0.0

    @property
    def method(self) -> str:
        """That of the variable, if next to nothing is added."""
        return self.law.method if self.factor < 1.001 else "conservative"

    def tail(self, distance: float) -> float:
        """factor·P(|X| ≥ distance − shift)."""
        return min(1.0, self.factor * self.law.tail(distance - self.shift))

    def margin_of_error(self, alpha: float) -> float:
        """At a smaller error probability, and the shift."""
        return self.law.margin_of_error(alpha / self.factor) + self.shift


@dataclass(frozen=True)
class Unimodal:
    """A symmetric variable with log-concave density, of which only the variance is known.

    Gauss's inequality P(|X| ≥ t) ≤ 4σ²/(9t²) from 2σ/√3 on, and E|X|^p ≤ Γ(p + 1)(σ²/2)^(p/2) for
    p ≥ 2 (Karlin, Proschan and Barlow 1961): no tail is much heavier than that of Laplace noise.
    """

    variance: float
    method: str = "conservative"

    def tail(self, distance: float) -> float:
        """The least of the bounds."""
        if distance <= 0:
            return 1.0
        x = distance / math.sqrt(self.variance)
        if x * math.sqrt(3) < 2:
            return 1 - x / math.sqrt(3)
        logs = _log_moments() - POWERS * math.log(x)
        return min(4 / (9 * x * x), math.exp(float(logs.min())))

    def margin_of_error(self, alpha: float) -> float:
        """Where the least of the bounds is alpha."""
        gauss = math.sqrt(3) * (1 - alpha) if alpha > 1 / 3 else 2 / (3 * math.sqrt(alpha))
        moments = float(((_log_moments() - math.log(alpha)) / POWERS).min())
        return math.sqrt(self.variance) * min(gauss, math.exp(moments)) * (1 + 1e-12)


@lru_cache(maxsize=1)
def _log_moments() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Log Γ(p + 1) − (p/2)·log 2."""
    from scipy.special import gammaln

    return np.asarray(gammaln(POWERS + 1) - POWERS / 2 * math.log(2))


@dataclass(frozen=True)
class Radial:
    """reach·R·u/rate: R a sum of k + 1 exponentials, u one coordinate of a point in the unit ball.

    The law of R is cut into pieces, and in each the largest R stands for all.
    """

    dimension: int
    reach: float  # over the rate
    method: str = "smeared"

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        return 1.0 if distance <= 0 else _radial_tail(self.dimension, distance / self.reach)

    def margin_of_error(self, alpha: float) -> float:
        """By bisection."""
        return self.reach * _radial_margin(self.dimension, alpha)


@lru_cache(maxsize=64)
def _radii(
    k: int,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """The largest R of every piece, and how likely the piece is."""
    from scipy.special import gammaincc, gammainccinv

    ends = np.linspace(0.0, float(gammainccinv(k + 1, FARTHEST)), PIECES + 1)[1:]
    return ends, -np.diff(gammaincc(k + 1, ends), prepend=1.0)


@lru_cache(maxsize=4096)
def _radial_tail(k: int, x: float) -> float:
    from scipy.special import betaincc

    ends, chances = _radii(k)
    share = np.minimum(x / ends, 1.0) ** 2
    return min(1.0, float(chances @ betaincc(0.5, (k + 1) / 2, share)) + FARTHEST)


@lru_cache(maxsize=4096)
def _radial_margin(k: int, alpha: float) -> float:
    low, high = 0.0, float(k + 1)
    while _radial_tail(k, high) > alpha:
        low, high = high, 2 * high
        if high > 1e6 * k:
            return math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _radial_tail(k, middle) <= alpha else (middle, high)
    return high
