"""`subspacedp demo census`: the paper's first demonstration, and today's practice beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.datasets import county_names
from subspacedp.demonstrations.census_figures import (
    boxes_figure,
    california_figure,
    states_figure,
)
from subspacedp.demonstrations.census_page import census_page
from subspacedp.demonstrations.census_study import CensusStudy
from subspacedp.demonstrations.housing import HousingStudy
from subspacedp.demonstrations.page import render
from subspacedp.demonstrations.practice_figures import bias_figure, error_figure
from subspacedp.demonstrations.slope_figures import counts_figure, trend_figure
from subspacedp.demonstrations.style import Figure, altair
from subspacedp.errors import ReleaseError
from subspacedp.invariants import hold
from subspacedp.mechanisms import Mechanism, design
from subspacedp.privacy import PureDP
from subspacedp.release import Release, check_new_folder, new_folder, write_digests, write_files
from subspacedp.tables import Table

__all__ = ["EPSILON", "census"]

EPSILON = 0.192  # the paper's: 4 in all × 0.16 for counties × 0.3 for populations
SIZES = (0, 5_000, 20_000, 100_000, 500_000)
Tell = Callable[[str], None]


def census(
    out: str | PathLike[str],
    runs: int = 1000,
    *,
    epsilon: float = EPSILON,
    decimals: int | None = None,
    progress: Tell | None = None,
) -> dict[str, Any]:
    """Release county populations into a new folder, with figures and one page about the errors.

    Parameters
    ----------
    out
        The folder; it must not exist yet.
    runs
        How often the release is simulated to count slopes; the comparison with today's practice on
        small cells, which is slower, has one run for every twenty.
    epsilon
        The budget.
    decimals
        Of the release; real values by default.
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
    mechanism = design(study.table.domain, hold("state"), PureDP(epsilon), decimals=decimals)
    altair()  # refuse before anything is written
    check_new_folder(out)
    with new_folder(out) as scratch:
        study.tell("releasing county populations")
        release = mechanism.release(study.table)
        write_files(release, scratch)
        homes = HousingStudy(epsilon)
        homes_release = homes.mechanism.release(homes.table)
        homes_release.save(scratch / "housing")
        results = {
            "release": _release_summary(mechanism, release, study.table),
            "trend": _trend_summary(study, release),
            "slopes": {
                "projected": study.slopes.summary(),
                "post-processed": study.post_processed_slopes.summary(),
                "Texas": {name: one.summary() for name, one in study.texas_slopes.items()},
            },
            "practice": [one.summary() for one in study.comparisons],
            "california": _california_summary(study),
            "housing": homes.summary(homes_release),
        }
        study.tell("drawing")
        figures = _figures(study, release)
        (scratch / "figures").mkdir()
        for drawn in figures.values():
            drawn.write(scratch / "figures")
        page = census_page(results, figures, study, release, homes.grid(homes_release))
        (scratch / "index.html").write_text(render(page), "utf-8")
        text = json.dumps(results, indent=1, ensure_ascii=False)
        (scratch / "results.json").write_text(text + "\n", "utf-8")
        write_digests(scratch)
    return {**results, "folder": str(out), "page": str(Path(out) / "index.html")}


def _figures(study: CensusStudy, release: Release) -> dict[str, Figure]:
    names = county_names()
    budgets = (f"ε = {study.epsilon:g}", f"{study.matched.design.budget}")
    return {
        "illinois": boxes_figure(study.boxed("IL"), names, "Illinois"),
        "states": states_figure([study.boxed(state) for state in study.ten_states]),
        "trend": trend_figure(study.trend(release.values)),
        "counts": counts_figure(study.slopes),
        "california": california_figure(*study.california, study.official_in_order, names, budgets),
        "bias": bias_figure(study.comparisons),
        "squared error": error_figure(study.comparisons),
    }


def _release_summary(mechanism: Mechanism, release: Release, table: Table) -> dict[str, Any]:
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
        "held": str(mechanism.design.held),
        "held_totals": mechanism.design.space.rank,
        "budget": str(mechanism.design.budget),
        "guarantee": release.certificate()["guarantee"],
        "promise": " ".join(mechanism.guarantee.sentences()),
        "expected_squared_error": expected.total,
        "seen_squared_error": float(np.sum(errors**2)),
        "by_size": by_size,
        "verified": release.verify().ok,
    }


def _trend_summary(study: CensusStudy, release: Release) -> dict[str, Any]:
    trend = study.trend(release.values)
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
        "matching_budget": str(study.matched.design.budget),
        "matching_root_mean_square": float(np.sqrt(np.mean(near.errors**2))),
    }
