"""What gets noise: contrasts of interactions, or whole tables."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen, remembered
from subspacedp.mechanisms.error_laws.sums import Part, part
from subspacedp.mechanisms.marginals.interactions import (
    AxisSteps,
    Interaction,
    Interactions,
    Published,
    determines,
)
from subspacedp.mechanisms.marginals.plan import LeastSquares, TableErrors
from subspacedp.mechanisms.marginals.smoother import Smoother
from subspacedp.mechanisms.marginals.tree import Nodes
from subspacedp.noise import KnownLaw, RoundedGaussian, add_noise
from subspacedp.noise.words import KeySource
from subspacedp.privacy import Neighbours
from subspacedp.queries import Sensitivity

Totals = Callable[[int, tuple[int, ...]], Int64Array]  # exact totals by level and steps
ByLevel = dict[int, FloatArray]

FINE = 2.0**10  # noise on contrasts has at least this scale, in units of what is measured


class Measurement(ABC):
    """Noisy integers, what they say of every interaction, and the law of what they are off."""

    errors: TableErrors

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.errors.interactions

    @property
    @abstractmethod
    def shares(self) -> FloatArray:
        """The precision of every slot of `errors`, in its units."""

    @property
    def closed_form(self) -> bool:
        """Whether noise on an interaction has one variance for all groups of a parent."""
        return True

    @abstractmethod
    def scales(self) -> tuple[float, float, int]:
        """Least and largest scale of the noise in units of the answers, and how many laws."""

    @property
    @abstractmethod
    def widest(self) -> KnownLaw:
        """The law of the largest scale, in units of the answers."""

    @abstractmethod
    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Of all that is measured together, in units of the answers, without the scales."""

    @property
    @abstractmethod
    def float_quantile(self) -> bool:
        """Whether some draws rest on a float64 quantile."""

    @property
    @abstractmethod
    def excess(self) -> float:
        """The largest excess kurtosis of a noise variable; 0 where none is known to be positive."""

    @abstractmethod
    def largest_drawn(self) -> float:
        """The largest scale in the units that are drawn."""

    @abstractmethod
    def largest_total(self) -> float:
        """Totals below this can be measured in 64 bits."""

    @property
    @abstractmethod
    def measured(self) -> tuple[Published, ...]:
        """The tables that get noise, by level and steps, in the order of the integers."""

    def width(self, table: Published) -> int:
        """How many integers of a table one node of the tree has."""
        return math.prod(self.interactions.shape(table.steps))

    @cached_property
    def _starts(self) -> list[int]:
        """Where the integers of every table begin, and where the last ones end."""
        tree = self.interactions.tree
        sizes = [tree.nodes(table.level) * self.width(table) for table in self.measured]
        return [0, *accumulate(sizes)]

    def split(self, flat: AnyArray) -> list[AnyArray]:
        """Numbers of all that is measured, table by table, nodes of the tree first."""
        return [
            flat[start:stop].reshape(-1, *self.interactions.shape(table.steps))
            for table, start, stop in zip(
                self.measured, self._starts, self._starts[1:], strict=False
            )
        ]

    def measure(
        self, totals: Totals, keys: KeySource, nodes: Nodes, levels: Collection[int]
    ) -> dict[int, Int64Array]:
        """The differentially private measurement of some levels: integers, by number of table.

        `totals` are those of some nodes: all of the axis, or a run of subtrees.
        """
        return {
            number: self.add_noise(
                number, nodes.rows(table.level).start, totals(table.level, table.steps), keys
            )
            for number, table in enumerate(self.measured)
            if table.level in levels
        }

    @abstractmethod
    def add_noise(self, number: int, first: int, totals: Int64Array, keys: KeySource) -> Int64Array:
        """Noisy integers of one table, for the nodes from `first` on that totals are given of.

        They depend on the totals of each node and on its place in the tree, and on nothing else.
        """

    def as_dict(self) -> dict[str, Any]:
        """Least squares: for every interaction the precision of each level, region by region.

        Levels of the tree are numbered, the finest first; regions are those of its groups.
        """
        inter, regions = self.interactions, self.errors.regions
        tree = inter.tree
        interactions = []
        for interaction in self.errors.measured:
            smoother = self.smoother(interaction)
            levels = [
                {
                    "level": level,
                    "precision": self.shares[where].tolist(),
                    **self._stated_level(interaction, level),
                }
                for level, where in self.errors.places(interaction)
            ]
            interactions.append(
                {
                    "contrasts": inter.level_names(interaction.steps),
                    "finest": interaction.finest,
                    "held": interaction.held,
                    "constrained": smoother.constrained,
                    "total_known": smoother.total_known,
                    "levels": levels,
                }
            )
        region_of = [
            tree.scatter(regions.of_orbits(level)[tree.orbits.of_node[level]], level).tolist()
            for level in range(len(tree))
        ]
        return {"regions": region_of, "interactions": interactions}

    @abstractmethod
    def _stated_level(self, interaction: Interaction, level: int) -> dict[str, Any]:
        """What noise the contrasts of an interaction have at a level, as plain data."""

    @abstractmethod
    def contrasts(self, noisy: Mapping[int, Int64Array]) -> dict[tuple[int, ...], ByLevel]:
        """The contrasts that were measured, in answers, by interaction and level.

        `noisy` has the integers of tables by number, for the same nodes at each level; all tables
        of a level, or none.
        """

    @abstractmethod
    def noise_vector(self, weights: Mapping[tuple[int, ...], ByLevel]) -> FloatArray:
        """Weights of the noise variables from weights of contrasts, times standard deviations."""

    @abstractmethod
    def parts(self, vector: FloatArray) -> tuple[Part, ...]:
        """Independent noise by its laws, from a vector of `noise_vector`."""

    def squared_weights(self, variance: float) -> float | None:
        """A bound on Σ wᵢ² of a weighted sum of drawn numbers, from the variance of the sum.

        Only where it is enough for the law of the sum: None where laws must be looked at.
        """
        del variance
        return None

    def parts_of_total(
        self, where: Published, node: int, groups: tuple[int, ...]
    ) -> tuple[Part, ...] | None:
        """The noise in one total of a margin; None where only `noise_vector` tells it."""
        del where, node, groups
        return None

    @abstractmethod
    def drawn(self, vector: FloatArray) -> FloatArray:
        """Numbers of standard deviations in the units that are drawn."""

    @cached_property
    def smoothers(self) -> dict[tuple[int, ...], LeastSquares]:
        """Least squares for every interaction that is measured, by its steps."""
        return {
            interaction.steps: self.errors.smoother(interaction, self.shares)
            for interaction in self.errors.measured
        }

    def smoother(self, interaction: Interaction) -> LeastSquares:
        """Least squares for one interaction."""
        return self.smoothers[interaction.steps]

    def tree_smoother(self, interaction: Interaction) -> Smoother:
        """The two passes for one interaction, where no levels cross."""
        found = self.smoother(interaction)
        if not isinstance(found, Smoother):
            raise ReleaseError("Levels that cross have no passes over a tree.")
        return found


