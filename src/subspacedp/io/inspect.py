"""A look at a source's columns, for the curator who writes the first plan of a release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from subspacedp.io.answers import read_whole
from subspacedp.io.engine import Kind, Source
from subspacedp.io.labels import distinct_values
from subspacedp.tables import Label

__all__ = ["Column", "look"]

# Text that another program would read as a number or a date. A leading zero means an identifier.
_READ_AS = {
    Kind.WHOLE: "^(0|-?[1-9][0-9]{0,17})$",
    Kind.REAL: r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$",
    Kind.DATE: "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Column:
    """What a column looks like. Confidential: it is read off the data.

    Parameters
    ----------
    name
        Its name.
    kind
        "text", "whole", "real", "date", "bool" or "other"; text that is a number in every row
        counts as one, unless a number starts with a zero.
    distinct
        How many distinct values it has; None when more than were counted.
    nulls
        The share of rows without a value.
    sample
        The distinct values when they are few.
    """

    name: str
    kind: str
    distinct: int | None
    nulls: float
    sample: tuple[Label, ...]

    def __repr__(self) -> str:
        return f"Column({self.name!r}, {self.kind}, contents hidden)"


def look(source: Source, limit: int = 50) -> list[Column]:
    """Look at every column of a source.

    **Confidential.** What comes back is read off the data without any protection: it is for the
    eyes of the curator who may see the data anyway, and no part of it may be published.

    Parameters
    ----------
    limit
        Distinct values are counted up to here, and shown when there are no more.
    """
    table = source.table
    asked: dict[str, Any] = {"rows": table.count()}
    for i, (name, kind) in enumerate(source.kinds.items()):
        asked[f"there{i}"] = table[name].count()
        if kind is Kind.TEXT:
            for read, pattern in _READ_AS.items():
                matches = table[name].re_search(pattern).ifelse(1, 0)
                asked[f"{read.value}{i}"] = matches.sum().coalesce(0)
    answers = read_whole(source.batches(table.aggregate(**asked)), list(asked))
    found = {name: int(column[0]) for name, column in answers.items()}
    rows = found["rows"]
    columns = []
    for i, (name, kind) in enumerate(source.kinds.items()):
        there = found[f"there{i}"]
        fits = [r for r in _READ_AS if there and found.get(f"{r.value}{i}") == there]
        values = distinct_values(source, name, limit)
        columns.append(
            Column(
                name=name,
                kind=(fits[0] if fits else kind).value,
                distinct=None if values is None else len(values),
                nulls=(rows - there) / rows if rows else 0.0,
                sample=tuple(values or ()),
            )
        )
    return columns
