"""Where a ledger is kept, SQLite or PostgreSQL: transactions, tables, and the seals of rows.

A write locks before it reads: SQLite with BEGIN IMMEDIATE, PostgreSQL with the row of the account
(`Ledger` selects it FOR UPDATE). Every transaction has a connection of its own, so that a fork
shares none and a server that was restarted is found again. What stores the rows is checked in every
transaction before anything else (`check_storage`); the rows themselves are by their seals (`book`).

By seals, rows that were lost or altered are noticed. An account's seal is the SHA-256 of all its
rows: the account, the limits it had, its entries and their spends, every column. One more seal is
over the numbers and names of all accounts, so that an account that was lost is not opened anew.
Seals are written with every change and checked before anything is read or written.

A seal has no key: it protects against accidents. Whoever can write to the ledger can write a seal.
A copy of the whole ledger from yesterday is sealed too, and says what was true yesterday.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from subspacedp.errors import DamageError, LedgerError, SubspaceDPError
from subspacedp.frozen import frozen

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, MetaData, Table


FORMAT = "subspacedp ledger"
VERSION = 2  # 1 had no seals

ACCOUNTS = "seal of accounts"  # in ledger_meta: the seal over the list of accounts


class Damage(Exception):  # noqa: N818 - a message between files, which no caller sees
    """What was noticed, within a transaction; the database raises it as a `DamageError`."""


@frozen(kw_only=True)
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


T = TypeVar("T")
PATIENCE = 60.0  # seconds to wait for a lock
SETTLING = 0.5  # seconds in which a page is written to the end of a file


def database_at(address: str | os.PathLike[str], patience: float = PATIENCE) -> Database:
    """The database that an address names: a path, sqlite:///path, or postgresql://host/name."""
    text = os.fspath(address)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return SqliteDatabase(Path(text), patience)
    if scheme == "sqlite":
        path, _, options = rest.removeprefix("/").partition("?")
        if options not in ("", "mode=ro", "mode=rw"):
            raise LedgerError("An SQLite address takes `?mode=ro` and nothing else.")
        return SqliteDatabase(Path(path), patience, read_only=options == "mode=ro")
    if scheme.split("+")[0] in ("postgresql", "postgres"):
        return PostgresDatabase(f"postgresql://{rest}", patience)
    # The rest of the address may hold a password and is not repeated.
    raise LedgerError(
        "A ledger is a path, sqlite:///path, or postgresql://user@host/database; "
        f"got an address that begins with `{scheme}://`."
    )


class Database:
    """One database with a ledger in it, or room for one."""

    def __init__(self, shown: str, patience: float) -> None:
        tables()  # SQLAlchemy is there, or one sentence says how to get it
        self.shown = shown
        self.patience = patience

    @cached_property
    def engine(self) -> Engine:
        """Connections to the database."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the place for a new ledger, where there is none."""

    def check_place(self) -> None:
        """Refuse where no ledger can be."""

    def lock_creation(self, con: Connection) -> None:
        """Let one process at a time make the tables."""

    def explain(self, error: Any) -> str:
        """What an error of the driver means, without anything confidential."""
        raise NotImplementedError

    def check_storage(self, con: Connection) -> None:
        """Refuse where what stores the rows is damaged."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run something that writes nothing, on one state of the ledger."""
        return self._run(work, write=False)

    def write(
        self, work: Callable[[Connection], T], *, create: bool = False, upgrade: bool = False
    ) -> T:
        """Run something in a transaction of which all is kept or nothing."""
        if create:
            self.prepare()
        return self._run(work, write=True, create=create, upgrade=upgrade)

    def _run(
        self,
        work: Callable[[Connection], T],
        *,
        write: bool,
        create: bool = False,
        upgrade: bool = False,
    ) -> T:
        from sqlalchemy.exc import SQLAlchemyError

        self.check_place()
        kind: type[LedgerError] = LedgerError
        try:
            with self.engine.connect() as con:
                con = con.execution_options(**self.options(write=write))
                with con.begin():
                    self.check_storage(con)
                    version = self._version(con, create=create)
                    if write and not upgrade:
                        self._check_sealed(version)
                    return work(con)
        except SubspaceDPError:
            raise
        except Damage as damage:
            kind, sentence = DamageError, self.damaged(str(damage))
        except (UnicodeError, MemoryError, OverflowError):  # from names and sizes in a damaged file
            kind, sentence = DamageError, self.damaged()
        except (SQLAlchemyError, sqlite3.Error) as error:
            sentence = self.explain(getattr(error, "orig", None) or error)
            if sentence == self.damaged():
                kind = DamageError
        # Raised outside the handler: the driver's error may quote the address.
        raise kind(sentence)

    def damaged(self, what: str = "") -> str:
        """The sentence about a damaged ledger."""
        reason = f" ({what})" if what else ""
        return (
            f"The ledger `{self.shown}` is damaged{reason}: what it says is spent cannot be relied "
            "on, and nothing was changed. Restore it from a copy, and count what was released "
            "since."
        )

    def options(self, *, write: bool) -> dict[str, Any]:
        """How a transaction begins."""
        return {"ledger_write": write}

    def _version(self, con: Connection, *, create: bool) -> int:
        """The version of the ledger; the tables are made where there are none and may be."""
        from sqlalchemy import insert, inspect, select

        t = tables()
        if create:
            self.lock_creation(con)
        existing = set(inspect(con).get_table_names())
        if t.meta.name not in existing:
            if create and self.may_found(existing):
                t.metadata.create_all(con)
                rows = [
                    {"name": "format", "value": FORMAT},
                    {"name": "version", "value": str(VERSION)},
                    {"name": ACCOUNTS, "value": list_seal([])},
                ]
                con.execute(insert(t.meta), rows)
                return VERSION
            raise LedgerError(f"`{self.shown}` is not a ledger.")
        meta = {row.name: row.value for row in con.execute(select(t.meta))}
        version = str(meta.get("version"))
        if meta.get("format") != FORMAT or version not in map(str, range(1, 1000)):
            raise LedgerError(f"`{self.shown}` is not a ledger, or its beginning is damaged.")
        if int(version) > VERSION:
            raise LedgerError(
                f"The ledger `{self.shown}` was written by a newer version of subspacedp (format "
                f"{version}; this one reads up to {VERSION}). Update subspacedp; nothing was "
                "changed."
            )
        if (int(version) == 1) is (ACCOUNTS in meta):
            raise Damage("its version and its seals do not belong together")
        return int(version)

    def _check_sealed(self, version: int) -> None:
        """A ledger without seals is read, and not written."""
        if version == 1:
            raise LedgerError(
                f"The ledger `{self.shown}` is of format 1, in which lost entries are not noticed; "
                "look through `subspacedp ledger history`, and seal what is there with "
                f"`subspacedp ledger upgrade {self.shown}`. Nothing was changed."
            )

    def may_found(self, existing: set[str]) -> bool:
        """Whether a new ledger may go beside the tables that are there."""
        return not any(name.startswith("ledger_") for name in existing)

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()


