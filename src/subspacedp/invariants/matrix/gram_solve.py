"""All components together: C z = r by refinement, and the diagonal of the projection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.invariants.matrix.components import Rows, used_columns
from subspacedp.invariants.matrix.gram import (
    Block,
    DenseBlock,
    root_by_eigenvectors,
    root_by_singular_vectors,
    small_blocks,
)
from subspacedp.invariants.matrix.gram_iterative import iterative_block
from subspacedp.invariants.matrix.gram_rank import Ranks

__all__ = ["Dual"]

FloatArray = npt.NDArray[np.float64]

PROMISED = 1e-9  # the relative residual that counts as reached
ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of |C| |v|: what C v is worth
ROUNDS = 8  # of refinement
SMALL_ROWS, DENSE_ROWS = 32, 300  # components solved in stacks, and one by one
TALL = 3 * 10**7  # entries of a component of few columns and many rows


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
            found, certain = block.leverage()
            share += found
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
