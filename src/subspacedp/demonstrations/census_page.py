"""The words and tables of the census page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from subspacedp.demonstrations.cell_sizes import METHODS, SMALL, Comparison
from subspacedp.demonstrations.census_study import BOXED_RUNS, CensusStudy
from subspacedp.demonstrations.page import Grid, Page, Part
from subspacedp.demonstrations.practice_figures import comparison_grids
from subspacedp.demonstrations.slope_figures import PAPER_NEGATIVE
from subspacedp.demonstrations.style import Figure, signed
from subspacedp.release import Release

__all__ = ["census_page"]

Results = Mapping[str, Any]
Figures = Mapping[str, Figure]


def census_page(
    results: Results, figures: Figures, study: CensusStudy, release: Release, homes: Grid
) -> Page:
    """The page from what was measured."""
    return Page(
        title="County populations of 2010, with the total of every state exact",
        lede=[
            f"3,221 counties in 52 states and territories, {results['release']['budget']}: every "
            "county but one has noise, and no state total moves. (The District of Columbia is a "
            "county and a held total at once: it is published as it is.) The errors do not depend "
            "on the size of a county. Below: the figures of the paper, the same check over many "
            "runs, an official release, and today's practice on tables with small cells.",
            "The data are public, so this page can show true counts and errors. A page about "
            "confidential data could not.",
        ],
        parts=[
            _glance(results, release),
            _counties(figures, study),
            _slopes(results, figures, study.slopes.reaching(PAPER_NEGATIVE)),
            _california(results, figures),
            _practice(figures, study),
            _housing(results, homes),
            _protection(release),
        ],
        files=[
            ("values.csv, values.parquet", "the release: value and standard error of every county"),
            ("certificate.json", "the promise, its terms, and what is not protected"),
            ("housing/", "the release with housing units as a second invariant"),
            ("figures/", "the figures of this page as PNG and SVG"),
            ("results.json", "everything that was measured"),
        ],
        commands=[("subspacedp verify FOLDER", "Check the release with its files alone:")],
    )


def _glance(results: Results, release: Release) -> Part:
    slopes, made = results["slopes"]["projected"], results["release"]
    typical = made["by_size"][0]["expected_root_mean_square"]
    return Part(
        id="glance",
        title="At a glance",
        facts=[
            ("Budget", made["budget"], "for neighbours that replace one record"),
            (
                "Exact",
                f"{made['held_totals']} totals",
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


def _counties(figures: Figures, study: CensusStudy) -> Part:
    return Part(
        id="counties",
        title="Errors by size of county",
        paragraphs=[
            f"Illinois as in the paper: {BOXED_RUNS} runs, a box for every county, the smallest on "
            "the left. A box holds the middle half of the errors, the stroke in it is the median, "
            "and the lines reach to the least and the most.",
        ],
        figures=[figures["illinois"], figures["states"]],
        closing=[
            "The paper shows ten further states, those where the demonstration files of November "
            "2020 were most biased. These files may not be passed on, so the rule here is another: "
            f"the ten states with the most counties, Illinois apart ({', '.join(study.ten_states)}"
            ").",
        ],
    )


def _slopes(results: Results, figures: Figures, reached: int) -> Part:
    counted, trend = results["slopes"], results["trend"]
    rows = [
        _slope_row("48 states, county totals", "projected", counted["projected"]),
        _slope_row("48 states, county totals", "post-processed", counted["post-processed"]),
        *(
            _slope_row("Texas, sums of race × age", name, counted["Texas"][name])
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
    ]
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
        figures=[figures["trend"], figures["counts"]],
        grids=[
            Grid(
                caption="Slopes over all runs: share negative, and share significant at 0.01",
                columns=("places", "method", "runs", "negative", "significant", "and negative"),
                rows=tuple(rows),
                texts=2,
            )
        ],
        closing=[
            f"At least {PAPER_NEGATIVE} of {trend['states']} slopes, as many as the paper found in "
            f"the official files of November 2020, were negative in {reached} of "
            f"{counted['projected']['runs']:,} runs. Fair coins would do so once in 9,000.",
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


def _california(results: Results, figures: Figures) -> Part:
    found = results["california"]
    return Part(
        id="california",
        title="An official release beside ours",
        paragraphs=[
            "On 16 March 2022 the Census Bureau released the counts of 2010 as its disclosure "
            f"avoidance for 2020 makes them. For the {found['counties']} counties of California "
            f"its typical error is {found['official_root_mean_square']:.1f} people, and the slope "
            f"on log population {signed(found['official_slope'], 2)} (p-value "
            f"{found['official_slope_pvalue']:.2f}): negative, and not significant.",
            "It is nearer than ours in the upper half of the figure. It has a budget and a design "
            "of its own, so this is no comparison at one budget. For county populations alone, "
            f"ours has the same error from {found['matching_budget']} on: the lower half.",
        ],
        figures=[figures["california"]],
    )


def _practice(figures: Figures, study: CensusStudy) -> Part:
    return Part(
        id="practice",
        title="Today's practice, where cells are small",
        paragraphs=[
            "Counties of Texas and tracts of Dallas County, by eight groups of race and ethnicity "
            "and two of age. The total of the whole is held, and every method has the same budget "
            f"(ε = {study.epsilon:g}) and the same exact noise. Projected: the release of this "
            "package. One level: the same noisy cells, then the nearest table without negative "
            "values, then whole numbers. TopDown: race by age in the whole (a tenth of the "
            "budget), totals of places (two tenths), cells of places (seven tenths), each level "
            "fitted by least squares without negative values to the one above and rounded so that "
            "sums stay.",
        ],
        figures=[figures["bias"], figures["squared error"]],
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
        "cut off cell by cell does not average out.",
    ]


def _listed(classes: Sequence[str]) -> str:
    if not classes:
        return "none"
    return classes[0] if len(classes) == 1 else f"{', '.join(classes[:-1])} and {classes[-1]}"


def _housing(results: Results, homes: Grid) -> Part:
    found = results["housing"]
    return Part(
        id="housing",
        title="Housing units as a second invariant",
        paragraphs=[
            "The Census publishes housing units exactly too. In a second release the table counts "
            "people and housing units, and holds the state totals of both and the housing units of "
            f"every county: {found['held']:,} of {found['answers']:,} figures. The population of a "
            f"county keeps its standard error of about {found['stderr_of_a_population']:.1f}; "
            "people per housing unit have an exact denominator.",
        ],
        grids=[homes],
        closing=[
            f"The price: {found['held']:,} figures without protection. Whether there is a housing "
            "unit can be read off; how many people live in a county stays protected, up to what "
            "the state totals say."
        ],
    )


def _protection(release: Release) -> Part:
    return Part(
        id="protected",
        title="What is protected, and what is not",
        paragraphs=[" ".join(release.guarantee.sentences()), *release.guarantee.not_protected()],
    )
