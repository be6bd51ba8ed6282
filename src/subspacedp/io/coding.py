"""How a column becomes places on an axis, as expressions that the engine evaluates.

A row's place on an axis is its code, and a row's cell is Σ code · stride, the cell's number in the
table. A row without a place has a negative code, and its cell is −Σ fault · 4^axis: one integer
tells which columns of how many rows are wrong, and none of their values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import Any

from subspacedp.errors import DataError, DomainError
from subspacedp.frozen import frozen
from subspacedp.io.engine import Kind, Source, need, rows_have
from subspacedp.io.periods import Periods, clock, day_labels, day_number, is_day
from subspacedp.tables import Axis, Domain, Label

# Measured on DuckDB, 10⁷ rows: 254 labels take 2.2 s as a CASE and 0.1 s as a join.
_CASE_UP_TO = 16
_MAX_AXES = 30  # 4^30 faults fit 64 bits
_WHOLE = r"^(-?[0-9]{1,18})(\.0*)?$"  # a table with gaps is often written as 12.0
_REAL = r"^[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?$"


class RowFault(IntEnum):
    """Why a row has no place on an axis."""

    UNKNOWN = 1
    MISSING = 2
    UNREADABLE = 3


@frozen(eq=False, repr=False)
class AxisColumn:
    """An axis and where its labels stand in the source. Public.

    Parameters
    ----------
    axis
        The axis, with its public labels.
    column
        The column with the labels; by default the one named like the axis.
    bins
        For a column of numbers: ascending edges. Label i stands for edge i ≤ value < edge i + 1,
        the last for everything from the last edge on; `bin_labels` names them. For a column of
        dates the edges are days, written as 2024-12-31.
    columns
        For a wide source of counts: label → the column with its counts.
    values
        What the source writes → the label it stands for; by default every label stands for itself.
        All text, or all whole numbers.
    periods
        For a column of dates or times: which period each of the first labels is.
    missing
        The label of rows that have nothing in the column: NULL, NaN or blank text.
    other
        The label of rows whose value has no other place: none of `values`, below the first bin,
        outside the periods, or not to be read as a number or date.
    where
        Where the axis is said, in words, for messages about rows that have no place.

    Guarantees
    ----------
    1. With `missing` and `other`, every row has one place, and which one depends on its own value
       and on public things alone.

    Examples
    --------
    >>> age = AxisColumn(Axis("age", bin_labels([0, 18, 65])), bins=(0, 18, 65))
    >>> age
    AxisColumn(age: 3 labels from `age`)
    """

    axis: Axis
    column: str | None = None
    bins: Sequence[float] | Sequence[str] | None = None
    columns: Mapping[Label, str] | None = None
    values: Mapping[Label, Label] | None = None
    periods: Periods | None = None
    missing: Label | None = None
    other: Label | None = None
    where: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.axis, Axis):
            raise DomainError(f"An axis column needs an `Axis`; got a {type(self.axis).__name__}.")
        name = self.axis.name
        if self.columns is not None:
            self._check_wide()
        if self.bins is not None:
            edges = check_edges(self.bins, name)
            if len(edges) != len(self.axis) - self._extra(len(edges)):
                raise DomainError(
                    f"Axis `{name}` has {len(self.axis)} labels and {len(edges)} bins; there must "
                    "be one label for each edge, for the last bin is open."
                )
            object.__setattr__(self, "bins", edges)
        if self.periods is not None:
            number = len(self.periods.labels)
            if self.bins is not None or number != len(self.axis) - self._extra(number):
                raise DomainError(f"Axis `{name}` must have one label for each of its periods.")
        for label in (self.missing, self.other, *(self.values or {}).values()):
            if label is not None and label not in self._place:
                raise DomainError(f"Axis `{name}` has no label {label!r}.", label=label)
        if len({isinstance(value, str) for value in self.values or ()}) > 1:
            raise DomainError(f"Axis `{name}`: `values` must be all text or all whole numbers.")

    def _check_wide(self) -> None:
        columns, name = dict(self.columns or {}), self.axis.name
        if self.column is not None or self.bins is not None or self.periods is not None:
            raise DomainError(f"Axis `{name}`: `columns` excludes `column` and `bins`.")
        without = [label for label in self.axis.labels if label not in columns]
        if without or len(columns) != len(self.axis):
            raise DomainError(
                f"Axis `{name}`: `columns` must name one column for each label, and no others."
            )
        if len(set(columns.values())) != len(columns):
            raise DomainError(f"Axis `{name}`: `columns` names one column for two labels.")
        object.__setattr__(self, "columns", columns)

    @cached_property
    def _place(self) -> Mapping[Label, int]:
        return self.axis.chain[0].number

    def _extra(self, first: int) -> int:
        """How many labels beyond the first ones are there for rows without a value or place."""
        places = {self._place.get(label, 0) for label in (self.missing, self.other)}  # type: ignore[arg-type]  # None is no label
        return len([place for place in places if place >= first])

    @property
    def name(self) -> str:
        """The column's name."""
        return self.axis.name if self.column is None else self.column

    @property
    def counted(self) -> bool:
        """Whether a row's place is reckoned from its value, and not looked up in a list."""
        return self.bins is not None or self.periods is not None

    @cached_property
    def run(self) -> range | None:
        """The labels, where they are whole numbers without a gap and stand for themselves."""
        labels = self.axis.labels
        plain = self.values is None and isinstance(labels, range) and labels.step == 1
        return labels if plain else None  # type: ignore[return-value]  # a range, as was just seen

    @cached_property
    def codes(self) -> Mapping[Label, int]:
        """What the source writes, and the place on the axis that it means."""
        if self.values is None:
            return self._place
        return {value: self._place[label] for value, label in self.values.items()}

    @cached_property
    def whole(self) -> bool:
        """Whether the source is read as whole numbers, and not as text."""
        first = self.axis.labels[0] if self.values is None else next(iter(self.values))
        return not isinstance(first, str)

    def fault(self, fault: RowFault) -> int:
        """The code of a row with a fault: the place that takes it, or a negative number."""
        label = self.missing if fault is RowFault.MISSING else self.other
        return -int(fault) if label is None else self._place[label]

    def __repr__(self) -> str:
        place = f"`{self.name}`" if self.columns is None else f"{len(self.columns)} columns"
        return f"AxisColumn({self.axis.name}: {len(self.axis)} labels from {place})"


