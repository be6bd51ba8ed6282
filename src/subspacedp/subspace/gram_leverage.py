"""diag(Π_R) of a large component: exact where a factor is affordable, from below elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.gram import dense_gram, leverages, root_by_eigenvectors
from subspacedp.subspace.gram_band import (
    BAND_ENTRIES,
    band_order,
    banded_factors,
    dense_factors,
    lower_band,
)
from subspacedp.subspace.gram_rank import UNKNOWN

__all__ = ["exact_leverages", "least_leverages"]

FloatArray = npt.NDArray[np.float64]

TRACE = 1e-6  # what leverages may miss of their sum
CHOLESKY_ROWS, EIGENVECTOR_ROWS = 3000, 1000
BAND_WORK = 10**10


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
    The leverages sum to the trace of Π_R, which is the rank. What a singular or ill-conditioned G
    costs shows in that sum.
    """
    if rank == UNKNOWN:
        return None
    for found in _candidates(block, independent, gram, rank):
        if abs(float(found.sum()) - rank) <= TRACE:
            return found
    return None


def _candidates(block: Any, independent: Any, gram: Any | None, rank: int) -> Iterator[FloatArray]:
    if independent.shape[0] == rank:
        if gram is not None:
            yield from _banded(independent, gram)
        if rank <= CHOLESKY_ROWS:
            yield from _dense(independent)
    if block.shape[0] <= EIGENVECTOR_ROWS:
        root = root_by_eigenvectors(block, rank)
        if root is not None:
            yield leverages(block, root)


def _banded(block: Any, gram: Any) -> Iterator[FloatArray]:
    """From the entries of G⁻¹ inside the band, where all pairs of rows with a common column are."""
    place, width = band_order(gram, block)
    rows = place.size
    wide = 4 * width > rows and rows <= CHOLESKY_ROWS
    if wide or rows * width > BAND_ENTRIES or rows * width**2 > BAND_WORK:
        return
    from subspacedp.subspace.gram_kernels import band_forms, band_of_inverse

    factor = next(banded_factors(lower_band(gram, place, width)), None)
    if factor is not None:
        columns = block.tocsc()
        inverse = band_of_inverse(np.ascontiguousarray(factor.T))
        yield band_forms(columns.indptr, place[columns.indices], columns.data, inverse)


def _dense(block: Any) -> Iterator[FloatArray]:
    """‖L⁻¹ c‖² for G = L Lᵀ."""
    from scipy.linalg.lapack import dtrtri

    factor = next(dense_factors(dense_gram(block)), None)
    if factor is not None:
        inverse, _ = dtrtri(factor, lower=1)
        yield leverages(block, np.ascontiguousarray(np.tril(inverse).T))


def least_leverages(block: Any, gram: Any | None) -> FloatArray:
    """‖c‖⁴ / cᵀ G c ≤ cᵀ G⁺ c for every column c (Cauchy–Schwarz).

    Where G is out of reach, cᵀ G c ≤ Σ_j c_j² Σ_k (|C| |C|ᵀ)_jk takes its place, which only lowers
    the bound.
    """
    columns = block.tocsc()
    norm = np.add.reduceat(columns.data**2, columns.indptr[:-1])
    if gram is not None:
        from subspacedp.subspace.gram_kernels import sparse_forms

        form = sparse_forms(
            columns.indptr, columns.indices, columns.data, gram.indptr, gram.indices, gram.data
        )
    else:
        absolute = abs(block)
        reach = absolute @ np.asarray(absolute.sum(axis=0)).reshape(-1)
        form = block.multiply(block).T @ reach
    return np.asarray(norm**2 / form * (1 - 1e-12))  # a hair lower, for rounding error
