"""Today's practice beside ours: bias and squared error where cells are small, slopes of totals.

How it is done today: noisy counts are fitted by least squares to a table without negative values,
then rounded to whole numbers with the same sums, on one level or level by level (`TopDown`). Both
are run beside ours at one budget and with the same exact noise, on public tables: counties of Texas
and tracts of Dallas County by race and age, and the counties of the census demonstration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from studies.cell_sizes import METHODS, SECOND, SMALL, Comparison, compare_by_size, size_words
from studies.solvers import nearest_with_total, round_with_total
from studies.topdown import OneLevel, TopDown
from subspacedp.datasets import dallas2010, texas2010
from subspacedp.demo.census import EPSILON
from subspacedp.demo.page import OURS, PRACTICE, Figure, Grid, Page, Part, render, signed
from subspacedp.demo.study import SEED, CensusStudy, SlopeCounts, count_slopes
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference import replicates
from subspacedp.invariants import hold
from subspacedp.privacy import PureDP
from subspacedp.release import check_new_folder, design, new_folder
from subspacedp.report.page import publishing
from subspacedp.report.plots import INK, Look, Plot, bands, drawing, linear

__all__ = [
    "LOOKS",
    "PracticeStudy",
    "bias_figure",
    "comparison_grids",
    "error_figure",
    "practice",
    "slower_runs",
]

ONE_LEVEL = Look(
    name="post-processed, one level", colour="#009e73", shape="triangle-up", dash="2,2"
)
LOOKS = (
    OURS,
    ONE_LEVEL,
    Look(
        name="post-processed, level by level (TopDown)",
        colour=PRACTICE.colour,
        shape=PRACTICE.shape,
        dash=PRACTICE.dash,
    ),
)


def slower_runs(runs: int) -> int:
    """How many runs the tables of cells get, where each takes a while: one for every twenty."""
    return max(2, runs // 20)


@frozen(eq=False)
class PracticeStudy:
    """Our release and today's practice on public tables; `runs` is how often slopes are counted."""

    epsilon: float
    runs: int
    report: Callable[[str], None] = lambda _: None

    @cached_property
    def counties(self) -> CensusStudy:
        """The census demonstration: county totals, state totals held."""
        return CensusStudy(self.epsilon, self.runs, self.report)

    @cached_property
    def post_processed_slopes(self) -> SlopeCounts:
        """County totals alone made non-negative and whole within their states."""
        self.report(f"slopes of {self.runs:,} runs, post-processed")
        return count_slopes(
            self._post_processed(), self.counties.table.counts, self.counties.states
        )

    def _post_processed(self) -> Iterator[npt.NDArray[Any]]:
        truth, states = self.counties.table.counts, self.counties.states
        groups = [np.flatnonzero(states == state) for state in np.unique(states)]
        totals = [int(truth[group].sum()) for group in groups]
        for noise in replicates(self.counties.mechanism, self.runs, seed=SEED):
            out = np.empty(truth.shape, np.int64)
            for group, total in zip(groups, totals, strict=True):
                nearest = nearest_with_total(truth[group] + noise[group], total)
                out[group] = round_with_total(nearest, total)
            yield out - truth

    @cached_property
    def texas_slopes(self) -> dict[str, SlopeCounts]:
        """Counties of Texas as sums of race by age, by each method."""
        self.report(f"slopes of Texas, {self.runs:,} runs by three methods")
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
                report=self.report,
            )
            for name, table in (
                ("Texas: counties × race × age", texas2010()),
                ("Dallas: tracts × race × age", dallas2010()),
            )
        ]


