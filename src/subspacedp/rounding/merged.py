"""Axes merged for cumulation: as few as possible, each with its held levels in runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from subspacedp.tables import Domain, Margin

__all__ = ["MergedAxis", "Run", "chain_of", "fewest_classes", "fewest_merged_axes", "in_order"]

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

    def groups(self, margin: Margin) -> int:
        """The number of groups of a margin on this axis, empty ones included."""
        return math.prod(margin.levels[b].groups for b in self.members)

    def codes(self, margin: Margin) -> Int64Array:
        """The group of a margin that each position is in, before ordering."""
        return self._codes(tuple(margin.steps[b] for b in self.members))

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
