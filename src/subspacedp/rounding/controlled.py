"""Controlled rounding: what every way of making published values add up has in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Protocol

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array, WordArray
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, NullSpace
from subspacedp.queries.linear import sparse_data
from subspacedp.tables import Margin

MOST_STATED = 1_000  # answers whose roundings are found one by one, to be stated
NOISE_ALONE = 1 / 6  # of a squared step: the variance of a rounding where noise alone is rounded


class WordSource(Protocol):
    """Uniform 64-bit words by their numbers; `Keystream` is one."""

    def words(self, start: int, count: int, scratch: WordArray | None = None) -> WordArray:
        """Words `start` to `start + count - 1`."""


@frozen(eq=False, repr=False)
class ControlledRounding(ABC):
    """How noisy answers become multiples of 10**-decimals with the exact held values.

    Parameters
    ----------
    space
        The null space of the invariants.
    decimals
        Decimals that are published.
    unit_variance
        A bound on the variance of one rounding, in squared steps: 1/6 for a residual made of noise
        alone whose characteristic function is never negative, 1/4 for any.

    Guarantees
    ----------
    1. `round_in_place` returns integers S with C S = 10**decimals · c, exactly, for noisy answers
       of residual C·noisy − c.
    2. Given the noisy answers, E[S] = 10**decimals · (noisy − lift(r)) over the dither, up to the
       rounding error of float64, which decides them.
    3. The rounding part of Σ wᵢ·answerᵢ is Σ vⱼuⱼ with `coefficients` v; given the noise the uⱼ
       are independent, of mean zero, and each takes two values one apart. `variance` is no less
       than that of the rounding part.
    """

    space: NullSpace
    decimals: int
    unit_variance: float = field(default=NOISE_ALONE, kw_only=True)

    most_stated: ClassVar[int] = MOST_STATED

    def check_total(self, most: int) -> None:  # noqa: B027 - most ways have no such limit
        """Refuse a largest total, of records that get no noise, whose residual could not be met."""

    @property
    def step(self) -> int:
        """How many grid steps make one: 10**decimals."""
        return int(10**self.decimals)

    @property
    def of_noise_alone(self) -> bool:
        """Whether what is rounded is made of noise alone, so that true values are on the grid."""
        return self.unit_variance <= NOISE_ALONE

    @property
    @abstractmethod
    def needed(self) -> bool:
        """Whether what is rounded can miss the grid at all."""

    @abstractmethod
    def round_in_place(
        self, noisy: Int64Array, residual: HeldValues, dither: WordSource
    ) -> Int64Array:
        """10**decimals · noisy − R with C R = 10**decimals · r; may take the memory of `noisy`."""

    @abstractmethod
    def _cell_variance(self) -> FloatArray:
        """The variance that rounding adds to every answer, at most, where any is `needed`."""

    def variance(self, weights: AnyArray | None = None) -> Any:
        """The variance that rounding adds, at most: to every answer, or to one weighted sum."""
        if weights is None:
            return self._cell_variance() if self.needed else np.zeros(self.space.shape)
        coefficients, unit_variances = self.coefficients(weights)
        return float(coefficients**2 @ unit_variances)

    def group_variance(self, margin: Margin) -> FloatArray | None:
        """The same for the totals of a margin, where that is not left to each one's weights."""
        del margin
        return None

    def group_kinds(self, margin: Margin) -> Int64Array | None:
        """A number for every group of a margin: the same means as many roundings of equal weight.

        None where that is not known.
        """
        del margin
        return None

    def group_coefficients(self, margin: Margin, group: int) -> FloatArray:
        """What each rounding adds to the total of one group, in any order; zeros may be missing."""
        groups = np.zeros(margin.shape)
        groups.reshape(-1)[group] = 1.0
        weights = np.broadcast_to(margin.spread(groups), self.space.shape)
        return self.coefficients(np.array(weights))[0]

    @abstractmethod
    def coefficients(self, weights: AnyArray) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds to a weighted sum of answers, and a bound on its variance."""

    def as_dict(self, variances: FloatArray) -> dict[str, Any]:
        """`coefficients` as plain data, with variances in their order; for `most_stated` answers.

        Here a matrix, answer by answer.
        """
        size = math.prod(self.space.shape)
        units = np.eye(size).reshape(size, *self.space.shape)
        return rows_of([self.coefficients(one)[0] for one in units], variances)

    def at_most(self) -> dict[str, Any]:
        """A bound alone: on the variance that rounding adds to any one answer."""
        return {"kind": "at most", "variance": float(np.max(self.variance(), initial=0.0))}

    @abstractmethod
    def describe(self) -> str:
        """The rounding in words, for certificates."""


def rows_of(of_answers: Sequence[FloatArray], variances: FloatArray) -> dict[str, Any]:
    """What each rounding adds for a weight of 1 on each answer, as one row per rounding."""
    from scipy.sparse import csr_array

    columns = np.stack(of_answers, axis=1)
    used = np.flatnonzero(columns.any(axis=1))
    return {
        "kind": "rows",
        "rows": sparse_data(csr_array(columns[used])),
        "variances": variances[used].tolist(),
    }


def rounding_of(
    held: HeldMargins | HeldMatrix, decimals: int | None, *, unit_variance: float = NOISE_ALONE
) -> ControlledRounding | None:
    """Controlled rounding: along merged axes for margins, by cycles where they cross, or a lattice.

    None for real values. `unit_variance` bounds the variance of one randomised rounding:
    1/6 where a residual is noise of ours alone, else 1/4.
    """
    if decimals is None:
        return None
    # What is held mostly is margins, whose rounding takes less to be loaded.
    if held.family is not None:
        from subspacedp.rounding.margins import MarginRounding

        return MarginRounding(held.family.cell_space, decimals, unit_variance=unit_variance)
    from subspacedp.rounding.crossing import CrossingRounding
    from subspacedp.rounding.lattice import MatrixRounding

    matrix = held.as_matrix()
    if matrix.crossing_space is not None:
        return CrossingRounding(matrix.crossing_space, decimals, unit_variance=unit_variance)
    return MatrixRounding(matrix.space, decimals, unit_variance=unit_variance)
