"""The null space of any invariant matrix, by its rows; and on the answers of a query."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants.components import Rows, as_csr, used_columns
from subspacedp.invariants.held import HeldValues
from subspacedp.invariants.linear import HeldMatrix
from subspacedp.invariants.null_space import NullSpace, echelon_basis, scaled_question, share
from subspacedp.queries.linear import sparse_data

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from subspacedp.invariants.gram_solve import Dual, Ranks

MAX_DENSE = 5000
RESIDUAL = 1e-9


class MatrixNullSpace:
    """N = {v : C v = 0} for any matrix C, and R, the span of its rows.

    Parameters
    ----------
    matrix
        C, dense or scipy sparse, one row per invariant and one column per cell. Rows may be zero,
        repeated or redundant. Entries are whole numbers up to 2**53 or any float64.

    Guarantees
    ----------
    1. `rank` is exact where `rank_method` says so: for integers whenever rows peel off, elimination
       stays within 30 bits, or at most 400 connected rows are left; found modulo a prime, it is
       never above the true rank; for real numbers it counts singular values of the rows scaled to
       norm 1.
    2. ‖C z − r‖ ≤ 1e-9 max(1, ‖r‖) for every z = `lift(r)` that is returned, and iterations aim at
       1e-12 ‖r‖. An r that no z can meet is refused.
    3. `project` removes C v to 1e-9 of its size or of |C| |v|, component by component, and moves v
       within R only, up to rounding error times the condition of the rows scaled to norm 1. Where
       the invariants determine all cells of a component it is exactly zero.
    4. `diagonal` is never below diag(Π_N), and within 1e-6 of it where `diagonal_is_exact`. Cells
       in no row have exactly 1.
    5. The same matrix gives the same results.

    Notes
    -----
    Everything happens in the dual. For unit rows C and G = C Cᵀ, the z of least norm with C z = r
    is Cᵀ G⁺ r, and Π_N v = v − Cᵀ G⁺ C v. G splits into the connected components of rows that
    share cells: a single row has G = 1, small components get a dense factor, large ones conjugate
    gradients (few iterations for scattered sparse rows, whose G is near the identity) with a banded
    or dense Cholesky factor where they converge slowly. One more pass with the residual that is
    left corrects what the first leaves.

    Examples
    --------
    >>> space = MatrixNullSpace([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    >>> space.rank, space.dimension, space.rank_method
    (2, 2, 'exact over the rationals')
    >>> bool(abs(space.project([5, 1, 3, 3]) - [2, -2, 0, 0]).max() < 1e-12)
    True
    >>> bool(abs(space.lift([2, 4, 6]) - [1, 1, 2, 2]).max() < 1e-12)
    True
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix: csr_array = as_csr(matrix)

    @property
    def size(self) -> int:
        """The number of cells, n."""
        return int(self.matrix.shape[1])

    @property
    def rows(self) -> int:
        """The number of rows of C as given, redundant ones included."""
        return int(self.matrix.shape[0])

    @property
    def rank(self) -> int:
        """The dimension of R: how many independent figures are published exactly."""
        from subspacedp.invariants.gram_solve import UNKNOWN

        ranks = self._ranks.component
        if np.any(ranks == UNKNOWN):
            large = int(self._rows.sizes[ranks == UNKNOWN].max())
            raise InvariantError(
                f"The rank of {large:,} rows that share cells is out of reach; `project` and "
                "`lift` do not need it.",
                rows=large,
            )
        return int(ranks.sum())

    @property
    def rank_method(self) -> str:
        """How the rank was found, and how far it can be trusted."""
        return self._ranks.method

    @property
    def dimension(self) -> int:
        """The dimension of N: how many independent figures are protected."""
        return self.size - self.rank

    def project(self, values: ArrayLike) -> FloatArray:
        """Π_N v."""
        out = self._vector(values).copy()
        if not self._dual.reach(out, np.zeros(self._rows.source.size)):
            raise InvariantError(
                "The invariants are too close to dependent for a projection to 1e-9; drop rows "
                "that follow from others."
            )
        out[self._determined] = 0.0
        return out

    def lift(self, residual: ArrayLike, *, error: float = 0.0) -> FloatArray:
        """The z of least norm with C z = r.

        Parameters
        ----------
        residual
            r, one number per row of C.
        error
            How far each number may be from the exact one, for an r computed in floating point from
            larger numbers.
        """
        wanted = np.asarray(residual, np.float64)
        if wanted.shape != (self.rows,):
            raise InvariantError(
                f"Expected one number for each of the {self.rows} rows; got an array of shape "
                f"{wanted.shape}."
            )
        if not np.isfinite(wanted).all():
            raise InvariantError("The exact values must be finite numbers.")
        scaled = wanted[self._rows.source] / self._rows.norms
        out = np.zeros(self.size)
        self._dual.reach(out, scaled)
        missed = np.asarray(self.matrix @ out) - wanted
        limit = RESIDUAL * max(1.0, float(np.linalg.norm(wanted))) + error * self.rows**0.5
        if float(np.linalg.norm(missed)) > limit:
            inside = float(np.linalg.norm(missed[self._rows.source]))
            if inside > limit and np.array_equal(self._ranks.component, self._rows.sizes):
                raise InvariantError(
                    "The invariants are too close to dependent to meet the exact values to 1e-9."
                )
            raise InvariantError(
                "The exact values contradict each other: no table has them all, because some rows "
                "of the invariants follow from others."
            )
        return out

    def diagonal(self) -> FloatArray:
        """diag(Π_N), or an upper bound: what share of a cell's noise remains."""
        out = self._dual.diagonal[0].copy()
        out[self._determined] = 0.0
        return out

    @property
    def diagonal_is_exact(self) -> bool:
        """Whether `diagonal` is diag(Π_N) itself, not a bound."""
        return self._dual.diagonal[1]

    def contains(self, values: ArrayLike) -> bool:
        """Whether C v = 0: exactly for integers, to 1e-9 of the largest entry for floats."""
        array = np.asarray(values)
        if array.shape != (self.size,):
            array = self._vector(values)
        if array.dtype.kind == "b":
            array = array.astype(np.int64)
        if array.dtype.kind in "iu" and self.matrix.dtype.kind == "i":
            return not self._exact_product(array).any()
        floats = array.astype(np.float64)
        weight = np.asarray(abs(self.matrix).sum(axis=1), np.float64)
        bound = 1e-9 * weight * float(np.abs(floats).max(initial=0.0))
        return bool(np.all(np.abs(np.asarray(self.matrix @ floats)) <= bound))

    def share_exposed(self, weights: ArrayLike) -> float:
        """|Π_R w|² / |w|²: how much of a linear question the invariants answer."""
        w = self._vector(weights)
        largest = float(np.abs(w).max())
        if largest == 0.0:
            raise InvariantError("A question needs at least one weight that is not zero.")
        w = w / largest
        inside = self.project(w)
        return share(1.0 - float(inside @ inside) / float(w @ w))

    def basis(self) -> FloatArray:
        """An orthonormal basis of N as columns; only for few cells."""
        from scipy.linalg import qr

        from subspacedp.invariants.gram import triangular

        if self.size > MAX_DENSE:
            raise InvariantError(
                f"A dense basis of {self.size:,} cells is out of reach; `project` needs none."
            )
        out = np.zeros((self.size, self.dimension))
        free = np.setdiff1d(np.arange(self.size), self.matrix.indices)
        out[free, np.arange(free.size)] = 1.0
        at = free.size
        for component, rank in enumerate(self._ranks.component):
            block, columns = used_columns(self._rows.block(component))
            # With more rows than cells: as many columns as cells, with the same span.
            few = block.shape[0] <= block.shape[1]
            span = block.toarray().T if few else triangular(block.T.tocsr())
            span, _, _ = qr(span, mode="economic", pivoting=True)
            inside = np.eye(columns.size) - span[:, :rank] @ span[:, :rank].T
            basis = echelon_basis(inside, columns.size - rank)
            out[columns, at : at + columns.size - rank] = basis
            at += columns.size - rank
        return out

    @cached_property
    def _rows(self) -> Rows:
        return Rows.of(self.matrix)

    @cached_property
    def _ranks(self) -> Ranks:
        from subspacedp.invariants.gram_solve import ranks_of

        return ranks_of(self._rows)

    @cached_property
    def _determined(self) -> Int64Array:
        """The cells of components of full column rank: held exactly, with nothing left to chance.

        There Π_N is zero, not only to rounding error.
        """
        rows = self._rows
        component = np.full(self.size, -1)
        component[rows.matrix.indices] = np.repeat(rows.component, np.diff(rows.matrix.indptr))
        used = np.flatnonzero(component >= 0)
        columns = np.bincount(component[used], minlength=rows.components)
        full = columns == self._ranks.component
        return np.asarray(used[full[component[used]]])

    @cached_property
    def _dual(self) -> Dual:
        from subspacedp.invariants.gram_solve import Dual

        return Dual(self._rows, self._ranks)

    def _exact_product(self, values: AnyArray) -> AnyArray:
        """C v for integers, in 64 bits where they suffice and in Python integers otherwise."""
        largest = max(-int(values.min()), int(values.max()), 1)
        weights = np.asarray(abs(self.matrix.astype(np.float64)).sum(axis=1))
        # Twice the largest possible sum of absolute values, so that rounding does not matter.
        if 2.0 * float(weights.max(initial=0.0)) * largest < 2.0**63:
            return np.asarray(self.matrix @ values.astype(np.int64))
        terms = self.matrix.data.astype(object) * values[self.matrix.indices].astype(object)
        filled = np.flatnonzero(np.diff(self.matrix.indptr))
        return np.asarray(np.add.reduceat(terms, self.matrix.indptr[filled]))

    def _vector(self, values: ArrayLike) -> FloatArray:
        array = np.asarray(values, np.float64)
        if array.shape != (self.size,):
            raise InvariantError(f"Expected an array of {self.size:,} cells; got {array.shape}.")
        if not np.isfinite(array).all():
            raise InvariantError("Cells must be finite numbers.")
        return array

    def __repr__(self) -> str:
        return f"MatrixNullSpace({self.rows:,} invariants of {self.size:,} cells)"


@frozen(eq=False, repr=False)
class GeneralNullSpace(NullSpace):
    """N = {v : C v = 0} for any C, in the shape of the answers.

    Guarantees
    ----------
    1. `lift` and `project` are float64 with a relative residual of at most 1e-9; integers held by
       an integer C are exact as values, and kept by a real-valued release to that residual.
    2. `dimension` is exact for integer C of moderate size; `matrix.rank_method` says how.
    """

    held: HeldMatrix

    @cached_property
    def matrix(self) -> MatrixNullSpace:
        """The same for flat vectors."""
        return MatrixNullSpace(self.held.matrix)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the answers."""
        return self.held.query.shape

    @property
    def size(self) -> int:
        """The number of answers."""
        return self.held.query.size

    @property
    def rank(self) -> int:
        """The dimension of R: how many independent figures are published exactly."""
        return self.matrix.rank if self.held.rows else 0

    def as_dict(self) -> dict[str, Any]:
        """The rows of C."""
        matrix = self.held.matrix.copy()
        matrix.sum_duplicates()  # in order, whatever was done with it
        return {"kind": "rows", "rows": sparse_data(matrix)}

    def project(self, values: ArrayLike) -> FloatArray:
        """Π_N v."""
        flat = self._flat(values)
        return (self.matrix.project(flat) if self.held.rows else flat.copy()).reshape(self.shape)

    def lift(self, residual: HeldValues, *, error: float = 0.0) -> FloatArray:
        """The z of least norm with C z = r.

        `error` says how far each number may be from the exact one, for an r computed in floating
        point from larger numbers.
        """
        if not self.held.rows:
            return np.zeros(self.shape)
        flat = np.asarray(residual[0], np.float64)
        return self.matrix.lift(flat, error=error).reshape(self.shape)

    def subtract_lift(
        self, noisy: Int64Array, residual: HeldValues, *, overwrite: bool = False
    ) -> FloatArray:
        """Noisy − lift(r) in float64; `overwrite` has no effect here."""
        del overwrite
        out = noisy - self.lift(residual, error=self.rounding(noisy))
        if self.held.empty is not None:
            out[self.held.empty] = 0.0
        return out

    def rounding(self, answers: npt.NDArray[np.number]) -> float:
        """How far C·answers may be off in float64; nothing for integers and an integer C."""
        if self.held.exact and answers.dtype.kind == "i":
            return 0.0
        largest = abs(self.held.matrix) @ np.abs(answers.reshape(-1).astype(np.float64))
        return 2.0**-45 * float(np.max(largest, initial=0.0))

    def diagonal(self) -> FloatArray:
        """diag(Π_N), or a proven upper bound of it where the exact one is out of reach."""
        if not self.held.rows:
            return np.ones(self.shape)
        return self.matrix.diagonal().reshape(self.shape)

    def share_exposed(self, weights: ArrayLike) -> float:
        """|Π_R w|² / |w|²: how much of a linear question the invariants answer."""
        flat = scaled_question(self._flat(weights))
        return self.matrix.share_exposed(flat) if self.held.rows else 0.0

    def contains(self, values: ArrayLike) -> bool:
        """Whether C v = 0."""
        array = np.asarray(values).reshape(-1)
        return self.matrix.contains(array) if self.held.rows else True

    def basis(self) -> FloatArray:
        """An orthonormal basis of N as columns; only for few answers."""
        return self.matrix.basis() if self.held.rows else np.eye(self.size)

    def _flat(self, values: ArrayLike) -> FloatArray:
        array = np.asarray(values, np.float64)
        if array.shape not in (self.shape, (self.size,)):
            raise InvariantError(
                f"Expected an array of the shape {self.shape} of the answers; got {array.shape}."
            )
        return array.reshape(-1)
