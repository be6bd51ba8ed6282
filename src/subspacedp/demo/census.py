"""`subspacedp demo census`: the paper's first demonstration, as a release, figures and one page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.datasets import OfficialDemonstration, county_names, read_das
from subspacedp.demo.figures import (
    PAPER_NEGATIVE,
    boxes_figure,
    california_figure,
    cartogram,
    counts_figure,
    states_figure,
    trend_figure,
)
from subspacedp.demo.page import OURS, Figure, Grid, Page, Part, render, signed
from subspacedp.demo.study import BOXED_RUNS, CensusStudy, HousingStudy, OfficialErrors
from subspacedp.errors import DataError, ReleaseError
from subspacedp.inference import BiasTrend
from subspacedp.invariants import hold
from subspacedp.privacy import PureDP
from subspacedp.release import (
    Design,
    Release,
    check_new_folder,
    design,
    new_folder,
    write_digests,
    write_files,
)
from subspacedp.report.page import publishing
from subspacedp.tables import Table

EPSILON = 0.192  # the paper's: 4 in all × 0.16 for counties × 0.3 for populations
TEN = ("The states with the most biased official errors", "The ten states with the most counties")
SHOWN_STATE = "NH"  # ten counties: what fits on a screen
SIZES = (0, 5_000, 20_000, 100_000, 500_000)
Progress = Callable[[str], None]
Results = Mapping[str, Any]
Figures = Mapping[str, Figure]


def census(
    out: str | PathLike[str],
    runs: int = 1000,
    *,
    epsilon: float = EPSILON,
    decimals: int | None = None,
    das: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Release county populations into a new folder, with figures and one page about the errors.

    Parameters
    ----------
    out
        The folder; it must not exist yet.
    runs
        How often the release is simulated to count slopes.
    epsilon
        The budget.
    decimals
        Of the release; real values by default.
    das
        A file of the Census Bureau's demonstration data by county, as `datasets.read_das` takes
        it: the paper's figures are drawn from it, with the Bureau's errors beside ours.
    progress
        Called with a sentence before each step.

    Returns
    -------
    dict
        What was measured, as it is written to `results.json`, and where the page is.
    """
    if not isinstance(runs, int) or isinstance(runs, bool) or not 2 <= runs <= 100_000:
        raise ReleaseError(f"`runs` must be a whole number from 2 to 100,000; got {runs!r}.")
    study = CensusStudy(epsilon, runs, progress or (lambda _: None))
    official = None if das is None else official_errors(study, read_das(das))
    mechanism = design(study.table.domain, hold("state"), PureDP(epsilon), decimals=decimals)
    publishing("jinja2")  # refuse before anything is written
    check_new_folder(out)
    with new_folder(out) as scratch:
        study.report("releasing county populations")
        release = mechanism.release(study.table)
        write_files(release, scratch)
        homes = HousingStudy(epsilon)
        homes_release = homes.mechanism.release(homes.table)
        homes_release.save(scratch / "housing")
        results = {
            "release": _release_summary(mechanism, release, study.table),
            "trend": _trend_summary(study.trend(release.values)),
            "slopes": {OURS.name: study.slopes.summary()},
            "california": _california_summary(study),
            "housing": homes.summary(homes_release),
            **({} if official is None else {"das": _trend_summary(official.trend)}),
        }
        study.report("drawing")
        figures = _figures(study, release, official)
        (scratch / "figures").mkdir()
        for drawn in figures.values():
            drawn.write(scratch / "figures")
        page = census_page(results, figures, study, release, homes.grid(homes_release), official)
        (scratch / "index.html").write_text(render(page), "utf-8")
        text = json.dumps(results, indent=1, ensure_ascii=False)
        (scratch / "results.json").write_text(text + "\n", "utf-8")
        write_digests(scratch)
    return {**results, "folder": str(out), "page": str(Path(out) / "index.html")}


def official_errors(study: CensusStudy, das: OfficialDemonstration) -> OfficialErrors:
    """The errors of a file, which has to have a state with more than five counties."""
    official = OfficialErrors(study, das)
    if not official.trend.groups:
        raise DataError("The demonstration file has no state with more than five counties.")
    return official