def practice(
    out: str | PathLike[str],
    runs: int = 1000,
    *,
    epsilon: float = EPSILON,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Compare in a new folder: figures, the numbers behind them, one page.

    Parameters
    ----------
    out
        The folder; it must not exist yet.
    runs
        How often slopes are counted; tables of cells, which are slower, have one run for every
        twenty.
    epsilon
        The budget of every method.
    progress
        Called with a sentence before each step.

    Returns
    -------
    dict
        What was measured, as it is written to `results.json`, and where the page is.
    """
    if not isinstance(runs, int) or isinstance(runs, bool) or not 2 <= runs <= 100_000:
        raise ReleaseError(f"`runs` must be a whole number from 2 to 100,000; got {runs!r}.")
    study = PracticeStudy(PureDP(epsilon).epsilon, runs, progress or (lambda _: None))
    publishing("jinja2")  # refuse before anything is written
    check_new_folder(out)
    with new_folder(out) as scratch:
        results: dict[str, Any] = {
            "slopes": {
                "projected": study.counties.slopes.summary(),
                "post-processed": study.post_processed_slopes.summary(),
                "Texas": {name: one.summary() for name, one in study.texas_slopes.items()},
            },
            "practice": [one.summary() for one in study.comparisons],
        }
        study.report("drawing")
        figures = (bias_figure(study.comparisons), error_figure(study.comparisons))
        (scratch / "figures").mkdir()
        for drawn in figures:
            drawn.write(scratch / "figures")
        page = render(_page(results["slopes"], figures, study))
        (scratch / "index.html").write_text(page, "utf-8")
        text = json.dumps(results, indent=1, ensure_ascii=False)
        (scratch / "results.json").write_text(text + "\n", "utf-8")
    return {**results, "page": str(Path(out) / "index.html")}


def bias_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Mean error by the true size of a cell."""
    return _by_size(
        comparisons,
        "bias",
        "bias-by-cell-size",
        y_title="mean error (people)",
        caption="Bias by the true size of a cell",
        description=(
            "Mean error by size. Ours is zero for every size; post-processing makes empty and "
            "small cells too large and takes it from the others."
        ),
    )


def error_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Mean squared error by the true size of a cell."""
    return _by_size(
        comparisons,
        "mse",
        "squared-error-by-cell-size",
        y_title="mean squared error",
        caption="Mean squared error by the true size of a cell",
        description=(
            "Mean squared error by size. Ours is the same for every size; post-processing is "
            "nearer for small cells, and farther for large ones where levels share the budget."
        ),
    )


def _by_size(
    comparisons: Sequence[Comparison],
    measure: str,
    name: str,
    *,
    y_title: str,
    caption: str,
    description: str,
) -> Figure:
    outcomes = [[getattr(c.outcomes[m], measure) for m in METHODS] for c in comparisons]
    every = [float(figure) for one in outcomes for figures in one for figure in figures]
    y = linear(min(0.0, *every), max(0.0, *every), nice=True, title=y_title)
    panels = []
    for comparison, methods in zip(comparisons, outcomes, strict=True):
        words = [size_words(least) for least in comparison.least]
        x = bands(words, title="people in the cell, in truth", slope=-40)
        plot = Plot(x=x, y=y, width=370, height=260, title=comparison.name)
        plot.across(INK, y=0, opacity=0.7)
        for look, figures in zip(LOOKS, methods, strict=True):
            plot.line([(at, float(f)) for at, f in enumerate(figures)], look.colour, dash=look.dash)
        for look, figures in zip(LOOKS, methods, strict=True):
            for at, figure in enumerate(figures):
                plot.dot(at, float(figure), 5, look.colour, shape=look.shape)
        panels.append(plot)
    return Figure(
        name=name,
        svg=drawing([panels], keys=LOOKS, spacing=(28, 0)),
        caption=caption,
        description=description,
    )


def comparison_grids(comparison: Comparison) -> tuple[Grid, Grid]:
    """Bias and squared error of all methods, class by class."""
    outcomes = [comparison.outcomes[method] for method in (*METHODS, SECOND)]
    classes = [
        (size_words(least), f"{cells:,}")
        for least, cells in zip(comparison.least, comparison.cells, strict=True)
    ]
    runs = f"{comparison.name}, {comparison.runs} runs"
    bias = Grid(
        caption=f"Bias. {runs}; ± its standard error",
        columns=("people", "cells", *METHODS, SECOND),
        rows=tuple(
            (*words, *(f"{signed(o.bias[at], 2)} ± {o.bias_stderr[at]:.2f}" for o in outcomes))
            for at, words in enumerate(classes)
        ),
    )
    squared = Grid(
        caption=f"Mean squared error. {runs}",
        columns=bias.columns,
        rows=(
            *(
                (*words, *(f"{o.mse[at]:,.0f}" for o in outcomes))
                for at, words in enumerate(classes)
            ),
            (
                "all cells",
                f"{sum(comparison.cells):,}",
                *(f"{o.overall_mse:,.0f}" for o in outcomes),
            ),
            (f"total of a {comparison.place}", "", *(f"{o.place_mse:,.0f}" for o in outcomes)),
            (
                "sum of 50 neighbours",
                "",
                *(f"{o.neighbours_rms**2:,.0f}" for o in outcomes),
            ),
        ),
    )
    return bias, squared


def _page(slopes: Mapping[str, Any], figures: Sequence[Figure], study: PracticeStudy) -> Page:
    return Page(
        title="Today's practice beside ours",
        lede=[
            "Counties of Texas and tracts of Dallas County, by eight groups of race and ethnicity "
            "and two of age. The total of the whole is held, and every method has the same budget "
            f"(ε = {study.epsilon:g}) and the same exact noise. Projected: the release of this "
            "package. One level: the same noisy cells, then the nearest table without negative "
            "values, then whole numbers. TopDown: race by age in the whole (a tenth of the "
            "budget), totals of places (two tenths), cells of places (seven tenths), each level "
            "fitted by least squares without negative values to the one above and rounded so that "
            "sums stay.",
            "The data are public, so this page can show true counts and errors.",
        ],
        parts=[_cells_part(figures, study), _slopes_part(slopes)],
        files=[
            ("figures/", "the figures of this page as SVG"),
            ("results.json", "everything that was measured"),
        ],
    )


def _cells_part(figures: Sequence[Figure], study: PracticeStudy) -> Part:
    return Part(
        id="cells",
        title="Where cells are small",
        figures=figures,
        grids=[grid for one in study.comparisons for grid in comparison_grids(one)],
        closing=[
            *(sentence for one in study.comparisons for sentence in _verdict(one)),
            "The split decides what TopDown is good at. With this one its totals have no less "
            "squared error than one level's, only no trend with size; with 0.1, 0.4 and 0.5 the "
            "squared error of a total falls to about a third, and that of a cell nearly doubles.",
        ],
    )


def _verdict(one: Comparison) -> list[str]:
    """Who is nearer where, cell by cell and in sums."""
    ours, level, down = (one.outcomes[method] for method in METHODS)
    place = one.name.split(":")[0]
    return [
        f"{place}, cell by cell: post-processing on one level is nearer than ours for cells of "
        f"{_listed(one.nearer('one level'))} people, TopDown for {_listed(one.nearer('TopDown'))}; "
        f"TopDown is farther for {_listed(one.farther('TopDown'))}, as its cells have seven tenths "
        f"of the budget. Over all cells the mean squared error is {ours.overall_mse:,.0f} for "
        f"ours, {level.overall_mse:,.0f} on one level and {down.overall_mse:,.0f} for TopDown. "
        f"{100 * ours.negative:.0f} % of our cells are negative.",
        f"{place}, in sums: the {one.small_cells:,} cells with fewer than {SMALL} people hold "
        f"{one.small_people:,} in all. Added up from a release, their sum is off by "
        f"{signed(level.small_sum_bias, 0)} on average on one level and "
        f"{signed(down.small_sum_bias, 0)} for "
        f"TopDown; ours is unbiased, with a standard error of {one.small_stderr:,.0f}. What was "
        "cut off cell by cell does not average out. In the second table that is made from ours, of "
        "whole numbers without negative ones, the sum is off by "
        f"{signed(one.outcomes[SECOND].small_sum_bias, 0)} on average.",
    ]


def _listed(classes: Sequence[str]) -> str:
    if not classes:
        return "none"
    return classes[0] if len(classes) == 1 else f"{', '.join(classes[:-1])} and {classes[-1]}"


def _slopes_part(slopes: Mapping[str, Any]) -> Part:
    return Part(
        id="slopes",
        title="Does the error of a county depend on its size?",
        paragraphs=[
            "In each of the 48 states and territories with more than five counties, and in Texas "
            "with its counties added up from cells, the errors are regressed on the logarithm of "
            "the population. Without bias half of the slopes are negative, and about 1 % are "
            "significant at 0.01.",
        ],
        grids=[
            Grid(
                caption="Slopes over all runs: share negative, and share significant at 0.01",
                columns=("places", "method", "runs", "negative", "significant", "and negative"),
                rows=(
                    *(
                        _slope_row("48 states, county totals", name, slopes[name])
                        for name in ("projected", "post-processed")
                    ),
                    *(
                        _slope_row("Texas, sums of race × age", name, slopes["Texas"][name])
                        for name in METHODS
                    ),
                    (
                        "48 states, Nov. 2020 (the paper)",
                        "official TopDown",
                        "1",
                        "77 % (37)",
                        "–",
                        "23 % (11)",
                    ),
                ),
                texts=2,
            )
        ],
        closing=[
            "County totals by themselves take no harm from post-processing: the noisy count of a "
            "county is hardly ever negative, so there is nothing to cut off. Where counties are "
            "added up from small cells that were made non-negative, nearly every slope is "
            "negative. Measuring the totals of counties apart, as TopDown does here, repairs the "
            "totals at the cost of budget for the cells; the official system has more levels and "
            "many more cells below them.",
        ],
    )


def _slope_row(places: str, method: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        places,
        method,
        f"{one['runs']:,}",
        *(f"{100 * one[k]:.1f} %" for k in ("negative", "significant", "significant_negative")),
    )
