"""The book of an account: all its rows, read once, checked, and what they say.

Nothing about an account is read in any other way, so that no figure comes from rows that were not
checked. Whoever writes locks the account first, checks its book, changes rows, and seals them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

from subspacedp.errors import LedgerError
from subspacedp.frozen import frozen
from subspacedp.ledger.database import (
    ACCOUNTS,
    Damage,
    list_seal,
    now,
    rows_seal,
    seal_name,
    tables,
)
from subspacedp.ledger.entries import (
    Account,
    Entry,
    State,
    as_text,
    from_text,
)
from subspacedp.privacy import Budget, budget_from, neighbours_from
from subspacedp.privacy.composition import Composed, Spend, compose

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping


@frozen(eq=False, kw_only=True)
class Book:
    """All rows of one account, as they were sealed."""

    row: Mapping[Any, Any]
    limits: Sequence[Mapping[Any, Any]]
    entry_rows: Sequence[Mapping[Any, Any]]
    spend_rows: Sequence[Mapping[Any, Any]]

    @property
    def number(self) -> int:
        """The number of the account."""
        return int(self.row["id"])

    @cached_property
    def account(self) -> Account:
        """The account itself."""
        return Account(
            name=self.row["name"],
            limit=from_text(budget_from, self.row["budget"]),
            neighbours=from_text(neighbours_from, self.row["neighbours"]),
            unit=self.row["unit"],
            note=self.row["note"],
            created=self.row["created"],
        )

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries, in the order in which they were reserved."""
        spends: dict[int, list[Mapping[Any, Any]]] = {}
        for spend in self.spend_rows:
            spends.setdefault(spend["entry_id"], []).append(spend)
        later: dict[int, list[int]] = {}
        for row in self.entry_rows:
            if row["replaces"] is not None:
                later.setdefault(row["replaces"], []).append(row["id"])
        known: dict[str, Spend] = {}  # few texts are new: tables of one kind cost the same
        return tuple(
            _entry(self.account.name, row, spends.get(row["id"], []), later, known)
            for row in self.entry_rows
        )

    @cached_property
    def spent(self) -> Counter[Spend]:
        """How often each spend occurs, cancelled entries aside."""
        return Counter(spend for entry in self.entries if entry.counts for spend in entry.spends)

    @cached_property
    def total(self) -> Composed:
        """What the account has spent."""
        return compose(self.spent, neighbours=self.account.neighbours)

    def entry(self, which: int | str) -> Entry | None:
        """An entry by its number, or by the id of a release in it."""
        for entry in self.entries:
            if entry.number == which or which in entry.release_ids:
                return entry
        return None

    @property
    def seal(self) -> str:
        """The seal over these rows."""
        return rows_seal(
            {
                "account": [self.row],
                "limits": self.limits,
                "entries": self.entry_rows,
                "spends": self.spend_rows,
            }
        )

    def check(self, seal: str | None) -> None:
        """Refuse rows that are not what was sealed, or that no ledger writes.

        Without a seal (format 1) only the second can be noticed.
        """
        if self.seal != seal and seal is not None:
            raise Damage("an account is not as it was last written")
        if not self.limits or self.limits[-1]["budget"] != self.row["budget"]:
            raise Damage("an account has another limit than the one it was given")
        positions: dict[int, list[int]] = {row["id"]: [] for row in self.entry_rows}
        for spend in self.spend_rows:
            positions[spend["entry_id"]].append(spend["position"])
            if seal is None and spend["invariants"] is not None:
                _ = from_text(dict, spend["invariants"])
        if any(each != list(range(len(each))) or not each for each in positions.values()):
            raise Damage("an entry has lost what it spent")
        _ = self.spent


def book_of(con: Connection, name: str, *, lock: bool = False) -> Book:
    """The book of an account; `lock` makes others wait for it until the transaction ends."""
    accounts = tables().accounts
    book = _book(con, accounts.c.name == name, lock=lock)
    if book is not None:
        return book
    names = sorted(known for _, known in listed(con))
    near = get_close_matches(str(name), names, 1)
    hint = (
        f"did you mean `{near[0]}`?"
        if near
        else f"there is {', '.join(f'`{n}`' for n in names[:5])}{' …' * (len(names) > 5)}."
        if names
        else "there is none yet."
    )
    raise LedgerError(f"The ledger has no account `{name}`; {hint}", account=name)


def book_with(con: Connection, entry: int, *, lock: bool = False) -> Book:
    """The book of the account that an entry belongs to."""
    from sqlalchemy import select

    t = tables()
    account = con.execute(select(t.entries.c.account_id).where(t.entries.c.id == entry)).scalar()
    if account is None:
        for _ in all_books(con, lock=lock):  # a lost entry is damage, and a wrong number is not
            pass
        raise LedgerError(f"The ledger has no entry {entry}.")
    book = _book(con, t.accounts.c.id == account, lock=lock)
    if book is None:
        raise Damage("an entry belongs to no account")
    return book


