"""Counts of all cells, or of margins one by one. Confidential: never shown, logged or quoted."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import DataError
from subspacedp.frozen import frozen
from subspacedp.tables.axis import Axis, Label
from subspacedp.tables.domain import Domain
from subspacedp.tables.margin import Margin
from subspacedp.tables.rows import margin_sums


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


def counts_from_frame(frame: Any, domain: Domain, value: str, *, fill: int | None) -> AnyArray:
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


def _count_column(column: Any, name: str) -> AnyArray:
    if column.null_count():
        raise DataError(f"Column `{name}` has {column.null_count()} missing values.", column=name)
    return np.asarray(column.to_numpy())


def positions(axis: Axis, values: Sequence[Label]) -> Int64Array:
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


FRAMES = ("pandas", "polars", "pyarrow")


def frame_from_columns(columns: dict[str, Any], backend: str | None = None) -> Any:
    """A native dataframe from named columns: of the library named, in use, or installed."""
    from importlib.util import find_spec

    import narwhals as nw

    if backend is None:
        in_use = [name for name in FRAMES[:2] if name in sys.modules]  # pyarrow is, through us
        backend = next((name for name in (*in_use, *FRAMES) if find_spec(name)), FRAMES[-1])
    try:
        return nw.from_dict(columns, backend=backend).to_native()  # type: ignore[arg-type]
    except (ImportError, ModuleNotFoundError):
        raise DataError(
            f"`{backend}` is not installed; install it, or ask for another `backend`."
        ) from None
    except ValueError:
        raise DataError(
            f"`backend` must be 'pandas', 'polars' or 'pyarrow'; got {backend!r}."
        ) from None


MAX_TOTAL = 2**62


@frozen(eq=False, repr=False)
class Table:
    """Non-negative whole counts in the shape of a domain.

    Parameters
    ----------
    counts
        Array of the domain's shape; integers, or floats that are whole numbers.
    domain
        Its axes.

    Guarantees
    ----------
    1. Its `repr`, and every error about it, is free of counts.
    2. The sum of all counts is at most 2**62, so that sums over any group are exact in 64 bits.

    Examples
    --------
    >>> from subspacedp.tables import Axis, Domain
    >>> Table([[3, 1], [0, 2]], Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])]))
    Table(age: 2, sex: 2; 4 cells, counts hidden)
    """

    counts: Int64Array
    domain: Domain

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise DataError(f"A table needs a `Domain`; got a {type(self.domain).__name__}.")
        self.domain.check_table()
        counts = _whole_counts(self.counts, self.domain)
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def from_frame(
        cls, frame: Any, domain: Domain, value: str, *, fill: int | None = None
    ) -> Table:
        """A table from a dataframe with one row per cell.

        Parameters
        ----------
        frame
            pandas, polars, pyarrow or any other dataframe narwhals knows; one column for each
            axis, named like it, and one with the counts.
        value
            The column with the counts.
        fill
            0 where a cell without a row has no one in it; by default such a cell is an error.
        """
        if fill not in (None, 0):
            raise DataError("`fill` must be 0 or None.")
        return cls(counts_from_frame(frame, domain, value, fill=fill), domain)

    def totals(self, margins: Sequence[Margin]) -> list[Int64Array]:
        """The totals of margins, in exact integers."""
        return list(margin_sums(self.counts, tuple(margins)))

    def of(self, margin: Margin) -> Int64Array:
        """The totals of a margin of its domain, in the margin's shape."""
        return np.asarray(margin.sum(self.counts), np.int64)

    def __repr__(self) -> str:
        return f"Table({repr(self.domain)[len('Domain(') : -1]}, counts hidden)"


