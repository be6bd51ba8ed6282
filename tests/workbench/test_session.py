"""What a session lets through to the data, and what any text does to its page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.workbench.conftest import SPECIFICATION

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.privacy import PureDP
from subspacedp.release import Release
from subspacedp.workbench import session as sessions
from subspacedp.workbench.draft import Draft, keys_of
from subspacedp.workbench.page import page, regions
from subspacedp.workbench.processes import STEPS
from subspacedp.workbench.session import Session

RELEASE = {"do": "step", "what": "release"}


class Begun:
    """A step that is begun, in place of the process that would carry it out."""

    number = -1

    def __init__(self, _tell: Any, number: int, what: str, arguments: dict[str, Any]) -> None:
        self.number, self.what, self.arguments = number, what, arguments


@pytest.fixture
def session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session with its plan there, whose steps are only noted."""
    monkeypatch.setattr(sessions, "Step", Begun)
    made = Session(Draft(folder / "publication.yaml"))
    planned(made)
    return made


def planned(session: Session) -> None:
    session.look_again()
    session.known.parts["plan"] = {"releases": [], "worst": 0.0, "budget": "ε = 0.5"}


def ended(session: Session) -> None:
    session.told((session._step.number, "done", {}))


def asked(session: Session) -> dict[str, Any]:
    """The release, with the number of the question that the page shows."""
    session.do({"do": "ask"})
    assert session.asking is not None
    return {**RELEASE, "question": session.asking["number"]}


def test_a_release_needs_the_question_for_this_very_text(session):
    with pytest.raises(ReleaseError, match="you were asked"):
        session.do(RELEASE)
    yes = asked(session)
    session.do({"do": "text", "text": SPECIFICATION.replace("0.5", "5.0")})
    with pytest.raises(ReleaseError, match="Save"):
        session.do(yes)
    session.do({"do": "save"})
    with pytest.raises(ReleaseError, match="you were asked"):
        session.do(yes)
    assert session.work is None


def test_yes_to_what_one_tab_was_asked_is_not_yes_to_what_another_asked(session):
    """A tab that slept shows the question of a smaller budget."""
    small = asked(session)
    session.do({"do": "text", "text": SPECIFICATION.replace("0.5", "5.0")})
    session.do({"do": "save"})
    planned(session)
    asked(session)
    with pytest.raises(ReleaseError, match="another tab"):
        session.do(small)
    assert session.work is None


def test_yes_is_good_for_one_release(session):
    yes = asked(session)
    session.do(yes)
    assert session.work.what == "release"
    with pytest.raises(ReleaseError, match="under way"):
        session.do(yes)
    ended(session)
    with pytest.raises(ReleaseError, match="nothing was spent"):
        session.do(yes)


def test_a_step_works_on_the_text_that_was_confirmed_whatever_its_file_says_later(session, folder):
    session.do(asked(session))
    assert session._step.arguments == {"text": SPECIFICATION, "folder": str(folder)}
    (folder / "publication.yaml").write_text(SPECIFICATION.replace("0.5", "5.0"), "utf-8")
    STEPS["release"](lambda sentence: None, **session._step.arguments)
    assert Release.load(folder / "release").mechanism.budget == PureDP(0.5)


@pytest.mark.parametrize("text", [None, SPECIFICATION.replace("0.5", "5.0"), b"\xff"])
def test_a_file_that_others_changed_or_removed_is_not_released(session, folder, text):
    yes = asked(session)
    path = folder / "publication.yaml"
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SubspaceDPError, match=r"publication\.yaml"):
        session.do(yes)
    assert session.work is None


@pytest.mark.parametrize("source", ["persons.csv", "person*.csv", "parts"])
def test_other_data_in_the_same_place_are_noticed_whatever_their_time_and_size(
    folder, monkeypatch, source
):
    monkeypatch.setattr(sessions, "Step", Begun)
    text = SPECIFICATION.replace("persons.csv", source)
    (folder / "publication.yaml").write_text(text, "utf-8")
    data = folder / "persons.csv"
    if source == "parts":
        (folder / "parts").mkdir()
        data = data.rename(folder / "parts" / "a.csv")
    session = Session(Draft(folder / "publication.yaml"))
    planned(session)
    session.do({"do": "step", "what": "dry-run"})
    ended(session)
    before = data.stat()
    other = data.read_text("utf-8").replace("Kent,F", "Kent,M")
    data.write_text(other, "utf-8")
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert data.stat().st_size == before.st_size
    with pytest.raises(ReleaseError, match="data file changed"):
        session.do(asked(session))
    assert session.work.what == "dry-run"


