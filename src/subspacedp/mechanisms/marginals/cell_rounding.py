"""Controlled rounding of one table of cells, estimated from several levels.

The cumulative table of `LevelRounding` is rounded entry by entry. For a table too large to be
looked at as a whole it is cut along the tree: on the merged axis with the tree, the positions of
one subtree are a few *segments*, runs of neighbours. Real cumulative sums at the ends of segments
follow from the estimates at the level of the subtrees' roots, so those inside a segment need its
own cells alone. Fractions are counted in units of 2**-36, whole numbers, whose sums are the same in
every order: the result does not depend on how many subtrees are rounded together.

Where held classifications cross, `CrossingRounding` rounds the estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array, WordArray
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.marginals.estimate import Estimate
from subspacedp.mechanisms.marginals.tree import Subtrees, Tree
from subspacedp.rounding import CrossingRounding
from subspacedp.rounding.controlled import WordSource
from subspacedp.rounding.levels import Cumulation, LevelRounding
from subspacedp.rounding.merged import MergedAxis
from subspacedp.tables import Margin

Steps = tuple[int, ...]

BITS = 36  # of the fraction of a step: sums of 2**27 of them stay below 2**62


@frozen(eq=False, repr=False)
class Cut:
    """Where a tree on the first axis is cut into subtrees, each with its labels side by side."""

    tree: Tree
    level: int  # of the roots of the subtrees

    @property
    def step(self) -> int:
        """That level's place in the chain of the axis."""
        return self.tree.steps[self.level]


@frozen(eq=False, repr=False)
class HeldEntries:
    """Cumulative totals that a held margin determines, in steps."""

    margin: Margin
    segment: Int64Array  # in which each run of its groups on the merged axis of the tree ends
    lines: tuple[Int64Array, ...]  # where its groups end on the other merged axes
    totals: Int64Array  # runs first, then one dimension for each of these


@frozen(eq=False, repr=False)
class Carried:
    """Real cumulative sums at the ends of all segments, and those that held totals determine."""

    whole: Int64Array  # (segments, other merged axes), in steps
    fraction: Int64Array  # the same, in units of 2**-36, at most half a step
    at_ends: tuple[HeldEntries, ...]  # of margins whose runs are whole segments
    inside: tuple[HeldEntries, ...]  # of margins with several runs in a segment


@frozen(eq=False, repr=False)
class Segments:
    """The segments of a merged axis, in its order."""

    order: Int64Array  # of pairs of a subtree and a group of flat combinations
    node: Int64Array  # the subtree of every segment
    stops: Int64Array  # the position behind every segment
    member: Int64Array  # the group of every flat combination
    keys: dict[Steps, Int64Array]  # of every segment, for levels that subtrees do not cut

    @cached_property
    def sizes(self) -> Int64Array:
        """The number of positions of every segment."""
        return np.diff(self.stops, prepend=0)

    @cached_property
    def number(self) -> Int64Array:
        """The number of the segment of every pair."""
        return np.argsort(self.order)


