"""Sources that are tabulated already: a column of counts, or one column of counts a label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError, DomainError, without_values
from subspacedp.io.cell_tables import CellTable
from subspacedp.io.coding import (
    AxisColumn,
    error_of_rows,
    key_of,
    strides_of,
    whole_number,
    with_cells,
)
from subspacedp.io.engine import Kind, Source, need, read_whole, rows_have
from subspacedp.tables import MAX_TOTAL, Domain

__all__ = ["check_counts", "tabulate_counts"]


def check_counts(*, unit: object, value: object, wide: int, count: str | None) -> None:
    """What goes together with counts."""
    if unit is not None or value is not None:
        raise DataError("A source of counts has no persons: leave out `unit` and `value`.")
    if wide > 1:
        raise DomainError("Only one axis can be spread over `columns`.")
    if wide and count is not None:
        raise DomainError(
            "An axis that is spread over `columns` holds the counts; leave out `count`."
        )


def tabulate_counts(
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
        lambda: _filled(
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
    number = whole_number(table[name], kind)
    return ((number >= 0) & (number <= MAX_TOTAL)).ifelse(number, None).cast("int64")


def _filled(
    parts: Iterable[dict[str, npt.NDArray[np.int64]]],
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
    error = error_of_rows([entry for entry in axes if entry.columns is None], broken)
    if error is not None:
        raise error
    for name, number in zip(names, bad, strict=True):
        if number:
            raise DataError(
                f"{rows_have(number)} a value of `{name}` that is not a whole number of at least "
                "0.",
                column=name,
                rows=number,
            )
    if too_large:
        raise DataError("The counts must sum to at most 2**62.")
    return out
