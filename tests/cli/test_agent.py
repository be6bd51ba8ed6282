"""`subspacedp agent`: agents in processes of their own, each with its own file alone."""

import csv
import json
import os
import shutil
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

import subspacedp as sdp
from subspacedp.agents import AgentPlan, Partition, make_plan, read_secret
from subspacedp.release import Design

pytest.importorskip("yaml", reason="the extra `publish` is not installed")

STATES = {"north": ["a", "b"], "middle": ["c"], "south": ["d", "e", "f"]}
COUNTIES = {county: state for state, inside in STATES.items() for county in inside}


@pytest.fixture
def call(call, monkeypatch):
    """`subspacedp agent`, without a secret in the environment."""
    monkeypatch.delenv("SUBSPACEDP_SECRET", raising=False)
    return partial(call, "agent")


def write_specification(folder, **changes):
    data = {
        "data": {"counts": {"source": "none.csv", "value": "people"}},
        "axes": {
            "county": {"labels": list(COUNTIES), "levels": {"state": STATES}},
            "sex": {"labels": ["F", "M"]},
        },
        "hold": [["state"], ["sex"]],
        "privacy": {"epsilon": 0.5},
        "publish": {"decimals": 0},
        **changes,
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")


def write_data(path, counties, seed=0):
    rng = np.random.default_rng([seed, *map(ord, "".join(counties))])
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [[c, s, int(rng.integers(0, 90))] for c in counties for s in "FM"]
        csv.writer(file).writerows([["county", "sex", "people"], *rows])
    return {(county, sex): people for county, sex, people in rows}


@pytest.fixture
def offices(tmp_path):
    write_specification(tmp_path)
    counts = {}
    for state, counties in STATES.items():
        counts.update(write_data(tmp_path / f"{state}.csv", counties))
    return counts


def in_a_process(*arguments, cwd):
    command = Path(sys.executable).parent / "subspacedp"
    done = subprocess.run(
        [str(command), "agent", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "SUBSPACEDP_SECRET"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("decimals", [0, None])
def test_agents_in_separate_processes_equal_the_central_release(call, offices, tmp_path, decimals):
    write_specification(tmp_path, publish={"decimals": decimals})
    assert call("plan", "spec.yaml", "--by", "state", "--out", "plan.json")[0] == 0
    assert call("secret", "--out", "secret")[0] == 0
    parts = []
    for state in STATES:
        room = tmp_path / f"office-{state}"
        room.mkdir()
        for name in ("plan.json", "secret", f"{state}.csv"):
            shutil.copy2(tmp_path / name, room / name)
        in_a_process(
            "privatize", "--plan", "plan.json", "--part", state, "--secret-file", "secret",
            "--data", f"{state}.csv", "--out", f"{state}.part", cwd=room,
        )  # fmt: skip
        assert not {p.name for p in room.iterdir()} & {f"{s}.csv" for s in STATES if s != state}
        parts.append(room / f"{state}.part")
    room = tmp_path / "collector"
    room.mkdir()
    for path in (tmp_path / "plan.json", *parts):
        shutil.copy2(path, room / path.name)
    names = [path.name for path in parts]
    in_a_process("collect", "--plan", "plan.json", *names, "--out", "release", cwd=room)

    plan = AgentPlan.load(tmp_path / "plan.json")
    counts = np.array([[offices[c, s] for s in "FM"] for c in COUNTIES])
    keys = read_secret(tmp_path / "secret").keys(plan)
    central = Design(plan.mechanism).release_with(keys, counts, counts, seeded=False)
    release = sdp.Release.load(room / "release")
    assert release.values.tobytes() == central.values.tobytes()
    assert release.release_id == plan.plan_id
    assert release.margin("sex").values.tolist() == counts.sum(axis=0).tolist()
    assert release.margin("state").values.tolist() == [
        sum(offices[c, s] for c in inside for s in "FM") for inside in STATES.values()
    ]
    assert release.certificate()["distributed"]["trust"] == "common secret"
    assert main_verify(room / "release")


def main_verify(folder):
    from subspacedp.release import verify_folder

    return verify_folder(folder).ok


@pytest.fixture
def agreed(call, offices):
    assert call("plan", "spec.yaml", "--by", "state", "--out", "plan.json")[0] == 0
    assert call("secret", "--out", "secret")[0] == 0


def privatize(call, state, *more, out=None):
    return call(
        "privatize", "--plan", "plan.json", "--part", state, "--data", f"{state}.csv",
        "--out", out or f"{state}.part", *(more or ("--secret-file", "secret")),
    )  # fmt: skip


def test_absence_is_detected_by_name(call, agreed):
    for state in ("north", "south"):
        assert privatize(call, state)[0] == 0
    status, out, err = call(
        "collect", "--plan", "plan.json", "north.part", "south.part", "--out", "release"
    )
    assert (status, out) == (2, "")
    assert err == "subspacedp: Missing: the part `middle`.\n"
    assert not Path("release").exists()


def test_results_as_json(call, offices):
    data = json.loads(call("plan", "spec.yaml", "--by", "state", "--json")[1])
    assert data["parts"] == {"north": 4, "middle": 2, "south": 6}
    assert data["masked"] is False
    data = json.loads(call("deal", "--plan", "plan.json", "--out", "shares", "--json")[1])
    assert set(data["shares"]) == set(STATES)
    for state in STATES:
        status, out, _ = call(
            "privatize", "--plan", "plan.json", "--share", data["shares"][state],
            "--data", f"{state}.csv", "--out", f"{state}.part", "--json",
        )  # fmt: skip
        assert status == 0
        one = json.loads(out)
        assert (one["part"], one["trust"]) == (state, "dealer")
        assert one["noise_id"] == data["noise_id"]
    parts = [f"{state}.part" for state in STATES]
    status, out, _ = call("collect", "--plan", "plan.json", *parts, "--out", "release", "--json")
    data = json.loads(out)
    assert (status, data["verified"], data["guarantee"]) == (0, True, "G")
    assert data["distributed"]["trust"] == "dealer"


def test_other_ways_to_part_a_table(call, offices):
    options = ("--level", "state", "--part", "x=north, middle", "--part", "y=south")
    assert call("plan", "spec.yaml", *options, "--out", "a.json")[0] == 0
    assert AgentPlan.load("a.json").partition.names == ("x", "y")
    Path("parts.yaml").write_text("women: {labels: {sex: [F]}}\nmen: {labels: {sex: [M]}}\n")
    assert call("plan", "spec.yaml", "--partition", "parts.yaml", "--out", "b.json")[0] == 0
    assert AgentPlan.load("b.json").partition.cells("men").tolist() == [1, 3, 5, 7, 9, 11]
    Path("parts.json").write_text('{"low": {"cells": [[0, 5]]}, "high": {"cells": [[6, 11]]}}')
    assert call("plan", "spec.yaml", "--partition", "parts.json", "--out", "c.json")[0] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "Say how to part the table"),
        (("--by", "state", "--partition", "x"), "Say how to part the table"),
        (("--by", "planet"), "no level `planet`"),
        (("--part", "x=north"), "needs `--level`"),
        (("--part", "x", "--level", "state"), "given as NAME=LABEL,LABEL"),
        (("--part", "x=north", "--level", "state"), "2 labels of `state` are in no part"),
        (("--part", "x=north,middle,south", "--part", "y=south", "--level", "state"), "overlap"),
        (("--part", "x=north", "--part", "x=south", "--level", "state"), "given twice"),
        (("--partition", "none.yaml"), "none.yaml"),
        (("--by", "state", "--table", "other"), "no table `other`"),
    ],
)
def test_plans_that_cannot_be_made(call, offices, options, sentence):
    status, out, err = call("plan", "spec.yaml", *options)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not Path("plan.json").exists()


