"""Queries beyond matrices: declared sensitivities, clipped sums, and persons' own entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import BudgetError, DataError, DomainError, ReleaseError, without_values
from subspacedp.frozen import frozen
from subspacedp.privacy.neighbours import Neighbours
from subspacedp.queries.linear import Query, Sensitivity, TableQuery, name_list
from subspacedp.tables.domain import Domain
from subspacedp.tables.table import Table, column_values, positions


@frozen(eq=False, repr=False)
class GeneralQuery(Query):
    """Any function of the data, with sensitivities that *you* declare.

    Parameters
    ----------
    function
        From the data to a vector of `number` finite numbers; a loaded release has none.
    number
        The number of answers.
    l1, l2
        The most that a neighbouring change moves the answers in ℓ₁ and ℓ₂ norm. Nothing can check
        a black box completely; `check_sensitivity` tries random neighbours.
    labels
        A name for every answer.
    whole
        True when the answers are always whole numbers; then they are not rounded at all.

    Guarantees
    ----------
    1. Answers are rounded to a grid of a thousandth of the sensitivity (whole ones are not), and
       noise is calibrated to Δ₁ + g·n and Δ₂ + g·√n, which bounds what rounding adds.
    """

    function: Callable[[Any], Any] | None
    number: int
    l1: float
    l2: float
    labels: Sequence[str] | None = None
    whole: bool = False

    kind: ClassVar[str] = "function"

    def __post_init__(self) -> None:
        if not isinstance(self.number, int) or self.number < 1:
            raise DomainError("A query needs at least one answer.")
        for name in ("l1", "l2"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise DomainError(f"`{name}` must be a positive finite number; got {value!r}.")
        if self.function is not None and not callable(self.function):
            raise DomainError("The query must be a function of the data.")
        labels = name_list(self.labels, self.number)
        if len(labels) != self.number or len(set(labels)) != len(labels):
            raise DomainError(f"`labels` must be {self.number} distinct names.")
        object.__setattr__(self, "labels", tuple(str(label) for label in labels))

    @property
    def shape(self) -> tuple[int, ...]:
        """One answer each."""
        return (self.number,)

    @property
    def grid(self) -> Fraction:
        """One unit of the integer answers: a power of two, or 1 for whole answers."""
        if self.whole:
            return Fraction(1)
        fine = max(min(self.l1 / self.number, self.l2 / math.sqrt(self.number)) / 1000, 1e-300)
        return Fraction(2) ** math.floor(math.log2(fine))

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """As declared, and what rounding to the grid can add, in units of the grid."""
        del neighbours  # the declaration is for the relation that will be used
        l1, l2 = Fraction(self.l1) / self.grid, Fraction(self.l2) / self.grid
        if self.whole:
            return Sensitivity(l1, l2 * l2)
        root = Fraction(math.isqrt(self.number - 1) + 1)  # √n rounded up
        return Sensitivity(l1 + self.number, (l2 + root) ** 2)

    def answers(self, data: Any) -> Int64Array:
        """The function's answers in units of the grid."""
        if self.function is None:
            raise DataError("This query was read from a certificate and has no function to ask.")
        function = self.function
        real = without_values(
            lambda: np.asarray(function(data), np.float64),
            "The query's function did not give a vector of numbers",
        )
        if real.shape != (self.number,):
            raise DataError(f"The query must give {self.number} answers; got shape {real.shape}.")
        if not np.all(np.isfinite(real)):
            raise DataError("The query gave an answer that is not a finite number.")
        units = np.rint(real / float(self.grid))
        if self.whole and np.any(units != real):
            raise DataError("The query was declared whole and gave a fraction.")
        if np.any(np.abs(units) >= 2.0**53):
            raise DataError("The answers are too large for the grid of this query.")
        return units.astype(np.int64)

    def columns(self) -> dict[str, AnyArray]:
        """The names of the answers."""
        return {"question": np.asarray(self.labels)}

    def as_dict(self) -> dict[str, Any]:
        """What was declared; the function itself stays with its owner."""
        return {
            "kind": self.kind,
            "labels": list(self.labels or ()),
            "l1": self.l1,
            "l2": self.l2,
            "whole": self.whole,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None) -> GeneralQuery:
        """What was declared; there is no function to ask."""
        del answers
        l1, l2, labels = _number(data, "l1"), _number(data, "l2"), data["labels"]
        if not isinstance(data["whole"], bool):
            raise ReleaseError("`whole` must be true or false.")
        return cls(None, len(labels), l1, l2, labels, data["whole"])

    def __repr__(self) -> str:
        return f"GeneralQuery({self.number} answers, declared sensitivities)"


