"""The errors of a design as the page shows them, alone and beside another one's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from subspacedp.workbench.session import Session

MOST_LINES = 30  # tables that are listed and drawn before "all of them"
READABLE = (0.1, 0.3)  # of a count: a margin of error below the first is good, above the second bad
DECADES = (1, 6)  # powers of ten on the axis of counts


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
        loose = [line["margin_of_error_95"] for line in lines if line["margin_of_error_95"][1] > 0]
        releases.append(
            {
                **release,
                "lines": lines,
                "figures": sum(line["figures"] for line in lines),
                "exact": sum(line["published_exactly"] for line in lines),
                "scale": _scale([e for pair in loose for e in pair]),
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


def _by_table(plan: Mapping[str, Any]) -> dict[tuple[str, str], tuple[float, float]]:
    return {
        (release["name"], line["what"]): line["margin_of_error_95"]
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
        both = one is not None and two is not None and one[1] > 0 and two[1] > 0
        rows.append(
            {
                "release": key[0],
                "what": key[1],
                "kept": one,
                "now": two,
                "ratio": two[1] / one[1] if both and one and two else None,
            }
        )
    return {"both": {"kept": kept.plan, "now": now.plan, "rows": rows}}
