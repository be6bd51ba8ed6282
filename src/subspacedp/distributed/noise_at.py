"""The noise of some cells of a table, and of no others: random access to keyed words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from subspacedp.noise import Keystream, KnownLaw, ReleaseKeys, draw
from subspacedp.noise.draw import REFINEMENT_STRIDE, lookup_of
from subspacedp.noise.thresholds import refine

__all__ = ["noise_at", "words_at"]

Int64Array = npt.NDArray[np.int64]

SPAN = 1 << 16  # words fetched at a time
LONG = 1 << 12  # cells in a row, on average, that are worth the kernels of `draw`


def noise_at(law: KnownLaw, keys: ReleaseKeys, cells: Int64Array) -> Int64Array:
    """The noise of cells given by their numbers, in increasing order.

    Guarantees
    ----------
    1. Cell i gets the very noise that `draw` gives it in a stretch with other cells.
    2. The noise of no other cell is computed.
    """
    if not cells.size:
        return np.zeros(0, np.int64)
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    if cells.size >= LONG * (breaks.size + 1):
        runs = np.split(cells, breaks)
        return np.concatenate([draw(law, keys, int(run[0]), run.size) for run in runs])
    out = np.zeros(cells.size, np.int64)
    for i, (weight, part) in enumerate(law.components()):
        words = words_at(keys.stream(f"noise/{i}"), cells)
        more = keys.stream(f"refinement/{i}")
        lookup = lookup_of(part)
        values, open_ = lookup.lookup(words)
        for j in open_.tolist():
            own = _refinement(more, int(cells[j]))
            values[j] = refine(part, int(words[j]), own, int(values[j]))
        out += weight * values
    return out


def words_at(stream: Keystream, places: Int64Array) -> npt.NDArray[np.uint64]:
    """The words at some places, in increasing order; what lies between them is skipped over."""
    out = np.empty(places.size, np.uint64)
    at = 0
    while at < places.size:
        first = int(places[at])
        stop = int(np.searchsorted(places, first + SPAN))
        span = stream.words(first, int(places[stop - 1]) - first + 1)
        out[at:stop] = span[places[at:stop] - first]
        at = stop
    return out


def _refinement(more: Keystream, cell: int) -> Callable[[int], int]:
    return lambda k: int(more.words(cell * REFINEMENT_STRIDE + k, 1)[0])