def test_a_specification_that_bounds_records_is_refused(call, tmp_path):
    write_specification(tmp_path, data={"source": "persons.csv", "unit": "person_id"})
    status, _, err = call("plan", "spec.yaml", "--by", "state")
    assert status == 2
    assert "cannot bound a person's records together" in err


def test_the_mechanism_that_is_named_is_taken(call, tmp_path):
    write_specification(
        tmp_path, mechanism="extended", publish={}, privacy={"epsilon": 1.0, "delta": 1e-6}
    )
    status, out, _ = call("plan", "spec.yaml", "--by", "state")
    assert status == 0
    assert "masked sums" in out


def test_a_secret_from_the_environment_needs_a_record(call, agreed, monkeypatch):
    monkeypatch.setenv("SUBSPACEDP_SECRET", Path("secret").read_text())
    status, _, err = privatize(call, "north", "--json")
    assert status == 2
    assert "--record" in err
    assert privatize(call, "north", "--record", "mine")[0] == 0
    assert stat.S_IMODE(Path("mine").stat().st_mode) == 0o600
    one = Path("north.part").read_bytes()
    monkeypatch.delenv("SUBSPACEDP_SECRET")
    assert privatize(call, "north", "--secret-file", "secret", out="again.part")[0] == 0
    assert Path("again.part").read_bytes() == one


