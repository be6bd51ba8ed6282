"""An invariant matrix taken apart: distinct rows, components, and rows that peel off."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array, WordArray
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen

if TYPE_CHECKING:
    from scipy.sparse import csr_array

EXACT = 2**53  # integers up to here are float64 numbers


def as_csr(matrix: Any) -> csr_array:
    """Any matrix as sparse rows in canonical form: int64 where all entries are integers."""
    from scipy.sparse import csr_array, issparse

    sparse = bool(issparse(matrix))
    given: Any = matrix if sparse else _dense(matrix)
    if given.ndim != 2:
        raise InvariantError(
            f"An invariant matrix must have two dimensions, rows and columns; got {given.ndim}."
        )
    if given.shape[1] == 0:
        raise InvariantError("An invariant matrix must have at least one column; got none.")
    if given.dtype.kind not in "biuf":
        raise InvariantError(
            f"An invariant matrix must have real numbers as entries; got {given.dtype}."
        )
    if given.dtype.kind in "iu" and _largest(given.tocoo().data if sparse else given) > EXACT:
        raise InvariantError(
            "Whole numbers in an invariant matrix must not exceed 2**53; divide the row by a "
            "common factor."
        )
    # Converted first: repeated entries are added up in 64 bits.
    kind = np.float64 if given.dtype.kind == "f" else np.int64
    out: Any = csr_array(given.astype(kind), copy=True)
    out.sum_duplicates()
    if not np.isfinite(out.data).all():
        raise InvariantError("An invariant matrix must have finite entries; got NaN or infinity.")
    if np.all(out.data == np.rint(out.data)) and np.abs(out.data).max(initial=0) <= EXACT:
        out = out.astype(np.int64)
    out.eliminate_zeros()
    for part in (out.data, out.indices, out.indptr):
        part.setflags(write=False)
    return out  # type: ignore[no-any-return]


def _largest(entries: AnyArray) -> int:
    return max(-int(entries.min()), int(entries.max())) if entries.size else 0


def _dense(matrix: Any) -> AnyArray:
    array = np.asarray(matrix)
    if array.dtype.kind != "O":
        return array
    try:  # Fractions, Decimals, mixed numbers
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvariantError("An invariant matrix must have real numbers as entries.") from None


@frozen(eq=False)
class Rows:
    """The rows of C that matter: unit norm, none zero, no copies, component after component.

    Components are ordered by their number of rows, so single rows come first.
    """

    whole: csr_array  # C as given
    source: Int64Array  # the place of each row in C
    starts: Int64Array  # the first row of each component, and the number of rows

    @classmethod
    def of(cls, whole: csr_array) -> Rows:
        """Take a matrix apart."""
        kept = np.flatnonzero(np.diff(whole.indptr))
        kept = kept[distinct(whole[kept])] if kept.size else kept
        label = connected(whole[kept])
        sizes = np.bincount(label)
        rank = np.empty_like(sizes)
        rank[np.argsort(sizes, kind="stable")] = np.arange(sizes.size)
        order = np.argsort(rank[label], kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.sort(sizes, kind="stable"))])
        return cls(whole, kept[order], starts.astype(np.int64))

    @property
    def components(self) -> int:
        """The number of components."""
        return self.starts.size - 1

    @cached_property
    def sizes(self) -> Int64Array:
        """The number of rows of each component."""
        return np.diff(self.starts)

    @cached_property
    def component(self) -> Int64Array:
        """The component of each row."""
        return np.repeat(np.arange(self.components), self.sizes)

    @cached_property
    def norms(self) -> FloatArray:
        """The Euclidean norm of each row in C."""
        return self._unit[1]

    @cached_property
    def matrix(self) -> csr_array:
        """The rows, scaled to norm 1."""
        return self._unit[0]

    @cached_property
    def absolute(self) -> csr_array:
        """|C|, for bounds on rounding error."""
        return abs(self.matrix)

    @cached_property
    def _unit(self) -> tuple[csr_array, FloatArray]:
        rows: Any = self.whole[self.source].astype(np.float64)
        if not self.source.size:
            return rows, np.zeros(0)
        starts, lengths = rows.indptr[:-1], np.diff(rows.indptr)
        largest = np.maximum.reduceat(np.abs(rows.data), starts)
        rows.data /= np.repeat(largest, lengths)  # squares stay within float64
        norms = np.sqrt(np.add.reduceat(rows.data**2, starts))
        rows.data /= np.repeat(norms, lengths)
        return rows, norms * largest

    def block(self, component: int) -> csr_array:
        """The unit rows of one component on all columns."""
        return self.matrix[self.starts[component] : self.starts[component + 1]]

    def norms_of(self, vector: FloatArray) -> FloatArray:
        """The norm of each component of a vector over the rows."""
        if not self.components:
            return np.zeros(0)
        return np.sqrt(np.add.reduceat(vector * vector, self.starts[:-1]))


def distinct(matrix: csr_array) -> Int64Array:
    """The first of every set of rows that are multiples of each other; no row may be zero.

    Integer multiples are always found. Real ones where the quotients of the entries are the same
    floats; others stay, and count as redundant by tolerance.
    """
    starts, lengths = matrix.indptr[:-1].astype(np.int64), np.diff(matrix.indptr).astype(np.int64)
    lead = matrix.data[starts]
    if matrix.dtype.kind == "i":
        content = np.gcd.reduceat(matrix.data, starts)
        key = matrix.data // np.repeat(content * np.sign(lead), lengths)
    else:
        key = (matrix.data / np.repeat(lead, lengths)).view(np.int64)
    hashes = np.add.reduceat(_mix(key.view(np.uint64), matrix.indices), starts)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    twin = first[group]
    row = np.flatnonzero((twin != np.arange(twin.size)) & (lengths == lengths[twin]))
    if not row.size:
        return np.arange(twin.size)
    here, there = entries_of(starts, lengths, row), entries_of(starts, lengths, twin[row])
    same = (key[here] == key[there]) & (matrix.indices[here] == matrix.indices[there])
    ends = np.cumsum(lengths[row])
    keep = np.ones(twin.size, bool)
    keep[row[np.logical_and.reduceat(same, ends - lengths[row])]] = False
    return np.flatnonzero(keep)


def _mix(key: WordArray, column: AnyArray) -> WordArray:
    """A 64-bit hash of every entry (the finaliser of SplitMix64)."""
    x = key * np.uint64(0x9E3779B97F4A7C15) + (column.astype(np.uint64) + np.uint64(1)) * np.uint64(
        0xD1B54A32D192ED03
    )
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


def entries_of(starts: Int64Array, lengths: Int64Array, rows: Int64Array) -> Int64Array:
    """The places of all entries of some rows, row after row."""
    count = lengths[rows]
    ends = np.cumsum(count)
    return np.repeat(starts[rows] - (ends - count), count) + np.arange(ends[-1] if ends.size else 0)


def connected(matrix: csr_array) -> Int64Array:
    """The component of each row: rows with a common column are connected."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    columns: Any = matrix.tocsc()
    # Linking each row of a column to the next one connects all of them.
    link = np.ones(max(columns.nnz - 1, 0), bool)
    ends = columns.indptr[1:-1]
    link[ends[(ends > 0) & (ends < columns.nnz)] - 1] = False
    one, other = columns.indices[:-1][link], columns.indices[1:][link]
    rows = matrix.shape[0]
    graph = coo_array((np.ones(one.size, np.int8), (one, other)), shape=(rows, rows))
    _, label = connected_components(graph, directed=False)
    return np.asarray(label, np.int64)


