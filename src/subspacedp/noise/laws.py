"""Exact noise laws on the integers: all that is known of one law stands in its class.

Every law can be asked for its distribution function at any integer to any precision; that is all
that exact sampling needs (see `draw.py`), and the tests check it against sums of the mass.
Its characteristic and moment generating functions are what the laws of weighted sums need (see
`mechanisms/error_laws/sums.py`), where independent noise is a product; its mass is what likelihoods
need. Nothing else asks which law it has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.balls import ball, round_up
from subspacedp.errors import BudgetError
from subspacedp.frozen import frozen
from subspacedp.special import log_normal_below, log_sum_exp

if TYPE_CHECKING:
    from flint import arb

    from subspacedp.noise.shift_sums import GroupedCells

# Gaussian laws below it are sums over a few whole numbers, above it over a few periods.
FEW_NUMBERS = 0.6
SEARCHED = 1 / 3  # the chance from which NumPy searches for a geometric variable
LARGEST_SIGMA_TABLE = 1000.0  # a table of thresholds has some 18 σ entries
SMOOTH = 1000.0  # σ from which a rounded normal law is a normal one to a part in 10**12
REACH = 12.0  # standard deviations beyond which a sum over normal noise has nothing left


class IntegerLaw(Protocol):
    """What exact sampling needs of a law: P(Z ≤ z) as a ball, and a rough spread."""

    @property
    def scale(self) -> float:
        """About one standard deviation."""

    def __hash__(self) -> int:
        """Laws are values: tables are cached by them."""

    @property
    def float_quantile(self) -> bool:
        """Whether draws rest on the stated bound of a float64 quantile, and not on a table."""

    def cdf(self, z: int) -> Callable[[], arb]:
        """P(Z ≤ z), as a function that computes a ball at the current precision."""


class NoiseLaw(IntegerLaw, Protocol):
    """A symmetric law of integer noise that mechanisms use."""

    @property
    def variance(self) -> float:
        """The variance of the law itself, rounding to the grid included."""

    def components(self) -> tuple[tuple[int, IntegerLaw], ...]:
        """Independent parts whose weighted sum has this law, each small enough for a table."""

    def as_dict(self) -> dict[str, Any]:
        """The law as plain data, enough to compute it exactly."""


class KnownLaw(ABC):
    """A symmetric law of integer noise Z of which everything is known.

    Guarantees
    ----------
    1. `cdf`, `characteristic`, `log_moment` and `log_mass` are of one law.
    2. `variance`, `envelope` and `tail_variance` are never too small.
    """

    family: ClassVar[str] = ""
    mass: ClassVar[str] = ""  # in words, for certificates
    states: ClassVar[Mapping[str, Any]] = {}  # its parameters in certificates, as JSON Schema
    nearly_normal: ClassVar[bool] = False  # a normal law of its variance is near it

    @property
    def known(self) -> KnownLaw | None:
        """The law, as all of it is known."""
        return self

    # ------------------------------------------------------------------ what sampling needs

    @property
    @abstractmethod
    def scale(self) -> float:
        """About one standard deviation."""

    @property
    def float_quantile(self) -> bool:
        """Whether draws rest on the stated bound of a float64 quantile, and not on a table."""
        return False

    @abstractmethod
    def cdf(self, z: int) -> Callable[[], arb]:
        """P(Z ≤ z), as a function that computes a ball at the current precision."""

    def components(self) -> tuple[tuple[int, IntegerLaw], ...]:
        """Independent parts whose weighted sum has this law; here the law itself."""
        return ((1, self),)

    @abstractmethod
    def simulate(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Draws for public simulations, in float64; never for a release."""

    # ------------------------------------------------------------------ what errors need

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of the law itself, rounding to the grid included."""

    @property
    def tail_variance(self) -> float:
        """That of a normal law with tails as heavy; more than `variance` where most noise is 0."""
        return self.variance

    @property
    def geometric_rate(self) -> float | None:
        """The r of P(z) ∝ exp(−r·|z|), where E exp(sZ) ends at s = r; None for lighter tails."""
        return None

    @property
    def normal_within(self) -> float | None:
        """σ where Z is always within ½ of a normal variable of deviation σ; None otherwise."""
        return None

    @property
    def excess(self) -> float:
        """κ₄/κ₂², the excess kurtosis; 0 where it is not known to be positive."""
        return 0.0

    @abstractmethod
    def characteristic(self, t: FloatArray) -> FloatArray:
        """E exp(itZ), real because the law is symmetric."""

    def multiply_characteristic(self, out: FloatArray, t: FloatArray, counts: FloatArray) -> None:
        """Multiply `out` by ∏ᵢ E exp(it[i]Z) to the power counts[i]; `t` may be lost."""
        out *= np.multiply.reduce(self.characteristic(t) ** counts[:, None], axis=0)

    def envelope(self, t: FloatArray) -> FloatArray:
        """A bound on |E exp(isZ)| for all s from t to π, with 0 ≤ t ≤ π.

        Here the characteristic function itself, for laws where it decreases.
        """
        return np.minimum(1.0, self.characteristic(t))

    @abstractmethod
    def log_moment(self, s: FloatArray) -> FloatArray:
        """Log E exp(sZ) for s ≥ 0; infinite where there is no such moment."""

    @abstractmethod
    def log_mass(self, z: Int64Array) -> FloatArray:
        """Log P(Z = z), far into the tails."""

    def log_shift_sums(self, d: Int64Array, groups: GroupedCells) -> FloatArray:
        """Log Σ_k ∏ P(Z = d_i + k) over whole k, for every group of cells.

        Here a sum over the narrow bell around the mean of −d.
        """
        from subspacedp.noise.shift_sums import gaussian_shifts

        return gaussian_shifts(self, d, groups)

    def reach(self, spread: float, cells: int) -> int:
        """The largest sum of noise over a group of cells that matters where Σ|d_i| is `spread`.

        Here twelve standard deviations of the sum, and what far cells allow.
        """
        wide = REACH * math.sqrt(self.variance * cells) + math.sqrt(4 * cells * spread)
        return math.ceil(wide) + 2 * cells

    # ------------------------------------------------------------------ plain data

    def as_dict(self) -> dict[str, Any]:
        """The law as plain data."""
        parameters = {name: getattr(self, name) for name in self.states}
        return {
            "family": self.family,
            **{k: str(v) if isinstance(v, Fraction) else v for k, v in parameters.items()},
            "variance": self.variance,
            "mass": self.mass,
        }


FRACTION: Mapping[str, Any] = {"type": "string", "pattern": "^[0-9]+(/[0-9]+)?$"}


@frozen
class DiscreteLaplace(KnownLaw):
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

    family: ClassVar[str] = "discrete Laplace"
    mass: ClassVar[str] = "P(z) proportional to exp(-rate * |z|), z any integer"
    states: ClassVar[Mapping[str, Any]] = {"rate": FRACTION}

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

    def simulate(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Differences of two geometric variables."""
        chance = -np.expm1(-float(self.rate))
        noise = _geometric(rng, chance, shape)
        noise -= _geometric(rng, chance, shape)
        return noise

    @property
    def geometric_rate(self) -> float | None:
        """The rate."""
        return float(self.rate)

    @property
    def excess(self) -> float:
        """A difference of two geometric variables has 3 + 1/κ₂."""
        return 3 + 1 / self.variance if self.variance > 0 else 0.0

    def characteristic(self, t: FloatArray) -> FloatArray:
        """1/(1 + 2 Var sin²(t/2)), which decreases from 0 to π."""
        return np.asarray(1.0 / (1.0 + 2.0 * self.variance * np.sin(t / 2) ** 2))

    def multiply_characteristic(self, out: FloatArray, t: FloatArray, counts: FloatArray) -> None:
        """In the memory of `t`: sums over many cells spend their time here."""
        np.sin(t * 0.5, out=t)
        t *= t
        t *= 2 * self.variance
        if bool(np.all(counts == 1)):
            t += 1.0
            out /= np.multiply.reduce(t, axis=0)
        else:
            out *= np.exp(-(counts @ np.log1p(t)))

    def log_moment(self, s: FloatArray) -> FloatArray:
        """−log(1 − 2 Var sinh²(s/2)), infinite from the rate on."""
        s = np.asarray(s, np.float64)
        with np.errstate(over="ignore"):
            inside = 2.0 * self.variance * np.sinh(s / 2) ** 2
        out = np.full(s.shape, np.inf)
        return np.asarray(-np.log1p(-inside, where=inside < 1, out=-out))

    def log_mass(self, z: Int64Array) -> FloatArray:
        """Log tanh(rate/2) − rate·|z|."""
        rate = float(self.rate)
        return np.asarray(math.log(math.tanh(rate / 2)) - rate * np.abs(z))

    def log_shift_sums(self, d: Int64Array, groups: GroupedCells) -> FloatArray:
        """Geometric series between the places −d, in closed form."""
        from subspacedp.noise.shift_sums import laplace_shifts

        return laplace_shifts(float(self.rate), d, groups)

    def reach(self, spread: float, cells: int) -> int:
        """Beyond it the tail is below exp(−40); see docs/proofs/likelihood.md."""
        return math.ceil(spread + 40 / float(self.rate)) + 2 * cells


