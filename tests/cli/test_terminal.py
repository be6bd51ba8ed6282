"""What a command says, to whom, and how wide."""

import json
import re
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import subspacedp
from subspacedp.cli import terminal
from subspacedp.cli.app import app
from subspacedp.publication.faults import in_yaml

SPEC = {
    "data": {"source": "people.csv", "unit": "row"},
    "axes": {"sex": {"labels": ["F", "M"]}, "age": {"labels": ["young", "old"]}},
    "hold": [["sex"]],
    "privacy": {"epsilon": 1.0},
    "publish": {"decimals": 0, "margins": [["age"]], "to": "out"},
}


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC))
    return path


def test_version_is_an_option_too():
    said = {CliRunner().invoke(app, [word]).stdout for word in ("version", "--version")}
    assert said == {f"{version('subspacedp')}\n"}


def test_shells_complete_the_verbs():
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "--show-completion" in shown
    code = "import sys; sys.argv = ['subspacedp']; from subspacedp.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "_SUBSPACEDP_COMPLETE": "complete_bash",
            "COMP_WORDS": "subspacedp ver",
            "COMP_CWORD": "1",
            "PYTHONPATH": str(Path(subspacedp.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == {"verify", "version"}, done.stderr


def test_groups_that_are_loaded_when_asked_are_found_by_name_and_by_nearly_that_name():
    names = [line.split()[1:2] for line in CliRunner().invoke(app, ["--help"]).stdout.splitlines()]
    places = [names.index([name]) for name in ("version", "demo", "ledger", "agent", "key")]
    assert places == sorted(places)
    for typed, meant in (("ledgr", "ledger"), ("aget", "agent"), ("pla", "plan")):
        said = CliRunner().invoke(app, [typed]).stderr
        assert f"Did you mean '{meant}'" in " ".join(said.split())
    bare, asked = (CliRunner().invoke(app, ["key", *more]).stdout for more in ([], ["--help"]))
    assert bare.split() == asked.split() != []


def test_a_file_has_whole_lines(spec):
    shown = CliRunner().invoke(app, ["plan", str(spec)], env={"COLUMNS": "80"}).stdout
    assert any(len(line) > 200 for line in shown.splitlines())
    assert "margin of error (95 %)" in shown  # not in two lines


def test_refusals_stand_outside_number_columns(spec):
    shown = CliRunner().invoke(app, ["plan", str(spec), "--compare"]).stdout
    (row,) = [line for line in shown.splitlines() if line.strip().startswith("Not extended: ")]
    assert "`decimals: null`" in row
    data = json.loads(CliRunner().invoke(app, ["plan", str(spec), "--compare", "--json"]).stdout)
    (release,) = data["releases"]
    assert all(isinstance(error, float) for error in release["mechanisms"].values())
    assert release["not_applicable"]["extended"] in row


def test_no_sentence_of_a_design_speaks_python_to_who_writes_yaml():
    """Every sentence of the folders that designs go through, once in YAML words."""
    python = re.compile(r"\b(decimals|mechanism|capped)=|\b(PureDP|ZCDP|ReplaceOne|hold)\(")
    folder, seen = Path(subspacedp.__file__).parent, 0
    for part in ("release/designs.py", "mechanisms/base.py", "mechanisms/knorm/mechanism.py"):
        source = (folder / part).read_text()
        for sentence in re.findall(r"Error\(\s*((?:f?\"[^\"\n]*\"\s*)+)\)", source):
            words = "".join(re.findall(r'"([^"\n]*)"', sentence))
            seen += bool(python.search(words))
            assert not python.search(in_yaml(words)), words
    assert seen > 3


def test_stopping_says_what_was_spent(spec, monkeypatch):
    def stop(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("subspacedp.publication.planning.plan", stop)
    done = CliRunner().invoke(app, ["plan", str(spec)])
    assert done.exit_code == 130
    assert done.stderr == "subspacedp: Stopped. Nothing was spent.\n"


def test_whoever_waits_two_seconds_is_told_why(capsys):
    with terminal.progress(60) as tell:
        tell("designing")
    assert capsys.readouterr().err == ""
    with terminal.progress(0.01) as tell:
        tell("designing")
        time.sleep(2.0)
        tell("advising")
    assert [line.strip() for line in capsys.readouterr().err.splitlines()] == [
        "designing …",
        "advising …",
    ]


@pytest.mark.parametrize(
    ("module", "slow", "arguments", "said"),
    [
        ("publication.starter", "write_starter", ["init", "persons.csv"], "looking at the data …"),
        ("publication.planning", "plan", ["plan", "small.yaml"], "designing alternatives …"),
        ("microdata", "verify_folder", ["release", "small.yaml"], "verifying out …"),
        ("microdata", "verify_folder", ["verify", "out"], "verifying out …"),
        ("report", "write_report", ["report", "out"], "writing the report …"),
    ],
)
def test_every_slow_step_says_what_it_does(tmp_path, monkeypatch, module, slow, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "persons.csv").write_text("sex\nF\nM\nF\n", "utf-8")
    (tmp_path / "small.yaml").write_text(
        "data: {source: persons.csv, unit: row}\naxes: {sex: {labels: [F, M]}}\n"
        "privacy: {epsilon: 1.0}\npublish: {to: out/}\n",
        "utf-8",
    )
    if arguments[0] in ("verify", "report"):
        assert CliRunner().invoke(app, ["release", "small.yaml"]).exit_code == 0
    home = import_module(f"subspacedp.{module}")
    work = getattr(home, slow)

    def slowly(*given, **named):
        time.sleep(2.0)
        return work(*given, **named)

    monkeypatch.setattr(home, slow, slowly)
    monkeypatch.setattr(import_module("subspacedp.cli.app"), "PATIENCE", 0.1)
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert said in [line.strip() for line in ran.stderr.splitlines()]
