"""Accounts of data sets, and what releases have spent from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from subspacedp.errors import BudgetError, LedgerError, LimitError
from subspacedp.ledger.book import (
    Book,
    add_limit,
    all_books,
    book_of,
    book_with,
    listed,
    write_list_seal,
    write_seal,
)
from subspacedp.ledger.database import PATIENCE, VERSION, Database, database_at, now, tables
from subspacedp.ledger.entries import (
    Account,
    Entry,
    Payment,
    State,
    as_text,
    left_words,
    releases_words,
    spent_words,
    totals_data,
    uncounted,
)
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.budgets import kinds_of_budgets
from subspacedp.privacy.composition import Composed, Spend, compose

if TYPE_CHECKING:
    from sqlalchemy import Connection

EXPORT = "subspacedp ledger 1"  # what an export looks like, which seals did not change


def open_ledger(address: Ledger | str | PathLike[str], *, patience: float = PATIENCE) -> Ledger:
    """A ledger by its address: a path, `sqlite:///path`, or `postgresql://user@host/database`.

    Nothing is made or written before the first account is created. `sqlite:///path?mode=ro` opens
    a file to look at it only.

    Parameters
    ----------
    address
        Where the ledger is. A password is better kept in PGPASSWORD or a password file. A ledger
        that is open already stays as it is.
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
    return address if isinstance(address, Ledger) else Ledger(database_at(address, patience))


