"""What the held figures of a publication give away, before and after it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from subspacedp.disclosure import InvariantAudit, audit_invariants, audit_releases
from subspacedp.errors import InvariantError
from subspacedp.invariants import bind
from subspacedp.publication.releases import Asked, asked_releases, bounded, public_domain
from subspacedp.publication.specification import Specification, as_specification
from subspacedp.publication.tabulating import found_labels, open_data, tabulate_release
from subspacedp.release import Release
from subspacedp.tables import Domain
from subspacedp.tables.queries import Cells

__all__ = ["audit", "given_away"]

Progress = Callable[[str], None]
IN_A_REPORT = 20  # linear programs, where no closed form exists


def audit(
    specification: Specification | str | PathLike[str] | Mapping[str, Any],
    *,
    structure: bool = False,
    progress: Progress | None = None,
) -> dict[str, InvariantAudit]:
    """What the invariants of every table of counts give away by themselves.

    Parameters
    ----------
    specification
        A path, a mapping, or what `read_specification` returned.
    structure
        Look at the invariants alone, without their values: no data are opened.
    progress
        Called with a public sentence before each step.

    Guarantees
    ----------
    1. Of the data it reads the held values and nothing else. They are confidential until they are
       published, and so is what the audit says.
    """
    tell = progress or (lambda sentence: None)
    asked_for = as_specification(specification)
    counts = [asked for asked in asked_releases(asked_for) if asked.sum is None]
    if structure:
        return {asked.name: _structure(asked) for asked in counts}
    out = {}
    with open_data(asked_for) as source:
        labels = found_labels(asked_for, source, tell)
        for asked in counts:
            domain = public_domain(asked.table, labels)
            if domain is None:
                raise InvariantError(f"The labels of table `{asked.table.name}` are not known.")
            found = tabulate_release(asked, domain, source, tell)
            whole = found.protected if found.everything is None else found.everything
            values = bind(asked.table.held(), Cells(domain)).sums(whole.counts)
            del found, whole
            tell(f"auditing {asked.name}")
            out[asked.name] = _audited(asked, domain, values, tell)
    return out


def given_away(release: Release) -> str:
    """What a finished release's held figures say by themselves, as text for its report."""
    return str(audit_releases(release, programs=IN_A_REPORT))


def _structure(asked: Asked) -> InvariantAudit:
    domain = public_domain(asked.table)
    if domain is None:
        raise InvariantError(
            f"The labels of table `{asked.table.name}` are read off the data, so nothing can be "
            "said before."
        )
    return _audited(asked, domain, None, lambda sentence: None)


def _audited(asked: Asked, domain: Domain, values: Any, tell: Progress) -> InvariantAudit:
    specification = asked.table.specification
    return audit_invariants(
        domain,
        asked.table.held(),
        values,
        neighbours=specification.neighbours,
        budget=asked.budget,
        decimals=asked.table.publish.decimals,
        capped=bounded(specification),
        progress=lambda done, most: tell(f"{done} of at most {most} linear programs"),
    )
