"""The page, region by region, from what a session knows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from subspacedp.publication.faults import missing_extra
from subspacedp.workbench.form import design_shown
from subspacedp.workbench.session import REGIONS, Session

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
