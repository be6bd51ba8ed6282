"""The correlated Gaussian mechanism: the paper's appendix algorithm, with its corrections.

Directions are sorted by recursive ellipsoids of least volume: the shorter half of the axes is one
block, the longer half is decomposed again. Each block has spherical noise for its own radius.
Corrected against the printed algorithm: under replace-one the ellipsoids and radii are those of
differences of columns; the recursion ends at dimension 1; the number of blocks is the one there
is; a query without full row rank is reduced to its image; and the noise is calibrated exactly, to
the sensitivity of all blocks together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.extended import Extended
from subspacedp.mechanisms.gaussian.covariance import Coordinates
from subspacedp.mechanisms.gaussian.optimal import (
    correlated_words,
    inside,
    quick_basis,
    with_free,
    with_rows,
)
from subspacedp.mechanisms.gaussian.pairs import centred, longest_pairs
from subspacedp.mechanisms.gaussian.volume import smallest_ellipsoid, smallest_ellipsoid_of_pairs
from subspacedp.privacy import Neighbours
from subspacedp.problem import Problem
from subspacedp.queries import Query

SPLITS = ("equal", "best")
TOLERANCE = 0.01  # of the ellipsoids: they only sort directions
TIES = 0.01  # by which points are moved at most, so that axes of equal length are sorted


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """Orthonormal directions as columns, and how far one neighbouring change reaches in them."""

    directions: FloatArray
    radius: float

    @property
    def dimension(self) -> int:
        """The number of directions."""
        return int(self.directions.shape[1])

    def __repr__(self) -> str:
        return f"Block(dimension {self.dimension}, radius {self.radius:.4g})"


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The paper's U₁, …, U_k with their radii.

    Guarantees
    ----------
    Noise of standard deviation s_i on block i has Σ (r_i/s_i)² = 1, so it covers every
    neighbouring change by itself; the mechanism uses the exact sensitivity, never more than that.
    """

    blocks: tuple[Block, ...]

    def deviations(self, split: str) -> tuple[float, ...]:
        """s_i for unit budget: √k·r_i as in the paper, or with the budget split best.

        Σ n_i s_i² is least under Σ (r_i/s_i)² = 1 for s_i² = r_i (Σ_j √n_j r_j)/√n_i.
        """
        if split == "equal":
            return tuple(math.sqrt(len(self.blocks)) * b.radius for b in self.blocks)
        whole = sum(math.sqrt(b.dimension) * b.radius for b in self.blocks)
        return tuple(math.sqrt(b.radius * whole / math.sqrt(b.dimension)) for b in self.blocks)

    def squared_error(self, split: str) -> float:
        """Σ n_i s_i² for unit budget: k·Σ n_i r_i² in the paper, (Σ √n_i r_i)² with the best."""
        return sum(
            b.dimension * s * s
            for b, s in zip(self.blocks, self.deviations(split), strict=True)
        )  # fmt: skip

    def rows(self, split: str) -> FloatArray:
        """What is measured: every block's directions over its standard deviation."""
        return np.concatenate(
            [
                b.directions.T / s
                for b, s in zip(self.blocks, self.deviations(split), strict=True)
                if b.radius > 0
            ]
        )


@dataclass(frozen=True, eq=False, repr=False)
class Correlated(Extended):
    """Spherical noise block by block, in blocks of directions of like size.

    Guarantees
    ----------
    1. The measurement is private with its budget over all neighbours, for the sensitivity
       of exactly the integers that are measured (docs/proofs/optimal.md).
    2. The release is g(noisy) + C⁺c with g(noisy) in the null space: S.
    3. The error is at most that of the paper's algorithm with the same radii and the exact
       calibration, but for the rounding of the grid.
    """

    name: ClassVar[str] = "correlated"
    fitted_at_once: ClassVar[bool] = False
    proofs: ClassVar[tuple[str, ...]] = ("optimal.md", "guarantees.md")

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        return correlated_words(self)

    @classmethod
    def from_dict(cls, problem: Problem, data: Mapping[str, Any]) -> Self:
        """Noise block by block is Gaussian."""
        if problem.budget.pure:
            raise ReleaseError("what it measures is not what its mechanism measures.")
        return super().from_dict(problem, data)

    @cached_property
    def decomposition(self) -> Decomposition:
        """The blocks with their radii, in units of the answers."""
        points = inside(self, None).points * float(self.query.grid)
        return decompose(points, self.neighbours)


def decompose(points: ArrayLike, neighbours: Neighbours) -> Decomposition:
    """The paper's recursion for the columns of a matrix, or for their differences.

    Examples
    --------
    >>> from subspacedp import AddRemoveOne
    >>> decompose(np.diag([8.0, 4.0, 2.0, 1.0]), AddRemoveOne()).blocks
    (Block(dimension 2, radius 2), Block(dimension 1, radius 4), Block(dimension 1, radius 8))
    """
    P = np.asarray(points, np.float64)
    pairs = neighbours.persons == 2
    untied = _untied(centred(P) if pairs else P)
    around = smallest_ellipsoid_of_pairs if pairs else smallest_ellipsoid
    blocks, outer = [], np.eye(len(P))
    while True:
        axes = around(outer.T @ untied, tolerance=TOLERANCE).axes  # longest first
        n = axes.shape[1]
        short = outer @ axes[:, n // 2 :]
        blocks.append(Block(short, _radius(short.T @ P, pairs=pairs)))
        if n == 1:
            return Decomposition(tuple(blocks))
        outer = outer @ axes[:, : n // 2]


def _untied(P: FloatArray) -> FloatArray:
    """Points with the same span, moved so little that it does not matter, and axes differ.

    Axes of equal length would otherwise be sorted by the last bit of a machine's linear algebra,
    and the error would depend on it by some percent. Multiples of the golden ratio are spread
    evenly.
    """
    spread = (np.arange(1, len(P) + 1) * (math.sqrt(5) - 1) / 2) % 1.0
    span = Coordinates.of(P).span
    return np.asarray(span @ (span.T @ (P * (1.0 + TIES * spread)[:, None])))


def _radius(points: FloatArray, *, pairs: bool) -> float:
    if pairs:
        return math.sqrt(float(longest_pairs(points, 1)[1][0]))
    return math.sqrt(float(np.einsum("ij,ij->j", points, points).max()))


@dataclass(frozen=True)
class CorrelatedOptions(Options):
    """Noise block by block, the paper's appendix algorithm; Gaussian budgets.

    Parameters
    ----------
    split
        How the budget is split over the blocks: "equal" as in the paper, or "best".
    """

    split: str = "equal"

    mechanism: ClassVar[type[Mechanism]] = Correlated

    @classmethod
    def quick_for(cls, query: Query) -> bool:
        """As for the best noise."""
        return quick_basis(query)

    def fit(self, problem: Problem) -> Correlated:
        """The basis of the paper's blocks."""
        if self.split not in SPLITS:
            raise ReleaseError(f"`split` must be 'equal' or 'best'; got {self.split!r}.")
        bare = Correlated(problem)
        given = inside(bare, None)
        blocks = decompose(given.points, problem.neighbours)
        return with_rows(bare, with_free(blocks.rows(self.split), given.points), given)
