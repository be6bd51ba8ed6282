"""The section `inequalities`: what is publicly known of the counts beside what is held."""

from __future__ import annotations

from typing import Annotated

from subspacedp.io.foreign import is_list
from subspacedp.publication.faults import shown
from subspacedp.publication.fields import (
    BeforeValidator,
    Discriminator,
    Field,
    Section,
    Strict,
    Tag,
    Text,
    Texts,
    Value,
    said,
)

__all__ = ["InequalitiesEntry", "LimitEntry"]

LARGEST = 2**52 - 1  # sums of float64 beyond it may be rounded


def _limit(value: object) -> object:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number and not (isinstance(value, str) and is_list(value)):
        raise said(
            "must be a whole number, or the path of a csv file with one for every total; got "
            f"{shown(value)}"
        )
    return value


LimitValue = Annotated[
    Annotated[Text, Tag("#text")]
    | Annotated[Annotated[int, Field(ge=0, le=LARGEST)], Tag("#number")],
    Discriminator(lambda value: "#text" if isinstance(value, str) else "#number"),
    BeforeValidator(_limit),
]


class LimitEntry(Section):
    """A public limit of every total of a margin."""

    margin: Texts = Field(description="Its axes or levels; [] for the grand total.")
    limit: LimitValue = Field(
        description="What every total is at most: a whole number; or the path of a csv file of "
        "public limits, relative to this file, with the labels of the margin in columns of its "
        "levels' names, and the limits in `value`."
    )

    @property
    def path(self) -> str | None:
        """The file of the limits, where they are in one."""
        return self.limit if isinstance(self.limit, str) else None


def _pair(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise said(
            f"must be a part and its whole, such as [households, persons]; got {shown(value)}"
        )
    return value


Pair = Annotated[tuple[Value, Value], Strict(False), BeforeValidator(_pair)]


class InequalitiesEntry(Section):
    """What everybody knows of the counts, from public sources and never from the data.

    Counts are not negative, which an empty section says by itself.
    """

    at_most: Annotated[tuple[LimitEntry, ...], Strict(False)] = Field(
        default=(), description="Margins whose totals have public limits."
    )
    part_of: Annotated[tuple[Pair, ...], Strict(False)] = Field(
        default=(),
        description="Pairs of labels of one axis, a part and its whole: in every combination of "
        "the other axes the part counts at most as much as the whole.",
    )
