"""Controlled rounding of all published tables at once: one draw for every cumulative total.

Order the nodes of the tree and the groups of every other axis so that children of one parent are
neighbours. A cumulative total sums over everything up to a node of the tree and up to a group on
every other axis; an axis that is summed over stands at its end. Every published table consists of
differences of such totals, and a total that two tables share is one number. So each of them is
rounded once, up or down at random with the probability of its fractional part, and differences are
taken back: all tables agree with each other, whatever they are. Totals that a held margin
determines are whole numbers already and stay.

A cumulative total belongs to the interaction of the axes on which it does not stand at the end of a
parent; those of interaction τ are as many as τ has contrasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array, WordArray
from subspacedp.frozen import frozen, remembered
from subspacedp.mechanisms.marginals.estimate import Estimate
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.tree import Tree
from subspacedp.rounding.controlled import MOST_STATED, WordSource, rows_of
from subspacedp.rounding.levels import cumulate
from subspacedp.tables import Margin

ROUNDING_VARIANCE = 0.25  # of a squared step: the largest variance of a rounding up or down


@frozen(eq=False, repr=False, kw_only=True)
class PrefixRounding:
    """How the tables of a workload are rounded to multiples of 10**-decimals.

    Guarantees
    ----------
    1. All tables agree with each other and with the held totals, exactly, as integers.
    2. Unbiased over the draws, up to the rounding of float64.
    3. Given the real tables the draws are independent, each with mean zero, a range of one step and
       so a variance of at most a quarter of a squared step; `coefficients` says what each adds.
    """

    interactions: Interactions
    decimals: int
    total_known: bool = False
    counted: ClassVar[bool] = True  # the roundings of a total weigh alike
    needed: ClassVar[bool] = True  # estimates are real: whole totals are always rounded

    @property
    def step(self) -> int:
        """How many grid steps make one: 10**decimals."""
        return int(10**self.decimals)

    @cached_property
    def _axes(self) -> tuple[Tree, ...]:
        """The other axes in an order in which the groups of one parent are neighbours."""
        return tuple(Tree(axis.axis, axis.steps) for axis in self.interactions.axes)

    def exact_level(self, interaction: Interaction) -> int | None:
        """The finest level of the tree at which cumulative totals are whole numbers already."""
        if interaction.held is not None:
            return interaction.held
        known = self.total_known and not self.interactions.kept(interaction.steps)
        return self.interactions.as_tree.root if known else None

    # -------------------------------------------------------- where cumulative totals stand

    @remembered
    def _inner(self, a: int, step: int) -> Int64Array:
        """The nodes of an axis at a step that are not the last of their parent's."""
        tree = self._axes[a]
        level = tree.steps.index(step)
        if level == tree.root:
            return np.zeros(1, np.int64)
        last = np.cumsum(tree.children[level + 1]) - 1
        return np.setdiff1d(np.arange(tree.nodes(level)), last, assume_unique=True)

    @remembered
    def _ends(self, a: int, step: int, fine: int) -> Int64Array:
        """Where, among the nodes of a finer step, those of `_inner` end."""
        tree = self._axes[a]
        coarse, level = tree.steps.index(step), tree.steps.index(fine)
        firsts = np.append(tree.starts[coarse][1:], len(tree.axis))
        last = np.searchsorted(tree.starts[level], firsts) - 1
        return np.asarray(last[self._inner(a, step)], np.int64)

    def _rows(self, level: int, fine: int) -> Int64Array:
        """Where, among the nodes of a finer level of the tree, those of a level end."""
        tree = self.interactions.as_tree
        firsts = np.append(tree.starts[level][1:], len(tree.axis))
        return np.asarray(np.searchsorted(tree.starts[fine], firsts) - 1, np.int64)

    def _places(self, level: int, steps: Sequence[int]) -> Iterator[tuple[Interaction, Any, Any]]:
        """For every interaction in a table: rows of its totals, and places in the table."""
        inter = self.interactions
        for interaction in inter.inside(steps):
            pairs = enumerate(zip(interaction.steps, steps, strict=True))
            ends = [self._ends(a, s, fine) for a, (s, fine) in pairs]
            yield (
                interaction,
                self._rows(level, interaction.finest),
                np.ix_(np.arange(inter.as_tree.nodes(level)), *ends),
            )

    def _ordered(self, table: AnyArray, steps: Sequence[int]) -> AnyArray:
        """A table with the groups of every other axis in order, those without labels left out."""
        out = table
        for a, s in enumerate(steps):
            if (a, s) in self._moved:
                tree = self._axes[a]
                out = np.take(out, tree.groups[tree.steps.index(s)], axis=a + 1)
        return out

    @cached_property
    def _moved(self) -> set[tuple[int, int]]:
        """Axes and steps where groups have no labels, or stand elsewhere in order."""
        return {
            (a, s)
            for a, tree in enumerate(self._axes)
            for s, groups in zip(tree.steps, tree.groups, strict=True)
            if not np.array_equal(groups, np.arange(tree.axis.step(s).groups))
        }

    def _restored(self, table: AnyArray, steps: Sequence[int]) -> AnyArray:
        """The inverse of `_ordered`."""
        out = table
        for a, s in enumerate(steps):
            if (a, s) in self._moved:
                tree = self._axes[a]
                nodes = np.moveaxis(out, a + 1, 0)
                out = np.moveaxis(tree.scatter(nodes, tree.steps.index(s)), 0, a + 1)
        return out

    # ------------------------------------------------------------------------ rounding

    def round_estimate(self, estimate: Estimate, dither: WordSource) -> Int64Array:
        """Every table of the workload in steps, one after another."""
        inter = self.interactions
        real: dict[tuple[int, ...], FloatArray] = {}
        exact: dict[tuple[int, ...], Int64Array] = {}
        for interaction in inter.all.values():
            level = self.exact_level(interaction)
            if level is not None:
                exact[interaction.steps] = estimate.exact(interaction, level)
            if level is None or level > interaction.finest:
                real[interaction.steps] = estimate.finest(interaction)
        totals = self.round(real, exact, dither)
        tables = (
            inter.from_nodes(self.table(totals, p.level, p.steps), p.level) for p in inter.published
        )
        return np.concatenate([table.reshape(-1) for table in tables])

    def round(
        self,
        real: Mapping[tuple[int, ...], FloatArray],
        exact: Mapping[tuple[int, ...], Int64Array],
        words: WordSource,
    ) -> dict[tuple[int, ...], Int64Array]:
        """Whole numbers of steps for all cumulative totals, by interaction.

        Parameters
        ----------
        real
            For every interaction its table of totals (not contrasts) at its finest level.
        exact
            For those with a level that is exact, the exact table there.
        words
            Uniform words, independent of the noise.
        """
        out: dict[tuple[int, ...], Int64Array] = {}
        at = 0
        for interaction in self.interactions.all.values():
            level = self.exact_level(interaction)
            if level is not None and level <= interaction.finest:
                table = self.interactions.as_tree.climb(
                    exact[interaction.steps], level, interaction.finest
                )
                out[interaction.steps] = self._cumulated(table, interaction) * self.step
                continue
            whole, left = self._real_totals(real[interaction.steps], interaction)
            fraction = left - np.floor(left)
            draws = words.words(at, whole.size).reshape(whole.shape)
            at += whole.size
            up = draws < _thresholds(fraction)
            rounded = whole + np.floor(left).astype(np.int64) + up
            if level is not None:
                known = self._cumulated(exact[interaction.steps], interaction) * self.step
                rounded[self._rows(level, interaction.finest)] = known
            out[interaction.steps] = rounded
        return out

    def _cumulated(self, table: Int64Array, interaction: Interaction) -> Int64Array:
        """Exact cumulative totals of one interaction from a table of integers."""
        sums = np.cumsum(self._ordered(table, interaction.steps), axis=0)
        for a in range(1, sums.ndim):
            np.cumsum(sums, axis=a, out=sums)
        return np.asarray(self._picked(sums, interaction), np.int64)

    def _real_totals(
        self, table: FloatArray, interaction: Interaction
    ) -> tuple[Int64Array, FloatArray]:
        """Cumulative totals in steps, as whole numbers and what is left of them."""
        entry = np.ascontiguousarray(self._ordered(table * float(self.step), interaction.steps))
        near = np.rint(entry)
        entry -= near
        sums = near.astype(np.int64)
        for a in range(entry.ndim):
            np.cumsum(sums, axis=a, out=sums)
            turns, entry = cumulate(entry, a)
            sums += turns
        left = np.asarray(self._picked(entry, interaction), np.float64)
        return self._picked(sums, interaction), left

    def _picked(self, sums: AnyArray, interaction: Interaction) -> AnyArray:
        inner = [self._inner(a, s) for a, s in enumerate(interaction.steps)]
        return np.asarray(sums[np.ix_(np.arange(len(sums)), *inner)])

    def table(
        self, totals: Mapping[tuple[int, ...], Int64Array], level: int, steps: Sequence[int]
    ) -> Int64Array:
        """A table from rounded cumulative totals, in steps, nodes of the tree first."""
        grid = np.zeros(self._grid(level, steps), np.int64)
        for interaction, rows, places in self._places(level, steps):
            grid[places] = totals[interaction.steps][rows]
        for a in np.flatnonzero(np.array(grid.shape) > 1).tolist():
            grid = np.diff(grid, axis=a, prepend=0)
        return np.asarray(self._restored(grid, steps), np.int64)

    def _grid(self, level: int, steps: Sequence[int]) -> tuple[int, ...]:
        others = (t.nodes(t.steps.index(s)) for t, s in zip(self._axes, steps, strict=True))
        return (self.interactions.as_tree.nodes(level), *others)

    # ------------------------------------------------------------------------ what it adds

    def _drawn(self, interaction: Interaction) -> BoolArray:
        """Which rows of an interaction's cumulative totals are rounded at all."""
        out = np.ones(self.interactions.as_tree.nodes(interaction.finest), bool)
        level = self.exact_level(interaction)
        if level is not None:
            out[self._rows(max(level, interaction.finest), interaction.finest)] = False
            if level <= interaction.finest:
                out[:] = False
        return out

    def draws(self, level: int, steps: Sequence[int]) -> Int64Array:
        """How many roundings enter each cell of a table."""
        grid = np.zeros(self._grid(level, steps), np.int64)
        for interaction, rows, places in self._places(level, steps):
            drawn = self._drawn(interaction)[rows]
            grid[places] = drawn.reshape(-1, *(1,) * (grid.ndim - 1))
        for a in np.flatnonzero(np.array(grid.shape) > 1).tolist():
            along = np.moveaxis(grid, a, 0)
            along[1:] += along[:-1]
        return np.asarray(self._restored(grid, steps), np.int64)

    def rounding_counts(self, margin: Margin) -> Int64Array:
        """How many roundings enter every group's total of a margin."""
        where = self.interactions.locate(margin)
        return self.interactions.from_nodes(self.draws(where.level, where.steps), where.level)

    def group_kinds(self, margin: Margin) -> Int64Array:
        """How many roundings enter: all count alike."""
        return self.rounding_counts(margin)

    def of_kind(self, margin: Margin, kind: int, group: int) -> FloatArray:
        """What each rounding adds to totals of a kind."""
        del margin, group
        return np.full(kind, 1.0 / self.step)

    def coefficients(self, weights: AnyArray) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds to a weighted sum of answers, and a bound on its variance.

        Roundings stand in one order, whichever tables have weights: those of two sums can be
        multiplied.
        """
        inter = self.interactions
        collected: dict[tuple[int, ...], FloatArray] = {}
        for interaction in inter.all.values():
            sizes = [len(self._inner(a, s)) for a, s in enumerate(interaction.steps)]
            collected[interaction.steps] = np.zeros(
                (inter.as_tree.nodes(interaction.finest), *sizes)
            )
        for where, table in inter.tables_of(weights):
            level, steps = where.level, where.steps
            if not np.any(table):
                continue
            grid = self._ordered(table, steps).astype(np.float64)
            for a in range(grid.ndim):  # the adjoint of differences
                grid = -np.diff(grid, axis=a, append=0.0)
            for interaction, rows, places in self._places(level, steps):
                collected[interaction.steps][rows] += grid[places]
        parts = [
            values[self._drawn(inter.all[tau])].reshape(-1) / self.step
            for tau, values in collected.items()
        ]
        adds = np.concatenate(parts) if parts else np.zeros(0)
        return adds, np.full(adds.size, ROUNDING_VARIANCE)

    def as_dict(self, answers: int) -> dict[str, Any]:
        """`coefficients` of every answer as a matrix; of many answers only a bound."""
        if answers > MOST_STATED:
            each = 2 ** (1 + len(self.interactions.axes)) * ROUNDING_VARIANCE
            return {"kind": "at most", "variance": each / self.step**2}
        variances = np.full(len(self.coefficients(np.zeros(answers))[0]), ROUNDING_VARIANCE)
        return rows_of([self.coefficients(one)[0] for one in np.eye(answers)], variances)

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            "controlled rounding of cumulative totals, each once and at random, to multiples of "
            f"10**-{self.decimals}, independent of the noise; a bound on its variance is in every "
            "stated error"
        )


def _thresholds(fraction: FloatArray) -> WordArray:
    """fraction·2⁶⁴ as words: a uniform word is below it with the probability of the fraction."""
    high = np.floor(fraction * 2.0**32)
    low = np.floor((fraction * 2.0**32 - high) * 2.0**32)
    out = (high.astype(np.uint64) << np.uint64(32)) + low.astype(np.uint64)
    return np.asarray(out, np.uint64)
