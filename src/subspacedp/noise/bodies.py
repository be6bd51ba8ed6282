"""Norm bodies: what one person can do to a vector of integers, and bodies around it.

A symmetric convex body K is the unit ball of a norm ‖·‖_K. If no neighbouring change leaves K,
noise with P(z) ∝ exp(−ε‖z‖_K) is ε-private; so it is for every body around K. Sizes of integer
vectors are exact fractions (the square of it for an ellipsoid), so whether a body holds a change
is decided, not estimated. Volumes and second moments are floats: they state errors and prices,
and no guarantee rests on them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball, round_up
from subspacedp.errors import ReleaseError

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "Body",
    "Box",
    "CrossPolytope",
    "Deviations",
    "Ellipsoid",
    "Exchanges",
    "Fit",
    "Polytope",
    "SkewCross",
    "as_body",
    "enclosing",
    "fit",
    "least_spread",
]

FloatArray = npt.NDArray[np.float64]
Row = tuple[int, ...]
HALF = Fraction(1, 2)

MOST_DIMENSIONS = 8  # of a polytope given by its facets
MOST_FACETS = 20_000
MOST_POSSIBLE_FACETS = 1_000_000  # as many could be asked for before they are counted
MOST_TRIALS = 10_000.0  # expected for one draw
CROSS_ROUNDS = 300
ELLIPSOID_BITS = 24
MOST_SKEW = 64  # dimensions in which a skew cross-polytope is tried around more vectors


@dataclass(frozen=True)
class Body(ABC):
    """The unit ball of a norm on integer vectors.

    Guarantees
    ----------
    1. ‖·‖ is a norm: `gauge(z)` is ‖z‖ to the power `degree`, exactly.
    2. `half_cell` is at least ‖u‖ for every u with entries of at most one half.
    """

    degree: ClassVar[int] = 1
    closed_form: ClassVar[bool] = False  # whether the discrete law is drawn without rejection

    @property
    @abstractmethod
    def entries(self) -> int:
        """The length of the vectors."""

    @property
    def dimension(self) -> int:
        """The dimension of the body."""
        return self.entries

    @abstractmethod
    def gauge(self, z: Sequence[int]) -> Fraction:
        """‖z‖ to the power `degree`."""

    @property
    @abstractmethod
    def half_cell(self) -> Fraction:
        """At least the norm of every vector with entries between −1/2 and 1/2."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """The logarithm of the volume."""

    @property
    @abstractmethod
    def second_moment(self) -> FloatArray:
        """E[U Uᵀ] for U uniform in the body."""

    @abstractmethod
    def lengths(self, points: FloatArray) -> FloatArray:
        """‖z‖ of every row, in floats."""

    @property
    def reach(self) -> FloatArray:
        """At least the largest entries of vectors in the body, in floats."""
        return self.cover.reach

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The body as plain data, exactly."""

    @property
    def cover(self) -> Body:
        """A body around this one that continuous noise is drawn from: itself where it can be."""
        return self

    def norm(self, z: Sequence[int]) -> Callable[[], arb]:
        """‖z‖, as a function that computes a ball at the current precision."""
        power = self.gauge(z)
        return (lambda: ball(power)) if self.degree == 1 else (lambda: ball(power).sqrt())

    def holds(self, z: Sequence[int]) -> bool:
        """Whether z lies in the body, exactly."""
        return self.gauge(z) <= 1

    def log_trials(self, rate: Fraction) -> float:
        """The logarithm of a bound on the expected trials of a draw (docs/proofs/knorm.md)."""
        if self.closed_form:
            return 0.0
        cells = self.half_cell + self.cover.half_cell
        return self.cover.log_volume - self.log_volume + float(rate * cells)

    def spread(self) -> float:
        """E|U|² for U uniform in the body; k-norm noise has (k + 1)(k + 2)/ε² times it."""
        return float(np.trace(self.second_moment))


def _positive(widths: tuple[Fraction, ...]) -> None:
    if not widths or min(widths) <= 0:
        raise ReleaseError("The widths of a body must be positive, one for each dimension.")


