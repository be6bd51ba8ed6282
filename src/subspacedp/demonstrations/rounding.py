"""Controlled rounding: every cell up or down to a whole number, and the sums kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError

__all__ = ["round_with_margins", "round_with_total"]

Int64Array = npt.NDArray[np.int64]

WHOLE = 1e-6  # as near as this is whole already


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
