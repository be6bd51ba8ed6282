"""The words and tables of the campus page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from subspacedp.demonstrations.campus_records import CASES
from subspacedp.demonstrations.page import Grid, Page, Part
from subspacedp.demonstrations.style import Figure

__all__ = ["campus_page"]

UNITS = {"tailnum": "an aircraft", "person": "a person", "person_day": "a person's day"}


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
            ("figures/", "the figures as PNG and SVG"),
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