@dataclass(frozen=True)
class CrossPolytope(Body):
    """‖z‖ = Σ |z_i|/w_i: the hull of ±w_i e_i.

    >>> CrossPolytope((Fraction(1), Fraction(2))).gauge((1, -1))
    Fraction(3, 2)
    """

    widths: tuple[Fraction, ...]

    closed_form: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _positive(self.widths)

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
        return _log_product(self.widths) - math.lgamma(self.dimension + 1)

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


@dataclass(frozen=True)
class Box(Body):
    """‖z‖ = max |z_i|/w_i.

    >>> Box((Fraction(1), Fraction(2))).gauge((1, -1))
    Fraction(1, 1)
    """

    widths: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        _positive(self.widths)

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
        return _log_product(self.widths)

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


@dataclass(frozen=True)
class Ellipsoid(Body):
    """‖z‖² = |F z|²/s for a whole matrix F and a whole number s."""

    factor: tuple[Row, ...]
    squared: int

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
        """One a column of F."""
        return len(self.factor)

    @cached_property
    def _rows(self) -> npt.NDArray[np.object_]:
        return np.array(self.factor, object)

    @cached_property
    def shape(self) -> FloatArray:
        """√s·F⁻¹ in floats: the body is this matrix times the unit ball."""
        return np.asarray(math.sqrt(self.squared) * np.linalg.inv(self._rows.astype(np.float64)))

    def gauge(self, z: Sequence[int]) -> Fraction:
        """|F z|²/s."""
        turned = self._rows @ np.array([int(v) for v in z], object)
        return Fraction(int(turned @ turned), self.squared)

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

    def as_dict(self) -> dict[str, Any]:
        """F and s."""
        rows = [list(row) for row in self.factor]
        return {"body": "ellipsoid", "factor": rows, "squared": str(self.squared)}


