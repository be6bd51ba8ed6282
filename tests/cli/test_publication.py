"""The verbs of a publication: init, plan, release, verify, report."""

import csv
import json
import stat

import pytest
import yaml

from subspacedp.publication import read_specification

pytest.importorskip("ibis", reason="the extra `publish` is not installed")

COUNTIES = ["c1", "c2", "c3"]


@pytest.fixture
def persons(tmp_path):
    with (tmp_path / "persons.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [[f"p{i}", COUNTIES[i % 3], "FM"[i % 2], i % 80] for i in range(200)]
        csv.writer(file).writerows([["person_id", "county", "sex", "age"], *rows])
    return tmp_path / "persons.csv"


@pytest.fixture
def spec(tmp_path, persons):
    data = {
        "data": {"source": "persons.csv", "unit": "person_id"},
        "axes": {"county": {"labels": COUNTIES}, "sex": {"labels": ["F", "M"]}},
        "hold": [["county"]],
        "privacy": {"epsilon": 0.5},
        "publish": {"decimals": 0, "margins": [["sex"]]},
    }
    (tmp_path / "publication.yaml").write_text(yaml.safe_dump(data), "utf-8")
    return tmp_path / "publication.yaml"


@pytest.fixture
def keys(tmp_path):
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    for name in ("mine", "other"):
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        (tmp_path / f"{name}.pem").write_bytes(private)
        public = key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / f"{name}.pub").write_bytes(public)
    return tmp_path


@pytest.mark.parametrize(
    "verb", ["", "init", "plan", "release", "verify", "report", "version", "demo", "demo census"]
)
def test_every_verb_has_help(call, verb):
    status, out, _ = call(*verb.split(), "--help")
    assert status == 0
    assert "Usage: " in out
    assert "--help" in out


# ------------------------------------------------------------------------------------------- init


def test_init_writes_a_specification_that_plans_and_releases(call, persons, tmp_path):
    status, out, err = call("init", "persons.csv")
    assert status == 0, err
    path = tmp_path / "publication.yaml"
    assert "Wrote publication.yaml" in out
    assert "compare them with a public list" in out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    proposed = read_specification(path)
    assert proposed.document.data.unit == "person_id"
    assert {"county", "sex", "age"} <= set(proposed.document.axes)
    status, out, _ = call("plan", "publication.yaml")
    assert status == 0
    assert "No data were opened" in out
    status, out, _ = call("release", "publication.yaml", "--dry-run")
    assert status == 0
    assert "Nothing was written" in out
    assert not (tmp_path / "release").exists()


def test_init_elsewhere_still_finds_its_source(call, persons, tmp_path):
    (tmp_path / "specs").mkdir()
    assert call("init", "persons.csv", "--out", "specs/p.yaml")[0] == 0
    proposed = read_specification(tmp_path / "specs" / "p.yaml")
    assert (tmp_path / "specs" / proposed.document.data.where).resolve() == persons


def test_init_from_a_database(call, persons, tmp_path):
    import duckdb

    with duckdb.connect("people.duckdb") as con:
        con.execute("CREATE TABLE everybody AS SELECT * FROM 'persons.csv'")
    status, _, err = call("init", "people.duckdb")
    assert status == 2
    assert "say which `table`" in err
    status, _, err = call("init", "people.duckdb", "--table", "everybody")
    assert status == 0, err
    assert (tmp_path / "publication.yaml").is_file()


def test_init_from_a_database_remembers_the_table(call, persons):
    import duckdb

    with duckdb.connect("people.duckdb") as con:
        con.execute("CREATE TABLE everybody AS SELECT * FROM 'persons.csv'")
    assert call("init", "people.duckdb", "--table", "everybody")[0] == 0
    assert call("release", "publication.yaml", "--dry-run")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("init", "nobody.csv"), "There is no file `nobody.csv`"),
        (("init", "persons.csv", "--out", "persons.csv"), "exists already"),
        (("init", "persons.csv", "--out", "no/where.yaml"), "Cannot write `no/where.yaml`"),
        (("init",), "Missing argument"),
        (("plan", "nothing.yaml"), "nothing.yaml"),
        (("release", "nothing.yaml"), "nothing.yaml"),
        (("release", "persons.csv"), "specification"),
        (("report", "nowhere"), "There is no folder `nowhere`"),
        (("report", "."), "has no certificate.json"),
        (("verify", "nowhere"), "There is no folder"),
        (("publish",), "No such command"),
    ],
)
def test_bad_input_has_status_2_and_leaves_nothing(call, persons, tmp_path, arguments, sentence):
    before = sorted(tmp_path.rglob("*"))
    content = persons.read_bytes()
    status, out, err = call(*arguments)
    assert status == 2
    assert out == ""
    assert sentence in err
    assert sorted(tmp_path.rglob("*")) == before
    assert persons.read_bytes() == content


