"""Which cells a part of a table has: a rule that is written in the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError
from subspacedp.tables import Domain, Label, Level

__all__ = ["PartRule", "cells_of_product", "codes_of"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class PartRule:
    """Which cells a part has: those with some labels, or some by number.

    Parameters
    ----------
    labels
        Level → labels; a cell must have one of them on every level named.
    ranges
        (first, last) numbers of cells in row-major order, both included; for parts without labels.
    """

    labels: Mapping[str, tuple[Label, ...]]
    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_data(cls, name: str, data: Any) -> PartRule:
        """Read `{"labels": {level: [...]}}` or `{"cells": [[first, last], number, …]}`."""
        if isinstance(data, Mapping) and set(data) == {"labels"}:
            labels = data["labels"]
            if isinstance(labels, Mapping) and labels and all(map(_is_list, labels.values())):
                return cls({str(k): tuple(v) for k, v in labels.items()})
        if isinstance(data, Mapping) and set(data) == {"cells"} and _is_list(data["cells"]):
            ranges = [_range(entry) for entry in data["cells"]]
            if ranges and None not in ranges:
                return cls({}, tuple(r for r in ranges if r is not None))
        raise DomainError(
            f"The part `{name}` must have `labels`, a level with its labels, or `cells`, numbers "
            "and ranges [first, last]."
        )

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        if self.labels:
            return {"labels": {level: list(names) for level, names in self.labels.items()}}
        return {"cells": [[first, last] for first, last in self.ranges]}

    def cells(self, name: str, domain: Domain) -> Int64Array:
        """The numbers of the part's cells, increasing."""
        if not self.labels:
            return self._numbered(name, domain)
        places = []
        for axis in domain.axes:
            inside = np.ones(len(axis), bool)
            for level in axis.chain:
                if level.name in self.labels:
                    chosen = codes_of(name, level, self.labels[level.name])
                    inside &= np.isin(level.codes, chosen)
            places.append(np.flatnonzero(inside))
        out = cells_of_product(places, domain.shape)
        if not out.size:
            raise DomainError(f"The part `{name}` has no cell.")
        return out

    def _numbered(self, name: str, domain: Domain) -> Int64Array:
        out = []
        for first, last in self.ranges:
            if not 0 <= first <= last < domain.size:
                raise DomainError(
                    f"The part `{name}` has the range {first} to {last}; cells are numbered from 0 "
                    f"to {domain.size - 1}."
                )
            out.append(np.arange(first, last + 1))
        cells = np.sort(np.concatenate(out))
        if np.any(np.diff(cells) == 0):
            raise DomainError(f"The part `{name}` has a cell twice.")
        return cells


def cells_of_product(places: Sequence[Int64Array], shape: Sequence[int]) -> Int64Array:
    """The numbers, in row-major order, of the cells with these places on the axes; increasing."""
    out = np.zeros(1, np.int64)
    for axis_places, n in zip(places, shape, strict=True):
        out = (out[:, None] * n + axis_places[None, :]).ravel()
    return out


def codes_of(part: str, level: Level, labels: Sequence[Label]) -> list[int]:
    """The numbers of a part's labels on a level."""
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int) or label not in level.number:
            raise DomainError(
                f"The part `{part}`: the level `{level.name}` has no label {label!r}."
            )
    return [level.number[label] for label in labels]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0


def _range(entry: Any) -> tuple[int, int] | None:
    ends = [entry, entry] if isinstance(entry, int) else entry
    if (
        isinstance(ends, Sequence)
        and len(ends) == 2
        and all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
    ):
        return int(ends[0]), int(ends[1])
    return None
