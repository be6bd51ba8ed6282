"""The law of a sum from draws of it: quantiles with room for the error of the simulation.

Where a sum has neither independent parts nor a lattice of moderate size, its law is simulated with
a key that is fixed and public, and every bound leaves room for what draws may get wrong. Proof:
`docs/proofs/intervals.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Simulated", "draws_for", "public_generator"]

FloatArray = npt.NDArray[np.float64]

PUBLIC_KEY = 0x5EED_5DB  # fixed before anything was simulated with it, and never to be chosen
UNSURE = 1e-12  # the probability that a bound fails, over keys
MOST_NUMBERS = 2**21  # draws times entries
MOST_ENTRIES = 512


def public_generator() -> np.random.Generator:
    """Random numbers that everybody can repeat."""
    return np.random.Generator(np.random.Philox(key=PUBLIC_KEY))


def draws_for(entries: int) -> int | None:
    """How many draws of so many numbers are worth their time; None where too few would be."""
    return None if entries > MOST_ENTRIES else min(2**16, MOST_NUMBERS // max(entries, 1))


@dataclass(frozen=True, eq=False, repr=False)
class Simulated:
    """A variable of which independent draws are known.

    Guarantees
    ----------
    1. Over the key, every `tail(x)` is below P(|S| ≥ x) with probability at most 10⁻¹²; so is the
       probability that P(|S| > `margin_of_error(alpha)`) exceeds alpha, for every alpha.
    2. All tails and margins of one variable hold together, except with probability 10⁻⁷.
    """

    sizes: FloatArray  # |S| of every draw, in increasing order
    method: str = "simulated"

    @classmethod
    def of(cls, draws: FloatArray) -> Simulated:
        """From draws of S."""
        return cls(np.sort(np.abs(draws)))

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
        from scipy.special import bdtr

        number = self.sizes.size
        # P(Bin(number, alpha) ≤ beyond) ≤ UNSURE; the normal limit is a good first guess.
        mean = number * alpha
        beyond = min(math.floor(mean - 6.5 * math.sqrt(mean * (1 - alpha))), number - 1)
        while beyond >= 0 and float(bdtr(beyond, number, alpha)) > UNSURE:
            beyond -= 1
        if beyond < 0:
            return math.inf
        return float(self.sizes[number - 1 - beyond]) * (1 + 1e-9)
