"""All components together: ranks, C z = r by refinement, and the diagonal of the projection.

Small components have a pseudo-inverse. Large ones are solved by conjugate gradients, with a
Cholesky factor where they need one; their part of the diagonal is exact where a factor is
affordable, and a bound elsewhere. A component's rank is
found by peeling, exact elimination, FLINT, or singular values.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants.components import Rows, connected, peel, used_columns
from subspacedp.invariants.gram import (
    BAND_ENTRIES,
    CLEAR,
    ERROR,
    TOLERANCE,
    Apply,
    Block,
    DenseBlock,
    band_forms,
    band_of_inverse,
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
    sparse_forms,
    triangular,
)
from subspacedp.parallel import kernel

# Ranks
COARSE = 1e-14  # of eigenvalues of G, where singular values are not affordable
PRIVATE = 1e-3  # a real entry of a unit row below this is no column of its own
PRIME = 2**61 - 1
LARGEST = 2**30  # products of two such numbers, and their sums, stay within 63 bits
# What is affordable, each in a few seconds.
ELIMINATION = 5 * 10**8  # entries combined
FLINT_WORK = 2 * 10**7  # sum of cubes of rows that FLINT does before compiled code would load
FLINT_EXACT, FLINT_MODULAR = 400, 3000  # rows of a square matrix
SPECTRAL_ROWS, SPECTRAL_WORK = 2500, 3 * 10**10  # by eigenvalues or singular values
PROBES, ITERATIONS, PROBED = 32, 1000, 1e-6

UNKNOWN = -1
EXACT = "exact over the rationals"
MODULAR = "modulo the prime 2**61 - 1, never above the true rank"
NUMERICAL = f"numerical, relative tolerance {TOLERANCE:g}"
NUMERICAL_COARSE = f"numerical, relative tolerance {COARSE**0.5:g}"
NUMERICAL_PROBED = "numerical, by random vectors"
METHODS = (EXACT, MODULAR, NUMERICAL, NUMERICAL_COARSE, NUMERICAL_PROBED)  # from certain to less so

# Solutions
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
LEVERAGE_ERROR = 1e-6  # what counts as exact, for each leverage
TRACE = 1e-6  # and for their sum
CHOLESKY_ROWS, EIGENVECTOR_ROWS = 3000, 1000
INVERSE_WORK = 10**10
POWERS = 20


@frozen(eq=False)
class Ranks:
    """The rank of every component, UNKNOWN where it is out of reach."""

    component: Int64Array
    method: str
    spare: BoolArray  # rows found to depend on others, not all of them


def ranks_of(rows: Rows) -> Ranks:
    """The ranks of all components, and the least certain of the ways they were found.

    Notes
    -----
    Rows that peel off count one each. What is left splits into components again, and each of these
    cores is decided on its own: integers exactly, real numbers by singular values.
    """
    integer = rows.whole.dtype.kind == "i"
    matrix: Any = rows.whole[rows.source] if integer else rows.matrix
    left = peel(matrix, 0.0 if integer else PRIVATE)
    rank = rows.sizes - np.bincount(rows.component[left], minlength=rows.components)
    spare = np.zeros(rows.source.size, bool)
    if not left.size:
        return Ranks(rank, EXACT, spare)
    core, _ = used_columns(matrix[left])
    label = connected(core)
    parent = np.zeros(label.max() + 1, np.int64)
    parent[label] = rows.component[left]
    core_ranks, undecided = np.zeros(parent.size, np.int64), np.ones(parent.size, bool)
    if integer and np.sum(np.bincount(label).astype(np.float64) ** 3) > FLINT_WORK:
        core_ranks, undecided, spare[left] = _eliminated(core, label)
    methods = {EXACT}
    order = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label))
    for part in np.flatnonzero(undecided):
        members = order[ends[part - 1] if part else 0 : ends[part]]
        answer = _integer_rank(used_columns(core[members])[0]) if integer else None
        if answer is None:
            answer = _real_rank(used_columns(rows.matrix[left[members]])[0])
        core_ranks[part], method = answer
        methods.add(method)
    np.add.at(rank, parent, np.maximum(core_ranks, 0))
    rank[parent[core_ranks == UNKNOWN]] = UNKNOWN
    return Ranks(rank, max(methods, key=METHODS.index), spare)


def _eliminated(core: Any, label: Int64Array) -> tuple[Int64Array, BoolArray, BoolArray]:
    """The rank of every core, those left undecided, and rows that depend on others."""
    rows, columns = core.shape
    of_column = np.zeros(columns, np.int64)
    of_column[core.indices] = np.repeat(label, np.diff(core.indptr))
    bound = np.minimum(np.bincount(label), np.bincount(of_column))
    core_ranks, undecided, spare = (
        np.zeros_like(bound),
        np.ones(bound.size, bool),
        np.zeros(rows, bool),
    )
    # Rank by rows is rank by columns; the more numerous are the sparser and stay so for longer.
    for by_columns in (columns > rows, columns <= rows):
        vectors: Any = core.T.tocsr() if by_columns else core
        part, length = (of_column, rows) if by_columns else (label, columns)
        state, places = eliminate(
            vectors.indptr.astype(np.int64),
            vectors.indices.astype(np.int64),
            vectors.data,
            length,
            np.argsort(np.diff(vectors.indptr), kind="stable"),
            np.bincount(vectors.indices, minlength=length),
            ELIMINATION,
        )
        core_ranks = np.bincount(part[state == 1], minlength=bound.size)
        undecided = (np.bincount(part[state == 2], minlength=bound.size) > 0) & (core_ranks < bound)
        spare[:] = True
        spare[places if by_columns else state > 0] = False
        spare[undecided[label]] = False
        if not undecided.any():
            break
    return core_ranks, undecided, spare


def _integer_rank(block: Any) -> tuple[int, str] | None:
    """The rank of an integer matrix, or of its Gram matrix, which is the same; None: too large."""
    from flint import fmpz_mat, nmod_mat

    rows, columns = block.shape
    bound = min(rows, columns)
    if columns > rows and int(np.abs(block.data).max()) ** 2 * columns < 2**62:
        block = block @ block.T
    if bound > FLINT_MODULAR or block.shape[0] * block.shape[1] > 4 * FLINT_MODULAR**2:
        return None
    exact = fmpz_mat(block.toarray().tolist())
    # A rank modulo a prime is never above the true one, so one that reaches the bound is exact.
    modular = int(nmod_mat(exact, PRIME).rank())
    if modular == bound:
        return modular, EXACT
    return (int(exact.rank()), EXACT) if bound <= FLINT_EXACT else (modular, MODULAR)


def _real_rank(block: Any) -> tuple[int, str]:
    """The number of singular values of unit rows above the tolerance."""
    rows, columns = block.shape
    bound = min(rows, columns)
    if bound > SPECTRAL_ROWS:
        return _probed_rank(block if rows <= columns else block.T.tocsr())
    eigenvalues = np.linalg.eigvalsh(dense_gram(block if rows <= columns else block.T.tocsr()))
    if eigenvalues[0] >= CLEAR * eigenvalues[-1]:
        return bound, NUMERICAL
    if rows * columns * bound <= SPECTRAL_WORK:
        values = np.linalg.svd(triangular(block), compute_uv=False)
        return int(np.sum(values > TOLERANCE * values[0])), NUMERICAL
    return int(np.sum(eigenvalues > COARSE * eigenvalues[-1])), NUMERICAL_COARSE


def _probed_rank(block: Any) -> tuple[int, str]:
    """The rank by random vectors less their part in the range of G.

    The parts of k random vectors in the null space of G are independent as long as it has at least
    k dimensions, and span it otherwise; usually none has any, and one vector says so.
    """

    def times(y: FloatArray) -> FloatArray:
        return np.asarray(block @ (block.T @ y))

    rows = block.shape[0]
    generator = np.random.default_rng(0)
    outside: list[FloatArray] = []
    while len(outside) < PROBES:
        probe = generator.standard_normal(rows)
        probe /= norm(probe)
        wanted = times(probe)
        target = PROBED**2 * norm(wanted)
        inside, reached, _ = conjugate_gradients(
            times, lambda v: v, wanted, target, most=ITERATIONS, patience=ITERATIONS
        )
        if reached > target:
            break
        outside.append(probe - inside)
        values = np.linalg.svd(np.array(outside), compute_uv=False)
        missing = int(np.sum(values > PROBED))
        if missing < len(outside):
            return rows - missing, NUMERICAL_PROBED
    return UNKNOWN, NUMERICAL_PROBED


@kernel
def _gcd(a: Any, b: Any) -> Any:
    a, b = abs(a), abs(b)
    while b:
        a, b = b, a % b
    return a


@kernel
def eliminate(
    starts: Any, places: Any, data: Any, width: Any, order: Any, count: Any, budget: Any
) -> Any:
    """Which vectors of integers depend on vectors before them, in exact arithmetic.

    Sparse fraction-free Gaussian elimination, a vector at a time. A pivot vector has zeros in the
    pivot places of earlier ones, so a new vector is reduced by them in the order they were found.

    Parameters
    ----------
    starts, places, data
        The vectors: where each starts, and the place and value of every entry.
    width
        The length of a vector.
    order
        The order of the vectors, sparse ones first.
    count
        The number of entries at each place; pivots are taken where it is small.
    budget
        How many entries may be combined before giving up.

    Returns
    -------
    tuple
        For each vector 0: depends on others, 1: independent, 2: not decided, because a number left
        its 30 bits or the budget is spent; and the pivot places, where the independent vectors are
        independent too.
    """
    state = np.full(starts.size - 1, 2, np.uint8)
    pivot_of = np.full(width, -1, np.int64)  # the pivot vector of each place
    place_of = np.empty(starts.size - 1, np.int64)  # the pivot place of each of them
    at = np.zeros(starts.size, np.int64)  # where they start in the pool
    pool_places = np.empty(2 * places.size + 16, np.int64)
    pool_data = np.empty(2 * places.size + 16, np.int64)
    work = np.zeros(width, np.int64)
    seen = np.zeros(width, np.bool_)
    touched = np.empty(width, np.int64)
    independent = 0
    for i in order:
        if budget < 0:
            break
        if independent == width:
            state[i] = 0
            continue
        size, fits = 0, True
        heap = [np.int64(-1)]
        heap.clear()
        for e in range(starts[i], starts[i + 1]):
            p = places[e]
            work[p], seen[p], touched[size] = data[e], True, p
            size += 1
            fits = fits and abs(data[e]) <= LARGEST
            if pivot_of[p] >= 0:
                heapq.heappush(heap, pivot_of[p])
        while heap and fits:
            k = heapq.heappop(heap)
            value = work[place_of[k]]
            if value == 0:
                continue
            pivot = pool_data[at[k]]
            common = _gcd(value, pivot)
            times, factor = pivot // common, value // common
            budget -= at[k + 1] - at[k]
            if times != 1:
                budget -= size
                for t in range(size):
                    work[touched[t]] *= times
            for e in range(at[k], at[k + 1]):
                p = pool_places[e]
                if not seen[p]:
                    seen[p], touched[size] = True, p
                    size += 1
                    if pivot_of[p] >= 0:
                        heapq.heappush(heap, pivot_of[p])
                work[p] -= factor * pool_data[e]
                fits = fits and abs(work[p]) <= LARGEST
            if times != 1:
                for t in range(size):
                    fits = fits and abs(work[touched[t]]) <= LARGEST
        if fits:
            content, entries = np.int64(0), 0
            for t in range(size):
                if work[touched[t]] != 0:
                    content = _gcd(work[touched[t]], content)
                    entries += 1
            state[i] = 1 if entries else 0
            if entries:
                best = np.int64(-1)
                if at[independent] + entries > pool_data.size:
                    more_places = np.empty(2 * pool_data.size + entries, np.int64)
                    more_data = np.empty(2 * pool_data.size + entries, np.int64)
                    more_places[: at[independent]] = pool_places[: at[independent]]
                    more_data[: at[independent]] = pool_data[: at[independent]]
                    pool_places, pool_data = more_places, more_data
                end = at[independent]
                for t in range(size):
                    p = touched[t]
                    if work[p] == 0:
                        continue
                    pool_places[end], pool_data[end] = p, work[p] // content
                    # Small pivots keep numbers small, rare places keep vectors short.
                    if best < 0 or (abs(pool_data[end]), count[p]) < (
                        abs(pool_data[best]), count[pool_places[best]]
                    ):  # fmt: skip
                        best = end
                    end += 1
                first = at[independent]
                p, value = pool_places[best], pool_data[best]
                pool_places[best], pool_data[best] = pool_places[first], pool_data[first]
                pool_places[first], pool_data[first] = p, value
                if value < 0:
                    for e in range(first, end):
                        pool_data[e] = -pool_data[e]
                pivot_of[p], place_of[independent] = independent, p
                independent += 1
                at[independent] = end
        for t in range(size):
            work[touched[t]], seen[touched[t]] = 0, False
    return state, place_of[:independent]


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


@frozen(eq=False)
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
        if error <= LEVERAGE_ERROR and abs(float(candidate.sum()) - rank) <= TRACE:
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
        form = sparse_forms(
            columns.indptr, columns.indices, columns.data, gram.indptr, gram.indices, gram.data
        )
    else:
        absolute = abs(block)
        reach = absolute @ np.asarray(absolute.sum(axis=0)).reshape(-1)
        form = block.multiply(block).T @ reach
    return np.asarray(norm**2 / form * (1 - 1e-12))  # a hair lower, for rounding error
