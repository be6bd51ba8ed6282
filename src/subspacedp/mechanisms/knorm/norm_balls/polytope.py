"""The hull of whole vectors, by its facets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.exponentials import exponential_sum
from subspacedp.mechanisms.knorm.norm_balls.base import NEAR_ONE, FloatArray, NormBall, Row
from subspacedp.mechanisms.knorm.norm_balls.enclosing import enclosing
from subspacedp.mechanisms.knorm.norm_balls.hulls import Cones, cones, facets_of, most_facets
from subspacedp.mechanisms.knorm.norm_balls.points import dot, spanning

if TYPE_CHECKING:
    from flint import arb

__all__ = ["MOST_DIMENSIONS", "Polytope"]

MOST_DIMENSIONS = 8
MOST_FACETS = 20_000
NEARLY = 1e-6  # on the boundary of a body
MOST_POSSIBLE_FACETS = 1_000_000  # as many could be asked for before they are counted


@dataclass(frozen=True)
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
    1. Every corner lies in the body, decided in whole numbers.
    2. The body lies in its cover: `norm` is the larger of both norms. Facets that floating point
       found wrong or missed can make the body larger up to its cover, never smaller, so privacy
       does not rest on them.
    """

    facets: tuple[tuple[Row, int], ...]
    corners: tuple[Row, ...]
    around: NormBall

    def __post_init__(self) -> None:
        lengths = {len(a) for a, _ in self.facets} | {len(v) for v in self.corners}
        if lengths != {self.around.entries} or min((b for _, b in self.facets), default=0) <= 0:
            raise ReleaseError("The facets, the corners and the cover of a polytope do not fit.")
        if not self.around.holds(self.corners):
            raise ReleaseError("The cover does not contain the body.")
        if any(abs(dot(a, v)) > b for a, b in self.facets for v in self.corners):
            raise ReleaseError("A facet of the polytope cuts off a corner.")

    @classmethod
    def hull(cls, vectors: npt.ArrayLike, cover: NormBall | None = None) -> Polytope:
        """The hull of ±vectors (rows of whole numbers), drawn by rejection from a cover of it.

        The cover is the enclosing body of least volume if none is given.
        """
        points = spanning(vectors)
        k = points.shape[1]
        too_large = ReleaseError(
            f"A body with {2 * len(points):,} vertices in {k} dimensions is too large for its "
            "facets to be computed; use an enclosing body."
        )
        if k > MOST_DIMENSIONS or most_facets(2 * len(points), k) > MOST_POSSIBLE_FACETS:
            raise too_large
        corners = tuple(map(tuple, points.tolist()))
        normals = facets_of(corners, MOST_FACETS)
        if normals is None:
            raise too_large
        facets = tuple(sorted((a, max(abs(dot(a, v)) for v in corners)) for a in normals))
        around = cover or min(enclosing(points), key=lambda norm_ball: norm_ball.log_volume)
        made = cls(facets, corners, around)
        if not made.tight:
            raise ReleaseError("The facets of this body could not be computed.")
        return made

    @property
    def cover(self) -> NormBall:
        """The body around it."""
        return self.around

    @property
    def entries(self) -> int:
        """One a coordinate of a facet."""
        return self.around.entries

    @property
    def tight(self) -> bool:
        """Whether the boundary of the corners' hull is that of the body, so that its errors are.

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
        own, other = self.gauge(z), self.around.norm(z)
        return lambda: ball(own).max(other())

    def holds(self, points: npt.ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether facets and cover both hold every row in so many times the body, exactly."""
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
            "body": "polytope",
            "facets": [{"normal": [str(x) for x in a], "offset": str(b)} for a, b in self.facets],
            "corners": [[str(x) for x in row] for row in self.corners],
            "cover": self.around.as_dict(),
        }
