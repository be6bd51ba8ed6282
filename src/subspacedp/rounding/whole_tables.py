"""Whole numbers without negative ones, near a real table, with the same held figures.

Groups of one margin are rounded along their cumulative sums. Two margins meet in a table whose rows
and columns are their groups: rows are rounded first, and units then move within rows until the
columns are right too, which they always can. Of more margins two are such rows and columns, and
units are exchanged between two rows and two columns until the others are right. Where that does not
get there, and for anything else, there is an integer programme.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from scipy import sparse

NEAR = 0.25  # where an integer programme stops: its gap, a share of what rounding costs
BEST = 8  # entries of a group that has too much, from which a unit may go
MOST_EXCHANGES = 4  # for each unit that is missed, and a hundred, before a programme is tried
NONE_FITS = (
    "No table of whole numbers without negative ones has the held figures and satisfies the "
    "inequalities."
)


@frozen(eq=False, repr=False)
class Linear:
    """C z = c and G z ≤ h on the cells of a table, with limits of the cells themselves."""

    equal: sparse.csr_array
    values: FloatArray
    below: sparse.csr_array
    limits: FloatArray
    lower: FloatArray
    upper: FloatArray


def group_numbers(cells: Margin, margin: Margin) -> Int64Array:
    """The group of a coarser margin that every cell is in, flat; −1 for a cell in none."""
    out = np.arange(int(np.prod(margin.shape))).reshape(margin.shape)
    for a, axis in enumerate(cells.axes):
        if cells.steps[a] != margin.steps[a]:
            none = np.full_like(out.take([0], axis=a), -1)
            parents = axis.parents(cells.steps[a], margin.steps[a])
            out = np.take(np.concatenate([out, none], axis=a), parents, axis=a)
    return out.reshape(-1)


def indicators(cells: Margin, margin: Margin) -> sparse.csr_array:
    """One row for every group of a margin, 1 at its cells."""
    from scipy import sparse

    group = group_numbers(cells, margin)
    inside = np.flatnonzero(group >= 0)
    shape = (int(np.prod(margin.shape)), group.size)
    return sparse.csr_array((np.ones(inside.size), (group[inside], inside)), shape=shape)


def whole_table(
    table: FloatArray,
    cells: Margin,
    totals: Sequence[tuple[Margin, Int64Array]],
    beyond: Linear | None,
    dither: FloatArray,
) -> Int64Array:
    """Whole numbers ≥ 0 near a table ≥ 0 that have all held figures exactly.

    Parameters
    ----------
    table
        Real values of the cells, flat; their totals may miss the held ones by a little.
    cells
        What they are the cells of.
    totals
        Held margins, none of which determines another, with totals that agree and are ≥ 0.
    beyond
        What else holds, then with all margins among its equations; None for margins alone.
    dither
        Added to the fraction of a value before it is seen whether to round up: within −½ and ½.
        With uniform numbers there it is unbiased on average, with smaller ones nearer.

    Guarantees
    ----------
    1. The held figures are exact and no number is negative.
    2. Where there is such a table, one is found: always for up to two margins; for more by
       exchanges, or else by an integer programme, which may take long.
    """
    if beyond is None and len(totals) <= 1:
        if not totals:
            return np.floor(table + 0.5 + dither).astype(np.int64)
        margin, wanted = totals[0]
        return _shared(table, group_numbers(cells, margin), wanted.reshape(-1), dither)
    if beyond is None:
        whole = _several_margins(table, cells, totals, dither)
        if whole is not None:
            return whole
        beyond = of_margins(cells, totals)
    return _programme(table, beyond, dither)


def of_margins(cells: Margin, totals: Sequence[tuple[Margin, Int64Array]]) -> Linear:
    """Held margins as equations, with what the totals themselves say of the cells."""
    from scipy import sparse

    size = int(np.prod(cells.shape))
    upper = np.full(size, np.inf)
    for margin, total in totals:
        np.minimum(upper, total.reshape(-1)[group_numbers(cells, margin)], out=upper)
    rows = [indicators(cells, margin) for margin, _ in totals]
    none = sparse.csr_array((0, size))
    return Linear(
        equal=sparse.vstack(rows, format="csr") if rows else none,
        values=np.concatenate([np.zeros(0), *(t.reshape(-1) for _, t in totals)]),
        below=none,
        limits=np.zeros(0),
        lower=np.zeros(size),
        upper=upper,
    )


def _shared(
    table: FloatArray, group: Int64Array, wanted: Int64Array, dither: FloatArray
) -> Int64Array:
    """Every group's total in whole numbers, in proportion to the table.

    Values are rounded down, and then as many of a group up as its total needs, those first whose
    fraction and dither together are largest.
    """
    sums, sizes = np.bincount(group, table, wanted.size), np.bincount(group, minlength=wanted.size)
    nothing = sums <= 0  # to go by: all cells alike
    factor = wanted / np.where(nothing, np.maximum(sizes, 1), sums)
    exact = np.where(nothing[group], 1.0, table) * factor[group]
    # Whole numbers but for rounding count as whole; of a group by less than a unit together.
    room = np.minimum(1e-12 * exact, 0.5 / np.maximum(sizes, 1)[group])
    whole = np.floor(exact + room).astype(np.int64)
    missing = wanted - _sums(whole, group, wanted.size)
    first = np.cumsum(sizes) - sizes
    beyond = missing - np.clip(missing, 0, sizes)
    if beyond.any():  # numbers beyond 2**52, of which float64 does not have all
        filled = np.flatnonzero(sizes)
        largest = np.lexsort((whole, group))[(first + sizes - 1)[filled]]
        whole[largest] += beyond[filled]
        missing -= beyond
    order = np.lexsort((whole - exact - dither, group))
    rank = np.arange(group.size) - first[group[order]]
    whole[order] += rank < missing[group[order]]
    return whole


def _sums(whole: Int64Array, group: Int64Array, groups: int) -> Int64Array:
    """Every group's sum, in integers."""
    out = np.zeros(groups, np.int64)
    np.add.at(out, group, whole)
    return out


