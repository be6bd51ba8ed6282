"""The tables of a ledger; made when SQLAlchemy is there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from subspacedp.ledger.errors import LedgerError

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

__all__ = ["FORMAT", "VERSION", "Tables", "tables"]

FORMAT = "subspacedp ledger"
VERSION = 2  # 1 had no seals


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
        missing = True
    else:
        missing = False
    if missing:
        raise LedgerError(
            "A ledger needs SQLAlchemy; install it with `pip install subspacedp[ledger]`."
        )
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
