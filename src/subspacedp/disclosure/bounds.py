"""What held totals and non-negativity say of every cell, and which they leave little room.

Levels of one axis count as variables of their own (county, state), of which a margin keeps all
those from its level up. Where the held margins can be taken off one after another, each meeting the
rest in a margin that one of the others determines (a junction tree), the sharp bounds are

    min over margins of n_m  ≥  cell  ≥  max(0, Σ n_m − Σ n_s),

s the separators. Otherwise bounds are passed on from margin to margin until nothing changes (the
shuttle), which is safe but not always sharp. Proofs: docs/proofs/disclosure.md.

Where no closed form is known, bounds are linear programs. Every solution that is whole is a table
with the held values, and says of *all* its cells that they can be so. From it the moves of
docs/proofs/disclosure.md (products of differences on a few axes) lead to others: tried at random
for all cells at once, they spare most cells a linear program. What is found is certain; what is not
found means nothing. A cell needs no program of its own once two such tables differ there by more
than what counts as narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from subspacedp.disclosure.coverage import PublishedInvariants
from subspacedp.disclosure.moves import random_corners, unseparated_sets
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants import Limits
from subspacedp.tables import Domain, Label, Margin

if TYPE_CHECKING:
    from scipy.sparse import csr_array


Totals = Sequence[tuple[Margin, Int64Array]]

UNBOUNDED = int(np.iinfo(np.int64).max)
MAX_SHUTTLE_ROUNDS = 50


@frozen(eq=False, kw_only=True, repr=False)
class CellBounds:
    """The range of every cell over all tables of counts with the held values.

    Guarantees
    ----------
    1. Every such table has `lower` ≤ cell ≤ `upper`; `UNBOUNDED` where nothing bounds a cell.
    2. Where `sharp`, both limits are attained by such a table of whole numbers.
    3. Where `settled`, the range is sharp, or tables were found that differ there by more than
       what counts as narrow.
    """

    lower: Int64Array
    upper: Int64Array
    sharp: BoolArray
    settled: BoolArray
    method: str
    programs: int = 0

    @property
    def width(self) -> Int64Array:
        """Upper minus lower."""
        return np.where(self.upper == UNBOUNDED, UNBOUNDED, self.upper - self.lower)

    @property
    def pinned(self) -> BoolArray:
        """The cells that can have one count only."""
        return np.asarray(self.lower == self.upper)

    @property
    def open(self) -> int:
        """The number of cells that nothing is known about beyond safe bounds."""
        return int(np.count_nonzero(~self.settled))

    def within(self, limits: Limits) -> CellBounds:
        """The ranges of the tables that keep further limits too; sharp where one count is left."""
        finite = np.isfinite(limits.upper)
        upper = np.where(finite, limits.upper, 0).astype(np.int64)
        lower = np.maximum(self.lower, limits.lower.astype(np.int64))
        upper = np.where(finite, np.minimum(self.upper, upper), self.upper)
        return replace(self, lower=lower, upper=upper, sharp=np.asarray(lower == upper))

    def __repr__(self) -> str:
        return f"CellBounds({self.lower.size:,} cells, {int(self.pinned.sum()):,} pinned)"


def finest_steps(margin: Margin) -> tuple[int, ...]:
    """On every axis the finest step with the same groups: levels may differ in name only."""
    out = []
    for axis, step in zip(margin.axes, margin.steps, strict=True):
        groups = axis.step(step).nonempty
        out.append(next(s for s in range(step + 1) if axis.step(s).nonempty == groups))
    return tuple(out)


def essential(margins: Sequence[Margin]) -> list[Margin]:
    """The margins that no other one determines; of two with the same groups the first."""
    kept: list[Margin] = []
    steps = [finest_steps(m) for m in margins]
    for i, m in enumerate(margins):
        implied = any(
            _finer(other, steps[i]) and (other != steps[i] or j < i)
            for j, other in enumerate(steps)
            if j != i
        )
        if not implied:
            kept.append(m)
    return kept


def junction(margins: Sequence[Margin]) -> list[tuple[Margin, Margin | None]] | None:
    """The margins with their separators in an order that takes them off one by one.

    Returns None when there is none: the family is not decomposable. The last one has no separator.
    """
    rest = essential(margins)
    out: list[tuple[Margin, Margin | None]] = []
    while len(rest) > 1:
        ear = next(((m, s) for m in rest if (s := _separator(m, rest)) is not None), None)
        if ear is None:
            return None
        out.append(ear)
        rest = [m for m in rest if m is not ear[0]]
    return [*out, *((m, None) for m in rest)]


def _separator(margin: Margin, family: Sequence[Margin]) -> Margin | None:
    """What the margin shares with all others, if one of them shares as much; else None."""
    steps = finest_steps(margin)
    others = [finest_steps(m) for m in family if m is not margin]
    shared = _coarser(steps, tuple(map(min, zip(*others, strict=True))))
    if not any(_coarser(steps, other) == shared for other in others):
        return None
    return Margin(margin.axes, _coarser(margin.steps, shared))


def _coarser(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(s, t) for s, t in zip(a, b, strict=True))


def _finer(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(s <= t for s, t in zip(a, b, strict=True))


def unknown(domain: Domain) -> CellBounds:
    """Nothing is held: every count is possible."""
    return CellBounds(
        lower=np.zeros(domain.shape, np.int64),
        upper=np.full(domain.shape, UNBOUNDED),
        sharp=np.ones(domain.shape, bool),
        settled=np.ones(domain.shape, bool),
        method="nothing is held",
    )


def closed_form(domain: Domain, totals: Totals) -> CellBounds | None:
    """Sharp bounds of all cells where the held margins are decomposable; else None."""
    if not totals:
        return unknown(domain)
    order = junction([m for m, _ in totals])
    if order is None:
        return None
    of = {m.steps: t for m, t in totals}
    upper = upper_bound(domain, totals)
    excess = np.zeros(domain.shape, np.int64)
    for margin, separator in order:
        excess += margin.spread(of[margin.steps])
        if separator is not None:
            excess -= separator.spread(margin.coarsen(of[margin.steps], separator))
    steps = tuple(map(min, zip(*(finest_steps(m) for m, _ in order), strict=True)))
    join = Margin(tuple(domain.axes), steps)
    alone = np.broadcast_to(join.spread(join.sizes) == 1, domain.shape)
    # A group of several cells can keep all its people in the others.
    lower = np.where(alone, np.maximum(excess, 0), 0)
    yes = np.ones(domain.shape, bool)
    one = len(order) == 1
    return CellBounds(
        lower=lower,
        upper=upper,
        sharp=yes,
        settled=yes,
        method="one held margin" if one else "closed form (decomposable margins)",
    )


def upper_bound(domain: Domain, totals: Totals) -> Int64Array:
    """The smallest held total above every cell."""
    out = np.full(domain.shape, UNBOUNDED)
    for margin, total in totals:
        np.minimum(out, margin.spread(total), out=out, where=margin.inside)
    return out


def shuttle(
    domain: Domain, totals: Totals, empty: BoolArray | None = None
) -> tuple[Int64Array, Int64Array]:
    """Safe bounds for any margins: what a total leaves to a cell after all others of its group.

    cell ≤ n_g − Σ lower of the others, cell ≥ n_g − Σ upper of the others, again and again.
    """
    lower, upper = np.zeros(domain.shape, np.int64), upper_bound(domain, totals)
    if empty is not None:
        upper[empty] = 0
    largest = max(int((t * m.sizes).max(initial=0)) for m, t in totals)
    if largest >= 2**62:  # the sums below could wrap
        return lower, upper
    for _ in range(MAX_SHUTTLE_ROUNDS):
        before = int(lower.sum()), int(upper.sum())
        for margin, total in totals:
            inside = margin.inside
            least = margin.spread(total - margin.sum(upper)) + upper
            np.maximum(lower, least, out=lower, where=inside)
            most = margin.spread(total - margin.sum(lower)) + lower
            np.minimum(upper, most, out=upper, where=inside)
        if np.any(lower > upper):
            raise InvariantError(
                "The held values contradict each other: no table of counts has them all."
            )
        if (int(lower.sum()), int(upper.sum())) == before:
            break
    return lower, upper


Progress = Callable[[int, int], None]

MAX_INTEGER_SECONDS = 5.0  # for one program in whole numbers

# From a table, the most that each cell may have, and the numbers of some cells, to the least and
# the most found possible there.
Walk = Callable[[Int64Array, Int64Array, Int64Array], tuple[Int64Array, Int64Array]]

WALK_ROUNDS = 40


@dataclass(eq=False, kw_only=True, repr=False)
class Programs:
    """Linear programs over all tables x ≥ 0 with C x = c, cells with a known count taken out."""

    matrix: csr_array
    totals: AnyArray
    lower: Int64Array  # flat
    upper: Int64Array
    walk: Walk | None = None  # shows cells to be wide from a table that was found
    solved: int = 0
    least: Int64Array = field(init=False)  # over the whole tables found
    most: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        n = self.lower.size
        self.free = np.flatnonzero(self.lower < self.upper)
        known = np.where(self.lower < self.upper, 0, self.lower)
        rest = self.totals - self.matrix @ known
        inside = self.matrix[:, self.free]
        used = np.flatnonzero(np.diff(inside.indptr))
        idle = np.setdiff1d(np.arange(self.matrix.shape[0]), used)
        if np.any(np.abs(rest[idle]) > self.slack):
            raise _impossible()
        self.inside, self.rest = inside[used], rest[used]
        self.least, self.most = np.full(n, UNBOUNDED), np.full(n, -1)
        self.table = known.astype(np.int64)  # with the counts of the last solutions filled in
        self.component = self._components()

    @property
    def slack(self) -> float:
        """What HiGHS may be off: its tolerances are about 1e-7, and numbers have 15 digits."""
        scale = float(np.abs(self.totals.astype(np.float64)).max(initial=0.0))
        return 1e-6 + 1e-9 * scale

    def _components(self) -> Int64Array:
        """For every free cell the number of its block: cells that no equality connects."""
        from scipy.sparse import block_array, csr_array
        from scipy.sparse.csgraph import connected_components

        if not self.free.size:
            return np.zeros(0, np.int64)
        rows, columns = self.inside.shape
        if not rows:
            return np.arange(columns)
        pattern: Any = csr_array(abs(self.inside))
        graph = block_array([[None, pattern], [pattern.T, None]], format="csr")
        _, label = connected_components(graph, directed=False)
        return np.asarray(label[rows:], np.int64)

    def solve(self, weights: FloatArray, block: Int64Array | None = None) -> float | None:
        """The least value of a weighted sum of free cells; None where it has no least value.

        `block` are the free cells that count; the others are left out of the program.
        """
        from scipy.optimize import linprog

        columns = np.arange(self.free.size) if block is None else block
        A, b, limits, cost = self._program(columns, weights)
        self.solved += 1
        solution: Any = linprog(cost, A_eq=A, b_eq=b, bounds=limits, method="highs")
        if solution.status == 2:
            raise _impossible()
        if solution.status in (3, 4) and np.any(np.isinf(limits)):
            return None
        if solution.status != 0:
            raise InvariantError(f"A linear program was not solved (status {solution.status}).")
        if self._note(columns, solution.x):
            return float(solution.fun)
        return self._whole(columns, A, b, limits, cost, float(solution.fun))

    def _program(self, columns: Int64Array, weights: FloatArray) -> tuple[Any, Any, Any, Any]:
        inside = self.inside[:, columns]
        rows = np.flatnonzero(np.diff(inside.indptr))
        top = self.upper[self.free[columns]]
        limits = np.column_stack(
            [
                self.lower[self.free[columns]].astype(np.float64),
                np.where(top == UNBOUNDED, np.inf, top.astype(np.float64)),
            ]
        )
        A = inside[rows] if rows.size else None
        b = self.rest[rows].astype(np.float64) if rows.size else None
        return A, b, limits, weights[columns]

    def _whole(
        self, columns: Int64Array, A: Any, b: Any, limits: FloatArray, cost: FloatArray, real: float
    ) -> float:
        """The same in whole numbers; the real answer, which is safe, where that takes too long."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        self.solved += 1
        solution: Any = milp(
            cost,
            integrality=np.ones(columns.size, np.int64),
            bounds=Bounds(limits[:, 0], limits[:, 1]),
            constraints=[] if A is None else [LinearConstraint(A, b, b)],
            options={"time_limit": MAX_INTEGER_SECONDS},
        )
        if solution.status == 2:
            raise _impossible()
        if solution.status == 0 and solution.x is not None and self._note(columns, solution.x):
            return float(solution.fun)
        return real

    def _note(self, columns: Int64Array, x: FloatArray) -> bool:
        """Keep a solution that is a table of whole numbers with the held values."""
        whole = np.rint(x)
        if np.abs(whole - x).max(initial=0.0) > 1e-5 * max(1.0, float(np.abs(x).max(initial=0.0))):
            return False
        counts = whole.astype(np.int64)
        inside = self.inside[:, columns]
        rows = np.flatnonzero(np.diff(inside.indptr))
        gap = np.abs(inside[rows] @ counts - self.rest[rows]).max(initial=0)
        exact = self.inside.dtype.kind == "i"
        if gap > (0 if exact else self.slack) or counts.min(initial=0) < 0:
            return False
        cells = self.free[columns]
        np.minimum.at(self.least, cells, counts)
        np.maximum.at(self.most, cells, counts)
        self.table[cells] = counts
        return True

    def look_around(self, narrow: int) -> None:
        """Let the walk show cells to be wide, once every free cell has a count."""
        if self.walk is None or np.any(self.most[self.free] < 0):
            return
        cells = self.free[(self.most - self.least)[self.free] <= narrow]
        least, most = self.walk(self.table, self.upper, cells)
        np.minimum.at(self.least, cells, least)
        np.maximum.at(self.most, cells, most)

    def limits(self, weights: FloatArray) -> tuple[float, float]:
        """The least and the largest value of a weighted sum of free cells."""
        low, high = self.solve(weights), self.solve(-weights)
        return (-np.inf if low is None else low, np.inf if high is None else -high)

    def inward(self, least: float | None) -> int:
        """A least value as a whole number, safe against what HiGHS may be off."""
        return -UNBOUNDED if least is None else int(np.ceil(least - self.slack))


