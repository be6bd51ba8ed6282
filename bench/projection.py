"""Projection of 10⁸ cells on three two-way margins against one copy of the table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import subspacedp as sdp
from bench.memory import peak_beyond
from bench.timing import Ratio, best_times

SIDE = 464


def three_margins(side: int = SIDE) -> tuple[sdp.Domain, object]:
    """A cube with all its two-way margins held."""
    domain = sdp.Domain([sdp.Axis(name, range(side)) for name in "abc"])
    return domain, sdp.hold("a", "b") & sdp.hold("a", "c") & sdp.hold("b", "c")


def run() -> Iterator[Ratio]:
    """Time and memory."""
    domain, held = three_margins()
    space = sdp.null_space(domain, held)
    table = np.random.default_rng(1).normal(size=domain.shape)
    other = np.empty_like(table)
    space.project(table, overwrite=True)
    np.copyto(other, table)
    ours, copy = best_times(
        lambda: space.project(table, overwrite=True), lambda: np.copyto(other, table), rounds=12
    )
    note = f"ours {ours:.3f} s, copy {copy:.3f} s, {domain.size:,} cells"
    yield Ratio("projection_time_over_copyto", ours / copy, 2.0, False, note)
    beyond = peak_beyond(lambda: space.project(table, overwrite=True)) / table.nbytes
    yield Ratio("projection_memory_beyond_table", beyond, 0.05, False, "share of the table")
