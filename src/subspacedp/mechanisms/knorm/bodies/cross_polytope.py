"""The hull of ±w_i e_i: independent noise on every number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from subspacedp.mechanisms.knorm.bodies.base import (
    HALF,
    Body,
    FloatArray,
    check_widths,
    log_product,
)

__all__ = ["CrossPolytope"]


@dataclass(frozen=True)
class CrossPolytope(Body):
    """‖z‖ = Σ |z_i|/w_i: the hull of ±w_i e_i.

    >>> CrossPolytope((Fraction(1), Fraction(2))).gauge((1, -1))
    Fraction(3, 2)
    """

    widths: tuple[Fraction, ...]

    closed_form: ClassVar[bool] = True
    positive_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_widths(self.widths)

    @property
    def entries(self) -> int:
        """One a width."""
        return len(self.widths)

    def gauge(self, z: Sequence[int]) -> Fraction:
        """Σ |z_i|/w_i."""
        return sum((abs(v) / w for v, w in zip(z, self.widths, strict=True)), Fraction(0))

    @cached_property
    def half_cell(self) -> Fraction:
        """Σ 1/(2w_i)."""
        return sum((HALF / w for w in self.widths), Fraction(0))

    @property
    def log_volume(self) -> float:
        """2^k Π w_i / k!."""
        return log_product(self.widths) - math.lgamma(self.dimension + 1)

    @property
    def second_moment(self) -> FloatArray:
        """2w_i²/((k + 1)(k + 2)) on the diagonal."""
        k = self.dimension
        return np.diag([2 * float(w) ** 2 / ((k + 1) * (k + 2)) for w in self.widths])

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ |z_i|/w_i."""
        return np.asarray(np.abs(points) @ (1 / self.reach))

    @cached_property
    def reach(self) -> FloatArray:
        """The widths."""
        return np.array([float(w) for w in self.widths])

    def as_dict(self) -> dict[str, Any]:
        """The widths."""
        return {"body": "cross-polytope", "widths": [str(w) for w in self.widths]}
