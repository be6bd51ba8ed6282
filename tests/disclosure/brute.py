"""Brute force: all tables of whole counts of a small domain, from the dense matrix alone."""

from functools import cache
from itertools import combinations_with_replacement

import numpy as np
from tests import dense


@cache
def tables(cells: int, records: int) -> np.ndarray:
    """All tables with that many records, one a row."""
    out = [
        np.bincount(chosen, minlength=cells)
        for chosen in combinations_with_replacement(range(cells), records)
    ]
    return np.array(out, np.int64).reshape(-1, cells)


def like(C: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """All tables with the invariants of a table; the invariants must fix its total."""
    flat = counts.reshape(-1)
    every = tables(flat.size, int(flat.sum()))
    return every[np.all(every @ C.T == C @ flat, axis=1)]


def smallest_records(C: np.ndarray, most: int = 4) -> int | None:
    """Half the least ‖z‖₁ with C z = 0 and Σ z = 0: two different tables with equal invariants."""
    for records in range(1, most + 1):
        every = tables(C.shape[1], records)
        if len(np.unique(every @ C.T, axis=0)) < len(every):
            return records
    return None


def values(domain, held, counts):
    """The held values of a table, as the package takes them."""
    return dense.residual(domain, held, counts)