def bin_labels(bins: Sequence[float] | Sequence[str]) -> tuple[str, ...]:
    """Names for the bins that the edges make, numbers or days; the last is open.

    >>> bin_labels([0, 5, 18, 65])
    ('0-4', '5-17', '18-64', '65+')
    >>> bin_labels([0, 1, 2])
    ('0', '1', '2+')
    >>> bin_labels([-10, 0, 10])
    ('-10 to -1', '0 to 9', '10+')
    >>> bin_labels([0, 0.5, 1])
    ('[0, 0.5)', '[0.5, 1)', '1+')
    """
    if any(isinstance(edge, str) for edge in bins):
        return tuple(day_labels([str(edge) for edge in check_edges(bins, "bins")]))
    edges = check_edges(bins, "bins")
    pairs = list(pairwise(edges))
    last = f"{_number(edges[-1])}+"
    if not all(float(edge).is_integer() for edge in edges):
        return (*(f"[{_number(a)}, {_number(b)})" for a, b in pairs), last)
    dash = "-" if edges[0] >= 0 else " to "
    return (
        *(_number(a) if b == a + 1 else f"{_number(a)}{dash}{_number(b - 1)}" for a, b in pairs),
        last,
    )


def _number(edge: float) -> str:
    return str(int(edge)) if float(edge).is_integer() else repr(float(edge))


def check_edges(bins: Iterable[Any], name: str) -> tuple[Any, ...]:
    """The edges of bins, ascending and finite; days, if they are text."""
    edges = tuple(bins)
    days = all(map(is_day, edges))
    good = days or all(
        isinstance(e, int | float) and not isinstance(e, bool) and math.isfinite(e) for e in edges
    )
    if not edges or not good or any(b <= a for a, b in pairwise(edges)):
        raise DomainError(
            f"`{name}`: the edges of bins must be ascending finite numbers, or days such as "
            "2024-12-31."
        )
    if not days and any(abs(e) >= 2**53 for e in edges):
        raise DomainError(f"`{name}`: the edges of bins must be below 2**53 in size.")
    return edges


def key_of(entry: AxisColumn, source: Source, rows: Any) -> Any:
    """What rows are grouped by: the column itself, or the code of its bin or period."""
    kind = source.column(entry.name, f"axis `{entry.axis.name}`")
    column = rows[entry.name]
    if entry.counted:
        return _reckoned(entry, source, column)
    if kind in (Kind.OTHER, Kind.TIME) or (kind is Kind.REAL and not entry.whole):
        held, remedy = {
            Kind.REAL: ("real numbers", "give `bins`, or change the column to text"),
            Kind.TIME: ("times", "say `by` which period they are counted, such as `by: month`"),
        }.get(kind, ("neither text, numbers nor dates", "change the column to text"))
        raise DataError(
            f"Column `{entry.name}` holds {held}, which cannot be compared with the labels of axis "
            f"`{entry.axis.name}`; {remedy}.",
            column=entry.name,
        )
    return column