@frozen(eq=False, repr=False)
class SubtreeRounding:
    """The rounding of a table of cells, for any run of subtrees by itself.

    Guarantees
    ----------
    1. Integers that keep the held totals, unbiased up to the rounding error of float64 and to
       2**-36 of a step per cell.
    2. The value of a cell does not depend on which subtrees it is rounded together with.
    """

    plan: LevelRounding
    cut: Cut

    # ------------------------------------------------------------------------ where cells stand

    @cached_property
    def _tree_axis(self) -> int:
        """The number of the merged axis with the tree."""
        return next(i for i, axis in enumerate(self.plan.axes) if 0 in axis.members)

    @property
    def _merged(self) -> MergedAxis:
        return self.plan.axes[self._tree_axis]

    @cached_property
    def _others(self) -> tuple[MergedAxis, ...]:
        return tuple(axis for i, axis in enumerate(self.plan.axes) if i != self._tree_axis)

    def _flat_codes(self, steps: Steps) -> tuple[Int64Array, int]:
        """The group of every combination of labels merged with the tree, and how many there are."""
        out, number = np.zeros(1, np.int64), 1
        for b, step in zip(self._merged.members[1:], steps[1:], strict=True):
            level = self.plan.held.domain.axes[b].step(step)
            out = (out[:, None] * level.groups + level.codes[None, :]).ravel()
            number *= level.groups
        return out, number

    def _codes(self, labels: Int64Array, flat: Int64Array, steps: Steps) -> Int64Array:
        """The group of a level of the merged axis, for labels of the tree × flat combinations."""
        codes, number = self._flat_codes(steps)
        tree = self.plan.held.domain.axes[0].step(steps[0]).codes[labels]
        return np.asarray((tree[:, None] * number + codes[flat][None, :]).reshape(-1))

    def _lines(self, table: AnyArray) -> AnyArray:
        """Rows of a table by position on the merged axis of the tree, then the other merged axes.

        Positions are numbered as the table has them, and not yet in order.
        """
        members = [*self._merged.members, *(b for axis in self._others for b in axis.members)]
        out = table.transpose(members).reshape(-1, *(len(axis) for axis in self._others))
        for a, axis in enumerate(self._others, 1):
            out = np.take(out, axis.order, axis=a)
        return out

    def _table(self, lines: AnyArray) -> AnyArray:
        """The inverse of `_lines`."""
        out = lines
        for a, axis in enumerate(self._others, 1):
            out = np.take(out, np.argsort(axis.order), axis=a)
        members = [*self._merged.members, *(b for axis in self._others for b in axis.members)]
        shape = self.plan.held.domain.shape
        out = out.reshape([-1, *(shape[b] for b in members[1:])])
        return np.ascontiguousarray(out.transpose(np.argsort(members)))

    # ------------------------------------------------------------------------ segments

    @cached_property
    def _coarse(self) -> list[Steps]:
        """The levels of the merged axis that subtrees do not cut."""
        return [s for s in self._merged.chain if s[0] >= self.cut.step]

    @cached_property
    def _segments(self) -> Segments:
        """Every subtree × group of the finest such level, in the order of the merged axis."""
        cut = self.cut
        steps = self._coarse[-1] if self._coarse else (0,) * len(self._merged.members)
        flat = self._flat_codes(steps)[0] if self._coarse else self._flat_codes(steps)[0] * 0
        groups, first, sizes = np.unique(flat, return_index=True, return_counts=True)
        member = np.searchsorted(groups, flat)
        labels, nodes = cut.tree.starts[cut.level], cut.tree.nodes(cut.level)
        node = np.repeat(np.arange(nodes), len(groups))
        keys = [self._codes(labels, first, s) for s in self._coarse]
        order = np.lexsort([node, *reversed(keys)])
        positions = np.multiply.outer(cut.tree.leaves[cut.level], sizes).reshape(-1)[order]
        return Segments(
            order=order,
            node=node[order],
            stops=np.cumsum(positions),
            member=member,
            keys={s: key[order] for s, key in zip(self._coarse, keys, strict=True)},
        )

    def carry(self, roots: FloatArray, exact: HeldValues) -> Carried:
        """What every segment begins from, from estimates of the roots and the held totals."""
        segments = self._segments
        whole, fraction = (self._by_segment(part) for part in self._in_units(roots))
        for a in range(whole.ndim - 1, -1, -1):
            _cumulate(whole, fraction, a)
        held = [self._held_entries(m, exact) for m in self.plan.held.essential]
        return Carried(
            whole,
            fraction,
            tuple(h for h in held if self._steps_of(h.margin) in segments.keys),
            tuple(h for h in held if self._steps_of(h.margin) not in segments.keys),
        )

    def _in_units(self, table: FloatArray) -> tuple[Int64Array, Int64Array]:
        """Whole steps, and what is left in units of 2**-36."""
        near = np.rint(table)
        rest = (table - near) * self.plan.step
        turns = np.rint(rest)
        whole = near.astype(np.int64) * self.plan.step + turns.astype(np.int64)
        return whole, np.rint((rest - turns) * 2.0**BITS).astype(np.int64)

    def _by_segment(self, roots: Int64Array) -> Int64Array:
        """Sums of a table of the roots over each segment, in order."""
        segments, lines = self._segments, self._lines(roots)
        flat = len(segments.member)
        by_flat = lines.reshape(-1, flat, *lines.shape[1:])
        out = np.zeros((len(by_flat), int(segments.member.max()) + 1, *lines.shape[1:]), np.int64)
        for q, group in enumerate(segments.member.tolist()):
            out[:, group] += by_flat[:, q]
        return np.asarray(out.reshape(-1, *lines.shape[1:])[segments.order])

    def _steps_of(self, margin: Margin) -> Steps:
        return tuple(margin.steps[b] for b in self._merged.members)

    def _held_entries(self, margin: Margin, exact: HeldValues) -> HeldEntries:
        """The cumulative totals of a held margin, at the ends of its groups."""
        steps, segments = self._steps_of(margin), self._segments
        if steps in segments.keys:
            codes = segments.keys[steps]
            segment = np.flatnonzero(np.diff(codes, append=-1))
            groups = codes[segment]
        else:
            groups, segment = self._runs_inside(steps)
        runs = [axis.run(margin) for axis in self._others]
        members = [*self._merged.members, *(b for axis in self._others for b in axis.members)]
        totals = self.plan.held.of(exact, margin).transpose(members)
        out = totals.reshape(-1, *(axis.groups(margin) for axis in self._others))[groups]
        for a, run in enumerate(runs, 1):
            out = np.take(out, run.ids, axis=a)
        for a in range(out.ndim):
            out = np.cumsum(out, axis=a)
        lines = tuple(np.flatnonzero(run.place == run.sizes[run.group]) for run in runs)
        return HeldEntries(margin, segment, lines, out * self.plan.step)

    def _runs_inside(self, steps: Steps) -> tuple[Int64Array, Int64Array]:
        """The groups of a level below the roots of subtrees in order, and the segment of each."""
        tree, segments = self.cut.tree, self._segments
        level = tree.steps.index(steps[0])
        flat = self._flat_codes(steps)[0]
        first = np.unique(flat, return_index=True)[1]
        chain = self._merged.chain
        keys = [self._codes(tree.starts[level], first, s) for s in chain[: chain.index(steps) + 1]]
        order = np.lexsort(keys[::-1])
        node = np.repeat(tree.ancestors(level, self.cut.level), len(first))
        group = np.tile(segments.member[first], tree.nodes(level))
        groups = int(segments.member.max()) + 1
        return keys[-1][order], segments.number[node * groups + group][order]

    # ------------------------------------------------------------------------ rounding

    def round(
        self, carried: Carried, subtrees: Subtrees, cells: FloatArray, dither: WordSource
    ) -> Int64Array:
        """The cells of a run of subtrees in steps.

        Parameters
        ----------
        cells
            The estimates, labels of the tree axis first.
        dither
            Uniform words, one per entry of the merged table in row-major order.
        """
        segments = self._segments
        chosen = np.flatnonzero((segments.node >= subtrees.first) & (segments.node < subtrees.stop))
        labels = np.arange(*subtrees.range)
        keys = [self._codes(labels, np.arange(len(segments.member)), s) for s in self._merged.chain]
        order = np.lexsort(keys[::-1]) if keys else np.arange(len(labels) * len(segments.member))
        whole, fraction = (self._lines(part)[order] for part in self._in_units(cells))
        sizes = segments.sizes[chosen]
        self._cumulate(whole, fraction, sizes, carried, chosen)
        breaks = np.flatnonzero(np.diff(chosen, prepend=-2) != 1)
        runs = [
            (int(segments.stops[s] - segments.sizes[s]), int(segments.stops[t]))
            for s, t in zip(chosen[breaks], chosen[[*(breaks[1:] - 1), -1]], strict=True)
        ]
        entries = np.concatenate([self._words(dither, start, stop) for start, stop in runs])
        entries = _rounded(whole, fraction, entries)
        stops = np.cumsum(sizes)
        for held in carried.inside:
            codes = keys[self._merged.chain.index(self._steps_of(held.margin))][order]
            ends = np.flatnonzero(np.diff(codes, append=-1))
            entries[np.ix_(ends, *held.lines)] = held.totals[np.isin(held.segment, chosen)]
        at_ends = entries[stops - 1]
        _put_held(carried.at_ends, chosen, at_ends)
        entries[stops - 1] = at_ends
        before = np.zeros((len(breaks), *entries.shape[1:]), np.int64)
        for i, s in enumerate(chosen[breaks].tolist()):
            if s > 0:
                before[i] = self._entry_at_end(carried, s - 1, dither)
        out = np.diff(entries, axis=0, prepend=before[:1])
        firsts = (stops - sizes)[breaks]
        out[firsts] = entries[firsts] - before
        for a in range(1, out.ndim):
            out = np.diff(out, axis=a, prepend=0)
        table = np.empty_like(out)
        table[order] = out
        return np.asarray(self._table(table), np.int64)

    def _cumulate(
        self,
        whole: Int64Array,
        fraction: Int64Array,
        sizes: Int64Array,
        carried: Carried,
        chosen: Int64Array,
    ) -> None:
        """Cumulative sums of the positions of some segments, in their own memory.

        Sums of integers modulo 2**64: that of a segment does not depend on those before it. What a
        segment's own sum is off the carried one, by rounding error, is spread over it evenly.
        """
        stops = np.cumsum(sizes)
        before = [np.concatenate([np.zeros_like(part[:1]), part])[chosen]
                  for part in (carried.whole, carried.fraction)]  # fmt: skip
        for a in range(whole.ndim - 1, 0, -1):
            _cumulate(whole, fraction, a)
        for part in (whole, fraction):
            np.cumsum(part, axis=0, out=part)
            at_start = np.concatenate([np.zeros_like(part[:1]), part[stops[:-1] - 1]])
            part -= np.repeat(at_start, sizes, axis=0)
        off = (carried.whole[chosen] - before[0] - whole[stops - 1]) << BITS
        off += carried.fraction[chosen] - before[1] - fraction[stops - 1]
        place = np.arange(len(whole)) - np.repeat(stops - sizes, sizes) + 1
        column = (-1, *(1,) * (whole.ndim - 1))
        spread = np.repeat(off, sizes, axis=0) * place.reshape(column)
        fraction += spread // np.repeat(sizes, sizes).reshape(column)
        whole += np.repeat(before[0], sizes, axis=0)
        fraction += np.repeat(before[1], sizes, axis=0)

    def _entry_at_end(self, carried: Carried, segment: int, dither: WordSource) -> Int64Array:
        """The rounded cumulative totals at the end of one segment."""
        stop = int(self._segments.stops[segment])
        words = self._words(dither, stop - 1, stop)
        row = slice(segment, segment + 1)
        out = _rounded(carried.whole[row], carried.fraction[row], words)
        _put_held(carried.at_ends, np.array([segment]), out)
        return np.asarray(out[0])

    def _words(self, dither: WordSource, start: int, stop: int) -> WordArray:
        """The words of some positions of the merged axis of the tree, those first."""
        leading = int(np.prod(self.plan.shape[: self._tree_axis], dtype=np.int64))
        trailing = int(np.prod(self.plan.shape[self._tree_axis + 1 :], dtype=np.int64))
        length, shape = self.plan.shape[self._tree_axis], [len(axis) for axis in self._others]
        lines = [
            dither.words((line * length + start) * trailing, (stop - start) * trailing)
            for line in range(leading)
        ]
        out = np.stack([words.reshape(stop - start, trailing) for words in lines], axis=1)
        return out.reshape(stop - start, *shape)


