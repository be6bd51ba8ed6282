"""Inequalities of a specification: read, refused in one sentence, used in every interval."""

import json

import numpy as np
import pytest

from subspacedp.errors import InvariantError, SubspaceDPError
from subspacedp.ledger import open_ledger
from subspacedp.privacy import PureDP, ReplaceOne
from subspacedp.publication import audit, plan, read_specification, run
from subspacedp.release import verify_folder
from subspacedp.release.files import load

HALLS, SEXES = ["A", "B"], ["F", "M"]


@pytest.fixture
def spec(tmp_path):
    """Persons and households of two halls, with what is known of them."""
    (tmp_path / "halls.csv").write_text("hall,persons,households\nA,40,12\nB,90,33\n")
    (tmp_path / "beds.csv").write_text(
        "hall,measure,value\nA,persons,60\nA,households,60\nB,persons,95\nB,households,95\n"
    )

    def of(inequalities, **changes):
        base = {
            "data": {"counts": {"source": str(tmp_path / "halls.csv")}, "records": 2},
            "axes": {
                "hall": {"labels": HALLS},
                "measure": {"columns": {"persons": "persons", "households": "households"}},
            },
            "hold": [["measure"]],
            "inequalities": inequalities,
            "privacy": {"epsilon": 0.5},
            "publish": {
                "decimals": 0,
                "margins": [["hall"]],
                "to": str(tmp_path / "out"),
            },
        }
        return {key: value for key, value in (base | changes).items() if value is not None}

    return of


@pytest.fixture
def known(tmp_path):
    return {
        "at_most": [
            {"margin": ["hall", "measure"], "limit": str(tmp_path / "beds.csv")},
            {"margin": ["hall"], "limit": 140},
        ],
        "part_of": [["households", "persons"]],
    }


def test_everything_says_so(spec, known, tmp_path):
    """The certificate, intervals in files, plan, report and README; and it verifies."""
    published = run(spec(known))
    release, folder = load(tmp_path / "out"), tmp_path / "out"
    stated = release.mechanism.problem.inequalities
    assert stated.as_dict() == {
        "at_most": [
            {"margin": ["hall", "measure"], "limits": [[60, 60], [95, 95]]},
            {"margin": ["hall"], "limits": 140},
        ],
        "part_of": [["households", "persons"]],
    }
    assert published.release.mechanism.as_dict() == release.mechanism.as_dict()
    lower, upper = release.interval(0.95)
    assert np.all((lower >= 0) & (upper <= [[60, 60], [95, 95]]))
    lines = (folder / "margins" / "hall.csv").read_text().splitlines()[1:]
    for line, limit in zip(lines, (120, 140), strict=True):
        low, high = map(float, line.split(",")[-2:])
        assert 0 <= low <= high <= limit
    planned = plan(spec(known))
    assert "households at most persons" in " ".join(planned.releases[0].how())
    assert "households at most persons" in planned.as_dict()["releases"][0]["inequalities"]
    for name in ("README.txt", "report.html"):
        assert "households at most persons" in " ".join((folder / name).read_text().split())
    assert verify_folder(folder).ok


def test_limits_in_a_certificate_cannot_be_moved(spec, known, tmp_path):
    """Wider limits in the certificate are found."""
    run(spec(known))
    path = tmp_path / "out" / "certificate.json"
    data = json.loads(path.read_text())
    data["design"]["inequalities"]["at_most"][1]["limits"] = 10**6
    path.write_text(json.dumps(data))
    assert not verify_folder(tmp_path / "out").ok


def test_the_audit_uses_them(spec, known, tmp_path):
    """Limits of one hall leave nothing open in the other."""
    (tmp_path / "beds.csv").write_text(
        "hall,measure,value\nA,persons,40\nA,households,60\nB,persons,90\nB,households,95\n"
    )
    alone, together = (audit(spec(each))["table"] for each in (None, known))
    assert (alone.pinned, together.pinned) == (0, 2)
    assert "and with what is declared" in str(together)
    assert str(together.as_dict()["known"]).startswith("counts are not negative")


def test_a_contradiction_costs_nothing(spec, tmp_path):
    """It is refused before noise and money, by the held totals and nothing else."""
    ledger = open_ledger(tmp_path / "budget.db")
    ledger.create("halls", PureDP(2.0), ReplaceOne(records=2, exactly=True))
    paying = {"ledger": str(tmp_path / "budget.db"), "account": "halls"}
    wrong = {"at_most": [{"margin": ["measure"], "limit": 129}]}  # persons are 130
    told = set()
    for rows in ("A,40,12\nB,90,33", "A,120,45\nB,10,0"):  # the same totals
        (tmp_path / "halls.csv").write_text(f"hall,persons,households\n{rows}\n")
        with pytest.raises(InvariantError, match="contradict the held figures") as caught:
            run(spec(wrong, budget=paying))
        told.add((str(caught.value), tuple(getattr(caught.value, "__notes__", ()))))
    assert len(told) == 1
    assert not any(digit in str(told) for digit in "0123456789")
    assert not (tmp_path / "out").exists()
    assert not list(ledger.history("halls"))
    for right in ({"at_most": [{"margin": ["measure"], "limit": 130}]}, {}):
        run(spec(right, budget=paying), dry_run=True)


def test_what_noise_protects_is_not_compared(spec, tmp_path):
    """A false limit of figures that are not held is published like a true one."""
    wrong = {"at_most": [{"margin": ["hall"], "limit": 100}]}  # B has 123
    run(spec(wrong, hold=None))
    assert np.all(load(tmp_path / "out").margin("hall").interval(0.95)[1] <= 100)


