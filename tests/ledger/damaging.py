"""Ways to damage an SQLite ledger, and what somebody who does not check would read from it."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

PAGE = 4096


def truncate(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(1, len(data))])


def truncate_last_page(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - rng.randrange(1, PAGE)])


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    used = [k for k, byte in enumerate(data) if byte]  # most of a page is empty
    for k in rng.sample(used, rng.choice((1, 1, 2, 8, 64))):
        data[k] ^= rng.randrange(1, 256)
    path.write_bytes(data)


def zero_page(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = PAGE * rng.randrange(len(data) // PAGE)
    length = rng.choice((16, 64, 512, PAGE))
    data[start : start + length] = bytes(len(data[start : start + length]))
    path.write_bytes(data)


def swap_pages(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    one, other = rng.sample(range(len(data) // PAGE), 2)
    a, b = slice(PAGE * one, PAGE * (one + 1)), slice(PAGE * other, PAGE * (other + 1))
    data[a], data[b] = data[b], data[a]
    path.write_bytes(data)


def by_sql(path: Path, rng: random.Random) -> None:
    """Rows that are lost or altered by a tool that keeps the file itself sound."""
    statements = (
        "DELETE FROM ledger_entries WHERE id = {n}",
        "DELETE FROM ledger_entries WHERE id >= {n}",
        "DELETE FROM ledger_spends WHERE entry_id = {n}",
        "DELETE FROM ledger_spends",
        "DELETE FROM ledger_entries; DELETE FROM ledger_spends",
        "DELETE FROM ledger_entries WHERE id = {n}; DELETE FROM ledger_spends WHERE entry_id = {n}",
        "UPDATE ledger_entries SET state = 'cancelled' WHERE id = {n}",
        "UPDATE ledger_entries SET account_id = 3 - account_id WHERE id = {n}",
        "UPDATE ledger_spends SET spend = replace(spend, '0.0', '0.00') WHERE entry_id = {n}",
        "UPDATE ledger_spends SET spend = x'ff00ff' WHERE entry_id = {n}",
        "UPDATE ledger_accounts SET budget = replace(budget, '1.0', '9.0')",
        "UPDATE ledger_accounts SET budget = replace(budget, '1.0', '9.0'); "
        "UPDATE ledger_limits SET budget = replace(budget, '1.0', '9.0')",
        "DELETE FROM ledger_accounts WHERE id = 1",
        "DELETE FROM ledger_meta WHERE name LIKE 'seal%'",
        "DELETE FROM ledger_meta WHERE name = 'seal of account 1'",
        "UPDATE ledger_meta SET value = '1' WHERE name = 'version'",
        "DROP TABLE ledger_spends",
        "DROP INDEX ix_ledger_spends_entry_id; DELETE FROM ledger_spends WHERE position = 0",
    )
    number = rng.randrange(1, 13)
    with closing(sqlite3.connect(path)) as con:
        con.executescript(rng.choice(statements).format(n=number))
        con.execute("PRAGMA wal_checkpoint(TRUNCATE)")


KINDS = (truncate, truncate_last_page, flip, zero_page, swap_pages, by_sql)
