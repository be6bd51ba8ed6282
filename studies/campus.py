"""`python -m studies campus`: who is where on a campus, with both margins of the paper held exact.

Releases under both readings of who is protected, real records beside them, figures and one page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from studies.campus_errors import (
    DAY,
    HOUR,
    Quantiles,
    RunErrors,
    campus_table,
    day_mechanism,
    day_price,
    expected_of_a_cell,
    expected_quantiles,
    lonely_totals,
    run_errors,
    unit_mechanism,
)
from studies.campus_people import BUILDINGS, HOURS, PEOPLE
from studies.records import CASES, publish_case, trials
from subspacedp.demo.page import OURS, TRUTH, Figure, Grid, Page, Part, render
from subspacedp.errors import ReleaseError
from subspacedp.release import Design, check_new_folder, new_folder
from subspacedp.report.page import publishing
from subspacedp.report.plots import GRID, INK, Plot, bands, drawing, linear
from subspacedp.tables import Table

__all__ = ["all_curves", "campus", "campus_page", "some_curves", "variance_figure"]

BUDGETS = (1.0, 4.0, 8.0)  # ε for a person's day
SAVED = 4.0  # of these, the one whose release is written
SHOWN = (0, 20, 50, 90)  # panels in order of their person-hours, the largest first
Array = npt.NDArray[Any]
PANEL = HOURS + 4  # hours of width, with a gap
HEADING = "Grey areas: true.  Lines: released."
PAPER = Quantiles(0.86, 0.88, 0.91)
UNITS = {"tailnum": "an aircraft", "person": "a person", "person_day": "a person's day"}


def campus(
    out: str | PathLike[str],
    runs: int = 50,
    *,
    seed: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Make the demonstration in a new folder: releases, figures, one page.

    Parameters
    ----------
    out
        The folder; it must not exist yet.
    runs
        How many releases the error is measured over; the paper has 50.
    seed
        Only for examples and tests: reproducible noise, stamped as not for publication.
    progress
        Called with a sentence before each step.

    Returns
    -------
    dict
        What was measured, as it is written to `results.json`.
    """
    if not isinstance(runs, int) or isinstance(runs, bool) or not 2 <= runs <= 10_000:
        raise ReleaseError(f"`runs` must be a whole number from 2 to 10,000; got {runs!r}.")
    publishing("jinja2")  # refuse before anything is done
    check_new_folder(out)
    report = progress or (lambda sentence: None)
    report(f"simulating a day of {PEOPLE:,} people")
    table, unit = campus_table(), unit_mechanism()
    report(f"releasing the table {runs} times")
    errors = run_errors(unit, table, runs, seed)
    with new_folder(out) as scratch:
        report("making the releases")
        hour, days = unit.release(table, seed=seed), {}
        for epsilon in BUDGETS:
            days[epsilon] = day_mechanism(epsilon).release(table, seed=seed)
        hour.save(scratch / "campus-hour")
        days[SAVED].save(scratch / "campus-day")
        report("publishing flights and telephones")
        for case in CASES:
            publish_case(case, scratch, seed)
        results: dict[str, Any] = {
            "campus": {
                "people": PEOPLE,
                "person_hours": int(table.counts.sum()),
                "cells": table.counts.size,
                "rank": unit.mechanism.space.rank,
                "expected_variance": unit.mechanism.space.dimension / table.counts.size,
                "expected_quantiles": vars(expected_quantiles(unit)),
                "expected_of_a_cell": vars(expected_of_a_cell(unit, runs)),
                **errors.as_dict(),
                "held_totals": dict(zip(("ones", "all"), lonely_totals(table), strict=True)),
                "readings": _readings(table),
            },
            **{case.name: [trial.as_dict() for trial in trials(case)] for case in CASES},
        }
        report("drawing")
        order = np.argsort(-table.counts.sum(axis=1).ravel(), kind="stable")
        places = [divmod(int(order[place]), table.counts.shape[2]) for place in SHOWN]
        shown = {
            "an hour, σ = 1": hour.values,
            "a day, ε = 4": days[4.0].values,
            "a day, ε = 1": days[1.0].values,
        }
        figures = (
            all_curves(table.counts, hour.values),
            variance_figure(errors, expected_quantiles(unit)),
            some_curves(table.counts, shown, places),
        )
        (scratch / "figures").mkdir()
        for drawn in figures:
            drawn.write(scratch / "figures")
        text = json.dumps(results, indent=1, ensure_ascii=False)
        (scratch / "results.json").write_text(text + "\n", "utf-8")
        page = render(campus_page(results, figures, seeded=seed is not None))
        (scratch / "index.html").write_text(page, "utf-8")
    return {**results, "page": str(Path(out) / "index.html")}


