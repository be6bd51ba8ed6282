"""Uniform real numbers, known by their first bits, that take more bits whenever a question is open.

Every answer is certain, by ball arithmetic: that of the real number itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from subspacedp.balls import ball
from subspacedp.noise.words import Keystream

if TYPE_CHECKING:
    from flint import arb

__all__ = ["START_BITS", "Uniform", "Words", "floor", "geometric", "one_of", "settle"]

T = TypeVar("T")

START_BITS = 160
MOST_BITS = 1 << 15


class Words:
    """The words of one draw, one after another."""

    def __init__(self, stream: Keystream, start: int) -> None:
        self.stream, self.at = stream, start
        self.ready: list[int] = []

    def next(self) -> int:
        """The next word."""
        if not self.ready:
            self.ready = self.stream.words(self.at, 32)[::-1].tolist()
            self.at += 32
        return self.ready.pop()

    def below(self, bound: int) -> int:
        """A uniform whole number from 0 to bound − 1: the leading bits, until one is below."""
        bits = (bound - 1).bit_length()
        words = -(-bits // 64)
        while True:
            value = 0
            for _ in range(words):
                value = value << 64 | self.next()
            value >>= 64 * words - bits
            if value < bound:
                return value

    def subset(self, size: int, of: int) -> list[int]:
        """A uniform subset of 0 … of − 1, sorted (Floyd's algorithm)."""
        chosen: set[int] = set()
        for top in range(of - size, of):
            pick = self.below(top + 1)
            chosen.add(top if pick in chosen else pick)
        return sorted(chosen)

    def composition(self, total: int, parts: int) -> list[int]:
        """Whole numbers of at least 0 that add up to the total, all such lists equally likely."""
        bars = self.subset(parts - 1, total + parts - 1)
        ends = [-1, *bars, total + parts - 1]
        return [b - a - 1 for a, b in pairwise(ends)]


class Uniform:
    """A uniform real number in [0, 1), known to some bits."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.bits, self.numerator = 64, words.next()

    def sharpen(self) -> None:
        """Take 64 more bits."""
        self.numerator = self.numerator << 64 | self.words.next()
        self.bits += 64

    def ball(self) -> arb:
        """All numbers with these first bits."""
        from flint import arb

        return arb(2 * self.numerator + 1, 1) / arb(2) ** (self.bits + 1)

    def exponential(self) -> arb:
        """−log U; not finite while all known bits are zero."""
        return -self.ball().log()


def settle(reals: Sequence[Uniform], decide: Callable[[], T | None]) -> T:
    """The answer to a question, with more bits of the real numbers until there is one."""
    from flint import ctx

    bits = START_BITS
    while bits <= MOST_BITS:
        with ctx.workprec(bits):
            answer = decide()
        if answer is not None:
            return answer
        for real in reals:
            real.sharpen()
        bits += 128
    raise ArithmeticError("a draw could not be decided")


def floor(value: arb) -> int | None:
    """The floor of a ball; None while it is open."""
    whole = value.floor().unique_fmpz() if value.is_finite() else None
    return None if whole is None else int(whole)


def geometric(rate: Fraction, words: Words) -> int:
    """P(G ≥ g) = exp(−rate·g): the floor of an exponential variable over the rate."""
    real = Uniform(words)
    return settle([real], lambda: floor(real.exponential() / ball(rate)))


def one_of(sums: Callable[[], Sequence[arb]], words: Words) -> int:
    """An index j with probability proportional to the step of increasing sums at j."""
    real = Uniform(words)

    def decide() -> int | None:
        levels = sums()
        x = real.ball() * levels[-1]
        low, high = 0, len(levels) - 1
        while low < high:  # the first j whose level is not certainly below
            middle = (low + high) // 2
            low, high = (middle + 1, high) if levels[middle] <= x else (low, middle)
        above = low == 0 or levels[low - 1] <= x
        return low if above and (low == len(levels) - 1 or x < levels[low]) else None

    return settle([real], decide)
