"""Exact sampling by inversion: tables of 64-bit thresholds, and refinement of the rest.

A uniform real U in [0, 1) is given by its bits. Its first 64 are a word w, and Z = z exactly when
F(z − 1) ≤ U < F(z). With t_z = ⌊2⁶⁴ F(z)⌋: w < t_z implies U < F(z), and w > t_z implies U ≥ F(z).
Only w = t_z leaves it open; then more bits of U are drawn until it is decided. Beyond
the table on both sides t_z is 0 or 2⁶⁴ − 1, so the whole infinite tail is reached by refinement.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from subspacedp.balls import certain_compare, certain_floor
from subspacedp.noise.laws import IntegerLaw

__all__ = [
    "QUANTILE_BOUND",
    "GaussianInversion",
    "Lookup",
    "ThresholdTable",
    "refine",
    "threshold_table",
]

TOP = 2**64 - 1

MoreWords = Callable[[int], int]  # k ↦ word k of the refinement of one cell

# |computed Φ⁻¹(u) − Φ⁻¹(u)| ≤ QUANTILE_BOUND·(1 + |x|), rounding of u included. The largest error
# that tests find against ball arithmetic is 2**-51 (1 + |x|); the bound leaves a factor of eight.
QUANTILE_BOUND = 2.0**-48


class Lookup(Protocol):
    """Words to values; the few words that do not decide are named."""

    @property
    def law(self) -> IntegerLaw:
        """The law of the values."""

    def lookup(
        self, words: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The value for every word (a guess where it is open), and the places that are open."""


@dataclass(frozen=True, eq=False, repr=False)
class ThresholdTable:
    """t_z for z = first, first + 1, …, increasing from 0 to 2⁶⁴ − 1."""

    law: IntegerLaw
    first: int
    thresholds: npt.NDArray[np.uint64]

    def lookup(
        self, words: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The value for every word, and the places of the words that need refinement."""
        place = np.searchsorted(self.thresholds, words, side="left")
        # t_z ≥ w first at `place`: w < t_z decides z = first + place; equality leaves it open.
        inside = np.minimum(place, len(self.thresholds) - 1)
        open_ = np.flatnonzero(self.thresholds[inside] == words)
        return place + self.first, open_

    @cached_property
    def guide(self) -> tuple[npt.NDArray[np.int32], int]:
        """What the leading bits of a word say of its place, and how many bits are not used.

        Twice the place, or where a threshold has these leading bits, so that the other bits decide,
        twice the place to start from and one. Many guide entries per threshold make that rare.
        """
        bits = min(16, max(12, int(32 * len(self.thresholds) - 1).bit_length()))
        unused = np.uint64(64 - bits)
        leading = np.arange(1 << bits, dtype=np.uint64) << unused
        last = leading | ((np.uint64(1) << unused) - np.uint64(1))
        places = np.searchsorted(self.thresholds, leading, side="left")
        open_ = np.searchsorted(self.thresholds, last, side="right") != places
        return (2 * places + open_).astype(np.int32), 64 - bits


@lru_cache(maxsize=64)
def threshold_table(law: IntegerLaw) -> ThresholdTable:
    """The table of a symmetric law, computed with ball arithmetic.

    Only the lower tail is evaluated, where F keeps its relative precision: F(z) = 1 − F(−z − 1),
    and as no F(z) is a multiple of 2⁻⁶⁴, t_z = 2⁶⁴ − 1 − t_{−z−1}.
    """

    def threshold(z: int) -> int:
        return certain_floor(lambda: law.cdf(z)() * 2**64)

    lower = [threshold(-1)]
    while lower[-1] > 0:
        lower.append(threshold(-1 - len(lower)))
    values = np.array([*reversed(lower), *(TOP - t for t in lower)], np.uint64)
    values.setflags(write=False)
    return ThresholdTable(law, -len(lower), values)


def refine(law: IntegerLaw, word: int, more: MoreWords, guess: int = 0) -> int:
    """The exact value for a uniform U whose first 64 bits are `word`; the law must be symmetric.

    Bits are added until one integer is certain. U in the upper half is mirrored, 1 − U ↦ −Z, so
    that the search is always in the lower tail, where F(z) tells small probabilities apart.
    `guess` only says where to look first.
    """
    bits, numerator, drawn = 64, word, 0
    while True:
        upper = numerator >> (bits - 1) == 1
        near = 2**bits - 1 - numerator if upper else numerator
        low, high = Fraction(near, 2**bits), Fraction(near + 1, 2**bits)
        z = _least_reaching(law, high, -abs(guess))
        # Decided when F(z − 1) ≤ low and high ≤ F(z): every continuation of the bits gives z.
        if certain_compare(law.cdf(z - 1), low) <= 0:
            return -z if upper else z
        numerator = (numerator << 64) | more(drawn)
        bits, drawn = bits + 64, drawn + 1


def _least_reaching(law: IntegerLaw, level: Fraction, guess: int) -> int:
    """The least z with F(z) ≥ level, for 0 < level ≤ 1/2 (or a little more at the centre)."""

    def reaches(z: int) -> bool:
        return certain_compare(law.cdf(z), level) >= 0

    step = 2
    while reaches(guess - step):
        step *= 2
    low, step = guess - step, 2
    while not reaches(guess + step):
        step *= 2
    high = guess + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


@dataclass(frozen=True, eq=False, repr=False)
class GaussianInversion:
    """Words to rounded Gaussian values, where σ is so large that a table had some 18 σ entries.

    The quantile x = Φ⁻¹(u) is computed in float64 with a stated bound on its error, and σx is
    rounded where it is farther from a half-integer than the bound; the other words are refined with
    ball arithmetic, as everywhere.
    """

    law: IntegerLaw  # a rounded Gaussian one, of scale σ

    def lookup(
        self, words: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The value for every word (a guess where it is open), and the places that are open."""
        from scipy.special import ndtri

        upper = words >> np.uint64(63) == 1
        near = np.where(upper, ~words, words)  # distance from the nearer of 0 and 1, below 2⁶³
        x = ndtri((near.astype(np.float64) + 0.5) * 2.0**-64)
        # The word leaves u open by half of 2⁻⁶⁴ either way, and so x by that over the density.
        with np.errstate(over="ignore"):
            spread = 2.0**-64 * math.sqrt(2 * math.pi) * np.exp(x * x / 2)
        slack = self.law.scale * (QUANTILE_BOUND * (1 - x) + spread)
        y = self.law.scale * x
        z = np.rint(y)
        open_ = np.flatnonzero(np.abs(y - z) + slack >= 0.5)
        values = z.astype(np.int64)
        return np.where(upper, -values, values), open_
