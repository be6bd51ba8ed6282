"""Norm balls with a width for every entry: a cross-polytope and a box."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import FloatArray
from subspacedp.balls import ball
from subspacedp.frozen import frozen
from subspacedp.mechanisms.error_laws.simulated import draws_for, public_generator
from subspacedp.mechanisms.knorm.norm_balls.base import (
    HALF,
    NormBall,
    Row,
    check_widths,
    log_product,
    widths_of,
)
from subspacedp.mechanisms.knorm.sampling import (
    START_BITS,
    Proposal,
    Uniform,
    Words,
    cube_series,
    drawn_level,
    exponential_total,
    geometric,
    series_sums,
)
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.problem import Problem

if TYPE_CHECKING:
    from flint import arb


@frozen
class _ByWidths(NormBall):
    """A norm ball with a width for every entry."""

    widths: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        check_widths(self.widths)

    @property
    def entries(self) -> int:
        """One per width."""
        return len(self.widths)

    @cached_property
    def reach(self) -> FloatArray:
        """The widths."""
        return np.array([float(w) for w in self.widths])

    def as_dict(self) -> dict[str, Any]:
        """The widths."""
        return {"body": self.body, "widths": [str(w) for w in self.widths]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """The widths."""
        return cls(widths_of(data, entries))


@frozen
class CrossPolytope(_ByWidths):
    """‖z‖ = Σ |z_i|/w_i: the hull of ±w_i e_i.

    >>> CrossPolytope((Fraction(1), Fraction(2))).gauge((1, -1))
    Fraction(3, 2)
    """

    body: ClassVar[str] = "cross-polytope"
    closed_form: ClassVar[bool] = True
    positive_sums: ClassVar[bool] = True
    on_answers: ClassVar[str] = "every answer, independently, before projection onto the null space"

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


@frozen
class Box(_ByWidths):
    """‖z‖ = max |z_i|/w_i.

    >>> Box((Fraction(1), Fraction(2))).gauge((1, -1))
    Fraction(1, 1)
    """

    body: ClassVar[str] = "box"
    positive_sums: ClassVar[bool] = True

    @property
    def cube(self) -> bool:
        """Whether all widths are equal."""
        return len(set(self.widths)) == 1

    def log_trials(self, rate: Fraction) -> float:
        """A cube is drawn without rejection."""
        return 0.0 if self.cube else super().log_trials(rate)

    def gauge(self, z: Sequence[int]) -> Fraction:
        """The largest |z_i|/w_i."""
        return max(abs(v) / w for v, w in zip(z, self.widths, strict=True))

    @property
    def half_cell(self) -> Fraction:
        """That of the smallest width."""
        return HALF / min(self.widths)

    @property
    def log_volume(self) -> float:
        """2^k Π w_i."""
        return log_product(self.widths)

    @property
    def second_moment(self) -> FloatArray:
        """w_i²/3 on the diagonal."""
        return np.diag([float(w) ** 2 / 3 for w in self.widths])

    def lengths(self, points: FloatArray) -> FloatArray:
        """The largest |z_i|/w_i."""
        return np.asarray((np.abs(points) / self.reach).max(axis=1))

    def draw(self, rate: Fraction, words: Words) -> Row:
        """A cube: q^‖z‖ = (1 − q) Σ_{s ≥ ‖z‖} q^s, so s first, then z uniform in s·cube."""
        if not self.cube:
            return super().draw(rate, words)
        k = self.entries
        s = drawn_level(cube_series, k, rate / self.widths[0], k + 1, words)
        return tuple(words.below(2 * s + 1) - s for _ in range(k))

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """Exponential sizes."""
        k = self.entries
        first = [Uniform(words) for _ in range(k + 1)]
        second = [Uniform(words) for _ in range(k)]

        def level() -> arb:
            return exponential_total(first) / ball(rate)

        def point() -> list[arb]:
            at = level()
            pairs = zip(second, self.widths, strict=True)
            return [at * ball(w) * (2 * u.ball() - 1) for u, w in pairs]

        return Proposal([*first, *second], level, point)

    def normaliser(self, rate: Fraction) -> Callable[[], arb] | None:
        """Of a cube."""
        k, each = self.entries, rate / self.widths[0]

        def value() -> arb:
            from flint import ctx

            return series_sums(cube_series, k, each, ctx.prec)[-1] / (1 - (-ball(each)).exp()) ** k

        return value if self.cube else None

    def covariance(self, rate: Fraction) -> FloatArray | None:
        """A cube: E[s(s + 1)]/3, s = j + a sum of k + 1 geometric variables."""
        if not self.cube:
            return None
        from flint import ctx

        k, each = self.entries, rate / self.widths[0]
        with ctx.workprec(START_BITS + 8 * k):
            q = (-ball(each)).exp()
            sums = series_sums(cube_series, k, each, ctx.prec)
            steps = [b - a for a, b in zip((ball(0), *sums[:-1]), sums, strict=True)]
            mean = sum((j * p for j, p in enumerate(steps)), ball(0)) / sums[-1]
            square = sum((j * j * p for j, p in enumerate(steps)), ball(0)) / sums[-1]
            more = (k + 1) * q / (1 - q)
            spread = square - mean**2 + more / (1 - q)
            value = float((spread + (mean + more) ** 2 + mean + more) / 3)
        return value * np.eye(k)

    def continuous_noise(self) -> FloatArray | None:
        """Uniform in a box, times a gamma variable."""
        return box_noise(self.widths)


@lru_cache(maxsize=4)
def box_noise(widths: tuple[Fraction, ...]) -> FloatArray | None:
    """Draws of the density exp(−‖x‖) of a box, one per row; None for too many entries."""
    k = len(widths)
    number = draws_for(k)
    if number is None:
        return None
    rng = public_generator()
    inside = rng.uniform(-1.0, 1.0, (number, k)) * np.array([float(w) for w in widths])
    return np.asarray(inside * rng.gamma(k + 1, size=(number, 1)))
