"""The k-norm mechanism in a specification: planned, compared, published, or refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import subspacedp as sdp
from subspacedp.cli.app import app
from subspacedp.errors import ReleaseError
from subspacedp.publication import plan, run

SPEC = {
    "data": {"source": "people.csv", "unit": "row"},
    "axes": {"sex": {"labels": ["F", "M"]}, "age": {"labels": ["young", "old"]}},
    "hold": [[]],
    "privacy": {"epsilon": 1.0},
    "mechanism": "knorm",
    "publish": {"to": "out"},
}


@pytest.fixture
def folder(tmp_path):
    rows = ["sex,age", "F,young", "F,old", "M,young", "M,young", "F,old"]
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    return tmp_path


def test_plan_compares_it(folder):
    result = CliRunner().invoke(app, ["plan", str(folder / "spec.json"), "--compare", "--json"])
    assert result.exit_code == 0
    (release,) = json.loads(result.stdout)["releases"]
    assert release["mechanism"] == "knorm"
    errors, refused = release["mechanisms"], release["not_applicable"]
    assert errors["knorm"] < errors["projected"] < errors["extended"]
    assert "Gaussian noise" in refused["optimal"]
    shown = CliRunner().invoke(app, ["plan", str(folder / "spec.json"), "--compare"])
    assert "knorm (chosen)" in shown.stdout


def test_auto_takes_it_for_a_small_table_of_real_values():
    (release,) = plan({**SPEC, "mechanism": "auto"}).releases
    assert release.design.mechanism.name == "knorm"
    (release,) = plan({**SPEC, "mechanism": "auto", "privacy": {"rho": 0.1}}).releases
    assert release.design.mechanism.name != "knorm"


@pytest.mark.parametrize("decimals", [None, 0])
def test_it_is_published_and_verified(folder, decimals):
    asked = {**SPEC, "publish": {"to": "out", "decimals": decimals}}
    (folder / "spec.json").write_text(json.dumps(asked))
    run(folder / "spec.json")
    release = sdp.Release.load(folder / "out")
    assert release.verify().ok
    assert release.mechanism.name == "knorm"
    assert release.values.sum() == 5
    assert np.array_equal(release.values, np.rint(release.values))
    assert release.guarantee.kind == "plain"


def test_digits_it_cannot_give_are_refused_in_a_sentence():
    with pytest.raises(ReleaseError, match="Digits that add up need the projected mechanism here"):
        plan({**SPEC, "hold": [["sex"]], "publish": {"decimals": 0}})
