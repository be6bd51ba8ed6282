"""The verbs of a publication for cells and their levels, and for margins without a table."""

import csv
import json

import pytest
import yaml

pytest.importorskip("ibis", reason="the extra `publish` is not installed")

AXES = {
    "county": {"labels": "counties.csv", "levels": ["state"]},
    "sex": {"labels": ["F", "M"]},
    "age": {"bins": [0, 18, 65]},
}
LEVELS = {
    "mechanism": "marginals",
    "hold": [[]],
    "publish": {"decimals": 0, "margins": [["state", "sex"]], "weights": [1, 2]},
}
MARGINS = {
    "hold": [["state"]],
    "publish": {"cells": False, "decimals": 0, "margins": [["county", "sex"], ["sex", "age"]]},
}


@pytest.fixture
def spec(tmp_path):
    counties = [f"c{i}" for i in range(8)]
    with (tmp_path / "counties.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [[county, "XY"[i > 4]] for i, county in enumerate(counties)]
        csv.writer(file).writerows([["county", "state"], *rows])
    with (tmp_path / "persons.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [[f"p{i}", counties[i * i % 8], "FM"[i % 2], i % 80] for i in range(400)]
        csv.writer(file).writerows([["person_id", "county", "sex", "age"], *rows])

    def write(extra, **changes):
        data = {
            "data": {"source": "persons.csv", "unit": "person_id"},
            "axes": AXES,
            "privacy": {"rho": 0.1},
            **extra,
            **changes,
        }
        (tmp_path / "publication.yaml").write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")
        return tmp_path / "publication.yaml"

    return write


@pytest.mark.parametrize("privacy", [{"rho": 0.1}, {"epsilon": 1.0}])
@pytest.mark.parametrize("extra", [LEVELS, MARGINS], ids=["levels", "margins"])
def test_from_plan_to_report(call, spec, tmp_path, extra, privacy):
    path = spec(extra, privacy=privacy)
    status, out, _ = call("plan", path)
    assert status == 0
    assert "No data were opened" in out
    assert "with noise on cells" in out
    if extra is LEVELS:
        assert "every cell" in out
        assert "state × sex" in out
    else:
        assert "table: 2 margins, 22 figures" in out
        assert "every cell" not in out
        assert "county × sex" in out
    status, out, _ = call("plan", path, "--json")
    assert status == 0
    planned = json.loads(out)["releases"][0]
    assert planned["mechanism"] == "marginals"
    assert all("stderr_cells_alone" in line for line in planned["errors"])
    status, out, _ = call("release", path)
    assert status == 0, out
    assert "FAIL" not in out
    status, out, _ = call("verify", tmp_path / "release")
    assert status == 0
    assert "All checks hold." in out
    status, out, _ = call("report", tmp_path / "release", "--out", tmp_path / "again.html")
    assert status == 0
    page = (tmp_path / "again.html").read_text("utf-8")
    assert "Error by table" in page
    assert ("How far off the figures of margins are" in page) == (extra is MARGINS)


@pytest.mark.parametrize("extra", [LEVELS, MARGINS], ids=["levels", "margins"])
def test_the_budget_for_a_target(call, spec, extra):
    path = spec(extra)
    status, out, _ = call("plan", path, "--target-error", 20, "--margin", "sex,age")
    assert status == 0
    assert out.startswith("A margin of error of 20 (95 %) for sex × age takes ρ = ")
    status, out, _ = call("plan", path, "--target-error", 20)
    assert status == 0
    assert ("every cell" in out) == (extra is LEVELS)


def test_a_margin_that_does_not_follow_is_one_sentence(call, spec):
    status, _, err = call("plan", spec(MARGINS), "--target-error", 20, "--margin", "county,age")
    assert status == 2
    assert "The margin `county × age` does not follow from the margins of the workload." in err


def test_comparing_mechanisms(call, spec):
    plain = {"hold": [[]], "publish": {"decimals": 0}}
    status, out, _ = call("plan", spec(plain), "--compare")
    assert status == 0
    assert "total squared error" in out
    assert "(chosen)" in out
    # Noise for several tables is compared table by table.
    status, out, _ = call("plan", spec(MARGINS), "--compare")
    assert status == 0
    assert "total squared error" not in out
    assert "with noise on cells" in out


def test_what_earlier_versions_had_is_refused_with_what_to_write(call, spec):
    status, _, err = call("plan", spec({**LEVELS, "mechanism": "hierarchical"}))
    assert status == 2
    assert "may no longer be `hierarchical`; write `mechanism: marginals`" in " ".join(err.split())


@pytest.mark.parametrize("extra", [LEVELS, MARGINS], ids=["levels", "margins"])
@pytest.mark.parametrize("options", [(), ("--structure",), ("--json",)])
def test_auditing(call, spec, extra, options):
    status, out, _ = call("audit", spec(extra), *options)
    assert status == 0
    if "--json" in options:
        assert json.loads(out)["table"]["smallest_move"]["people"] == 1
    else:
        assert "1 person can change alone" in out


def test_code_lists_whose_levels_do_not_nest(call, spec, tmp_path):
    axes = {**AXES, "county": {"labels": "counties.csv", "levels": ["state", "region"]}}
    path = spec(LEVELS, axes=axes)
    (tmp_path / "counties.csv").write_text("county,state,region\nc1,X,N\nc2,X,S\nc3,Y,S\n")
    status, _, err = call("plan", path)
    assert status == 2
    assert "`axes.county.levels` (line " in err
    assert "Level `state` does not nest in level `region`" in err
    (tmp_path / "counties.csv").write_text("county,state,region\nc1,X,N\nc2,,S\n")
    status, _, err = call("plan", path)
    assert status == 2
    assert "has nothing in column `state` in line 3." in err