@frozen(eq=False, repr=False)
class ContrastMeasurement(Measurement):
    """Rounded Gaussian noise on the contrasts of every interaction at some levels.

    Guarantees
    ----------
    1. What is measured are integers: contrasts times their denominators and a power of two. The
       variance of the noise on a group is at least ∏(1 − 1/k)/b in units of the answers, b the
       share of its interaction, level and region.
    """

    errors: TableErrors
    budget_shares: FloatArray
    excess: ClassVar[float] = 0.0  # rounded Gaussian noise
    float_quantile: ClassVar[bool] = True  # contrasts are drawn on a fine grid

    @property
    def shares(self) -> FloatArray:
        """Those of the squared budget."""
        return self.budget_shares

    @cached_property
    def pieces(self) -> tuple[tuple[Interaction, int], ...]:
        """Interactions and levels that are measured, in the order of the integers."""
        return tuple(
            (interaction, level)
            for interaction in self.errors.measured
            for level, where in self.errors.places(interaction)
            if np.any(self.budget_shares[where] > 0)
        )

    @cached_property
    def measured(self) -> tuple[Published, ...]:
        """The contrasts of every interaction at some levels."""
        return tuple(Published(level, interaction.steps) for interaction, level in self.pieces)

    def _sigma(self, interaction: Interaction, level: int) -> list[tuple[FloatArray, float]]:
        """By region the standard deviation of the noise on every group: (per group, share)."""
        inter = self.interactions
        root = np.sqrt(inter.shares(interaction.steps))
        where = dict(self.errors.places(interaction))[level]
        return [
            (root * (1 + 1e-14) / math.sqrt(b) if b > 0 else np.zeros_like(root), float(b))
            for b in self.budget_shares[where]
        ]

    @cached_property
    def _fine(self) -> dict[tuple[tuple[int, ...], int], int]:
        """Contrasts are measured in steps of one over this and ∏k: noise spreads over many."""
        out = {}
        for interaction, level in self.pieces:
            units = self.interactions.denominators(interaction.steps)
            least = min(
                float((s * units)[s > 0].min()) for s, b in self._sigma(interaction, level) if b > 0
            )
            out[interaction.steps, level] = 1 << max(0, math.ceil(math.log2(FINE / least)))
        return out

    def _units(self, interaction: Interaction, level: int) -> FloatArray:
        """How many steps of what is measured make one, for every group."""
        return (
            self.interactions.denominators(interaction.steps) * self._fine[interaction.steps, level]
        )

    def _drawn(self, interaction: Interaction, level: int) -> FloatArray:
        """Scales of the noise in the units that are drawn: regions first, then groups."""
        units = self._units(interaction, level)
        return np.stack([s * units * (1 + 1e-14) for s, _ in self._sigma(interaction, level)])

    def scales(self) -> tuple[float, float, int]:
        """Over all groups with contrasts."""
        scales = np.concatenate(
            [
                s[s > 0].reshape(-1)
                for interaction, lv in self.pieces
                for s, _ in self._sigma(interaction, lv)
            ]
        )
        return float(scales.min()), float(scales.max()), len(set(scales.tolist()))

    def largest_drawn(self) -> float:
        """Over all pieces."""
        return max(
            float(self._drawn(interaction, level).max()) for interaction, level in self.pieces
        )

    def largest_total(self) -> float:
        """Contrasts times their denominators must stay below 2**62."""
        inter = self.interactions
        return 2.0**62 / max(
            2.0 ** len(inter.kept(interaction.steps)) * float(self._units(interaction, level).max())
            for interaction, level in self.pieces
        )

    @property
    def widest(self) -> KnownLaw:
        """Rounded Gaussian noise."""
        return RoundedGaussian(self.scales()[1])

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """That of the contrasts, added up over interactions and levels."""
        inter, n = self.interactions, neighbours
        steps = [interaction.steps for interaction, _ in self.pieces]
        squared = math.fsum(2.0 * float(inter.shares(s).max()) for s in steps)
        l1 = sum(2 ** len(inter.kept(s)) for s in steps) * n.persons
        safe = Fraction(squared) * (1 + Fraction(1, 2**40)) * n.persons
        return Sensitivity(Fraction(l1 * n.records), safe * n.records**2)

    def squared_weights(self, variance: float) -> float:
        """Contrasts are drawn in fine steps: sums are normal up to what rounding to these adds."""
        return variance / self._least_drawn**2

    @cached_property
    def _least_drawn(self) -> float:
        """The smallest scale in the units that are drawn."""
        least = math.inf
        for interaction, level in self.pieces:
            scales = np.sqrt(self.interactions.shares(interaction.steps)) * self._units(
                interaction, level
            )
            largest_share = float(
                self.budget_shares[dict(self.errors.places(interaction))[level]].max()
            )
            least = min(least, float(scales[scales > 0].min()) / math.sqrt(largest_share))
        return least

    def add_noise(self, number: int, first: int, totals: Int64Array, keys: KeySource) -> Int64Array:
        """Contrasts as integers, plus noise."""
        interaction, level = self.pieces[number]
        fine = self._fine[interaction.steps, level]
        exact = self.interactions.whole_contrasts(totals, interaction.steps, fine).reshape(-1)
        # What gets no noise, because its region has no share, is not measured: zeros.
        noisy = np.zeros(exact.size, np.int64)
        for scale, start, places in self._runs(number, first, first + len(totals)):
            part = exact[places].copy()
            add_noise(RoundedGaussian(scale), keys, self._starts[number] + start, part, part)
            noisy[places] = part
        return noisy.reshape(totals.shape)

    def _runs(self, number: int, first: int, stop: int) -> list[tuple[float, int, Any]]:
        """Scales of the noise on some nodes, the first random word of each, and their places.

        Words are numbered on from one scale to the next, over all nodes. Groups without contrasts,
        and regions without a share, have no scale and no place.
        """
        interaction, level = self.pieces[number]
        drawn = self._drawn(interaction, level)
        shape = self.interactions.shape(interaction.steps)
        flat = np.broadcast_to(drawn, (len(drawn), *shape)).reshape(len(drawn), -1)
        distinct = np.unique(flat[flat > 0])
        if len(distinct) == 1 and np.all(flat > 0):
            return [(float(distinct[0]), first * flat.shape[1], slice(None))]
        before, everywhere = (self._in_regions(level, n)[: len(flat)] for n in (first, None))
        region = self._regions(level, first, stop)
        out, start = [], 0
        for scale in distinct:
            here = flat == scale
            per_node = here.sum(axis=1)
            places = np.flatnonzero(here[region].reshape(-1))
            out.append((float(scale), start + int(before @ per_node), places))
            start += int(everywhere @ per_node)
        return out

    def _regions(self, level: int, first: int = 0, stop: int | None = None) -> Int64Array:
        """The region of some nodes of a level; all by default."""
        orbits = self.interactions.tree.orbits.of_node[level][first:stop]
        return np.take(self.errors.regions.of_orbits(level), orbits)

    def _in_regions(self, level: int, number: int | None) -> Int64Array:
        """How many of the first nodes of a level are in each region."""
        regions, orbits = self.errors.regions, self.interactions.tree.orbits
        nodes = np.bincount(
            orbits.of_node[level][:number], minlength=len(orbits.number[level])
        ).astype(np.int64)
        out = np.zeros(regions.number, np.int64)
        np.add.at(out, regions.of_orbits(level), nodes)
        return out

    def contrasts(self, noisy: Mapping[int, Int64Array]) -> dict[tuple[int, ...], ByLevel]:
        """Noisy contrasts in answers, projected onto contrasts."""
        out: dict[tuple[int, ...], ByLevel] = {}
        for number, table in noisy.items():
            interaction, level = self.pieces[number]
            units = np.maximum(self._units(interaction, level), 1.0)
            out.setdefault(interaction.steps, {})[level] = self.interactions.contrasts(
                table / units, interaction.steps
            )
        return out

    def _stated_level(self, interaction: Interaction, level: int) -> dict[str, Any]:
        """Steps of one over `grid` and ∏k are what is drawn; none where nothing is measured."""
        fine = self._fine.get((interaction.steps, level))
        return {"grid": fine}

    def noise_vector(self, weights: Mapping[tuple[int, ...], ByLevel]) -> FloatArray:
        """Weights on contrasts, projected, times the standard deviation of every group's noise."""
        out = np.zeros(self._starts[-1])
        for (interaction, level), table in zip(self.pieces, self.split(out), strict=True):
            on_contrasts = weights.get(interaction.steps, {}).get(level)
            if on_contrasts is not None:
                inner = self.interactions.contrasts(on_contrasts, interaction.steps)
                deviation = self._deviations(interaction, level)[self._regions(level)]
                np.multiply(inner, deviation, out=table)
        return out

    def drawn(self, vector: FloatArray) -> FloatArray:
        """Times the standard deviation of every number."""
        out = vector.copy()
        for (interaction, level), table in zip(self.pieces, self.split(out), strict=True):
            each = self._deviations(interaction, level) * self._units(interaction, level)
            table *= each[self._regions(level)]
        return out

    def _deviations(self, interaction: Interaction, level: int) -> FloatArray:
        """Regions first: the standard deviation of the rounded noise on every group."""
        drawn = self._drawn(interaction, level)
        units = np.maximum(self._units(interaction, level), 1.0)
        return np.where(drawn > 0, np.sqrt(drawn**2 + 1 / 12) / units, 0.0)

    def parts(self, vector: FloatArray) -> tuple[Part, ...]:
        """One law for every scale."""
        out: list[Part] = []
        for number, table in enumerate(self.split(vector)):
            if table.any():
                for scale, _, places in self._runs(number, 0, len(table)):
                    law = RoundedGaussian(scale)
                    out.append(part(law, table.reshape(-1)[places] / math.sqrt(law.variance)))
        return tuple(out)