class SqliteDatabase(Database):
    """A ledger in a file of its own, readable by its owner alone."""

    _MEANINGS = {  # noqa: RUF012 - a table that nothing changes
        sqlite3.SQLITE_BUSY: "is locked by another process for longer than {patience:g} s; nothing "
        "was changed. Try again",
        sqlite3.SQLITE_LOCKED: "is locked; nothing was changed. Try again",
        sqlite3.SQLITE_READONLY: "is read-only here; nothing was changed",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that the file and its folder may be read "
        "and written",
        sqlite3.SQLITE_PERM: "may not be read or written by this user",
        sqlite3.SQLITE_NOTADB: "is not a ledger, or its beginning is damaged; nothing was changed",
        sqlite3.SQLITE_FULL: "cannot be written: the disk is full. Nothing was changed",
        sqlite3.SQLITE_IOERR: "cannot be read or written: the disk failed",
    }

    def __init__(self, path: Path, patience: float, *, read_only: bool = False) -> None:
        super().__init__(str(path), patience)
        self.path = path
        self.read_only = read_only

    @cached_property
    def engine(self) -> Engine:
        """Connections that never make a file, and that wait for locks."""
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        mode = "ro" if self.read_only else "rw"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"

        def connect() -> sqlite3.Connection:
            # isolation_level=None: the driver begins no transactions of its own.
            con = sqlite3.connect(uri, uri=True, timeout=self.patience, isolation_level=None)
            try:
                con.execute("PRAGMA foreign_keys = ON")
                # What was answered for must survive a loss of power: with NORMAL a WAL may lose it.
                con.execute("PRAGMA synchronous = FULL")
            except BaseException:
                con.close()
                raise
            return con

        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

        @event.listens_for(engine, "begin")
        def begin(con: Connection) -> None:
            write = con.get_execution_options().get("ledger_write")
            con.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

        return engine

    def check_storage(self, con: Connection) -> None:
        """The file ends with a page, and every page and index of it is sound.

        SQLite reads what is missing of the last page as zeros. The file is as long as its pages are
        but while another process is writing to its end: that is waited for.
        """
        page = int(con.exec_driver_sql("PRAGMA page_size").scalar() or 0)
        until = time.monotonic() + SETTLING
        while page and self.path.stat().st_size % page:
            if time.monotonic() > until:
                raise Damage("the file ends within a page")
            time.sleep(SETTLING / 40)
        if con.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok":
            raise Damage("its pages do not belong together")

    def check_place(self) -> None:
        """There must be a file; none is made by looking."""
        if self.path.is_dir():
            raise LedgerError(f"`{self.shown}` is a folder, not a ledger.")
        if not self.path.exists():
            raise LedgerError(
                f"There is no ledger `{self.shown}`; "
                f"`subspacedp ledger create {self.shown} ACCOUNT` makes one, with a limit such as "
                "`--epsilon 2`."
            )
        if self.path.stat().st_nlink > 1:
            raise LedgerError(
                f"`{self.shown}` has a second name (a hard link), under which SQLite cannot lock "
                "it; remove one of them."
            )

    def prepare(self) -> None:
        """An empty file of mode 0600, where there is none."""
        if self.path.exists():
            return
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return  # another process was faster
        except OSError as error:
            strerror = error.strerror
        else:
            self._use_wal()
            return
        raise LedgerError(f"Cannot make the ledger `{self.shown}`: {strerror}.")

    def _use_wal(self) -> None:
        """Readers do not wait for writers; kept in the file. A ledger works without, too."""
        with self.engine.connect() as con:
            driver = con.connection.driver_connection
            if driver is not None:
                try:
                    driver.execute("PRAGMA journal_mode = WAL")
                except sqlite3.OperationalError:
                    return

    def may_found(self, existing: set[str]) -> bool:
        """A file that holds anything else is left alone."""
        return not existing

    def explain(self, error: Any) -> str:
        """By the number of the error; what SQLite cannot make sense of is damaged."""
        meaning = self._MEANINGS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if meaning is None:
            return self.damaged()
        return f"The ledger `{self.shown}` {meaning.format(patience=self.patience)}."


