"""The JSON Schema of a specification, made from its sections, and the keys that it knows.

`specification.schema.json` is what editors read. It is written by

    python -c "from subspacedp.publication.schema import write_schema; write_schema()"

and a test keeps it in step with the sections.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from subspacedp.publication.document import Document
from subspacedp.publication.faults import Place, missing_extra

try:
    from pydantic.json_schema import GenerateJsonSchema
except ImportError:
    raise missing_extra() from None

__all__ = [
    "generated_schema",
    "home_of",
    "known_keys",
    "specification_schema",
    "write_schema",
]

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
