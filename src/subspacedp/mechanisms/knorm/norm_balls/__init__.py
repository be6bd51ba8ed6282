"""Norm bodies: what one person can do to a vector of integers, and bodies around it."""

from subspacedp.mechanisms.knorm.norm_balls.base import NormBall
from subspacedp.mechanisms.knorm.norm_balls.box import Box
from subspacedp.mechanisms.knorm.norm_balls.cross_polytope import CrossPolytope
from subspacedp.mechanisms.knorm.norm_balls.deviations import Deviations
from subspacedp.mechanisms.knorm.norm_balls.ellipsoid import Ellipsoid
from subspacedp.mechanisms.knorm.norm_balls.enclosing import enclosing
from subspacedp.mechanisms.knorm.norm_balls.exchanges import Exchanges
from subspacedp.mechanisms.knorm.norm_balls.fitting import MOST_TRIALS, Fit, fit, least_spread
from subspacedp.mechanisms.knorm.norm_balls.points import scaled
from subspacedp.mechanisms.knorm.norm_balls.polytope import MOST_DIMENSIONS, Polytope
from subspacedp.mechanisms.knorm.norm_balls.reading import norm_ball_from
from subspacedp.mechanisms.knorm.norm_balls.skew import SkewCross
from subspacedp.mechanisms.knorm.norm_balls.swaps import Swaps

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
    "least_spread",
    "norm_ball_from",
    "scaled",
]