def _figures(
    study: CensusStudy, release: Release, official: OfficialErrors | None
) -> dict[str, Figure]:
    names = county_names()
    budgets = (f"ε = {study.epsilon:g}", f"{study.matched.mechanism.budget}")
    boxed = study.boxed if official is None else official.boxed
    errors = np.asarray(release.values, np.float64) - study.table.counts
    figures = {
        "every county": cartogram(errors, study.table.counts, study.states, release.stderr()),
        "illinois": boxes_figure(boxed("IL"), names, "Illinois"),
        "states": states_figure(
            [boxed(state) for state in _ten(study, official)], TEN[official is None]
        ),
        "trend": trend_figure(study.trend(release.values), "the release of this folder"),
        "counts": counts_figure(study.slopes),
        "california": california_figure(*study.california, names, budgets),
    }
    if official is not None:
        figures["official trend"] = trend_figure(
            official.trend, "the official file", name="official-slopes-by-state"
        )
    return figures


def _ten(study: CensusStudy, official: OfficialErrors | None) -> list[str]:
    """The states of the paper's second figure, by its own rule where there is its file."""
    return (official and official.biased_states) or study.ten_states


def _release_summary(mechanism: Design, release: Release, table: Table) -> dict[str, Any]:
    errors = np.asarray(release.values) - table.counts
    expected = mechanism.expected_error()
    group = np.digitize(table.counts, SIZES) - 1
    by_size: list[dict[str, float | int]] = [
        {
            "from_population": least,
            "counties": int(np.count_nonzero(group == at)),
            "expected_root_mean_square": float(np.sqrt(expected.per_cell[group == at].mean())),
            "seen_root_mean_square": float(np.sqrt(np.mean(errors[group == at] ** 2))),
            "seen_mean": float(errors[group == at].mean()),
        }
        for at, least in enumerate(SIZES)
    ]
    return {
        "held": str(mechanism.mechanism.held),
        "held_totals": mechanism.mechanism.space.rank,
        "budget": str(mechanism.mechanism.budget),
        "guarantee": release.certificate()["guarantee"],
        "promise": " ".join(mechanism.guarantee.sentences()),
        "expected_squared_error": expected.total,
        "seen_squared_error": float(np.sum(errors**2)),
        "by_size": by_size,
        "verified": release.verify().ok,
    }


def _trend_summary(trend: BiasTrend) -> dict[str, Any]:
    return {
        "states": trend.groups,
        "left_out": trend.skipped,
        "negative": trend.negative,
        "positive": trend.positive,
        "significant_negative": trend.significant_negative,
        "significant_positive": trend.significant_positive,
        "sign_pvalue": trend.sign_pvalue,
    }


def _california_summary(study: CensusStudy) -> dict[str, float | int | str]:
    official, trend = study.official.errors, study.official_trend
    ours, near = study.california
    return {
        "counties": official.size,
        "official_root_mean_square": float(np.sqrt(np.mean(official**2))),
        "official_slope": float(trend.slope[0]),
        "official_slope_pvalue": float(trend.pvalue[0]),
        "root_mean_square": float(np.sqrt(np.mean(ours.errors**2))),
        "matching_budget": str(study.matched.mechanism.budget),
        "matching_root_mean_square": float(np.sqrt(np.mean(near.errors**2))),
    }


def census_page(
    results: Results,
    figures: Figures,
    study: CensusStudy,
    release: Release,
    homes: Grid,
    official: OfficialErrors | None = None,
) -> Page:
    """The page from what was measured."""
    return Page(
        title="County populations of 2010, with the total of every state exact",
        lede=[
            "The population of every county is published with noise that protects each person, and "
            "the population of every state exactly as it was counted: the counties of a state "
            "still add up to it. No error favours small counties or large ones, and every figure "
            "comes with a right standard error.",
            "The data are public, so this page can show true counts and errors. A page about "
            "confidential data could not.",
        ],
        parts=[
            _before_and_after(study, release),
            _everywhere(results, figures),
            _glance(results, release),
            _counties(figures, study, official),
            _slopes(results, figures, study.slopes.reaching(PAPER_NEGATIVE), official),
            _california(results, figures),
            _housing(results, homes),
            _protection(release),
        ],
        files=[
            ("values.csv, values.parquet", "the release: value and standard error of every county"),
            ("certificate.json", "the promise, its terms, and what is not protected"),
            ("housing/", "the release with housing units as a second invariant"),
            ("figures/", "the figures of this page as SVG"),
            ("results.json", "everything that was measured"),
        ],
        commands=[("subspacedp verify FOLDER", "Check the release with its files alone:")],
    )