def _whole_counts(counts: Any, domain: Domain) -> Int64Array:
    masked = sys.modules.get("numpy.ma")  # nobody has a masked array who did not load it
    if masked is not None and isinstance(counts, masked.MaskedArray):
        raise DataError("The counts must not be a masked array; fill what is masked first.")
    try:
        array = np.asarray(counts)
    except (ValueError, TypeError):
        raise DataError("The counts must be a rectangular array of numbers.") from None
    if array.shape != domain.shape:
        raise DataError(
            f"The counts must have the domain's shape {domain.shape}; got {array.shape}."
        )
    if array.dtype == object:
        array = _from_objects(array)
    if array.dtype.kind == "b" or array.dtype.kind not in "iuf":
        raise DataError(f"The counts must be whole numbers; got an array of {array.dtype}.")
    if array.dtype.kind == "f":
        missing = int(np.count_nonzero(~np.isfinite(array)))
        if missing:
            raise DataError(f"{_counts(missing)} not finite (NaN or infinite).")
        broken = int(np.count_nonzero(array != np.floor(array)))
        if broken:
            raise DataError(f"{_counts(broken)} not whole.")
    negative = int(np.count_nonzero(array < 0))
    if negative:
        raise DataError(f"{_counts(negative)} negative.")
    # Compare before conversion, so that nothing can wrap; then add in halves that cannot.
    too_large = bool((array > MAX_TOTAL).any()) if array.size else False
    whole = np.zeros(0, np.int64) if too_large else array.astype(np.int64)
    if too_large or _exact_sum(whole) > MAX_TOTAL:
        raise DataError("The counts must sum to at most 2**62.")
    return whole


def _from_objects(array: AnyArray) -> AnyArray:
    """An object array of Python integers, which may be too large for 64 bits."""
    if not all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in array.flat):
        raise DataError("The counts must be whole numbers; some are not numbers at all.")
    if any(v < 0 for v in array.flat):
        raise DataError(f"{_counts(sum(v < 0 for v in array.flat))} negative.")
    if any(v > MAX_TOTAL for v in array.flat):
        raise DataError("The counts must sum to at most 2**62.")
    return array.astype(np.int64)


def _counts(number: int) -> str:
    return "1 count is" if number == 1 else f"{number} counts are"


def _exact_sum(counts: Int64Array) -> int:
    """The sum without wrapping: high and low halves apart (n < 2³¹ · 2³² terms never wrap)."""
    high = int((counts >> 31).sum())
    low = int((counts & (2**31 - 1)).sum())
    return (high << 31) + low


Steps = npt.NDArray[np.int16]


