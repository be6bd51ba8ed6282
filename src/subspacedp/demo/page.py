"""One page about a demonstration: words, figures and the numbers behind them, in one file.

It has the look and the colours of a release's report, loads nothing, and runs no script. Whatever
is drawn has one colour, one mark and one dash everywhere, so that a figure can be read in grey.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subspacedp.mechanisms import Projected
from subspacedp.report.charts import (
    ACCENT,
    FONT_SIZE,
    GRID,
    INK,
    SECOND,
    inline_svg,
    publishing,
    styled,
)
from subspacedp.report.page import rendered, template_text

__all__ = [
    "GRID",
    "INK",
    "OURS",
    "PRACTICE",
    "TRUTH",
    "Figure",
    "Grid",
    "Look",
    "Page",
    "Part",
    "altair",
    "data",
    "figure",
    "legend",
    "render",
    "scales",
    "signed",
    "zero_line",
]

PIXELS = 2  # of a PNG, for one unit of the drawing
PADDING = {"left": 8, "right": 14, "top": 8, "bottom": 8}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A small table, as text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1  # so many columns, the first ones, are text


@dataclass(frozen=True, kw_only=True)
class Part:
    """A section: its words, then its facts, figures and tables, then closing words."""

    id: str
    title: str
    paragraphs: Sequence[str] = ()
    facts: Sequence[tuple[str, str, str]] = ()  # name, answer, meaning
    figures: Sequence[Figure] = ()
    grids: Sequence[Grid] = ()
    closing: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a reader opens."""

    title: str
    lede: Sequence[str]
    parts: Sequence[Part]
    commands: Sequence[tuple[str, str]] = ()  # to type, and what it does
    files: Sequence[tuple[str, str]] = ()  # name, and what it holds


def render(page: Page) -> str:
    """The page as HTML.

    Guarantees
    ----------
    1. It loads nothing and runs nothing, and its security policy forbids both.
    2. All words are shown as text, whatever is in them.
    """
    style = f"{template_text('report.css')}\n{template_text('demonstration.css', __package__)}"
    return rendered(template_text("demonstration.html", __package__), page, style=style)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a method, or the truth, looks like wherever it is drawn."""

    name: str
    colour: str
    shape: str
    dash: tuple[int, int]


OURS = Look(name=Projected.name, colour=ACCENT, shape="circle", dash=(1, 0))
PRACTICE = Look(name="post-processed", colour=SECOND, shape="square", dash=(6, 3))
TRUTH = Look(name="truth", colour=INK, shape="triangle-up", dash=(2, 2))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing as files and as part of a page, with what it shows in words and numbers."""

    name: str  # of its files
    caption: str
    description: str
    svg: str
    png: bytes
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    texts: int = 1  # so many columns, the first ones, are text

    @property
    def inline(self) -> str:
        """The drawing as an element of a page: it takes the page's font, and loads nothing."""
        return inline_svg(self.svg, self.description)

    def write(self, folder: Path) -> None:
        """Write `name.svg` and `name.png`."""
        (folder / f"{self.name}.svg").write_text(self.svg, "utf-8")
        (folder / f"{self.name}.png").write_bytes(self.png)


def altair() -> Any:
    """The drawing library; one sentence when it is missing."""
    for needed in ("vl_convert", "jinja2"):
        publishing(needed)
    return publishing("altair")


def data(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows for a chart, as text: altair copies a list of rows deeply, again and again."""
    return altair().InlineData(values=json.dumps(list(rows)), format={"type": "json"})


def scales(looks: Sequence[Look]) -> dict[str, Any]:
    """Scales of colour, shape and dash over the names shown, in their order."""
    alt = altair()
    names = [look.name for look in looks]
    return {
        "color": alt.Scale(domain=names, range=[look.colour for look in looks]),
        "shape": alt.Scale(domain=names, range=[look.shape for look in looks]),
        "strokeDash": alt.Scale(domain=names, range=[list(look.dash) for look in looks]),
    }


def legend(**options: Any) -> Any:
    """A legend above the drawing, on one line."""
    look = {"orient": "top", "title": None, "symbolSize": 90, "labelLimit": 400}
    return altair().Legend(**{**look, "columnPadding": 28, **options})


def zero_line() -> Any:
    """A line at zero, to lay under or over a chart."""
    alt = altair()
    zero = alt.Chart(data([{"at": 0}]))
    return zero.mark_rule(color=INK, strokeWidth=1, opacity=0.7).encode(y="at:Q")


def signed(number: float, digits: int) -> str:
    """A number with its sign, and a minus that is one.

    >>> signed(-1.25, 1), signed(3, 0)
    ('−1.2', '+3')
    """
    return f"{number:+,.{digits}f}".replace("-", "−")


def figure(
    chart: Any,
    name: str,
    *,
    caption: str,
    description: str,
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    texts: int = 1,
) -> Figure:
    """Draw a chart of altair in the common style.

    Parameters
    ----------
    chart
        Any altair chart; what is not set on it is set here: font, sizes of text, colours of axes.
    name
        Of the files, without ending.
    caption, description
        A heading for readers; what the figure shows in a sentence, for who cannot see it.
    columns, rows
        The figures behind the drawing as text, for a table beside it.
    """
    convert = publishing("vl_convert")
    drawing = (
        styled(chart, PADDING)
        .configure_legend(labelColor=INK, labelFontSize=FONT_SIZE)
        .configure_header(labelColor=INK, labelFontSize=FONT_SIZE + 1, labelFontWeight="bold")
        .configure_title(color=INK, fontSize=FONT_SIZE + 1, anchor="start")
    )
    # The parts were checked as they were made; checking the whole takes longer than drawing it.
    svg = str(convert.vegalite_to_svg(drawing.to_dict(validate=False), allowed_base_urls=[]))
    # A file may lie on any page, so it brings its own ground.
    white = re.sub(
        r"(<svg[^<>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1
    )
    png = convert.svg_to_png(white, scale=PIXELS)
    return Figure(
        name=name,
        caption=caption,
        description=description,
        svg=svg,
        png=bytes(png),
        columns=tuple(columns),
        rows=tuple(tuple(row) for row in rows),
        texts=texts,
    )
