"""Charts of a report: each a drawing, words about it, and its figures as a table."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

import numpy as np

from subspacedp.frozen import frozen
from subspacedp.mechanisms.marginals import TableComparison
from subspacedp.report.plots import (
    ACCENT,
    SECOND,
    Look,
    bands,
    drawing,
    fitted,
    linear,
    powers,
)
from subspacedp.report.rows import THRESHOLDS, CellErrors, Estimates, error_digits, shown

HERE, ALONE = "this release", "noise on the cells alone"
WIDTH = 420  # of the whole drawing: readable on a phone, two beside each other on a desk
HEIGHT = 240  # of what is inside the axes
LABELS = 190  # of which the names of groups take so much at most
SEEN = 0.02  # an interval shorter than this share of its axis is not seen
NAME_SPACE = re.compile(r' xmlns="[^"]*"')  # needless inside of HTML


@frozen
class Chart:
    """A drawing, what it shows in words, and its figures."""

    svg: str
    caption: str
    description: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1  # so many columns, the first ones, are text


def errors_chart(errors: CellErrors, noun: str = "cell") -> Chart | None:
    """Relative standard error against published value, both in powers of ten."""
    points = errors.clusters()
    if not points:
        return None
    x = powers([p["value"] for p in points], "published value")
    relatives = [*THRESHOLDS, *(p["relative"] for p in points)]
    y = powers(relatives, "standard error ÷ value", lambda share: f"{100 * share:,.12g} %")
    plot = fitted(x, y, WIDTH, HEIGHT)
    for threshold in THRESHOLDS:
        plot.across(SECOND, y=threshold, dash="4,3")
    most = max(p["cells"] for p in points)
    for p in points:
        area = 14 + 146 * math.sqrt(p["cells"] / most)
        plot.dot(p["value"], p["relative"], math.sqrt(area / math.pi), ACCENT, opacity=0.75)
    for place, threshold in enumerate(THRESHOLDS):
        # The lowest is named below its line: 5 and 10 are near.
        shift = (0, -4 if place else 12)
        plot.words(x.ticks[-1][0], threshold, f"{100 * threshold:g} %", anchor="end", shift=shift)
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
        svg=inline_svg(drawing([[plot]], least=WIDTH), description),
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
    least, most = bins[0]["from"], bins[-1]["to"]
    x = linear(least, most, title="standard error", grid=False)
    y = linear(0, max(b["cells"] for b in bins), nice=True, number=4, title=f"{noun}s")
    plot = fitted(x, y, WIDTH, HEIGHT)
    for b in bins:
        if b["cells"]:
            plot.box((b["from"], 0), (b["to"], b["cells"]), ACCENT)
    digits = error_digits(errors.estimates.stderr)
    description = (
        f"Number of {noun}s by standard error, from {shown(least, digits)} to "
        f"{shown(most, digits)}."
    )
    return Chart(
        svg=inline_svg(drawing([[plot]], least=WIDTH), description),
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
    """Values with bars for their intervals, one row per group.

    Where the values are so large that no bar could be seen, the bars are drawn around the values,
    which are written beside them.
    """
    lower, upper = (limit.tolist() for limit in estimates.interval)
    value = [float(v) for v in estimates.value]
    of_value, of_error = digits
    texts = [shown(v, of_value) for v in estimates.value]
    span = max([0.0, *upper]) - min([0.0, *lower])
    lengths = [high - low for low, high in zip(lower, upper, strict=True)]
    around = max(lengths) < SEEN * span
    title = "published value with 95 % interval"
    if around:
        lower = [low - at for low, at in zip(lower, value, strict=True)]
        upper = [high - at for high, at in zip(upper, value, strict=True)]
        value, title = [0.0] * len(value), "95 % interval, as the distance from the published value"
    names = bands(labels, most=LABELS)
    axis = linear(*_limits([0.0, *lower, *upper]), number=4, nice=True, title=title)
    aside = texts if around else ()
    plot = fitted(axis, names, WIDTH, 21 * len(labels), down=True, aside=aside)
    for row, (at, low, high) in enumerate(zip(value, lower, upper, strict=True)):
        plot.span((low, row), (high, row), ACCENT, ends=8)
        plot.dot(at, row, 3.6, SECOND)
    description = f"{caption}: {len(labels)} published values with their 95 % intervals."
    fine = max(of_value, of_error - 1)
    limits = estimates.interval
    return Chart(
        svg=inline_svg(drawing([[plot]], least=WIDTH), description),
        caption=caption,
        description=description,
        columns=("group", "value", "standard error", "95 % from", "95 % to"),
        rows=tuple(
            (
                label,
                texts[i],
                shown(estimates.stderr[i], of_error),
                shown(limits[0][i], fine),
                shown(limits[1][i], fine),
            )
            for i, label in enumerate(labels)
        ),
    )


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 1, high + 1)


def tables_chart(errors: TableComparison) -> Chart:
    """The error of every table, beside that of noise on the cells alone."""
    names = errors.names
    here, alone = (np.asarray(e, np.float64) for e in (errors.here, errors.cells_alone))
    most = float(max(here.max(), alone.max())) or 1.0
    x = linear(0, most, number=4, nice=True, title="root mean squared error")
    plot = fitted(x, bands(names, most=150), WIDTH, 46 * len(names), down=True)
    for row in range(len(names)):
        plot.box((0, row - 0.4), (float(here[row]), row), ACCENT)
        plot.box((0, row), (float(alone[row]), row + 0.4), SECOND)
    digits = error_digits(np.concatenate([here, alone]))
    description = (
        "Root mean squared error of every table, of this release and with noise on the cells alone "
        "for the same budget."
    )
    keys = [Look(name=HERE, colour=ACCENT), Look(name=ALONE, colour=SECOND)]
    return Chart(
        svg=inline_svg(drawing([[plot]], keys=keys, least=WIDTH), description),
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


def inline_svg(svg: str, description: str) -> str:
    """A drawing as an element of a page: it takes the page's font, and is one image to a reader."""
    said = f'<svg role="img" aria-label="{escape(description)}"'
    return NAME_SPACE.sub("", svg, count=1).replace("<svg", said, 1)


def _range(least: float, most: float | None) -> str:
    return f"{least:,.0f} and more" if most is None else f"{least:,.0f} to below {most:,.0f}"


def percent(share: float) -> str:
    """A share in per cent, with two figures below ten per cent."""
    digits = 0 if share >= 0.1 or share == 0 else 1 if share >= 0.01 else 2
    return f"{100 * share:,.{digits}f} %" if share >= 0.0001 or share == 0 else "below 0.01 %"
