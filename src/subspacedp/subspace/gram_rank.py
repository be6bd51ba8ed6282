"""The rank of each component: by peeling, exact elimination, FLINT, or singular values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.components import Rows, connected, peel, used_columns
from subspacedp.subspace.gram import CLEAR, TOLERANCE, dense_gram, triangular

__all__ = ["UNKNOWN", "Ranks", "ranks_of"]

Int64Array = npt.NDArray[np.int64]

COARSE = 1e-14  # of eigenvalues of G, where singular values are not affordable
PRIVATE = 1e-3  # a real entry of a unit row below this is no column of its own
PRIME = 2**61 - 1

# What is affordable, each in a few seconds.
FEW_ROWS = 256  # without compiled code
ELIMINATION = 2 * 10**9  # entries combined
FLINT_EXACT, FLINT_MODULAR = 400, 1500  # rows of a square matrix
DENSE_ROWS, DENSE_WORK = 4000, 3 * 10**10

UNKNOWN = -1
EXACT = "exact over the rationals"
MODULAR = "modulo the prime 2**61 - 1, never above the true rank"
NUMERICAL = f"numerical, relative tolerance {TOLERANCE:g}"
NUMERICAL_COARSE = f"numerical, relative tolerance {COARSE**0.5:g}"
METHODS = (EXACT, MODULAR, NUMERICAL, NUMERICAL_COARSE)  # from certain to less so


@dataclass(frozen=True, eq=False)
class Ranks:
    """The rank of every component, UNKNOWN where it is out of reach."""

    component: Int64Array
    method: str
    spare: npt.NDArray[np.bool_]  # rows found to depend on others, not all of them


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
    core = matrix[left]
    label = connected(core)
    parent = np.zeros(label.max() + 1, np.int64)
    parent[label] = rows.component[left]
    found, undecided = np.zeros(parent.size, np.int64), np.ones(parent.size, bool)
    if integer and left.size > FEW_ROWS:
        state = _eliminated(core)
        spare[left[state == 0]] = True
        found = np.bincount(label[state == 1], minlength=parent.size)
        undecided = np.bincount(label[state == 2], minlength=parent.size) > 0
    methods = {EXACT}
    order = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label))
    for part in np.flatnonzero(undecided):
        first = ends[part - 1] if part else 0
        members = order[first : ends[part]]
        answer = _integer_rank(used_columns(core[members])[0]) if integer else None
        if answer is None:
            answer = _real_rank(used_columns(rows.matrix[left[members]])[0])
        found[part], method = answer
        methods.add(method)
    np.add.at(rank, parent, np.maximum(found, 0))
    rank[parent[found == UNKNOWN]] = UNKNOWN
    return Ranks(rank, max(methods, key=METHODS.index), spare)


def _eliminated(core: Any) -> npt.NDArray[np.uint8]:
    """For every row 0: depends on others, 1: independent, 2: not decided."""
    from subspacedp.subspace.gram_kernels import eliminate

    compact, columns = used_columns(core)
    return np.asarray(
        eliminate(
            compact.indptr.astype(np.int64),
            compact.indices.astype(np.int64),
            compact.data,
            columns.size,
            np.argsort(np.diff(compact.indptr), kind="stable"),
            np.bincount(compact.indices, minlength=columns.size),
            ELIMINATION,
        )
    )


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
        return UNKNOWN, NUMERICAL
    eigenvalues = np.linalg.eigvalsh(dense_gram(block if rows <= columns else block.T.tocsr()))
    if eigenvalues[0] >= CLEAR * eigenvalues[-1]:
        return bound, NUMERICAL
    if rows * columns * bound <= DENSE_WORK:
        values = np.linalg.svd(triangular(block), compute_uv=False)
        return int(np.sum(values > TOLERANCE * values[0])), NUMERICAL
    return int(np.sum(eigenvalues > COARSE * eigenvalues[-1])), NUMERICAL_COARSE
