"""Kinds of cells: cells of one kind have the same variance, the same law, and are only counted.

What noise and rounding do to a cell depends on the sizes of the held groups it is in, and on its
place in their runs as far as divisors see it. On every merged axis these are few, however many
positions there are, and a kind of cell is a kind of position on each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations, product

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.invariants.margin_space import distinct_columns
from subspacedp.rounding.margins import MarginRounding
from subspacedp.rounding.merged import MergedAxis, ordered_groups
from subspacedp.rounding.profiles import GroupProfiles, axis_borders, corners
from subspacedp.tables import Margin, outer

PART = 1 << 20  # positions, or kinds of cells, at a time


@frozen(eq=False, repr=False)
class Kinds:
    """Some kinds of figures: their variance, how many figures there are, and their law."""

    variance: FloatArray
    number: Int64Array
    law: Int64Array | None  # the same number means the same law; None: all have their own
    family: Int64Array | None = None  # within one, a larger variance means a wider law

    def ends_of_families(self, among: BoolArray) -> Int64Array:
        """Among some kinds those with the narrowest and the widest laws of every family."""
        if self.family is None:
            return np.arange(int(np.count_nonzero(among)))
        family = self.family[among]
        order = np.lexsort((self.variance[among], family))
        starts = np.diff(family[order], prepend=-1) != 0
        return np.asarray(order[starts | np.append(starts[1:], True)], np.int64)


@frozen(eq=False, repr=False)
class _Positions:
    """The kinds of positions of a merged axis."""

    number: Int64Array  # (kinds,) how many positions
    profile: Int64Array  # (kinds,) sizes on the single axes, as a class of `GroupProfiles`
    sizes: Int64Array  # (levels, kinds) of the run, coarsest level first
    here: Int64Array  # (kinds,) its cumulative entry
    before: Int64Array  # (kinds,) the entry before it; the number of entries where there is none
    entries: Int64Array  # (levels, entries) size of the run over what it shares with the place


@frozen(eq=False, repr=False)
class CellKinds:
    """The kinds of cells of a table under controlled rounding.

    Guarantees
    ----------
    1. The numbers add up to the number of cells, and every variance is that of its cells, bit for
       bit as `MarginNullSpace.diagonal` and `MarginRounding.variance` have it.
    2. Memory and time grow with the kinds and with the held groups, not with the cells, where one
       level is held on an axis; positions in runs within runs are looked at one by one, in parts.
    """

    plan: MarginRounding

    @cached_property
    def _profiles(self) -> GroupProfiles:
        return GroupProfiles(self.plan.space, self.plan.held.domain.cells)

    @cached_property
    def _axes(self) -> tuple[_Positions, ...]:
        return tuple(self._positions(axis) for axis in self.plan.axes)

    def __len__(self) -> int:
        return math.prod(len(axis.number) for axis in self._axes)

    def rounding(self) -> float:
        """What rounding adds to the variances of all cells together."""
        return math.fsum(
            float(np.vdot(rounding, number)) for _, rounding, number, _, _ in self._parts()
        )

    def kinds(self, each: float, most_roundings: int) -> Iterator[Kinds]:
        """All kinds, for noise of variance `each`; laws as `GroupTotals` numbers them."""
        for diagonal, rounding, number, profile, roundings in self._parts():
            diagonal *= each
            diagonal += rounding
            law = profile * most_roundings + roundings
            yield Kinds(diagonal.reshape(-1), number.reshape(-1), law.reshape(-1))

    def most_roundings(self) -> int:
        """The largest number of roundings that enter a cell."""
        return max(int(roundings.max()) for *_, roundings in self._parts())

    def _parts(self) -> Iterator[tuple[FloatArray, FloatArray, Int64Array, Int64Array, Int64Array]]:
        """Diagonal of Π_N, rounding, numbers, profiles and roundings of the kinds, part by part."""
        first, *others = self._axes
        width = max(1, PART // max(1, math.prod(len(axis.number) for axis in others)))
        for at in range(0, len(first.number), width):
            piece = slice(at, at + width)
            yield self._part((_taken(first, piece), *others))

    def _part(
        self, axes: tuple[_Positions, ...]
    ) -> tuple[FloatArray, FloatArray, Int64Array, Int64Array, Int64Array]:
        plan, dimensions = self.plan, len(axes)
        levels = [
            {k: merged.chain.index(tuple(k.steps[b] for b in merged.members)) for k in self._held}
            for merged in plan.axes
        ]

        diagonal = np.ones(tuple(len(axis.number) for axis in axes))
        for k, factor in plan.held.expansion.items():
            diagonal -= factor / outer(axis.sizes[levels[a][k]] for a, axis in enumerate(axes))
        diagonal[diagonal < 2.0**-40] = 0.0
        rounding = plan.entry_variance(
            [{k: axis.entries[levels[a][k]] for k in self._held} for a, axis in enumerate(axes)]
        )
        for a, axis in enumerate(axes):
            edge = [(0, int(b == a)) for b in range(dimensions)]
            padded = np.pad(rounding, edge)
            rounding = np.take(padded, axis.here, axis=a) + np.take(padded, axis.before, axis=a)
        return (
            diagonal,
            rounding * (1.0 / plan.step**2),
            outer(axis.number for axis in axes),
            outer((axis.profile for axis in axes), np.add),
            self._roundings(axes, levels),
        )

    @cached_property
    def _held(self) -> tuple[Margin, ...]:
        return tuple(dict.fromkeys((*self.plan.held.expansion, *self.plan.held.essential)))

    def _roundings(
        self, axes: tuple[_Positions, ...], levels: Sequence[dict[Margin, int]]
    ) -> Int64Array:
        """`corner_counts` of the cells: borders at the entry here and at the one before."""
        essential, total = self.plan.held.essential, np.zeros((1,) * len(axes), np.int64)
        for size in range(len(essential) + 1):
            for chosen in combinations(essential, size):
                borders = []
                for a, axis in enumerate(axes):
                    ends = np.ones(axis.entries.shape[1] + 1, np.int64)
                    for m in chosen:
                        ends[:-1] &= axis.entries[levels[a][m]] == 1
                    ends[-1] = 0
                    borders.append(ends[axis.here] + ends[axis.before])
                total = total + (-1) ** size * outer(borders)
        return total

    def _positions(self, axis: MergedAxis) -> _Positions:
        """One level: numbers of places by their divisors; several: every place is looked at."""
        rows = self._of_one_level(axis) if len(axis.chain) == 1 else self._of_levels(axis)
        columns, number = _distinct(np.concatenate([c for c, _ in rows], axis=1),
                                    np.concatenate([n for _, n in rows]))  # fmt: skip
        levels = len(axis.chain)
        profile, first = columns[0], columns[1]
        sizes, here, before = (columns[2 + i * levels : 2 + (i + 1) * levels] for i in range(3))
        entries, place = distinct_columns(np.concatenate([here, before], 1))
        at, behind = place.reshape(2, -1)
        behind = np.where(first == 1, entries.shape[1], behind)
        return _Positions(number, profile, sizes, at, behind, entries)

    def _of_one_level(self, axis: MergedAxis) -> list[tuple[Int64Array, Int64Array]]:
        """Runs of one level: by their sizes, and how often each place's divisors occur."""
        (steps,) = axis.chain
        kinds, opening = [], []
        for b, step in zip(axis.members, steps, strict=True):
            level = axis.domain.axes[b].step(step)
            filled = np.flatnonzero(level.sizes)
            profile = self._profile(b)[_first_labels(level.codes, filled)]
            column = np.stack([level.sizes[filled], profile])
            distinct, number = _distinct(column, np.ones(len(filled), np.int64))
            kinds.append(np.concatenate([distinct, number[None]]).T.tolist())
            opening.append(tuple(column[:, 0].tolist()))
        out = []
        for run in product(*kinds):
            size = math.prod(s for s, _, _ in run)
            profile = sum(p for _, p, _ in run)
            number = math.prod(n for _, _, n in run)
            here, before, times = _divisor_pairs(size)
            times = times * number
            first = np.zeros(len(times), np.int64)
            if [(s, p) for s, p, _ in run] == opening:
                start = int(np.flatnonzero((here == size) & (before == 1))[0])
                times[start] -= 1
                here, before = np.append(here, size), np.append(before, 1)
                first, times = np.append(first, 1), np.append(times, 1)
            same = np.ones(len(times), np.int64)
            out.append((np.stack([profile * same, first, size * same, here, before]), times))
        return out

    def _of_levels(self, axis: MergedAxis) -> list[tuple[Int64Array, Int64Array]]:
        """Runs within runs: the finest that lie alike in the coarser ones are one kind."""
        domain = axis.domain
        margins = []
        for steps in axis.chain:
            every = [0] * len(domain.axes)
            for b, step in zip(axis.members, steps, strict=True):
                every[b] = step
            margins.append(Margin(tuple(domain.axes), tuple(every)))
        ids, sizes = ordered_groups(axis, margins[-1])
        starts = np.cumsum(sizes) - sizes
        profile = np.zeros(len(ids), np.int64)
        rest = ids
        for b in reversed(axis.members):
            level = margins[-1].levels[b]
            of_groups = np.zeros(level.groups, np.int64)
            of_groups[level.codes] = self._profile(b)
            rest, place = np.divmod(rest, level.groups)
            profile += of_groups[place]
        columns = [profile, (starts == 0).astype(np.int64)]
        for margin in margins:
            _, wide = ordered_groups(axis, margin)
            begin = np.cumsum(wide) - wide
            inside = np.searchsorted(begin, starts, side="right") - 1
            columns += [wide[inside], starts - begin[inside]]
        runs, number = _distinct(np.stack(columns), np.ones(len(ids), np.int64))
        length = runs[-2]  # of the finest run
        ends = np.cumsum(length)
        out = []
        for at in range(0, int(ends[-1]), PART):
            position = np.arange(at, min(at + PART, int(ends[-1])))
            run = np.searchsorted(ends, position, side="right")
            within = position - (ends - length)[run]
            here, before = [], []
            for size, offset in zip(runs[2::2], runs[3::2], strict=True):
                place = offset[run] + within
                before.append(size[run] // np.gcd(size[run], place))
                here.append(size[run] // np.gcd(size[run], place + 1))
            first = runs[1][run] * (within == 0)
            rows = np.stack([runs[0][run], first, *runs[2::2][:, run], *here, *before])
            out.append(_distinct(rows, number[run]))
        return out

    def _profile(self, b: int) -> Int64Array:
        """What every label of an axis adds to the number of its cell's class of sizes."""
        stride = math.prod(self._profiles.class_shape[b + 1 :])
        return self._profiles.member(b) * stride


@frozen(eq=False, repr=False)
class TotalKinds:
    """The kinds of groups of a margin of a table under controlled rounding.

    Guarantees
    ----------
    1. Numbers add up to that of the groups; variances are those of `GroupTotals`, bit for bit.
    """

    plan: MarginRounding
    profiles: GroupProfiles

    def kinds(self, each: float, most_roundings: int) -> Iterator[Kinds]:
        """All kinds, for noise of variance `each`; laws as `GroupTotals` numbers them."""
        unit_variance = self.plan.unit_variance / self.plan.step**2
        for number, profile, roundings in self._parts():
            squared = self.profiles.squared_of_classes.reshape(-1)[profile]
            variance = squared * each
            variance += np.where(squared > 0, roundings * unit_variance, 0.0)
            law = profile * most_roundings + roundings
            yield Kinds(variance.reshape(-1), number.reshape(-1), law.reshape(-1))

    def most_roundings(self) -> int:
        """The largest number of roundings that enter a total."""
        return max(int(roundings.max()) for *_, roundings in self._parts())

    @cached_property
    def _axes(self) -> tuple[tuple[Int64Array, Int64Array], ...]:
        """For every merged axis: class of sizes and borders of the kinds of groups, numbers."""
        shape, out = self.profiles.class_shape, []
        for axis in self.plan.axes:
            profile = np.zeros(1, np.int64)
            for b in axis.members:
                class_of = self.profiles.member(b) * math.prod(shape[b + 1 :])
                profile = (profile[:, None] + class_of).ravel()
            borders = axis_borders(self.plan, self.profiles.margin, axis)
            ones = np.ones(len(profile), np.int64)
            out.append(_distinct(np.concatenate([profile[None], borders]), ones))
        return tuple(out)

    def _parts(self) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
        (rows, numbers), *others = self._axes
        width = max(1, PART // max(1, math.prod(len(borders) for _, borders in others)))
        for at in range(0, len(numbers), width):
            axes = [(rows[:, at : at + width], numbers[at : at + width]), *others]
            profile = outer((borders[0] for borders, _ in axes), np.add)
            counts = corners([borders[1:] for borders, _ in axes])
            yield outer(times for _, times in axes), profile, counts


def figure_kinds(plan: MarginRounding, profiles: GroupProfiles) -> CellKinds | TotalKinds:
    """The kinds of a margin's groups, where controlled rounding is random."""
    if profiles.margin == plan.held.domain.cells:
        return CellKinds(plan)
    return TotalKinds(plan, profiles)


def _taken(axis: _Positions, piece: slice) -> _Positions:
    return _Positions(axis.number[piece], axis.profile[piece], axis.sizes[:, piece],
                      axis.here[piece], axis.before[piece], axis.entries)  # fmt: skip


def _first_labels(codes: Int64Array, groups: Int64Array) -> Int64Array:
    """One label of every group."""
    first = np.zeros(int(codes.max()) + 1, np.int64)
    first[codes] = np.arange(len(codes))
    return first[groups]


def _distinct(rows: Int64Array, number: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The distinct columns, and how often each occurs."""
    columns, code = distinct_columns(rows)
    out = np.zeros(columns.shape[1], np.int64)
    np.add.at(out, code, number)
    kept = out > 0
    return columns[:, kept], out[kept]


def _prime_powers(number: int) -> list[tuple[int, int]]:
    """The primes that divide a number, with their powers, by trial."""
    out, trial = [], 2
    while trial * trial <= number:
        power = 0
        while number % trial == 0:
            number, power = number // trial, power + 1
        if power:
            out.append((trial, power))
        trial += 1
    return [*out, (number, 1)] if number > 1 else out


def _divisor_pairs(size: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """For places 1 … size: size/gcd(size, place), the same of the place before, and how often.

    By the Chinese remainder theorem the numbers multiply over the prime powers of the size. Of
    neighbouring places a prime divides one at most: of the q**a residues q**(a−i) − q**(a−i−1) are
    divisible by q exactly i times, one a times, and as many have a predecessor that is.
    """
    shared = [(1, 1, 1)]
    for q, a in _prime_powers(size):
        times = [q ** (a - i) - q ** (a - i - 1) if i < a else 1 for i in range(1, a + 1)]
        powers = [(q**i, 1, n) for i, n in enumerate(times, 1)]
        powers += [(1, q**i, n) for i, n in enumerate(times, 1)]
        powers.append((1, 1, q**a - 2 * q ** (a - 1)))
        shared = [(d * e, f * g, n * m) for d, f, n in shared for e, g, m in powers if n * m]
    here, before, number = np.array(shared, np.int64).T
    return size // here, size // before, number.copy()
