"""Neighbour relations: what one person's data may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from subspacedp.errors import BudgetError
from subspacedp.frozen import frozen


@frozen(kw_only=True)
class Neighbours:
    """Common part of the two relations: how many records a person may have, and where.

    Parameters
    ----------
    records
        The most records one person contributes to the table.
    per_cell
        The most of these that fall in one cell; by default all of them may.
    """

    records: int = 1
    per_cell: int | None = None

    name: ClassVar[str] = ""
    done: ClassVar[str] = ""  # what a change does to a person's records, in words
    persons: ClassVar[int] = 1  # how many person contributions a change removes and adds

    def __post_init__(self) -> None:
        _check_positive("records", self.records)
        if self.per_cell is not None:
            _check_positive("per_cell", self.per_cell)
            if self.per_cell > self.records:
                raise BudgetError(
                    f"`per_cell` must be at most `records`; got {self.per_cell} > {self.records}."
                )

    def as_dict(self) -> dict[str, Any]:
        """The relation as plain data."""
        return {"name": self.name, "records": self.records, "per_cell": self.per_cell}

    @property
    def l1(self) -> int:
        """The ℓ₁ sensitivity Δ₁ of the table of counts."""
        return self.persons * self.records

    @property
    def l2_squared(self) -> int:
        """The squared ℓ₂ sensitivity Δ₂² of the table of counts, an integer.

        A person's records make a vector u ≥ 0 with ‖u‖₁ ≤ m and entries at most k; ‖u‖₂² is
        largest when as many cells as possible are full: q k² + r² with q, r = divmod(m, k). A
        replacement moves by u − v with u, v ≥ 0, so ‖u − v‖² ≤ ‖u‖² + ‖v‖².
        """
        k = self.per_cell or self.records
        full, rest = divmod(self.records, k)
        return self.persons * (full * k * k + rest * rest)

    @property
    def keeps_total(self) -> bool:
        """Whether no neighbouring change can alter the grand total."""
        return False

    def loosened(self) -> Self:
        """The relation with the same bounds under which the grand total may change too."""
        return self

    def when_capped(self) -> str:
        """The change in words where a person may have more records and only so many count.

        >>> ReplaceOne(records=2).when_capped()
        "one person's records, of which at most 2 count, replaced by others"
        """
        verb = "counts" if self.records == 1 else "count"
        cell = f", at most {self.per_cell} of them in a cell" if self.per_cell else ""
        counted = f"of which at most {self.records:,} {verb}{cell}"
        return f"one person's records, {counted}, {self.done}"


@frozen(kw_only=True)
class ReplaceOne(Neighbours):
    """One person's records are exchanged for others (the paper's relation).

    Parameters
    ----------
    exactly
        Whether every person has exactly `records` records, so that the grand total is the same in
        neighbouring tables. By default so for one record per person, and not for several.

    Examples
    --------
    >>> ReplaceOne().l1, ReplaceOne().l2_squared, ReplaceOne().keeps_total
    (2, 2, True)
    >>> ReplaceOne(records=5, per_cell=2).l2_squared
    18
    """

    exactly: bool | None = None

    name: ClassVar[str] = "replace-one"
    done: ClassVar[str] = "replaced by others"
    persons: ClassVar[int] = 2

    def as_dict(self) -> dict[str, Any]:
        """The relation as plain data."""
        return {**super().as_dict(), "exactly": self.keeps_total}

    @property
    def keeps_total(self) -> bool:
        """Whether no neighbouring change can alter the grand total."""
        return self.records == 1 if self.exactly is None else self.exactly

    def loosened(self) -> Self:
        """Without `exactly`."""
        return replace(self, exactly=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exactly is not None and not isinstance(self.exactly, bool):
            raise BudgetError(f"`exactly` must be True, False or None; got {self.exactly!r}.")
        # One spelling of one relation: releases made and loaded again must agree.
        object.__setattr__(self, "exactly", self.keeps_total)

    def __str__(self) -> str:
        if self.records == 1 and self.keeps_total:
            return "one person's record replaced by another"
        return f"one person's {_records(self, exactly=self.keeps_total)} replaced by others"


@frozen(kw_only=True)
class AddRemoveOne(Neighbours):
    """One person's records are added or removed.

    >>> AddRemoveOne().l1, AddRemoveOne().l2_squared
    (1, 1)
    """

    name: ClassVar[str] = "add-remove-one"
    done: ClassVar[str] = "added or removed"
    persons: ClassVar[int] = 1

    def __str__(self) -> str:
        if self.records == 1:
            return "one person's record added or removed"
        return f"one person's {_records(self)} added or removed"


RELATIONS: dict[str, type[Neighbours]] = {kind.name: kind for kind in (ReplaceOne, AddRemoveOne)}


def neighbours_from(data: Mapping[str, Any]) -> Neighbours:
    """The relation that plain data state, with its own checks."""
    fields = dict(data)
    kind = RELATIONS.get(str(fields.pop("name")))
    if kind is None:
        raise BudgetError("its neighbour relation is unknown.")
    return kind(**fields)


def _records(neighbours: Neighbours, *, exactly: bool = False) -> str:
    number = "exactly" if exactly else "at most"
    cap = f", at most {neighbours.per_cell} in a cell" if neighbours.per_cell else ""
    return f"records ({number} {neighbours.records}{cap})"


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BudgetError(f"`{name}` must be a whole number of at least 1; got {value!r}.")
    if value >= 2**31:
        raise BudgetError(f"`{name}` must be below 2**31.")
