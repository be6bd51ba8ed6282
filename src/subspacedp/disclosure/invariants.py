"""What the invariants give away, before any release and across releases.

The audit reads the held values, which are published exactly anyway, and nothing else of the data.
Proofs: docs/proofs/disclosure.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from subspacedp.arrays import ArrayLike
from subspacedp.disclosure.bounds import (
    CellBounds,
    CellRange,
    Progress,
    SmallTotal,
    cell_bounds,
    cell_range,
    programs_of,
    small_totals,
    worst_cells,
)
from subspacedp.disclosure.coverage import (
    AnyHeld,
    PublishedInvariants,
    QuestionCoverage,
    coverage,
    joined,
    kind_of_parts,
    published_invariants,
    question_weights,
    stack,
    weakest,
)
from subspacedp.disclosure.differencing import Differencing, differencing
from subspacedp.disclosure.moves import Loss, Move, move_loss, smallest_move
from subspacedp.errors import BudgetError, InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, HeldValues, Inequalities, space_of
from subspacedp.invariants.crossing import Crossings
from subspacedp.privacy import Budget, Neighbours
from subspacedp.problem import Kind
from subspacedp.queries import Cells
from subspacedp.release import Release
from subspacedp.tables import Domain

MAX_LISTED = 20  # findings of each kind that are listed; all are counted


@frozen(eq=False, kw_only=True, repr=False)
class InvariantAudit:
    """What the invariants say by themselves; `str()` is a report, `as_dict()` plain data.

    Guarantees
    ----------
    1. Everything here is a function of the domain, the invariants and the held values.
    2. A cell reported as pinned has that count in every table of counts with the held values; a
       range contains the count of every such table.
    3. Cells that were neither bounded sharply nor shown to be wide are counted in `not_examined`.
    """

    parts: tuple[PublishedInvariants, ...]
    whole: PublishedInvariants
    neighbours: Neighbours
    narrow: int
    smallest_group: int
    rank: int
    free: tuple[str, ...]
    kind: Kind
    fixed_cells: int  # by the invariants alone, whatever their values
    bounds: CellBounds | None
    worst: tuple[CellRange, ...]
    small_count: int
    small: tuple[SmallTotal, ...]
    move: Move | None
    loss: Loss | None
    linkage: Linkage | None
    capped: bool = False
    differencing: Differencing | None = None
    inequalities: Inequalities | None = None

    @property
    def domain(self) -> Domain:
        """The axes."""
        return self.whole.domain

    @property
    def joint_domain(self) -> Domain:
        """The axes on which it is audited together with others."""
        return self.whole.domain

    @property
    def held(self) -> Held:
        """What is held."""
        return self.whole.held

    @property
    def values(self) -> HeldValues | None:
        """The held values; None for the structure alone."""
        return self.whole.values

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.whole.domain.size

    @property
    def pinned(self) -> int:
        """How many cells can have one count only."""
        return self.fixed_cells if self.bounds is None else int(self.bounds.pinned.sum())

    @property
    def pinned_people(self) -> int:
        """How many of these have somebody in them."""
        if self.bounds is None:
            return 0
        return int(np.count_nonzero(self.bounds.pinned & (self.bounds.lower > 0)))

    @property
    def narrow_cells(self) -> int:
        """How many cells have a range of at most `narrow` and are not pinned."""
        if self.bounds is None:
            return 0
        width = self.bounds.width
        return int(np.count_nonzero((width > 0) & (width <= self.narrow)))

    @property
    def not_examined(self) -> int:
        """How many cells the programs that were allowed did not reach."""
        return 0 if self.bounds is None else self.bounds.open

    def covers(self, weights: ArrayLike | None = None, **labels: Any) -> QuestionCoverage:
        """Whether the invariants answer a question, given by weights or by labels."""
        answer = coverage(self.parts, self.whole, weights, labels, self.neighbours, self.kind)
        return replace(answer, free=False) if self.capped and self.rank else answer

    def range_of(self, weights: ArrayLike | None = None, **labels: Any) -> tuple[float, float]:
        """The least and the largest answer over all tables with the held values.

        By two linear programs over tables of real numbers, hence safe for whole ones too; the
        limits are brought to whole numbers where the weights are whole.
        """
        if self.whole.values is None:
            raise InvariantError("The range of an answer needs the held values.")
        w = question_weights(self.whole.domain, weights, labels)[0].reshape(-1)
        programs = programs_of(self.whole)
        known = np.where(programs.lower == programs.upper, programs.lower, 0)
        low, high = programs.limits(w[programs.free]) if programs.free.size else (0.0, 0.0)
        base = float(w @ known)
        if np.array_equal(w, np.rint(w)):
            low, high = np.ceil(low - programs.slack), np.floor(high + programs.slack)
        return base + float(low), base + float(high)

    def as_dict(self) -> dict[str, Any]:
        """The findings as plain data, for JSON and reports."""
        return {
            "held": [str(part.bound) for part in self.parts],
            "cells": self.cells,
            "rank": self.rank,
            "protected_dimensions": self.cells - self.rank,
            "kind": self.kind,
            "neighbours": str(self.neighbours),
            "cost_nothing": list(self.free),
            "fixed_cells": self.fixed_cells,
            "read_values": self.bounds is not None,
            "pinned": self.pinned,
            "pinned_with_people": self.pinned_people,
            "narrow": self.narrow,
            "narrow_cells": self.narrow_cells,
            **({} if self.inequalities is None else {"known": str(self.inequalities)}),
            "not_examined": self.not_examined,
            "method": None if self.bounds is None else self.bounds.method,
            "programs": 0 if self.bounds is None else self.bounds.programs,
            "worst": [cell.as_dict() for cell in self.worst],
            "smallest_group": self.smallest_group,
            "small_totals": self.small_count,
            "small": [small.as_dict() for small in self.small],
            "smallest_move": None if self.move is None else self.move.as_dict(),
            "loss_of_move": None if self.loss is None else self.loss.as_dict(),
            "linkage": None if self.linkage is None else self.linkage.as_dict(),
            **({} if self.differencing is None else {"differencing": self.differencing.as_dict()}),
        }

    def __str__(self) -> str:
        paragraphs = [" ".join(p) for p in (self._what(), self._cells(), self._people()) if p]
        lines = [textwrap.fill(p, 100) for p in paragraphs]
        if self.differencing is not None:
            shown = [f"  {finding}" for finding in self.differencing.findings]
            lines[:0] = ["\n".join([textwrap.fill(str(self.differencing), 100), *shown])]
        if self.linkage is not None:
            lines.append(textwrap.fill(str(self.linkage), 100))
        for title, findings in (
            ("Narrowest cells:", self.worst),
            (f"Held totals of at most {self.smallest_group}:", self.small),
        ):
            if findings:
                lines.append("\n".join([title, *(f"  {finding}" for finding in findings)]))
        return "\n\n".join(lines)

    def _what(self) -> list[str]:
        together = " together" if len(self.parts) > 1 else ""
        out = [
            f"Held exact{together}: {self.whole.bound} ({self.rank:,} independent "
            f"figure{'' if self.rank == 1 else 's'} of {self.cells:,})."
        ]
        if self.free:
            out.append(f"No neighbouring change can alter {' and '.join(self.free)}: free of cost.")
        return out

    def _cells(self) -> list[str]:
        if self.bounds is None:
            return [
                f"{_cells(self.fixed_cells)} fixed whatever the held values are; these were not "
                "given, so nothing more is said of single cells."
            ]
        if not (self.pinned or self.narrow_cells or self.small_count or self.not_examined):
            return [
                "Nothing about any cell follows from the held figures but wide ranges: of every "
                f"cell more than {self.narrow + 1} counts are possible, and every held total is "
                f"above {self.smallest_group}."
            ]
        known = self.inequalities
        declared = "" if known is None else f", and with what is declared ({known})"
        out = [
            f"With counts that are whole and not negative{declared}, {_cells(self.pinned)} pinned "
            f"to one count, {self.pinned_people:,} of them with somebody inside; "
            f"{self.narrow_cells:,} more have a range of at most {self.narrow}.",
            f"{_totals(self.small_count)} {self.smallest_group} or less.",
        ]
        if self.not_examined:
            out.append(
                f"{_cells(self.not_examined)} not examined: {self.bounds.programs:,} linear "
                "programs were allowed."
            )
        return out

    def _people(self) -> list[str]:
        if self.move is None:
            if self.rank == self.cells:
                return ["The invariants fix the whole table: no change keeps them."]
            return ["A smallest change that keeps every invariant was not found in the time given."]
        return [str(self.move), *([] if self.loss is None else [str(self.loss)])]

    def __repr__(self) -> str:
        return f"InvariantAudit({self.whole.bound}; {self.pinned:,} of {self.cells:,} cells pinned)"


def audit_invariants(
    domain: Domain,
    held: AnyHeld | Sequence[AnyHeld],
    values: Any = None,
    *,
    neighbours: Neighbours,
    budget: Budget | None = None,
    decimals: int | None = None,
    capped: bool = False,
    inequalities: Inequalities | None = None,
    on_counts: bool = True,
    narrow: int = 2,
    smallest_group: int = 2,
    programs: int = 200,
    progress: Progress | None = None,
) -> InvariantAudit:
    """Find out what the invariants give away by themselves.

    Parameters
    ----------
    domain
        The table's axes.
    held
        What a release holds exact, or a list with what each of several releases holds.
    values
        The exact totals, one array per held margin (as `release.exact` has them), and a list of
        these for several releases. Without them only the structure is audited.
    neighbours
        What one person may change.
    budget
        For the privacy loss of the smallest change that keeps every invariant, under noise on the
        counts.
    decimals
        As of the design: None for real values, 0 or k decimals for controlled rounding.
    capped
        Whether held values count all records while noise protects a bounded number of them: then
        one person may alter any held total.
    inequalities
        What is publicly known beside the held values. Ranges of cells are then safe: they contain
        every count that is possible, and may contain others.
    on_counts
        Whether noise is added to the counts themselves, as the projected mechanisms do; for others
        the loss of a move is that of group privacy.
    narrow
        A range of at most this many counts is reported.
    smallest_group
        Held totals up to this number are reported.
    programs
        The most linear programs, where margins have no closed form; the cells that are narrowest by
        safe bounds come first.
    progress
        Called with the number of programs done and the most there can be.

    Examples
    --------
    >>> from subspacedp import Axis, Domain, ReplaceOne, hold
    >>> domain = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
    >>> audit = audit_invariants(
    ...     domain, hold("age") & hold("sex"), [[[9], [1]], [[10, 0]]], neighbours=ReplaceOne()
    ... )
    >>> audit.pinned, audit.pinned_people, audit.move.people
    (4, 2, 2)
    """
    if not isinstance(neighbours, Neighbours) or type(neighbours) is Neighbours:
        raise BudgetError("`neighbours` must be ReplaceOne(...) or AddRemoveOne(...).")
    for name, number in (("narrow", narrow), ("smallest_group", smallest_group),
                         ("programs", programs)):  # fmt: skip
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise InvariantError(f"`{name}` must be a whole number of at least 0; got {number!r}.")
    parts = _parts(domain, held, values)
    whole = joined(parts)
    space = space_of(whole.bound)
    kind = kind_of_parts(parts, neighbours, decimals)
    if capped and kind == "plain" and space.rank:
        kind = "S" if decimals is None else "G"
    free = _free(whole, neighbours)
    bounds = None
    if whole.values is not None:
        bounds = cell_bounds(whole, narrow=narrow, programs=programs, progress=progress)
        if inequalities is not None:
            cells, held_values = Cells(whole.domain), whole.values
            known = inequalities.given(cells, whole.bound, held_values, capped=capped)
            bounds = bounds.within(known.of_answers())
    move = smallest_move(whole.bound, neighbours)
    if capped and move is not None and move.people > 1:
        # Held values count all records of a person, so one with many may be enough.
        move = replace(move, at_least=1, exact=False)
    small_count, small = small_totals(parts, smallest_group, MAX_LISTED)
    return InvariantAudit(
        parts=tuple(parts),
        whole=whole,
        neighbours=neighbours,
        narrow=narrow,
        smallest_group=smallest_group,
        rank=space.rank,
        free=tuple(words for words in free if not (capped and words == "the grand total")),
        kind=kind,
        fixed_cells=int(np.count_nonzero(space.diagonal() < 1e-9)),
        bounds=bounds,
        worst=()
        if bounds is None
        else tuple(worst_cells(whole.domain, bounds, narrow, MAX_LISTED)),
        small_count=small_count,
        small=tuple(small),
        move=move,
        loss=None
        if budget is None or move is None
        else move_loss(move, budget, neighbours, kind, on_counts=on_counts),
        linkage=linkage(parts, whole, bounds, narrow=narrow, programs=programs),
        capped=capped,
        differencing=_differencing(whole, smallest_group),
        inequalities=inequalities,
    )


def _differencing(whole: PublishedInvariants, smallest_group: int) -> Differencing | None:
    crossings = Crossings.of(whole.domain, whole.bound.margins)
    if crossings is None:
        return None
    lifted = None if whole.values is None else space_of(whole.bound).lift(whole.values)
    return differencing(crossings, lifted, smallest_group=smallest_group, most=MAX_LISTED)


def _parts(domain: Domain, held: Any, values: Any) -> list[PublishedInvariants]:
    if not isinstance(held, list | tuple):
        return [published_invariants(domain, held, values)]
    if not held:
        raise InvariantError("Give what at least one release holds.")
    if values is None:
        return [published_invariants(domain, one) for one in held]
    if not isinstance(values, list | tuple) or len(values) != len(held):
        raise InvariantError(
            f"Held values of {len(held)} releases are a list of {len(held)}, one for each."
        )
    return [published_invariants(domain, one, its) for one, its in zip(held, values, strict=True)]


def _free(whole: PublishedInvariants, neighbours: Neighbours) -> tuple[str, ...]:
    """The invariants that no neighbouring change can alter, in words."""
    bound, out = whole.bound, []
    if bound.empty is not None:
        number = int(bound.empty.sum())
        out.append(f"the {number:,} cell{'' if number == 1 else 's'} known to be empty")
    if neighbours.keeps_total and bound.tells_total:
        out.append("the grand total")
    return tuple(out)


def _totals(number: int) -> str:
    return "1 held total is" if number == 1 else f"{number:,} held totals are"


def _cells(number: int) -> str:
    return "1 cell is" if number == 1 else f"{number:,} cells are"


@frozen(kw_only=True)
class Linkage:
    """What several releases fix together that none of them fixes alone.

    The paper's example: the age margin is held in one release and the zip margin in another, as in
    a linkage attack. Linearly the invariants span the sum of their row spaces; with counts that
    cannot be negative they may pin cells that neither pins.

    `new_fixed` counts cells that the invariants fix together whatever their values; `pinned` the
    cells pinned by the values and non-negativity; None without values.
    """

    held: tuple[str, ...]
    ranks: tuple[int, ...]
    rank: int
    new_fixed: int
    pinned: int | None
    narrow: int | None
    examples: tuple[CellRange, ...]

    @property
    def shared(self) -> int:
        """How many independent figures are held more than once: Σ ranks − rank of all."""
        return sum(self.ranks) - self.rank

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "held": list(self.held),
            "ranks": list(self.ranks),
            "rank": self.rank,
            "shared": self.shared,
            "fixed_only_jointly": self.new_fixed,
            "pinned_only_jointly": self.pinned,
            "narrow_only_jointly": self.narrow,
            "examples": [cell.as_dict() for cell in self.examples],
        }

    def __str__(self) -> str:
        each = " and ".join(f"{h} ({r:,})" for h, r in zip(self.held, self.ranks, strict=True))
        text = (
            f"Linkage: counted in independent figures, the releases hold {each}, together "
            f"{self.rank:,}."
        )
        if self.pinned is None:
            return text + f" Fixed only jointly, whatever the values: {self.new_fixed:,} cells."
        text += (
            f" Pinned by all together and by none alone: {self.pinned:,} cells; narrow only "
            f"jointly: {self.narrow:,}."
        )
        if self.examples:
            text += f" For example {'; '.join(map(str, self.examples[:3]))}."
        return text


def linkage(
    parts: Sequence[PublishedInvariants],
    whole: PublishedInvariants,
    bounds: CellBounds | None,
    *,
    narrow: int,
    programs: int,
) -> Linkage | None:
    """What the parts determine together; None for a single release."""
    if len(parts) < 2:
        return None
    spaces = [space_of(part.bound) for part in parts]
    joint = space_of(whole.bound)
    fixed = joint.diagonal() < 1e-9
    for space in spaces:
        fixed &= space.diagonal() >= 1e-9
    pinned = close = None
    examples: list[CellRange] = []
    if bounds is not None:
        alone = [cell_bounds(part, narrow=narrow, programs=programs) for part in parts]
        new = bounds.pinned & ~np.any([a.pinned for a in alone], axis=0)
        near = (bounds.width <= narrow) & ~np.any([a.width <= narrow for a in alone], axis=0)
        pinned, close = int(new.sum()), int(np.count_nonzero(near & ~bounds.pinned))
        cells = np.flatnonzero(new)
        order = np.lexsort((bounds.upper.reshape(-1)[cells], bounds.upper.reshape(-1)[cells] == 0))
        examples = [cell_range(whole.domain, bounds, int(c)) for c in cells[order[:MAX_LISTED]]]
    return Linkage(
        held=tuple(str(part.bound) for part in parts),
        ranks=tuple(space.rank for space in spaces),
        rank=joint.rank,
        new_fixed=int(np.count_nonzero(fixed)),
        pinned=pinned,
        narrow=close,
        examples=tuple(examples),
    )


def audit_releases(*releases: Release, **options: Any) -> InvariantAudit:
    """Find out what the invariants of releases of one table give away together.

    Parameters
    ----------
    releases
        One release or several, of one domain and for one neighbour relation.
    options
        `narrow`, `smallest_group`, `programs` and `progress` of `audit_invariants`.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> table = sdp.Table([[30, 0], [10, 0]], domain)
    >>> first = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0)).release(table, seed=1)
    >>> second = sdp.design(domain, sdp.hold("sex"), sdp.PureDP(1.0)).release(table, seed=2)
    >>> audit_releases(first, second).linkage.pinned
    2
    """
    if not releases:
        raise InvariantError("Give at least one release.")
    designs = [release.mechanism for release in releases]
    helds = [mechanism.held.expression() for mechanism in designs]
    stack(helds, [mechanism.domain for mechanism in designs])
    relations = {mechanism.neighbours for mechanism in designs}
    if len(relations) > 1:
        raise InvariantError(
            "Releases for different neighbour relations cannot be audited together; restate them "
            "for one."
        )
    single = len(releases) == 1
    audit = audit_invariants(
        designs[0].domain,
        helds[0] if single else helds,
        releases[0].exact if single else [release.exact for release in releases],
        neighbours=designs[0].neighbours,
        budget=designs[0].budget if single else None,
        on_counts=designs[0].measures_counts,
        capped=any(mechanism.capped for mechanism in designs),
        inequalities=designs[0].problem.inequalities if single else None,
        **options,
    )
    kind = weakest([mechanism.guarantee.kind for mechanism in designs])
    loss = None if audit.loss is None else replace(audit.loss, kind=kind)
    return replace(audit, kind=kind, loss=loss)
