"""The law of a sum by simulation; noise and rounding of a small table together.

A rounding's probability is the fractional part of X = Σ bᵢeᵢ, a function of the noise. Where noise
is small, X is not spread over the whole numbers, and the bounds that hold for any noise are far
from the law itself. Proof: `docs/proofs/intervals.md`.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np

from subspacedp.arrays import FloatArray
from subspacedp.frozen import frozen
from subspacedp.noise.laws import KnownLaw
from subspacedp.rounding import MarginRounding
from subspacedp.special import binomial_at_most

PUBLIC_KEY = 0x5EED_5DB  # fixed before anything was simulated with it, and never to be chosen
UNSURE = 1e-12  # the probability that a bound fails, over keys
MOST_NUMBERS = 2**21  # draws times entries
MOST_ENTRIES = 512
MOST_CELLS = 256
FREQUENCIES = 40  # of the variance of a rounding; those left out would make it smaller


def public_generator() -> np.random.Generator:
    """Random numbers that everybody can repeat."""
    return np.random.Generator(np.random.Philox(key=PUBLIC_KEY))


def draws_for(entries: int) -> int | None:
    """How many draws of so many numbers are worth their time; None where too few would be."""
    return None if entries > MOST_ENTRIES else min(2**16, MOST_NUMBERS // max(entries, 1))


@frozen(eq=False, repr=False)
class Simulated:
    """A variable of which independent draws are known.

    Guarantees
    ----------
    1. Over the key, every `tail(x)` is below P(|S| ≥ x) with probability at most 10⁻¹²; so is the
       probability that P(|S| > `margin_of_error(alpha)`) exceeds alpha, for every alpha.
    2. All tails and margins of one variable hold together, except with probability 10⁻⁷.
    """

    sizes: FloatArray  # |S| of every draw, in increasing order
    whole: bool = False  # whether they are whole numbers
    method: str = "simulated"

    @classmethod
    def of(cls, draws: FloatArray, step: float | None = None) -> Simulated:
        """From draws of S, which is a multiple of the step if one is given."""
        if step is not None:
            draws = np.rint(draws / step) * step
        return cls(np.sort(np.abs(draws)), step is not None and step.is_integer())

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance): the upper bound of Clopper and Pearson."""
        from scipy.special import betaincinv

        if distance <= 0:
            return 1.0
        number = self.sizes.size
        place = np.searchsorted(self.sizes, distance * (1 - 1e-9), side="left")
        beyond = number - int(place)
        if beyond == number:
            return 1.0
        return 1.0 - float(betaincinv(number - beyond, beyond + 1, UNSURE))

    def margin_of_error(self, alpha: float) -> float:
        """The draw with so few beyond it that P(|S| > q) > alpha would be a wonder."""
        number = self.sizes.size
        beyond = _beyond(number, alpha)
        if beyond < 0:
            return math.inf
        return float(self.sizes[number - 1 - beyond]) * (1.0 if self.whole else 1 + 1e-9)


@lru_cache
def _beyond(number: int, alpha: float) -> int:
    """The largest k with P(Bin(number, alpha) ≤ k) ≤ UNSURE; the normal limit is a first guess."""
    mean = number * alpha
    beyond = min(math.floor(mean - 6.5 * math.sqrt(mean * (1 - alpha))), number - 1)
    while beyond >= 0 and binomial_at_most(beyond, number, alpha) > UNSURE:
        beyond -= 1
    return beyond


@frozen(eq=False, repr=False)
class SmallTable:
    """Independent noise e of one law on the cells of a table, and its controlled rounding."""

    law: KnownLaw
    plan: MarginRounding

    @cached_property
    def entries(self) -> FloatArray:
        """What is rounded, as weights of the noise of every cell: roundings × cells."""
        space = self.plan.space
        units = np.eye(space.size).reshape(space.size, *space.shape)
        return np.stack([self.plan.thrown_entries(e - space.project(e)) for e in units], axis=1)

    @cached_property
    def rounding_variances(self) -> FloatArray:
        """E[f(1 − f)] = 1/6 − Σ_k φ_X(2πk)/(πk)² each, from above: φ_X is not negative."""
        out = np.full(len(self.entries), 1 / 6)
        for k in range(1, FREQUENCIES + 1):
            turns = self.law.characteristic(2 * np.pi * k * self.entries).prod(axis=1)
            out -= np.maximum(turns - 1e-12, 0.0) / (np.pi * k) ** 2
        return np.asarray(np.maximum(out, 0.0) + 1e-12)

    def law_of(
        self, inside: FloatArray, coefficients: FloatArray, step: float | None = None
    ) -> Simulated:
        """The law of Σ aᵢeᵢ − Σ vⱼuⱼ, which is a multiple of the step if one is given."""
        table = self.law, self.entries.shape, self.entries.tobytes()
        return _law_of(table, inside.tobytes(), coefficients.tobytes(), step)


# A publication asks for the same when it is designed, written and verified. All of it is public:
# the law, the weights, and draws whose key everybody knows.


@lru_cache(maxsize=1)
def _draws(law: KnownLaw, shape: tuple[int, int], entries: bytes) -> tuple[FloatArray, FloatArray]:
    """Noise of every cell, and up to what the roundings move."""
    rng = public_generator()
    noise = law.simulate(rng, (draws_for(shape[1]) or 1, shape[1]))
    exact = noise @ np.frombuffer(entries).reshape(shape).T
    return noise, np.floor(exact + rng.random(exact.shape)) - exact


@lru_cache(maxsize=64)
def _law_of(
    table: tuple[KnownLaw, tuple[int, int], bytes],
    inside: bytes,
    coefficients: bytes,
    step: float | None,
) -> Simulated:
    noise, moved = _draws(*table)
    return Simulated.of(noise @ np.frombuffer(inside) - moved @ np.frombuffer(coefficients), step)
