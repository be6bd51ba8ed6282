"""The section `data`: where the confidential data are, and whose privacy is protected."""

from __future__ import annotations

from typing import Literal

from subspacedp.publication.addresses import source_problem
from subspacedp.publication.fields import Field, Persons, Section, Text, model_validator, rule, said

__all__ = ["ROW", "Counts", "Data"]

ROW = "row"


class Counts(Section):
    """A table that was counted before: one row a cell, or several cells side by side in a row."""

    source: Text = Field(
        description="Path of the counted table, relative to this file, or an address such as "
        "postgresql://host/database. Confidential."
    )
    value: Text | None = Field(
        default=None,
        description="The column with the counts; none where an axis lists `columns`.",
    )
    table: Text | None = Field(default=None, description="The table within a database.")

    @model_validator(mode="after")
    def _check(self) -> Counts:
        _check_source(self.source, self.table)
        return self


class Data(Section):
    """The confidential data: records of persons, or a table that was counted before."""

    model_config = rule(
        oneOf=[{"required": ["source", "unit"]}, {"required": ["counts"]}],
        dependentRequired={"unit": ["source"], "table": ["source"], "key": ["source"]},
    )

    source: Text | None = Field(
        default=None,
        description="Path of the records, relative to this file, or an address such as "
        "postgresql://host/database or spark:local[2] with `table`. Confidential.",
    )
    unit: Text | None = Field(
        default=None,
        description="Whose privacy is protected: the column that says which person a record is "
        "of, or the word `row` where every row is another person.",
    )
    records: Persons = Field(
        default=1,
        description="The most records that one person has in a table. With `unit` a column, "
        "further records are left out; with `counts` it is a claim about the data.",
    )
    per_cell: Persons | None = Field(
        default=None,
        description="The most of these records that fall in one cell; all of them, if not given.",
    )
    table: Text | None = Field(default=None, description="The table within a database.")
    key: Text | None = Field(
        default=None,
        description="Any text; decides which records stay of a person who has more than `records`. "
        "It need not be secret, and must not be chosen in view of the data.",
    )
    without_unit: Literal["refuse", "leave-out"] | None = Field(
        default=None,
        description="What to do with records that do not say which person they are of: `refuse`, "
        "if not given; `leave-out` of everything, held totals included.",
    )
    counts: Counts | None = Field(
        default=None, description="A table that was counted before, instead of records."
    )

    @model_validator(mode="after")
    def _check(self) -> Data:
        if self.counts is not None:
            for name in ("source", "unit", "table", "key", "without_unit"):
                if getattr(self, name) is not None:
                    raise said("is for records and cannot stand beside `counts`", name)
        elif self.source is None:
            raise said("needs `source` and `unit`, or `counts`")
        elif self.unit is None:
            raise said("needs `unit`: a column that names the person, or `row`")
        else:
            _check_source(self.source, self.table)
        if self.unit == ROW and self.records > 1:
            raise said("must be 1 with `unit: row`, where every row is another person", "records")
        for name in ("key", "without_unit"):
            if self.unit == ROW and getattr(self, name) is not None:
                raise said("needs a column as `unit`", name)
        if self.per_cell is not None and self.per_cell > self.records:
            raise said(
                f"must be at most `records`; got {self.per_cell} > {self.records}", "per_cell"
            )
        return self

    @property
    def where(self) -> str:
        """The path or address of the data."""
        return self.counts.source if self.counts else self.source or ""


def _check_source(source: str, table: str | None) -> None:
    problem = source_problem(source, table)
    if problem is not None:
        raise said(problem, "source")