class Ledger:
    """Accounts in a database.

    Guarantees
    ----------
    1. What the entries of an account have spent together, cancelled ones aside, is within its
       limit at every moment, whatever processes do at the same time and whenever they die.
    2. An entry is never removed, and once noise may have been drawn it stops counting only by a
       person's declaration, which is kept.
    3. Before anything is read or written, the rows that it rests on are checked against their
       seal: rows that were lost or altered by accident are refused with a DamageError, and never
       reported as free budget.
    4. A call that raises has spent nothing, but where the connection was lost while the database
       was answering: then `history` says, and what it shows counts.
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
            "budget": as_text(limit),
            "neighbours": as_text(neighbours),
            "unit": unit,
            "note": note,
            "created": now(),
        }

        def work(con: Connection) -> Account:
            from sqlalchemy import insert

            self._database.lock_creation(con)  # two of one name would break the second
            if account in [name for _, name in listed(con)]:
                raise LedgerError(f"The ledger has an account `{account}` already.")
            key = con.execute(insert(tables().accounts).values(**row)).inserted_primary_key
            number = int(key[0]) if key else 0
            add_limit(con, number, limit, "opened")
            write_seal(con, number)
            write_list_seal(con)
            return book_of(con, account).account

        return self._database.write(work, create=True)

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, by name."""
        return self._database.read(lambda con: tuple(book.account for book in all_books(con)))

    def account(self, name: str) -> Account:
        """One account."""
        return self._database.read(lambda con: book_of(con, name).account)

    def change_limit(self, account: str, limit: Budget, *, note: str = "") -> Account:
        """Give an account another limit; one below what is spent is refused.

        The limit may be of another kind: everything spent is then counted by its accounting.
        """
        _check_limit(limit)

        def work(con: Connection) -> Account:
            from sqlalchemy import update

            book = book_of(con, account, lock=True)
            spent = book.total
            if spent.within(limit) is None:
                raise LedgerError(uncounted(account, limit))
            if not spent.within(limit):
                raise LimitError(
                    f"The account `{account}` has spent {spent_words(spent, limit)}: its limit "
                    f"cannot be {limit}.",
                    account=account,
                    spent=limit.spent(spent),
                )
            t = tables()
            con.execute(
                update(t.accounts)
                .where(t.accounts.c.id == book.number)
                .values(budget=as_text(limit))
            )
            add_limit(con, book.number, limit, note)
            write_seal(con, book.number)
            return book_of(con, account).account

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
            What each release will spend (`spend_of` a mechanism).
        note
            Anything to remember.
        replaces
            The entry, by its number or by the id of a release in it, that these releases correct.
            It stays spent.
        held
            What each release publishes exactly (`invariants_of` a mechanism).
        release_ids
            The id of each release, where these are settled before: `paid_for` finds the entry by
            them.

        Guarantees
        ----------
        1. When it returns, the entry is on disk and counts.
        2. When it raises LimitError, everything is as before, and `left` says what is left.
        """
        spends = list(spends)
        size = len(spends)
        if not spends or not all(isinstance(spend, Spend) for spend in spends):
            raise LedgerError("`spends` must be a sequence of at least one Spend.")
        texts = invariant_texts(held, size)
        ids = [None] * size if release_ids is None else list(map(str, release_ids))
        if len(ids) != size:
            raise LedgerError(
                f"`release_ids` must have one item for each of the {size} releases; got {len(ids)}."
            )

        def work(con: Connection) -> Reservation:
            from sqlalchemy import insert

            t = tables()
            book = book_of(con, account, lock=True)
            corrected = None if replaces is None else _replaced(book, replaces)
            self._check_room(con, book, spends)
            key = con.execute(
                insert(t.entries).values(
                    account_id=book.number,
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
                        "spend": as_text(spend),
                        "invariants": None if texts is None else texts[position],
                        "release_id": ids[position],
                    }
                    for position, spend in enumerate(spends)
                ],
            )
            write_seal(con, book.number)
            return Reservation(self._database, number, size)

        return self._database.write(work)

    def check(self, account: str, spends: Sequence[Spend]) -> None:
        """Refuse what `reserve` would refuse now; spends nothing, as a dry run does."""
        self._database.read(lambda con: self._check_room(con, book_of(con, account), list(spends)))

    def reservation(self, number: int) -> Reservation:
        """The handle on an entry that exists, such as one whose process died."""
        entry = self._database.read(lambda con: book_with(con, number).entry(number))
        if entry is None:
            raise LedgerError(f"The ledger has no entry {number}.")
        return Reservation(self._database, number, len(entry.spends))

    def paid_for(self, account: str, release_ids: Sequence[str]) -> Reservation | None:
        """The handle on the entry that pays for exactly these releases; None where none does.

        A cancelled entry pays for nothing.
        """
        ids = tuple(map(str, release_ids))
        entries = (entry for entry in self.history(account) if entry.counts)
        number = next((entry.number for entry in entries if entry.release_ids == ids), None)
        return None if number is None else Reservation(self._database, number, len(ids))

    def _check_room(self, con: Connection, book: Book, spends: Sequence[Spend]) -> None:
        account = book.account
        for spend in spends:
            try:
                spend.steps_to(account.neighbours)
            except BudgetError as error:
                raise LedgerError(
                    f"The account `{account.name}` is for {account.neighbours}: {_inner(error)}"
                ) from None
        before = book.total
        after = compose(book.spent + Counter(spends), neighbours=account.neighbours)
        limit = account.limit
        verdict = after.within(limit)
        if verdict is None:
            raise LedgerError(uncounted(account.name, limit))
        if not verdict:
            left, these = left_words(before, limit), releases_words(len(spends))
            raise LimitError(
                f"The account `{account.name}` has {left} left of {limit}, and {these} would take "
                f"what is spent from {spent_words(before, limit)} to {spent_words(after, limit)}. "
                "Nothing was spent.",
                account=account.name,
                left=left,
                spent=limit.spent(before),
                wanted=limit.spent(after),
            )

    # -------------------------------------------------------------------------------- looking

    def totals(self, account: str, more: Sequence[Spend] = ()) -> Composed:
        """What is spent, under every accounting; with `more`, what would be spent with them too."""

        def work(con: Connection) -> Composed:
            book = book_of(con, account)
            return compose(book.spent + Counter(more), neighbours=book.account.neighbours)

        return self._database.read(work)

    def left(self, account: str) -> str:
        """What is left under the account's accounting, in words."""

        def work(con: Connection) -> str:
            book = book_of(con, account)
            return left_words(book.total, book.account.limit)

        return self._database.read(work)

    def history(self, account: str) -> tuple[Entry, ...]:
        """All entries of an account, in the order in which they were reserved."""
        return self._database.read(lambda con: book_of(con, account).entries)

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
            books = all_books(con) if account is None else [book_of(con, account)]
            return {
                "format": EXPORT,
                "exported": now(),
                "accounts": [_account_data(book) for book in books],
            }

        return self._database.read(work)

    # ------------------------------------------------------------------------------ integrity

    def verify(self) -> tuple[int, int]:
        """Check every account, and say how many there are and how many entries they have.

        Raises DamageError where rows are not as they were last written. Every other call checks
        the account that it is about; this one is for the whole ledger, say after copying it.
        """
        books = self._database.read(all_books)
        return len(books), sum(len(book.entries) for book in books)

    def upgrade(self) -> tuple[int, int]:
        """Seal a ledger of format 1 as it is, and say how much was sealed.

        What it lost before cannot be noticed: look through the history first.
        """

        def work(con: Connection) -> tuple[int, int]:
            from sqlalchemy import update

            self._database.lock_creation(con)
            books = all_books(con, lock=True)
            for book in books:
                write_seal(con, book.number)
            write_list_seal(con)
            meta = tables().meta
            con.execute(update(meta).where(meta.c.name == "version").values(value=str(VERSION)))
            return len(books), sum(len(book.entries) for book in books)

        return self._database.write(work, upgrade=True)

    # -------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._database.shown!r})"