def _readings(table: Table) -> list[dict[str, Any]]:
    """The error of a cell under every reading of who is protected, and without any release."""
    unit = unit_mechanism()
    space = unit.mechanism.null_space
    alone = space.project(table.counts.astype(np.float64))
    rows = [
        _reading("one hour of a person", "σ = 1, the paper's", unit, day_price(HOUR)),
        _reading("a person's day", "σ = 1, the paper's", unit, day_price(DAY)),
    ]
    for epsilon in BUDGETS:
        made = day_mechanism(epsilon)
        rows.append(_reading("a person's day", f"ε = {epsilon:g} asked for", made, epsilon))
    rows.append(
        {
            "protected": "held totals alone, no release",
            "noise": "none",
            "epsilon": 0.0,
            "sigma": 0.0,
            "error": float(np.sqrt(np.mean(alone**2))),
        }
    )
    return rows


def _reading(protected: str, noise: str, mechanism: Design, epsilon: float) -> dict[str, Any]:
    return {
        "protected": protected,
        "noise": noise,
        "epsilon": epsilon,
        "sigma": mechanism.mechanism.law.scale,
        "error": float(np.sqrt(mechanism.expected_error().per_cell.mean())),
    }


def all_curves(counts: Array, released: Array) -> Figure:
    """Group by building: the true hourly curves as areas, one release as lines.

    Every building has its own scale, the same for all groups.
    """
    groups = len(counts)
    tops = np.maximum(counts.max(axis=(0, 1)), released.max(axis=(0, 1)))
    names = [(groups - g - 0.5, f"group {g + 1}") for g in range(groups)]
    plot = Plot(
        x=linear(-2, len(BUILDINGS) * PANEL, ticks=()),
        y=linear(0, groups, ticks=names, grid=False),
        width=1480,
        height=56 * groups,
        title=" ",  # leaves room for the names of the buildings
    )
    for b, name in enumerate(BUILDINGS):
        plot.across(GRID, x=b * PANEL - 2)
        middle = b * PANEL + HOURS / 2
        for line, words in enumerate((f"to {tops[b]:.0f}", name)):
            plot.words(middle, groups, words, anchor="middle", shift=(0, -5 - 13 * line), size=11)
        for g in range(groups):
            floor = groups - 1 - g + 0.14
            heights = 0.8 * np.stack([counts[g, :, b], released[g, :, b]]) / tops[b]
            heights[1] = np.maximum(heights[1], -0.13)
            true, noisy = (_steps(floor + h, b * PANEL) for h in heights)
            plot.area(_down_to(true, floor), TRUTH.colour, 0.25)
            plot.line(noisy, OURS.colour, 1)
    plot.across(GRID, x=len(BUILDINGS) * PANEL - 2)
    return Figure(
        name="campus-all",
        svg=drawing([[plot]], heading=HEADING),
        caption="Person-hours by group, building and hour: true and released",
        description=(
            f"{groups} rows of groups and {len(BUILDINGS)} columns of buildings; in each panel the "
            "24 hours of a day. The lines of a release with noise of standard deviation one follow "
            "the grey areas of the true counts. Each building has its own scale, from 0 to the "
            "number under its name."
        ),
    )


