"""From a specification to a published folder, in one call."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.ledger import (
    Ledger,
    LedgerError,
    Reservation,
    certificate_digest,
    invariants_of,
    open_ledger,
    spend_of,
)
from subspacedp.mechanisms import Mechanism
from subspacedp.publication.comparing import write_comparison
from subspacedp.publication.memory import check_publication_memory
from subspacedp.publication.releases import Asked, asked_releases, public_domain
from subspacedp.publication.room import check_publication_room
from subspacedp.publication.specification import Specification, as_specification
from subspacedp.publication.table_specification import RELEASE
from subspacedp.publication.tabulating import (
    Confidential,
    found_labels,
    open_data,
    tabulate_release,
)
from subspacedp.publication.writing import write_publication
from subspacedp.release import Design, Release, check_new_folder, read_private_key

__all__ = ["Publication", "run"]

Progress = Callable[[str], None]
MUCH = 0.05  # of the records


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Publication:
    """What a run made: the releases by name, and the folder they are in.

    Parameters
    ----------
    releases
        By name; empty after a dry run.
    mechanisms
        The mechanism of every release, by name.
    folder
        Where the public files are; None after a dry run.
    confidential_notes
        What the curator should know and nobody else: it depends on the data without protection.
    """

    releases: Mapping[str, Release]
    mechanisms: Mapping[str, Mechanism]
    folder: Path | None
    confidential_notes: tuple[str, ...] = ()

    @property
    def release(self) -> Release:
        """The only release."""
        if len(self.releases) != 1:
            raise ReleaseError(
                f"The publication has {len(self.releases)} releases: "
                f"{', '.join(self.releases) or 'none after a dry run'}."
            )
        return next(iter(self.releases.values()))

    def __repr__(self) -> str:
        where = f"in {str(self.folder)!r}" if self.folder else "dry run"
        return f"Publication({', '.join(self.mechanisms)}; {where})"


def run(
    specification: Specification | str | PathLike[str] | Mapping[str, Any],
    *,
    out: str | PathLike[str] | None = None,
    dry_run: bool = False,
    compare: str | PathLike[str] | None = None,
    replaces: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Publication:
    """Tabulate, add noise, reconstruct, verify and publish, as a specification says.

    Parameters
    ----------
    specification
        A path, a mapping, or what `read_specification` returned.
    out
        The folder of the publication; by default `publish.to` of the specification. It must not
        exist yet.
    dry_run
        Do everything up to the noise, and write nothing: no budget is spent.
    compare
        A new folder, readable by its owner alone, for a comparison with the confidential counts.
        It is not for publication.
    replaces
        The number of the entry in the ledger that this publication corrects; nothing is refunded.
    seed
        Only for examples and tests: reproducible noise, stamped as not for publication.
    progress
        Called with a public sentence before each step.

    Guarantees
    ----------
    1. The folder appears complete or not at all, and an existing one is never touched.
    2. Everything that can be refused is refused before noise is drawn.
    3. Nothing in the folder depends on the confidential data but through the releases.
    4. Where `budget` names an account, it has paid for all releases before the first random word
       is drawn; a run that dies later has spent, and a dry run only looks whether there is room.
    """
    tell = progress or (lambda sentence: None)
    asked_for = as_specification(specification)
    account = _account(asked_for, seed)
    target = _target(asked_for, out)
    comparison = None if compare is None else _comparison(compare, target)
    releases = asked_releases(asked_for)
    signing = asked_for.document.publish.sign
    key = None if signing is None else read_private_key(asked_for.folder / signing)
    mechanisms: dict[str, Mechanism] = {}
    for asked in releases:  # what public labels already refuse
        domain = public_domain(asked.table)
        if domain is not None:
            mechanisms[asked.name] = asked.mechanism(domain)
    check_publication_memory(releases, {name: m.design for name, m in mechanisms.items()})
    data: dict[str, Confidential] = {}
    with open_data(asked_for) as source:
        labels = found_labels(asked_for, source, tell)
        for asked in releases:
            domain = public_domain(asked.table, labels)
            if domain is None:
                raise InvariantError(f"The labels of table `{asked.table.name}` are not known.")
            if asked.name not in mechanisms:
                mechanisms[asked.name] = asked.mechanism(domain)
                check_publication_memory([asked], {asked.name: mechanisms[asked.name].design})
            data[asked.name] = tabulate_release(asked, domain, source, tell)
    mechanisms = {asked.name: mechanisms[asked.name] for asked in releases}
    for asked in releases:
        found = data[asked.name]
        mechanisms[asked.name].check(found.protected, everything=found.everything)
    notes = tuple(
        note for asked in releases for note in _bound_note(asked.name, data[asked.name], mechanisms)
    )
    designs = [mechanisms[asked.name].design for asked in releases]
    for folder in (target, comparison):  # much may have happened while the data were read
        if folder is not None:
            check_new_folder(folder)
    by_name = {name: mechanism.design for name, mechanism in mechanisms.items()}
    check_publication_room(releases, by_name, target, comparison)
    if dry_run:
        if account is not None:
            account[0].check(account[1], [spend_of(design) for design in designs])
        return Publication(
            releases={}, mechanisms=mechanisms, folder=None, confidential_notes=notes
        )
    paid = None if account is None else _reserve(account, designs, asked_for, replaces, tell)
    if paid is not None:
        paid.drawing()
    made: dict[str, Release] = {}
    for asked in releases:
        found = data[asked.name]
        tell(f"adding noise to {asked.name}")
        made[asked.name] = mechanisms[asked.name].release(
            found.protected, everything=found.everything, seed=seed
        )
    if comparison is not None:
        tell("comparing with the confidential counts")
        write_comparison(made, data, comparison)
    try:
        write_publication(asked_for, releases, made, target, key=key, progress=tell)
    except BaseException:
        if comparison is not None:
            shutil.rmtree(comparison, ignore_errors=True)
        raise
    if paid is not None:
        _commit(paid, releases, made, target)
    return Publication(
        releases=made, mechanisms=mechanisms, folder=target, confidential_notes=notes
    )


def _account(specification: Specification, seed: int | None) -> tuple[Ledger, str] | None:
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
    return ledger, ledger.account(paying.account).name


def _reserve(
    account: tuple[Ledger, str],
    designs: Sequence[Design],
    specification: Specification,
    replaces: int | None,
    tell: Progress,
) -> Reservation:
    ledger, name = account
    unit = specification.document.data.unit or "counts"
    for entry in ledger.invariants(name):
        if entry.get("unit", unit) != unit:
            raise ReleaseError(
                f"The account `{name}` has paid for releases that protect `{entry['unit']}`, and "
                f"this one protects `{unit}`; an account has one unit."
            )
    tell(f"paying from account {name}")
    return ledger.reserve(
        name,
        [spend_of(design) for design in designs],
        note=specification.document.title or "",
        replaces=replaces,
        held=[{**invariants_of(design), "unit": unit} for design in designs],
    )


def _commit(
    paid: Reservation, asked: Sequence[Asked], made: Mapping[str, Release], target: Path
) -> None:
    ids = [made[one.name].release_id for one in asked]
    digests = [certificate_digest(target / one.folder) for one in asked]
    try:
        paid.commit(ids, target.absolute(), digests)
    except LedgerError as error:
        sentence = str(error)
    else:
        return
    raise LedgerError(
        f"`{target}` is published, and entry {paid.number} has paid for it, but the ledger "
        f"could not note that: {sentence}"
    )


def _comparison(compare: str | PathLike[str], target: Path) -> Path:
    folder = check_new_folder(compare)
    here, there = folder.resolve(), target.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise ReleaseError(
            "The comparison is confidential and the release is public: neither folder can be in "
            "the other."
        )
    return folder


def _bound_note(
    name: str, data: Confidential, mechanisms: Mapping[str, Mechanism]
) -> Iterator[str]:
    """A warning when the bound leaves out so much that held totals distort the rest."""
    if not data.dropped or not mechanisms[name].design.space.rank:
        return
    share = data.dropped / max(1, data.records)
    if share >= MUCH:
        yield (
            f"{name}: the bound on a person's records leaves out {share:.0%} of them. Held totals "
            "count all, so the cells of a held group are raised to meet its total, small ones too. "
            "A larger `records`, or holding less, keeps the cells closer."
        )


def _target(specification: Specification, out: str | PathLike[str] | None) -> Path:
    named = specification.document.publish.to or RELEASE
    return check_new_folder(specification.folder / named if out is None else out)
