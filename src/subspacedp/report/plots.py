"""Plots as SVG text: axes, marks, and panels beside each other.

Plain text from plain numbers: the same figures give the same bytes on every machine, no script runs
and nothing is loaded to see them. Colours are those of Okabe and Ito. A page's style sheet finds
them by their value and sets them again for dark screens and for paper, so each stands for one role.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from subspacedp.frozen import frozen

ACCENT, SECOND, INK, GRID = "#0072b2", "#d55e00", "#24292f", "#d0d7de"
FONT_SIZE = 13
TICK, GAP = 5, 8  # between an axis and its labels, and between those and its title
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
NARROW, WIDE = frozenset(" .,:;'|!()[]{}ijltfrI-/\\"), frozenset("mwMW@%—…")

Point = tuple[float, float]

# Marks about (0, 0) that a circle of radius 1 would fill about as much.
SHAPES = {
    "square": "M-.9-.9H.9V.9H-.9Z",
    "diamond": "M0-1.25L1.25 0 0 1.25-1.25 0Z",
    "triangle-up": "M0-1.2L1.15.85H-1.15Z",
    "triangle-down": "M0 1.2L1.15-.85H-1.15Z",
    "cross": "M-.4-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
}


@frozen(kw_only=True)
class Look:
    """What a thing looks like wherever it is drawn: colour, mark and dash, to be told in grey."""

    name: str
    colour: str
    shape: str = "square"
    dash: str = ""


@frozen(kw_only=True)
class Axis:
    """One direction of a plot: where values lie, from 0 to 1, and what is written along it.

    Parameters
    ----------
    place
        From a value to a share of the length.
    ticks
        The values that are named, and their names.
    title
        Below the labels, or beside them.
    grid
        Whether a line crosses the plot at every tick.
    slope
        Degrees by which the labels are turned, below a plot.
    room
        The least width that labels beside a plot are given, for panels above each other.
    """

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]
    title: str = ""
    grid: bool = True
    slope: int = 0
    room: float = 0.0

    @property
    def labels_width(self) -> float:
        """The width of the widest label."""
        return max([self.room, *(text_width(text) for _, text in self.ticks)])


def linear(
    low: float,
    high: float,
    *,
    ticks: Sequence[tuple[float, str]] | None = None,
    number: int = 5,
    nice: bool = False,
    form: Callable[[float], str] | None = None,
    title: str = "",
    grid: bool = True,
) -> Axis:
    """Even steps from one value to another; about so many round ticks if none are given."""
    step = _round_step(high - low, number)
    if nice:
        low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    if ticks is None:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        values = [step * at for at in range(first, last + 1)]
        ticks = [(value, (form or short)(value)) for value in values]
    span = high - low
    return Axis(place=lambda value: (value - low) / span, ticks=ticks, title=title, grid=grid)


def logarithmic(
    low: float, high: float, ticks: Sequence[tuple[float, str]], *, title: str = ""
) -> Axis:
    """Even steps for equal ratios."""
    start, span = math.log10(low), math.log10(high / low)
    return Axis(
        place=lambda value: (math.log10(value) - start) / span, ticks=ticks, title=title, grid=True
    )


def powers(values: Sequence[float], title: str, form: Callable[[float], str] | None = None) -> Axis:
    """A logarithmic scale from one power of ten to another, with few lines between."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    if high - low <= 2:
        ticks = [m * 10.0**k for k in range(low, high) for m in (1, 2, 5)]
    else:
        ticks = [10.0**k for k in range(low, high, math.ceil((high - low) / 8))]
    named = [(at, (form or short)(at)) for at in (*ticks, 10.0**high)]
    return logarithmic(10.0**low, 10.0**high, named, title=title)


def bands(names: Sequence[str], *, title: str = "", slope: int = 0, most: float = math.inf) -> Axis:
    """One band of equal width for every name; band i is at the value i, between i ± 0.5."""
    count = max(len(names), 1)
    return Axis(
        place=lambda value: (value + 0.5) / count,
        ticks=list(enumerate(_cut(names, most))),
        title=title,
        grid=False,
        slope=slope,
    )