def some_curves(
    counts: Array, released: Mapping[str, Array], panels: Sequence[tuple[int, int]]
) -> Figure:
    """A few panels large enough to read, one row a release, one column a group and a building."""
    grid = []
    for place, (name, values) in enumerate(released.items()):
        row = []
        for g, b in panels:
            every = [counts[g, :, b], *(other[g, :, b] for other in released.values())]
            low, high = (
                min(0.0, *(float(e.min()) for e in every)),
                max(float(e.max()) for e in every),
            )
            hours = [(hour, str(hour)) for hour in range(0, HOURS + 1, 6)]
            words = "hour" if place == len(released) - 1 else ""
            plot = Plot(
                x=linear(0, HOURS, ticks=hours, title=words, grid=False),
                y=linear(low, high, number=4, title=name if (g, b) == panels[0] else ""),
                width=225,
                height=130,
                title=f"group {g + 1}, {BUILDINGS[b]}" if place == 0 else "",
            )
            plot.area(_down_to(_steps(counts[g, :, b]), 0), TRUTH.colour, 0.25)
            plot.line(_steps(values[g, :, b]), OURS.colour)
            row.append(plot)
        grid.append(row)
    return Figure(
        name="campus-some",
        svg=drawing(grid, heading=HEADING, spacing=(14, 14)),
        caption="Some of these curves, under both readings of who is protected",
        description=(
            f"True and released hourly counts of {len(panels)} panels, from many person-hours to "
            "few. With unit noise the curves agree to the eye; with noise for a person's whole day "
            "only large counts can be read."
        ),
    )


def variance_figure(errors: RunErrors, expected: Quantiles) -> Figure:
    """Variance and standard deviation of every run, beside what the paper printed."""
    measures = {
        "variance": (errors.variances, expected),
        "standard deviation": (
            np.sqrt(errors.variances),
            Quantiles(*(float(np.sqrt(v)) for v in vars(expected).values())),
        ),
    }
    low = min(0.84, math.floor(100 * errors.variances.min()) / 100)
    high = max(0.98, math.ceil(100 * math.sqrt(errors.variances.max())) / 100)
    title = "error of a run, in units of the noise before projection"
    x = linear(low, high, number=8, form=lambda value: f"{value:.2f}", title=title)
    plot = Plot(x=x, y=bands(list(measures)), width=640, height=170, title=" ", down=True)
    plot.box((PAPER.low, -0.5), (PAPER.high, 1.5), GRID, opacity=0.6)
    plot.across(INK, x=PAPER.median, dash="4,3")
    plot.words(PAPER.median, -0.5, "paper: 0.88 (0.86, 0.91)", anchor="middle", shift=(0, -6))
    for at, (values, quantiles) in enumerate(measures.values()):
        for i, value in enumerate(values.tolist()):
            lift = 10.0 * ((7 * i) % 5 - 2)
            plot.dot(value, at, 3.5, OURS.colour, shape=OURS.shape, shift=lift, opacity=0.75)
        plot.span((quantiles.low, at), (quantiles.high, at), INK)
        plot.box((quantiles.median, at), (quantiles.median, at), INK, thick=(3, 26))
    rows = [
        (what, *(f"{v:.4f}" for v in (*vars(Quantiles.of(seen)).values(), *vars(q).values())))
        for what, (seen, q) in measures.items()
    ]
    return Figure(
        name="campus-variance",
        svg=drawing([[plot]]),
        caption=f"Error of {len(errors.variances)} runs beside the paper's figure",
        description=(
            "Each dot is a run. The variances lie around 0.89, inside the paper's interval from "
            "0.86 to 0.91; the standard deviations lie around 0.94, outside it. Black bars are the "
            "5 % to 95 % range by theory."
        ),
        columns=("error", "5 % seen", "median seen", "95 % seen", "5 %", "median", "95 %"),
        rows=rows,
    )


def _steps(heights: Array, start: float = 0) -> list[tuple[float, float]]:
    """A line that keeps each height for an hour."""
    return [
        (start + hour + end, float(height))
        for hour, height in enumerate(heights.tolist())
        for end in (0, 1)
    ]


