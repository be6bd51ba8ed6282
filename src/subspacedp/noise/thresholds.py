"""Exact sampling by inversion: a table of 64-bit thresholds, and refinement of the rest.

A uniform real U in [0, 1) is given by its bits. Its first 64 are a word w, and Z = z exactly when
F(z − 1) ≤ U < F(z). With t_z = ⌊2⁶⁴ F(z)⌋: w < t_z implies U < F(z), and w > t_z implies U ≥ F(z).
Only w = t_z leaves it open; then more bits of U are drawn until it is decided. Beyond both ends of
the table t_z is 0 or 2⁶⁴ − 1, so the whole infinite tail is reached by refinement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from subspacedp.balls import certain_compare, certain_floor
from subspacedp.errors import BudgetError
from subspacedp.noise.laws import IntegerLaw

__all__ = ["ThresholdTable", "refine", "threshold_table"]

TOP = 2**64 - 1
LARGEST_ENTRIES = 1 << 21

MoreWords = Callable[[int], int]  # k ↦ word k of the refinement of one cell


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


@lru_cache(maxsize=64)
def threshold_table(law: IntegerLaw) -> ThresholdTable:
    """The table of a law, computed with ball arithmetic."""
    if law.scale * 90 > LARGEST_ENTRIES:
        raise BudgetError(
            f"The noise scale {law.scale:g} is too large for a table; this law needs another way."
        )

    def threshold(z: int) -> int:
        return min(certain_floor(lambda: law.cdf(z)() * 2**64), TOP)

    upward = [threshold(0)]
    while upward[-1] < TOP:
        upward.append(threshold(len(upward)))
    downward = []
    z = -1
    while True:
        downward.append(threshold(z))
        if downward[-1] == 0:
            break
        z -= 1
    values = np.array([*reversed(downward), *upward], np.uint64)
    values.setflags(write=False)
    return ThresholdTable(law, z, values)


def refine(law: IntegerLaw, word: int, more: MoreWords) -> int:
    """The exact value for a uniform U whose first 64 bits are `word`; the law must be symmetric.

    Bits are added until one integer is certain. U in the upper half is mirrored, 1 − U ↦ −Z, so
    that the search is always in the lower tail, where F(z) tells small probabilities apart.
    """
    bits, numerator, drawn = 64, word, 0
    while True:
        upper = numerator >> (bits - 1) == 1
        near = 2**bits - 1 - numerator if upper else numerator
        low, high = Fraction(near, 2**bits), Fraction(near + 1, 2**bits)
        z = _least_reaching(law, high)
        # Decided when F(z − 1) ≤ low and high ≤ F(z): every continuation of the bits gives z.
        if certain_compare(law.cdf(z - 1), low) <= 0:
            return -z if upper else z
        numerator = (numerator << 64) | more(drawn)
        bits, drawn = bits + 64, drawn + 1


def _least_reaching(law: IntegerLaw, level: Fraction) -> int:
    """The least z with F(z) ≥ level, for 0 < level ≤ 1/2 (or a little more at the centre)."""

    def reaches(z: int) -> bool:
        return certain_compare(law.cdf(z), level) >= 0

    low, high = -max(1, int(law.scale)), max(1, int(law.scale))
    while reaches(low):
        low *= 2
    while not reaches(high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
