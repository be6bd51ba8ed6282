"""What stays protected over all releases that one account has paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy.typing as npt

from subspacedp.disclosure import QuestionCoverage, covers
from subspacedp.errors import InvariantError
from subspacedp.invariants import Held
from subspacedp.ledger import Ledger, open_ledger
from subspacedp.release import rebuild_invariants
from subspacedp.tables import Domain

__all__ = ["HeldTogether", "account_covers", "held_together", "read_labels"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HeldTogether:
    """What the releases of an account hold on one domain."""

    domain: Domain
    helds: tuple[Held, ...]
    rounded: bool  # whether digits add up in one of them, or nobody said
    capped: bool

    @property
    def names(self) -> set[str]:
        """The axes and levels of the domain."""
        return {level.name for axis in self.domain.axes for level in axis.chain}


def held_together(ledger: Ledger | str | PathLike[str], account: str) -> list[HeldTogether]:
    """The invariants of an account, domain by domain; of every entry that counts as spent."""
    opened = ledger if isinstance(ledger, Ledger) else open_ledger(ledger)
    found: list[HeldTogether] = []
    for entry in opened.invariants(account):
        if entry.get("held") is None:
            raise InvariantError(
                f"Entry {entry['entry']} of account `{account}` does not say what it holds, so "
                "nothing can be said of all releases together."
            )
        query, held = rebuild_invariants(entry)
        if query.axes is None:
            continue
        rounded = entry.get("decimals", 0) is not None
        capped = bool(entry.get("capped", False))
        for i, one in enumerate(found):
            if one.domain.matches(query.axes):
                found[i] = HeldTogether(
                    domain=one.domain,
                    helds=(*one.helds, held),
                    rounded=one.rounded or rounded,
                    capped=one.capped or capped,
                )
                break
        else:
            found.append(
                HeldTogether(domain=query.axes, helds=(held,), rounded=rounded, capped=capped)
            )
    return found


def account_covers(
    ledger: Ledger | str | PathLike[str],
    account: str,
    weights: npt.ArrayLike | None = None,
    **labels: Any,
) -> QuestionCoverage:
    """Whether a question is protected, exposed or part of each, over all releases of an account.

    Parameters
    ----------
    ledger, account
        The account.
    weights
        The question Σ wᵢ·cellᵢ, in the shape of the one domain of the account.
    labels
        Or the number of people with these labels of axes or levels: `sex="M", county="Kent"`.
    """
    opened = ledger if isinstance(ledger, Ledger) else open_ledger(ledger)
    together = held_together(opened, account)
    fitting = [one for one in together if set(labels) <= one.names]
    if not together:
        raise InvariantError(f"The account `{account}` has paid for no release yet.")
    if len(fitting) != 1:
        raise InvariantError(
            "No table of the account has all these axes and levels."
            if not fitting
            else f"{len(fitting)} tables of the account, with different labels, have these axes; "
            "ask about each release by itself."
        )
    one = fitting[0]
    return covers(
        one.domain,
        list(one.helds),
        weights,
        neighbours=opened.account(account).neighbours,
        decimals=0 if one.rounded else None,
        capped=one.capped,
        **labels,
    )


def read_labels(
    ledger: Ledger | str | PathLike[str], account: str, texts: Sequence[str]
) -> dict[str, Any]:
    """Labels written as `name=label`, in the type that the axis has them in."""
    known: dict[str, set[Any]] = {}
    for one in held_together(ledger, account):
        for axis in one.domain.axes:
            for level in axis.chain:
                known.setdefault(level.name, set()).update(level.labels)
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, label = text.partition("=")
        if not equals:
            raise InvariantError(f"A label is written as name=label; got {text!r}.")
        whole = label not in known.get(name, ()) and label.lstrip("-").isdigit()
        out[name] = int(label) if whole else label
    return out
