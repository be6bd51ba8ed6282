"""An entry of the section `axes`: where labels come from and how they group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated

from subspacedp.io import bin_labels
from subspacedp.publication.fields import (
    Field,
    Labels,
    Levels,
    Number,
    Section,
    Strict,
    Text,
    Value,
    model_validator,
    rule,
    said,
)
from subspacedp.publication.spelling import nearest
from subspacedp.tables import Label

__all__ = ["FROM_DATA", "AxisEntry"]

FROM_DATA = "from-data"


class AxisEntry(Section):
    """One direction of the tables: where its labels come from and how they group."""

    model_config = rule(
        oneOf=[{"required": ["labels"]}, {"required": ["bins"]}, {"required": ["columns"]}],
        dependentSchemas={"columns": {"properties": {"column": False}}},
    )

    column: Text | None = Field(
        default=None, description="The column of the data; the axis' own name, if not given."
    )
    labels: Labels | None = Field(
        default=None,
        description="All labels: a list; the path of a public code list (csv), whose column named "
        "like the axis, or else the first, has the labels; or the word `from-data`, which reads "
        "them off the confidential data and protects them not at all.",
    )
    levels: Levels | None = Field(
        default=None,
        description="Coarser levels, finest first: columns of the code list, or for every level "
        "its groups and the labels in them.",
    )
    bins: Annotated[tuple[Number, ...], Strict(False)] | None = Field(
        default=None,
        description="Increasing edges for a column of numbers: [0, 5, 18] makes `0-4`, `5-17` and "
        "`18+`.",
    )
    columns: dict[Value, Text] | None = Field(
        default=None,
        description="For a wide table of counts: every label and the column with its counts.",
    )

    @model_validator(mode="after")
    def _check(self) -> AxisEntry:
        given = [name for name in ("labels", "bins", "columns") if getattr(self, name) is not None]
        if not given:
            raise said("needs `labels`, `bins` or `columns`")
        if len(given) > 1:
            raise said(f"cannot stand beside `{given[0]}`", given[1])
        if self.columns is not None:
            if self.column is not None:
                raise said("cannot stand beside `columns`", "column")
            if not self.columns:
                raise said("must not be empty", "columns")
        if self.bins is not None:
            _check_bins(self.bins)
        self._check_labels()
        self._check_levels()
        return self

    def _check_labels(self) -> None:
        text = self.labels if isinstance(self.labels, str) else None
        if text is not None and text != FROM_DATA and not text.casefold().endswith(".csv"):
            near = f"; did you mean `{FROM_DATA}`?" if nearest(text, [FROM_DATA]) else ""
            raise said(
                "must be a list in brackets, the path of a code list that ends in `.csv`, or "
                f"`{FROM_DATA}`{near}",
                "labels",
            )
        inline = self.inline or ()
        at = "columns" if self.columns is not None else "labels"
        if len({isinstance(label, str) for label in inline}) > 1:
            raise said("must be all text or all whole numbers; put the numbers in quotes", at)
        seen: set[Label] = set()
        for label in inline:
            if label in seen:
                raise said(f"has the label {label!r} more than once", at)
            seen.add(label)

    def _check_levels(self) -> None:
        if self.levels is None:
            return
        if self.labels == FROM_DATA:
            raise said("needs labels that are known; `from-data` has none", "levels")
        if self.code_list is not None and isinstance(self.levels, Mapping):
            raise said("must be a list of columns of the code list", "levels")
        if self.code_list is None and not isinstance(self.levels, Mapping):
            raise said("must give every level its groups, as the labels are listed here", "levels")
        names = list(self.levels)
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise said(f"has the level `{repeated}` more than once", "levels")

    @property
    def code_list(self) -> str | None:
        """The path of the code list, where there is one."""
        return self.labels if isinstance(self.labels, str) and self.labels != FROM_DATA else None

    @property
    def from_data(self) -> bool:
        """Whether the labels are read off the confidential data."""
        return self.labels == FROM_DATA

    @property
    def inline(self) -> tuple[Label, ...] | None:
        """The labels that stand in the specification itself."""
        if self.columns is not None:
            return tuple(self.columns)
        if self.bins is not None:
            return bin_labels(self.bins)
        return self.labels if isinstance(self.labels, tuple) else None

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the coarser levels, finest first."""
        return tuple(self.levels or ())


def _check_bins(edges: Sequence[float]) -> None:
    if len(edges) < 2:
        raise said("needs at least two edges", "bins")
    for a, b in pairwise(edges):
        if b <= a:
            raise said(f"must increase; got {b:g} after {a:g}", "bins")
    if max(abs(edge) for edge in edges) >= 2**53:
        raise said("must be below 2**53 in size", "bins")
