"""A workload of margins: many margins of one domain, whose full table is never formed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.errors import DataError, DomainError
from subspacedp.frozen import frozen
from subspacedp.privacy.neighbours import Neighbours
from subspacedp.queries.linear import Query, Sensitivity, TableQuery
from subspacedp.tables.axis import Level
from subspacedp.tables.domain import Domain
from subspacedp.tables.margin import Margin, along
from subspacedp.tables.table import MarginTables, Table

MAX_ANSWERS = 2**31
MAX_AXES = 60 if int(np.__version__.partition(".")[0]) > 1 else 30  # dimensions of an array
COLUMN = "margin"


def block_name(margin: Margin) -> str:
    """What a margin is called in files: its levels, or the total."""
    return " × ".join(margin.names) or "total"


@frozen(eq=False, repr=False)
class Margins(TableQuery):
    """The totals of several margins of one domain, as one vector of answers.

    Parameters
    ----------
    domain
        The axes. It may have any number of cells, far beyond 2**63: no table of them is formed.
    margins
        One list of level names for each margin; one name stands for a list of one, an empty list
        for the grand total.
    weights
        What the squared error of each margin's cells counts for when noise is optimised; one each
        by default.
    targets
        What the 95 % margin of error of each margin's worst figure shall be at most, or None; noise
        is then designed for these, and `least_budget` finds the least budget that meets them all.

    Guarantees
    ----------
    1. Answers are exact: whole numbers of records, margin after margin, each in row-major order.

    Examples
    --------
    >>> from subspacedp.tables import Axis, Table
    >>> domain = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
    >>> workload = Margins(domain, ["age", ["age", "sex"]])
    >>> workload.answers(Table([[3, 1], [0, 2]], domain))
    array([4, 2, 3, 1, 0, 2])
    >>> workload.slice_of("age", "sex")
    slice(2, 6, None)
    """

    domain: Domain
    margins: Sequence[Any]
    weights: Sequence[float] | None = None
    targets: Sequence[float | None] | None = None

    kind: ClassVar[str] = "margins"
    counts_records: ClassVar[bool] = True  # whether every answer is a number of records

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise DomainError(f"A workload needs a `Domain`; got a {type(self.domain).__name__}.")
        if len(self.domain.axes) > MAX_AXES:
            raise DomainError(f"A workload of margins may have at most {MAX_AXES} axes.")
        named = any(level.name == COLUMN for axis in self.domain.axes for level in axis.named)
        if named:
            raise DomainError(
                f"`{COLUMN}` is a column of every release of margins; give the axis or level "
                "another name."
            )
        margins = tuple(_margin(self.domain, names) for names in _listed(self.margins))
        if not margins:
            raise DomainError("A workload needs at least one margin; the list is empty.")
        repeated = next((m for i, m in enumerate(margins) if m in margins[:i]), None)
        if repeated is not None:
            raise DomainError(f"The margin `{block_name(repeated)}` is asked for twice.")
        names = [block_name(m) for m in margins]
        if len(set(names)) < len(names):
            alike = next(name for i, name in enumerate(names) if name in names[:i])
            raise DomainError(
                f"Two margins would both be called `{alike}` in a release; give an axis or level "
                "another name."
            )
        if sum(math.prod(m.shape) for m in margins) > MAX_ANSWERS:
            raise DomainError("A workload may have at most 2**31 answers.")
        object.__setattr__(self, "margins", margins)
        if self.targets is not None and self.weights is not None:
            raise DomainError("A workload has `weights` or `targets`, not both.")
        object.__setattr__(self, "weights", _weights(self.weights, len(margins)))
        object.__setattr__(self, "targets", _targets(self.targets, margins))

    @property
    def margins_asked(self) -> Sequence[Margin]:
        """Those of the workload."""
        return self.margins

    def same_as(self, other: Query) -> bool:
        """Whether another query asks for the same margins in the same order, whatever weights."""
        if type(self) is not type(other) or not self.domain.matches(other.axes):
            return False
        names = [m.names for m in other.margins_asked or ()]
        return [m.names for m in self.margins] == names

    @property
    def workload(self) -> Margins:
        """The workload itself."""
        return self

    @property
    def record_kinds(self) -> int:
        """One for every cell of the domain."""
        return math.prod(self.domain.shape)

    @property
    def level_names(self) -> set[str]:
        """The levels of the margins."""
        return {name for margin in self.margins for name in margin.names}

    @property
    def shape(self) -> tuple[int, ...]:
        """One vector with all answers."""
        return (self.bounds[-1],)

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """Where each margin's answers begin, and where the last one's end."""
        out = [0]
        for margin in self.margins:
            out.append(out[-1] + math.prod(margin.shape))
        return tuple(out)

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """The answers of each margin, by its name."""
        return {
            block_name(m): slice(self.bounds[i], self.bounds[i + 1])
            for i, m in enumerate(self.margins)
        }

    def slice_of(self, *names: str) -> slice:
        """Where the answers of a margin of the workload are, by the names of its levels."""
        margin = self.domain.margin(*names)
        if margin not in self.margins:
            raise DomainError(f"The margin `{block_name(margin)}` is not part of the workload.")
        return self.blocks[block_name(margin)]

    def split(self, values: AnyArray) -> list[AnyArray]:
        """A vector of answers margin by margin, each in its margin's shape."""
        return [
            values[self.bounds[i] : self.bounds[i + 1]].reshape(m.shape)
            for i, m in enumerate(self.margins)
        ]

    def source_of(self, margin: Margin) -> int:
        """The number of the smallest margin of the workload that determines another."""
        able = [i for i, m in enumerate(self.margins) if m.determines(margin)]
        if not able:
            raise DomainError(
                f"The margin `{block_name(margin)}` does not follow from the margins of the "
                "workload."
            )
        return min(able, key=lambda i: self.bounds[i + 1] - self.bounds[i])

    def totals(self, values: AnyArray, margin: Margin) -> AnyArray:
        """The totals of a margin that the workload determines, from a vector of answers."""
        i = self.source_of(margin)
        source: Margin = self.margins[i]
        block = values[self.bounds[i] : self.bounds[i + 1]].reshape(source.shape)
        return np.asarray(source.coarsen(block, margin))

    def indicator(self, margin: Margin, groups: AnyArray) -> FloatArray:
        """Weights of the answers whose weighted sum is that of a margin's totals."""
        i = self.source_of(margin)
        source: Margin = self.margins[i]
        spread: AnyArray = np.asarray(groups, np.float64).reshape(margin.shape)
        for a, axis in enumerate(self.domain.axes):
            if source.steps[a] != margin.steps[a]:
                up = axis.parents(source.steps[a], margin.steps[a])
                spread = np.take(spread, up, axis=a)
        out = np.zeros(self.shape)
        out[self.bounds[i] : self.bounds[i + 1]] = spread.reshape(-1)
        return out

    def selection(self, chosen: Sequence[tuple[int, Level, Sequence[int]]]) -> FloatArray:
        """Weights of the answers of one margin, the smallest that has the levels."""
        margin = self.domain.margin(*(level.name for _, level, _ in chosen))
        inside = np.ones(margin.shape)
        for a, level, groups in chosen:
            inside = inside * along(np.isin(np.arange(level.groups), groups), a, inside.ndim)
        return self.indicator(margin, inside)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Every record is counted once in every margin; records of one person may meet there."""
        number, m = len(self.margins), neighbours.records
        persons = neighbours.persons
        return Sensitivity(Fraction(number * persons * m), Fraction(number * persons * m * m))

    def answers(self, data: Any) -> Int64Array:
        """All totals of a table, or of tables of margins that determine them."""
        return self.vector(data, self.margins)

    def answers_and_totals(self, data: Any, margins: Sequence[Margin]) -> Int64Array:
        """The totals of the workload, and after them those of further margins."""
        return self.vector(data, (*self.margins, *margins))

    def largest_total(self, answers: Int64Array) -> int:
        """Answers are totals."""
        return int(answers.max(initial=0))

    def vector(self, data: Any, margins: Sequence[Margin]) -> Int64Array:
        """The totals of any margins, one after another, in exact integers."""
        if not isinstance(data, Table | MarginTables):
            raise DataError(f"Expected a `Table` or `MarginTables`; got a {type(data).__name__}.")
        if not self.domain.matches(data.domain):
            raise DataError(
                f"The data ({data.domain!r}) are not on the domain the mechanism was designed for "
                f"({self.domain!r}): axes, labels or levels differ."
            )
        parts = data.totals(margins)
        return np.concatenate([np.asarray(p, np.int64).reshape(-1) for p in parts])

    def columns(self) -> dict[str, AnyArray]:
        """The margin of every answer and its labels; empty where the margin sums over a level."""
        names = [block_name(m) for m in self.margins]
        lengths = np.diff(self.bounds)
        out: dict[str, AnyArray] = {COLUMN: np.repeat(np.asarray(names), lengths)}
        for a, axis in enumerate(self.domain.axes):
            for step, level in enumerate(axis.chain):
                using = [i for i, m in enumerate(self.margins) if m.steps[a] == step]
                if not using:
                    continue
                labels = np.asarray([str(label) for label in level.labels])
                column = np.zeros(self.shape, labels.dtype)
                for i in using:
                    shape = self.margins[i].shape
                    wide = np.broadcast_to(along(labels, a, len(shape)), shape)
                    column[self.bounds[i] : self.bounds[i + 1]] = wide.reshape(-1)
                out[level.name] = column
        return out

    def as_dict(self) -> dict[str, Any]:
        """The domain and the margins as plain data."""
        return {
            "kind": self.kind,
            "domain": self.domain.as_list(),
            "margins": [list(m.names) for m in self.margins],
            "weights": list(self.weights or ()),
            **({"targets": list(self.targets)} if self.targets else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None) -> Margins:
        """The domain, and the margins with their weights or targets."""
        names, targets = [tuple(n) for n in data["margins"]], data.get("targets")
        domain = Domain.from_list(data["domain"], answers)
        return cls(domain, names, None if targets else data["weights"], targets)

    def __repr__(self) -> str:
        number = len(self.margins)
        return (
            f"Margins({number:,} margin{'s' if number > 1 else ''} of {len(self.domain.axes)} "
            f"axes, {self.size:,} answers)"
        )


def _listed(margins: Any) -> Sequence[Any]:
    if isinstance(margins, str) or not isinstance(margins, Sequence):
        raise DomainError("The margins of a workload are a list of lists of level names.")
    return margins


def _margin(domain: Domain, names: Any) -> Margin:
    if isinstance(names, Margin):
        names = names.names
    given = (names,) if isinstance(names, str) else names
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise DomainError("A margin is a level name or a list of level names.")
    if "" in given:
        raise DomainError(
            "A margin has an empty level name; leave a level out to sum over its axis."
        )
    return domain.margin(*given)


def _weights(weights: Any, number: int) -> tuple[float, ...]:
    if weights is None:
        return (1.0,) * number
    try:
        given = tuple(float(w) for w in weights)
    except (TypeError, ValueError):
        given = ()
    if len(given) != number or not all(math.isfinite(w) and 1e-12 <= w <= 1e12 for w in given):
        raise DomainError(
            f"`weights` must have one number from 1e-12 to 1e12 for each margin: {number} in all."
        )
    return given


def _targets(targets: Any, margins: Sequence[Margin]) -> tuple[float | None, ...] | None:
    if targets is None:
        return None
    if isinstance(targets, str) or not isinstance(targets, Sequence | np.ndarray):
        raise DomainError("`targets` is a list of margins of error, one for each margin or None.")
    if len(targets) != len(margins):
        raise DomainError(
            f"`targets` must have one margin of error, or None, for each margin: {len(margins)} in "
            f"all; got {len(targets)}."
        )
    out = []
    for margin, target in zip(margins, targets, strict=True):
        number = isinstance(target, int | float | np.number) and not isinstance(target, bool)
        if target is not None and not (number and 1e-9 <= float(target) <= 1e15):
            raise DomainError(
                f"The target of `{block_name(margin)}` must be a number from 1e-9 to 1e15, a "
                f"margin of error; got {target!r}."
            )
        out.append(None if target is None else float(target))
    if all(target is None for target in out):
        raise DomainError("`targets` has no margin of error; leave it out.")
    return tuple(out)
