"""The form of the page, from the keys of a text and what is known of its design."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations_with_replacement
from typing import Any

from subspacedp.io.periods import COARSER, PERIODS
from subspacedp.mechanisms.registry import IDEAS
from subspacedp.workbench.controls import AXIS_KEYS, DIALS, FACTS, TableKeys, budget_of
from subspacedp.workbench.session import Session

MATRIX_AXES = 24  # rows of the grid of margins; of more, margins are found by their names


def design_shown(session: Session) -> dict[str, Any]:
    """The form: every control with what the text says, and the sizes that are known."""
    keys, _ = session.keys
    table = TableKeys(keys, session.table)
    sizes = (session.known.parts.get("axes") or session.before.parts.get("axes") or {}).get(
        table.name, {"axes": {}, "cells": None}
    )
    budget = budget_of(keys, session.dial)
    _, low, high = DIALS[budget["dial"]]
    chains = table.chains
    levels = [(axis, level) for axis, chain in chains.items() for level in chain]
    prices = {
        frozenset(price["margin"]): price
        for release in (session.known.plan or {"releases": []})["releases"]
        for price in (release.get("least_budget") or {}).get("prices", [])
    }
    published = [
        {
            "names": names,
            "state": table.state(names),
            "target": table.targets().get(frozenset(names)),
            "price": prices.get(frozenset(names)),
        }
        for names in _distinct([*table.margins, *table.hold])
    ]
    tables = keys.get("tables")
    about = keys.get("about")
    facts = keys.get("publication")
    known = table.inequalities or {}
    data = keys.get("data") if isinstance(keys.get("data"), Mapping) else {}
    counts = data.get("counts") if isinstance(data, Mapping) else None
    return {
        "table": table,
        "tables": list(tables) if isinstance(tables, Mapping) else [],
        "facts": {
            key: keys.get(key) if len(at) == 1 else _at(facts, key) for key, at in FACTS.items()
        },
        "axis_keys": AXIS_KEYS,
        "limits": [one for one in _list(known.get("at_most")) if isinstance(one, Mapping)],
        "wholes": [one for one in _list(known.get("part_of")) if len(_list(one)) == 2],
        "formats": _list(table.publish.get("formats")),
        "sizes": sizes,
        "budget": {**budget, "low": low, "high": high},
        "axes": [_axis_row(name, entry, sizes) for name, entry in table.axes.items()],
        "matrix": _matrix(table, levels, sizes) if 0 < len(levels) <= MATRIX_AXES else None,
        "levels": levels,
        "published": published,
        "privacy": keys.get("privacy") if isinstance(keys.get("privacy"), Mapping) else {},
        "data": data,
        "counts": counts if isinstance(counts, Mapping) else None,
        "persons": about.get("persons") if isinstance(about, Mapping) else None,
        "paying": keys.get("budget") if isinstance(keys.get("budget"), Mapping) else {},
        "periods": PERIODS,
        "mechanisms": IDEAS,
        "mechanism": table.section.get("mechanism") or keys.get("mechanism") or "auto",
    }


def _at(section: Any, key: str) -> Any:
    return section.get(key) if isinstance(section, Mapping) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _distinct(listed: list[list[str]]) -> list[list[str]]:
    return list({frozenset(names): names for names in listed}.values())


def _axis_row(name: str, entry: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """An axis as it is written, with what its domain states of it."""
    known = sizes["axes"].get(name, {})
    labels, bins, columns = entry.get("labels"), entry.get("bins"), entry.get("columns")
    listed = isinstance(labels, list) or isinstance(bins, list) or isinstance(columns, Mapping)
    pieces = labels if isinstance(labels, list) else bins if isinstance(bins, list) else []
    if isinstance(columns, Mapping):
        pieces = [f"{label}: {column}" for label, column in columns.items()]
    told = {"labels", "bins", "levels", "groupings", "by", "first", "last", "columns"}
    told |= {key for key in AXIS_KEYS if not isinstance(entry.get(key), Mapping)}
    roles = {
        str(step): key for key in ("levels", "groupings") for step in _iterable(entry.get(key))
    }
    return {
        "name": name,
        "known": known,
        "kind": "columns"
        if columns is not None
        else "bins"
        if bins is not None
        else "list"
        if isinstance(labels, str)
        else "labels",
        "texts": {key: entry[key] for key in AXIS_KEYS if key in entry and key in told},
        "editable": listed or isinstance(labels, str),
        "value": labels if isinstance(labels, str) else ", ".join(map(str, pieces)),
        "roles": roles,
        "groups": {step: (known.get("levels") or {}).get(step) for step in roles},
        "columns": known.get("columns") or [],
        "by": entry.get("by"),
        "ends": {end: entry.get(end, "") for end in ("first", "last")},
        "coarser": COARSER.get(str(entry.get("by"))),
        "others": {key: value for key, value in entry.items() if key not in told},
    }


def _iterable(steps: Any) -> list[Any]:
    return list(steps) if isinstance(steps, list | Mapping) else []


def _matrix(
    table: TableKeys, levels: list[tuple[str, str]], sizes: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The triangle of pairs of levels, single levels on its diagonal."""
    number = {
        level: groups for axis in sizes["axes"].values() for level, groups in axis["levels"].items()
    }
    rows: dict[int, dict[str, Any]] = {
        i: {"name": level, "axis": axis, "top": axis == level, "cells": []}
        for i, (axis, level) in enumerate(levels)
    }
    for i, j in combinations_with_replacement(range(len(levels)), 2):
        (first, a), (second, b) = levels[i], levels[j]
        if i != j and first == second:
            rows[j]["cells"].append(None)  # a level says nothing beside a finer one of its axis
            continue
        names = [a] if i == j else [a, b]
        groups = [number.get(name) for name in names]
        known = math.prod(g for g in groups if g) if all(groups) else None
        rows[j]["cells"].append({"names": names, "state": table.state(names), "figures": known})
    return list(rows.values())
