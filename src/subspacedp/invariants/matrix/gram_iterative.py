"""G y = r for large components: conjugate gradients, with a Cholesky factor where they need one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError
from subspacedp.invariants.matrix.gram import dense_gram
from subspacedp.invariants.matrix.gram_band import (
    BAND_ENTRIES,
    band_order,
    banded_factors,
    banded_solver,
    dense_factors,
    dense_solver,
    lower_band,
)
from subspacedp.invariants.matrix.gram_gradients import Apply, conjugate_gradients, norm
from subspacedp.invariants.matrix.gram_leverage import exact_leverages, least_leverages

__all__ = ["IterativeBlock", "iterative_block"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

RESIDUAL = 1e-12  # what iterations aim at
REACHED, REFINABLE = 1e-11, 1e-6  # what a trial has to come to, without a factor and with one
FEW, SOME = 200, 100  # iterations that are cheaper than a factor; and those with one
IMPATIENT, PATIENT = 50, 1000  # iterations without progress before giving up

# What is affordable, each in a few seconds and a few hundred megabytes.
GRAM_ENTRIES, GRAM_WORK = 4 * 10**7, 10**9
BAND_WORK = 2 * 10**11
DENSE_ROWS = 5000


class Way(NamedTuple):
    """How to solve a component by iteration."""

    name: str
    precondition: Apply
    most: int  # iterations
    patience: int  # iterations without progress before giving up
    enough: float  # the residual of a trial


@dataclass(frozen=True, eq=False)
class IterativeBlock:
    """One component solved by iteration.

    A singular G is no obstacle: C v lies in its range, and conjugate gradients stay there.
    """

    aim: ClassVar[float] = RESIDUAL
    block: Any  # its rows, on the columns it uses
    columns: Int64Array
    width: int  # the number of all columns
    rank: int
    spare: npt.NDArray[np.bool_]  # rows known to depend on others
    gram: Any | None  # G, sparse, where it is affordable
    way: Way

    def times(self, y: FloatArray) -> FloatArray:
        """G y."""
        if self.gram is not None and self.gram.nnz <= 4 * self.block.nnz:
            return np.asarray(self.gram @ y)
        return np.asarray(self.block @ (self.block.T @ y))

    def solve(self, residual: FloatArray, target: float) -> FloatArray:
        """A y with ‖G y − r‖ ≤ target, or as near as iterations come."""
        return conjugate_gradients(
            self.times,
            self.way.precondition,
            residual,
            target,
            most=self.way.most,
            patience=self.way.patience,
        )[0]

    def leverage(self) -> tuple[FloatArray, bool]:
        """cᵀ G⁺ c for every column c, or what it is at least."""
        keep = np.flatnonzero(~self.spare)
        gram = self.gram if self.gram is None else self.gram[keep][:, keep]
        found = exact_leverages(self.block, self.block[keep], gram, self.rank)
        out = np.zeros(self.width)
        out[self.columns] = least_leverages(self.block, self.gram) if found is None else found
        return out, found is not None


def iterative_block(
    block: Any, columns: Int64Array, width: int, rank: int, spare: npt.NDArray[np.bool_]
) -> IterativeBlock:
    """Choose how to solve one component, by trying it on a right side in its range."""
    gram = _gram(block)
    trial = np.asarray(block @ np.random.default_rng(0).standard_normal(block.shape[1]))
    size = norm(trial)
    for way in _ways(gram, block):
        made = IterativeBlock(block, columns, width, rank, spare, gram, way)
        y = made.solve(trial, RESIDUAL * size)
        if norm(trial - block @ (block.T @ y)) <= way.enough * size:
            return made
    raise InvariantError(
        f"The invariants are too close to dependent: {block.shape[0]:,} rows that share cells "
        "cannot be solved together. Drop rows that follow from others.",
        rows=block.shape[0],
    )


def _ways(gram: Any | None, block: Any) -> Iterator[Way]:
    """Ways to solve a component, cheapest first."""
    rows = block.shape[0]
    yield Way("conjugate gradients", _same, FEW, IMPATIENT, REACHED)
    if gram is not None:
        place, width = band_order(gram, block)
        narrow = 4 * width <= rows or rows > DENSE_ROWS
        if narrow and rows * width <= BAND_ENTRIES and rows * width**2 <= BAND_WORK:
            for factor in banded_factors(lower_band(gram, place, width)):
                solver = banded_solver(factor, place)
                yield Way("banded Cholesky", solver, SOME, IMPATIENT, REFINABLE)
    if rows <= DENSE_ROWS:
        for factor in dense_factors(dense_gram(block)):
            yield Way("dense Cholesky", dense_solver(factor), SOME, IMPATIENT, REFINABLE)
    patient = int(np.clip(10**10 // (2 * block.nnz), FEW, 20_000))
    yield Way("conjugate gradients", _same, patient, PATIENT, REACHED)


def _same(vector: FloatArray) -> FloatArray:
    """The Jacobi preconditioner: unit rows have a G of unit diagonal."""
    return vector


def _gram(block: Any) -> Any | None:
    """G as a sparse matrix, where it is affordable; its size is judged by some of its rows."""
    rows = block.shape[0]
    count = np.bincount(block.indices, minlength=1).astype(np.float64)
    if float(count @ count) > GRAM_WORK:
        return None
    sample = np.unique(np.linspace(0, rows - 1, 64).astype(np.int64))
    if (block[sample] @ block.T).nnz / sample.size * rows > GRAM_ENTRIES:
        return None
    out = (block @ block.T).tocsr()
    out.sort_indices()
    return out
