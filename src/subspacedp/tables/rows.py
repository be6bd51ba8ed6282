"""Tables as rows for compiled kernels: where each row of cells falls in each margin.

A table in row-major order is cut into rows: the last axis, or the last few where that is short.
Within a row a margin's groups are all the same, all different, or given by a code for every cell;
from row to row they move by an offset that is a sum over the outer axes. That is all a kernel
needs to sum into any margin, or to spread out of it, in one sweep over memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.parallel import compiled, for_each, kernel, pieces
from subspacedp.tables.domain import Box
from subspacedp.tables.margin import Margin

MIN_ROW_CELLS, ROW_CELLS = 64, 256  # merge axes into a row until it has so many cells
PARTIAL_SUMS = 4  # partial sums are kept apart: fixed, so that results do not depend on threads
SCALAR, VECTOR, CODED = 0, 1, 2
Rows = tuple[int, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]


@frozen(eq=False, repr=False)
class RowPlan:
    """How several margins of one domain see the rows of its tables, or of a box of cells.

    Guarantees
    ----------
    1. A row of a box is part of a row of the table, and a margin that is `SCALAR` for one is so
       for the other: kernels do the same arithmetic for a cell whatever box it comes in.
    """

    margins: tuple[Margin, ...]
    box: Box | None = None  # the cells at hand; all of them by default

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tables."""
        return tuple(len(axis) for axis in self.margins[0].axes)

    @cached_property
    def _box(self) -> Box:
        return self.box or Box((0,) * len(self.shape), self.shape)

    @cached_property
    def first_inner(self) -> int:
        """The first of the axes that make a row."""
        shape = self.shape
        a = len(shape) - 1
        if shape[a] < MIN_ROW_CELLS:
            while a > 0 and math.prod(shape[a:]) < ROW_CELLS:
                a -= 1
        return a

    @property
    def row(self) -> int:
        """The number of cells of a row."""
        return math.prod(self._box.shape[self.first_inner :])

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(self._box.shape[: self.first_inner])

    @cached_property
    def outer(self) -> Int64Array:
        """The lengths of the outer axes."""
        return np.array(self._box.shape[: self.first_inner], np.int64)

    def _codes(self, margin: Margin, axis: int) -> Int64Array:
        """The groups of a margin on one axis, for the positions at hand."""
        return margin.levels[axis].codes[self._box.lower[axis] : self._box.upper[axis]]

    @cached_property
    def offsets(self) -> Int64Array:
        """(margins, outer axes, longest outer axis): what an index adds to a group number."""
        a = self.first_inner
        longest = max([1, *self._box.shape[:a]])
        out = np.zeros((len(self.margins), max(a, 1), longest), np.int64)
        for i, margin in enumerate(self.margins):
            for b in range(a):
                codes = self._codes(margin, b)
                out[i, b, : len(codes)] = codes * math.prod(_places(margin)[b + 1 :])
        return out

    @cached_property
    def modes(self) -> Int64Array:
        """For each margin: SCALAR, VECTOR or CODED within a row."""
        return np.array([self._mode(margin) for margin in self.margins], np.int64)

    def _mode(self, margin: Margin) -> int:
        inner = range(self.first_inner, len(self.shape))
        if all(_places(margin)[b] == 1 for b in inner):
            return SCALAR
        # Groups follow each other in a row where only its first axis is cut.
        whole = self._box.shape[self.first_inner + 1 :] == self.shape[self.first_inner + 1 :]
        if whole and all(margin.levels[b].is_identity for b in inner):
            return VECTOR
        return CODED

    @cached_property
    def codes(self) -> Int64Array:
        """(margins, row) for the coded ones, and one empty column when there are none."""
        if not (self.modes == CODED).any():
            return np.zeros((len(self.margins), 1), np.int64)
        out = np.zeros((len(self.margins), self.row), np.int64)
        for i, margin in enumerate(self.margins):
            if self.modes[i] == CODED:
                code = np.zeros(1, np.int64)
                for b in range(self.first_inner, len(self.shape)):
                    codes, groups = self._codes(margin, b), _places(margin)[b]
                    code = (code[:, None] * groups + codes[None, :]).ravel()
                out[i] = code
        return out

    @property
    def all(self) -> tuple[int, int, int, int]:
        """All cells at hand as one of `ranges`."""
        return 0, self.rows, 0, self.row

    @property
    def seen(self) -> Rows:
        """What kernels need to know of the rows."""
        return self.row, self.outer, self.offsets, self.modes, self.codes, self.bases

    @cached_property
    def bases(self) -> Int64Array:
        """For kernels: where the groups of each margin's first row begin, laid end to end."""
        a = self.first_inner
        shift = self._box.lower[a] * math.prod(self.shape[a + 1 :])
        return np.asarray(self.starts[:-1] + shift * (self.modes == VECTOR), np.int64)

    @cached_property
    def starts(self) -> Int64Array:
        """Where each margin begins when all are laid end to end; the last entry is the total."""
        sizes = [math.prod(_places(margin)) for margin in self.margins]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def join(self, totals: Sequence[AnyArray], dtype: Any) -> AnyArray:
        """Values of every margin, laid end to end."""
        return np.concatenate([np.asarray(t, dtype).ravel() for t in totals])

    def split(self, flat: AnyArray) -> tuple[AnyArray, ...]:
        """The reverse of `join`; what cells in no group added up to is left out."""
        return tuple(
            flat[lo:hi].reshape(_places(margin))[tuple(map(slice, margin.shape))]
            for margin, lo, hi in zip(self.margins, self.starts, self.starts[1:], strict=False)
        )

    def add_sums(
        self, values: AnyArray, totals: AnyArray, part: tuple[int, int, int, int] | None = None
    ) -> None:
        """Add the group sums of the cells at hand to `totals`, laid end to end, on this thread.

        `part`, one of those that `ranges` gives, limits it to some rows, or places within a row.
        """
        whole = values.dtype.kind in "iu"
        sum_rows(values.reshape(-1), whole, *(part or self.all), *self.seen, totals)

    def ranges(self, most: int) -> list[tuple[int, int, int, int]]:
        """The cells at hand in parts of about `most` of them, each one run of row-major order.

        A range of rows, or of places within a row where even one is longer.
        """
        if self.row > most:
            places = pieces(self.row, -(-self.row // most))
            return [(r, r + 1, lo, hi) for r in range(self.rows) for lo, hi in places]
        thick = max(1, most // self.row)
        return [(r, min(r + thick, self.rows), 0, self.row) for r in range(0, self.rows, thick)]

    def fixed_parts(self) -> list[tuple[int, int, int, int]]:
        """Fixed pieces of the table: a range of rows, and of places within a row.

        Few enough that their partial sums stay below a twentieth of the table.
        """
        cells = self.rows * self.row
        number = max(1, min(PARTIAL_SUMS, cells // (20 * max(1, int(self.starts[-1])))))
        if self.rows >= number:
            return [(lo, hi, 0, self.row) for lo, hi in pieces(self.rows, number)]
        return [(0, self.rows, lo, hi) for lo, hi in pieces(self.row, number)]


def _places(margin: Margin) -> tuple[int, ...]:
    """The groups on every axis, and a place behind them for labels that are in none."""
    return tuple(level.groups + level.has_holes for level in margin.levels)


def margin_sums(values: AnyArray, margins: Sequence[Margin]) -> tuple[Any, ...]:
    """Group sums for several margins at once; one sweep over a large table.

    Guarantees
    ----------
    1. Integers: exactly `margin.sum(values)` for every margin, modulo 2**64.
    2. Floats: the same for any number of threads.
    """
    if not compiled(values.size) or not margins or not values.flags.c_contiguous:
        return tuple(margin.sum(values) for margin in margins)
    plan = RowPlan(tuple(margins))
    parts = plan.fixed_parts()
    partial = np.zeros((len(parts), plan.starts[-1]), values.dtype)
    for_each(lambda i: plan.add_sums(values, partial[i], parts[i]), range(len(parts)))
    return plan.split(partial.sum(axis=0, dtype=values.dtype))


@kernel
def group_of_row(number: Any, outer: Any, offsets: Any) -> Any:
    """The group number at which row `number` begins in one margin: a sum over the outer axes."""
    group = 0
    for b in range(outer.size - 1, -1, -1):
        number, index = divmod(number, outer[b])
        group += offsets[b, index]
    return group


@kernel
def _sum(segment: Any) -> Any:
    """The sum in eight interleaved parts: the same order everywhere, and fast for floats too."""
    zero = segment[0] - segment[0]
    a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
    whole = segment.size // 8
    for i in range(whole):
        part = segment[8 * i : 8 * i + 8]
        a += part[0]
        b += part[1]
        c += part[2]
        d += part[3]
        e += part[4]
        f += part[5]
        g += part[6]
        h += part[7]
    for x in segment[8 * whole :]:
        a += x
    return ((a + e) + (b + f)) + ((c + g) + (d + h))


@kernel
def _sum_in_any_order(segment: Any) -> Any:
    """The sum of integers, which the compiler may take in any order."""
    total = segment[0] - segment[0]
    for x in segment:
        total += x
    return total


@kernel
def sum_rows(
    values: Any, whole: Any, first: Any, last: Any, lo: Any, hi: Any, row: Any, outer: Any,
    offsets: Any, modes: Any, codes: Any, starts: Any, out: Any,
) -> None:  # fmt: skip
    """Add rows `first` to `last - 1`, places `lo` to `hi - 1`, into all margins at once.

    The compiled twin of `Margin.sum`; `whole` tells that the values are integers.
    """
    for r in range(first, last):
        segment = values[r * row + lo : r * row + hi]
        total = segment[0] - segment[0]
        have = False
        for m in range(modes.size):
            at = starts[m] + group_of_row(r, outer, offsets[m])
            if modes[m] == 0:
                if not have:
                    total = _sum_in_any_order(segment) if whole else _sum(segment)
                    have = True
                out[at] += total
            elif modes[m] == 1:
                target = out[at + lo : at + hi]
                for i in range(segment.size):
                    target[i] += segment[i]
            else:
                code = codes[m, lo:hi]
                for i in range(segment.size):
                    out[at + code[i]] += segment[i]


@kernel
def _take_away(target: Any, at: Any, lo: Any, mode: Any, code: Any, values: Any) -> None:
    """Subtract one margin's values from a stretch of a row."""
    if mode == 1:
        source = values[at + lo : at + lo + target.size]
        for i in range(target.size):
            target[i] -= source[i]
    else:
        for i in range(target.size):
            target[i] -= values[at + code[i]]


@kernel
def subtract_rows(
    table: Any, first: Any, last: Any, lo: Any, hi: Any, row: Any, outer: Any, offsets: Any,
    modes: Any, codes: Any, starts: Any, values: Any,
) -> None:  # fmt: skip
    """Subtract every margin's value from its cells, in place."""
    for r in range(first, last):
        target = table[r * row + lo : r * row + hi]
        constant = target[0] - target[0]
        for m in range(modes.size):
            at = starts[m] + group_of_row(r, outer, offsets[m])
            if modes[m] == 0:
                constant += values[at]
            else:
                _take_away(target, at, lo, modes[m], codes[m, lo:hi], values)
        for i in range(target.size):
            target[i] -= constant


@kernel
def subtract_rows_exactly(
    noisy: Any, out: Any, first: Any, last: Any, lo: Any, hi: Any, row: Any, outer: Any,
    offsets: Any, modes: Any, codes: Any, starts: Any, whole: Any, fraction: Any,
) -> None:  # fmt: skip
    """Write noisy − Σ (whole + fraction) as floats; whole parts are subtracted as integers.

    `out` may be the memory of `noisy` itself.
    """
    integers = np.empty(hi - lo, np.int64)
    floats = np.empty(hi - lo, np.float64)
    for r in range(first, last):
        source = noisy[r * row + lo : r * row + hi]
        target = out[r * row + lo : r * row + hi]
        for i in range(source.size):
            integers[i] = source[i]
        constant, part = np.int64(0), 0.0
        floats[:] = 0.0
        for m in range(modes.size):
            at = starts[m] + group_of_row(r, outer, offsets[m])
            if modes[m] == 0:
                constant += whole[at]
                part += fraction[at]
            else:
                _take_away(integers, at, lo, modes[m], codes[m, lo:hi], whole)
                _take_away(floats, at, lo, modes[m], codes[m, lo:hi], fraction)
        for i in range(target.size):
            target[i] = np.float64(integers[i] - constant) + (floats[i] - part)
