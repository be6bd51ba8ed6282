"""What a command prints: on a screen as rich draws it, to a file or a pipe as the same lines.

Texts have rich's markup. Lines of any length need neither colours nor a layout, so that rich, which
takes longer to load than a small release to be verified, is for screens alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from subspacedp.stated import visible

TAG = re.compile(r"(\\*)(\[[a-z#/@][^[]*?\])")


def escape(text: str) -> str:
    """A text that is no markup, as markup."""
    marked = TAG.sub(r"\1\1\\\2", visible(text))
    return f"{marked}\\" if marked.endswith("\\") and not marked.endswith("\\\\") else marked


def _plain(markup: str) -> str:
    """Markup without its tags, as rich reads it; `escape` undoes it."""
    parts, end = [], 0
    for tag in TAG.finditer(markup):
        slashes = len(tag[1])
        parts += [markup[end : tag.start()].replace("\\[", "["), "\\" * (slashes // 2)]
        parts += [tag[2].replace("\\[", "[")] * (slashes % 2)
        end = tag.end()
    parts.append(markup[end:].replace("\\[", "["))
    return "".join(parts)


def _width(text: str) -> int:
    """The columns that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cell_lines(content: Any) -> list[str]:
    """The lines of a text with markup, of a table, or of one of them indented."""
    if isinstance(content, str):
        return _plain(content).split("\n")
    return list(content.lines())


def _padded(lines: Sequence[str], width: int, *, right: bool = False) -> list[str]:
    if right:
        return [" " * (width - _width(line)) + line for line in map(str.rstrip, lines)]
    return [line + " " * (width - _width(line)) for line in lines]


class Table:
    """A table without lines, of as many columns as headings; these may be empty.

    Parameters
    ----------
    numbers
        The places of its columns of numbers; all but the first, if not given.
    apart
        Half the space between columns.
    fold
        Whether a screen breaks words that are too long, rather than cutting them.
    """

    def __init__(
        self,
        *headings: str,
        numbers: Collection[int] | None = None,
        apart: int = 2,
        fold: bool = False,
    ) -> None:
        places = range(1, len(headings)) if numbers is None else numbers
        self._columns = [(heading, place in places) for place, heading in enumerate(headings)]
        self._apart, self._fold, self._rows = apart, fold, list[tuple[str, ...]]()

    def add_row(self, *cells: str) -> None:
        """One text with markup for every column."""
        self._rows.append(cells)

    def lines(self) -> Iterator[str]:
        """As it is written to a file."""
        headings = [heading for heading, _ in self._columns]
        rows = [*([headings] if any(headings) else []), *self._rows]
        space = " " * self._apart
        read = [[cell_lines(cell) for cell in row] for row in rows]
        widths = [
            max(_width(line) for cell in column for line in cell)
            for column in zip(*read, strict=True)
        ]
        for row in read:
            height = max(map(len, row))
            filled = [[*cell, *[""] * (height - len(cell))] for cell in row]
            drawn = [
                _padded(cell, width, right=right)
                for cell, width, (_, right) in zip(filled, widths, self._columns, strict=True)
            ]
            for parts in zip(*drawn, strict=True):
                yield "".join(f"{space}{part}{space}" for part in parts)

    def __rich__(self) -> Any:
        from rich import table

        shown = any(heading for heading, _ in self._columns)
        padding = (0, self._apart)
        drawn = table.Table(box=None, padding=padding, header_style="dim", show_header=shown)
        for heading, right in self._columns:
            drawn.add_column(
                heading,
                justify="right" if right else "left",
                overflow="fold" if self._fold else "ellipsis",
            )
        for row in self._rows:
            drawn.add_row(*row)
        return drawn


class Indented:
    """A text or a table, two columns to the right."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def lines(self) -> Iterator[str]:
        """As it is written to a file."""
        lines = cell_lines(self._content)
        yield from (f"  {line}" for line in _padded(lines, max(map(_width, lines), default=0)))

    def __rich__(self) -> Any:
        from rich.padding import Padding

        return Padding(self._content, (0, 0, 0, 2), expand=False)


class Lines:
    """Prints to a file or a pipe, where lines have any length and no colour."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    def print(self, content: Any = "", **_layout: Any) -> None:
        """A text with markup, a table, or one of them indented."""
        file = sys.stderr if self._stderr else sys.stdout
        file.write("".join(f"{line}\n" for line in cell_lines(content)))
        file.flush()

    @contextmanager
    def status(self, _sentence: str) -> Iterator[Lines]:
        """Nothing moves in a file."""
        yield self

    def update(self, _sentence: str) -> None:
        """Nothing moves in a file."""
