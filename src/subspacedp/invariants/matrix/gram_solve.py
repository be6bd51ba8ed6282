"""All components together: C z = r by refinement, and the diagonal of the projection.

Small components have a pseudo-inverse. Large ones are solved by conjugate gradients, with a
Cholesky factor where they need one; their part of the diagonal is exact where a factor is
affordable, and a bound elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.invariants.matrix.components import Rows, used_columns
from subspacedp.invariants.matrix.gram import (
    BAND_ENTRIES,
    CLEAR,
    ERROR,
    Apply,
    Block,
    DenseBlock,
    band_order,
    banded_factors,
    banded_solver,
    conjugate_gradients,
    dense_factors,
    dense_gram,
    dense_solver,
    leverages,
    lower_band,
    norm,
    root_by_eigenvectors,
    root_by_singular_vectors,
    small_blocks,
)
from subspacedp.invariants.matrix.gram_rank import UNKNOWN, Ranks

PROMISED = 1e-9  # the relative residual that counts as reached
ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of |C| |v|: what C v is worth
ROUNDS = 8  # of refinement
SMALL_ROWS, DENSE_ROWS = 32, 300  # components solved in stacks, and one by one
TALL = 3 * 10**7  # entries of a component of few columns and many rows

RESIDUAL = 1e-12  # what iterations aim at
REACHED, REFINABLE = 1e-11, 1e-6  # what a trial has to come to, without a factor and with one
FEW, SOME = 200, 100  # iterations that are cheaper than a factor; and those with one
IMPATIENT, PATIENT = 50, 1000  # iterations without progress before giving up

# What is affordable, each in a few seconds and a few hundred megabytes.
GRAM_ENTRIES, GRAM_WORK = 4 * 10**7, 10**9
BAND_WORK = 2 * 10**11
FACTORED_ROWS = 5000

EXACT = 1e-6  # what counts as exact, for each leverage
TRACE = 1e-6  # and for their sum
CHOLESKY_ROWS, EIGENVECTOR_ROWS = 3000, 1000
INVERSE_WORK = 10**10
POWERS = 20


class Dual:
    """G⁺ for unit rows, component by component."""

    def __init__(self, rows: Rows, ranks: Ranks) -> None:
        self.rows = rows
        self.blocks: list[tuple[slice, Block]] = list(_blocks(rows, ranks))

    def solve(self, residual: FloatArray, target: FloatArray) -> FloatArray:
        """A y with G y ≈ r; `target` is a norm for each component."""
        out = residual.copy()  # a single row has G = 1
        for part, block in self.blocks:
            at = self.rows.component[part.start]
            out[part] = block.solve(residual[part], float(target[at]))
        return out

    def reach(self, values: FloatArray, wanted: FloatArray) -> bool:
        """Move `values` within R, in place, until C values = wanted.

        Returns whether every component came to 1e-9 of where it started, or of |C| |values|.
        """
        rows = self.rows
        rest = wanted - rows.matrix @ values
        scale = rows.norms_of(np.abs(wanted) + rows.absolute @ np.abs(values))
        start = size = rows.norms_of(rest)
        target = np.maximum(self.aim * start, ROUNDING * scale)
        for _ in range(ROUNDS):
            unfinished = size > target
            if not unfinished.any():
                break
            rest[~unfinished[rows.component]] = 0.0
            moved = values + rows.matrix.T @ self.solve(rest, target / 2)
            after = wanted - rows.matrix @ moved
            now = rows.norms_of(after)
            if not np.any(now[unfinished] < size[unfinished] / 2):
                break
            values[:] = moved
            rest, size = after, now
        return bool(np.all(size <= PROMISED * np.maximum(start, scale)))

    @cached_property
    def aim(self) -> FloatArray:
        """The relative residual that each component aims at."""
        out = np.zeros(self.rows.components)
        for part, block in self.blocks:
            out[self.rows.component[part.start]] = block.aim
        return out

    @cached_property
    def diagonal(self) -> tuple[FloatArray, bool]:
        """diag(Π_N), and whether it is exact rather than an upper bound."""
        single = int(np.searchsorted(self.rows.sizes, 1, side="right"))
        alone = self.rows.matrix[:single]
        share: FloatArray = np.zeros(self.rows.matrix.shape[1])
        share[alone.indices] = alone.data**2
        exact = True
        for _, block in self.blocks:
            leverages, certain = block.leverage()
            share += leverages
            exact = exact and certain
        return np.clip(1.0 - share, 0.0, 1.0), exact


def _blocks(rows: Rows, ranks: Ranks) -> Iterator[tuple[slice, Block]]:
    """How each component of more than one row is solved."""
    single, small = np.searchsorted(rows.sizes, [1, SMALL_ROWS], side="right")
    closer = np.zeros(0, np.int64)
    if small > single:
        stacked, closer = small_blocks(rows, int(single), int(small), ranks.component)
        yield slice(int(rows.starts[single]), int(rows.starts[small])), stacked
    for component in [*closer.tolist(), *range(int(small), rows.components)]:
        part = slice(int(rows.starts[component]), int(rows.starts[component + 1]))
        whole = rows.block(component)
        compact, columns = used_columns(whole)
        rank, (count, width) = int(ranks.component[component]), compact.shape
        if count <= DENSE_ROWS:
            root = root_by_eigenvectors(compact, rank)
        elif width <= DENSE_ROWS and count * width <= TALL:
            root = None
        else:
            spare = ranks.spare[part]
            yield part, iterative_block(compact, columns, whole.shape[1], rank, spare)
            continue
        if root is None:
            root = root_by_singular_vectors(compact, rank)
        yield part, DenseBlock(whole, root)


# ------------------------------------------------------------------------ large components


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
    spare: BoolArray  # rows known to depend on others
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
        exact = exact_leverages(self.block, self.block[keep], gram, self.rank)
        out = np.zeros(self.width)
        out[self.columns] = least_leverages(self.block, self.gram) if exact is None else exact
        return out, exact is not None


def iterative_block(
    block: Any, columns: Int64Array, width: int, rank: int, spare: BoolArray
) -> IterativeBlock:
    """Choose how to solve one component, by trying it on a right side in its range."""
    gram = _gram(block)
    trial = np.asarray(block @ np.random.default_rng(0).standard_normal(block.shape[1]))
    size = norm(trial)
    for way in _ways(gram, block):
        solver = IterativeBlock(block, columns, width, rank, spare, gram, way)
        y = solver.solve(trial, RESIDUAL * size)
        if norm(trial - block @ (block.T @ y)) <= way.enough * size:
            return solver
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
        narrow = 4 * width <= rows or rows > FACTORED_ROWS
        if narrow and rows * width <= BAND_ENTRIES and rows * width**2 <= BAND_WORK:
            for factor in banded_factors(lower_band(gram, place, width)):
                solver = banded_solver(factor, place)
                yield Way("banded Cholesky", solver, SOME, IMPATIENT, REFINABLE)
    if rows <= FACTORED_ROWS:
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


# --------------------------------------------------------------- leverages of large components


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
    The leverages sum to the trace of Π_R, which is the rank. What a singular G costs shows in that
    sum. What rounding may have added is taken off: with G known to ‖E‖ = eps ‖G‖, cᵀ G⁻¹ c is off
    by cᵀ G⁻¹ E G⁻¹ c, at most ‖E‖/λ of it for the smallest eigenvalue λ.
    """
    if rank == UNKNOWN:
        return None
    for candidate, error in _candidates(block, independent, gram, rank):
        if error <= EXACT and abs(float(candidate.sum()) - rank) <= TRACE:
            return candidate * (1 - error)
    return None