def _down_to(line: list[tuple[float, float]], floor: float) -> list[tuple[float, float]]:
    """What lies between a line and a floor."""
    return [(line[0][0], floor), *line, (line[-1][0], floor)]


def campus_page(
    results: Mapping[str, Any], figures: Sequence[Figure], *, seeded: bool = False
) -> Page:
    """The page from what was measured."""
    campus = results["campus"]
    stamp = ["Made from a chosen seed: not for publication."] if seeded else []
    return Page(
        title="A campus, hour by hour, with both margins exact",
        lede=[
            *stamp,
            f"{campus['people']:,} simulated people, 14 groups × 24 hours × 20 buildings: how many "
            "of each group are where, and when. The total of every building in every hour, and of "
            "every group in every building, are published exactly; everything else has Gaussian "
            "noise that leaves these totals alone.",
        ],
        parts=[
            _error_part(campus, figures),
            _unit_part(campus, figures),
            _people_part(campus),
            _records_part(results),
        ],
        files=[
            ("campus-hour/", "the release with unit noise: values, certificate"),
            ("campus-day/", "the release that protects a person's whole day at ε = 4, δ = 10⁻⁶"),
            *(
                (f"{case.name}/", "records, specification and publication of the real data")
                for case in CASES
            ),
            ("figures/", "the figures as SVG"),
            ("results.json", "everything that was measured"),
        ],
        commands=[("subspacedp verify campus-hour", "Check a release with its files alone:")],
    )


def _error_part(campus: Mapping[str, Any], figures: Sequence[Figure]) -> Part:
    variance, expected = campus["variance"], campus["expected_quantiles"]
    deviation, cell = campus["standard_deviation"], campus["standard_deviation_of_a_cell"]

    of_a_cell = campus["expected_of_a_cell"]
    names = ("low", "median", "high")

    def row(
        name: str, seen: Mapping[str, float], theory: Mapping[str, float], paper: str = ""
    ) -> tuple[str, ...]:
        low, middle, high = (theory[k] for k in names)
        by_theory = f"{middle:.3f} ({low:.3f}, {high:.3f})"
        return (name, *(f"{seen[k]:.3f}" for k in names), by_theory, paper)

    return Part(
        id="error",
        title="The paper's figure, and a correction",
        paragraphs=[
            f"The table has {campus['cells']:,} cells and the held totals have rank "
            f"{campus['rank']}, so noise is left in {campus['cells'] - campus['rank']:,} "
            "dimensions.",
            "The paper gives 0.88 (0.86, 0.91) as median and 5 % and 95 % quantiles of the "
            "standard deviation of the errors over 50 runs. These figures fit a variance. The "
            "mean square of unit noise projected from 6,720 to 5,980 dimensions is 5980/6720 = "
            "0.8899, with 5 % and 95 % quantiles of 0.863 and 0.917; the standard deviation is its "
            "root, 0.943.",
        ],
        figures=figures[:2],
        grids=[
            Grid(
                caption=f"Errors over {campus['runs']} runs, in units of the noise before it is "
                "projected",
                columns=("", "5 %", "median", "95 %", "by theory", "paper"),
                rows=(
                    row("variance of a run", variance, expected, "0.88 (0.86, 0.91)"),
                    row(
                        "standard deviation of a run",
                        deviation,
                        {k: expected[k] ** 0.5 for k in names},
                    ),
                    row("standard deviation of a cell over the runs", cell, of_a_cell),
                ),
            )
        ],
        closing=[
            "Noise is whole numbers: a rounded Gaussian of standard deviation one has the variance "
            "1.083, and errors are divided by its root. The largest error of a held total in all "
            f"runs was {campus['largest_error_of_a_held_total']:.1e}, which is rounding in float64."
        ],
    )


