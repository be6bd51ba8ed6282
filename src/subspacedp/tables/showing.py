"""Figures as people read them: the first rows of a table, to the digits that mean something."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from subspacedp.frozen import frozen
from subspacedp.stated import visible

SHOWN = 10  # rows
MAX_DIGITS = 6


def digits_for(stderr: float) -> int | None:
    """Decimals that show two digits of a standard error; None for an exact figure."""
    if not 0 < stderr < math.inf:
        return None
    return min(MAX_DIGITS, max(0, 1 - math.floor(math.log10(stderr))))


def number_text(value: Any, digits: int | None) -> str:
    """A number with that many decimals; all that it has for None; none if it is whole by type."""
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    number = float(value)
    if digits is None:
        return f"{number:,.0f}" if number.is_integer() else f"{number:,.10g}"
    return f"{number:,.{digits}f}"


@frozen(kw_only=True)
class Shown:
    """The first rows of a table as text, under one line that says what it is.

    Parameters
    ----------
    title
        The line above.
    head
        Names of the columns.
    rows
        Texts, one list per row.
    numbers
        How many of the last columns are numbers.
    more
        How many rows are not shown.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: int
    more: int

    def text(self) -> str:
        """For a terminal: columns in line, numbers to the right, controls in labels written out."""
        rows = [[visible(cell) for cell in row] for row in (self.head, *self.rows)]
        columns = list(zip(*rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        words = len(columns) - self.numbers
        lines = [
            "  ".join(
                cell.ljust(width) if at < words else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join(
            [visible(self.title), *lines, *([f"… {self.more:,} more"] if self.more else [])]
        )

    def html(self) -> str:
        """For a notebook."""
        words = len(self.head) - self.numbers

        def row(cells: Sequence[str], tag: str) -> str:
            inner = "".join(
                f"<{tag} style='text-align:{'left' if at < words else 'right'}'>{escape(cell)}"
                f"</{tag}>"
                for at, cell in enumerate(cells)
            )
            return f"<tr>{inner}</tr>"

        body = "".join(row(cells, "td") for cells in self.rows)
        more = f"<p>… {self.more:,} more</p>" if self.more else ""
        return (
            f"<p>{escape(self.title)}</p><table><thead>{row(self.head, 'th')}</thead>"
            f"<tbody>{body}</tbody></table>{more}"
        )
