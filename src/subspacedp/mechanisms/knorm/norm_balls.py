"""Norm balls: what one person can do to a vector of integers, or more than that.

A symmetric convex body K is the unit ball of a norm ‖·‖_K. If no neighbouring change leaves K,
noise with P(z) ∝ exp(−ε‖z‖_K) is ε-private; so it is for every norm ball around K. Sizes of integer
vectors are exact fractions (the square of it for an ellipsoid), so whether a ball holds a change
is decided, not estimated. Volumes and second moments are floats: they state errors and prices,
and no guarantee rests on them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, ObjectArray
from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.mechanisms.error_laws.simulated import Simulated, draws_for, public_generator
from subspacedp.mechanisms.error_laws.sums import Least, SumLaw
from subspacedp.mechanisms.knorm.sampling import (
    START_BITS,
    Proposal,
    Uniform,
    Words,
    attempt,
    cube_series,
    drawn_level,
    exponential_total,
    geometric,
    series_sums,
)
from subspacedp.mechanisms.knorm.tails import Unimodal
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.problem import Problem
from subspacedp.stated import stated_fraction, stated_whole

if TYPE_CHECKING:
    from flint import arb

Row = tuple[int, ...]
HALF = Fraction(1, 2)
NEAR_ONE = 1 + 1e-9  # floats that state a variance
NEAR = 1e-9  # sums of positive floats are right to far better than this part
MOST_WORK = 2e11  # k⁴ times the digits of an entry: what inverting a matrix of whole numbers takes


def distinct(vectors: ArrayLike) -> ObjectArray:
    """Distinct rows up to sign, as whole numbers, without zeros."""
    rows = {signed(tuple(int(x) for x in row)) for row in np.asarray(vectors, object).tolist()}
    kept = sorted(row for row in rows if any(row))
    if not kept:
        raise ReleaseError(
            "No record changes what would be measured: there is nothing to protect by noise."
        )
    return np.array(kept, object)


def spanning(vectors: ArrayLike) -> ObjectArray:
    """The same, refused where the hull would be flat."""
    points = distinct(vectors)
    if np.linalg.matrix_rank(scaled(points)) < points.shape[1]:
        raise ReleaseError(
            "The changes that one person can make do not reach all that would be measured; hold "
            "what no person can change, such as the grand total."
        )
    return points


def signed(row: Row) -> Row:
    """The row or its opposite, the first entry that is not zero positive."""
    first = next((x for x in row if x), 1)
    return row if first > 0 else tuple(-x for x in row)


def dot(a: Sequence[int], b: Sequence[int]) -> int:
    """Σ a_i b_i in whole numbers."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def scaled(points: ObjectArray) -> FloatArray:
    """The points over the largest entry of all."""
    return np.asarray(points / int(np.abs(points).max()), np.float64)


