"""Charts, drawn once into the page as SVG: no script runs and nothing is loaded to see them.

Colours are those of Okabe and Ito. The page's style sheet finds them by their value and sets them
again for dark screens and for paper, so each stands for one role only.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.marginals import TableComparison
from subspacedp.report.rows import THRESHOLDS, CellErrors, Estimates, error_digits, shown

__all__ = [
    "Chart",
    "errors_chart",
    "estimates_chart",
    "histogram_chart",
    "inline_svg",
    "publishing",
    "styled",
    "tables_chart",
]

ACCENT, SECOND, INK, GRID = "#0072b2", "#d55e00", "#24292f", "#d0d7de"
FONT_SIZE = 13
HERE, ALONE = "this release", "noise on the cells alone"
PADDING = {"left": 16, "right": 6, "top": 4, "bottom": 4}  # the page's font may be wider
DRAWING_ADDRESSES = 100_000_000_000  # of its JavaScript engine, which ends the process without them
WIDTH = 420  # of the whole drawing: readable on a phone, two beside each other on a desk
TAG = re.compile(r"<[^<>]*>")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# An image is one thing to a screen reader: its parts have no roles, and name spaces are HTML's own.
NEEDLESS = re.compile(
    r' (?:xmlns(?::xlink)?|version|role|aria-[a-z]+|pointer-events|stroke-miterlimit)="[^"]*"'
    r'| opacity="1"'
)


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows in words, and its figures."""

    svg: str
    caption: str
    description: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1  # so many columns, the first ones, are text


def publishing(module: str) -> Any:
    """An optional library; one sentence when it is missing."""
    from importlib import import_module

    if module == "altair" and sys.flags.optimize > 1:
        raise ReleaseError(
            f"`{module}` reads docstrings, which `python -OO` leaves out; run Python without -OO."
        )
    if module == "vl_convert" and _address_space() < DRAWING_ADDRESSES:
        raise ReleaseError(
            f"`{module}` reserves {DRAWING_ADDRESSES / 1e9:.0f} GB of addresses, though hardly any "
            "memory, and `ulimit -v` leaves fewer; lift that limit."
        )
    try:
        return import_module(module)
    except ImportError:
        raise ReleaseError(
            f"`{module}` is not installed; reports need subspacedp[publish]."
        ) from None


