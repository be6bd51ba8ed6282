"""Driver of the compiled rounding: tables for the kernel, slabs of words, threads, boxes.

The rounding of `margins.py` in one sweep: whole parts of the correction pass through as integers;
what is left, remainders of at most half a group, is cumulated and rounded entry by entry, and only
the last slice along every outer axis is remembered for differencing. An entry of the cumulative
table is a closed form of the residual and its dither is the word of its number, so any box of cells
can be rounded alone: with the entries just before it, which are computed once more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldValues
from subspacedp.invariants.mixed import centred_divmod
from subspacedp.parallel import for_each, pieces, thread_count
from subspacedp.rounding.controlled import WordSource
from subspacedp.rounding.kernels import round_rows
from subspacedp.rounding.margins import MarginRounding, check_whole, cumulated
from subspacedp.rounding.merged_parts import AxisPart, Stretch, ordered_groups
from subspacedp.tables import along
from subspacedp.tables.boxes import Box

__all__ = ["RowRounding"]

SLAB = 1 << 16  # words fetched at a time
LONGEST = 1 << 18  # positions of a merged axis whose tables are made at a time
SLICE, THIN = 1 << 17, 32  # entries of a slice, and positions not worth cutting further
GAP = 1 << 11  # words that are fetched in vain rather than ask again

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class _Tables:
    """What the kernel knows of the lists of positions, one a merged axis."""

    positions: Int64Array
    wanted: npt.NDArray[np.bool_]
    places: Int64Array
    group: Int64Array
    share: npt.NDArray[np.float64]
    ends: npt.NDArray[np.bool_]
    last_ends: Int64Array
    last_ends_at: Int64Array


class RowRounding:
    """One residual's tables, laid out for the kernel."""

    def __init__(self, plan: MarginRounding, scaled: HeldValues) -> None:
        self.plan = plan
        self.terms = tuple(plan.held.expansion)
        self.shape = np.array(plan.shape, np.int64)
        found = {k: [ordered_groups(axis, k) for axis in plan.axes] for k in self.terms}
        self.groups = np.array(
            [[len(sizes) for _, sizes in found[k]] for k in self.terms], np.int64
        )
        self.factor = np.array([float(a) for a in plan.held.expansion.values()])
        sums, whole = [], []
        for k, a in plan.held.expansion.items():
            # As `MarginRounding.parts`, group by group in the order of the runs.
            totals = plan.held.of(scaled, k).transpose([b for x in plan.axes for b in x.members])
            totals = totals.reshape([axis.groups(k) for axis in plan.axes])
            sizes = np.ones((1,) * totals.ndim, np.int64)
            for s, (ids, lengths) in enumerate(found[k]):
                totals = np.take(totals, ids, axis=s)
                sizes = sizes * along(lengths, s, totals.ndim)
            quotient, rest = centred_divmod(totals, sizes)
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
        known: dict[Any, tuple[Stretch, list[Any]]] = {}  # by axis and labels, for all pieces
        for piece in self._pieces(box):
            stretches, levels = [], []
            for s, axis in enumerate(self.plan.axes):
                key = (s, *((piece.lower[b], piece.upper[b]) for b in axis.members))
                if key not in known:
                    known[key] = self._stretch(AxisPart(axis, piece, box, self._counted[s]))
                stretches.append(known[key][0])
                levels.append(known[key][1])
            self._box(noisy, stretches, self._tables(stretches, levels), dither)

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

    def _stretch(self, part: AxisPart) -> tuple[Stretch, list[Any]]:
        found = part.stretch()
        margins = (*self.terms, *self.plan.held.essential)
        return found, [found.inside[part.level(m)] for m in margins]

    @cached_property
    def _counted(self) -> list[dict[Any, Any]]:
        """For every merged axis what `AxisPart` has counted of it, shared by all boxes."""
        return [{} for _ in self.plan.axes]

    def _segments(self, noisy: Int64Array, dither: WordSource, first: int, last: int) -> None:
        """One merged axis: stretches of it, each with the entry before its first."""
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
        self, noisy: Int64Array, lists: list[Stretch], tables: _Tables, dither: WordSource
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
    ) -> npt.NDArray[np.uint64]:
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
            own = numbers[first:last]
            found = dither.words(int(own[0]), int(own[-1] - own[0]) + 1)
            out[first:last] = found if found.size == own.size else found[own - own[0]]
        return out

    @cached_property
    def _all(self) -> _Tables:
        """The tables of all positions."""
        lists, levels = [], []
        for axis in self.plan.axes:
            length = len(axis)
            lists.append(Stretch(np.arange(length), axis.places, np.ones(length, np.bool_), ()))
            runs = [axis.run(k) for k in (*self.terms, *self.plan.held.essential)]
            levels.append([(run.group, run.place, run.sizes[run.group]) for run in runs])
        return self._tables(lists, levels)

    @cached_property
    def _all_contiguous(self) -> bool:
        last = self.plan.axes[-1]
        return bool(np.array_equal(last.places, np.arange(len(last))))

    def _tables(
        self, lists: Sequence[Stretch], levels: Sequence[Sequence[tuple[Any, Any, Any]]]
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


def _joined(parts: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    starts = np.cumsum([0, *(part.size for part in parts)])[:-1]
    return np.concatenate(parts), starts.astype(np.int64)
