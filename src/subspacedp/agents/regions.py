"""Which cells' noise an agent needs: the groups of the invariants that its own cells touch.

Two cells are connected when a held group, or a row of C, has both. What is taken out of a cell's
noise depends on the noise of the cells connected to it, and on no other. For held margins the
classes of connected cells are the groups of one margin, their meet; they are taken together in
regions, products of labels, so that many small groups cost no more than one large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from subspacedp.agents.partition import cells_of_product
from subspacedp.invariants import HeldMargins, HeldMatrix, MarginNullSpace
from subspacedp.invariants.matrix.components import connected
from subspacedp.rounding import MarginRounding
from subspacedp.rounding.merged import MergedAxis
from subspacedp.tables import Axis, Domain, Margin

__all__ = ["LocalRounding", "Region", "connected_cells", "regions_of", "separating"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Region:
    """A product of labels that is a union of classes of connected cells."""

    held: HeldMargins  # of the whole table
    labels: tuple[Int64Array, ...]  # positions on every axis, increasing

    @cached_property
    def cells(self) -> Int64Array:
        """The numbers of its cells in the whole table, increasing."""
        return cells_of_product(self.labels, self.held.domain.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of labels on every axis."""
        return tuple(len(places) for places in self.labels)

    @cached_property
    def space(self) -> MarginNullSpace:
        """The null space of the held margins on this region alone.

        Every group of an essential margin lies inside or outside, so C is a block of the whole
        one, and lifting a residual here is lifting it there.
        """
        axes = zip(self.held.domain.axes, self.labels, strict=True)
        domain = Domain([_part_of(axis, places) for axis, places in axes])
        margins = tuple(Margin(tuple(domain.axes), m.steps) for m in self.held.essential)
        return MarginNullSpace(HeldMargins(domain=domain, margins=margins, counts=self.held.counts))


@dataclass(frozen=True, eq=False, repr=False)
class LocalRounding(MarginRounding):
    """The rounding of a whole table's digits, restricted to a region of it."""

    whole: MarginRounding
    region: Region

    @cached_property
    def axes(self) -> tuple[MergedAxis, ...]:
        """The merged axes of the whole table, with the labels of the region."""
        domain = self.space.domain
        return tuple(MergedAxis(domain, axis.members, axis.chain) for axis in self.whole.axes)

    @cached_property
    def word_numbers(self) -> Int64Array:
        """The numbers, in the whole merged table, of the entries of this one; increasing."""
        places = [
            self._places(local, whole)
            for local, whole in zip(self.axes, self.whole.axes, strict=True)
        ]
        return cells_of_product(places, self.whole.shape)

    def _places(self, local: MergedAxis, whole: MergedAxis) -> Int64Array:
        """Where each position of a merged axis is on that of the whole table.

        Both are sorted by the coarsest group, and a group that is here is here completely.
        """
        if len(local) == len(whole) or not whole.chain:
            return np.arange(len(local))
        group, sizes = np.zeros(1, np.int64), np.ones(1, np.int64)
        for b, step in zip(whole.members, whole.chain[0], strict=True):
            level = whole.domain.axes[b].step(step)
            codes = level.codes[self.region.labels[b]]
            group = (group[:, None] * level.groups + codes[None, :]).ravel()
            sizes = (sizes[:, None] * level.sizes[None, :]).ravel()
        group = group[local.order]
        first = np.searchsorted(group, group, side="left")  # of its group, here
        return (np.cumsum(sizes) - sizes)[group] + np.arange(group.size) - first


def separating(held: HeldMargins, rounding: MarginRounding | None) -> Margin:
    """The margin whose groups are closed: what happens inside one depends on its noise alone.

    For real values that is the meet of the held margins. Digits are rounded in cumulated tables,
    where the end of a group cuts an axis only if the entries there are whole numbers whatever the
    other indices: that is so if some held margin keeps every position of all other merged axes
    apart. Where none does, the axis is not cut.
    """
    meet = reduce(lambda a, b: a.meet(b), held.essential, held.domain.cells)
    if rounding is None or not rounding.needed:
        return meet
    steps = list(meet.steps)
    for axis in rounding.axes:
        others = [b for other in rounding.axes if other is not axis for b in other.members]
        if not any(all(_apart(m, b) for b in others) for m in held.essential):
            for b in axis.members:
                steps[b] = held.domain.axes[b].depth - 1
    return Margin(tuple(held.domain.axes), tuple(steps))


def _apart(margin: Margin, axis: int) -> bool:
    return int(margin.levels[axis].sizes.max()) == 1


def regions_of(held: HeldMargins, cells: Int64Array, margin: Margin) -> Iterator[Region]:
    """The groups of a separating margin that some cells touch, as few regions as come easily."""
    index = np.unravel_index(cells, held.domain.shape)
    codes = [level.codes[i] for level, i in zip(margin.levels, index, strict=True)]
    distinct = [np.unique(code, return_inverse=True) for code in codes]
    touched = np.zeros([len(groups) for groups, _ in distinct], bool)
    touched[tuple(place.reshape(-1) for _, place in distinct)] = True
    for chosen in _products(touched):
        labels = []
        for level, (groups, _), places in zip(margin.levels, distinct, chosen, strict=True):
            inside = np.zeros(level.groups, bool)
            inside[groups[places]] = True
            labels.append(np.flatnonzero(inside[level.codes]))
        yield Region(held, tuple(labels))


def _products(touched: npt.NDArray[np.bool_]) -> Iterator[tuple[Int64Array, ...]]:
    """A table of True and False as a disjoint union of products of indices."""
    if touched.ndim == 1:
        if touched.any():
            yield (np.flatnonzero(touched),)
        return
    if touched.all():
        yield tuple(np.arange(n) for n in touched.shape)
        return
    rows = touched.reshape(len(touched), -1)
    patterns, which = np.unique(rows, axis=0, return_inverse=True)
    which = which.reshape(-1)
    for number, pattern in enumerate(patterns):
        same = np.flatnonzero(which == number)
        for rest in _products(pattern.reshape(touched.shape[1:])):
            yield (same, *rest)


def connected_cells(held: HeldMatrix, cells: Int64Array) -> npt.NDArray[np.bool_]:
    """The cells that rows of C connect to some cells, as a mask; the cells themselves included."""
    near = np.zeros(held.query.size, bool)
    near[cells] = True
    rows = held.matrix
    filled = np.flatnonzero(np.diff(rows.indptr))
    if not filled.size:
        return near
    component = connected(rows[filled])
    touched = np.asarray((abs(rows[filled]) @ near.astype(np.float64)) > 0)
    reached = np.isin(component, component[touched])
    near[rows[filled[reached]].indices] = True
    return near


def _part_of(axis: Axis, places: Int64Array) -> Axis:
    """Some labels of an axis; the groups that have one of them, in the same order."""
    if len(places) == len(axis):
        return axis
    levels, groups = {}, {}
    for level in axis.chain[1:]:
        codes = level.codes[places]
        levels[level.name] = [level.labels[code] for code in codes]
        groups[level.name] = [level.labels[code] for code in np.unique(codes)]
    labels = [axis.labels[place] for place in places]
    return Axis(axis.name, labels, levels=levels, groups=groups, from_data=axis.from_data)