def _before_and_after(study: CensusStudy, release: Release) -> Part:
    names, counts = county_names(), study.table.counts
    labels = study.table.domain.axes[0].labels
    values, stderr = np.asarray(release.values, np.float64), release.stderr()
    inside = np.flatnonzero(study.states == SHOWN_STATE)
    order = inside[np.argsort(-counts[inside], kind="stable")].tolist()
    total = int(counts[inside].sum())
    rows = [
        (
            names[str(labels[at])],
            f"{counts[at]:,}",
            f"{values[at]:,.1f} ± {stderr[at]:.1f}",
            signed(values[at] - counts[at], 1),
        )
        for at in order
    ]
    return Part(
        id="published",
        title="What is published",
        paragraphs=[
            "New Hampshire, as it was counted and as it is published; ± is a standard error. The "
            "sum of its counties is the same to the last person.",
        ],
        grids=[
            Grid(
                caption="New Hampshire before and after",
                columns=("county", "counted", "published", "difference"),
                rows=(*rows, ("all of New Hampshire", f"{total:,}", f"{total:,}, exact", "0")),
            )
        ],
        closing=[
            "What is promised, in a sentence: beyond the state totals, whatever anybody concludes "
            "from this file about a person would have been concluded nearly as often had that "
            "person's record been another, at odds that differ by a factor of at most "
            f"{math.exp(study.epsilon):.2f}."
        ],
    )


def _everywhere(results: Results, figures: Figures) -> Part:
    typical = results["release"]["by_size"][0]["expected_root_mean_square"]
    return Part(
        id="everywhere",
        title="Every county",
        paragraphs=[
            "One square for each of the 3,221 counties. Blue ones have fewer people in the release "
            f"than were counted, red ones more; the typical error is {typical:.1f} people, whether "
            "a county has 82 of them or ten million. The errors of a state add up to zero.",
        ],
        figures=[figures["every county"]],
    )


def _glance(results: Results, release: Release) -> Part:
    slopes, summary = results["slopes"][OURS.name], results["release"]
    typical = summary["by_size"][0]["expected_root_mean_square"]
    return Part(
        id="glance",
        title="At a glance",
        facts=[
            ("Budget", summary["budget"], "for neighbours that replace one record"),
            (
                "Exact",
                f"{summary['held_totals']} totals",
                "of states and territories, published as they are and not protected",
            ),
            (
                "Typical error",
                f"{typical:.1f} people",
                "in a county, of whatever size; none in the District of Columbia, which is a held "
                "total",
            ),
            (
                "Negative slopes",
                f"{100 * slopes['negative']:.1f} %",
                f"of {slopes['groups']} states × {slopes['runs']:,} runs; without bias it is half",
            ),
            (
                "Significant slopes",
                f"{100 * slopes['significant']:.1f} %",
                "at the level 0.01; without bias it is about 1 %",
            ),
            ("Guarantee", f"kind {release.guarantee.kind}", release.guarantee.name),
        ],
    )


def _counties(figures: Figures, study: CensusStudy, official: OfficialErrors | None) -> Part:
    return Part(
        id="counties",
        title="Errors by size of county",
        paragraphs=[
            f"Illinois as in the paper: {BOXED_RUNS} runs, a box for every county, the smallest on "
            "the left. A box holds the middle half of the errors, the stroke in it is the median, "
            "and the lines reach to the least and the most.",
        ],
        figures=[figures["illinois"], figures["states"]],
        closing=[_which_states(study, official)],
    )


def _which_states(study: CensusStudy, official: OfficialErrors | None) -> str:
    if official is None:
        return (
            "The paper shows ten further states, those where the demonstration files of November "
            "2020 were most biased. These files may not be passed on, so the rule here is another: "
            f"the ten states with the most counties, Illinois apart ({', '.join(study.ten_states)}"
            "). With a file of your own, --das FILE draws the official errors beside ours and "
            "takes the states by the paper's rule."
        )
    if official.biased_states:
        return (
            "Squares are the errors of the official file. The further states are those of the "
            "paper's rule: a significant negative slope in that file, the steepest first, Illinois "
            f"apart ({', '.join(official.biased_states)})."
        )
    return (
        "Squares are the errors of the official file. In this file no state has a significant "
        "negative slope, so those with the most counties are shown "
        f"({', '.join(study.ten_states)})."
    )


