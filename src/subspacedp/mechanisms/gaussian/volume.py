"""The ellipsoid of least volume around ±points, by Wolfe–Atwood steps with away steps.

minimise det of E over {x : xᵀX⁻¹x ≤ n} ⊇ points; the dual is to maximise log det X(u),
X(u) = Σ u_j v_j v_jᵀ, over weights u ≥ 0 that add up to one. For every u the ellipsoid
{xᵀX(u)⁻¹x ≤ n(1 + gap)}, gap = max_j v_jᵀX⁻¹v_j/n − 1, holds all points, and its volume is at most
(1 + gap)^(n/2) times the least possible one (Todd, Minimum-Volume Ellipsoids, 2016, chapter 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray
from subspacedp.mechanisms.gaussian.covariance import (
    Coordinates,
    Pairs,
    Whitened,
    checked,
    distinct,
)
from subspacedp.mechanisms.gaussian.pairs import (
    DENSE,
    all_at_once,
    centred,
    longest_pairs,
    spanning,
)

STEPS = 100_000
FRESH = 200  # steps between two inversions of X; rank-one updates collect rounding error
WARM = 30  # multiplicative rounds before the steps
MOST = 2  # pairs a point that join at first; each time twice as many


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