@dataclass(frozen=True)
class SkewCross(Body):
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
    def inverse(self) -> tuple[npt.NDArray[np.object_], int]:
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
    def _corners(self) -> FloatArray:
        return float(self.factor) * np.array(self.corners, np.float64).T

    def gauge(self, z: Sequence[int]) -> Fraction:
        """Σ |λ_j|."""
        rows, common = self.inverse
        total = int(np.abs(rows @ np.array([int(v) for v in z], object)).sum())
        return Fraction(total, abs(common)) / self.factor

    @cached_property
    def half_cell(self) -> Fraction:
        """Σ_ij |B_ij|/(2d), over the factor."""
        rows, common = self.inverse
        return Fraction(int(np.abs(rows).sum()), 2 * abs(common)) / self.factor

    @cached_property
    def log_volume(self) -> float:
        """2^k |det|/k!."""
        k = self.entries
        log_det = float(np.linalg.slogdet(self._corners)[1])
        return k * math.log(2) + log_det - math.lgamma(k + 1)

    @cached_property
    def second_moment(self) -> FloatArray:
        """2 Σ_j v_j v_jᵀ/((k + 1)(k + 2))."""
        k = self.entries
        return np.asarray(2 * self._corners @ self._corners.T / ((k + 1) * (k + 2)))

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ |λ_j|."""
        return np.asarray(np.abs(points @ self._floats.T).sum(axis=1))

    @property
    def reach(self) -> FloatArray:
        """The largest entries of the corners."""
        return np.asarray(np.abs(self._corners).max(axis=1))

    def as_dict(self) -> dict[str, Any]:
        """The corners and the factor."""
        rows = [[str(x) for x in row] for row in self.corners]
        return {"body": "skew cross-polytope", "corners": rows, "factor": str(self.factor)}


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


@dataclass(frozen=True)
class Polytope(Body):
    """‖z‖ = max_j |a_j·z|/b_j, the hull of given vectors and their opposites by its facets.

    Guarantees
    ----------
    1. Every given vector lies in the body: each b_j is the largest |a_j·v| over them, in whole
       numbers, and the cover holds them.
    2. The body lies in its cover: `norm` is the larger of both norms. Facets that floating point
       found wrong or missed can make the body larger up to its cover, never smaller, so privacy
       does not rest on them.
    """

    facets: tuple[tuple[Row, int], ...]
    volume: float
    moment: tuple[tuple[float, ...], ...]
    around: Body  # what continuous noise is drawn from

    @classmethod
    def hull(cls, vectors: npt.ArrayLike, cover: Body | None = None) -> Polytope:
        """The hull of ±vectors (rows of whole numbers), drawn by rejection from a cover of it.

        The cover is the enclosing body of least volume if none is given.
        """
        points = _spanning(vectors)
        k = points.shape[1]
        too_large = ReleaseError(
            f"A body with {2 * len(points):,} vertices in {k} dimensions is too large for its "
            "facets to be computed; use an enclosing body."
        )
        if k > MOST_DIMENSIONS or _most_facets(2 * len(points), k) > MOST_POSSIBLE_FACETS:
            raise too_large
        both = np.concatenate([points, -points])
        simplices = _simplices(both)
        if len(simplices) > MOST_FACETS:
            raise too_large
        found = {f for s in simplices if (f := _facet(both, s)) is not None}
        facets = tuple(sorted((a, max(abs(_dot(a, v)) for v in points.tolist())) for a in found))
        volume, moment = _moments(both.astype(np.float64), simplices)
        around = cover or min(enclosing(points), key=lambda body: body.log_volume)
        made = cls(facets, volume, tuple(map(tuple, moment.tolist())), around)
        if not all(around.holds(v) for v in points.tolist()):
            raise ReleaseError("The cover does not contain the body.")
        return made

    @property
    def cover(self) -> Body:
        """The body around it."""
        return self.around

    @property
    def entries(self) -> int:
        """One a coordinate of a facet."""
        return len(self.facets[0][0])

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
        return max(Fraction(abs(_dot(a, whole)), b) for a, b in (self.facets[j] for j in near))

    def norm(self, z: Sequence[int]) -> Callable[[], arb]:
        """The largest |a_j·z|/b_j, or the norm of the cover should that be larger."""
        own, other = self.gauge(z), self.around.norm(z)
        return lambda: ball(own).max(other())

    @cached_property
    def half_cell(self) -> Fraction:
        """max_j Σ|a_ji|/(2b_j)."""
        return max(Fraction(sum(map(abs, a)), 2 * b) for a, b in self.facets)

    @property
    def log_volume(self) -> float:
        """That of the hull."""
        return math.log(self.volume)

    @property
    def second_moment(self) -> FloatArray:
        """That of the hull, simplex by simplex."""
        return np.array(self.moment)

    def lengths(self, points: FloatArray) -> FloatArray:
        """The largest |a_j·z|/b_j."""
        out = np.zeros(len(points))
        for row in self._floats:
            np.maximum(out, np.abs(points @ row), out=out)
        return out

    def as_dict(self) -> dict[str, Any]:
        """The facets, the moments that errors are stated by, and the cover."""
        return {
            "body": "polytope",
            "facets": [{"normal": [str(x) for x in a], "offset": str(b)} for a, b in self.facets],
            "volume": self.volume,
            "moment": [list(row) for row in self.moment],
            "cover": self.around.as_dict(),
        }


def as_body(data: Mapping[str, Any]) -> Body:
    """The body that `as_dict` describes.

    >>> as_body({"body": "box", "widths": ["1", "3/2"]})
    Box(widths=(Fraction(1, 1), Fraction(3, 2)))
    """
    try:
        return _READERS[data["body"]](data)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise ReleaseError("The description of a norm body is not complete.") from None


def _read_polytope(data: Mapping[str, Any]) -> Polytope:
    facets = tuple((_row(f["normal"]), int(f["offset"])) for f in data["facets"])
    moment = tuple(tuple(float(x) for x in row) for row in data["moment"])
    return Polytope(facets, float(data["volume"]), moment, as_body(data["cover"]))


def _row(values: Iterable[Any]) -> Row:
    return tuple(int(x) for x in values)


_READERS: dict[str, Callable[[Mapping[str, Any]], Body]] = {
    "cross-polytope": lambda d: CrossPolytope(tuple(Fraction(w) for w in d["widths"])),
    "box": lambda d: Box(tuple(Fraction(w) for w in d["widths"])),
    "ellipsoid": lambda d: Ellipsoid(tuple(map(_row, d["factor"])), int(d["squared"])),
    "skew cross-polytope": lambda d: SkewCross(
        tuple(map(_row, d["corners"])), Fraction(d["factor"])
    ),
    "exchanges": lambda d: Exchanges(int(d["cells"])),
    "deviations": lambda d: Deviations(_row(d["groups"])),
    "polytope": _read_polytope,
}


# -------------------------------------------------------------------------------- enclosing bodies


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The body that noise is drawn for, and what it costs.

    Parameters
    ----------
    body
        K itself, or a body around it.
    own
        Whether it is K itself.
    within
        Every change by one record lies in so many times the body.
    price
        The expected squared error relative to noise for K on a fine grid.
    bound
        Whether the price is an upper bound, because the moments of K are out of reach.
    """

    body: Body
    own: bool
    within: Fraction = Fraction(1)
    price: float = 1.0
    bound: bool = False


