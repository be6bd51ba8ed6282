"""The account that pays for a publication, the entry that has paid, and settling it afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.ledger import (
    Entry,
    Ledger,
    LedgerError,
    LimitError,
    Payment,
    Reservation,
    State,
    certificate_digest,
    invariants_of,
    open_ledger,
    spend_of,
)
from subspacedp.publication.releases import ReleaseSpecification
from subspacedp.publication.specification import Specification
from subspacedp.release import Design, Release
from subspacedp.release.targets import LeastBudget


@frozen(kw_only=True)
class PayingAccount:
    """An account of a ledger, and what its releases protect."""

    ledger: Ledger
    name: str
    unit: str
    note: str

    def check(
        self,
        designs: Iterable[Design],
        replaces: int | None,
        least: Iterable[LeastBudget | None] = (),
    ) -> None:
        """Refuse what `reserve` would refuse now; spends nothing.

        Parameters
        ----------
        least
            The least budgets for targets among the designs, whose dearest target is then named.
        """
        for entry in self.ledger.invariants(self.name):
            if entry.get("unit", self.unit) != self.unit:
                raise ReleaseError(
                    f"The account `{self.name}` has paid for releases that protect "
                    f"`{entry['unit']}`, and this one protects `{self.unit}`; an account has one "
                    "unit."
                )
        if replaces is not None:
            states = {entry.number: entry.state for entry in self.ledger.history(self.name)}
            if replaces not in states:
                raise LedgerError(f"The account `{self.name}` has no entry {replaces} to replace.")
            if states[replaces] is State.CANCELLED:
                raise LedgerError(
                    f"Entry {replaces} was cancelled before noise was drawn: there is nothing to "
                    "replace."
                )
        spends = [spend_of(design.mechanism) for design in designs]
        try:
            self.ledger.check(self.name, spends)
        except LimitError as error:
            known = [one for one in least if one is not None]
            if not known:
                raise
            dearest = max(known, key=lambda one: one.budget.amount - one.hardest.without)
            hardest, kind = dearest.hardest, dearest.budget
            without = kind.with_amount(hardest.without) if hardest.without > 0 else "nothing"
            raise LimitError(
                f"The account `{self.name}` has {error.evidence.get('left')} left, and the targets "
                f"take {' and '.join(str(one.budget) for one in known)}; the hardest is ± "
                f"{hardest.target:g} for {' × '.join(hardest.margin) or 'the grand total'}, "
                f"without which {without} would do, and of which each further unit saves about "
                f"{hardest.price:.3g}; nothing was spent.",
                **error.evidence,
            ) from None

    def reserve(
        self, designs: Iterable[Design], release_ids: Sequence[str], replaces: int | None
    ) -> Reservation:
        """Pay for releases whose ids are settled, so that they find the entry again."""
        mechanisms = [design.mechanism for design in designs]
        return self.ledger.reserve(
            self.name,
            [spend_of(mechanism) for mechanism in mechanisms],
            note=self.note,
            replaces=replaces,
            held=[{**invariants_of(mechanism), "unit": self.unit} for mechanism in mechanisms],
            release_ids=release_ids,
        )

    def entry_for(self, release_ids: Sequence[str]) -> Reservation | None:
        """The entry that paid for these releases; None where none did, or it was cancelled."""
        return self.ledger.paid_for(self.name, release_ids)

    def entry_of(self, number: int) -> Entry | None:
        """An entry of the account by its number."""
        return next((e for e in self.ledger.history(self.name) if e.number == number), None)

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
        self,
        paid: Reservation,
        wanted: Sequence[ReleaseSpecification],
        release_ids: Sequence[str],
        target: Path,
    ) -> Payment:
        """Say in the ledger that the files are in place, once; what they cost."""
        sentence = ""
        try:
            payment = paid.payment
            if paid.state is not State.COMMITTED:
                digests = [certificate_digest(target / one.folder) for one in wanted]
                paid.commit(release_ids, target.absolute(), digests)
        except LedgerError as error:
            sentence = str(error)
        if sentence:
            raise LedgerError(
                f"`{target}` is published, and entry {paid.number} has paid for it, but the ledger "
                f"could not note that: {sentence} The same command notes it, at no cost; so does "
                f"`subspacedp ledger settle LEDGER {paid.number} FOLDER`."
            )
        return payment


def paying_account(specification: Specification, seed: int | None) -> PayingAccount | None:
    """The account that pays, found before any data are opened."""
    paying, place = specification.document.budget, specification.ledger
    if paying is None or place is None:
        return None
    if seed is not None:
        raise ReleaseError(
            "A release from a chosen seed is not private, and no account can pay for it; leave out "
            "`seed` or `budget`."
        )
    if paying.ledger.startswith("sqlite:") and not paying.ledger.startswith("sqlite:////"):
        raise ReleaseError(
            "`budget.ledger` is a path relative to the specification, or a server's address; give "
            "the path of an SQLite file without `sqlite:`."
        )
    ledger = open_ledger(place)
    return PayingAccount(
        ledger=ledger,
        name=ledger.account(paying.account).name,
        unit=specification.data.unit,
        note=specification.document.title or "",
    )


def check_least(least: Sequence[LeastBudget | None], specification: Specification) -> None:
    """Refuse, in a plan, targets that the account cannot pay for; without a ledger say nothing."""
    try:
        account = paying_account(specification, None)
    except LedgerError:  # is not there yet
        return
    if account is not None:
        account.check([one.design for one in least if one is not None], None, least)


def settle(ledger: Ledger | str | PathLike[str], number: int, folder: str | PathLike[str]) -> Entry:
    """Commit an entry whose releases are in a folder already.

    Parameters
    ----------
    ledger
        The ledger that paid.
    number
        The entry; its noise was drawn, and it was never committed.
    folder
        The publication that it paid for.

    Guarantees
    ----------
    1. Every check of the folder holds, and its releases are those that the entry paid for: as many,
       each with the id, the spend and the invariants that were reserved, as far as they were.
    2. No budget is taken or given back.
    """
    from subspacedp.microdata import verify_folder

    opened = open_ledger(ledger)
    reservation, source = opened.reservation(number), Path(folder)
    entry = reservation.entry
    checked = verify_folder(source)
    if not checked.ok:
        raise ReleaseError(f"`{source}` does not pass `subspacedp verify`; nothing was settled.")
    paths = [source] if (source / "certificate.json").exists() else sorted(
        path.parent for path in source.glob("*/certificate.json")
    )  # fmt: skip
    waiting = [(path, Release.load(path)) for path in paths]
    if len(waiting) != len(entry.spends):
        raise LedgerError(
            f"Entry {number} has paid for {len(entry.spends)} releases, and `{source}` has "
            f"{len(waiting)}; nothing was settled."
        )
    order: list[tuple[Path, Release]] = []
    for spend, text, settled in zip(entry.spends, entry.invariants, entry.release_ids, strict=True):
        held = None if text is None else json.loads(text)
        paid = next(
            (
                one
                for one in waiting
                if settled in (None, one[1].release_id)
                and spend_of(one[1].mechanism) == spend
                and _holds(one[1], held)
            ),
            None,
        )
        if paid is None:
            raise LedgerError(
                f"`{source}` is not what entry {number} has paid for: an id, a budget, a "
                "neighbour relation or what is held differs. Nothing was settled."
            )
        waiting.remove(paid)
        order.append(paid)
    for other in opened.history(entry.account):
        known = set(other.release_ids) & {release.release_id for _, release in order}
        if other.number != number and known:
            raise LedgerError(
                f"Entry {other.number} has paid for release `{min(map(str, known))}` in "
                f"`{source}`; nothing was settled."
            )
    reservation.commit(
        [release.release_id for _, release in order],
        source.absolute(),
        [certificate_digest(path) for path, _ in order],
    )
    return reservation.entry


def _holds(release: Release, held: dict[str, Any] | None) -> bool:
    """Whether a release holds what was said when it was reserved, where that was said."""
    if held is None:
        return True
    fresh = json.loads(json.dumps(invariants_of(release.mechanism)))
    return all(held.get(name) == value for name, value in fresh.items())