@frozen(eq=False, repr=False)
class MarginTables:
    """Counts of records by margin, for a domain whose table is too large to hold.

    Parameters
    ----------
    domain
        The axes.
    tables
        For each margin, by the names of its levels, an array of whole counts with one dimension per
        named level, in the order of the axes.

    Guarantees
    ----------
    1. Its `repr`, and every error about it, is free of counts.
    2. Any two tables agree on all totals that both determine.

    Examples
    --------
    >>> from subspacedp.tables import Axis
    >>> domain = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
    >>> MarginTables(domain, {("age",): [4, 2], ("sex",): [3, 3]})
    MarginTables(age: 2, sex: 2; 2 margins, counts hidden)
    """

    domain: Domain
    tables: Mapping[Any, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise DataError(f"Margins need a `Domain`; got a {type(self.domain).__name__}.")
        if not isinstance(self.tables, Mapping) or not self.tables:
            raise DataError("Tables of margins are a mapping from level names to counts.")
        checked: dict[Margin, Int64Array] = {}
        for key, counts in self.tables.items():
            margin = key if isinstance(key, Margin) else _named(self.domain, key)
            if margin in checked:
                raise DataError(f"The margin `{' × '.join(margin.names)}` is counted twice.")
            checked[margin] = _margin_counts(margin, counts)
        object.__setattr__(self, "tables", checked)
        self._check_agreement()

    @cached_property
    def margins(self) -> tuple[Margin, ...]:
        """The margins that were counted."""
        return tuple(self.tables)

    def of(self, margin: Margin) -> Int64Array:
        """The totals of any margin that one of the tables determines, in the margin's shape."""
        able = [m for m in self.margins if m.determines(margin)]
        if not able:
            named = " × ".join(margin.names) or "the grand total"
            raise DataError(f"No table was counted from which `{named}` follows.")
        source = min(able, key=lambda m: math.prod(m.shape))
        return np.asarray(source.coarsen(self.tables[source], margin), np.int64)

    def totals(self, margins: Sequence[Margin]) -> list[Int64Array]:
        """The totals of margins, each from the smallest table that determines it."""
        return [self.of(margin) for margin in margins]

    def _check_agreement(self) -> None:
        """Any two tables must have the same totals wherever both know them: at their meet."""
        seen: dict[Margin, Int64Array] = {}
        steps = steps_of(self.tables)
        for i, (m, counts) in enumerate(self.tables.items()):
            for meet in meets_with(m, np.delete(steps, i, axis=0)):
                totals = m.coarsen(counts, meet)
                first = seen.setdefault(meet, totals)
                if not np.array_equal(first, totals):
                    raise DataError(
                        f"Two tables of margins disagree on {meet.words}; they must count the "
                        "same records."
                    )

    def __repr__(self) -> str:
        axes = ", ".join(f"{axis.name}: {len(axis)}" for axis in self.domain.axes)
        number = len(self.tables)
        return f"MarginTables({axes}; {number} margin{'s' if number > 1 else ''}, counts hidden)"


def _named(domain: Domain, key: Any) -> Margin:
    """A margin by names in the order of the axes, which is that of the dimensions of its counts."""
    names = _names(key)
    margin = domain.margin(*names)
    if tuple(names) != margin.names:
        raise DataError(
            f"The levels `{' × '.join(names)}` must be named in the order of the axes, "
            f"`{' × '.join(margin.names)}`, with counts in that order too."
        )
    return margin


def _names(key: Any) -> Sequence[str]:
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise DataError("A table of a margin goes by a tuple of level names.")
    return names


def _margin_counts(margin: Margin, counts: Any) -> Int64Array:
    try:
        array = np.asarray(counts)
    except (ValueError, TypeError):
        array = np.empty(0, object)
    kept = tuple(level.groups for level in margin.levels if level.name)
    named = " × ".join(margin.names) or "grand total"
    if array.shape not in (kept, margin.shape):
        raise DataError(f"The counts of `{named}` must have the shape {kept}; got {array.shape}.")
    whole = array.dtype.kind in "iu" or (
        array.dtype.kind == "f" and bool(np.all(np.isfinite(array) & (array == np.floor(array))))
    )
    if not whole or np.any(array < 0) or np.any(array > MAX_TOTAL):
        raise DataError(f"The counts of `{named}` must be whole numbers from 0 to 2**62.")
    out = array.astype(np.int64).reshape(margin.shape)
    if float(out.astype(np.float64).sum()) > 2.0**61:
        raise DataError(f"The counts of `{named}` must sum to at most 2**61.")
    if np.any(out[margin.empty]):
        raise DataError(f"The margin `{named}` has records in a group without labels.")
    out.setflags(write=False)
    return out


def steps_of(margins: Iterable[Margin]) -> Steps:
    """The steps of margins, one row per margin."""
    return np.array([m.steps for m in margins], np.int16)


def meets_with(margin: Margin, others: Steps) -> list[Margin]:
    """The distinct meets of a margin with others."""
    meets = np.maximum(others, np.array([margin.steps], np.int16))
    return [Margin(margin.axes, tuple(meets[i].tolist())) for i in _rows(meets).values()]


def all_meets(margins: Iterable[Margin]) -> list[Margin]:
    """The margins and all meets of any number of them, one margin at a time.

    After a margin is taken in, the meets so far are those of all subsets up to it.
    """
    given = list(margins)
    so_far = np.zeros((0, len(given[0].steps)), np.int16)
    seen: set[bytes] = set()
    for steps in steps_of(given)[:, None, :]:
        meets = np.concatenate([steps, np.maximum(so_far, steps)])
        fresh = {row: i for row, i in _rows(meets).items() if row not in seen}
        seen.update(fresh)
        so_far = np.concatenate([so_far, meets[list(fresh.values())]])
    return [Margin(given[0].axes, tuple(row)) for row in so_far.tolist()]


def _rows(steps: Steps) -> dict[bytes, int]:
    """The distinct rows, as bytes, and where one of each is."""
    text = np.ascontiguousarray(steps).view(f"S{steps.shape[1] * steps.itemsize}")
    return {row: i for i, row in enumerate(text.reshape(-1).tolist())}
