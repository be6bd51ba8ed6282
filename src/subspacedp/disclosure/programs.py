"""Bounds by linear programs, where no closed form is known.

Every solution that is whole is a table with the held values, and says of *all* its cells that they
can be so. From it the moves of docs/proofs/disclosure.md (products of differences on a few axes)
lead to others: tried at random for all cells at once, they spare most cells a linear program. What
is found is certain; what is not found means nothing. A cell needs no program of its own once two
such tables differ there by more than what counts as narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.disclosure.bounds import UNBOUNDED, CellBounds
from subspacedp.disclosure.moves import random_corners, unseparated_sets
from subspacedp.errors import InvariantError
from subspacedp.tables import Domain, Margin

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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

    def limits(self, weights: FloatArray, block: Int64Array | None = None) -> tuple[float, float]:
        """The least and the largest value of a weighted sum of free cells."""
        low, high = self.solve(weights, block), self.solve(-weights, block)
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
