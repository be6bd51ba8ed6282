"""Damaged ledgers: one sentence, no hang, and never more free budget than there was."""

import random
import shutil
import sqlite3
import time
from contextlib import closing

import pytest
from tests.ledger.damaging import KINDS, PAGE, by_sql, truncate_last_page

import subspacedp as sdp
from subspacedp.errors import SubspaceDPError
from subspacedp.ledger import DamageError, LedgerError, LimitError, database, open_ledger
from subspacedp.ledger import book as books
from subspacedp.ledger.database import SqliteDatabase
from subspacedp.privacy import ReplaceOne
from subspacedp.privacy.composition import Spend

ONE = ReplaceOne()
HUNDREDTH = Spend(budget=sdp.PureDP(0.01), neighbours=ONE)


def spend(epsilon):
    return Spend(budget=sdp.PureDP(epsilon), neighbours=ONE)


def fill(address):
    """Two accounts of ε = 1; `census` has spent 0.78 in twelve entries, one of them cancelled."""
    with open_ledger(address) as ledger:
        ledger.create("census", sdp.PureDP(1.0), ONE, note="2010")
        ledger.create("survey", sdp.PureDP(1.0), ONE)
        held = [{"held": [], "labels": [f"label {k}" for k in range(40)]}]
        for k in range(1, 13):
            paid = ledger.reserve("census", [spend(k / 100)], note=f"table {k}", held=held)
            if k == 11:
                paid.cancel()
            elif k > 2:
                paid.drawing()
                paid.commit([f"{k:032x}"], "folder", [f"{k:064x}"])
        ledger.change_limit("census", sdp.PureDP(1.0), note="as before")
        assert ledger.totals("census").pure == 0.67
    return address


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("sound") / "budget.db")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nobody else writes to these files."""
    monkeypatch.setattr(database, "SETTLING", 0.01)


def looked_at(path):
    """What every way to look at or change a ledger says; None where it was refused."""
    figures = []

    def told(call):
        began = time.monotonic()
        with open_ledger(path, patience=2.0) as ledger:
            try:
                figures.append(call(ledger))
            except SubspaceDPError as error:
                text = str(error)
                assert text.endswith((".", "?")), text
                assert "\n" not in text
                assert "Error" not in text
                figures.append(None)
        assert time.monotonic() - began < 60

    told(lambda ledger: ledger.totals("census").pure)
    told(lambda ledger: sum(s.budget.epsilon for e in ledger.history("census") if e.counts
                            for s in e.spends))  # fmt: skip
    told(lambda ledger: ledger.export()["accounts"][0]["totals"]["epsilon"])
    told(lambda ledger: ledger.verify() and None)
    told(lambda ledger: ledger.invariants("census") and None)
    told(lambda ledger: ledger.reservation(5).state and None)
    told(lambda ledger: ledger.reservation(1).cancel())
    # As much as nobody may have now: 0.33 is left, and 0.34 once entry 1 is cancelled.
    told(lambda ledger: -1.0 if ledger.reserve("census", [spend(0.35)]) else None)
    told(lambda ledger: None if ledger.create("census", sdp.PureDP(1.0), ONE) is None else -1.0)
    return [figure for figure in figures if figure is not None]


def damaged(sound, folder, seed):
    rng = random.Random(seed)
    path = folder / f"{seed}.db"
    shutil.copy(sound, path)
    kind = KINDS[seed % len(KINDS)]
    kind(path, rng)
    return path


def check_damaged(sound, folder, seeds):
    for seed in seeds:
        path = damaged(sound, folder, seed)
        figures = looked_at(path)
        assert all(round(100 * figure) >= 67 for figure in figures), (seed, figures)
        path.unlink()


@pytest.mark.parametrize("part", range(4))
def test_no_damage_frees_budget(sound, tmp_path, part):
    check_damaged(sound, tmp_path, range(15 * part, 15 * (part + 1)))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
def test_no_damage_frees_budget_in_six_hundred_ledgers(sound, tmp_path, part):
    check_damaged(sound, tmp_path, range(1000 + 75 * part, 1000 + 75 * (part + 1)))


def test_an_open_that_checks_nothing_finds_free_budget(sound, tmp_path, monkeypatch):
    """The twin: the same ledgers, without the checks of the file and of the seals."""
    monkeypatch.setattr(SqliteDatabase, "check_storage", lambda self, con: None)
    monkeypatch.setattr(books.Book, "check", lambda self, seal: None)
    free = 0
    for seed in range(60):
        path = damaged(sound, tmp_path, seed)
        try:
            with open_ledger(path) as ledger:
                free += ledger.totals("census").pure < 0.67
        except Exception:  # noqa: S112 - what it stumbles over is not counted
            continue
    assert free >= 5


def test_a_sound_ledger_pays(sound, tmp_path):
    """The check is no wall: an undamaged copy is read, paid from, and refused at its limit."""
    shutil.copy(sound, tmp_path / "copy.db")
    with open_ledger(tmp_path / "copy.db") as ledger:
        assert ledger.verify() == (2, 12)
        with pytest.raises(LimitError):
            ledger.reserve("census", [spend(0.34)])
        ledger.reserve("census", [spend(0.33)])
        assert ledger.left("census") == "nothing"
        assert ledger.verify() == (2, 13)


def test_a_file_that_ends_within_its_last_page(sound, tmp_path):
    shutil.copy(sound, tmp_path / "short.db")
    truncate_last_page(tmp_path / "short.db", random.Random(0))
    with open_ledger(tmp_path / "short.db") as ledger, pytest.raises(DamageError) as caught:
        ledger.totals("census")
    assert str(caught.value) == (
        f"The ledger `{tmp_path / 'short.db'}` is damaged (the file ends within a page): what it "
        "says is spent cannot be relied on, and nothing was changed. Restore it from a copy, and "
        "count what was released since."
    )


def test_every_single_bit_of_the_rows_is_sealed(sound, tmp_path):
    """Any one character of any text that a total rests on."""
    for table, column in (
        ("spends", "spend"), ("entries", "state"), ("accounts", "budget"), ("accounts", "unit"),
        ("limits", "budget"), ("entries", "note"), ("spends", "invariants"), ("spends", "digest"),
    ):  # fmt: skip
        path = tmp_path / f"{table}-{column}.db"
        shutil.copy(sound, path)
        with closing(sqlite3.connect(path)) as con:
            con.execute(
                f"UPDATE ledger_{table} SET {column} = replace({column}, '0', '1') || ''"  # noqa: S608
                if column not in ("state", "unit", "note")
                else f"UPDATE ledger_{table} SET {column} = upper({column})"  # noqa: S608
            )
            con.commit()
        with open_ledger(path) as ledger, pytest.raises(DamageError):
            ledger.totals("census")


def test_rows_lost_in_postgresql(postgres):
    import psycopg

    fill(postgres)
    for statement in (
        "DELETE FROM ledger_spends WHERE entry_id = 5",
        "DELETE FROM ledger_spends WHERE entry_id = 12; DELETE FROM ledger_entries WHERE id = 12",
        "UPDATE ledger_entries SET state = 'cancelled' WHERE id = 5",
        "UPDATE ledger_accounts SET budget = replace(budget, '1.0', '9.0')",
        "DELETE FROM ledger_meta WHERE name = 'seal of account 1'",
        "UPDATE ledger_meta SET value = '1' WHERE name = 'version'",
    ):
        with open_ledger(postgres) as ledger, psycopg.connect(postgres) as con:
            ledger.verify()
            con.execute("CREATE TABLE kept_entries AS SELECT * FROM ledger_entries")
            con.execute("CREATE TABLE kept_spends AS SELECT * FROM ledger_spends")
            con.execute("CREATE TABLE kept_accounts AS SELECT * FROM ledger_accounts")
            con.execute("CREATE TABLE kept_meta AS SELECT * FROM ledger_meta")
            con.execute(statement)
            con.commit()
            with pytest.raises(DamageError, match="is damaged"):
                ledger.totals("census")
            with pytest.raises(DamageError, match="is damaged"):
                ledger.reserve("census", [HUNDREDTH])
            for name in ("spends", "entries"):
                con.execute(f"DELETE FROM ledger_{name}")  # noqa: S608
            for name in ("entries", "spends"):
                con.execute(f"INSERT INTO ledger_{name} SELECT * FROM kept_{name}")  # noqa: S608
            con.execute(
                "UPDATE ledger_accounts a SET budget = k.budget FROM kept_accounts k "
                "WHERE a.id = k.id"
            )
            con.execute("DELETE FROM ledger_meta")
            con.execute("INSERT INTO ledger_meta SELECT * FROM kept_meta")
            for name in ("entries", "spends", "accounts", "meta"):
                con.execute(f"DROP TABLE kept_{name}")
            con.commit()
            ledger.verify()  # what was restored is sound again


# -------------------------------------------------------------------------------------- format 1


def make_old(address):
    """A ledger as it was written before there were seals."""
    fill(address)
    if "://" in str(address):
        import psycopg

        con = psycopg.connect(address)
    else:
        con = sqlite3.connect(address)
    with closing(con):
        con.execute("DELETE FROM ledger_meta WHERE name LIKE 'seal of %'")
        con.execute("UPDATE ledger_meta SET value = '1' WHERE name = 'version'")
        con.commit()


def test_a_ledger_of_format_1_is_read_and_upgraded(address):
    make_old(address)
    with open_ledger(address) as ledger:
        assert ledger.totals("census").pure == 0.67
        assert len(ledger.history("census")) == 12
        for call in (
            lambda: ledger.reserve("census", [HUNDREDTH]),
            lambda: ledger.reservation(1).cancel(),
            lambda: ledger.create("third", sdp.PureDP(1.0), ONE),
        ):
            with pytest.raises(LedgerError, match=r"is of format 1.*`subspacedp ledger upgrade"):
                call()
        assert ledger.upgrade() == (2, 12)
        assert ledger.upgrade() == (2, 12)  # a second time changes nothing
        ledger.reserve("census", [HUNDREDTH])
        ledger.create("third", sdp.PureDP(1.0), ONE)
        assert ledger.verify() == (3, 13)


def test_format_1_without_spends_is_refused(tmp_path):
    make_old(tmp_path / "old.db")
    with closing(sqlite3.connect(tmp_path / "old.db")) as con:
        con.execute("DELETE FROM ledger_spends WHERE entry_id = 5")
        con.commit()
    with open_ledger(tmp_path / "old.db") as ledger:
        for call in (lambda: ledger.totals("census"), ledger.upgrade):
            with pytest.raises(DamageError, match="an entry has lost what it spent"):
                call()


def test_damaged_ledgers_of_format_1_give_no_tracebacks(tmp_path):
    make_old(tmp_path / "old.db")
    for seed in range(30):
        if KINDS[seed % len(KINDS)] is not by_sql:  # there is no seal that could notice
            looked_at(damaged(tmp_path / "old.db", tmp_path, seed))


def test_pages_are_as_large_as_the_tests_think(sound):
    with closing(sqlite3.connect(sound)) as con:
        assert con.execute("PRAGMA page_size").fetchone() == (PAGE,)
    assert sound.stat().st_size % PAGE == 0
