"""The page, region by region, from what a session knows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import combinations_with_replacement
from typing import Any

from subspacedp.io.periods import COARSER, PERIODS
from subspacedp.mechanisms.registry import IDEAS
from subspacedp.publication.faults import missing_extra
from subspacedp.workbench.controls import AXIS_KEYS, DIALS, FACTS, TableKeys, budget_of
from subspacedp.workbench.session import REGIONS, Session

MATRIX_AXES = 24  # rows of the grid of margins; of more, margins are found by their names
MOST_LINES = 30  # tables that are listed and drawn before "all of them"
READABLE = (0.1, 0.3)  # of a count: a margin of error below the first is good, above the second bad
DECADES = (1, 6)  # powers of ten on the axis of counts


def asset(name: str) -> str:
    """A file that is shipped with the page."""
    return files("subspacedp.workbench").joinpath("templates", name).read_text("utf-8")


def report_style() -> str:
    """The style of the reports, which the page goes on from."""
    return files("subspacedp.report").joinpath("templates", "report.css").read_text("utf-8")


def page(session: Session) -> str:
    """The whole page."""
    shown = {name: _region(name, session) for name in REGIONS}
    return str(
        _template("workbench.html").render(
            regions=shown, session=session, version=session.version, text=session.draft.text
        )
    )


def regions(session: Session, after: int) -> dict[str, str]:
    """What changed on the page since a version."""
    changed = [name for name, version in session.versions.items() if version > after]
    return {name: _region(name, session) for name in changed}


def _region(name: str, session: Session) -> str:
    keys, unread = session.keys
    shown = FILLED[name](session) if name in FILLED else {}
    return str(
        _template(f"{name}.html").render(
            session=session,
            known=session.known,
            plan=session.known.plan,
            keys=keys,
            unread=unread,
            **shown,
        )
    )


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, FunctionLoader
    except ImportError:
        raise missing_extra() from None
    made = Environment(
        loader=FunctionLoader(asset), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {
        "figure": figure,
        "names": names_words,
        "ends": ends,
        "json": _json,
        "keys": keys_shown,
        "flowed": flowed,
    }
    made.tests["exact"] = is_exact
    made.globals |= {"log_place": log_place, "min": min, "max": max}
    return made


@cache
def _template(name: str) -> Any:
    return _environment().get_template(name)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ----------------------------------------------------------------------------------- the form


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


# ------------------------------------------------------------------------- errors of a design


def errors_shown(session: Session) -> dict[str, Any]:
    """What the errors are, with those of the kept design or of the one before."""
    plan = session.known.plan
    if plan is None:
        return {}
    other = session.kept or (session.before if session.before.plan is not None else None)
    earlier = _by_table(other.plan) if other is not None and other.plan is not None else {}
    releases = []
    for release in plan["releases"]:
        lines = [
            {**line, "before": earlier.get((release["name"], line["what"]))}
            for line in release["errors"]
        ]
        loose = [line["margin_of_error_95"] for line in lines if not is_exact(line)]
        releases.append(
            {
                **release,
                "lines": lines,
                "figures": sum(line["figures"] for line in lines),
                "exact": sum(line["published_exactly"] for line in lines),
                "scale": _scale([e for pair in loose for e in pair if e > 0]),
                "worst": max((pair[1] for pair in loose), default=0.0),
                "readable": [_readable(line) for line in lines[:MOST_LINES]],
            }
        )
    return {
        "releases": releases,
        "against": "the kept design" if session.kept else "the design before" if earlier else "",
        "most_lines": MOST_LINES,
        "decades": range(DECADES[0] - 1, DECADES[1] + 1),
        "axis": (10.0 ** (DECADES[0] - 1), 10.0 ** DECADES[1]),
    }


def _by_table(plan: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {
        (release["name"], line["what"]): line
        for release in plan["releases"]
        for line in release["errors"]
    }


def _scale(values: list[float]) -> tuple[float, float]:
    """Round ends of a logarithmic axis that all values fit on."""
    if not values:
        return 1.0, 10.0
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _readable(line: Mapping[str, Any]) -> dict[str, Any]:
    """From which counts on a table's worst figures are good, and from which they can be used."""
    error = line["margin_of_error_95"][1]
    return {"what": line["what"], "good": error / READABLE[0], "fair": error / READABLE[1]}


def both_shown(session: Session) -> dict[str, Any]:
    """The kept design and this one, table by table."""
    kept, now = session.kept, session.known
    if kept is None or kept.plan is None:
        return {}
    before, after = _by_table(kept.plan), _by_table(now.plan or {"releases": []})
    rows = []
    for key in dict.fromkeys([*before, *after]):
        one, two = before.get(key), after.get(key)
        loose = [line for line in (one, two) if line is not None and not is_exact(line)]
        errors = [line["margin_of_error_95"][1] for line in loose]
        rows.append(
            {
                "release": key[0],
                "what": key[1],
                "kept": one,
                "now": two,
                "ratio": errors[1] / errors[0] if len(errors) == 2 and errors[0] > 0 else None,
            }
        )
    return {"both": {"kept": kept.plan, "now": now.plan, "rows": rows}}


# By region of the page: what it is filled in with beside the session.
FILLED = {"design": design_shown, "see": errors_shown, "side": both_shown}


# ----------------------------------------------------------------- numbers, names, sentences


def figure(value: float | None) -> str:
    """A number as short as it can be read: three digits, or all before the point."""
    if value is None:
        return ""
    size = abs(value)
    if not math.isfinite(value):
        return "unbounded"
    if size == 0:
        return "0"
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 1e-3 else f"{value:.2e}"


def names_words(names: Any) -> str:
    """A margin by its names."""
    return " × ".join(map(str, names)) or "grand total"


def is_exact(line: Mapping[str, Any]) -> bool:
    """Whether all figures of a line of a plan are published exactly."""
    return bool(line["published_exactly"] == line["figures"])


def ends(line: Mapping[str, Any]) -> str:
    """From the least to the largest margin of error of a line of a plan."""
    if is_exact(line):
        return "exact"
    low, high = line["margin_of_error_95"]
    if high == 0:
        return "± 0"
    return f"± {figure(high)}" if high - low < 0.02 * high else f"± {figure(low)} to {figure(high)}"


def keys_shown(sentence: str) -> Any:
    """A sentence with its `keys` set as such; everything else in it is text."""
    from markupsafe import Markup, escape

    pieces = str(sentence).split("`")
    if len(pieces) % 2 == 0:  # one that does not end is none
        return escape(sentence)
    marked = (
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )
    return Markup("").join(marked)


def flowed(text: str) -> str:
    """Text that was wrapped for a terminal: lines that go on are one; indented ones stay lines."""
    return re.sub(r"(?<!\n)\n(?![\n ])", " ", text)


def log_place(value: float, low: float, high: float, width: float) -> float:
    """Where a value is on a logarithmic axis."""
    share = (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
    return round(min(max(share, 0.0), 1.0) * width, 2)
