"""All two-way margins of twenty axes, their one-way margins held, from ten million records.

The error on small domains is compared with the explicit optimal mechanism, and with the published
optimum of ResidualPlanner where nothing is held.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterator
from functools import reduce
from operator import and_
from pathlib import Path

import duckdb
import numpy as np

import subspacedp as sdp
from bench.memory import peak_beyond
from bench.timing import Ratio
from subspacedp.io import AxisColumn, open_source, tabulate_margins

ROWS = 10**7
SIZES = (2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 30, 35, 38, 40)
MEMORY = "1GB"
MOST_DESIGN, MOST_RELEASE, MOST_MEMORY = 10.0, 60.0, 2**31
SMALL = ((2, 3, 4), (3, 3, 5), (2, 2, 2, 3))

# Codes that depend on each other a little: margins that are not all alike.
_GENERATE = "CREATE TABLE records AS SELECT {columns} FROM range({rows}) AS t(i)"
_COLUMN = "((hash(i * 20 + {a}) % {n} + hash(i * 20 + {a} // 2) % 3) % {n})::UTINYINT AS x{a}"


def axes() -> list[AxisColumn]:
    """Twenty axes with 2 to 40 labels: more than 2⁶³ cells."""
    return [AxisColumn(sdp.Axis(f"x{a}", range(n))) for a, n in enumerate(SIZES)]


def workload(domain: sdp.Domain, order: int = 2) -> sdp.Margins:
    """All margins of one order."""
    names = [axis.name for axis in domain.axes]
    return sdp.Margins(domain, [list(c) for c in itertools.combinations(names, order)])


def run() -> Iterator[Ratio]:
    """Times, memory and errors."""
    columns = axes()
    domain = sdp.Domain([entry.axis for entry in columns])
    query = workload(domain)
    held = reduce(and_, (sdp.hold(axis.name) for axis in domain.axes))
    began = time.perf_counter()
    mechanism = sdp.design(query, held, sdp.ZCDP(0.5), mechanism="optimal", decimals=0)
    designed = time.perf_counter() - began
    note = (
        f"{designed:.1f} s for {len(query.margins)} margins of {float(domain.size):.1e} cells; "
        f"{mechanism.optimality()}, digits included"
    )
    yield Ratio("margins_design_time_over_10_s", designed / MOST_DESIGN, 1.0, False, note)
    yield from _released(mechanism, columns, query, held)
    yield from _errors()


def _released(
    mechanism: object, columns: list[AxisColumn], query: sdp.Margins, held: object
) -> Iterator[Ratio]:
    parts: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.duckdb"
        with duckdb.connect(str(path)) as con:
            con.execute("SET enable_progress_bar = false")
            listed = ", ".join(_COLUMN.format(a=a, n=n) for a, n in enumerate(SIZES))
            con.execute(_GENERATE.format(columns=listed, rows=ROWS))

        def release() -> object:
            began = time.perf_counter()
            with open_source(path, table="records", memory=MEMORY, scratch=Path(folder)) as source:
                found = tabulate_margins(source, columns, query, held)
            counted = time.perf_counter()
            made = mechanism.release(found.everything)
            parts.extend([counted - began, time.perf_counter() - counted])
            return made

        memory = peak_beyond(release)
    note = f"10⁷ records: counted in {parts[0]:.1f} s, released in {parts[1]:.1f} s"
    yield Ratio("margins_release_time_over_60_s", sum(parts) / MOST_RELEASE, 1.0, False, note)
    note = f"rises by {memory / 2**20:,.0f} MiB, DuckDB's {MEMORY} included"
    yield Ratio("margins_memory_over_2_gib", memory / MOST_MEMORY, 1.0, False, note)


def _errors() -> Iterator[Ratio]:
    worst, published = 0.0, 0.0
    budget = sdp.GaussianDP(0.1)
    for sizes in SMALL:
        domain = sdp.Domain([sdp.Axis(f"x{a}", range(n)) for a, n in enumerate(sizes)])
        for order in (1, 2):
            query = workload(domain, order)
            for relation in (sdp.AddRemoveOne(), sdp.ReplaceOne()):
                options = {"mechanism": "optimal", "neighbours": relation}
                ours = sdp.design(query, None, budget, **options).expected_error().total
                explicit = sdp.design(sdp.LinearQuery(_matrix(query)), None, budget, **options)
                worst = max(worst, abs(ours / explicit.expected_error().total - 1))
                if relation.persons == 1:
                    theirs = residual_planner(sizes, order) / budget.mu**2
                    published = max(published, ours / theirs)
    note = f"{len(SMALL)} domains, one- and two-way, both relations; the largest difference"
    yield Ratio("margins_error_from_explicit_optimum", worst, 1e-3, False, note)
    note = "rounding of the noise included"
    yield Ratio("margins_error_over_residual_planner", published, 1.0 + 1e-4, False, note)


def _matrix(query: sdp.Margins) -> np.ndarray:
    cells = np.eye(query.domain.size).reshape((-1, *query.domain.shape))
    return np.concatenate([np.stack([m.sum(c).ravel() for c in cells], 1) for m in query.margins])


def residual_planner(sizes: tuple[int, ...], order: int) -> float:
    """The published least sum of variances, add-remove and squared budget one."""
    coefficient: dict[tuple[int, ...], float] = {}
    for margin in itertools.combinations(range(len(sizes)), order):
        cells = math.prod(sizes[a] for a in margin)
        for r in range(order + 1):
            for part in itertools.combinations(margin, r):
                inner = math.prod((sizes[a] - 1) / sizes[a] for a in part)
                outer = math.prod(1 / sizes[a] ** 2 for a in margin if a not in part)
                coefficient[part] = coefficient.get(part, 0.0) + cells * inner * outer
    costs = {p: math.prod((sizes[a] - 1) / sizes[a] for a in p) for p in coefficient}
    return sum(math.sqrt(coefficient[p] * costs[p]) for p in costs) ** 2
