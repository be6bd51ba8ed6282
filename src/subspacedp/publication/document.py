"""All keys of a specification, and the sections of its budget."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from subspacedp.publication.addresses import ledger_problem
from subspacedp.publication.axis_section import AxisEntry
from subspacedp.publication.data_section import Data
from subspacedp.publication.fields import (
    Field,
    Margins,
    Positive,
    Section,
    Text,
    model_validator,
    rule,
    said,
)
from subspacedp.publication.table_sections import MechanismName, Publish, Sum, TableEntry, replaced

__all__ = ["Document", "Ledger", "Privacy"]


class Privacy(Section):
    """What is promised, and for which change of the data."""

    model_config = rule(
        oneOf=[{"required": ["epsilon"]}, {"required": ["rho"]}, {"required": ["mu"]}],
        dependentRequired={"delta": ["epsilon"]},
    )
    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "delta", "rho", "mu")

    epsilon: Positive | None = Field(
        default=None, description="ε of (ε, δ)-differential privacy, or of pure where δ is absent."
    )
    delta: Annotated[Positive, Field(lt=1)] | None = Field(
        default=None, description="δ, beside `epsilon`; below 1, and best far below 1/persons."
    )
    rho: Positive | None = Field(
        default=None, description="ρ of zero-concentrated differential privacy."
    )
    mu: Positive | None = Field(default=None, description="μ of Gaussian differential privacy.")
    neighbours: Literal["replace-one", "add-remove-one", "add-remove"] = Field(
        default="replace-one",
        description="The change that is protected: one person's records replaced by others, or "
        "added or removed (`add-remove` for short).",
    )
    exactly: bool | None = Field(
        default=None,
        description="With replace-one: whether every person has exactly `records` records, so "
        "that the grand total cannot change. If not given, so for one record and not for several.",
    )

    @model_validator(mode="after")
    def _check(self) -> Privacy:
        given = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        if not given:
            raise said("needs a budget: `epsilon`, `epsilon` and `delta`, `rho`, or `mu`")
        if len(given) > 1:
            raise said(f"cannot stand beside `{given[0]}`; a budget is one of the two", given[1])
        if self.delta is not None and self.epsilon is None:
            raise said("needs `epsilon` beside it", "delta")
        if self.exactly is not None and self.neighbours != "replace-one":
            raise said("is for `neighbours: replace-one`", "exactly")
        return self


class Ledger(Section):
    """The account that the budget is taken from."""

    ledger: Text = Field(description="Path or address of the ledger.")
    account: Text = Field(description="The account within the ledger.")

    @model_validator(mode="after")
    def _check(self) -> Ledger:
        problem = ledger_problem(self.ledger)
        if problem is not None:
            raise said(problem, "ledger")
        return self


def _for_one_table(given: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """What JSON Schema asks of a file without `tables`; with them, keys may stand apart."""
    return {"if": {"not": {"required": ["tables"]}, **given}, "then": then}


def _publishing(properties: dict[str, Any]) -> dict[str, Any]:
    section = {"properties": properties, "required": list(properties)}
    return {"properties": {"publish": section}, "required": ["publish"]}


class Document(Section):
    """The specification of a publication: data, axes, what is held, the budget, the files."""

    model_config = rule(
        **{"not": {"anyOf": [{"required": ["tables", name]} for name in ("hold", "sums")]}},
        allOf=[
            _for_one_table(
                _publishing({"cells": {"const": False}}),
                _publishing({"margins": {"minItems": 1}}),
            ),
        ],
    )
    only_one_table: ClassVar[tuple[str, ...]] = ("hold", "sums")

    title: Text | None = Field(default=None, description="Title of the report.")
    about: Text | None = Field(
        default=None, description="What the tables are about and who publishes them."
    )
    contact: Text | None = Field(default=None, description="Whom readers may ask.")
    data: Data = Field(description="The confidential data.")
    axes: Annotated[dict[Text, AxisEntry], Field(min_length=1)] = Field(
        description="The axes, by name; a table has one cell for every combination of labels."
    )
    hold: Margins = Field(
        default=(),
        description="Margins that are published exactly: each a list of axes or levels, [] for "
        "the grand total. What is held is not protected.",
    )
    privacy: Privacy = Field(description="The budget, for all tables together.")
    mechanism: MechanismName = Field(
        default="auto", description="How noise and held totals are brought together."
    )
    publish: Publish = Field(
        default_factory=Publish, description="What is written, where, and in which form."
    )
    sums: dict[Text, Sum] = Field(
        default_factory=dict, description="Clipped sums of a value beside the counts."
    )
    tables: Annotated[dict[Text, TableEntry], Field(min_length=1)] | None = Field(
        default=None, description="Several tables from the same data and budget, by name."
    )
    budget: Ledger | None = Field(
        default=None, description="The account that the budget is taken from."
    )

    @model_validator(mode="before")
    @classmethod
    def _replaced(cls, data: Any) -> Any:
        """Keys and names of earlier versions, with what to write now."""
        if isinstance(data, dict):
            replaced(data)
        return data

    @model_validator(mode="after")
    def _check(self) -> Document:
        if self.tables is not None:
            for name in self.only_one_table:
                if getattr(self, name):
                    raise said("must stand in each of the `tables`", name)
            for name in ("margins", "weights"):
                if getattr(self.publish, name):
                    raise said("must stand in each of the `tables`", "publish", name)
        return self
