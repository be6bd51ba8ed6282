"""The sections of what is published: tables, their sums, and the files they are written to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subspacedp.mechanisms import OPTIONS
from subspacedp.problem import MAX_DECIMALS
from subspacedp.publication.fields import (
    BeforeValidator,
    Field,
    Margins,
    Number,
    Positive,
    Section,
    Share,
    Strict,
    Text,
    Weights,
    WithJsonSchema,
    model_validator,
    said,
)
from subspacedp.publication.problems import shown

__all__ = ["MechanismName", "Publish", "Sum", "TableEntry", "TablePublish", "replaced"]

if TYPE_CHECKING:
    MechanismName = str
else:
    MechanismName = Literal[("auto", *OPTIONS)]


AT_MOST = re.compile(r"^at most \+?(\d+(\.\d+)?) ?%$")


def _cells(value: object) -> object:
    allowed = isinstance(value, bool) or (isinstance(value, str) and AT_MOST.search(value))
    if not allowed:
        raise said(f"must be true, false or a limit such as `at most +5 %`; got {shown(value)}")
    return value


class TablePublish(Section):
    """In which form a table is written."""

    decimals: Annotated[
        Annotated[int, Field(ge=0, le=MAX_DECIMALS)] | None,
        WithJsonSchema({"type": ["integer", "null"], "minimum": 0, "maximum": MAX_DECIMALS}),
    ] = Field(
        default=None,
        description="Digits after the point that add up exactly, 0 for whole numbers; null for "
        "real values.",
    )
    cells: Annotated[
        bool | str,
        BeforeValidator(_cells),
        WithJsonSchema(
            {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": AT_MOST.pattern}]}
        ),
    ] = Field(
        default=True,
        description="Whether the cells are published. With false, noise is designed for exactly "
        "the `margins`, and a table of all cells is never built, so it may have any size. With "
        "`at most +5 %`, noise is designed for the margins too as long as the mean squared error "
        "of the cells grows by no more than that.",
    )
    margins: Margins = Field(
        default=(),
        description="Further margins to publish beside the cells; with `cells: false`, all that is "
        "published. Noise is designed for all of them, unless `mechanism` says otherwise.",
    )
    weights: Weights | None = Field(
        default=None,
        description="What the squared error of each margin counts for when the noise is shared "
        "out, one number a margin, the cells first where they are published; if not given, every "
        "table's error counts in multiples of the least it could have.",
    )
    non_negative: bool = Field(
        default=False,
        description="Whether to publish, beside the unbiased values, the nearest table without "
        "negative ones, which is biased.",
    )

    @property
    def cells_at_most(self) -> float | None:
        """What the squared error of the cells may be, in multiples of the least; None: no limit."""
        limit = None if isinstance(self.cells, bool) else AT_MOST.search(self.cells)
        return None if limit is None else 1 + float(limit[1]) / 100


class Publish(TablePublish):
    """What is written, where, and in which form."""

    to: Text | None = Field(
        default=None,
        description="Folder of the release, relative to this file; `release` if not given. With "
        "`tables`, each table has a folder of its own in it.",
    )
    sign: Text | None = Field(
        default=None, description="Path of the private key (pem) that signs the release."
    )


class Sum(Section):
    """Sums of a value over the records of each cell; each value clipped to a public range."""

    column: Text | None = Field(
        default=None, description="The column with the value; the sum's own name, if not given."
    )
    lower: Number = Field(description="Values below are moved up to it. Public.")
    upper: Number = Field(description="Values above are moved down to it. Public.")
    unit: Positive = Field(default=1.0, description="Values are rounded to multiples of it.")
    share: Share = Field(
        description="The part of the table's budget for these sums; the counts keep the rest."
    )

    @model_validator(mode="after")
    def _check(self) -> Sum:
        if self.lower >= self.upper:
            raise said(f"must be below `upper`; got {self.lower:g} >= {self.upper:g}", "lower")
        most = max(abs(self.lower), abs(self.upper)) / self.unit
        if not 0.5 < most < 2**31 - 1:
            raise said(f"must cut the range into 1 to 2**31 units; got {most:.3g} of them", "unit")
        return self


def replaced(data: dict[str, Any]) -> None:
    """Refuse what earlier versions had for noise at several levels, and say what to write now."""
    now = (
        "write `mechanism: marginals` (or leave it out), and under `publish: margins` the tables "
        "of the levels that count, such as [state, sex]"
    )
    if data.get("mechanism") == "hierarchical":
        raise said(f"may no longer be `hierarchical`; {now}", "mechanism")
    if "levels" in data:
        raise said(f"is no longer a key here; {now}", "levels")
    if "importance" in data:
        raise said(f"is now `weights` under `publish`, one number a table; {now}", "importance")


class TableEntry(Section):
    """One of several tables that share the data and the budget."""

    axes: Annotated[tuple[Text, ...], Strict(False), Field(min_length=1)] = Field(
        description="The axes of this table, of those that `axes` defines."
    )
    hold: Margins = Field(default=(), description="Margins that are published exactly.")
    share: Share | None = Field(
        default=None,
        description="The part of the budget for this table; all shares together are at most 1.",
    )
    mechanism: MechanismName | None = Field(
        default=None, description="As above, for this table alone."
    )
    publish: TablePublish | None = Field(
        default=None, description="As above, for this table alone; other keys stay as above."
    )
    sums: dict[Text, Sum] = Field(
        default_factory=dict, description="Clipped sums of a value beside the counts."
    )

    @model_validator(mode="before")
    @classmethod
    def _replaced(cls, data: Any) -> Any:
        """Keys and names of earlier versions, with what to write now."""
        if isinstance(data, dict):
            replaced(data)
        return data
