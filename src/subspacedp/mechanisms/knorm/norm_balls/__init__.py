"""Norm balls: what one person can do to a vector of integers, and norm balls around it."""

from collections.abc import Mapping
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.norm_balls.base import NormBall, scaled
from subspacedp.mechanisms.knorm.norm_balls.fitting import (
    MOST_TRIALS,
    Ellipsoid,
    Fit,
    enclosing,
    fit,
    hull_of,
    least_spread,
)
from subspacedp.mechanisms.knorm.norm_balls.groups import Deviations, Exchanges
from subspacedp.mechanisms.knorm.norm_balls.images import SkewCross, Swaps
from subspacedp.mechanisms.knorm.norm_balls.polytope import MOST_DIMENSIONS, Polytope
from subspacedp.mechanisms.knorm.norm_balls.widths import Box, CrossPolytope

__all__ = [
    "MOST_DIMENSIONS",
    "MOST_TRIALS",
    "NORM_BALLS",
    "Box",
    "CrossPolytope",
    "Deviations",
    "Ellipsoid",
    "Exchanges",
    "Fit",
    "NormBall",
    "Polytope",
    "SkewCross",
    "Swaps",
    "enclosing",
    "fit",
    "hull_of",
    "least_spread",
    "norm_ball_from",
    "scaled",
]

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
