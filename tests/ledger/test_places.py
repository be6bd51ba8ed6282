"""Where a ledger may be, and what is said when it cannot be used: one sentence, nothing spent."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import traceback

import pytest

import subspacedp as sdp
from subspacedp.ledger import LedgerError, open_ledger
from subspacedp.privacy import ReplaceOne
from subspacedp.privacy.composition import Spend

SPEND = Spend(budget=sdp.PureDP(0.1), neighbours=ReplaceOne())


def create(ledger):
    return ledger.create("census", sdp.PureDP(1.0), ReplaceOne())


def refused(call, *words):
    """One sentence with these words, and nothing of the driver's error behind it."""
    with pytest.raises(LedgerError) as caught:
        call()
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert "\n" not in text
    assert text.endswith(".")
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    return caught


# ---------------------------------------------------------------------------------------- SQLite


def test_paths_that_are_no_ledger(tmp_path):
    (tmp_path / "text.db").write_text("not a database, though long enough to look at " * 40)
    with sqlite3.connect(tmp_path / "other.db") as con:
        con.execute("CREATE TABLE t (x)")
    con.close()
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.db").touch()
    for name, words in (
        ("text.db", "is not a ledger"),
        ("other.db", "is not a ledger"),
        ("folder", "is a folder, not a ledger"),
    ):
        before = (tmp_path / name).read_bytes() if name != "folder" else b""
        refused(open_ledger(tmp_path / name).accounts, words)
        refused(lambda name=name: create(open_ledger(tmp_path / name)), words)
        assert (before if name == "folder" else (tmp_path / name).read_bytes()) == before
    refused(open_ledger(tmp_path / "none.db").accounts, "There is no ledger", "ledger create")
    assert not (tmp_path / "none.db").exists()
    refused(open_ledger(tmp_path / "empty.db").accounts, "is not a ledger")
    create(open_ledger(tmp_path / "empty.db"))  # as left by a process that died while creating
    refused(lambda: create(open_ledger(tmp_path / "a" / "b.db")), "No such file or directory")


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create(open_ledger("sqlite:///budget ☂.db"))
    assert (tmp_path / "budget ☂.db").exists()
    assert open_ledger(f"sqlite:///{tmp_path / 'budget ☂.db'}").accounts()
    refused(lambda: open_ledger("mysql://me:secret@host/x"), "begins with `mysql://`")
    refused(lambda: open_ledger("sqlite:///x.db?secret=1"), "`?mode=ro` and nothing else")


def test_a_locked_file(tmp_path):
    path = tmp_path / "budget.db"
    ledger = open_ledger(path, patience=0.2)
    create(ledger)
    con = sqlite3.connect(path, isolation_level=None)
    con.execute("BEGIN IMMEDIATE")
    refused(lambda: ledger.reserve("census", [SPEND]), "is locked by another process", "0.2 s")
    assert ledger.history("census") == ()  # readers do not wait
    con.execute("ROLLBACK")
    con.close()
    ledger.reserve("census", [SPEND])
    assert ledger.totals("census").pure == 0.1


def test_a_read_only_ledger_can_be_looked_at(tmp_path):
    path = tmp_path / "budget.db"
    create(open_ledger(path))
    ledger = open_ledger(f"sqlite:///{path}?mode=ro")
    assert [account.name for account in ledger.accounts()] == ["census"]
    refused(lambda: ledger.reserve("census", [SPEND]), "is read-only here; nothing was changed")
    refused(lambda: ledger.create("b", sdp.PureDP(1.0), ReplaceOne()), "is read-only here")
    assert ledger.history("census") == ()


