"""What neighbouring changes spend of the shares of a budget.

With shares b of interactions τ at levels l of the tree, the contrasts of one record have the
squared length Σ b. Those of two records have the inner product b·x at a level where both are in one
node, and 0 elsewhere; x is a product over the other axes: 1 where both records are in one group,
−1/(k − 1) in two groups of one parent, 0 under different parents. So replacing a record by another
spends

    2 Σ_l Σ_τ b_lτ (1 − [both in one node at l]·∏ x),

and the kinds of pairs are: the levels with a common node and the regions of both, and on each axis
which step they first share and the smallest and largest k there (what is spent is affine in x).
Shares differ by region only below the regions, where records of different regions have no common
node: each of them spends its own. In a tree the levels with a common node are those from the finest
one on; where levels cross, any set of them that some two labels share, and a record in no group of
a grouping spends none of its shares.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from itertools import product
from typing import Protocol

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.plan import TableErrors
from subspacedp.mechanisms.marginals.shares import distinct_rows
from subspacedp.privacy import Neighbours

MAX_PAIR_KINDS = 1 << 22  # on the other axes, all looked at for every level of the tree
MAX_HALF = 1 << 25  # entries of a matrix of kinds and steps of half the axes
FIRST_ROWS = 64
CHANCES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # that a pair differs on an axis


class Spending(Protocol):
    """How much of its shares a neighbouring change of one record spends."""

    def first_rows(self) -> FloatArray:
        """Some kinds of changes to begin with, one row each."""

    def sticking_out(
        self, shares: FloatArray, number: int = FIRST_ROWS
    ) -> tuple[FloatArray, float]:
        """Rows of changes that spend the most, and a safe bound on what any of them spends."""

    def possible(self) -> FloatArray | None:
        """Rows that changes spend on average, where the others are only bounds; else None."""


@lru_cache(maxsize=2)  # choosing shares and proving how near they are to the best ask the same
def spending_of(errors: TableErrors, neighbours: Neighbours) -> Spending:
    """The spending of one record of a person; those of several add up in length at most."""
    if neighbours.persons == 1:
        return SingleRecords(errors)
    return Replacements(errors, single=not errors.total_known)


@frozen(eq=False, repr=False)
class SingleRecords:
    """A record comes or goes: it spends all shares of its region."""

    errors: TableErrors

    def possible(self) -> None:
        """All rows are what records spend."""

    def first_rows(self) -> FloatArray:
        """One row per region."""
        return self.errors.spent()

    def sticking_out(
        self, shares: FloatArray, number: int = FIRST_ROWS
    ) -> tuple[FloatArray, float]:
        """All of them, and the most, rounded up."""
        del number
        rows = self.errors.spent()
        return rows, float((rows @ shares).max()) * (1 + (shares.size + 4) * 2.0**-52)


@frozen(eq=False, repr=False)
class Replacements:
    """A record is replaced by another; with `single` also by nothing."""

    errors: TableErrors
    single: bool

    def possible(self) -> FloatArray | None:
        """Pairs that differ at random, where there are too many kinds to look at them all."""
        return None if self.pairs.listable else self._mixed

    @cached_property
    def _mixed(self) -> FloatArray:
        fewest = min(int(common.sum()) for _, common in self._meetings)
        rows = [
            self._row(regions, common, self.pairs.mixed(chance))
            for chance in CHANCES
            for regions, common in self._meetings
            if common.sum() == fewest
        ]
        return np.array([*rows, *self._spent] if self.single else rows)

    @cached_property
    def pairs(self) -> AxisPairs:
        """Kinds of pairs on the other axes."""
        return AxisPairs(self.errors.interactions, self.errors.measured)

    @cached_property
    def _member(self) -> Int64Array:
        """The number of the interaction of every slot."""
        number = {interaction.steps: i for i, interaction in enumerate(self.errors.measured)}
        slots = self.errors.slots
        return np.array([number[interaction.steps] for interaction, _, _ in slots], np.int64)

    @cached_property
    def _levels(self) -> Int64Array:
        return np.array([level for _, level, _ in self.errors.slots], np.int64)

    @cached_property
    def _spent(self) -> FloatArray:
        return self.errors.spent()

    @cached_property
    def _meetings(self) -> list[tuple[tuple[int, int], BoolArray]]:
        """The rows of two records and the levels with a common node, all that occur."""
        if not self.errors.interactions.nested:
            return [((p, q), at) for p, q, at in self.errors.interactions.as_overlap.meetings]
        levels = np.arange(len(self.errors.interactions.tree))
        return [(pair, levels >= common) for pair, common in self._in_tree]

    @property
    def _in_tree(self) -> list[tuple[tuple[int, int], int]]:
        """The regions of two records and the finest level with a common node, all that occur."""
        regions, orbits = self.errors.regions, self.errors.interactions.as_tree.orbits
        # Two records in one node of the finest level in use.
        out = [((region, region), 0) for region in range(regions.number)]
        for level in range(1, len(self.errors.interactions.tree)):
            parent, number = orbits.parent[level - 1], orbits.siblings[level - 1]
            if regions.apart(level):
                several = np.bincount(parent, number) > 1
                inside = np.unique(regions.of_orbits(level)[several]).tolist()
                out.extend(((region, region), level) for region in inside)
            else:
                out.extend((pair, level) for pair in self._region_pairs(level, parent, number))
        return out

    def _region_pairs(
        self, level: int, parent: Int64Array, number: FloatArray
    ) -> list[tuple[int, int]]:
        """The regions under two different children of one node of a level."""
        regions, orbits = self.errors.regions, self.errors.interactions.as_tree.orbits
        if regions.level is None:
            return [(0, 0)] if np.any(np.bincount(parent, number) > 1) else []
        up = orbits.ancestors(regions.level, level - 1)
        under = [np.flatnonzero(up == child).tolist() for child in range(len(parent))]
        pairs = {
            (min(r, t), max(r, t))
            for i, j in product(range(len(parent)), repeat=2)
            if parent[i] == parent[j] and (i != j or number[i] > 1)
            for r, t in product(under[i], under[j])
        }
        return sorted(pairs)

    def _of_pair(self, regions: tuple[int, int]) -> FloatArray:
        """What two records of some regions spend on average of every share."""
        return np.asarray((self._spent[regions[0]] + self._spent[regions[1]]) / 2)

    def _row(
        self, regions: tuple[int, int], common: BoolArray, coefficients: FloatArray
    ) -> FloatArray:
        """What a pair spends, from 2(1 − ∏x) by interaction."""
        out = np.where(common[self._levels], coefficients[self._member], 2.0)
        return np.asarray(out * self._of_pair(regions))

    def first_rows(self) -> FloatArray:
        """The pairs that spend most of equal shares; a bound where these cannot be found.

        Pairs that differ at random come beside them where none of these spends some share: on two
        axes of two labels, say, pairs that differ on both. A bound is proved from rows that spend
        every share.
        """
        return self._first_rows

    @cached_property
    def _first_rows(self) -> FloatArray:
        if self.pairs.listable:
            most = self.sticking_out(np.ones(len(self.errors.slots)))[0]
            return most if np.all(most.max(axis=0) > 0) else np.concatenate([most, self._mixed])
        longest = self.pairs.longest
        rows = [self._row(regions, common, longest) for regions, common in self._meetings]
        return np.array([*rows, *self._spent] if self.single else rows)

    def sticking_out(
        self, shares: FloatArray, number: int = FIRST_ROWS
    ) -> tuple[FloatArray, float]:
        """The kinds that spend the most at every level and region, and the most of all."""
        rows: list[FloatArray] = list(self._spent) if self.single else []
        most = float((self._spent @ shares).max()) if self.single else 0.0
        count = len(self.errors.measured)
        for regions, common in self._meetings:
            weighted = shares * self._of_pair(regions)
            together = common[self._levels]
            apart = 2.0 * float(weighted[~together].sum())
            inside = np.where(together, weighted, 0.0)
            merged = np.bincount(self._member, inside, minlength=count).astype(np.float64)
            if self.pairs.listable:
                spent = self.pairs.spent(merged)
                most = max(most, apart + float(spent.max()))
                take = min(number, spent.size)
                chosen = np.argpartition(spent, -take)[-take:]
                each = self.pairs.rows(chosen.astype(np.int64))
                rows.extend(self._row(regions, common, c) for c in each)
            else:
                most = max(most, apart + float(merged @ self.pairs.longest))
                rows.append(self._row(regions, common, self.pairs.longest))
        return np.array(rows), most + self._rounding * float(shares.sum())

    @cached_property
    def _rounding(self) -> float:
        """Of Σ b: at least what sums over t shares of products over d axes lose to rounding."""
        return 4.0 * (2 * len(self.pairs.axes) + 3 * len(self.errors.slots) + 8) * 2.0**-53


@frozen(eq=False, repr=False)
class AxisPairs:
    """All kinds of pairs of records on the other axes that some interaction uses."""

    interactions: Interactions
    measured: tuple[Interaction, ...]

    @cached_property
    def axes(self) -> list[int]:
        """The axes on which some interaction has contrasts."""
        return sorted({a for i in self.measured for a in self.interactions.kept(i.steps)})

    @cached_property
    def _steps(self) -> list[list[int]]:
        """On every such axis the steps of the interactions; the top step comes first."""
        out = []
        for a in self.axes:
            top = self.interactions.axes[a].top
            out.append([top, *sorted({i.steps[a] for i in self.measured} - {top})])
        return out

    @cached_property
    def products(self) -> list[FloatArray]:
        """For every such axis x by kind of pair (rows) and step (columns); 1 at the top step."""
        return [self._kinds(a, steps) for a, steps in zip(self.axes, self._steps, strict=True)]

    def _kinds(self, a: int, steps: list[int]) -> FloatArray:
        axis = self.interactions.axes[a]
        rows = [[1.0] * len(steps)]  # the same group at every step
        for finer in axis.steps[:-1]:  # different there, the same at the next step
            k = axis.siblings(finer)
            k = k[k > 1]
            rows.extend(
                [1.0 if s > finer else -1.0 / (number - 1) if s == finer else 0.0 for s in steps]
                for number in ({int(k.min()), int(k.max())} if k.size else ())
            )
        return distinct_rows(rows)[::-1].copy()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of kinds on every axis."""
        return tuple(len(x) for x in self.products)

    @cached_property
    def _places(self) -> Int64Array:
        """The column of every interaction on every axis."""
        rows = [
            [
                steps.index(interaction.steps[a])
                for a, steps in zip(self.axes, self._steps, strict=True)
            ]
            for interaction in self.measured
        ]
        return np.array(rows, np.int64).reshape(len(self.measured), len(self.axes))

    @cached_property
    def listable(self) -> bool:
        """Whether all kinds can be looked at, one by one."""
        if math.prod(self.shape) > MAX_PAIR_KINDS:
            return False
        sizes = [
            math.prod(self.shape[half]) * len(distinct_rows(self._places[:, half]))
            for half in self._cut
        ]
        return max(sizes) <= MAX_HALF

    @cached_property
    def _cut(self) -> tuple[slice, slice]:
        """The axes in two halves with about as many kinds each."""
        logs = np.cumsum(np.log(np.array(self.shape, float)))
        at = int(np.searchsorted(logs, logs[-1] / 2)) + 1 if logs.size else 0
        return slice(0, at), slice(at, None)

    @cached_property
    def _halves(self) -> list[tuple[FloatArray, Int64Array]]:
        """For each half ∏ x by kind of pair and pattern of steps, and everyone's pattern."""
        out = []
        for half in self._cut:
            patterns, member = np.unique(self._places[:, half], axis=0, return_inverse=True)
            table = np.ones((1, len(patterns)))
            for x, column in zip(self.products[half], patterns.T, strict=True):
                table = (table[:, None, :] * x[None, :, column]).reshape(-1, len(patterns))
            out.append((table, member.reshape(-1)))
        return out

    def spent(self, shares: FloatArray) -> FloatArray:
        """What every kind of pair spends of one share per interaction, in one node."""
        (left, i), (right, j) = self._halves
        middle = np.zeros((left.shape[1], right.shape[1]))
        np.add.at(middle, (i, j), shares)
        out = (left @ middle) @ right.T
        out *= -2.0
        out += 2.0 * float(shares.sum())
        return np.asarray(out.reshape(-1))

    def rows(self, kinds: Int64Array) -> FloatArray:
        """2(1 − ∏ x) by interaction, one row per kind of pair given by its flat number."""
        numbers = np.unravel_index(kinds, self.shape) if self.shape else ()
        out = np.ones((len(kinds), len(self.measured)))
        for i, (x, at) in enumerate(zip(self.products, numbers, strict=True)):
            out *= x[at][:, self._places[:, i]]
        return 2.0 * (1.0 - out)

    @cached_property
    def longest(self) -> FloatArray:
        """For every interaction the largest 2(1 − ∏ x) of any pair."""
        out = []
        for place in self._places:
            low = high = 1.0
            for x, column in zip(self.products, place, strict=True):
                values = x[:, column]
                ends = [v * w for v in (low, high) for w in (float(values.min()), 1.0)]
                low, high = min(ends), max(ends)
            out.append(2.0 * (1.0 - low))
        return np.array(out)

    def mixed(self, chance: float) -> FloatArray:
        """Mean 2(1 − ∏ x) over pairs that differ on each axis on their own with this chance.

        Among different labels of an axis all kinds are equally likely. Pairs that do not differ at
        all count 0, so the mean is that of some distribution over pairs, or less.
        """
        out = np.ones(len(self.measured))
        for i, x in enumerate(self.products):
            same = np.all(x == 1.0, axis=1)
            other = x[~same].mean(axis=0) if np.any(~same) else np.ones(x.shape[1])
            out *= (1 - chance + chance * other)[self._places[:, i]]
        return 2.0 * (1.0 - out)
