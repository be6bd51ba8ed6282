"""A reservation: budget that is taken before noise is drawn, and what becomes of it.

    reserved ──drawing()──▶ drawing ──commit()──▶ committed
        └──cancel()──▶ cancelled

Only a cancelled entry gives its budget back, and only a reserved one can be cancelled. The step to
`drawing` is recorded before the first random word is drawn, and fails on a cancelled entry: so
whoever cancels knows that no noise was drawn and that none will be. Of an entry in `drawing` the
ledger cannot know that; a person may declare it (`cancel(declared=…)`), and the declaration is
kept. A process that dies leaves its entry where it was, and the budget spent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from subspacedp.errors import LedgerError
from subspacedp.ledger.book import Book, book_with, write_seal
from subspacedp.ledger.entries import Entry, State
from subspacedp.ledger.tables import now, tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from subspacedp.ledger.database import Database

__all__ = ["Reservation", "invariant_texts"]


class Reservation:
    """A handle on one entry of a ledger; `Ledger.reserve` makes it.

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