def _unit_part(campus: Mapping[str, Any], figures: Sequence[Figure]) -> Part:
    readings = campus["readings"]
    ones, held = campus["held_totals"]["ones"], campus["held_totals"]["all"]
    return Part(
        id="unit",
        title="Who is protected",
        paragraphs=[
            "The paper names no budget for its unit noise, and its neighbours exchange one record: "
            f"a person in a building for an hour. That is ε = {readings[0]['epsilon']:.1f} at "
            "δ = 10⁻⁶. A person has up to 24 such records, at most one in a cell. For a whole day "
            f"the same noise gives ε = {readings[1]['epsilon']:.0f}, a limit that limits nothing "
            "in practice. Noise for a day is √24 times as large at the same budget.",
            f"Held totals are not protected under either reading: {ones} of the {held} are one, "
            "and say exactly when or where somebody was alone.",
        ],
        figures=figures[2:],
        grids=[
            Grid(
                caption="Typical error of a cell (root mean square), beside that of the "
                "least-squares fit to the held totals",
                columns=("protected", "noise", "ε at δ = 10⁻⁶", "σ", "error of a cell"),
                rows=tuple(
                    (
                        r["protected"],
                        r["noise"],
                        f"{r['epsilon']:.1f}" if r["epsilon"] else "",
                        f"{r['sigma']:.2f}" if r["sigma"] else "",
                        f"{r['error']:.2f}",
                    )
                    for r in readings
                ),
                texts=2,
            )
        ],
        closing=[
            "At ε = 1 single cells, taken as they stand, are farther off than the least-squares "
            "fit to the held totals; only the two together are nearer. At ε = 4 the error of a "
            "cell is under half of that of the totals alone."
        ],
    )


def _people_part(campus: Mapping[str, Any]) -> Part:
    return Part(
        id="people",
        title="Where the people and the groups come from",
        paragraphs=[
            "The WiFi log of the paper is to be had from its owners only, so the people are "
            "simulated: six kinds with their shares, homes, places of work and daily routines, "
            "hours moved at random, 15 % of hours spent otherwise and 5 % unseen, all from public "
            f"parameters and a seed. The day has {campus['person_hours']:,} person-hours.",
            "As in the paper, groups are found by k-means on who was where when. Groups found in "
            "the data are not public and not protected: a label says how its person behaved, and "
            "one person moves the centres that decide on the others. The guarantee takes groups as "
            "given. A real publication needs groups known beforehand, such as enrolment or year.",
        ],
    )


def _records_part(results: Mapping[str, Any]) -> Part:
    grids = []
    for case in CASES:
        found = results[case.name]
        grids.append(
            Grid(
                caption=f"{case.title}: {found[0]['cells']} cells, {found[0]['mean_count']:,.0f} "
                "records each on average; errors as root mean squares",
                columns=(
                    "protected",
                    "records at most",
                    "in a cell",
                    "left out",
                    "from noise",
                    "from leaving out",
                    "error of a cell",
                    "held totals alone",
                ),
                rows=tuple(
                    (
                        UNITS[t["unit"]] + (", published" if place == 0 else ""),
                        str(t["records"]),
                        str(t["per_cell"]),
                        f"{100 * t['left_out']:.0f} %",
                        f"{t['noise']:.1f}",
                        f"{t['left_out_error']:.1f}",
                        f"{t['error']:.1f}",
                        f"{t['held_alone']:.1f}",
                    )
                    for place, t in enumerate(found)
                ),
            )
        )
    return Part(
        id="records",
        title="The same with real records",
        paragraphs=[
            "Real records have no bound on how many one person has. Noise needs one, and what is "
            "beyond it is left out of the measurement; held totals count everything. So there are "
            "two errors: from noise, which the certificate states, and from leaving out, which "
            "nobody can compute without the data. Here ε = 1 and δ = 10⁻⁶, and the data are "
            "public. A real publication must choose its bound without looking.",
            "Flights out of New York in July 2013, by origin, time of day and destination; held "
            "are the flights of every airport at every time, and of every route. Sightings of a "
            "hundred telephones in Hangzhou, by grid cell and time of day; held are both totals.",
        ],
        grids=grids,
        closing=[
            "A low bound beats a high one for flights, though it leaves out half of them. A "
            "hundred people are too few for ε = 1 on the whole person: nothing is gained over the "
            "held totals. Protecting a person's day, which is a weaker promise, gains about a "
            "third."
        ],
    )