def _address_space() -> float:
    """The bytes that a process may address, on systems that limit it."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
    except ImportError:
        return math.inf
    limit, _ = getrlimit(RLIMIT_AS)
    return math.inf if limit == RLIM_INFINITY else limit


def errors_chart(errors: CellErrors, noun: str = "cell") -> Chart | None:
    """Relative standard error against published value, both in powers of ten."""
    points = errors.clusters()
    if not points:
        return None
    alt = publishing("altair")
    x = _log_axis(alt, [p["value"] for p in points], "~s")
    y = _log_axis(alt, [*THRESHOLDS, *(p["relative"] for p in points)], "~%")
    dots = (
        alt.Chart(alt.InlineData(values=points))
        .mark_circle(color=ACCENT, opacity=0.75)
        .encode(
            x=alt.X("value:Q", title="published value", **x),
            y=alt.Y("relative:Q", title="standard error ÷ value", **y),
            size=alt.Size("cells:Q", legend=None, scale=alt.Scale(type="sqrt", range=[14, 160])),
        )
    )
    lines = [{"at": t, "text": f"{100 * t:g} %"} for t in THRESHOLDS]
    base = alt.Chart(alt.InlineData(values=lines))
    layers = [base.mark_rule(color=SECOND, strokeDash=[4, 3]).encode(y="at:Q"), dots]
    for place, line in enumerate(lines):  # the lowest is named below its line: 5 and 10 are near
        name = alt.Chart(alt.InlineData(values=[line]))
        layers.append(
            name.mark_text(color=INK, align="right", dy=-7 if place else 8, fontSize=12).encode(
                x=alt.value("width"), y="at:Q", text="text:N"
            )
        )
    classes = errors.classes()
    digits = error_digits(errors.estimates.stderr)
    rows = tuple(
        (
            "below 1" if c.least is None else _range(c.least, c.most),
            f"{c.cells:,}",
            shown(c.stderr, digits),
            percent(c.relative),
        )
        for c in classes
    )
    small, large = classes[0], classes[-1]
    description = (
        "Relative standard error against published value, on logarithmic scales. The median is "
        f"{percent(small.relative)} for the smallest {noun}s and {percent(large.relative)} for "
        "the largest."
    )
    return Chart(
        svg=_drawn(alt.layer(*layers), description, 300),
        caption="Relative error by published value",
        description=description,
        columns=("published value", f"{noun}s", "median standard error", "median relative error"),
        rows=rows,
    )


def histogram_chart(errors: CellErrors, noun: str = "cell") -> Chart | None:
    """The distribution of the standard errors; none when all are alike."""
    bins = errors.histogram()
    if not bins:
        return None
    alt = publishing("altair")
    bars = (
        alt.Chart(alt.InlineData(values=bins))
        .mark_rect(color=ACCENT)
        .encode(
            x=alt.X(
                "from:Q",
                title="standard error",
                scale=alt.Scale(zero=False, nice=False),
                axis=alt.Axis(tickCount=5, grid=False),
            ),
            x2="to:Q",
            y=alt.Y("cells:Q", title=f"{noun}s", axis=_short_axis(alt)),
        )
    )
    digits = error_digits(errors.estimates.stderr)
    least, most = bins[0]["from"], bins[-1]["to"]
    description = (
        f"Number of {noun}s by standard error, from {shown(least, digits)} to "
        f"{shown(most, digits)}."
    )
    return Chart(
        svg=_drawn(bars, description, 300),
        caption=f"Standard errors of the {noun}s",
        description=description,
        columns=("standard error from", "to", f"{noun}s"),
        rows=tuple(
            (shown(b["from"], digits), shown(b["to"], digits), f"{b['cells']:,}")
            for b in bins
            if b["cells"]
        ),
        texts=0,
    )


def estimates_chart(
    labels: Sequence[str], estimates: Estimates, caption: str, digits: tuple[int, int]
) -> Chart:
    """Points with bars for their intervals, one row per group."""
    alt = publishing("altair")
    lower, upper = estimates.interval
    values = [
        {"row": i, "value": float(v), "lower": float(lo), "upper": float(hi)}
        for i, (v, lo, hi) in enumerate(zip(estimates.value, lower, upper, strict=True))
    ]
    # Two groups may have the same text: rows are told apart by number, and named by a list of
    # JSON strings, which is a list of strings in Vega's expressions too.
    names = alt.Axis(
        labelExpr=f"{json.dumps(_drawable(list(labels)))}[datum.value]", labelLimit=190, grid=False
    )
    y = alt.Y("row:O", title=None, axis=names, sort=None)
    base = alt.Chart(alt.InlineData(values=values)).encode(y=y)
    scale = alt.Scale(zero=True, nice=True)
    bars = base.mark_rule(color=ACCENT, strokeWidth=2).encode(
        x=alt.X(
            "lower:Q",
            title="published value with 95 % interval",
            scale=scale,
            axis=_short_axis(alt),
        ),
        x2="upper:Q",
    )
    limits = [
        base.mark_tick(color=ACCENT, thickness=2, size=8).encode(x=f"{limit}:Q")
        for limit in ("lower", "upper")
    ]
    points = base.mark_point(color=SECOND, filled=True, size=42, opacity=1).encode(x="value:Q")
    description = f"{caption}: {len(labels)} published values with their 95 % intervals."
    of_value, of_error = digits
    return Chart(
        svg=_drawn(alt.layer(bars, *limits, points), description, 21 * len(labels) + 56),
        caption=caption,
        description=description,
        columns=("group", "value", "standard error", "95 % from", "95 % to"),
        rows=tuple(
            (
                label,
                shown(estimates.value[i], of_value),
                shown(estimates.stderr[i], of_error),
                shown(lower[i], max(of_value, of_error - 1)),
                shown(upper[i], max(of_value, of_error - 1)),
            )
            for i, label in enumerate(labels)
        ),
    )


def tables_chart(errors: TableComparison) -> Chart:
    """The error of every table, beside that of noise on the cells alone."""
    alt = publishing("altair")
    names = errors.names
    rows = [
        {"row": i, "error": float(error), "noise": noise}
        for i in range(len(names))
        for noise, error in ((HERE, errors.here[i]), (ALONE, errors.cells_alone[i]))
    ]
    labels = alt.Axis(
        labelExpr=f"{json.dumps(_drawable(list(names)))}[datum.value]", labelLimit=150, grid=False
    )
    colour = alt.Color(
        "noise:N",
        scale=alt.Scale(domain=[HERE, ALONE], range=[ACCENT, SECOND]),
        legend=alt.Legend(title=None, orient="top", labelColor=INK, labelFontSize=13, labelLimit=0),
    )
    bars = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            y=alt.Y("row:O", title=None, axis=labels, sort=None),
            yOffset=alt.YOffset("noise:N", sort=[HERE, ALONE]),
            x=alt.X("error:Q", title="root mean squared error", axis=_short_axis(alt)),
            color=colour,
        )
    )
    digits = error_digits(np.concatenate([errors.here, errors.cells_alone]))
    description = (
        "Root mean squared error of every table, of this release and with noise on the cells alone "
        "for the same budget."
    )
    return Chart(
        svg=_drawn(bars, description, 46 * len(names) + 96),
        caption="Error by table",
        description=description,
        columns=("table", "figures", HERE, ALONE),
        rows=tuple(
            (
                name,
                f"{errors.figures[i]:,}",
                shown(errors.here[i], digits),
                shown(errors.cells_alone[i], digits),
            )
            for i, name in enumerate(names)
        ),
    )


def _short_axis(alt: Any) -> Any:
    """A few ticks, as 500, 1k, 1M."""
    return alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=4)


def _log_axis(alt: Any, values: Sequence[float], form: str) -> dict[str, Any]:
    """A logarithmic scale from one round number to another, with few lines between."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    if high - low <= 2:
        ticks = [m * 10.0**k for k in range(low, high) for m in (1, 2, 5)]
    else:
        ticks = [10.0**k for k in range(low, high, math.ceil((high - low) / 8))]
    return {
        "scale": alt.Scale(type="log", domain=[10.0**low, 10.0**high], nice=False),
        "axis": alt.Axis(values=[*ticks, 10.0**high], labelExpr=f"format(datum.value, '{form}')"),
    }


