"""The numbers of the census demonstration: errors by county, slopes by state, today's practice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.datasets import (
    OfficialDemonstration,
    census2010,
    dallas2010,
    das_california2022,
    texas2010,
)
from subspacedp.demonstrations.cell_sizes import Comparison, compare_by_size
from subspacedp.demonstrations.nearest import nearest_with_total
from subspacedp.demonstrations.rounding import round_with_total
from subspacedp.demonstrations.slopes import SlopeCounts, count_slopes
from subspacedp.demonstrations.topdown import OneLevel, TopDown
from subspacedp.inference import BiasTrend, bias_trend, replicates
from subspacedp.invariants import hold
from subspacedp.mechanisms import Mechanism, design
from subspacedp.privacy import PureDP
from subspacedp.tables import Table

__all__ = ["BOXED_RUNS", "CensusStudy", "StateErrors", "slower_runs"]

FloatArray = npt.NDArray[np.float64]
StrArray = npt.NDArray[np.str_]
Tell = Callable[[str], None]

BOXED_RUNS = 10  # as in the paper
SEED = 2010  # of everything that is simulated, so that figures can be made again


def slower_runs(runs: int) -> int:
    """How many runs today's practice gets on tables of cells, where each takes a while."""
    return max(2, runs // 20)


@dataclass(frozen=True, eq=False, kw_only=True)
class StateErrors:
    """The counties of a state in order of size, and their errors over some runs."""

    state: str
    size: npt.NDArray[np.int64]
    codes: tuple[str, ...]
    errors: FloatArray  # runs × counties


@dataclass(frozen=True, eq=False)
class CensusStudy:
    """County populations of 2010 with state totals held, simulated; the data are public.

    `runs` is how often slopes are looked at.
    """

    epsilon: float
    runs: int
    tell: Tell = lambda _: None

    @cached_property
    def table(self) -> Table:
        """County populations."""
        return census2010()

    @cached_property
    def mechanism(self) -> Mechanism:
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

    def trend(self, values: npt.ArrayLike) -> BiasTrend:
        """Slopes of one release in the states with more than five counties."""
        return bias_trend(np.asarray(values) - self.table.counts, self.table.counts, self.states)

    @cached_property
    def slopes(self) -> SlopeCounts:
        """Ours, over all runs."""
        self.tell(f"slopes of {self.runs:,} runs")
        draws = replicates(self.mechanism, self.runs, seed=SEED)
        return count_slopes(draws, self.table.counts, self.states)

    @cached_property
    def post_processed_slopes(self) -> SlopeCounts:
        """County totals alone made non-negative and whole within their states."""
        self.tell(f"slopes of {self.runs:,} runs, post-processed")
        return count_slopes(self._post_processed(), self.table.counts, self.states)

    def _post_processed(self) -> Iterator[npt.NDArray[Any]]:
        truth = self.table.counts
        groups = [np.flatnonzero(self.states == state) for state in np.unique(self.states)]
        totals = [int(truth[group].sum()) for group in groups]
        for noise in replicates(self.mechanism, self.runs, seed=SEED):
            out = np.empty(truth.shape, np.int64)
            for group, total in zip(groups, totals, strict=True):
                nearest = nearest_with_total(truth[group] + noise[group], total)
                out[group] = round_with_total(nearest, total)
            yield out - truth

    @cached_property
    def texas_slopes(self) -> dict[str, SlopeCounts]:
        """Counties of Texas as sums of race by age, by each method."""
        self.tell(f"slopes of Texas, {self.runs:,} runs by three methods")
        table = texas2010()
        size = table.counts.sum(axis=(1, 2))
        ours = design(table.domain, hold(), PureDP(self.epsilon))
        one = OneLevel(domain=table.domain, epsilon=self.epsilon)
        down = TopDown(domain=table.domain, epsilon=self.epsilon)

        def sums(errors: Iterator[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
            return (run.sum(axis=(1, 2)) for run in errors)

        return {
            "projected": count_slopes(sums(replicates(ours, self.runs, seed=SEED)), size),
            "one level": count_slopes(sums(one.errors(table, self.runs, seed=SEED)), size),
            "TopDown": count_slopes(down.place_errors(table, self.runs, seed=SEED), size),
        }

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Bias and squared error by cell size in Texas and in Dallas."""
        return [
            compare_by_size(
                table,
                self.epsilon,
                slower_runs(self.runs),
                name=name,
                seed=SEED,
                tell=self.tell,
            )
            for name, table in (
                ("Texas: counties × race × age", texas2010()),
                ("Dallas: tracts × race × age", dallas2010()),
            )
        ]

    @cached_property
    def official(self) -> OfficialDemonstration:
        """California as the Census Bureau released it in 2022."""
        return das_california2022()

    @cached_property
    def official_trend(self) -> BiasTrend:
        """The slope of the official errors."""
        return bias_trend(self.official.errors, self.official.table.counts)

    @cached_property
    def matched(self) -> Mechanism:
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
        return self.boxed("CA"), self._in_order("CA", near)

    @cached_property
    def official_in_order(self) -> npt.NDArray[np.int64]:
        """The official errors, by size of county."""
        return self.official.errors[np.argsort(self.official.table.counts, kind="stable")]
