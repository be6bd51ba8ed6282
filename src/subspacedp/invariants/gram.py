"""Pseudo-inverses of G = C Cᵀ, and how G y = r is solved where G is large or singular.

For unit rows C of one component, z = Cᵀ G⁺ r is the z of least norm with C z = r, and
diag(Π_R)_i = c_iᵀ G⁺ c_i for the column c_i. Components small enough to be dense have a factor of
G⁺; the others have Cholesky factors, banded where rows can be so ordered, and conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.invariants.components import Rows, used_columns
from subspacedp.parallel import kernel

TOLERANCE = 1e-10  # of singular values of unit rows, relative to the largest
CLEAR = 1e-6  # eigenvalues of G above this share of the largest are far above rounding error
ERROR = 10 * float(np.finfo(np.float64).eps)  # of a leverage, for each unit of condition
PIECE = 1 << 21  # numbers in a dense piece of a sparse matrix
Apply = Callable[[FloatArray], FloatArray]
BAND_ENTRIES = 5 * 10**7  # what a band may hold
# Of ‖G‖, to factor a singular G. The larger the shift, the less it magnifies what rounding put
# outside the range of G; the smaller, the better the factor serves small eigenvalues.
SHIFTS = (0.0, 1e-9, 1e-12)
PIVOT = 1e-14  # of ‖G‖; squares of pivots below are rounding error


class Block(Protocol):
    """An approximate G⁺ for some consecutive rows."""

    aim: ClassVar[float]  # the relative residual worth aiming at; 0 for all there is

    def solve(self, residual: FloatArray, target: float) -> FloatArray:
        """A y with G y ≈ r; iterations may stop when ‖G y − r‖ ≤ target."""
        ...

    def leverage(self) -> tuple[FloatArray, bool]:
        """cᵀ G⁺ c for every column c of C, and whether this is exact; if not, it is no more.

        What rounding may have added is taken off.
        """
        ...


def dense_gram(block: Any) -> FloatArray:
    """C Cᵀ as a dense matrix, for few rows and any number of columns."""
    rows, columns = block.shape
    pairs = float(np.sum(np.bincount(block.indices, minlength=1).astype(float) ** 2))
    if pairs * 50 < float(rows) ** 2 * columns:
        return np.asarray((block @ block.T).toarray(), np.float64)
    out = np.zeros((rows, rows))
    for piece in _pieces(block):
        out += piece @ piece.T
    return out


def triangular(block: Any) -> FloatArray:
    """L with C = L Qᵀ and QᵀQ = I, by Householder reflections a piece of columns at a time.

    Singular values and left singular vectors of C are those of L, without squaring its condition.
    """
    upper = np.zeros((0, block.shape[0]))
    for piece in _pieces(block):
        upper = np.asarray(np.linalg.qr(np.vstack([upper, piece.T]), mode="r"))
    return np.ascontiguousarray(upper.T)


def _pieces(block: Any) -> Any:
    rows, columns = block.shape
    by_columns = block.tocsc()
    step = max(PIECE // max(rows, 1), rows, 1)
    for first in range(0, columns, step):
        yield by_columns[:, first : first + step].toarray()


def root_by_eigenvectors(block: Any, rank: int | None) -> FloatArray | None:
    """K with G⁺ = K Kᵀ, where the eigenvalues of G are either clearly zero or clearly not."""
    rows = block.shape[0]
    values, vectors = np.linalg.eigh(dense_gram(block))
    kept = rows if rank is None else rank
    if values[rows - kept] < CLEAR * values[-1]:
        return None
    return np.asarray(vectors[:, rows - kept :] / np.sqrt(values[rows - kept :]))


def root_by_singular_vectors(block: Any, rank: int | None) -> FloatArray:
    """K with G⁺ = K Kᵀ, by `TOLERANCE` where the rank is not known."""
    vectors, values, _ = np.linalg.svd(triangular(block), full_matrices=False)
    kept = int(np.sum(values > TOLERANCE * values[0])) if rank is None else rank
    # Beyond the precision of float64 a direction is noise, even where the exact rank counts it.
    kept = min(kept, int(np.sum(values > 1e-15 * values[0])))
    return np.asarray(vectors[:, :kept] / values[:kept])


def leverages(block: Any, root: FloatArray) -> FloatArray:
    """‖Kᵀ c‖² for every column c."""
    by_columns = block.T.tocsr()
    step = max(PIECE // max(root.shape[1], 1), 1)
    parts = [
        np.sum(np.asarray(by_columns[first : first + step] @ root) ** 2, axis=1)
        for first in range(0, block.shape[1], step)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


@frozen(eq=False)
class DenseBlock:
    """One component with a dense factor."""

    aim: ClassVar[float] = 0.0
    block: Any  # its rows on all columns
    root: FloatArray

    def solve(self, residual: FloatArray, target: float) -> FloatArray:
        """G⁺ r."""
        del target
        return np.asarray(self.root @ (self.root.T @ residual))

    def leverage(self) -> tuple[FloatArray, bool]:
        """cᵀ G⁺ c for every column c."""
        compact, columns = used_columns(self.block)
        out = np.zeros(self.block.shape[1])
        out[columns] = leverages(compact, self.root) * (1 - self._error)
        return out, True

    @property
    def _error(self) -> float:
        """Singular vectors lose digits by the condition of C, eigenvectors by that of G."""
        if not self.root.shape[1]:
            return 0.0
        scales = np.linalg.norm(self.root, axis=0)  # the inverse singular values
        condition = float(scales.max() / scales.min())
        return ERROR * (condition**2 if condition**2 * CLEAR <= 1 else condition)


@frozen(eq=False)
class SmallBlocks:
    """Many small components: their pseudo-inverses as one sparse matrix."""

    aim: ClassVar[float] = 0.0
    block: Any
    inverse: Any
    error: FloatArray  # of leverages, relative, for the component of each row

    def solve(self, residual: FloatArray, target: float) -> FloatArray:
        """G⁺ r."""
        del target
        return np.asarray(self.inverse @ residual)

    def leverage(self) -> tuple[FloatArray, bool]:
        """cᵀ G⁺ c for every column c."""
        lower = self.inverse.multiply(1 - self.error[:, None])
        terms = (lower @ self.block).multiply(self.block)
        return np.asarray(terms.sum(axis=0)).reshape(-1), True


def small_blocks(
    rows: Rows, first: int, last: int, ranks: Int64Array
) -> tuple[SmallBlocks, Int64Array]:
    """Components `first` to `last - 1` at once, and those that need a closer look.

    Components of one size are solved as one stack of eigenvalue problems. A component whose
    smallest kept eigenvalue is near rounding error gets an inverse of zero here and is returned.
    """
    from scipy.sparse import coo_array, csr_array

    begin, end = int(rows.starts[first]), int(rows.starts[last])
    block = rows.matrix[begin:end]
    gram: Any = (block @ block.T).tocoo()
    component = rows.component[begin:end]
    offset = rows.starts[component] - begin  # first row of each row's component
    parts, closer = [], []
    error = np.zeros(end - begin)
    sizes = rows.sizes[first:last]
    for size in np.unique(sizes):
        chosen = np.flatnonzero(sizes == size) + first
        lo, hi = int(rows.starts[chosen[0]]) - begin, int(rows.starts[chosen[-1] + 1]) - begin
        inside = (gram.row >= lo) & (gram.row < hi)
        row, column = gram.row[inside], gram.col[inside]
        stack = np.zeros((chosen.size, size, size))
        stack[component[row] - chosen[0], row - offset[row], column - offset[row]] = gram.data[
            inside
        ]
        values, vectors = np.linalg.eigh(stack)
        kept = np.arange(size) >= (size - ranks[chosen])[:, None]
        least = np.where(kept, values, np.inf).min(axis=1)
        clear = least >= CLEAR * values[:, -1]
        error[lo:hi] = np.repeat(ERROR * values[:, -1] / np.where(clear, least, np.inf), size)
        kept &= clear[:, None]
        weights = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
        parts.append((lo, (vectors * weights[:, None, :]) @ vectors.transpose(0, 2, 1)))
        closer.append(chosen[~clear])
    data = np.concatenate([stack.reshape(-1) for _, stack in parts])
    at_row = np.concatenate([
        lo + np.repeat(np.arange(stack.shape[0] * stack.shape[1]), stack.shape[1])
        for lo, stack in parts
    ])  # fmt: skip
    at_column = np.concatenate([
        np.tile(
            (lo + np.arange(stack.shape[0] * stack.shape[1])).reshape(stack.shape[0], 1, -1),
            (1, stack.shape[1], 1),
        ).reshape(-1)
        for lo, stack in parts
    ])  # fmt: skip
    inverse = csr_array(coo_array((data, (at_row, at_column)), shape=(end - begin, end - begin)))
    return SmallBlocks(block, inverse, error), np.concatenate(closer)


def band_order(gram: Any, block: Any) -> tuple[Int64Array, int]:
    """The place of each row in an order that keeps G near its diagonal, and the width it has.

    All rows of a column of C are within the width, also where their product in G cancels to zero:
    G⁻¹ is needed there.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    place = np.empty(gram.shape[0], np.int64)
    place[reverse_cuthill_mckee(gram, symmetric_mode=True)] = np.arange(place.size)
    columns = block.tocsc()
    starts = columns.indptr[:-1][np.diff(columns.indptr) > 0]
    rows = place[columns.indices]
    spread = np.maximum.reduceat(rows, starts) - np.minimum.reduceat(rows, starts)
    return place, 1 + int(spread.max())