@dataclass
class Plot:
    """A panel: two axes and the marks that are put on it, in the order in which they are drawn.

    Values run from left to right and from below to above; names in bands beside a plot from above.
    """

    x: Axis
    y: Axis
    width: float
    height: float
    title: str = ""
    down: bool = False  # whether y runs from above
    aside: Sequence[str] = ()  # words at the right of every tick of y
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point."""
        return self.width * self.x.place(x), self._level(y)

    def _level(self, y: float) -> float:
        share = self.y.place(y)
        return self.height * (share if self.down else 1 - share)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str,
        width: float = 2,
        *,
        dash: str = "",
    ) -> None:
        """A line through points."""
        path = " ".join(f"{_n(px)},{_n(py)}" for px, py in (self.at(x, y) for x, y in points))
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{_n(width)}"{_dashed(dash)}/>'
        )

    def area(self, points: Sequence[Point], colour: str, opacity: float = 1) -> None:
        """What a closed line contains."""
        path = " ".join(f"{_n(px)},{_n(py)}" for px, py in (self.at(x, y) for x, y in points))
        self.parts.append(f'<polygon points="{path}" fill="{colour}"{_opaque(opacity)}/>')

    def across(
        self,
        colour: str,
        width: float = 1,
        *,
        x: float | None = None,
        y: float | None = None,
        dash: str = "",
        opacity: float = 1,
    ) -> None:
        """A line across the whole plot, at a value of one of the axes."""
        if x is not None:
            px = self.width * self.x.place(x)
            ends = (px, 0.0, px, self.height)
        else:
            py = self._level(y or 0.0)
            ends = (0.0, py, self.width, py)
        self._stroke(*ends, colour, width, dash, opacity)

    def span(
        self,
        start: Point,
        end: Point,
        colour: str,
        width: float = 2,
        *,
        ends: float = 0,
    ) -> None:
        """A line between two points, with strokes of that length across its ends."""
        (x1, y1), (x2, y2) = self.at(*start), self.at(*end)
        self._stroke(x1, y1, x2, y2, colour, width)
        if ends:
            half = ends / 2
            dx, dy = (0.0, half) if y1 == y2 else (half, 0.0)
            for px, py in ((x1, y1), (x2, y2)):
                self._stroke(px - dx, py - dy, px + dx, py + dy, colour, width)

    def _stroke(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        colour: str,
        width: float,
        dash: str = "",
        opacity: float = 1,
    ) -> None:
        self.parts.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" stroke="{colour}" '
            f'stroke-width="{_n(width)}"{_dashed(dash)}{_opaque(opacity)}/>'
        )

    def box(
        self,
        start: Point,
        end: Point,
        colour: str,
        *,
        opacity: float = 1,
        thick: tuple[float, float] = (0, 0),
    ) -> None:
        """A rectangle between two points; `thick` widens it by so much in both directions."""
        (x1, y1), (x2, y2) = self.at(*start), self.at(*end)
        left, top = min(x1, x2) - thick[0] / 2, min(y1, y2) - thick[1] / 2
        wide, high = abs(x2 - x1) + thick[0], abs(y2 - y1) + thick[1]
        self.parts.append(
            f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(wide)}" height="{_n(high)}" '
            f'fill="{colour}"{_opaque(opacity)}/>'
        )

    def squares(
        self, corners: Sequence[Point], side: float, colour: str, opacity: float = 1
    ) -> None:
        """Many squares of one size as one path, each from its upper left corner on."""
        path = "".join(
            f"M{_n(px)} {_n(py)}h{_n(side)}v{_n(side)}h-{_n(side)}z"
            for px, py in (self.at(x, y) for x, y in corners)
        )
        if path:
            self.parts.append(f'<path d="{path}" fill="{colour}"{_opaque(opacity)}/>')

    def dot(
        self,
        x: float,
        y: float,
        radius: float,
        colour: str,
        *,
        shape: str = "circle",
        shift: float = 0,
        opacity: float = 1,
        edge: str = "",
    ) -> None:
        """A mark at a point; `shift` moves it down by so many units of the drawing."""
        px, py = self.at(x, y)
        self.parts.append(_mark(px, py + shift, radius, colour, shape, opacity, edge))

    def ring(self, x: float, y: float, radius: float, colour: str) -> None:
        """A circle around a point."""
        px, py = self.at(x, y)
        self.parts.append(
            f'<circle cx="{_n(px)}" cy="{_n(py)}" r="{_n(radius)}" fill="none" stroke="{colour}" '
            f'stroke-width="2"/>'
        )

    def words(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        shift: tuple[float, float] = (0, 0),
        size: float = 12,
    ) -> None:
        """A line of words at a point."""
        px, py = self.at(x, y)
        self.parts.append(_words(px + shift[0], py + shift[1], text, anchor=anchor, size=size))

    # What surrounds the marks.

    @property
    def left(self) -> float:
        """Room for the labels and the title of the vertical axis."""
        title = FONT_SIZE + GAP if self.y.title else 0
        return 2 + title + self.y.labels_width + TICK

    @property
    def right(self) -> float:
        """Room for what is written there, and for what the last label below hangs over."""
        over = [2.0, *(GAP + text_width(text) for text in self.aside)]
        if not self.x.slope:
            over += [
                text_width(text) / 2 - self.width * (1 - self.x.place(value))
                for value, text in self.x.ticks
            ]
        return max(over)

    @property
    def top(self) -> float:
        """Room for the title of the panel, and half of the highest label."""
        return FONT_SIZE + 14 if self.title else FONT_SIZE / 2

    @property
    def bottom(self) -> float:
        """Room for the labels and the title of the horizontal axis."""
        high = FONT_SIZE if self.x.ticks else 0.0
        if self.x.slope:
            turn = math.radians(abs(self.x.slope))
            high = math.sin(turn) * self.x.labels_width + math.cos(turn) * FONT_SIZE
        title = FONT_SIZE + GAP if self.x.title else 0
        return TICK + high + title + 4

    def svg(self, left: float, top: float) -> str:
        """The panel, with its marks from that corner on."""
        grid, labels = [], []
        for value, text in self.x.ticks:
            px = self.width * self.x.place(value)
            if self.x.grid:
                grid.append(_grid(px, 0, px, self.height))
            at = (px, self.height + TICK + 0.8 * FONT_SIZE)
            if self.x.slope:
                at = (px + 0.3 * FONT_SIZE, self.height + TICK + 0.3 * FONT_SIZE)
            anchor = "end" if self.x.slope else "middle"
            labels.append(_words(*at, text, anchor=anchor, turn=self.x.slope))
        for value, text in self.y.ticks:
            py = self._level(value)
            if self.y.grid:
                grid.append(_grid(0, py, self.width, py))
            labels.append(_words(-TICK, py + 0.36 * FONT_SIZE, text, anchor="end"))
        for (value, _), text in zip(self.y.ticks, self.aside, strict=False):
            at = (self.width + self.right, self._level(value) + 0.36 * FONT_SIZE)
            labels.append(_words(*at, text, anchor="end"))
        if self.x.title:
            end = self.height + self.bottom - 0.3 * FONT_SIZE - 2
            labels.append(_words(self.width / 2, end, self.x.title, anchor="middle"))
        if self.y.title:
            at = (-self.left + 0.8 * FONT_SIZE, self.height / 2)
            labels.append(_words(*at, self.y.title, anchor="middle", turn=-90))
        if self.title:
            labels.append(_words(0, -10, self.title, anchor="start", size=FONT_SIZE + 1, bold=True))
        body = "".join([*grid, *self.parts, *labels])
        return f'<g transform="translate({_n(left)},{_n(top)})">{body}</g>'


def fitted(
    x: Axis,
    y: Axis,
    whole: float,
    height: float,
    *,
    down: bool = False,
    aside: Sequence[str] = (),
) -> Plot:
    """A plot that is so wide with all that surrounds it."""
    plot = Plot(x=x, y=y, width=whole, height=height, down=down, aside=aside)
    plot.width = whole - plot.left
    plot.width -= plot.right
    return plot


def drawing(
    rows: Sequence[Sequence[Plot]],
    *,
    keys: Sequence[Look] = (),
    heading: str = "",
    spacing: tuple[float, float] = (24, 14),
    least: float = 0,
) -> str:
    """Panels in rows and columns as one SVG element, a legend or a line of words above them."""
    columns = range(max(len(row) for row in rows))
    lefts = [max(row[c].left for row in rows if c < len(row)) for c in columns]
    rights = [max(row[c].right for row in rows if c < len(row)) for c in columns]
    inner = [max(row[c].width for row in rows if c < len(row)) for c in columns]
    parts, top = [], 2.0
    if keys or heading:
        parts.append(_legend(keys) if keys else _words(2, FONT_SIZE, heading))
        top += FONT_SIZE + 12
    for row in rows:
        top += max(plot.top for plot in row)
        left = 0.0
        for c, plot in enumerate(row):
            left += lefts[c]
            parts.append(plot.svg(left, top))
            left += inner[c] + rights[c] + spacing[0]
        top += max(plot.height + plot.bottom for plot in row) + spacing[1]
    wide = max(least, sum(lefts) + sum(rights) + sum(inner) + spacing[0] * (len(lefts) - 1))
    high = top - spacing[1]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(wide)} {_n(high)}" '
        f'width="{_n(wide)}" height="{_n(high)}" font-family="sans-serif" '
        f'font-size="{FONT_SIZE}" fill="none">{"".join(parts)}</svg>'
    )


def on_paper(svg: str) -> str:
    """A drawing as a file: it may lie on any page, so it brings its own ground."""
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return svg.replace(">", f">{ground}", 1) + "\n"


def text_width(text: str) -> float:
    """About the width of a line of words; a page's font may be wider than others."""
    units = sum(
        0.38
        if c in NARROW
        else 0.92
        if c in WIDE
        else 0.73
        if c.isupper()
        else 1.0
        if ord(c) > 0x2E7F
        else 0.63
        for c in text
    )
    return FONT_SIZE * units