def fit(vectors: npt.ArrayLike, rate: Fraction, *, exact: bool = False) -> Fit:
    """The hull K of ±vectors where its law can be drawn exactly, or the best body around it.

    Parameters
    ----------
    vectors
        Whole numbers, one row for each change of the measured integers that one person can make.
    rate
        ε: what a change on the surface of K may cost.
    exact
        Refuse instead of taking a body around K.

    Guarantees
    ----------
    1. Every vector lies in the body, decided in whole numbers.

    Examples
    --------
    >>> fit([[3, 0], [0, 2]], Fraction(1)).body
    CrossPolytope(widths=(Fraction(3, 1), Fraction(2, 1)))
    """
    points = _spanning(vectors)
    known = _recognised(points)
    if known is not None and known.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(body=known, own=True)
    k, corners = points.shape[1], 2 * len(points)
    hull = _hull_or_none(points)
    if hull is not None and hull.log_trials(rate) <= math.log(MOST_TRIALS):
        return Fit(body=hull, own=True)
    if exact:
        raise ReleaseError(
            f"`exact=True` asks for noise of the sensitivity body itself, and one with {corners:,} "
            f"vertices in {k} dimensions cannot be sampled exactly; leave it out to use the best "
            "enclosing body.",
            dimension=k,
            vertices=corners,
        )
    around = [b for b in enclosing(points) if b.log_trials(rate) <= math.log(MOST_TRIALS)]
    body = min(around, key=lambda body: body.spread())
    if hull is not None:
        return Fit(body=body, own=False, price=body.spread() / hull.spread())
    largest = float(np.abs(points).max())
    least = largest**2 * least_spread(points.shape[1], _least_log_volume(points))
    return Fit(body=body, own=False, price=body.spread() / least, bound=True)


def _hull_or_none(points: npt.NDArray[np.object_]) -> Polytope | None:
    try:
        return Polytope.hull(points)
    except ReleaseError:  # too large: an enclosing body is left
        return None


def enclosing(vectors: npt.ArrayLike) -> tuple[Body, ...]:
    """Cross-polytopes, a box and an ellipsoid around ±vectors, each with small expected error."""
    points = _spanning(vectors)
    return (
        _best_cross(points),
        _best_box(points),
        _best_ellipsoid(points),
        *_best_skew(points),
    )


def _best_box(points: npt.NDArray[np.object_]) -> Box:
    return Box(tuple(Fraction(int(w)) for w in np.abs(points).max(axis=0)))


