"""Driver of the compiled rounding: tables for the kernel, slabs of words, threads.

The rounding of `digits.py` in one sweep: whole parts of the correction pass through as integers;
what is left, remainders of at most half a group, is cumulated and rounded entry by entry, and only
the last slice along every outer axis is remembered for differencing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldValues
from subspacedp.parallel import for_each, pieces, thread_count
from subspacedp.subspace.digits import DigitPlan, WordSource, check_whole, cumulated
from subspacedp.subspace.kernels import round_rows

__all__ = ["RowRounding"]

SLAB = 1 << 16  # words fetched at a time


class RowRounding:
    """One residual's tables, laid out for the kernel."""

    def __init__(self, plan: DigitPlan, scaled: HeldValues) -> None:
        terms = list(plan.held.expansion.items())
        axes, longest = plan.axes, max(plan.shape)
        self.plan = plan
        self.shape = np.array(plan.shape, np.int64)
        self.places = np.zeros((len(axes), longest), np.int64)
        self.group = np.zeros((len(terms), len(axes), longest), np.int64)
        self.share = np.zeros((len(terms), len(axes), longest))
        self.groups = np.zeros((len(terms), len(axes)), np.int64)
        self.ends = np.zeros((len(plan.held.essential), len(axes), longest), np.bool_)
        for s, axis in enumerate(axes):
            self.places[s, : len(axis)] = axis.places
            for i, (k, _) in enumerate(terms):
                run = axis.run(k)
                self.group[i, s, : len(axis)] = run.group
                self.share[i, s, : len(axis)] = run.place / run.sizes[run.group]
                self.groups[i, s] = len(run.sizes)
            for i, margin in enumerate(plan.held.essential):
                run = axis.run(margin)
                self.ends[i, s, : len(axis)] = run.place == run.sizes[run.group]
        last = [np.flatnonzero(self.ends[i, -1]) for i in range(len(self.ends))]
        self.last_ends, starts = _joined(last)
        self.last_ends_at = np.append(starts, self.last_ends.size)
        self.contiguous = bool(np.array_equal(axes[-1].places, np.arange(len(axes[-1]))))
        self.factor = np.array([float(a) for _, a in terms])
        sums, whole = [], []
        for _, a, quotient, rest in plan.parts(scaled):
            whole.append((a * quotient).ravel())
            sums.append(cumulated(rest).ravel().astype(np.float64))
        self.whole, self.whole_at = _joined(whole)
        self.sums, self.sum_at = _joined(sums)

    def run(self, noisy: npt.NDArray[np.int64], coins: WordSource) -> None:
        """Replace noisy counts by steps that add up, in place."""
        if len(self.shape) == 1:
            length = int(self.shape[0])
            for_each(
                lambda piece: self._segments(noisy, coins, *piece),
                [(SLAB * lo, min(SLAB * hi, length))
                 for lo, hi in pieces(-(-length // SLAB), 4 * thread_count())],
            )  # fmt: skip
            return
        number = max(1, min(2 * thread_count(), int(self.shape[0]) // 8))
        for_each(
            lambda piece: self._slices(noisy, coins, *piece), pieces(int(self.shape[0]), number)
        )

    def _segments(
        self, noisy: npt.NDArray[np.int64], coins: WordSource, first: int, last: int
    ) -> None:
        """One merged axis: stretches of it, each with the entry before its first."""
        scratch = np.empty(SLAB + 4, np.uint64)
        for at in range(first, last, SLAB):
            before = int(at > 0)
            lo, hi = at - before, min(at + SLAB, last)
            words = coins.words(lo, hi - lo, scratch)
            self._kernel(noisy, words, 0, 1, (0, before), lo, hi, np.empty(0, np.int64))

    def _slices(
        self, noisy: npt.NDArray[np.int64], coins: WordSource, first: int, last: int
    ) -> None:
        """Slices along the first merged axis, each piece with the slice before its first."""
        row = int(self.shape[-1])
        rows = math.prod(self.shape[1:-1].tolist())
        buffers = np.zeros(sum(self._buffer_sizes()), np.int64)
        begin, stop = max(first - 1, 0) * rows, last * rows
        chunk = max(1, SLAB // row)
        scratch = np.empty(chunk * row + 4, np.uint64)
        for at in range(begin, stop, chunk):
            end = min(at + chunk, stop)
            words = coins.words(at * row, (end - at) * row, scratch)
            self._kernel(noisy, words, at, end, (first * rows, 0), 0, row, buffers)

    def _buffer_sizes(self) -> list[int]:
        return [math.prod(self.shape[s + 1 :].tolist()) for s in range(len(self.shape) - 1)]

    def _kernel(
        self, noisy: Any, words: Any, first: int, last: int, skip: tuple[int, int],
        lo: int, hi: int, buffers: Any,
    ) -> None:  # fmt: skip
        at = np.concatenate([[0], np.cumsum(self._buffer_sizes())]).astype(np.int64)
        worst = round_rows(
            noisy, self.plan.step, words, first, last, np.array(skip, np.int64), lo, hi,
            self.shape, self.places, self.contiguous, self.group, self.share, self.groups,
            self.factor, self.sums, self.sum_at, self.whole, self.whole_at, self.ends,
            self.last_ends, self.last_ends_at, buffers, at,
        )  # fmt: skip
        check_whole(worst)


def _joined(parts: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    starts = np.cumsum([0, *(part.size for part in parts)])[:-1]
    return np.concatenate(parts), starts.astype(np.int64)
