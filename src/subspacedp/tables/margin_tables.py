"""Tables of margins counted one by one. Confidential: never shown, logged or quoted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import Int64Array
from subspacedp.errors import DataError
from subspacedp.tables.domain import Domain
from subspacedp.tables.margin import Margin
from subspacedp.tables.table import MAX_TOTAL

Steps = npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False, repr=False)
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
            checked[margin] = _counts(margin, counts)
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


def _counts(margin: Margin, counts: Any) -> Int64Array:
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
