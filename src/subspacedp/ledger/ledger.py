"""Accounts of data sets, and what releases have spent from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from subspacedp.errors import BudgetError
from subspacedp.ledger.clock import now
from subspacedp.ledger.database import PATIENCE, Database, database_at
from subspacedp.ledger.entries import Account, Entry, State, totals_data
from subspacedp.ledger.errors import LedgerError, LimitError
from subspacedp.ledger.plain import budget_text, neighbours_text, spend_text
from subspacedp.ledger.reservation import Reservation, invariant_texts
from subspacedp.ledger.rows import (
    account_from,
    add_limit,
    entries_of,
    find_entry,
    row_of,
    spent_from,
    total_of,
)
from subspacedp.ledger.tables import FORMAT, VERSION, tables
from subspacedp.ledger.words import figure, left_of, releases, told, uncounted
from subspacedp.privacy import Budget
from subspacedp.privacy.composition import Composed, Spend, compose
from subspacedp.tables import Neighbours

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping

__all__ = ["Ledger", "open_ledger"]


def open_ledger(address: str | PathLike[str], *, patience: float = PATIENCE) -> Ledger:
    """A ledger by its address: a path, `sqlite:///path`, or `postgresql://user@host/database`.

    Nothing is made or written before the first account is created. `sqlite:///path?mode=ro` opens
    a file to look at it only.

    Parameters
    ----------
    address
        Where the ledger is. A password is better kept in PGPASSWORD or a password file.
    patience
        Seconds to wait for another process that holds the ledger.

    Examples
    --------
    >>> import tempfile, pathlib, subspacedp as sdp
    >>> from subspacedp.privacy.composition import Spend
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = open_ledger(pathlib.Path(folder.name) / "budget.db")
    >>> account = ledger.create("census", sdp.PureDP(1.0), sdp.ReplaceOne())
    >>> spend = Spend(budget=sdp.PureDP(0.3), neighbours=sdp.ReplaceOne())
    >>> reservation = ledger.reserve("census", [spend], note="first table")
    >>> reservation.drawing()  # noise may be drawn from here on
    >>> reservation.commit(["0" * 32], "release", ["0" * 64])
    >>> ledger.totals("census").pure, ledger.left("census")
    (0.3, 'ε = 0.7')
    >>> folder.cleanup()
    """
    return Ledger(database_at(address, patience))


class Ledger:
    """Accounts in a database.

    Guarantees
    ----------
    1. What the entries of an account have spent together, cancelled ones aside, is within its
       limit at every moment, whatever processes do at the same time and whenever they die.
    2. An entry is never removed, and once noise may have been drawn it never stops counting.
    3. A call that raises has spent nothing, but where the connection was lost while the database
       was answering: then `history` tells, and what it shows counts.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # ------------------------------------------------------------------------------- accounts

    def create(
        self,
        account: str,
        limit: Budget,
        neighbours: Neighbours,
        *,
        unit: str = "person",
        note: str = "",
    ) -> Account:
        """Open an account; the ledger itself is made with its first one.

        Parameters
        ----------
        account
            Its name.
        limit
            What may be spent in all. Its kind is the account's accounting: `PureDP` adds ε,
            `ApproxDP` composes exactly at its δ, `ZCDP` adds ρ, `GaussianDP` adds μ in squares.
        neighbours
            The change of the data that everything is accounted for.
        unit
            Whose change that is.
        note
            Anything to remember.
        """
        _check_text("account", account)
        _check_text("unit", unit)
        _check_limit(limit)
        if not isinstance(neighbours, Neighbours) or type(neighbours) is Neighbours:
            raise LedgerError("`neighbours` must be ReplaceOne(...) or AddRemoveOne(...).")
        row = {
            "name": account,
            "budget": budget_text(limit),
            "neighbours": neighbours_text(neighbours),
            "unit": unit,
            "note": note,
            "created": now(),
        }

        def work(con: Connection) -> Account:
            from sqlalchemy import insert, select

            t = tables()
            self._database.lock_creation(con)  # two of one name would break the second
            if con.execute(select(t.accounts.c.id).where(t.accounts.c.name == account)).first():
                raise LedgerError(f"The ledger has an account `{account}` already.")
            key = con.execute(insert(t.accounts).values(**row)).inserted_primary_key
            add_limit(con, key[0] if key else 0, limit, "opened")
            return account_from(row)

        return self._database.write(work, create=True)

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, by name."""

        def work(con: Connection) -> tuple[Account, ...]:
            from sqlalchemy import select

            t = tables()
            rows = con.execute(select(t.accounts).order_by(t.accounts.c.name)).mappings()
            return tuple(account_from(row) for row in rows)

        return self._database.read(work)

    def account(self, name: str) -> Account:
        """One account."""
        return self._database.read(lambda con: account_from(row_of(con, name)))

    def change_limit(self, account: str, limit: Budget, *, note: str = "") -> Account:
        """Give an account another limit; one below what is spent is refused.

        The limit may be of another kind: everything spent is then counted by its accounting.
        """
        _check_limit(limit)

        def work(con: Connection) -> Account:
            from sqlalchemy import update

            row = row_of(con, account, lock=True)
            spent = total_of(con, row)
            if spent.within(limit) is None:
                raise LedgerError(uncounted(account, limit))
            if not spent.within(limit):
                raise LimitError(
                    f"The account `{account}` has spent {told(spent, limit)}: its limit cannot "
                    f"be {limit}.",
                    account=account,
                    spent=figure(spent, limit),
                )
            t = tables()
            con.execute(
                update(t.accounts)
                .where(t.accounts.c.id == row["id"])
                .values(budget=budget_text(limit))
            )
            add_limit(con, row["id"], limit, note)
            return account_from({**row, "budget": budget_text(limit)})

        return self._database.write(work)

    # ------------------------------------------------------------------------------- spending

    def reserve(
        self,
        account: str,
        spends: Sequence[Spend],
        *,
        note: str = "",
        replaces: int | str | None = None,
        held: Sequence[Mapping[str, Any]] | None = None,
        release_ids: Sequence[str] | None = None,
    ) -> Reservation:
        """Take budget for releases that are about to be made; all of them or none.

        Parameters
        ----------
        account
            The account that pays.
        spends
            What each release will spend (`spend_of` a design).
        note
            Anything to remember.
        replaces
            The entry, by its number or by the id of a release in it, that these releases correct.
            It stays spent.
        held
            What each release publishes exactly (`invariants_of` a design).
        release_ids
            The id of each release, where these are settled before: `paid_for` finds the entry by
            them.

        Guarantees
        ----------
        1. When it returns, the entry is on disk and counts.
        2. When it raises LimitError, everything is as before, and `left` says what is left.
        """
        asked = list(spends)
        if not asked or not all(isinstance(spend, Spend) for spend in asked):
            raise LedgerError("`spends` must be a sequence of at least one Spend.")
        texts = invariant_texts(held, len(asked))
        ids = [None] * len(asked) if release_ids is None else list(map(str, release_ids))
        if len(ids) != len(asked):
            raise LedgerError(
                f"`release_ids` must have one item for each of the {len(asked)} releases; got "
                f"{len(ids)}."
            )

        def work(con: Connection) -> Reservation:
            from sqlalchemy import insert

            t = tables()
            row = row_of(con, account, lock=True)
            corrected = None if replaces is None else find_entry(con, row, replaces)
            self._check_room(con, row, asked)
            key = con.execute(
                insert(t.entries).values(
                    account_id=row["id"],
                    state=State.RESERVED.value,
                    note=note,
                    replaces=corrected,
                    reserved=now(),
                )
            ).inserted_primary_key
            number = int(key[0]) if key else 0
            con.execute(
                insert(t.spends),
                [
                    {
                        "entry_id": number,
                        "position": position,
                        "spend": spend_text(spend),
                        "invariants": None if texts is None else texts[position],
                        "release_id": ids[position],
                    }
                    for position, spend in enumerate(asked)
                ],
            )
            return Reservation(self._database, number, len(asked))

        return self._database.write(work)

    def check(self, account: str, spends: Sequence[Spend]) -> None:
        """Refuse what `reserve` would refuse now; spends nothing, as a dry run does."""
        self._database.read(lambda con: self._check_room(con, row_of(con, account), list(spends)))

    def reservation(self, number: int) -> Reservation:
        """The handle on an entry that exists, such as one whose process died."""
        entry = self._database.read(lambda con: entries_of(con, number=number))
        if not entry:
            raise LedgerError(f"The ledger has no entry {number}.")
        return Reservation(self._database, number, len(entry[0].spends))

    def paid_for(self, account: str, release_ids: Sequence[str]) -> Reservation | None:
        """The handle on the entry that pays for exactly these releases; None where none does.

        A cancelled entry pays for nothing.
        """
        ids = tuple(map(str, release_ids))
        entries = (entry for entry in self.history(account) if entry.counts)
        number = next((entry.number for entry in entries if entry.release_ids == ids), None)
        return None if number is None else Reservation(self._database, number, len(ids))

    def _check_room(self, con: Connection, row: RowMapping, asked: Sequence[Spend]) -> None:
        account = account_from(row)
        for spend in asked:
            try:
                spend.steps_to(account.neighbours)
            except BudgetError as error:
                raise LedgerError(
                    f"The account `{account.name}` is for {account.neighbours}: {_inner(error)}"
                ) from None
        spent = spent_from(con, row)
        before = compose(spent, neighbours=account.neighbours)
        after = compose(spent + Counter(asked), neighbours=account.neighbours)
        limit = account.limit
        verdict = after.within(limit)
        if verdict is None:
            raise LedgerError(uncounted(account.name, limit))
        if not verdict:
            left, what = left_of(before, limit), releases(len(asked))
            raise LimitError(
                f"The account `{account.name}` has {left} left of {limit}, and {what} would take "
                f"what is spent from {told(before, limit)} to {told(after, limit)}. Nothing was "
                "spent.",
                account=account.name,
                left=left,
                spent=figure(before, limit),
                wanted=figure(after, limit),
            )

    # -------------------------------------------------------------------------------- looking

    def totals(self, account: str) -> Composed:
        """What is spent, under every accounting."""
        return self._database.read(lambda con: total_of(con, row_of(con, account)))

    def left(self, account: str) -> str:
        """What is left under the account's accounting, in words."""

        def work(con: Connection) -> str:
            row = row_of(con, account)
            return left_of(total_of(con, row), account_from(row).limit)

        return self._database.read(work)

    def history(self, account: str) -> tuple[Entry, ...]:
        """All entries of an account, in the order in which they were reserved."""
        return self._database.read(lambda con: entries_of(con, account=row_of(con, account)["id"]))

    def invariants(self, account: str) -> list[dict[str, Any]]:
        """What is published exactly by the releases of an account, as plain data.

        Entries that were never committed are among them, for their files may be out; `held` is
        None where nobody said what they hold. Cancelled ones are not.
        """
        return [
            {
                "entry": entry.number,
                "state": entry.state.value,
                "release_id": release,
                **({"held": None} if text is None else json.loads(text)),
            }
            for entry in self.history(account)
            if entry.counts
            for release, text in zip(entry.release_ids, entry.invariants, strict=True)
        ]

    def export(self, account: str | None = None) -> dict[str, Any]:
        """Everything, or one account, as plain data ready for JSON; one state of the ledger."""

        def work(con: Connection) -> dict[str, Any]:
            from sqlalchemy import select

            t = tables()
            rows = (
                [row_of(con, account)]
                if account is not None
                else list(con.execute(select(t.accounts).order_by(t.accounts.c.name)).mappings())
            )
            return {
                "format": f"{FORMAT} {VERSION}",
                "exported": now(),
                "accounts": [self._account_data(con, row) for row in rows],
            }

        return self._database.read(work)

    def _account_data(self, con: Connection, row: RowMapping) -> dict[str, Any]:
        from sqlalchemy import select

        t, account, total = tables(), account_from(row), total_of(con, row)
        limits = con.execute(
            select(t.limits).where(t.limits.c.account_id == row["id"]).order_by(t.limits.c.id)
        ).mappings()
        return {
            **account.as_dict(),
            "limits": [
                {"limit": json.loads(old["budget"]), "note": old["note"], "at": old["at"]}
                for old in limits
            ],
            "totals": totals_data(total),
            "left": left_of(total, account.limit),
            "entries": [entry.as_dict() for entry in entries_of(con, account=row["id"])],
        }

    # -------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._database.shown!r})"


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise LedgerError(f"`{name}` must be a text that is not empty.")


def _check_limit(limit: object) -> None:
    if not isinstance(limit, Budget) or type(limit) is Budget:
        raise LedgerError(
            "`limit` must be PureDP(...), ApproxDP(...), ZCDP(...) or GaussianDP(...)."
        )


def _inner(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