def test_a_file_that_this_user_may_not_open(tmp_path):
    create(open_ledger(tmp_path / "budget.db"))
    if os.geteuid() != 0:
        (tmp_path / "budget.db").chmod(0)
        refused(open_ledger(tmp_path / "budget.db").accounts, "cannot be opened")
        return
    folder = tmp_path / "theirs"  # root may open anything: let somebody else try
    folder.mkdir(mode=0o755)
    shutil.copy(tmp_path / "budget.db", folder / "budget.db")
    script = (
        "import os, sys; from subspacedp.ledger import open_ledger, LedgerError\n"
        "import sqlalchemy.dialects.sqlite\n"
        "os.chdir(sys.argv[1]); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: open_ledger('budget.db').accounts()\n"
        "except LedgerError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("The ledger `budget.db` cannot be opened; check that")


def test_a_damaged_file(tmp_path):
    path = tmp_path / "budget.db"
    create(open_ledger(path))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    refused(open_ledger(path).accounts, "is damaged")


def test_what_is_recorded_survives_a_loss_of_power(tmp_path):
    ledger = open_ledger(tmp_path / "budget.db")
    create(ledger)

    def settings(con):
        names = ("synchronous", "journal_mode", "foreign_keys")
        return [con.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert ledger._database.read(settings) == [2, "wal", 1]  # 2: FULL


# ------------------------------------------------------------------------------------ PostgreSQL


def test_a_server_that_cannot_be_reached_and_a_password_that_is_not_shown(tmp_path, capsys):
    for address in (
        "postgresql://me:s3cret@127.0.0.1:1/budget",
        f"postgresql://me:s3cret@/budget?host={tmp_path}",
        f"postgresql:///budget?host={tmp_path}&user=me&password=s3cret",
    ):
        ledger = open_ledger(address, patience=2.0)
        assert "s3cret" not in repr(ledger)
        assert ("127.0.0.1:1/" in repr(ledger)) is ("127.0.0.1" in address)
        for call in (ledger.accounts, lambda ledger=ledger: ledger.reserve("census", [SPEND])):
            caught = refused(call, "did not accept the connection", "PGPASSWORD")
            assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    caught = refused(
        lambda: open_ledger("postgresql://me:s3cret@host/x?nonsense=1"), "address cannot be read"
    )
    assert "s3cret" not in str(caught.value)


def test_a_server_without_such_a_user_or_database(postgres):
    refused(open_ledger(postgres.replace("postgres@", "nobody@")).accounts, "did not accept")
    refused(open_ledger(postgres.replace("/ledger", "/nothing")).accounts, "did not accept")


def test_a_database_without_a_ledger(postgres):
    refused(open_ledger(postgres).accounts, "is not a ledger")
    create(open_ledger(postgres))
    assert open_ledger(postgres).accounts()


def test_other_tables_are_left_alone(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("CREATE TABLE people (name text)")
    create(open_ledger(postgres))
    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP TABLE ledger_meta")
    refused(lambda: create(open_ledger(postgres)), "is not a ledger")


def test_an_account_that_is_locked_and_one_that_is_not(postgres):
    import psycopg

    ledger = open_ledger(postgres, patience=0.3)
    create(ledger)
    ledger.create("other", sdp.PureDP(1.0), ReplaceOne())
    with psycopg.connect(postgres) as con:
        con.execute("SELECT * FROM ledger_accounts WHERE name = 'census' FOR UPDATE")
        refused(lambda: ledger.reserve("census", [SPEND]), "is locked by another process", "0.3 s")
        ledger.reserve("other", [SPEND])
    ledger.reserve("census", [SPEND])
    assert ledger.totals("census").pure == 0.1


def test_a_server_that_is_read_only_or_forbids(postgres):
    import psycopg

    ledger = open_ledger(postgres)
    create(ledger)
    read_only = open_ledger(f"{postgres}&options=-c%20default_transaction_read_only%3Don")
    assert read_only.accounts()
    refused(lambda: read_only.reserve("census", [SPEND]), "is read-only here; nothing was changed")
    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP ROLE IF EXISTS auditor")
        con.execute("CREATE ROLE auditor LOGIN")
    auditor = open_ledger(postgres.replace("postgres@", "auditor@"))
    refused(auditor.accounts, "may not be read or written by this user")
    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP ROLE auditor")
    assert ledger.history("census") == ()


def test_a_connection_that_the_server_ends(postgres):
    import psycopg

    ledger = open_ledger(postgres, patience=30.0)
    create(ledger)
    caught = []

    def reserve():
        caught.append(refused(lambda: ledger.reserve("census", [SPEND]), "or ended it"))

    with psycopg.connect(postgres) as con, psycopg.connect(postgres, autocommit=True) as other:
        con.execute("SELECT * FROM ledger_accounts FOR UPDATE")
        thread = threading.Thread(target=reserve)
        thread.start()
        waiting = "FROM pg_stat_activity WHERE application_name = 'subspacedp ledger'"
        until = time.monotonic() + 120
        while not other.execute(f"SELECT 1 {waiting} AND wait_event_type = 'Lock'").fetchone():
            assert time.monotonic() < until
        other.execute(f"SELECT pg_terminate_backend(pid) {waiting}")
        thread.join(120)
    assert caught
    assert ledger.history("census") == ()
    ledger.reserve("census", [SPEND])
    assert len(ledger.history("census")) == 1


def test_creating_at_the_same_time(address):
    script = (
        "import os, sys; from subspacedp.ledger import open_ledger, LedgerError\n"
        "import sqlalchemy.dialects.sqlite, subspacedp as sdp\n"
        "from subspacedp.privacy import ReplaceOne\n"
        "read, write = os.pipe()\n"
        "kids = []\n"
        "for k in range(6):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os.close(write); os.read(read, 1)\n"
        "        ledger = open_ledger(sys.argv[1])\n"
        "        ledger.create(f'a{k}', sdp.PureDP(1.0), ReplaceOne())\n"
        "        try: ledger.create('same', sdp.PureDP(1.0), ReplaceOne())\n"
        "        except LedgerError as error: os._exit(7 if 'already' in str(error) else 1)\n"
        "        os._exit(0)\n"
        "    kids.append(pid)\n"
        "os.close(write)\n"
        "codes = sorted(os.waitstatus_to_exitcode(os.waitpid(k, 0)[1]) for k in kids)\n"
        "print(codes)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, address],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert result.stdout.split("\n")[0] == "[0, 7, 7, 7, 7, 7]", result.stderr
    assert len(open_ledger(address).accounts()) == 7


# ----------------------------------------------------------------------------- what is not there


@pytest.mark.parametrize(
    ("missing", "address", "words"),
    [
        ("sqlalchemy", "budget.db", "pip install subspacedp[ledger]"),
        ("psycopg", "postgresql://host/x", "pip install subspacedp[ledger,postgres]"),
    ],
)
def test_a_missing_extra_is_named(missing, address, words):
    script = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from subspacedp.ledger import open_ledger, LedgerError\n"
        f"try: open_ledger({address!r})\n"
        "except LedgerError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert words in result.stdout
    assert len(result.stdout.splitlines()) == 1


def test_importing_the_ledger_loads_no_database():
    script = (
        "import sys, subspacedp.ledger, subspacedp.privacy.composition\n"
        "print([m for m in ('sqlalchemy', 'psycopg', 'dp_accounting') if m in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
