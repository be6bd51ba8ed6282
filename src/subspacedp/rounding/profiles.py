"""The totals of a margin's groups as seen from inside the null space, without a matrix.

The error of a group total is Σ (Π_N 1_G)ᵢ eᵢ. On every axis Π_N 1_G depends only on which of the
groups that contain G's group also contain the label, so Π_N 1_G takes few values, and groups whose
containing groups have the same sizes have the same values the same number of times: one law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, reduce

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants.margin_space import MarginNullSpace, distinct_columns
from subspacedp.rounding.margins import MarginRounding
from subspacedp.rounding.merged import MergedAxis
from subspacedp.tables import Margin, along, outer


@frozen(eq=False, repr=False)
class GroupProfiles:
    """The groups of a margin, sorted into classes of equal sizes.

    Guarantees
    ----------
    1. Groups of one class have the same values of Π_N 1_G, each the same number of times.
    2. `squared` and `profile` agree with the dense projector to rounding error.
    """

    space: MarginNullSpace
    margin: Margin

    def __post_init__(self) -> None:
        if self.margin.grouped:
            raise InvariantError(
                f"{self.margin!r} names a grouping, whose groups have no classes of equal sizes."
            )

    @cached_property
    def _axes(self) -> tuple[tuple[tuple[int, ...], Int64Array, Int64Array], ...]:
        """For every axis: the steps in use from the margin's own on, sizes by class, classes."""
        out = []
        for a, axis in enumerate(self.space.domain.axes):
            step = self.margin.steps[a]
            above = {k.steps[a] for k in self.space.held.expansion if k.steps[a] > step}
            steps = (step, *sorted(above))
            sizes = np.stack(
                [axis.step(s).sizes[axis.parents(step, s)] if s > step else axis.step(s).sizes
                 for s in steps]
            )  # fmt: skip
            out.append((steps, *distinct_columns(sizes)))
        return tuple(out)

    @cached_property
    def class_shape(self) -> tuple[int, ...]:
        """The number of classes on every axis."""
        return tuple(sizes.shape[1] for _, sizes, _ in self._axes)

    def member(self, axis: int) -> Int64Array:
        """The class of every group of one axis."""
        return self._axes[axis][2]

    def classes(self) -> Int64Array:
        """The class of every group, in the margin's shape, numbered in row-major order."""
        out = np.zeros((1,) * len(self._axes), np.int64)
        for a, (_, _, member) in enumerate(self._axes):
            out = out * self.class_shape[a] + along(member, a, len(self._axes))
        return np.broadcast_to(out, self.margin.shape)

    def numbers(self) -> Int64Array:
        """How many groups every class has, in the shape of the classes."""
        return np.asarray(
            outer(np.bincount(member, minlength=sizes.shape[1]) for _, sizes, member in self._axes)
        )

    def squared(self) -> FloatArray:
        """|Π_N 1_G|² of every group, in the margin's shape; 0 for totals that are held."""
        out = self.squared_of_classes
        for a, (_, _, member) in enumerate(self._axes):
            out = np.take(out, member, axis=a)
        return np.asarray(out)

    @cached_property
    def squared_of_classes(self) -> FloatArray:
        """|Π_N 1_G|² of the groups of every class, in the shape of the classes.

        Π_R = Σ_k a_k P_k, and |P_k 1_G|² is a product over the axes: |g|²/|h| where k's group h
        contains g, and |g| where k is finer there.
        """
        whole = outer(sizes[0].astype(np.float64) for _, sizes, _ in self._axes)
        out = np.array(whole)
        for k, factor in self.space.held.expansion.items():
            squares = []
            for step, (steps, sizes, _) in zip(k.steps, self._axes, strict=True):
                squares.append(sizes[0].astype(np.float64))
                if step > steps[0]:
                    squares[-1] = squares[-1] ** 2 / np.maximum(sizes[steps.index(step)], 1)
            out -= factor * outer(squares)
        out[out < 1e-11 * whole] = 0.0  # rounding error of a difference that is zero
        return out

    def profile(self, number: int) -> tuple[FloatArray, FloatArray]:
        """The values of Π_N 1_G other than zero for a class, and how often each occurs."""
        place = np.unravel_index(number, self.class_shape)
        columns = [
            sizes[:, at].astype(np.float64)
            for at, (_, sizes, _) in zip(place, self._axes, strict=True)
        ]
        counts = outer(np.diff(column, prepend=0.0) for column in columns).reshape(-1)
        weights = outer(_first(len(column)) for column in columns)
        for k, factor in self.space.held.expansion.items():
            shares = []
            for step, column, (steps, _, _) in zip(k.steps, columns, self._axes, strict=True):
                shares.append(_first(len(column)))
                if step > steps[0]:
                    at = steps.index(step)
                    share = column[0] / column[at] if column[at] else 0.0
                    shares[-1] = np.where(np.arange(len(column)) <= at, share, 0.0)
            weights = weights - factor * outer(shares)
        weights = weights.reshape(-1)
        kept = (counts > 0) & (np.abs(weights) > 1e-13)
        return weights[kept], counts[kept]


