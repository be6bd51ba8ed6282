"""What a page shows of a design, part by part: the functions of `plan` and `audit`, as plain data.

No data are opened here. Parts come in the order in which a person looks at them, so that each can
be shown before the next is begun, and a newer change can take its place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.privacy import Budget
from subspacedp.publication.advice import advise
from subspacedp.publication.auditing import audit
from subspacedp.publication.code_lists import read_rows
from subspacedp.publication.faults import in_yaml
from subspacedp.publication.planning import Plan, PlannedRelease, error_line, plan
from subspacedp.publication.reading import load_yaml
from subspacedp.publication.releases import (
    MarginsRelease,
    ReleaseSpecification,
    public_domain,
    releases_of,
)
from subspacedp.publication.specification import Specification, read_specification
from subspacedp.report.words import kind_words, person_words
from subspacedp.tables import Axis, Domain, Margin, MarginTables, Table

FEW_LABELS = 12  # of an axis, that are listed
Part = tuple[str, Any]

# Invented people
SEED = 1
MOST_PERSONS = 200_000
MOST_FIGURES = 500_000  # of a release that is simulated
PER_FIGURE = 40  # persons for each figure that is shown, where the specification says no number
MOST_ROWS = 12  # of the table
MOST_TILES = 20  # of the grid, each way
SKEW = 0.8  # of the shares of labels: the k-th has one in proportion to k^−SKEW

Names = tuple[str, ...]

EXAMPLE = """
data: {source: none.csv, unit: row}
axes: {a: {labels: [1, 2, 3], levels: {b: {x: [1, 2], y: [3]}}}, c: {labels: [1, 2]}}
hold: [[b]]
privacy: {PRIVACY}
publish: {decimals: 0, margins: [[a], [b, c]]}
"""


@frozen(kw_only=True)
class Asked:
    """A design to be looked at: its text, and which invented table is to be shown."""

    text: str
    folder: str
    table: str | None = None
    margin: tuple[str, ...] | None = None


def parts(asked: Asked) -> Iterator[Part]:
    """All that a page shows of a design: sizes, errors, then advice, structure and an example."""
    start = time.perf_counter()
    read = read_specification(load_yaml(asked.text), folder=Path(asked.folder))
    yield "axes", _axes(read)
    planned = plan(read)
    yield "plan", {**planned_view(planned), "seconds": time.perf_counter() - start}
    yield "rest", None
    advice: list[dict[str, Any]] = []
    for one in advise(planned):
        advice.append({**one.as_dict(), "words": str(one.change) if one.change else ""})
        yield "advice", {"list": list(advice), "whole": False}
    yield "advice", {"list": advice, "whole": True}
    yield "invented", _invented(planned, asked)
    yield "structure", _structure(read)


def planned_view(planned: Plan) -> dict[str, Any]:
    """A plan, as `subspacedp plan --json` prints it, with words that a page has beside."""
    read = planned.specification
    counts = {one.name for one in releases_of(read) if one.counts}
    return {
        "releases": [
            {**_release_view(release), "counts": release.name in counts}
            for release in planned.releases
        ],
        "waiting": list(planned.waiting),
        "worst": max(
            (
                line.margin_of_error[1]
                for r in planned.releases
                if r.name in counts
                for line in r.lines
            ),
            default=0.0,
        ),
        "budget": _budget_words(planned),
        "account": None if read.document.budget is None else read.document.budget.account,
        "target": str(read.target),
        "source": str(read.source),
    }


def _budget_words(planned: Plan) -> str:
    privacy = planned.specification.document.privacy
    if privacy.least is None:
        return _short(privacy.budget)
    return " and ".join(_short(release.design.mechanism.budget) for release in planned.releases)


def _short(budget: Budget) -> str:
    """A budget without the name of its kind, which the promise states."""
    return str(budget).partition(" (")[0]


def _release_view(release: PlannedRelease) -> dict[str, Any]:
    mechanism, guarantee = release.design.mechanism, release.design.guarantee
    return {
        **release.as_dict(),
        "budget_words": _short(mechanism.budget),
        "guarantee_name": guarantee.name,
        "kind_words": kind_words(guarantee.kind),
        "protects": person_words(guarantee.neighbours, capped=guarantee.capped),
        "how": list(release.how()),
        "rank": mechanism.space.rank,
    }


def _axes(read: Specification) -> dict[str, Any]:
    """By table: every axis with its sizes, as its domain states it."""
    out: dict[str, Any] = {}
    for table in read.tables:
        domain = public_domain(table)
        axes = () if domain is None else domain.axes
        out[table.name if table.place else ""] = {
            "axes": {axis.name: {**_axis(axis), "columns": _columns(read, axis)} for axis in axes},
            "cells": None if domain is None else domain.size,
        }
    return out


def _columns(read: Specification, axis: Axis) -> list[str]:
    """The columns of a code list that can be levels or groupings, those of most groups first."""
    entry = read.document.axes[axis.name]
    if entry.code_list is None:
        return []
    header, rows = read_rows(read.folder / entry.code_list, "code list")
    labels = axis.name if axis.name in header else header[0]
    groups = {
        column: len({row[at] for _, row in rows})
        for at, column in enumerate(header)
        if column not in (labels, entry.names)
    }
    return sorted(groups, key=lambda column: -groups[column])


def _axis(axis: Axis) -> dict[str, Any]:
    return {
        "labels": len(axis),
        "some": [str(label) for label in axis.labels[:FEW_LABELS]],
        "levels": {level.name: level.groups for level in axis.named},
    }


def _invented(planned: Plan, asked: Asked) -> dict[str, Any] | None:
    """An example of the release that is asked for, or of the first; None for very large ones."""
    wanted = [one for one in releases_of(planned.specification) if one.counts]
    by_name = {release.name: release for release in planned.releases}
    known = [one for one in wanted if one.name in by_name]
    chosen = next((one for one in known if one.name == asked.table), known[0] if known else None)
    if chosen is None:
        return None
    domain = public_domain(chosen.table)
    release = by_name[chosen.name]
    if domain is None or release.design.mechanism.query.size > MOST_FIGURES:
        return None
    try:
        shown = simulated(chosen, domain, release, asked.margin)
    except SubspaceDPError:
        return None  # the design stands, though no example of it can be made
    return {
        **shown,
        "release": chosen.name,
        "releases": [one.name for one in known],
        "budget": _short(release.design.mechanism.budget),
    }


def _structure(read: Specification) -> dict[str, str]:
    """What the held figures give away by themselves, whatever their values are."""
    if not any(table.hold for table in read.tables) or any(t.from_data for t in read.tables):
        return {}
    return {name: in_yaml(str(one)) for name, one in audit(read, structure=True).items()}


# A table of people who do not exist, before and after noise: what readers will see. Nothing of the
# data enters. The people are drawn from public labels with a fixed seed, so a change of the design
# is seen on the same people.


def simulated(
    wanted: ReleaseSpecification,
    domain: Domain,
    planned: PlannedRelease,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """One published table of invented people, before and after noise at this budget.

    `names` is the margin to show; a published one with noise, of readable size, if not given.
    """
    mechanism = planned.design.mechanism
    shown = _chosen(wanted, domain, names)
    margin = domain.margin(*shown)
    persons = wanted.specification.document.persons or PER_FIGURE * max(
        100, math.prod(margin.shape)
    )
    codes = _people(domain, min(persons, MOST_PERSONS))
    data = _counted(wanted, domain, codes)
    release = planned.design.release(data, everything=data if mechanism.capped else None, seed=SEED)
    before = np.asarray(_count(margin, codes)).reshape(-1)
    after = np.asarray(release.margin(*shown).value, np.float64).reshape(-1)
    line = error_line("", planned.design.margin_accuracy(*shown))
    levels = [level for level in margin.levels if level.name]
    labels = [list(map(str, level.labels)) for level in levels] or [["everybody"]]
    shape = [len(each) for each in labels]
    rows = [
        {
            "labels": [labels[a][i] for a, i in enumerate(np.unravel_index(number, shape))],
            "before": int(before[number]),
            "after": float(after[number]),
        }
        for number in range(min(MOST_ROWS, len(before)))
    ]
    columns = shape[-1] if len(shape) > 1 else math.ceil(math.sqrt(len(before)))
    tiles = _tiles(before, after, columns)
    return {
        "names": list(shown),
        "choices": [list(one) for one in _choices(wanted)],
        "persons": int(codes.shape[1]),
        "figures": len(before),
        "margin_of_error": line.margin_of_error[1],
        "exact": line.fixed == line.figures,
        "axes": [level.name for level in levels],
        "rows": rows,
        "whole": mechanism.decimals == 0,
        "tiles": tiles,
        "most": max(1.0, float(before.max(initial=0)), float(after.max(initial=0))),
    }


def _tiles(before: AnyArray, after: AnyArray, columns: int) -> dict[str, Any]:
    """The first figures as a grid: what is true, and what is published."""
    wide = min(columns, MOST_TILES)
    number = min(math.ceil(len(before) / columns), MOST_TILES)
    places = [r * columns + c for r in range(number) for c in range(wide)]
    places = [p for p in places if p < len(before)]
    return {
        "columns": wide,
        "rows": number,
        "before": [float(before[p]) for p in places],
        "after": [float(after[p]) for p in places],
        "cut": wide < columns or number < math.ceil(len(before) / columns),
    }


def _choices(wanted: ReleaseSpecification) -> list[Names]:
    """The tables that are published: the cells, then the margins."""
    cells: list[Names] = [tuple(wanted.table.axes)] if wanted.cells else []
    return list(dict.fromkeys([*cells, *wanted.margins]))


def _chosen(wanted: ReleaseSpecification, domain: Domain, names: Sequence[str] | None) -> Names:
    choices = _choices(wanted)
    if names is not None and tuple(names) in choices:
        return tuple(names)
    sizes = {one: math.prod(domain.margin(*one).shape) for one in choices}
    held = {frozenset(one) for one in wanted.held.margins}
    readable = [one for one in choices if sizes[one] <= MOST_TILES**2] or choices[:1]
    readable = [one for one in readable if frozenset(one) not in held] or readable
    return max(readable, key=lambda one: sizes[one])


def _people(domain: Domain, number: int) -> Int64Array:
    """By axis and person: which label. The shares of labels are of unequal size, as in life."""
    generator = np.random.default_rng(SEED)
    out = np.empty((len(domain.axes), number), np.int64)
    for a, axis in enumerate(domain.axes):
        share = generator.permutation(np.arange(1, len(axis) + 1, dtype=np.float64) ** -SKEW)
        out[a] = generator.choice(len(axis), size=number, p=share / share.sum())
    return out


def _count(margin: Margin, people: Int64Array) -> AnyArray:
    """How many invented people are in every group of a margin."""
    shape = margin.shape
    cell = np.zeros(people.shape[1], np.int64)
    grouped = np.ones(people.shape[1], bool)  # some labels are in no group of a grouping
    for a, level in enumerate(margin.levels):
        group = np.asarray(level.codes)[people[a]]
        grouped &= (group >= 0) & (group < shape[a])
        cell = cell * shape[a] + group
    return np.bincount(cell[grouped], minlength=math.prod(shape)).reshape(shape)


def _counted(
    wanted: ReleaseSpecification, domain: Domain, people: Int64Array
) -> Table | MarginTables:
    """What a release of invented people needs: their table, or the margins that are measured."""
    if isinstance(wanted, MarginsRelease):
        names = [*wanted.counted_margins(domain), *wanted.held.margins]
        margins = {domain.margin(*each) for each in names}
        return MarginTables(domain, {m: _count(m, people) for m in margins})
    full = domain.margin(*(axis.name for axis in domain.axes))
    return Table(_count(full, people), domain)


def warm_up() -> None:
    """Load and compile what the first design needs, before anybody waits for it."""
    for privacy in ("epsilon: 1", "rho: 0.5"):
        for _ in parts(Asked(text=EXAMPLE.replace("PRIVACY", privacy), folder=".")):
            pass
