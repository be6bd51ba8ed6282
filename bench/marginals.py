"""Margins at the levels of a tree: a nation at full size, a million leaves, and errors.

Nation, states, counties and tracts × race, age and Hispanic: totals, voting age and race × Hispanic
at all four levels, state totals held. Errors on small trees are compared with the semidefinite
optimum of all Gaussian noise, and with ResidualPlanner's published optimum where there is no tree.
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
from typing import Any

import duckdb
import numpy as np

import subspacedp as sdp
from bench.memory import peak_beyond
from bench.timing import Ratio, best_times
from subspacedp.io import AxisColumn, open_source, tabulate_margins
from subspacedp.mechanisms.covariance import best_covariance
from subspacedp.mechanisms.marginals import MarginalsOptions

TRACTS, COUNTIES, STATES = 78_000, 3_200, 51
MILLION = 1_000_000
MOST_DESIGN, MOST_RELEASE, MOST_VARIANCES, MOST_MEMORY = 10.0, 10.0, 5.0, 2**32
# Times a design without targets; the margins of error of Laplace noise are exact laws of sums.
MOST_TARGETS = {sdp.ZCDP: 10.0, sdp.PureDP: 150.0}
LINEAR = 1.5  # seconds a leaf at 10⁶ leaves over those at full size: caches and nothing else

ROWS = 10**7
SIZES = (2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 30, 35, 38, 40)
ENGINE_MEMORY = "1GB"
MOST_PAIRS, MOST_PAIRS_MEMORY = 60.0, 2**31
_GENERATE = "CREATE TABLE records AS SELECT {columns} FROM range({rows}) AS t(i)"
# Codes that depend on each other a little: margins that are not all alike.
_COLUMN = "((hash(i * 20 + {a}) % {n} + hash(i * 20 + {a} // 2) % 3) % {n})::UTINYINT AS x{a}"

TREES = {"one_large_county": [1, 1, 15, 1, 1, 1, 1, 1], "ten_and_one": [1] * 10 + [40]}
CENSUS = {
    "census_wide": ([2, 3, 1, 4], [0, 0, 1, 1]),
    "census_narrow": ([1, 1, 2, 1, 3], [0, 1, 1, 2, 2]),
    "census_one_large": ([1, 8, 1, 2], [0, 0, 0, 1]),
}
SMALL = ((2, 3, 4), (3, 3, 5), (2, 2, 2, 3))


def nation(tracts: int = TRACTS, counties: int = COUNTIES) -> sdp.Domain:
    """Tracts in counties in states, groups of all sizes, × race, age and Hispanic."""
    generator = np.random.default_rng(1)
    county = _groups(generator, tracts, counties)
    state = _groups(generator, counties, STATES)[county]
    return sdp.Domain(
        [
            sdp.Axis("tract", range(tracts), levels={"county": county, "state": state}),
            sdp.Axis("race", range(8)),
            sdp.Axis("age", range(2)),
            sdp.Axis("hispanic", range(2)),
        ]
    )


def _groups(generator: np.random.Generator, parts: int, groups: int) -> np.ndarray:
    weight = generator.lognormal(size=groups)
    sizes = 1 + generator.multinomial(parts - groups, weight / weight.sum())
    return np.repeat(np.arange(groups), sizes)


def published(domain: sdp.Domain) -> sdp.Margins:
    """Totals, voting age and race × Hispanic at every level."""
    levels: list[list[str]] = [["tract"], ["county"], ["state"], []]
    tables: list[list[str]] = [[], ["age"], ["race", "hispanic"]]
    return sdp.Margins(domain, [level + table for level in levels for table in tables])


def run() -> Iterator[Ratio]:
    """Times, memory and errors."""
    small = yield from _at_size("marginals", nation(), MOST_DESIGN)
    counties = COUNTIES * MILLION // TRACTS
    large = yield from _at_size("marginals_million", nation(MILLION, counties), None)
    ratio = (large / MILLION) / (small / TRACTS)
    note = f"{small:.1f} s for {TRACTS:,} leaves, {large:.1f} s for {MILLION:,}"
    yield Ratio("marginals_seconds_a_leaf_at_a_million", ratio, LINEAR, False, note)
    yield from _pairs()
    yield from _targets()
    yield from _over_optimum()
    yield from _over_residual_planner()


def _at_size(name: str, domain: sdp.Domain, limit: float | None) -> Iterator[Ratio]:
    """Design, a release in integers, and all variances; returns their seconds."""
    table = sdp.Table(np.random.default_rng(2).poisson(3, size=domain.shape), domain)
    query, times = published(domain), dict[str, float]()

    def whole() -> object:
        began = time.perf_counter()
        mechanism = sdp.design(query, sdp.hold("state"), sdp.ZCDP(0.5), decimals=0)
        designed = time.perf_counter()
        release = mechanism.release(table)
        released = time.perf_counter()
        variances = mechanism.mechanism.noise.cell_variance()
        ended = time.perf_counter()
        times.update(
            design=designed - began, release=released - designed, variances=ended - released
        )
        return release, variances

    memory = peak_beyond(whole)
    leaves = len(domain.axes[0])
    if limit is not None:
        limits = {"design": limit, "release": MOST_RELEASE, "variances": MOST_VARIANCES}
        for part, most in limits.items():
            note = f"{times[part]:.2f} s for {leaves:,} tracts × 32 cells, {query.size:,} answers"
            yield Ratio(f"{name}_{part}_over_{most:g}_s", times[part] / most, 1.0, False, note)
    note = f"rises by {memory / 2**20:,.0f} MiB for {leaves:,} leaves"
    yield Ratio(f"{name}_memory_over_4_gib", memory / MOST_MEMORY, 1.0, False, note)
    return sum(times.values())


# ------------------------------------------------------------------ tables that are never formed


def _pairs() -> Iterator[Ratio]:
    """All 190 pairs of twenty questions, one-way margins held, from ten million records."""
    columns = [AxisColumn(sdp.Axis(f"x{a}", range(n))) for a, n in enumerate(SIZES)]
    domain = sdp.Domain([entry.axis for entry in columns])
    query = all_of_order(domain, 2)
    held = reduce(and_, (sdp.hold(axis.name) for axis in domain.axes))
    began = time.perf_counter()
    mechanism = sdp.design(query, held, sdp.ZCDP(0.5), decimals=0)
    designed = time.perf_counter() - began
    note = f"{designed:.1f} s for {len(query.margins)} margins of {float(domain.size):.1e} cells"
    yield Ratio("marginals_pairs_design_over_10_s", designed / MOST_DESIGN, 1.0, False, note)
    parts: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.duckdb"
        with duckdb.connect(str(path)) as con:
            con.execute("SET enable_progress_bar = false")
            listed = ", ".join(_COLUMN.format(a=a, n=n) for a, n in enumerate(SIZES))
            con.execute(_GENERATE.format(columns=listed, rows=ROWS))

        def release() -> object:
            began = time.perf_counter()
            options: dict[str, Any] = {"memory": ENGINE_MEMORY, "scratch": Path(folder)}
            with open_source(path, table="records", **options) as source:
                tables = tabulate_margins(source, columns, query, held)
            counted = time.perf_counter()
            release = mechanism.release(tables.everything)
            parts.extend([counted - began, time.perf_counter() - counted])
            return release

        memory = peak_beyond(release)
    note = f"10⁷ records: counted in {parts[0]:.1f} s, released in {parts[1]:.1f} s"
    yield Ratio("marginals_pairs_release_over_60_s", sum(parts) / MOST_PAIRS, 1.0, False, note)
    note = f"rises by {memory / 2**20:,.0f} MiB, DuckDB's {ENGINE_MEMORY} included"
    yield Ratio("marginals_pairs_memory_over_2_gib", memory / MOST_PAIRS_MEMORY, 1.0, False, note)


# ------------------------------------------------------------------ errors


def all_of_order(domain: sdp.Domain, order: int) -> sdp.Margins:
    """All margins of one order."""
    names = [axis.name for axis in domain.axes]
    return sdp.Margins(domain, [list(c) for c in itertools.combinations(names, order)])


def _over_optimum() -> Iterator[Ratio]:
    """Add-remove, the sum of squared errors: nothing held, and totals held."""
    for name, sizes in TREES.items():
        county = np.repeat(np.arange(len(sizes)), sizes).tolist()
        domain = sdp.Domain([sdp.Axis("tract", range(len(county)), levels={"county": county})])
        query = sdp.Margins(domain, [["tract"], ["county"], []])
        yield _ratio(name, query, None)
        yield _ratio(name, query, "total")
        yield _ratio(name, query, "county")
    for name, (counties, states) in CENSUS.items():
        county = np.repeat(np.arange(len(counties)), counties)
        levels = {"county": county.tolist(), "state": np.array(states)[county].tolist()}
        flat = [sdp.Axis(n, range(k)) for n, k in (("race", 3), ("age", 2), ("hispanic", 2))]
        domain = sdp.Domain([sdp.Axis("tract", range(len(county)), levels=levels), *flat])
        yield _ratio(name, published(domain), None)
        yield _ratio(name, published(domain), "state")


def _ratio(name: str, query: sdp.Margins, held: str | None) -> Ratio:
    asked = None if held is None else sdp.hold() if held == "total" else sdp.hold(held)
    mechanism = _designed(query, asked)
    columns = _matrix(query, query.margins)
    kept = mechanism.mechanism.held.margins
    if kept:
        C = _matrix(query, kept)
        columns = columns @ (np.eye(columns.shape[1]) - np.linalg.pinv(C) @ C)
    ours = mechanism.expected_error().total * mechanism.mechanism.budget.gaussian_mu**2
    optimum = best_covariance(columns, tolerance=1e-3).bound
    what = "nothing held" if held is None else f"{held} held"
    note = f"{query.size} answers of {query.domain.size} cells, {what}"
    most = 1.03 if held is None else 1.15
    suffix = "" if held is None else f"_{held}_held"
    return Ratio(f"marginals_error_{name}{suffix}", ours / optimum, most, False, note)


def _targets() -> Iterator[Ratio]:
    """The least budget for a target on every pair of eight axes, beside a design without any."""
    domain = sdp.Domain([sdp.Axis(f"x{a}", range(2 + a)) for a in range(8)])
    plain = all_of_order(domain, 2)
    wanted = sdp.Margins(domain, plain.margins, targets=range(20, 104, 3))
    for kind, most in MOST_TARGETS.items():
        least, plainly = best_times(
            lambda kind=kind: sdp.least_budget(wanted, None, kind),
            lambda kind=kind: sdp.design(plain, None, kind(0.5)),
            rounds=3,
        )
        note = f"{least:.2f} s for 28 targets, {plainly:.2f} s for a design without"
        name = f"targets_{kind.__name__.lower()}_over_design"
        yield Ratio(name, least / plainly, most, False, note)


def _over_residual_planner() -> Iterator[Ratio]:
    worst = 0.0
    for sizes, order in itertools.product(SMALL, (1, 2)):
        domain = sdp.Domain([sdp.Axis(f"x{a}", range(n)) for a, n in enumerate(sizes)])
        mechanism = _designed(all_of_order(domain, order), None)
        ours = mechanism.expected_error().total * mechanism.mechanism.budget.gaussian_mu**2
        worst = max(worst, ours / residual_planner(sizes, order))
    note = f"{len(SMALL)} domains, one- and two-way; rounding of the noise included"
    yield Ratio("marginals_error_over_residual_planner", worst, 1.001, False, note)


def _designed(query: sdp.Margins, held: Any) -> Any:
    return sdp.design(
        query, held, sdp.GaussianDP(0.1), neighbours=sdp.AddRemoveOne(),
        mechanism=MarginalsOptions(objective="sum"),
    )  # fmt: skip


def _matrix(query: sdp.Margins, margins: Any) -> np.ndarray:
    cells = np.eye(query.domain.size).reshape((-1, *query.domain.shape))
    return np.concatenate([np.stack([m.sum(c).ravel() for c in cells], 1) for m in margins])


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
