"""One page about a demonstration: words, figures and the numbers behind them, in one file.

It has the look and the colours of a release's report, loads nothing, and runs no script. Whatever
is drawn has one colour, one mark and one dash everywhere, so that a figure can be read in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subspacedp.frozen import frozen
from subspacedp.mechanisms import Projected
from subspacedp.report.charts import inline_svg
from subspacedp.report.page import rendered, template_text
from subspacedp.report.plots import ACCENT, INK, SECOND, Look, on_paper


@frozen(kw_only=True)
class Grid:
    """A small table, as text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1  # so many columns, the first ones, are text


@frozen(kw_only=True)
class Part:
    """A section: its words, then its facts, figures and tables, then closing words."""

    id: str
    title: str
    paragraphs: Sequence[str] = ()
    facts: Sequence[tuple[str, str, str]] = ()  # name, answer, meaning
    figures: Sequence[Figure] = ()
    grids: Sequence[Grid] = ()
    closing: Sequence[str] = ()


@frozen(kw_only=True)
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
    return rendered("demonstration.html", page, style=style, package=__package__)


OURS = Look(name=Projected.name, colour=ACCENT, shape="circle")
PRACTICE = Look(name="post-processed", colour=SECOND, shape="square", dash="6,3")
TRUTH = Look(name="truth", colour=INK, shape="triangle-up", dash="2,2")


@frozen(kw_only=True)
class Figure:
    """A drawing as a file and as part of a page, with what it shows in words and numbers.

    Parameters
    ----------
    name
        Of its file, without ending.
    caption, description
        A heading for readers; what the figure shows in a sentence, for who cannot see it.
    svg
        The drawing.
    columns, rows
        The figures behind the drawing as text, for a table beside it.
    """

    name: str
    caption: str
    description: str
    svg: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    texts: int = 1  # so many columns, the first ones, are text

    @property
    def inline(self) -> str:
        """The drawing as an element of a page: it takes the page's font, and loads nothing."""
        return inline_svg(self.svg, self.description)

    def _repr_html_(self) -> str:
        """The figure in a notebook, no wider than that."""
        drawn = inline_svg(on_paper(self.svg), self.description)
        return drawn.replace("<svg", '<svg style="max-width:100%;height:auto"', 1)

    def write(self, folder: Path) -> None:
        """Write `name.svg`."""
        (folder / f"{self.name}.svg").write_text(on_paper(self.svg), "utf-8")


def signed(number: float, digits: int) -> str:
    """A number with its sign, and a minus that is one.

    >>> signed(-1.25, 1), signed(3, 0)
    ('−1.2', '+3')
    """
    return f"{number:+,.{digits}f}".replace("-", "−")