def _reckoned(entry: AxisColumn, source: Source, column: Any) -> Any:
    """The code of the bin or period of a row; negative where it has none."""
    ibis = need("ibis", "publish")

    kind, unknown = source.kinds[entry.name], entry.fault(RowFault.UNKNOWN)
    missing = [(column.isnull(), entry.fault(RowFault.MISSING))]
    if kind is Kind.TEXT:
        missing.append((column.strip() == "", entry.fault(RowFault.MISSING)))
    unreadable = entry.fault(RowFault.UNREADABLE)
    if entry.periods is not None:
        code, bad, inside = entry.periods.code(column, kind, entry.name)
        faults = [*missing, *((condition, unreadable) for condition in bad)]
        return ibis.cases(*faults, (inside, code), else_=unknown).cast("int64")
    edges: Sequence[Any] = entry.bins or ()
    if isinstance(edges[0], str):
        year, month, day, _, bad = clock(column, kind, entry.name)
        faults = [*missing, *((condition, unreadable) for condition in bad)]
        number, edges = day_number(year, month, day), [int(e.replace("-", "")) for e in edges]
    else:
        if kind not in (Kind.WHOLE, Kind.REAL, Kind.TEXT):
            raise DataError(f"Column `{entry.name}` has `bins` and must hold numbers.")
        number, wrong = real_number(column, kind, source.decimal)
        faults = [*missing, *((condition, entry.fault(fault)) for condition, fault in wrong)]
        if kind is Kind.WHOLE and all(float(e).is_integer() for e in edges):
            number, edges = column, tuple(int(e) for e in edges)
    steps = [(number < edge, code) for code, edge in enumerate(edges[1:])]
    return ibis.cases(
        *faults, (number < edges[0], unknown), *steps, else_=len(edges) - 1
    ).cast("int64")  # fmt: skip


def real_number(
    column: Any, kind: Kind, decimal: str = "."
) -> tuple[Any, list[tuple[Any, RowFault]]]:
    """A column as float64, and the conditions under which it is no finite number."""
    missing = (column.isnull(), RowFault.MISSING)
    if kind is Kind.WHOLE:
        return column.cast("float64"), [missing]
    if kind is Kind.TEXT:
        text = column.strip()
        read = text.re_search(_REAL.replace(r"\.", re.escape(decimal)))
        # An engine must not try the cast before the test: every engine evaluates CASE in order.
        plain = text if decimal == "." else text.replace(decimal, ".")
        number = read.ifelse(plain, None).try_cast("float64")
        return number, [missing, (~read, RowFault.UNREADABLE)]
    # NaN is how many programs write a missing number; engines sort it above all others.
    infinite = column.abs() > 1.7976931348623157e308
    return column, [missing, (column.isnan(), RowFault.MISSING), (infinite, RowFault.UNREADABLE)]


def whole_number(column: Any, kind: Kind, decimal: str = ".") -> Any:
    """A column as int64; NULL where it is no whole number below 2**53 (2**63 if stored whole)."""
    ibis = need("ibis", "publish")

    if kind is Kind.WHOLE:
        return column
    if kind is Kind.BOOL:
        return ibis.cases((column, 1), (~column, 0)).cast("int64")  # not every engine has a cast
    if kind is Kind.TEXT:
        form = _WHOLE.replace(r"\.", re.escape(decimal))
        return column.strip().re_extract(form, 1).nullif("").try_cast("int64")
    if kind is Kind.REAL:
        inside = (~column.isnan() & (column.abs() < 2.0**53)).ifelse(column, None)
        return ibis.cases((inside == inside.floor().cast("float64"), inside.floor()))
    return ibis.null("int64")


def _canonical(entry: AxisColumn, source: Source, key: Any) -> Any:
    """The key as what the source is compared with: text, or a whole number."""
    if not entry.whole:
        return key.cast("string")
    return whole_number(key, source.kinds[entry.name], source.decimal)


def _joined(entry: AxisColumn) -> bool:
    """Whether places are looked up in a table of labels."""
    return not entry.counted and entry.run is None and len(entry.codes) > _CASE_UP_TO


def with_cells(
    source: Source, entries: Sequence[AxisColumn], rows: Any, strides: Sequence[int]
) -> Any:
    """Rows with keys `k0`, `k1`, … and their `cell` beside them."""
    ibis = need("ibis", "publish")

    if len(entries) > _MAX_AXES:
        raise DomainError(f"At most {_MAX_AXES} axes can be read from a source.")
    for i, entry in enumerate(entries):
        if _joined(entry):
            rows = rows.mutate(**{f"t{i}": _canonical(entry, source, rows[f"k{i}"])})
            listing = source.listing(entry.codes).rename({f"l{i}": "label", f"c{i}": "code"})
            rows = rows.left_join(listing, rows[f"t{i}"] == listing[f"l{i}"])
    codes = [_code(source, entry, rows, i) for i, entry in enumerate(entries)]
    if not codes:
        return rows.mutate(cell=ibis.literal(0, "int64"))
    rows = rows.mutate(**{f"code{i}": code for i, code in enumerate(codes)})
    codes = [rows[f"code{i}"] for i in range(len(codes))]
    good = sum_of(c * ibis.literal(s, "int64") for c, s in zip(codes, strides, strict=True))
    bad = sum_of(
        (code < 0).ifelse(code, 0) * ibis.literal(4**i, "int64") for i, code in enumerate(codes)
    )
    valid = codes[0] >= 0
    for code in codes[1:]:
        valid = valid & (code >= 0)
    return rows.mutate(cell=valid.ifelse(good, bad).cast("int64"))


