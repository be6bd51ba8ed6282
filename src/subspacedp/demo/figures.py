"""Figures of errors by county: in order of size, and as squares in the tiles of their states.

States stand about where they are on a map, all tiles of one size. In a tile the counties are in
order of population, the smallest first, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.demo.page import OURS, PRACTICE, Figure, signed
from subspacedp.demo.study import SlopeCounts, StateErrors
from subspacedp.inference import BiasTrend
from subspacedp.report.plots import ACCENT, GRID, INK, SECOND, Plot, bands, drawing, linear, short

SQUARES = "squares: official release"
PAPER_NEGATIVE = 37  # of 48 slopes, in the demonstration files of November 2020


def boxes_figure(errors: StateErrors, names: Mapping[str, str], title: str) -> Figure:
    """The counties of a state in order of size: the errors of ten runs as boxes."""
    official = errors.official
    rows = tuple(
        (
            names[code],
            f"{size:,}",
            *([] if official is None else [signed(official[at], 0)]),
            *(signed(value, 0) for value in quartiles),
        )
        for at, (code, size, quartiles) in enumerate(
            zip(errors.codes, errors.size.tolist(), _quartiles(errors.errors).T, strict=True)
        )
    )
    plot = _boxes(errors, 860, 300, _reach([errors]), width_of_box=5)
    return Figure(
        name=f"errors-{errors.state.lower()}",
        svg=drawing([[plot]]),
        caption=f"{title}: errors of the counties over {len(errors.errors)} runs, smallest first",
        description=(
            f"Box plots of the errors of {len(errors.size)} counties in order of population. They "
            "scatter evenly around zero, small counties and large ones alike."
        ),
        columns=(
            "county",
            "population",
            *([] if official is None else ["official error"]),
            *("least", "quarter", "median", "three quarters", "most"),
        ),
        rows=rows,
    )


def states_figure(many: Sequence[StateErrors], caption: str) -> Figure:
    """The same for several states, in two columns and on one scale."""
    reach = _reach(many)
    panels = [
        _boxes(
            one,
            400,
            130,
            reach,
            width_of_box=max(1.0, 260 / len(one.size)),
            titled=at >= len(many) - 2,
            title=f"{one.state}: {len(one.size)} counties",
        )
        for at, one in enumerate(many)
    ]
    return Figure(
        name="errors-ten-states",
        svg=drawing([panels[at : at + 2] for at in range(0, len(panels), 2)]),
        caption=f"{caption}, over {len(many[0].errors)} runs",
        description=(
            "Box plots of errors by county in order of population, state by state. None of ours "
            "has a trend."
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
    ours: StateErrors, near: StateErrors, names: Mapping[str, str], budgets: tuple[str, str]
) -> Figure:
    """Ours as boxes and the official errors as squares, at two budgets."""
    panels = [
        [
            _boxes(
                one,
                860,
                240,
                _reach([one]),
                width_of_box=8,
                title=f"boxes: projected, {budget}, {len(one.errors)} runs; {SQUARES}",
            )
        ]
        for one, budget in zip((ours, near), budgets, strict=True)
    ]
    low, middle, high = np.quantile(ours.errors, [0.25, 0.5, 0.75], axis=0)
    official = np.zeros(len(ours.codes)) if ours.official is None else ours.official
    return Figure(
        name="california",
        svg=drawing(panels, spacing=(24, 24)),
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
            for at in range(len(ours.codes))
        ],
    )


def _quartiles(errors: FloatArray) -> FloatArray:
    """Least, quarter, median, three quarters and most of every column."""
    return np.asarray(np.quantile(errors, [0, 0.25, 0.5, 0.75, 1], axis=0))


def _reach(many: Sequence[StateErrors]) -> float:
    """Up to where an axis has to go, on both sides of zero."""
    shown = [one.errors for one in many] + [
        one.official for one in many if one.official is not None
    ]
    most = max(float(np.nanmax(np.abs(errors), initial=1.0)) for errors in shown)
    step = 10.0 ** np.floor(np.log10(most)) / 2
    return float(np.ceil(1.02 * most / step) * step)


def _boxes(
    errors: StateErrors,
    width: int,
    height: int,
    reach: float,
    *,
    width_of_box: float,
    titled: bool = True,
    title: str = "",
) -> Plot:
    """Whiskers to the extremes, a box for the middle half, a stroke for the median."""
    count = len(errors.size)
    marks = np.unique(np.linspace(0, count - 1, max(3, width // 95)).round().astype(int)).tolist()
    sizes = [(at, short(float(f"{errors.size[at]:.3g}"))) for at in marks]
    words = "counties in order of size, with the population of some" if titled else ""
    x = linear(-1, count, ticks=sizes, title=words, grid=False)
    y = linear(-reach, reach, title="error (people)")
    plot = Plot(x=x, y=y, width=width, height=height, title=title)
    quartiles = _quartiles(errors.errors).T.tolist()
    for at, (low, _, _, _, high) in enumerate(quartiles):
        plot.span((at, low), (at, high), OURS.colour, min(1.0, width_of_box / 2))
    for at, (_, quarter, _, upper, _) in enumerate(quartiles):
        plot.box((at, quarter), (at, upper), OURS.colour, opacity=0.55, thick=(width_of_box, 0))
    for at, (_, _, median, _, _) in enumerate(quartiles):
        plot.box((at, median), (at, median), INK, thick=(width_of_box, 1.5))
    plot.across(INK, y=0, opacity=0.7)
    if errors.official is not None:
        radius = min(4.0, max(2.0, width_of_box / 2))
        for at, error in enumerate(errors.official.tolist()):
            if not math.isnan(error):
                plot.dot(at, error, radius, PRACTICE.colour, shape=PRACTICE.shape, edge="white")
    return plot


def trend_figure(trend: BiasTrend, of: str, *, name: str = "slopes-by-state") -> Figure:
    """Slope and 99 % interval of every state, in order of slope."""
    from scipy.special import stdtrit

    half = stdtrit(trend.n - 2, 0.995) * trend.stderr
    order = np.argsort(trend.slope).tolist()
    x = bands(
        [str(trend.labels[at]) for at in order],
        title="states and territories with more than five counties, by slope",
        slope=-90,
    )
    low, high = float((trend.slope - half).min()), float((trend.slope + half).max())
    y = linear(min(low, 0), max(high, 0), nice=True, title="people per unit of log population")
    plot = Plot(x=x, y=y, width=860, height=280)
    plot.across(INK, y=0, opacity=0.7)
    for place, at in enumerate(order):
        slope = float(trend.slope[at])
        plot.span((place, slope - half[at]), (place, slope + half[at]), OURS.colour)
        plot.dot(place, slope, 3.8, OURS.colour, shape=OURS.shape)
        if trend.pvalue[at] <= trend.level:
            plot.ring(place, slope, 7.8, INK)
    significant = trend.significant_negative + trend.significant_positive
    return Figure(
        name=name,
        svg=drawing([[plot]]),
        caption=(
            f"Regression of error on log population, state by state, in {of}: slope with 99 % "
            "interval; a ring marks significance at 0.01"
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
            for at in order
        ],
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def counts_figure(slopes: SlopeCounts) -> Figure:
    """How many slopes of a run are negative, over all runs, with the paper's count marked."""
    numbers, runs = np.unique(slopes.negative, return_counts=True)
    shares = (runs / slopes.runs).tolist()
    x = linear(
        min(8, int(numbers.min())) - 1,
        41,
        ticks=[(n, str(n)) for n in range(0, 41, 4) if n >= min(8, int(numbers.min())) - 1],
        title=f"negative slopes among {slopes.groups}",
        grid=False,
    )
    y = linear(
        0, max(shares), nice=True, form=lambda share: f"{100 * share:.3g} %", title="share of runs"
    )
    plot = Plot(x=x, y=y, width=620, height=260)
    for n, share in zip(numbers.tolist(), shares, strict=True):
        plot.box((n, 0), (n, share), OURS.colour, thick=(14, 0))
    plot.across(PRACTICE.colour, 3, x=PAPER_NEGATIVE, dash=PRACTICE.dash)
    top = max(at for at, _ in y.ticks)
    for line, words in enumerate(("TopDown, Nov. 2020", "(the paper): 37 of 48")):
        shift = (-8, 18 + 17 * line)
        plot.words(PAPER_NEGATIVE, top, words, anchor="end", shift=shift, size=13)
    return Figure(
        name="negative-slopes",
        svg=drawing([[plot]]),
        caption=f"Negative slopes among {slopes.groups}, over {slopes.runs:,} runs",
        description=(
            "The number of negative slopes of a run scatters around half; the 37 that the paper "
            f"found in TopDown's files were reached in {slopes.reaching(PAPER_NEGATIVE)} runs."
        ),
        columns=("negative slopes", "runs"),
        rows=[(f"{n}", f"{r:,}") for n, r in zip(numbers, runs, strict=True)],
        texts=0,
    )


