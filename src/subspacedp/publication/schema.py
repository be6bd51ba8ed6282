"""The JSON Schema of a specification, made from its sections, and the keys that it knows.

`specification.schema.json` is what editors read. It is written by

    python -c "from subspacedp.publication.schema import write_schema; write_schema()"

and a test keeps it in step with the sections.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from subspacedp.publication.document import Document
from subspacedp.publication.faults import Fault, Loaded, Place, missing_extra, nearest, shown

try:
    from pydantic.json_schema import GenerateJsonSchema
except ImportError:
    raise missing_extra() from None


UNIONS = {"[key]", "#list", "#text", "#mapping", "#number"}  # in the places that pydantic tells
DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
    generated = Document.model_json_schema(schema_generator=_Generator)
    titled = {
        "$schema": DIALECT,
        "$id": "urn:subspacedp:specification:1",
        "title": "Specification of a subspacedp publication",
    }
    _untitle(generated)
    return titled | generated


def _untitle(schema: dict[str, Any]) -> None:
    for section in (schema, *schema["$defs"].values()):
        section.pop("title", None)


def generated_schema() -> str:
    """The JSON Schema as the models give it."""
    return json.dumps(_schema(), indent=2, ensure_ascii=False) + "\n"


def specification_schema() -> str:
    """The JSON Schema of a specification, as text."""
    from importlib.resources import files

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
        if isinstance(key, int):
            inner = schema.get("items", {})
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
    """A section by its reference; of several forms, the one with keys."""
    forms = [
        form for form in (*schema.get("oneOf", ()), *schema.get("anyOf", ())) if "$ref" in form
    ]
    reference = (schema | (forms[0] if forms else {})).get("$ref")
    resolved = _schema()["$defs"][reference.rpartition("/")[2]] if reference else schema
    return dict(resolved)


def scan(loaded: Loaded, may_be_empty: Iterable[str]) -> list[Fault]:
    """Values that are nothing, and keys that are neither text nor whole numbers."""
    allowed, faults = set(may_be_empty), []

    def visit(value: Any, path: Place) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str | int) or isinstance(key, bool):
                    faults.append(Fault(path, f"has the key {shown(key)}; put it in quotes"))
                else:
                    visit(item, (*path, key))
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                visit(item, (*path, i))
        elif value is None and (not path or path[-1] not in allowed):
            text = loaded.texts.get(path)
            hint = f"put `{text}` in quotes" if text else "give it a value or leave it out"
            faults.append(Fault(path, f"is empty; {hint}"))

    visit(loaded.data, ())
    return faults


def faults_of(errors: Iterable[Mapping[str, Any]], loaded: Loaded) -> list[Fault]:
    """Our faults for pydantic's errors, which `ValidationError.errors()` lists."""
    faults: list[Fault] = []
    meant: set[Place] = set()  # keys that are missing because they are misspelt
    known = list(errors)
    wrong = {loc[:end] for loc in (error["loc"] for error in known) for end in range(len(loc))}
    for error in known:
        path = _path(error["loc"], loaded.data)
        kind, context = error["type"], error.get("ctx", {})
        if kind == "too_short" and error["loc"] in wrong:
            continue  # pydantic counts the items that are right; those that are not are told
        if kind == "extra_forbidden":
            near = nearest(str(path[-1]), known_keys(path[:-1]))
            if near:
                meant.add((*path[:-1], near))
            faults.append(_unknown(path, near))
        elif kind == "said":
            faults.append(Fault((*path, *context["at"]), context["what"]))
        else:
            text = loaded.texts.get(path, shown(error["input"]).strip("'"))
            what = _phrase(kind, context, error["input"], text)
            faults.append(Fault(path, what, rank=2 if kind == "missing" else 1))
    return [p for p in faults if p.rank != 2 or p.path not in meant]


def _unknown(path: Place, near: str | None) -> Fault:
    if near:
        return Fault(path, f"is not a known key; did you mean `{near}`?", rank=0)
    home = home_of(str(path[-1]))
    if home:
        return Fault(path, f"is not a known key here; {home}", rank=0)
    listed = ", ".join(f"`{key}`" for key in known_keys(path[:-1]))
    return Fault(path, f"is not a known key; known here are {listed}", rank=0)


def _path(loc: Sequence[str | int], data: Any) -> Place:
    """The place of an error: its location without the names of pydantic's unions."""
    path: list[str | int] = []
    for number, key in enumerate(loc):
        last = number == len(loc) - 1
        keyed = isinstance(data, Mapping)
        there = key in data if keyed else isinstance(data, list | tuple) and isinstance(key, int)
        if there or (last and keyed and key not in UNIONS):
            path.append(key)
            data = data[key] if there else None
    return tuple(path)


def _phrase(kind: str, context: Mapping[str, Any], value: Any, text: str) -> str:
    given = f"; got {shown(value)}"
    match kind:
        case "missing":
            return "is missing"
        case "label" if isinstance(value, bool | float | datetime.date):
            return f"is not a label to YAML; put `{text}` in quotes"
        case "label":
            return f"must be text or a whole number of 64 bits{given}"
        case "string_type" | "invalid_key" if isinstance(value, bool | int | float | datetime.date):
            return f"must be text; put `{text}` in quotes"
        case "string_type":
            return f"must be text{given}"
        case "string_too_short" | "too_short":
            least = context.get("min_length", 1)
            return "must not be empty" if least < 2 else f"must have at least {least} items"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters{given}"
        case "string_pattern_mismatch":
            return f"must be one line of text{given}"
        case "int_type":
            return f"must be a whole number{given}"
        case "float_type" | "finite_number":
            return f"must be a finite number{given}"
        case "bool_type":
            return f"must be true or false{given}"
        case "tuple_type":
            return f"must be a list, in brackets{given}"
        case "dict_type" | "model_type":
            return f"must be keys with values{given}"
        case "literal_error":
            options = re.findall(r"'([^']*)'", context["expected"])
            near = nearest(value, options) if isinstance(value, str) else None
            hint = f"; did you mean `{near}`?" if near else ""
            return f"must be one of {', '.join(f'`{option}`' for option in options)}{given}{hint}"
        case "greater_than":
            return f"must be above {context['gt']:g}{given}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}{given}"
        case "less_than":
            return f"must be below {context['lt']:g}{given}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}{given}"
    return f"cannot be used{given}"
