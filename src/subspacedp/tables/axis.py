"""An axis of a table: its labels, a chain of coarser and coarser levels, and groupings beside it.

Every level and grouping is a partition of the labels, and a margin picks one of them on each axis
by its step. Steps 0 to `depth` − 1 are the chain, each determined by the one before it; groupings
come after it, in their order, and nest in nothing in particular. Which follows from which is asked
of `Axis.determines`: a partial order, of which the chain is the part with closed forms.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import DomainError, ReleaseError
from subspacedp.frozen import frozen, remembered

Label = str | int


def is_label(value: object) -> bool:
    """Whether a value can be the label of a group: text or a whole number."""
    return isinstance(value, (str, int, np.integer)) and not isinstance(value, bool)


MAX_LABELS = 2**33


@frozen(eq=False, repr=False, kw_only=True)
class Level:
    """A partition of an axis' labels into groups.

    Parameters
    ----------
    name
        What `hold(...)` calls it.
    codes
        For every label of the axis the number of its group; `groups` for a label in none.
    labels
        The names of the groups. A group may be empty: a state without a county in the table.
    title
        What readers see instead of the name; the name, where there is no other.
    """

    name: str
    codes: Int64Array  # (n,) group of each label
    labels: Sequence[Label]  # (groups,)
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)

    @property
    def groups(self) -> int:
        """The number of groups, empty ones included."""
        return len(self.labels)

    @cached_property
    def sizes(self) -> Int64Array:
        """How many labels each group has."""
        sizes = np.bincount(self.codes, minlength=self.groups)[: self.groups].astype(np.int64)
        sizes.setflags(write=False)
        return sizes

    @cached_property
    def number(self) -> Mapping[Label, int]:
        """The number of every group, by its label."""
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def has_holes(self) -> bool:
        """Whether some labels are in no group."""
        return bool((self.codes == self.groups).any())

    @cached_property
    def label_of_each(self) -> AnyArray:
        """The group of every label, by name; empty text where it is in none."""
        names = np.asarray(self.labels)
        return np.append(names.astype(str), "")[self.codes] if self.has_holes else names[self.codes]

    def as_dict(self) -> dict[str, Any]:
        """As plain data; a label in no group has None."""
        codes = [None if code == self.groups else code for code in self.codes.tolist()]
        return {"name": self.name, "groups": list(self.labels), "of_each_label": codes}

    @property
    def nonempty(self) -> int:
        """The number of groups that have at least one label."""
        return int(np.count_nonzero(self.sizes))

    @cached_property
    def is_identity(self) -> bool:
        """Whether every label is a group of its own, in order."""
        n = len(self.codes)
        return self.groups == n and bool(np.array_equal(self.codes, np.arange(n)))

    def __repr__(self) -> str:
        return f"Level({self.name!r}, {self.groups} groups)"


@frozen(eq=False, repr=False)
class Axis:
    """Labels along one direction of a table, with nested coarser levels and groupings beside them.

    Parameters
    ----------
    name
        Name of the axis, and of its finest level.
    labels
        One label per position; distinct strings or integers. A `range` is kept as it is, so a
        long axis of numbers costs nothing.
    levels
        Coarser levels, finest first: name → the group of every label, in the order of `labels`.
        Every group of one level must lie within one group of the next.
    groups
        For a level or grouping whose list of groups is known beforehand (an official list of
        states, say): name → all its group labels, in order. Groups without a label are allowed.
    groupings
        Classifications that nest in no level: name → the group of every label, None for a label in
        no group. Their *atoms* are the labels that share all groups of the levels and groupings.
    from_data
        True when the labels were read off confidential data; certificates report it.
    titles
        What readers see instead of names: name of the axis or of a level → title. Names stay the
        columns of files, and two axes with other titles are the same.

    Examples
    --------
    >>> county = Axis("county", ["Kent", "Sussex", "Cook"], levels={"state": ["DE", "DE", "IL"]})
    >>> county.level("state").labels
    ('DE', 'IL')
    >>> county
    Axis('county', 3 labels, levels: state)
    >>> Axis("block", ["a", "b", "c"], {"tract": [1, 1, 2]}, groupings={"grid": ["E", "W", "W"]})
    Axis('block', 3 labels, levels: tract, groupings: grid; 3 atoms)
    >>> Axis("age", range(100), titles={"age": "Age in years"}).title
    'Age in years'
    """

    name: str
    labels: Sequence[Label]
    levels: Mapping[str, Sequence[Label]] | None = None
    groups: Mapping[str, Sequence[Label]] | None = None
    from_data: bool = False
    groupings: Mapping[str, Sequence[Label | None]] | None = None
    titles: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DomainError("An axis needs a non-empty name.")
        for what in ("levels", "groupings"):
            given = getattr(self, what)
            if given is not None and not isinstance(given, Mapping):
                raise DomainError(
                    f"Axis `{self.name}`: `{what}` must map each one's name to the group of every "
                    "label."
                )
        labels = _plain_labels(self.labels, f"Axis `{self.name}`")
        if not labels:
            raise DomainError(f"Axis `{self.name}` must have at least one label.")
        repeated = _first_repeated(labels)
        if repeated is not None:
            raise DomainError(
                f"Axis `{self.name}` has the label {repeated!r} more than once; "
                "labels must be distinct.",
                label=repeated,
            )
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "levels", dict(self.levels or {}))
        object.__setattr__(self, "groups", dict(self.groups or {}))
        object.__setattr__(self, "groupings", dict(self.groupings or {}))
        object.__setattr__(self, "titles", _plain_titles(self.titles, f"Axis `{self.name}`"))
        self._check_nesting()

    def __len__(self) -> int:
        return len(self.labels)

    def as_dict(self) -> dict[str, Any]:
        """As plain data: enough to make it again."""
        labels: Any = self.labels
        if isinstance(labels, range):
            labels = {"start": labels.start, "stop": labels.stop, "step": labels.step}
        else:
            labels = list(labels)
        crossing = [level.as_dict() for level in self.crossing]
        return {
            "name": self.name,
            "labels": labels,
            "levels": [level.as_dict() for level in self.chain[1:]],
            **({"groupings": crossing} if crossing else {}),
            "labels_from_data": self.from_data,
            **({"titles": dict(self.titles)} if self.titles else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], most: int) -> Axis:
        """From plain data of anybody; a range of labels has at most so many."""
        labels = data["labels"]
        if isinstance(labels, Mapping):
            labels = range(labels["start"], labels["stop"], labels["step"])
            if any(abs(end) >= 2**63 for end in (labels.start, labels.stop)):
                raise ReleaseError("whole-number labels must fit 64 bits.")
            if len(labels) > most:
                raise ReleaseError(f"an axis may have at most {most:,} labels here.")
        beside = data.get("groupings", [])
        levels = {
            level["name"]: [level["groups"][code] for code in np.asarray(level["of_each_label"])]
            for level in data["levels"]
        }
        groupings = {
            level["name"]: [
                None if code is None else level["groups"][code] for code in level["of_each_label"]
            ]
            for level in beside
        }
        return cls(
            data["name"],
            labels,
            levels=levels,
            groups={level["name"]: level["groups"] for level in (*data["levels"], *beside)},
            from_data=bool(data["labels_from_data"]),
            groupings=groupings,
            titles=data.get("titles"),
        )

    def __repr__(self) -> str:
        names = ", ".join(level.name for level in self.chain[1:])
        tail = f", levels: {names}" if names else ""
        if self.crossing:
            names = ", ".join(level.name for level in self.crossing)
            number = len(self.atoms)
            tail += f", groupings: {names}; {number} atom{'s' if number > 1 else ''}"
        return f"Axis({self.name!r}, {len(self)} labels{tail})"

    @cached_property
    def chain(self) -> tuple[Level, ...]:
        """All named levels, finest first; the first is the labels themselves."""
        n = len(self.labels)
        levels, groups, titles = self.levels or {}, self.groups or {}, self.titles or {}
        finest = Level(
            name=self.name,
            codes=np.arange(n),
            labels=self.labels,
            title=titles.get(self.name, ""),
        )
        for what, given, known in (
            ("groups are", groups, {*levels, *(self.groupings or {})}),
            ("a title is", titles, {self.name, *levels, *(self.groupings or {})}),
        ):
            unknown = set(given) - known
            if unknown:
                raise DomainError(
                    f"Axis `{self.name}`: {what} given for `{min(unknown)}`, which is no level."
                )
        return (
            finest,
            *(
                _level(self.name, name, members, groups.get(name), n, titles.get(name, ""))
                for name, members in levels.items()
            ),
        )

    @property
    def title(self) -> str:
        """What readers see instead of the name of the axis; its name, where there is no other."""
        return self.chain[0].title

    @cached_property
    def all(self) -> Level:
        """The coarsest level of every axis: one group with everything in it."""
        return Level(name="", codes=np.zeros(len(self.labels), np.int64), labels=("all",))

    @cached_property
    def crossing(self) -> tuple[Level, ...]:
        """The groupings, in their order."""
        groups, titles = self.groups or {}, self.titles or {}
        return tuple(
            _level(
                self.name,
                name,
                members,
                groups.get(name),
                len(self.labels),
                titles.get(name, ""),
                "Grouping",
            )
            for name, members in (self.groupings or {}).items()
        )

    @cached_property
    def named(self) -> tuple[Level, ...]:
        """All that a margin can name: the levels, finest first, and then the groupings."""
        return (*self.chain, *self.crossing)

    @cached_property
    def atoms(self) -> Int64Array:
        """How many labels each atom has: those that share all groups of levels and groupings.

        Without groupings these are the groups of the finest of the coarser levels.
        """
        codes = [level.codes for level in self.named[1:]]
        if not codes:
            return np.array([len(self)])
        return np.unique(np.stack(codes), axis=1, return_counts=True)[1].astype(np.int64)

    @cached_property
    def _steps(self) -> tuple[Level, ...]:
        return (*self.chain, self.all, *self.crossing)

    @property
    def depth(self) -> int:
        """The number of levels of the chain, the finest and the all-in-one included."""
        return len(self.chain) + 1

    def step(self, number: int) -> Level:
        """A partition by its number: 0 the labels, `depth - 1` all in one, then the groupings."""
        return self._steps[number]

    def step_of(self, name: str) -> int:
        """The number of the level or grouping of that name."""
        for number, level in enumerate(self._steps):
            if level.name == name:
                return number
        raise DomainError(f"Axis `{self.name}` has no level `{name}`.")

    def level(self, name: str) -> Level:
        """The level or grouping of that name."""
        return self._steps[self.step_of(name)]

    def determines(self, fine: int, coarse: int) -> bool:
        """Whether every group of step `coarse` is made of whole groups of step `fine`."""
        if fine == coarse or fine == 0:
            return True
        if max(fine, coarse) < self.depth:
            return fine < coarse or self._steps[fine].nonempty == self._steps[coarse].nonempty
        return self._determines_crossing(fine, coarse)

    @remembered
    def _determines_crossing(self, fine: int, coarse: int) -> bool:
        one, other = self._steps[fine], self._steps[coarse]
        up = np.full(one.groups + 1, other.groups)
        up[one.codes] = other.codes
        up[one.groups] = other.groups  # what is in no group tells of no total
        return bool(np.array_equal(up[one.codes], other.codes))

    def matches(self, other: Axis) -> bool:
        """Whether the other axis has the same name, labels and levels."""
        if self is other:
            return True
        alike = (len(self.chain), len(self.crossing)) == (len(other.chain), len(other.crossing))
        return alike and all(
            a.name == b.name
            and list(a.labels) == list(b.labels)
            and np.array_equal(a.codes, b.codes)
            for a, b in zip(self.named, other.named, strict=True)
        )

    def parents(self, fine: int, coarse: int) -> Int64Array:
        """For every group of step `fine` its group of step `coarse` (0 for empty groups)."""
        one = self._steps[fine]
        up = np.zeros(one.groups + one.has_holes, np.int64)
        up[one.codes] = self._steps[coarse].codes
        return up[: one.groups]

    def _check_nesting(self) -> None:
        names = [level.name for level in self.named]
        repeated = _first_repeated(names)
        if repeated is not None:
            raise DomainError(
                f"Axis `{self.name}` uses the name `{repeated}` for two levels; "
                "names must be distinct."
            )
        for fine, coarse in zip(self.chain, self.chain[1:], strict=False):
            up = np.zeros(fine.groups, np.int64)
            up[fine.codes] = coarse.codes
            broken = np.flatnonzero(up[fine.codes] != coarse.codes)
            if broken.size:
                label = fine.labels[int(fine.codes[broken[0]])]
                raise DomainError(
                    f"Level `{fine.name}` does not nest in level `{coarse.name}` on axis "
                    f"`{self.name}`: group {label!r} lies in more than one group of "
                    f"`{coarse.name}`. List levels from finest to coarsest.",
                    fine=fine.name,
                    coarse=coarse.name,
                    label=label,
                )


def _plain_labels(labels: Sequence[Label], owner: str) -> Sequence[Label]:
    """Labels as plain strings and integers; NumPy scalars are unwrapped."""
    if isinstance(labels, range):
        if labels and abs(labels[-1] - labels[0]) // abs(labels.step) >= MAX_LABELS:
            raise DomainError(f"{owner} may have at most 2**33 labels.")
        return labels
    if isinstance(labels, str):
        raise DomainError(f"{owner}: labels must be a list of labels, not one string.")
    if not isinstance(labels, Iterable):
        raise DomainError(f"{owner}: labels must be a list; got one {type(labels).__name__}.")
    plain = [
        label.item() if isinstance(label, np.generic) else label
        for label in (labels.tolist() if isinstance(labels, np.ndarray) else labels)
    ]
    for label in plain:
        if not isinstance(label, str | int) or isinstance(label, bool):
            raise DomainError(
                f"{owner}: labels must be strings or integers; got one of type "
                f"{type(label).__name__}."
            )
    if any(isinstance(label, str) and not _encodable(label) for label in plain):
        raise DomainError(f"{owner}: a label is not text that UTF-8 can write.")
    if len({isinstance(label, str) for label in plain}) > 1:
        raise DomainError(f"{owner}: labels must be all strings or all integers.")
    if any(isinstance(label, int) and not -(2**63) <= label < 2**63 for label in plain):
        raise DomainError(f"{owner}: whole-number labels must fit 64 bits.")
    return tuple(plain)


def _encodable(label: str) -> bool:
    try:
        label.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first_repeated(values: Sequence[Label]) -> Label | None:
    if isinstance(values, range):
        return None
    seen: set[Label] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _plain_titles(titles: Mapping[str, str] | None, owner: str) -> dict[str, str]:
    if titles is not None and not isinstance(titles, Mapping):
        raise DomainError(f"{owner}: `titles` must map names of levels to their titles.")
    for name, title in (titles or {}).items():
        if not isinstance(title, str) or not title or not _one_line(title):
            raise DomainError(f"{owner}: the title of `{name}` must be one line of text.")
    return dict(titles or {})


def _one_line(text: str) -> bool:
    return _encodable(text) and not any(unicodedata.category(mark) == "Cc" for mark in text)


def _level(
    axis: str,
    name: str,
    members: Sequence[Label | None],
    groups: Sequence[Label] | None,
    n: int,
    title: str,
    kind: str = "Level",
) -> Level:
    if not isinstance(name, str) or not name:
        raise DomainError(f"Axis `{axis}`: a level needs a non-empty name.")
    given: Any = members.tolist() if isinstance(members, np.ndarray) else members
    holes = kind == "Grouping"
    if holes and isinstance(given, Iterable) and not isinstance(given, str):
        given = list(given)
        inside = _plain_labels([label for label in given if label is not None], f"{kind} `{name}`")
        filled = iter(inside)
        of_each: Sequence[Label | None] = [None if v is None else next(filled) for v in given]
        if not inside and not groups:
            raise DomainError(f"Grouping `{name}` of axis `{axis}` must have at least one group.")
    else:
        of_each = _plain_labels(given, f"{kind} `{name}`")
        inside = of_each
    if len(of_each) != n:
        raise DomainError(
            f"{kind} `{name}` must give one group{' or None' if holes else ''} for each of the {n} "
            f"labels of axis `{axis}`; got {len(of_each)}."
        )
    names = tuple(dict.fromkeys(inside)) if groups is None else _plain_labels(groups, name)
    repeated = _first_repeated(names)
    if repeated is not None:
        raise DomainError(f"{kind} `{name}` lists the group {repeated!r} more than once.")
    number: dict[Label | None, int] = {label: i for i, label in enumerate(names)}
    unknown = next((label for label in inside if label not in number), None)
    if unknown is not None:
        raise DomainError(
            f"{kind} `{name}`: the group {unknown!r} is not in its list of groups.", label=unknown
        )
    number[None] = len(names)
    codes = np.fromiter((number[label] for label in of_each), np.int64, n)
    codes.setflags(write=False)
    return Level(name=name, codes=codes, labels=names, title=title)
