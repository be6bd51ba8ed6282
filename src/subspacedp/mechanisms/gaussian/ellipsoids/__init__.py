"""Ellipsoids around sensitivity vectors: the geometry of the best Gaussian noise."""

from subspacedp.mechanisms.gaussian.ellipsoids.covariance import (
    BestCovariance,
    best_covariance,
    pair_moment,
    trace_bound,
)
from subspacedp.mechanisms.gaussian.ellipsoids.pairs import best_covariance_of_pairs
from subspacedp.mechanisms.gaussian.ellipsoids.volume import (
    SmallestEllipsoid,
    smallest_ellipsoid,
    smallest_ellipsoid_of_pairs,
)

__all__ = [
    "BestCovariance",
    "SmallestEllipsoid",
    "best_covariance",
    "best_covariance_of_pairs",
    "pair_moment",
    "smallest_ellipsoid",
    "smallest_ellipsoid_of_pairs",
    "trace_bound",
]
