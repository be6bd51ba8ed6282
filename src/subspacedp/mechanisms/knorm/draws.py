"""One draw of the law: in closed form, or by rounding and rejection."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from functools import singledispatch
from itertools import accumulate

from subspacedp.mechanisms.knorm.bodies import Body, Box, CrossPolytope, Deviations, Exchanges
from subspacedp.mechanisms.knorm.counting import median_sums, positive_counts, series_sums
from subspacedp.mechanisms.knorm.lazy import Words, geometric, one_of
from subspacedp.mechanisms.knorm.rejection import attempt

__all__ = ["draw_one"]

Vector = tuple[int, ...]


@singledispatch
def draw_one(body: Body, rate: Fraction, words: Words) -> Vector:
    """One draw of exp(−rate·‖z‖): by rounding and rejection, unless it has a closed form below."""
    while True:
        z = attempt(body, body.cover, rate, words)
        if z is not None:
            return z


@draw_one.register(CrossPolytope)
def _draw_cross(body: CrossPolytope, rate: Fraction, words: Words) -> Vector:
    """Independent two-sided geometric entries."""
    return tuple(geometric(rate / w, words) - geometric(rate / w, words) for w in body.widths)


@draw_one.register(Box)
def _draw_box(body: Box, rate: Fraction, words: Words) -> Vector:
    """A cube: q^‖z‖ = (1 − q) Σ_{s ≥ ‖z‖} q^s, so s first, then z uniform in s times the cube."""
    if not body.cube:
        return draw_one.dispatch(Body)(body, rate, words)
    k = body.entries
    s = _level(Box, k, rate / body.widths[0], k + 1, words)
    return tuple(words.below(2 * s + 1) - s for _ in range(k))


@draw_one.register(Exchanges)
def _draw_exchanges(body: Exchanges, rate: Fraction, words: Words) -> Vector:
    """The norm m first, then how many entries are positive, which ones, and how m is shared."""
    n = body.cells
    m = _level(Exchanges, n - 1, rate, n - 1, words)
    if m == 0:
        return (0,) * n
    sums = list(accumulate(positive_counts(n, m)))
    pick = words.below(sums[-1])
    a = 1 + bisect_right(sums, pick)
    places = words.subset(a, n)
    z = [0] * n
    for place, part in zip(places, words.composition(m - a, a), strict=True):
        z[place] = part + 1
    rest = sorted(set(range(n)) - set(places))
    for place, part in zip(rest, words.composition(m, n - a), strict=True):
        z[place] = -part
    return tuple(z)


@draw_one.register(Deviations)
def _draw_deviations(body: Deviations, rate: Fraction, words: Words) -> Vector:
    """In each group the entries with lower median 0: how many are not, their signs and sizes."""
    from flint import ctx

    out: list[int] = []
    for n in body.groups:
        moved = one_of(lambda n=n: median_sums(n, rate, ctx.prec), words)  # type: ignore[misc]  # not inferred with a default
        h = (n + 1) // 2
        least = max(0, moved - n + h)
        sums, count = [0], math.comb(moved, least)
        for a in range(least, min(moved, h - 1) + 1):
            sums.append(sums[-1] + count)
            count = count * (moved - a) // (a + 1)
        pick = words.below(sums[-1])
        negative = least + bisect_right(sums, pick) - 1
        places = words.subset(moved, n)
        signs = set(words.subset(negative, moved))
        z = [0] * n
        for i, place in enumerate(places):
            size = 1 + geometric(rate, words)
            z[place] = -size if i in signs else size
        out += z
    return tuple(out)


def _level(kind: type[Body], k: int, rate: Fraction, terms: int, words: Words) -> int:
    """A sum j + G_1 + … + G_terms with P(j) ∝ h_j q^j, whose series is Σ h_j q^j/(1 − q)^terms."""
    from flint import ctx

    j = one_of(lambda: series_sums(kind, k, rate, ctx.prec), words)
    return j + sum(geometric(rate, words) for _ in range(terms))
