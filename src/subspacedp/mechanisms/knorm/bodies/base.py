"""Norm bodies: what one person can do to a vector of integers, or more than that.

A symmetric convex body K is the unit ball of a norm ‖·‖_K. If no neighbouring change leaves K,
noise with P(z) ∝ exp(−ε‖z‖_K) is ε-private; so it is for every body around K. Sizes of integer
vectors are exact fractions (the square of it for an ellipsoid), so whether a body holds a change
is decided, not estimated. Volumes and second moments are floats: they state errors and prices,
and no guarantee rests on them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.errors import ReleaseError

if TYPE_CHECKING:
    from flint import arb

__all__ = ["HALF", "Body", "FloatArray", "ObjectArray", "Row", "check_widths", "log_product"]

FloatArray = npt.NDArray[np.float64]
ObjectArray = npt.NDArray[np.object_]
Row = tuple[int, ...]
HALF = Fraction(1, 2)
NEAR = 1e-9  # sums of positive floats are right to far better than this part


@dataclass(frozen=True)
class Body(ABC):
    """The unit ball of a norm on integer vectors.

    Guarantees
    ----------
    1. ‖·‖ is a norm: `gauge(z)` is ‖z‖ to the power `degree`, exactly.
    2. `half_cell` is at least ‖u‖ for every u with entries of at most one half.
    """

    degree: ClassVar[int] = 1
    closed_form: ClassVar[bool] = False  # whether the discrete law is drawn without rejection
    positive_sums: ClassVar[bool] = False  # whether `lengths` adds up positive numbers alone

    @property
    @abstractmethod
    def entries(self) -> int:
        """The length of the vectors."""

    @property
    def dimension(self) -> int:
        """The dimension of the body."""
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
        """E[U Uᵀ] for U uniform in the body."""

    @abstractmethod
    def lengths(self, points: FloatArray) -> FloatArray:
        """‖z‖ of every row, in floats."""

    @property
    def reach(self) -> FloatArray:
        """At least the largest entries of vectors in the body, in floats."""
        return self.cover.reach

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The body as plain data, exactly."""

    @property
    def cover(self) -> Body:
        """A body around this one that continuous noise is drawn from: itself where it can be."""
        return self

    def norm(self, z: Sequence[int]) -> Callable[[], arb]:
        """‖z‖, as a function that computes a ball at the current precision."""
        power = self.gauge(z)
        return (lambda: ball(power)) if self.degree == 1 else (lambda: ball(power).sqrt())

    def holds(self, points: npt.ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether every row of whole numbers lies in so many times the body, exactly."""
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

    def spread(self) -> float:
        """E|U|² for U uniform in the body; k-norm noise has (k + 1)(k + 2)/ε² times it."""
        return float(np.trace(self.second_moment))


def check_widths(widths: tuple[Fraction, ...]) -> None:
    """Refuse widths that are not positive."""
    if not widths or min(widths) <= 0:
        raise ReleaseError("The widths of a body must be positive, one for each dimension.")


def log_product(widths: tuple[Fraction, ...]) -> float:
    """Log Π 2w_i."""
    return math.fsum(math.log(2 * float(w)) for w in widths)