def sum_of(terms: Iterable[Any]) -> Any:
    """Terms added up, without the integer 0 that `sum` starts with."""
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


def _code(source: Source, entry: AxisColumn, rows: Any, i: int) -> Any:
    """The place of a row's key; tests that few rows need come last, for they cost time."""
    ibis = need("ibis", "publish")

    key, kind = rows[f"k{i}"], source.kinds[entry.name]
    if entry.counted:
        return key
    missing, unknown = entry.fault(RowFault.MISSING), entry.fault(RowFault.UNKNOWN)
    absent = key.isnull()
    if kind is Kind.REAL:
        absent = absent | key.isnan()
    blank = []
    if kind is Kind.TEXT and (entry.whole or not any(not str(v).strip() for v in entry.codes)):
        blank = [(key.strip() == "", missing)]
    if _joined(entry):
        code = rows[f"c{i}"]
        places = [(absent, missing), (code.notnull(), code)]
        return ibis.cases(*places, *blank, else_=unknown).cast("int64")
    value = _canonical(entry, source, key)
    if entry.run is not None:
        inside = (value >= entry.run.start) & (value < entry.run.stop)
        places = [(inside, value - entry.run.start)]
    else:
        places = [(value == written, code) for written, code in entry.codes.items()]
    return ibis.cases((absent, missing), *places, *blank, else_=unknown).cast("int64")


def error_of_rows(
    entries: Sequence[AxisColumn], cells: Mapping[int, int], *others: DataError | None
) -> DataError | None:
    """Why how many rows cannot be counted, from the rows of every cell; None when nothing is.

    Parameters
    ----------
    entries, cells
        The axes, and how many rows every cell has.
    others
        What else keeps rows from being counted, told in the same sentence.
    """
    counts: dict[tuple[int, RowFault], int] = {}
    for cell, rows in cells.items():
        rest = -cell
        for i in range(len(entries) if cell < 0 else 0):
            rest, fault = divmod(rest, 4)
            if fault:
                place = (i, RowFault(fault))
                counts[place] = counts.get(place, 0) + rows
    errors = [_stopped(entries[i], fault, rows) for (i, fault), rows in sorted(counts.items())]
    errors += [error for error in others if error is not None]
    if not errors:
        return None
    sentence = "; ".join(str(error).removesuffix(".") for error in errors)
    return DataError(f"{sentence}.", **errors[0].evidence)


def _stopped(entry: AxisColumn, fault: RowFault, rows: int) -> DataError:
    """How many rows have one fault, and the line of a specification that would take them."""
    line = "missing: not stated" if fault is RowFault.MISSING else "other: all other"
    where = entry.where or f"axis `{entry.axis.name}`"
    takes = "it" if rows == 1 else "them"
    return DataError(
        f"{rows_have(rows)} {_what(entry, fault)}, and `{line}` in {where} would take {takes}",
        column=entry.name,
        rows=rows,
    )


def _what(entry: AxisColumn, fault: RowFault) -> str:
    if fault is RowFault.MISSING:
        return f"no value of `{entry.name}`"
    days = entry.bins is not None and isinstance(entry.bins[0], str)
    if fault is RowFault.UNREADABLE:
        form = "date" if days or entry.periods is not None else "finite number"
        if entry.periods is not None and entry.periods.by == "hour":
            form = "date with a time"
        return f"a value of `{entry.name}` that is not a {form}"
    if entry.bins is not None:
        return f"a value of `{entry.name}` below its first bin"
    if entry.periods is not None:
        return f"a value of `{entry.name}` outside its periods"
    return f"a value of `{entry.name}` that is not among its labels"


def strides_of(domain: Domain) -> list[int]:
    """How far apart in the table neighbours along each axis are."""
    return [math.prod(domain.shape[i + 1 :]) for i in range(len(domain.shape))]


def domain_of(entries: Sequence[AxisColumn]) -> Domain:
    """The domain that the axes make."""
    entries = tuple(entries)
    wrong = next((e for e in entries if not isinstance(e, AxisColumn)), None)
    if wrong is not None:
        raise DomainError(f"`axes` must be `AxisColumn` objects; got a {type(wrong).__name__}.")
    return Domain([entry.axis for entry in entries])