def corner_counts(plan: MarginRounding, margin: Margin) -> Int64Array:
    """How many roundings enter the rounding of every group's total, in the margin's shape.

    A total is a signed sum of entries of the cumulative table, one for each border between the
    group and its neighbours in the merged order; each enters once, and those that the held margins
    determine are not rounded. Inclusion and exclusion over the held margins leaves products.
    """
    if not plan.needed:
        return np.zeros(margin.shape, np.int64)
    total = corners([axis_borders(plan, margin, axis) for axis in plan.axes])
    members = [b for axis in plan.axes for b in axis.members]
    levels = [margin.levels[b] for b in members]
    out = total.reshape([level.groups + level.has_holes for level in levels])
    out = out[tuple(slice(level.groups) for level in levels)]
    return np.ascontiguousarray(out.transpose(np.argsort(members)))


def corners(borders: Sequence[Int64Array]) -> Int64Array:
    """Numbers of roundings, from `axis_borders` of every merged axis: one dimension for each."""
    total = np.zeros((1,) * len(borders), np.int64)
    for chosen, of_each in enumerate(zip(*borders, strict=True)):
        total = total + (-1) ** chosen.bit_count() * outer(of_each)
    return total


def axis_borders(plan: MarginRounding, margin: Margin, axis: MergedAxis) -> Int64Array:
    """For every set of held margins and every group of a margin: borders where runs of all end.

    (sets, groups); the bits of a set's number say which of the essential margins are in it.

    The order of a merged axis is that of nested loops: over the groups of the coarsest level, one
    member after another, then over those of the next finer one, at last over labels. Between two
    neighbours one loop takes its next step, the loops around it stand still, and those inside it
    go from their last to their first. So how often a group ends or begins there is a product over
    the members, and runs of a held margin end where the loop that steps is one of its level or of
    a coarser one.
    """
    essential, levels = plan.held.essential, len(axis.chain)
    ends = [axis.chain.index(tuple(m.steps[b] for b in axis.members)) for m in essential]
    deepest = [
        min((ends[m] for m in range(len(essential)) if chosen >> m & 1), default=levels)
        for chosen in range(2 ** len(essential))
    ]
    members = [
        # Labels that are in no group are taken as one, behind the others.
        _Loops(axis, i, level.codes, level.groups + level.has_holes)
        for i, level in enumerate(margin.levels[b] for b in axis.members)
    ]
    by_level = np.zeros((levels + 1, math.prod(loops.groups for loops in members)), np.int64)
    for level in range(levels + 1):
        for i in range(len(members)):
            parts = [
                loops.steps(level) if j == i else loops.stands(level if j < i else level - 1)
                for j, loops in enumerate(members)
            ]
            last, first, both = (reduce(_outer, vectors) for vectors in zip(*parts, strict=True))
            by_level[level] += last + first - 2 * both
    out = np.cumsum(by_level, axis=0)[deepest]
    place = 0
    for loops in members:
        place = place * loops.groups + int(loops.sorted[-1])
    out[:, place] += 1  # behind the last position there is a border too
    return out


@frozen(eq=False, repr=False)
class _Loops:
    """The loops over one member of a merged axis, and the groups of a margin that they meet."""

    axis: MergedAxis
    member: int
    codes: Int64Array  # of the margin
    groups: int

    @cached_property
    def _order(self) -> Int64Array:
        return np.lexsort([self._level(level) for level in reversed(range(len(self.axis.chain)))])

    def _level(self, level: int) -> Int64Array:
        axis = self.axis.domain.axes[self.axis.members[self.member]]
        if level < 0:
            return axis.all.codes
        number = self.axis.chain[level][self.member] if level < len(self.axis.chain) else 0
        return axis.step(number).codes

    @cached_property
    def sorted(self) -> Int64Array:
        """The margin's group of every label, in order."""
        return self.codes[self._order]

    def _runs(self, level: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The margin's groups at the first and the last label of every run, and where it begins.

        A run of a level ends where one of a coarser level does, also where they cross.
        """
        begins = np.zeros(len(self.codes), bool)
        for coarse in range(-1, level + 1):
            begins |= np.diff(self._level(coarse)[self._order], prepend=-1) != 0
        starts = np.flatnonzero(begins)
        return self.sorted[starts], self.sorted[np.append(starts[1:], len(self.codes)) - 1], starts

    def stands(self, level: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """How often a loop inside a run of this level is last in a group, first, or both."""
        first, last, _ = self._runs(level)
        return self._counted(last, first)

    def steps(self, level: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """How often the loop over this level's runs steps out of a group, into it, or stays."""
        first, last, starts = self._runs(level)
        _, _, around = self._runs(level - 1)
        same = ~np.isin(starts[1:], around)
        return self._counted(last[:-1][same], first[1:][same])

    def _counted(
        self, last: Int64Array, first: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        both = last[last == first]
        return (
            np.bincount(last, minlength=self.groups),
            np.bincount(first, minlength=self.groups),
            np.bincount(both, minlength=self.groups),
        )


def _outer(one: Int64Array, other: Int64Array) -> Int64Array:
    return np.multiply.outer(one, other).reshape(-1)


def _first(length: int) -> FloatArray:
    out = np.zeros(length)
    out[0] = 1.0
    return out
