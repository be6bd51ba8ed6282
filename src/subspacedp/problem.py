"""What is asked of a release, and which guarantee a release under invariants can have.

A problem is public, frozen and free of data: query, invariants, budget, neighbours, decimals and
contribution bound. How it is solved is a mechanism's affair; what was solved is stated again, word
for word, in every certificate.

| kind | holds when | means |
|---|---|---|
| plain | no neighbouring change can alter the held values c | ordinary differential privacy |
| S | f(noisy, c) = g(noisy) + C⁺c with g(noisy) in N | Π_N(release) is private |
| G | any f(noisy, c) with C·release = c | private given the published c |

plain ⇒ S ⇒ G. Proofs: docs/proofs/guarantees.md.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from subspacedp.arrays import ArrayLike
from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import (
    FreeContrasts,
    HeldMargins,
    HeldMatrix,
    Inequalities,
    bind,
    held_from,
)
from subspacedp.privacy import Budget, Neighbours, budget_from, neighbours_from
from subspacedp.queries import Query, query_from
from subspacedp.tables import Axis, Domain

__all__ = ["MAX_DECIMALS", "Coverage", "Guarantee", "Kind", "Problem", "kind_of"]

MAX_DECIMALS = 12
LONG_AXIS = 1 << 18  # labels of an axis beyond which its digest stands for it in keys

Kind = Literal["plain", "S", "G"]

NAMES: dict[Kind, str] = {
    "plain": "plain differential privacy",
    "S": "induced subspace differential privacy",
    "G": "differential privacy given the invariants",
}


@frozen(eq=False, kw_only=True, repr=False)
class Problem:
    """What will be published, what is held, and what is promised.

    Parameters
    ----------
    query, held
        What is asked, and the invariants bound to it.
    budget, neighbours
        What is promised, and for which change of the data.
    decimals
        None for real values; 0 or k decimals for controlled rounding.
    capped
        Whether held values count all records while noise protects a bounded table.
    inequalities
        What is publicly known of the counts, for the intervals of readers; no noise depends on it.
    """

    query: Query
    held: HeldMargins | HeldMatrix
    budget: Budget
    neighbours: Neighbours
    decimals: int | None = None
    capped: bool = False
    inequalities: Inequalities | None = None

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        if self.query.axes is None:
            raise ReleaseError("The answers of this query have no axes.")
        return self.query.axes

    @property
    def space(self) -> FreeContrasts:
        """What the invariants leave open: for all but workloads, their null space."""
        return self.held.space

    def as_dict(self) -> dict[str, Any]:
        """The problem as plain data, but for the query."""
        return {
            "held": self.held.as_list(),
            "budget": self.budget.as_dict(),
            "neighbours": self.neighbours.as_dict(),
            "decimals": self.decimals,
            **({} if self.inequalities is None else {"inequalities": self.inequalities.as_dict()}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None = None) -> Problem:
        """From plain data; `answers` is how many values there are, where that is known."""
        query = query_from(data["query"], answers)
        if answers is not None and query.size != answers:
            raise AlteredError(
                f"it is about {query.size:,} answers, and there are {answers:,} values."
            )
        decimals, capped = data["decimals"], data.get("capped", False)
        if decimals is not None and (
            type(decimals) is not int or not 0 <= decimals <= MAX_DECIMALS
        ):
            raise ReleaseError("its decimals are out of range.")
        if not isinstance(capped, bool):
            raise ReleaseError("`capped` must be true or absent.")
        held, inequalities = bind(held_from(data["held"], query), query), None
        if "inequalities" in data:
            inequalities = Inequalities.from_dict(data["inequalities"])
            inequalities.check(query, held, capped=capped)
        return cls(
            query=query,
            held=held,
            budget=budget_from(data["budget"]),
            neighbours=neighbours_from(data["neighbours"]),
            decimals=decimals,
            capped=capped,
            inequalities=inequalities,
        )

    def query_in_keys(self) -> dict[str, Any]:
        """The query as it is bound into keys: millions of labels are not spelled out."""
        query = self.query
        if query.is_histogram and query.axes is not None and max(query.shape) > LONG_AXIS:
            return {"kind": "cells", "axes": [_axis_digest(axis) for axis in query.axes.axes]}
        return query.identity()

    def __repr__(self) -> str:
        values = "real" if self.decimals is None else f"decimals={self.decimals}"
        return f"{self.query!r}, held: {self.held}, {self.budget}, {self.neighbours.name}, {values}"


def _axis_digest(axis: Axis) -> str:
    """SHA-256 of an axis with its labels and levels."""
    out = hashlib.sha256(json.dumps([axis.name, axis.from_data]).encode())
    labels = axis.labels
    out.update((repr(labels) if isinstance(labels, range) else json.dumps(list(labels))).encode())
    for level in axis.named[1:]:
        out.update(json.dumps([level.name, list(level.labels)]).encode())
        out.update(np.ascontiguousarray(level.codes, "<i8").data)
    return out.hexdigest()


@frozen(kw_only=True)
class Coverage:
    """How much of one linear question is protected.

    `share_exposed` is |Π_R w|²/|w|²: 0 for a question the held values say nothing about, 1 for a
    question that they answer.
    """

    share_exposed: float
    kind: Kind

    @property
    def sense(self) -> str:
        """In which sense what is not exposed is protected."""
        return {
            "plain": "by ordinary differential privacy",
            "S": "by differential privacy over all neighbours",
            "G": "given the held values, and only given them",
        }[self.kind]

    def __str__(self) -> str:
        if self.kind == "plain":
            return "Protected: the held values cannot be changed by any one person."
        if self.share_exposed == 1.0:
            return "Exposed: the invariants fix the answer; it is published exactly."
        if self.share_exposed == 0.0:
            return f"Protected {self.sense}."
        return (
            f"Part of each: {self.share_exposed:.1%} of the question (by squared weight) lies in "
            f"what the invariants publish exactly; the rest is protected {self.sense}."
        )


@frozen(eq=False, kw_only=True, repr=False)
class Guarantee:
    """What a release promises: a kind, a budget, a neighbour relation, and a subspace.

    `str()` is a paragraph for a review board; `covers(w)` answers for one question.
    """

    kind: Kind
    budget: Budget
    neighbours: Neighbours
    space: FreeContrasts
    from_data_axes: tuple[str, ...] = ()
    capped: bool = False
    because: str = "published values are rounded to add up"  # G holds and S does not
    entries: tuple[int, int] | None = None  # their range, where persons have entries of their own

    @property
    def name(self) -> str:
        """The guarantee's name in words."""
        return NAMES[self.kind]

    @property
    def change(self) -> str:
        """How neighbouring data differ, in words."""
        if self.entries is not None:
            lower, upper = self.entries
            m = self.neighbours.records
            which = "entry, which becomes" if m == 1 else f"entries (at most {m:,}), which become"
            return f"one person's own {which} any other whole number from {lower} to {upper}"
        return self.neighbours.when_capped() if self.capped else str(self.neighbours)

    def covers(self, weights: ArrayLike) -> Coverage:
        """Whether the question Σ wᵢ·cellᵢ is protected, exposed, or part of each."""
        return Coverage(share_exposed=self.space.share_exposed(weights), kind=self.kind)

    def __str__(self) -> str:
        return textwrap.fill(" ".join(self.sentences()), 100, break_long_words=False)

    def sentences(self) -> list[str]:
        """The paragraph, sentence by sentence."""
        n, rank = self.space.size, self.space.rank
        budget, change = str(self.budget), self.change
        figures = "figure" if rank == 1 else "figures"
        opening = (
            f"The release has {self.name} with {budget}, where neighbouring data differ by "
            f"{change}."
        )
        if rank == 0:
            return [opening, f"Nothing is held exact: all {n:,} dimensions are protected."]
        held = (
            f"Held exact, and so published without any protection: {self.space.held} "
            f"({rank:,} independent {figures} of {n:,})."
        )
        if self.kind == "plain":
            return [
                opening,
                held.replace("and so published without any protection", "and published"),
                "No neighbouring change can alter these figures, so holding them costs nothing: "
                "the guarantee is ordinary differential privacy of the whole release.",
            ]
        protected = self.space.dimension
        if self.kind == "S":
            return [
                opening,
                held,
                f"In the remaining {protected:,} dimensions, those orthogonal to the held "
                "figures, the release is differentially private over all neighbours, those that "
                "change a held figure included.",
                "A question that mixes the two is protected in its orthogonal part only.",
            ]
        return [
            opening,
            held,
            "Beyond these figures the release tells only what a differentially private output "
            f"tells: {protected:,} dimensions are protected given the held figures.",
            f"It does not claim more: because {self.because}, even figures orthogonal to the held "
            "ones are protected only given the held ones.",
        ]

    def not_protected(self) -> list[str]:
        """What the guarantee does not cover, one sentence each."""
        out = []
        if self.space.rank and self.kind != "plain":
            out.append(
                f"The held figures ({self.space.held}) are published exactly and are not "
                "protected, nor is anything that follows from them."
            )
            out.append(
                "Held figures of several releases add up: what they determine together is not "
                "protected either."
            )
        n = self.neighbours
        records = f"{n.records} record{'s' if n.records > 1 else ''}"
        cell = f"{n.per_cell} in one cell" if n.per_cell else ""
        if self.entries is not None:
            entries = "1 entry" if n.records == 1 else f"{n.records:,} entries"
            out.append(
                f"The budget is one person's own, for {entries}; a person with more is not "
                "protected at this budget. Who has an entry is public."
            )
        elif self.capped:
            held = (
                "; the held figures count all records, and the others are those of the bounded "
                "table, moved to agree with them"
            )
            out.append(
                f"At most {records} per person{f', and {cell},' if cell else ''} "
                f"{'take' if n.records > 1 else 'takes'} part in what noise protects"
                f"{held if self.space.rank else ''}."
            )
        else:
            out.append(
                f"A person with more than {records} in the table"
                f"{f', or more than {cell},' if cell else ''} is not protected at this budget."
            )
        out.extend(
            f"The labels of axis `{name}` were read off the data: that a label occurs is not "
            "protected."
            for name in self.from_data_axes
        )
        return out

    def __repr__(self) -> str:
        return f"Guarantee({self.kind!r}, {self.budget}, {self.neighbours.name})"


def kind_of(*, fixed: bool, rounded: bool) -> Kind:
    """The strongest guarantee that measure-then-reconstruct has.

    Parameters
    ----------
    fixed
        Whether no neighbouring change can alter a held value: then c adds nothing to the
        measurement, and the guarantee is plain.
    rounded
        Whether values are rounded to add up, which ties Π_N(release) to c: G. A real-valued
        reconstruction is g(noisy) + C⁺c, and so is one whose values need no rounding: S.
    """
    return "plain" if fixed else "G" if rounded else "S"
