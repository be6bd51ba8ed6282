"""The public shape of a table: its axes, its boxes of cells, the margins it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import DomainError
from subspacedp.frozen import frozen
from subspacedp.tables.axis import Axis, Label
from subspacedp.tables.margin import Margin, along

MAX_RANGE_LABELS = 1 << 27  # of an axis of numbers, where no values say how many there are
MAX_CELLS = 2**62
RESERVED = ("value", "stderr")


@frozen(eq=False, repr=False)
class Domain:
    """The axes of a table. Public: nothing in it may depend on confidential data.

    Where the labels can only be had from the data, `Domain.from_data` reads them, and every
    certificate of a release made with it says that the labels themselves are not protected.

    Examples
    --------
    >>> domain = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
    >>> domain
    Domain(age: 2, sex: 2; 4 cells)
    >>> domain.margin("age").shape
    (2, 1)
    """

    axes: Sequence[Axis]

    def __post_init__(self) -> None:
        if isinstance(self.axes, Axis):
            raise DomainError("A domain takes a list of axes; put the axis in brackets.")
        axes = tuple(self.axes)
        if not axes:
            raise DomainError("A domain needs at least one axis.")
        for axis in axes:
            if not isinstance(axis, Axis):
                raise DomainError(
                    f"A domain is made of `Axis` objects; got a {type(axis).__name__}."
                )
        seen: dict[str, str] = {}
        titles: dict[str, str] = {}
        for axis in axes:
            for level in axis.named:
                if level.name in RESERVED:
                    raise DomainError(
                        f"`{level.name}` is a column of every release; give the axis or level "
                        "another name."
                    )
                if level.name in seen:
                    raise DomainError(
                        f"The name `{level.name}` is used on axis `{seen[level.name]}` and on "
                        f"axis `{axis.name}`; names of axes and levels must be unique in a domain."
                    )
                seen[level.name] = axis.name
                other = titles.setdefault(level.title, level.name)
                if other != level.name:
                    raise DomainError(
                        f"`{other}` and `{level.name}` have the same title, `{level.title}`; "
                        "readers could not tell them apart."
                    )
        object.__setattr__(self, "axes", axes)

    @classmethod
    def from_data(cls, frame: Any, columns: Sequence[str]) -> Domain:
        """Read the labels off a dataframe: convenient, and *not protected*.

        That a label occurs is itself information about the people in the data. The certificate of
        every release with this domain says so.
        """
        from subspacedp.tables.table import column_values

        return cls(
            [Axis(name, _sorted_labels(column_values(frame, name)), from_data=True)
             for name in columns]
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of labels of every axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def check_table(self) -> None:
        """Refuse a domain too large for a table of its cells; margins of it can be had."""
        if self.size > MAX_CELLS:
            raise DomainError(
                "A table may have at most 2**62 cells; ask for margins of a larger domain with "
                "`Margins`."
            )

    @property
    def from_data_axes(self) -> tuple[str, ...]:
        """Names of the axes whose labels were read off confidential data."""
        return tuple(axis.name for axis in self.axes if axis.from_data)

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        return {
            level.name: (a, axis.step_of(level.name))
            for a, axis in enumerate(self.axes)
            for level in axis.named
        }

    def axis(self, name: str) -> Axis:
        """The axis of that name."""
        place = self._places.get(name)
        if place is None or place[1] != 0:
            raise DomainError(f"The domain has no axis `{name}`.")
        return self.axes[place[0]]

    def margin(self, *names: str) -> Margin:
        """The margin at the named levels; axes that are not named are summed over."""
        steps = [axis.depth - 1 for axis in self.axes]
        used: dict[int, str] = {}
        for name in names:
            place = self._places.get(name)
            if place is None:
                raise DomainError(self._unknown(name), name=name)
            a, step = place
            if a in used:
                other = used[a]
                raise DomainError(
                    f"The level `{name}` is named twice in one margin."
                    if other == name
                    else f"The levels `{other}` and `{name}` are of the same axis "
                    f"`{self.axes[a].name}`; one margin takes one level per axis."
                )
            used[a] = name
            steps[a] = step
        return Margin(tuple(self.axes), tuple(steps))

    @cached_property
    def cells(self) -> Margin:
        """The finest margin: every cell by itself."""
        return Margin(tuple(self.axes), (0,) * len(self.axes))

    def matches(self, other: Domain) -> bool:
        """Whether the other domain has the same axes, labels and levels, in the same order."""
        if self is other:
            return True
        return len(self.axes) == len(other.axes) and all(
            a.matches(b) for a, b in zip(self.axes, other.axes, strict=True)
        )

    def as_list(self) -> list[dict[str, Any]]:
        """The axes as plain data: enough to rebuild the domain."""
        return [axis.as_dict() for axis in self.axes]

    @classmethod
    def from_list(cls, data: Sequence[Mapping[str, Any]], answers: int | None = None) -> Domain:
        """The domain that plain data state; `answers` is how many values there are, if known."""
        most = max(MAX_RANGE_LABELS, answers or 0)
        return cls([Axis.from_dict(axis, most) for axis in data])

    def label_columns(self) -> dict[str, AnyArray]:
        """The labels of every cell on each axis and level, in row-major order."""
        out: dict[str, AnyArray] = {}
        for a, axis in enumerate(self.axes):
            for level in axis.named:
                column = along(level.label_of_each, a, len(self.axes))
                out[level.name] = np.broadcast_to(column, self.shape).ravel()
        return out

    def label(self, index: Sequence[int]) -> tuple[Label, ...]:
        """The labels of the cell at `index`."""
        return tuple(axis.labels[i] for axis, i in zip(self.axes, index, strict=True))

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(str(name), self._places, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else "."
        known = ", ".join(f"`{known}`" for known in self._places)
        grouped = any(axis.crossing for axis in self.axes)
        one, all_ = (
            ("level or grouping", "levels and groupings") if grouped else ("level", "levels")
        )
        return f"The domain has no {one} `{name}`{hint} Its {all_} are {known}."

    def __repr__(self) -> str:
        axes = ", ".join(
            f"{axis.name}: {len(axis)}{f' in {len(axis.atoms):,} atoms' if axis.crossing else ''}"
            for axis in self.axes
        )
        return f"Domain({axes}; {self.size:,} cells)"


def _sorted_labels(values: Sequence[Label]) -> list[Label]:
    distinct = set(values)
    return sorted(distinct, key=lambda label: (isinstance(label, str), label))


@frozen
class Box:
    """The cells with positions `lower` to `upper - 1` on every axis.

    Examples
    --------
    >>> box = Box((0, 2), (2, 4))
    >>> box.shape, box.size
    ((2, 2), 4)
    >>> starts, length = box.runs((3, 4))
    >>> starts.tolist(), length
    ([2, 6], 2)
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of positions on every axis."""
        return tuple(hi - lo for lo, hi in zip(self.lower, self.upper, strict=True))

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def runs(self, table: Sequence[int]) -> tuple[Int64Array, int]:
        """Numbers of cells of a table in row-major order: where each run begins, and its length.

        The cells of the box in row-major order are these runs one after another.
        """
        inner, length = len(table), 1
        while inner > 0:
            inner -= 1
            length *= self.shape[inner]
            if self.shape[inner] < table[inner]:
                break
        starts = np.zeros(1, np.int64)
        for b, n in enumerate(table):
            stop = self.upper[b] if b < inner else self.lower[b] + 1
            places = np.arange(self.lower[b], stop, dtype=np.int64)
            starts = (starts[:, None] * n + places).ravel()
        return starts, length

    def split(self, most: int) -> list[Box]:
        """Boxes of at most `most` cells, consecutive in the row-major order of this box."""
        inner, axis = 1, len(self.shape)
        while axis > 0 and inner * self.shape[axis - 1] <= most:
            axis -= 1
            inner *= self.shape[axis]
        if axis == 0:
            return [self]
        axis -= 1
        thick, stop = max(1, most // inner), self.upper[axis]
        return [
            Box(
                (*before, at, *self.lower[axis + 1 :]),
                (*(p + 1 for p in before), min(at + thick, stop), *self.upper[axis + 1 :]),
            )
            for before in product(*map(range, self.lower[:axis], self.upper[:axis]))
            for at in range(self.lower[axis], stop, thick)
        ]


def blocks(shape: Sequence[int], most: int) -> list[Box]:
    """A table cut into boxes of at most `most` cells, each a run of row-major order."""
    return Box((0,) * len(shape), tuple(shape)).split(most)


def inside(box: Box) -> tuple[slice, ...]:
    """The cells of a box as an index of the table."""
    return tuple(slice(lo, hi) for lo, hi in zip(box.lower, box.upper, strict=True))