TILES = (
    "AK .  .  .  .  .  .  .  .  .  .  ME",
    ".  .  .  .  .  .  .  .  .  .  VT NH",
    "WA ID MT ND MN WI .  MI .  NY MA RI",
    "OR NV WY SD IA IL IN OH PA NJ CT .",
    "CA UT CO NE MO KY WV VA MD DE .  .",
    ".  AZ NM KS AR TN NC SC DC .  .  .",
    ".  .  .  OK LA MS AL GA .  .  .  .",
    "HI .  .  TX .  .  .  .  FL .  PR .",
)
PLACES = {
    state: (column, row)
    for row, line in enumerate(TILES)
    for column, state in enumerate(line.split())
    if state != "."
}
TILE = 64.0  # the side of a tile, which the squares of its counties fill
APART = (71.0, 84.0)  # from one tile to the next
# From which multiple of the typical error on a square is so dark.
SHADES = ((2.0, 1.0), (1.0, 0.7), (0.5, 0.42), (0.0, 0.18))


def cartogram(
    errors: FloatArray,
    counts: Int64Array,
    states: AnyArray,
    stderr: FloatArray,
) -> Figure:
    """The error of every county, in multiples of its standard error."""
    columns = 1 + max(column for column, _ in PLACES.values())
    wide, high = columns * APART[0], len(TILES) * APART[1]
    plot = Plot(
        x=linear(0, wide, ticks=(), grid=False),
        y=linear(0, high, ticks=(), grid=False),
        width=wide,
        height=high,
        down=True,
    )
    multiple = np.abs(errors) / np.where(stderr > 0, stderr, np.inf)
    rows = []
    for state, (column, row) in sorted(PLACES.items()):
        inside = np.flatnonzero(states == state)
        left, top = column * APART[0], row * APART[1]
        plot.words(left, top + 11, state, size=11)
        along = math.ceil(math.sqrt(inside.size))
        step = TILE / along
        shaded: dict[tuple[str, float], list[tuple[float, float]]] = {}
        for at, county in enumerate(inside[np.argsort(counts[inside], kind="stable")].tolist()):
            corner = (left + at % along * step, top + 15 + at // along * step)
            colour = SECOND if errors[county] > 0 else ACCENT
            opacity = next(shade for least, shade in SHADES if multiple[county] >= least)
            look = (colour, opacity) if stderr[county] > 0 else (GRID, 1.0)  # exact
            shaded.setdefault(look, []).append(corner)
        for (colour, opacity), corners in sorted(shaded.items()):
            plot.squares(corners, step - 0.06 * step - 0.3, colour, opacity)
        largest = inside[np.argmax(np.abs(errors[inside]))]
        rows.append(
            (
                state,
                f"{inside.size}",
                f"{int(counts[inside].sum()):,}",
                f"{abs(errors[inside].sum()):.0f}",
                f"{np.sqrt(np.mean(errors[inside] ** 2)):.1f}",
                signed(float(errors[largest]), 1),
            )
        )
    return Figure(
        name="every-county",
        svg=drawing(
            [[plot]],
            heading=(
                "a square per county, the smallest first; blue: too few, red: too many, darker "
                "beyond the typical error, grey: exact"
            ),
        ),
        caption="Every county in the tile of its state: too few, or too many people",
        description=(
            f"{len(errors):,} squares in {len(PLACES)} tiles that stand about where the states "
            "are. Blue and red are mixed evenly in every tile, from its smallest county to its "
            "largest, and the errors of every tile add up to zero."
        ),
        columns=(
            "state",
            "counties",
            "population, exact",
            "sum of errors",
            "typical error",
            "largest",
        ),
        rows=rows,
    )
