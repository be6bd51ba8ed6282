"""Tables as rows for compiled kernels: where each row of cells falls in each margin.

A table in row-major order is cut into rows: the last axis, or the last few where that is short.
Within a row a margin's groups are all the same, all different, or given by a code for every cell;
from row to row they move by an offset that is a sum over the outer axes. That is all a kernel
needs to sum into any margin, or to spread out of it, in one sweep over memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.parallel import compiled, for_each, pieces
from subspacedp.tables.domain import Box
from subspacedp.tables.margin import Margin

MIN_ROW_CELLS, ROW_CELLS = 64, 256  # merge axes into a row until it has so many cells
PARTIAL_SUMS = 4  # partial sums are kept apart: fixed, so that results do not depend on threads
SCALAR, VECTOR, CODED = 0, 1, 2


@dataclass(frozen=True, eq=False, repr=False)
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
        from subspacedp.tables.kernels import sum_rows

        first, last, lo, hi = part or (0, self.rows, 0, self.row)
        sum_rows(
            values.reshape(-1), values.dtype.kind in "iu", first, last, lo, hi,
            self.row, self.outer, self.offsets, self.modes, self.codes, self.bases, totals,
        )  # fmt: skip

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