def _joint(*margins: Margin) -> Margin:
    """The coarsest margin that determines all of these."""
    steps = tuple(map(min, zip(*(margin.steps for margin in margins), strict=True)))
    return Margin(margins[0].axes, steps)


def _several_margins(
    table: FloatArray,
    cells: Margin,
    totals: Sequence[tuple[Margin, Int64Array]],
    dither: FloatArray,
) -> Int64Array | None:
    """Groups of two margins that share a cell share one entry of a table of rows and columns.

    None where no two of the margins have all entries, or exchanges do not get to the others.
    """
    joint = _joint(*(margin for margin, _ in totals))
    pairs = (p for p in combinations(totals, 2) if _joint(*(margin for margin, _ in p)) == joint)
    pair = next(pairs, None)
    if pair is None:
        return None
    (rows, row_totals), (columns, column_totals) = pair
    entry = group_numbers(cells, joint)
    sums: FloatArray = np.bincount(entry, table, int(np.prod(joint.shape))).astype(np.float64)
    row, column = group_numbers(joint, rows), group_numbers(joint, columns)
    block = group_numbers(joint, rows.meet(columns))
    filled = ~joint.empty.reshape(-1)
    whole = np.zeros(sums.size, np.int64)
    shift: FloatArray = np.bincount(entry, dither, sums.size).astype(np.float64)
    shift -= np.rint(shift)
    whole[filled] = _shared(sums[filled], row[filled], row_totals.reshape(-1), shift[filled])
    places = np.flatnonzero(filled)
    places = places[np.lexsort((column[places], row[places], block[places]))]
    starts = np.flatnonzero(np.diff(block[places], prepend=-1))
    pieces = []
    for at in np.split(places, starts[1:]):
        width = int(np.count_nonzero(row[at] == row[at[0]]))
        piece = at.reshape(-1, width)  # all rows of a block meet all its columns
        whole[piece] = _moved(
            whole[piece], sums[piece], column_totals.reshape(-1)[column[piece[0]]]
        )
        pieces.append(piece)
    others = [
        (group_numbers(joint, m), t.reshape(-1)) for m, t in totals if m not in (rows, columns)
    ]
    if not _exchanged(whole, sums + shift, pieces, others):
        return None
    return _shared(table, entry, whole, dither)


def _moved(whole: Int64Array, near: FloatArray, wanted: Int64Array) -> Int64Array:
    """Units moved within rows until columns are as wanted; rows keep their sums, nothing below 0.

    A column with too much has a positive entry, so a unit can always go from there to one with
    too little.
    """
    out = whole.copy()
    while True:
        excess = out.sum(axis=0) - wanted
        give, take = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
        pairs = min(give.size, take.size)
        if not pairs:
            return out
        give, take = give[:pairs], take[:pairs]
        gain = (out - near)[:, give] - (out - near)[:, take]
        gain[out[:, give] == 0] = -np.inf
        best = np.argmax(gain, axis=0)
        out[best, give] -= 1
        out[best, take] += 1