@frozen(eq=False, repr=False)
class CellRounding(LevelRounding):
    """`LevelRounding` of an estimate: the table of cells, the first of its workload."""

    cut: Cut | None = field(default=None, kw_only=True)
    counted: ClassVar[bool] = True  # the roundings of a total weigh alike

    @cached_property
    def by_subtree(self) -> SubtreeRounding | None:
        """The same for any run of subtrees by itself, where the table is cut."""
        return None if self.cut is None else SubtreeRounding(self, self.cut)

    def round_estimate(self, estimate: Estimate, dither: WordSource) -> Int64Array:
        """The cells in steps, with the held totals."""
        if self.by_subtree is None:
            return self.round(*self._in_parts(estimate), dither)
        tree, level = self.by_subtree.cut.tree, self.by_subtree.cut.level
        roots = estimate.totals(level, estimate.interactions.published[0].steps)
        carried = self.by_subtree.carry(roots, estimate.held_totals)
        everything = tree.subtrees(level, 0, tree.nodes(level))
        return self.by_subtree.round(carried, everything, estimate.table(0), dither)

    def group_kinds(self, margin: Margin) -> Int64Array:
        """How many roundings enter: all count alike."""
        return self.rounding_counts(margin)

    def of_kind(self, margin: Margin, kind: int, group: int) -> FloatArray:
        """What each rounding adds to totals of a kind."""
        del margin, group
        return np.full(kind, 1.0 / self.step)

    def _in_parts(self, estimate: Estimate) -> tuple[Int64Array, FloatArray]:
        """Whole numbers and what is left of cells, whose sums keep the held totals.

        Of large counts float64 loses the sums of what is left. These are known: the held totals
        less the sums of whole numbers, and the difference, of rounding error, is spread evenly.
        """
        cells = estimate.table(0)
        near = np.rint(cells)
        whole = near.astype(np.int64)
        rest = np.subtract(cells, near, out=near)
        del cells
        off = tuple(
            margin.sum(rest) - (totals - margin.sum(whole))
            for margin, totals in zip(estimate.held.margins, estimate.held_totals, strict=True)
        )
        if off:
            rest -= self.space.lift(off, error=1.0)
        return whole, rest

    def total_variance(self) -> float:
        """What rounding adds to the variances of all cells together, at most."""
        cells = self.held.domain.cells
        chains = {axis.members: axis.chain for axis in self.axes}
        mean = float(Cumulation(self.held, (cells,), (1.0,)).roundings(chains)[0])
        return mean * cells.nonempty * self.unit_variance / self.step**2


