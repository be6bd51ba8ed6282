"""A look at a source's columns, for the curator who writes the first plan of a release."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from subspacedp.errors import DataError, without_values
from subspacedp.frozen import frozen
from subspacedp.io.coding import sum_of, whole_number
from subspacedp.io.engine import Kind, Source, read_whole
from subspacedp.tables import Label

# Text that another program would read as a number or a date. A leading zero means an identifier.
_REAL = r"^-?(0|[1-9][0-9]{{0,17}})({}[0-9]{{1,30}})?([eE][+-]?[0-9]{{1,2}})?$"
_READ_AS = {
    "whole": (Kind.WHOLE, "^(0|-?[1-9][0-9]{0,17})$"),
    "real": (Kind.REAL, _REAL.format(r"\.")),
    "comma": (Kind.REAL, _REAL.format(",")),
    "date": (Kind.DATE, "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    "time": (Kind.TIME, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9.]+)?Z?)?$"),
}
MANY = 50  # a column with more distinct values may name persons


@frozen(kw_only=True, repr=False)
class Column:
    """What a column looks like. Confidential: it is read off the data.

    Parameters
    ----------
    name
        Its name.
    kind
        "text", "whole", "real", "date", "time", "bool" or "other"; text that is a number or a date
        in every row counts as one, unless a number starts with a zero.
    distinct
        How many distinct values it has; None when more than were counted.
    nulls
        The share of rows without a value; blank text is none.
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
    groups
        For labels that are few enough: the columns that they determine, as a place determines its
        district, each with its value beside every value of `sample`.
    records
        For text and whole numbers that are too many to list: how many values occur in 1, 2, ...
        rows.
    span
        The first and last day of a column of dates or times.
    names
        What its codes are called, where the file says so; not read off the rows.
    title
        What the file calls the column for readers; empty where it does not say.
    """

    name: str
    kind: str
    distinct: int | None
    nulls: float
    sample: tuple[Label, ...]
    negative: bool = False
    per_value: float | None = None
    adds_up: bool = False
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    records: tuple[tuple[int, int], ...] = ()
    span: tuple[str, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    title: str = ""

    @property
    def few(self) -> bool:
        """Whether it has values, and few enough to list them in a line."""
        return self.distinct is not None and 0 < self.distinct <= MANY

    def __repr__(self) -> str:
        return f"Column({self.name!r}, {self.kind}, contents hidden)"


@frozen(kw_only=True, repr=False)
class Seen:
    """What a source looks like. Confidential, as its columns are.

    Parameters
    ----------
    rows
        How many rows it has.
    columns
        Its columns.
    decimal
        The sign before the decimals of numbers that are text.
    """

    rows: int
    columns: tuple[Column, ...]
    decimal: str = "."

    def __repr__(self) -> str:
        return f"Seen({len(self.columns)} columns, contents hidden)"


def look(source: Source, limit: int = 2_000) -> Seen:
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
        wanted[f"there{i}"] = _there(table[name], kind).ifelse(1, 0).sum().coalesce(0)
        if kind is Kind.TEXT:
            for read, (_, pattern) in _READ_AS.items():
                matches = table[name].re_search(pattern).ifelse(1, 0)
                wanted[f"{read}{i}"] = matches.sum().coalesce(0)
    facts = _asked(source, wanted)
    rows, names = facts["rows"], list(source.kinds)
    read_as = [
        next((r for r in _READ_AS if facts.get(f"{r}{i}") == facts[f"there{i}"] > 0), None)
        for i in range(len(names))
    ]
    decimal = "," if "comma" in read_as and "real" not in read_as else "."
    kinds = [
        _READ_AS[read][0] if read and (read != "comma" or decimal == ",") else kind
        for read, kind in zip(read_as, source.kinds.values(), strict=True)
    ]
    more = _more(source, kinds)
    columns = []
    for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        there, number = facts[f"there{i}"], more.get(f"values{i}", 0)
        values = distinct_values(source, name, limit)
        if values is not None:
            values = [value for value in values if str(value).strip()]
        many = kind in (Kind.TEXT, Kind.WHOLE) and (values is None or len(values) > MANY)
        columns.append(
            Column(
                name=name,
                kind=kind.value,
                distinct=None if values is None else len(values),
                nulls=(rows - there) / rows if rows else 0.0,
                sample=tuple(values or ()),
                negative=more.get(f"below{i}", 0) > 0,
                per_value=there / number if number else None,
                adds_up=more.get(f"differ{i}") == 0 and rows > 0,
                records=_records(source, name) if many else (),
                span=_span(source, name) if there and kind in (Kind.DATE, Kind.TIME) else None,
                names=source.code_names.get(name, {}),
                title=source.titles.get(name, ""),
            )
        )
    return Seen(rows=rows, columns=_nested(source, columns), decimal=decimal)


def _there(value: Any, kind: Kind) -> Any:
    """Whether a row has a value: blank text and NaN are none."""
    if kind is Kind.TEXT:
        return value.notnull() & (value.strip() != "")
    return value.notnull() & ~value.isnan() if kind is Kind.REAL else value.notnull()


def _span(source: Source, name: str) -> tuple[str, str]:
    """The first and last day, as text."""
    table = source.table
    text = table[name].cast("string").substr(0, 10)
    filled = table.filter(_there(table[name], source.kinds[name]))
    (row,) = _rows(source, filled.aggregate(first=text.min(), last=text.max()))
    return str(row[0]), str(row[1])


def _records(source: Source, name: str) -> tuple[tuple[int, int], ...]:
    """How many values occur in 1, 2, ... rows."""
    table = source.table
    filled = table.filter(_there(table[name], source.kinds[name]))
    each = filled.group_by(value=table[name]).aggregate(records=filled.count())
    numbers = each.group_by("records").aggregate(values=each.count())
    return tuple(sorted((int(row[0]), int(row[1])) for row in _rows(source, numbers)))


def _nested(source: Source, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with what they determine: one question for each that could have groups."""
    listed = [c for c in columns if c.kind in {"text", "whole", "bool"} and c.sample]
    return tuple(
        replace(
            c, groups=_groups(source, c, [o for o in listed if 1 < len(o.sample) <= len(c.sample)])
        )
        if c in listed
        else c
        for c in columns
    )


def _groups(source: Source, fine: Column, coarser: Sequence[Column]) -> dict[str, tuple[str, ...]]:
    table = source.table
    others = [column for column in coarser if column is not fine]
    if not others:
        return {}
    filled = table.filter(_there(table[fine.name], source.kinds[fine.name]))
    ends: dict[str, Any] = {}
    for i, other in enumerate(others):
        value, kind = filled[other.name], source.kinds[other.name]
        text = _there(value, kind).ifelse(value.cast("string"), None)
        ends |= {f"low{i}": text.min(), f"high{i}": text.max()}
    label = filled[fine.name].cast("string")
    rows = {
        row[0]: row[1:] for row in _rows(source, filled.group_by(label=label).aggregate(**ends))
    }
    groups = {}
    for i, other in enumerate(others):
        pairs = [rows[str(label)][2 * i : 2 * i + 2] for label in fine.sample]
        if all(low == high and low is not None for low, high in pairs):
            groups[other.name] = tuple(str(low) for low, _ in pairs)
    return groups


def _rows(source: Source, expression: Any) -> list[tuple[Any, ...]]:
    columns: list[tuple[Any, ...]] = []
    for batch in source.batches(expression):
        columns.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
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
