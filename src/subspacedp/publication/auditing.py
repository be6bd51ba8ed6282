"""What the held figures of a publication give away, before and after it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from subspacedp.disclosure import InvariantAudit, audit_invariants, audit_releases
from subspacedp.disclosure.coverage import weakest
from subspacedp.errors import InvariantError, SubspaceDPError
from subspacedp.invariants import Held, HeldValues, bind
from subspacedp.io import Source
from subspacedp.ledger import open_ledger
from subspacedp.mechanisms.marginals import Marginals
from subspacedp.privacy import Neighbours
from subspacedp.problem import Kind
from subspacedp.publication.accounts import (
    HeldTogether,
    held_together,
    holds,
    named_domain,
    shared_domain,
    union_domain,
    values_on,
)
from subspacedp.publication.margin_audits import LARGEST_NAMED, MarginsAudit, audit_margins
from subspacedp.publication.releases import Asked, asked_releases, bounded, public_domain
from subspacedp.publication.specification import Specification, as_specification
from subspacedp.publication.tabulating import found_labels, open_data, tabulate_release
from subspacedp.queries import Cells, Margins
from subspacedp.release import Release
from subspacedp.tables import Domain, MarginTables

__all__ = ["TOGETHER", "WITH_ACCOUNT", "audit", "given_away"]

Progress = Callable[[str], None]
IN_A_REPORT = 20  # linear programs, where no closed form exists
LARGEST_JOINT = 10**7  # cells of a domain that several tables are brought onto
LARGEST_IN_A_REPORT = 10**6
TOGETHER = "together"
WITH_ACCOUNT = "together with what the account holds already"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _Part:
    """What one table holds, for an audit of several; the values are confidential at first."""

    name: str
    domain: Domain
    held: Held
    values: HeldValues | None
    kind: Kind


def audit(
    specification: Specification | str | PathLike[str] | Mapping[str, Any],
    *,
    structure: bool = False,
    progress: Progress | None = None,
) -> dict[str, InvariantAudit | MarginsAudit]:
    """What the invariants of every table of counts give away by themselves, and together.

    Parameters
    ----------
    specification
        A path, a mapping, or what `read_specification` returned.
    structure
        Look at the invariants alone, without their values: no data are opened.
    progress
        Called with a public sentence before each step.

    Returns
    -------
    dict
        The audit of every table by its name. Where several tables hold something, their joint audit
        is under "together", with the names of the tables if these are not all that hold something;
        its linkage is about cells by the axes that held margins name.
        Where `budget` names an account whose earlier releases hold something, the invariants of all
        are audited without values under "together with what the account holds already". Tables
        that cannot be brought onto one domain of a size to audit have no joint audit. Margins
        without cells are audited on the axes that held margins name, or margin by margin.

    Guarantees
    ----------
    1. Of the data it reads the held values and nothing else. They are confidential until they are
       published, and so is what the audit says.
    """
    tell = progress or (lambda sentence: None)
    asked_for = as_specification(specification)
    counts = [asked for asked in asked_releases(asked_for) if asked.sum is None]
    if structure:
        found = [_structure(asked) for asked in counts]
    else:
        found = []
        with open_data(asked_for) as source:
            labels = found_labels(asked_for, source, tell)
            for asked in counts:
                domain = public_domain(asked.table, labels)
                if domain is None:
                    raise InvariantError(f"The labels of table `{asked.table.name}` are not known.")
                values = _held_values(asked, domain, source, tell)
                tell(f"auditing {asked.name}")
                found.append(_audited(asked, domain, values, tell))
    out = {asked.name: one for asked, one in zip(counts, found, strict=True)}
    parts = [
        part
        for name, one in out.items()
        if (part := _part_of(name, one)) is not None and holds(part.held)
    ]
    for group in _groups(parts, LARGEST_JOINT):
        tell("auditing tables together")
        joint = _joint(group, asked_for.neighbours, capped=bounded(asked_for), tell=tell)
        if joint is not None:
            all_of_them = len(group) == len(parts) and TOGETHER not in out
            names = " and ".join(part.name for part in group)
            out[TOGETHER if all_of_them else f"{TOGETHER}: {names}"] = joint
    before = _held_before(asked_for, tell) if parts else None
    if before is not None:
        tell("auditing together with what the account holds")
        joint = _with_account(parts, before, asked_for)
        if joint is not None:
            out[WITH_ACCOUNT] = joint
    return out


def given_away(releases: Mapping[str, Release]) -> dict[str, str]:
    """What the held figures of finished releases say by themselves, as text for their report.

    Releases of counts that can be brought onto one domain are audited together as well; the text is
    with the first of them.
    """
    holding = {name: one for name, one in releases.items() if one.mechanism.space.rank}
    found = {name: _of_release(one) for name, one in holding.items()}
    out = {name: str(one) for name, one in found.items()}
    parts = [
        part
        for name, one in found.items()
        if isinstance(holding[name].mechanism.query, Cells | Margins)
        and (part := _part_of(name, one)) is not None
    ]
    for group in _groups(parts, LARGEST_IN_A_REPORT):
        names = [part.name for part in group]
        designs = [releases[name].mechanism for name in names]
        if len({mechanism.neighbours for mechanism in designs}) > 1:
            continue
        joint = _joint(
            group,
            designs[0].neighbours,
            capped=any(mechanism.capped for mechanism in designs),
            programs=IN_A_REPORT,
        )
        if joint is None:
            continue
        first, others = names[0], names[1:]
        out[first] += f"\n\nTogether with {' and '.join(others)}:\n\n{joint}"
        for name in others:
            out[name] += f"\n\nWhat it gives away together with other tables is said of {first}."
    return out


def _of_release(release: Release) -> InvariantAudit | MarginsAudit:
    mechanism = release.mechanism
    if not isinstance(mechanism.query, Margins):
        return audit_releases(release, programs=IN_A_REPORT)
    return audit_margins(
        mechanism.domain,
        mechanism.held.asked(),
        release.exact,
        [margin.names for margin in mechanism.query.margins],
        neighbours=mechanism.neighbours,
        kind=mechanism.guarantee.kind,
        budget=mechanism.budget,
        capped=mechanism.capped,
        programs=IN_A_REPORT,
    )


def _part_of(name: str, audit: InvariantAudit | MarginsAudit) -> _Part | None:
    """What an audit is about, for one of several together; None if that is too large."""
    if isinstance(audit, InvariantAudit):
        whole = audit.whole
        return _Part(
            name=name, domain=whole.domain, held=whole.asked, values=whole.values, kind=audit.kind
        )
    domain = shared_domain(audit.domain, audit.held)
    if domain is None or domain.size > LARGEST_NAMED:
        return None
    values = audit.values
    if values is not None:
        values = values_on(domain, audit.domain, audit.held, values)
    return _Part(name=name, domain=domain, held=audit.held, values=values, kind=audit.kind)


def _held_values(asked: Asked, domain: Domain, source: Source, tell: Progress) -> HeldValues:
    """The held values of the data, and nothing else of them."""
    held = asked.table.held()
    if asked.margins_alone and not held.margins:
        return ()
    made = tabulate_release(asked, domain, source, tell, held_alone=True)
    whole = made.protected if made.everything is None else made.everything
    if isinstance(whole, MarginTables):
        return tuple(whole.of(margin) for margin in held.margins_on(domain))
    return bind(held, Cells(domain)).sums(whole.counts)


def _structure(asked: Asked) -> InvariantAudit | MarginsAudit:
    domain = public_domain(asked.table)
    if domain is None:
        raise InvariantError(
            f"The labels of table `{asked.table.name}` are read off the data, so nothing can be "
            "said before."
        )
    return _audited(asked, domain, None, lambda sentence: None)


def _audited(
    asked: Asked, domain: Domain, values: HeldValues | None, tell: Progress
) -> InvariantAudit | MarginsAudit:
    specification = asked.table.specification

    def progress(done: int, most: int) -> None:
        tell(f"{done} of at most {most} linear programs")

    if asked.margins_alone:
        return audit_margins(
            domain,
            asked.table.held(),
            values,
            asked.margins,
            neighbours=specification.neighbours,
            kind=asked.mechanism(domain).guarantee.kind,
            budget=asked.budget,
            capped=bounded(specification),
            progress=progress,
        )
    mechanism = asked.mechanism(domain)
    joint = isinstance(mechanism, Marginals)
    found = audit_invariants(
        domain,
        asked.table.held(),
        values,
        neighbours=specification.neighbours,
        budget=asked.budget,
        decimals=asked.table.publish.decimals,
        capped=bounded(specification),
        on_counts=not joint,
        progress=progress,
    )
    if not joint:
        return found
    kind = mechanism.guarantee.kind  # least squares may use the held totals
    loss = None if found.loss is None else replace(found.loss, kind=kind)
    return replace(found, kind=kind, loss=loss)


def _groups(parts: Sequence[_Part], most: int) -> list[list[_Part]]:
    """The parts that fit on one domain, each with the first group it fits to; two at least."""
    groups: list[list[_Part]] = []
    for part in parts:
        for group in groups:
            if _union([*group, part], most) is not None:
                group.append(part)
                break
        else:
            groups.append([part])
    return [group for group in groups if len(group) > 1]


def _union(parts: Sequence[_Part], most: int) -> Domain | None:
    try:
        return union_domain([part.domain for part in parts], [p.held for p in parts], most=most)
    except InvariantError:
        return None


def _joint(
    parts: Sequence[_Part],
    neighbours: Neighbours,
    *,
    capped: bool,
    programs: int = 200,
    most: int = LARGEST_JOINT,
    tell: Progress | None = None,
) -> InvariantAudit | None:
    """What the parts give away on the union of their axes; None if there is no such domain.

    Its linkage is that of the cells by the axes that held margins name: along the others nothing is
    known, and cells split by them would hide what is pinned.
    """
    union = _union(parts, most)
    if union is None:
        return None

    def on(domain: Domain) -> InvariantAudit:
        known = [
            values_on(domain, part.domain, part.held, part.values)
            for part in parts
            if part.values is not None
        ]
        return audit_invariants(
            domain,
            [part.held for part in parts],
            known if len(known) == len(parts) else None,
            neighbours=neighbours,
            capped=capped,
            programs=programs,
            progress=None
            if tell is None
            else lambda done, most: tell(f"{done} of at most {most} linear programs"),
        )

    named = _named(union, parts)
    try:
        joint = on(union)
        linkage = joint.linkage if named is None else on(named).linkage
    except InvariantError:  # totals that contradict each other are not of the same people
        return None
    # Whether digits have to add up is a matter of each release's own axes.
    return replace(joint, linkage=linkage, kind=weakest([part.kind for part in parts]))


def _named(union: Domain, parts: Sequence[_Part]) -> Domain | None:
    """The axes that a held margin names; None if these are all, or none, or not all there is."""
    if any(part.held.linear or part.held.zeros for part in parts):
        return None
    margins = tuple(margin for part in parts for margin in part.held.margins)
    named = named_domain(union, Held(margins))
    return named if named is not None and len(named.axes) < len(union.axes) else None


def _held_before(specification: Specification, tell: Progress) -> HeldTogether | None:
    """What earlier releases of the account hold; None if nothing can be said of them."""
    paying = specification.document.budget
    if paying is None:
        return None
    address = paying.ledger
    try:
        with open_ledger(address if "://" in address else specification.folder / address) as opened:
            return held_together(opened, paying.account)
    except SubspaceDPError:
        tell("what the account holds already cannot be audited together")
        return None


def _with_account(
    parts: Sequence[_Part], before: HeldTogether, specification: Specification
) -> InvariantAudit | None:
    earlier = [
        _Part(name="", domain=before.domain, held=held, values=None, kind=before.kind)
        for held in dict.fromkeys(before.helds)
        if holds(held)
    ]
    if not earlier:
        return None
    return _joint(
        [*parts, *earlier],
        specification.neighbours,
        capped=bounded(specification) or before.capped,
    )