def short(value: float) -> str:
    """A round number as few signs: 0.05, 850, 4,000, 250k, 1.5M, 3bn.

    >>> [short(v) for v in (0.05, -850, 4000, 250_000, 1.5e6, 3e9)]
    ['0.05', '−850', '4,000', '250k', '1.5M', '3bn']
    """
    size = abs(value)
    sign = "−" if value < 0 else ""
    for least, unit, letter in ((1e9, 1e9, "bn"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= least:
            return f"{sign}{size / unit:,.6g}{letter}"
    return f"{sign}{round(size):,}" if size >= 1000 else f"{sign}{size:.6g}"


def _round_step(span: float, number: int) -> float:
    """1, 2 or 5 times a power of ten, so that about so many fit."""
    raw = span / max(number, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= 0.75 * raw)


def _cut(names: Sequence[str], most: float) -> list[str]:
    """Names at most so wide, without their ends, or without their middles where ends differ.

    >>> _cut(["Relation to householder", "Relation to householder × Sex"], 120)
    ['Relatio…eholder', 'Relatio…er × Sex']
    """
    cut = [_shortened(name, most, end=0.0) for name in names]
    if len(set(cut)) == len(set(names)):
        return cut
    return [_shortened(name, most, end=0.5) for name in names]


def _shortened(text: str, most: float, *, end: float) -> str:
    """A text at most so wide; of what is kept, this part is of its end."""
    if text_width(text) <= most:
        return text
    for kept in range(len(text) - 1, -1, -1):
        last = round(kept * end)
        head, tail = text[: kept - last], text[len(text) - last :]
        if text_width(head) + text_width(tail) + FONT_SIZE <= most:
            break
    return f"{head.rstrip()}…{tail.lstrip()}"


def _legend(keys: Sequence[Look]) -> str:
    parts, left = [], 10.0
    for key in keys:
        parts.append(_mark(left, 0.65 * FONT_SIZE, 5, key.colour, key.shape))
        parts.append(_words(left + 12, FONT_SIZE, key.name))
        left += 12 + text_width(key.name) + 28
    return "".join(parts)


def _mark(
    x: float, y: float, radius: float, colour: str, shape: str, opacity: float = 1, edge: str = ""
) -> str:
    look = f'fill="{colour}"{_opaque(opacity)}' + (f' stroke="{edge}"' if edge else "")
    if shape == "circle":
        return f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" {look}/>'
    place = f"translate({_n(x)},{_n(y)})scale({_n(radius)})"
    thin = ' vector-effect="non-scaling-stroke"' if edge else ""
    return f'<path d="{SHAPES[shape]}" transform="{place}" {look}{thin}/>'


def _words(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: float = FONT_SIZE,
    turn: int = 0,
    bold: bool = False,
) -> str:
    """Words; a mark stands for every sign that XML does not know."""
    place = f'x="{_n(x)}" y="{_n(y)}"'
    if turn:
        place = f'transform="translate({_n(x)},{_n(y)})rotate({turn})"'
    look = "" if anchor == "start" else f' text-anchor="{anchor}"'
    look += "" if size == FONT_SIZE else f' font-size="{_n(size)}"'
    look += ' font-weight="bold"' if bold else ""
    known = NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
    return f'<text {place}{look} fill="{INK}">{escape(known)}</text>'


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" stroke="{GRID}" '
        'stroke-width="1"/>'
    )


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def _opaque(opacity: float) -> str:
    return "" if opacity == 1 else f' opacity="{_n(opacity)}"'


def _n(value: float) -> str:
    """A length to a hundredth, without needless signs."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