# ------------------------------------------------------------------------------------------- plan


def test_plan_needs_no_data(call, spec, persons):
    persons.unlink()
    status, out, err = call("plan", spec)
    assert status == 0, err
    for piece in (
        "table: 6 cells, ε = 0.5, projected mechanism",
        "every cell",
        "county (held)",
        "margin of error (95 %)",
        "(chosen)",
        "no budget was spent",
    ):
        assert piece in out, piece


def test_plan_as_json_and_the_budget_of_a_target(call, spec):
    status, out, _ = call("plan", spec, "--json")
    assert status == 0
    data = json.loads(out)
    (release,) = data["releases"]
    errors = {line["what"]: line for line in release["errors"]}
    assert errors["county (held)"]["published_exactly"] == 3
    status, out, _ = call("plan", spec, "--target-error", "5", "--json")
    wanted = json.loads(out)
    assert status == 0
    assert wanted["level"] == 0.95
    every = wanted["budget"]["epsilon"]
    assert every > 0.5
    status, out, _ = call("plan", spec, "--target-error", "5", "--margin", " sex ", "--json")
    assert json.loads(out)["budget"]["epsilon"] > every
    status, out, _ = call("plan", spec, "--target-error", "5", "--margin", "sex")
    assert out.startswith("A margin of error of 5 (95 %) for sex takes ε = ")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--target-error", "5", "--margin", "county"), "fixed by the invariants"),
        (("--target-error", "5", "--margin", "state"), "no level `state`"),
        (("--target-error", "5", "--table", "other"), "no table `other`"),
        (("--target-error", "0"), "positive finite number"),
        (("--target-error", "nan"), "positive finite number"),
        (("--target-error", "x"), "Invalid value"),
        pytest.param(
            ("--margin", "sex"),
            "--target-error",
        ),
    ],
)
def test_targets_that_cannot_be(call, spec, options, sentence):
    status, out, err = call("plan", spec, *options)
    assert (status, out) == (2, "")
    assert sentence in err


# ---------------------------------------------------------------------------- release and verify


def test_release_verify_and_report(call, spec, tmp_path):
    status, out, err = call("release", spec)
    assert status == 0, err
    assert "counting in duckdb" in err
    assert "FAIL" not in out
    assert f"Published: {tmp_path / 'release'}" in out
    assert "CONFIDENTIAL" not in out
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    status, out, _ = call("verify", "release")
    assert (status, "All checks hold." in out) == (0, True)
    assert call("release", spec)[0] == 2
    status, out, err = call("report", "release", "--out", "page.html", "--title", "A <title>")
    assert status == 0, err
    assert "A &lt;title&gt;" in (tmp_path / "page.html").read_text("utf-8")
    status, _, err = call("report", "release", "--out", "page.html")
    assert status == 2
    assert "exists already" in err


def test_nothing_is_proposed_from_a_header_alone(call, tmp_path):
    (tmp_path / "header.csv").write_text("sex,age\n", "utf-8")
    before = sorted(tmp_path.iterdir())
    status, out, err = call("init", "header.csv", "--out", "new.yaml")
    assert (status, out) == (2, "")
    assert err == "subspacedp: The source has no rows, from which something could be proposed.\n"
    assert sorted(tmp_path.iterdir()) == before


