"""One page about a demonstration: words, figures and the numbers behind them, in one file.

It has the look of a release's report, loads nothing, and runs no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files

from subspacedp.demo.style import Figure
from subspacedp.report.charts import publishing
from subspacedp.report.page import source_digest, template_text

__all__ = ["Grid", "Page", "Part", "render"]


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
    jinja2 = publishing("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["whole"] = publishing("markupsafe").Markup
    style = template_text("report.css") + "\n" + _text("demonstration.css")
    policy = (
        f"default-src 'none'; style-src {source_digest(style)}; base-uri 'none'; form-action 'none'"
    )
    template = environment.from_string(_text("demonstration.html"))
    return str(template.render(page=page, style=style, policy=policy))


def _text(name: str) -> str:
    return (package_files(__package__) / "templates" / name).read_text("utf-8").strip()
