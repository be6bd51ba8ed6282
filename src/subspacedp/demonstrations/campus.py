"""`subspacedp demo campus`: who is where on a campus, with both margins of the paper held exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.demonstrations.campus_figures import all_curves, some_curves, variance_figure
from subspacedp.demonstrations.campus_page import campus_page
from subspacedp.demonstrations.campus_people import PEOPLE
from subspacedp.demonstrations.campus_records import CASES, publish_case, trials
from subspacedp.demonstrations.campus_runs import (
    DAY,
    HOUR,
    campus_table,
    day_mechanism,
    day_price,
    expected_of_a_cell,
    expected_quantiles,
    lonely_totals,
    run_errors,
    unit_mechanism,
)
from subspacedp.demonstrations.page import render
from subspacedp.demonstrations.style import altair
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms import Mechanism
from subspacedp.release import check_new_folder, new_folder
from subspacedp.tables import Table

__all__ = ["campus"]

BUDGETS = (1.0, 4.0, 8.0)  # ε for a person's day
SAVED = 4.0  # of these, the one whose release is written
SHOWN = (0, 20, 50, 90)  # panels in order of their person-hours, the largest first


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
    altair()  # refuse before anything is done
    check_new_folder(out)
    tell = progress or (lambda sentence: None)
    tell(f"simulating a day of {PEOPLE:,} people")
    table, unit = campus_table(), unit_mechanism()
    tell(f"releasing the table {runs} times")
    errors = run_errors(unit, table, runs, seed)
    with new_folder(out) as scratch:
        tell("making the releases")
        hour, days = unit.release(table, seed=seed), {}
        for epsilon in BUDGETS:
            days[epsilon] = day_mechanism(epsilon).release(table, seed=seed)
        hour.save(scratch / "campus-hour")
        days[SAVED].save(scratch / "campus-day")
        tell("publishing flights and telephones")
        for case in CASES:
            publish_case(case, scratch, seed)
        results: dict[str, Any] = {
            "campus": {
                "people": PEOPLE,
                "person_hours": int(table.counts.sum()),
                "cells": table.counts.size,
                "rank": unit.design.space.rank,
                "expected_variance": unit.design.space.dimension / table.counts.size,
                "expected_quantiles": vars(expected_quantiles(unit)),
                "expected_of_a_cell": vars(expected_of_a_cell(unit, runs)),
                **errors.as_dict(),
                "held_totals": dict(zip(("ones", "all"), lonely_totals(table), strict=True)),
                "readings": _readings(table),
            },
            **{case.name: [trial.as_dict() for trial in trials(case)] for case in CASES},
        }
        tell("drawing")
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
    space = unit.design.space
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


def _reading(protected: str, noise: str, mechanism: Mechanism, epsilon: float) -> dict[str, Any]:
    return {
        "protected": protected,
        "noise": noise,
        "epsilon": epsilon,
        "sigma": mechanism.design.law.scale,
        "error": float(np.sqrt(mechanism.expected_error().per_cell.mean())),
    }