def program_bounds(
    programs: Programs, *, narrow: int, most: int, progress: Progress | None
) -> CellBounds:
    """Bounds of all cells, flat: the narrowest by safe bounds first, at most `most` programs."""
    lower, upper = programs.lower.copy(), programs.upper.copy()
    sharp, examined = lower == upper, lower == upper
    blocks: dict[int, Int64Array] = {}
    if programs.free.size:
        programs.solve(np.zeros(programs.free.size))  # is there a table at all?
        programs.look_around(narrow)
        order = np.argsort(programs.component, kind="stable")
        labels, starts = np.unique(programs.component[order], return_index=True)
        blocks = dict(zip(labels.tolist(), np.split(order, starts[1:]), strict=True))
    gaps = (upper - lower)[programs.free]
    queue = np.lexsort((upper[programs.free], gaps))
    stop = min(most, 2 * queue.size)
    for column in queue.tolist():
        if programs.solved >= most:
            break
        cell = int(programs.free[column])
        if programs.most[cell] - programs.least[cell] > narrow:
            continue  # two tables differ here
        reached = programs.least[cell] == lower[cell], programs.most[cell] == upper[cell]
        if all(reached):
            continue
        weights = np.zeros(programs.free.size)
        weights[column] = 1.0
        block = blocks[int(programs.component[column])]
        if not reached[0]:
            lower[cell] = max(lower[cell], programs.inward(programs.solve(weights, block)))
        if not reached[1]:
            upper[cell] = min(upper[cell], -programs.inward(programs.solve(-weights, block)))
        examined[cell] = True
        programs.look_around(narrow)
        if progress is not None:
            progress(min(programs.solved, stop), stop)
    seen = programs.most >= 0
    sharp |= seen & (programs.least == lower) & (programs.most == upper)
    apart = seen & (programs.most - programs.least > narrow)
    return CellBounds(
        lower=lower,
        upper=upper,
        sharp=sharp,
        settled=sharp | apart | examined,
        method="linear programs",
        programs=programs.solved,
    )