def _candidates(
    block: Any, independent: Any, gram: Any | None, rank: int
) -> Iterator[tuple[FloatArray, float]]:
    if independent.shape[0] == rank:
        if gram is not None:
            yield from _banded(independent, gram)
        if rank <= CHOLESKY_ROWS:
            yield from _dense(independent)
    if block.shape[0] <= EIGENVECTOR_ROWS:
        root = root_by_eigenvectors(block, rank)
        if root is not None:
            yield leverages(block, root), ERROR / CLEAR


def _banded(block: Any, gram: Any) -> Iterator[tuple[FloatArray, float]]:
    """From the entries of G⁻¹ inside the band, where all pairs of rows with a common column are."""
    place, width = band_order(gram, block)
    rows = place.size
    wide = 4 * width > rows and rows <= CHOLESKY_ROWS
    if wide or rows * width > BAND_ENTRIES or rows * width**2 > INVERSE_WORK:
        return
    from subspacedp.invariants.kernels import band_forms, band_of_inverse

    factor = next(banded_factors(lower_band(gram, place, width)), None)
    if factor is not None:
        columns = block.tocsc()
        inverse = band_of_inverse(np.ascontiguousarray(factor.T))
        forms = band_forms(columns.indptr, place[columns.indices], columns.data, inverse)
        yield forms, ERROR * _condition(gram, banded_solver(factor, place))


def _dense(block: Any) -> Iterator[tuple[FloatArray, float]]:
    """‖L⁻¹ c‖² for G = L Lᵀ."""
    from scipy.linalg.lapack import dtrtri

    gram = dense_gram(block)
    factor = next(dense_factors(gram), None)
    if factor is not None:
        inverse, _ = dtrtri(factor, lower=1)
        forms = leverages(block, np.ascontiguousarray(np.tril(inverse).T))
        yield forms, ERROR * _condition(gram, dense_solver(factor))


def _condition(gram: Any, solve: Apply) -> float:
    """The condition of G by power iterations on G⁻¹, from below but near; ‖G‖ from above."""
    vector = np.random.default_rng(0).standard_normal(gram.shape[0])
    largest = 0.0
    for _ in range(POWERS):
        vector = solve(vector / norm(vector))
        largest = max(largest, norm(vector))
    return largest * float(np.asarray(abs(gram).sum(axis=1)).max())


def least_leverages(block: Any, gram: Any | None) -> FloatArray:
    """‖c‖⁴ / cᵀ G c ≤ cᵀ G⁺ c for every column c (Cauchy–Schwarz).

    Where G is out of reach, cᵀ G c ≤ Σ_j c_j² Σ_k (|C| |C|ᵀ)_jk takes its place, which only lowers
    the bound.
    """
    columns = block.tocsc()
    norm = np.add.reduceat(columns.data**2, columns.indptr[:-1])
    if gram is not None:
        from subspacedp.invariants.kernels import sparse_forms

        form = sparse_forms(
            columns.indptr, columns.indices, columns.data, gram.indptr, gram.indices, gram.data
        )
    else:
        absolute = abs(block)
        reach = absolute @ np.asarray(absolute.sum(axis=0)).reshape(-1)
        form = block.multiply(block).T @ reach
    return np.asarray(norm**2 / form * (1 - 1e-12))  # a hair lower, for rounding error
