"""The norm ball that noise is drawn for: the sensitivity polytope, or one around it; ellipsoids."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray, ObjectArray
from subspacedp.balls import ball, round_up
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.groups import Deviations, Exchanges
from subspacedp.mechanisms.knorm.images import SkewCross, Swaps
from subspacedp.mechanisms.knorm.norm_balls import (
    NEAR_ONE,
    Box,
    CrossPolytope,
    NormBall,
    Row,
    scaled,
    spanning,
    square_of,
)
from subspacedp.mechanisms.knorm.polytope import Polytope
from subspacedp.mechanisms.knorm.sampling import Proposal, Uniform, Words, exponential_total
from subspacedp.mechanisms.knorm.tails import Radial
from subspacedp.stated import stated_whole


@frozen
class Ellipsoid(NormBall):
    """‖z‖² = |F z|²/s for a whole matrix F and a whole number s."""

    factor: tuple[Row, ...]
    squared: int

    body: ClassVar[str] = "ellipsoid"
    degree: ClassVar[int] = 2

    def __post_init__(self) -> None:
        from flint import fmpz_mat

        shape = {len(row) for row in self.factor}
        if shape != {len(self.factor)} or self.squared <= 0:
            raise ReleaseError("An ellipsoid needs a square matrix of whole numbers, and s > 0.")
        if fmpz_mat([list(row) for row in self.factor]).det() == 0:
            raise ReleaseError("The matrix of an ellipsoid must be invertible.")

    @property
    def entries(self) -> int:
        """One per column of F."""
        return len(self.factor)

    @cached_property
    def _rows(self) -> ObjectArray:
        return np.array(self.factor, object)

    @cached_property
    def shape(self) -> FloatArray:
        """√s·F⁻¹ in floats: the norm ball is this matrix times the unit ball."""
        return np.asarray(math.sqrt(self.squared) * np.linalg.inv(self._rows.astype(np.float64)))

    def gauge(self, z: Sequence[int]) -> Fraction:
        """|F z|²/s."""
        turned = self._rows @ np.array([int(v) for v in z], object)
        return Fraction(int(turned @ turned), self.squared)

    def holds(self, points: ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether |F z|² ≤ s·times² for every row, by one product of whole matrices."""
        from flint import fmpz_mat

        rows = fmpz_mat(np.asarray(points, object).tolist())
        turned = (rows * fmpz_mat(self._rows.T.tolist())).tolist()
        return all(sum(int(x) ** 2 for x in row) <= self.squared * times**2 for row in turned)

    @cached_property
    def half_cell(self) -> Fraction:
        """|F u|² ≤ Σ_i (Σ_j |F_ij|/2)²."""
        sums = np.abs(self._rows).sum(axis=1)
        squared = Fraction(int(sums @ sums), 4 * self.squared)
        return Fraction(round_up(lambda: ball(squared).sqrt()))

    @cached_property
    def log_volume(self) -> float:
        """κ_k·|det|."""
        k = self.dimension
        ball_volume = 0.5 * k * math.log(math.pi) - math.lgamma(0.5 * k + 1)
        return ball_volume + float(np.linalg.slogdet(self.shape)[1])

    @cached_property
    def second_moment(self) -> FloatArray:
        """s·(FᵀF)⁻¹/(k + 2)."""
        return np.asarray(self.shape @ self.shape.T / (self.dimension + 2))

    def lengths(self, points: FloatArray) -> FloatArray:
        """|F z|/√s."""
        turned = points @ self._rows.T.astype(np.float64)
        return np.asarray(np.sqrt(np.square(turned).sum(axis=1) / self.squared))

    @property
    def reach(self) -> FloatArray:
        """The lengths of the rows of √s·F⁻¹."""
        return np.asarray(np.sqrt(np.square(self.shape).sum(axis=1)))

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """√s·F⁻¹·(radius·direction): radius a sum of k exponentials, the level one more of them."""
        from flint import arb, arb_mat, ctx

        k = self.entries
        radii = [Uniform(words) for _ in range(k + 1)]
        polar = [(Uniform(words), Uniform(words)) for _ in range((k + 1) // 2)]

        def point() -> list[arb]:
            normal: list[arb] = []
            for u, v in polar:  # Box and Muller
                size = (2 * u.exponential()).sqrt()
                sine, cosine = (2 * v.ball()).sin_cos_pi()
                normal += [size * cosine, size * sine]
            normal = normal[:k]
            length = sum((x * x for x in normal), arb(0)).sqrt()
            scale = exponential_total(radii[:k]) / ball(rate) / length
            if not scale.is_finite():
                return [scale] * k
            turned = _inverse(self, ctx.prec) * arb_mat([[x * scale] for x in normal])
            return [x for (x,) in turned.tolist()]

        reals = [*radii, *(real for pair in polar for real in pair)]
        return Proposal(reals, lambda: exponential_total(radii) / ball(rate), point)

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """One entry of a ball's noise."""
        reach = float(np.linalg.norm(weights @ self.shape))
        return Radial(self.dimension, reach * NEAR_ONE / rate)

    def as_dict(self) -> dict[str, Any]:
        """F and s."""
        rows = [[str(x) for x in row] for row in self.factor]
        return {"body": self.body, "factor": rows, "squared": str(self.squared)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """F and s."""
        return cls(square_of(data["factor"], entries), stated_whole(data["squared"]))


@lru_cache(maxsize=8)
def _inverse(norm_ball: Ellipsoid, bits: int) -> Any:
    """√s·F⁻¹; `bits` is the current precision."""
    from flint import arb_mat

    del bits
    rows = arb_mat([[ball(x) for x in row] for row in norm_ball.factor])
    return rows.inv() * ball(norm_ball.squared).sqrt()


CROSS_ROUNDS = 300
ELLIPSOID_BITS = 24
MOST_SKEW = 64  # dimensions in which a skew cross-polytope is tried around more vectors
MOST_TRIALS = 10_000.0  # expected for one draw


def enclosing(vectors: ArrayLike) -> tuple[NormBall, ...]:
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

    from subspacedp.mechanisms.covariance import best_covariance

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


@frozen(kw_only=True)
class Fit:
    """The norm ball that noise is drawn for, and what it costs.

    Parameters
    ----------
    norm_ball
        K itself, or a norm ball around it.
    is_hull
        Whether it is K itself.
    within
        Every change by one record lies in so many times the norm ball.
    price
        The expected squared error relative to noise for K on a fine grid.
    bound
        Whether the price is an upper bound, because the moments of K are out of reach.
    """

    norm_ball: NormBall
    is_hull: bool
    within: Fraction = Fraction(1)
    price: float = 1.0
    bound: bool = False


def fit(
    vectors: ArrayLike, rate: Fraction, *, exact: bool = False, swaps: Swaps | None = None
) -> Fit:
    """The hull K of ±vectors where its law can be drawn exactly, or the best norm ball around it.

    Parameters
    ----------
    vectors
        Whole numbers, one row for each change of the measured integers that one person can make.
    rate
        ε: what a change on the surface of K may cost.
    exact
        Refuse instead of taking a norm ball around K.
    swaps
        K itself, where it is known to be of this form.

    Guarantees
    ----------
    1. Every vector lies in the norm ball, decided in whole numbers.

    Examples
    --------
    >>> fit([[3, 0], [0, 2]], Fraction(1)).norm_ball
    CrossPolytope(widths=(Fraction(3, 1), Fraction(2, 1)))
    """
    points = spanning(vectors)
    known = _recognised(points)
    if known is not None and known.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(norm_ball=known, is_hull=True)
    k, corners = points.shape[1], 2 * len(points)
    hull = _hull_or_none(points)
    if hull is not None and hull.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(norm_ball=hull, is_hull=True)
    if swaps is not None and swaps.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(norm_ball=swaps, is_hull=True)
    if exact:
        raise ReleaseError(
            "`exact=True` asks for noise of the sensitivity polytope itself, and one with "
            f"{corners:,} vertices in {k} dimensions cannot be sampled exactly; leave it out to "
            "use the best enclosing norm ball.",
            dimension=k,
            vertices=corners,
        )
    around = [b for b in enclosing(points) if b.log_trials(rate) <= math.log(MOST_TRIALS)]
    norm_ball = min(around, key=lambda norm_ball: norm_ball.spread())
    if hull is not None:
        return Fit(norm_ball=norm_ball, is_hull=False, price=norm_ball.spread() / hull.spread())
    largest = float(np.abs(points).max())
    least = largest**2 * least_spread(points.shape[1], _least_log_volume(points))
    return Fit(norm_ball=norm_ball, is_hull=False, price=norm_ball.spread() / least, bound=True)


def hull_of(vectors: ArrayLike, cover: NormBall | None = None) -> Polytope:
    """The hull of ±vectors; by default its cover is the enclosing norm ball of least volume."""
    points = spanning(vectors)
    return Polytope.of(
        points, lambda: cover or min(enclosing(points), key=lambda around: around.log_volume)
    )


def _hull_or_none(points: ObjectArray) -> Polytope | None:
    try:
        return hull_of(points)
    except ReleaseError:  # too large: an enclosing norm ball is left
        return None


def _recognised(points: ObjectArray) -> NormBall | None:
    """The cross-polytope or box that the points are the vertices of."""
    sizes = np.abs(points)
    k = points.shape[1]
    widths = tuple(Fraction(int(w)) for w in sizes.max(axis=0))
    if not all(widths):
        return None
    if np.all(np.count_nonzero(points, axis=1) == 1):
        return CrossPolytope(widths)
    corners = points[np.all(sizes == sizes.max(axis=0), axis=1)]
    if k <= 20 and len(corners) == 2 ** (k - 1):
        return Box(widths)
    return next(iter(best_skew(points)), None) if len(points) == k else None


def least_spread(k: int, log_volume: float) -> float:
    """The least E|U|² of all norm balls of a volume: that of a ball."""
    log_ball = 0.5 * k * math.log(math.pi) - math.lgamma(0.5 * k + 1)
    return k / (k + 2) * math.exp(2 * (log_volume - log_ball) / k)


def _least_log_volume(points: ObjectArray) -> float:
    """A bound for the hull in units of the largest entry: the cross-polytope of k of the points."""
    from scipy.linalg import qr

    k = points.shape[1]
    r = np.abs(np.diag(qr(scaled(points).T, mode="r", pivoting=True)[0]))
    return float(np.log(2 * r).sum()) - math.lgamma(k + 1)


NORM_BALLS: dict[str, type[NormBall]] = {
    kind.body: kind
    for kind in (CrossPolytope, Box, Ellipsoid, SkewCross, Swaps, Exchanges, Deviations, Polytope)
}


def norm_ball_from(data: Mapping[str, Any], entries: int) -> NormBall:
    """The norm ball that `as_dict` describes, of vectors of so many entries.

    >>> norm_ball_from({"body": "box", "widths": ["1", "3/2"]}, 2)
    Box(widths=(Fraction(1, 1), Fraction(3, 2)))
    """
    try:
        return NORM_BALLS[data["body"]].from_dict(data, entries)
    except ReleaseError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError):
        raise ReleaseError("The description of a norm ball is not complete.") from None