def test_what_comes_next_is_what_can_be_done(call, spec, tmp_path):
    assert f"Next: subspacedp audit {spec}\n" in call("plan", spec)[1]
    assert f"Next: subspacedp release {spec}\n" in call("audit", spec)[1]
    spec.write_text(spec.read_text("utf-8") + "budget: {ledger: b.db, account: a}\n", "utf-8")
    status, out, _ = call("plan", spec)
    assert status == 0
    assert f"`subspacedp ledger create {tmp_path / 'b.db'} ACCOUNT` makes one" in out
    assert "Next: " not in out


def test_an_existing_folder_is_refused_before_anything_is_designed(call, spec, monkeypatch):
    account = "budget: {ledger: budget.db, account: a}\n"
    spec.write_text(spec.read_text("utf-8") + account, "utf-8")
    assert call("ledger", "create", "budget.db", "a", "--epsilon", "9")[0] == 0
    status, _, err = call("release", spec)
    assert status == 0, err
    assert "designing" in err

    def designed(*_, **__):
        raise AssertionError("a release was designed")

    monkeypatch.setattr("subspacedp.publication.running._designs_of", designed)
    status, _, err = call("release", spec)
    assert status == 2
    assert "never overwrites one; name another." in err


def test_a_specification_in_another_folder_named_by_a_relative_path(call, spec, tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("publication.yaml", "persons.csv"):
        (tmp_path / name).rename(tmp_path / "deep" / name)
    status, _, err = call("release", "deep/publication.yaml", "--dry-run")
    assert status == 0, err


def test_release_as_json_elsewhere_with_a_comparison(call, spec, tmp_path):
    status, out, _ = call("release", spec, "--json", "--out", "deep/there", "--compare", "private")
    assert status == 0
    data = json.loads(out)
    assert data["verified"] is True
    assert data["folder"] == "deep/there"
    assert data["releases"]["table"]["guarantee"] == "G"
    assert data["releases"]["table"]["budget"] == {"name": "pure", "epsilon": 0.5}
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    assert not (tmp_path / "release").exists()


def test_a_dry_run(call, spec, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    status, out, _ = call("release", spec, "--dry-run", "--json")
    assert status == 0
    assert json.loads(out) == {"dry_run": True, "releases": ["table"]}
    assert sorted(tmp_path.rglob("*")) == before


def test_a_release_that_does_not_verify_has_status_1(call, spec, monkeypatch):
    from subspacedp.release import Check, Verification

    bad = Verification((Check("values", False, "made up"),))
    monkeypatch.setattr("subspacedp.microdata.verify_folder", lambda *_a, **_o: bad)
    assert call("release", spec)[0] == 1


def test_verify_with_keys(call, spec, keys):
    data = yaml.safe_load(spec.read_text("utf-8"))
    data["publish"]["sign"] = "mine.pem"
    spec.write_text(yaml.safe_dump(data), "utf-8")
    assert call("release", spec)[0] == 0
    status, out, _ = call("verify", "release", "--key", "mine.pub")
    assert status == 0
    assert "by the key given" in out
    status, out, _ = call("verify", "release", "--key", "other.pub", "--json")
    assert status == 1
    assert json.loads(out)["ok"] is False
    status, _, err = call("verify", "release", "--key", "none.pub")
    assert status == 2
    assert "Cannot read the key `none.pub`" in err
    (keys / "release" / "extra.txt").write_text("")
    status, out, _ = call("verify", "release")
    assert status == 1
    assert "A check failed." in out
    (keys / "release" / "extra.txt").unlink()
    (keys / "release" / "signature.json").unlink()
    assert call("verify", "release", "--key", "mine.pub")[0] == 1


def test_several_tables_are_verified_and_reported_together(call, spec, tmp_path):
    data = yaml.safe_load(spec.read_text("utf-8"))
    del data["hold"], data["publish"]["margins"]
    data["tables"] = {
        "one": {"axes": ["county"], "share": 0.5},
        "two": {"axes": ["sex"], "share": 0.5},
    }
    spec.write_text(yaml.safe_dump(data), "utf-8")
    assert call("release", spec)[0] == 0
    status, out, _ = call("verify", "release", "--json")
    assert status == 0
    assert {c["name"].partition(":")[0] for c in json.loads(out)["checks"]} == {
        "digests",
        "one",
        "two",
    }
    assert call("report", "release")[0] == 0
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "one" in page
    assert "two" in page
