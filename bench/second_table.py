"""Tables without negative values on public data: their errors, and the time for a million cells."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

import subspacedp as sdp
from bench.timing import Ratio
from studies.solvers import nearest_with_total

EPSILON, RUNS, SMALL = 0.192, 50, 10
SIDE = 1000
# Squared error of a cell, of cells below ten people, and what their sum is off by on average.
TARGETS = {"texas": (146.0, 33.0, 748.0), "dallas": (121.0, 23.0, 40.0)}


def run() -> Iterator[Ratio]:
    """Errors less two standard errors beside what was asked for; nearness beside a projection."""
    for name, table in (("texas", sdp.datasets.texas2010()), ("dallas", sdp.datasets.dallas2010())):
        place = table.domain.axes[0].name
        yield from _errors(name, table, sdp.hold(), "total", RUNS)
        yield from _errors(name, table, sdp.hold(place), "places", RUNS // 5)
    yield _million(sdp.hold("a"), "second_table_seconds_of_a_million_cells")
    both = sdp.hold("a") & sdp.hold("b")
    yield _million(both, "second_table_seconds_of_a_million_cells_two_margins")


def _errors(name: str, table: sdp.Table, held: sdp.Held, what: str, runs: int) -> Iterator[Ratio]:
    truth, small = table.counts, table.counts < SMALL
    design = sdp.design(table.domain, held, sdp.PureDP(EPSILON))
    measured = []
    for seed in range(runs):
        release = design.release(table, seed=seed)
        error = sdp.inference.non_negative(release) - truth
        if not release.mechanism.held.agrees(error + truth, release.exact):
            raise RuntimeError("A held total is missed.")
        rows = release.values.reshape((1 if what == "total" else len(truth), -1))
        totals = release.exact[0].reshape(-1)
        near = [nearest_with_total(row, t) for row, t in zip(rows, totals, strict=True)]
        projected = np.reshape(near, truth.shape) - truth
        both = [np.mean(error**2), np.mean(error[small] ** 2), error[small].sum()]
        measured.append([*both, np.mean(projected**2)])
    figures = np.array(measured)
    mean, off = figures.mean(axis=0), figures.std(axis=0, ddof=1) / np.sqrt(runs)
    note = f"{runs} runs, {what} held: {mean[0]:.1f} ± {off[0]:.1f}"
    ratio = float(mean[0] / mean[3])
    yield Ratio(f"second_table_{name}_{what}_beside_projection", ratio, 1.0, False,
                f"{note}, the nearest table {mean[3]:.1f}")  # fmt: skip
    if what != "total":
        return
    labels = ("squared_error", "squared_error_of_small_cells", "bias_of_the_sum_of_small_cells")
    for i, (label, target) in enumerate(zip(labels, TARGETS[name], strict=True)):
        value = max(0.0, abs(float(mean[i])) - 2 * float(off[i]))
        note = f"{mean[i]:.1f} ± {off[i]:.1f} over {runs} runs, asked for {target:g}"
        yield Ratio(f"second_table_{name}_{label}", value / target, 1.0, False, note)


def _million(held: sdp.Held, name: str) -> Ratio:
    domain = sdp.Domain([sdp.Axis(name, range(SIDE)) for name in "ab"])
    rng = np.random.default_rng(1)
    table = sdp.Table(rng.poisson(rng.gamma(0.5, 6.0, domain.shape)), domain)
    release = sdp.design(domain, held, sdp.PureDP(EPSILON)).release(table, seed=1)
    start = time.process_time()
    sdp.inference.non_negative(release)
    spent = time.process_time() - start
    note = f"{domain.size:,} cells, {held!r}, processor time"
    return Ratio(name, spent, 10.0, False, note)
