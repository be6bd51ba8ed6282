"""The command as a person meets it: in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments, cwd=None):
    return subprocess.run(
        [str(Path(sys.executable).parent / "subspacedp"), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "release"
    return folder, run("demo", "census", "--out", folder, "--runs", 4)


def test_demo_says_what_matters(demo):
    folder, result = demo
    assert result.returncode == 0, result.stderr
    text = " ".join(result.stdout.split())
    for piece in (
        "state totals held exact",
        "induced subspace differential privacy with ε = 0.192",
        "52 independent figures of 3,221",
        "3,169 dimensions",
        "typical error",
        "held totals are kept",
        "values.csv",
        "certificate.json",
        "subspacedp verify",
        "Slopes of error on log population in 48 states",
    ):
        assert piece in text, piece
    # The last line is what a person opens, even where a terminal is narrow.
    assert result.stdout.splitlines()[-1] == f"Open the report: {folder / 'index.html'}"
    assert (folder / "index.html").is_file()
    assert "drawing" in result.stderr  # progress


def test_verify_holds(demo):
    folder, _ = demo
    result = run("verify", folder)
    assert result.returncode == 0
    assert "All checks hold." in result.stdout
    data = json.loads(run("verify", folder, "--json").stdout)
    assert data["ok"] is True
    assert all(check["ok"] for check in data["checks"])


def test_verify_fails_with_status_1_on_an_altered_release(tmp_path):
    import subspacedp as sdp

    table = sdp.datasets.census2010()
    mechanism = sdp.design(table.domain, sdp.hold("state"), sdp.PureDP(1.0), decimals=0)
    mechanism.release(table).save(tmp_path / "r")
    csv = tmp_path / "r" / "values.csv"
    csv.write_text(csv.read_text().replace('"01001"', '"99999"'))
    result = run("verify", tmp_path / "r")
    assert result.returncode == 1
    assert "FAIL" in result.stdout
    assert "A check failed." in result.stdout
    assert json.loads(run("verify", tmp_path / "r", "--json").stdout)["ok"] is False


def test_a_seeded_release_is_stamped_for_programs_too(tmp_path):
    import subspacedp as sdp

    table = sdp.datasets.census2010()
    mechanism = sdp.design(table.domain, sdp.hold("state"), sdp.PureDP(1.0))
    mechanism.release(table, seed=1).save(tmp_path / "r")
    data = json.loads(run("verify", tmp_path / "r", "--json").stdout)
    assert data["stamp"].startswith("NOT FOR PUBLICATION")
    assert "NOT FOR PUBLICATION" in run("verify", tmp_path / "r").stdout


def test_demo_as_json(tmp_path):
    folder = tmp_path / "r"
    options = ("--runs", 2, "--decimals", "0", "--json")
    made = json.loads(run("demo", "census", "--out", folder, *options).stdout)
    assert made["page"] == str(folder / "index.html")
    data = made["release"]
    assert data["guarantee"]["kind"] == "G"
    assert data["verified"] is True
    # The root mean square over 3,221 counties is within 15 % of what is expected, at > 5 sd.
    assert 0.7 < data["seen_squared_error"] / data["expected_squared_error"] < 1.3
    assert sum(row["counties"] for row in data["by_size"]) == 3221


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("demo", "census", "--epsilon", "-1"), "`epsilon` must be a positive finite number"),
        (("demo", "census", "--epsilon", "inf"), "`epsilon` must be a positive finite number"),
        (("demo", "census", "--decimals", "99"), "`decimals` must be None or a whole number"),
        (("demo", "census", "--out", "."), "exists already"),
        (("demo", "census", "--runs", "0"), "`runs` must be a whole number from 2"),
        (("demo", "census", "--out", "/proc/nowhere/out"), "Cannot write to"),
        (("demo", "moon"), "There is no demonstration `moon`; there is `census`."),
        (("verify", "nowhere"), "There is no folder"),
        (("verify", "."), "has no certificate.json"),
        (("verify",), "Missing argument"),
    ],
)
def test_bad_input_is_one_sentence_status_2_and_nothing_written(tmp_path, arguments, sentence):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [(), ("demo",), ("demo", "census"), ("verify",)])
def test_every_verb_has_help(arguments):
    result = run(*arguments, "--help")
    assert result.returncode == 0
    assert "Usage: subspacedp" in result.stdout


def test_version():
    import subspacedp

    assert run("version").stdout.strip() == subspacedp.__version__