def _drawn(chart: Any, description: str, height: int) -> str:
    """The chart as an SVG element that takes the page's font and width, and loads nothing."""
    convert = publishing("vl_convert")
    sized = chart.properties(
        width=WIDTH, height=height, autosize={"type": "fit", "contains": "padding"}
    )
    plain = _drawable(styled(sized, PADDING).to_dict())
    return inline_svg(str(convert.vegalite_to_svg(plain, allowed_base_urls=[])), description)


def styled(chart: Any, padding: dict[str, int]) -> Any:
    """An altair chart in the common style: font, sizes of text, colours of axes."""
    return (
        chart.configure(background="transparent", font="sans-serif", aria=False, padding=padding)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK,
            titleColor=INK,
            labelFontSize=FONT_SIZE,
            titleFontSize=FONT_SIZE,
            titleFontWeight="normal",
            titlePadding=8,
            gridColor=GRID,
            domainColor=GRID,
            tickColor=GRID,
        )
    )


def inline_svg(svg: str, description: str) -> str:
    """A drawing as an element of a page: it takes the page's font, and loads nothing."""
    bare = TAG.sub(lambda tag: NEEDLESS.sub("", tag[0]), svg)
    return bare.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def _drawable(part: Any) -> Any:
    """The same with a mark for every sign that XML does not know, on which drawing would abort."""
    if isinstance(part, str):
        return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", part)
    if isinstance(part, dict):
        return {_drawable(key): _drawable(value) for key, value in part.items()}
    return [_drawable(item) for item in part] if isinstance(part, list) else part


def _range(least: float, most: float | None) -> str:
    return f"{least:,.0f} and more" if most is None else f"{least:,.0f} to below {most:,.0f}"


def percent(share: float) -> str:
    """A share in per cent, with two figures below ten per cent."""
    digits = 0 if share >= 0.1 or share == 0 else 1 if share >= 0.01 else 2
    return f"{100 * share:,.{digits}f} %" if share >= 0.0001 or share == 0 else "below 0.01 %"