def test_a_public_list_that_changed_is_looked_at_again_before_a_release(session, folder):
    yes = asked(session)
    with (folder / "counties.csv").open("a", encoding="utf-8") as file:
        file.write("Bristol,RI\n")
    with pytest.raises(ReleaseError, match="A public list changed"):
        session.do(yes)
    assert session.work is None
    assert session.known.plan is None
    assert session.known.busy


# ------------------------------------------------------------------------------------ any text

ODD = st.recursive(
    st.sampled_from([None, True, -1, 0.5, 10**20, "x", "least", "<b>", "`"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "margin", "error", "state"]), inner, max_size=2)
    ),
    max_leaves=4,
)
SECTIONS = {
    "": [
        "hold",
        "axes",
        "publish",
        "privacy",
        "data",
        "about",
        "budget",
        "sums",
        "tables",
        "title",
    ],
    "axes": ["county", "sex", "age"],
    "publish": ["margins", "cells", "decimals", "weights", "to"],
    "privacy": ["epsilon", "rho", "delta", "neighbours"],
    "data": ["source", "unit", "records", "counts"],
}
PLACES = st.sampled_from([(s, key) for s, keys in SECTIONS.items() for key in (*keys, "other")])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(PLACES, ODD, min_size=1, max_size=3))
def test_whatever_a_text_says_there_is_a_page_of_it(session, changes):
    keys = json.loads(json.dumps(keys_of(SPECIFICATION)))
    for (section, key), value in changes.items():
        at = keys if not section else keys.get(section)
        if isinstance(at, dict):
            at[key] = value
    session.do({"do": "text", "text": json.dumps(keys)})
    assert set(regions(session, -1)) == set(sessions.REGIONS)
    session.do({"do": "text", "text": SPECIFICATION})


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "{a: " * 100_000,
        "a: " + "[" * 5_000 + "]" * 5_000,
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        "a: !!python/object/apply:os.system [id]\n",
        f"privacy: {{epsilon: {'9' * 5000}}}\n",
        "a: \0",
    ],
    ids=["lists", "keys", "closed", "aliases", "tag", "digits", "control"],
)
def test_a_text_that_would_grow_or_never_end_is_refused_at_once(session, text):
    session.do({"do": "text", "text": text})
    assert "cannot be read" in page(session)
    session.do({"do": "undo"})
    assert "cannot be read" not in page(session)


def test_names_and_labels_are_text_on_the_page_whatever_they_look_like(session):
    odd = "<img src=x onerror=alert(1)>'\">"
    keys = keys_of(SPECIFICATION)
    keys["title"] = odd
    keys["axes"] = {odd: {"labels": [odd, "b"], "title": odd, odd: odd}}
    keys["hold"] = [[odd]]
    keys["inequalities"] = {"at_most": [{"margin": [odd], "limit": odd}], "part_of": [[odd, "b"]]}
    session.do({"do": "text", "text": json.dumps(keys)})
    session.known.refused = {"sentence": odd, "notes": [], "faults": [{"line": 1, "sentence": odd}]}
    shown = page(session)
    assert "&lt;img" in shown
    assert "<img" not in shown
    assert "onerror=alert(1)>" not in shown


def test_a_text_that_no_file_can_have_is_not_taken(session):
    with pytest.raises(ReleaseError, match="no file can have"):
        session.do({"do": "text", "text": "title: \ud800\n"})
    assert session.draft.text == SPECIFICATION


@pytest.mark.parametrize("name", ["../out.yaml", "/out.yaml", ".hidden", "", "a/b.yaml", ".."])
def test_no_file_outside_the_folder_is_written(session, folder, name):
    before = {path.name for path in folder.parent.iterdir()}
    session.do({"do": "text", "text": "title: elsewhere\n"})
    if name:
        with pytest.raises(ReleaseError, match="must be plain"):
            session.do({"do": "save", "name": name})
    assert {path.name for path in folder.parent.iterdir()} == before
    assert (folder / "publication.yaml").read_text("utf-8") == SPECIFICATION
