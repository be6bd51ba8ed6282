"""Levels beside today's practice: one tree of places, one budget, five ways to spend it.

Places are the tracts of Dallas County and the 253 other counties of Texas, each a place of its own:
a tree of very unequal groups, with 16 cells of race by age in every place. Published are totals and
race by age of places, counties and the state. `python -m studies.levels_study`
prints the figures of docs/marginals.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from studies.solvers import (
    nearest_with_margins,
    nearest_with_total,
    round_with_margins,
    round_with_total,
)
from subspacedp.datasets import dallas2010, texas2010
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference import replicates
from subspacedp.invariants import Held, hold
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.marginals import Marginals, MarginalsOptions
from subspacedp.mechanisms.marginals.measurement import TableMeasurement
from subspacedp.noise import ReleaseKeys
from subspacedp.privacy import ZCDP
from subspacedp.release import Design, design
from subspacedp.tables import Axis, Domain, Margin, Table

__all__ = ["LevelStudy", "NoisyTable", "dense_least_squares", "places_of_texas", "top_down"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

SEED = 2010
SMALL = 10  # cells with fewer people are small
MARGINS = (["place"], ["county"], ["county", "race", "age"], ["state", "race", "age"])
COLUMNS = ("cells of places", "places", "cells of counties", "counties", "cells of the state")
DALLAS = "48113"


def places_of_texas(counties: Sequence[str] | None = None, tracts: int | None = None) -> Table:
    """Dallas County by tract, every other county as one place; by default all of them."""
    texas, dallas = texas2010(), dallas2010()
    codes = [str(code) for code in texas.domain.axes[0].labels]
    rows = [i for i, c in enumerate(codes) if c != DALLAS and (counties is None or c in counties)]
    within = [str(code) for code in dallas.domain.axes[0].labels][:tracts]
    counts = np.concatenate([texas.counts[rows], dallas.counts[: len(within)]])
    county = [codes[i] for i in rows] + [DALLAS] * len(within)
    place = Axis(
        "place",
        [codes[i] for i in rows] + within,
        levels={"county": county, "state": ["48"] * len(county)},
    )
    return Table(counts, Domain([place, *texas.domain.axes[1:]]))


@frozen(eq=False)
class NoisyTable:
    """A measured table: its margin, its noisy totals, the variance of their noise."""

    margin: Margin
    totals: FloatArray
    variance: float


def measured_tables(mechanism: Mechanism, noisy: Int64Array) -> dict[tuple[str, ...], NoisyTable]:
    """What a mechanism that measures whole tables measured, by the names of their levels."""
    if not isinstance(mechanism, Marginals) or not isinstance(
        mechanism.measurement, TableMeasurement
    ):
        raise ReleaseError("This study compares ways to use whole measured tables.")
    inter, out, at = mechanism.interactions, {}, 0
    for table, law in zip(mechanism.measurement.tables, mechanism.measurement.laws, strict=True):
        margin = inter.margin(table.level, table.steps)
        shape = (inter.tree.nodes(table.level), *inter.shape(table.steps))
        size = int(np.prod(shape))
        totals = inter.from_nodes(noisy[at : at + size].reshape(shape), table.level)
        out[margin.names] = NoisyTable(margin, totals.astype(np.float64), law.variance)
        at += size
    return out


# ------------------------------------------------------------------------------------- TopDown


def top_down(domain: Domain, tables: dict[tuple[str, ...], NoisyTable], total: int) -> Int64Array:
    """TopDown's steps: state, then counties, then places, never negative, in whole numbers.

    Every step keeps the tables that the step above it decided. A county that is one place takes
    both measurements of it, so that none of its budget is lost.
    """
    places = domain.axes[0]
    county = places.step(1).codes
    alone = np.bincount(county)[county] == 1
    above, counties = tables["state", "race", "age"].totals, _cells_and_totals(tables, "county")
    below = _cells_and_totals(tables, "place")
    counties = _with_places_alone(counties, below, county, alone)
    state = round_with_total(nearest_with_total(above.reshape(-1), total), total)
    by_county = _split(counties, state)
    out = np.zeros((len(places), len(state)), np.int64)
    out[alone] = by_county[county[alone]]
    for c in np.unique(county[~alone]):
        here = county == c
        out[here] = _split([NoisyTable(t.margin, t.totals[here], t.variance) for t in below],
                           by_county[c])  # fmt: skip
    return out.reshape(places.step(0).groups, *(len(axis) for axis in domain.axes[1:]))


def _cells_and_totals(tables: dict[tuple[str, ...], NoisyTable], level: str) -> list[NoisyTable]:
    cells, totals = tables[level, "race", "age"], tables[(level,)]
    groups = cells.totals.shape[0]
    return [NoisyTable(t.margin, t.totals.reshape(groups, -1), t.variance) for t in (cells, totals)]


def _with_places_alone(
    counties: list[NoisyTable], places: list[NoisyTable], county: Int64Array, alone: BoolArray
) -> list[NoisyTable]:
    """Counties of one place: the mean of both measurements, weighted by their precision."""
    out = []
    for above, below in zip(counties, places, strict=True):
        both = above.totals.copy()
        share = above.variance / (above.variance + below.variance)
        at = county[alone]
        both[at] = (1 - share) * above.totals[at] + share * below.totals[alone]
        out.append(NoisyTable(above.margin, both, above.variance))
    return out


def _split(tables: Sequence[NoisyTable], parent: Int64Array) -> Int64Array:
    """The cells of some places inside the decided cells of what they lie in."""
    cells, totals = tables
    number = cells.totals.shape[1]
    apart, added = 1 / totals.variance, 1 / (number * cells.variance)
    known = (apart * totals.totals[:, 0] + added * cells.totals.sum(axis=1)) / (apart + added)
    whole = int(parent.sum())
    rows = round_with_total(nearest_with_total(known, whole), whole)
    return round_with_margins(nearest_with_margins(cells.totals, rows, parent), rows, parent)


# ------------------------------------------------------------------------- dense least squares


def dense_least_squares(
    domain: Domain,
    tables: dict[tuple[str, ...], NoisyTable],
    held: Margin,
    exact: Int64Array,
    *,
    inside: bool,
) -> FloatArray:
    """Generalised least squares with explicit matrices; for small domains.

    With `inside` the exact totals are conditions of the least squares; otherwise the estimate
    without them is projected onto the tables with these totals.
    """
    shape = tuple(len(axis) for axis in domain.axes)
    cells = np.eye(int(np.prod(shape)))
    rows = {m: _rows(m, cells, shape) for m in (t.margin for t in tables.values())}
    C = _rows(held, cells, shape)
    weighted = np.concatenate([rows[t.margin] / np.sqrt(t.variance) for t in tables.values()])
    start = tables["place", "race", "age"].totals.reshape(-1)
    left = np.concatenate(
        [(t.totals.reshape(-1) - rows[t.margin] @ start) / np.sqrt(t.variance)
         for t in tables.values()]
    )  # fmt: skip
    onto = np.linalg.pinv(C)
    missing = onto @ (exact.reshape(-1) - C @ start)
    if inside:
        basis = np.linalg.svd(C)[2][np.linalg.matrix_rank(C) :].T
        free = np.linalg.lstsq(weighted @ basis, left - weighted @ missing, rcond=None)[0]
        return np.asarray((start + missing + basis @ free).reshape(shape))
    free = np.linalg.lstsq(weighted, left, rcond=None)[0]
    return np.asarray((start + free - onto @ (C @ free) + missing).reshape(shape))


def _rows(margin: Margin, cells: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """The matrix of a margin."""
    return np.array([margin.sum(cell.reshape(shape)).reshape(-1) for cell in cells]).T


# ------------------------------------------------------------------------------------ the study


@frozen(eq=False, kw_only=True)
class LevelStudy:
    """Errors of releases of the same table with the same budget; the data are public."""

    rho: float = 0.1
    runs: int = 20

    @cached_property
    def table(self) -> Table:
        """Places × race × age."""
        return places_of_texas()

    def mechanism(self, held: Held, options: MarginalsOptions | None) -> Design:
        """The cells with the whole budget, or together with the margins of the study."""
        return design(self.table.domain, held, ZCDP(self.rho), mechanism=options)

    @cached_property
    def tables_measured(self) -> Mechanism:
        """Whole tables, so that different ways to use them can be compared."""
        options = MarginalsOptions(margins=MARGINS, measured="tables")
        return self.mechanism(hold(), options).mechanism

    def ways(self) -> Iterator[tuple[str, Iterator[FloatArray]]]:
        """Every way to make a release, and its errors run by run."""
        margins = MarginalsOptions(margins=MARGINS)
        yield "noise on the cells alone", self._noise(self.mechanism(hold(), None))
        yield "whole tables, TopDown's steps", self._of_tables(steps=True)
        yield "whole tables, least squares", self._of_tables(steps=False)
        yield "contrasts, the total held", self._noise(self.mechanism(hold(), margins))
        within = MarginalsOptions(margins=MARGINS, cells_at_most=1.05)
        yield "contrasts, cells at most +5 %", self._noise(self.mechanism(hold(), within))
        yield "contrasts, counties held", self._noise(self.mechanism(hold("county"), margins))

    def _noise(self, mechanism: Design) -> Iterator[FloatArray]:
        return iter(replicates(mechanism, self.runs, seed=SEED))

    def _of_tables(self, *, steps: bool) -> Iterator[FloatArray]:
        """TopDown's steps or least squares, from the very same measurements."""
        mechanism, counts = self.tables_measured, self.table.counts
        exact = mechanism.held.sums(counts)
        for run in range(self.runs):
            keys = ReleaseKeys.from_seed(SEED + run, mechanism.context)
            noisy = mechanism.measure(self.table, keys)
            if steps:
                tables = measured_tables(mechanism, noisy)
                released = top_down(self.table.domain, tables, int(counts.sum()))
                yield (released - counts).astype(np.float64)
            else:
                yield mechanism.reconstruct(noisy, exact, keys.stream("dither")) - counts

    def figures(self, errors: Iterator[FloatArray]) -> tuple[FloatArray, float, float]:
        """Root mean squared errors by column; mean error of small cells and its standard error."""
        domain = self.table.domain
        kept = [domain.cells, *(domain.margin(*names) for names in MARGINS)]
        small = self.table.counts < SMALL
        squares, means = [], []
        for error in errors:
            squares.append([np.mean(np.square(m.sum(error))) for m in _in_order(kept)])
            means.append(float(error[small].mean()))
        bias = np.array(means)
        spread = float(bias.std(ddof=1) / np.sqrt(len(bias)))
        return np.sqrt(np.mean(squares, axis=0)), float(bias.mean()), spread

    def agreement(self) -> float:
        """The largest difference to dense least squares, over cells of a small part of the tree."""
        part = places_of_texas(["48001", "48003", "48005"], tracts=5)
        largest = 0.0
        for names, inside in (((), True), (("county",), False)):
            mechanism = design(
                part.domain, hold(*names), ZCDP(self.rho),
                mechanism=MarginalsOptions(margins=MARGINS, measured="tables"),
            ).mechanism  # fmt: skip
            keys = ReleaseKeys.from_seed(SEED, mechanism.context)
            noisy = mechanism.measure(part, keys)
            ours = mechanism.reconstruct(
                noisy, mechanism.held.sums(part.counts), keys.stream("dither")
            )
            held = part.domain.margin(*names)
            dense = dense_least_squares(
                part.domain, measured_tables(mechanism, noisy), held,
                np.asarray(held.sum(part.counts)), inside=inside,
            )  # fmt: skip
            largest = max(largest, float(np.abs(ours - dense).max()))
        return largest


def _in_order(kept: Sequence[Margin]) -> list[Margin]:
    """As in `COLUMNS`."""
    cells, place, county, county_cells, state = kept
    return [cells, place, county_cells, county, state]


def main(arguments: Sequence[str]) -> int:
    """Print the table; the budget ρ and the number of runs may be given."""
    rho = float(arguments[0]) if arguments else 0.1
    runs = int(arguments[1]) if len(arguments) > 1 else 20
    study = LevelStudy(rho=rho, runs=runs)
    print(f"ρ = {rho:g}, {runs} runs; {int((study.table.counts < SMALL).sum()):,} small cells")
    print(f"largest difference to dense least squares: {study.agreement():.1e}")
    print(f"{'':32}" + "".join(f"{c:>20}" for c in COLUMNS) + f"{'small cells':>20}")
    for name, errors in study.ways():
        began = time.perf_counter()
        rmse, bias, spread = study.figures(errors)
        figures = "".join(f"{value:20.2f}" for value in rmse)
        took = time.perf_counter() - began
        print(f"{name:32}{figures}{bias:+12.2f} ± {spread:.2f}   {took:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
