"""A national hierarchy: 6 levels, 6·10⁶ blocks of unequal groups, released whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from subspacedp.mechanisms.hierarchical import Hierarchical

import subspacedp as sdp
from bench.memory import peak_beyond, peak_of_process
from bench.timing import Ratio

BLOCKS = 6_000_000
LEVELS = {"group": 217_740, "tract": 73_057, "county": 3_143, "state": 51, "nation": 1}
MOST_SECONDS, MOST_MEMORY = 10.0, 2**31


def nation() -> sdp.Domain:
    """Blocks in block groups, tracts, counties, states and the nation, groups of all sizes."""
    generator = np.random.default_rng(1)
    below, codes = BLOCKS, np.arange(BLOCKS)
    levels: dict[str, Any] = {}
    for name, groups in LEVELS.items():
        # Every group has a part; the others fall by weights spread over two orders of magnitude.
        weight = generator.lognormal(sigma=1.0, size=groups)
        sizes = 1 + generator.multinomial(below - groups, weight / weight.sum())
        codes = np.repeat(np.arange(groups), sizes)[codes]
        levels[name], below = codes, groups
    return sdp.Domain([sdp.Axis("block", range(BLOCKS), levels=levels)])


def run() -> Iterator[Ratio]:
    """Time and memory of a release with states held; error by level beside the cells alone."""
    domain = nation()
    names = ["block", *LEVELS]
    counts = np.random.default_rng(2).poisson(50, size=BLOCKS)
    table = sdp.Table(counts, domain)
    began = time.perf_counter()
    mechanism = sdp.design(
        domain, sdp.hold("state"), sdp.ZCDP(0.5), mechanism="hierarchical", levels=names, decimals=0
    )
    designed = time.perf_counter() - began
    released: list[float] = []

    def release() -> sdp.Release:
        start = time.perf_counter()
        made = mechanism.release(table)
        released.append(time.perf_counter() - start)
        return made

    memory = peak_beyond(release)
    note = f"{released[0]:.1f} s for {BLOCKS:,} blocks in 6 levels; designed in {designed:.1f} s"
    yield Ratio("hierarchy_release_time_over_10_s", released[0] / MOST_SECONDS, 1.0, False, note)
    whole = peak_of_process()
    note = f"{whole / 2**20:,.0f} MiB in all, {memory / 2**20:,.0f} MiB above the table"
    yield Ratio("hierarchy_release_memory_over_2_gib", whole / MOST_MEMORY, 1.0, False, note)
    yield from _others(domain, table, names)
    if not isinstance(mechanism, Hierarchical):
        raise TypeError("the design is not hierarchical")
    errors = mechanism.compare_levels()
    for i, name in enumerate(errors.levels):
        if errors.cells_alone[i] > 0:
            note = (
                f"rmse {errors.here[i]:.3g}, noise on the blocks alone {errors.cells_alone[i]:.3g}"
            )
            # Blocks pay for the other levels; how much is shown, and not more than twice.
            most = 2.0 if name == "block" else 1.0
            yield Ratio(
                f"hierarchy_{name}_rmse_over_cells_alone", errors.ratio[i], most, False, note
            )


def _others(domain: sdp.Domain, table: sdp.Table, names: list[str]) -> Iterator[Ratio]:
    """A pure budget, which is harder to split, and real values, which are verified as well."""
    cases = (("pure", sdp.PureDP(1.0), 0), ("real", sdp.ZCDP(0.5), None))
    for name, budget, decimals in cases:
        start = time.perf_counter()
        mechanism = sdp.design(
            domain, sdp.hold("state"), budget,
            mechanism="hierarchical", levels=names, decimals=decimals,
        )  # fmt: skip
        designed = time.perf_counter()
        made = mechanism.release(table)
        ended = time.perf_counter()
        if not made.verify().ok:
            raise ValueError("a release does not keep what it holds")
        note = f"{ended - designed:.1f} s; designed in {designed - start:.1f} s"
        seconds = (ended - designed) / MOST_SECONDS
        yield Ratio(f"hierarchy_{name}_release_time_over_10_s", seconds, 1.0, False, note)
