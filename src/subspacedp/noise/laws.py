"""Exact noise laws on the integers, with their distribution functions as balls.

Every law can be asked for its distribution function at any integer to any precision; that is all
that exact sampling needs (see `thresholds.py`), and the tests check it against sums of the mass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.errors import BudgetError

if TYPE_CHECKING:
    from flint import arb

    from subspacedp.noise.shift_sums import Groups

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

SMOOTH = 1000.0  # σ from which a rounded normal law is a normal one to a part in 10**12
REACH = 12.0  # standard deviations beyond which a sum over normal noise has nothing left

__all__ = [
    "DeclaredNoise",
    "DigitDifference",
    "DiscreteLaplace",
    "IntegerLaw",
    "KnownLaw",
    "NoiseLaw",
    "RoundedGaussian",
]


class IntegerLaw(Protocol):
    """What exact sampling needs of a law: P(Z ≤ z) as a ball, and a rough spread."""

    @property
    def scale(self) -> float:
        """About one standard deviation."""

    def __hash__(self) -> int:
        """Laws are values: tables are cached by them."""

    def cdf(self, z: int) -> Callable[[], arb]:
        """P(Z ≤ z), as a function that computes a ball at the current precision."""


class NoiseLaw(IntegerLaw, Protocol):
    """A symmetric law of integer noise that mechanisms use."""

    @property
    def variance(self) -> float:
        """The variance of the law itself, rounding to the grid included."""

    @property
    def normal(self) -> bool:
        """Whether it is nearly normal, once it spreads over several whole numbers."""

    def components(self) -> tuple[tuple[int, IntegerLaw], ...]:
        """Independent parts whose weighted sum has this law, each small enough for a table."""

    @property
    def excess(self) -> float:
        """κ₄/κ₂², its excess kurtosis; 0 where that is not known to be positive."""

    def log_mass(self, z: Int64Array) -> FloatArray:
        """Log P(Z = z), far into the tails."""

    def log_shift_sums(self, d: Int64Array, groups: Groups) -> FloatArray:
        """Log Σ_k ∏ P(Z = d_i + k) over whole k, for every group of cells."""

    def reach(self, spread: float, cells: int) -> int:
        """The largest sum of noise over a group of cells that matters where Σ|d_i| is `spread`."""

    def as_dict(self) -> dict[str, Any]:
        """The law as plain data, enough to compute it exactly."""


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(Z = z) ∝ exp(−rate·|z|), the two-sided geometric law.

    Guarantees
    ----------
    1. On a query with whole answers and ℓ₁ sensitivity Δ₁, rate = ε/Δ₁ is exactly ε-private.

    Examples
    --------
    >>> round(DiscreteLaplace(Fraction(1, 10)).variance, 4)
    199.8334
    """

    rate: Fraction

    normal: ClassVar[bool] = False  # nearly, once it spreads over several whole numbers

    # Tables stay below some eleven thousand entries; larger scales split into digits.
    LARGEST_TABLE = 128
    BASE = 1024

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise BudgetError("The rate of a discrete Laplace law must be positive.")

    @property
    def scale(self) -> float:
        """1/rate."""
        try:
            return float(1 / self.rate)
        except OverflowError:
            return math.inf

    @cached_property
    def variance(self) -> float:
        """2q/(1 − q)² with q = exp(−rate), which is 1/(2 sinh²(rate/2))."""
        half = float(self.rate) / 2
        return 0.0 if half > 350 else 0.5 / math.sinh(half) ** 2

    def cdf(self, z: int) -> Callable[[], arb]:
        """P(Z ≤ z): q^{-z}/(1 + q) below zero, 1 − q^{z+1}/(1 + q) from zero on."""

        def value() -> arb:
            r = ball(self.rate)
            q = (-r).exp()
            if z < 0:
                return (r * z).exp() / (1 + q)
            return 1 - (-r * (z + 1)).exp() / (1 + q)

        return value

    def components(self) -> tuple[tuple[int, IntegerLaw], ...]:
        """Digits: a geometric variable's digits to any base are independent.

        Z is a difference of two geometric variables with ratio q. Digit j of such a variable to
        base B has P(d) ∝ q^(d B^j), and what is left above the last digit is again geometric,
        with ratio q^(B^J). So Z = Σ_j B^j (D_j − D'_j) + B^J Z', with Z' discrete Laplace of rate
        B^J·rate.
        """
        parts: list[tuple[int, IntegerLaw]] = []
        weight, rate = 1, self.rate
        while 1 / rate > self.LARGEST_TABLE:
            parts.append((weight, DigitDifference(rate, self.BASE)))
            weight, rate = weight * self.BASE, rate * self.BASE
        return ((weight, DiscreteLaplace(rate)), *parts)

    @property
    def excess(self) -> float:
        """A difference of two geometric variables has 3 + 1/κ₂."""
        return 3 + 1 / self.variance if self.variance > 0 else 0.0

    def log_mass(self, z: Int64Array) -> FloatArray:
        """Log tanh(rate/2) − rate·|z|."""
        rate = float(self.rate)
        return np.asarray(math.log(math.tanh(rate / 2)) - rate * np.abs(z))

    def log_shift_sums(self, d: Int64Array, groups: Groups) -> FloatArray:
        """Geometric series between the places −d, in closed form."""
        from subspacedp.noise.shift_sums import laplace_shifts

        return laplace_shifts(float(self.rate), d, groups)

    def reach(self, spread: float, cells: int) -> int:
        """Beyond it the tail is below exp(−40); see docs/proofs/likelihood.md."""
        return math.ceil(spread + 40 / float(self.rate)) + 2 * cells

    def as_dict(self) -> dict[str, Any]:
        """The law as plain data."""
        return {
            "family": "discrete Laplace",
            "rate": str(self.rate),
            "variance": self.variance,
            "mass": "P(z) proportional to exp(-rate * |z|), z any integer",
        }


