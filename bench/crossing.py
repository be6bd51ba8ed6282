"""Two classifications that cross, both held, in whole numbers: counties and an invented grid.

Tracts lie at random in the unit square, a county is the nearest of its seats, and squares lie over
both; 16 cells in every tract. Whole numbers add up to both for 5,000 tracts in 254 counties and 196
squares, and for 62,500 in 3,000 and 2,500: the time of a cell should not grow. That of standard
errors does, with the groups: there is a system of equations to solve for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from scipy.spatial import cKDTree

import subspacedp as sdp
from bench.timing import Ratio

TEXAS, MILLION = (5_000, 254, 14), (62_500, 3_000, 50)  # tracts, counties, squares on a side
CELLS = 16


def invented(tracts: int, counties: int, side: int, seed: int = 0) -> sdp.Table:
    """A table of tracts × cells, with counties above them and a grid across."""
    rng = np.random.default_rng(seed)
    where = rng.random((tracts, 2))
    county = cKDTree(rng.random((counties, 2))).query(where)[1]
    square = (where[:, 0] * side).astype(int) * side + (where[:, 1] * side).astype(int)
    order = np.argsort(county, kind="stable")
    axis = sdp.Axis(
        "tract",
        range(tracts),
        levels={"county": county[order].tolist()},
        groupings={"grid": square[order].tolist()},
    )
    domain = sdp.Domain([axis, sdp.Axis("cell", range(CELLS))])
    return sdp.Table(rng.poisson(20, domain.shape), domain)


def _seconds(table: sdp.Table) -> tuple[float, float]:
    """Processor time of a fresh design with its release, and of all standard errors."""
    domain = table.domain
    held = sdp.hold("county") & sdp.hold("grid")
    start = time.process_time()
    release = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0).release(table)
    made = time.process_time()
    release.stderr()
    stated = time.process_time()
    for level in ("county", "grid"):
        margin = domain.margin(level)
        if not np.array_equal(margin.sum(release.values), margin.sum(table.counts)):
            raise AssertionError("held totals are not kept")
    return made - start, stated - made


def run() -> Iterator[Ratio]:
    """Seconds at both sizes, and how many times as long a cell takes of the larger one."""
    texas, million = invented(*TEXAS), invented(*MILLION)
    _seconds(texas)
    small = min(_seconds(texas) for _ in range(3))
    large = min(_seconds(million) for _ in range(2))
    note = "processor time; 80,000 cells, counties and grid held, whole numbers"
    yield Ratio("crossing_texas_seconds", sum(small), 5.0, False, note)
    note = f"{large[0]:.2f} s with its design, {large[1]:.2f} s for all standard errors"
    yield Ratio("crossing_million_seconds", sum(large), 62.5, False, note)
    growth = large[0] / million.domain.size / (small[0] / texas.domain.size)
    note = "design and release, 10⁶ cells beside 80,000"
    yield Ratio("crossing_growth_per_cell", growth, 3.0, False, note)
