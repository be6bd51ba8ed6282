"""The hull of whole vectors and their opposites, by its facets.

Floating point (Qhull) says which points make a simplex of the boundary; what is computed of them is
exact, or states an error and no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray, ObjectArray
from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.norm_balls import (
    NEAR_ONE,
    NormBall,
    Row,
    dot,
    listed,
    row_of,
    rows_of,
    signed,
)
from subspacedp.mechanisms.knorm.tails import exponential_sum
from subspacedp.stated import stated_whole

if TYPE_CHECKING:
    from flint import arb

MOST_DIMENSIONS = 8
MOST_FACETS = 20_000
NEARLY = 1e-6  # on the boundary of a norm ball
MOST_POSSIBLE_FACETS = 1_000_000  # as many could be asked for before they are counted


@frozen(eq=False, repr=False)
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
    everywhere = np.bincount(pairs.reshape(-1), minlength=len(corners)) == len(numbers)
    kept = ~everywhere[pairs]
    rest = points[kept].reshape(len(points), -1, both.shape[1])
    return Cones(points, volumes, floats[: len(corners)][everywhere], rest)


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
        raise ReleaseError("The facets of this norm ball could not be computed.") from None


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


@frozen
class Polytope(NormBall):
    """‖z‖ = max_j |a_j·z|/b_j, the hull of given vectors and their opposites by its facets.

    Parameters
    ----------
    facets
        a_j and b_j, one of each pair of opposites.
    corners
        The vectors; volume and moments are those of their hull.
    around
        The cover that continuous noise is drawn from.

    Guarantees
    ----------
    1. Every corner lies in the norm ball, decided in whole numbers.
    2. The polytope lies in its cover: `norm` is the larger of both norms. Facets that floating
       point found wrong or missed can make it larger up to its cover, never smaller, so privacy
       does not rest on them.
    """

    facets: tuple[tuple[Row, int], ...]
    corners: tuple[Row, ...]
    around: NormBall

    body: ClassVar[str] = "polytope"

    def __post_init__(self) -> None:
        lengths = {len(a) for a, _ in self.facets} | {len(v) for v in self.corners}
        if lengths != {self.around.entries} or min((b for _, b in self.facets), default=0) <= 0:
            raise ReleaseError("The facets, the corners and the cover of a polytope do not fit.")
        if not self.around.holds(self.corners):
            raise ReleaseError("The cover does not contain the norm ball.")
        if any(abs(dot(a, v)) > b for a, b in self.facets for v in self.corners):
            raise ReleaseError("A facet of the polytope cuts off a corner.")

    @classmethod
    def of(cls, points: ObjectArray, cover: Callable[[], NormBall]) -> Polytope:
        """The hull of ±points (whole and spanning), drawn by rejection from a cover of it."""
        k = points.shape[1]
        too_large = ReleaseError(
            f"A norm ball with {2 * len(points):,} vertices in {k} dimensions is too large for its "
            "facets to be computed; use an enclosing norm ball."
        )
        if k > MOST_DIMENSIONS or most_facets(2 * len(points), k) > MOST_POSSIBLE_FACETS:
            raise too_large
        corners = tuple(map(tuple, points.tolist()))
        normals = facets_of(corners, MOST_FACETS)
        if normals is None:
            raise too_large
        facets = tuple(sorted((a, max(abs(dot(a, v)) for v in corners)) for a in normals))
        hull = cls(facets, corners, cover())
        if not hull.tight:
            raise ReleaseError("The facets of this norm ball could not be computed.")
        return hull

    @property
    def cover(self) -> NormBall:
        """The norm ball around it."""
        return self.around

    @property
    def entries(self) -> int:
        """One per coordinate of a facet."""
        return self.around.entries

    @property
    def tight(self) -> bool:
        """Whether the boundary of the corners' hull is that of the facets, so that its errors are.

        In floats: errors rest on it, and no privacy.
        """
        middles = self.cones.corners.mean(axis=1)
        return bool(self.lengths(middles).min() > 1 - NEARLY)

    @property
    def cones(self) -> Cones:
        """The hull of the corners in simplices."""
        return cones(self.corners)

    @cached_property
    def _floats(self) -> FloatArray:
        return np.array([[float(Fraction(x, b)) for x in a] for a, b in self.facets])

    def gauge(self, z: Sequence[int]) -> Fraction:
        """The largest |a_j·z|/b_j; floats say which few facets can have it."""
        whole = [int(v) for v in z]
        sizes = np.array([float(v) for v in whole])
        rough = np.abs(self._floats @ sizes)
        error = 1e-12 * float((np.abs(self._floats) @ np.abs(sizes)).max())
        near = np.flatnonzero(rough >= rough.max() - error)
        return max(Fraction(abs(dot(a, whole)), b) for a, b in (self.facets[j] for j in near))

    def norm(self, z: Sequence[int]) -> Callable[[], arb]:
        """The largest |a_j·z|/b_j, or the norm of the cover should that be larger."""
        size, other = self.gauge(z), self.around.norm(z)
        return lambda: ball(size).max(other())

    def holds(self, points: ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether facets and cover both hold every row in so many times the norm ball, exactly."""
        return super().holds(points, times) and self.around.holds(points, times)

    @cached_property
    def half_cell(self) -> Fraction:
        """max_j Σ|a_ji|/(2b_j)."""
        return max(Fraction(sum(map(abs, a)), 2 * b) for a, b in self.facets)

    @property
    def log_volume(self) -> float:
        """That of the hull."""
        return math.log(self.cones.volume)

    @property
    def second_moment(self) -> FloatArray:
        """That of the hull, simplex by simplex."""
        return self.cones.second_moment

    def lengths(self, points: FloatArray) -> FloatArray:
        """The largest |a_j·z|/b_j."""
        out = np.zeros(len(points))
        for row in self._floats:
            np.maximum(out, np.abs(points @ row), out=out)
        return out

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """A mixture over the simplices."""
        parts, scale = self.cones, NEAR_ONE / rate
        return exponential_sum(
            parts.volumes / parts.volume,
            parts.rest @ weights * scale,
            parts.apart @ weights * scale,
        )

    def as_dict(self) -> dict[str, Any]:
        """The facets, the corners and the cover."""
        return {
            "body": self.body,
            "facets": [{"normal": [str(x) for x in a], "offset": str(b)} for a, b in self.facets],
            "corners": [[str(x) for x in row] for row in self.corners],
            "cover": self.around.as_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """The facets, the corners and the cover."""
        from subspacedp.mechanisms.knorm.fitting import norm_ball_from  # which knows all kinds

        stated, corners = listed(data["facets"]), rows_of(data["corners"], entries)
        possible = most_facets(2 * len(corners), entries) if entries <= MOST_DIMENSIONS else 0
        if not possible or possible > MOST_POSSIBLE_FACETS or not 0 < len(stated) <= MOST_FACETS:
            raise ReleaseError("The polytope is too large for its facets to be computed.")
        facets = tuple((row_of(f["normal"], entries), stated_whole(f["offset"])) for f in stated)
        polytope = cls(facets, corners, norm_ball_from(data["cover"], entries))
        if any(b != max(abs(dot(a, v)) for v in corners) for a, b in facets):
            raise ReleaseError("A facet of the polytope does not touch its corners.")
        if not polytope.tight:
            raise ReleaseError("The polytope is larger than the hull of its corners.")
        return polytope
