"""What a ledger holds: accounts, entries and spends, as objects, in words and as plain data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from subspacedp.errors import LedgerError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.base import Mechanism
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.composition import Composed, Spend
from subspacedp.privacy.numbers import six_digits

DELTAS = (1e-6, 1e-9)  # at which ε is stated

T = TypeVar("T")


class State(StrEnum):
    """How far an entry has come. All but a cancelled one count, for ever."""

    RESERVED = "reserved"
    DRAWING = "drawing"
    COMMITTED = "committed"
    CANCELLED = "cancelled"

    @property
    def words(self) -> str:
        """The state for a reader."""
        return {
            State.RESERVED: "reserved, never committed",
            State.DRAWING: "noise drawn, never committed",
            State.COMMITTED: "committed",
            State.CANCELLED: "cancelled before noise was drawn",
        }[self]


@frozen(kw_only=True)
class Account:
    """What releases of one data set are paid from.

    Parameters
    ----------
    limit
        What may be spent in all; its kind is the accounting of the account.
    neighbours
        The change of the data that everything is accounted for.
    unit
        Whose change that is: a person, a household.
    """

    name: str
    limit: Budget
    neighbours: Neighbours
    unit: str
    note: str
    created: str

    def as_dict(self) -> dict[str, Any]:
        """The account as plain data."""
        return {
            "name": self.name,
            "limit": self.limit.as_dict(),
            "neighbours": self.neighbours.as_dict(),
            "unit": self.unit,
            "note": self.note,
            "created": self.created,
        }


@frozen(kw_only=True)
class Entry:
    """One reservation and what became of it: the releases that it pays for, in order.

    `release_ids`, `digests` and `invariants` have one item for each of `spends`, None where it is
    not known. `replaces` and `replaced_by` are the numbers of other entries: a correction is paid
    for like any release, and what it replaces stays spent.
    """

    number: int
    account: str
    state: State
    note: str
    spends: tuple[Spend, ...]
    release_ids: tuple[str | None, ...]
    digests: tuple[str | None, ...]
    invariants: tuple[str | None, ...]  # as JSON
    folder: str | None
    replaces: int | None
    replaced_by: tuple[int, ...]
    reserved: str
    drawing: str | None
    ended: str | None

    @property
    def counts(self) -> bool:
        """Whether the entry is spent."""
        return self.state is not State.CANCELLED

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain data, for export."""
        return {
            "number": self.number,
            "state": self.state.value,
            "status": self.state.words,
            "counts": self.counts,
            "note": self.note,
            "releases": [
                {
                    **spend.as_dict(),
                    "release_id": release,
                    "certificate_sha256": digest,
                    "invariants": None if held is None else json.loads(held),
                }
                for spend, release, digest, held in zip(
                    self.spends, self.release_ids, self.digests, self.invariants, strict=True
                )
            ],
            "folder": self.folder,
            "replaces": self.replaces,
            "replaced_by": list(self.replaced_by),
            "reserved": self.reserved,
            "drawing": self.drawing,
            "ended": self.ended,
        }


@frozen(kw_only=True)
class Payment:
    """What an entry cost its account, in the account's terms.

    `before` and `after` are what the account has spent without the entry and with it: where budgets
    do not simply add up, what one release costs depends on the others.
    """

    entry: int
    account: Account
    before: Composed
    after: Composed

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        limit = self.account.limit
        return {
            "entry": self.entry,
            "account": self.account.name,
            "limit": limit.as_dict(),
            "spent_before": limit.spent(self.before),
            "spent": limit.spent(self.after),
            "left": left_words(self.after, limit),
        }

    def __str__(self) -> str:
        limit = self.account.limit
        before = "nothing" if not self.before.releases else spent_words(self.before, limit)
        return (
            f"Entry {self.entry} of account `{self.account.name}` paid for it. Spent before: "
            f"{before}; with it: {spent_words(self.after, limit)}; left: "
            f"{left_words(self.after, limit)}, of {limit}."
        )


def totals_data(total: Composed) -> dict[str, Any]:
    """A total under every accounting; null where one cannot count it."""
    figures: dict[str, Any] = {
        "releases": total.releases,
        "epsilon": total.pure,
        "rho": total.rho,
        "mu": total.mu,
    }
    for delta in DELTAS:
        epsilon = total.epsilon(delta)
        name = f"epsilon_at_delta_{delta:.0e}".replace("e-0", "e-")
        figures[name] = epsilon if math.isfinite(epsilon) else None
    return figures


def spent_words(total: Composed, limit: Budget) -> str:
    """What is spent, in the figure that a limit is about; rounded up."""
    spent = limit.spent(total)
    return (
        f"{limit.symbol} = {six_digits(spent)}"
        if spent is not None
        else "an amount it cannot count"
    )


def left_words(total: Composed, limit: Budget) -> str:
    """What is left of a limit, in words; rounded down."""
    rest = limit.left(total)
    return (
        f"{limit.symbol} = {six_digits(rest, down=True)}{limit.beside}" if rest > 0 else "nothing"
    )


def uncounted(account: str, limit: Budget) -> str:
    """Why an account cannot count a release."""
    return (
        f"The account `{account}` with a limit of {limit} {limit.uncounted}; nothing was changed. "
        "A limit of (ε, δ) counts all kinds."
    )


def releases_words(number: int) -> str:
    """So many releases, in words."""
    return "this release" if number == 1 else f"these {number} releases"


def spend_of(mechanism: Mechanism) -> Spend:
    """What a release of a design spends.

    A bounded table may have lost or gained records of a person, so noise for changes that keep the
    total is booked for the larger change only where it is enough for that one too.
    """
    relation = mechanism.neighbours
    loose = relation.loosened()
    if mechanism.capped and loose != relation and mechanism.protects(loose):
        relation = loose
    return Spend(
        budget=mechanism.budget,
        neighbours=relation,
        stated=mechanism.only_stated,
        capped=mechanism.capped,
    )


def invariants_of(mechanism: Mechanism) -> dict[str, Any]:
    """What a release of a design publishes exactly, and on which axes, as plain data."""
    return {
        "query": mechanism.query.as_dict(),
        "held": mechanism.held.as_list(),
        "capped": mechanism.capped,
        "decimals": mechanism.decimals,
    }


def certificate_digest(folder: str | PathLike[str]) -> str:
    """SHA-256 of the certificate in the folder of a release."""
    return hashlib.sha256((Path(folder) / "certificate.json").read_bytes()).hexdigest()


def as_text(statement: Budget | Neighbours | Spend) -> str:
    """A budget, a relation or a spend as JSON, the same text for the same one."""
    return json.dumps(statement.as_dict(), sort_keys=True, ensure_ascii=False)


def from_text(read: Callable[[Any], T], text: str) -> T:
    """What a stored JSON text says, as `read` makes it; or one sentence."""
    try:
        return read(json.loads(text))
    except (SubspaceDPError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise LedgerError(
            "The ledger holds an entry that this version cannot read; it was altered, or written "
            "by another version. Nothing was changed."
        ) from None
