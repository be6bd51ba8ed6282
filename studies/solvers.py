"""The two steps of post-processing: the nearest table without negative values, and whole numbers.

Both keep given sums; the first is least squares, the second controlled rounding.

One sum over all cells: a projection onto a simplex. Sums of rows and of columns: a projection onto
a transportation polytope, by Newton steps on the dual variables of the columns; those of the rows
follow exactly, row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError

__all__ = ["nearest_with_margins", "nearest_with_total", "round_with_margins", "round_with_total"]

FloatArray = npt.NDArray[np.float64]

STEPS = 200
TOLERANCE = 1e-8  # of a sum, or what float64 tells apart if that is more
Int64Array = npt.NDArray[np.int64]
WHOLE = 1e-6  # as near as this is whole already


def nearest_with_total(values: npt.ArrayLike, total: float) -> FloatArray:
    """The nearest z ≥ 0 with Σ z = total.

    Examples
    --------
    >>> nearest_with_total([5.0, 1.0, -3.0], 4.0).tolist()
    [4.0, 0.0, 0.0]
    """
    flat = np.asarray(values, np.float64)
    nearest: FloatArray = _rows(flat.reshape(1, -1), np.array([float(total)]))
    return nearest.reshape(flat.shape)


def nearest_with_margins(
    values: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike
) -> FloatArray:
    """The nearest z ≥ 0 with the given sums of rows and of columns, to 10⁻⁸ of a unit.

    Parameters
    ----------
    values
        A table, rows × columns.
    rows, columns
        Sums without negative ones, and with the same total.

    Notes
    -----
    z = max(values − u − w, 0) with one u a row and one w a column. Given w, every u is the
    threshold of a simplex. What is left is convex in w with the gradient columns − Σ_rows z, and
    Σ_rows (diag m − m mᵀ/|m|) is its curvature, m marking the positive cells of a row.

    Examples
    --------
    >>> nearest_with_margins([[3.0, -1.0], [1.0, 1.0]], [2, 2], [3, 1]).round(6).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    y = np.asarray(values, np.float64)
    r, c = np.asarray(rows, np.float64), np.asarray(columns, np.float64)
    if np.any(r < 0) or np.any(c < 0) or abs(r.sum() - c.sum()) > 1e-9 * max(1.0, r.sum()):
        raise ReleaseError("Sums of rows and columns must not be negative, and agree in total.")
    goal = max(TOLERANCE, 1e-14 * float(r.sum()))
    w = (y.sum(axis=0) - c) / len(y)
    z = _rows(y - w, r)
    slope = c - z.sum(axis=0)
    for _ in range(STEPS):
        worst = float(np.abs(slope).max())
        if worst <= goal:
            return z
        positive = (z > 0).astype(np.float64)
        shared = positive / np.maximum(positive.sum(axis=1, keepdims=True), 1)
        damping = 1e-9 + 1e-3 * min(1.0, worst)  # a column without a positive cell has no curvature
        curvature = np.diag(positive.sum(axis=0) + damping) - positive.T @ shared
        step = -np.linalg.solve(curvature, slope)
        size, along = 1.0, float(slope @ step)
        while True:
            z = _rows(y - w - size * step, r)
            found = c - z.sum(axis=0)
            # Slopes along the step rise with its size; heights would cancel in float64.
            if float(found @ step) <= 0.5 * abs(along) or size < 1e-12:
                break
            size /= 2
        w, slope = w + size * step, found
    raise ReleaseError("No nearest table with these sums was found.")


def _rows(values: FloatArray, totals: FloatArray) -> FloatArray:
    """Every row moved to the nearest one without negative values and with its total."""
    falling = -np.sort(-values, axis=1)
    thresholds = (np.cumsum(falling, axis=1) - totals[:, None]) / np.arange(1, values.shape[1] + 1)
    kept = np.count_nonzero(falling > thresholds, axis=1)  # none: a total of zero
    last = np.maximum(kept, 1)[:, None] - 1
    threshold = np.take_along_axis(thresholds, last, axis=1)
    return np.where(kept[:, None] > 0, np.maximum(values - threshold, 0.0), 0.0)


def round_with_total(values: npt.ArrayLike, total: int) -> Int64Array:
    """Whole numbers with the given total, as near as can be: the largest fractions go up.

    Examples
    --------
    >>> round_with_total([0.5, 1.25, 2.25], 4).tolist()
    [1, 1, 2]
    """
    z = np.asarray(values, np.float64)
    low = np.floor(z + WHOLE).astype(np.int64)
    up = int(total) - int(low.sum())
    if not 0 <= up <= z.size:
        raise ReleaseError("The values do not add up to the total they are to be rounded to.")
    order = np.argsort(-(z - low), axis=None, kind="stable")
    out = low.ravel().copy()
    out[order[:up]] += 1
    return out.reshape(z.shape)


def round_with_margins(
    values: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike
) -> Int64Array:
    """Whole numbers with the given sums of rows and columns, as near as can be.

    Every cell goes up or down to the next one.

    Parameters
    ----------
    values
        A table without negative values, with these sums to 10⁻⁶.
    rows, columns
        Whole numbers.

    Notes
    -----
    Which cells go up is a transportation problem with a place for one in every cell. Its matrix is
    totally unimodular, so the linear programme has a whole solution, and one exists because the
    fractions themselves fit.

    Examples
    --------
    >>> round_with_margins([[0.5, 0.5], [0.5, 1.5]], [1, 2], [1, 2]).sum(axis=0).tolist()
    [1, 2]
    """
    z = np.asarray(values, np.float64)
    r, c = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
    low = np.floor(z + WHOLE).astype(np.int64)
    fraction = z - low
    i, j = np.nonzero(fraction > WHOLE)
    low[i, j] += _ups(fraction[i, j], i, j, r - low.sum(axis=1), c - low.sum(axis=0))
    if not (np.array_equal(low.sum(axis=1), r) and np.array_equal(low.sum(axis=0), c)):
        raise ReleaseError("The values do not have the sums they are to be rounded to.")
    return low


def _ups(
    fraction: npt.NDArray[np.float64],
    i: npt.NDArray[np.intp],
    j: npt.NDArray[np.intp],
    rows: Int64Array,
    columns: Int64Array,
) -> Int64Array:
    """Which of the cells with a fraction go up: 0 or 1 each."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    if not fraction.size:  # all are whole, and a programme needs a variable
        return np.zeros(0, np.int64)
    cells = np.arange(len(fraction))
    ones = np.ones(2 * len(fraction))
    places = np.concatenate([i, len(rows) + j]), np.concatenate([cells, cells])
    # Stubs know dense matrices only; the solver takes sparse ones as they are.
    sums: Any = csr_array((ones, places), shape=(len(rows) + len(columns), len(fraction)))
    found = linprog(
        1 - 2 * fraction,
        A_eq=sums,
        b_eq=np.concatenate([rows, columns]),
        bounds=(0, 1),
        method="highs-ds",
    )
    if found.x is None:
        raise ReleaseError("The values do not have the sums they are to be rounded to.")
    return np.asarray(np.rint(found.x), np.int64)
