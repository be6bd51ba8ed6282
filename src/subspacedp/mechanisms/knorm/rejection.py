"""Draws by rounding continuous noise and rejecting what rounding gets wrong.

Proof: docs/proofs/knorm.md.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, singledispatch
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.bodies import Body, Box, CrossPolytope, Ellipsoid, SkewCross, Swaps
from subspacedp.mechanisms.knorm.lazy import Uniform, Words, floor, settle

if TYPE_CHECKING:
    from flint import arb

__all__ = ["attempt", "proposal", "rounded"]

Vector = tuple[int, ...]


@dataclass(frozen=True)
class Proposal:
    """x uniform in level·body, the level with density ∝ level^k exp(−rate·level)."""

    reals: list[Uniform]
    level: Callable[[], arb]
    point: Callable[[], list[arb]]


def attempt(body: Body, cover: Body, rate: Fraction, words: Words) -> Vector | None:
    """Round x, uniform in level·cover; keep z if ‖z‖ + (norm of half a cell) is below the level.

    For such z the whole cell around it lies in level·cover, so that P(z kept) is the same multiple
    of ∫ exp(−rate·level) over levels beyond ‖z‖ + c for all z.
    """
    made = proposal(cover, rate, words)
    z = settle(made.reals, lambda: rounded(made.point()))
    norm = body.norm(z)

    def inside() -> bool | None:
        excess = made.level() - norm() - ball(cover.half_cell)
        return True if excess > 0 else False if excess < 0 else None

    return z if settle(made.reals, inside) else None


@singledispatch
def proposal(body: Body, rate: Fraction, words: Words) -> Proposal:
    """Continuous noise of a body, with its level."""
    raise ReleaseError(f"A {type(body).__name__} is no cover to draw from.")


@proposal.register(Box)
def _from_box(body: Box, rate: Fraction, words: Words) -> Proposal:
    k = body.entries
    first = [Uniform(words) for _ in range(k + 1)]
    second = [Uniform(words) for _ in range(k)]

    def level() -> arb:
        return _sum(first) / ball(rate)

    def point() -> list[arb]:
        at = level()
        pairs = zip(second, body.widths, strict=True)
        return [at * ball(w) * (2 * u.ball() - 1) for u, w in pairs]

    return Proposal([*first, *second], level, point)


@proposal.register(CrossPolytope)
def _from_cross(body: CrossPolytope, rate: Fraction, words: Words) -> Proposal:
    k = body.entries
    reals = [Uniform(words) for _ in range(k + 1)]
    signs = [words.below(2) * 2 - 1 for _ in range(k)]

    def point() -> list[arb]:
        triples = zip(reals[:k], body.widths, signs, strict=True)
        return [u.exponential() * ball(sign * w / rate) for u, w, sign in triples]

    return Proposal(reals, lambda: _sum(reals) / ball(rate), point)


@proposal.register(SkewCross)
def _from_skew(body: SkewCross, rate: Fraction, words: Words) -> Proposal:
    """The corners times signed exponentials."""
    from flint import arb_mat

    k = body.entries
    reals = [Uniform(words) for _ in range(k + 1)]
    signs = [words.below(2) * 2 - 1 for _ in range(k)]

    def point() -> list[arb]:
        scale = ball(body.factor / rate)
        shares = [[u.exponential() * sign * scale] for u, sign in zip(reals, signs, strict=False)]
        if not all(share.is_finite() for (share,) in shares):
            return [share for (share,) in shares]
        return [x for (x,) in (_columns(body) * arb_mat(shares)).tolist()]

    return Proposal(reals, lambda: _sum(reals) / ball(rate), point)


@lru_cache(maxsize=8)
def _columns(body: SkewCross) -> Any:
    from flint import arb_mat, fmpz

    rows = zip(*body.corners, strict=True)
    return arb_mat([[fmpz(x) for x in row] for row in rows])


@proposal.register(Swaps)
def _from_swaps(body: Swaps, rate: Fraction, words: Words) -> Proposal:
    """Exchanges of real size: which kinds gain, and how the radius is shared on either side.

    In exchanges of n kinds, a of them gain with probability ∝ C(n, a)·C(n − 2, a − 1). Gains and
    losses are uniform among all that add up to the radius, a sum of n − 1 exponentials.
    """
    from flint import arb, arb_mat

    n, k = len(body.kinds), body.entries
    sums = list(accumulate(math.comb(n, a) * math.comb(n - 2, a - 1) for a in range(1, n)))
    gain = set(words.subset(1 + bisect_right(sums, words.below(sums[-1])), n))
    shares = [Uniform(words) for _ in range(n)]
    radii = [Uniform(words) for _ in range(k + 1)]
    signs = [words.below(2) * 2 - 1 for _ in body.apart]

    def point() -> list[arb]:
        each = [share.exponential() for share in shares]
        up = sum((x for i, x in enumerate(each) if i in gain), arb(0))
        down = sum((x for i, x in enumerate(each) if i not in gain), arb(0))
        radius = _sum(radii[: n - 1]) / ball(rate)
        sizes = [radius * x / up if i in gain else -radius * x / down for i, x in enumerate(each)]
        far = zip(radii[n - 1 : k], signs, strict=True)
        sizes += [real.exponential() / ball(rate) * sign for real, sign in far]
        if not all(size.is_finite() for size in sizes):
            return [radius / arb(0)] * k
        return [x for (x,) in (_kinds(body) * arb_mat([[x] for x in sizes])).tolist()]

    return Proposal([*shares, *radii], lambda: _sum(radii) / ball(rate), point)


@lru_cache(maxsize=8)
def _kinds(body: Swaps) -> Any:
    from flint import arb_mat, fmpz

    rows = zip(*body.kinds, *body.apart, strict=True)
    return arb_mat([[fmpz(x) for x in row] for row in rows])


@proposal.register(Ellipsoid)
def _from_ellipsoid(body: Ellipsoid, rate: Fraction, words: Words) -> Proposal:
    """√s·F⁻¹·(radius·direction): radius a sum of k exponentials, the level one more of them."""
    from flint import arb, arb_mat, ctx

    k = body.entries
    radii = [Uniform(words) for _ in range(k + 1)]
    polar = [(Uniform(words), Uniform(words)) for _ in range((k + 1) // 2)]

    def point() -> list[arb]:
        normal: list[arb] = []
        for u, v in polar:  # Box and Muller
            size = (2 * u.exponential()).sqrt()
            sine, cosine = (2 * v.ball()).sin_cos_pi()
            normal += [size * cosine, size * sine]
        normal = normal[:k]
        length = sum((x * x for x in normal), arb(0)).sqrt()
        scale = _sum(radii[:k]) / ball(rate) / length
        if not scale.is_finite():
            return [scale] * k
        turned = _inverse(body, ctx.prec) * arb_mat([[x * scale] for x in normal])
        return [x for (x,) in turned.tolist()]

    reals = [*radii, *(real for pair in polar for real in pair)]
    return Proposal(reals, lambda: _sum(radii) / ball(rate), point)


@lru_cache(maxsize=8)
def _inverse(body: Ellipsoid, bits: int) -> Any:
    """√s·F⁻¹; `bits` is the current precision."""
    from flint import arb_mat

    del bits
    rows = arb_mat([[ball(x) for x in row] for row in body.factor])
    return rows.inv() * ball(body.squared).sqrt()


def _sum(reals: Sequence[Uniform]) -> arb:
    from flint import arb

    return sum((real.exponential() for real in reals), arb(0))


def rounded(point: list[arb]) -> Vector | None:
    """The nearest whole vector; None while it is open."""
    half = ball(Fraction(1, 2))
    out = [floor(x + half) for x in point]
    return None if None in out else tuple(v for v in out if v is not None)
