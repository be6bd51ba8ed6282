"""A margin: one level on every axis; sums into it and spreading out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, reduce
from itertools import product
from typing import Any, TypeVar

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, Int64Array
from subspacedp.errors import DomainError
from subspacedp.frozen import frozen
from subspacedp.tables.axis import Axis, Label, Level

ArrayT = TypeVar("ArrayT", bound=AnyArray)


@frozen(repr=False)
class Margin:
    """One level or grouping on every axis of a domain; margins are equal when their steps are.

    The averaging operators P_m of margins (replace every cell by its group's mean) commute, and
    P_m P_k = P_{m ∧ k}, where the meet takes the coarser level on every axis: within one axis
    averaging over fine groups and then over the coarse ones that contain them is averaging over
    the coarse ones. All the algebra of nested totals rests on this. It does not hold of groupings,
    which cross: they have no meet here, and what needs one asks `grouped` first.
    """

    axes: tuple[Axis, ...]
    steps: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Margin) and self.steps == other.steps and self.axes == other.axes

    def __hash__(self) -> int:
        return hash(self.steps)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The level on every axis."""
        return tuple(axis.step(s) for axis, s in zip(self.axes, self.steps, strict=True))

    @cached_property
    def grouped_axes(self) -> tuple[int, ...]:
        """The numbers of the axes of which it names a grouping, which stands beside the levels."""
        return tuple(a for a, axis in enumerate(self.axes) if self.steps[a] >= axis.depth)

    @property
    def grouped(self) -> bool:
        """Whether it names a grouping."""
        return bool(self.grouped_axes)

    @cached_property
    def has_holes(self) -> bool:
        """Whether some cells are in none of its groups."""
        return any(level.has_holes for level in self.levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the levels that are kept; summed axes have none."""
        return tuple(level.name for level in self.levels if level.name)

    @property
    def title(self) -> str:
        """The titles of the levels that are kept, for readers."""
        titles = [level.title for level in self.levels if level.name]
        return " × ".join(titles) or "grand total"

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of groups on every axis, empty ones included."""
        return tuple(level.groups for level in self.levels)

    @property
    def nonempty(self) -> int:
        """The number of groups that contain a cell."""
        count = 1
        for level in self.levels:
            count *= level.nonempty
        return count

    @cached_property
    def sizes(self) -> Int64Array:
        """The number of cells of every group, in the margin's shape."""
        out = np.ones(self.shape, np.int64)
        for a, level in enumerate(self.levels):
            out *= along(level.sizes, a, len(self.axes))
        return out

    @cached_property
    def empty(self) -> BoolArray:
        """Which groups have no cell; right also where numbers of cells leave 64 bits."""
        out = np.zeros(self.shape, bool)
        for a, level in enumerate(self.levels):
            out |= along(level.sizes == 0, a, len(self.axes))
        return out

    @property
    def inside(self) -> BoolArray:
        """Which cells are in one of its groups, broadcastable to the domain's shape."""
        out = np.ones((1,) * len(self.axes), bool)
        for a, level in enumerate(self.levels):
            if level.has_holes:
                out = out & along(level.codes < level.groups, a, len(self.axes))
        return out

    def meet(self, other: Margin) -> Margin:
        """The finest margin that both determine: the coarser level on every axis."""
        if self.grouped or other.grouped:
            raise DomainError(
                f"{self!r} and {other!r} cross: groupings have no common level with others."
            )
        steps = tuple(max(s, t) for s, t in zip(self.steps, other.steps, strict=True))
        return Margin(self.axes, steps)

    def determines(self, other: Margin) -> bool:
        """Whether `other` can be computed from this margin."""
        if not (self.grouped or other.grouped):
            return all(s <= t for s, t in zip(self.steps, other.steps, strict=True))
        return all(
            axis.determines(s, t)
            for axis, s, t in zip(self.axes, self.steps, other.steps, strict=True)
        )

    def sum(self, values: ArrayT) -> ArrayT:
        """Group sums of a table in the domain's shape."""
        out = values
        for a, (axis, level) in enumerate(zip(self.axes, self.levels, strict=True)):
            if not level.is_identity:
                out = sum_groups(out, level.codes, level.groups, a, one=level is axis.all)
        return out

    def exact_sum(self, values: AnyArray) -> AnyArray:
        """Group sums of integers that cannot wrap, as Python integers in an object array."""
        wide = values.astype(np.int64) if values.dtype != np.uint64 else values.astype(object)
        if wide.dtype == object:
            return self.sum(wide)
        high, low = self.sum(wide >> 31), self.sum(wide & (2**31 - 1))
        return np.asarray(high.astype(object) * 2**31 + low.astype(object), object)

    def coarsen(self, totals: ArrayT, to: Margin) -> ArrayT:
        """Totals of a coarser margin from the totals of this one."""
        out = totals
        for a, axis in enumerate(self.axes):
            fine, coarse = self.steps[a], to.steps[a]
            if fine != coarse:
                groups = axis.step(coarse).groups
                out = sum_groups(
                    out, axis.parents(fine, coarse), groups, a, one=coarse == axis.depth - 1
                )
        return out

    def spread(self, totals: ArrayT) -> ArrayT:
        """Every cell's group value, broadcastable to the domain's shape.

        Axes that are summed over keep length 1, so the result costs no more than it must. Cells in
        no group get 0.
        """
        out: Any = totals
        for a, (axis, level) in enumerate(zip(self.axes, self.levels, strict=True)):
            if level is not axis.all and not level.is_identity:
                if level.has_holes:
                    nobody = [(0, int(b == a)) for b in range(len(self.axes))]
                    out = np.pad(out, nobody)
                out = np.take(out, level.codes, axis=a)
        return out  # type: ignore[no-any-return]

    @property
    def words(self) -> str:
        """What holding this margin holds, in words."""
        return f"every {self.title} total" if self.names else "the grand total"

    def labels(self) -> Iterator[tuple[Label, ...]]:
        """The labels of every group, in row-major order; summed axes are left out."""
        kept = [level.labels for level in self.levels if level.name]
        return product(*kept)

    def __repr__(self) -> str:
        return f"Margin({' × '.join(self.names) or 'grand total'})"


def finest_of(margins: Iterable[Margin]) -> tuple[Margin, ...]:
    """The margins that no other one determines; of some with the same groups the first.

    A level and a grouping that have the same groups determine each other.
    """
    kept: list[Margin] = []
    for m in margins:
        if not any(other.determines(m) for other in kept):
            kept = [other for other in kept if not m.determines(other)] + [m]
    return tuple(kept)


def along(vector: AnyArray, axis: int, dimensions: int) -> AnyArray:
    """A vector as an array that broadcasts along one axis."""
    shape = [1] * dimensions
    shape[axis] = len(vector)
    return vector.reshape(shape)


def outer(vectors: Iterable[AnyArray], combine: np.ufunc = np.multiply) -> Any:
    """A table from one vector per axis: products of their entries, or another combination."""
    return reduce(combine.outer, vectors)


def sum_groups(values: ArrayT, codes: Int64Array, groups: int, axis: int, *, one: bool) -> ArrayT:
    """Sums of the entries with one code along one axis; `one` when there is only one code.

    Entries with the code `groups` are in none of them and left out.
    """
    if one:
        summed: Any = values.sum(axis=axis, keepdims=True, dtype=values.dtype)
        return summed  # type: ignore[no-any-return]
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    if ordered[-1] == groups:
        kept = np.flatnonzero(codes < groups)
        if not kept.size:
            shape = [groups if b == axis else n for b, n in enumerate(values.shape)]
            empty: Any = np.zeros(shape, values.dtype)
            return empty  # type: ignore[no-any-return]
        left: Any = np.take(values, kept, axis=axis)
        return sum_groups(left, codes[kept], groups, axis, one=False)  # type: ignore[no-any-return]
    arranged = values if np.array_equal(codes, ordered) else np.take(values, order, axis=axis)
    sums: Any = np.add.reduceat(arranged, starts, axis=axis)
    if len(starts) == groups:
        return sums  # type: ignore[no-any-return]
    shape = list(values.shape)
    shape[axis] = groups
    out = np.zeros(shape, values.dtype)
    place: list[Any] = [slice(None)] * values.ndim
    place[axis] = ordered[starts]
    out[tuple(place)] = sums
    return out  # type: ignore[return-value]
