"""`subspacedp ledger`, as its sub-app."""

import json

import pytest
from typer.testing import CliRunner

import subspacedp as sdp
from subspacedp.cli.ledger import ledger_app
from subspacedp.errors import SubspaceDPError
from subspacedp.ledger import open_ledger
from subspacedp.privacy import ReplaceOne
from subspacedp.privacy.composition import Spend


def run(*arguments):
    result = CliRunner().invoke(ledger_app, [str(a) for a in arguments], env={"COLUMNS": "160"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "budget.db"
    result = run("create", path, "census", "--epsilon", 1, "--delta", 1e-6, "--note", "2010")
    assert "Account `census`: ε = 1, δ = 1e-06, for one person's record replaced" in result.stdout
    ledger = open_ledger(path)
    one = Spend(budget=sdp.PureDP(0.3), neighbours=ReplaceOne())
    first = ledger.reserve("census", [one], note="[first] table")
    first.drawing()
    first.commit(["0" * 32], "release-1", ["0" * 64])
    other = Spend(budget=sdp.ZCDP(0.01), neighbours=ReplaceOne())
    ledger.reserve("census", [other], note="lost", replaces=first.number)
    return path


def test_show(path):
    text = " ".join(run("show", path).stdout.split())
    for piece in ("census: limit ε = 1, δ = 1e-06", "left", "ε at δ = 1e-6", "not defined"):
        assert piece in text
    assert "1 never committed; they count" in text
    data = json.loads(run("show", path, "census", "--json").stdout)
    account = data["accounts"][0]
    assert account["open"] == 1
    assert account["totals"]["rho"] == 0.055
    assert account["totals"]["epsilon"] is None


def test_history(path):
    text = " ".join(run("history", path, "census").stdout.split())
    for piece in ("[first] table", "committed", "reserved, never committed", "replaces 1. lost"):
        assert piece in text
    entries = json.loads(run("history", path, "census", "--json").stdout)
    assert [entry["state"] for entry in entries] == ["committed", "reserved"]


def test_export(path, tmp_path):
    printed = json.loads(run("export", path).stdout)
    assert printed["format"] == "subspacedp ledger 1"
    run("export", path, "census", "--out", tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert written["accounts"] == printed["accounts"]
    with pytest.raises(SubspaceDPError, match="exists already"):
        run("export", path, "--out", tmp_path / "out.json")


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (["--epsilon", "2"], {"name": "pure", "epsilon": 2.0}),
        (["--rho", "0.5"], {"name": "zero-concentrated", "rho": 0.5}),
        (["--mu", "0.5", "--neighbours", "add-remove-one"], {"name": "gaussian", "mu": 0.5}),
    ],
)
def test_create_as_json(tmp_path, options, limit):
    data = json.loads(run("create", tmp_path / "b.db", "a", *options, "--json").stdout)
    assert data["limit"] == limit
    assert data["unit"] == "person"


def test_bad_input_is_one_sentence(path, tmp_path):
    for arguments, words in (
        (["create", path, "b"], "An account has one limit"),
        (["create", path, "b", "--epsilon", 1, "--rho", 1], "An account has one limit"),
        (["create", path, "b", "--delta", 1e-6], "An account has one limit"),
        (["create", path, "b", "--epsilon", -1], "positive finite number"),
        (["create", path, "census", "--epsilon", 1], "already"),
        (["show", path, "cencus"], "did you mean `census`"),
        (["history", tmp_path / "none.db", "census"], "There is no ledger"),
    ):
        with pytest.raises(SubspaceDPError, match=words):
            run(*arguments)
