"""What the held figures of a publication give away, before and after it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from subspacedp.disclosure import InvariantAudit, audit_invariants, audit_releases
from subspacedp.disclosure.coverage import weakest
from subspacedp.errors import InvariantError, SubspaceDPError
from subspacedp.invariants import Held, HeldValues
from subspacedp.ledger import open_ledger
from subspacedp.mechanisms.base import Mechanism
from subspacedp.privacy import Neighbours
from subspacedp.problem import Kind
from subspacedp.publication.accounts import (
    HeldTogether,
    held_together,
    holds,
    named_domain,
    union_domain,
    values_on,
)
from subspacedp.publication.margin_audits import MarginsAudit, audit_margins
from subspacedp.publication.releases import (
    ReleaseSpecification,
    found_labels,
    open_data,
    public_domain,
    releases_of,
)
from subspacedp.publication.specification import Specification, read_specification
from subspacedp.release import Release
from subspacedp.release.drawing import MAX_LABELLED
from subspacedp.tables import Domain

Progress = Callable[[str], None]
IN_A_REPORT = 20  # linear programs, where no closed form exists
LARGEST_JOINT = 10**7  # cells of a domain that several tables are brought onto
LARGEST_IN_A_REPORT = 10**6
NOT_LOOKED_AT = (
    "What the held figures give away of single cells was not looked at: the table has more than "
    f"{MAX_LABELLED:,}."
)
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
    read = read_specification(specification)
    counts = [wanted for wanted in releases_of(read) if wanted.counts]
    if structure:
        audits = [_structure(wanted) for wanted in counts]
    else:
        audits = []
        with open_data(read) as source:
            labels = found_labels(read, source, tell)
            for wanted in counts:
                domain = public_domain(wanted.table, labels)
                if domain is None:
                    raise InvariantError(
                        f"The labels of table `{wanted.table.name}` are not known."
                    )
                values = wanted.held_values(domain, source, tell)
                tell(f"auditing {wanted.name}")
                audits.append(_audited(wanted, domain, values, tell))
    out = {wanted.name: one for wanted, one in zip(counts, audits, strict=True)}
    parts = [part for name, one in out.items() for part in _part_of(name, one) if holds(part.held)]
    for group in _groups(parts, LARGEST_JOINT):
        tell("auditing tables together")
        joint = _joint(group, read.neighbours, capped=read.data.bounded, tell=tell)
        if joint is not None:
            all_of_them = len(group) == len(parts) and TOGETHER not in out
            names = " and ".join(part.name for part in group)
            out[TOGETHER if all_of_them else f"{TOGETHER}: {names}"] = joint
    before = _held_before(read, tell) if parts else None
    if before is not None:
        tell("auditing together with what the account holds")
        joint = _with_account(parts, before, read)
        if joint is not None:
            out[WITH_ACCOUNT] = joint
    return out


def given_away(releases: Mapping[str, Release]) -> dict[str, str]:
    """What the held figures of finished releases say by themselves, as text for their report.

    Releases of counts that can be brought onto one domain are audited together as well; the text is
    with the first of them. What can be deduced of every cell is not looked at for large tables.
    """
    holding = {name: one for name, one in releases.items() if one.mechanism.space.rank}
    large = {name for name, one in holding.items() if one.mechanism.query.size > MAX_LABELLED}
    audits = {name: _of_release(one) for name, one in holding.items() if name not in large}
    out = {name: str(one) for name, one in audits.items()} | dict.fromkeys(large, NOT_LOOKED_AT)
    parts = [
        part
        for name, one in audits.items()
        if holding[name].mechanism.query.counts_records
        for part in _part_of(name, one)
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
    if mechanism.query.workload is None:
        return audit_releases(release, programs=IN_A_REPORT)
    return _of_margins(mechanism, mechanism.held.expression(), release.exact, programs=IN_A_REPORT)


def _of_margins(
    mechanism: Mechanism, held: Held, values: HeldValues | None, **options: Any
) -> MarginsAudit:
    return audit_margins(
        mechanism.domain,
        held,
        values,
        [margin.names for margin in mechanism.query.margins_asked or ()],
        neighbours=mechanism.neighbours,
        kind=mechanism.guarantee.kind,
        budget=mechanism.budget,
        capped=mechanism.capped,
        **options,
    )


def _part_of(name: str, audit: InvariantAudit | MarginsAudit) -> list[_Part]:
    """What an audit is about, for one of several together; nothing if that is too large."""
    domain = audit.joint_domain
    if domain is None:
        return []
    values = audit.values
    if values is not None:
        values = values_on(domain, audit.domain, audit.held, values)
    return [_Part(name=name, domain=domain, held=audit.held, values=values, kind=audit.kind)]


def _structure(wanted: ReleaseSpecification) -> InvariantAudit | MarginsAudit:
    domain = public_domain(wanted.table)
    if domain is None:
        raise InvariantError(
            f"The labels of table `{wanted.table.name}` are read off the data, so nothing can be "
            "said before."
        )
    return _audited(wanted, domain, None, lambda sentence: None)


def _audited(
    wanted: ReleaseSpecification, domain: Domain, values: HeldValues | None, tell: Progress
) -> InvariantAudit | MarginsAudit:
    mechanism = wanted.design(domain).mechanism

    def progress(done: int, most: int) -> None:
        tell(f"{done} of at most {most} linear programs")

    if mechanism.query.workload is not None:
        return _of_margins(mechanism, wanted.held, values, progress=progress)
    audit = audit_invariants(
        domain,
        wanted.held,
        values,
        neighbours=mechanism.neighbours,
        budget=mechanism.budget,
        decimals=mechanism.decimals,
        capped=mechanism.capped,
        inequalities=mechanism.problem.inequalities,
        on_counts=mechanism.measures_counts,
        progress=progress,
    )
    kind = mechanism.guarantee.kind  # least squares may use the held totals
    loss = None if audit.loss is None else replace(audit.loss, kind=kind)
    return replace(audit, kind=kind, loss=loss)


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
    paying, place = specification.document.budget, specification.ledger
    if paying is None or place is None:
        return None
    try:
        with open_ledger(place) as opened:
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
        capped=specification.data.bounded or before.capped,
    )
