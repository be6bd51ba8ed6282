"""A cross-polytope with corners in any directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.exponentials import exponential_sum
from subspacedp.mechanisms.knorm.lazy import Uniform, Words
from subspacedp.mechanisms.knorm.norm_balls.base import (
    NEAR_ONE,
    FloatArray,
    NormBall,
    ObjectArray,
    Row,
)
from subspacedp.mechanisms.knorm.rejection import Proposal, exponential_total

if TYPE_CHECKING:
    from flint import arb

__all__ = ["SkewCross"]


@dataclass(frozen=True)
class SkewCross(NormBall):
    """The hull of ±v_1 … ±v_k for independent whole vectors, times a factor.

    ‖z‖ = Σ_j |λ_j| for z = factor·Σ_j λ_j v_j: what one record does to as many answers as there are
    kinds of records, and drawn exactly in any dimension.
    """

    corners: tuple[Row, ...]
    factor: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if {len(row) for row in self.corners} != {len(self.corners)} or self.factor <= 0:
            raise ReleaseError("A skew cross-polytope needs k corners in k dimensions.")
        _ = self.inverse

    @property
    def entries(self) -> int:
        """One a corner."""
        return len(self.corners)

    @cached_property
    def inverse(self) -> tuple[ObjectArray, int]:
        """A whole matrix B and a whole number d with λ = B z/(d·factor)."""
        from flint import fmpz_mat

        columns = fmpz_mat([list(row) for row in zip(*self.corners, strict=True)])
        if columns.det() == 0:
            raise ReleaseError("The corners of a skew cross-polytope must be independent.")
        inverse, common = cast("Any", columns.inv()).numer_denom()
        rows = [[int(x) for x in row] for row in inverse.tolist()]
        return np.array(rows, object).reshape(self.entries, self.entries), int(common)

    @cached_property
    def _floats(self) -> FloatArray:
        rows, common = self.inverse
        return np.array([[float(Fraction(x, common) / self.factor) for x in r] for r in rows])

    @cached_property
    def columns(self) -> FloatArray:
        """The corners in floats, one a column."""
        return float(self.factor) * np.array(self.corners, np.float64).T

    def gauge(self, z: Sequence[int]) -> Fraction:
        """Σ |λ_j|."""
        rows, common = self.inverse
        total = int(np.abs(rows @ np.array([int(v) for v in z], object)).sum())
        return Fraction(total, abs(common)) / self.factor

    def longest(self, points: npt.ArrayLike) -> Fraction:
        """The largest norm of the rows, by one product of whole matrices."""
        from flint import fmpz_mat

        inverse, common = self.inverse
        rows = fmpz_mat(np.asarray(points, object).tolist())
        shares = (rows * fmpz_mat(inverse.T.tolist())).tolist()
        largest = max(sum(abs(int(x)) for x in row) for row in shares)
        return Fraction(largest, abs(common)) / self.factor

    def holds(self, points: npt.ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether every row lies in so many times the body, exactly."""
        return self.longest(points) <= times

    @cached_property
    def half_cell(self) -> Fraction:
        """Σ_ij |B_ij|/(2d), over the factor."""
        rows, common = self.inverse
        return Fraction(int(np.abs(rows).sum()), 2 * abs(common)) / self.factor

    @cached_property
    def log_volume(self) -> float:
        """2^k |det|/k!."""
        k = self.entries
        log_det = float(np.linalg.slogdet(self.columns)[1])
        return k * math.log(2) + log_det - math.lgamma(k + 1)

    @cached_property
    def second_moment(self) -> FloatArray:
        """2 Σ_j v_j v_jᵀ/((k + 1)(k + 2))."""
        k = self.entries
        return np.asarray(2 * self.columns @ self.columns.T / ((k + 1) * (k + 2)))

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ |λ_j|."""
        return np.asarray(np.abs(points @ self._floats.T).sum(axis=1))

    @property
    def reach(self) -> FloatArray:
        """The largest entries of the corners."""
        return np.asarray(np.abs(self.columns).max(axis=1))

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """The corners times signed exponentials."""
        from flint import arb_mat

        k = self.entries
        reals = [Uniform(words) for _ in range(k + 1)]
        signs = [words.below(2) * 2 - 1 for _ in range(k)]

        def point() -> list[arb]:
            scale = ball(self.factor / rate)
            shares = [
                [u.exponential() * sign * scale] for u, sign in zip(reals, signs, strict=False)
            ]
            if not all(share.is_finite() for (share,) in shares):
                return [share for (share,) in shares]
            return [x for (x,) in (_columns(self) * arb_mat(shares)).tolist()]

        return Proposal(reals, lambda: exponential_total(reals) / ball(rate), point)

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """Independent Laplace noise on the corners."""
        slopes = weights @ self.columns / rate * NEAR_ONE
        return exponential_sum(np.ones(1), np.zeros((1, 0)), slopes)

    def as_dict(self) -> dict[str, Any]:
        """The corners and the factor."""
        rows = [[str(x) for x in row] for row in self.corners]
        return {"body": "skew cross-polytope", "corners": rows, "factor": str(self.factor)}


@lru_cache(maxsize=8)
def _columns(norm_ball: SkewCross) -> Any:
    from flint import arb_mat, fmpz

    rows = zip(*norm_ball.corners, strict=True)
    return arb_mat([[fmpz(x) for x in row] for row in rows])
