"""Classifications that cross: two of them held in whole numbers, and all of them measured.

Held: tracts lie at random in the unit square, a county is the nearest of its seats, and squares lie
over both; 16 cells in every tract. Whole numbers add up to both for 5,000 tracts in 254 counties
and 196 squares, and for 62,500 in 3,000 and 2,500: the time of a cell should not grow. That of
standard errors does, with the groups: there is a system of equations to solve for each of them.

Measured: atoms are what tracts, squares and districts cut the square into, tracts nest in counties
and states, and state totals are held. Totals, voting age and race × Hispanic of all five
classifications get noise where it pays. The error of districts is compared with sums of the atoms
of a release whose noise is for the tree alone, and with a budget split evenly over the tables, each
with noise of its own: the best split for the same objective, as their errors do not help each
other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from scipy.spatial import cKDTree

import subspacedp as sdp
from bench.memory import peak_beyond, peak_of_process
from bench.timing import Ratio
from subspacedp.mechanisms.marginals import MarginalsOptions

TEXAS, MILLION = (5_000, 254, 14), (62_500, 3_000, 50)  # tracts, counties, squares on a side
CELLS = 16

FEW, ATOMS = 10_000, 100_000
PER_TRACT, PER_COUNTY, PER_STATE, PER_DISTRICT, PER_SQUARE = 2, 48, 2_000, 230, 12  # atoms
POINTS = 12  # for every atom: they find the pieces
NESTED, CROSSING = ["tract", "county", "state"], ["grid", "district"]
TABLES: tuple[list[str], ...] = ([], ["age"], ["race", "hispanic"])
BUDGET = sdp.ZCDP(0.5)
MOST_DESIGN, MOST_RELEASE, MOST_MEMORY = 60.0, 30.0, 2**33
LINEAR = 1.5  # seconds an atom at 10⁵ over those at 10⁴


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
    """Both held, then all of them measured."""
    yield from _held()
    yield from _measured()


def _held() -> Iterator[Ratio]:
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


# ------------------------------------------------------------------ all of them measured


def pieces(atoms: int, seed: int = 0) -> sdp.Domain:
    """So many atoms of tracts, squares and districts × race, age and Hispanic."""
    rng = np.random.default_rng(seed)
    where = rng.random((POINTS * atoms, 2))

    def seats(each: int) -> np.ndarray:
        return rng.random((atoms // each, 2))

    def nearest(points: np.ndarray, places: np.ndarray) -> np.ndarray:
        return np.asarray(cKDTree(places).query(points)[1])

    tracts, counties, states = seats(PER_TRACT), seats(PER_COUNTY), seats(PER_STATE)
    tract = nearest(where, tracts)
    county = nearest(tracts, counties)[tract]
    state = nearest(counties, states)[county]
    side = round((atoms / PER_SQUARE) ** 0.5)
    square = (where[:, 0] * side).astype(int) * side + (where[:, 1] * side).astype(int)
    district = nearest(where, seats(PER_DISTRICT))
    of_points = np.stack([state, county, tract, square, district], axis=1)
    found, first = np.unique(of_points, axis=0, return_index=True)
    # Those that come first, in the order of the tree.
    groups = found[np.sort(np.argsort(first)[:atoms])].T
    levels = dict(zip(reversed(NESTED), groups[:3], strict=True))
    axis = sdp.Axis(
        "atom",
        range(atoms),
        levels={name: levels[name] for name in NESTED},
        groupings=dict(zip(CROSSING, groups[3:], strict=True)),
    )
    others = {"race": 8, "age": 2, "hispanic": 2}
    return sdp.Domain([axis, *(sdp.Axis(name, range(n)) for name, n in others.items())])


def _designed(domain: sdp.Domain, classifications: list[str]) -> sdp.Design:
    margins = [[name, *table] for name in classifications for table in TABLES]
    options = MarginalsOptions(margins=margins)
    return sdp.design(domain, sdp.hold("state"), BUDGET, mechanism=options, decimals=0)


def _release(domain: sdp.Domain) -> tuple[float, float, float, sdp.Design]:
    """Processor time of the design, a release and all standard errors of cells and districts."""
    table = sdp.Table(np.random.default_rng(2).poisson(3, domain.shape), domain)
    began = time.process_time()
    design = _designed(domain, NESTED + CROSSING)
    designed = time.process_time()
    release = design.release(table)
    released = time.process_time()
    noise = design.mechanism.noise
    noise.cell_variance()
    for name in ("tract", *CROSSING):
        for kept in TABLES:
            noise.margin_variance(domain.margin(name, *kept))
    ended = time.process_time()
    margin = domain.margin("state")
    if not np.array_equal(margin.sum(release.values), margin.sum(table.counts)):
        raise AssertionError("held totals are not kept")
    return designed - began, released - designed, ended - released, design


def _measured() -> Iterator[Ratio]:
    """Times and memory of 10⁵ atoms, how they grow from 10⁴, and the errors of districts."""
    few = pieces(FEW)
    _release(few)  # compiled code is loaded
    small = _release(few)
    domain, times = pieces(ATOMS), list[float]()

    def whole() -> object:
        *seconds, design = _release(domain)
        times.extend(seconds)
        return design

    peak_beyond(whole)
    memory = peak_of_process()
    size = f"{ATOMS:,} atoms × 32 cells, processor time"
    limits = {"design": MOST_DESIGN, "release": MOST_RELEASE}
    for (part, most), seconds in zip(limits.items(), times[:2], strict=True):
        note = f"{seconds:.1f} s for {size}"
        name = f"crossing_measured_{part}_over_{most:g}_s"
        yield Ratio(name, seconds / most, 1.0, False, note)
    note = f"{memory / 2**20:,.0f} MiB at most in the process; {times[2]:.1f} s for all variances"
    yield Ratio("crossing_measured_memory_over_8_gib", memory / MOST_MEMORY, 1.0, False, note)
    growth = sum(times) / ATOMS / (sum(small[:3]) / FEW)
    note = f"{sum(small[:3]):.1f} s for {FEW:,} atoms, {sum(times):.1f} s for {ATOMS:,}"
    yield Ratio("crossing_measured_growth_per_atom", growth, LINEAR, False, note)
    yield from _errors_of_districts(few, small[3])


def _errors_of_districts(domain: sdp.Domain, ours: sdp.Design) -> Iterator[Ratio]:
    """Mean squared errors of three tables of districts beside those of the two other ways."""
    noise, tree = ours.mechanism.noise, _designed(domain, NESTED).mechanism.noise
    published = 1 + len(TABLES) * len(NESTED + CROSSING)
    each = sdp.ZCDP(BUDGET.rho / published)
    over_sums, over_separate = [], []
    for table in TABLES:
        margin = domain.margin("district", *table)
        error = float(noise.margin_variance(margin).mean())
        # Cells of a district are alike: one of each.
        firsts = [(d, *(0 for _ in margin.shape[1:])) for d in range(margin.shape[0])]
        sums = [tree.variance(tree.indicator(margin, place)) for place in firsts]
        over_sums.append(error / float(np.mean(sums)))
        kept = [axis for axis in domain.axes if axis.name in table]
        alone = sdp.Domain([sdp.Axis("district", range(margin.shape[0])), *kept])
        separate = sdp.design(alone, None, each, decimals=0).mechanism.noise.cell_variance()
        over_separate.append(error / float(separate.mean()))
    for name, ratios, most in (
        ("sums_of_atoms", over_sums, 0.1),
        ("separate_noise", over_separate, 0.85),
    ):
        said = [f"{ratio:.3g}" for ratio in ratios]
        note = f"squared error: totals {said[0]}, voting age {said[1]}, race × Hispanic {said[2]}"
        yield Ratio(f"crossing_measured_districts_over_{name}", max(ratios), most, False, note)
