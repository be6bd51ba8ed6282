"""What replacing records does to counts whose total is held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.bodies.base import Body, FloatArray

__all__ = ["Exchanges"]


@dataclass(frozen=True)
class Exchanges(Body):
    """‖z‖ = Σ|z_i|/2 on vectors that add up to zero: the hull of all e_i − e_j.

    What replacing one record does to a histogram whose total is held. The norm is a whole number
    for whole vectors, and the law is drawn in closed form for any number of cells.

    >>> Exchanges(3).gauge((2, -1, -1))
    Fraction(2, 1)
    """

    cells: int

    closed_form: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cells < 2:
            raise ReleaseError("A histogram with its total held needs at least two cells.")

    @property
    def entries(self) -> int:
        """One a cell."""
        return self.cells

    @property
    def dimension(self) -> int:
        """One less than the cells."""
        return self.cells - 1

    def gauge(self, z: Sequence[int]) -> Fraction:
        """The sum of the positive entries."""
        if len(z) != self.cells or sum(z) != 0:
            raise ReleaseError("This norm is for vectors that add up to zero, one entry a cell.")
        return Fraction(sum(int(v) for v in z if v > 0))

    @property
    def half_cell(self) -> Fraction:
        """A quarter of the cells; no draw needs it."""
        return Fraction(self.cells, 4)

    @property
    def log_volume(self) -> float:
        """Binomial(2k, k)/k! cells of the lattice, each of volume √(k + 1)."""
        k = self.dimension
        return math.lgamma(2 * k + 1) - 3 * math.lgamma(k + 1) + 0.5 * math.log(k + 1)

    @property
    def second_moment(self) -> FloatArray:
        """E|U|² = 4(n − 1)(2n − 1)/(n(n + 1)²), shared equally by all directions."""
        n = self.cells
        each = 4 * (2 * n - 1) / (n * (n + 1) ** 2)
        return each * (np.eye(n) - 1.0 / n)

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ |z_i|/2."""
        return np.asarray(np.abs(points).sum(axis=1) / 2)

    @property
    def reach(self) -> FloatArray:
        """One record moves a cell by one."""
        return np.ones(self.cells)

    def as_dict(self) -> dict[str, Any]:
        """The number of cells."""
        return {"body": "exchanges", "cells": self.cells}
