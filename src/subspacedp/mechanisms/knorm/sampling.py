"""Exact drawing: real numbers bit by bit, numbers of whole vectors, rounding and rejection.

A uniform real number is known to as many bits as a question about it needs. Closed forms are made
of how many whole vectors have a norm or a median. Everything else is continuous noise, rounded,
with what rounding gets wrong rejected (docs/proofs/knorm.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeVar

from subspacedp.balls import ball
from subspacedp.frozen import frozen
from subspacedp.noise.words import Keystream

if TYPE_CHECKING:
    from flint import arb

    from subspacedp.mechanisms.knorm.norm_balls import NormBall

T = TypeVar("T")
START_BITS = 160
MOST_BITS = 1 << 15
Series = Callable[[int], tuple[int, ...]]
Vector = tuple[int, ...]


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


@lru_cache(maxsize=64)
def cube_series(k: int) -> tuple[int, ...]:
    """h_j with Σ_s (lattice points of s·cube) q^s = Σ_j h_j q^j/(1 − q)^(k+1).

    Eulerian numbers of type B.
    """
    row = [1]
    for n in range(1, k + 1):
        wide = [0, *row, 0]
        row = [(2 * j + 1) * wide[j + 1] + (2 * (n - j) + 1) * wide[j] for j in range(n + 1)]
    return tuple(row)


@lru_cache(maxsize=64)
def exchange_series(k: int) -> tuple[int, ...]:
    """The same for exchanges: squared binomial coefficients."""
    return tuple(math.comb(k, j) ** 2 for j in range(k + 1))


@lru_cache(maxsize=64)
def series_sums(series: Series, k: int, rate: Fraction, bits: int) -> tuple[arb, ...]:
    """The sums of h_j q^j; `bits` is the current precision."""
    del bits
    terms = (ball(h) * (-ball(rate) * j).exp() for j, h in enumerate(series(k)))
    return tuple(accumulate(terms))


def drawn_level(series: Series, k: int, rate: Fraction, terms: int, words: Words) -> int:
    """A sum j + G_1 + … + G_terms with P(j) ∝ h_j q^j, whose series is Σ h_j q^j/(1 − q)^terms."""
    from flint import ctx

    j = one_of(lambda: series_sums(series, k, rate, ctx.prec), words)
    return j + sum(geometric(rate, words) for _ in range(terms))


def positive_counts(n: int, m: int) -> list[int]:
    """The number of vectors of norm m with a = 1, 2, … positive entries.

    Places C(n, a), positive parts C(m − 1, a − 1), the others C(m + n − a − 1, n − a − 1).
    """
    count = n * math.comb(m + n - 2, n - 2)
    out = []
    for a in range(1, min(n - 1, m) + 1):
        out.append(count)
        # The ratio of neighbouring terms; whole at every step, in this order.
        count = count * (n - a) * (m - a) * (n - a - 1)
        count //= (a + 1) * a * (m + n - a - 1)
    return out


def signs_within(terms: int, below: int, above: int) -> list[int]:
    """Σ C(T, A) over A ≤ below, T − A ≤ above, for T = 0 … terms − 1, below + above ≥ T.

    The sum is F(below) + F(above) − 2^T, where F(x) = Σ_{A ≤ x} C(T, A) goes to 2F(x) − C(T, x) as
    T grows by one.
    """

    def partial(x: int) -> list[int]:
        total, last, out = (1 if x >= 0 else 0), (1 if x == 0 else 0), []
        for t in range(terms):
            out.append(total)
            total = 2 * total - last
            # C(T + 1, x) from C(T, x)
            last = 1 if t + 1 == x else last * (t + 1) // (t + 1 - x) if t + 1 > x >= 0 else 0
        return out

    pairs = zip(partial(below), partial(above), strict=True)
    return [first + second - 2**t for t, (first, second) in enumerate(pairs)]


@lru_cache(maxsize=64)
def median_counts(n: int) -> tuple[int, ...]:
    """How often T = 0 … n − 1 of n entries can be other than the lower median, signs included.

    With h = ⌈n/2⌉ at most h − 1 entries are below it and at most n − h above.
    """
    h, places, out = (n + 1) // 2, 1, []
    for t, signs in enumerate(signs_within(n, h - 1, n - h)):
        out.append(places * signs)
        places = places * (n - t) // (t + 1)  # C(n, T + 1)
    return tuple(out)


@lru_cache(maxsize=256)
def median_sums(n: int, rate: Fraction, bits: int) -> tuple[arb, ...]:
    """The sums of the counts times (q/(1 − q))^T; `bits` is the current precision."""
    del bits
    odds = 1 / (ball(rate).expm1())
    return tuple(accumulate(ball(c) * odds**t for t, c in enumerate(median_counts(n))))


@frozen
class Proposal:
    """x uniform in level·norm ball, the level with density ∝ level^k exp(−rate·level)."""

    reals: list[Uniform]
    level: Callable[[], arb]
    point: Callable[[], list[arb]]


def attempt(norm_ball: NormBall, cover: NormBall, rate: Fraction, words: Words) -> Vector | None:
    """Round x, uniform in level·cover; keep z if ‖z‖ + (norm of half a cell) is below the level.

    For such z the whole cell around it lies in level·cover, so that P(z kept) is the same multiple
    of ∫ exp(−rate·level) over levels beyond ‖z‖ + c for all z.
    """
    proposal = cover.proposal(rate, words)
    z = settle(proposal.reals, lambda: rounded(proposal.point()))
    norm = norm_ball.norm(z)

    def inside() -> bool | None:
        excess = proposal.level() - norm() - ball(cover.half_cell)
        return True if excess > 0 else False if excess < 0 else None

    return z if settle(proposal.reals, inside) else None


def exponential_total(reals: Sequence[Uniform]) -> arb:
    """The sum of so many exponential variables."""
    from flint import arb

    return sum((real.exponential() for real in reals), arb(0))


def rounded(point: list[arb]) -> Vector | None:
    """The nearest whole vector; None while it is open."""
    half = ball(Fraction(1, 2))
    out = [floor(x + half) for x in point]
    return None if None in out else tuple(v for v in out if v is not None)
