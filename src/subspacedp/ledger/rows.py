"""Reading and writing the rows of a ledger, within a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from subspacedp.ledger.clock import now
from subspacedp.ledger.entries import Account, Entry, State
from subspacedp.ledger.errors import LedgerError
from subspacedp.ledger.plain import budget_from, budget_text, neighbours_from, readable, spend_from
from subspacedp.ledger.tables import tables
from subspacedp.privacy import Budget
from subspacedp.privacy.composition import Composed, Spend, compose

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping

__all__ = [
    "account_from",
    "add_limit",
    "entries_of",
    "entry_from",
    "find_entry",
    "row_of",
    "spent_from",
    "total_of",
]


def row_of(con: Connection, name: str, *, lock: bool = False) -> RowMapping:
    """The row of an account; `lock` makes others wait for it until the transaction ends."""
    from sqlalchemy import select

    accounts = tables().accounts
    query = select(accounts).where(accounts.c.name == name)
    # SQLite has no FOR UPDATE, and leaves it out: there BEGIN IMMEDIATE has locked everything.
    found = con.execute(query.with_for_update() if lock else query).mappings().first()
    if found is not None:
        return found
    names = list(con.execute(select(accounts.c.name).order_by(accounts.c.name)).scalars())
    near = get_close_matches(str(name), names, 1)
    hint = (
        f"did you mean `{near[0]}`?"
        if near
        else f"there is {', '.join(f'`{n}`' for n in names[:5])}{' …' * (len(names) > 5)}."
        if names
        else "there is none yet."
    )
    raise LedgerError(f"The ledger has no account `{name}`; {hint}", account=name)


def find_entry(con: Connection, account: RowMapping, replaces: int | str) -> int:
    """The number of an entry of this account, by its number or a release in it."""
    from sqlalchemy import select

    t = tables()
    which = (
        t.spends.c.release_id == replaces
        if isinstance(replaces, str)
        else t.entries.c.id == replaces
    )
    query = select(t.entries.c.id).join(t.spends).where(which)
    found = con.execute(query.where(t.entries.c.account_id == account["id"])).scalar()
    if found is None:
        what = f"release `{replaces}`" if isinstance(replaces, str) else f"entry {replaces}"
        raise LedgerError(f"The account `{account['name']}` has no {what} to replace.")
    return int(found)


def account_from(row: Mapping[Any, Any]) -> Account:
    """An account from its row."""
    return Account(
        name=row["name"],
        limit=budget_from(row["budget"]),
        neighbours=neighbours_from(row["neighbours"]),
        unit=row["unit"],
        note=row["note"],
        created=row["created"],
    )


def entry_from(row: RowMapping, spends: Sequence[RowMapping], later: Sequence[int]) -> Entry:
    """An entry from its row, those of its spends, and the numbers of what replaces it."""
    return Entry(
        number=row["id"],
        account=row["name"],
        state=readable(lambda: State(row["state"])),
        note=row["note"],
        spends=tuple(spend_from(spend["spend"]) for spend in spends),
        release_ids=tuple(spend["release_id"] for spend in spends),
        digests=tuple(spend["digest"] for spend in spends),
        invariants=tuple(spend["invariants"] for spend in spends),
        folder=row["folder"],
        replaces=row["replaces"],
        replaced_by=tuple(later),
        reserved=row["reserved"],
        drawing=row["drawing"],
        ended=row["ended"],
    )


def add_limit(con: Connection, account: int, limit: Budget, note: str) -> None:
    """Remember a limit."""
    from sqlalchemy import insert

    con.execute(
        insert(tables().limits).values(
            account_id=account, budget=budget_text(limit), note=note, at=now()
        )
    )


def spent_from(con: Connection, row: RowMapping) -> Counter[Spend]:
    """How often each spend occurs; equal ones are counted by the database."""
    from sqlalchemy import func, select

    t = tables()
    found = con.execute(
        select(t.spends.c.spend, func.count())
        .join(t.entries, t.entries.c.id == t.spends.c.entry_id)
        .where(t.entries.c.account_id == row["id"], t.entries.c.state != State.CANCELLED.value)
        .group_by(t.spends.c.spend)
    )
    spent: Counter[Spend] = Counter()
    for text, number in found:
        spent[spend_from(text)] += int(number)  # two texts may say the same spend
    return spent


def total_of(con: Connection, row: RowMapping) -> Composed:
    """What an account has spent."""
    return compose(spent_from(con, row), neighbours=account_from(row).neighbours)


def entries_of(
    con: Connection, *, account: int | None = None, number: int | None = None
) -> tuple[Entry, ...]:
    """The entries of an account, or one by its number."""
    from sqlalchemy import select

    t = tables()
    wanted = t.entries.c.account_id == account if number is None else t.entries.c.id == number
    names = select(t.entries, t.accounts.c.name).join(t.accounts).where(wanted)
    rows = con.execute(names.order_by(t.entries.c.id)).mappings().all()
    spends: dict[int, list[RowMapping]] = {}
    query = select(t.spends).join(t.entries).where(wanted)
    for spend in con.execute(query.order_by(t.spends.c.position)).mappings():
        spends.setdefault(spend["entry_id"], []).append(spend)
    later: dict[int, list[int]] = {}
    for row in rows:
        if row["replaces"] is not None:
            later.setdefault(row["replaces"], []).append(row["id"])
    return tuple(entry_from(row, spends[row["id"]], later.get(row["id"], [])) for row in rows)
