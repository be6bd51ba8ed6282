"""A look at a source's columns, for the curator who writes the first plan of a release."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subspacedp.errors import DataError, without_values
from subspacedp.io.coding import sum_of, whole_number
from subspacedp.io.engine import Kind, Source, read_whole
from subspacedp.tables import Label

__all__ = ["Column", "is_total", "labels_from_data", "look", "prefix_of"]

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
    negative
        Whether a column of whole numbers has one below zero.
    per_value
        For text and whole numbers: how many rows a value has on average; 1 where no value occurs
        twice.
    adds_up
        Whether it holds whole numbers and is, in every row, the sum of all other columns of its
        prefix that are not named a total; False for fewer than two such columns.
    """

    name: str
    kind: str
    distinct: int | None
    nulls: float
    sample: tuple[Label, ...]
    negative: bool = False
    per_value: float | None = None
    adds_up: bool = False

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
    wanted: dict[str, Any] = {"rows": table.count()}
    for i, (name, kind) in enumerate(source.kinds.items()):
        wanted[f"there{i}"] = table[name].count()
        if kind is Kind.TEXT:
            for read, pattern in _READ_AS.items():
                matches = table[name].re_search(pattern).ifelse(1, 0)
                wanted[f"{read.value}{i}"] = matches.sum().coalesce(0)
    facts = _asked(source, wanted)
    rows = facts["rows"]
    kinds = [
        next(
            (
                r
                for r in _READ_AS
                if facts[f"there{i}"] and facts.get(f"{r.value}{i}") == facts[f"there{i}"]
            ),
            kind,
        )
        for i, kind in enumerate(source.kinds.values())
    ]
    more = _more(source, kinds)
    columns = []
    for i, name in enumerate(source.kinds):
        there, values = facts[f"there{i}"], distinct_values(source, name, limit)
        number = more.get(f"values{i}", 0)
        columns.append(
            Column(
                name=name,
                kind=kinds[i].value,
                distinct=None if values is None else len(values),
                nulls=(rows - there) / rows if rows else 0.0,
                sample=tuple(values or ()),
                negative=more.get(f"below{i}", 0) > 0,
                per_value=there / number if number else None,
                adds_up=more.get(f"differ{i}") == 0 and rows > 0,
            )
        )
    return columns


def prefix_of(name: str) -> str:
    """What a name starts with up to its first underscore; nothing where there is none.

    >>> prefix_of("pop_nh_white"), prefix_of("county"), prefix_of("_x"), prefix_of("pop_")
    ('pop_', '', '', '')
    """
    head, mark, tail = name.partition("_")
    return head + mark if head and tail else ""


def is_total(name: str) -> bool:
    """Whether a name says that the column is a total.

    >>> is_total("pop_total"), is_total("TOTAL"), is_total("pop_totally")
    (True, True, False)
    """
    return re.split(r"[^a-z]+", name.lower())[-1] in {"total", "totals"}


def _asked(source: Source, wanted: dict[str, Any]) -> dict[str, int]:
    if not wanted:
        return {}
    batches = source.batches(source.table.aggregate(**wanted))
    answers = without_values(
        lambda: read_whole(batches, list(wanted)), "The engine's answer cannot be used"
    )
    return {name: int(column[0]) for name, column in answers.items()}


def _more(source: Source, kinds: Sequence[Kind]) -> dict[str, int]:
    """What can be asked once it is known which columns are text and which whole numbers."""
    table, wanted = source.table, {}
    names = list(source.kinds)
    whole = {
        i: whole_number(table[names[i]], source.kinds[names[i]], source.decimal)
        for i, kind in enumerate(kinds)
        if kind is Kind.WHOLE
    }
    for i, kind in enumerate(kinds):
        if kind in (Kind.TEXT, Kind.WHOLE):
            wanted[f"values{i}"] = table[names[i]].nunique()
    for i, number in whole.items():
        wanted[f"below{i}"] = (number < 0).ifelse(1, 0).sum().coalesce(0)
        prefix = prefix_of(names[i])
        family = [j for j in whole if prefix and prefix_of(names[j]) == prefix]
        others = [j for j in family if j != i and not is_total(names[j])]
        if len(others) > 1:
            total = sum_of(whole[j].coalesce(0).cast("float64") for j in others)
            differs = (number.coalesce(0).cast("float64") != total).ifelse(1, 0)
            wanted[f"differ{i}"] = differs.sum().coalesce(0)
    return _asked(source, wanted)


def labels_from_data(source: Source, column: str, *, limit: int = 100_000) -> list[Label]:
    """The distinct values of a column, sorted: labels that are *not protected*.

    That a value occurs is itself information about the people in the data; an axis with these
    labels must say `from_data=True`, and the certificate then reports it.
    """
    kind = source.column(column, "labels")
    if kind not in (Kind.TEXT, Kind.WHOLE, Kind.BOOL, Kind.DATE):
        raise DataError(
            f"Column `{column}` holds {kind.value} values, which make no labels; give `bins`.",
            column=column,
        )
    values = distinct_values(source, column, limit)
    if values is None:
        raise DataError(
            f"Column `{column}` has more than {limit} distinct values; that is no list of labels.",
            column=column,
        )
    if not values:
        raise DataError(f"Column `{column}` has no values.", column=column)
    return values


def distinct_values(source: Source, column: str, limit: int) -> list[Label] | None:
    """The distinct values without NULL, sorted; None when there are more than `limit`."""
    table = source.table
    value = table[column]
    if source.kinds[column] is not Kind.WHOLE:
        value = value.cast("string")
    distinct = table.filter(table[column].notnull()).select(value=value).distinct().limit(limit + 1)
    values: list[Label] = []
    for batch in source.batches(distinct):
        values.extend(batch.column(0).to_pylist())
    # Sorted here: engines order text by their own rules.
    return None if len(values) > limit else sorted(values)
