"""The entries of a sparse symmetric matrix' inverse, wherever the matrix has entries.

It is eliminated as L·D·Lᵀ, where it has many rows by compiled loops over columns. L has ones on its
diagonal, which are not stored; below it the rows of every column ascend. Numbers may be complex.
References: Davis, Direct Methods for Sparse Linear Systems, chapter 4; Takahashi, Fagan and Chen
(1973) for the entries of the inverse.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.parallel import kernel

Values = AnyArray
Factor = tuple[Values, Values]

WHOLE = 256  # matrices of at most so many rows are inverted whole
NOTHING = 1e-9  # of the largest diagonal: what a row that depends on others leaves over


@frozen(eq=False, repr=False)
class Inverse:
    """The inverse on the pattern of a matrix, on its diagonal, and solutions with it."""

    pattern: Pattern
    entries: Values
    diagonal: Values
    factor: Factor

    def solve(self, values: Values) -> Values:
        """The inverse times columns of values."""
        return self.pattern.solve(self.factor, values)

    @property
    def log_determinant(self) -> float:
        """The logarithm of the determinant of a real, positive definite matrix."""
        if self.pattern.dense:
            return -float(np.linalg.slogdet(self.factor[0])[1])
        return float(np.log(self.factor[1]).sum())


@frozen(eq=False, repr=False)
class Pattern:
    """Where a symmetric matrix has entries off its diagonal: pairs, the larger index the row.

    The order of elimination and what it fills in are found once; every factorisation after that
    costs the arithmetic alone.
    """

    size: int
    rows: Int64Array
    columns: Int64Array

    @property
    def dense(self) -> bool:
        """Whether the whole inverse is formed."""
        return self.size <= WHOLE

    @cached_property
    def order(self) -> Int64Array:
        """The order of elimination: least degree of A + Aᵀ."""
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        both = np.concatenate([self.rows, self.columns]), np.concatenate([self.columns, self.rows])
        degree = np.bincount(both[0], minlength=self.size)
        every = np.arange(self.size)
        at = np.concatenate([both[0], every]), np.concatenate([both[1], every])
        entries = np.concatenate([np.full(both[0].size, -1.0), degree + 1.0])
        matrix = csc_array((entries, at), shape=(self.size, self.size))
        options = {"SymmetricMode": True}
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", options=options)
        return np.asarray(np.argsort(factors.perm_c), np.int64)

    @cached_property
    def _when(self) -> Int64Array:
        """When each row is eliminated."""
        out = np.empty(self.size, np.int64)
        out[self.order] = np.arange(self.size)
        return out

    @cached_property
    def _late_and_early(self) -> tuple[Int64Array, Int64Array]:
        first, second = self._when[self.rows], self._when[self.columns]
        return np.maximum(first, second), np.minimum(first, second)

    @cached_property
    def _filled(self) -> tuple[Int64Array, Int64Array]:
        late, early = self._late_and_early
        sort = np.lexsort([early, late])
        starts = np.searchsorted(late[sort], np.arange(self.size + 1))
        above = early[sort]
        return filled(starts, above, parents_of(starts, above))

    @cached_property
    def _places(self) -> Int64Array:
        """The places of the entries among those of L."""
        return looked_up(*self._filled, *self._late_and_early)

    def prepare(self) -> None:
        """Find the order and what it fills in."""
        if not self.dense:
            _ = self._places

    def _factor(self, entries: Values, diagonal: Values, least: float = 0.0) -> Factor:
        begin, below = self._filled
        lower = np.zeros(below.size, np.result_type(entries, diagonal))
        lower[self._places] = entries
        pivots = diagonal[self.order].astype(lower.dtype)
        factorised(begin, below, lower, pivots, least)
        return lower, pivots

    def _matrix(self, entries: Values, diagonal: Values) -> Values:
        out = np.zeros((self.size, self.size), np.result_type(entries, diagonal))
        out[self.rows, self.columns] = out[self.columns, self.rows] = entries
        out[np.arange(self.size), np.arange(self.size)] = diagonal
        return out

    def inverse(self, entries: Values, diagonal: Values) -> Inverse:
        """From the entries of the matrix on its pattern and its diagonal."""
        if self.dense:
            whole = _inverse_of(self._matrix(entries, diagonal))
            inner, on_diagonal = whole[self.rows, self.columns], whole.diagonal()
            return Inverse(self, inner, on_diagonal, (whole, whole[:0]))
        lower, pivots = self._factor(entries, diagonal)
        inner, on_diagonal = selected(*self._filled, lower, pivots)
        return Inverse(self, inner[self._places], on_diagonal[self._when], (lower, pivots))

    def solve(self, factor: Factor, values: Values) -> Values:
        """The inverse times columns of values."""
        if self.dense:
            return np.asarray(factor[0] @ values)
        out = np.ascontiguousarray(values[self.order])
        solved(*self._filled, *factor, out)
        return np.asarray(out[self._when])

    def independent(self, entries: Values, diagonal: Values) -> BoolArray:
        """Which rows of a Gram matrix are independent of those eliminated before them."""
        least = NOTHING * float(np.abs(diagonal).max(initial=0.0))
        pivots = self._factor(entries.astype(np.float64), diagonal, least)[1]
        return np.asarray(np.abs(pivots[self._when]) > 0)


def _inverse_of(matrix: Values) -> Values:
    """The inverse of a positive definite matrix, symmetric; an imaginary part moves it a little."""
    root = np.linalg.inv(np.linalg.cholesky(matrix.real))
    whole = root.T @ root
    return whole - 1j * (whole @ matrix.imag @ whole) if np.iscomplexobj(matrix) else whole


# --------------------------------------------------------------------------------- elimination


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
