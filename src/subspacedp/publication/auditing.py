"""What the held figures of a publication give away, before and after it is made.

Where margins are published, no table of cells is ever built. Along axes that no held margin names
nothing is held, so the cells by the other axes are all there is to look at. Where even these are
too many, each published margin is looked at by itself, with what is held of its own axes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from subspacedp.disclosure import InvariantAudit, audit_invariants, audit_releases
from subspacedp.disclosure.bounds import Progress, SmallTotal, small_totals
from subspacedp.disclosure.coverage import published_invariants, weakest
from subspacedp.disclosure.moves import Loss, Move, move_loss, smallest_move, unseparated_sets
from subspacedp.errors import InvariantError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, HeldMargins, HeldValues
from subspacedp.ledger import open_ledger
from subspacedp.mechanisms.base import Mechanism
from subspacedp.privacy import Budget, Neighbours
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
from subspacedp.tables import Domain, Margin

Tell = Callable[[str], None]
LARGEST_NAMED = 10**6  # cells by the axes that held margins name
LARGEST_MARGIN = 10**6  # cells of a published margin that is looked at by itself
MOST_MARGINS = 200
LISTED = 20
NARROW = SMALLEST = 2


@frozen(eq=False, kw_only=True, repr=False)
class MarginsAudit:
    """What held margins say by themselves; `str()` is a report, `as_dict()` plain data.

    Guarantees
    ----------
    1. Everything here is a function of the domain, the margins, and the held values.
    2. A count reported as pinned is that of every table of counts with the held values. Where only
       single margins were looked at, all together may pin more, and `left` says so.
    """

    domain: Domain
    held: Held
    values: HeldValues | None
    neighbours: Neighbours
    kind: Kind
    free: tuple[str, ...]
    rank: int
    looked_at: Mapping[str, InvariantAudit]  # by the axes of the cells
    move: Move | None
    loss: Loss | None
    small_count: int
    small: tuple[SmallTotal, ...]
    left: tuple[str, ...]  # what was not looked at

    @property
    def joint_domain(self) -> Domain | None:
        """The axes on which it is audited together with others; None if these are too many."""
        domain = shared_domain(self.domain, self.held)
        return None if domain is None or domain.size > LARGEST_NAMED else domain

    @property
    def pinned(self) -> int:
        """How many of the cells looked at can have one count only."""
        return sum(one.pinned for one in self.looked_at.values())

    @property
    def pinned_people(self) -> int:
        """How many of these have somebody in them."""
        return sum(one.pinned_people for one in self.looked_at.values())

    def as_dict(self) -> dict[str, Any]:
        """The findings as plain data, for JSON and reports."""
        return {
            "held": str(_bound(self.domain, self.held)),
            "cells": self.domain.size,
            "rank": self.rank,
            "kind": self.kind,
            "neighbours": str(self.neighbours),
            "cost_nothing": list(self.free),
            "read_values": self.values is not None,
            "pinned": self.pinned,
            "pinned_with_people": self.pinned_people,
            "looked_at": {
                name: {
                    "cells": one.cells,
                    "pinned": one.pinned,
                    "pinned_with_people": one.pinned_people,
                    "narrow_cells": one.narrow_cells,
                    "not_examined": one.not_examined,
                    "worst": [cell.as_dict() for cell in one.worst],
                }
                for name, one in self.looked_at.items()
            },
            "not_looked_at": list(self.left),
            "smallest_group": SMALLEST,
            "small_totals": self.small_count,
            "small": [small.as_dict() for small in self.small],
            "smallest_move": None if self.move is None else self.move.as_dict(),
            "loss_of_move": None if self.loss is None else self.loss.as_dict(),
        }

    def __str__(self) -> str:
        paragraphs = [" ".join(p) for p in (self._what(), self._cells(), self._people()) if p]
        lines = [textwrap.fill(p, 100) for p in paragraphs]
        worst = [
            f"{name}: {cell}"
            for name, one in self.looked_at.items()
            for cell in one.worst
            if cell.lower or not cell.pinned
        ]
        for title, findings in (
            ("Narrowest cells with people:", worst[:LISTED]),
            (f"Held totals of at most {SMALLEST}:", [str(small) for small in self.small]),
        ):
            if findings:
                lines.append("\n".join([title, *(f"  {finding}" for finding in findings)]))
        return "\n\n".join(lines)

    def _what(self) -> list[str]:
        words = str(_bound(self.domain, self.held))
        out = [
            f"Held exact: {words} ({self.rank:,} independent "
            f"figure{'' if self.rank == 1 else 's'} of a table with {_many(self.domain.size)} "
            "cells, which is never built)."
        ]
        if self.free:
            out.append(f"No neighbouring change can alter {' and '.join(self.free)}: free of cost.")
        return out

    def _cells(self) -> list[str]:
        out = []
        if self.looked_at and self.values is None:
            fixed = sum(one.fixed_cells for one in self.looked_at.values())
            out.append(
                f"Of the cells by {_listed(self.looked_at)}, {fixed:,} are fixed whatever the held "
                "values are; these were not given, so nothing more is said of single cells."
            )
        elif self.looked_at:
            narrow = sum(one.narrow_cells for one in self.looked_at.values())
            cells = sum(one.cells for one in self.looked_at.values())
            quiet = not (self.pinned or narrow or self.small_count)
            out.append(
                f"Nothing about any cell by {_listed(self.looked_at)} follows from the held "
                f"figures but wide ranges: of each more than {NARROW + 1} counts are possible."
                if quiet and not any(one.not_examined for one in self.looked_at.values())
                else f"With counts that are whole and not negative, {self.pinned:,} of the "
                f"{cells:,} cells by {_listed(self.looked_at)} are pinned to one count, "
                f"{self.pinned_people:,} of them with somebody inside; {narrow:,} more have a "
                f"range of at most {NARROW}."
            )
            skipped = sum(one.not_examined for one in self.looked_at.values())
            if skipped:
                out.append(f"{skipped:,} cells are not examined: linear programs are rationed.")
        if self.values is not None:
            out.append(f"Held totals of {SMALLEST} or less: {self.small_count:,}.")
        return [*out, *self.left]

    def _people(self) -> list[str]:
        if self.move is None:
            return ["The invariants fix the whole table: no change keeps them."]
        sentence = str(self.move).partition(";")[0]
        return [f"{sentence}.", *([] if self.loss is None else [str(self.loss)])]

    def __repr__(self) -> str:
        return f"MarginsAudit({_bound(self.domain, self.held)}; {self.pinned:,} cells pinned)"


def audit_margins(
    domain: Domain,
    held: Held,
    values: HeldValues | None,
    published: Sequence[Sequence[str]],
    *,
    neighbours: Neighbours,
    kind: Kind,
    budget: Budget | None = None,
    capped: bool = False,
    programs: int = 200,
    progress: Progress | None = None,
) -> MarginsAudit:
    """Find out what held margins of a domain of any size give away by themselves.

    Parameters
    ----------
    domain, held, values
        The axes; what is held; its exact totals, one array a held margin, or None for the
        structure alone.
    published
        The margins that noise is added to.
    neighbours, kind, budget, capped
        As of the design.
    programs, progress
        As for `audit_invariants`.
    """
    bound = _bound(domain, held)
    only_total = bool(bound.margins) and neighbours.keeps_total and not capped
    move = _move(domain, bound, neighbours)
    if capped and move is not None and move.people > 1:
        # Held values count all records of a person, so one with many may be enough.
        move = replace(move, at_least=1, exact=False)
    looked_at: dict[str, InvariantAudit] = {}
    left: list[str] = []
    named = named_domain(domain, held)
    options: dict[str, Any] = {
        "neighbours": neighbours,
        "capped": capped,
        "narrow": NARROW,
        "smallest_group": SMALLEST,
        "programs": programs,
        "progress": progress,
    }
    if named is not None and named.size <= LARGEST_NAMED:
        its_values = None if values is None else values_on(named, domain, held, values)
        looked_at[_words(named)] = audit_invariants(named, held, its_values, **options)
    elif named is not None:
        for part in _parts(domain, bound, published):
            inner = Domain([axis for axis, step in _kept(part) if step < axis.depth - 1])
            looked_at[_words(inner)] = _of_part(domain, bound, values, part, inner, options)
        left.append(
            f"The axes that held margins name have {_many(named.size)} cells together, too many to "
            "look at: every published margin was looked at by itself, with what is held of its "
            "axes, and what all held figures say together may be more."
        )
    count, small = _small(domain, bound, values)
    return MarginsAudit(
        domain=domain,
        held=held,
        values=values,
        neighbours=neighbours,
        kind=kind,
        free=("the grand total",) if only_total else (),
        rank=bound.rank,
        looked_at=looked_at,
        move=move,
        loss=None
        if budget is None or move is None
        else move_loss(move, budget, neighbours, kind, on_counts=False),
        small_count=count,
        small=tuple(small),
        left=tuple(left),
    )


def _bound(domain: Domain, held: Held) -> HeldMargins:
    return HeldMargins(domain=domain, margins=held.margins_on(domain))


def _move(domain: Domain, bound: HeldMargins, neighbours: Neighbours) -> Move | None:
    """The smallest change that no held margin notices, on the few axes along which it moves."""
    sets = unseparated_sets(domain, bound.margins)
    if not sets:
        return None
    few = Domain([domain.axes[a] for a in sets[0]] or [max(domain.axes, key=len)])
    names = {level.name for axis in few.axes for level in axis.named}
    margins = dict.fromkeys(tuple(n for n in m.names if n in names) for m in bound.margins)
    return smallest_move(_bound(few, Held(tuple(margins))), neighbours)


def _kept(margin: Margin) -> list[tuple[Any, int]]:
    return list(zip(margin.axes, margin.steps, strict=True))


def _parts(domain: Domain, bound: HeldMargins, published: Sequence[Sequence[str]]) -> list[Margin]:
    """Published margins, with all labels of their axes, of which something is held but not all."""
    out: list[Margin] = []
    for names in published:
        margin = domain.margin(*names)
        steps = tuple(0 if s < a.depth - 1 else s for a, s in _kept(margin))
        full = Margin(margin.axes, steps)
        if full in out or any(h.determines(full) for h in bound.margins) or not full.names:
            continue
        small = full.nonempty <= LARGEST_MARGIN
        if small and any(h.meet(full).names for h in bound.margins):
            out.append(full)
    return out[:MOST_MARGINS]


def _of_part(
    domain: Domain,
    bound: HeldMargins,
    values: HeldValues | None,
    part: Margin,
    inner: Domain,
    options: Mapping[str, Any],
) -> InvariantAudit:
    meets = {h.meet(part): i for i, h in enumerate(bound.margins)}
    held = Held(tuple(meet.names for meet in meets))
    if values is None:
        return audit_invariants(inner, held, None, **options)
    totals = tuple(bound.margins[i].coarsen(values[i], meet) for meet, i in meets.items())
    return audit_invariants(inner, held, values_on(inner, domain, held, totals), **options)


def _small(
    domain: Domain, bound: HeldMargins, values: HeldValues | None
) -> tuple[int, list[SmallTotal]]:
    """Small held totals, each margin on its own axes: further ones would leave 64 bits."""
    smallest: list[SmallTotal] = []
    count = 0
    for margin, total in zip(bound.margins, values or (), strict=False):
        held = Held((margin.names,))
        named = named_domain(domain, held)
        if named is None:
            continue
        alone = published_invariants(named, held, values_on(named, domain, held, (total,)))
        number, some = small_totals([alone], SMALLEST, LISTED)
        count += number
        smallest += some
    smallest.sort(key=lambda s: (s.total == 0, s.total, -s.cells))
    return count, smallest[:LISTED]


def _words(domain: Domain) -> str:
    return " × ".join(axis.title for axis in domain.axes)


def _listed(names: Mapping[str, Any]) -> str:
    known = list(names)
    return "; ".join(known) if len(known) <= 4 else f"{len(known)} sets of axes"


def _many(number: int) -> str:
    """A number that may be far beyond what anybody reads digit by digit."""
    text = f"{number:,}"
    return text if number < 10**15 else f"about 10^{len(str(number)) - 1}"


IN_A_REPORT = 20  # linear programs, where no closed form exists
LARGEST_JOINT = 10**7  # cells of a domain that several tables are brought onto
LARGEST_IN_A_REPORT = 10**6
NOT_LOOKED_AT = (
    "What the held figures give away of single cells was not looked at: the table has more than "
    f"{MAX_LABELLED:,}."
)
TOGETHER = "together"
WITH_ACCOUNT = "together with what the account holds already"


@frozen(eq=False, repr=False, kw_only=True)
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
    progress: Tell | None = None,
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
    wanted: ReleaseSpecification, domain: Domain, values: HeldValues | None, tell: Tell
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
    tell: Tell | None = None,
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


def _held_before(specification: Specification, tell: Tell) -> HeldTogether | None:
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
