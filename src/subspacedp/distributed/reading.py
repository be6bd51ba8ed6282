"""An agent's own rows to the counts of its own cells; whatever else is in them is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.plan import AgentPlan
from subspacedp.errors import DataError
from subspacedp.tables import Axis, LocalEntries

__all__ = ["answers_of_rows"]

Int64Array = npt.NDArray[np.int64]

LARGEST = 2**62


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
        The column of counts or entries, one row a cell; by default the only column that is neither
        an axis nor a level, and without one every row is one record.
    fill
        Whether a cell without a row has nobody in it; otherwise it is an error.
    """
    domain, cells = plan.design.domain, plan.partition.cells(part)
    known = {level.name for axis in domain.axes for level in axis.chain}
    for axis in domain.axes:
        if axis.name not in columns:
            raise DataError(f"The data have no column `{axis.name}`.", column=axis.name)
    chosen = value if value is not None else _only([c for c in columns if c not in known])
    if chosen is not None and chosen not in columns:
        raise DataError(f"The data have no column `{chosen}`.", column=chosen)
    places = [_places(axis, columns[axis.name]) for axis in domain.axes]
    own = np.ravel_multi_index(tuple(places), domain.shape)
    at = np.minimum(np.searchsorted(cells, own), cells.size - 1)
    foreign = int(np.count_nonzero(cells[at] != own)) if own.size else 0
    if foreign:
        raise DataError(
            f"{_rows(foreign)} of cells that are not in part `{part}`; an agent has its own "
            "cells and no others.",
            rows=foreign,
        )
    seen = np.bincount(at, minlength=cells.size).astype(np.int64)
    if chosen is None:
        if isinstance(plan.design.query, LocalEntries):
            raise DataError("The data have no column of entries; name it.")
        return seen
    repeated = int(np.count_nonzero(seen > 1))
    if repeated:
        raise DataError(
            f"The data have more than one row for {_cells(repeated)}; sum them first.",
            cells=repeated,
        )
    absent = int(np.count_nonzero(seen == 0))
    if absent and not (fill and not isinstance(plan.design.query, LocalEntries)):
        raise DataError(
            f"The data have no row for {_cells(absent)} of part `{part}`; add them, or say that a "
            "missing row means none.",
            cells=absent,
        )
    out = np.zeros(cells.size, np.int64)
    out[at] = _numbers(columns[chosen], chosen)
    return out


def _only(columns: Sequence[str]) -> str | None:
    if len(columns) > 1:
        names = ", ".join(f"`{name}`" for name in columns[:6])
        raise DataError(f"Say which column has the counts: {names}.")
    return columns[0] if columns else None


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
            if isinstance(value, float) and number != value:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            wrong += 1
            continue
        if abs(number) > LARGEST:
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
