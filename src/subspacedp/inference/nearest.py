"""The nearest point of a box under linear equations, wishes and inequalities.

Minimise ½ Σ (zᵢ − mᵢ)²/wᵢ over lower ≤ z ≤ upper. Equations A z = t hold, a wish costs
½ (A z − t)²/s, and inequalities say A z ≤ t. The dual has one variable for every row: at λ the best
z is m + w Aᵀλ, cut to the box, and the gradient A z − t + s λ. It is climbed by semismooth Newton
steps, with λ ≤ 0 where a row is an inequality.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray
from subspacedp.frozen import frozen

if TYPE_CHECKING:
    from scipy import sparse


MAX_STEPS = 80
NEARLY_SAME = 1e-12  # of a row's own entry, which is added to it
SMALLEST = 1e-300  # entry of a row that is divided by
MAX_DENSE = 500  # rows whose equations are solved at once; more by conjugate gradients
GOAL = 1e-6  # of a right-hand side, or of a unit


@frozen(eq=False, repr=False)
class Rows:
    """Rows A z = t, or ≤ t; a slack s > 0 makes a wish of an equation."""

    matrix: sparse.csr_array
    right: FloatArray
    slack: FloatArray
    at_most: BoolArray

    @classmethod
    def of(
        cls,
        matrix: sparse.csr_array,
        right: FloatArray,
        slack: FloatArray | float = 0.0,
        *,
        at_most: bool = False,
    ) -> Rows:
        """Rows of one kind."""
        each = np.broadcast_to(np.asarray(slack, np.float64), right.shape)
        return cls(matrix, right, each, np.full(right.size, at_most))

    @classmethod
    def stacked(cls, parts: Sequence[Rows], size: int) -> Rows:
        """All rows together, on so many cells."""
        from scipy import sparse

        none = sparse.csr_array((0, size))
        return cls(
            sparse.vstack([none, *(part.matrix for part in parts)], format="csr"),
            np.concatenate([np.zeros(0), *(part.right for part in parts)]),
            np.concatenate([np.zeros(0), *(part.slack for part in parts)]),
            np.concatenate([np.zeros(0, bool), *(part.at_most for part in parts)]),
        )


def nearest(
    middle: FloatArray, weight: FloatArray, rows: Rows, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """The solution; where no point meets all equations and inequalities, one that nearly does."""
    from scipy import sparse

    a, right, slack = rows.matrix, rows.right, rows.slack
    across = sparse.csr_array(a.T)
    goal = GOAL * np.maximum(1.0, np.abs(right))
    ridge = slack + 1e-9 * (_times(a, a.data) @ weight) + 1e-12

    def point(dual: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        z = np.clip(middle + weight * (across @ dual), lower, upper)
        miss = a @ z - right
        moved = float(np.sum((z - middle) ** 2 / weight)) / 2
        height = float(dual @ miss) + float(slack @ dual**2) / 2 - moved
        return z, miss + slack * dual, height

    dual = np.zeros(right.size)
    z, slope, height = point(dual)
    for _ in range(MAX_STEPS):
        free = ~rows.at_most | (dual < 0) | (slope > 0)
        if np.all(np.abs(slope[free]) <= goal[free]):
            break
        inside = weight * ((z > lower) & (z < upper))
        step = np.zeros(right.size)
        chosen = a if free.all() else sparse.csr_array(a[free])
        step[free] = _solved(chosen, inside, ridge[free], -slope[free])
        size, before, last, first = 1.0, dual, height, slope
        while True:
            dual = before + size * step
            dual[rows.at_most] = np.minimum(dual[rows.at_most], 0.0)
            z, slope, height = point(dual)
            enough = last + 1e-4 * float((dual - before) @ first) + 1e-13 * abs(last)
            if height <= enough or size < 1e-9:
                break
            size /= 2
    return z


def _times(a: sparse.csr_array, factor: FloatArray) -> sparse.csr_array:
    """The matrix with its entries, in their order, multiplied by others."""
    from scipy import sparse

    return sparse.csr_array((a.data * factor, a.indices, a.indptr), shape=a.shape)


def _solved(
    a: sparse.csr_array, inside: FloatArray, ridge: FloatArray, right: FloatArray
) -> FloatArray:
    """(A W Aᵀ + diag(ridge)) x = right."""
    from scipy import linalg, sparse
    from scipy.sparse.linalg import LinearOperator, cg

    scaled, across = _times(a, inside[a.indices]), sparse.csr_array(a.T)
    if right.size <= MAX_DENSE:
        matrix = (scaled @ across).toarray()
        matrix[np.diag_indices(right.size)] += ridge
        # In multiples of each row's own entry; rows that say nearly the same leave a matrix that
        # is singular but for rounding.
        own = 1 / np.sqrt(np.maximum(matrix.diagonal(), SMALLEST))
        matrix *= own[:, None] * own
        matrix[np.diag_indices(right.size)] += NEARLY_SAME
        return np.asarray(own * linalg.solve(matrix, own * right, assume_a="pos"))
    diagonal = _times(a, a.data * inside[a.indices]).sum(axis=1) + ridge
    shape = (right.size, right.size)
    operator = LinearOperator(shape, lambda x: scaled @ (across @ x) + ridge * x, dtype=np.float64)
    scaling = LinearOperator(shape, lambda x: x / diagonal, dtype=np.float64)
    return np.asarray(cg(operator, right, rtol=1e-2, maxiter=200, M=scaling)[0])
