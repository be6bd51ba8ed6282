"""G y = r for large components: conjugate gradients, with a Cholesky factor where they need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError
from subspacedp.subspace.gram import dense_gram, leverages, root_by_eigenvectors
from subspacedp.subspace.gram_rank import UNKNOWN

__all__ = ["IterativeBlock", "iterative_block"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Apply = Callable[[FloatArray], FloatArray]

RESIDUAL = 1e-12  # what a trial run has to reach
FEW, SOME = 150, 60  # iterations that are cheaper than a factor; and that a good factor leaves
PATIENCE = 1000  # iterations without progress before giving up
SHIFTS = (0.0, 1e-14, 1e-12, 1e-10)  # of ‖G‖, to factor a singular G

# What is affordable, each in a few seconds and a few hundred megabytes.
GRAM_ENTRIES, GRAM_WORK = 4 * 10**7, 10**9
BAND_ENTRIES, BAND_WORK = 5 * 10**7, 2 * 10**11
INVERSE_WORK = 2 * 10**10
DENSE_ROWS, DENSE_LEVERAGE = 5000, 2000
TRACE = 1e-6  # what a computed diagonal may miss of its trace


@dataclass(frozen=True, eq=False)
class IterativeBlock:
    """One component solved by iteration.

    A singular G is no obstacle: C v lies in its range, and conjugate gradients stay there.
    """

    block: Any  # its rows, on the columns it uses
    columns: Int64Array
    width: int  # the number of all columns
    rank: int
    spare: npt.NDArray[np.bool_]  # rows known to depend on others
    gram: Any | None  # G, sparse, where it is affordable
    precondition: Apply
    most: int
    method: str

    def times(self, y: FloatArray) -> FloatArray:
        """G y."""
        if self.gram is not None and self.gram.nnz <= 4 * self.block.nnz:
            return np.asarray(self.gram @ y)
        return np.asarray(self.block @ (self.block.T @ y))

    def solve(self, residual: FloatArray, target: float) -> FloatArray:
        """A y with ‖G y − r‖ ≤ target, or as near as iterations come."""
        return conjugate_gradients(self.times, self.precondition, residual, target, self.most)[0]

    def leverage(self) -> FloatArray | None:
        """cᵀ G⁺ c for every column c; None where it is out of reach."""
        if self.rank == UNKNOWN:
            return None
        found = next(filter(self._adds_up, self._leverages()), None)
        if found is None:
            return None
        out = np.zeros(self.width)
        out[self.columns] = found
        return out

    def _leverages(self) -> Iterator[FloatArray]:
        """Candidates for the leverages of the columns in use, the most accurate first."""
        if self.block.shape[0] <= DENSE_LEVERAGE:
            root = root_by_eigenvectors(self.block, self.rank)
            if root is not None:
                yield leverages(self.block, root)
        if self.gram is not None:
            keep = np.flatnonzero(~self.spare)
            yield from _banded_leverages(self.block[keep], self.gram[keep][:, keep])

    def _adds_up(self, leverage: FloatArray) -> bool:
        """Whether they sum to the trace of Π_R, the rank.

        A shift only lowers leverages, so what the sum misses bounds what any one of them misses.
        """
        return abs(float(leverage.sum()) - self.rank) <= TRACE


def _dot(a: FloatArray, b: FloatArray) -> float:
    # Not BLAS, whose threads cost more than they save here and decide the order of the sum.
    return float(np.einsum("i,i->", a, b))


def _norm(a: FloatArray) -> float:
    return float(np.sqrt(_dot(a, a)))


def conjugate_gradients(
    times: Apply, precondition: Apply, residual: FloatArray, target: float, most: int
) -> tuple[FloatArray, float, int]:
    """The best y found with G y ≈ r, its residual by recursion, and the number of iterations."""
    y, rest = np.zeros_like(residual), residual.copy()
    best, kept, when = _norm(rest), y.copy(), 0
    direction = step = precondition(rest)
    inner = _dot(rest, step)
    for iteration in range(most):
        if best <= target:
            return kept, best, iteration
        image = times(direction)
        curvature = _dot(direction, image)
        if not 0.0 < curvature < np.inf:  # nothing left but what no y can reach
            break
        y += inner / curvature * direction
        rest -= inner / curvature * image
        size = _norm(rest)
        if size < best:
            best, when = size, iteration
            kept[:] = y
        elif not np.isfinite(size) or iteration - when > PATIENCE:
            break
        step = precondition(rest)
        inner, before = _dot(rest, step), inner
        direction = step + inner / before * direction
    return kept, best, most


def iterative_block(
    block: Any, columns: Int64Array, width: int, rank: int, spare: npt.NDArray[np.bool_]
) -> IterativeBlock:
    """Choose how to solve one component, by trying it on a right side in its range."""
    gram = _gram(block)
    trial = np.asarray(block @ np.random.default_rng(0).standard_normal(block.shape[1]))
    target = RESIDUAL * _norm(trial)
    patient = int(np.clip(10**10 // (2 * block.nnz), FEW, 20_000))

    for precondition, most, method in _candidates(gram, block, patient):
        # What comes later may take longer than the trial does.
        made = IterativeBlock(
            block, columns, width, rank, spare, gram, precondition, 4 * most, method
        )
        _, reached, _ = conjugate_gradients(made.times, precondition, trial, target, most)
        if reached <= target:
            return made
    raise InvariantError(
        f"The invariants are too close to dependent: {block.shape[0]:,} rows that share cells "
        "could not be solved to 1e-12. Drop rows that follow from others.",
        rows=block.shape[0],
    )


def _candidates(gram: Any | None, block: Any, patient: int) -> Iterator[tuple[Apply, int, str]]:
    """Ways to solve a component, cheapest first: preconditioner, iterations, name."""
    rows = block.shape[0]
    yield _same, FEW, "conjugate gradients"
    if gram is not None:
        order, width = _band_order(gram)
        if rows * width <= BAND_ENTRIES and rows * width**2 <= BAND_WORK:
            for factor in _factors(_lower_band(gram, order, width)):
                yield _banded_solver(factor, order), SOME, "banded Cholesky"
    if rows <= DENSE_ROWS:
        for factor in _dense_factors(dense_gram(block)):
            yield _dense_solver(factor), SOME, "dense Cholesky"
    yield _same, patient, "conjugate gradients"


def _same(vector: FloatArray) -> FloatArray:
    """The Jacobi preconditioner: unit rows have a G of unit diagonal."""
    return vector


def _gram(block: Any) -> Any | None:
    """G as a sparse matrix, where it is affordable; its size is judged by some of its rows."""
    rows = block.shape[0]
    count = np.bincount(block.indices, minlength=1).astype(np.float64)
    if float(count @ count) > GRAM_WORK:
        return None
    sample = np.unique(np.linspace(0, rows - 1, 64).astype(np.int64))
    if (block[sample] @ block.T).nnz / sample.size * rows > GRAM_ENTRIES:
        return None
    return (block @ block.T).tocsr()


def _band_order(gram: Any) -> tuple[Int64Array, int]:
    """The place of each row in an order that keeps G near its diagonal, and the width it has."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    place = np.empty(gram.shape[0], np.int64)
    place[reverse_cuthill_mckee(gram, symmetric_mode=True)] = np.arange(place.size)
    row = np.repeat(place, np.diff(gram.indptr))
    return place, 1 + int(np.abs(row - place[gram.indices]).max(initial=0))