@frozen(eq=False, repr=False)
class ClippedSums(TableQuery):
    """Sums of a value over person records, cell by cell; each value clipped to a public range.

    Parameters
    ----------
    domain
        The cells.
    value
        The column with the value.
    lower, upper
        The public range; values outside are moved to its limits.
    unit
        Values are rounded to whole multiples of it.
    """

    domain: Domain
    value: str
    lower: float
    upper: float
    unit: float = 1.0

    kind: ClassVar[str] = "clipped sums"

    def __post_init__(self) -> None:
        numbers = (self.lower, self.upper, self.unit)
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers):
            raise DomainError("`lower`, `upper` and `unit` must be finite numbers.")
        if self.lower > self.upper or self.unit <= 0:
            raise DomainError("`lower` must be at most `upper`, and `unit` positive.")
        if self._most >= 2**31:
            raise DomainError("The range must be less than 2**31 units wide; choose a larger one.")
        if self._most == 0:
            raise DomainError("The range holds nothing but 0: there is nothing to sum.")

    @property
    def _most(self) -> int:
        """The most units that one record adds, in size."""
        return max(abs(round(Fraction(limit) / self.grid)) for limit in (self.lower, self.upper))

    @property
    def grid(self) -> Fraction:
        """The unit of the values."""
        return Fraction(repr(float(self.unit)))

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Every record counts at most the largest clipped value.

        A replacement moves by u − v with entries of either sign, so unlike for counts the norm of
        the difference is bounded by the sum of the norms.
        """
        b = self._most
        one = neighbours.l2_squared // neighbours.persons
        return Sensitivity(
            Fraction(b * neighbours.l1), Fraction(b * b * one * neighbours.persons**2)
        )

    def answers(self, data: Any) -> Int64Array:
        """Clipped sums of a dataframe of records, in units of `unit`.

        Sums that were clipped and added elsewhere come as an int64 array of the cells' shape.
        """
        if isinstance(data, np.ndarray) and data.dtype == np.int64:
            if data.shape != self.shape:
                raise DataError(f"Sums must have the cells' shape {self.shape}; got {data.shape}.")
            return data
        raw = without_values(
            lambda: np.asarray(column_values(data, self.value), np.float64),
            f"Column `{self.value}` must hold numbers",
        )
        if not np.all(np.isfinite(raw)):
            raise DataError(f"Column `{self.value}` has values that are not finite numbers.")
        units = np.rint(np.clip(raw, self.lower, self.upper) / float(self.unit)).astype(np.int64)
        units = np.clip(units, -self._most, self._most)
        if self._most * units.size >= 2**62:
            raise DataError("The sums could leave 64 bits; choose a larger unit.")
        places = [positions(axis, column_values(data, axis.name)) for axis in self.domain.axes]
        out = np.zeros(self.domain.size, np.int64)
        np.add.at(out, np.ravel_multi_index(tuple(places), self.shape), units)
        return out.reshape(self.shape)

    def as_dict(self) -> dict[str, Any]:
        """The domain and the clipping."""
        return {
            "kind": self.kind,
            "domain": self.domain.as_list(),
            "value": self.value,
            "lower": self.lower,
            "upper": self.upper,
            "unit": self.unit,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None) -> ClippedSums:
        """The domain and the clipping."""
        domain = Domain.from_list(data["domain"], answers)
        lower, upper, unit = (_number(data, name) for name in ("lower", "upper", "unit"))
        if not isinstance(data["value"], str):
            raise ReleaseError("`value` must be the name of a column.")
        return cls(domain, data["value"], lower, upper, unit)

    def __repr__(self) -> str:
        return f"ClippedSums({self.value}, {self.domain!r})"


def _number(data: Mapping[str, Any], name: str) -> Any:
    """A number of plain data, of either type."""
    if type(data[name]) not in (int, float):
        raise ReleaseError(f"`{name}` must be a number.")
    return data[name]


def check_sensitivity(
    query: Query, table: Table, neighbours: Neighbours, *, tries: int = 200, seed: int = 0
) -> None:
    """Try random neighbours of a table; an error when one moves the answers too far.

    Passing proves nothing about neighbours that were not tried. The sentence tells by how much a
    declared sensitivity was exceeded and nothing of the table.
    """
    rng = np.random.default_rng(seed)
    bound = query.sensitivity(neighbours)
    base = query.answers(table)
    for _ in range(tries):
        counts = _neighbour(table, neighbours, rng)
        if counts is None:
            continue
        moved = query.answers(Table(counts, table.domain)) - base
        l1 = int(np.abs(moved).sum())
        l2_squared = sum(int(m) ** 2 for m in moved.ravel())
        if l1 > bound.l1 or l2_squared > bound.l2_squared:
            over = max(float(l1 / bound.l1), math.sqrt(l2_squared / bound.l2_squared))
            raise DataError(
                f"The declared sensitivity is too small: a neighbour moves the answers {over:.3g} "
                "times as far.",
                factor=over,
            )


def _neighbour(table: Table, neighbours: Neighbours, rng: np.random.Generator) -> Int64Array | None:
    """The counts after one random neighbouring change; None when it was not possible."""
    counts = table.counts.ravel().copy()
    people = neighbours.records if neighbours.keeps_total or neighbours.persons == 1 else None
    removes = neighbours.persons == 2 or rng.random() < 0.5
    if removes and not _move(counts, -1, neighbours, people, rng):
        return None
    if neighbours.persons == 2 or not removes:
        _move(counts, +1, neighbours, people, rng)
    return counts.reshape(table.counts.shape)


def _move(
    counts: Int64Array, sign: int, neighbours: Neighbours, records: int | None,
    rng: np.random.Generator,
) -> bool:  # fmt: skip
    """Take away or add one person's records, within the bounds; whether all found a place."""
    number = records if records is not None else int(rng.integers(0, neighbours.records + 1))
    room = np.full(counts.size, neighbours.per_cell or neighbours.records)
    if sign < 0:
        room = np.minimum(room, counts)
    while number > 0 and room.any():
        cell = int(rng.choice(np.flatnonzero(room)))
        here = int(rng.integers(1, min(number, int(room[cell])) + 1))  # spread or together
        counts[cell] += sign * here
        room[cell] -= here
        number -= here
    return number == 0


