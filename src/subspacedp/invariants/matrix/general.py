"""The null space of any linear invariants on the answers of a query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError
from subspacedp.invariants.held import HeldValues
from subspacedp.invariants.linear import HeldMatrix
from subspacedp.invariants.null_space import NullSpace, scaled_question

if TYPE_CHECKING:
    from subspacedp.invariants.matrix.null_space import MatrixNullSpace

__all__ = ["GeneralNullSpace"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
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
        from subspacedp.invariants.matrix.null_space import MatrixNullSpace

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

    def project(self, values: npt.ArrayLike) -> FloatArray:
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
        self, noisy: npt.NDArray[np.int64], residual: HeldValues, *, overwrite: bool = False
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

    def share_exposed(self, weights: npt.ArrayLike) -> float:
        """|Π_R w|² / |w|²: how much of a linear question the invariants answer."""
        flat = scaled_question(self._flat(weights))
        return self.matrix.share_exposed(flat) if self.held.rows else 0.0

    def contains(self, values: npt.ArrayLike) -> bool:
        """Whether C v = 0."""
        array = np.asarray(values).reshape(-1)
        return self.matrix.contains(array) if self.held.rows else True

    def basis(self) -> FloatArray:
        """An orthonormal basis of N as columns; only for few answers."""
        return self.matrix.basis() if self.held.rows else np.eye(self.size)

    def _flat(self, values: npt.ArrayLike) -> FloatArray:
        array = np.asarray(values, np.float64)
        if array.shape not in (self.shape, (self.size,)):
            raise InvariantError(
                f"Expected an array of the shape {self.shape} of the answers; got {array.shape}."
            )
        return array.reshape(-1)