def test_margins_alone(spec, known, tmp_path):
    """Margins without cells have the same inequalities."""
    publish = {"decimals": 0, "cells": False, "margins": [["hall"]], "to": str(tmp_path / "out")}
    run(
        spec(
            known | {"part_of": []},
            hold=[["hall"]],
            publish=publish | {"margins": [["hall", "measure"]]},
        )
    )
    assert np.all(load(tmp_path / "out").interval(0.95)[1] <= 95)
    assert verify_folder(tmp_path / "out").ok


def test_the_least_budget_knows_them(spec, tmp_path):
    """A design for targets states them like any other."""
    publish = {
        "decimals": 0,
        "margins": [{"margin": ["hall"], "error": 30}],
        "to": str(tmp_path / "out"),
    }
    asked = spec({"at_most": [{"margin": [], "limit": 500}]}, privacy={"rho": "least"})
    planned = plan(asked | {"publish": publish}).releases[0]
    assert str(planned.design.problem.inequalities).endswith("grand totals within public limits")


def test_tables_have_their_own(spec, known):
    """With several tables the section stands in each."""
    asked = spec(None, hold=None)
    asked["publish"] = {"decimals": 0}
    asked["tables"] = {
        "one": {"axes": ["hall", "measure"], "share": 0.5, "inequalities": known},
        "two": {"axes": ["hall", "measure"], "share": 0.5},
    }
    first, second = plan(asked).releases
    assert first.design.problem.inequalities is not None
    assert second.design.problem.inequalities is None
    with pytest.raises(SubspaceDPError, match="`inequalities` must stand in each of the `tables`"):
        read_specification(asked | {"inequalities": {}})


FILE = "hall,measure,value\nA,persons,60\nA,households,60\nB,persons,95\nB,households,{}\n"
WRONG = [
    ({"atmost": []}, "`inequalities.atmost` is not a known key; did you mean `at_most`?"),
    ({"at_most": [{"margin": ["hal"], "limit": 3}]}, "not an axis or level here; did you mean"),
    ({"at_most": [{"margin": ["hall"]}]}, "`inequalities.at_most.limit` item 1 is missing"),
    ({"at_most": [{"margin": ["hall"], "limit": 2.5}]}, "must be a whole number; got 2.5"),
    ({"at_most": [{"margin": ["hall"], "limit": -1}]}, "must be at least 0; got -1"),
    ({"at_most": [{"margin": ["hall"], "limit": "sixty"}]}, "whole number, or the path of a csv"),
    (
        {"at_most": [{"margin": ["hall"], "limit": "no.csv"}]},
        "no.csv`: there is no such file|no.csv",
    ),
    (
        {"at_most": [{"margin": ["hall"], "limit": 3}] * 2},
        "item 2 limits the same margin as item 1",
    ),
    ({"part_of": [["households"]]}, "must be a part and its whole, such as"),
    (
        {"part_of": [["rooms", "persons"]]},
        "`part_of` ['rooms', 'persons']: no axis has both labels",
    ),
    ({"part_of": [["persons", "persons"]]}, "makes 'persons' a part of itself"),
    ({"part_of": [["persons", "households"], ["households", "persons"]]}, "a part of itself"),
]


@pytest.mark.parametrize(("inequalities", "told"), WRONG, ids=range(len(WRONG)))
def test_one_sentence(spec, inequalities, told, monkeypatch):
    """Whatever is wrong is told before any data are opened."""
    monkeypatch.setattr("subspacedp.publication.running.open_data", None)
    with pytest.raises(SubspaceDPError) as caught:
        run(spec(inequalities))
    assert any(part in str(caught.value) for part in told.split("|")), str(caught.value)
    assert str(caught.value).count(". ") == 0 or "inequalities" in str(caught.value)


@pytest.mark.parametrize("limit", ["-3", "2.5", "many", ""])
def test_files_of_limits(spec, known, tmp_path, limit):
    """Limits of a file are whole numbers, one for every total."""
    (tmp_path / "beds.csv").write_text(FILE.format(limit))
    with pytest.raises(SubspaceDPError, match=r"`inequalities.at_most` item 1: The file of public"):
        plan(spec(known))
    (tmp_path / "beds.csv").write_text(FILE.format(1).replace("B,persons,95\n", ""))
    with pytest.raises(SubspaceDPError, match="has no figure for 'B' × 'persons'"):
        plan(spec(known))


def test_bounded_records(tmp_path):
    """Figures of bounded records need not satisfy what is known of all records."""
    base = {
        "data": {"source": "persons.csv", "unit": "id", "records": 2},
        "axes": {"hall": {"labels": HALLS}, "sex": {"labels": SEXES}},
        "privacy": {"epsilon": 0.5},
    }
    with pytest.raises(SubspaceDPError, match="a part may stay where its whole is left out"):
        read_specification(base | {"inequalities": {"part_of": [["F", "M"]]}})
    limits = {"at_most": [{"margin": ["hall"], "limit": 9}]}
    with pytest.raises(SubspaceDPError, match="moved to agree with the held ones"):
        read_specification(base | {"hold": [["sex"]], "inequalities": limits})
    assert plan(base | {"inequalities": limits}).releases
    base["axes"]["hall"] = {"labels": "from-data"}
    with pytest.raises(SubspaceDPError, match="must be listed where `inequalities` speak of"):
        read_specification(
            base
            | {
                "data": {"source": "p.csv", "unit": "row"},
                "inequalities": {"part_of": [["F", "M"]]},
            }
        )