class PostgresDatabase(Database):
    """A ledger in a PostgreSQL database, for a team."""

    _MEANINGS = {  # noqa: RUF012 - a table that nothing changes
        "55P03": "is locked by another process for longer than {patience:g} s; nothing was "
        "changed. Try again",
        "40P01": "is busy; nothing was changed. Try again",
        "40001": "is busy; nothing was changed. Try again",
        "25006": "is read-only here; nothing was changed",
        "42501": "may not be read or written by this user; nothing was changed",
        "53100": "cannot be written: the disk is full. Nothing was changed",
    }
    _CREATION = 7_310_286_041  # of the advisory lock under which tables are made

    def __init__(self, address: str, patience: float) -> None:
        fault = ""
        try:
            from psycopg import conninfo

            options = conninfo.conninfo_to_dict(address)
        except ImportError:
            fault = (
                "A ledger in PostgreSQL needs psycopg; install it with "
                "`pip install subspacedp[ledger,postgres]`."
            )
        except Exception:  # the driver's sentence would quote the address, password and all
            fault = "The PostgreSQL address cannot be read; write postgresql://user@host/database."
        if fault:
            raise LedgerError(fault)
        host, name = options.get("host", "localhost"), options.get("dbname", "")
        port = f":{options['port']}" if "port" in options else ""
        super().__init__(f"postgresql://{host}{port}/{name}", patience)
        self._options = options

    @cached_property
    def engine(self) -> Engine:
        """Connections that wait for locks, and answer when what they wrote is on disk."""
        import psycopg
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool

        settings = {
            "connect_timeout": str(min(30, max(2, round(self.patience)))),
            "application_name": "subspacedp ledger",
            **{k: str(v) for k, v in self._options.items() if v is not None},
        }
        settings["options"] = (
            f"{settings.get('options', '')} -c lock_timeout={round(1000 * self.patience)} "
            "-c synchronous_commit=on"
        ).strip()

        def connect() -> Any:
            return psycopg.connect("", **settings)  # type: ignore[arg-type]  # libpq's own names

        return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)

    def options(self, *, write: bool) -> dict[str, Any]:
        """A write reads what is committed when it holds its lock; a read sees one state."""
        return {"isolation_level": "READ COMMITTED" if write else "REPEATABLE READ"}

    def lock_creation(self, con: Connection) -> None:
        """Until the end of the transaction."""
        con.exec_driver_sql(f"SELECT pg_advisory_xact_lock({self._CREATION})")

    def explain(self, error: Any) -> str:
        """By the number of the error; without one the server was not reached."""
        code = getattr(error, "sqlstate", None)
        if code is None or code[:2] in ("08", "28", "57", "3D"):
            return (
                f"The PostgreSQL server of the ledger `{self.shown}` did not accept the "
                "connection, or ended it; check the address, the user, and the password in "
                "PGPASSWORD or a password file. What was recorded before counts."
            )
        if code in ("XX001", "XX002"):  # a page, an index
            return self.damaged()
        meaning = self._MEANINGS.get(code, f"cannot be used ({type(error).__name__})")
        return f"The ledger `{self.shown}` {meaning.format(patience=self.patience)}."
