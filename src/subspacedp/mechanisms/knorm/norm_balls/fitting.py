"""The body that noise is drawn for: the sensitivity body itself where that can be drawn from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.norm_balls.base import NormBall, ObjectArray
from subspacedp.mechanisms.knorm.norm_balls.box import Box
from subspacedp.mechanisms.knorm.norm_balls.cross_polytope import CrossPolytope
from subspacedp.mechanisms.knorm.norm_balls.enclosing import best_skew, enclosing
from subspacedp.mechanisms.knorm.norm_balls.points import scaled, spanning
from subspacedp.mechanisms.knorm.norm_balls.polytope import Polytope
from subspacedp.mechanisms.knorm.norm_balls.swaps import Swaps

__all__ = ["MOST_TRIALS", "Fit", "fit", "least_spread"]

MOST_TRIALS = 10_000.0  # expected for one draw


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The body that noise is drawn for, and what it costs.

    Parameters
    ----------
    body
        K itself, or a body around it.
    own
        Whether it is K itself.
    within
        Every change by one record lies in so many times the body.
    price
        The expected squared error relative to noise for K on a fine grid.
    bound
        Whether the price is an upper bound, because the moments of K are out of reach.
    """

    norm_ball: NormBall
    own: bool
    within: Fraction = Fraction(1)
    price: float = 1.0
    bound: bool = False


def fit(
    vectors: npt.ArrayLike, rate: Fraction, *, exact: bool = False, swaps: Swaps | None = None
) -> Fit:
    """The hull K of ±vectors where its law can be drawn exactly, or the best body around it.

    Parameters
    ----------
    vectors
        Whole numbers, one row for each change of the measured integers that one person can make.
    rate
        ε: what a change on the surface of K may cost.
    exact
        Refuse instead of taking a body around K.
    swaps
        K itself, where it is known to be of this form.

    Guarantees
    ----------
    1. Every vector lies in the body, decided in whole numbers.

    Examples
    --------
    >>> fit([[3, 0], [0, 2]], Fraction(1)).body
    CrossPolytope(widths=(Fraction(3, 1), Fraction(2, 1)))
    """
    points = spanning(vectors)
    known = _recognised(points)
    if known is not None and known.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(norm_ball=known, own=True)
    k, corners = points.shape[1], 2 * len(points)
    hull = _hull_or_none(points)
    if hull is not None and hull.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(norm_ball=hull, own=True)
    if swaps is not None and swaps.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(norm_ball=swaps, own=True)
    if exact:
        raise ReleaseError(
            f"`exact=True` asks for noise of the sensitivity body itself, and one with {corners:,} "
            f"vertices in {k} dimensions cannot be sampled exactly; leave it out to use the best "
            "enclosing body.",
            dimension=k,
            vertices=corners,
        )
    around = [b for b in enclosing(points) if b.log_trials(rate) <= math.log(MOST_TRIALS)]
    norm_ball = min(around, key=lambda norm_ball: norm_ball.spread())
    if hull is not None:
        return Fit(norm_ball=norm_ball, own=False, price=norm_ball.spread() / hull.spread())
    largest = float(np.abs(points).max())
    least = largest**2 * least_spread(points.shape[1], _least_log_volume(points))
    return Fit(norm_ball=norm_ball, own=False, price=norm_ball.spread() / least, bound=True)


def _hull_or_none(points: ObjectArray) -> Polytope | None:
    try:
        return Polytope.hull(points)
    except ReleaseError:  # too large: an enclosing body is left
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
    """The least E|U|² of all bodies of a volume: that of a ball."""
    log_ball = 0.5 * k * math.log(math.pi) - math.lgamma(0.5 * k + 1)
    return k / (k + 2) * math.exp(2 * (log_volume - log_ball) / k)


def _least_log_volume(points: ObjectArray) -> float:
    """A bound for the hull in units of the largest entry: the cross-polytope of k of the points."""
    from scipy.linalg import qr

    k = points.shape[1]
    r = np.abs(np.diag(qr(scaled(points).T, mode="r", pivoting=True)[0]))
    return float(np.log(2 * r).sum()) - math.lgamma(k + 1)
