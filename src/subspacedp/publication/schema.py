"""The keys of a specification, each with its meaning; the JSON Schema is made from them.

`specification.schema.json` is what editors read. It is written by

    python -c "from subspacedp.publication.schema import write_schema; write_schema()"

and a test keeps it in step with the models here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from subspacedp.io import bin_labels
from subspacedp.publication.reading import Place, missing_extra, nearest, source_problem
from subspacedp.release import MAX_DECIMALS
from subspacedp.tables import Label

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
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import PydanticCustomError
except ImportError:
    raise missing_extra() from None

__all__ = [
    "FROM_DATA",
    "ROW",
    "AxisEntry",
    "Counts",
    "Data",
    "Document",
    "Ledger",
    "Privacy",
    "Publish",
    "Sum",
    "TableEntry",
    "generated_schema",
    "home_of",
    "known_keys",
    "specification_schema",
    "write_schema",
]

FROM_DATA = "from-data"
ROW = "row"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def said(what: str, *at: str) -> PydanticCustomError:
    """An error in our own words, at a key of the model that raises it."""
    return PydanticCustomError("said", "{what}", {"what": what, "at": at})


def _label(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if not whole and not isinstance(value, str):
        raise PydanticCustomError("label", "not a label")
    return value


def _labels(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise said("must be a list of labels, the path of a code list, or `from-data`")
    return value


def _levels(value: object) -> object:
    if not isinstance(value, Mapping | list | tuple):
        raise said("must be a list of columns of the code list, or give every level its groups")
    return value


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
Margins = Annotated[tuple[Texts, ...], Strict(False)]
Labels = Annotated[
    Annotated[Values, Tag("#list")] | Annotated[Text, Tag("#text")],
    Discriminator(lambda value: "#text" if isinstance(value, str) else "#list"),
    BeforeValidator(_labels),
]
Levels = Annotated[
    Annotated[Texts, Tag("#list")] | Annotated[dict[Text, dict[Value, Values]], Tag("#mapping")],
    Discriminator(lambda value: "#mapping" if isinstance(value, Mapping) else "#list"),
    BeforeValidator(_levels),
]


class _Section(BaseModel):
    """Keys and nothing but these; values of their type and no other; not to be changed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _rule(**schema: Any) -> ConfigDict:
    """What JSON Schema is to say about a section beyond its keys."""
    return ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=schema)


class Counts(_Section):
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


