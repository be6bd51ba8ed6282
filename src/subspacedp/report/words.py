"""What a release is and promises, in plain words for a review board and for data users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from subspacedp.mechanisms.base import Mechanism
from subspacedp.privacy import Neighbours
from subspacedp.problem import Guarantee, Kind
from subspacedp.queries import Cells, ClippedSums, Margins, Query
from subspacedp.queries.margins import block_name
from subspacedp.release import Release

__all__ = [
    "Fact",
    "axes_words",
    "facts",
    "figure_words",
    "kind_words",
    "person_words",
    "plain_noun",
]

LISTED = 6  # margins in the headline, and axes in a title

KINDS: dict[Kind, str] = {
    "plain": (
        "No one person can change any figure that is held exact, so the whole release is protected "
        "in the ordinary sense of differential privacy."
    ),
    "S": (
        "Everything but the held figures is protected, also against changes that would alter a "
        "held figure. A question that the held figures answer in part is protected in the other "
        "part only."
    ),
    "G": (
        "Whoever knows the held figures learns from the rest of the release only what a "
        "differentially private output tells. Nothing is promised about the held figures "
        "themselves, nor about what follows from them."
    ),
}


@dataclass(frozen=True)
class Fact:
    """One line of the headline: a short answer, and what it means."""

    name: str
    answer: str
    meaning: str


def facts(release: Release, typical: str | None) -> list[Fact]:
    """What is published, what is held, the budget, who is protected, and the typical error."""
    guarantee = release.guarantee
    return [
        Fact("Published", _published(release), _axes(release)),
        Fact("Held exactly", _held(release), _held_means(release)),
        Fact("Privacy budget", str(guarantee.budget), _spent(guarantee)),
        Fact(
            "Who is protected",
            person_words(guarantee.neighbours, capped=guarantee.capped),
            _change(guarantee),
        ),
        Fact("Typical error", *_typical(typical, plain_noun(release.mechanism.query))),
    ]


def axes_words(names: Sequence[str]) -> str:
    """Axes in a title; not more than anybody reads."""
    return " × ".join(names[:LISTED]) + (" and others" if len(names) > LISTED else "")


def kind_words(kind: Kind) -> str:
    """What the kind of guarantee means."""
    return KINDS[kind]


def figure_words(mechanism: Mechanism) -> str:
    """What every figure is apart from its noise; what it is unbiased for."""
    words = _asked(mechanism.query)
    if mechanism.capped:
        words += f"; {_counted(mechanism.neighbours, 'each person')}"
        if mechanism.space.rank:
            words += (
                ", and it is moved to agree with the figures published exactly, which count all "
                "records"
            )
    return words


@singledispatch
def _asked(query: Query) -> str:
    return "answer to a question"


@_asked.register
def _(query: Cells) -> str:
    return "number of records in a cell"


@_asked.register
def _(query: Margins) -> str:
    return "number of records in a group of a margin"


@_asked.register
def _(query: ClippedSums) -> str:
    return f"sum of `{query.value}`, {_clipped(query)}"


def _clipped(query: ClippedSums) -> str:
    lower, upper, unit = (f"{x:,.15g}" for x in (query.lower, query.upper, query.unit))
    smaller = f" and smaller ones as {lower}" if query.lower != 0 else ""
    return (
        f"each value moved into {lower} to {upper} and rounded to {unit}; larger values count as "
        f"{upper}{smaller}, so it is biased for the plain sum"
    )


def _counted(neighbours: Neighbours, whose: str) -> str:
    cell = f", at most {neighbours.per_cell} of them in one cell" if neighbours.per_cell else ""
    if neighbours.records == 1:
        return f"at most 1 record of {whose} counts"
    return f"at most {neighbours.records:,} records of {whose} count{cell}"


def person_words(neighbours: Neighbours, *, capped: bool = False) -> str:
    """Whom the guarantee is about."""
    if capped:
        return f"Every person; {_counted(neighbours, 'each')}"
    if neighbours.records == 1:
        return "Every person with at most one record"
    cap = f", at most {neighbours.per_cell} of them in one cell" if neighbours.per_cell else ""
    return f"Every person with at most {neighbours.records:,} records{cap}"


def _typical(error: str | None, noun: str) -> tuple[str, str]:
    if error is None:
        return (
            "Not declared",
            "The noise is another mechanism's, which does not state its variance.",
        )
    return f"± {error}", f"The standard error of half of the {noun}s is at most this."


def plain_noun(query: Query) -> str:
    """What one number of a release is called in running text."""
    return "cell" if query.workload is None else "figure"


def _spent(guarantee: Guarantee) -> str:
    words = f"{guarantee.budget.meaning()} Smaller is more private."
    return words if guarantee.kind == "plain" else f"For what is not held exact. {words}"


def _published(release: Release) -> str:
    size = release.mechanism.query.size
    noun = _noun(release.mechanism.query)
    return f"{size:,} {noun}{'s' if size != 1 else ''}"


@singledispatch
def _noun(query: Query) -> str:
    return "cell" if query.axes is not None else "answer"


@_noun.register
def _(query: ClippedSums) -> str:
    return "sum"


@_noun.register
def _(query: Margins) -> str:
    return "figure"


@singledispatch
def _table(query: Query, axes: str) -> str:
    return f"A table by {axes}."


@_table.register
def _(query: Margins, axes: str) -> str:
    names = [block_name(margin) for margin in query.margins]
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    margins = f"The margin{'s' if len(names) > 1 else ''} {'; '.join(names[:LISTED])}{more}"
    return f"{margins}. A table of all cells is not published, and was never built. Axes: {axes}."


@_table.register
def _(query: ClippedSums, axes: str) -> str:
    return f"Sums of `{query.value}` by {axes}: {_clipped(query)}."


def _axes(release: Release) -> str:
    domain = release.mechanism.query.axes
    if domain is None:
        return "The answers to a list of questions, one number each."
    parts = []
    used = release.mechanism.query.level_names
    for axis in domain.axes:
        if not used & {level.name for level in axis.chain}:
            continue
        coarser = ", ".join(f"{level.name} ({level.groups:,})" for level in axis.chain[1:])
        tail = f", grouped by {coarser}" if coarser else ""
        parts.append(f"{axis.name} ({len(axis):,} labels{tail})")
    return _table(release.mechanism.query, " × ".join(parts))


def _held(release: Release) -> str:
    rank = release.mechanism.space.rank
    if not rank:
        return "Nothing"
    return f"{rank:,} figure{'s' if rank != 1 else ''}"


def _held_means(release: Release) -> str:
    if not release.mechanism.space.rank:
        return "Every figure has noise."
    words = str(release.mechanism.held)
    return f"{words[:1].upper()}{words[1:]}: exact, without noise."


def _change(guarantee: Guarantee) -> str:
    return f"Neighbouring data differ by {guarantee.change}; the budget bounds what that changes."
