"""SDMX-CSV 2.0, with its structure as SDMX-ML 3.0.

One data set has the cells and all margins: an axis is a dimension, and its code list has the
labels, the groups of its levels above them, and the total over all of them, `_T`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from subspacedp.frozen import frozen
from subspacedp.publication.formats import (
    LIMITS,
    NOT_IN_XML,
    PublishedTable,
    ReleaseTables,
)
from subspacedp.report import PublishedFile
from subspacedp.report.words import figure_words
from subspacedp.tables import Axis

DATA, STRUCTURE = "sdmx-data.csv", "sdmx-structure.xml"
AGENCY, VERSION, NAME = "SUBSPACEDP", "1.0.0", "TABLE"
TOTAL = "_T"
# Statuses of the cross-domain code lists of SDMX.
EXACT, ESTIMATE = "A", "E"
FREE, INTERNAL = "F", "N"
STATUSES = {
    EXACT: "Normal value: published exactly because it is held",
    ESTIMATE: "Estimated value: unbiased, with noise of the stated standard error",
}
CONFIDENTIALITY = {
    FREE: "Free: protected by differential privacy as the certificate says",
    INTERNAL: "Not for publication, restricted for internal use only: made from a chosen seed",
}
ATTRIBUTES = {
    "STD_ERR": "Standard error of the value, from the law of the noise",
    "CONF_LOWER": "Lower limit of a 95 % interval for the figure without noise",
    "CONF_UPPER": "Upper limit of the same interval",
    "OBS_STATUS": "Observation status",
    "CONF_STATUS": "Confidentiality status",
}
LISTED = {
    "OBS_STATUS": ("CL_OBS_STATUS", STATUSES),
    "CONF_STATUS": ("CL_CONF_STATUS", CONFIDENTIALITY),
}
CODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_@$\-]*")  # and no formula of a spreadsheet
DIMENSION = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
MESSAGE = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0/message"
STRUCTURES = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0/structure"
COMMON = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0/common"
URN = "urn:sdmx:org.sdmx.infomodel"
PREPARED = "2000-01-01T00:00:00"  # no clock is read: the same release makes the same bytes


def write_sdmx(content: ReleaseTables, folder: Path) -> list[PublishedFile]:
    """Write the figures of all tables, each once, and what their codes mean."""
    dimensions = _dimensions(content.release.mechanism.domain.axes)
    with (folder / DATA).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["STRUCTURE", "STRUCTURE_ID", "ACTION", *(d.id for d in dimensions), "OBS_VALUE",
             *ATTRIBUTES]
        )  # fmt: skip
        for table in content.tables:
            writer.writerows(_rows(table, dimensions))
    (folder / STRUCTURE).write_text(_structure(content, dimensions), "utf-8")
    return [
        PublishedFile(name=DATA, holds="The same figures as SDMX-CSV 2.0, margins included."),
        PublishedFile(
            name=STRUCTURE, holds="Its structure as SDMX-ML 3.0: dimensions and code lists."
        ),
    ]


@frozen(eq=False, repr=False, kw_only=True)
class Dimension:
    """An axis as a dimension with a code list."""

    id: str
    axis: Axis

    @property
    def code_list(self) -> str:
        """The name of its code list."""
        return f"CL_{self.id}"

    @cached_property
    def codes(self) -> tuple[Sequence[str], ...]:
        """The codes of every step: labels, groups of coarser levels, the total, groupings."""
        taken = {TOTAL.casefold()}
        steps: list[Sequence[str]] = []
        for level in self.axis.named:
            codes = []
            for number, label in enumerate(level.labels):
                text = str(label)
                code = text if CODE.fullmatch(text) and text.casefold() not in taken else ""
                attempt = 0
                while not code:
                    numbered = f"{_plain(level.name)}_{number}{'x' * attempt}"
                    code = "" if numbered.casefold() in taken else numbered
                    attempt += 1
                taken.add(code.casefold())
                codes.append(code)
            steps.append(codes)
        return (*steps[: len(self.axis.chain)], [TOTAL], *steps[len(self.axis.chain) :])

    def items(self) -> Iterator[tuple[str, str, str]]:
        """Code, name and parent of every item, the coarsest first."""
        yield TOTAL, f"All of {self.axis.title}", ""
        last = len(self.axis.chain)
        for step in range(last - 1, -1, -1):
            above = self.codes[step + 1]
            parents = self.axis.parents(step, step + 1) if step + 1 < last else None
            for number, (code, label) in enumerate(
                zip(self.codes[step], self.axis.chain[step].labels, strict=True)
            ):
                parent = TOTAL if parents is None else above[int(parents[number])]
                yield code, str(label), parent
        for level, codes in zip(self.axis.crossing, self.codes[last + 1 :], strict=True):
            for code, label in zip(codes, level.labels, strict=True):
                yield code, f"{level.title}: {label}", ""


def _dimensions(axes: Sequence[Axis]) -> list[Dimension]:
    taken = {"obs_value", "structure", "structure_id", "action", *map(str.casefold, ATTRIBUTES)}
    out = []
    for number, axis in enumerate(axes, 1):
        name = axis.name.upper()
        if not DIMENSION.fullmatch(name) or name.casefold() in taken:
            name = f"DIM_{number}"
            while name.casefold() in taken:
                name += "x"
        taken.add(name.casefold())
        out.append(Dimension(id=name, axis=axis))
    return out


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_\-]", "_", name)


def _rows(table: PublishedTable, dimensions: Sequence[Dimension]) -> Iterator[list[Any]]:
    release, numbers = table.release, table.numbers
    status = np.where(numbers["stderr"] == 0, EXACT, ESTIMATE).tolist()
    conf = INTERNAL if release.seeded else FREE
    structure = f"{AGENCY}:{NAME}({VERSION})"
    pairs = zip(dimensions, table.margin.steps, strict=True)
    codes = [dimension.codes[step] for dimension, step in pairs]
    places = np.ndindex(*table.margin.shape)
    figures = zip(
        *(numbers[name].tolist() for name in ("value", "stderr", *LIMITS)), status, strict=True
    )
    for place, (value, error, lower, upper, state) in zip(places, figures, strict=True):
        key = [of[at] for of, at in zip(codes, place, strict=True)]
        yield ["dataflow", structure, "I", *key, repr(value), repr(error), repr(lower),
               repr(upper), state, conf]  # fmt: skip


# -------------------------------------------------------------------------------------- structure


def _structure(content: ReleaseTables, dimensions: Sequence[Dimension]) -> str:
    lists = {d.code_list: (d.axis.title, list(d.items())) for d in dimensions}
    for name, (code_list, codes) in LISTED.items():
        lists[code_list] = (ATTRIBUTES[name], [(c, words, "") for c, words in codes.items()])
    concepts = {d.id: d.axis.title for d in dimensions}
    concepts["OBS_VALUE"] = f"The {figure_words(content.release.mechanism)}"
    concepts |= ATTRIBUTES
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<mes:Structure xmlns:mes="{MESSAGE}" xmlns:str="{STRUCTURES}" xmlns:com="{COMMON}">',
            "<mes:Header>",
            f"<mes:ID>{content.release.release_id}</mes:ID>",
            f"<mes:Test>{'true' if content.release.seeded else 'false'}</mes:Test>",
            f"<mes:Prepared>{PREPARED}</mes:Prepared>",
            f'<mes:Sender id="{AGENCY}"/>',
            "</mes:Header>",
            "<mes:Structures>",
            "<str:Codelists>",
            *(line for name, (words, items) in lists.items() for line in _list(name, words, items)),
            "</str:Codelists>",
            "<str:ConceptSchemes>",
            *_concepts(concepts),
            "</str:ConceptSchemes>",
            "<str:Dataflows>",
            f'<str:Dataflow id="{NAME}" agencyID="{AGENCY}" version="{VERSION}">',
            _name(content.title),
            f"<str:Structure>{_urn('datastructure.DataStructure', NAME)}</str:Structure>",
            "</str:Dataflow>",
            "</str:Dataflows>",
            "<str:DataStructures>",
            f'<str:DataStructure id="{NAME}" agencyID="{AGENCY}" version="{VERSION}">',
            _name(content.title),
            *_components(dimensions),
            "</str:DataStructure>",
            "</str:DataStructures>",
            "</mes:Structures>",
            "</mes:Structure>",
            "",
        ]
    )


def _list(name: str, words: str, items: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    yield f'<str:Codelist id="{name}" agencyID="{AGENCY}" version="{VERSION}">'
    yield _name(words)
    for code, label, parent in items:
        above = f"<str:Parent>{parent}</str:Parent>" if parent else ""
        yield f"<str:Code id={quoteattr(code)}>{_name(label)}{above}</str:Code>"
    yield "</str:Codelist>"


def _concepts(concepts: Mapping[str, str]) -> Iterator[str]:
    yield f'<str:ConceptScheme id="CONCEPTS" agencyID="{AGENCY}" version="{VERSION}">'
    yield _name("Concepts of the table")
    for name, words in concepts.items():
        yield f'<str:Concept id="{name}">{_name(words)}</str:Concept>'
    yield "</str:ConceptScheme>"


def _components(dimensions: Sequence[Dimension]) -> Iterator[str]:
    yield "<str:DataStructureComponents>"
    yield '<str:DimensionList id="DimensionDescriptor">'
    for position, d in enumerate(dimensions, 1):
        yield (
            f'<str:Dimension id="{d.id}" position="{position}">{_identity(d.id)}'
            f"{_enumeration(d.code_list)}</str:Dimension>"
        )
    yield "</str:DimensionList>"
    yield '<str:AttributeList id="AttributeDescriptor">'
    for name in ATTRIBUTES:
        form = _enumeration(LISTED[name][0]) if name in LISTED else _number()
        yield (
            f'<str:Attribute id="{name}" usage="mandatory">{_identity(name)}{form}'
            "<str:AttributeRelationship><str:Observation/></str:AttributeRelationship>"
            "</str:Attribute>"
        )
    yield "</str:AttributeList>"
    yield '<str:MeasureList id="MeasureDescriptor">'
    yield (
        f'<str:Measure id="OBS_VALUE" usage="mandatory">{_identity("OBS_VALUE")}{_number()}'
        "</str:Measure>"
    )
    yield "</str:MeasureList>"
    yield "</str:DataStructureComponents>"


def _identity(concept: str) -> str:
    urn = f"{_urn('conceptscheme.Concept', 'CONCEPTS')}.{concept}"
    return f"<str:ConceptIdentity>{urn}</str:ConceptIdentity>"


def _enumeration(code_list: str) -> str:
    urn = _urn("codelist.Codelist", code_list)
    return (
        "<str:LocalRepresentation><str:Enumeration>"
        f"{urn}</str:Enumeration></str:LocalRepresentation>"
    )


def _number() -> str:
    return '<str:LocalRepresentation><str:TextFormat textType="Double"/></str:LocalRepresentation>'


def _urn(kind: str, name: str) -> str:
    return f"{URN}.{kind}={AGENCY}:{name}({VERSION})"


def _name(words: str) -> str:
    plain = escape(NOT_IN_XML.sub(" ", words))
    return f'<com:Name xml:lang="en">{plain}</com:Name>'
