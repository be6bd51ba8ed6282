"""Which contrasts get which share of the budget: what a record spends, and the errors it buys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.frozen import frozen, remembered
from subspacedp.mechanisms.marginals.graph_smoother import GraphSmoother, GraphSystem
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.smoother import Smoother
from subspacedp.parallel import for_each

LeastSquares = Smoother | GraphSmoother


MAX_REGIONS = 12


@frozen(eq=False, repr=False)
class Regions:
    """Parts of the tree with shares of their own: those of one held level, alike ones together.

    Leaves of a region with one node need no noise for what is held; their shares go elsewhere.
    `level` is None where all of the tree is one region.
    """

    interactions: Interactions
    level: int | None

    @classmethod
    def of(cls, interactions: Interactions) -> Regions:
        """Those of the finest held level of a tree, if there are not too many kinds of them."""
        if not interactions.nested:
            return cls(interactions, None)
        tree = interactions.as_tree
        levels = {i.held for i in interactions.measured if i.held is not None}
        for level in sorted(levels):
            if level < tree.root and len(tree.orbits.number[level]) <= MAX_REGIONS:
                return cls(interactions, level)
        return cls(interactions, None)

    @property
    def number(self) -> int:
        """How many there are."""
        if self.level is None:
            return 1
        return len(self.interactions.tree.orbits.number[self.level])

    def apart(self, level: int) -> bool:
        """Whether a level has shares by region."""
        return self.level is not None and level <= self.level

    def of_orbits(self, level: int) -> Int64Array:
        """The region of every orbit of a level; zeros above the regions."""
        return self._of_orbits[level]

    @cached_property
    def _of_orbits(self) -> list[Int64Array]:
        regions = self.level
        return [
            self.interactions.as_tree.orbits.ancestors(level, regions)
            if regions is not None and self.apart(level)
            else np.zeros(len(number), np.int64)
            for level, number in enumerate(self.interactions.tree.orbits.number)
        ]


@frozen(eq=False, repr=False, kw_only=True)
class TableErrors:
    """Mean squared errors of the published tables, as a function of shares of the squared budget.

    Shares b are one number for each measured interaction, level of the tree and region: the squared
    length of one record's contrasts there over the variance of their noise.

    Parameters
    ----------
    constrained
        Whether exact totals enter the least squares.
    total_known
        Whether the grand total is known without noise, as no neighbouring change alters it.
    """

    interactions: Interactions
    regions: Regions
    constrained: bool
    total_known: bool

    @cached_property
    def slots(self) -> tuple[tuple[Interaction, int, int], ...]:
        """Interaction, level and region of every share."""
        out: list[tuple[Interaction, int, int]] = []
        for interaction in self.measured:
            for level in self._levels(interaction):
                count = self.regions.number if self.regions.apart(level) else 1
                out.extend((interaction, level, region) for region in range(count))
        return tuple(out)

    @cached_property
    def measured(self) -> tuple[Interaction, ...]:
        """The interactions with noise; not a grand total that is known and asked for alone."""
        root = self.interactions.tree.root
        return tuple(
            i for i in self.interactions.measured
            if not (self._root_known(i) and self.interactions.tree.determines(root, i.finest))
        )  # fmt: skip

    def _levels(self, interaction: Interaction) -> list[int]:
        """The levels worth measuring: those that nothing exact in the least squares determines."""
        tree = self.interactions.tree
        exact = interaction.exact if self._constrains(interaction) else ()
        return [
            level
            for level in range(interaction.finest, len(tree))
            if tree.determines(interaction.finest, level)
            and not any(tree.determines(e, level) for e in exact)
            and not (tree.determines(tree.root, level) and self._root_known(interaction))
        ]

    def _root_known(self, interaction: Interaction) -> bool:
        return self.total_known and not self.interactions.kept(interaction.steps)

    def _constrains(self, interaction: Interaction) -> bool:
        """Whether what is held enters the least squares: projected is onto one level."""
        return self.constrained or len(interaction.exact) > 1

    @cached_property
    def _places(self) -> dict[tuple[int, ...], list[tuple[int, slice]]]:
        """For every interaction its levels and where their shares are."""
        out: dict[tuple[int, ...], list[tuple[int, slice]]] = {}
        at = 0
        for interaction in self.measured:
            rows = []
            for level in self._levels(interaction):
                count = self.regions.number if self.regions.apart(level) else 1
                rows.append((level, slice(at, at + count)))
                at += count
            out[interaction.steps] = rows
        return out

    def places(self, interaction: Interaction) -> list[tuple[int, slice]]:
        """The levels at which an interaction can be measured, and where their shares are."""
        return self._places[interaction.steps]

    def precision(self, interaction: Interaction, shares: FloatArray) -> list[FloatArray]:
        """For every level of the tree the share that each orbit's measurement has."""
        orbits = self.interactions.tree.orbits
        out = [np.zeros_like(number) for number in orbits.number]
        for level, where in self._places[interaction.steps]:
            out[level] = shares[where][self.regions.of_orbits(level)]
        return out

    def smoother(self, interaction: Interaction, shares: FloatArray) -> LeastSquares:
        """Least squares for one interaction."""
        if not self.interactions.nested:
            given = {
                level: float(shares[where][0])
                for level, where in self._places[interaction.steps]
                if shares[where][0] > 0
            }
            return GraphSmoother(self._system(interaction, tuple(given)), given)
        return Smoother(
            tree=self.interactions.as_tree,
            precision=self.precision(interaction, shares),
            finest=interaction.finest,
            held=interaction.held,
            constrained=self.constrained,
            total_known=self._root_known(interaction),
        )

    def _system(self, interaction: Interaction, measured: tuple[int, ...]) -> GraphSystem:
        """The graph of some levels with what is exact for an interaction; each is found once."""
        tree, finest = self.interactions.tree, measured[0]
        told = tuple(e for e in interaction.exact if tree.determines(finest, e))
        exact, held = told, None
        if not self._constrains(interaction):
            exact, held = (), next(iter(told), None)
        if self._root_known(interaction) and not any(tree.determines(e, tree.root) for e in exact):
            exact = (*exact, tree.root)  # held classifications may leave labels out
        return self._graph(measured, exact, held)

    @remembered
    def _graph(
        self, measured: tuple[int, ...], exact: tuple[int, ...], held: int | None
    ) -> GraphSystem:
        overlap = self.interactions.as_overlap
        return GraphSystem(
            overlap=overlap, finest=measured[0], measured=measured[1:], exact=exact, held=held
        )

    def level_alone(self, interaction: Interaction, level: int) -> float:
        """Σ of the variances at a level that alone is measured, with unit precision."""
        if not self.interactions.nested:
            # What is projected and what is given are the same where nothing else is measured.
            system = self._system(interaction, (level,))
            system = replace(system, exact=system.given, held=None)
            return float(GraphSmoother(system, {level: 1.0}).summed(None)[0][level])
        orbits = self.interactions.as_tree.orbits
        precision = [np.zeros_like(number) for number in orbits.number]
        precision[level] = np.ones_like(orbits.number[level])
        smoother = Smoother(
            tree=self.interactions.as_tree,
            precision=precision,
            finest=level,
            held=interaction.held,
            constrained=self.constrained,
            total_known=self._root_known(interaction),
        )
        return float(orbits.number[level] @ smoother.variances[level])

    @cached_property
    def mixing(self) -> FloatArray:
        """What a table's mean squared error takes of each interaction's variances at its level."""
        inter = self.interactions
        out = np.zeros((len(inter.published), len(self.measured)))
        for t, table in enumerate(inter.published):
            nodes = inter.tree.nodes(table.level)
            cells = nodes * float(np.prod(inter.shape(table.steps), dtype=np.float64))
            for i, interaction in enumerate(self.measured):
                if interaction.steps in self._below[t]:
                    out[t, i] = inter.cost(interaction.steps, table.steps) / cells
        return out

    @cached_property
    def _below(self) -> list[set[tuple[int, ...]]]:
        inter = self.interactions
        return [set(inter.below(table.steps)) for table in inter.published]

    def __call__(self, shares: FloatArray) -> FloatArray:
        """The mean squared error of every published table."""
        return self.with_slopes(shares, None)[0]

    def with_slopes(
        self, shares: FloatArray, weights: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Errors, and −∂/∂shares of their weighted sum (zeros without weights)."""
        inter = self.interactions
        errors = np.zeros(len(inter.published))
        slopes = np.zeros(len(shares))
        levels = np.array([table.level for table in inter.published])
        one, slot = self.measured_once
        errors += self.mixing[:, one] @ (1.0 / shares[slot])
        if weights is not None:
            slopes[slot] = (weights @ self.mixing[:, one]) / shares[slot] ** 2
        smoothers = {i: self.smoother(interaction, shares) for i, interaction in self.on_tree}
        found: dict[int, tuple[FloatArray, Mapping[int, FloatArray]]] = {}

        def sum_up(i: int) -> None:
            each: FloatArray | None = None
            if weights is not None:
                each = np.bincount(
                    levels, weights * self.mixing[:, i], minlength=len(inter.tree)
                ).astype(np.float64)
            found[i] = smoothers[i].summed(each)

        if inter.nested:
            for i in smoothers:
                sum_up(i)
        else:  # threads pay for the elimination of sparse systems
            for smoother in smoothers.values():
                smoother.prepare()
            for_each(sum_up, list(smoothers))
        for i, interaction in self.on_tree:
            sums, by_orbit = found[i]
            errors += self.mixing[:, i] * sums[levels]
            self.gather_slopes(interaction, by_orbit, slopes)
        return errors, slopes

    def gather_slopes(
        self, interaction: Interaction, by_orbit: Mapping[int, FloatArray], out: FloatArray
    ) -> None:
        """Slopes by level as slopes by an interaction's shares, put in their places.

        A level has one for every orbit, or one for all of it.
        """
        for level, where in self._places[interaction.steps]:
            if level in by_orbit:
                regions, slopes = self.regions.of_orbits(level), by_orbit[level]
                count = where.stop - where.start
                alone = len(slopes) == 1
                out[where] = slopes if alone else np.bincount(regions, slopes, minlength=count)

    @cached_property
    def measured_once(self) -> tuple[Int64Array, Int64Array]:
        """Interactions that only the root has, and their slots: one measurement, variance 1/b."""
        root = self.interactions.tree.root
        one = [
            (i, self._places[interaction.steps][0][1].start)
            for i, interaction in enumerate(self.measured)
            if interaction.finest == root
        ]
        pairs = np.array(one, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    @cached_property
    def on_tree(self) -> list[tuple[int, Interaction]]:
        """The other interactions, with their numbers."""
        root = self.interactions.tree.root
        return [
            (i, interaction)
            for i, interaction in enumerate(self.measured)
            if interaction.finest != root
        ]

    def of_sample(self, labels: int) -> tuple[TableErrors, Int64Array] | None:
        """Errors of some labels alone, and where their shares are among those of all.

        None where there are few labels, or what is measured of some is another thing.
        """
        inter = self.interactions
        if len(inter.tree.axis) < 2 * labels:
            return None
        part = inter.of_labels(inter.tree.in_a_row(labels))
        few = replace(self, interactions=part, regions=Regions(part, None))
        place = {(i.steps, inter.tree.steps[lv]): s for s, (i, lv, _) in enumerate(self.slots)}
        order = [place.get((i.steps, part.tree.steps[lv])) for i, lv, _ in few.slots]
        if part.nested or sorted(s for s in order if s is not None) != list(range(len(place))):
            return None
        return few, np.array(order, np.int64)

    def spent(self) -> FloatArray:
        """What a record of each region spends of every share: one row per region.

        Where levels cross, one row for every set of groupings that a label is inside of.
        """
        if not self.interactions.nested:
            levels = np.array([level for _, level, _ in self.slots], np.int64)
            return self.interactions.as_overlap.inside[:, levels].astype(np.float64)
        rows = np.zeros((self.regions.number, len(self.slots)))
        for j, (_, level, region) in enumerate(self.slots):
            rows[region if self.regions.apart(level) else slice(None), j] = 1.0
        return rows
