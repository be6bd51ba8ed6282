"""The boundary of the hull of whole vectors and their opposites, simplex by simplex.

Floating point (Qhull) says which points make a simplex; what is computed of them is exact, or
states an error and no guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.norm_balls.base import FloatArray, ObjectArray, Row
from subspacedp.mechanisms.knorm.norm_balls.points import signed

__all__ = ["Cones", "cones", "facets_of", "most_facets"]


@dataclass(frozen=True, eq=False, repr=False)
class Cones:
    """The hull cut into simplices from the origin to its boundary."""

    corners: FloatArray  # (simplices, k, k): corners in rows
    volumes: FloatArray
    apart: FloatArray  # corners that all simplices have, or their opposites: a norm of their own
    rest: FloatArray  # what is left of each simplex without them, in rows as `corners`

    @property
    def volume(self) -> float:
        """Of the hull."""
        return float(self.volumes.sum())

    @property
    def second_moment(self) -> FloatArray:
        """E[U Uᵀ] for U uniform in the hull.

        A simplex with corners 0, v_1 … v_k has E[x xᵀ] = (Σ v vᵀ + (Σ v)(Σ v)ᵀ)/((k + 1)(k + 2)).
        """
        corners, k = self.corners, self.corners.shape[1]
        sums = corners.sum(axis=1)
        each = np.einsum("ski,skj->sij", corners, corners) + np.einsum("si,sj->sij", sums, sums)
        total = np.einsum("s,sij->ij", self.volumes, each)
        return np.asarray(total / (self.volume * (k + 1) * (k + 2)))


@lru_cache(maxsize=16)
def cones(corners: tuple[Row, ...]) -> Cones:
    """The simplices of the hull of ±corners."""
    both = _both(corners)
    numbers = np.array(_simplices(corners))
    floats = both.astype(np.float64)
    points = floats[numbers]
    volumes = np.abs(np.linalg.det(points)) / math.factorial(both.shape[1])
    pairs = numbers % len(corners)  # a corner and its opposite are one
    found = np.bincount(pairs.reshape(-1), minlength=len(corners)) == len(numbers)
    kept = ~found[pairs]
    rest = points[kept].reshape(len(points), -1, both.shape[1])
    return Cones(points, volumes, floats[: len(corners)][found], rest)


def facets_of(corners: tuple[Row, ...], most: int) -> set[Row] | None:
    """The whole normals of the facets of the hull of ±corners, up to sign; None if too many."""
    simplices, both = _simplices(corners), _both(corners)
    if len(simplices) > most:
        return None
    return {f for s in simplices if (f := _normal(both, s)) is not None}


def most_facets(vertices: int, dimension: int) -> int:
    """No polytope with so many vertices has more facets (the upper bound theorem)."""
    half, odd = divmod(dimension, 2)
    if odd:
        return 2 * math.comb(max(vertices - half - 1, half), half)
    return math.comb(max(vertices - half, half), half) + math.comb(
        max(vertices - half - 1, half - 1), half - 1
    )


def _both(corners: tuple[Row, ...]) -> ObjectArray:
    points = np.array(corners, object)
    return np.concatenate([points, -points])


@lru_cache(maxsize=16)
def _simplices(corners: tuple[Row, ...]) -> list[list[int]]:
    """The simplices of the boundary, by the numbers of corners and, beyond them, opposites."""
    from scipy.spatial import ConvexHull, QhullError

    points = _both(corners)
    if points.shape[1] == 1:
        return [[int(np.argmax(points[:, 0]))], [int(np.argmin(points[:, 0]))]]
    sizes = np.abs(points).max(axis=0).astype(np.float64)
    try:
        return ConvexHull(points.astype(np.float64) / sizes).simplices.tolist()
    except (QhullError, ValueError):
        raise ReleaseError("The facets of this body could not be computed.") from None


def _normal(points: ObjectArray, simplex: list[int]) -> Row | None:
    """The whole normal a with a·v the same for the simplex's points; None if it is degenerate."""
    from flint import fmpz_mat

    corners = points[simplex].tolist()
    system = fmpz_mat(corners)
    if system.det() == 0:
        return None
    return signed(_lowest(system.solve(fmpz_mat([[1]] * len(corners)))))


def _lowest(column: Any) -> Row:
    """A column of fractions as whole numbers without a common factor."""
    values = [Fraction(int(v.p), int(v.q)) for v in column.entries()]
    bottom = math.lcm(*(v.denominator for v in values))
    whole = [int(v * bottom) for v in values]
    common = math.gcd(*whole)
    return tuple(v // common for v in whole)
