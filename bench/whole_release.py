"""A whole release of 464³ cells against the time NumPy takes to draw as many floats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import subspacedp as sdp
from bench.memory import peak_beyond
from bench.projection import three_margins
from bench.timing import Ratio, best_times


def run() -> Iterator[Ratio]:
    """Time and memory of the integer release; the real one beside it."""
    domain, held = three_margins()
    generator = np.random.default_rng(1)
    table = sdp.Table(generator.integers(0, 100, size=domain.shape), domain)
    budget = sdp.PureDP(1.0)
    whole = sdp.design(domain, held, budget, neighbours=sdp.AddRemoveOne(), decimals=0)
    real = sdp.design(domain, held, budget, neighbours=sdp.AddRemoveOne())
    whole.release(table)
    real.release(table)
    floats = np.empty(domain.size)

    def numpy_draws() -> None:
        # In pieces, so that NumPy is not charged for fresh memory.
        for at in range(0, domain.size, 1 << 20):
            part = floats[at : at + (1 << 20)]
            part[:] = generator.laplace(size=part.size)

    ours, ours_real, numpy = best_times(
        lambda: whole.release(table), lambda: real.release(table), numpy_draws, rounds=4
    )
    note = f"ours {ours:.2f} s, NumPy's draws alone {numpy:.2f} s, {domain.size:,} cells"
    yield Ratio("release_integers_time_over_numpy_laplace", ours / numpy, 0.5, False, note)
    note = f"ours {ours_real:.2f} s, NumPy's draws alone {numpy:.2f} s"
    yield Ratio("release_real_time_over_numpy_laplace", ours_real / numpy, 0.5, False, note)
    size = table.counts.nbytes
    peak = (size + peak_beyond(lambda: whole.release(table))) / size
    yield Ratio("release_integers_peak_memory_over_table", peak, 2.2, False, "table included")
