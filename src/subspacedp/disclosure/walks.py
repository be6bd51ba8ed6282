"""Tables near a table: small moves that keep every margin show that cells are wide.

From one table of counts with the held totals, the move of docs/proofs/disclosure.md (a product of
differences on a few axes) leads to others. Tried at random for all cells at once, they spare most
cells a linear program. What is found is certain; what is not found means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from subspacedp.disclosure.moves import random_corners, untold_sets
from subspacedp.tables import Domain, Margin

__all__ = ["Walk", "walk_of"]

Int64Array = npt.NDArray[np.int64]
# From a table, the most that each cell may have, and the numbers of some cells, to the least and
# the most found possible there.
Walk = Callable[[Int64Array, Int64Array, Int64Array], tuple[Int64Array, Int64Array]]

ROUNDS = 40


def walk_of(domain: Domain, margins: Sequence[Margin]) -> Walk:
    """How far cells can move away from a table, as far as random moves show."""
    sets = untold_sets(domain, margins)
    rng = np.random.default_rng(0)

    def walk(
        table: Int64Array, upper: Int64Array, cells: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        least, most = table[cells].copy(), table[cells].copy()
        for number in range(ROUNDS if sets and sets[0] else 0):
            corners, moves = random_corners(domain, sets[number % len(sets)], cells, rng)
            down = np.full(cells.size, np.iinfo(np.int64).max)
            up = down.copy()
            for corner, sign in corners:  # of the same sign: falls when the cell falls
                falls, rises = table[corner], upper[corner] - table[corner]
                np.minimum(down, falls if sign > 0 else rises, out=down)
                np.minimum(up, rises if sign > 0 else falls, out=up)
            np.minimum(least, np.where(moves, table[cells] - down, least), out=least)
            np.maximum(most, np.where(moves, table[cells] + up, most), out=most)
        return least, most

    return walk
