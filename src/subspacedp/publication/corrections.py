"""What is said of a publication beside its figures, and the publication that it corrects."""

from __future__ import annotations

import os
from datetime import date
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.ledger import Entry
from subspacedp.publication.paying import PayingAccount
from subspacedp.publication.specification import Specification
from subspacedp.release.facts import Facts, Replaced
from subspacedp.release.signature import SIGNATURE, SUCCESSOR, public_bytes, signer_of
from subspacedp.release.successor import released_in
from subspacedp.report.words import axes_words

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@frozen(kw_only=True)
class Corrected:
    """A publication that another one takes the place of.

    Parameters
    ----------
    releases
        Its releases; none where only the ledger knows of it.
    folder
        Where it is, if it is there.
    entry
        The entry of the ledger that paid for it, if the same account did.
    """

    releases: tuple[Replaced, ...] = ()
    folder: Path | None = None
    entry: int | None = None

    @property
    def told(self) -> bool:
        """Whether its folder names a successor."""
        return self.folder is not None and (self.folder / SUCCESSOR).exists()


def corrected_by(
    replaces: int | str | PathLike[str],
    account: PayingAccount | None,
    target: Path,
    key: Ed25519PrivateKey | None,
) -> Corrected:
    """What `replaces` names: a published folder, or the number of an entry of the ledger."""
    number = _number(replaces)
    if number is not None and account is None:
        raise ReleaseError(
            "`replaces` is the number of the entry that paid for an earlier publication; name the "
            "account under `budget`, or the folder that is corrected."
        )
    if number is not None and account is not None:
        return _of_entry(number, account.entry_of(number), target, key)
    folder = Path(os.fspath(replaces))  # type: ignore[arg-type]  # an int is a number
    if not folder.is_dir():
        raise ReleaseError(f"There is no folder `{folder}` to be replaced.")
    if folder.resolve() == target.resolve():
        raise ReleaseError("A publication cannot replace itself; write it to another folder.")
    releases = released_in(folder)
    _check_note(folder, target, key)
    paid = None if account is None else account.entry_for([one.release_id for one in releases])
    return Corrected(releases=releases, folder=folder, entry=None if paid is None else paid.number)


def _number(replaces: object) -> int | None:
    if isinstance(replaces, int) and not isinstance(replaces, bool):
        return replaces
    return int(replaces) if isinstance(replaces, str) and replaces.isdecimal() else None


def _of_entry(
    number: int, entry: Entry | None, target: Path, key: Ed25519PrivateKey | None
) -> Corrected:
    """What an entry has paid for, with its folder where that is still there and can be told."""
    if entry is None:  # the account refuses it
        return Corrected(entry=number)
    releases = tuple(
        Replaced(release_id=release, certificate_sha256=digest or "")
        for release, digest in zip(entry.release_ids, entry.digests, strict=True)
        if release is not None
    )
    folder = None if entry.folder is None else Path(entry.folder)
    try:
        if folder is None or set(released_in(folder)) != set(releases):
            return Corrected(releases=releases, entry=number)
        _check_note(folder, target, key)
    except ReleaseError:
        return Corrected(releases=releases, entry=number)
    return Corrected(releases=released_in(folder), folder=folder, entry=number)


def _check_note(folder: Path, target: Path, key: Ed25519PrivateKey | None) -> None:
    """Refuse now what could not be noted in the folder once the other one is published."""
    if (folder / SUCCESSOR).exists() and not target.exists():
        raise ReleaseError(
            f"`{folder}` was replaced before; name the publication that took its place."
        )
    if not os.access(folder, os.W_OK):
        raise ReleaseError(f"`{folder}` cannot be told that it is replaced: it is read-only.")
    if (folder / SIGNATURE).exists() and (key is None or public_bytes(key) != signer_of(folder)):
        raise ReleaseError(
            f"`{folder}` is signed, and only the same key can say what replaces it; name that key "
            "as `publish.sign`."
        )


def facts_of(specification: Specification, corrected: Corrected | None, *, seeded: bool) -> Facts:
    """What the certificates of a publication say of it; without a date of its own, it is today.

    A release from a chosen seed is the same on every day, and has the date that is given or none.
    """
    given = specification.document.publication
    stated = {
        name: (getattr(given, name) if given else None) or ""
        for name in ("creator", "licence", "version", "date")
    }
    if not stated["date"] and not seeded:
        stated["date"] = date.today().isoformat()
    replaces = () if corrected is None else corrected.releases
    return Facts(title=title_of(specification), replaces=replaces, **stated)


def title_of(specification: Specification) -> str:
    """The title of a publication: as it was given, or what its tables are of."""
    if specification.document.title:
        return specification.document.title
    axes = dict.fromkeys(
        entry.titles(axis).get(axis, axis)
        for table in specification.tables
        for axis, entry in table.axes.items()
    )
    sums = list(dict.fromkeys(name for table in specification.tables for name in table.sums))
    what = f"Counts and sums of {', '.join(sums)}" if sums else "Counts"
    return f"{what} by {axes_words(list(axes))}"
