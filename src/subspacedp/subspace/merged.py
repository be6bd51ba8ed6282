"""Axes merged for cumulation: as few as possible, each with its held levels in runs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from subspacedp.tables import Domain, Margin, along

__all__ = ["MergedAxis", "Run", "fewest_merged_axes"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A level of a merged axis after ordering: every group is a run of neighbours."""

    ids: Int64Array  # (groups,) number of each group before ordering; empty groups are left out
    sizes: Int64Array  # (groups,)
    group: Int64Array  # (n,) which run a position is in
    place: Int64Array  # (n,) 1 … size, the position's place in its run


@dataclass(frozen=True, eq=False, repr=False)
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

    def in_order(self, most: int) -> Iterator[Int64Array]:
        """The positions in order, in parts of at most so many where a long list would be made."""
        if len(self) <= most:
            yield self.order
            return
        keys = [
            (i, self.domain.axes[b].step(step).codes)
            for steps in self.chain
            for i, (b, step) in enumerate(zip(self.members, steps, strict=True))
        ]
        labels = [np.arange(len(self.domain.axes[b])) for b in self.members]
        yield from self._sorted(labels, [*keys, *enumerate(labels)], most)

    def _sorted(
        self, labels: list[Int64Array], keys: list[tuple[int, Int64Array]], most: int
    ) -> Iterator[Int64Array]:
        """The positions of a product of labels, by the keys: cut at the first until it is small."""
        if math.prod(map(len, labels)) <= most:
            yield self._sorted_at_once(labels, keys)
            return
        (i, codes), *finer = keys
        order = labels[i][np.argsort(codes[labels[i]], kind="stable")]
        bounds = [*np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist(), len(order)]
        fitting = max(1, most // math.prod(len(own) for j, own in enumerate(labels) if j != i))
        at = 0
        while at < len(bounds) - 1:
            end = max(bisect_right(bounds, bounds[at] + fitting) - 1, at + 1)
            part = [*labels[:i], np.sort(order[bounds[at] : bounds[end]]), *labels[i + 1 :]]
            yield from self._sorted(part, finer if end == at + 1 else keys, most)
            at = end

    def _sorted_at_once(
        self, labels: list[Int64Array], keys: list[tuple[int, Int64Array]]
    ) -> Int64Array:
        shape = tuple(map(len, labels))
        positions = np.zeros((1,) * len(shape), np.int64)
        for i, b in enumerate(self.members):
            positions = positions * len(self.domain.axes[b]) + along(labels[i], i, len(shape))
        columns = [
            np.broadcast_to(along(codes[labels[i]], i, len(shape)), shape).ravel()
            for i, codes in keys[: -len(shape)]
            if np.ptp(codes[labels[i]])
        ]
        flat = positions.ravel()
        return flat[np.lexsort(columns[::-1])] if columns else flat

    def groups(self, margin: Margin) -> int:
        """The number of groups of a margin on this axis, empty ones included."""
        return math.prod(margin.levels[b].groups for b in self.members)

    def codes(self, margin: Margin, positions: Int64Array | None = None) -> Int64Array:
        """The group of a margin that each position is in, before ordering; or some positions."""
        if positions is None:
            return self._codes(tuple(margin.steps[b] for b in self.members))
        out, width, rest = np.zeros(len(positions), np.int64), 1, positions
        for b in reversed(self.members):
            rest, label = np.divmod(rest, len(self.domain.axes[b]))
            out += margin.levels[b].codes[label] * width
            width *= margin.levels[b].groups
        return out

    def run(self, margin: Margin) -> Run:
        """The runs of a margin's level on this axis."""
        steps = tuple(margin.steps[b] for b in self.members)
        if steps not in self._runs:
            self._runs[steps] = self._make_run(steps)
        return self._runs[steps]

    @cached_property
    def _runs(self) -> dict[tuple[int, ...], Run]:
        return {}

    def _make_run(self, steps: tuple[int, ...]) -> Run:
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
            out = (out[:, None] * level.groups + level.codes[None, :]).ravel()
        return out


def fewest_merged_axes(domain: Domain, margins: Sequence[Margin]) -> tuple[MergedAxis, ...]:
    """Partition the axes into as few mergeable classes as possible.

    The class with the table's last axis comes last, so that kernels walk memory in order, and the
    others by length, longest first, which keeps the slices that differencing remembers small.
    """
    best = _partition(len(domain.axes), margins)
    merged = [MergedAxis(domain, members, _chain(members, margins) or ()) for members in best]
    last = len(domain.axes) - 1
    return tuple(sorted(merged, key=lambda axis: (last in axis.members, -len(axis), axis.members)))


def _chain(
    members: tuple[int, ...], margins: Sequence[Margin]
) -> tuple[tuple[int, ...], ...] | None:
    """The levels in use on some axes, coarsest first, or None when they are no chain."""
    used = sorted({tuple(m.steps[b] for b in members) for m in margins}, reverse=True)
    for coarse, fine in pairwise(used):
        if any(f > c for f, c in zip(fine, coarse, strict=True)):
            return None
    return tuple(used)


def _partition(axes: int, margins: Sequence[Margin]) -> list[tuple[int, ...]]:
    best: list[tuple[int, ...]] = [(a,) for a in range(axes)]

    def extend(classes: list[tuple[int, ...]], axis: int) -> None:
        nonlocal best
        if len(classes) >= len(best):
            return
        if axis == axes:
            best = list(classes)
            return
        for i, members in enumerate(classes):
            if _chain((*members, axis), margins) is not None:
                extend([*classes[:i], (*members, axis), *classes[i + 1 :]], axis + 1)
        extend([*classes, (axis,)], axis + 1)

    extend([], 0)
    return best
