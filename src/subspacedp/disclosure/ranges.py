"""Cells and held totals that the invariants pin or leave little room, as plain findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.disclosure.bounds import UNBOUNDED, CellBounds, closed_form, shuttle
from subspacedp.disclosure.programs import Programs, Progress, first_bounds, program_bounds, walk_of
from subspacedp.disclosure.values import PublishedInvariants
from subspacedp.tables import Domain, Label


@dataclass(frozen=True, kw_only=True)
class CellRange:
    """One cell and the counts that are possible there; `upper` is None where nothing bounds it."""

    labels: tuple[Label, ...]
    lower: int
    upper: int | None
    sharp: bool

    @property
    def pinned(self) -> bool:
        """Whether one count only is possible."""
        return self.lower == self.upper

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "labels": list(self.labels),
            "lower": self.lower,
            "upper": self.upper,
            "pinned": self.pinned,
            "sharp": self.sharp,
        }

    def __str__(self) -> str:
        name = " × ".join(map(str, self.labels))
        if self.pinned:
            return f"{name}: exactly {self.lower:,}"
        if self.upper is None:
            return f"{name}: {self.lower:,} or more"
        return f"{name}: {self.lower:,} to {self.upper:,}"


@dataclass(frozen=True, kw_only=True)
class SmallTotal:
    """A held total so small that it says much about the few people it counts."""

    margin: str
    labels: tuple[str, ...]
    total: int
    cells: int

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "margin": self.margin,
            "labels": list(self.labels),
            "total": self.total,
            "cells": self.cells,
        }

    def __str__(self) -> str:
        name = " × ".join(self.labels) or "all"
        below = "its one cell" if self.cells == 1 else f"each of its {self.cells:,} cells"
        if self.total == 0:
            return f"{name}: nobody, so {below} is 0"
        who = "1 person" if self.total == 1 else f"{self.total} people"
        if self.cells == 1:
            return f"{name}: {who}, published as the count of a cell"
        return f"{name}: {who}, in {self.cells:,} cells"


def cell_bounds(
    part: PublishedInvariants, *, narrow: int, programs: int, progress: Progress | None = None
) -> CellBounds:
    """The range of every cell: closed forms where they are sharp, linear programs otherwise."""
    if part.bound.family is not None:
        bounds = closed_form(part.domain, part.totals())
        if bounds is not None:
            return bounds
    flat = program_bounds(programs_of(part), narrow=narrow, most=programs, progress=progress)
    shape = part.domain.shape
    return CellBounds(
        lower=flat.lower.reshape(shape),
        upper=flat.upper.reshape(shape),
        sharp=flat.sharp.reshape(shape),
        settled=flat.settled.reshape(shape),
        method=flat.method,
        programs=flat.programs,
    )


def programs_of(part: PublishedInvariants) -> Programs:
    """The linear programs of held values, with safe bounds to start from."""
    bound, totals = part.bound.as_matrix(), part.totals()
    if part.bound.family is not None:
        lower, upper = shuttle(part.domain, totals) if totals else _nothing(part.domain)
        values = np.concatenate([np.zeros(0, np.int64), *(t.reshape(-1) for _, t in totals)])
        return Programs(
            matrix=bound.matrix,
            totals=values,
            lower=lower.reshape(-1),
            upper=upper.reshape(-1),
            walk=walk_of(part.domain, bound.margins),
        )
    values = np.asarray((part.values or (np.zeros(0, np.int64),))[0])
    low, high = first_bounds(bound.matrix, values)
    walk = None
    if part.totals() and not part.held.linear:  # margins around empty cells
        both = shuttle(part.domain, part.totals(), bound.empty)
        low, high = (side.reshape(-1) for side in both)
        margins = [margin for margin, _ in part.totals()]
        if not any(margin.grouped for margin in margins):
            walk = walk_of(part.domain, margins)
    return Programs(matrix=bound.matrix, totals=values, lower=low, upper=high, walk=walk)


def _nothing(domain: Domain) -> tuple[Int64Array, Int64Array]:
    return np.zeros(domain.shape, np.int64), np.full(domain.shape, UNBOUNDED)


def worst_cells(domain: Domain, bounds: CellBounds, narrow: int, number: int) -> list[CellRange]:
    """The narrowest cells, those with people before those known to be empty."""
    width, upper = bounds.width.reshape(-1), bounds.upper.reshape(-1)
    cells = np.flatnonzero(width <= narrow)
    order = np.lexsort((upper[cells], width[cells], upper[cells] == 0))
    return [cell_range(domain, bounds, int(cell)) for cell in cells[order[:number]]]


def cell_range(domain: Domain, bounds: CellBounds, cell: int) -> CellRange:
    """The range of one cell, by its number in row-major order."""
    place = tuple(int(i) for i in np.unravel_index(cell, domain.shape))
    upper = int(bounds.upper[place])
    return CellRange(
        labels=domain.label(place),
        lower=int(bounds.lower[place]),
        upper=None if upper == UNBOUNDED else upper,
        sharp=bool(bounds.sharp[place]),
    )


def small_totals(
    parts: Sequence[PublishedInvariants], most: int, number: int
) -> tuple[int, list[SmallTotal]]:
    """How many held totals are at most `most`, and the first of them: people before nobody."""
    smallest: dict[tuple[str, tuple[str, ...]], SmallTotal] = {}
    count, seen = 0, set()
    for part in parts:
        for margin, total in part.totals():
            if margin.steps in seen:
                continue
            seen.add(margin.steps)
            flat, sizes = total.reshape(-1), margin.sizes.reshape(-1)
            groups = np.flatnonzero((flat <= most) & (sizes > 0))
            count += groups.size
            first = groups[np.lexsort((-sizes[groups], flat[groups], flat[groups] == 0))[:number]]
            for g in first.tolist():
                labels = tuple(
                    str(level.labels[i])
                    for level, i in zip(
                        margin.levels, np.unravel_index(g, margin.shape), strict=True
                    )
                    if level.name
                )
                name = " × ".join(margin.names) or "grand total"
                smallest[name, labels] = SmallTotal(
                    margin=name, labels=labels, total=int(flat[g]), cells=int(sizes[g])
                )
    ordered = sorted(smallest.values(), key=lambda s: (s.total == 0, s.total, -s.cells))
    return count, ordered[:number]
