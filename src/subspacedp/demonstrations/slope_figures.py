"""Figures of slopes: state by state in one release, and counted over many runs."""

from __future__ import annotations

import numpy as np

from subspacedp.demonstrations.slopes import SlopeCounts
from subspacedp.demonstrations.style import (
    INK,
    OURS,
    PRACTICE,
    Figure,
    altair,
    data,
    figure,
    signed,
    zero_line,
)
from subspacedp.inference import BiasTrend

__all__ = ["PAPER_NEGATIVE", "counts_figure", "trend_figure"]

PAPER_NEGATIVE = 37  # of 48 slopes, in the demonstration files of November 2020


def trend_figure(trend: BiasTrend) -> Figure:
    """Slope and 99 % interval of every state, in order of slope."""
    alt = altair()
    from scipy.special import stdtrit

    half = stdtrit(trend.n - 2, 0.995) * trend.stderr
    order = np.argsort(trend.slope)
    values = [
        {
            "state": str(trend.labels[at]),
            "slope": float(trend.slope[at]),
            "lower": float(trend.slope[at] - half[at]),
            "upper": float(trend.slope[at] + half[at]),
            "significant": bool(trend.pvalue[at] <= trend.level),
        }
        for at in order.tolist()
    ]
    x = alt.X(
        "state:N",
        sort=None,
        title="states and territories with more than five counties, by slope",
        axis=alt.Axis(labelAngle=-90, grid=False),
    )
    base = alt.Chart(data(values)).encode(x=x)
    y_title = "people per unit of log population"
    intervals = base.mark_rule(color=OURS.colour, strokeWidth=2).encode(
        y=alt.Y("lower:Q", title=y_title), y2="upper:Q"
    )
    points = base.mark_point(
        color=OURS.colour, filled=True, size=45, opacity=1, shape=OURS.shape
    ).encode(y="slope:Q")
    rings = (
        base.transform_filter("datum.significant")
        .mark_point(color=INK, size=190, strokeWidth=2, opacity=1)
        .encode(y="slope:Q")
    )
    found = trend.significant_negative + trend.significant_positive
    return figure(
        alt.layer(zero_line(), intervals, points, rings).properties(width=860, height=280),
        "slopes-by-state",
        caption=(
            "Regression of error on log population, state by state, in the release of this folder: "
            "slope with 99 % interval; a ring marks significance at 0.01"
        ),
        description=(
            f"Slopes of {trend.groups} states: {trend.negative} negative, {trend.positive} "
            f"positive, {found} significant."
        ),
        columns=("state", "counties", "slope", "standard error", "p-value"),
        rows=[
            (
                str(trend.labels[at]),
                f"{trend.n[at]}",
                signed(trend.slope[at], 2),
                f"{trend.stderr[at]:.2f}",
                f"{trend.pvalue[at]:.3f}",
            )
            for at in order.tolist()
        ],
    )


def counts_figure(slopes: SlopeCounts) -> Figure:
    """How many slopes of a run are negative, over all runs, with the paper's count marked."""
    alt = altair()
    numbers, runs = np.unique(slopes.negative, return_counts=True)
    values = [
        {"negative": int(n), "share": float(r / slopes.runs)}
        for n, r in zip(numbers, runs, strict=True)
    ]
    scale = alt.Scale(domain=[min(8, int(numbers.min())) - 1, 41], nice=False)
    bars = (
        alt.Chart(data(values))
        .mark_bar(color=OURS.colour, width=14)
        .encode(
            x=alt.X(
                "negative:Q",
                title=f"negative slopes among {slopes.groups}",
                scale=scale,
                axis=alt.Axis(values=list(range(0, 49, 4)), grid=False),
            ),
            y=alt.Y("share:Q", title="share of runs", axis=alt.Axis(format="%", tickCount=5)),
        )
    )
    there = alt.Chart(data([{"at": PAPER_NEGATIVE, "text": "TopDown, Nov. 2020"}]))
    mark = there.mark_rule(
        color=PRACTICE.colour, strokeWidth=3, strokeDash=list(PRACTICE.dash)
    ).encode(x="at:Q")
    words = there.mark_text(color=INK, align="right", dx=-8, fontSize=13).encode(
        x="at:Q", y=alt.value(14), text="text:N"
    )
    more = there.mark_text(color=INK, align="right", dx=-8, dy=17, fontSize=13).encode(
        x="at:Q", y=alt.value(14), text=alt.value("(the paper): 37 of 48")
    )
    return figure(
        alt.layer(bars, mark, words, more).properties(width=620, height=260),
        "negative-slopes",
        caption=f"Negative slopes among {slopes.groups}, over {slopes.runs:,} runs",
        description=(
            "The number of negative slopes of a run scatters around half; the 37 that the paper "
            f"found in TopDown's files were reached in {slopes.reaching(PAPER_NEGATIVE)} runs."
        ),
        columns=("negative slopes", "runs"),
        rows=[(f"{n}", f"{r:,}") for n, r in zip(numbers, runs, strict=True)],
        texts=0,
    )
