"""Small linear programmes by the simplex algorithm; SciPy's solver takes longer to import."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

SMALL = 1 << 16  # entries of a tableau
ZERO = 1e-11  # of a slope, beside numbers of about one
EXACT = 1e-9  # by which the answer may miss its conditions


def covering_weights(rows: FloatArray, needed: FloatArray) -> FloatArray | None:
    """The least y ≥ 0 in sum with y·rows ≥ needed; None where there is none, or none was found.

    Parameters
    ----------
    rows
        Not negative.
    needed
        What every column needs; the largest about one.

    Notes
    -----
    Dantzig's algorithm on the dual programme, max needed·b over b ≥ 0 with rows·b ≤ 1, which
    b = 0 begins; y are the slopes of its slacks. That b and y meet their conditions and have equal
    sums is looked at in the given numbers; a programme for which they do not, because pivots lost
    its figures, or that is large or takes long, goes to SciPy.
    """
    if np.any((needed > 0) & (rows.max(axis=0) <= 0)):
        return None  # nothing can be enough for that column
    found = _by_tableau(rows, needed)
    if found is not None:
        return found
    from scipy.optimize import linprog

    solution = linprog(
        np.ones(len(rows)), A_ub=-rows.T, b_ub=-needed, bounds=(0, None), method="highs"
    )
    if solution.status != 0 or solution.x is None:
        return None
    return np.asarray(np.maximum(solution.x, 0.0), np.float64)


def _by_tableau(rows: FloatArray, needed: FloatArray) -> FloatArray | None:
    """The same for small programmes; None where the answer does not prove itself."""
    number, columns = rows.shape
    if number * (number + columns) > SMALL:
        return None
    tableau = np.hstack([rows, np.eye(number), np.ones((number, 1))])
    slopes = np.concatenate([needed, np.zeros(number + 1)])
    basis = np.arange(columns, columns + number)
    for _ in range(20 * columns + 20):
        enters = int(np.argmax(slopes[:-1]))
        if slopes[enters] <= ZERO:
            break
        column = tableau[:, enters]
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(column > ZERO, tableau[:, -1] / column, math.inf)
        leaves = int(np.argmin(reach))
        if reach[leaves] == math.inf:
            return None
        pivot = tableau[leaves] / column[leaves]
        tableau -= np.outer(column, pivot)
        tableau[leaves] = pivot
        slopes -= slopes[enters] * pivot
        basis[leaves] = enters
    point = np.zeros(columns + number)
    point[basis] = tableau[:, -1]
    b, y = point[:columns], np.maximum(-slopes[columns:-1], 0.0)
    proved = (
        np.all(b >= -EXACT)
        and np.all(rows @ b <= 1 + EXACT)
        and np.all(y @ rows >= needed - EXACT)
        and abs(float(y.sum()) - float(needed @ b)) <= EXACT * float(y.sum())
    )
    return np.asarray(y, np.float64) if proved else None