def first_bounds(matrix: csr_array, totals: AnyArray) -> tuple[Int64Array, Int64Array]:
    """Safe bounds from every row by itself: a row without negative entries bounds its cells."""
    n = matrix.shape[1]
    lower, upper = np.zeros(n, np.int64), np.full(n, np.inf)
    entries = matrix.tocoo()
    negative = np.zeros(matrix.shape[0], bool)
    negative[entries.row[entries.data < 0]] = True
    if np.any(totals[~negative] < 0):
        raise _impossible()
    kept = ~negative[entries.row]
    share = totals[entries.row[kept]] / entries.data[kept]
    np.minimum.at(upper, entries.col[kept], share)
    whole = np.floor(np.where(np.isinf(upper), 0.0, upper) * (1 + 1e-12) + 1e-9).astype(np.int64)
    return lower, np.where(np.isinf(upper), UNBOUNDED, whole)


def _impossible() -> InvariantError:
    return InvariantError("The held values contradict each other: no table of counts has them all.")


def walk_of(domain: Domain, margins: Sequence[Margin]) -> Walk:
    """How far cells can move away from a table, as far as random moves show."""
    sets = unseparated_sets(domain, margins)
    rng = np.random.default_rng(0)

    def walk(
        table: Int64Array, upper: Int64Array, cells: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        least, most = table[cells].copy(), table[cells].copy()
        for number in range(WALK_ROUNDS if sets and sets[0] else 0):
            corners, moves = random_corners(domain, sets[number % len(sets)], cells, rng)
            down = np.full(cells.size, np.iinfo(np.int64).max)
            up = down.copy()
            for corner, sign in corners:  # of the same sign: falls when the cell falls
                falls, rises = table[corner], upper[corner] - table[corner]
                np.minimum(down, falls if sign > 0 else rises, out=down)
                np.minimum(up, rises if sign > 0 else falls, out=up)
            np.minimum(least, np.where(moves, table[cells] - down, least), out=least)
            np.maximum(most, np.where(moves, table[cells] + up, most), out=most)
        return least, most

    return walk


@frozen(kw_only=True)
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


@frozen(kw_only=True)
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
