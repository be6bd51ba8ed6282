"""Elimination of a sparse symmetric matrix, as L·D·Lᵀ: compiled loops over columns.

L has ones on its diagonal, which are not stored; below it the rows of every column ascend. Numbers
may be complex. References: Davis, Direct Methods for Sparse Linear Systems, chapter 4; Takahashi,
Fagan and Chen (1973) for the entries of the inverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import Int64Array
from subspacedp.parallel import kernel

Values = npt.NDArray[Any]


@kernel
def parents_of(starts: Int64Array, rows: Int64Array) -> Int64Array:
    """The elimination tree of a matrix, from the rows above the diagonal, column by column."""
    n = starts.size - 1
    parent = np.full(n, -1, np.int64)
    ancestor = np.full(n, -1, np.int64)
    for k in range(n):
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            while i != -1 and i < k:
                above = ancestor[i]
                ancestor[i] = k
                if above == -1:
                    parent[i] = k
                i = above
    return parent


@kernel
def filled(
    starts: Int64Array, rows: Int64Array, parent: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Where the columns of L start, and the rows of its entries."""
    n = starts.size - 1
    count = np.zeros(n, np.int64)
    mark = np.full(n, -1, np.int64)
    for k in range(n):
        mark[k] = k
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            while mark[i] != k:
                count[i] += 1
                mark[i] = k
                i = parent[i]
    begin = np.zeros(n + 1, np.int64)
    begin[1:] = np.cumsum(count)
    out = np.empty(begin[n], np.int64)
    at = begin[:-1].copy()
    mark[:] = -1
    for k in range(n):
        mark[k] = k
        for p in range(starts[k], starts[k + 1]):
            i = rows[p]
            while mark[i] != k:
                out[at[i]] = k
                at[i] += 1
                mark[i] = k
                i = parent[i]
    return begin, out


@kernel
def looked_up(
    begin: Int64Array, below: Int64Array, rows: Int64Array, columns: Int64Array
) -> Int64Array:
    """The places of some entries among those of L; −1 where it has none."""
    out = np.full(rows.size, -1, np.int64)
    for e in range(rows.size):
        low, high = begin[columns[e]], begin[columns[e] + 1]
        while low < high:
            middle = (low + high) // 2
            if below[middle] < rows[e]:
                low = middle + 1
            else:
                high = middle
        if low < begin[columns[e] + 1] and below[low] == rows[e]:
            out[e] = low
    return out


@kernel
def factorised(
    begin: Int64Array, below: Int64Array, lower: Values, diagonal: Values, least: float
) -> None:
    """The factors, in place; a pivot of at most `least` in size becomes zero with its column."""
    n = diagonal.size
    work = np.zeros(n, lower.dtype)
    first = np.full(n, -1, np.int64)  # of every row the columns that reach it next, as lists
    following = np.full(n, -1, np.int64)
    place = begin[:-1].copy()
    for j in range(n):
        pivot = diagonal[j]
        for p in range(begin[j], begin[j + 1]):
            work[below[p]] = lower[p]
        k = first[j]
        while k != -1:
            after = following[k]
            p = place[k]
            factor = lower[p] * diagonal[k]
            pivot -= lower[p] * factor
            for q in range(p + 1, begin[k + 1]):
                work[below[q]] -= lower[q] * factor
            place[k] = p + 1
            if p + 1 < begin[k + 1]:
                row = below[p + 1]
                following[k] = first[row]
                first[row] = k
            k = after
        if abs(pivot) <= least:
            pivot = pivot * 0
        diagonal[j] = pivot
        for p in range(begin[j], begin[j + 1]):
            lower[p] = work[below[p]] / pivot if pivot != 0 else work[below[p]] * 0
            work[below[p]] = 0
        if begin[j] < begin[j + 1]:
            row = below[begin[j]]
            following[j] = first[row]
            first[row] = j


@kernel
def selected(
    begin: Int64Array, below: Int64Array, lower: Values, diagonal: Values
) -> tuple[Values, Values]:
    """The entries of the inverse where L has entries, and on the diagonal."""
    n = diagonal.size
    inverse = np.zeros(lower.size, lower.dtype)
    on_diagonal = np.zeros(n, lower.dtype)
    work = np.zeros(n, lower.dtype)
    for j in range(n - 1, -1, -1):
        low, high = begin[j], begin[j + 1]
        for p in range(low, high):
            work[below[p]] = 0
        for p in range(low, high):
            row, value = below[p], lower[p]
            work[row] += on_diagonal[row] * value
            q = p + 1
            for s in range(begin[row], begin[row + 1]):
                if q == high:
                    break
                if below[s] == below[q]:
                    work[below[q]] += inverse[s] * value
                    work[row] += inverse[s] * lower[q]
                    q += 1
        total = 1 / diagonal[j]
        for p in range(low, high):
            inverse[p] = -work[below[p]]
            total -= inverse[p] * lower[p]
        on_diagonal[j] = total
    return inverse, on_diagonal


@kernel
def solved(
    begin: Int64Array, below: Int64Array, lower: Values, diagonal: Values, values: Values
) -> None:
    """The solutions for columns of right sides, in their place."""
    n = diagonal.size
    for j in range(n):
        for p in range(begin[j], begin[j + 1]):
            for c in range(values.shape[1]):
                values[below[p], c] -= lower[p] * values[j, c]
    for j in range(n - 1, -1, -1):
        for c in range(values.shape[1]):
            values[j, c] /= diagonal[j]
        for p in range(begin[j], begin[j + 1]):
            for c in range(values.shape[1]):
                values[j, c] -= lower[p] * values[below[p], c]