def _slopes(
    results: Results, figures: Figures, reached: int, official: OfficialErrors | None
) -> Part:
    slopes, trend = results["slopes"][OURS.name], results["trend"]
    measures = ("negative", "significant", "significant_negative")
    shares = (f"{100 * slopes[measure]:.1f} %" for measure in measures)
    return Part(
        id="slopes",
        title="Does the error depend on size?",
        paragraphs=[
            f"In each of the {trend['states']} states and territories with more than five counties "
            "the errors are regressed on the logarithm of the population. (Left out: the District "
            "of Columbia, Delaware, Hawaii and Rhode Island.) A method that takes from large "
            "places and gives to small ones has negative slopes.",
            f"In this release {trend['negative']} slopes are negative and {trend['positive']} "
            f"positive; {trend['significant_negative'] + trend['significant_positive']} "
            "significant. One release proves little, so it is repeated.",
        ],
        figures=[
            *([] if official is None else [figures["official trend"]]),
            figures["trend"],
            figures["counts"],
        ],
        grids=[
            Grid(
                caption="Slopes over all runs: share negative, and share significant at 0.01",
                columns=("method", "runs", "negative", "significant", "and negative"),
                rows=(
                    (OURS.name, f"{slopes['runs']:,}", *shares),
                    ("official TopDown, Nov. 2020 (the paper)", "1", "77 % (37)", "–", "23 % (11)"),
                    *([] if official is None else [_official_row(official.trend)]),
                ),
            )
        ],
        closing=[
            f"At least {PAPER_NEGATIVE} of {trend['states']} slopes, as many as the paper found in "
            f"the official files of November 2020, were negative in {reached} of "
            f"{slopes['runs']:,} runs. With both signs equally likely that happens once in 9,000.",
        ],
    )


def _official_row(trend: BiasTrend) -> tuple[str, ...]:
    counts = (
        trend.negative,
        trend.significant_negative + trend.significant_positive,
        trend.significant_negative,
    )
    shares = (f"{100 * count / trend.groups:.0f} % ({count})" for count in counts)
    return (f"official TopDown, your file ({trend.groups} states)", "1", *shares)


def _california(results: Results, figures: Figures) -> Part:
    measured = results["california"]
    return Part(
        id="california",
        title="An official release beside ours",
        paragraphs=[
            "On 16 March 2022 the Census Bureau released the counts of 2010 as its disclosure "
            f"avoidance for 2020 makes them. For the {measured['counties']} counties of California "
            f"its typical error is {measured['official_root_mean_square']:.1f} people, and the "
            f"slope on log population {signed(measured['official_slope'], 2)} (p-value "
            f"{measured['official_slope_pvalue']:.2f}): negative, and not significant.",
            "It is nearer than ours in the upper half of the figure. It has a budget and a design "
            "of its own, so this is no comparison at one budget. For county populations alone, "
            f"ours has the same error from {measured['matching_budget']} on: the lower half.",
        ],
        figures=[figures["california"]],
    )


def _housing(results: Results, homes: Grid) -> Part:
    measured = results["housing"]
    return Part(
        id="housing",
        title="Housing units as a second invariant",
        paragraphs=[
            "The Census publishes housing units exactly too. In a second release the table counts "
            "people and housing units, and holds the state totals of both and the housing units of "
            f"every county: {measured['held']:,} of {measured['answers']:,} figures. The "
            "population of a county keeps its standard error of about "
            f"{measured['stderr_of_a_population']:.1f}; people per housing unit have an exact "
            "denominator.",
        ],
        grids=[homes],
        closing=[
            f"The price: {measured['held']:,} figures without protection. Whether there is a "
            "housing unit can be read off; how many people live in a county stays protected, up to "
            "what the state totals say."
        ],
    )


def _protection(release: Release) -> Part:
    return Part(
        id="protected",
        title="What is protected, and what is not",
        paragraphs=[" ".join(release.guarantee.sentences()), *release.guarantee.not_protected()],
    )
