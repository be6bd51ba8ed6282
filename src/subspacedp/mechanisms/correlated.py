"""The correlated Gaussian mechanism: the paper's appendix algorithm, with its corrections.

Directions are sorted by recursive ellipsoids of least volume: the shorter half of the axes is one
block, the longer half is decomposed again. Each block has spherical noise for its own radius.
Corrected against the printed algorithm: under replace-one the ellipsoids and radii are those of
differences of columns; the recursion ends at dimension 1; the number of blocks is the one there
is; a query without full row rank is reduced to its image; and the noise is calibrated exactly, to
the sensitivity of all blocks together.

The ellipsoid of least volume around ±points is found by Wolfe–Atwood steps with away steps:
minimise det of E over {x : xᵀX⁻¹x ≤ n} ⊇ points; the dual is to maximise log det X(u),
X(u) = Σ u_j v_j v_jᵀ, over weights u ≥ 0 that add up to one. For every u the ellipsoid
{xᵀX(u)⁻¹x ≤ n(1 + gap)}, gap = max_j v_jᵀX⁻¹v_j/n − 1, holds all points, and its volume is at most
(1 + gap)^(n/2) times the least possible one (Todd, Minimum-Volume Ellipsoids, 2016, chapter 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.covariance import (
    DENSE,
    Coordinates,
    Pairs,
    Whitened,
    all_at_once,
    centred,
    checked,
    distinct,
    longest_pairs,
    spanning,
)
from subspacedp.mechanisms.extended import Extended
from subspacedp.mechanisms.optimal import (
    correlated_words,
    inside,
    quick_basis,
    with_free,
    with_rows,
)
from subspacedp.privacy import Neighbours
from subspacedp.problem import Problem
from subspacedp.queries import Query

STEPS = 100_000
FRESH = 200  # steps between two inversions of X; rank-one updates collect rounding error
WARM = 30  # multiplicative rounds before the steps
MOST = 2  # pairs a point that join at first; each time twice as many


@frozen(eq=False, repr=False, kw_only=True)
class SmallestEllipsoid:
    """An ellipsoid around ±points and the proof of how small it is.

    Parameters
    ----------
    axes
        Its directions as orthonormal columns, longest first; as many as the points' span has.
    radii
        Half the lengths of its axes, longest first. All points are inside.
    gap
        The squared radii are at most 1 + gap times too large: the volume is at most (1 + gap)^(n/2)
        times the least.
    weights, pairs
        u, which prove it, one for each point (or pair of points).
    steps
        How many steps it took.
    """

    axes: FloatArray
    radii: FloatArray
    gap: float
    weights: FloatArray
    steps: int
    pairs: Pairs | None = None

    def __repr__(self) -> str:
        return f"SmallestEllipsoid({len(self.radii)} dimensions, gap {self.gap:.2%})"


def smallest_ellipsoid(points: ArrayLike, *, tolerance: float = 1e-3) -> SmallestEllipsoid:
    """The ellipsoid of least volume around the columns of a matrix and their negatives.

    Points of lower rank are handled in their span.

    Examples
    --------
    >>> ellipsoid = smallest_ellipsoid([[2.0, 0.0], [0.0, 1.0]])
    >>> ellipsoid.radii.round(3).tolist()
    [2.0, 1.0]
    """
    V = checked(points)
    chosen = distinct(V)
    frame = Coordinates.of(V[:, chosen])
    R = frame.turned  # an invertible map of the points: volumes keep their ratios
    weights, longest, steps = _solve(R, np.full(len(chosen), 1.0 / len(chosen)), tolerance)
    every = np.zeros(V.shape[1])
    every[chosen] = weights
    return _shaped(frame, (R * weights) @ R.T, longest, weights=every, steps=steps)


def smallest_ellipsoid_of_pairs(points: ArrayLike, *, tolerance: float = 1e-3) -> SmallestEllipsoid:
    """The same around all differences of two points, by an active set of pairs."""
    P = centred(points)
    chosen = distinct(P)
    frame = Coordinates.of(P[:, chosen])
    R = frame.turned
    r, d = R.shape
    number, steps = MOST * max(d, r), 0
    if d <= DENSE:
        # The exponent 1 is the classical update, and the dual value never falls.
        white = Whitened(frame.span, frame.scales, R)
        pairs, weights, _ = all_at_once(white, 0.25 * tolerance, exponents=(1,))
        pairs, weights = _with(pairs, weights, spanning(pairs[:0], d), d, 1e-6)
    else:
        pairs = spanning(longest_pairs(R, number)[0], d)
        weights = np.full(len(pairs), 1.0 / len(pairs))
    while True:
        V = R[:, pairs[:, 0]] - R[:, pairs[:, 1]]
        weights, _, spent = _solve(V, weights, 0.5 * tolerance)
        steps += spent
        X = (V * weights) @ V.T
        half = np.linalg.inv(np.linalg.cholesky(X))
        number *= 2
        more, lengths = longest_pairs(half @ R, number)
        longest = float(lengths[0])
        if longest / r - 1.0 <= tolerance or steps >= STEPS:
            return _shaped(frame, X, longest, weights=weights, steps=steps, pairs=chosen[pairs])
        kept = weights > 0
        pairs, weights = pairs[kept], weights[kept]
        more = more[lengths > (1 + 0.1 * tolerance) * r]
        pairs, weights = _with(pairs, weights, more, d, 0.1)


def _with(
    pairs: Pairs, weights: FloatArray, more: Pairs, d: int, share: float
) -> tuple[Pairs, FloatArray]:
    """The pairs with those of the others that are new, which get a share of the weight."""
    fresh = more[~np.isin(more @ [d, 1], pairs @ [d, 1])]
    if not len(fresh):
        return pairs, weights
    joined = np.concatenate([(1 - share) * weights, np.full(len(fresh), share / len(fresh))])
    return np.concatenate([pairs, fresh]), joined / joined.sum()


def _solve(V: FloatArray, weights: FloatArray, tolerance: float) -> tuple[FloatArray, float, int]:
    """Weights with max_j v_jᵀX⁻¹v_j ≤ n(1 + tolerance), this maximum, and the steps it took."""
    n = len(V)
    if n == 1:  # the longest point alone; a step towards it would empty all others
        weights = np.zeros(V.shape[1])
        weights[int(np.abs(V[0]).argmax())] = 1.0
        return weights, 1.0, 0
    for _ in range(WARM):
        lengths = _lengths(V, weights)
        if float(lengths.max()) <= n * (1 + tolerance):
            return weights, float(lengths.max()), 0
        weights = weights * lengths**2
        weights /= weights.sum()
    weights = np.where(weights > 1e-8 / len(weights), weights, 0.0)
    weights /= weights.sum()
    inverse: AnyArray = np.empty((0, 0))
    for step in range(STEPS):
        if step % FRESH == 0:
            inverse = np.linalg.inv((V * weights) @ V.T)
            lengths = np.einsum("ij,ij->j", V, inverse @ V)
        far = int(lengths.argmax())
        used = np.flatnonzero(weights)
        near = int(used[lengths[used].argmin()])
        if lengths[far] <= n * (1 + tolerance):
            lengths = _lengths(V, weights)  # afresh: the claim rests on no update
            if float(lengths.max()) <= n * (1 + tolerance):
                return weights, float(lengths.max()), step
            inverse = np.linalg.inv((V * weights) @ V.T)
            far = int(lengths.argmax())
        toward = lengths[far] / n - 1.0 >= 1.0 - lengths[near] / n
        j = far if toward else near
        k = float(lengths[j])
        # Line search: (k/n − 1)/(k − 1) maximises log det X; an away step ends where u_j is zero.
        size = (k / n - 1.0) / (k - 1.0) if k > 1 else -np.inf
        size = max(size, -weights[j] / (1.0 - weights[j])) if not toward else size
        turned = inverse @ V[:, j]
        ratio = size / (1.0 - size + size * k)
        across = turned @ V
        inverse = (inverse - ratio * np.outer(turned, turned)) / (1.0 - size)
        lengths = (lengths - ratio * across * across) / (1.0 - size)
        emptied = not toward and size <= -weights[j] / (1.0 - weights[j])
        weights = weights * (1.0 - size)
        weights[j] = 0.0 if emptied else weights[j] + size
    lengths = _lengths(V, weights)
    return weights, float(lengths.max()), STEPS


def _lengths(V: FloatArray, weights: FloatArray) -> FloatArray:
    inverse = np.linalg.inv((V * weights) @ V.T)
    return np.asarray(np.einsum("ij,ij->j", V, inverse @ V))


def _shaped(
    frame: Coordinates,
    X: FloatArray,
    longest: float,
    *,
    weights: FloatArray,
    steps: int,
    pairs: Pairs | None = None,
) -> SmallestEllipsoid:
    """Axes and radii of {x : xᵀ(S X S)⁻¹x ≤ longest} in the original space."""
    upper = np.linalg.cholesky(X).T * frame.scales
    _, roots, rows = np.linalg.svd(upper)
    return SmallestEllipsoid(
        axes=frame.span @ rows.T,
        radii=roots * np.sqrt(longest) * (1 + 1e-12),
        gap=max(longest / len(X) - 1.0, 0.0),
        weights=weights,
        steps=steps,
        pairs=pairs,
    )


SPLITS = ("equal", "best")
TOLERANCE = 0.01  # of the ellipsoids: they only sort directions
TIES = 0.01  # by which points are moved at most, so that axes of equal length are sorted


@frozen(eq=False, repr=False)
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


@frozen(eq=False)
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


@frozen(eq=False, repr=False)
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


@frozen
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
