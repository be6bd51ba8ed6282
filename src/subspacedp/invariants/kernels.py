"""Compiled loops, loaded when a table or a component is large.

The projection of a table: subtracting what margins say of every cell. And of large components of
an invariant matrix: exact elimination, and the inverse of a band on its band.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from subspacedp.parallel import kernel
from subspacedp.tables.kernels import group_of_row

LARGEST = 2**30  # products of two such numbers, and their sums, stay within 63 bits


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


@kernel
def _gcd(a: Any, b: Any) -> Any:
    a, b = abs(a), abs(b)
    while b:
        a, b = b, a % b
    return a


@kernel
def eliminate(
    starts: Any, places: Any, data: Any, width: Any, order: Any, count: Any, budget: Any
) -> Any:
    """Which vectors of integers depend on vectors before them, in exact arithmetic.

    Sparse fraction-free Gaussian elimination, a vector at a time. A pivot vector has zeros in the
    pivot places of earlier ones, so a new vector is reduced by them in the order they were found.

    Parameters
    ----------
    starts, places, data
        The vectors: where each starts, and the place and value of every entry.
    width
        The length of a vector.
    order
        The order of the vectors, sparse ones first.
    count
        The number of entries at each place; pivots are taken where it is small.
    budget
        How many entries may be combined before giving up.

    Returns
    -------
    tuple
        For each vector 0: depends on others, 1: independent, 2: not decided, because a number left
        its 30 bits or the budget is spent; and the pivot places, where the independent vectors are
        independent too.
    """
    state = np.full(starts.size - 1, 2, np.uint8)
    pivot_of = np.full(width, -1, np.int64)  # the pivot vector of each place
    place_of = np.empty(starts.size - 1, np.int64)  # the pivot place of each of them
    at = np.zeros(starts.size, np.int64)  # where they start in the pool
    pool_places = np.empty(2 * places.size + 16, np.int64)
    pool_data = np.empty(2 * places.size + 16, np.int64)
    work = np.zeros(width, np.int64)
    seen = np.zeros(width, np.bool_)
    touched = np.empty(width, np.int64)
    independent = 0
    for i in order:
        if budget < 0:
            break
        if independent == width:
            state[i] = 0
            continue
        size, fits = 0, True
        heap = [np.int64(-1)]
        heap.clear()
        for e in range(starts[i], starts[i + 1]):
            p = places[e]
            work[p], seen[p], touched[size] = data[e], True, p
            size += 1
            fits = fits and abs(data[e]) <= LARGEST
            if pivot_of[p] >= 0:
                heapq.heappush(heap, pivot_of[p])
        while heap and fits:
            k = heapq.heappop(heap)
            value = work[place_of[k]]
            if value == 0:
                continue
            pivot = pool_data[at[k]]
            common = _gcd(value, pivot)
            times, factor = pivot // common, value // common
            budget -= at[k + 1] - at[k]
            if times != 1:
                budget -= size
                for t in range(size):
                    work[touched[t]] *= times
            for e in range(at[k], at[k + 1]):
                p = pool_places[e]
                if not seen[p]:
                    seen[p], touched[size] = True, p
                    size += 1
                    if pivot_of[p] >= 0:
                        heapq.heappush(heap, pivot_of[p])
                work[p] -= factor * pool_data[e]
                fits = fits and abs(work[p]) <= LARGEST
            if times != 1:
                for t in range(size):
                    fits = fits and abs(work[touched[t]]) <= LARGEST
        if fits:
            content, entries = np.int64(0), 0
            for t in range(size):
                if work[touched[t]] != 0:
                    content = _gcd(work[touched[t]], content)
                    entries += 1
            state[i] = 1 if entries else 0
            if entries:
                best = np.int64(-1)
                if at[independent] + entries > pool_data.size:
                    more_places = np.empty(2 * pool_data.size + entries, np.int64)
                    more_data = np.empty(2 * pool_data.size + entries, np.int64)
                    more_places[: at[independent]] = pool_places[: at[independent]]
                    more_data[: at[independent]] = pool_data[: at[independent]]
                    pool_places, pool_data = more_places, more_data
                end = at[independent]
                for t in range(size):
                    p = touched[t]
                    if work[p] == 0:
                        continue
                    pool_places[end], pool_data[end] = p, work[p] // content
                    # Small pivots keep numbers small, rare places keep vectors short.
                    if best < 0 or (abs(pool_data[end]), count[p]) < (
                        abs(pool_data[best]), count[pool_places[best]]
                    ):  # fmt: skip
                        best = end
                    end += 1
                first = at[independent]
                p, value = pool_places[best], pool_data[best]
                pool_places[best], pool_data[best] = pool_places[first], pool_data[first]
                pool_places[first], pool_data[first] = p, value
                if value < 0:
                    for e in range(first, end):
                        pool_data[e] = -pool_data[e]
                pivot_of[p], place_of[independent] = independent, p
                independent += 1
                at[independent] = end
        for t in range(size):
            work[touched[t]], seen[touched[t]] = 0, False
    return state, place_of[:independent]


@kernel
def band_of_inverse(factor: Any) -> Any:
    """The entries of (L Lᵀ)⁻¹ inside the band of L (Takahashi, Fagan and Chen 1973).

    `factor[i, k]` is L[i + k, i], and the result has the same layout.
    """
    n, width = factor.shape
    out = np.zeros_like(factor)
    column = np.empty(width)
    for i in range(n - 1, -1, -1):
        last = min(width, n - i)
        # Z[j, i] = −Σ_k L[k, i] Z[k, j] / L[i, i] for j > i, all k within the band.
        column[:] = 0.0
        for k in range(1, last):
            weight, z = factor[i, k], out[i + k]
            total = weight * z[0]
            for j in range(1, last - k):
                column[k + j] += weight * z[j]
                total += factor[i, k + j] * z[j]
            column[k] += total
        total = 1.0 / factor[i, 0]
        for j in range(1, last):
            out[i, j] = -column[j] / factor[i, 0]
            total -= factor[i, j] * out[i, j]
        out[i, 0] = total / factor[i, 0]
    return out


@kernel
def band_forms(starts: Any, rows: Any, data: Any, band: Any) -> Any:
    """cᵀ Z c for every column c of a sparse matrix and the symmetric band matrix Z."""
    out = np.zeros(starts.size - 1)
    for c in range(out.size):
        total = 0.0
        for e in range(starts[c], starts[c + 1]):
            total += data[e] * data[e] * band[rows[e], 0]
            for f in range(starts[c], e):
                low, high = min(rows[e], rows[f]), max(rows[e], rows[f])
                total += 2.0 * data[e] * data[f] * band[low, high - low]
        out[c] = total
    return out


@kernel
def sparse_forms(starts: Any, rows: Any, data: Any, at: Any, columns: Any, values: Any) -> Any:
    """cᵀ G c for every column c of a sparse matrix and G by sorted rows (`at`, `columns`)."""
    out = np.zeros(starts.size - 1)
    for c in range(out.size):
        total = 0.0
        for e in range(starts[c], starts[c + 1]):
            first, last = at[rows[e]], at[rows[e] + 1]
            for f in range(starts[c], starts[c + 1]):
                k = first + np.searchsorted(columns[first:last], rows[f])
                if k < last and columns[k] == rows[f]:
                    total += data[e] * data[f] * values[k]
        out[c] = total
    return out
