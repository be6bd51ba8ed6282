"""From a source to tables: the engine groups and counts, and only cells and counts come back."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.errors import DataError, DomainError, ReleaseError, without_values
from subspacedp.frozen import frozen
from subspacedp.io.bounding import checked_bounds, left_out, no_unit, unit_of
from subspacedp.io.coding import (
    AxisColumn,
    domain_of,
    error_of_rows,
    key_of,
    real_number,
    strides_of,
    whole_number,
    with_cells,
)
from subspacedp.io.engine import Kind, Source, need, read_whole, rows_have
from subspacedp.queries import ClippedSums
from subspacedp.tables import MAX_TOTAL, Domain, Table

Progress = Callable[[str], None]
AT_ONCE = 1 << 24  # cells of a file that are subtracted at a time
_ALL, _LEFT_OUT = 0, 1


@frozen(eq=False, repr=False, kw_only=True)
class Tabulated:
    """What a source holds, cell by cell. Confidential: nothing of it is shown.

    Parameters
    ----------
    domain
        The cells; public.
    everything
        All records: held totals come from it. A path where the table was made on disk.
    bounded
        The records within the bound: what noise is added to, and the guarantee is about. The same
        object as `everything` when nothing was left out.
    sums, sums_everything
        Sums of the clipped value in units, over the bounded records and over all.
    dropped, records
        How many records the bound left out, and how many there are.
    """

    domain: Domain
    everything: Table | Path
    bounded: Table | Path
    sums: Int64Array | None
    sums_everything: Int64Array | None
    dropped: int
    records: int

    def __repr__(self) -> str:
        return f"Tabulated({repr(self.domain)[len('Domain(') : -1]}, counts hidden)"


class CellTable:
    """The counts of all cells; it takes memory, or a place on disk, with the first of them.

    Parameters
    ----------
    domain
        Its cells.
    folder, name
        Where the .npy file is made, and what it is called; without a folder, nowhere.
    """

    def __init__(self, domain: Domain, folder: Path | None, name: str) -> None:
        self._domain = domain
        self._path = None if folder is None else folder / f"{name}.npy"
        self.total = 0  # of the counts that were added

    @cached_property
    def array(self) -> Int64Array:
        """All counts, in the domain's shape; zero until they are added."""
        if self._path is None:
            return np.zeros(self._domain.shape, np.int64)
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            array = np.lib.format.open_memmap(self._path, "w+", np.dtype("<i8"), self._domain.shape)
            # A mapped file without its room would end the process when the disk is full.
            with self._path.open("r+b") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise ReleaseError(
                f"Cannot write counts to `{self._path.parent}`: {error.strerror or error}."
            ) from None
        return array

    def add(self, cells: Int64Array, counts: Int64Array) -> None:
        """Add counts to cells; what has a negative cell has no place, and is left out."""
        placed = cells >= 0
        if placed.any():
            self.total += int(counts[placed].sum())
            np.add.at(self.array.reshape(-1), cells[placed], counts[placed])

    def rest_of(self, whole: CellTable) -> Table | Path:
        """What another table has beyond this one; it takes this one's place."""
        rest, all_cells = self.array.reshape(-1), whole.array.reshape(-1)
        for at in range(0, rest.size, AT_ONCE):
            part = slice(at, at + AT_ONCE)
            np.subtract(all_cells[part], rest[part], out=rest[part])
        return self.table()

    def table(self) -> Table | Path:
        """The table; the path of one on disk."""
        array = self.array
        if self._path is None:
            return Table(array, self._domain)
        array.flush()  # type: ignore[attr-defined]  # of a mapped file
        return self._path

    def __repr__(self) -> str:
        return "CellTable(hidden)"