def lower_band(gram: Any, place: Int64Array, width: int) -> FloatArray:
    """G in that order, `out[k, j]` = G[j + k, j]."""
    out = np.zeros((width, place.size))
    row, column = np.repeat(place, np.diff(gram.indptr)), place[gram.indices]
    low = row >= column
    out[row[low] - column[low], column[low]] = gram.data[low]
    return out


def banded_factors(band: FloatArray) -> Iterator[FloatArray]:
    """Banded Cholesky factors of G, and of G with shifts."""
    from scipy.linalg import LinAlgError, cholesky_banded

    size = float(band[0].max()) * band.shape[0]
    for shift in SHIFTS:
        shifted = band.copy()
        shifted[0] += shift * size
        try:
            factor = np.asarray(cholesky_banded(shifted, lower=True, overwrite_ab=True))
        except LinAlgError:
            continue
        if float(factor[0].min()) ** 2 > PIVOT * size:
            yield factor


def dense_factors(gram: FloatArray) -> Iterator[FloatArray]:
    """The same for a dense G."""
    from scipy.linalg import LinAlgError, cholesky

    size = float(np.abs(gram).sum(axis=1).max())
    for shift in SHIFTS:
        shifted = gram + np.diag(np.full(gram.shape[0], shift * size))
        try:
            factor = np.asarray(cholesky(shifted, lower=True, overwrite_a=True))
        except LinAlgError:
            continue
        if float(np.diag(factor).min()) ** 2 > PIVOT * size:
            yield factor


