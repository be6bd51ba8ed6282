"""Families of figures computed from a release: their weights, standard errors and error laws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import DomainError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants.null_space import GroupKinds
from subspacedp.mechanisms.error_laws import JointNoise, MarginNoise, NoiseModel, SumLaw
from subspacedp.mechanisms.error_laws.kinds import CellKinds, Kinds, TotalKinds, figure_kinds
from subspacedp.mechanisms.error_laws.sums import part
from subspacedp.rounding import GroupProfiles, corner_counts
from subspacedp.tables import Margin

MOST_APART = 20_000
MOST_WORK = 1 << 24  # figures × cells, where the law of each is a sweep over the table


class Figures(ABC):
    """Linear functionals of the answers, sorted into classes with one error law each."""

    shape: tuple[int, ...]
    closed: ClassVar[bool] = False  # many figures share few laws: exact margins cost little
    apart: ClassVar[bool] = False  # every figure has a law of its own: they cost much

    @property
    def whole(self) -> bool:
        """Whether all figures are published as whole numbers, and so are the true ones."""
        return False

    @abstractmethod
    def variance(self) -> FloatArray:
        """The variance of every figure, in their shape; 0 for those the invariants fix."""

    @abstractmethod
    def classes(self) -> Int64Array:
        """A number for every figure; the same number means the same law."""

    @abstractmethod
    def law(self, number: int) -> SumLaw:
        """The error law of a class."""

    def kinds(self) -> Iterator[Kinds]:
        """Variance, number and class of the figures, those alike together where that is known."""
        variance = self.variance().reshape(-1)
        yield Kinds(variance, np.ones(variance.size, np.int64), self.classes().reshape(-1))


@frozen(eq=False, repr=False)
class EachApart(Figures):
    """Figures with weights of any kind; each has a law of its own."""

    noise: JointNoise
    shape: tuple[int, ...]
    weights: Callable[[int], FloatArray]
    apart: ClassVar[bool] = True
    known_variance: FloatArray | None = None
    whole_weights: bool = False

    @property
    def whole(self) -> bool:
        """Whether all figures are published as whole numbers, and so are the true ones."""
        return self.whole_weights and self.noise.grid == 1.0

    def variance(self) -> FloatArray:
        """One projection a figure."""
        if self.known_variance is not None:
            return self.known_variance
        number = int(np.prod(self.shape, dtype=np.int64))
        variances = [self.noise.variance(self.weights(i)) for i in range(number)]
        return np.asarray(variances, np.float64).reshape(self.shape)

    def classes(self) -> Int64Array:
        """All different."""
        number = int(np.prod(self.shape, dtype=np.int64))
        if number > MOST_APART:
            raise ReleaseError(
                f"Exact intervals of {number:,} figures, each with a law of its own, are out of "
                f"reach; ask for at most {MOST_APART:,} with `estimate`, or for method='normal'."
            )
        return np.arange(number).reshape(self.shape)

    def kinds(self) -> Iterator[Kinds]:
        """Each by itself, however many."""
        variance = self.variance().reshape(-1)
        yield Kinds(variance, np.ones(variance.size, np.int64), np.arange(variance.size))

    def law(self, number: int) -> SumLaw:
        """By its weights."""
        return self.noise.law_of(self.weights(number))


@frozen(eq=False, repr=False)
class TotalsApart(EachApart):
    """The totals of a margin's groups where margins are held and cells have noise of several laws.

    Variances have closed forms all the same: the cell with most stands for all.
    """

    noise: MarginNoise
    profiles: GroupProfiles = field(kw_only=True)

    def variance(self) -> FloatArray:
        """Var(e₁)·|Π_N 1_G|²."""
        if self.profiles.margin == self.profiles.space.domain.cells:
            return self.noise.cell_variance()
        return self.profiles.squared() * self.noise.each

    def kinds(self) -> Iterator[Kinds]:
        """By sizes of containing groups, where laws one by one would take too long."""
        numbers = self.profiles.numbers().reshape(-1)
        if int(numbers.sum()) * self.profiles.space.size <= MOST_WORK:
            yield from super().kinds()
            return
        variance = self.profiles.squared_of_classes.reshape(-1) * self.noise.each
        yield Kinds(variance, numbers, None)


class MarginFigures(Figures):
    """The totals of a margin's groups, for noise with closed forms."""

    noise: JointNoise
    margin: Margin

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The margin's shape."""
        return self.margin.shape

    @property
    def whole(self) -> bool:
        """Whether all figures are published as whole numbers, and so are the true ones."""
        return self.noise.grid == 1.0


