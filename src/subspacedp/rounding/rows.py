"""Compiled controlled rounding: kernels, their tables, slabs of words, threads, boxes.

The rounding of `margins.py` in one sweep: whole parts of the correction pass through as integers;
what is left, remainders of at most half a group, is cumulated and rounded entry by entry, and only
the last slice along every outer axis is remembered for differencing. An entry of the cumulative
table is a closed form of the residual and its dither is the word of its number, so any box of cells
can be rounded alone: with the entries just before it, which are computed once more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array, WordArray
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.invariants.mixed import centred_divmod
from subspacedp.parallel import for_each, kernel, pieces, thread_count
from subspacedp.rounding.controlled import WordSource
from subspacedp.rounding.margins import MarginRounding, check_whole, cumulated
from subspacedp.rounding.merged import AxisPart, AxisRange, ordered_groups
from subspacedp.tables import outer
from subspacedp.tables.domain import Box

SLAB = 1 << 16  # words fetched at a time
LONGEST = 1 << 18  # positions of a merged axis whose tables are made at a time
GAP = 1 << 11  # words that are fetched in vain rather than ask again


@kernel
def _add(target: Any, source: Any) -> None:
    for i in range(target.size):
        target[i] += source[i]


@kernel
def _add_at(target: Any, source: Any, places: Any) -> None:
    for i in range(target.size):
        target[i] += source[places[i]]


@kernel
def _add_weighted(entry: Any, weight: Any, source: Any) -> None:
    for i in range(entry.size):
        entry[i] += weight * source[i]


@kernel
def _add_weighted_at(entry: Any, weight: Any, source: Any, places: Any) -> None:
    for i in range(entry.size):
        entry[i] += weight * source[places[i]]


@kernel
def _interpolate(entry: Any, weight: Any, sums: Any, group: Any, share: Any) -> None:
    for i in range(entry.size):
        g = group[i]
        entry[i] += weight * (sums[g] + (sums[g + 1] - sums[g]) * share[i])


@kernel
def _add_ramp(entry: Any, scale: Any, first: Any, along: Any, steady: Any) -> None:
    if steady:
        for i in range(entry.size):
            entry[i] += scale * (first + i + 1)
    else:
        for i in range(entry.size):
            entry[i] += scale * (along[i] + 1)


@kernel
def round_rows(
    noisy: Any, step: Any, words: Any, first: Any, last: Any, counts: Any, begins: Any, skip: Any,
    shape: Any, positions: Any, wanted: Any, places: Any, steady: Any, contiguous: Any, group: Any,
    share: Any, ends: Any, last_ends: Any, last_ends_at: Any, groups: Any, factor: Any, sums: Any,
    sum_at: Any, whole: Any, whole_at: Any, buffers: Any, buffer_at: Any,
) -> Any:  # fmt: skip
    """Controlled rounding of rows of a merged table, or of a box of it, in place.

    On every merged axis there is a list of positions, in ascending order; one row takes the whole
    list of the last axis, and rows run over the lists of the others in row-major order.

    Parameters
    ----------
    noisy
        The flat table or box in its own order; becomes step·noisy minus the rounded correction.
    words
        Dither of rows `first` to `last - 1`, one per entry.
    counts, begins
        The length of each list, and where it begins in the tables below.
    skip
        1 when the first entry of each row is there for its successor alone.
    shape, positions, wanted, places
        Lengths of the merged axes; for axis s at every entry of its table: the position, whether
        cells there are written, and what it adds to a cell's number.
    steady, contiguous
        Whether positions of the last list follow each other, with no gap that is not wanted; and
        whether its cells do too.
    group, share, groups
        For term k and axis s at every entry: its run, the share of the run up to it, and the
        number of runs.
    ends, last_ends
        For margin m and outer axis s at every entry whether it ends a run; for the last axis the
        entries that do, margin after margin.
    factor, sums, whole
        The coefficient of each term, the cumulated remainders at corners, the whole parts.
    buffers
        The last slice along every outer axis, before differencing along it.

    Returns
    -------
    float
        The largest distance from a whole number of an entry that must be one.
    """
    axes = shape.size
    final = axes - 1
    size, begin = counts[final], begins[final]
    lo = positions[final, begin]
    entry = np.empty(size, np.float64)
    rounded = np.empty(size, np.int64)
    change = np.empty(size, np.int64)
    minus = np.empty(size, np.int64)
    index = np.zeros(axes, np.int64)
    number = np.zeros(axes, np.int64)
    along = positions[final, begin : begin + size]
    worst = 0.0
    for r in range(first, last):
        rest = r
        write = True
        for s in range(final - 1, -1, -1):
            rest, number[s] = divmod(rest, counts[s])
            index[s] = begins[s] + number[s]
            write = write and wanted[s, index[s]]
        entry[:] = 0.0
        minus[:] = 0
        ramp, constant = 0.0, np.int64(0)
        for k in range(factor.size):
            runs = groups[k, final]
            for corner in range(1 << final):
                weight, at = factor[k], np.int64(0)
                for s in range(final):
                    g, f = group[k, s, index[s]], share[k, s, index[s]]
                    if corner >> s & 1:
                        weight *= f
                        g += 1
                    else:
                        weight *= 1.0 - f
                        if g == 0:
                            weight = 0.0
                    at = at * (groups[k, s] + 1) + g
                if weight == 0.0:
                    continue
                at = sum_at[k] + at * (runs + 1)
                if runs == 1:
                    ramp += weight * sums[at + 1]
                elif runs == shape[final] and steady:
                    _add_weighted(entry, weight, sums[at + 1 + lo : at + 1 + lo + size])
                elif runs == shape[final]:
                    _add_weighted_at(entry, weight, sums[at + 1 :], along)
                else:
                    _interpolate(
                        entry, weight, sums[at:], group[k, final, begin : begin + size],
                        share[k, final, begin : begin + size],
                    )  # fmt: skip
            at = np.int64(0)
            for s in range(final):
                at = at * groups[k, s] + group[k, s, index[s]]
            at = whole_at[k] + at * runs
            if runs == 1:
                constant += whole[at]
            elif runs == shape[final] and steady:
                _add(minus, whole[at + lo : at + lo + size])
            elif runs == shape[final]:
                _add_at(minus, whole[at:], along)
            else:
                _add_at(minus, whole[at:], group[k, final, begin : begin + size])
        if ramp != 0.0:
            _add_ramp(entry, ramp / shape[final], lo, along, steady)
        row = words[(r - first) * size : (r - first + 1) * size]
        for i in range(size):
            # floor(x + dither) is x rounded up with the probability of its fractional part.
            dither = np.float64(row[i] >> np.uint64(12)) * 2.0**-52
            rounded[i] = np.int64(np.floor(entry[i] + dither))
        for m in range(ends.shape[0]):
            fixed = True
            for s in range(final):
                fixed = fixed and ends[m, s, index[s]]
            if fixed:
                for place in last_ends[last_ends_at[m] : last_ends_at[m + 1]]:
                    if begin <= place < begin + size:
                        nearest = np.rint(entry[place - begin])
                        worst = max(worst, abs(entry[place - begin] - nearest))
                        rounded[place - begin] = np.int64(nearest)
        # Differences along the last axis and the one before it in one go, then the others.
        upper, lower, between = rounded[1:], rounded[: size - 1], change[1:]
        inner, stride = np.int64(0), np.int64(size)
        change[0] = rounded[0]
        if final == 0:
            for i in range(size - 1):
                between[i] = upper[i] - lower[i]
        for s in range(final - 1, -1, -1):
            past = buffers[buffer_at[s] + inner : buffer_at[s] + inner + size]
            opens = positions[s, index[s]] == 0
            if s == final - 1:
                behind = past[1:]
                if opens:
                    for i in range(size - 1):
                        between[i] = upper[i] - lower[i]
                        behind[i] = between[i]
                else:
                    for i in range(size - 1):
                        now = upper[i] - lower[i]
                        between[i] = now - behind[i]
                        behind[i] = now
                    change[0] = rounded[0] - past[0]
                past[0] = rounded[0]
            elif opens:
                for i in range(size):
                    past[i] = change[i]
            else:
                for i in range(size):
                    now = change[i]
                    change[i] = now - past[i]
                    past[i] = now
            inner += number[s] * stride
            stride *= counts[s]
        if not write:
            continue
        cell = np.int64(0)
        for s in range(final):
            cell += places[s, index[s]]
        if contiguous:
            start = cell + places[final, begin + skip]
            target = noisy[start : start + size - skip]
            away, last_change = minus[skip:], change[skip:]
            if step == 1:
                for i in range(target.size):
                    target[i] -= away[i] + constant + last_change[i]
            else:
                for i in range(target.size):
                    target[i] = step * target[i] - (away[i] + constant) - last_change[i]
        else:
            for i in range(skip, size):
                if steady or wanted[final, begin + i]:
                    where = cell + places[final, begin + i]
                    noisy[where] = step * noisy[where] - (minus[i] + constant) - change[i]
    return worst


SLICE, THIN = 1 << 17, 32  # entries of a slice, and positions not worth cutting further


@frozen(eq=False, repr=False)
class _Tables:
    """What the kernel knows of the lists of positions, one per merged axis."""

    positions: Int64Array
    wanted: BoolArray
    places: Int64Array
    group: Int64Array
    share: FloatArray
    ends: BoolArray
    last_ends: Int64Array
    last_ends_at: Int64Array


class RowRounding:
    """One residual's tables, laid out for the kernel."""

    def __init__(self, plan: MarginRounding, scaled: HeldValues) -> None:
        self.plan = plan
        self.terms = tuple(plan.held.expansion)
        self.shape = np.array(plan.shape, np.int64)
        groups = {k: [ordered_groups(axis, k) for axis in plan.axes] for k in self.terms}
        self.groups = np.array(
            [[len(sizes) for _, sizes in groups[k]] for k in self.terms], np.int64
        )
        self.factor = np.array([float(a) for a in plan.held.expansion.values()])
        sums, whole = [], []
        for k, a in plan.held.expansion.items():
            # As `MarginRounding.parts`, group by group in the order of the runs.
            totals = plan.held.of(scaled, k).transpose([b for x in plan.axes for b in x.members])
            totals = totals.reshape([axis.groups(k) for axis in plan.axes])
            totals = totals[np.ix_(*(ids for ids, _ in groups[k]))]
            quotient, rest = centred_divmod(totals, outer(sizes for _, sizes in groups[k]))
            whole.append((a * quotient).ravel())
            sums.append(cumulated(rest).ravel().astype(np.float64))
        self.whole, self.whole_at = _joined(whole)
        self.sums, self.sum_at = _joined(sums)

    def run(self, noisy: Int64Array, dither: WordSource) -> None:
        """Replace noisy counts of a whole table by steps that add up, in place."""
        if len(self.shape) == 1:
            length = int(self.shape[0])
            for_each(
                lambda piece: self._segments(noisy, dither, *piece),
                [(SLAB * lo, min(SLAB * hi, length))
                 for lo, hi in pieces(-(-length // SLAB), 4 * thread_count())],
            )  # fmt: skip
            return
        number = max(1, min(2 * thread_count(), int(self.shape[0]) // 8))
        for_each(
            lambda piece: self._slices(noisy, dither, *piece), pieces(int(self.shape[0]), number)
        )

    def run_box(self, noisy: Int64Array, box: Box, dither: WordSource) -> None:
        """Replace noisy counts of a box, flat, by the same steps as `run`; on this thread."""
        known: dict[Any, tuple[AxisRange, list[Any]]] = {}  # by axis and labels, for all pieces
        for piece in self._pieces(box):
            ranges, levels = [], []
            for s, axis in enumerate(self.plan.axes):
                key = (s, *((piece.lower[b], piece.upper[b]) for b in axis.members))
                if key not in known:
                    known[key] = self._range(AxisPart(axis, piece, box, self._counted[s]))
                ranges.append(known[key][0])
                levels.append(known[key][1])
            self._box(noisy, ranges, self._tables(ranges, levels), dither)

    def _pieces(self, box: Box) -> list[Box]:
        """The box in pieces whose slices stay in a processor's cache.

        A slice along the first axis is remembered, and walked together with the terms of the
        correction that it has in common with the next one. What pieces compute twice is little:
        one position of an axis that has many.
        """
        todo, done = [box], []
        while todo:
            piece = todo.pop()
            lengths = [math.prod(piece.shape[b] for b in axis.members) for axis in self.plan.axes]
            longest = max(range(len(lengths)), key=lengths.__getitem__)
            if lengths[longest] > LONGEST:
                todo.extend(_halves(piece, self.plan.axes[longest].members))
            elif len(lengths) > 2 and math.prod(lengths[1:]) > SLICE and max(lengths[1:-1]) > THIN:
                middle = max(range(1, len(lengths) - 1), key=lengths.__getitem__)
                todo.extend(_halves(piece, self.plan.axes[middle].members))
            else:
                done.append(piece)
        return done

    def _range(self, part: AxisPart) -> tuple[AxisRange, list[Any]]:
        cells = part.range()
        margins = (*self.terms, *self.plan.held.essential)
        return cells, [cells.inside[part.level(m)] for m in margins]

    @cached_property
    def _counted(self) -> list[dict[Any, Any]]:
        """For every merged axis what `AxisPart` has counted of it, shared by all boxes."""
        return [{} for _ in self.plan.axes]

    def _segments(self, noisy: Int64Array, dither: WordSource, first: int, last: int) -> None:
        """One merged axis: ranges of it, each with the entry before its first."""
        scratch = np.empty(SLAB + 4, np.uint64)
        for at in range(first, last, SLAB):
            before = int(at > 0)
            lo, hi = at - before, min(at + SLAB, last)
            words = dither.words(lo, hi - lo, scratch)
            self._kernel(
                noisy, words, (0, 1), [hi - lo], [lo], before, self._all, np.empty(0, np.int64)
            )

    def _slices(self, noisy: Int64Array, dither: WordSource, first: int, last: int) -> None:
        """Slices along the first merged axis, each piece with the slice before its first."""
        row, inner = int(self.shape[-1]), self.shape[1:].tolist()
        rows = math.prod(inner[:-1])
        begin = max(first - 1, 0)
        wanted = self._all.wanted.copy()
        wanted[0, begin:first] = False
        tables = replace(self._all, wanted=wanted)
        counts, begins = [last - begin, *inner], [begin] + [0] * len(inner)
        buffers = np.zeros(sum(_buffer_sizes(counts)), np.int64)
        chunk = max(1, SLAB // row)
        scratch = np.empty(chunk * row + 4, np.uint64)
        for at in range(0, (last - begin) * rows, chunk):
            end = min(at + chunk, (last - begin) * rows)
            words = dither.words((begin * rows + at) * row, (end - at) * row, scratch)
            self._kernel(noisy, words, (at, end), counts, begins, 0, tables, buffers)

    def _box(
        self, noisy: Int64Array, lists: list[AxisRange], tables: _Tables, dither: WordSource
    ) -> None:
        """The rows of a box, a slab of words at a time."""
        counts = [len(one.positions) for one in lists]
        begins = [0] * len(lists)
        last = lists[-1]
        skip = int(not last.wanted[0])
        steady = bool((np.diff(last.positions) == 1).all() and last.wanted[1:].all())
        contiguous = steady and bool((np.diff(last.places[skip:]) == 1).all())
        buffers = np.zeros(sum(_buffer_sizes(counts)), np.int64)
        rows = np.zeros(1, np.int64)
        for one, length in zip(lists[:-1], self.shape, strict=False):
            rows = (rows[:, None] * length + one.positions).ravel()
        chunk = max(1, SLAB // counts[-1])
        inner = math.prod(counts[1:-1])
        if chunk // 2 < inner <= 2 * chunk:
            chunk = inner  # rows of one slice, whose words follow each other
        scratch = np.empty(chunk * counts[-1] + 4, np.uint64)
        for at in range(0, len(rows), chunk):
            end = min(at + chunk, len(rows))
            words = self._words(dither, rows[at:end], last.positions, scratch)
            self._kernel(
                noisy, words, (at, end), counts, begins, skip, tables, buffers,
                steady=steady, contiguous=contiguous,
            )  # fmt: skip

    def _words(
        self, dither: WordSource, rows: Int64Array, positions: Int64Array, scratch: Any
    ) -> WordArray:
        """The dither of some rows at some positions of the last axis, row by row.

        One request for neighbours; a short gap is cheaper to fetch than to go around.
        """
        length = int(self.shape[-1])
        if len(positions) == length and bool((np.diff(rows) == 1).all()):
            return dither.words(int(rows[0]) * length, len(rows) * length, scratch)
        numbers = (rows[:, None] * length + positions).ravel()
        out = np.empty(len(numbers), np.uint64)
        cuts = np.flatnonzero(np.diff(numbers) > GAP) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
            wanted = numbers[first:last]
            fetched = dither.words(int(wanted[0]), int(wanted[-1] - wanted[0]) + 1)
            out[first:last] = (
                fetched if fetched.size == wanted.size else fetched[wanted - wanted[0]]
            )
        return out

    @cached_property
    def _all(self) -> _Tables:
        """The tables of all positions."""
        lists, levels = [], []
        for axis in self.plan.axes:
            length = len(axis)
            lists.append(AxisRange(np.arange(length), axis.places, np.ones(length, np.bool_), ()))
            runs = [axis.run(k) for k in (*self.terms, *self.plan.held.essential)]
            levels.append([(run.group, run.place, run.sizes[run.group]) for run in runs])
        return self._tables(lists, levels)

    @cached_property
    def _all_contiguous(self) -> bool:
        last = self.plan.axes[-1]
        return bool(np.array_equal(last.places, np.arange(len(last))))

    def _tables(
        self, lists: Sequence[AxisRange], levels: Sequence[Sequence[tuple[Any, Any, Any]]]
    ) -> _Tables:
        """Tables from lists of positions; `levels` tells run, place and size by term and margin."""
        axes, longest = len(lists), max(len(one.positions) for one in lists)
        terms, margins = len(self.terms), len(self.plan.held.essential)
        positions = np.zeros((axes, longest), np.int64)
        places = np.zeros((axes, longest), np.int64)
        wanted = np.zeros((axes, longest), np.bool_)
        group = np.zeros((terms, axes, longest), np.int64)
        share = np.zeros((terms, axes, longest))
        ends = np.zeros((margins, axes, longest), np.bool_)
        for s, one in enumerate(lists):
            n = len(one.positions)
            positions[s, :n], places[s, :n], wanted[s, :n] = one.positions, one.places, one.wanted
            for i, (run, place, size) in enumerate(levels[s]):
                if i < terms:
                    group[i, s, :n] = run
                    share[i, s, :n] = place / size
                else:
                    ends[i - terms, s, :n] = place == size
        last = [np.flatnonzero(ends[m, -1]) for m in range(margins)]
        last_ends, starts = _joined(last)
        at = np.append(starts, last_ends.size)
        return _Tables(positions, wanted, places, group, share, ends, last_ends, at)

    def _kernel(
        self, noisy: Any, words: Any, rows: tuple[int, int], counts: Sequence[int],
        begins: Sequence[int], skip: int, tables: _Tables, buffers: Any, *,
        steady: bool = True, contiguous: bool | None = None,
    ) -> None:  # fmt: skip
        at = np.concatenate([[0], np.cumsum(_buffer_sizes(counts))]).astype(np.int64)
        worst = round_rows(
            noisy, self.plan.step, words, *rows, np.array(counts, np.int64),
            np.array(begins, np.int64), skip, self.shape, tables.positions, tables.wanted,
            tables.places, steady, self._all_contiguous if contiguous is None else contiguous,
            tables.group, tables.share, tables.ends, tables.last_ends, tables.last_ends_at,
            self.groups, self.factor, self.sums, self.sum_at, self.whole, self.whole_at,
            buffers, at,
        )  # fmt: skip
        check_whole(worst)


def _buffer_sizes(counts: Sequence[int]) -> list[int]:
    """The number of entries of a slice along every outer axis."""
    return [math.prod(counts[s + 1 :]) for s in range(len(counts) - 1)]


def _halves(box: Box, axes: Sequence[int]) -> list[Box]:
    """A box cut in two along the longest of some axes."""
    axis = max(axes, key=lambda b: box.shape[b])
    middle = (box.lower[axis] + box.upper[axis]) // 2
    lower, upper = list(box.lower), list(box.upper)
    lower[axis] = upper[axis] = middle
    return [Box(box.lower, tuple(upper)), Box(tuple(lower), box.upper)]


def _joined(parts: list[AnyArray]) -> tuple[AnyArray, Int64Array]:
    starts = np.cumsum([0, *(part.size for part in parts)])[:-1]
    return np.concatenate(parts), starts.astype(np.int64)
