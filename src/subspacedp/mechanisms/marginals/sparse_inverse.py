"""The entries of a sparse symmetric matrix' inverse, wherever the matrix has entries.

Compiled loops are loaded where there are enough rows for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import Int64Array

Values = npt.NDArray[Any]
Factor = tuple[Values, Values]

WHOLE = 256  # matrices of at most so many rows are inverted whole
NOTHING = 1e-9  # of the largest diagonal: what a row that depends on others leaves over


@dataclass(frozen=True, eq=False, repr=False)
class Inverse:
    """The inverse on the pattern of a matrix, on its diagonal, and solutions with it."""

    pattern: Pattern
    entries: Values
    diagonal: Values
    factor: Factor

    def solve(self, values: Values) -> Values:
        """The inverse times columns of values."""
        return self.pattern.solve(self.factor, values)

    @property
    def log_determinant(self) -> float:
        """The logarithm of the determinant of a real, positive definite matrix."""
        if self.pattern.dense:
            return -float(np.linalg.slogdet(self.factor[0])[1])
        return float(np.log(self.factor[1]).sum())


@dataclass(frozen=True, eq=False, repr=False)
class Pattern:
    """Where a symmetric matrix has entries off its diagonal: pairs, the larger index the row.

    The order of elimination and what it fills in are found once; every factorisation after that
    costs the arithmetic alone.
    """

    size: int
    rows: Int64Array
    columns: Int64Array

    @property
    def dense(self) -> bool:
        """Whether the whole inverse is formed."""
        return self.size <= WHOLE

    @cached_property
    def order(self) -> Int64Array:
        """The order of elimination: least degree of A + Aᵀ."""
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        both = np.concatenate([self.rows, self.columns]), np.concatenate([self.columns, self.rows])
        degree = np.bincount(both[0], minlength=self.size)
        every = np.arange(self.size)
        at = np.concatenate([both[0], every]), np.concatenate([both[1], every])
        entries = np.concatenate([np.full(both[0].size, -1.0), degree + 1.0])
        matrix = csc_array((entries, at), shape=(self.size, self.size))
        options = {"SymmetricMode": True}
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", options=options)
        return np.asarray(np.argsort(factors.perm_c), np.int64)

    @cached_property
    def _when(self) -> Int64Array:
        """When each row is eliminated."""
        out = np.empty(self.size, np.int64)
        out[self.order] = np.arange(self.size)
        return out

    @cached_property
    def _late_and_early(self) -> tuple[Int64Array, Int64Array]:
        first, second = self._when[self.rows], self._when[self.columns]
        return np.maximum(first, second), np.minimum(first, second)

    @cached_property
    def _filled(self) -> tuple[Int64Array, Int64Array]:
        from subspacedp.mechanisms.marginals.elimination import filled, parents_of

        late, early = self._late_and_early
        sort = np.lexsort([early, late])
        starts = np.searchsorted(late[sort], np.arange(self.size + 1))
        above = early[sort]
        return filled(starts, above, parents_of(starts, above))

    @cached_property
    def _places(self) -> Int64Array:
        """The places of the entries among those of L."""
        from subspacedp.mechanisms.marginals.elimination import looked_up

        return looked_up(*self._filled, *self._late_and_early)

    def prepare(self) -> None:
        """Find the order and what it fills in."""
        if not self.dense:
            _ = self._places

    def _factor(self, entries: Values, diagonal: Values, least: float = 0.0) -> Factor:
        from subspacedp.mechanisms.marginals.elimination import factorised

        begin, below = self._filled
        lower = np.zeros(below.size, np.result_type(entries, diagonal))
        lower[self._places] = entries
        pivots = diagonal[self.order].astype(lower.dtype)
        factorised(begin, below, lower, pivots, least)
        return lower, pivots

    def _matrix(self, entries: Values, diagonal: Values) -> Values:
        out = np.zeros((self.size, self.size), np.result_type(entries, diagonal))
        out[self.rows, self.columns] = out[self.columns, self.rows] = entries
        out[np.arange(self.size), np.arange(self.size)] = diagonal
        return out

    def inverse(self, entries: Values, diagonal: Values) -> Inverse:
        """From the entries of the matrix on its pattern and its diagonal."""
        if self.dense:
            whole = _inverse_of(self._matrix(entries, diagonal))
            inner, on_diagonal = whole[self.rows, self.columns], whole.diagonal()
            return Inverse(self, inner, on_diagonal, (whole, whole[:0]))
        from subspacedp.mechanisms.marginals.elimination import selected

        lower, pivots = self._factor(entries, diagonal)
        inner, on_diagonal = selected(*self._filled, lower, pivots)
        return Inverse(self, inner[self._places], on_diagonal[self._when], (lower, pivots))

    def solve(self, factor: Factor, values: Values) -> Values:
        """The inverse times columns of values."""
        if self.dense:
            return np.asarray(factor[0] @ values)
        from subspacedp.mechanisms.marginals.elimination import solved

        out = np.ascontiguousarray(values[self.order])
        solved(*self._filled, *factor, out)
        return np.asarray(out[self._when])

    def independent(self, entries: Values, diagonal: Values) -> npt.NDArray[np.bool_]:
        """Which rows of a Gram matrix are independent of those eliminated before them."""
        least = NOTHING * float(np.abs(diagonal).max(initial=0.0))
        pivots = self._factor(entries.astype(np.float64), diagonal, least)[1]
        return np.asarray(np.abs(pivots[self._when]) > 0)


def _inverse_of(matrix: Values) -> Values:
    """The inverse of a positive definite matrix, symmetric; an imaginary part moves it a little."""
    root = np.linalg.inv(np.linalg.cholesky(matrix.real))
    whole = root.T @ root
    return whole - 1j * (whole @ matrix.imag @ whole) if np.iscomplexobj(matrix) else whole
