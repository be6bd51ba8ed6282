"""Standard errors of 10⁶ cells, and margins of error of 1000 figures with 10⁴ weights each."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

import subspacedp as sdp
from bench.memory import peak_beyond
from bench.timing import Ratio, best_times

SIDE = 100
FIGURES, WEIGHTS = 1000, 10**4


def run() -> Iterator[Ratio]:
    """Seconds, multiples of one copy, memory; then the exact law of many weights."""
    yield from _cells()
    yield from _functionals()


def _cells() -> Iterator[Ratio]:
    domain = sdp.Domain([sdp.Axis(name, range(SIDE)) for name in "abc"])
    held = sdp.hold("a", "b") & sdp.hold("a", "c") & sdp.hold("b", "c")
    table = sdp.Table(np.random.default_rng(1).integers(0, 30, domain.shape), domain)
    real = sdp.design(domain, held, sdp.PureDP(1.0)).release(table)
    digits = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0).release(table)
    source, target = real.stderr(), np.empty(domain.shape)
    digits.stderr()
    ours, whole, interval, copy = best_times(
        real.stderr,
        digits.stderr,
        real.interval,
        lambda: np.copyto(target, source),
        rounds=12,
    )
    note = f"{ours * 1e3:.1f} ms, {domain.size:,} cells, copy {copy * 1e3:.2f} ms"
    yield Ratio("stderr_seconds_of_a_million_cells", ours, 1.0, False, note)
    yield Ratio("stderr_time_over_copyto", ours / copy, 20.0, False, note)
    note = f"{whole * 1e3:.1f} ms with decimals=0"
    yield Ratio("stderr_digits_seconds_of_a_million_cells", whole, 1.0, False, note)
    note = f"{interval * 1e3:.1f} ms for both ends at 95 %"
    yield Ratio("interval_seconds_of_a_million_cells", interval, 1.0, False, note)
    beyond = peak_beyond(real.stderr) / source.nbytes
    yield Ratio("stderr_memory_over_table", beyond, 3.0, False, "multiples of the result")


def _functionals() -> Iterator[Ratio]:
    """Every figure has a law of its own: one transform a figure."""
    domain = sdp.Domain([sdp.Axis("a", range(100)), sdp.Axis("b", range(WEIGHTS // 100))])
    design = sdp.design(domain, sdp.hold("a"), sdp.PureDP(0.2)).mechanism
    rows = np.random.default_rng(2).random((FIGURES, *domain.shape))
    design.accuracy(rows[:2]).margin_of_error(0.95)
    start = time.perf_counter()
    design.accuracy(rows).margin_of_error(0.95)
    seconds = time.perf_counter() - start
    note = f"{seconds:.1f} s, {FIGURES:,} figures of {WEIGHTS:,} distinct weights, Laplace, 95 %"
    yield Ratio("thousand_margins_of_error_over_10_s", seconds / 10, 1.0, False, note)
