"""A table of counts. Confidential: it is never shown, logged or quoted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError
from subspacedp.tables.domain import Domain
from subspacedp.tables.frames import counts_from_frame
from subspacedp.tables.margin import Margin
from subspacedp.tables.rows import margin_sums

__all__ = ["MAX_TOTAL", "Table"]

MAX_TOTAL = 2**62


@dataclass(frozen=True, eq=False, repr=False)
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

    counts: npt.NDArray[np.int64]
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

    def totals(self, margins: Sequence[Margin]) -> list[npt.NDArray[np.int64]]:
        """The totals of margins, in exact integers."""
        return list(margin_sums(self.counts, tuple(margins)))

    def of(self, margin: Margin) -> npt.NDArray[np.int64]:
        """The totals of a margin of its domain, in the margin's shape."""
        return np.asarray(margin.sum(self.counts), np.int64)

    def __repr__(self) -> str:
        return f"Table({repr(self.domain)[len('Domain(') : -1]}, counts hidden)"


def _whole_counts(counts: Any, domain: Domain) -> npt.NDArray[np.int64]:
    if isinstance(counts, np.ma.MaskedArray):
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
            raise DataError(f"{_counts(missing)} not finite numbers (NaN or infinite).")
        broken = int(np.count_nonzero(array != np.floor(array)))
        if broken:
            raise DataError(f"{_counts(broken)} not whole numbers.")
    negative = int(np.count_nonzero(array < 0))
    if negative:
        raise DataError(f"{_counts(negative)} negative.")
    # Compare before conversion, so that nothing can wrap; then add in halves that cannot.
    too_large = bool((array > MAX_TOTAL).any()) if array.size else False
    whole = np.zeros(0, np.int64) if too_large else array.astype(np.int64)
    if too_large or _exact_sum(whole) > MAX_TOTAL:
        raise DataError("The counts must sum to at most 2**62.")
    return whole


def _from_objects(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
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


def _exact_sum(counts: npt.NDArray[np.int64]) -> int:
    """The sum without wrapping: high and low halves apart (n < 2³¹ · 2³² terms never wrap)."""
    high = int((counts >> 31).sum())
    low = int((counts & (2**31 - 1)).sum())
    return (high << 31) + low
