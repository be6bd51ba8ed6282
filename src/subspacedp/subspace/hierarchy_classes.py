"""Groups of a nested axis that no relabelling tells apart: their errors have one law."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.hierarchy import LevelTree
from subspacedp.tables import Axis

__all__ = ["place_classes"]

Int64Array = npt.NDArray[np.int64]


def place_classes(axis: Axis, steps: tuple[int, ...], step: int) -> Int64Array:
    """A number for every group of a level; equal numbers mean that a symmetry swaps the groups.

    Parameters
    ----------
    axis
        The axis.
    steps
        The levels that matter.
    step
        The level of the groups.

    Notes
    -----
    Two groups have one form when their parts, level by level, have the same forms equally often;
    they have one place when they have one form and their wholes have one place. Then exchanging
    wholes, and parts of equal form within them, is a symmetry of the tree that takes one group to
    the other. Groups without labels get the number −1.
    """
    tree = LevelTree(axis, tuple(sorted({0, *steps, step, axis.depth - 1})))
    level = tree.steps.index(step)
    forms = _forms(tree)
    place = np.zeros(1, np.int64)
    for i in range(tree.top, level, -1):
        place = tree.down(i, place)
        if i > 1:
            pairs = place * (int(forms[i - 1].max()) + 1) + forms[i - 1]
            place = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    out = np.full(axis.step(step).groups, -1, np.int64)
    out[tree.ids[level]] = place
    return out


def _forms(tree: LevelTree) -> list[Int64Array]:
    """For every level from 1 on the form of each node; labels have one form."""
    out = [np.zeros(0, np.int64)]
    for i in range(1, tree.top + 1):
        if i == 1:
            out.append(np.unique(tree.parts[1], return_inverse=True)[1].reshape(-1))
            continue
        wholes = tree.down(i, np.arange(tree.nodes(i)))
        order = np.lexsort([out[-1], wholes])
        ordered, first = out[-1][order], np.cumsum(tree.parts[i]) - tree.parts[i]
        known: dict[bytes, int] = {}
        found = [
            known.setdefault(ordered[at : at + size].tobytes(), len(known))
            for at, size in zip(first.tolist(), tree.parts[i].tolist(), strict=True)
        ]
        out.append(np.array(found, np.int64))
    return out
