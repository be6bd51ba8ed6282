"""Figures of the campus demonstration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.demonstrations.campus_people import BUILDINGS, HOURS
from subspacedp.demonstrations.campus_runs import Quantiles, RunErrors
from subspacedp.demonstrations.style import (
    GRID,
    INK,
    OURS,
    TRUTH,
    Figure,
    altair,
    data,
    figure,
)

__all__ = ["all_curves", "some_curves", "variance_figure"]

Array = npt.NDArray[Any]
PANEL = HOURS + 4  # hours of width, with a gap
AREA: dict[str, Any] = {"interpolate": "step-after", "color": TRUTH.colour, "opacity": 0.25}
LINE: dict[str, Any] = {"interpolate": "step-after", "color": OURS.colour}
PAPER = Quantiles(0.86, 0.88, 0.91)


def all_curves(counts: Array, released: Array) -> Figure:
    """Group by building: the true hourly curves as areas, one release as lines.

    Every building has its own scale, the same for all groups.
    """
    alt = altair()
    groups = len(counts)
    tops = np.maximum(counts.max(axis=(0, 1)), released.max(axis=(0, 1)))
    rows, marks = [], []
    for g in range(groups):
        for b, name in enumerate(BUILDINGS):
            floor = groups - 1 - g + 0.14
            for h in range(HOURS + 1):  # the last hour's step needs its end
                at = min(h, HOURS - 1)
                heights = 0.8 * np.array([counts[g, at, b], released[g, at, b]]) / tops[b]
                rows.append(
                    {
                        "panel": f"{g} {b}",
                        "x": b * PANEL + h,
                        "floor": floor,
                        "true": floor + float(heights[0]),
                        "released": floor + float(max(heights[1], -0.13)),
                    }
                )
            if g == 0:
                marks.append({"x": b * PANEL + HOURS / 2, "name": name, "top": f"to {tops[b]:.0f}"})
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-2, len(BUILDINGS) * PANEL], nice=False))
    names = alt.Axis(
        values=[g + 0.5 for g in range(groups)],
        labelExpr=f"'group ' + ({groups} - floor(datum.value))",
        grid=False,
        ticks=False,
        domain=False,
        minExtent=70,
    )
    y = alt.Y(
        "true:Q",
        title=None,
        axis=names,
        scale=alt.Scale(domain=[0, groups], nice=False),
    )
    base = alt.Chart(data(rows)).encode(x=x, detail="panel:N")
    areas = base.mark_area(**AREA).encode(y=y, y2="floor:Q")
    lines = base.mark_line(**LINE, strokeWidth=1).encode(y="released:Q")
    walls = alt.Chart(data([{"x": b * PANEL - 2} for b in range(len(BUILDINGS) + 1)]))
    above = alt.Chart(data(marks)).encode(x=x, y=alt.value(0))
    chart = alt.layer(
        walls.mark_rule(color=GRID).encode(x=x),
        areas,
        lines,
        above.mark_text(dy=-21, color=INK, fontSize=11).encode(text="name:N"),
        above.mark_text(dy=-8, color=INK, fontSize=10).encode(text="top:N"),
    ).properties(width=1480, height=56 * groups, title=_title(alt, 22))
    return figure(
        chart,
        "campus-all",
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
    alt = altair()
    grid = []
    for place, (name, values) in enumerate(released.items()):
        row = []
        for g, b in panels:
            every = [counts[g, :, b], *(other[g, :, b] for other in released.values())]
            low, high = (
                min(0.0, *(float(e.min()) for e in every)),
                max(float(e.max()) for e in every),
            )
            steps = [
                {
                    "hour": h,
                    "true": int(counts[g, min(h, HOURS - 1), b]),
                    "released": float(values[g, min(h, HOURS - 1), b]),
                    "floor": 0,
                }
                for h in range(HOURS + 1)
            ]
            last = place == len(released) - 1
            base = alt.Chart(data(steps)).encode(
                x=alt.X(
                    "hour:Q",
                    title="hour" if last else None,
                    axis=alt.Axis(values=[0, 6, 12, 18, 24], grid=False),
                    scale=alt.Scale(domain=[0, HOURS], nice=False),
                )
            )
            y = alt.Y(
                "true:Q",
                title=name if (g, b) == panels[0] else None,
                axis=alt.Axis(tickCount=4),
                scale=alt.Scale(domain=[low, high]),
            )
            both = alt.layer(
                base.mark_area(**AREA).encode(y=y, y2="floor:Q"),
                base.mark_line(**LINE, strokeWidth=2).encode(y=alt.Y("released:Q")),
            )
            title = alt.Title(
                f"group {g + 1}, {BUILDINGS[b]}" if place == 0 else "",
                frame="group",
                anchor="middle",
            )
            row.append(both.properties(width=225, height=130, title=title))
        grid.append(alt.hconcat(*row, spacing=22))
    chart = alt.vconcat(*grid, spacing=14).properties(title=_title(alt, 16))
    return figure(
        chart,
        "campus-some",
        caption="Some of these curves, under both readings of who is protected",
        description=(
            f"True and released hourly counts of {len(panels)} panels, from many person-hours to "
            "few. With unit noise the curves agree to the eye; with noise for a person's whole day "
            "only large counts can be read."
        ),
    )


def variance_figure(errors: RunErrors, expected: Quantiles) -> Figure:
    """Variance and standard deviation of every run, beside what the paper printed."""
    alt = altair()
    measures = {
        "variance": (errors.variances, expected),
        "standard deviation": (
            np.sqrt(errors.variances),
            Quantiles(*(float(np.sqrt(v)) for v in vars(expected).values())),
        ),
    }
    low = min(0.84, math.floor(100 * errors.variances.min()) / 100)
    high = max(0.98, math.ceil(100 * math.sqrt(errors.variances.max())) / 100)
    dots = [
        {"what": what, "value": float(v), "lift": 10.0 * ((7 * i) % 5 - 2)}
        for what, (values, _) in measures.items()
        for i, v in enumerate(values)
    ]
    theory = [
        {"what": what, "low": q.low, "middle": q.median, "high": q.high}
        for what, (_, q) in measures.items()
    ]
    y = alt.Y(
        "what:N",
        sort=list(measures),
        title=None,
        axis=alt.Axis(grid=False, ticks=False, minExtent=140),
    )

    def x(column: str) -> Any:
        title = "error of a run, in units of the noise before projection"
        scale = alt.Scale(domain=[low, high], nice=False)
        return alt.X(
            f"{column}:Q", title=title, scale=scale, axis=alt.Axis(format=".2f", labelFlush=False)
        )

    band = alt.Chart(data([{"low": PAPER.low, "high": PAPER.high}]))
    middle = alt.Chart(data([{"at": PAPER.median}]))
    spans = alt.Chart(data(theory)).encode(y=y)
    points = alt.Chart(data(dots)).mark_point(
        color=OURS.colour, filled=True, size=38, opacity=0.75, shape=OURS.shape
    )
    chart = alt.layer(
        band.mark_rect(color=GRID, opacity=0.6).encode(x=x("low"), x2="high:Q"),
        middle.mark_rule(color=INK, strokeDash=[4, 3]).encode(x=x("at")),
        middle.mark_text(text="paper: 0.88 (0.86, 0.91)", dy=-8, color=INK, fontSize=12).encode(
            x=x("at"), y=alt.value(0)
        ),
        points.encode(
            x=x("value"), y=y, yOffset=alt.YOffset("lift:Q", scale=alt.Scale(domain=[-40, 40]))
        ),
        spans.mark_rule(color=INK, strokeWidth=2).encode(x=x("low"), x2="high:Q"),
        spans.mark_tick(color=INK, thickness=3, size=26).encode(x=x("middle")),
    ).properties(width=640, height=170)
    rows = [
        (what, *(f"{v:.4f}" for v in (*vars(Quantiles.of(seen)).values(), *vars(q).values())))
        for what, (seen, q) in measures.items()
    ]
    return figure(
        chart,
        "campus-variance",
        caption=f"Error of {len(errors.variances)} runs beside the paper's figure",
        description=(
            "Each dot is a run. The variances lie around 0.89, inside the paper's interval from "
            "0.86 to 0.91; the standard deviations lie around 0.94, outside it. Black bars are the "
            "5 % to 95 % range by theory."
        ),
        columns=("error", "5 % seen", "median seen", "95 % seen", "5 %", "median", "95 %"),
        rows=rows,
    )


def _title(alt: Any, offset: int) -> Any:
    return alt.Title(
        "Grey areas: true.  Lines: released.", fontWeight="normal", anchor="start", offset=offset
    )