def _cumulate(whole: Int64Array, fraction: Int64Array, axis: int) -> None:
    """Cumulative sums along one axis; whole steps are taken off the fractions."""
    np.cumsum(whole, axis=axis, out=whole)
    np.cumsum(fraction, axis=axis, out=fraction)
    turns = (fraction + (1 << (BITS - 1))) >> BITS
    whole += turns
    fraction -= turns << BITS


def _rounded(whole: Int64Array, fraction: Int64Array, words: WordArray) -> Int64Array:
    """Up with the probability of the fraction."""
    drawn = (words >> np.uint64(64 - BITS)).astype(np.int64)
    return np.asarray(whole + ((fraction + drawn) >> BITS), np.int64)


def _put_held(held: Sequence[HeldEntries], segments: Int64Array, rows: Int64Array) -> None:
    """Exact totals at the ends of some segments, where a held margin determines them."""
    for entries in held:
        at = np.minimum(np.searchsorted(entries.segment, segments), len(entries.segment) - 1)
        hit = np.flatnonzero(entries.segment[at] == segments)
        rows[np.ix_(hit, *entries.lines)] = entries.totals[at[hit]]


@frozen(eq=False, repr=False)
class CrossingCellRounding(CrossingRounding):
    """`CrossingRounding` of an estimate: the table of cells, the first of its workload.

    Guarantees
    ----------
    1. Integers with the held totals, whatever the dither; unbiased over it up to the rounding error
       of float64 (docs/proofs/crossing-digits.md, of any real table with these totals).
    """

    counted: ClassVar[bool] = False

    def round_estimate(self, estimate: Estimate, dither: WordSource) -> Int64Array:
        """The cells in steps, with the held totals."""
        held, cells = self.space.held, estimate.table(0)
        whole = np.rint(cells).astype(np.int64)
        rest = (cells - whole) * self.step
        turns = np.rint(rest)
        whole = whole * self.step + turns.astype(np.int64)
        totals = [totals.reshape(-1) * self.step for totals in estimate.held_totals]
        missing = np.concatenate(totals) - held.sums(whole)[0]
        rest -= turns
        # Sums of what is left are known; what float64 lost of them is spread evenly.
        rest -= self.space.lift((held.real_sums(rest)[0] - missing,), error=1.0)
        words = dither.words(0, rest.size) if self.needed else np.zeros(rest.size, np.uint64)
        return np.asarray(whole + self._rounded(rest, missing, words), np.int64)

    def of_kind(self, margin: Margin, kind: int, group: int) -> FloatArray:
        """What each rounding adds to totals of a kind, from those of one of them."""
        del kind
        return self.group_coefficients(margin, group)

    def total_variance(self) -> float:
        """What rounding adds to the variances of all cells together, at most."""
        return float(np.sum(self.variance()))