def _best_cross(points: npt.NDArray[np.object_]) -> CrossPolytope:
    """Minimise Σ w_i² with Σ_i |v_ji|/w_i ≤ 1 for all j.

    The gradient vanishes at w_i³ = Σ_j λ_j |v_ji|; λ grows where the constraint is violated.
    """
    sizes = np.abs(points).astype(np.float64)
    weights = np.full(len(sizes), 1.0 / len(sizes))
    best, best_error = np.ones(sizes.shape[1]), math.inf
    for _ in range(CROSS_ROUNDS):
        w = np.maximum(weights @ sizes, 1e-9 * sizes.max(axis=0)) ** (1 / 3)
        reached = (sizes / w).sum(axis=1)
        error = float((w**2).sum() * reached.max() ** 2)
        if error < best_error:
            best, best_error = w * reached.max(), error
        weights = weights * reached**2
        weights /= weights.sum()
    rough = CrossPolytope(tuple(Fraction(float(w)) for w in best))
    # Whole numbers of a fine step, rounded up, after scaling so that every vector is inside.
    # Sums of positive terms: floats tell the largest to far better than a part in 10⁹.
    lengths = rough.lengths(sizes)
    over = max(rough.gauge(v) for v in points[lengths > lengths.max() * (1 - 1e-9)].tolist())
    step = Fraction(2) ** (math.floor(math.log2(float(min(best)))) - 30)
    return CrossPolytope(tuple(math.ceil(w * over / step) * step for w in rough.widths))


def _best_ellipsoid(points: npt.NDArray[np.object_]) -> Ellipsoid:
    """The one of least trace, its matrix put on a grid and s set by the largest vector."""
    from flint import fmpz_mat

    from subspacedp.ellipsoids import best_covariance

    root = best_covariance(_scaled(points).T, tolerance=1e-2).root
    factor = np.rint(root / np.abs(root).max() * 2.0**ELLIPSOID_BITS).astype(np.int64)
    turned = fmpz_mat(points.tolist()) * fmpz_mat(factor.T.tolist())
    squared = max(sum(int(x) ** 2 for x in row) for row in turned.tolist())
    return Ellipsoid(tuple(tuple(int(x) for x in row) for row in factor), squared)


def _best_skew(points: npt.NDArray[np.object_]) -> tuple[SkewCross, ...]:
    """The cross-polytope of k long and independent ones of the vectors, as large as it must be."""
    from scipy.linalg import qr

    k = points.shape[1]
    if len(points) > k and k > MOST_SKEW:
        return ()
    chosen = qr(_scaled(points).T, mode="r", pivoting=True)[1][:k]
    try:
        rough = SkewCross(tuple(tuple(int(x) for x in points[j]) for j in sorted(chosen)))
    except ReleaseError:  # independent in floats alone
        return ()
    over = max(rough.gauge(v) for v in points.tolist())
    return (SkewCross(rough.corners, Fraction(math.ceil(over * 2**20), 2**20)),)


def _scaled(points: npt.NDArray[np.object_]) -> FloatArray:
    """The points over the largest entry of all."""
    return np.asarray(points / int(np.abs(points).max()), np.float64)


def _recognised(points: npt.NDArray[np.object_]) -> Body | None:
    """The cross-polytope or box that the points are the vertices of."""
    sizes = np.abs(points)
    k = points.shape[1]
    widths = tuple(Fraction(int(w)) for w in sizes.max(axis=0))
    if not all(widths):
        return None
    if np.all(np.count_nonzero(points, axis=1) == 1):
        return CrossPolytope(widths)
    corners = points[np.all(sizes == sizes.max(axis=0), axis=1)]
    if k <= 20 and len(corners) == 2 ** (k - 1):
        return Box(widths)
    return next(iter(_best_skew(points)), None) if len(points) == k else None


def least_spread(k: int, log_volume: float) -> float:
    """The least E|U|² of all bodies of a volume: that of a ball."""
    log_ball = 0.5 * k * math.log(math.pi) - math.lgamma(0.5 * k + 1)
    return k / (k + 2) * math.exp(2 * (log_volume - log_ball) / k)


def _least_log_volume(points: npt.NDArray[np.object_]) -> float:
    """A bound for the hull in units of the largest entry: the cross-polytope of k of the points."""
    from scipy.linalg import qr

    k = points.shape[1]
    r = np.abs(np.diag(qr(_scaled(points).T, mode="r", pivoting=True)[0]))
    return float(np.log(2 * r).sum()) - math.lgamma(k + 1)


