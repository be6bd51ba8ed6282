"""The page, region by region, from what a session knows."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from subspacedp.publication.faults import missing_extra
from subspacedp.workbench.accuracy import both_shown, errors_shown
from subspacedp.workbench.form import design_shown
from subspacedp.workbench.session import REGIONS, Session
from subspacedp.workbench.wording import ends, figure, flowed, keys_shown, log_place, names_words

# By region of the page: what it is filled in with beside the session.
SHOWN = {"design": design_shown, "see": errors_shown, "side": both_shown}


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
    shown = SHOWN[name](session) if name in SHOWN else {}
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
    made.globals |= {"log_place": log_place, "min": min, "max": max}
    return made


@cache
def _template(name: str) -> Any:
    return _environment().get_template(name)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
