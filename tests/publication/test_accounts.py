"""Publications that an account pays for, what they leave protected, and audits beforehand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import subspacedp as sdp
from subspacedp.cli.app import app
from subspacedp.errors import InvariantError, SubspaceDPError
from subspacedp.ledger import LimitError, open_ledger
from subspacedp.noise import ReleaseKeys
from subspacedp.publication.accounts import account_covers, held_together, read_labels

COUNTS = np.array([[5, 0], [7, 9], [1, 1]])


@pytest.fixture
def office(tmp_path):
    """A folder with counts, a ledger with ε = 1, and specifications that it pays for."""
    rows = [f"{c},{s},{COUNTS[i, j]}" for i, c in enumerate("abc") for j, s in enumerate("FM")]
    (tmp_path / "counts.csv").write_text("county,sex,n\n" + "\n".join(rows) + "\n", "utf-8")
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.create("people", sdp.PureDP(1.0), sdp.ReplaceOne())

    def specification(hold, epsilon=0.4, **more):
        return {
            "data": {"counts": {"source": str(tmp_path / "counts.csv"), "value": "n"}},
            "axes": {"county": {"labels": list("abc")}, "sex": {"labels": ["F", "M"]}},
            "hold": hold,
            "privacy": {"epsilon": epsilon},
            "budget": {"ledger": str(tmp_path / "budget.db"), "account": "people"},
            **more,
        }

    return tmp_path, specification


def spent(folder):
    with open_ledger(folder / "budget.db") as ledger:
        return [(entry.state.value, len(entry.release_ids)) for entry in ledger.history("people")]


def test_an_account_pays_until_nothing_is_left(office):
    folder, specification = office
    for number in (1, 2):
        made = sdp.run(specification([["county"]]), out=folder / f"r{number}")
        assert made.folder.is_dir()
    assert spent(folder) == [("committed", 1), ("committed", 1)]
    with pytest.raises(LimitError, match="left"):
        sdp.run(specification([["county"]]), out=folder / "r3")
    assert not (folder / "r3").exists()
    assert spent(folder) == [("committed", 1), ("committed", 1)]


def test_a_dry_run_spends_nothing_and_sees_what_is_left(office):
    folder, specification = office
    sdp.run(specification([[]]), dry_run=True)
    assert spent(folder) == []
    with pytest.raises(LimitError, match="left"):
        sdp.run(specification([[]], epsilon=1.5), dry_run=True)


def test_what_fails_before_the_noise_spends_nothing_and_after_it_everything(office, monkeypatch):
    folder, specification = office
    bad = specification([["county"]])
    bad["axes"]["sex"]["labels"] = ["F", "X"]
    with pytest.raises(SubspaceDPError, match="not among its labels"):
        sdp.run(bad, out=folder / "r")
    assert spent(folder) == []

    def dies(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("subspacedp.publication.running.write_publication", dies)
    with pytest.raises(KeyboardInterrupt):
        sdp.run(specification([["county"]]), out=folder / "r")
    assert [state for state, _ in spent(folder)] == ["drawing"]
    assert not (folder / "r").exists()


def test_budget_is_reserved_before_the_first_random_word(office, monkeypatch):
    folder, specification = office
    seen = []
    fresh = ReleaseKeys.fresh

    def watched(context):
        seen.append(spent(folder))
        return fresh(context)

    monkeypatch.setattr(ReleaseKeys, "fresh", watched)
    sdp.run(specification([["county"]]), out=folder / "r")
    assert seen
    assert all(entries and entries[-1][0] == "drawing" for entries in seen)


def test_no_account_pays_for_a_seeded_release(office):
    folder, specification = office
    with pytest.raises(SubspaceDPError, match="seed"):
        sdp.run(specification([[]]), out=folder / "r", seed=1)
    assert spent(folder) == []


def test_releases_with_different_margins_are_stacked(office):
    folder, specification = office
    sdp.run(specification([["county"]]), out=folder / "r1")
    ledger = folder / "budget.db"
    alone = account_covers(ledger, "people", sex="M")
    assert 0 < alone.share_exposed < 1
    sdp.run(specification([["sex"]]), out=folder / "r2")
    both = account_covers(ledger, "people", sex="M")
    assert both.share_exposed == 1.0
    assert "published exactly" in str(both)
    (together,) = held_together(ledger, "people")
    assert len(together.helds) == 2
    assert read_labels(ledger, "people", ["sex=M", "county=b"]) == {"sex": "M", "county": "b"}
    with pytest.raises(InvariantError, match="name=label"):
        read_labels(ledger, "people", ["sex"])
    with pytest.raises(InvariantError, match="has all these axes"):
        account_covers(ledger, "people", colour="red")


def test_an_empty_account_covers_nothing_yet(office):
    folder, _ = office
    with pytest.raises(InvariantError, match="no release yet"):
        account_covers(folder / "budget.db", "people", sex="M")


def test_the_audit_reads_held_values_alone(office):
    _, specification = office
    data = specification([["county"], ["sex"]])
    del data["budget"]
    found = sdp.audit(data)["table"]
    exact = (COUNTS.sum(axis=1, keepdims=True), COUNTS.sum(axis=0, keepdims=True))
    domain = sdp.Domain([sdp.Axis("county", list("abc")), sdp.Axis("sex", ["F", "M"])])
    same = sdp.audit_invariants(
        domain,
        sdp.hold("county") & sdp.hold("sex"),
        exact,
        neighbours=sdp.ReplaceOne(),
        budget=sdp.PureDP(0.4),
    )
    assert found.as_dict() == same.as_dict()
    structure = sdp.audit({**data, "data": {"counts": {"source": "gone.csv", "value": "n"}}},
                          structure=True)  # fmt: skip
    assert structure["table"].bounds is None


def test_records_beyond_the_bound_are_never_free(tmp_path):
    (tmp_path / "p.csv").write_text("id,sex\n1,F\n1,F\n2,M\n", "utf-8")
    data = {
        "data": {"source": str(tmp_path / "p.csv"), "unit": "id"},
        "axes": {"sex": {"labels": ["F", "M"]}},
        "hold": [[]],
        "privacy": {"epsilon": 1.0},
    }
    found = sdp.audit(data)["table"]
    assert found.kind != "plain"
    assert "the grand total" not in found.free
    rows = {**data, "data": {"source": str(tmp_path / "p.csv"), "unit": "row"}}
    assert "the grand total" in sdp.audit(rows)["table"].free


def test_the_report_says_what_the_held_figures_give_away(office):
    folder, specification = office
    made = sdp.run(specification([["county"], ["sex"]]), out=folder / "r")
    page = (made.folder / "report.html").read_text("utf-8")
    assert "give away by themselves" in page
    assert "must change together" in page


def test_on_the_command_line(office):
    folder, specification = office
    data = specification([["county"], ["sex"]])
    path = folder / "publication.yaml"
    path.write_text(json.dumps(data), "utf-8")  # JSON is YAML
    run = CliRunner().invoke
    text = run(app, ["audit", str(path)])
    assert text.exit_code == 0
    assert "Held exact" in text.output
    found = run(app, ["audit", str(path), "--structure", "--json"])
    assert json.loads(found.output[found.output.index("{") :])["table"]["read_values"] is False
    done = run(app, ["release", str(path), "--out", str(folder / "r"), "--json"])
    assert done.exit_code == 0
    covered = run(app, ["ledger", "covers", str(folder / "budget.db"), "people", "sex=M"])
    assert "published exactly" in covered.output
    plain = run(app, ["ledger", "covers", str(folder / "budget.db"), "people", "sex=M", "--json"])
    assert json.loads(plain.output)["fixed"] is True