def _lower_band(gram: Any, place: Int64Array, width: int) -> FloatArray:
    """G in that order, `out[k, j]` = G[j + k, j]."""
    out = np.zeros((width, place.size))
    row, column = np.repeat(place, np.diff(gram.indptr)), place[gram.indices]
    low = row >= column
    out[row[low] - column[low], column[low]] = gram.data[low]
    return out


def _factors(band: FloatArray) -> Iterator[FloatArray]:
    """Banded Cholesky factors of G, and of G with ever larger shifts where that breaks down."""
    from scipy.linalg import LinAlgError, cholesky_banded

    size = float(band[0].max()) * band.shape[0]
    for shift in SHIFTS:
        shifted = band.copy()
        shifted[0] += shift * size
        try:
            yield np.asarray(cholesky_banded(shifted, lower=True, overwrite_ab=True))
        except LinAlgError:
            continue


def _dense_factors(gram: FloatArray) -> Iterator[FloatArray]:
    from scipy.linalg import LinAlgError, cholesky

    size = float(np.abs(gram).sum(axis=1).max())
    for shift in SHIFTS:
        shifted = gram + np.diag(np.full(gram.shape[0], shift * size))
        try:
            yield np.asarray(cholesky(shifted, lower=True, overwrite_a=True))
        except LinAlgError:
            continue


def _banded_solver(factor: FloatArray, place: Int64Array) -> Apply:
    from scipy.linalg import cho_solve_banded

    order = np.argsort(place)

    def solve(vector: FloatArray) -> FloatArray:
        return np.asarray(cho_solve_banded((factor, True), vector[order])[place])

    return solve


def _dense_solver(factor: FloatArray) -> Apply:
    from scipy.linalg import cho_solve

    return lambda vector: np.asarray(cho_solve((factor, True), vector))


def _banded_leverages(block: Any, gram: Any) -> Iterator[FloatArray]:
    """cᵀ G⁻¹ c from the entries of G⁻¹ inside the band: all pairs of rows with a common column."""
    place, width = _band_order(gram)
    rows = place.size
    if rows * width > BAND_ENTRIES or rows * width**2 > INVERSE_WORK:
        return
    from subspacedp.subspace.gram_kernels import band_of_inverse, quadratic_forms

    columns = block.tocsc()
    for factor in _factors(_lower_band(gram, place, width)):
        inverse = band_of_inverse(np.ascontiguousarray(factor.T))
        yield quadratic_forms(columns.indptr, place[columns.indices], columns.data, inverse)
