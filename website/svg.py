"""Small drawings as text: boxes, words and arrows in the colours of the reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

BLUE, ORANGE, INK, GREY, PAPER = "#0072b2", "#d55e00", "#24292f", "#57606a", "#ffffff"
PALE_BLUE, PALE_ORANGE, PALE_GREY = "#e8f2f9", "#fdeee3", "#f3f5f7"
FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"


@dataclass
class Drawing:
    """Parts of a drawing, in the order in which they are drawn."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, w: float, h: float, *, fill: str = PAPER, line: str = GREY
    ) -> None:
        """A rectangle with rounded corners."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" '
            f'fill="{fill}" stroke="{line}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 14,
        anchor: str = "start",
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        """One line of words; `y` is its baseline."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}"{weight}>{escape(words)}</text>'
        )

    def arrow(self, *points: tuple[float, float], colour: str = INK, dash: str = "") -> None:
        """A line through points with a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        head = "orange" if colour == ORANGE else "ink"
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes} '
            f'marker-end="url(#{head})"/>'
        )

    def svg(self) -> str:
        """The drawing on white paper: it looks the same on a light and on a dark page."""
        heads = "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            f'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
            for name, colour in (("ink", INK), ("orange", ORANGE))
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" font-family="{FONT}">\n'
            f"<title>{escape(self.title)}</title>\n<defs>{heads}</defs>\n"
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{PAPER}"/>\n'
            f"{body}\n</svg>\n"
        )
