"""A table of people who do not exist, before and after noise: what readers will see.

Nothing of the data enters. The people are drawn from public labels with a fixed seed, so a change
of the design is seen on the same people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.publication.planning import PlannedRelease, error_line
from subspacedp.publication.releases import MarginsRelease, ReleaseSpecification
from subspacedp.tables import Domain, Margin, MarginTables, Table

SEED = 1
MOST_PERSONS = 200_000
MOST_FIGURES = 500_000  # of a release that is simulated
PER_FIGURE = 40  # persons for each figure that is shown, where the specification says no number
MOST_ROWS = 12  # of the table
MOST_TILES = 20  # of the grid, each way
SKEW = 0.8  # of the shares of labels: the k-th has one in proportion to k^−SKEW

Names = tuple[str, ...]


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
    if mechanism.query.size > MOST_FIGURES:
        raise ReleaseError(
            f"Invented people are shown for at most {MOST_FIGURES:,} figures; this publishes "
            f"{mechanism.query.size:,}."
        )
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


def _tiles(before: npt.NDArray[Any], after: npt.NDArray[Any], columns: int) -> dict[str, Any]:
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


def _people(domain: Domain, number: int) -> npt.NDArray[np.int64]:
    """By axis and person: which label. The shares of labels are of unequal size, as in life."""
    generator = np.random.default_rng(SEED)
    out = np.empty((len(domain.axes), number), np.int64)
    for a, axis in enumerate(domain.axes):
        share = generator.permutation(np.arange(1, len(axis) + 1, dtype=np.float64) ** -SKEW)
        out[a] = generator.choice(len(axis), size=number, p=share / share.sum())
    return out


def _count(margin: Margin, people: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
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
    wanted: ReleaseSpecification, domain: Domain, people: npt.NDArray[np.int64]
) -> Table | MarginTables:
    """What a release of invented people needs: their table, or the margins that are measured."""
    if isinstance(wanted, MarginsRelease):
        names = [*wanted.counted_margins(domain), *wanted.held.margins]
        margins = {domain.margin(*each) for each in names}
        return MarginTables(domain, {m: _count(m, people) for m in margins})
    full = domain.margin(*(axis.name for axis in domain.axes))
    return Table(_count(full, people), domain)