def all_books(con: Connection, *, lock: bool = False) -> list[Book]:
    """The books of all accounts, by name."""
    accounts = tables().accounts
    books = [_book(con, accounts.c.id == number, lock=lock) for number, _ in listed(con)]
    checked = [book for book in books if book is not None]
    if len(checked) < len(books):
        raise Damage("an account is missing")
    return sorted(checked, key=lambda book: book.account.name)


def listed(con: Connection) -> list[tuple[int, str]]:
    """The numbers and names of all accounts, as they were sealed."""
    from sqlalchemy import select, true

    t = tables()
    # One statement, so that list and seal are of one moment whatever the isolation is.
    rows = con.execute(
        select(t.meta.c.name, t.meta.c.value, t.accounts.c.id, t.accounts.c.name)
        .select_from(t.meta.outerjoin(t.accounts, true()))
        .where(t.meta.c.name.in_((ACCOUNTS, "version")))
        .order_by(t.accounts.c.id)
    ).all()
    seals = {name: value for name, value, _, _ in rows}
    accounts = [
        (number, name) for key, _, number, name in rows if key == "version" and number is not None
    ]
    if ACCOUNTS in seals and list_seal(accounts) != seals[ACCOUNTS]:
        raise Damage("the list of accounts is not as it was last written")
    return accounts


def add_limit(con: Connection, account: int, limit: Budget, note: str) -> None:
    """Remember a limit."""
    from sqlalchemy import insert

    con.execute(
        insert(tables().limits).values(
            account_id=account, budget=as_text(limit), note=note, at=now()
        )
    )


def write_seal(con: Connection, account: int) -> None:
    """Seal an account after a change of its checked book."""
    book = _rows(con, tables().accounts.c.id == account, lock=False)
    if book is None:
        raise Damage("an account is missing")
    _put(con, seal_name(account), book.seal)


def write_list_seal(con: Connection) -> None:
    """Seal the list of accounts after one was added to the checked list."""
    from sqlalchemy import select

    accounts = tables().accounts
    rows = con.execute(select(accounts.c.id, accounts.c.name).order_by(accounts.c.id))
    _put(con, ACCOUNTS, list_seal((row.id, row.name) for row in rows))


def _put(con: Connection, name: str, value: str) -> None:
    from sqlalchemy import insert, update

    meta = tables().meta
    done = con.execute(update(meta).where(meta.c.name == name).values(value=value))
    if done.rowcount == 0:
        con.execute(insert(meta).values(name=name, value=value))


def _book(con: Connection, which: Any, *, lock: bool) -> Book | None:
    """The checked book of one account."""
    from sqlalchemy import select

    book = _rows(con, which, lock=lock)
    if book is None:
        return None
    meta = tables().meta
    names = (seal_name(book.number), ACCOUNTS)
    seals = {row.name: row.value for row in con.execute(select(meta).where(meta.c.name.in_(names)))}
    if ACCOUNTS in seals and names[0] not in seals:
        raise Damage("the seal of an account is missing")
    try:
        book.check(seals.get(names[0]))
    except (TypeError, KeyError, AttributeError, OverflowError):
        raise Damage("a row cannot be read") from None
    return book


def _rows(con: Connection, which: Any, *, lock: bool) -> Book | None:
    from sqlalchemy import select

    t = tables()
    query = select(t.accounts).where(which)
    # SQLite has no FOR UPDATE, and leaves it out: there BEGIN IMMEDIATE has locked everything.
    row = con.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None:
        return None

    def rows(query: Any) -> Sequence[RowMapping]:
        return con.execute(query).mappings().all()

    mine = t.entries.c.account_id == row["id"]
    spends = select(t.spends).join(t.entries, t.entries.c.id == t.spends.c.entry_id).where(mine)
    return Book(
        row=row,
        limits=rows(
            select(t.limits).where(t.limits.c.account_id == row["id"]).order_by(t.limits.c.id)
        ),
        entry_rows=rows(select(t.entries).where(mine).order_by(t.entries.c.id)),
        spend_rows=rows(spends.order_by(t.spends.c.entry_id, t.spends.c.position, t.spends.c.id)),
    )


def _entry(
    account: str,
    row: Mapping[Any, Any],
    spends: Sequence[Mapping[Any, Any]],
    later: Mapping[int, Sequence[int]],
    known: dict[str, Spend],
) -> Entry:
    for text in (spend["spend"] for spend in spends):
        if text not in known:
            known[text] = from_text(Spend.from_dict, text)
    return Entry(
        number=row["id"],
        account=account,
        state=from_text(State, json.dumps(row["state"])),
        note=row["note"],
        spends=tuple(known[spend["spend"]] for spend in spends),
        release_ids=tuple(spend["release_id"] for spend in spends),
        digests=tuple(spend["digest"] for spend in spends),
        invariants=tuple(spend["invariants"] for spend in spends),
        folder=row["folder"],
        replaces=row["replaces"],
        replaced_by=tuple(later.get(row["id"], ())),
        reserved=row["reserved"],
        drawing=row["drawing"],
        ended=row["ended"],
    )
