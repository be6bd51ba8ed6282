"""diag(Π_R) of a large component: exact where a factor is affordable, from below elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants.matrix.gram import (
    CLEAR,
    ERROR,
    dense_gram,
    leverages,
    root_by_eigenvectors,
)
from subspacedp.invariants.matrix.gram_band import (
    BAND_ENTRIES,
    band_order,
    banded_factors,
    banded_solver,
    dense_factors,
    dense_solver,
    lower_band,
)
from subspacedp.invariants.matrix.gram_gradients import Apply, norm
from subspacedp.invariants.matrix.gram_rank import UNKNOWN

__all__ = ["exact_leverages", "least_leverages"]

FloatArray = npt.NDArray[np.float64]

EXACT = 1e-6  # what counts as exact, for each leverage
TRACE = 1e-6  # and for their sum
CHOLESKY_ROWS, EIGENVECTOR_ROWS = 3000, 1000
BAND_WORK = 10**10
POWERS = 20


def exact_leverages(block: Any, independent: Any, gram: Any | None, rank: int) -> FloatArray | None:
    """cᵀ G⁺ c for every column c, None where it is out of reach.

    Parameters
    ----------
    block, independent
        The rows of a component, and those of them that may be independent.
    gram
        G of the latter, where it is affordable.
    rank
        The rank of the component, or UNKNOWN.

    Notes
    -----
    The leverages sum to the trace of Π_R, which is the rank. What a singular G costs shows in that
    sum. What rounding may have added is taken off: with G known to ‖E‖ = eps ‖G‖, cᵀ G⁻¹ c is off
    by cᵀ G⁻¹ E G⁻¹ c, at most ‖E‖/λ of it for the smallest eigenvalue λ.
    """
    if rank == UNKNOWN:
        return None
    for found, error in _candidates(block, independent, gram, rank):
        if error <= EXACT and abs(float(found.sum()) - rank) <= TRACE:
            return found * (1 - error)
    return None


def _candidates(
    block: Any, independent: Any, gram: Any | None, rank: int
) -> Iterator[tuple[FloatArray, float]]:
    if independent.shape[0] == rank:
        if gram is not None:
            yield from _banded(independent, gram)
        if rank <= CHOLESKY_ROWS:
            yield from _dense(independent)
    if block.shape[0] <= EIGENVECTOR_ROWS:
        root = root_by_eigenvectors(block, rank)
        if root is not None:
            yield leverages(block, root), ERROR / CLEAR


def _banded(block: Any, gram: Any) -> Iterator[tuple[FloatArray, float]]:
    """From the entries of G⁻¹ inside the band, where all pairs of rows with a common column are."""
    place, width = band_order(gram, block)
    rows = place.size
    wide = 4 * width > rows and rows <= CHOLESKY_ROWS
    if wide or rows * width > BAND_ENTRIES or rows * width**2 > BAND_WORK:
        return
    from subspacedp.invariants.matrix.gram_kernels import band_forms, band_of_inverse

    factor = next(banded_factors(lower_band(gram, place, width)), None)
    if factor is not None:
        columns = block.tocsc()
        inverse = band_of_inverse(np.ascontiguousarray(factor.T))
        found = band_forms(columns.indptr, place[columns.indices], columns.data, inverse)
        yield found, ERROR * _condition(gram, banded_solver(factor, place))


def _dense(block: Any) -> Iterator[tuple[FloatArray, float]]:
    """‖L⁻¹ c‖² for G = L Lᵀ."""
    from scipy.linalg.lapack import dtrtri

    gram = dense_gram(block)
    factor = next(dense_factors(gram), None)
    if factor is not None:
        inverse, _ = dtrtri(factor, lower=1)
        found = leverages(block, np.ascontiguousarray(np.tril(inverse).T))
        yield found, ERROR * _condition(gram, dense_solver(factor))


def _condition(gram: Any, solve: Apply) -> float:
    """The condition of G by power iterations on G⁻¹, from below but near; ‖G‖ from above."""
    vector = np.random.default_rng(0).standard_normal(gram.shape[0])
    largest = 0.0
    for _ in range(POWERS):
        vector = solve(vector / norm(vector))
        largest = max(largest, norm(vector))
    return largest * float(np.asarray(abs(gram).sum(axis=1)).max())


def least_leverages(block: Any, gram: Any | None) -> FloatArray:
    """‖c‖⁴ / cᵀ G c ≤ cᵀ G⁺ c for every column c (Cauchy–Schwarz).

    Where G is out of reach, cᵀ G c ≤ Σ_j c_j² Σ_k (|C| |C|ᵀ)_jk takes its place, which only lowers
    the bound.
    """
    columns = block.tocsc()
    norm = np.add.reduceat(columns.data**2, columns.indptr[:-1])
    if gram is not None:
        from subspacedp.invariants.matrix.gram_kernels import sparse_forms

        form = sparse_forms(
            columns.indptr, columns.indices, columns.data, gram.indptr, gram.indices, gram.data
        )
    else:
        absolute = abs(block)
        reach = absolute @ np.asarray(absolute.sum(axis=0)).reshape(-1)
        form = block.multiply(block).T @ reach
    return np.asarray(norm**2 / form * (1 - 1e-12))  # a hair lower, for rounding error
