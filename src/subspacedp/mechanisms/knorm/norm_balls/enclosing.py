"""Bodies around given vectors that can be drawn from, each with small error."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.norm_balls.base import NormBall, ObjectArray
from subspacedp.mechanisms.knorm.norm_balls.box import Box
from subspacedp.mechanisms.knorm.norm_balls.cross_polytope import CrossPolytope
from subspacedp.mechanisms.knorm.norm_balls.ellipsoid import Ellipsoid
from subspacedp.mechanisms.knorm.norm_balls.points import scaled, spanning
from subspacedp.mechanisms.knorm.norm_balls.skew import SkewCross

__all__ = ["best_skew", "enclosing"]

CROSS_ROUNDS = 300
ELLIPSOID_BITS = 24
MOST_SKEW = 64  # dimensions in which a skew cross-polytope is tried around more vectors


def enclosing(vectors: npt.ArrayLike) -> tuple[NormBall, ...]:
    """Cross-polytopes, a box and an ellipsoid around ±vectors, each with small expected error."""
    points = spanning(vectors)
    return (
        _best_cross(points),
        _best_box(points),
        _best_ellipsoid(points),
        *best_skew(points),
    )


def _best_box(points: ObjectArray) -> Box:
    return Box(tuple(Fraction(int(w)) for w in np.abs(points).max(axis=0)))


def _best_cross(points: ObjectArray) -> CrossPolytope:
    """Minimise Σ w_i² with Σ_i |v_ji|/w_i ≤ 1 for all j.

    The gradient vanishes at w_i³ = Σ_j λ_j |v_ji|; λ grows where the constraint is violated.
    """
    sizes = np.abs(points).astype(np.float64)
    weights = np.full(len(sizes), 1.0 / len(sizes))
    best, best_error = np.ones(sizes.shape[1]), math.inf
    for _ in range(CROSS_ROUNDS):
        w = np.maximum(weights @ sizes, 1e-9 * sizes.max(axis=0)) ** (1 / 3)
        reached = (sizes / w).sum(axis=1)
        error = float((w**2).sum() * reached.max() ** 2)
        if error < best_error:
            best, best_error = w * reached.max(), error
        weights = weights * reached**2
        weights /= weights.sum()
    rough = CrossPolytope(tuple(Fraction(float(w)) for w in best))
    # Whole numbers of a fine step, rounded up, after scaling so that every vector is inside.
    # Sums of positive terms: floats tell the largest to far better than a part in 10⁹.
    lengths = rough.lengths(sizes)
    over = max(rough.gauge(v) for v in points[lengths > lengths.max() * (1 - 1e-9)].tolist())
    step = Fraction(2) ** (math.floor(math.log2(float(min(best)))) - 30)
    return CrossPolytope(tuple(math.ceil(w * over / step) * step for w in rough.widths))


def _best_ellipsoid(points: ObjectArray) -> Ellipsoid:
    """The one of least trace, its matrix put on a grid and s set by the largest vector."""
    from flint import fmpz_mat

    from subspacedp.mechanisms.gaussian.ellipsoids import best_covariance

    root = best_covariance(scaled(points).T, tolerance=1e-2).root
    factor = np.rint(root / np.abs(root).max() * 2.0**ELLIPSOID_BITS).astype(np.int64)
    turned = fmpz_mat(points.tolist()) * fmpz_mat(factor.T.tolist())
    squared = max(sum(int(x) ** 2 for x in row) for row in turned.tolist())
    return Ellipsoid(tuple(tuple(int(x) for x in row) for row in factor), squared)


def best_skew(points: ObjectArray) -> tuple[SkewCross, ...]:
    """The cross-polytope of k long and independent ones of the vectors, as large as it must be."""
    from scipy.linalg import qr

    k = points.shape[1]
    if len(points) > k and k > MOST_SKEW:
        return ()
    chosen = qr(scaled(points).T, mode="r", pivoting=True)[1][:k]
    try:
        rough = SkewCross(tuple(tuple(int(x) for x in points[j]) for j in sorted(chosen)))
    except ReleaseError:  # independent in floats alone
        return ()
    if len(points) == k:
        return (rough,)
    over = rough.longest(points)
    return (SkewCross(rough.corners, Fraction(math.ceil(over * 2**20), 2**20)),)
