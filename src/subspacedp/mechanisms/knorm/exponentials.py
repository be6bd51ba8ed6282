"""Weighted sums of exponential variables: what continuous noise of a polytope is in a direction.

In the cone over a simplex of its boundary, with corners v_1 … v_k, the noise is Σ E_j v_j/rate with
independent exponentials; the cone has the share of its simplex in the volume. A corner that every
simplex has, or its opposite, brings an exponential of random sign that is independent of the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.error_laws.sums import SumLaw, WeightedSum

__all__ = ["ExponentialSum", "exponential_sum"]

FloatArray = npt.NDArray[np.float64]

AT_ONCE = 1 << 20  # complex numbers
DIGITS = 8  # of the largest slope, to which slopes are taken
NEGLECTED = 1e-30  # of a tail: exponentials so large that rounding of slopes would count for more


def exponential_sum(shares: FloatArray, slopes: FloatArray, apart: FloatArray) -> SumLaw:
    """S = Σ_j y_sj E_j with probability p_s, plus Σ_i ±a_i E_i; symmetric as a whole.

    Cones of the same slopes, up to their order and the sign of all, are taken together, and sums
    that differ by a factor share their tails.
    """
    from scipy.special import gammainccinv

    largest = max(float(np.abs(x).max(initial=0.0)) for x in (slopes, apart))
    scaled = np.round(slopes / largest, DIGITS) + 0.0
    ordered, opposite = np.sort(scaled, axis=1), np.sort(-scaled, axis=1)
    flip = ordered.sum(axis=1) < 0
    ordered[flip] = opposite[flip]
    distinct, member = np.unique(ordered, axis=0, return_inverse=True)
    total = np.round(np.bincount(member.reshape(-1), shares), DIGITS)
    far = np.sort(np.round(np.abs(apart) / largest, DIGITS))
    unit = _unit_sum(total.tobytes(), distinct.tobytes(), far[far > 0].tobytes())
    terms = slopes.shape[1] + apart.size
    # All exponentials together are below this, and no slope was moved by more than half a digit.
    most = float(gammainccinv(terms, NEGLECTED))
    return Scaled(unit, largest, 0.5 * 10.0**-DIGITS * most * largest)


@lru_cache(maxsize=256)
def _unit_sum(shares: bytes, slopes: bytes, apart: bytes) -> ExponentialSum:
    p, a = np.frombuffer(shares), np.frombuffer(apart)
    y = np.frombuffer(slopes).reshape(len(p), -1)
    return ExponentialSum(parts=(), shares=p / p.sum(), slopes=y, apart=a)


@dataclass(frozen=True, eq=False, repr=False)
class Scaled:
    """A variable times a positive factor, up to a shift and with next to no exceptions."""

    law: SumLaw
    factor: float
    shift: float

    @property
    def method(self) -> str:
        """That of the variable."""
        return self.law.method

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        return min(1.0, self.law.tail((distance - self.shift) / self.factor) + NEGLECTED)

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        return self.factor * self.law.margin_of_error(alpha) + self.shift


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExponentialSum(WeightedSum):
    """S = Σ_j y_sj E_j with probability p_s, plus Σ_i ±a_i E_i; symmetric as a whole.

    Its characteristic function is Π_i 1/(1 + θ²a_i²)·Σ_s p_s Re Π_j 1/(1 − iθ y_sj).

    Guarantees
    ----------
    1. Those of `WeightedSum`.
    """

    shares: FloatArray  # p, (cones)
    slopes: FloatArray  # y, (cones, corners)
    apart: FloatArray  # a

    @cached_property
    def variance(self) -> float:
        """Σ_s p_s (Σ y² + (Σ y)²) + 2 Σ a²."""
        squares = np.square(self.slopes).sum(axis=1) + np.square(self.slopes.sum(axis=1))
        return float(self.shares @ squares) + 2 * float(np.square(self.apart).sum())

    @property
    def lattice(self) -> float | None:
        """None: no lattice carries it."""
        return None

    @cached_property
    def _alone(self) -> npt.NDArray[np.bool_]:
        """Cones with one slope: the real part of 1/(1 − iθy) is 1/(1 + θ²y²)."""
        return np.asarray(np.count_nonzero(self.slopes, axis=1) == 1)

    def _characteristic(
        self, theta: FloatArray, lattice: tuple[float, int] | None = None
    ) -> FloatArray:
        out = np.empty(theta.shape)
        rows = max(1, AT_ONCE // len(self.shares))
        for start in range(0, theta.size, rows):
            t = theta[start : start + rows]
            found = np.ones((len(self.shares), t.size), np.complex128)
            for y in self.slopes.T:
                found *= 1 - 1j * np.multiply.outer(y, t)
            out[start : start + rows] = self.shares @ (1 / found).real
        with np.errstate(under="ignore"):
            out *= np.exp(-np.log1p(np.square(np.multiply.outer(self.apart, theta))).sum(axis=0))
        return out

    def _bounds(self, lows: FloatArray, highs: FloatArray) -> FloatArray:
        """|1/(1 − iθy)| = 1/√(1 + θ²y²) falls in θ."""
        return np.array([self._at_most(low) for low in lows.tolist()])

    def _at_most(self, low: float) -> float:
        """A bound on |φ(θ)| for all θ from low on."""
        logs = np.log1p(np.square(self.slopes * low)).sum(axis=1)
        other = float(np.log1p(np.square(self.apart * low)).sum())
        with np.errstate(under="ignore"):
            return float(self.shares @ np.exp(-np.where(self._alone, logs, logs / 2) - other))

    def _log_moment(self, s: FloatArray, *, rounding: bool = True) -> FloatArray:
        """E e^{sS}, the mean over both signs of the cones."""
        total = np.zeros(s.shape)
        for sign in (1.0, -1.0):
            turned = np.multiply.outer(self.slopes * sign, s)  # (cones, corners, values of s)
            total += self.shares @ np.exp(-np.log1p(-turned).sum(axis=1))
        other = np.log1p(-np.square(np.multiply.outer(self.apart, s))).sum(axis=0)
        return np.asarray(np.log(total / 2) - other)

    def _slopes(self, scale: float) -> FloatArray:
        steepest = max(float(np.abs(x).max(initial=0.0)) for x in (self.slopes, self.apart))
        top = min(scale / math.sqrt(self.variance), 0.995 / steepest)
        return top * np.array([0.3, 0.45, 0.6, 0.75, 0.85, 0.95, 1.0])
