"""The hull of ±w_i e_i: independent noise on every number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.balls import ball
from subspacedp.mechanisms.knorm.lazy import Uniform, Words, geometric
from subspacedp.mechanisms.knorm.norm_balls.base import (
    HALF,
    FloatArray,
    NormBall,
    Row,
    check_widths,
    log_product,
)
from subspacedp.mechanisms.knorm.rejection import Proposal, exponential_total
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.problem import Problem

if TYPE_CHECKING:
    from flint import arb

__all__ = ["CrossPolytope"]


@dataclass(frozen=True)
class CrossPolytope(NormBall):
    """‖z‖ = Σ |z_i|/w_i: the hull of ±w_i e_i.

    >>> CrossPolytope((Fraction(1), Fraction(2))).gauge((1, -1))
    Fraction(3, 2)
    """

    widths: tuple[Fraction, ...]

    closed_form: ClassVar[bool] = True
    positive_sums: ClassVar[bool] = True
    on_answers: ClassVar[str] = "every answer, independently, before projection onto the null space"

    def __post_init__(self) -> None:
        check_widths(self.widths)

    @property
    def entries(self) -> int:
        """One a width."""
        return len(self.widths)

    def gauge(self, z: Sequence[int]) -> Fraction:
        """Σ |z_i|/w_i."""
        return sum((abs(v) / w for v, w in zip(z, self.widths, strict=True)), Fraction(0))

    @cached_property
    def half_cell(self) -> Fraction:
        """Σ 1/(2w_i)."""
        return sum((HALF / w for w in self.widths), Fraction(0))

    @property
    def log_volume(self) -> float:
        """2^k Π w_i / k!."""
        return log_product(self.widths) - math.lgamma(self.dimension + 1)

    @property
    def second_moment(self) -> FloatArray:
        """2w_i²/((k + 1)(k + 2)) on the diagonal."""
        k = self.dimension
        return np.diag([2 * float(w) ** 2 / ((k + 1) * (k + 2)) for w in self.widths])

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ |z_i|/w_i."""
        return np.asarray(np.abs(points) @ (1 / self.reach))

    @cached_property
    def reach(self) -> FloatArray:
        """The widths."""
        return np.array([float(w) for w in self.widths])

    @property
    def independent(self) -> tuple[Fraction, ...]:
        """Two-sided geometric entries."""
        return self.widths

    def draw(self, rate: Fraction, words: Words) -> Row:
        """Independent two-sided geometric entries."""
        return tuple(geometric(rate / w, words) - geometric(rate / w, words) for w in self.widths)

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """Exponential sizes."""
        k = self.entries
        reals = [Uniform(words) for _ in range(k + 1)]
        signs = [words.below(2) * 2 - 1 for _ in range(k)]

        def point() -> list[arb]:
            triples = zip(reals[:k], self.widths, signs, strict=True)
            return [u.exponential() * ball(sign * w / rate) for u, w, sign in triples]

        return Proposal(reals, lambda: exponential_total(reals) / ball(rate), point)

    def normaliser(self, rate: Fraction) -> Callable[[], arb]:
        """Π coth(rate/2w)."""

        def value() -> arb:
            out = ball(1)
            for w in self.widths:
                out *= 1 / (ball(rate / w) / 2).tanh()
            return out

        return value

    def covariance(self, rate: Fraction) -> FloatArray:
        """That of each entry on the diagonal."""
        return np.diag([DiscreteLaplace(rate / w).variance for w in self.widths])

    def protects(self, problem: Problem, within: Fraction) -> bool:
        """By Δ₁: the widths are one, so the norm is the sum of sizes."""
        query, relation = problem.query, problem.neighbours
        fits = set(self.widths) == {Fraction(1)} and self.entries == query.size
        return fits and within * relation.records >= query.sensitivity(relation).l1

    def as_dict(self) -> dict[str, Any]:
        """The widths."""
        return {"body": "cross-polytope", "widths": [str(w) for w in self.widths]}