class Data(_Section):
    """The confidential data: records of persons, or a table that was counted before."""

    model_config = _rule(
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
    counts: Counts | None = Field(
        default=None, description="A table that was counted before, instead of records."
    )

    @model_validator(mode="after")
    def _check(self) -> Data:
        if self.counts is not None:
            for name in ("source", "unit", "table", "key"):
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
        if self.unit == ROW and self.key is not None:
            raise said("needs a column as `unit`", "key")
        if self.per_cell is not None and self.per_cell > self.records:
            raise said(
                f"must be at most `records`; got {self.per_cell} > {self.records}", "per_cell"
            )
        return self

    @property
    def where(self) -> str:
        """The path or address of the data."""
        return self.counts.source if self.counts else self.source or ""


class AxisEntry(_Section):
    """One direction of the tables: where its labels come from and how they group."""

    model_config = _rule(
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


class Privacy(_Section):
    """What is promised, and for which change of the data."""

    model_config = _rule(
        oneOf=[{"required": ["epsilon"]}, {"required": ["rho"]}, {"required": ["mu"]}],
        dependentRequired={"delta": ["epsilon"]},
    )

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


class TablePublish(_Section):
    """In which form a table is written."""

    decimals: Annotated[
        Annotated[int, Field(ge=0, le=MAX_DECIMALS)] | None,
        WithJsonSchema({"type": ["integer", "null"], "minimum": 0, "maximum": MAX_DECIMALS}),
    ] = Field(
        default=None,
        description="Digits after the point that add up exactly, 0 for whole numbers; null for "
        "real values.",
    )
    margins: Margins = Field(
        default=(), description="Further margins to publish beside the cells; they cost nothing."
    )
    non_negative: bool = Field(
        default=False,
        description="Whether to publish, beside the unbiased values, the nearest table without "
        "negative ones, which is biased.",
    )


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


class Sum(_Section):
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


class TableEntry(_Section):
    """One of several tables that share the data and the budget."""

    axes: Annotated[tuple[Text, ...], Strict(False), Field(min_length=1)] = Field(
        description="The axes of this table, of those that `axes` defines."
    )
    hold: Margins = Field(default=(), description="Margins that are published exactly.")
    share: Share | None = Field(
        default=None,
        description="The part of the budget for this table; all shares together are at most 1.",
    )
    mechanism: Literal["auto", "projected", "extended"] | None = Field(
        default=None, description="As above, for this table alone."
    )
    publish: TablePublish | None = Field(
        default=None, description="As above, for this table alone; other keys stay as above."
    )
    sums: dict[Text, Sum] = Field(
        default_factory=dict, description="Clipped sums of a value beside the counts."
    )


class Ledger(_Section):
    """The account that the budget is taken from."""

    ledger: Text = Field(description="Path or address of the ledger.")
    account: Text = Field(description="The account within the ledger.")


class Document(_Section):
    """The specification of a publication: data, axes, what is held, the budget, the files."""

    model_config = _rule(
        **{"not": {"anyOf": [{"required": ["tables", name]} for name in ("hold", "sums")]}}
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
    mechanism: Literal["auto", "projected", "extended"] = Field(
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

    @model_validator(mode="after")
    def _check(self) -> Document:
        if self.tables is not None:
            for name in self.only_one_table:
                if getattr(self, name):
                    raise said("must stand in each of the `tables`", name)
            if self.publish.margins:
                raise said("must stand in each of the `tables`", "publish", "margins")
        return self


def _check_bins(edges: Sequence[float]) -> None:
    if len(edges) < 2:
        raise said("needs at least two edges", "bins")
    for a, b in pairwise(edges):
        if b <= a:
            raise said(f"must increase; got {b:g} after {a:g}", "bins")
    if max(abs(edge) for edge in edges) >= 2**53:
        raise said("must be below 2**53 in size", "bins")


def _check_source(source: str, table: str | None) -> None:
    problem = source_problem(source, table)
    if problem is not None:
        raise said(problem, "source")


# ----------------------------------------------------------------------------------- JSON Schema


class _Generator(GenerateJsonSchema):
    """Keys that are absent or have a value, never null; no titles made of names."""

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def _schema() -> dict[str, Any]:
    made = Document.model_json_schema(schema_generator=_Generator)
    titled = {
        "$schema": DIALECT,
        "$id": "urn:subspacedp:specification:1",
        "title": "Specification of a subspacedp publication",
    }
    _untitle(made)
    return titled | made


def _untitle(schema: dict[str, Any]) -> None:
    for section in (schema, *schema["$defs"].values()):
        section.pop("title", None)


def generated_schema() -> str:
    """The JSON Schema as the models give it."""
    return json.dumps(_schema(), indent=2, ensure_ascii=False) + "\n"


def specification_schema() -> str:
    """The JSON Schema of a specification, as text."""
    return (files("subspacedp.publication") / "specification.schema.json").read_text("utf-8")


def write_schema() -> None:
    """Write the JSON Schema beside this file."""
    Path(__file__).with_name("specification.schema.json").write_text(generated_schema(), "utf-8")


def known_keys(path: Place) -> list[str]:
    """The keys that may stand at a place."""
    schema = _schema()
    for key in path:
        properties = schema.get("properties", {})
        inner = properties.get(key, schema.get("additionalProperties", {}))
        schema = _resolve(inner if isinstance(inner, dict) else {})
    return list(schema.get("properties", {}))


def home_of(key: str) -> str | None:
    """Where a key belongs that was found somewhere else, in words; None for an unknown key."""
    for path in _places(_schema(), ()):
        if path[-1] == key:
            top = len(path) == 1
            return (
                "it belongs at the top of the file" if top else f"did you mean `{'.'.join(path)}`?"
            )
    return None


def _places(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All keys, those nearest to the top first."""
    inner = [(key, _resolve(value)) for key, value in schema.get("properties", {}).items()]
    yield from ((*path, key) for key, _ in inner)
    for key, value in inner:
        yield from _places(value, (*path, key))
        named = value.get("additionalProperties")
        if isinstance(named, dict):
            yield from _places(_resolve(named), (*path, key, "<name>"))


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    found = _schema()["$defs"][reference.rpartition("/")[2]] if reference else schema
    return dict(found)