def _account_data(book: Book) -> dict[str, Any]:
    return {
        **book.account.as_dict(),
        "limits": [
            {"limit": json.loads(old["budget"]), "note": old["note"], "at": old["at"]}
            for old in book.limits
        ],
        "totals": totals_data(book.total),
        "left": left_words(book.total, book.account.limit),
        "entries": [entry.as_dict() for entry in book.entries],
    }


def _replaced(book: Book, replaces: int | str) -> int:
    """The number of the entry that is corrected."""
    entry = book.entry(replaces)
    if entry is None:
        what = f"release `{replaces}`" if isinstance(replaces, str) else f"entry {replaces}"
        raise LedgerError(f"The account `{book.account.name}` has no {what} to replace.")
    return entry.number


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise LedgerError(f"`{name}` must be a text that is not empty.")


def _check_limit(limit: object) -> None:
    if not isinstance(limit, Budget):
        raise LedgerError(f"`limit` must be {kinds_of_budgets()}; got a {type(limit).__name__}.")


def _inner(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


class Reservation:
    """A handle on one entry: budget that is taken before noise is drawn, and what becomes of it.

        reserved ──drawing()──▶ drawing ──commit()──▶ committed
            └──cancel()──▶ cancelled

    Only a cancelled entry gives its budget back, and only a reserved one can be cancelled. The step
    to `drawing` is recorded before the first random word is drawn, and fails on a cancelled entry:
    so whoever cancels knows that no noise was drawn and that none will be. Of an entry in `drawing`
    the ledger cannot know that; a person may declare it (`cancel(declared=…)`), and the declaration
    is kept. A process that dies leaves its entry where it was, and the budget spent.

    Parameters
    ----------
    number
        The number of the entry.
    size
        How many releases it pays for.

    Guarantees
    ----------
    1. Each step is one transaction, is on disk when it returns, and happens at most once whoever
       asks: of `drawing` and `cancel` one wins, and the other is refused.
    """

    def __init__(self, database: Database, number: int, size: int) -> None:
        self._database = database
        self.number = number
        self.size = size

    def drawing(self) -> None:
        """Say that noise is about to be drawn; call it right before the first draw.

        Raises LedgerError if it may not be: the reservation was cancelled, or used before. One
        reservation pays for one run.
        """
        self._step(State.RESERVED, State.DRAWING, drawing=now())

    def cancel(self, *, declared: str | None = None) -> None:
        """Give the budget back; possible until `drawing` was called, by anybody.

        Parameters
        ----------
        declared
            Why it is certain that no noise was drawn and that nobody will draw it, where `drawing`
            was called. The ledger takes a person's word for it, and keeps it beside the note.
        """
        if declared is None:
            self._step(State.RESERVED, State.CANCELLED, ended=now())
            return
        if not declared.strip():
            raise LedgerError("`declared` must say why it is certain that no noise was drawn.")
        note = self.entry.note
        note = f"{note}{' ' * bool(note)}[declared not drawn: {declared.strip()}]"
        self._step(State.DRAWING, State.CANCELLED, ended=now(), note=note)

    def commit(
        self,
        release_ids: Sequence[str],
        folder: str | PathLike[str],
        certificate_digests: Sequence[str],
        *,
        held: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Say what was published.

        Parameters
        ----------
        release_ids, certificate_digests
            Of every release, in the order of the spends.
        folder
            Where the files are.
        held
            What is published exactly (`invariants_of`), unless it was said when reserving.
        """
        ids, digests = list(map(str, release_ids)), list(map(str, certificate_digests))
        held_texts = invariant_texts(held, self.size)
        for name, given in (("release_ids", ids), ("certificate_digests", digests)):
            if len(given) != self.size:
                raise LedgerError(
                    f"`{name}` must have one item for each of the {self.size} releases that were "
                    f"reserved; got {len(given)}."
                )

        def note_releases(con: Connection) -> None:
            from sqlalchemy import update

            spends = tables().spends
            for position in range(self.size):
                row = {"release_id": ids[position], "digest": digests[position]}
                if held_texts is not None:
                    row["invariants"] = held_texts[position]
                con.execute(
                    update(spends)
                    .where(spends.c.entry_id == self.number, spends.c.position == position)
                    .values(**row)
                )

        self._step(
            State.DRAWING, State.COMMITTED, note_releases, folder=fspath(folder), ended=now()
        )

    @property
    def entry(self) -> Entry:
        """The entry as it is now."""
        return self._database.read(lambda con: self._entry(book_with(con, self.number)))

    @property
    def payment(self) -> Payment:
        """What the entry costs its account, which is looked at once."""

        def work(con: Connection) -> Payment:
            book = book_with(con, self.number)
            entry, account = self._entry(book), book.account
            others = book.spent - Counter(entry.spends if entry.counts else ())
            before = compose(others, neighbours=account.neighbours)
            return Payment(entry=entry.number, account=account, before=before, after=book.total)

        return self._database.read(work)

    @property
    def state(self) -> State:
        """How far the entry has come."""
        return self.entry.state

    def _entry(self, book: Book) -> Entry:
        entry = book.entry(self.number)
        if entry is None:
            raise LedgerError(f"The ledger has no entry {self.number}.")
        return entry

    def _step(self, before: State, after: State, also: Any = None, **columns: str) -> None:
        def work(con: Connection) -> None:
            from sqlalchemy import update

            entries = tables().entries
            book = book_with(con, self.number, lock=True)
            # One statement looks and changes: of two that ask at once, one finds nothing to do.
            done = con.execute(
                update(entries)
                .where(entries.c.id == self.number, entries.c.state == before.value)
                .values(state=after.value, **columns)
            )
            if done.rowcount != 1:
                raise LedgerError(_refusal(self.number, self._entry(book).state, after))
            if also is not None:
                also(con)
            write_seal(con, book.number)

        self._database.write(work)

    def __repr__(self) -> str:
        return f"Reservation({self.number}, {self.size} release{'s' * (self.size != 1)})"


def invariant_texts(held: Sequence[Mapping[str, Any]] | None, size: int) -> list[str] | None:
    """What is held by every release, as JSON."""
    if held is None:
        return None
    if len(held) != size:
        raise LedgerError(
            f"`held` must have one item for each of the {size} releases; got {len(held)}."
        )
    return [json.dumps(dict(one), sort_keys=True, ensure_ascii=False) for one in held]


def _refusal(number: int, state: State, wanted: State) -> str:
    standing = f"Entry {number} of the ledger is {state.value}"
    if wanted is State.DRAWING:
        return (
            f"{standing}: no noise may be drawn for it. A reservation pays for one run; make a new "
            "one."
        )
    if wanted is State.CANCELLED:
        return (
            f"{standing}: only a reservation for which no noise was drawn can be cancelled; what "
            "was drawn stays spent."
        )
    return f"{standing}: only one for which noise is being drawn can be committed."
