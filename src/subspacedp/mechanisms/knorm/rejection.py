"""Draws by rounding continuous noise and rejecting what rounding gets wrong.

Proof: docs/proofs/knorm.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from subspacedp.balls import ball
from subspacedp.mechanisms.knorm.lazy import Uniform, Words, floor, settle

if TYPE_CHECKING:
    from flint import arb

    from subspacedp.mechanisms.knorm.norm_balls.base import NormBall

__all__ = ["Proposal", "attempt", "exponential_total", "rounded"]

Vector = tuple[int, ...]


@dataclass(frozen=True)
class Proposal:
    """x uniform in level·body, the level with density ∝ level^k exp(−rate·level)."""

    reals: list[Uniform]
    level: Callable[[], arb]
    point: Callable[[], list[arb]]


def attempt(norm_ball: NormBall, cover: NormBall, rate: Fraction, words: Words) -> Vector | None:
    """Round x, uniform in level·cover; keep z if ‖z‖ + (norm of half a cell) is below the level.

    For such z the whole cell around it lies in level·cover, so that P(z kept) is the same multiple
    of ∫ exp(−rate·level) over levels beyond ‖z‖ + c for all z.
    """
    made = cover.proposal(rate, words)
    z = settle(made.reals, lambda: rounded(made.point()))
    norm = norm_ball.norm(z)

    def inside() -> bool | None:
        excess = made.level() - norm() - ball(cover.half_cell)
        return True if excess > 0 else False if excess < 0 else None

    return z if settle(made.reals, inside) else None


def exponential_total(reals: Sequence[Uniform]) -> arb:
    """The sum of so many exponential variables."""
    from flint import arb

    return sum((real.exponential() for real in reals), arb(0))


def rounded(point: list[arb]) -> Vector | None:
    """The nearest whole vector; None while it is open."""
    half = ball(Fraction(1, 2))
    out = [floor(x + half) for x in point]
    return None if None in out else tuple(v for v in out if v is not None)