def test_other_data_are_refused_and_the_part_stays(call, agreed, tmp_path):
    assert privatize(call, "north")[0] == 0
    one = Path("north.part").read_bytes()
    assert "again, from the same data" in privatize(call, "north")[1]
    write_data(tmp_path / "north.csv", STATES["north"], seed=1)
    status, _, err = privatize(call, "north", out="other.part")
    assert status == 2
    assert "privatised before with other data" in err
    assert Path("north.part").read_bytes() == one
    assert not Path("other.part").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("county,sex,people\na,F,1\n", "no row for 3 cells of part `north`"),
        ("county,sex,people\na,F,x\na,M,1\nb,F,1\nb,M,1\n", "not a whole number"),
        ("county,sex,people\nhidden,F,1\n", "1 row has a label in column `county`"),
        ("county,people\na,1\n", "no column `sex`"),
        ("", "Cannot use the data"),
        ("county,sex,people\na,F\n", "Cannot use the data"),
        ("county,county,people\na,F,1\n", "two of its columns"),
        ("county,sex,people\nc,F,1\n", "not in part `north`"),
    ],
)
def test_data_that_do_not_fit(call, agreed, content, sentence):
    Path("north.csv").write_text(content)
    status, out, err = privatize(call, "north")
    assert (status, out) == (2, "")
    assert sentence in err
    assert "hidden" not in err
    assert not Path("north.part").exists()
    assert not list(Path().glob("*.record"))


def test_parquet_and_rows_without_counts(call, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    write_specification(tmp_path, data={"source": "none.csv", "unit": "row"})
    assert call("plan", "spec.yaml", "--by", "state", "--out", "plan.json")[0] == 0
    assert call("secret", "--out", "secret")[0] == 0
    table = pa.table({"county": ["a", "b", "b"], "sex": ["F", "M", "M"]})
    pyarrow.parquet.write_table(table, "north.parquet")
    status, _, err = call(
        "privatize", "--plan", "plan.json", "--part", "north", "--secret-file", "secret",
        "--data", "north.parquet", "--out", "north.part",
    )  # fmt: skip
    assert status == 0, err


def test_plans_of_entries_come_from_python(call, tmp_path):
    people = sdp.Domain([sdp.Axis("person", ["Ann", "Bob"])])
    entries = sdp.LocalEntries(people, 0, 10)
    mechanism = sdp.design(entries, sdp.hold(), sdp.PureDP(1.0), decimals=0)
    make_plan(mechanism, Partition.by(people, "person"), value="score").save("plan.json")
    assert call("secret", "--out", "secret")[0] == 0
    for name, score in (("Ann", 3), ("Bob", 9)):
        Path(f"{name}.csv").write_text(f"person,score\n{name},{score}\n")
        assert privatize(call, name)[0] == 0
    parts = ("Ann.part", "Bob.part")
    status, out, _ = call("collect", "--plan", "plan.json", *parts, "--out", "release")
    assert status == 0
    assert out.splitlines()[-2:] == ["Written: release", "Next: subspacedp report release"]
    assert int(sdp.Release.load("release").values.sum()) == 12


def test_the_column_of_the_specification_is_the_one_that_is_counted(call, agreed):
    assert AgentPlan.load("plan.json").value == "people"
    rows = [line.split(",") for line in Path("north.csv").read_text().split()]
    Path("north.csv").write_text("".join(f"{','.join(row)},{i}\n" for i, row in enumerate(rows)))
    status, _, err = privatize(call, "north", "--secret-file", "secret", "--value", "0")
    assert status == 2
    assert "column of counts is `people`, not `0`" in err
    status, out, _ = privatize(call, "north")
    assert status == 0
    assert "counts of column `people`" in out


def test_a_secret_that_was_renamed_refuses_other_data(call, agreed, tmp_path):
    assert privatize(call, "north")[0] == 0
    Path("secret").rename("renamed")
    write_data(tmp_path / "north.csv", STATES["north"], seed=1)
    status, _, err = privatize(call, "north", "--secret-file", "renamed", out="other.part")
    assert status == 2
    assert "privatised before with other data" in err
    Path("renamed").rename("secret")


def test_a_plan_that_was_altered_after_some_agents_ran(call, agreed):
    assert privatize(call, "north")[0] == 0
    text = Path("plan.json").read_text().replace('"epsilon": 0.5', '"epsilon": 5.0')
    Path("plan.json").write_text(text)
    status, _, err = privatize(call, "south")
    assert status == 2
    assert "was altered after it was made" in err


def test_options_that_contradict_each_other(call, agreed):
    assert call("deal", "--plan", "plan.json", "--out", "shares")[0] == 0
    share = ("--share", "shares/north.share")
    assert "one of them" in privatize(call, "north", *share, "--secret-file", "secret")[2]
    assert "for the part `north`" in privatize(call, "south", *share)[2]
    status, _, err = call(
        "privatize", "--plan", "plan.json", "--data", "north.csv", "--out", "x",
        "--secret-file", "secret",
    )  # fmt: skip
    assert status == 2
    assert "--part NAME" in err


def test_help_is_there(call):
    for verb in ("plan", "secret", "privatize", "deal", "collect"):
        status, out, _ = call(verb, "--help")
        assert status == 0
        assert "--out" in out
