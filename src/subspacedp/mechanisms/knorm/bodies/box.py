"""A box: the largest of all entries counts."""

from __future__ import annotations

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

__all__ = ["Box"]


@dataclass(frozen=True)
class Box(Body):
    """‖z‖ = max |z_i|/w_i.

    >>> Box((Fraction(1), Fraction(2))).gauge((1, -1))
    Fraction(1, 1)
    """

    widths: tuple[Fraction, ...]

    positive_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_widths(self.widths)

    @property
    def entries(self) -> int:
        """One a width."""
        return len(self.widths)

    @property
    def cube(self) -> bool:
        """Whether all widths are equal."""
        return len(set(self.widths)) == 1

    def log_trials(self, rate: Fraction) -> float:
        """A cube is drawn without rejection."""
        return 0.0 if self.cube else super().log_trials(rate)

    def gauge(self, z: Sequence[int]) -> Fraction:
        """The largest |z_i|/w_i."""
        return max(abs(v) / w for v, w in zip(z, self.widths, strict=True))

    @property
    def half_cell(self) -> Fraction:
        """That of the smallest width."""
        return HALF / min(self.widths)

    @property
    def log_volume(self) -> float:
        """2^k Π w_i."""
        return log_product(self.widths)

    @property
    def second_moment(self) -> FloatArray:
        """w_i²/3 on the diagonal."""
        return np.diag([float(w) ** 2 / 3 for w in self.widths])

    def lengths(self, points: FloatArray) -> FloatArray:
        """The largest |z_i|/w_i."""
        return np.asarray((np.abs(points) / self.reach).max(axis=1))

    @cached_property
    def reach(self) -> FloatArray:
        """The widths."""
        return np.array([float(w) for w in self.widths])

    def as_dict(self) -> dict[str, Any]:
        """The widths."""
        return {"body": "box", "widths": [str(w) for w in self.widths]}