# ------------------------------------------------------------------------------------------ facets


def _most_facets(vertices: int, dimension: int) -> int:
    """No polytope with so many vertices has more facets (the upper bound theorem)."""
    half, odd = divmod(dimension, 2)
    if odd:
        return 2 * math.comb(max(vertices - half - 1, half), half)
    return math.comb(max(vertices - half, half), half) + math.comb(
        max(vertices - half - 1, half - 1), half - 1
    )


def _whole(vectors: npt.ArrayLike) -> npt.NDArray[np.object_]:
    """Distinct rows up to sign, as whole numbers, without zeros."""
    rows = {_signed(tuple(int(x) for x in row)) for row in np.asarray(vectors, object).tolist()}
    kept = sorted(row for row in rows if any(row))
    if not kept:
        raise ReleaseError("A body needs at least one vector that is not zero.")
    return np.array(kept, object)


def _spanning(vectors: npt.ArrayLike) -> npt.NDArray[np.object_]:
    """The same, refused where the hull would be flat."""
    points = _whole(vectors)
    if np.linalg.matrix_rank(_scaled(points)) < points.shape[1]:
        raise ReleaseError(
            "The changes that one person can make do not reach all that would be measured; hold "
            "what no person can change, such as the grand total."
        )
    return points


def _signed(row: Row) -> Row:
    first = next((x for x in row if x), 1)
    return row if first > 0 else tuple(-x for x in row)


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _simplices(points: npt.NDArray[np.object_]) -> list[list[int]]:
    """The simplices of the boundary of the hull of symmetric points."""
    from scipy.spatial import ConvexHull, QhullError

    k = points.shape[1]
    if k == 1:
        return [[int(np.argmax(points[:, 0]))], [int(np.argmin(points[:, 0]))]]
    sizes = np.abs(points).max(axis=0).astype(np.float64)
    try:
        return ConvexHull(points.astype(np.float64) / sizes).simplices.tolist()
    except (QhullError, ValueError):
        raise ReleaseError("The facets of this body could not be computed.") from None


def _facet(points: npt.NDArray[np.object_], simplex: list[int]) -> Row | None:
    """The whole normal a with a·v the same for the simplex's points; None if it is degenerate."""
    from flint import fmpz_mat

    corners = points[simplex].tolist()
    system = fmpz_mat(corners)
    if system.det() == 0:
        return None
    scaled, _ = _numerator(system.solve(fmpz_mat([[1]] * len(corners))))
    return _signed(scaled)


def _numerator(column: Any) -> tuple[Row, int]:
    """A column of fractions in lowest whole numbers."""
    values = [Fraction(int(v.p), int(v.q)) for v in column.entries()]
    bottom = math.lcm(*(v.denominator for v in values))
    whole = [int(v * bottom) for v in values]
    common = math.gcd(*whole)
    return tuple(v // common for v in whole), bottom


def _moments(points: FloatArray, simplices: list[list[int]]) -> tuple[float, FloatArray]:
    """Volume and E[U Uᵀ] of the hull: simplices from the origin to its boundary.

    A simplex with corners 0, v_1 … v_k has E[x xᵀ] = (Σ v vᵀ + (Σ v)(Σ v)ᵀ)/((k + 1)(k + 2)).
    """
    corners = points[np.array(simplices)]  # (simplices, k, k)
    k = points.shape[1]
    volumes = np.abs(np.linalg.det(corners)) / math.factorial(k)
    total = float(volumes.sum())
    sums = corners.sum(axis=1)
    each = np.einsum("ski,skj->sij", corners, corners) + np.einsum("si,sj->sij", sums, sums)
    return total, np.einsum("s,sij->ij", volumes, each) / (total * (k + 1) * (k + 2))


def _log_product(widths: tuple[Fraction, ...]) -> float:
    return math.fsum(math.log(2 * float(w)) for w in widths)
