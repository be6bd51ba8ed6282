"""Axes merged for cumulation: as few as possible, each with its held levels in runs.

The order of a merged axis sorts its positions by the groups of the coarsest level in use, then by
those of the next finer one, and so on, with the members in turn within a level. A grouping in use
splits the groups before it, and is split by those behind it. Positions that
agree so far are a product of groups, one on every member, so how many come before a position is a
sum of products of sizes: where the labels of a box stand needs no list of all positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from subspacedp.arrays import BoolArray, Int64Array
from subspacedp.frozen import frozen, remembered
from subspacedp.tables import Domain, Margin, outer
from subspacedp.tables.domain import Box


@frozen(eq=False, repr=False)
class Run:
    """A level of a merged axis after ordering: every group is a run of neighbours."""

    ids: Int64Array  # (groups,) number of each group before ordering; empty groups are left out
    sizes: Int64Array  # (groups,)
    group: Int64Array  # (n,) which run a position is in
    place: Int64Array  # (n,) 1 … size, the position's place in its run


@frozen(eq=False, repr=False)
class MergedAxis:
    """Several axes of a domain taken as one.

    Axes can be merged when the levels that the held margins use on them form a chain, each finer
    than the next on all of them: then one order makes every group of every such level a run.
    """

    domain: Domain
    members: tuple[int, ...]
    chain: tuple[tuple[int, ...], ...]  # levels in use, coarsest first

    def __len__(self) -> int:
        return math.prod(len(self.domain.axes[b]) for b in self.members)

    @cached_property
    def places(self) -> Int64Array:
        """What each position, in order, adds to the number of a cell of the table."""
        shape = self.domain.shape
        out = np.zeros(1, np.int64)
        for b in self.members:
            stride = math.prod(shape[b + 1 :])
            out = (out[:, None] + stride * np.arange(shape[b])[None, :]).ravel()
        return out[self.order]

    @cached_property
    def order(self) -> Int64Array:
        """The positions, sorted by coarsest group, then the next finer, then as they come."""
        keys = [self._codes(steps) for steps in reversed(self.chain)]
        return np.lexsort(keys) if keys else np.arange(len(self))

    def groups(self, margin: Margin) -> int:
        """The number of groups of a margin on this axis, empty ones included."""
        return math.prod(margin.levels[b].groups for b in self.members)

    def codes(self, margin: Margin) -> Int64Array:
        """The group of a margin that each position is in, before ordering."""
        return self._codes(tuple(margin.steps[b] for b in self.members))

    def run(self, margin: Margin) -> Run:
        """The runs of a margin's level on this axis."""
        return self._run(tuple(margin.steps[b] for b in self.members))

    @remembered
    def _run(self, steps: tuple[int, ...]) -> Run:
        codes = self._codes(steps)[self.order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        sizes = np.diff(starts, append=len(codes))
        group = np.repeat(np.arange(len(starts)), sizes)
        place = np.arange(len(codes)) - starts[group] + 1
        return Run(codes[starts], sizes, group, place)

    def _codes(self, steps: tuple[int, ...]) -> Int64Array:
        out = np.zeros(1, np.int64)
        for b, step in zip(self.members, steps, strict=True):
            level = self.domain.axes[b].step(step)
            groups = level.groups + level.has_holes  # labels in no group come behind the others
            out = (out[:, None] * groups + level.codes[None, :]).ravel()
        return out


def fewest_merged_axes(domain: Domain, margins: Sequence[Margin]) -> tuple[MergedAxis, ...]:
    """Partition the axes into as few mergeable classes as possible."""
    best = fewest_classes(len(domain.axes), margins)
    merged = [MergedAxis(domain, members, chain_of(members, margins) or ()) for members in best]
    return in_order(merged)


def in_order(merged: Sequence[MergedAxis]) -> tuple[MergedAxis, ...]:
    """Merged axes in the order of the table that is cumulated.

    The class with the table's last axis comes last, so that kernels walk memory in order, and the
    others by length, longest first, which keeps the slices that differencing remembers small.
    """
    last = max(b for axis in merged for b in axis.members)
    return tuple(sorted(merged, key=lambda axis: (last in axis.members, -len(axis), axis.members)))


def chain_of(
    members: tuple[int, ...], margins: Sequence[Margin]
) -> tuple[tuple[int, ...], ...] | None:
    """The levels in use on some axes, coarsest first, or None when they are no chain."""
    used = sorted({tuple(m.steps[b] for b in members) for m in margins}, reverse=True)
    for coarse, fine in pairwise(used):
        if any(f > c for f, c in zip(fine, coarse, strict=True)):
            return None
    return tuple(used)


def fewest_classes(axes: int, margins: Sequence[Margin]) -> list[tuple[int, ...]]:
    """The axes in as few mergeable classes as possible."""
    best: list[tuple[int, ...]] = [(a,) for a in range(axes)]

    def extend(classes: list[tuple[int, ...]], axis: int) -> None:
        nonlocal best
        if len(classes) >= len(best):
            return
        if axis == axes:
            best = list(classes)
            return
        for i, members in enumerate(classes):
            if chain_of((*members, axis), margins) is not None:
                extend([*classes[:i], (*members, axis), *classes[i + 1 :]], axis + 1)
        extend([*classes, (axis,)], axis + 1)

    extend([], 0)
    return best


def ordered_groups(axis: MergedAxis, margin: Margin) -> tuple[Int64Array, Int64Array]:
    """The groups of a margin's level on an axis in the order of their runs: numbers and sizes.

    `MergedAxis.run` says the same; here groups are sorted, so no list of all positions is made.
    """
    steps = tuple(margin.steps[b] for b in axis.members)
    axes = [axis.domain.axes[b] for b in axis.members]
    levels = [one.step(step) for one, step in zip(axes, steps, strict=True)]
    filled = [np.flatnonzero(level.sizes) for level in levels]
    ids, sizes = np.zeros(1, np.int64), np.ones(1, np.int64)
    for level, groups in zip(levels, filled, strict=True):
        ids = (ids[:, None] * level.groups + groups).ravel()
        sizes = (sizes[:, None] * level.sizes[groups]).ravel()
    keys = [ids]
    for coarse in reversed(axis.chain[: axis.chain.index(steps)]):
        key = np.zeros(1, np.int64)
        for one, fine, up, groups in zip(axes, steps, coarse, filled, strict=True):
            key = (key[:, None] * one.step(up).groups + one.parents(fine, up)[groups]).ravel()
        keys.append(key)
    order = np.lexsort(keys)
    return ids[order], sizes[order]


@frozen(eq=False, repr=False)
class AxisRange:
    """Positions of a merged axis in ascending order, some of them there for their successor.

    Differences are taken between neighbours, so every position that is wanted has the one before
    it in the list too.
    """

    positions: Int64Array
    places: Int64Array  # what each adds to the number of a cell of the box
    wanted: BoolArray
    inside: tuple[tuple[Int64Array, Int64Array, Int64Array], ...]  # by level: run, place, size


@frozen(eq=False, repr=False)
class AxisPart:
    """The labels of a box on a merged axis.

    Guarantees
    ----------
    1. Positions, runs and places are those of `MergedAxis.order` and `MergedAxis.run`.
    2. Time and memory grow with the box and the axes of the domain, not with the merged axis.
    """

    axis: MergedAxis
    box: Box
    frame: Box  # whose cells are numbered; the box is part of it
    counted: dict[Any, Any] = field(default_factory=dict)  # of the axis alone; may be shared

    def __len__(self) -> int:
        return math.prod(self.box.shape[b] for b in self.axis.members)

    def level(self, margin: Margin) -> int:
        """The number in the chain, coarsest first, of the level that a margin has here."""
        return self.axis.chain.index(tuple(margin.steps[b] for b in self.axis.members))

    def range(self) -> AxisRange:
        """The positions of the box in ascending order, each with the one before it."""
        levels = len(self.axis.chain)
        before = [self._count(level, levels) for level in range(levels + 1)]
        positions = sum(before[1:], before[0])
        after, inside = np.ones(1, np.int64), []
        for level in range(levels - 1, -1, -1):
            after = after + before[level + 1]
            run = sum(
                (self._count(fine, level) for fine in range(1, level + 1)), self._count(0, level)
            )
            inside.append((run, after, self._sizes(level)))
        inside.reverse()
        shape = tuple(self.box.shape[b] for b in self.axis.members)
        flat = np.broadcast_to(positions, shape).ravel()
        order = None if bool((np.diff(flat) > 0).all()) else np.argsort(flat)

        def arranged(values: Int64Array) -> Int64Array:
            out = np.broadcast_to(values, shape).ravel()
            return out if order is None else out[order]

        return _with_predecessors(
            arranged(flat.reshape(shape)),
            arranged(self._places()),
            [(arranged(g), arranged(q), arranged(s)) for g, q, s in inside],
        )

    def _places(self) -> Int64Array:
        """What each label adds to the number of a cell in the row-major order of the frame."""
        lower, upper, frame = self.box.lower, self.box.upper, self.frame
        strided = (
            math.prod(frame.shape[b + 1 :]) * (np.arange(lower[b], upper[b]) - frame.lower[b])
            for b in self.axis.members
        )
        return np.asarray(outer(strided, np.add))

    def _count(self, level: int, of: int) -> Int64Array:
        """How many groups of level `of` come before each label's own because of one level.

        They agree with it on all coarser levels and are smaller at this one. Broadcastable over
        the members of the box; the number of levels stands for the labels themselves.
        """
        out = np.zeros((1,) * len(self.axis.members), np.int64)
        for i in range(len(self.axis.members)):
            lower, _ = self._table(i, level, of)
            if not lower.any():
                continue
            # Members before this one agree at this level too, those after it do not yet.
            out = out + outer(
                lower if j == i else self._table(j, level if j < i else level - 1, of)[1]
                for j in range(len(self.axis.members))
            )
        return out

    def _sizes(self, level: int) -> Int64Array:
        members, labels = range(len(self.axis.members)), len(self.axis.chain)
        return np.asarray(outer(self._table(i, level, labels)[1] for i in members))

    def _table(self, member: int, level: int, of: int) -> tuple[Int64Array, Int64Array]:
        """For the box's labels of one member: groups of `of` that are lower, and that are equal.

        Lower: in the same group one level coarser, with a smaller number at this level.
        """
        key = (member, level, of)
        if key not in self.counted:
            self.counted[key] = _lower_and_same(
                self._codes(member, level - 1), self._codes(member, level), self._codes(member, of)
            )
        axis = self.axis.members[member]
        inside = slice(self.box.lower[axis], self.box.upper[axis])
        lower, same = self.counted[key]
        return lower[inside], same[inside]

    def _codes(self, member: int, level: int) -> Int64Array:
        axis = self.axis.domain.axes[self.axis.members[member]]
        if level < 0:
            return axis.all.codes
        if level == len(self.axis.chain):
            return axis.step(0).codes
        return axis.step(self.axis.chain[level][member]).codes


def _lower_and_same(
    coarse: Int64Array, codes: Int64Array, fine: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """For every label, by nested groups: fine groups in lower groups of its coarse one, in its own.

    The coarsest level of all is that of one group.
    """
    _, first = np.unique(fine, return_index=True)  # one label of every fine group
    groups, inverse, number = np.unique(codes[first], return_index=True, return_counts=True)
    parents = coarse[first][inverse]
    order = np.lexsort([groups, parents])
    running = np.cumsum(number[order]) - number[order]
    opens = np.flatnonzero(np.diff(parents[order], prepend=-1))
    lower = running - np.repeat(running[opens], np.diff(opens, append=len(order)))
    of_group = np.zeros(int(codes.max()) + 1, np.int64)
    size = np.zeros_like(of_group)
    of_group[groups[order]] = lower
    size[groups] = number
    return of_group[codes], size[codes]


def _with_predecessors(
    positions: Int64Array,
    places: Int64Array,
    inside: list[tuple[Int64Array, Int64Array, Int64Array]],
) -> AxisRange:
    """Put the position before every one that lacks it into the list.

    The one before the first of a run is the last of the run before: its share of that run is all
    of it, whatever the run's size.
    """
    lacking = (positions > 0) & (np.diff(positions, prepend=-2) != 1)
    at = np.flatnonzero(lacking)
    wanted = np.insert(np.ones(len(positions), np.bool_), at, False)
    levels = []
    for group, place, size in inside:
        opens = place[at] == 1
        levels.append(
            (
                np.insert(group, at, group[at] - opens),
                np.insert(place, at, np.where(opens, size[at], place[at] - 1)),
                np.insert(size, at, size[at]),
            )
        )
    return AxisRange(
        np.insert(positions, at, positions[at] - 1),
        np.insert(places, at, 0),
        wanted,
        tuple(levels),
    )