@frozen(eq=False, repr=False)
class LocalEntries(TableQuery):
    """The identity query of local differential privacy: one whole number per person.

    A person may be a sensor or a household; every entry has one public range. The budget is a
    person's own: neighbouring data differ in one entry, which may be any other
    number of the range. Who takes part is public.

    Parameters
    ----------
    domain
        One label per person, with levels such as wards; several axes for several entries each.
    lower, upper
        The range of an entry, both limits included.

    Guarantees
    ----------
    1. With `ReplaceOne(records=m)`, m entries per person, Δ₁ = m(upper − lower) and
       Δ₂² = m(upper − lower)²: an entry is replaced where it is, unlike a record of a histogram,
       which leaves one cell and enters another.

    Examples
    --------
    >>> from subspacedp import Axis, Domain, ReplaceOne
    >>> entries = LocalEntries(Domain([Axis("person", ["Ann", "Bob", "Cy"])]), 0, 10)
    >>> entries.sensitivity(ReplaceOne()).l1
    Fraction(10, 1)
    """

    domain: Domain
    lower: int
    upper: int

    kind: ClassVar[str] = "entries"

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise DomainError("Entries need a `Domain` with a label for every person.")
        for limit in (self.lower, self.upper):
            if not isinstance(limit, int) or isinstance(limit, bool) or abs(limit) >= 2**43:
                raise DomainError("`lower` and `upper` must be whole numbers below 2**43 in size.")
        if self.lower >= self.upper:
            raise DomainError("`lower` must be less than `upper`.")

    @property
    def entry_range(self) -> tuple[int, int]:
        """From `lower` to `upper`."""
        return self.lower, self.upper

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Every entry of one person moves by the whole range, at most."""
        if neighbours.persons == 1:
            raise BudgetError(
                "Who has an entry is public, so persons are not added or removed; use ReplaceOne()."
            )
        if neighbours.per_cell not in (None, 1):
            raise BudgetError("A person has one entry in a place; leave out `per_cell`.")
        width = self.upper - self.lower
        m = neighbours.records
        return Sensitivity(Fraction(m * width), Fraction(m * width * width))

    def answers(self, data: Any) -> Int64Array:
        """The entries themselves: whole numbers in the domain's shape."""
        array = without_values(lambda: np.asarray(data), "The entries must be an array of numbers")
        if array.shape != self.shape:
            raise DataError(f"The entries must have the shape {self.shape}; got {array.shape}.")
        return self.checked(array)

    def checked(self, array: AnyArray) -> Int64Array:
        """Some of the entries, if they are whole numbers of the range."""
        if array.dtype.kind not in "iuf":
            raise DataError(f"Entries must be whole numbers; got an array of {array.dtype}.")
        wrong = ~((array >= self.lower) & (array <= self.upper))
        if array.dtype.kind == "f":
            wrong |= array != np.floor(array)
        number = int(np.count_nonzero(wrong))
        if number:
            raise DataError(
                f"{number:,} of the entries are not whole numbers from {self.lower} to "
                f"{self.upper}.",
                entries=number,
            )
        return array.astype(np.int64)

    def as_dict(self) -> dict[str, Any]:
        """The persons and the range."""
        return {
            "kind": self.kind,
            "domain": self.domain.as_list(),
            "lower": self.lower,
            "upper": self.upper,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None) -> LocalEntries:
        """The persons and the range."""
        domain = Domain.from_list(data["domain"], answers)
        return cls(domain, _number(data, "lower"), _number(data, "upper"))

    def __repr__(self) -> str:
        return f"LocalEntries({self.lower} to {self.upper}, {self.domain!r})"