def tabulate(
    source: Source,
    axes: Sequence[AxisColumn],
    *,
    unit: str | None = None,
    records: int = 1,
    per_cell: int | None = None,
    key: bytes | str | None = None,
    value: ClippedValue | None = None,
    count: str | None = None,
    without_unit: bool = False,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Tabulated:
    r"""Tables of a source, in one statement that the engine runs.

    Parameters
    ----------
    source
        From `open_source`.
    axes
        The axes of the table and the columns they are read from.
    unit
        The column that says whose record it is. None: every row is a person of its own.
    records, per_cell
        The most records a person contributes, and the most of these in one cell.
    key
        Decides which records of a person stay; needed with `unit`. It must not be chosen in view
        of the data.
    value
        A value to sum besides counting.
    count
        For a source that is tabulated already: the column with the counts. Rows of one cell are
        added, and a cell without a row has no one in it.
    without_unit
        Whether rows that do not say whose they are (NULL, or blank text) stay out of everything,
        held totals included; otherwise they are an error.
    scratch
        For tables that need not fit in memory: a folder that its owner alone can read, where they
        are made as .npy files. They are confidential, and the caller's to remove. Sums of a value
        are made in memory.
    progress
        Called with a public sentence before each step.

    Guarantees
    ----------
    1. With `unit`: for every key, and for all sources that differ in the records of one person,
       the `bounded` tables differ by at most what `AddRemoveOne(records, per_cell)` states for
       records added or removed, and `ReplaceOne(records, per_cell)` for records exchanged
       (docs/proofs/contributions.md).
    2. The tables are a function of the records, the bounds and the key: the same on every engine
       and for every order of the rows.
    3. No message tells a value of the source, and no row leaves the engine.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from subspacedp.io import open_source
    >>> from subspacedp.tables import Axis
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "visits.csv"
    >>> _ = path.write_text("person,county\n1,01001\n1,01001\n1,01003\n2,01003\n")
    >>> county = AxisColumn(Axis("county", ["01001", "01003"]))
    >>> with open_source(path) as source:
    ...     found = tabulate(source, [county], unit="person", records=1, key="k")
    >>> found
    Tabulated(county: 2; 2 cells, counts hidden)
    >>> int(found.everything.counts.sum()), int(found.bounded.counts.sum())
    (4, 2)
    >>> folder.cleanup()
    """
    tell = progress or (lambda sentence: None)
    domain = domain_of(axes)
    wide = [entry for entry in axes if entry.columns is not None]
    if count is not None or wide:
        _check_counts(unit=unit, value=value, wide=len(wide), count=count)
        tell(f"adding counts in {source.kind}")
        counts = _tabulate_counts(source, axes, domain, count, scratch)
        table = counts.table()
        return Tabulated(
            domain=domain,
            everything=table,
            bounded=table,
            sums=None,
            sums_everything=None,
            dropped=0,
            records=counts.total,
        )
    bounds = checked_bounds(unit, records, per_cell, key)
    if value is not None:
        value.sums(domain)
    if unit is None:
        statement = _rows_are_persons(source, axes, domain, value)
    else:
        statement = _persons(source, axes, domain, value, unit, bounds, without_unit)
    tell(f"counting in {source.kind}")
    if scratch is not None:
        statement = statement.order_by("cell")  # a file is filled from its beginning to its end
    return without_values(
        lambda: _filled(source.batches(statement, scratch), axes, domain, unit, value, scratch),
        "The engine's answer cannot be used",
    )


def _rows_are_persons(
    source: Source, axes: Sequence[AxisColumn], domain: Domain, value: ClippedValue | None
) -> Any:
    """Group by the columns as they are, then code the few groups: coding costs next to nothing."""
    ibis = need("ibis", "publish")

    rows = source.table
    keys = {f"k{i}": key_of(entry, source, rows) for i, entry in enumerate(axes)}
    sums = {}
    if value is not None:
        units, bad = value.units(source, rows)
        sums = {"units": units.sum(), "bad": bad.ifelse(1, 0).sum()}
    groups = rows.group_by(**keys).agg(n=rows.count(), **sums)
    cells = with_cells(source, axes, groups, strides_of(domain))
    nothing = ibis.literal(0, "int64")
    counted = cells.group_by("cell").agg(
        n=cells.n.sum().cast("int64"),
        **{name: cells[name].sum().cast("int64") for name in sums},
    )
    if value is None:
        counted = counted.mutate(units=nothing, bad=nothing)
    return counted.mutate(part=ibis.literal(_ALL, "int64"), lost=nothing)[list(_COLUMNS)]


_COLUMNS = ("part", "cell", "n", "units", "bad", "lost")


def _persons(
    source: Source,
    axes: Sequence[AxisColumn],
    domain: Domain,
    value: ClippedValue | None,
    unit: str,
    bounds: tuple[int, int, str],
    without_unit: bool,
) -> Any:
    """All records by cell, and below them what the bound leaves out, in one statement."""
    ibis = need("ibis", "publish")

    table = source.table
    whose = unit_of(source, unit, table)
    if without_unit:
        table = table.filter(whose.notnull())
    keys = {f"k{i}": key_of(entry, source, table) for i, entry in enumerate(axes)}
    extra = {}
    if value is not None:
        units, bad = value.units(source, table)
        extra = {"v": units, "bad": bad.ifelse(1, 0)}
    rows = table.select(u=unit_of(source, unit, table), **keys, **extra)
    rows = with_cells(source, axes, rows, strides_of(domain))["u", "cell", *extra]
    nothing = ibis.literal(0, "int64")
    counted = rows.group_by("cell").agg(
        n=rows.count(),
        lost=rows.u.isnull().ifelse(1, 0).sum().cast("int64"),
        **({"units": rows.v.sum().cast("int64"), "bad": rows.bad.sum().cast("int64")} if value
           else {}),
    )  # fmt: skip
    if value is None:
        counted = counted.mutate(units=nothing, bad=nothing)
    counted = counted.mutate(part=ibis.literal(_ALL, "int64"))[list(_COLUMNS)]
    m, k, key = bounds
    gone = left_out(source, rows, records=m, per_cell=k, key=key, valued=value is not None)
    gone = gone.mutate(part=ibis.literal(_LEFT_OUT, "int64"), bad=nothing, lost=nothing)
    return counted.union(gone[list(_COLUMNS)])


def _filled(
    batches: Iterable[Any],
    axes: Sequence[AxisColumn],
    domain: Domain,
    unit: str | None,
    value: ClippedValue | None,
    scratch: Path | None,
) -> Tabulated:
    """The answer's rows in tables, or the sentence that says what is wrong with the data."""
    places = ("everything", "left-out", "sums", "sums-left-out")
    tables = dict(zip(places, (CellTable(domain, scratch, name) for name in places), strict=True))
    broken: dict[int, int] = {}
    rows = lost = bad = 0
    for batch in batches:
        columns = read_whole([batch], _COLUMNS)
        lost, bad = lost + int(columns["lost"].sum()), bad + int(columns["bad"].sum())
        for part, counted, summed in ((_ALL, "everything", "sums"),
                                      (_LEFT_OUT, "left-out", "sums-left-out")):  # fmt: skip
            here = columns["part"] == part
            cell, n = columns["cell"][here], columns["n"][here]
            if part == _ALL:
                rows += int(n.sum())
                for code, number in zip(cell[cell < 0].tolist(), n[cell < 0].tolist(), strict=True):
                    broken[code] = broken.get(code, 0) + number
            tables[counted].add(cell, n)
            if value is not None:
                tables[summed].add(cell, columns["units"][here])
    if rows == 0:
        raise DataError("The source has no rows.")
    _check(broken, lost, bad, axes, unit, value)
    if value is not None:
        value.check_total(rows)
    everything = tables["everything"].table()
    bounded, dropped = everything, tables["left-out"].total
    if dropped:
        bounded = tables["left-out"].rest_of(tables["everything"])
    sums = sums_everything = None
    if value is not None:
        sums_everything = tables["sums"].array
        sums = sums_everything - tables["sums-left-out"].array
        for array in (sums_everything, sums):
            array.setflags(write=False)
    return Tabulated(
        domain=domain,
        everything=everything,
        bounded=bounded,
        sums=sums,
        sums_everything=sums_everything,
        dropped=dropped,
        records=rows,
    )


def _check(
    broken: dict[int, int],
    lost: int,
    bad: int,
    axes: Sequence[AxisColumn],
    unit: str | None,
    value: ClippedValue | None,
) -> None:
    unnamed = no_unit(lost, unit) if lost else None
    unsummed = value.stopped(bad) if bad and value is not None else None
    error = error_of_rows(axes, broken, unnamed, unsummed)
    if error is not None:
        raise error


# ------------------------------------------------------------ sources that are tabulated already


def _check_counts(*, unit: object, value: object, wide: int, count: str | None) -> None:
    """What goes together with counts."""
    if unit is not None or value is not None:
        raise DataError("A source of counts has no persons: leave out `unit` and `value`.")
    if wide > 1:
        raise DomainError("Only one axis can be spread over `columns`.")
    if wide and count is not None:
        raise DomainError(
            "An axis that is spread over `columns` holds the counts; leave out `count`."
        )


def _tabulate_counts(
    source: Source,
    axes: Sequence[AxisColumn],
    domain: Domain,
    count: str | None,
    scratch: Path | None,
) -> CellTable:
    """The counts of a source in the domain's shape; rows of one cell are added."""
    wide = next((i for i, entry in enumerate(axes) if entry.columns is not None), None)
    if wide is None:
        names, stride = [str(count)], 0
    else:
        of = axes[wide].columns or {}
        names = [of[label] for label in axes[wide].axis.labels]
        stride = strides_of(domain)[wide]
    statement = _statement(source, axes, domain, names)
    if scratch is not None:
        statement = statement.order_by("cell")
    wanted = ("cell", "rows", *(f"{p}{i}" for i in range(len(names)) for p in ("n", "bad")))
    return without_values(
        lambda: _added(
            (read_whole([batch], wanted) for batch in source.batches(statement, scratch)),
            axes,
            CellTable(domain, scratch, "everything"),
            names,
            stride,
        ),
        "The engine's answer cannot be used",
    )


def _statement(
    source: Source, axes: Sequence[AxisColumn], domain: Domain, names: Sequence[str]
) -> Any:
    ibis = need("ibis", "publish")

    table = source.table
    strides = strides_of(domain)
    narrow = [(e, s) for e, s in zip(axes, strides, strict=True) if e.columns is None]
    entries = [entry for entry, _ in narrow]
    keys = {f"k{i}": key_of(entry, source, table) for i, entry in enumerate(entries)}
    numbers = {f"w{i}": _whole(source, table, name) for i, name in enumerate(names)}
    rows = table.select(**keys, **numbers)
    rows = with_cells(source, entries, rows, [stride for _, stride in narrow])
    sums = {}
    for i in range(len(names)):
        good = ibis.coalesce(rows[f"w{i}"], 0).cast("decimal(38, 0)").sum()
        # An engine's 64-bit sum may wrap; −1 stands for what is too large.
        sums[f"n{i}"] = (good <= MAX_TOTAL).ifelse(good, -1).cast("int64")
        sums[f"bad{i}"] = rows[f"w{i}"].isnull().ifelse(1, 0).sum().cast("int64")
    return rows.group_by("cell").agg(rows=rows.count(), **sums)


def _whole(source: Source, table: Any, name: str) -> Any:
    """The counts as int64, NULL where they are missing, negative, broken or too large."""
    kind = source.column(name, "the counts")
    if kind not in (Kind.WHOLE, Kind.REAL, Kind.TEXT):
        raise DataError(f"Column `{name}` must hold counts.", column=name)
    number = whole_number(table[name], kind, source.decimal)
    return ((number >= 0) & (number <= MAX_TOTAL)).ifelse(number, None).cast("int64")


def _added(
    parts: Iterable[dict[str, Int64Array]],
    axes: Sequence[AxisColumn],
    out: CellTable,
    names: Sequence[str],
    stride: int,
) -> CellTable:
    """The table, filled as the answer comes; at its end, what is wrong with how many rows."""
    broken: dict[int, int] = {}
    bad, too_large, some = [0] * len(names), False, False
    for columns in parts:
        cell, rows = columns["cell"], columns["rows"]
        some = some or bool(rows.size)
        for number, of in zip(cell[cell < 0].tolist(), rows[cell < 0].tolist(), strict=True):
            broken[number] = broken.get(number, 0) + of
        for i in range(len(names)):
            n = columns[f"n{i}"]
            bad[i] += int(columns[f"bad{i}"].sum())
            too_large = too_large or bool(np.any(n < 0))
            out.add(np.where(cell < 0, cell, cell + i * stride), n)
    if not some:
        raise DataError("The source has no rows.")
    uncounted = [
        DataError(
            f"{rows_have(number)} a value of `{name}` that is not a whole number from 0 to 2**62",
            column=name,
            rows=number,
        )
        for name, number in zip(names, bad, strict=True)
        if number
    ]
    read = [entry for entry in axes if entry.columns is None]
    error = error_of_rows(read, broken, *uncounted)
    if error is not None:
        raise error
    if too_large:
        raise DataError("The counts must sum to at most 2**62.")
    return out


# ------------------ a number of every record, clipped to a public range and rounded to whole units


@frozen(kw_only=True)
class ClippedValue:
    """Which value to sum, and the public range that bounds what one record adds.

    Parameters
    ----------
    column
        The column with the value.
    lower, upper
        The public range; values outside are moved to its ends.
    unit
        Values are rounded to whole multiples of it, halves to the even one.
    missing
        The public value, within the range, of rows that have none or no finite number; without it
        they are an error.
    where
        Where the sum is said, in words, for the message about such rows.
    """

    column: str
    lower: float
    upper: float
    unit: float = 1.0
    missing: float | None = None
    where: str = ""

    def sums(self, domain: Domain) -> ClippedSums:
        """The query that these sums answer; it checks the range."""
        return ClippedSums(domain, self.column, self.lower, self.upper, self.unit)

    def most(self) -> int:
        """The most units that one record adds, in size."""
        grid = Fraction(repr(float(self.unit)))
        return max(abs(round(Fraction(end) / grid)) for end in (self.lower, self.upper))

    def units(self, source: Source, rows: Any) -> tuple[Any, Any]:
        """The value in units as int64, and whether it is missing or no finite number.

        Rounding is spelled out, for engines differ in what `round` does with halves: with
        f = ⌊q⌋ and r = q − f exact in float64, q is rounded up when r > ½, or r = ½ and f is odd.
        """
        ibis = need("ibis", "publish")

        kind = source.column(self.column, "the value to sum")
        if kind not in (Kind.WHOLE, Kind.REAL, Kind.TEXT):
            raise DataError(f"Column `{self.column}` must hold numbers.", column=self.column)
        number, faults = real_number(rows[self.column], kind, source.decimal)
        bad = faults[0][0]
        for condition, _ in faults[1:]:
            bad = bad | condition
        instead = self.lower if self.missing is None else self.missing
        lower, upper, instead = (
            ibis.literal(float(end), "float64") for end in (self.lower, self.upper, instead)
        )
        clipped = ibis.cases(
            (bad, instead), (number < lower, lower), (number > upper, upper), else_=number
        )
        quotient = clipped / ibis.literal(float(self.unit), "float64")
        floor = quotient.floor().cast("int64")
        rest = quotient - floor.cast("float64")
        up = (rest > 0.5) | ((rest == 0.5) & (floor % 2 != 0))
        units = floor + up.ifelse(1, 0).cast("int64")
        most = self.most()
        inside = ibis.cases((units > most, most), (units < -most, -most), else_=units)
        return inside.cast("int64"), bad if self.missing is None else ibis.literal(False)

    def stopped(self, rows: int) -> DataError:
        """The sentence for rows whose value cannot be summed."""
        return DataError(
            f"{rows_have(rows)} a value of `{self.column}` that is missing or not a finite number, "
            f"and `missing: 0` in {self.where or 'its sum'} would count "
            f"{'it' if rows == 1 else 'them'} as 0",
            column=self.column,
            rows=rows,
        )

    def check_total(self, rows: int) -> None:
        """Refuse what could leave 64 bits."""
        if not math.isfinite(rows) or self.most() * rows >= 2**62:
            raise DataError("The sums could leave 64 bits; choose a larger unit.")
