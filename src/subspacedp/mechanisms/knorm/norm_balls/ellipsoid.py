"""An ellipsoid, by a whole matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray, ObjectArray
from subspacedp.balls import ball, round_up
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.norm_balls.base import NEAR_ONE, NormBall, Row, square_of
from subspacedp.mechanisms.knorm.sampling import Proposal, Uniform, Words, exponential_total
from subspacedp.mechanisms.knorm.tails import Radial
from subspacedp.stated import stated_whole


@dataclass(frozen=True)
class Ellipsoid(NormBall):
    """‖z‖² = |F z|²/s for a whole matrix F and a whole number s."""

    factor: tuple[Row, ...]
    squared: int

    body: ClassVar[str] = "ellipsoid"
    degree: ClassVar[int] = 2

    def __post_init__(self) -> None:
        from flint import fmpz_mat

        shape = {len(row) for row in self.factor}
        if shape != {len(self.factor)} or self.squared <= 0:
            raise ReleaseError("An ellipsoid needs a square matrix of whole numbers, and s > 0.")
        if fmpz_mat([list(row) for row in self.factor]).det() == 0:
            raise ReleaseError("The matrix of an ellipsoid must be invertible.")

    @property
    def entries(self) -> int:
        """One per column of F."""
        return len(self.factor)

    @cached_property
    def _rows(self) -> ObjectArray:
        return np.array(self.factor, object)

    @cached_property
    def shape(self) -> FloatArray:
        """√s·F⁻¹ in floats: the norm ball is this matrix times the unit ball."""
        return np.asarray(math.sqrt(self.squared) * np.linalg.inv(self._rows.astype(np.float64)))

    def gauge(self, z: Sequence[int]) -> Fraction:
        """|F z|²/s."""
        turned = self._rows @ np.array([int(v) for v in z], object)
        return Fraction(int(turned @ turned), self.squared)

    def holds(self, points: ArrayLike, times: Fraction = Fraction(1)) -> bool:
        """Whether |F z|² ≤ s·times² for every row, by one product of whole matrices."""
        from flint import fmpz_mat

        rows = fmpz_mat(np.asarray(points, object).tolist())
        turned = (rows * fmpz_mat(self._rows.T.tolist())).tolist()
        return all(sum(int(x) ** 2 for x in row) <= self.squared * times**2 for row in turned)

    @cached_property
    def half_cell(self) -> Fraction:
        """|F u|² ≤ Σ_i (Σ_j |F_ij|/2)²."""
        sums = np.abs(self._rows).sum(axis=1)
        squared = Fraction(int(sums @ sums), 4 * self.squared)
        return Fraction(round_up(lambda: ball(squared).sqrt()))

    @cached_property
    def log_volume(self) -> float:
        """κ_k·|det|."""
        k = self.dimension
        ball_volume = 0.5 * k * math.log(math.pi) - math.lgamma(0.5 * k + 1)
        return ball_volume + float(np.linalg.slogdet(self.shape)[1])

    @cached_property
    def second_moment(self) -> FloatArray:
        """s·(FᵀF)⁻¹/(k + 2)."""
        return np.asarray(self.shape @ self.shape.T / (self.dimension + 2))

    def lengths(self, points: FloatArray) -> FloatArray:
        """|F z|/√s."""
        turned = points @ self._rows.T.astype(np.float64)
        return np.asarray(np.sqrt(np.square(turned).sum(axis=1) / self.squared))

    @property
    def reach(self) -> FloatArray:
        """The lengths of the rows of √s·F⁻¹."""
        return np.asarray(np.sqrt(np.square(self.shape).sum(axis=1)))

    def proposal(self, rate: Fraction, words: Words) -> Proposal:
        """√s·F⁻¹·(radius·direction): radius a sum of k exponentials, the level one more of them."""
        from flint import arb, arb_mat, ctx

        k = self.entries
        radii = [Uniform(words) for _ in range(k + 1)]
        polar = [(Uniform(words), Uniform(words)) for _ in range((k + 1) // 2)]

        def point() -> list[arb]:
            normal: list[arb] = []
            for u, v in polar:  # Box and Muller
                size = (2 * u.exponential()).sqrt()
                sine, cosine = (2 * v.ball()).sin_cos_pi()
                normal += [size * cosine, size * sine]
            normal = normal[:k]
            length = sum((x * x for x in normal), arb(0)).sqrt()
            scale = exponential_total(radii[:k]) / ball(rate) / length
            if not scale.is_finite():
                return [scale] * k
            turned = _inverse(self, ctx.prec) * arb_mat([[x * scale] for x in normal])
            return [x for (x,) in turned.tolist()]

        reals = [*radii, *(real for pair in polar for real in pair)]
        return Proposal(reals, lambda: exponential_total(radii) / ball(rate), point)

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """One entry of a ball's noise."""
        reach = float(np.linalg.norm(weights @ self.shape))
        return Radial(self.dimension, reach * NEAR_ONE / rate)

    def as_dict(self) -> dict[str, Any]:
        """F and s."""
        rows = [[str(x) for x in row] for row in self.factor]
        return {"body": self.body, "factor": rows, "squared": str(self.squared)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """F and s."""
        return cls(square_of(data["factor"], entries), stated_whole(data["squared"]))


@lru_cache(maxsize=8)
def _inverse(norm_ball: Ellipsoid, bits: int) -> Any:
    """√s·F⁻¹; `bits` is the current precision."""
    from flint import arb_mat

    del bits
    rows = arb_mat([[ball(x) for x in row] for row in norm_ball.factor])
    return rows.inv() * ball(norm_ball.squared).sqrt()
