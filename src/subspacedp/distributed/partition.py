"""Named parts of a table that together have every cell once: what each agent is responsible for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError
from subspacedp.tables import Domain, Label

__all__ = ["PartRule", "Partition"]

Int64Array = npt.NDArray[np.int64]

LONGEST_NAME = 100
MOST_CELLS = 2**31  # of a table whose cells are counted one by one


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
                    chosen = _codes(name, level.name, level.labels, self.labels[level.name])
                    inside &= np.isin(level.codes, chosen)
            places.append(np.flatnonzero(inside))
        out = np.zeros(1, np.int64)
        for own, n in zip(places, domain.shape, strict=True):
            out = (out[:, None] * n + own[None, :]).ravel()
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


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Parts by name. Public.

    Guarantees
    ----------
    1. Every cell of the domain is in exactly one part.

    Examples
    --------
    >>> from subspacedp import Axis, Domain
    >>> county = Axis("county", ["Kent", "Sussex", "Cook"], levels={"state": ["DE", "DE", "IL"]})
    >>> parts = Partition.by(Domain([county]), "state")
    >>> parts
    Partition(DE: 2, IL: 1)
    >>> parts.cells("DE").tolist()
    [0, 1]
    """

    domain: Domain
    rules: Mapping[str, PartRule]

    def __post_init__(self) -> None:
        if not self.rules:
            raise DomainError("A partition needs at least one part.")
        seen: dict[str, str] = {}
        for name in self.rules:
            _check_name(name)
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                raise DomainError(
                    f"The parts `{other}` and `{name}` have the same name but for capitals."
                )
        known = {level.name for axis in self.domain.axes for level in axis.chain}
        for name, rule in self.rules.items():
            unknown = next((level for level in rule.labels if level not in known), None)
            if unknown is not None:
                raise DomainError(f"The part `{name}` names `{unknown}`, which is no level.")
        self._check_cover()

    @classmethod
    def by(cls, domain: Domain, level: str) -> Partition:
        """One part for every label of a level that has a cell."""
        found = next((e for a in domain.axes for e in a.chain if e.name == level), None)
        if found is None:
            raise DomainError(f"The domain has no level `{level}` to make parts of.")
        labels = [label for label, n in zip(found.labels, found.sizes, strict=True) if n]
        return cls(domain, {str(label): PartRule({level: (label,)}) for label in labels})

    @classmethod
    def by_labels(
        cls, domain: Domain, level: str, parts: Mapping[str, Sequence[Label]]
    ) -> Partition:
        """Parts that are given by their labels of one level."""
        rules = {name: PartRule({level: tuple(labels)}) for name, labels in parts.items()}
        return cls(domain, rules)

    @classmethod
    def from_dict(cls, domain: Domain, data: Any) -> Partition:
        """From plain data: name → rule."""
        if not isinstance(data, Mapping):
            raise DomainError("A partition must be names of parts with their cells.")
        rules = {str(name): PartRule.from_data(str(name), rule) for name, rule in data.items()}
        return cls(domain, rules)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts, in order."""
        return tuple(self.rules)

    def cells(self, name: str) -> Int64Array:
        """The numbers of a part's cells in row-major order, increasing."""
        if name not in self.rules:
            known = ", ".join(f"`{part}`" for part in self.names[:12])
            more = " and others" if len(self.names) > 12 else ""
            raise DomainError(f"The plan has no part `{name}`; its parts are {known}{more}.")
        if name not in self._cells:
            self._cells[name] = self.rules[name].cells(name, self.domain)
        return self._cells[name]

    @cached_property
    def _cells(self) -> dict[str, Int64Array]:
        return {}

    def as_dict(self) -> dict[str, Any]:
        """As plain data: name → rule."""
        return {name: rule.as_dict() for name, rule in self.rules.items()}

    def _check_cover(self) -> None:
        if self.domain.size > MOST_CELLS and not self._one_level():
            raise DomainError(
                "A table of more than 2**31 cells must be parted by the labels of one level."
            )
        if self._one_level():
            self._check_labels()
            return
        owner = np.full(self.domain.size, -1, np.int32)
        for number, (name, rule) in enumerate(self.rules.items()):
            cells = rule.cells(name, self.domain)
            taken = owner[cells]
            if np.any(taken >= 0):
                other = self.names[int(taken[taken >= 0][0])]
                both = int(np.count_nonzero(taken == self.names.index(other)))
                raise _overlap(other, name, both, "cell")
            owner[cells] = number
        missing = np.flatnonzero(owner < 0)
        if missing.size:
            index = np.unravel_index(int(missing[0]), self.domain.shape)
            first = self.domain.label([int(i) for i in index])
            raise _missing(missing.size, "cell", " × ".join(map(str, first)))

    def _one_level(self) -> bool:
        levels = {tuple(rule.labels) for rule in self.rules.values()}
        return len(levels) == 1 and len(next(iter(levels))) == 1

    def _check_labels(self) -> None:
        """All parts by one level: its labels are shared out, each once."""
        name = next(iter(next(iter(self.rules.values())).labels))
        level = next(e for a in self.domain.axes for e in a.chain if e.name == name)
        owner: dict[Label, str] = {}
        for part, rule in self.rules.items():
            codes = _codes(part, name, level.labels, rule.labels[name])
            if not level.sizes[codes].any():
                raise DomainError(f"The part `{part}` has no cell.")
            for label in rule.labels[name]:
                if label in owner:
                    both = len(set(rule.labels[name]) & set(self.rules[owner[label]].labels[name]))
                    raise _overlap(owner[label], part, both, f"label of `{name}`")
                owner[label] = part
        left = [
            label
            for label, size in zip(level.labels, level.sizes, strict=True)
            if size and label not in owner
        ]
        if left:
            raise _missing(len(left), f"label of `{name}`", str(left[0]))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {self.cells(name).size:,}" for name in self.names[:6])
        return f"Partition({shown}{', …' if len(self.names) > 6 else ''})"


def _overlap(one: str, other: str, number: int, thing: str) -> DomainError:
    if one == other:
        return DomainError(f"The part `{one}` has a {thing} twice.")
    things = thing if number == 1 else thing.replace("cell", "cells").replace("label ", "labels ")
    return DomainError(
        f"The parts `{one}` and `{other}` overlap: both have {number:,} {things}.",
        parts=(one, other),
    )


def _missing(number: int, thing: str, first: str) -> DomainError:
    things = thing if number == 1 else thing.replace("cell", "cells").replace("label ", "labels ")
    verb = "is" if number == 1 else "are"
    such = "" if number == 1 else ", such as"
    return DomainError(f"{number:,} {things} {verb} in no part{such}: {first!r}.", missing=number)


def _codes(part: str, level: str, known: Sequence[Label], labels: Sequence[Label]) -> list[int]:
    """The numbers of labels on a level; whole numbers may come as text."""
    number = {label: i for i, label in enumerate(known)}
    unknown = next((label for label in labels if label not in number), None)
    if unknown is not None:
        raise DomainError(f"The part `{part}`: the level `{level}` has no label {unknown!r}.")
    return [number[label] for label in labels]


def _check_name(name: str) -> None:
    if (
        not name
        or len(name) > LONGEST_NAME
        or name.startswith(".")
        or any(c in '/\\:*?"<>|' or not c.isprintable() for c in name)
    ):
        raise DomainError(
            f"A part's name must be printable, without any of / \\ : * ? \" < > | and not begin "
            f"with a dot; got {name[:LONGEST_NAME]!r}."
        )


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
