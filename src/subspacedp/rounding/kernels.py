"""Compiled twin of controlled rounding over the rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from subspacedp.parallel import kernel

__all__ = ["round_rows"]


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
    """Digits that add up for rows of a merged table, or of a box of it, in place.

    On every merged axis there is a list of positions, in ascending order; one row takes the whole
    list of the last axis, and rows run over the lists of the others in row-major order.

    Parameters
    ----------
    noisy
        The flat table or box in its own order; becomes step·noisy minus the rounded correction.
    words
        Dither of rows `first` to `last - 1`, one an entry.
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
