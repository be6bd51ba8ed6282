"""How many whole vectors have a norm, or a median: what closed forms are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from subspacedp.balls import ball
from subspacedp.mechanisms.knorm.lazy import Words, geometric, one_of

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "cube_series",
    "drawn_level",
    "exchange_series",
    "median_counts",
    "median_sums",
    "positive_counts",
    "series_sums",
    "signs_within",
]

Series = Callable[[int], tuple[int, ...]]


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
