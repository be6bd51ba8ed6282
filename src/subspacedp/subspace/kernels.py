"""Compiled twins: subtracting what margins say of every cell, and digits that add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from subspacedp.tables.kernels import group_of_row

__all__ = ["round_rows", "subtract_rows", "subtract_rows_exactly"]


@njit(cache=True, nogil=True)
def _take_away(target: Any, at: Any, lo: Any, mode: Any, code: Any, values: Any) -> None:
    """Subtract one margin's values from a stretch of a row."""
    if mode == 1:
        source = values[at + lo : at + lo + target.size]
        for i in range(target.size):
            target[i] -= source[i]
    else:
        for i in range(target.size):
            target[i] -= values[at + code[i]]


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def round_rows(
    noisy: Any, step: Any, words: Any, first: Any, last: Any, skip: Any, lo: Any, hi: Any,
    shape: Any, places: Any, contiguous: Any, group: Any, share: Any, groups: Any, factor: Any,
    sums: Any, sum_at: Any, whole: Any, whole_at: Any, ends: Any, last_ends: Any,
    last_ends_at: Any, buffers: Any, buffer_at: Any,
) -> Any:  # fmt: skip
    """Digits that add up for rows `first` to `last - 1` of the merged table, in place.

    Parameters
    ----------
    noisy
        The flat table in the domain's order; becomes step·noisy minus the rounded correction.
    words
        Coins of these rows, places `lo` to `hi - 1` of each.
    skip
        Rows and places that only fill the buffers: (rows before which nothing is written,
        1 when the first place of each row is one too many).
    shape, places, contiguous
        Lengths of the merged axes; what an index of each adds to a cell's number; whether along
        the last axis that is one after another.
    group, share, groups
        For term k and axis s at every position: its run, the share of the run up to it, and the
        number of runs.
    factor, sums, whole
        The coefficient of each term, the cumulated remainders at corners, the whole parts.
    ends, last_ends
        For margin m and outer axis s at every position whether it ends a run; for the last axis
        the positions that do, margin after margin.
    buffers
        The last slice along every outer axis, before differencing along it.

    Returns
    -------
    float
        The largest distance from a whole number of an entry that must be one.
    """
    axes = shape.size
    size = hi - lo
    entry = np.empty(size, np.float64)
    rounded = np.empty(size, np.int64)
    change = np.empty(size, np.int64)
    minus = np.empty(size, np.int64)
    index = np.zeros(axes, np.int64)
    worst = 0.0
    final = axes - 1
    for r in range(first, last):
        rest = r
        for s in range(final - 1, -1, -1):
            rest, index[s] = divmod(rest, shape[s])
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
                elif runs == shape[final]:
                    source = sums[at + 1 + lo : at + 1 + hi]
                    for i in range(size):
                        entry[i] += weight * source[i]
                else:
                    for i in range(size):
                        g = at + group[k, final, lo + i]
                        entry[i] += weight * (
                            sums[g] + (sums[g + 1] - sums[g]) * share[k, final, lo + i]
                        )
            at = np.int64(0)
            for s in range(final):
                at = at * groups[k, s] + group[k, s, index[s]]
            at = whole_at[k] + at * runs
            if runs == 1:
                constant += whole[at]
            elif runs == shape[final]:
                part = whole[at + lo : at + hi]
                for i in range(size):
                    minus[i] += part[i]
            else:
                for i in range(size):
                    minus[i] += whole[at + group[k, final, lo + i]]
        if ramp != 0.0:
            scale = ramp / shape[final]
            for i in range(size):
                entry[i] += scale * (lo + i + 1)
        coins = words[(r - first) * size : (r - first + 1) * size]
        for i in range(size):
            # floor(x + coin) is x rounded up with the probability of its fractional part.
            coin = np.float64(coins[i] >> np.uint64(12)) * 2.0**-52
            rounded[i] = np.int64(np.floor(entry[i] + coin))
        for m in range(ends.shape[0]):
            fixed = True
            for s in range(final):
                fixed = fixed and ends[m, s, index[s]]
            if fixed:
                for place in last_ends[last_ends_at[m] : last_ends_at[m + 1]]:
                    if lo <= place < hi:
                        nearest = np.rint(entry[place - lo])
                        worst = max(worst, abs(entry[place - lo] - nearest))
                        rounded[place - lo] = np.int64(nearest)
        # Differences along the last axis and the one before it in one go, then the others.
        upper, lower, between = rounded[1:], rounded[: size - 1], change[1:]
        inner, stride = np.int64(0), np.int64(size)
        change[0] = rounded[0]
        if final == 0:
            for i in range(size - 1):
                between[i] = upper[i] - lower[i]
        for s in range(final - 1, -1, -1):
            past = buffers[buffer_at[s] + inner : buffer_at[s] + inner + size]
            if s == final - 1:
                behind = past[1:]
                if index[s] == 0:
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
            elif index[s] == 0:
                for i in range(size):
                    past[i] = change[i]
            else:
                for i in range(size):
                    now = change[i]
                    change[i] = now - past[i]
                    past[i] = now
            inner += index[s] * stride
            stride *= shape[s]
        if r < skip[0]:
            continue
        cell = np.int64(0)
        for s in range(final):
            cell += places[s, index[s]]
        if contiguous:
            begin = cell + places[final, lo]
            target = noisy[begin + skip[1] : begin + size]
            away, last_change = minus[skip[1] :], change[skip[1] :]
            if step == 1:
                for i in range(target.size):
                    target[i] -= away[i] + constant + last_change[i]
            else:
                for i in range(target.size):
                    target[i] = step * target[i] - (away[i] + constant) - last_change[i]
        else:
            for i in range(skip[1], size):
                where = cell + places[final, lo + i]
                noisy[where] = step * noisy[where] - (minus[i] + constant) - change[i]
    return worst