@frozen
class NormBall(ABC):
    """The unit ball of a norm on integer vectors.

    Guarantees
    ----------
    1. ‖·‖ is a norm: `gauge(z)` is ‖z‖ to the power `degree`, exactly.
    2. `half_cell` is at least ‖u‖ for every u with entries of at most one half.
    """

    body: ClassVar[str] = ""  # its name in plain data
    degree: ClassVar[int] = 1
    closed_form: ClassVar[bool] = False  # whether the discrete law is drawn without rejection
    positive_sums: ClassVar[bool] = False  # whether `lengths` adds up positive numbers alone
    on_answers: ClassVar[str] = ""  # what is measured where there is no basis, in words
    adds_up: ClassVar[bool] = False  # whether noise adds up to zero, so that the total stays

    @property
    @abstractmethod
    def entries(self) -> int:
        """The length of the vectors."""

    @property
    def dimension(self) -> int:
        """The dimension of the norm ball."""
        return self.entries

    @abstractmethod
    def gauge(self, z: Sequence[int]) -> Fraction:
        """‖z‖ to the power `degree`."""

    @property
    @abstractmethod
    def half_cell(self) -> Fraction:
        """At least the norm of every vector with entries between −1/2 and 1/2."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """The logarithm of the volume."""

    @property
    @abstractmethod
    def second_moment(self) -> FloatArray:
        """E[U Uᵀ] for U uniform in the norm ball."""

    @abstractmethod
    def lengths(self, points: FloatArray) -> FloatArray:
        """‖z‖ of every row, in floats."""

    @property
    def reach(self) -> FloatArray:
        """At least the largest entries of vectors in the norm ball, in floats."""
        return self.cover.reach

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The norm ball as plain data, exactly."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """The norm ball of so many entries that a stranger's plain data state, bounded first."""

    @property
    def cover(self) -> NormBall:
        """One around this that continuous noise is drawn from: itself where it can be."""
        return self

    def norm(self, z: Sequence[int]) -> Callable[[], arb]:
        """‖z‖, as a function that computes a ball at the current precision."""
        power = self.gauge(z)
        return (lambda: ball(power)) if self.degree == 1 else (lambda: ball(power).sqrt())

    def holds(self, points: ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether every row of whole numbers lies in so many times the norm ball, exactly."""
        rows = np.asarray(points, object)
        if self.positive_sums:
            lengths = self.lengths(rows.astype(np.float64))
            rows = rows[~(lengths <= float(times) * (1 - NEAR))]  # what floats cannot say is left
        return all(self.gauge(row) <= times**self.degree for row in rows.tolist())

    def log_trials(self, rate: Fraction) -> float:
        """The logarithm of a bound on the expected trials of a draw (docs/proofs/knorm.md)."""
        if self.closed_form:
            return 0.0
        cells = self.half_cell + self.cover.half_cell
        return self.cover.log_volume - self.log_volume + float(rate * cells)

    @property
    def independent(self) -> tuple[Fraction, ...] | None:
        """The widths of entries that are independent of each other; None for other norm balls."""
        return None

    # ------------------------------------------------- the law P(z) ∝ exp(−rate·‖z‖) over integers

    def draw(self, rate: Fraction, words: Words) -> Row:
        """One draw, by rounding and rejection."""
        while True:
            z = attempt(self, self.cover, rate, words)
            if z is not None:
                return z

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """Continuous noise of the norm ball, with its level."""
        del rate, words
        raise ReleaseError(f"A {type(self).__name__} is no cover to draw from.")

    def normaliser(self, rate: Fraction) -> Callable[[], arb] | None:
        """The sum of all weights as a function that computes a ball; None without a closed form."""
        del rate
        return None

    def covariance(self, rate: Fraction) -> FloatArray | None:
        """E[z zᵀ]; None without a closed form."""
        del rate
        return None

    def group_variances(self, rate: Fraction) -> list[float]:
        """For cells in groups: s² with covariance s²(I − 11ᵀ/n) in each of them."""
        del rate
        raise ReleaseError("Only noise on counts in groups has one variance per group.")

    def mean_variance(self, rate: Fraction) -> float | None:
        """The mean variance of an entry; None where it is that of a covariance matrix."""
        del rate
        return None

    # --------------------------------------------------------- weighted sums of noise, in floats

    @property
    def free_half_cell(self) -> Fraction:
        """The norm of half a cell, without entries that others fix."""
        return self.half_cell

    def rounded_off(self, weights: FloatArray) -> float:
        """By how much rounding may move a weighted sum."""
        return float(np.abs(weights).sum()) / 2

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """Σ aᵢxᵢ for x with density ∝ exp(−rate·‖x‖): log-concave, as are its marginals."""
        bound = self.unimodal(rate, float(weights @ self.second_moment @ weights))
        drawn = self.continuous_noise()
        if drawn is None:
            return bound
        return Least((Simulated.of(drawn @ weights * (NEAR_ONE / rate)), bound))

    def unimodal(self, rate: float, squared: float) -> Unimodal:
        """By the variance of a log-concave variable, `squared` its moment for U in the ball."""
        k = self.dimension
        return Unimodal((k + 1) * (k + 2) / rate**2 * squared * NEAR_ONE)

    def continuous_noise(self) -> FloatArray | None:
        """Draws of the density exp(−‖x‖), one per row; None where no way is known here."""
        return None

    def conditioned(self, rate: Fraction, weights: FloatArray) -> SumLaw | None:
        """The law of Σ aᵢzᵢ where noise is independent noise under a condition."""
        del rate, weights
        return None

    def whole_noise(self, rate: Fraction) -> FloatArray | None:
        """Draws of the discrete law in floats, one per row; None where they are not needed."""
        del rate
        return None

    # -------------------------------------------------------------------- noise without a basis

    def protects(self, problem: Problem, within: Fraction) -> bool:
        """Whether `within` times the ball holds what a record does to the answers themselves."""
        del problem, within
        return False

    def measured(self, answers: AnyArray, held: HeldMargins | HeldMatrix) -> AnyArray:
        """The integers that get noise."""
        del held
        return answers

    def placed(self, noise: AnyArray, held: HeldMargins | HeldMatrix) -> AnyArray:
        """A draw in the order of the answers."""
        del held
        return noise

    def spread(self) -> float:
        """E|U|² for U uniform in the norm ball; k-norm noise has (k + 1)(k + 2)/ε² times it."""
        return float(np.trace(self.second_moment))


def check_widths(widths: tuple[Fraction, ...]) -> None:
    """Refuse widths that are not positive."""
    if not widths or min(widths) <= 0:
        raise ReleaseError("The widths of a norm ball must be positive, one for each dimension.")


def log_product(widths: tuple[Fraction, ...]) -> float:
    """Log Π 2w_i."""
    return math.fsum(math.log(2 * float(w)) for w in widths)


# ------------------------------------------------------------- plain data of strangers, in pieces


def listed(values: Any) -> Sequence[Any]:
    """A list, and nothing else."""
    if not isinstance(values, list | tuple):
        raise ReleaseError("The description of a norm ball is not complete.")
    return values


def widths_of(data: Mapping[str, Any], entries: int) -> tuple[Fraction, ...]:
    """A width for every entry."""
    widths = listed(data["widths"])
    if len(widths) != entries:
        raise ReleaseError("The widths of a norm ball do not fit the answers.")
    return tuple(map(stated_fraction, widths))


def row_of(values: Any, entries: int) -> Row:
    """A vector of whole numbers."""
    if len(listed(values)) != entries:
        raise ReleaseError("The vectors of a norm ball do not fit its dimension.")
    return tuple(map(stated_whole, values))


def rows_of(values: Any, entries: int) -> tuple[Row, ...]:
    """Vectors of whole numbers."""
    return tuple(row_of(row, entries) for row in listed(values))


def square_of(values: Any, entries: int) -> tuple[Row, ...]:
    """A square matrix that can be inverted in time."""
    if len(listed(values)) != entries:
        raise ReleaseError("The matrix of a norm ball does not fit its dimension.")
    return bounded(rows_of(values, entries))


def bounded(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows, unless a matrix of them takes too long to invert."""
    digits = max((len(str(x)) for row in rows for x in row), default=1)
    if len(rows) ** 4 * digits > MOST_WORK:
        raise ReleaseError("The matrix of a norm ball is too large.")
    return rows


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
