"""What a plan prints is the same, byte for byte, whatever the data are."""

import random

import pytest
from typer.testing import CliRunner

import subspacedp as sdp
import subspacedp.publication.advice as advice
from subspacedp.cli.app import app
from subspacedp.ledger import open_ledger

COUNTIES = [f"c{i}" for i in range(6)]
SPECIFICATION = """
title: Persons by county, age and sex
data: {source: persons.csv, unit: id, records: 3}
axes:
  county: {labels: counties.csv, levels: [state]}
  age: {bins: [0, 18, 65]}
  sex: {labels: [F, M]}
hold: [[state]]
privacy: {epsilon: 0.5}
about: {persons: 9}
budget: {ledger: spent.db, account: census}
publish: {decimals: 0, margins: [[state, sex], [age]], to: out/}
"""
TARGETS = """
data: {source: persons.csv, unit: row}
axes:
  county: {labels: counties.csv, levels: [state]}
  sex: {labels: [F, M]}
privacy: {rho: least}
publish: {cells: false, margins: [{margin: [county], error: 20}, [sex]], to: out/}
"""


def records(seed):
    """Nine records, of as many bytes each, and nothing else alike."""
    draw = random.Random(seed)
    rows = ""
    for _ in range(9):
        county, person, age = draw.choice(COUNTIES), draw.randrange(10, 99), draw.randrange(10, 99)
        rows += f"{person},{county},{age},{draw.choice('FM')}\n"
    return "id,county,age,sex\n" + rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = "".join(f"{county},{'XY'[i % 2]}\n" for i, county in enumerate(COUNTIES))
    (tmp_path / "counties.csv").write_text("county,state\n" + codes, "utf-8")
    (tmp_path / "one.yaml").write_text(SPECIFICATION, "utf-8")
    (tmp_path / "two.yaml").write_text(TARGETS, "utf-8")
    with open_ledger("spent.db") as ledger:
        ledger.create("census", sdp.PureDP(3.0), sdp.ReplaceOne())
    return tmp_path


def printed(folder, data):
    """All that plans print beside some data."""
    place = folder / "persons.csv"
    place.unlink(missing_ok=True)
    if data is not None:
        place.write_text(data, "utf-8")
    out = []
    for name in ("one.yaml", "two.yaml"):
        for options in ([], ["--json"]):
            ran = CliRunner().invoke(app, ["plan", name, *options])
            assert ran.exit_code == 0, ran.output
            out.append((ran.stdout_bytes, ran.stderr_bytes))
    return out


def test_plans_beside_other_data_are_equal(folder):
    assert len(records(1)) == len(records(2))
    assert records(1) != records(2)
    first = printed(folder, records(1))
    assert all(b"Advice" in text or text.startswith(b"{") for text, _ in first)
    assert printed(folder, records(2)) == first
    assert printed(folder, None) == first  # and so they read none


def test_an_adviser_that_looks_at_the_data_is_seen(folder, monkeypatch):
    """The comparison can fail."""
    honest = advice.advise

    def peeking(planned):
        yield from honest(planned)
        women = (folder / "persons.csv").read_text("utf-8").count(",F")
        yield advice.Advice(topic="peek", sentence=f"{women} women.")

    monkeypatch.setattr(advice, "advise", peeking)
    assert printed(folder, records(1)) != printed(folder, records(2))
