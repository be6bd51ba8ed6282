"""Named parts of a table that together have every cell once: what each agent is responsible for."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.errors import DomainError
from subspacedp.frozen import frozen, remembered
from subspacedp.tables import Domain, Label, Level


@frozen(eq=False, repr=False)
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


LONGEST_NAME = 100
MOST_CELLS = 2**27  # of a table whose cells are counted one by one


def part_name(name: str) -> str:
    """A part's name with every letter written in one way: an accent may be a sign of its own."""
    return unicodedata.normalize("NFC", name)


@frozen(eq=False, repr=False)
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
        _check_names(list(self.rules))
        rules = {part_name(name): rule for name, rule in self.rules.items()}
        object.__setattr__(self, "rules", rules)
        known = {level.name for axis in self.domain.axes for level in axis.chain}
        for name, rule in self.rules.items():
            unknown = next((level for level in rule.labels if level not in known), None)
            if unknown is not None:
                raise DomainError(f"The part `{name}` names `{unknown}`, which is no level.")
        self._check_cover()

    @classmethod
    def by(cls, domain: Domain, level: str) -> Partition:
        """One part for every label of a level that has a cell."""
        level_of_parts = next((e for a in domain.axes for e in a.chain if e.name == level), None)
        if level_of_parts is None:
            raise DomainError(f"The domain has no level `{level}` to make parts of.")
        labels = [
            label for label, n in zip(level_of_parts.labels, level_of_parts.sizes, strict=True) if n
        ]
        try:
            _check_names([str(label) for label in labels])
        except DomainError as error:
            raise DomainError(
                f"{str(error).removesuffix('.')}; labels of `{level}` cannot all be names of "
                "parts, so name them with --part NAME=LABEL, or with `Partition.by_labels`."
            ) from None
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

    def known(self, name: str) -> str:
        """The name of a part as the partition writes it; one that it does not have is refused."""
        known_name = part_name(name)
        if known_name not in self.rules:
            known = ", ".join(f"`{part}`" for part in self.names[:12])
            more = " and others" if len(self.names) > 12 else ""
            raise DomainError(f"The plan has no part `{name}`; its parts are {known}{more}.")
        return known_name

    def cells(self, name: str) -> Int64Array:
        """The numbers of a part's cells in row-major order, increasing."""
        return self._cells(self.known(name))

    @remembered
    def _cells(self, known: str) -> Int64Array:
        if self._level is None:
            return self.rules[known].cells(known, self.domain)
        return self._with_labels(known)

    @cached_property
    def _level(self) -> Level | None:
        """The level that all parts are given by; None where there is no single one."""
        named = {tuple(rule.labels) for rule in self.rules.values()}
        if len(named) != 1 or len(next(iter(named))) != 1:
            return None
        (name,) = next(iter(named))
        return next(e for a in self.domain.axes for e in a.chain if e.name == name)

    def _with_labels(self, name: str) -> Int64Array:
        places = [
            self._places[name] if self._level in axis.chain else np.arange(len(axis))
            for axis in self.domain.axes
        ]
        return cells_of_product(places, self.domain.shape)

    @cached_property
    def _places(self) -> dict[str, Int64Array]:
        """All parts by one level: the places of each on its axis, sorted out at one time."""
        if self._level is None:
            return {}
        owner = np.zeros(self._level.groups, np.int64)
        for number, (part, rule) in enumerate(self.rules.items()):
            owner[codes_of(part, self._level, rule.labels[self._level.name])] = number
        owned = owner[self._level.codes]
        ends = np.cumsum(np.bincount(owned, minlength=len(self.rules)))
        shared = np.split(np.argsort(owned, kind="stable"), ends[:-1])
        return dict(zip(self.names, shared, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """As plain data: name → rule."""
        return {name: rule.as_dict() for name, rule in self.rules.items()}

    def _check_cover(self) -> None:
        if self._level is not None:
            self._check_labels(self._level)
            return
        if self.domain.size > MOST_CELLS:
            raise DomainError(
                "A table of more than 2**27 cells must be parted by the labels of one level."
            )
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

    def _check_labels(self, level: Level) -> None:
        """All parts by one level: its labels are shared out, each once."""
        name = level.name
        owner: dict[Label, str] = {}
        for part, rule in self.rules.items():
            codes = codes_of(part, level, rule.labels[name])
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


def _overlap(one: str, other: str, number: int, noun: str) -> DomainError:
    if one == other:
        return DomainError(f"The part `{one}` has a {noun} twice.")
    things = noun if number == 1 else noun.replace("cell", "cells").replace("label ", "labels ")
    return DomainError(
        f"The parts `{one}` and `{other}` overlap: both have {number:,} {things}.",
        parts=(one, other),
    )


def _missing(number: int, noun: str, first: str) -> DomainError:
    things = noun if number == 1 else noun.replace("cell", "cells").replace("label ", "labels ")
    verb = "is" if number == 1 else "are"
    such = "" if number == 1 else ", such as"
    return DomainError(f"{number:,} {things} {verb} in no part{such}: {first!r}.", missing=number)


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in map(part_name, names):
        _check_name(name)
        other = seen.get(name.casefold())
        if other is not None:
            but = "" if other == name else " but for capitals"
            raise DomainError(f"The parts `{other}` and `{name}` have the same name{but}.")
        seen[name.casefold()] = name


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
