"""How G y = r is solved, also where G is singular: Cholesky factors, and conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "BAND_ENTRIES",
    "Apply",
    "band_order",
    "banded_factors",
    "banded_solver",
    "conjugate_gradients",
    "dense_factors",
    "dense_solver",
    "lower_band",
    "norm",
]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Apply = Callable[[FloatArray], FloatArray]

BAND_ENTRIES = 5 * 10**7  # what a band may hold
# Of ‖G‖, to factor a singular G. The larger the shift, the less it magnifies what rounding put
# outside the range of G; the smaller, the better the factor serves small eigenvalues.
SHIFTS = (0.0, 1e-9, 1e-12)
PIVOT = 1e-14  # of ‖G‖; squares of pivots below are rounding error


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
