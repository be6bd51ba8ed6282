"""The rank of each component: by peeling, exact elimination, FLINT, or singular values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.invariants.matrix.components import Rows, connected, peel, used_columns
from subspacedp.invariants.matrix.gram import (
    CLEAR,
    TOLERANCE,
    conjugate_gradients,
    dense_gram,
    norm,
    triangular,
)

COARSE = 1e-14  # of eigenvalues of G, where singular values are not affordable
PRIVATE = 1e-3  # a real entry of a unit row below this is no column of its own
PRIME = 2**61 - 1

# What is affordable, each in a few seconds.
ELIMINATION = 5 * 10**8  # entries combined
FLINT_WORK = 2 * 10**7  # sum of cubes of rows that FLINT does before compiled code would load
FLINT_EXACT, FLINT_MODULAR = 400, 3000  # rows of a square matrix
DENSE_ROWS, DENSE_WORK = 2500, 3 * 10**10
PROBES, ITERATIONS, PROBED = 32, 1000, 1e-6

UNKNOWN = -1
EXACT = "exact over the rationals"
MODULAR = "modulo the prime 2**61 - 1, never above the true rank"
NUMERICAL = f"numerical, relative tolerance {TOLERANCE:g}"
NUMERICAL_COARSE = f"numerical, relative tolerance {COARSE**0.5:g}"
NUMERICAL_PROBED = "numerical, by random vectors"
METHODS = (EXACT, MODULAR, NUMERICAL, NUMERICAL_COARSE, NUMERICAL_PROBED)  # from certain to less so


@dataclass(frozen=True, eq=False)
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
    from subspacedp.invariants.kernels import eliminate

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
    if bound > DENSE_ROWS:
        return _probed_rank(block if rows <= columns else block.T.tocsr())
    eigenvalues = np.linalg.eigvalsh(dense_gram(block if rows <= columns else block.T.tocsr()))
    if eigenvalues[0] >= CLEAR * eigenvalues[-1]:
        return bound, NUMERICAL
    if rows * columns * bound <= DENSE_WORK:
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
