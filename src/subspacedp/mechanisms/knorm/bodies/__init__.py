"""Norm bodies: what one person can do to a vector of integers, and bodies around it."""

from subspacedp.mechanisms.knorm.bodies.base import Body
from subspacedp.mechanisms.knorm.bodies.box import Box
from subspacedp.mechanisms.knorm.bodies.cross_polytope import CrossPolytope
from subspacedp.mechanisms.knorm.bodies.deviations import Deviations
from subspacedp.mechanisms.knorm.bodies.ellipsoid import Ellipsoid
from subspacedp.mechanisms.knorm.bodies.enclosing import enclosing
from subspacedp.mechanisms.knorm.bodies.exchanges import Exchanges
from subspacedp.mechanisms.knorm.bodies.fitting import MOST_TRIALS, Fit, fit, least_spread
from subspacedp.mechanisms.knorm.bodies.points import scaled
from subspacedp.mechanisms.knorm.bodies.polytope import MOST_DIMENSIONS, Polytope
from subspacedp.mechanisms.knorm.bodies.reading import as_body
from subspacedp.mechanisms.knorm.bodies.skew import SkewCross
from subspacedp.mechanisms.knorm.bodies.swaps import Swaps

__all__ = [
    "MOST_DIMENSIONS",
    "MOST_TRIALS",
    "Body",
    "Box",
    "CrossPolytope",
    "Deviations",
    "Ellipsoid",
    "Exchanges",
    "Fit",
    "Polytope",
    "SkewCross",
    "Swaps",
    "as_body",
    "enclosing",
    "fit",
    "least_spread",
    "scaled",
]
