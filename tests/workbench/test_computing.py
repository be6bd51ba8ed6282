"""What the page is told of a design: the figures of the plan, and nothing of the data."""

import json

import pytest
from tests.workbench.conftest import SPECIFICATION

from subspacedp.errors import SubspaceDPError
from subspacedp.publication import plan
from subspacedp.publication.faults import SpecificationError
from subspacedp.workbench.computing import Asked, parts
from subspacedp.workbench.draft import Draft
from subspacedp.workbench.page import both_shown, ends, figure, page
from subspacedp.workbench.processes import refusal
from subspacedp.workbench.session import Session

GROUPINGS = """\
data: {source: none.csv, unit: row}
axes:
  block:
    labels: [a, b, c, d]
    levels: {tract: {t: [a, b], u: [c, d]}}
    groupings: {school: {s: [a, c], r: [b]}}
  sex: {labels: [F, M]}
hold: [[tract]]
privacy: {epsilon: 1.0}
publish: {decimals: 0, margins: [[school, sex]]}
"""
ALONE = SPECIFICATION.replace("publish: {", "publish: {cells: false, ").replace(
    "[state, sex]", "[county, sex]"
)


@pytest.fixture
def no_data(folder, monkeypatch):
    """The data cannot be opened, so that nothing of them can be shown."""
    (folder / "persons.csv").unlink()

    def opened(*_, **__):
        raise AssertionError("the data were opened")

    monkeypatch.setattr("subspacedp.io.open_source", opened)
    return folder


@pytest.mark.parametrize("text", [SPECIFICATION, ALONE, GROUPINGS])
@pytest.mark.parametrize("privacy", ["epsilon: 0.5", "rho: 0.2"])
def test_the_page_has_the_figures_of_the_plan_without_data(no_data, text, privacy):
    text = text.replace("epsilon: 0.5", privacy).replace("epsilon: 1.0", privacy)
    said = dict(parts(Asked(text=text, folder=str(no_data))))
    (no_data / "again.yaml").write_text(text, "utf-8")
    planned = plan(no_data / "again.yaml").as_dict()["releases"][0]
    shown = said["plan"]["releases"][0]
    assert {key: shown[key] for key in planned} == planned
    assert said["advice"]["whole"]
    assert said["structure"]
    assert said["invented"]["whole"]
    json.dumps({key: said[key] for key in ("axes", "plan", "advice", "structure", "invented")})


def test_held_figures_of_invented_people_stay_exact(no_data):
    text = SPECIFICATION.replace("margins: [", "margins: [[state], ")
    assert dict(parts(Asked(text=text, folder=str(no_data))))["invented"]["names"] != ["state"]
    asked = Asked(text=text, folder=str(no_data), margin=("state",))
    invented = dict(parts(asked))["invented"]
    assert invented["names"] == ["state"]
    assert invented["exact"]
    assert all(row["before"] == row["after"] for row in invented["rows"])
    loose = dict(parts(Asked(text=text, folder=str(no_data), margin=("age",))))["invented"]
    assert any(row["before"] != row["after"] for row in loose["rows"])
    assert not loose["exact"]


def test_labels_in_no_group_are_counted_in_none(no_data):
    asked = Asked(text=GROUPINGS, folder=str(no_data), margin=("school", "sex"))
    invented = dict(parts(asked))["invented"]
    assert invented["names"] == ["school", "sex"]
    assert 0 < sum(row["before"] for row in invented["rows"]) < invented["persons"]


CROSSING = """\
data: {source: none.csv, unit: row}
axes:
  block:
    labels: [a, b, c, d, e, f, g, h, i]
    levels: {tract: {t: [a, b, c], u: [d, e, f], v: [g, h, i]}}
    groupings:
      school: {r: [a, d, g], s: [b, e, h], q: [c, f, i]}
      health: {x: [a, e, i], y: [b, f, g], z: [c, d, h]}
  sex: {labels: [F, M]}
hold: [[tract]]
privacy: {epsilon: 1.0}
publish: {decimals: 0, margins: [[school]]}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CROSSING.replace("[[tract]]", "[[tract], [school], [health]]"), "hold two of them"),
        (GROUPINGS.replace("[[school, sex]]", "[[school, tract]]"), "levels of one axis"),
        (GROUPINGS.replace("margins:", "cells: false, margins:"), "which is a sum of cells"),
    ],
)
def test_what_cannot_be_done_with_groupings_is_one_sentence(no_data, text, words):
    with pytest.raises(SubspaceDPError, match=words) as refused:
        list(parts(Asked(text=text, folder=str(no_data))))
    said = refusal(refused.value)
    assert said["sentence"].endswith(".")
    assert [fault["sentence"] for fault in said["faults"]] == [said["sentence"]]


def test_two_groupings_that_cross_are_held_exactly_and_their_differences_are_told(no_data):
    text = CROSSING.replace("[[tract]]", "[[school, sex], [health, sex]]")
    said = dict(parts(Asked(text=text, folder=str(no_data))))
    exact = [
        line["what"]
        for line in said["plan"]["releases"][0]["errors"]
        if line["published_exactly"] == line["figures"]
    ]
    assert exact == ["school × sex (held)", "health × sex (held)", "school"]
    assert "cross on `block`" in said["structure"]["table"]


@pytest.mark.parametrize("privacy", ["epsilon: least", "rho: least", "epsilon: 0.5"])
def test_targets_are_on_the_page_with_what_they_cost(no_data, privacy):
    targets = "margins: [{margin: [state, sex], error: 30}, {margin: [age], error: 20}]"
    text = SPECIFICATION.replace("epsilon: 0.5", privacy)
    text = text.replace("margins: [[state, sex], [age]]", targets)
    said = dict(parts(Asked(text=text, folder=str(no_data))))
    session = Session(Draft(no_data / "publication.yaml"))
    session.do({"do": "text", "text": text})
    session.known.parts.update(said)
    shown = page(session)
    (release,) = said["plan"]["releases"]
    prices = release.get("least_budget", {}).get("prices", ())
    assert len(prices) == (2 if "least" in privacy else 0)
    for price in prices:
        figures = (price["target"], price["margin_of_error_95"], price["price"], price["without"])
        row = "".join(f'<td class="number">{figure(value)}</td>' for value in figures)
        assert row in shown
    assert ("× its target" in shown) == (not prices)


def test_noise_that_mostly_is_0_is_not_shown_as_exact(no_data):
    text = SPECIFICATION.replace("epsilon: 0.5", "epsilon: 40")
    said = dict(parts(Asked(text=text, folder=str(no_data))))
    session = Session(Draft(no_data / "publication.yaml"))
    session.known.parts.update(said)
    lines = {line["what"]: line for line in said["plan"]["releases"][0]["errors"]}
    cells, held = lines["every cell"], lines["state (held)"]
    assert cells["margin_of_error_95"] == held["margin_of_error_95"] == [0.0, 0.0]
    assert ends(cells) == "± 0"
    assert ends(held) == "exact"
    assert page(session).count('<tr class="exact">') == 1
    session.kept = session.known
    assert {row["what"]: ends(row["now"]) for row in both_shown(session)["both"]["rows"]} == {
        what: ends(line) for what, line in lines.items()
    }


def test_every_fault_has_its_line(no_data):
    wrong = SPECIFICATION.replace("[[state]]", "[[stat]]").replace("[age]]", "[agee]]")
    with pytest.raises(SpecificationError) as refused:
        next(parts(Asked(text=wrong, folder=str(no_data))))
    assert [line for line, _ in refused.value.every] == [8, 10]
