"""Norm balls: what one person can do to a vector of integers, and norm balls around it."""

from subspacedp.mechanisms.knorm.norm_balls.base import NormBall, scaled
from subspacedp.mechanisms.knorm.norm_balls.ellipsoid import Ellipsoid
from subspacedp.mechanisms.knorm.norm_balls.fitting import (
    MOST_TRIALS,
    Fit,
    enclosing,
    fit,
    hull_of,
    least_spread,
)
from subspacedp.mechanisms.knorm.norm_balls.groups import Deviations, Exchanges
from subspacedp.mechanisms.knorm.norm_balls.images import SkewCross, Swaps
from subspacedp.mechanisms.knorm.norm_balls.polytope import MOST_DIMENSIONS, Polytope
from subspacedp.mechanisms.knorm.norm_balls.reading import norm_ball_from
from subspacedp.mechanisms.knorm.norm_balls.widths import Box, CrossPolytope

__all__ = [
    "MOST_DIMENSIONS",
    "MOST_TRIALS",
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
