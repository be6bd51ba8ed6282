"""`ledger cancel` and `ledger settle`: what a person may tell a ledger afterwards."""

import json

import pytest
import yaml
from tests.ledger.test_command import run as command

import subspacedp as sdp
from subspacedp.errors import SubspaceDPError
from subspacedp.ledger import (
    LedgerError,
    Reservation,
    State,
    certificate_digest,
    open_ledger,
    spend_of,
)
from subspacedp.privacy import ReplaceOne
from subspacedp.privacy.composition import Spend
from subspacedp.publication import run
from subspacedp.publication.paying import settle

TENTH = Spend(budget=sdp.PureDP(0.1), neighbours=ReplaceOne())


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.create("people", sdp.PureDP(10.0), ReplaceOne())
        yield ledger


@pytest.fixture
def publish(tmp_path, ledger, monkeypatch):
    """A publication whose server is away when the files are out; the path of its folder."""
    rows = "".join(f"{i % 3},{i % 2}\n" for i in range(60))
    (tmp_path / "p.csv").write_text(f"a,b\n{rows}", "utf-8")

    def published(name, epsilon=0.5, tables=None):
        spec = {
            "data": {"source": "p.csv", "unit": "row"},
            "axes": {"a": {"labels": [0, 1, 2]}, "b": {"labels": [0, 1]}},
            "privacy": {"epsilon": epsilon},
            "publish": {"to": name},
            "budget": {"ledger": "budget.db", "account": "people"},
            **({"hold": [["a"]]} if tables is None else {"tables": tables}),
        }
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), "utf-8")

        def away(*_, **__):
            raise LedgerError("The server did not accept the connection.")

        with monkeypatch.context() as patched:
            patched.setattr(Reservation, "commit", away)
            with pytest.raises(LedgerError, match="did not accept"):
                run(tmp_path / f"{name}.yaml")
        assert (tmp_path / name / "README.md").exists() or list((tmp_path / name).iterdir())
        return tmp_path / name

    return published


def test_a_publication_is_settled(ledger, publish, tmp_path):
    folder = publish("out")
    number = ledger.history("people")[-1].number
    before = ledger.totals("people").pure
    text = command("settle", tmp_path / "budget.db", number, folder).stdout
    assert text == f"Entry {number} is committed; account `people` has ε = 9.5 left.\n"
    entry = ledger.history("people")[-1]
    assert entry.state is State.COMMITTED
    assert entry.digests == (certificate_digest(folder),)
    assert entry.release_ids == (sdp.Release.load(folder).release_id,)
    assert ledger.totals("people").pure == before
    with pytest.raises(LedgerError, match="is committed: only one for which noise"):
        settle(ledger, number, folder)


def test_several_tables_are_settled_in_their_order(ledger, publish):
    folder = publish(
        "two", tables={"z": {"axes": ["a"], "share": 0.4}, "m": {"axes": ["b"], "share": 0.6}}
    )
    number = ledger.history("people")[-1].number
    entry = settle(ledger, number, folder)
    ids = [sdp.Release.load(folder / name).release_id for name in ("z", "m")]
    assert list(entry.release_ids) == ids


def test_only_what_was_paid_for_is_settled(ledger, publish, tmp_path):
    cheap, dear = publish("cheap", 0.5), publish("dear", 0.75)
    first, second = (entry.number for entry in ledger.history("people"))
    with pytest.raises(LedgerError, match="is not what entry 1 has paid for"):
        settle(ledger, first, dear)
    other = publish("other", 0.5)
    settle(ledger, first, cheap)
    with pytest.raises(LedgerError, match="is not what entry 3 has paid for: an id"):
        settle(ledger, ledger.history("people")[-1].number, cheap)
    nameless = ledger.reserve("people", [spend_of(sdp.Release.load(cheap).mechanism)])
    nameless.drawing()
    with pytest.raises(LedgerError, match=f"Entry {first} has paid for release"):
        settle(ledger, nameless.number, cheap)
    nameless.cancel(declared="a test")
    values = other / "values.csv"
    values.write_text(values.read_text("utf-8").replace("1", "2"), "utf-8")
    with pytest.raises(SubspaceDPError, match="does not pass `subspacedp verify`"):
        settle(ledger, 3, other)
    with pytest.raises(LedgerError, match="has no entry 99"):
        settle(ledger, 99, dear)
    reserved = ledger.reserve("people", [TENTH])
    with pytest.raises(LedgerError, match="is not what entry"):
        settle(ledger, reserved.number, dear)
    assert [entry.state.value for entry in ledger.history("people")] == [
        "committed", "drawing", "drawing", "cancelled", "reserved",
    ]  # fmt: skip
    assert second == 2


def test_an_unpaid_release_takes_no_entry_of_another(ledger, publish, tmp_path):
    """Of the same budget and invariants: what the entry pays for could never be finished then."""
    paid = publish("paid")
    spec = yaml.safe_load((tmp_path / "paid.yaml").read_text("utf-8"))
    del spec["budget"]
    (tmp_path / "unpaid.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), "utf-8")
    run(tmp_path / "unpaid.yaml", out=tmp_path / "unpaid")
    with pytest.raises(LedgerError, match="is not what entry 1 has paid for: an id"):
        settle(ledger, 1, tmp_path / "unpaid")
    assert settle(ledger, 1, paid).state is State.COMMITTED


def test_a_reservation_is_cancelled(ledger, tmp_path):
    number = ledger.reserve("people", [TENTH]).number
    text = command("cancel", tmp_path / "budget.db", number).stdout
    assert text == f"Entry {number} is cancelled; account `people` has ε = 10 left.\n"
    with pytest.raises(LedgerError, match="is cancelled: only a reservation"):
        command("cancel", tmp_path / "budget.db", number)
    with pytest.raises(LedgerError, match="has no entry 77"):
        command("cancel", tmp_path / "budget.db", 77)


def test_what_may_be_drawn_is_cancelled_by_a_declaration_alone(ledger, tmp_path):
    path = tmp_path / "budget.db"
    drawing = ledger.reserve("people", [TENTH], note="first")
    drawing.drawing()
    with pytest.raises(LedgerError, match="noise may have been drawn, so it stays spent"):
        command("cancel", path, drawing.number)
    with pytest.raises(LedgerError, match="`declared` must say why"):
        command("cancel", path, drawing.number, "--never-drawn", " ")
    assert ledger.totals("people").pure == 0.1
    told = command("cancel", path, drawing.number, "--never-drawn", "no data", "--json").stdout
    assert json.loads(told)["note"] == "first [declared not drawn: no data]"
    assert ledger.totals("people").releases == 0
    with pytest.raises(LedgerError, match="is cancelled: only one for which noise"):
        drawing.commit(["0" * 32], "f", ["0" * 64])  # a process that lives after all
    out = ledger.reserve("people", [TENTH])
    out.drawing()
    out.commit(["0" * 32], "f", ["0" * 64])
    with pytest.raises(LedgerError, match="is committed: only a reservation"):
        command("cancel", path, out.number, "--never-drawn", "really")
    assert ledger.totals("people").pure == 0.1


def test_check_and_upgrade(ledger, tmp_path):
    path = tmp_path / "budget.db"
    ledger.reserve("people", [TENTH])
    sentence = "The ledger is as it was last written: 1 account, 1 entry.\n"
    assert command("check", path).stdout == sentence
    assert json.loads(command("check", path, "--json").stdout) == {"accounts": 1, "entries": 1}
    assert "is sealed as it is" in command("upgrade", path).stdout