@frozen(eq=False, repr=False)
class TableMeasurement(Measurement):
    """Noise on every total of some tables.

    What a table says of an interaction are the contrasts of its sums; several tables of one level
    are weighted by their precision. On an axis beside the tree with groups of unequal size a sum
    has more noise the more totals it adds: all are weighted as if they had the mean number.
    """

    errors: TableErrors
    tables: tuple[Published, ...]
    laws: tuple[KnownLaw, ...]

    @property
    def excess(self) -> float:
        """Over all tables."""
        return max(law.excess for law in self.laws)

    @cached_property
    def information(self) -> FloatArray:
        """What unit precision on every table gives every slot: rows of slots."""
        return table_information(self.errors, self.tables)

    @cached_property
    def shares(self) -> FloatArray:
        """The precision of every slot."""
        return np.asarray(self.information @ (1.0 / self._variances))

    @cached_property
    def _variances(self) -> FloatArray:
        return np.array([law.variance for law in self.laws])

    @property
    def closed_form(self) -> bool:
        """Sums of unequally many totals have noise of unequal variance."""
        return not self.interactions.uneven_axes

    def scales(self) -> tuple[float, float, int]:
        """Over all tables."""
        scales = [law.scale for law in self.laws]
        return min(scales), max(scales), len(set(scales))

    def largest_drawn(self) -> float:
        """The same."""
        return self.scales()[1]

    @property
    def widest(self) -> KnownLaw:
        """Among those of the tables."""
        return max(self.laws, key=lambda law: law.scale)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Every record is counted once in every table."""
        number, m = len(self.tables) * neighbours.persons, neighbours.records
        return Sensitivity(Fraction(number * m), Fraction(number * m**2))

    @property
    def float_quantile(self) -> bool:
        """That of any table."""
        return any(law.float_quantile for law in self.laws)

    def largest_total(self) -> float:
        """Totals are measured as they are."""
        return math.inf

    @property
    def measured(self) -> tuple[Published, ...]:
        """The tables."""
        return self.tables

    def _present(self, table: Published) -> BoolArray:
        """Which groups of the other axes have labels: the others are publicly empty."""
        inter = self.interactions
        out: AnyArray = np.ones((1,) * len(inter.axes), bool)
        for a, (axis, step) in enumerate(zip(inter.axes, table.steps, strict=True)):
            sizes = axis.axis.step(step).sizes
            shape = [1] * len(inter.axes)
            shape[a] = len(sizes)
            out = out & (sizes > 0).reshape(shape)
        return np.broadcast_to(out, inter.shape(table.steps))

    def add_noise(self, number: int, first: int, totals: Int64Array, keys: KeySource) -> Int64Array:
        """The totals of a table, plus noise of its own law."""
        table = self.tables[number]
        noisy = totals.copy()
        start = self._starts[number] + first * self.width(table)
        add_noise(self.laws[number], keys, start, noisy.reshape(-1), noisy.reshape(-1))
        noisy[:, ~self._present(table)] = 0
        return noisy

    def _mixing(self, interaction: Interaction, level: int) -> list[tuple[int, float]]:
        """Tables that tell an interaction at a level, and what each counts for."""
        return self._mixings[interaction.steps, level]

    @cached_property
    def _mixings(self) -> dict[tuple[tuple[int, ...], int], list[tuple[int, float]]]:
        out = {}
        for (interaction, level, _), informed in zip(
            self.errors.slots, self.information, strict=True
        ):
            weights = informed / self._variances
            whole = float(weights.sum())
            if whole > 0:
                out[interaction.steps, level] = [
                    (t, float(w) / whole) for t, w in enumerate(weights) if w > 0
                ]
        return out

    @cached_property
    def _levels(self) -> list[tuple[Interaction, int]]:
        """Interactions and levels that a table tells."""
        return [
            (interaction, level)
            for interaction, level, _ in self.errors.slots
            if any(t.level == level and determines(t.steps, interaction.steps) for t in self.tables)
        ]

    def contrasts(self, noisy: Mapping[int, Int64Array]) -> dict[tuple[int, ...], ByLevel]:
        """The weighted mean of what every table says."""
        inter = self.interactions
        tables = {t: table.astype(np.float64) for t, table in noisy.items()}
        nodes = {self.tables[t].level: len(table) for t, table in tables.items()}
        out: dict[tuple[int, ...], ByLevel] = {}
        for interaction, level in self._levels:
            if level not in nodes:
                continue
            mean = np.zeros((nodes[level], *inter.shape(interaction.steps)))
            for t, weight in self._mixing(interaction, level):
                mean += weight * inter.sum_up(tables[t], self.tables[t].steps, interaction.steps)
            out.setdefault(interaction.steps, {})[level] = inter.contrasts(mean, interaction.steps)
        return out

    def as_dict(self) -> dict[str, Any]:
        """With the tables that were measured, and what each counts for at every level."""
        tables = [
            {
                "level": table.level,
                "levels": self.interactions.level_names(table.steps),
                "variance": law.variance,
            }
            for table, law in zip(self.tables, self.laws, strict=True)
        ]
        return {**super().as_dict(), "measured": tables}

    def _stated_level(self, interaction: Interaction, level: int) -> dict[str, Any]:
        """Numbers of tables, and their weights in the mean."""
        told = any((i.steps, at) == (interaction.steps, level) for i, at in self._levels)
        return {"mixing": [list(p) for p in self._mixing(interaction, level)] if told else []}

    def noise_vector(self, weights: Mapping[tuple[int, ...], ByLevel]) -> FloatArray:
        """Weights on the totals of the tables, times the standard deviations of their noise."""
        inter = self.interactions
        out = self.split(np.zeros(self._starts[-1]))
        for interaction, level in self._levels:
            on_contrasts = weights.get(interaction.steps, {}).get(level)
            if on_contrasts is None:
                continue
            inner = inter.contrasts(on_contrasts, interaction.steps)
            for t, weight in self._mixing(interaction, level):
                out[t] += weight * _repeated(inter, inner, interaction.steps, self.tables[t].steps)
        deviations = np.sqrt(self._variances)
        return np.concatenate(
            [
                np.where(self._present(t), table, 0.0).reshape(-1) * s
                for t, table, s in zip(self.tables, out, deviations, strict=True)
            ]
        )

    def parts_of_total(
        self, where: Published, node: int, groups: tuple[int, ...]
    ) -> tuple[Part, ...] | None:
        """The noise in one total of a margin, without a vector of all that is measured.

        The weights of one total are a product over the axes, and so are those of every
        interaction's contrasts; least squares acts on the tree alone. So on every axis groups with
        equal factors are counted, and only their combinations are formed.
        """
        if not self.closed_form:
            return None
        inter = self.interactions
        one = np.zeros(inter.tree.nodes(where.level))
        one[node] = 1.0
        tree = {
            interaction.steps: self.smoother(interaction).noise_weights({where.level: one})
            for interaction in self.errors.measured
            if determines(where.steps, interaction.steps)
        }
        out = []
        for t, (table, law) in enumerate(zip(self.tables, self.laws, strict=True)):
            terms = [
                (interaction.steps, weight)
                for interaction, level, weight in self._told_by[t]
                if level in tree.get(interaction.steps, {})
            ]
            if not terms:
                continue
            rows = np.stack([weight * tree[steps][table.level] for steps, weight in terms])
            values, counts = _counted(rows, np.ones(rows.shape[1], bool))
            for a, (axis, step) in enumerate(zip(inter.axes, table.steps, strict=True)):
                if where.steps[a] == step == axis.top:
                    continue  # all factors are 1 of one group
                taus = tuple(tau[a] for tau, _ in terms)
                distinct, number = self._factors(a, where.steps[a], groups[a], taus, step)
                values = (values[:, :, None] * distinct[:, None, :]).reshape(len(terms), -1)
                counts = np.multiply.outer(counts, number).reshape(-1)
            weights = values.sum(axis=0)
            if weights.any():
                out.append(part(law, weights, counts))
        return tuple(out)

    @cached_property
    def _told_by(self) -> list[list[tuple[Interaction, int, float]]]:
        """What every table tells: interactions and levels, and what it counts for."""
        out: list[list[tuple[Interaction, int, float]]] = [[] for _ in self.tables]
        for interaction, level in self._levels:
            for t, weight in self._mixing(interaction, level):
                out[t].append((interaction, level, weight))
        return out

    @remembered
    def _factors(
        self, a: int, at: int, group: int, steps: tuple[int, ...], fine: int
    ) -> tuple[FloatArray, FloatArray]:
        """The distinct factors of some contrasts on an axis, and how often each occurs."""
        axis = self.interactions.axes[a]
        factors = {step: _factor(axis, at, group, step, fine) for step in set(steps)}
        rows = np.stack([factors[step] for step in steps])
        return _counted(rows, axis.axis.step(fine).sizes > 0)

    def parts(self, vector: FloatArray) -> tuple[Part, ...]:
        """One law per table."""
        return tuple(
            part(law, table.reshape(-1) / math.sqrt(law.variance))
            for table, law in zip(self.split(vector), self.laws, strict=True)
            if table.any()
        )

    def drawn(self, vector: FloatArray) -> FloatArray:
        """Times the standard deviation of every table's noise."""
        return np.asarray(vector * np.repeat(np.sqrt(self._variances), np.diff(self._starts)))


