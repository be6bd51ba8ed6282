"""The tables of a ledger, and the seals by which rows that were lost or altered are noticed.

An account's seal is the SHA-256 of all its rows: the account, the limits it had, its entries and
their spends, every column. One more seal is over the numbers and names of all accounts, so that an
account that was lost is not opened anew. Seals are written with every change and checked before
anything is read or written.

A seal has no key: it protects against accidents. Whoever can write to the ledger can write a seal.
A copy of the whole ledger from yesterday is sealed too, and says what was true yesterday.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from subspacedp.errors import LedgerError

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

FORMAT = "subspacedp ledger"
VERSION = 2  # 1 had no seals

ACCOUNTS = "seal of accounts"  # in ledger_meta: the seal over the list of accounts


class Damage(Exception):  # noqa: N818 - a message between files, which no caller sees
    """What was noticed, within a transaction; the database raises it as a `DamageError`."""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """All tables. Rows are added; of existing ones only what is said here ever changes.

    An account's `budget` is its present limit, and `limits` keeps all it had. An entry's state,
    folder and times are filled in as it goes on, and so are a spend's release, digest and
    invariants. `meta` says format and version, and keeps the seals (`seals`).
    """

    metadata: MetaData
    meta: Table
    accounts: Table
    limits: Table
    entries: Table
    spends: Table


@cache
def tables() -> Tables:
    """The tables, which are the same since version 1."""
    try:
        import sqlalchemy as sa
    except ImportError:
        raise LedgerError(
            "A ledger needs SQLAlchemy; install it with `pip install subspacedp[ledger]`."
        ) from None
    metadata = sa.MetaData()

    def text(name: str, *, empty: bool = False) -> sa.Column[str]:
        return sa.Column(name, sa.Text, nullable=empty)

    def number() -> sa.Column[int]:
        return sa.Column("id", sa.Integer, primary_key=True, autoincrement=True)

    def of(name: str, *, empty: bool = False) -> sa.Column[int]:
        key = sa.ForeignKey(f"ledger_{name}.id")
        column = {"accounts": "account_id", "entries": "entry_id"}[name]
        return sa.Column("replaces" if empty else column, key, nullable=empty, index=True)

    return Tables(
        metadata=metadata,
        meta=sa.Table(
            "ledger_meta", metadata, sa.Column("name", sa.Text, primary_key=True), text("value")
        ),
        accounts=sa.Table(
            "ledger_accounts",
            metadata,
            number(),
            sa.Column("name", sa.Text, nullable=False, unique=True),
            text("budget"),
            text("neighbours"),
            text("unit"),
            text("note"),
            text("created"),
        ),
        limits=sa.Table(
            "ledger_limits", metadata, number(), of("accounts"), text("budget"), text("note"),
            text("at"),
        ),
        entries=sa.Table(
            "ledger_entries",
            metadata,
            number(),
            of("accounts"),
            text("state"),
            text("note"),
            of("entries", empty=True),
            text("folder", empty=True),
            text("reserved"),
            text("drawing", empty=True),
            text("ended", empty=True),
            sqlite_autoincrement=True,  # the number of an entry is never used again
        ),
        spends=sa.Table(
            "ledger_spends",
            metadata,
            number(),
            of("entries"),
            sa.Column("position", sa.Integer, nullable=False),
            text("spend"),
            text("release_id", empty=True),
            text("digest", empty=True),
            text("invariants", empty=True),
        ),
    )  # fmt: skip


def seal_name(account: int) -> str:
    """Under which name the seal of an account is kept in ledger_meta."""
    return f"seal of account {account}"


def list_seal(accounts: Iterable[tuple[int, str]]) -> str:
    """The seal over the numbers and names of all accounts, in the order of their numbers."""
    rows = [{"id": number, "name": name} for number, name in accounts]
    return rows_seal({"accounts": rows})


def rows_seal(tables: Mapping[str, Iterable[Mapping[Any, Any]]]) -> str:
    """The seal over the rows of several tables, in the order given.

    >>> one = rows_seal({"entries": [{"id": 1, "state": "drawing"}]})
    >>> one == rows_seal({"entries": [{"id": 1, "state": "cancelled"}]})
    False
    """
    digest = hashlib.sha256(b"subspacedp ledger seal 1\n")
    for name, rows in tables.items():
        digest.update(f"{name}\n".encode())
        for row in rows:
            # JSON tells 1 from "1" and from null, and ends where a row ends.
            digest.update(json.dumps(_plain(row), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    if any(type(value) not in (str, int, type(None)) for value in row.values()):
        raise Damage("a row holds something that is no text and no whole number")
    return {str(name): value for name, value in row.items()}


def now() -> str:
    """The time in UTC, to the microsecond.

    >>> now().endswith("+00:00")
    True
    """
    return datetime.now(UTC).isoformat(timespec="microseconds")
