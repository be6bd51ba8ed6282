"""From a source to tables: the engine groups and counts, and only cells and counts come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError, without_values
from subspacedp.io.bounding import checked_bounds, left_out, no_unit, unit_of
from subspacedp.io.coding import (
    AxisColumn,
    domain_of,
    error_of_rows,
    key_of,
    strides_of,
    with_cells,
)
from subspacedp.io.counts import check_counts, tabulate_counts
from subspacedp.io.engine import Source, need, read_whole, rows_have
from subspacedp.io.values import ClippedValue
from subspacedp.tables import Domain, Table

__all__ = ["Tabulated", "tabulate"]

Int64Array = npt.NDArray[np.int64]
Progress = Callable[[str], None]
_ALL, _LEFT_OUT = 0, 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Tabulated:
    """What a source holds, cell by cell. Confidential: nothing of it is shown.

    Parameters
    ----------
    everything
        All records: held totals come from it.
    bounded
        The records within the bound: what noise is added to, and the guarantee is about. The same
        object as `everything` when nothing was left out.
    sums, sums_everything
        Sums of the clipped value in units, over the bounded records and over all.
    dropped
        How many records the bound left out.
    """

    everything: Table
    bounded: Table
    sums: Int64Array | None
    sums_everything: Int64Array | None
    dropped: int

    @property
    def domain(self) -> Domain:
        """The cells; public."""
        return self.everything.domain

    def __repr__(self) -> str:
        return f"Tabulated({repr(self.domain)[len('Domain(') : -1]}, counts hidden)"


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
        check_counts(unit=unit, value=value, wide=len(wide), count=count)
        tell(f"adding counts in {source.kind}")
        table = Table(tabulate_counts(source, axes, domain, count), domain)
        return Tabulated(
            everything=table, bounded=table, sums=None, sums_everything=None, dropped=0
        )
    bounds = checked_bounds(unit, records, per_cell, key)
    if value is not None:
        value.sums(domain)
    if unit is None:
        statement = _rows_are_persons(source, axes, domain, value)
    else:
        statement = _persons(source, axes, domain, value, unit, bounds, without_unit)
    tell(f"counting in {source.kind}")
    batches = source.batches(statement)
    tell("filling the table")
    return without_values(
        lambda: _filled(batches, axes, domain, unit, value), "The engine's answer cannot be used"
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
    found = cells.group_by("cell").agg(
        n=cells.n.sum().cast("int64"),
        **{name: cells[name].sum().cast("int64") for name in sums},
    )
    if value is None:
        found = found.mutate(units=nothing, bad=nothing)
    return found.mutate(part=ibis.literal(_ALL, "int64"), lost=nothing)[list(_COLUMNS)]


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
    found = rows.group_by("cell").agg(
        n=rows.count(),
        lost=rows.u.isnull().ifelse(1, 0).sum().cast("int64"),
        **({"units": rows.v.sum().cast("int64"), "bad": rows.bad.sum().cast("int64")} if value
           else {}),
    )  # fmt: skip
    if value is None:
        found = found.mutate(units=nothing, bad=nothing)
    found = found.mutate(part=ibis.literal(_ALL, "int64"))[list(_COLUMNS)]
    m, k, key = bounds
    gone = left_out(source, rows, records=m, per_cell=k, key=key, valued=value is not None)
    gone = gone.mutate(part=ibis.literal(_LEFT_OUT, "int64"), bad=nothing, lost=nothing)
    return found.union(gone[list(_COLUMNS)])


def _filled(
    batches: Iterable[Any],
    axes: Sequence[AxisColumn],
    domain: Domain,
    unit: str | None,
    value: ClippedValue | None,
) -> Tabulated:
    """The answer's rows in tables, or the sentence that says what is wrong with the data."""
    columns = read_whole(batches, _COLUMNS)
    part, cell, n, units = (columns[name] for name in ("part", "cell", "n", "units"))
    rows = int(n[part == _ALL].sum())
    if rows == 0:
        raise DataError("The source has no rows.")
    _check(columns, axes, unit, value)
    if value is not None:
        value.check_total(rows)
    everything, gone, sums, gone_sums = (np.zeros(domain.size, np.int64) for _ in range(4))
    for counts, totals, number in ((everything, sums, _ALL), (gone, gone_sums, _LEFT_OUT)):
        here = part == number
        np.add.at(counts, cell[here], n[here])
        np.add.at(totals, cell[here], units[here])
    dropped = int(gone.sum())
    table = Table(everything.reshape(domain.shape), domain)
    bounded = table
    if dropped:
        bounded = Table((everything - gone).reshape(domain.shape), domain)
    all_sums = sums.reshape(domain.shape)
    kept = all_sums - gone_sums.reshape(domain.shape)
    for array in (all_sums, kept):
        array.setflags(write=False)
    return Tabulated(
        everything=table,
        bounded=bounded,
        sums=kept if value else None,
        sums_everything=all_sums if value else None,
        dropped=dropped,
    )


def _check(
    columns: dict[str, Int64Array],
    axes: Sequence[AxisColumn],
    unit: str | None,
    value: ClippedValue | None,
) -> None:
    here = columns["part"] == _ALL
    cells = zip(columns["cell"][here].tolist(), columns["n"][here].tolist(), strict=True)
    error = error_of_rows(axes, {cell: n for cell, n in cells if cell < 0})
    if error is not None:
        raise error
    lost = int(columns["lost"].sum())
    if lost:
        raise no_unit(lost, unit)
    bad = int(columns["bad"].sum())
    if bad and value is not None:
        raise DataError(
            f"{rows_have(bad)} a value of `{value.column}` that is missing or not a finite number.",
            column=value.column,
            rows=bad,
        )
