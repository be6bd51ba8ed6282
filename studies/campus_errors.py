"""The paper's spatio-temporal demonstration: the table, what is held, and the error over many runs.

14 groups × 24 hours × 20 buildings; held are the person-hours of every building in every hour, and
of every group in every building over the day.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from studies.campus_people import BUILDINGS, HOURS, k_means, presence, simulate
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, hold
from subspacedp.privacy import ApproxDP, GaussianDP, Neighbours, ReplaceOne, Spend, compose
from subspacedp.release import Design, design
from subspacedp.tables import Axis, Domain, Table

__all__ = [
    "DAY",
    "HOUR",
    "Quantiles",
    "RunErrors",
    "campus_domain",
    "campus_held",
    "campus_table",
    "day_mechanism",
    "day_price",
    "expected_of_a_cell",
    "expected_quantiles",
    "lonely_totals",
    "run_errors",
    "unit_mechanism",
]

GROUPS = 14
DELTA = 1e-6
HOUR = ReplaceOne()  # the paper's reading: one record, a person in a building for an hour
DAY = ReplaceOne(records=HOURS, per_cell=1)  # one person: at most 24 records, all in other cells


def campus_domain() -> Domain:
    """The cells."""
    return Domain(
        [
            Axis("group", [f"group {i + 1}" for i in range(GROUPS)]),
            Axis("hour", range(HOURS)),
            Axis("building", BUILDINGS),
        ]
    )


def campus_held() -> Held:
    """Both margins of the paper."""
    return hold("hour", "building") & hold("group", "building")


@cache
def campus_table() -> Table:
    """Person-hours of the simulated day.

    Examples
    --------
    >>> campus_table()
    Table(group: 14, hour: 24, building: 20; 6,720 cells, counts hidden)
    """
    days = simulate()
    groups = k_means(presence(days), GROUPS)
    counts = np.zeros((GROUPS, HOURS, len(BUILDINGS)), np.int64)
    people, hours = np.nonzero(days >= 0)
    np.add.at(counts, (groups[people], hours, days[people, hours]), 1)
    return Table(counts, campus_domain())


def unit_mechanism() -> Design:
    """Gaussian noise of standard deviation one, as in the paper, projected.

    The paper names no budget. For one record exchanged, Δ₂ = √2, this is Gaussian differential
    privacy with μ = √2.

    Examples
    --------
    >>> mechanism = unit_mechanism()
    >>> mechanism.mechanism.space.rank, mechanism.mechanism.space.dimension
    (740, 5980)
    >>> round(mechanism.mechanism.law.scale, 12)
    1.0
    """
    return design(campus_domain(), campus_held(), GaussianDP(math.sqrt(2)), neighbours=HOUR)


def day_mechanism(epsilon: float = 1.0, mechanism: str = "projected") -> Design:
    """The same for a person's whole day, at a stated budget."""
    return design(
        campus_domain(),
        campus_held(),
        ApproxDP(epsilon, DELTA),
        neighbours=DAY,
        mechanism=mechanism,
    )


def day_price(neighbours: Neighbours, sigma: float = 1.0) -> float:
    """The ε at δ = 10⁻⁶ that noise of a standard deviation gives.

    >>> day_price(HOUR) < 8 < 50 < day_price(DAY)
    True
    """
    mu = math.sqrt(neighbours.l2_squared) / sigma
    spend = Spend(budget=GaussianDP(mu), neighbours=neighbours)
    return compose([spend]).epsilon(DELTA)


@frozen
class Quantiles:
    """The 5 %, 50 % and 95 % quantiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Quantiles:
        """Of numbers seen."""
        low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
        return cls(float(low), float(median), float(high))

    def __str__(self) -> str:
        return f"{self.median:.4f} ({self.low:.3f}, {self.high:.3f})"


@frozen(eq=False, repr=False, kw_only=True)
class RunErrors:
    """The errors of many runs, in units of the noise before it was projected.

    Parameters
    ----------
    variances
        Of every run, the mean square of its errors over all cells.
    cells
        Of every cell, the standard deviation of its errors over the runs.
    largest_held
        The largest error of a held total in any run.
    mean
        The mean error over all cells and runs.
    """

    variances: npt.NDArray[np.float64]
    cells: npt.NDArray[np.float64]
    largest_held: float
    mean: float

    def as_dict(self) -> dict[str, Any]:
        """Quantiles as plain data."""
        return {
            "runs": len(self.variances),
            "variance": vars(Quantiles.of(self.variances)),
            "standard_deviation": vars(Quantiles.of(np.sqrt(self.variances))),
            "standard_deviation_of_a_cell": vars(Quantiles.of(self.cells)),
            "mean_error": self.mean,
            "largest_error_of_a_held_total": self.largest_held,
        }


def run_errors(mechanism: Design, table: Table, runs: int, seed: int | None = None) -> RunErrors:
    """Release a table so many times, and measure the errors."""
    unit = math.sqrt(mechanism.mechanism.law.variance)
    squares = np.zeros(table.counts.shape)
    variances, total, held = [], 0.0, 0.0
    for run in range(runs):
        release = mechanism.release(table, seed=None if seed is None else seed + run)
        error = (release.values - table.counts) / unit
        variances.append(float(np.mean(error**2)))
        squares += error**2
        total += float(error.mean())
        held = max(held, *(float(np.abs(error.sum(axis=axis)).max()) for axis in (0, 1)))
    return RunErrors(
        variances=np.array(variances),
        cells=np.sqrt(np.ravel(squares) / runs),
        largest_held=held * unit,
        mean=total / runs,
    )


def expected_quantiles(mechanism: Design) -> Quantiles:
    """Of a run's mean square: χ² with as many degrees as the null space has, over the cells.

    Examples
    --------
    >>> str(expected_quantiles(unit_mechanism()))
    '0.8898 (0.863, 0.917)'
    """
    from scipy.stats import chi2

    space = mechanism.mechanism.space
    cells = mechanism.mechanism.query.size
    return Quantiles(*(float(chi2.ppf(p, space.dimension)) / cells for p in (0.05, 0.5, 0.95)))


def expected_of_a_cell(mechanism: Design, runs: int) -> Quantiles:
    """Of a cell's root mean square over the runs; all cells have the same variance."""
    from scipy.stats import chi2

    variance = mechanism.mechanism.space.dimension / mechanism.mechanism.query.size / runs
    return Quantiles(*(math.sqrt(variance * float(chi2.ppf(p, runs))) for p in (0.05, 0.5, 0.95)))


def lonely_totals(table: Table) -> tuple[int, int]:
    """How many held totals are one, and how many there are: held figures are not protected."""
    held = np.concatenate([table.counts.sum(axis=axis).ravel() for axis in (0, 1)])
    return int(np.count_nonzero(held == 1)), held.size
