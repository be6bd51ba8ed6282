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
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, ObjectArray
from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.mechanisms.error_laws.simulated import Simulated
from subspacedp.mechanisms.error_laws.sums import Least, SumLaw
from subspacedp.mechanisms.knorm.sampling import Proposal, Words, attempt
from subspacedp.mechanisms.knorm.tails import Unimodal
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
