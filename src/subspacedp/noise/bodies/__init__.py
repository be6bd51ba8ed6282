"""Norm bodies: what one person can do to a vector of integers, and bodies around it."""

from subspacedp.noise.bodies.base import Body
from subspacedp.noise.bodies.box import Box
from subspacedp.noise.bodies.cross_polytope import CrossPolytope
from subspacedp.noise.bodies.deviations import Deviations
from subspacedp.noise.bodies.ellipsoid import Ellipsoid
from subspacedp.noise.bodies.enclosing import enclosing
from subspacedp.noise.bodies.exchanges import Exchanges
from subspacedp.noise.bodies.fitting import MOST_TRIALS, Fit, fit, least_spread
from subspacedp.noise.bodies.points import scaled
from subspacedp.noise.bodies.polytope import MOST_DIMENSIONS, Polytope
from subspacedp.noise.bodies.reading import as_body
from subspacedp.noise.bodies.skew import SkewCross
from subspacedp.noise.bodies.swaps import Swaps

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
