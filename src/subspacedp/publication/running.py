"""From a specification to a published folder, in one call."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.mechanisms import Mechanism
from subspacedp.publication.comparing import write_comparison
from subspacedp.publication.releases import asked_releases, public_domain
from subspacedp.publication.specification import Specification, read_specification
from subspacedp.publication.table_specification import RELEASE
from subspacedp.publication.tabulating import (
    Confidential,
    found_labels,
    open_data,
    tabulate_release,
)
from subspacedp.publication.writing import write_publication
from subspacedp.release import Release, check_new_folder, read_private_key

__all__ = ["Publication", "as_specification", "run"]

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
    seed
        Only for examples and tests: reproducible noise, stamped as not for publication.
    progress
        Called with a public sentence before each step.

    Guarantees
    ----------
    1. The folder appears complete or not at all, and an existing one is never touched.
    2. Everything that can be refused is refused before noise is drawn.
    3. Nothing in the folder depends on the confidential data but through the releases.
    """
    tell = progress or (lambda sentence: None)
    asked_for = as_specification(specification)
    if asked_for.document.budget is not None:
        raise ReleaseError(
            "`budget` names a ledger, and this version has none yet; remove the key."
        )
    target = _target(asked_for, out)
    comparison = None if compare is None else _comparison(compare, target)
    releases = asked_releases(asked_for)
    signing = asked_for.document.publish.sign
    key = None if signing is None else read_private_key(asked_for.folder / signing)
    for asked in releases:  # what public labels already refuse
        domain = public_domain(asked.table)
        if domain is not None:
            asked.mechanism(domain)
    mechanisms: dict[str, Mechanism] = {}
    data: dict[str, Confidential] = {}
    with open_data(asked_for) as source:
        labels = found_labels(asked_for, source, tell)
        for asked in releases:
            domain = public_domain(asked.table, labels)
            if domain is None:
                raise InvariantError(f"The labels of table `{asked.table.name}` are not known.")
            mechanisms[asked.name] = asked.mechanism(domain)
            data[asked.name] = tabulate_release(asked, domain, source, tell)
    for asked in releases:
        found = data[asked.name]
        mechanisms[asked.name].check(found.protected, everything=found.everything)
    notes = tuple(
        note for asked in releases for note in _bound_note(asked.name, data[asked.name], mechanisms)
    )
    if dry_run:
        return Publication(
            releases={}, mechanisms=mechanisms, folder=None, confidential_notes=notes
        )
    made: dict[str, Release] = {}
    for asked in releases:
        found = data[asked.name]
        tell(f"adding noise to {asked.name}")
        made[asked.name] = mechanisms[asked.name].release(
            found.protected, everything=found.everything, seed=seed
        )
    if comparison is not None:
        tell("comparing with the confidential counts")
        write_comparison(made, {name: one.protected for name, one in data.items()}, comparison)
    try:
        write_publication(asked_for, releases, made, target, key=key, progress=tell)
    except BaseException:
        if comparison is not None:
            shutil.rmtree(comparison, ignore_errors=True)
        raise
    return Publication(
        releases=made, mechanisms=mechanisms, folder=target, confidential_notes=notes
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
            "count all, so every cell of a held group is raised by the same amount to meet its "
            "total, small cells too. A larger `records`, or holding less, keeps the cells closer."
        )


def as_specification(thing: Any) -> Specification:
    """A specification from a path, a mapping, or itself."""
    if isinstance(thing, Specification):
        return thing
    if isinstance(thing, (str, PathLike)):
        return read_specification(Path(thing))
    return read_specification(thing)


def _target(specification: Specification, out: str | PathLike[str] | None) -> Path:
    named = specification.document.publish.to or RELEASE
    return check_new_folder(specification.folder / named if out is None else out)
