"""Reading a specification: plain data from YAML, with the line of every value.

The text is parsed into events by PyYAML's safe loader and given its meaning here, because YAML 1.1
and 1.2 disagree about what `no`, `007`, `1e-6` or `12:30` are. What they read differently, or read
as something that a label cannot be, is an error that asks for quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from subspacedp.privacy.numbers import exact_decimal
from subspacedp.publication.faults import (
    Fault,
    Loaded,
    Place,
    SpecificationError,
    failure,
    missing_extra,
    shown,
)

DEEPEST = 16  # a specification nests seven deep; what nests deeper is something else
TRUE = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}
FALSE = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}
NOTHING = {"", "~", "null", "Null", "NULL"}
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
REAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,6})?")
# Numbers and dates of YAML 1.1 (octal, hexadecimal, base 60, underscores) that a reader takes for
# text, or the other way about.
TRAP = re.compile(
    r"[-+]?0[0-9_.:]+([eE][-+]?[0-9]+)?|[-+]?0[xob][0-9a-fA-F_]+|[-+]?[0-9][0-9_]*_[0-9_]*"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\s].*)?"
    r"|[-+]?[0-9.]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


def read_text(path: Path, what: str) -> str:
    """The text of a public file, in UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecificationError(f"There is no {what} `{path}`.", file=str(path)) from None
    except (OSError, ValueError) as error:
        reason = "is not text in UTF-8" if isinstance(error, UnicodeError) else "cannot be read"
        raise SpecificationError(f"The {what} `{path}` {reason}.", file=str(path)) from None


def load_yaml(text: str) -> Loaded:
    """Plain data from YAML, or the first thing that is not plain."""
    yaml = _pyyaml()
    try:
        builder = _Builder(iter(_events(yaml, text)))
        data = builder.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = error.problem or error.context or "it cannot be parsed"
        if r"'\t'" in reason:
            reason = "a tab; YAML is indented with spaces"
        raise SpecificationError(
            f"The specification is not valid YAML{at}: {reason}.",
            line=mark.line + 1 if mark else None,
        ) from None
    except yaml.YAMLError:
        raise SpecificationError(
            "The specification has a character that YAML does not allow; save it as plain text."
        ) from None
    loaded = Loaded(data=data, lines=builder.lines, texts=builder.texts)
    if builder.faults:
        raise failure(builder.faults, loaded)
    return loaded


def yaml_nodes(text: str) -> Any:
    """The nodes of a text that `load_yaml` reads: where each value begins and ends."""
    yaml = _pyyaml()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times quicker
    return yaml.compose(text, Loader=loader)


def _pyyaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise missing_extra() from None
    return yaml


def _events(yaml: Any, text: str) -> list[Any]:
    """By libyaml, which is quicker, where PyYAML has it; what that refuses is PyYAML's to judge."""
    with suppress(AttributeError, yaml.YAMLError):
        return list(_to_the_deepest(yaml.parse(text, Loader=yaml.CSafeLoader)))
    return list(_to_the_deepest(yaml.parse(text, Loader=yaml.SafeLoader)))


def _to_the_deepest(events: Iterable[Any]) -> Iterator[Any]:
    """Events up to a depth that is refused: the time of a parser grows with its square."""
    depth = 0
    for event in events:
        yield event
        kind = type(event).__name__
        depth += kind in {"SequenceStartEvent", "MappingStartEvent"}
        depth -= kind in {"SequenceEndEvent", "MappingEndEvent"}
        if depth > DEEPEST + 2:
            return


