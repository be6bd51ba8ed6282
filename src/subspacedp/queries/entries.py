"""Individuals' own entries: the identity query of local differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError, DataError, DomainError, without_values
from subspacedp.privacy.neighbours import Neighbours
from subspacedp.queries.linear import Query, Sensitivity
from subspacedp.tables.domain import Domain

__all__ = ["LocalEntries"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class LocalEntries(Query):
    """One whole number a person (a sensor, a household), each in a public range.

    The budget is a person's own: neighbouring data differ in one entry, which may be any other
    number of the range. Who takes part is public.

    Parameters
    ----------
    domain
        One label a person, with levels such as wards; several axes for several entries a person.
    lower, upper
        The range of an entry, both ends included.

    Guarantees
    ----------
    1. With `ReplaceOne(records=m)`, m entries a person, Δ₁ = m(upper − lower) and
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

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise DomainError("Entries need a `Domain` with a label for every person.")
        for end in (self.lower, self.upper):
            if not isinstance(end, int) or isinstance(end, bool) or abs(end) >= 2**43:
                raise DomainError("`lower` and `upper` must be whole numbers below 2**43 in size.")
        if self.lower >= self.upper:
            raise DomainError("`lower` must be less than `upper`.")

    @property
    def axes(self) -> Domain:
        """The persons."""
        return self.domain

    @property
    def entry_range(self) -> tuple[int, int]:
        """From `lower` to `upper`."""
        return self.lower, self.upper

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the entries."""
        return self.domain.shape

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

    def checked(self, array: npt.NDArray[Any]) -> Int64Array:
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

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The labels of the persons."""
        from subspacedp.queries.linear import Cells

        return Cells(self.domain).columns()

    def as_dict(self) -> dict[str, Any]:
        """The persons and the range."""
        return {
            "kind": "entries",
            "domain": self.domain.as_list(),
            "lower": self.lower,
            "upper": self.upper,
        }

    def __repr__(self) -> str:
        return f"LocalEntries({self.lower} to {self.upper}, {self.domain!r})"
