"""Settling: noting a publication that the ledger could not be told of when it came out."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.ledger import (
    Entry,
    Ledger,
    LedgerError,
    certificate_digest,
    invariants_of,
    open_ledger,
    spend_of,
)
from subspacedp.release import Release, verify_folder

__all__ = ["settle"]


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
       each with the spend and the invariants that were reserved.
    2. No budget is taken or given back.
    """
    opened = ledger if isinstance(ledger, Ledger) else open_ledger(ledger)
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
    for spend, text in zip(entry.spends, entry.invariants, strict=True):
        held = None if text is None else json.loads(text)
        found = next(
            (
                one
                for one in waiting
                if spend_of(one[1].mechanism) == spend and _holds(one[1], held)
            ),
            None,
        )
        if found is None:
            raise LedgerError(
                f"`{source}` is not what entry {number} has paid for: a budget, a neighbour "
                "relation or what is held differs. Nothing was settled."
            )
        waiting.remove(found)
        order.append(found)
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
