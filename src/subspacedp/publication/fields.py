"""What the sections of a specification are made of: types of values, and an error at a key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from subspacedp.publication.faults import missing_extra, shown

try:
    from pydantic import (
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Discriminator,
        Field,
        Strict,
        Tag,
        WithJsonSchema,
        model_validator,
    )
    from pydantic_core import PydanticCustomError
except ImportError:
    raise missing_extra() from None

__all__ = [
    "LIST_OR_MAPPING",
    "TEXT_OR_MAPPING",
    "TEXT_OR_NUMBER",
    "BeforeValidator",  # pydantic's own, so that one place knows that it may be missing
    "Edges",
    "Field",
    "Labels",
    "Levels",
    "Margins",
    "Number",
    "Persons",
    "Positive",
    "Section",
    "Share",
    "Strict",
    "Tag",
    "Text",
    "Texts",
    "Titles",
    "Value",
    "Weights",
    "WithJsonSchema",
    "model_validator",
    "only",
    "rule",
    "said",
]


def said(what: str, *at: str) -> PydanticCustomError:
    """An error in our own words, at a key of the model that raises it."""
    return PydanticCustomError("said", "{what}", {"what": what, "at": at})


def _label(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if not whole and not isinstance(value, str):
        raise PydanticCustomError("label", "not a label")
    return value


def only(kinds: Any, rule: str, *, quoted: bool = True) -> BeforeValidator:
    """A check that a value is of some kinds; the sentence quotes what it is."""

    def check(value: object) -> object:
        if not isinstance(value, kinds):
            raise said(f"{rule}; got {shown(value)}" if quoted else rule)
        return value

    return BeforeValidator(check)


def _edge(value: object) -> object:
    if isinstance(value, str):
        return value
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # refused
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise said(f"must be a finite number, or a day in quotes; got {shown(value)}")
    return number


# Which of two forms a value has, beside a mapping.
TEXT_OR_MAPPING = Discriminator(lambda value: "#text" if isinstance(value, str) else "#mapping")
LIST_OR_MAPPING = Discriminator(
    lambda value: "#list" if isinstance(value, list | tuple) else "#mapping"
)
TEXT_OR_NUMBER = Discriminator(lambda value: "#text" if isinstance(value, str) else "#number")

DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
Text = Annotated[str, Field(min_length=1)]
Value = Annotated[
    str | int, BeforeValidator(_label), WithJsonSchema({"type": ["string", "integer"]})
]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Persons = Annotated[int, Field(ge=1, lt=2**31)]
# YAML gives lists; the models keep tuples, which cannot be changed.
Texts = Annotated[tuple[Text, ...], Strict(False)]
Values = Annotated[tuple[Value, ...], Strict(False), Field(min_length=1)]
Edges = Annotated[
    tuple[
        Annotated[
            Any,
            BeforeValidator(_edge),
            WithJsonSchema({"type": ["number", "string"], "pattern": DAY}),
        ],
        ...,
    ],
    Strict(False),
]
Margins = Annotated[tuple[Texts, ...], Strict(False)]
Weights = Annotated[
    tuple[Annotated[float, Field(ge=1e-12, le=1e12)], ...], Strict(False), Field(min_length=1)
]
Labels = Annotated[
    Annotated[Values, Tag("#list")]
    | Annotated[Text, Tag("#text")]
    | Annotated[Annotated[dict[Value, Text], Field(min_length=1)], Tag("#mapping")],
    Discriminator(
        lambda value: (
            "#text"
            if isinstance(value, str)
            else "#mapping"
            if isinstance(value, Mapping)
            else "#list"
        )
    ),
    only(
        str | list | tuple | Mapping,
        "must be a list of labels, the path of a code list, or `from-data`",
        quoted=False,
    ),
]
Levels = Annotated[
    Annotated[Texts, Tag("#list")] | Annotated[dict[Text, dict[Value, Values]], Tag("#mapping")],
    LIST_OR_MAPPING,
    only(
        Mapping | list | tuple,
        "must be a list of columns of the code list, or give every level its groups",
        quoted=False,
    ),
]
Title = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Titles = Annotated[
    Annotated[Title, Tag("#text")]
    | Annotated[Annotated[dict[Text, Title], Field(min_length=1)], Tag("#mapping")],
    TEXT_OR_MAPPING,
    only(str | Mapping, "must be a text, or give names their titles"),
]


class Section(BaseModel):
    """Keys and nothing but these; values of their type and no other; not to be changed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


def rule(**schema: Any) -> ConfigDict:
    """What JSON Schema is to say about a section beyond its keys."""
    return ConfigDict(
        strict=True, extra="forbid", frozen=True, defer_build=True, json_schema_extra=schema
    )