def _exchanged(
    whole: Int64Array,
    near: FloatArray,
    pieces: Sequence[Int64Array],
    others: Sequence[tuple[Int64Array, Int64Array]],
) -> bool:
    """Exchange units, in place, until further groups of entries have what is wanted; if they do.

    With rows r, s and columns c, d of a piece a unit goes from (r, c) to (r, d) and one from (s, d)
    to (s, c), so that rows and columns keep their sums. Of the exchanges that begin in a group with
    too much that is taken which lowers squared misses and errors most, without more misses.
    """
    rng = np.random.default_rng(0)  # public: the same table each time
    piece_of, row, column = (np.zeros(whole.size, np.int64) for _ in range(3))
    for number, piece in enumerate(pieces):
        piece_of[piece] = number
        row[piece], column[piece] = np.indices(piece.shape)
    misses = [_sums(whole, group, wanted.size) - wanted for group, wanted in others]
    members = []
    for group, wanted in others:
        ends = np.cumsum(np.bincount(group, minlength=wanted.size))
        members.append(np.split(np.argsort(group, kind="stable"), ends[:-1]))
    for _ in range(100 + MOST_EXCHANGES * int(sum(np.abs(miss).sum() for miss in misses))):
        most = [int(miss.max(initial=0)) for miss in misses]
        which = int(np.argmax([*most, 0]))
        if which == len(most) or not most[which]:
            break
        groups = np.flatnonzero(misses[which] == most[which])
        able = members[which][groups[int(groups.size * rng.random())]]
        able = able[whole[able] > 0]
        least, taken = np.inf, np.zeros(0, np.int64)
        for start in able[np.argsort((near - whole)[able], kind="stable")[:BEST]].tolist():
            piece, r, c = pieces[piece_of[start]], row[start], column[start]
            change = np.zeros(piece.shape)  # of the squared misses
            for (group, _), miss in zip(others, misses, strict=True):
                of = group[piece]
                change += 4 + 2 * _around(miss[of].astype(np.float64), r, c) + 2 * _met(of, r, c)
            score = change + 4 + 2 * _around(whole[piece] - near[piece], r, c)
            score += (change == 0) * rng.random()  # so that it goes on elsewhere
            score[(change > 0) | (whole[piece] <= 0)] = np.inf
            score[r], score[:, c] = np.inf, np.inf
            s, d = np.unravel_index(int(np.argmin(score)), score.shape)
            if score[s, d] < least:
                least, taken = float(score[s, d]), piece[[r, r, s, s], [c, d, c, d]]
        for entry, by in zip(taken.tolist(), (-1, 1, 1, -1)[: taken.size], strict=True):
            whole[entry] += by
            for (group, _), miss in zip(others, misses, strict=True):
                miss[group[entry]] += by
    return not any(miss.any() for miss in misses)


def _around(value: FloatArray, r: int, c: int) -> FloatArray:
    """−v(r, c) + v(r, d) + v(s, c) − v(s, d), for all rows s and columns d."""
    return np.asarray(value[r] + value[:, c, None] - value[r, c] - value)


def _met(group: Int64Array, r: int, c: int) -> FloatArray:
    """Products of the signs of (r, c), (r, d), (s, c), (s, d), added up for pairs in one group."""
    own, across, down = group[r, c], group[r], group[:, c, None]
    equal = 1.0 * (group == own) + (across == down)
    return np.asarray(equal - (across == own) - (down == own) - (group == across) - (group == down))


def _programme(table: FloatArray, given: Linear, dither: FloatArray) -> Int64Array:
    """Each value to one of its neighbours where that is possible, else as near as may be."""
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    def solved(matrix: sparse.csr_array, cost: FloatArray, low: FloatArray, high: FloatArray,
               base: FloatArray) -> FloatArray | None:  # fmt: skip
        equal, below = given.equal @ matrix, given.below @ matrix
        wanted = given.values - given.equal @ base
        rules = [LinearConstraint(equal, wanted, wanted)] if given.values.size else []
        if given.limits.size:
            rules.append(LinearConstraint(below, -np.inf, given.limits - given.below @ base))
        solution = milp(cost, integrality=np.ones(cost.size, np.int64), bounds=Bounds(low, high),
                     constraints=rules, options={"mip_rel_gap": NEAR})  # fmt: skip
        return None if solution.x is None else np.rint(solution.x)

    base = np.clip(np.floor(table + 1e-9), given.lower, given.upper)
    share = np.clip(table - base, 0.0, 1.0)
    one = sparse.csr_array(sparse.eye_array(table.size))
    room = np.minimum(1.0, given.upper - base)
    up = solved(one, 0.5 - share - dither, np.zeros(table.size), room, base)
    if up is None:
        both = sparse.csr_array(sparse.hstack([one, -one]))
        cost = np.concatenate([1 - share / 2, 1 + share])
        high = np.concatenate([given.upper - base, base - given.lower])
        moved = solved(both, cost, np.zeros(2 * table.size), high, base)
        if moved is None:
            raise ReleaseError(NONE_FITS)
        up = moved[: table.size] - moved[table.size :]
    return (base + up).astype(np.int64)
