"""What held figures give away where margins are published and no table of cells is ever built.

Along axes that no held margin names nothing is held, so the cells by the other axes are all there
is to look at. Where even these are too many, each published margin is looked at by itself, with
what is held of its own axes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from subspacedp.disclosure import InvariantAudit, audit_invariants
from subspacedp.disclosure.moves import Loss, Move, move_loss, smallest_move, unseparated_sets
from subspacedp.disclosure.programs import Progress
from subspacedp.disclosure.ranges import SmallTotal, small_totals
from subspacedp.disclosure.values import published_invariants
from subspacedp.invariants import Held, HeldMargins, HeldValues
from subspacedp.privacy import Budget, Neighbours
from subspacedp.problem import Kind
from subspacedp.publication.accounts import named_domain, shared_domain, values_on
from subspacedp.tables import Domain, Margin

LARGEST_NAMED = 10**6  # cells by the axes that held margins name
LARGEST_MARGIN = 10**6  # cells of a published margin that is looked at by itself
MOST_MARGINS = 200
LISTED = 20
NARROW = SMALLEST = 2


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
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
            f"Held exact: {words} ({self.rank:,} independent figures of a table with "
            f"{_many(self.domain.size)} cells, which is never built)."
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