def table_information(errors: TableErrors, tables: tuple[Published, ...]) -> FloatArray:
    """What unit precision on the totals of every table gives every slot.

    A total of interaction τ sums n totals of the table: its contrasts have the precision
    ∏(1 − 1/k)/n in units of shares; where groups are of unequal size, with the largest k and the
    mean n.
    """
    inter = errors.interactions
    out = np.zeros((len(errors.slots), len(tables)))
    for j, (interaction, level, _) in enumerate(errors.slots):
        share = float(inter.shares(interaction.steps).max())
        for t, table in enumerate(tables):
            if table.level != level or not determines(table.steps, interaction.steps):
                continue
            number = math.prod(
                axis.axis.step(s).nonempty / axis.axis.step(u).nonempty
                for axis, s, u in zip(inter.axes, table.steps, interaction.steps, strict=True)
            )
            out[j, t] = share / number
    return out


def _factor(axis: AxisSteps, at: int, group: int, step: int, fine: int) -> FloatArray:
    """What the contrasts of a step tell of one group's total at a step, for every fine group."""
    up = int(axis.axis.parents(at, step)[group])
    out = np.zeros(axis.axis.step(step).groups)
    out[up] = axis.path(at, step)[group]
    if step != axis.top:
        k = axis.siblings(step)
        out = np.where(k > 0, out - axis.same_parent(out, step, 0) / np.maximum(k, 1), 0.0)
    return np.asarray(out[axis.axis.parents(fine, step)])


def _counted(rows: FloatArray, present: BoolArray) -> tuple[FloatArray, FloatArray]:
    """The distinct columns among those present, and how often each occurs."""
    if rows.shape[1] == 1 and present[0]:  # so it is on every axis that a table leaves out
        return rows, np.ones(1)
    distinct, counts = np.unique(rows[:, present], axis=1, return_counts=True)
    return distinct, counts.astype(np.float64)


def _repeated(
    inter: Interactions, values: FloatArray, steps: tuple[int, ...], to: tuple[int, ...]
) -> FloatArray:
    """Every finer group's value of its coarser group: the adjoint of sums."""
    out = values
    for a, axis in enumerate(inter.axes):
        out = axis.spread(out, to[a], steps[a], a + 1)
    return np.broadcast_to(out, (len(values), *inter.shape(to)))
