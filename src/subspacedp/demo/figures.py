"""Figures of errors by county, in order of size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.demo.page import (
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
from subspacedp.demo.study import SlopeCounts, StateErrors
from subspacedp.inference import BiasTrend

__all__ = [
    "PAPER_NEGATIVE",
    "boxes_figure",
    "california_figure",
    "counts_figure",
    "states_figure",
    "trend_figure",
]
PAPER_NEGATIVE = 37  # of 48 slopes, in the demonstration files of November 2020


def boxes_figure(errors: StateErrors, names: Mapping[str, str], title: str) -> Figure:
    """The counties of a state in order of size: the errors of ten runs as boxes."""
    alt = altair()
    rows = tuple(
        (names[code], f"{size:,}", *(signed(value, 0) for value in quartiles))
        for code, size, quartiles in zip(
            errors.codes, errors.size.tolist(), _quartiles(errors.errors).T, strict=True
        )
    )
    chart = _boxes(alt, errors, 860, 300, _reach([errors.errors]), width_of_box=5)
    return figure(
        chart,
        f"errors-{errors.state.lower()}",
        caption=f"{title}: errors of the counties over {len(errors.errors)} runs, smallest first",
        description=(
            f"Box plots of the errors of {len(errors.size)} counties in order of population. They "
            "scatter evenly around zero, small counties and large ones alike."
        ),
        columns=("county", "population", "least", "quarter", "median", "three quarters", "most"),
        rows=rows,
    )


def states_figure(many: Sequence[StateErrors]) -> Figure:
    """The same for several states, in two columns and on one scale."""
    alt = altair()
    reach = _reach([one.errors for one in many])
    panels = [
        _boxes(
            alt,
            one,
            400,
            130,
            reach,
            width_of_box=max(1.0, 260 / len(one.size)),
            titled=at >= len(many) - 2,
        ).properties(title=f"{one.state}: {len(one.size)} counties")
        for at, one in enumerate(many)
    ]
    runs = len(many[0].errors)
    return figure(
        alt.concat(*panels, columns=2, spacing={"row": 14, "column": 24}),
        "errors-ten-states",
        caption=f"The ten states with the most counties after Illinois, over {runs} runs",
        description=(
            "Box plots of errors by county in order of population, for ten states. None has a "
            "trend."
        ),
        columns=("state", "counties", "mean error", "root mean square"),
        rows=[
            (
                one.state,
                f"{len(one.size)}",
                signed(one.errors.mean(), 2),
                f"{np.sqrt(np.mean(one.errors**2)):.1f}",
            )
            for one in many
        ],
    )


def california_figure(
    ours: StateErrors,
    near: StateErrors,
    official: npt.NDArray[np.int64],
    names: Mapping[str, str],
    budgets: tuple[str, str],
) -> Figure:
    """Ours as boxes and the official errors as squares, at two budgets."""
    alt = altair()
    squares = alt.Chart(
        data([{"place": at, "error": int(e)} for at, e in enumerate(official.tolist())])
    ).mark_point(
        fill=PRACTICE.colour,
        stroke="white",
        strokeWidth=1,
        shape=PRACTICE.shape,
        size=46,
        opacity=1,
    )
    squares = squares.encode(x="place:Q", y="error:Q")
    panels = [
        alt.layer(
            _boxes(alt, one, 860, height, _reach([one.errors]), width_of_box=8), squares
        ).properties(
            title=f"boxes: projected, {budget}, {len(one.errors)} runs; squares: official release"
        )
        for one, budget, height in zip((ours, near), budgets, (240, 240), strict=True)
    ]
    low, middle, high = np.quantile(ours.errors, [0.25, 0.5, 0.75], axis=0)
    return figure(
        alt.vconcat(*panels, spacing=24),
        "california",
        caption="The counties of California: ours beside the official release of 16 March 2022",
        description=(
            "Above, errors of ours with the budget of the demonstration, wider than the official "
            "ones; below, ours with a budget that makes both alike."
        ),
        columns=("county", "population", "official error", "ours: quarter", "median", "3 quarters"),
        rows=[
            (
                names[ours.codes[at]],
                f"{ours.size[at]:,}",
                signed(official[at], 0),
                signed(low[at], 1),
                signed(middle[at], 1),
                signed(high[at], 1),
            )
            for at in range(len(official))
        ],
    )


def _quartiles(errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Least, quarter, median, three quarters and most of every column."""
    return np.asarray(np.quantile(errors, [0, 0.25, 0.5, 0.75, 1], axis=0))


def _reach(errors: Sequence[npt.NDArray[np.float64]]) -> float:
    """Up to where an axis has to go, on both sides of zero."""
    most = max(float(np.abs(one).max()) for one in errors)
    step = 10.0 ** np.floor(np.log10(most)) / 2
    return float(np.ceil(1.02 * most / step) * step)


def _boxes(
    alt: Any,
    errors: StateErrors,
    width: int,
    height: int,
    reach: float,
    *,
    width_of_box: float,
    titled: bool = True,
) -> Any:
    """Whiskers to the extremes, a box for the middle half, a stroke for the median."""
    count = len(errors.size)
    low, quarter, median, upper, high = _quartiles(errors.errors)
    values = [
        {
            "place": at,
            "low": float(low[at]),
            "quarter": float(quarter[at]),
            "median": float(median[at]),
            "upper": float(upper[at]),
            "high": float(high[at]),
        }
        for at in range(count)
    ]
    marks = np.unique(np.linspace(0, count - 1, max(3, width // 95)).round().astype(int)).tolist()
    sizes = {str(at): _short(int(errors.size[at])) for at in marks}
    labels = "{" + ",".join(f"'{at}':'{text}'" for at, text in sizes.items()) + "}"
    x = alt.X(
        "place:Q",
        title="counties in order of size, with the population of some" if titled else None,
        scale=alt.Scale(domain=[-1, count], nice=False),
        axis=alt.Axis(values=marks, labelExpr=f"{labels}[datum.value]", grid=False),
    )
    y = alt.Y(
        "low:Q",
        title="error (people)",
        scale=alt.Scale(domain=[-reach, reach], nice=False),
        axis=alt.Axis(tickCount=5),
    )
    base = alt.Chart(data(values)).encode(x=x)
    whiskers = base.mark_rule(color=OURS.colour, strokeWidth=min(1.0, width_of_box / 2)).encode(
        y=y, y2="high:Q"
    )
    boxes = base.mark_bar(color=OURS.colour, width=width_of_box, opacity=0.55).encode(
        y=alt.Y("quarter:Q"), y2="upper:Q"
    )
    medians = base.mark_tick(
        color=INK, orient="horizontal", size=width_of_box, thickness=1.5
    ).encode(y="median:Q")
    layers = alt.layer(whiskers, boxes, medians, zero_line())
    return layers.properties(width=width, height=height)


def _short(number: int) -> str:
    """A population in three figures: 850, 12.4k, 5.19M."""
    if number < 1_000:
        return str(number)
    unit, letter = (1_000, "k") if number < 999_500 else (1_000_000, "M")
    return f"{number / unit:.3g}{letter}"


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
    significant = trend.significant_negative + trend.significant_positive
    return figure(
        alt.layer(zero_line(), intervals, points, rings).properties(width=860, height=280),
        "slopes-by-state",
        caption=(
            "Regression of error on log population, state by state, in the release of this folder: "
            "slope with 99 % interval; a ring marks significance at 0.01"
        ),
        description=(
            f"Slopes of {trend.groups} states: {trend.negative} negative, {trend.positive} "
            f"positive, {significant} significant."
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