def peel(matrix: csr_array, least: float = 0.0) -> Int64Array:
    """The rows left when rows with a column of their own are taken off, again and again.

    Such a row is independent of all rows it is taken from: rank C is the number of rows taken off
    plus the rank of those left. Entries of absolute value below `least` do not count as a column
    of one's own.
    """
    rows, columns = matrix.shape
    starts, lengths = matrix.indptr[:-1].astype(np.int64), np.diff(matrix.indptr).astype(np.int64)
    row_of = np.repeat(np.arange(rows), lengths)
    places = np.arange(row_of.size)
    count = np.bincount(matrix.indices, minlength=columns)
    # The sum of the places of a column's entries: with one entry left, its place.
    total = np.zeros(columns, np.int64)
    np.add.at(total, matrix.indices, places)
    left = np.ones(rows, bool)
    last = total[count == 1]
    while last.size:
        able = row_of[last[np.abs(matrix.data[last]) >= least]]
        off = np.unique(able[left[able]])
        left[off] = False
        gone = entries_of(starts, lengths, off)
        touched = matrix.indices[gone]
        np.subtract.at(count, touched, 1)
        np.subtract.at(total, touched, gone)
        last = total[np.unique(touched[count[touched] == 1])]
    return np.flatnonzero(left)


def used_columns(matrix: csr_array) -> tuple[csr_array, Int64Array]:
    """The matrix on the columns that it uses, and which they are."""
    from scipy.sparse import csr_array

    columns, index = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], columns.size)
    return csr_array((matrix.data, index, matrix.indptr), shape=shape), columns.astype(np.int64)
