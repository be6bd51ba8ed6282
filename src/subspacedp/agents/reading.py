"""An agent's own rows to the counts of its own cells; whatever else is in them is refused."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.agents.plan import AgentPlan
from subspacedp.arrays import Int64Array
from subspacedp.errors import DataError
from subspacedp.tables import MAX_TOTAL, Axis


def read_rows(path: Path) -> dict[str, list[Any]]:
    """The columns of an agent's file; those of a text file as text."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    problem = ""
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            separator = "\t" if ".tsv" in path.suffixes else ","
            with (
                pa.input_stream(path) as file,
                TextIOWrapper(file, "utf-8-sig", newline="") as text,
            ):
                columns = next(csv.reader(text, delimiter=separator), [])
            options = pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
            )
            parse = pyarrow.csv.ParseOptions(delimiter=separator)
            table = pyarrow.csv.read_csv(path, convert_options=options, parse_options=parse)
        if len(set(table.column_names)) < len(table.column_names):
            problem = "two of its columns have the same name"
        else:
            return {name: table[name].to_pylist() for name in table.column_names}
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else "it cannot be opened"
    except (pa.ArrowException, UnicodeDecodeError, ValueError):
        problem = "it is not a table that can be read"  # its content is confidential
    raise DataError(f"Cannot use the data `{path}`: {problem}.")


def answers_of_rows(
    plan: AgentPlan,
    part: str,
    columns: Mapping[str, Sequence[Any]],
    *,
    value: str | None = None,
    fill: bool = False,
) -> Int64Array:
    """The confidential answers of a part, from rows with a label for every axis.

    Parameters
    ----------
    columns
        One column an axis, named like it; whole numbers may come as text. Columns of levels are
        not needed.
    value
        The column of counts or entries, one row per cell; by default the plan's, or else the only
        column that is neither an axis nor a level, and without one every row is one record.
    fill
        Whether a cell without a row has nobody in it; otherwise it is an error.
    """
    domain, cells = plan.mechanism.domain, plan.partition.cells(part)
    for axis in domain.axes:
        if axis.name not in columns:
            raise DataError(f"The data have no column `{axis.name}`.", column=axis.name)
    chosen = counted_column(plan, columns, value)
    used = [axis.name for axis in domain.axes] + ([] if chosen is None else [chosen])
    _check_lengths({name: columns[name] for name in used})
    places = [_places(axis, columns[axis.name]) for axis in domain.axes]
    row_cells = np.ravel_multi_index(tuple(places), domain.shape)
    at = np.minimum(np.searchsorted(cells, row_cells), cells.size - 1)
    foreign = int(np.count_nonzero(cells[at] != row_cells)) if row_cells.size else 0
    if foreign:
        raise DataError(
            f"{_rows(foreign)} of cells that are not in part `{part}`; an agent has its own "
            "cells and no others.",
            rows=foreign,
        )
    seen = np.bincount(at, minlength=cells.size).astype(np.int64)
    if chosen is None:
        if plan.mechanism.query.entry_range is not None:
            raise DataError("The data have no column of entries; name it.")
        return seen
    repeated = int(np.count_nonzero(seen > 1))
    if repeated:
        raise DataError(
            f"The data have more than one row for {_cells(repeated)}; sum them first.",
            cells=repeated,
        )
    absent = int(np.count_nonzero(seen == 0))
    if absent and not (fill and plan.mechanism.query.entry_range is None):
        raise DataError(
            f"The data have no row for {_cells(absent)} of part `{part}`; add them, or say that a "
            "missing row means none.",
            cells=absent,
        )
    out = np.zeros(cells.size, np.int64)
    out[at] = _numbers(columns[chosen], chosen)
    return out


def counted_column(plan: AgentPlan, columns: Iterable[str], value: str | None) -> str | None:
    """The column of counts or entries; None where every row is one record."""
    known = {level.name for axis in plan.mechanism.domain.axes for level in axis.named}
    others = [name for name in columns if name not in known]
    if plan.value is not None:
        if value not in (None, plan.value):
            raise DataError(f"The plan's column of counts is `{plan.value}`, not `{value}`.")
        if plan.value not in others:
            raise DataError(
                f"The data have no column `{plan.value}`, which the plan counts.",
                column=plan.value,
            )
        return plan.value
    if value is not None:
        if value in known:
            raise DataError(f"`{value}` is an axis or level of the plan, not a column of counts.")
        if value not in others:
            raise DataError(f"The data have no column `{value}`.", column=value)
        return value
    if len(others) > 1:
        names = ", ".join(f"`{name}`" for name in others[:6])
        raise DataError(f"Say which column has the counts: {names}.")
    return others[0] if others else None


def _check_lengths(columns: Mapping[str, Sequence[Any]]) -> None:
    lengths = {}
    for name, column in columns.items():
        if isinstance(column, str) or not hasattr(column, "__len__"):
            raise DataError(f"The column `{name}` must be a list of values.", column=name)
        lengths[name] = len(column)
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"`{name}` {length:,}" for name, length in lengths.items())
        raise DataError(f"All columns must have one value per row; they have: {listed}.")


def _places(axis: Axis, values: Sequence[Any]) -> Int64Array:
    number = {str(label): i for i, label in enumerate(axis.labels)}
    places = np.fromiter((number.get(str(v), -1) for v in values), np.int64, len(values))
    unknown = int(np.count_nonzero(places < 0))
    if unknown:
        # How many, never which: the values are confidential.
        raise DataError(
            f"{_rows(unknown, 'has', 'have')} a label in column `{axis.name}` that is not on the "
            "axis.",
            column=axis.name,
            rows=unknown,
        )
    return places


def _numbers(values: Sequence[Any], name: str) -> list[int]:
    out, wrong = [], 0
    for value in values:
        try:
            number = int(value)
            if not isinstance(value, str) and number != value:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            wrong += 1
            continue
        if abs(number) >= MAX_TOTAL:
            wrong += 1
            continue
        out.append(number)
    if wrong:
        raise DataError(
            f"{_rows(wrong, 'has', 'have')} a value of `{name}` that is not a whole number.",
            column=name,
            rows=wrong,
        )
    return out


def _rows(number: int, one: str = "is", many: str = "are") -> str:
    return f"1 row {one}" if number == 1 else f"{number:,} rows {many}"


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number:,} cells"