@dataclass(frozen=True)
class DeclaredNoise:
    """The noise of a mechanism that is not ours: only what its owner says is known of it."""

    description: str
    declared_variance: float | None = None

    @property
    def variance(self) -> float:
        """As declared; NaN where nothing was."""
        return math.nan if self.declared_variance is None else self.declared_variance

    @property
    def excess(self) -> float:
        """Not known."""
        return 0.0

    @property
    def scale(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def as_dict(self) -> dict[str, Any]:
        """What was declared, as plain data."""
        return {
            "family": "declared",
            "description": self.description,
            "variance": self.declared_variance,
            "mass": "that of the mechanism the invariants are imposed on",
        }


@dataclass(frozen=True)
class DigitDifference:
    """D − D' for two independent digits with P(d) ∝ exp(−rate·d), 0 ≤ d < base."""

    rate: Fraction
    base: int

    @property
    def scale(self) -> float:
        """At most a base."""
        return float(min(Fraction(self.base), 1 / self.rate))

    def cdf(self, z: int) -> Callable[[], arb]:
        """By symmetry from the tail P(W ≥ w), w ≥ 1, a sum of geometric sums."""
        if z >= self.base - 1:
            return lambda: ball(1)
        if z < -(self.base - 1):
            return lambda: ball(0)

        def value() -> arb:
            w = z + 1 if z >= 0 else -z
            r, b = ball(self.rate), self.base
            q = (-r).exp()
            top = (
                (-r * w).exp() - (-r * b).exp() - (-r * (b + 1)).exp() * (1 - (-r * (b - w)).exp())
            )
            # (1 − q)(1 − q²)·norm² with norm = (1 − q^b)/(1 − q)
            bottom = (1 + q) * (1 - (-r * b).exp()) ** 2
            tail = top / bottom
            return 1 - tail if z >= 0 else tail

        return value


@dataclass(frozen=True)
class RoundedGaussian:
    """The integer nearest to a normal variable of standard deviation `sigma`.

    Rounding is post-processing of the ideal Gaussian mechanism on whole answers (x + round(e) =
    round(x + e)), so the exact calibration of the ideal one holds, in any dimension.

    Examples
    --------
    >>> round(RoundedGaussian(0.5).variance / 0.25, 2), round(RoundedGaussian(2.0).variance / 4, 2)
    (1.3, 1.02)
    """

    sigma: float

    normal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise BudgetError("The sigma of a rounded Gaussian law must be positive and finite.")

    @property
    def scale(self) -> float:
        """The standard deviation before rounding."""
        return self.sigma

    @cached_property
    def variance(self) -> float:
        """Var = Σ_{j≥1} 2(2j − 1) P(Z ≥ j); beyond σ = 3 it is σ² + 1/12 to the last digit.

        Poisson summation gives the remainder as Σ_m O(σ² exp(−2π²σ²m²)).
        """
        if self.sigma > 3:
            return self.sigma**2 + 1 / 12
        root = self.sigma * math.sqrt(2)
        last = int(40 * self.sigma) + 2
        tails = ((2 * j - 1) * math.erfc((j - 0.5) / root) for j in range(1, last))
        return math.fsum(tails)

    def cdf(self, z: int) -> Callable[[], arb]:
        """Φ((z + 1/2)/σ)."""

        def value() -> arb:
            x = (ball(z) + ball(Fraction(1, 2))) / (ball(self.sigma) * ball(2).sqrt())
            return (-x).erfc() / 2

        return value

    def components(self) -> tuple[tuple[int, IntegerLaw], ...]:
        """The law itself."""
        return ((1, self),)

    @property
    def excess(self) -> float:
        """Not known to be positive."""
        return 0.0

    def log_mass(self, z: Int64Array) -> FloatArray:
        """From the logarithms of two normal tails."""
        a = np.abs(z).astype(np.float64)
        if self.sigma > SMOOTH:
            constant = 0.5 * math.log(2 * math.pi * self.variance)
            return np.asarray(-(a**2) / (2 * self.variance) - constant)
        from scipy.special import log_ndtr

        near, far = log_ndtr((0.5 - a) / self.sigma), log_ndtr((-0.5 - a) / self.sigma)
        return np.asarray(near + np.log(-np.expm1(far - near)))

    def log_shift_sums(self, d: Int64Array, groups: Groups) -> FloatArray:
        """A sum over the narrow bell around the mean of −d."""
        from subspacedp.noise.shift_sums import gaussian_shifts

        return gaussian_shifts(self, d, groups)

    def reach(self, spread: float, cells: int) -> int:
        """Twelve standard deviations of the sum, and what far cells allow."""
        wide = REACH * math.sqrt(self.variance * cells) + math.sqrt(4 * cells * spread)
        return math.ceil(wide) + 2 * cells

    def as_dict(self) -> dict[str, Any]:
        """The law as plain data."""
        return {
            "family": "rounded Gaussian",
            "sigma": self.sigma,
            "variance": self.variance,
            "mass": "P(z) = Phi((z + 1/2)/sigma) - Phi((z - 1/2)/sigma), z any integer",
        }


KnownLaw = DiscreteLaplace | RoundedGaussian
