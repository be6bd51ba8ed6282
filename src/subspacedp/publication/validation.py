"""Values that a specification may not have, in our own words instead of pydantic's."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from subspacedp.publication.faults import Fault, Loaded, Place, nearest, shown
from subspacedp.publication.schema import home_of, known_keys

__all__ = ["faults_of", "scan"]


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
    for error in errors:
        path = _path(error["loc"], loaded.data)
        kind, context = error["type"], error.get("ctx", {})
        if kind == "too_short" and error["input"]:
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
        found = key in data if keyed else isinstance(data, list | tuple) and isinstance(key, int)
        if found or (last and keyed and key != "[key]"):
            path.append(key)
            data = data[key] if found else None
    return tuple(path)


def _phrase(kind: str, context: Mapping[str, Any], value: Any, text: str) -> str:
    got = f"; got {shown(value)}"
    match kind:
        case "missing":
            return "is missing"
        case "label" if isinstance(value, bool | float | datetime.date):
            return f"is not a label to YAML; put `{text}` in quotes"
        case "label":
            return f"must be text or a whole number of 64 bits{got}"
        case "string_type" | "invalid_key" if isinstance(value, bool | int | float | datetime.date):
            return f"must be text; put `{text}` in quotes"
        case "string_type":
            return f"must be text{got}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "int_type":
            return f"must be a whole number{got}"
        case "float_type" | "finite_number":
            return f"must be a finite number{got}"
        case "bool_type":
            return f"must be true or false{got}"
        case "tuple_type":
            return f"must be a list, in brackets{got}"
        case "dict_type" | "model_type":
            return f"must be keys with values{got}"
        case "literal_error":
            options = re.findall(r"'([^']*)'", context["expected"])
            near = nearest(value, options) if isinstance(value, str) else None
            hint = f"; did you mean `{near}`?" if near else ""
            return f"must be one of {', '.join(f'`{option}`' for option in options)}{got}{hint}"
        case "greater_than":
            return f"must be above {context['gt']:g}{got}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}{got}"
        case "less_than":
            return f"must be below {context['lt']:g}{got}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}{got}"
    return f"cannot be used{got}"
