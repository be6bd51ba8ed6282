"""An accessible spreadsheet: cover, contents, notes, and one table on every sheet.

After the guidance that statistical offices follow: every sheet begins with its title and says how
many tables it has; every table is marked up, with one header row, and has a name; no cells are
merged, no rows hidden or filtered, no panes frozen; shorthand is in square brackets and explained;
sheets have short names of their own. Labels are written as text, whatever they begin with.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.blocks.stores import STORES
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.estimates import digits_for
from subspacedp.publication.formats import (
    LIMITS,
    NOT_IN_XML,
    PublishedTable,
    ReleaseTables,
)
from subspacedp.release.files import LEVEL
from subspacedp.report import PublishedFile
from subspacedp.report.words import figure_words

WORKBOOK = "tables.xlsx"
MOST_ROWS = (
    250_000  # of one table: a marked-up table is made in memory, and Excel ends at 1,048,576
)
LONGEST_TEXT = 32_767  # characters of a cell in Excel
LONGEST_NAME = 31  # of a sheet
LONGEST_HEAD = 255  # of a column of a marked-up table
WIDE = 90  # characters of a column of words
LINE = 16.0  # points
FORBIDDEN = re.compile(rf"[\[\]:*?/\\]|{NOT_IN_XML.pattern}")
# The same release makes the same bytes, so no clock is read.
CREATED = datetime.datetime(2000, 1, 1)
ESTIMATE, EXACT = "[e]", "[h]"
SHORTHAND = {
    ESTIMATE: "Estimate: the figure with random noise of mean zero that protects persons.",
    EXACT: "Held: published exactly, without noise; its standard error is 0.",
}
PER_CENT = f"{100 * LEVEL:g}%"
HEADS = {
    "value": "Value",
    "stderr": "Standard error",
    LIMITS[0]: f"Lower {PER_CENT} limit",
    LIMITS[1]: f"Upper {PER_CENT} limit",
}
STATUS = "Shorthand"


def write_workbook(content: ReleaseTables, folder: Path) -> list[PublishedFile]:
    """Write all tables of a release that fit on sheets; the others are named in the contents."""
    import xlsxwriter

    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(str(folder / WORKBOOK), options) as book:
        _Book(book, content).write()
    return [
        PublishedFile(
            name=WORKBOOK,
            holds="The same tables as a spreadsheet, with standard errors and intervals.",
        )
    ]


class _Book:
    """A workbook that is being written."""

    def __init__(self, book: Any, content: ReleaseTables) -> None:
        self.book, self.content = book, content
        self.shown = [table for table in content.tables if table.rows <= MOST_ROWS]
        self.names = sheet_names(table.words for table in self.shown)
        font = {"font_name": "Arial", "font_size": 12}
        book.formats[0].set_font_name("Arial")
        book.formats[0].set_font_size(12)
        self.title = book.add_format({**font, "bold": True, "font_size": 16})
        self.heading = book.add_format({**font, "bold": True, "font_size": 14})
        self.text = book.add_format({**font, "text_wrap": True, "valign": "top"})
        self.label = book.add_format({**font, "num_format": "@"})
        self.whole_label = book.add_format({**font, "num_format": "0", "align": "left"})
        self.head = book.add_format({**font, "bold": True, "text_wrap": True, "valign": "top"})
        self.number_head = book.add_format(
            {**font, "bold": True, "text_wrap": True, "valign": "top", "align": "right"}
        )
        self.link = book.add_format({**font, "font_color": "#0000B4", "underline": 1})
        self.font = font

    def write(self) -> None:
        """All sheets."""
        release = self.content.release
        self.book.set_properties(
            {
                "title": self.content.title,
                "subject": "Tables with standard errors, protected by differential privacy",
                "author": self.content.contact,
                "comments": f"release {release.release_id}",
                "created": CREATED,
            }
        )
        self._cover()
        self._contents()
        self._notes()
        for number, (table, name) in enumerate(zip(self.shown, self.names, strict=True), 1):
            self._table(number, table, name)

    # ------------------------------------------------------------------------------ words

    def _cover(self) -> None:
        release, content = self.content.release, self.content
        sheet = self.book.add_worksheet("Cover")
        sheet.set_column(0, 0, WIDE)
        rows: list[tuple[str, Any]] = [(content.title, self.title)]
        if release.seeded:
            rows.append(("NOT FOR PUBLICATION: made from a chosen seed.", self.heading))
        mechanism = release.mechanism
        rows += [
            (f"Every figure is the {figure_words(mechanism)}.", self.text),
            (f"Published exactly: {mechanism.held}.", self.text),
            *((text, self.text) for text in content.about.split("\n\n") if text.strip()),
            ("What is promised", self.heading),
            *((sentence, self.text) for sentence in release.guarantee.sentences()),
            *((sentence, self.text) for sentence in release.guarantee.not_protected()),
            ("How to use the figures", self.heading),
            *((sentence, self.text) for sentence in USE),
            ("Shorthand", self.heading),
            *((f"{code} {meaning}", self.text) for code, meaning in SHORTHAND.items()),
        ]
        if content.contact:
            rows += [("Contact", self.heading), (content.contact, self.text)]
        rows.append((f"Release {release.release_id}", self.text))
        for row, (text, how) in enumerate(rows):
            plain = " ".join(text.split())
            if how is self.text:
                sheet.set_row(row, _height(plain, WIDE))
            self._string(sheet, row, 0, plain, how)

    def _contents(self) -> None:
        sheet = self.book.add_worksheet("Contents")
        absent = [table for table in self.content.tables if table not in self.shown]
        self._above(sheet, "Contents", ["One table on this sheet: every other sheet."])
        rows = [["Notes", "Shorthand and how figures are to be used"]]
        rows += [
            [name, f"Table {number}: {table.words}"]
            for number, (table, name) in enumerate(zip(self.shown, self.names, strict=True), 1)
        ]
        self._marked(sheet, 3, "contents", ["Sheet", "What it has"], rows, widths=(34, WIDE))
        for i, (name, _) in enumerate(rows, 4):
            target = "internal:'{}'!A1".format(name.replace("'", "''"))
            sheet.write_url(i, 0, target, self.link, name)
        elsewhere = [
            f"The {table.rows:,} figures by {table.words} are more than the {MOST_ROWS:,} rows "
            f"that a sheet has here; they are in the file {table.file or 'values.csv'}."
            for table in absent
        ]
        stored = self.content.release.stored
        if stored is not None:
            figures = self.content.release.query.size
            elsewhere.append(f"The {figures:,} cells are in {STORES[stored.kind]}, without labels.")
        for i, text in enumerate(elsewhere, len(rows) + 5):
            self._string(sheet, i, 0, text, self.book.add_format(self.font))

    def _notes(self) -> None:
        sheet = self.book.add_worksheet("Notes")
        self._above(sheet, "Notes", ["One table on this sheet: notes on all tables."])
        rows = [*([code, meaning] for code, meaning in SHORTHAND.items()),
                *([f"[note {i}]", text] for i, text in enumerate(USE, 1))]  # fmt: skip
        self._marked(sheet, 3, "notes", ["Note", "What it means"], rows, widths=(16, WIDE))

    # ------------------------------------------------------------------------------ tables

    def _table(self, number: int, table: PublishedTable, name: str) -> None:
        sheet = self.book.add_worksheet(name)
        labels, numbers = table.labels, table.numbers
        exact = numbers["stderr"] == 0
        known = {code for code, used in ((ESTIMATE, ~exact), (EXACT, exact)) if used.any()}
        lines = [
            f"One table on this sheet, of {table.rows:,} figure{'s' if table.rows > 1 else ''}; "
            "notes are on the sheet Notes.",
            "Shorthand: " + " ".join(f"{code} {SHORTHAND[code]}" for code in sorted(known)),
        ]
        title = f"Table {number}: {self.content.title}, {table.words}"
        first = self._above(sheet, title, lines)
        titles = {level.name: level.title for axis in table.margin.axes for level in axis.named}
        heads = [
            *(titles.get(name, name) for name in labels),
            *(HEADS[column] for column in numbers),
            STATUS,
        ]
        self._mark(sheet, first, f"table_{number}", heads, table.rows, words=len(labels))
        for j, column in enumerate(labels.values()):
            self._labels(sheet, first + 1, j, column)
        for j, column in enumerate(numbers.values(), len(labels)):
            how = self._number_format(column, numbers["stderr"])
            for i, value in enumerate(column.tolist(), first + 1):
                sheet.write_number(i, j, value, how)
        for i, fixed in enumerate(exact.tolist(), first + 1):
            sheet.write_string(i, len(heads) - 1, EXACT if fixed else ESTIMATE, self.label)
        for j, (head, column) in enumerate(zip(heads, [*labels.values()], strict=False)):
            longest = max((len(str(v)) for v in column[:1000].tolist()), default=0)
            sheet.set_column(j, j, min(60, max(12, longest + 2, len(head) + 2)))
        sheet.set_column(len(labels), len(heads) - 1, 18)
        sheet.ignore_errors({"number_stored_as_text": f"A{first + 2}:XFD{first + 1 + table.rows}"})

    def _labels(self, sheet: Any, first: int, j: int, column: Any) -> None:
        """Text as text, whatever it begins with; whole numbers as numbers."""
        whole = np.asarray(column).dtype.kind in "iu"
        for i, label in enumerate(np.asarray(column).tolist(), first):
            if whole:
                sheet.write_number(i, j, label, self.whole_label)
            else:
                self._string(sheet, i, j, str(label), self.label)

    def _number_format(self, column: Any, errors: Any) -> Any:
        """All of a number is stored; as many digits are shown as mean something."""
        if np.array_equal(column, np.rint(column)):
            digits = 0
        else:
            loose = errors[errors > 0]
            digits = (digits_for(float(loose.min())) or 0) if loose.size else 0
        shape = "#,##0" + ("." + "0" * digits if digits > 0 else "")
        return self.book.add_format({**self.font, "num_format": shape})

    # ------------------------------------------------------------------------------ parts

    def _above(self, sheet: Any, title: str, lines: Sequence[str]) -> int:
        """The title and some lines above a table; the row of its head."""
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        self._string(sheet, 0, 0, title, self.title)
        for i, line in enumerate(lines, 1):
            self._string(sheet, i, 0, line, self.book.add_format(self.font))
        return len(lines) + 2

    def _marked(
        self,
        sheet: Any,
        first: int,
        name: str,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        widths: Sequence[int],
    ) -> None:
        """A table of words."""
        self._mark(sheet, first, name, heads, len(rows))
        for i, row in enumerate(rows, first + 1):
            sheet.set_row(i, max(map(_height, row, widths)))
            for j, text in enumerate(row):
                self._string(sheet, i, j, text, self.text)
        for j, width in enumerate(widths):
            sheet.set_column(j, j, width)

    def _mark(
        self,
        sheet: Any,
        first: int,
        name: str,
        heads: Sequence[str],
        rows: int,
        words: int | None = None,
    ) -> None:
        """Mark up a table: one header row, no filters; heads stand over words or over numbers."""
        last = len(heads) - 1
        columns = [
            {"header": head, "header_format": self.head}
            if words is None or j < words or j == last
            else {"header": head, "header_format": self.number_head}
            for j, head in enumerate(distinct_heads(heads))
        ]
        sheet.add_table(
            first, 0, first + rows, len(heads) - 1,
            {"name": name, "columns": columns, "autofilter": False, "style": "Table Style Light 1",
             "banded_rows": False},
        )  # fmt: skip

    def _string(self, sheet: Any, row: int, column: int, text: str, how: Any) -> None:
        if len(text) > LONGEST_TEXT:
            raise ReleaseError(
                f"A cell of a spreadsheet has at most {LONGEST_TEXT:,} characters; the text that "
                f"begins with `{text[:40]}` has {len(text):,}. Shorten it, or leave `xlsx` out of "
                "`publish: formats`."
            )
        sheet.write_string(row, column, text, how)


USE = (
    "Values with noise are unbiased and may be negative. Use them as they are in sums, differences "
    "and averages; do not move negative values to zero first.",
    "The standard error is that of the noise alone. An interval from the lower to the upper limit "
    f"covers the figure without noise with {PER_CENT}.",
    "Errors of different figures are correlated where totals are held: the standard error of a sum "
    "of your own is not the root of summed squares. Use the table of the margin, or "
    "error-model.json.",
)


def _height(text: str, width: int) -> float:
    """Points that a wrapped text takes in a column of so many digits of a smaller font."""
    return LINE * math.ceil(max(1, len(text)) / (0.8 * width))


def sheet_names(words: Iterable[str]) -> list[str]:
    """A name for every table: at most 31 characters that Excel takes; numbers make them differ."""
    out = []
    for number, text in enumerate(words, 1):
        short = " ".join(FORBIDDEN.sub(" ", text).split())
        out.append(f"{number} {short}"[:LONGEST_NAME].rstrip().rstrip("'"))
    return out


def distinct_heads(heads: Sequence[str]) -> list[str]:
    """Heads of a marked-up table: short, on one line, and no two alike in any case."""
    out: list[str] = []
    taken: set[str] = set()
    for number, head in enumerate(heads, 1):
        plain = " ".join(NOT_IN_XML.sub(" ", head).split())[: LONGEST_HEAD - 10] or "column"
        if plain.casefold() in taken:
            plain = f"{plain} ({number})"
        taken.add(plain.casefold())
        out.append(plain)
    return out
