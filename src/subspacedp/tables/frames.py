"""Any dataframe in and out, through narwhals; the only file of `tables` that knows of it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError
from subspacedp.tables.axis import Axis, Label

if TYPE_CHECKING:
    from subspacedp.tables.domain import Domain

__all__ = ["column_values", "counts_from_frame", "frame_from_columns", "positions"]


def _eager(frame: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(frame, eager_only=True)
    except nw.exceptions.NarwhalsError as error:
        raise DataError(f"The dataframe cannot be used: {type(error).__name__}.") from None
    except TypeError:
        raise DataError(
            f"Expected an eager dataframe (pandas, polars, pyarrow); got a {type(frame).__name__}."
        ) from None


def column_values(frame: Any, name: str) -> list[Label]:
    """The values of one column; confidential unless the frame is public."""
    wrapped = _eager(frame)
    if name not in wrapped.columns:
        raise DataError(f"The data have no column `{name}`.", column=name)
    missing = wrapped[name].null_count()
    values = wrapped[name].to_list() if not missing else []
    missing = missing or sum(isinstance(v, float) and math.isnan(v) for v in values)
    if missing:
        raise DataError(f"Column `{name}` has {missing} missing values.", column=name)
    if not all(isinstance(value, Hashable) for value in values):
        raise DataError(f"Column `{name}` must hold single labels, not lists.", column=name)
    return values


def counts_from_frame(
    frame: Any, domain: Domain, value: str, *, fill: int | None
) -> npt.NDArray[Any]:
    """The counts of a long dataframe, one row per cell, as an array in the domain's shape."""
    wrapped = _eager(frame)
    if value not in wrapped.columns:
        raise DataError(f"The data have no column `{value}`.", column=value)
    places = [positions(axis, column_values(frame, axis.name)) for axis in domain.axes]
    counts = _count_column(wrapped[value], value)
    flat = np.ravel_multi_index(tuple(places), domain.shape)
    seen = np.bincount(flat, minlength=domain.size)
    repeated = int(np.count_nonzero(seen > 1))
    if repeated:
        raise DataError(
            f"The data have more than one row for {_cells(repeated)}; sum them first.",
            cells=repeated,
        )
    absent = domain.size - len(flat)
    if absent and fill is None:
        raise DataError(
            f"The data have no row for {_cells(absent)} of the domain; add them, or say "
            "`fill=0` where a missing row means none.",
            cells=absent,
        )
    out = np.full(domain.size, fill or 0, counts.dtype)
    out[flat] = counts
    return out.reshape(domain.shape)


def _count_column(column: Any, name: str) -> npt.NDArray[Any]:
    if column.null_count():
        raise DataError(f"Column `{name}` has {column.null_count()} missing values.", column=name)
    return np.asarray(column.to_numpy())


def positions(axis: Axis, values: Sequence[Label]) -> npt.NDArray[np.int64]:
    """The place on an axis of every value of a confidential column."""
    number = {label: i for i, label in enumerate(axis.labels)}
    places = np.fromiter((number.get(v, -1) for v in values), np.int64, len(values))
    unknown = int(np.count_nonzero(places < 0))
    if unknown:
        # How many, never which: the values are confidential.
        kinds = {type(label).__name__ for label in axis.labels}
        types = {type(v).__name__ for v in values}
        hint = "" if kinds & types else (
            f" The labels are {'/'.join(sorted(kinds))}, the column is {'/'.join(sorted(types))}."
        )  # fmt: skip
        raise DataError(
            f"{unknown} rows have a label in column `{axis.name}` that is not on the axis.{hint}",
            column=axis.name,
            rows=unknown,
        )
    return places


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number} cells"


def frame_from_columns(columns: dict[str, Any], backend: str) -> Any:
    """A native dataframe of the wanted library from named columns."""
    import narwhals as nw

    try:
        return nw.from_dict(columns, backend=backend).to_native()  # type: ignore[arg-type]
    except (ImportError, ModuleNotFoundError):
        raise DataError(
            f"`{backend}` is not installed; install it, or ask for another `backend`."
        ) from None
    except ValueError:
        raise DataError(
            f"`backend` must be 'pyarrow', 'pandas' or 'polars'; got {backend!r}."
        ) from None
