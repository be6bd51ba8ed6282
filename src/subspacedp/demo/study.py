"""The numbers of the census demonstration: errors by county, slopes by state, housing units held.

Errors without bias have slopes of both signs alike on log size, and about one in a hundred is
significant at 0.01. This is the paper's check, repeated over many runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.datasets import (
    OfficialDemonstration,
    census2010,
    census2010_housing,
    county_names,
    das_california2022,
)
from subspacedp.demo.page import Grid
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference import BiasTrend, bias_trend, replicates
from subspacedp.invariants import LinearInvariants, hold
from subspacedp.privacy import PureDP
from subspacedp.release import Design, Release, design
from subspacedp.tables import Table

StrArray = npt.NDArray[np.str_]
Progress = Callable[[str], None]

BOXED_RUNS = 10  # as in the paper
SEED = 2010  # of everything that is simulated, so that figures can be made again
SHOWN = 5  # counties of Illinois, at even steps in order of size


@frozen(eq=False, kw_only=True)
class StateErrors:
    """The counties of a state in order of size, and their errors over some runs."""

    state: str
    size: Int64Array
    codes: tuple[str, ...]
    errors: FloatArray  # runs × counties
    official: FloatArray | None = None  # of another release of the same counties


@frozen(eq=False)
class CensusStudy:
    """County populations of 2010 with state totals held, simulated; the data are public.

    `runs` is how often slopes are looked at.
    """

    epsilon: float
    runs: int
    report: Progress = lambda _: None

    @cached_property
    def table(self) -> Table:
        """County populations."""
        return census2010()

    @cached_property
    def mechanism(self) -> Design:
        """Projected Laplace, state totals held, neighbours that replace one record."""
        return design(self.table.domain, hold("state"), PureDP(self.epsilon))

    @cached_property
    def states(self) -> StrArray:
        """The state of every county."""
        return np.array((self.table.domain.axes[0].levels or {})["state"])

    def boxed(self, state: str) -> StateErrors:
        """Ten runs for the counties of a state."""
        return self._in_order(state, self._ten_runs)

    @cached_property
    def _ten_runs(self) -> FloatArray:
        return np.array(list(replicates(self.mechanism, BOXED_RUNS, seed=SEED)))

    def _in_order(self, state: str, errors: FloatArray) -> StateErrors:
        inside = np.flatnonzero(self.states == state)
        order = inside[np.argsort(self.table.counts[inside], kind="stable")]
        labels = self.table.domain.axes[0].labels
        return StateErrors(
            state=state,
            size=self.table.counts[order],
            codes=tuple(str(labels[at]) for at in order.tolist()),
            errors=errors[:, order],
        )

    @cached_property
    def ten_states(self) -> list[str]:
        """The ten states with the most counties, Illinois apart."""
        names, counties = np.unique(self.states, return_counts=True)
        ranked = [str(names[at]) for at in np.argsort(-counties, kind="stable")]
        return [name for name in ranked if name != "IL"][:10]

    def trend(self, values: ArrayLike) -> BiasTrend:
        """Slopes of one release in the states with more than five counties."""
        return bias_trend(np.asarray(values) - self.table.counts, self.table.counts, self.states)

    @cached_property
    def slopes(self) -> SlopeCounts:
        """Ours, over all runs."""
        self.report(f"slopes of {self.runs:,} runs")
        draws = replicates(self.mechanism, self.runs, seed=SEED)
        return count_slopes(draws, self.table.counts, self.states)

    @cached_property
    def official(self) -> OfficialDemonstration:
        """California as the Census Bureau released it in 2022."""
        return das_california2022()

    @cached_property
    def official_trend(self) -> BiasTrend:
        """The slope of the official errors."""
        return bias_trend(self.official.errors, self.official.table.counts)

    @cached_property
    def matched(self) -> Design:
        """Ours for California, with the least budget whose error is that of the official release.

        In hundredths of ε.
        """
        domain = self.official.table.domain
        goal = float(np.mean(self.official.errors**2))
        tried = (design(domain, hold("state"), PureDP(step / 100)) for step in range(1, 10_000))
        return next(one for one in tried if np.mean(one.expected_error().per_cell) <= goal)

    @cached_property
    def california(self) -> tuple[StateErrors, StateErrors]:
        """Ten runs in California with the budget of the demonstration, and with the matched one."""
        near = np.zeros((BOXED_RUNS, len(self.states)))
        near[:, self.states == "CA"] = list(replicates(self.matched, BOXED_RUNS, seed=SEED))
        beside = OfficialErrors(self, self.official)
        return beside.boxed("CA"), beside.put_beside(self._in_order("CA", near))


@frozen(eq=False)
class OfficialErrors:
    """The errors of a release by the Census Bureau, county by county beside ours."""

    study: CensusStudy
    das: OfficialDemonstration

    def boxed(self, state: str) -> StateErrors:
        """Ten runs of ours for the counties of a state, and the official errors."""
        return self.put_beside(self.study.boxed(state))

    def put_beside(self, ours: StateErrors) -> StateErrors:
        """Ours with the official errors; no number where the file lacks a county."""
        official = np.array([self._error.get(code, math.nan) for code in ours.codes])
        return replace(ours, official=official)

    @cached_property
    def _error(self) -> dict[str, float]:
        labels = self.das.table.domain.axes[0].labels
        return dict(zip(map(str, labels), self.das.errors.astype(float).tolist(), strict=True))

    @cached_property
    def trend(self) -> BiasTrend:
        """Slopes of the official errors, in the states with more than five counties."""
        states = np.array((self.das.table.domain.axes[0].levels or {})["state"])
        return bias_trend(self.das.errors, self.das.table.counts, states)

    @cached_property
    def biased_states(self) -> list[str]:
        """The paper's choice: states with a significant negative slope, the steepest first.

        Illinois apart, which has a figure of its own.
        """
        trend = self.trend
        steep = (trend.slope < 0) & (trend.pvalue <= trend.level)
        ranked = [str(trend.labels[at]) for at in np.argsort(trend.slope) if steep[at]]
        return [state for state in ranked if state != "IL"][:10]


@frozen(eq=False, kw_only=True)
class SlopeCounts:
    """How many slopes of every run were negative, and how many significant."""

    groups: int
    negative: Int64Array  # one per run
    significant_negative: Int64Array
    significant_positive: Int64Array

    @property
    def runs(self) -> int:
        """How many runs."""
        return len(self.negative)

    @property
    def share_negative(self) -> float:
        """Of all slopes of all runs."""
        return float(self.negative.mean() / self.groups)

    @property
    def share_significant(self) -> float:
        """Of all slopes, those significant in either direction."""
        return self.share_significant_negative + self.share_significant_positive

    @property
    def share_significant_negative(self) -> float:
        """Of all slopes, those negative and significant."""
        return float(self.significant_negative.mean() / self.groups)

    @property
    def share_significant_positive(self) -> float:
        """Of all slopes, those positive and significant."""
        return float(self.significant_positive.mean() / self.groups)

    def reaching(self, number: int) -> int:
        """In how many runs at least so many slopes were negative."""
        return int(np.count_nonzero(self.negative >= number))

    def summary(self) -> dict[str, float | int]:
        """The shares, for programs."""
        return {
            "groups": self.groups,
            "runs": self.runs,
            "negative": self.share_negative,
            "significant": self.share_significant,
            "significant_negative": self.share_significant_negative,
            "significant_positive": self.share_significant_positive,
        }


def count_slopes(
    errors: Iterable[AnyArray],
    size: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.01,
) -> SlopeCounts:
    """Regress the errors of every run on log size, in every group with more than five members.

    Examples
    --------
    >>> size = [10, 20, 50, 100, 200, 1000]
    >>> up, down = np.log(size), -np.log(size)
    >>> count_slopes([down, down, up], size).negative.tolist()
    [1, 1, 0]
    """
    trends = [bias_trend(run, size, groups, level=level) for run in errors]
    if not trends:
        raise ReleaseError("Slopes need at least one run.")

    def counted(name: str) -> Int64Array:
        return np.array([getattr(one, name) for one in trends], np.int64)

    return SlopeCounts(
        groups=trends[0].groups,
        negative=counted("negative"),
        significant_negative=counted("significant_negative"),
        significant_positive=counted("significant_positive"),
    )


@frozen(eq=False)
class HousingStudy:
    """People and housing units by county, with two kinds of invariants of the 2020 Census."""

    epsilon: float

    @cached_property
    def table(self) -> Table:
        """People and housing units."""
        return census2010_housing()

    @cached_property
    def mechanism(self) -> Design:
        """The population of every state and the housing units of every county held.

        As one matrix, people in even columns and housing units in odd ones, without the rows that
        follow from others.
        """
        from scipy.sparse import csr_array

        counties = np.arange(len(self.table.counts))
        names, state = np.unique(self._states, return_inverse=True)
        rows = np.concatenate([state, len(names) + counties])
        columns = np.concatenate([2 * counties, 2 * counties + 1])
        entries = np.ones(rows.size, np.int64)
        held = csr_array((entries, (rows, columns)), shape=(rows.max() + 1, self.table.counts.size))
        labels = [
            *(f"population of {name}" for name in names),
            *(f"housing units of {code}" for code in self.table.domain.axes[0].labels),
        ]
        return design(
            self.table.domain, LinearInvariants(held, labels=labels), PureDP(self.epsilon)
        )

    @property
    def _states(self) -> npt.NDArray[np.str_]:
        return np.array((self.table.domain.axes[0].levels or {})["state"])

    def summary(self, release: Release) -> dict[str, float | int]:
        """What is held and what is left, for programs."""
        counts, values = self.table.counts, np.asarray(release.values)
        space = self.mechanism.mechanism.space
        person, unit = np.zeros(counts.shape), np.zeros(counts.shape)
        person[0, 0] = unit[0, 1] = 1
        return {
            "answers": counts.size,
            "held": space.rank,
            "protected_dimensions": space.dimension,
            "largest_error_of_housing_units": float(np.abs(values - counts)[:, 1].max()),
            "stderr_of_a_population": float(np.sqrt(np.mean(release.stderr()[:, 0] ** 2))),
            "share_exposed_of_a_population": self.mechanism.guarantee.covers(person).share_exposed,
            "share_exposed_of_housing_units": self.mechanism.guarantee.covers(unit).share_exposed,
        }

    def grid(self, release: Release) -> Grid:
        """People per housing unit in some counties, with standard errors."""
        counts, names = self.table.counts, county_names()
        axis = self.table.domain.axes[0]
        inside = np.flatnonzero(self._states == "IL")
        order = inside[np.argsort(counts[inside, 0], kind="stable")]
        chosen = order[np.linspace(0, len(order) - 1, SHOWN).round().astype(int)]
        values, stderr = np.asarray(release.values), release.stderr()
        return Grid(
            caption="Some counties of Illinois: people with noise, housing units exact",
            columns=("county", "people, released", "true", "housing units", "people per unit"),
            rows=tuple(
                (
                    names[str(axis.labels[at])],
                    f"{values[at, 0]:,.1f} ± {stderr[at, 0]:.1f}",
                    f"{counts[at, 0]:,}",
                    f"{values[at, 1]:,.0f}",
                    f"{values[at, 0] / values[at, 1]:.6f} ± {stderr[at, 0] / values[at, 1]:.6f}",
                )
                for at in chosen.tolist()
            ),
        )