def banded_solver(factor: FloatArray, place: Int64Array) -> Apply:
    """Solve with a banded factor of G in the order of `place`."""
    from scipy.linalg import cho_solve_banded

    order = np.argsort(place)

    def solve(vector: FloatArray) -> FloatArray:
        return np.asarray(cho_solve_banded((factor, True), vector[order])[place])

    return solve


def dense_solver(factor: FloatArray) -> Apply:
    """Solve with a dense factor of G."""
    from scipy.linalg import cho_solve

    return lambda vector: np.asarray(cho_solve((factor, True), vector))


def dot(a: FloatArray, b: FloatArray) -> float:
    """Not by BLAS, whose threads cost more than they save here and decide the order of the sum."""
    return float(np.einsum("i,i->", a, b))


def norm(a: FloatArray) -> float:
    """The Euclidean norm."""
    return float(np.sqrt(dot(a, a)))


def conjugate_gradients(
    times: Apply,
    precondition: Apply,
    residual: FloatArray,
    target: float,
    *,
    most: int,
    patience: int,
) -> tuple[FloatArray, float, int]:
    """The best y found with G y ≈ r, its residual by recursion, and the number of iterations.

    Stops at the target, after `most` iterations, or after `patience` of them without progress: a
    part of r outside the range of G stays in the residual for good. SciPy's `cg` returns its last
    iterate, which for nearly dependent rows is far worse than the best one (1e-4 and 1e-9).
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what grows without bound is not kept
        y, rest = np.zeros_like(residual), residual.copy()
        best, kept, when = norm(rest), y.copy(), 0
        step = precondition(rest)
        direction, inner = step.copy(), dot(rest, step)  # a copy: the step may be `rest` itself
        iteration = 0
        for iteration in range(most):
            if best <= target:
                break
            image = times(direction)
            curvature = dot(direction, image)
            if not 0.0 < curvature < np.inf:  # nothing left but what no y can reach
                break
            y += inner / curvature * direction
            rest -= inner / curvature * image
            size = norm(rest)
            if size < best:
                best, when = size, iteration
                kept[:] = y
            elif not np.isfinite(size) or iteration - when > patience:
                break
            step = precondition(rest)
            inner, before = dot(rest, step), inner
            direction = step + inner / before * direction
    return kept, best, iteration


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