class _Builder:
    """Plain data from PyYAML's events; neither aliases nor tags, so nothing grows or runs."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.lines: dict[Place, int] = {}
        self.texts: dict[Place, str] = {}
        self.faults: list[Fault] = []

    def document(self) -> Any:
        kind = ""
        data, documents = None, 0
        for event in self.events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
            elif kind not in {"StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"}:
                value = self.value(event, ())
                data = value if documents == 1 else data
        if documents > 1:
            self.faults.append(Fault((), "must be one YAML document; remove the line `---`"))
        return data

    def value(self, event: Any, path: Place) -> Any:
        kind = type(event).__name__
        self.lines.setdefault(path, event.start_mark.line + 1)
        if len(path) > DEEPEST:
            raise failure(
                [Fault(path[:3], "is nested too deeply")], Loaded(data=None, lines=self.lines)
            )
        if kind == "AliasEvent" or event.anchor is not None:
            self.wrong(path, "uses `&` or `*`, which a specification does not know; write it out")
        if kind == "ScalarEvent":
            return self.scalar(event, path)
        if kind == "AliasEvent":
            return None
        if event.tag is not None:
            self.wrong(path, "has a YAML tag; write the value without `!`")
        return self.mapping(path) if kind == "MappingStartEvent" else self.sequence(path)

    def sequence(self, path: Place) -> list[Any]:
        items: list[Any] = []
        for event in self.events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: Place) -> dict[Any, Any]:
        items: dict[Any, Any] = {}
        for event in self.events:
            if type(event).__name__ == "MappingEndEvent":
                break
            line = event.start_mark.line + 1
            if type(event).__name__ != "ScalarEvent" or event.tag is not None:
                raise failure(
                    [Fault(path, f"has a key (line {line}) that is not a plain word")],
                    Loaded(data=None, lines=self.lines),
                )
            key, trap = _meaning(event)
            if trap or not isinstance(key, str | int) or isinstance(key, bool):
                self.lines.setdefault((*path, event.value), line)
                self.wrong(
                    (*path, event.value),
                    f"is a key that YAML reads as {_read_as(key, trap)}; put it in quotes",
                )
                key = event.value
            place = (*path, key)
            if key in items:
                self.wrong(place, f"is given twice, again in line {line}")
            self.lines.setdefault(place, line)
            items[key] = self.value(next(self.events), place)
        return items

    def scalar(self, event: Any, path: Place) -> Any:
        if event.tag not in {None, "!", "tag:yaml.org,2002:str"}:
            self.wrong(path, "has a YAML tag; write the value without `!`")
            return event.value
        value, trap = _meaning(event)
        if trap and event.value.lower().endswith((".nan", ".inf")):
            self.wrong(path, f"is no finite number; text needs quotes: '{event.value}'")
        elif trap:
            self.wrong(path, f"is {_read_as(value, trap)} to YAML; put `{event.value}` in quotes")
        elif not isinstance(value, str):
            self.texts[path] = event.value
            if isinstance(value, float) and Fraction(event.value) != exact_decimal(value):
                self.wrong(
                    path,
                    f"has more digits than a number can keep; write at most 15, not {event.value}",
                )
        return value

    def wrong(self, path: Place, what: str) -> None:
        self.faults.append(Fault(path, what, rank=0))


def _meaning(event: Any) -> tuple[Any, bool]:
    plain = event.tag is None and not event.style
    return plain_scalar(event.value) if plain else (event.value, False)


def plain_scalar(text: str) -> tuple[Any, bool]:
    """What a word without quotes means, and whether YAML's readers disagree about it.

    >>> plain_scalar("county"), plain_scalar("1e-6"), plain_scalar("no"), plain_scalar("007")
    (('county', False), (1e-06, False), (False, False), ('007', True))
    """
    if text in NOTHING:
        return None, False
    if text in TRUE or text in FALSE:
        return text in TRUE, False
    if WHOLE.fullmatch(text) and len(text) <= 400:
        return int(text), False
    if REAL.fullmatch(text) and abs(float(text)) != float("inf"):
        return float(text), False
    return text, bool(TRAP.fullmatch(text) or WHOLE.fullmatch(text))


def _read_as(value: object, trap: bool) -> str:
    if trap:
        return "a number or a date"
    return {bool: "true or false", float: "a number", type(None): "nothing"}[type(value)]


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
