"""Intervals within limits beside clipped ones; weights of 10⁶ cells, and records of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import subspacedp as sdp
from bench.memory import peak_beyond
from bench.timing import Ratio, best_times
from subspacedp.microdata import ROWS, calibrate, write_records

RUNS = 20
RECORDS = 10**7


def run() -> Iterator[Ratio]:
    """Widths and coverage on Dallas, then seconds and memory."""
    yield from _intervals()
    yield from _records()


def _intervals() -> Iterator[Ratio]:
    """Dallas at ε = 0.192, tract × race held: widths over those of clipped ones, and misses."""
    table = sdp.datasets.dallas2010()
    design = sdp.design(table.domain, sdp.hold("tract", "race"), sdp.PureDP(0.192))
    within, clipped, missed = np.zeros(RUNS), np.zeros(RUNS), 0
    for run in range(RUNS):
        release = design.release(table)
        low, high = release.interval(0.95, inequalities=sdp.Inequalities())
        lower, upper = (np.maximum(end, 0.0) for end in release.interval(0.95))
        within[run], clipped[run] = (high - low).mean(), (upper - lower).mean()
        missed += int(np.count_nonzero((table.counts < low) | (table.counts > high)))
    ratio, share = within.mean() / clipped.mean(), missed / (RUNS * table.counts.size)
    note = f"{within.mean():.1f} beside {clipped.mean():.1f} clipped at zero, {RUNS} releases"
    yield Ratio("interval_width_within_limits_over_clipped", ratio, 0.8, False, note)
    note = f"{100 * share:.2f} % of {RUNS * table.counts.size:,} intervals miss"
    yield Ratio("interval_within_limits_misses_over_5_percent", share / 0.05, 1.0, False, note)


def _records() -> Iterator[Ratio]:
    domain = sdp.Domain([sdp.Axis(name, range(100)) for name in "abc"])
    counts = np.random.default_rng(1).poisson(RECORDS / domain.size, domain.shape)
    design = sdp.design(domain, sdp.hold("a"), sdp.PureDP(1.0), decimals=0, mechanism="projected")
    release = design.release(sdp.Table(counts, domain))
    margins = [("b",), ("a", "c")]
    (seconds,) = best_times(lambda: calibrate(release, counts, margins), rounds=3)
    note = f"{seconds:.2f} s, three margins, {domain.size:,} cells"
    yield Ratio("weights_seconds_of_a_million_cells", seconds, 2.0, False, note)
    weights = calibrate(release, counts, margins).values
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "records.parquet"

        def write() -> None:
            write_records(release.mechanism.query, counts, weights, parquet=path, csv=None)

        (seconds,) = best_times(write, rounds=2)
        size = path.stat().st_size / 1e6
        beyond = peak_beyond(write) / (ROWS * 8)
    note = f"{seconds:.1f} s, {counts.sum():,} rows with weights, {size:.0f} MB of Parquet"
    yield Ratio("records_seconds_of_ten_million", seconds, 10.0, False, note)
    note = "multiples of one column of one piece of rows"
    yield Ratio("records_memory_over_a_piece", beyond, 40.0, False, note)