@frozen(eq=False, repr=False)
class GroupTotals(MarginFigures):
    """The totals of a margin's groups where margins are held: closed forms, however many cells."""

    noise: MarginNoise
    profiles: GroupProfiles
    closed: ClassVar[bool] = True

    @property
    def margin(self) -> Margin:  # type: ignore[override]
        """The margin."""
        return self.profiles.margin

    def variance(self) -> FloatArray:
        """Var(e₁)·|Π_N 1_G|², and at most `unit_variance` squared steps for every rounding."""
        if self.noise.small is not None:
            return self._apart.variance()
        rounding = self.noise.rounding
        if rounding is not None and self.margin == self.profiles.space.domain.cells:
            return self.noise.cell_variance()
        squared = self.profiles.squared()
        out = squared * self.noise.each
        if rounding is not None:
            out += np.where(
                squared > 0, self._roundings * (rounding.unit_variance / rounding.step**2), 0.0
            )
        return out

    @cached_property
    def _apart(self) -> EachApart:
        """Where a table is small, the law of a figure's rounding is that of its own weights."""
        cells = self.margin == self.profiles.space.domain.cells
        known = self.noise.cell_variance() if cells else None
        return EachApart(self.noise, self.margin.shape, _group_weights(self.margin), known)

    @cached_property
    def _roundings(self) -> Int64Array:
        plan = self.noise.plan
        return np.zeros(self.shape, np.int64) if plan is None else corner_counts(plan, self.margin)

    def classes(self) -> Int64Array:
        """Equal sizes of all containing groups, and equally many roundings."""
        if self.noise.small is not None:
            return self._apart.classes()
        return np.asarray(self.profiles.classes() * self._most_roundings + self._roundings)

    def kinds(self) -> Iterator[Kinds]:
        """By sizes of containing groups and number of roundings, not figure by figure."""
        if self.noise.small is not None:
            yield from super().kinds()
            return
        if self._kinds is not None:
            yield from self._kinds.kinds(self.noise.each, self._most_roundings)
            return
        profiles = self.profiles
        variance = profiles.squared_of_classes.reshape(-1) * self.noise.each
        yield Kinds(variance, profiles.numbers().reshape(-1), np.arange(variance.size))

    @cached_property
    def _kinds(self) -> CellKinds | TotalKinds | None:
        """None where nothing is rounded at random, or for totals that are all held."""
        plan = self.noise.plan
        if plan is None or not plan.needed or not self.profiles.squared_of_classes.any():
            return None
        return figure_kinds(plan, self.profiles)

    @cached_property
    def _most_roundings(self) -> int:
        if self._kinds is not None:
            return self._kinds.most_roundings() + 1
        if self.noise.plan is None:
            return 1
        return int(self._roundings.max(initial=0)) + 1

    def law(self, number: int) -> SumLaw:
        """From the values of Π_N 1_G and how often each occurs."""
        if self.noise.small is not None:
            return self._apart.law(int(number))
        kind, roundings = divmod(int(number), self._most_roundings)
        weights, counts = self.profiles.profile(kind)
        parts = self.noise.counted(weights, counts) or ()
        rounding = self.noise.rounding
        step = 1.0 if rounding is None else 1.0 / rounding.step
        variance = self.noise.each * float(counts @ weights**2)
        return self.noise.law_from(parts, np.full(roundings, step), self.noise.grid, variance)


@frozen(eq=False, repr=False)
class CrossingTotals(EachApart):
    """The totals of a margin's groups where classifications cross, and those alike are known."""

    noise: NoiseModel
    margin: Margin = field(kw_only=True)
    groups: GroupKinds = field(kw_only=True)
    apart: ClassVar[bool] = False

    @cached_property
    def _classes(self) -> Int64Array:
        """For every group, the first one with its law."""
        columns = [self.groups.kinds]
        if self.noise.rounded is not None:
            roundings = self.noise.rounded.group_kinds(self.margin)
            columns.append(np.arange(self.groups.kinds.size) if roundings is None else roundings)
        rows = np.stack([column.reshape(-1) for column in columns])
        _, first, member = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        if first.size > MOST_APART:
            raise ReleaseError(
                f"Exact intervals of figures with {first.size:,} different laws are out of reach; "
                f"ask for at most {MOST_APART:,} with `estimate`, or for method='normal'."
            )
        return np.asarray(first[member.reshape(-1)]).reshape(self.shape)

    def classes(self) -> Int64Array:
        """Equal entries of Π_N 1_G, and as many roundings of equal weight."""
        return self._classes

    def kinds(self) -> Iterator[Kinds]:
        """Figure by figure, with what is equal."""
        yield from Figures.kinds(self)

    def law(self, number: int) -> SumLaw:
        """From the values of Π_N 1_G and how often each occurs."""
        weights, counts = self.groups.profile(number)
        parts = self.noise.counted(weights, counts) or ()
        merged = tuple(part(p.law, p.weights, p.counts) for p in parts)
        rounding = self.noise.rounded
        coefficients = (
            np.zeros(0) if rounding is None else rounding.group_coefficients(self.margin, number)
        )
        variance = float(self.variance().reshape(-1)[number])
        return self.noise.law_from(merged, coefficients, self.noise.grid, variance)


