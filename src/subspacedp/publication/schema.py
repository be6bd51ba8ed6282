"""The JSON Schema of a specification, made from its sections.

`specification.schema.json` is what editors read. It is written by

    python -c "from subspacedp.publication.schema import write_schema; write_schema()"

and a test keeps it in step with the sections.
"""

from __future__ import annotations

import json
from pathlib import Path

from subspacedp.publication.document import Document
from subspacedp.publication.fields import SECTIONS, published

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def generated_schema() -> str:
    """The JSON Schema as the sections give it."""
    sections = {name: SECTIONS[name].schema() for name in sorted(SECTIONS)}
    schema = {
        "$schema": DIALECT,
        "$id": "urn:subspacedp:specification:1",
        "title": "Specification of a subspacedp publication",
        "$defs": {name: said for name, said in sections.items() if name != Document.__name__},
        **Document.schema(),
    }
    return json.dumps(published(schema), indent=2, ensure_ascii=False) + "\n"


def specification_schema() -> str:
    """The JSON Schema of a specification, as text."""
    from importlib.resources import files

    return (files("subspacedp.publication") / "specification.schema.json").read_text("utf-8")


def write_schema() -> None:
    """Write the JSON Schema beside this file."""
    Path(__file__).with_name("specification.schema.json").write_text(generated_schema(), "utf-8")
