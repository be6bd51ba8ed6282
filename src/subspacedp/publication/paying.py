"""The account that pays for a publication, and the entry that has paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from subspacedp.errors import ReleaseError
from subspacedp.ledger import (
    Ledger,
    LedgerError,
    Reservation,
    State,
    certificate_digest,
    invariants_of,
    open_ledger,
    spend_of,
)
from subspacedp.mechanisms.base import Mechanism
from subspacedp.publication.specification import Specification

if TYPE_CHECKING:
    from subspacedp.publication.releases import Asked

__all__ = ["PayingAccount", "paying_account"]


@dataclass(frozen=True, kw_only=True)
class PayingAccount:
    """An account of a ledger, and what its releases protect."""

    ledger: Ledger
    name: str
    unit: str
    note: str

    def check(self, designs: Sequence[Mechanism], replaces: int | None) -> None:
        """Refuse what `reserve` would refuse now; spends nothing."""
        for entry in self.ledger.invariants(self.name):
            if entry.get("unit", self.unit) != self.unit:
                raise ReleaseError(
                    f"The account `{self.name}` has paid for releases that protect "
                    f"`{entry['unit']}`, and this one protects `{self.unit}`; an account has one "
                    "unit."
                )
        if replaces is not None:
            numbers = {entry.number for entry in self.ledger.history(self.name)}
            if replaces not in numbers:
                raise LedgerError(f"The account `{self.name}` has no entry {replaces} to replace.")
        self.ledger.check(self.name, [spend_of(mechanism) for mechanism in designs])

    def reserve(
        self, designs: Sequence[Mechanism], release_ids: Sequence[str], replaces: int | None
    ) -> Reservation:
        """Pay for releases whose ids are settled, so that they find the entry again."""
        return self.ledger.reserve(
            self.name,
            [spend_of(mechanism) for mechanism in designs],
            note=self.note,
            replaces=replaces,
            held=[{**invariants_of(mechanism), "unit": self.unit} for mechanism in designs],
            release_ids=release_ids,
        )

    def entry_for(self, release_ids: Sequence[str]) -> Reservation | None:
        """The entry that paid for these releases; None where none did, or it was cancelled."""
        return self.ledger.paid_for(self.name, release_ids)

    def give_back(self, release_ids: Sequence[str]) -> bool:
        """Cancel what was reserved for releases without noise; whether nothing is spent now."""
        try:
            paid = self.entry_for(release_ids)
            if paid is not None:
                paid.cancel()
        except LedgerError:  # noise may have been drawn, or the ledger is out of reach
            return False
        return True

    def commit(
        self, paid: Reservation, asked: Sequence[Asked], release_ids: Sequence[str], target: Path
    ) -> None:
        """Say in the ledger that the files are in place; once."""
        sentence = ""
        try:
            if paid.state is not State.COMMITTED:
                digests = [certificate_digest(target / one.folder) for one in asked]
                paid.commit(release_ids, target.absolute(), digests)
        except LedgerError as error:
            sentence = str(error)
        if sentence:
            raise LedgerError(
                f"`{target}` is published, and entry {paid.number} has paid for it, but the ledger "
                f"could not note that: {sentence} The same command notes it, at no cost."
            )


def paying_account(specification: Specification, seed: int | None) -> PayingAccount | None:
    """The account that pays, found before any data are opened."""
    paying = specification.document.budget
    if paying is None:
        return None
    if seed is not None:
        raise ReleaseError(
            "A release from a chosen seed is not private, and no account can pay for it; leave out "
            "`seed` or `budget`."
        )
    address = paying.ledger
    if address.startswith("sqlite:") and not address.startswith("sqlite:////"):
        raise ReleaseError(
            "`budget.ledger` is a path relative to the specification, or a server's address; give "
            "the path of an SQLite file without `sqlite:`."
        )
    ledger = open_ledger(address if "://" in address else specification.folder / address)
    return PayingAccount(
        ledger=ledger,
        name=ledger.account(paying.account).name,
        unit=specification.document.data.unit or "counts",
        note=specification.document.title or "",
    )