def crossing_totals(
    noise: NoiseModel, margin: Margin, variance: FloatArray, groups: GroupKinds
) -> CrossingTotals:
    """The totals of a margin's groups where those alike are known."""
    weights = _group_weights(margin)
    return CrossingTotals(
        noise, margin.shape, weights, variance, whole_weights=True, margin=margin, groups=groups
    )


def cells_apart(noise: JointNoise, shape: tuple[int, ...]) -> EachApart:
    """Every answer by itself, for invariants without structure."""

    def weights(i: int) -> FloatArray:
        out = np.zeros(shape)
        out.reshape(-1)[i] = 1.0
        return out

    return EachApart(noise, shape, weights, noise.cell_variance())


def rows_apart(noise: JointNoise, rows: AnyArray, shape: tuple[int, ...]) -> EachApart:
    """Given weights, one row per figure."""
    whole = bool(np.all(rows == np.rint(rows)))
    return EachApart(noise, shape, lambda i: np.asarray(rows[i], np.float64), whole_weights=whole)


def groups_apart(
    noise: JointNoise, margin: Margin, known_variance: FloatArray | None = None
) -> EachApart:
    """The totals of a margin's groups, each with a law of its own."""
    weights = _group_weights(margin)
    return EachApart(noise, margin.shape, weights, known_variance, whole_weights=True)


def totals_apart(noise: MarginNoise, profiles: GroupProfiles) -> EachApart:
    """The same where margins are held, with variances in closed form."""
    margin = profiles.margin
    return TotalsApart(noise, margin.shape, _group_weights(margin), profiles=profiles)


def _group_weights(margin: Margin) -> Callable[[int], FloatArray]:
    """Weights of the cells in the total of a group, by its number."""

    def weights(i: int) -> FloatArray:
        groups = np.zeros(margin.shape)
        groups.reshape(-1)[i] = 1.0
        shape = tuple(len(axis) for axis in margin.axes)
        return np.array(np.broadcast_to(margin.spread(groups), shape))

    return weights


def checked_weights(weights: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Finite weights of one figure, or of several along a leading axis."""
    try:
        given = np.asarray(weights)
        if given.dtype.kind not in "biufO":
            raise TypeError
        w = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ReleaseError("The weights of a figure must be real numbers.") from None
    if w.shape == (int(np.prod(shape)),):
        w = w.reshape(shape)
    if w.shape != shape and w.shape[1:] != shape:
        raise ReleaseError(
            f"The weights of a figure must have the shape {shape} of the answers, or (k, "
            f"{', '.join(map(str, shape))}) for k figures; got {w.shape}."
        )
    largest = float(np.abs(w).max(initial=0.0))
    if not np.isfinite(largest) or largest > 1e100 or 0 < largest < 1e-100:
        raise ReleaseError(
            "The weights of a figure must be finite numbers, the largest from 1e-100 to 1e100."
        )
    return w


def level_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of levels, given one by one or as one list."""
    if len(names) == 1 and isinstance(names[0], (list, tuple)):
        names = tuple(names[0])
    for name in names:
        if not isinstance(name, str):
            raise DomainError(f"A margin is named by its levels; got a {type(name).__name__}.")
    return names


def kept_shape(margin: Margin) -> tuple[int, ...]:
    """The number of groups of every level that is named."""
    return tuple(level.groups for level in margin.levels if level.name)


def margin_names(margin: Margin) -> dict[str, AnyArray]:
    """The labels of every group of a margin, one column per level that is kept."""
    out: dict[str, AnyArray] = {}
    for a, level in enumerate(margin.levels):
        if level.name:
            shape = [1] * len(margin.shape)
            shape[a] = level.groups
            column = np.asarray(level.labels).reshape(shape)
            out[level.name] = np.broadcast_to(column, margin.shape).ravel()
    return out