def _geometric(rng: np.random.Generator, chance: float, shape: tuple[int, ...]) -> FloatArray:
    """What `rng.geometric(chance, shape)` gives, to the last bit, and sooner where it is small.

    NumPy searches from 1 on where the chance is at least 1/3: the first k with u ≤ P(X ≤ k). Its
    sums are compared here with all u at once, of which there are less than 100 before they stay.
    """
    if chance < SEARCHED:
        return np.asarray(rng.geometric(chance, shape), np.float64)
    u = rng.random(shape)
    found, largest = np.ones(shape, np.uint8), float(u.max(initial=0.0))
    below = term = chance
    while below < largest:
        found += u > below
        term *= 1.0 - chance
        if below + term == below:
            break
        below += term
    return found.astype(np.float64)


@frozen
class DeclaredNoise:
    """The noise of a mechanism that is not ours: only what its owner says is known of it."""

    description: str
    declared_variance: float | None = None

    known: ClassVar[None] = None  # no more than the variance is
    family: ClassVar[str] = "declared"
    states: ClassVar[Mapping[str, Any]] = {"description": {"type": "string"}}
    excess: ClassVar[float] = 0.0

    @property
    def variance(self) -> float:
        """As declared; NaN where nothing was."""
        return math.nan if self.declared_variance is None else self.declared_variance

    @property
    def scale(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def as_dict(self) -> dict[str, Any]:
        """What was declared, as plain data."""
        return {
            "family": self.family,
            "description": self.description,
            "variance": self.declared_variance,
            "mass": "that of the mechanism the invariants are imposed on",
        }


@frozen
class DigitDifference:
    """D − D' for two independent digits with P(d) ∝ exp(−rate·d), 0 ≤ d < base."""

    rate: Fraction
    base: int

    @property
    def scale(self) -> float:
        """At most a base."""
        return float(min(Fraction(self.base), 1 / self.rate))

    @property
    def float_quantile(self) -> bool:
        """Drawn from a table."""
        return False

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


@frozen
class RoundedGaussian(KnownLaw):
    """The integer nearest to a normal variable of standard deviation `sigma`.

    Rounding is post-processing of the ideal Gaussian mechanism on whole answers (x + round(e) =
    round(x + e)), so the exact calibration of the ideal one holds, in any dimension.

    Examples
    --------
    >>> round(RoundedGaussian(0.5).variance / 0.25, 2), round(RoundedGaussian(2.0).variance / 4, 2)
    (1.3, 1.02)
    """

    sigma: float

    family: ClassVar[str] = "rounded Gaussian"
    mass: ClassVar[str] = "P(z) = Phi((z + 1/2)/sigma) - Phi((z - 1/2)/sigma), z any integer"
    states: ClassVar[Mapping[str, Any]] = {"sigma": {"type": "number", "exclusiveMinimum": 0}}
    nearly_normal: ClassVar[bool] = True

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

    @property
    def float_quantile(self) -> bool:
        """From a σ of 1000 on."""
        return self.sigma > LARGEST_SIGMA_TABLE

    def simulate(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Rounded normal variables."""
        return np.asarray(np.rint(rng.normal(0.0, self.sigma, shape)))

    @property
    def tail_variance(self) -> float:
        """Rounding can leave a normal variable far less variance than its tails have."""
        return max(self.variance, self.sigma**2)

    @property
    def normal_within(self) -> float | None:
        """The variable that is rounded."""
        return self.sigma

    def characteristic(self, t: FloatArray) -> FloatArray:
        """Σ_m exp(−σ²s²/2) sin(s/2)/(s/2) with s = t + 2πm.

        Rounding a normal variable samples its density smoothed over one step; Poisson summation.
        """
        if self.sigma < FEW_NUMBERS:
            return _cosine_sum(*self._few(), t)
        near = t - 2 * np.pi * np.rint(t / (2 * np.pi))
        out = np.zeros(t.shape)
        for m in range(-2, 3):
            if abs(m) == 2 and self.sigma > 1:
                continue
            s = near + 2 * np.pi * m
            out += np.exp(-0.5 * (self.sigma * s) ** 2) * np.sinc(s / (2 * np.pi))
        return out

    def envelope(self, t: FloatArray) -> FloatArray:
        """|sin(s/2)/(s/2)| ≤ 1 leaves Σ_m exp(−σ²(t + 2πm)²/2).

        That is a wrapped normal density up to a factor, and decreases.
        """
        total = sum(np.exp(-0.5 * (self.sigma * (t + 2 * np.pi * m)) ** 2) for m in range(-3, 4))
        return np.asarray(np.minimum(1.0, total))

    def log_moment(self, s: FloatArray) -> FloatArray:
        """By a sum over a few whole numbers, or over a few periods."""
        s = np.asarray(s, np.float64)
        if self.sigma < FEW_NUMBERS:
            # The mass beyond 40 standard deviations and the tilt is nothing beside the rest.
            last = int(np.ceil(self.sigma**2 * float(s.max(initial=0.0)) + 40 * self.sigma)) + 3
            z = np.arange(-last, last + 1, dtype=np.float64)
            upper, lower = (z + 0.5) / self.sigma, (z - 0.5) / self.sigma
            flip = z > 0
            high = log_normal_below(np.where(flip, -lower, upper))
            low = log_normal_below(np.where(flip, -upper, lower))
            mass = high + np.log1p(-np.exp(low - high))
            return np.asarray(log_sum_exp(mass + np.multiply.outer(s, z)))
        # E exp(sZ) = Σ_m (−1)^m exp(σ²(s + 2πim)²/2) sinh(s/2)/((s + 2πim)/2)
        series = np.zeros(s.shape)
        for m in (1, 2, 3):
            turn = np.exp(2j * np.pi * m * self.sigma**2 * s) * s / (s + 2j * np.pi * m)
            series += 2 * (-1) ** m * np.exp(-2 * (np.pi * m * self.sigma) ** 2) * turn.real
        half = np.maximum(s / 2, 1e-12)
        log_sinhc = half + np.log(-np.expm1(-2 * half) / (2 * half))
        return np.asarray(0.5 * (self.sigma * s) ** 2 + log_sinhc + np.log1p(series))

    def log_mass(self, z: Int64Array) -> FloatArray:
        """Log of Φ((½ − |z|)/σ) − Φ((−½ − |z|)/σ)."""
        a = np.abs(z).astype(np.float64)
        if self.sigma > SMOOTH:
            spread = 2 * self.variance
            return np.asarray(-(a**2) / spread - 0.5 * math.log(math.pi * spread))
        near, far = (
            log_normal_below((0.5 - a) / self.sigma),
            log_normal_below((-0.5 - a) / self.sigma),
        )
        return np.asarray(near + np.log(-np.expm1(far - near)))

    def _few(self) -> tuple[FloatArray, FloatArray]:
        """The whole numbers from 0 on that carry the law, and their mass."""
        z = np.arange(int(12 * self.sigma) + 2, dtype=np.float64)
        mass = np.exp(log_normal_below((0.5 - z) / self.sigma)) - np.exp(
            log_normal_below((-0.5 - z) / self.sigma)
        )
        return z, mass


@frozen
class DiscreteGaussian(KnownLaw):
    """P(Z = z) ∝ exp(−z²/2σ²): the normal density on the whole numbers, and not rounded to them.

    Guarantees
    ----------
    1. On a query with whole answers and ℓ₂ sensitivity Δ₂, σ² = Δ₂²/(2ρ) is exactly
       ρ-zero-concentrated private (docs/proofs/discrete-gaussian.md).

    Notes
    -----
    With q = exp(−1/2σ²), Jacobi's triple product writes Σ_z q^(z²)·cos(zt) as ∏_n (1 − q^(2n))(1 +
    2q^(2n−1)·cos t + q^(4n−2)). So the characteristic function is positive and decreases from 0 to
    π. By Poisson summation it is Σ_m exp(−σ²(t + 2πm)²/2) up to a factor.

    Reference: Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, NeurIPS
    2020, Theorem 4 and Corollary 9.

    Examples
    --------
    >>> round(DiscreteGaussian(Fraction(1, 4)).variance / 0.25, 2)
    0.86
    >>> DiscreteGaussian(Fraction(4)).variance
    4.0
    """

    sigma_squared: Fraction

    family: ClassVar[str] = "discrete Gaussian"
    mass: ClassVar[str] = "P(z) proportional to exp(-z**2 / (2 * sigma_squared)), z any integer"
    states: ClassVar[Mapping[str, Any]] = {"sigma_squared": FRACTION}
    nearly_normal: ClassVar[bool] = True

    LARGEST = Fraction(LARGEST_SIGMA_TABLE) ** 2  # drawn from a table at every scale

    def __post_init__(self) -> None:
        if not 0 < self.sigma_squared <= self.LARGEST:
            raise BudgetError(
                "The sigma of a discrete Gaussian law must be positive, and at most "
                f"{LARGEST_SIGMA_TABLE:,.0f}; rounded Gaussian noise has any scale."
            )

    @property
    def scale(self) -> float:
        """σ."""
        return math.sqrt(self.sigma_squared)

    @cached_property
    def variance(self) -> float:
        """Σ z² exp(−z²/2σ²) over the normaliser, rounded up; from σ = 3 on σ² to the last digit.

        It is below σ² for every σ, by σ²·O(σ² exp(−2π²σ²)).
        """
        if self.sigma_squared >= 9:
            return round_up(lambda: ball(self.sigma_squared))

        def value() -> arb:
            r, last = ball(1 / (2 * self.sigma_squared)), len(_tails(self, _precision()))
            squares = sum((k * k * (-r * (k * k)).exp() for k in range(1, last + 1)), ball(0))
            beyond = (last + 1) ** 2 * (-r * (last + 1) ** 2).exp()  # then less than half, …
            return 2 * (squares + 2 * beyond) / (1 + 2 * _tails(self, _precision())[0])

        variance = round_up(value)
        return variance if variance > 1e-300 else 0.0

    def cdf(self, z: int) -> Callable[[], arb]:
        """T(−z)/(1 + 2T(1)) below zero, T(n) = Σ_{k≥n} exp(−k²/2σ²); by symmetry from zero on."""

        def value() -> arb:
            tails = _tails(self, _precision())
            n = -z if z < 0 else z + 1
            far = tails[n - 1] if n <= len(tails) else _far_tail(self, n)
            tail = far / (1 + 2 * tails[0])
            return tail if z < 0 else 1 - tail

        return value

    def simulate(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """By inversion in float64."""
        z, mass = self._few()
        both = np.concatenate([mass[:0:-1], mass])
        place = np.searchsorted(np.cumsum(both)[:-1], rng.random(shape), side="right")
        return np.asarray(place - (z.size - 1), np.float64)

    @property
    def tail_variance(self) -> float:
        """E exp(sZ) ≤ exp(σ²s²/2) for every s."""
        return float(self.sigma_squared)

    def characteristic(self, t: FloatArray) -> FloatArray:
        """By a sum over a few whole numbers, or over a few periods."""
        if self.scale < FEW_NUMBERS:
            return _cosine_sum(*self._few(), t)
        near = t - 2 * np.pi * np.rint(t / (2 * np.pi))
        half = 0.5 * float(self.sigma_squared)
        out = np.zeros(t.shape)
        for m in range(-2, 3):
            if abs(m) < 2 or self.scale <= 1:
                out += np.exp(-half * (near + 2 * np.pi * m) ** 2)
        return np.asarray(out / (1 + 2 * self._periods().sum()))

    def log_moment(self, s: FloatArray) -> FloatArray:
        """σ²s²/2, and the log of a periodic function of σ²s that is at most 1."""
        s, squared = np.asarray(s, np.float64), float(self.sigma_squared)
        if self.scale < FEW_NUMBERS:
            last = int(np.ceil(squared * float(s.max(initial=0.0)) + 40 * self.scale)) + 3
            z = np.arange(-last, last + 1)
            return np.asarray(log_sum_exp(self.log_mass(z) + np.multiply.outer(s, z)))
        waves = self._periods()
        lost = sum(
            4 * wave * np.sin(np.pi * m * squared * s) ** 2 for m, wave in enumerate(waves, 1)
        )
        return np.asarray(0.5 * squared * s**2 + np.log1p(-lost / (1 + 2 * waves.sum())))

    def log_mass(self, z: Int64Array) -> FloatArray:
        """−z²/2σ², minus the log of the normaliser."""
        a = np.asarray(z, np.float64)
        return np.asarray(-(a**2) / (2 * float(self.sigma_squared)) - self._log_normaliser)

    @cached_property
    def _log_normaliser(self) -> float:
        if self.scale < FEW_NUMBERS:
            z = np.arange(1, 9)
            return float(np.log1p(2 * np.exp(-(z**2) / (2 * float(self.sigma_squared))).sum()))
        around = math.log(2 * math.pi * float(self.sigma_squared)) / 2
        return around + float(np.log1p(2 * self._periods().sum()))

    def _periods(self) -> FloatArray:
        """exp(−2π²σ²m²) for m = 1, 2, 3."""
        with np.errstate(under="ignore"):
            return np.asarray(np.exp(-2 * (np.pi * self.scale * np.arange(1, 4)) ** 2))

    def _few(self) -> tuple[FloatArray, FloatArray]:
        """The whole numbers from 0 on that carry the law, and their mass."""
        z = np.arange(int(12 * self.scale) + 2)
        return z.astype(np.float64), np.exp(self.log_mass(z))


def _precision() -> int:
    from flint import ctx

    return int(ctx.prec)


@lru_cache(maxsize=32)
def _tails(law: DiscreteGaussian, bits: int) -> list[arb]:
    """T(1), T(2), … as balls, T(n) = Σ_{k≥n} exp(−k²/2σ²), down to about 2^(−2·`bits`)."""
    from flint import ctx

    with ctx.workprec(bits):
        r = ball(1 / (2 * law.sigma_squared))
        last = math.isqrt(math.ceil(4 * bits * math.log(2) * law.sigma_squared)) + 2
        tails = [_far_tail(law, last + 1)]
        for k in range(last, 0, -1):
            tails.append(tails[-1] + (-r * (k * k)).exp())
        return tails[:0:-1]


def _far_tail(law: DiscreteGaussian, n: int) -> arb:
    """A ball around T(n): from one term to a geometric series, whose ratio is exp(−(2n + 1)/2σ²).

    From n on every term is at most that ratio times the one before.
    """
    from flint import arb

    r = ball(1 / (2 * law.sigma_squared))
    ratio = (-r * (2 * n + 1)).exp()
    return (-r * (n * n)).exp() * (1 + ratio / (1 - ratio) * arb(0.5, 0.5))


def _cosine_sum(numbers: FloatArray, mass: FloatArray, t: FloatArray) -> FloatArray:
    """Σ_z P(z) cos(zt) from the whole numbers from 0 on and their mass."""
    out = np.full(t.shape, float(mass[0]))
    for z, p in zip(numbers[1:], mass[1:], strict=True):
        out += 2 * p * np.cos(z * t)
    return out
