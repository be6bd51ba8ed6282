"""Laws of weighted sums of k-norm noise, and bounds on their tails (docs/proofs/knorm.md).

Noise on counts in groups is independent noise under a condition. Noise of exchanges with rate λ is
discrete Laplace noise of rate λ/2 in every cell, given that it adds up to zero. Noise of deviations
is discrete Laplace noise of rate λ, given that the lower median of every group is zero. A condition
of probability p makes nothing more than 1/p times as likely; and the total of some cells of
exchanges has an exact law.

Continuous noise of a polytope is, in a direction, a weighted sum of exponential variables. In the
cone over a simplex of its boundary, with corners v_1 … v_k, the noise is Σ E_j v_j/rate with
independent exponentials; the cone has the share of its simplex in the volume. A corner that every
simplex has, or its opposite, brings an exponential of random sign that is independent of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray
from subspacedp.balls import ball, round_down
from subspacedp.frozen import frozen
from subspacedp.mechanisms.error_laws.sums import FLOAT_ERROR, SMALLEST, SumLaw, WeightedSum, part
from subspacedp.noise.laws import DiscreteLaplace

if TYPE_CHECKING:
    from flint import arb

PIECES = 16_000  # of the law of a radius
FARTHEST = 1e-18  # of a radius that is not cut into pieces
POWERS = np.linspace(2.0, 60.0, 233)  # of the moments in a bound
MOST_POINTS = 1 << 18
LEFT_OUT = 1e-16  # of the tails of an exact law
AT_ONCE = 1 << 20  # complex numbers
DIGITS = 8  # of the largest slope, to which slopes are taken
NEGLECTED = 1e-30  # of a tail: exponentials so large that rounding of slopes would count for more


@frozen
class Dominated:
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


@frozen
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


@frozen
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
def _radii(k: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
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


def given(law: DiscreteLaplace, weights: FloatArray, chance: float) -> Dominated:
    """Σ aᵢzᵢ of independent noise, under a condition of at least that probability."""
    return Dominated(WeightedSum(parts=(part(law, weights),)), 1 / chance)


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
    size = 2 * math.ceil(larger.margin_of_error(LEFT_OUT)) + 2
    if size > MOST_POINTS:
        return None
    size = next_fast_len(size, real=True)
    angles = np.arange(size // 2 + 1) * (2 * np.pi / size)
    turn = -np.log1p(2 * law.variance * np.sin(angles / 2) ** 2)
    few, many = (irfft(np.exp(j * turn), size)[: size // 2] for j in (m, n - m))
    mass = np.maximum(few, 0.0) * np.maximum(many, 0.0) / chance
    error = FLOAT_ERROR + 1e-15 * size * float(max(few[0], many[0])) / chance
    return np.cumsum(mass[::-1])[::-1] + error


@frozen(eq=False, repr=False)
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


@frozen(eq=False, repr=False)
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


@frozen(eq=False, repr=False, kw_only=True)
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
    lattice: ClassVar[float | None] = None  # none: no lattice carries it

    @cached_property
    def variance(self) -> float:
        """Σ_s p_s (Σ y² + (Σ y)²) + 2 Σ a²."""
        squares = np.square(self.slopes).sum(axis=1) + np.square(self.slopes.sum(axis=1))
        return float(self.shares @ squares) + 2 * float(np.square(self.apart).sum())

    @cached_property
    def _alone(self) -> BoolArray:
        """Cones with one slope: the real part of 1/(1 − iθy) is 1/(1 + θ²y²)."""
        return np.asarray(np.count_nonzero(self.slopes, axis=1) == 1)

    def _characteristic(
        self, theta: FloatArray, lattice: tuple[float, int] | None = None
    ) -> FloatArray:
        out = np.empty(theta.shape)
        rows = max(1, AT_ONCE // len(self.shares))
        for start in range(0, theta.size, rows):
            t = theta[start : start + rows]
            product = np.ones((len(self.shares), t.size), np.complex128)
            for y in self.slopes.T:
                product *= 1 - 1j * np.multiply.outer(y, t)
            out[start : start + rows] = self.shares @ (1 / product).real
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

    def _log_moment(self, s: FloatArray) -> FloatArray:
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
