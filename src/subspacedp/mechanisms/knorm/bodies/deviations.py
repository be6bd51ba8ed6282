"""What adding a record does to counts in groups whose totals are held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.bodies.base import Body, FloatArray

__all__ = ["Deviations"]


@dataclass(frozen=True)
class Deviations(Body):
    """‖z‖ = Σ_g Σ_{i in g} |z_i − median of g|, for vectors up to a constant in every group.

    The hull of all ±Π e_i, Π taking out the means of the groups: what adding or removing one
    record does to a histogram whose groups' totals are held. Whole for whole vectors; drawn in
    closed form, group by group. Vectors are cells in order, group after group.

    >>> Deviations((3, 2)).gauge((5, 1, 0, 7, 7))
    Fraction(5, 1)
    """

    groups: tuple[int, ...]

    closed_form: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.groups or min(self.groups) < 1 or max(self.groups) < 2:
            raise ReleaseError("Held groups need at least one cell each, and one of them two.")

    @property
    def entries(self) -> int:
        """One a cell."""
        return sum(self.groups)

    @property
    def dimension(self) -> int:
        """One less for every group."""
        return sum(self.groups) - len(self.groups)

    def gauge(self, z: Sequence[int]) -> Fraction:
        """The sum of distances from the medians."""
        total, at = 0, 0
        for size in self.groups:
            part = sorted(int(v) for v in z[at : at + size])
            total += sum(abs(v - part[(size - 1) // 2]) for v in part)
            at += size
        return Fraction(total)

    @property
    def half_cell(self) -> Fraction:
        """Half a unit in every cell; no draw needs it."""
        return Fraction(self.entries, 2)

    @property
    def log_volume(self) -> float:
        """Π_g n·C(n − 1, ⌈n/2⌉ − 1)/k! cells of the lattice, each of volume Π_g n^(−1/2)."""
        logs = [
            0.5 * math.log(n)
            + math.lgamma(n)
            - math.lgamma((n + 1) // 2)
            - math.lgamma(n - (n + 1) // 2 + 1)
            for n in self.groups
        ]
        return math.fsum(logs) - math.lgamma(self.dimension + 1)

    @property
    def spreads(self) -> list[float]:
        """What (k + 1)(k + 2)·E[U Uᵀ] is in each group, as a multiple of I − 11ᵀ/n."""
        sizes = [n for n in self.groups if n > 1]
        found = {n: 2 - (1 + (1 - n % 2) / (n - 1)) / n for n in sizes}
        return [found.get(n, 0.0) for n in self.groups]

    def spread(self) -> float:
        """Without the matrix."""
        k = self.dimension
        each = zip(self.groups, self.spreads, strict=True)
        return math.fsum((n - 1) * s for n, s in each) / ((k + 1) * (k + 2))

    @property
    def second_moment(self) -> FloatArray:
        """That of exponential sizes with balanced signs around a median."""
        k, at = self.dimension, 0
        out = np.zeros((self.entries, self.entries))
        for n, each in zip(self.groups, self.spreads, strict=True):
            out[at : at + n, at : at + n] = each * (np.eye(n) - 1.0 / n)
            at += n
        return out / ((k + 1) * (k + 2))

    def lengths(self, points: FloatArray) -> FloatArray:
        """Distances from the medians."""
        parts = np.split(points, np.cumsum(self.groups)[:-1], axis=1)
        out = np.zeros(len(points))
        for part in parts:
            out += np.abs(part - np.median(part, axis=1)[:, None]).sum(axis=1)
        return out

    @property
    def reach(self) -> FloatArray:
        """One record moves a cell by one."""
        return np.ones(self.entries)

    def as_dict(self) -> dict[str, Any]:
        """The sizes of the groups."""
        return {"body": "deviations", "groups": list(self.groups)}
