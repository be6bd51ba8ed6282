"""The joint law of released minus true totals of a workload of margins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.frozen import frozen, remembered
from subspacedp.mechanisms.error_laws.joint import JointNoise, Pooling, stated_law
from subspacedp.mechanisms.error_laws.kinds import Kinds
from subspacedp.mechanisms.error_laws.sums import (
    NormalAndBounded,
    Part,
    Rounding,
    SumLaw,
    WeightedSum,
    near_normal,
)
from subspacedp.mechanisms.figures import EachApart, Figures, MarginFigures
from subspacedp.mechanisms.marginals.cell_rounding import CellRounding, CrossingCellRounding
from subspacedp.mechanisms.marginals.estimate import EmptyCells
from subspacedp.mechanisms.marginals.interactions import (
    AxisSteps,
    Interactions,
    Published,
    determines,
)
from subspacedp.mechanisms.marginals.measurement import ByLevel, Measurement
from subspacedp.mechanisms.marginals.plan import LeastSquares
from subspacedp.mechanisms.marginals.prefix_rounding import ROUNDING_VARIANCE, PrefixRounding
from subspacedp.mechanisms.marginals.tree import Tree
from subspacedp.queries import Margins
from subspacedp.tables import Margin

MOST_KINDS = 1 << 10  # of totals with a variance of their own
NEARLY_THE_SAME = 1e-3  # variances this near are taken together beyond that, as the largest
OTHER_TOTAL = 0.25  # whole totals that differ by less are the same, but for the rounding of float64
MOST_STATED = 1 << 18  # entries of a matrix that is stated where levels cross
NO_VARIANCE = 1e-9  # of the variance before empty cells were imposed: less is rounding error


@frozen(eq=False, repr=False, kw_only=True)
class AlikeTotals:
    """The totals of a margin, sorted into kinds with one error law each."""

    kind: AnyArray  # of every total, in the margin's shape
    number: Int64Array  # of totals, by kind
    first: Int64Array  # the first total of every kind
    noise: FloatArray  # the variance without rounding, by kind
    draws: Int64Array  # which roundings enter, by kind: how many, where they count alike
    noise_class: Int64Array  # equal for kinds that differ by their roundings alone
    rounding: FloatArray  # a bound on the variance that roundings add, by kind
    apart: FloatArray | None = None  # of every total, where kinds have the largest of like ones

    @cached_property
    def variance(self) -> FloatArray:
        """The variance by kind; 0 where the invariants fix a total."""
        return np.where(self.noise > 0, self.noise + self.rounding, 0.0)

    @property
    def of_totals(self) -> FloatArray:
        """The variance of every total."""
        if self.apart is None:
            return np.take(self.variance, self.kind)
        rounding = np.take(self.rounding, self.kind)
        return np.where(self.apart > 0, self.apart + rounding, 0.0)


@frozen(eq=False, repr=False, kw_only=True)
class MarginalsNoise(JointNoise):
    """Independent noise on what is measured, through least squares, plus controlled rounding.

    Guarantees
    ----------
    1. Variances are those of the two passes in closed form, exact up to float64 rounding; with
       rounded totals, at most a quarter of a squared step is added for each.
    """

    workload: Margins
    measurement: Measurement
    cells: bool = False  # released is the table of cells, the first margin of the workload
    rounding: PrefixRounding | CellRounding | CrossingCellRounding | None = None
    bounded: bool = False  # held totals count all records: what is true of bounded ones is real
    empty: EmptyCells | None = None

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.measurement.interactions

    @property
    def grid(self) -> float | None:
        """What published and true values are multiples of; None where either can be real."""
        return None if self.rounding is None or self.bounded else 1.0 / self.rounding.step

    # ------------------------------------------------------------------------ variances

    def cell_variance(self) -> FloatArray:
        """The variance of every answer."""
        if self.cells:
            return self.margin_variance(self.workload.margins[0])
        return np.concatenate([self.margin_variance(m).reshape(-1) for m in self.workload.margins])

    def knows(self, margin: Margin) -> bool:
        """Whether the totals of a margin have a closed form: its levels are in use."""
        inter = self.interactions
        if inter.place is not None and margin.steps[inter.place] not in inter.tree.steps:
            return False
        where = inter.locate(margin)
        used = all(s in axis.steps for s, axis in zip(where.steps, inter.axes, strict=True))
        return used and any(
            inter.tree.determines(p.level, where.level) and determines(p.steps, where.steps)
            for p in inter.published
        )

    def margin_variance(self, margin: Margin) -> FloatArray:
        """The variance of every total of a margin that `knows` says is known."""
        variance = self.alike(margin).of_totals
        if self.empty is None:
            return variance
        left = variance - self.empty.variance_taken_off(margin)
        return np.where(left > NO_VARIANCE * variance, left, 0.0)

    @remembered
    def alike(self, margin: Margin) -> AlikeTotals:
        """Which totals of a margin have one law.

        Nodes of one orbit, groups with equally many siblings, equally many roundings.
        """
        inter = self.interactions
        where = inter.locate(margin)
        groups, noise = self._by_class(where)

        def everywhere(of_class: AnyArray) -> AnyArray:
            """Every total's value from those of orbits and classes of groups."""
            for a, classes in enumerate((inter.tree.orbits.of_node[where.level], *groups)):
                if of_class.shape[a] > 1 or len(classes) > 1:
                    of_class = np.take(of_class, classes, axis=a)
            return inter.from_nodes(of_class, where.level)

        numbers, values = self._numbered(noise)
        kind = everywhere(numbers)  # 0: groups without labels
        draws = self.draws(margin)
        most = int(draws.max(initial=0)) + 1
        kind = kind * np.int64(most) + draws
        number = np.bincount(kind.reshape(-1))
        used = np.flatnonzero(number)
        rank = np.zeros(number.size, np.min_scalar_type(len(used)))
        rank[used] = np.arange(len(used))
        ranked = np.take(rank, kind)
        first = np.zeros(len(used), np.int64)
        first[ranked.reshape(-1)[::-1]] = np.arange(ranked.size)[::-1]
        return AlikeTotals(
            kind=ranked,
            number=number[used],
            first=first,
            noise=np.concatenate([[0.0], values])[used // most],
            draws=used % most,
            noise_class=used // most,
            rounding=self._rounding_variance(margin, used % most, first),
            apart=everywhere(noise) if len(values) < noise.size else None,
        )

    def _numbered(self, noise: FloatArray) -> tuple[AnyArray, FloatArray]:
        """Numbers of classes from 1 on, and the variance of each.

        Where levels cross every node is of its own class. Variances that are nearly the same make
        one, with the largest of them: for normal noise, whose law they decide.
        """
        numbers: AnyArray = np.arange(1, noise.size + 1, dtype=np.int32)
        numbers = numbers.reshape(noise.shape)
        nested, normal = self.interactions.nested, self.measurement.squared_weights(1.0)
        if nested or normal is None or noise.size <= MOST_KINDS:
            return numbers, np.asarray(noise.reshape(-1))
        with np.errstate(divide="ignore"):
            bins = np.ceil(np.log(noise.reshape(-1)) / NEARLY_THE_SAME)
        _, inverse = np.unique(bins, return_inverse=True)
        values = np.zeros(int(inverse.max()) + 1)
        np.maximum.at(values, inverse.reshape(-1), noise.reshape(-1))
        return (inverse.reshape(noise.shape) + 1).astype(np.int64), values

    def _rounding_variance(
        self, margin: Margin, draws: Int64Array, first: Int64Array
    ) -> FloatArray:
        """A bound on what roundings add to the variance of every kind."""
        if self.rounding is None:
            return np.zeros(len(draws))
        pairs = zip(draws.tolist(), first.tolist(), strict=True)
        each = [self.rounding.of_kind(margin, kind, group) for kind, group in pairs]
        return np.array([ROUNDING_VARIANCE * float(c @ c) for c in each])

    def _by_class(self, where: Published) -> tuple[list[Int64Array], FloatArray]:
        """Classes of groups on every other axis, and the noise variance by orbit and class."""
        closed = self.measurement.closed_form
        sort, variance = (
            (AxisSteps.alike, self._noise_variance)
            if closed
            else (_same_orbit, self._noise_of_firsts)
        )
        pairs = zip(self.interactions.axes, where.steps, strict=True)
        groups = [sort(axis, s) for axis, s in pairs]
        return groups, variance(where, [_firsts(classes) for classes in groups])

    def total_variance(self) -> float | None:
        """For the cells of a table, from kinds of nodes and groups: no array of all cells."""
        if not self.cells or self.empty is not None:
            return None
        where = self.interactions.published[0]
        groups, total = self._by_class(where)
        for classes in reversed(groups):
            total = total @ np.bincount(classes)
        noise = float(self.interactions.tree.orbits.number[where.level] @ total)
        if self.rounding is None or isinstance(self.rounding, PrefixRounding):
            return noise
        return noise + self.rounding.total_variance()

    def draws(self, margin: Margin) -> Int64Array:
        """How many roundings enter each total of a margin; or a number for which ones."""
        if self.rounding is None:
            return np.zeros(margin.shape, np.int64)
        kinds: Any = self.rounding.group_kinds(margin)
        return np.asarray(np.broadcast_to(kinds, margin.shape))

    def _noise_variance(self, where: Published, groups: Sequence[Int64Array]) -> FloatArray:
        return noise_by_orbit(self.interactions, where, groups, self.measurement.smoothers)

    def _noise_of_firsts(self, where: Published, groups: Sequence[Int64Array]) -> FloatArray:
        """The same from the noise in one total of every kind, where there is no closed form."""
        inter = self.interactions
        nodes = _firsts(inter.tree.orbits.of_node[where.level])
        out = np.zeros((len(nodes), *(len(g) for g in groups)))
        shape = (inter.tree.nodes(where.level), *inter.shape(where.steps))
        for place in np.ndindex(out.shape):
            first = (nodes[place[0]], *(g[p] for g, p in zip(groups, place[1:], strict=True)))
            sizes = (
                axis.axis.step(s).sizes[g]
                for axis, s, g in zip(inter.axes, where.steps, first[1:], strict=True)
            )
            if all(size > 0 for size in sizes):  # else a group without labels
                one = np.zeros(shape)
                one[first] = 1.0
                vector = self.measurement.noise_vector(self._on_measured([(where, one)]))
                out[place] = float(vector @ vector)
        return out

    # ------------------------------------------------------------------------ the joint law

    @property
    def excess(self) -> float:
        """The largest of all that is measured."""
        return self.measurement.excess

    def dimension(self, answers: int) -> int:
        """Contrasts of nodes that are measured, less those that are exact."""
        inter, out = self.interactions, 0
        del answers
        for interaction in self.measurement.errors.measured:
            free = self.measurement.smoother(interaction).free
            out += inter.dimension(interaction.steps) * free
        return out

    def log_normal(self, difference: FloatArray) -> float:
        """Interaction by interaction, in their contrasts at the finest level of each.

        Rounding widens all of it in the ratio that it adds to the sum of all variances.
        """
        total = float(self.tables_of(difference)[0].sum())
        if self.measurement.errors.total_known and abs(total) >= OTHER_TOTAL:
            return -math.inf  # a total without noise is not another one
        widened = 1.0
        if self.rounding is not None:
            noise = replace(self, rounding=None).cell_variance()
            widened = float(self.cell_variance().sum() / noise.sum())
        inter, tables = self.interactions, self.tables_of(difference / math.sqrt(widened))
        logs = [
            self.measurement.smoother(interaction).log_density(
                inter.contrasts_from(tables, interaction), inter.shares(interaction.steps)
            )
            for interaction in self.measurement.errors.measured
        ]
        return math.fsum(logs) - 0.5 * self.dimension(difference.size) * math.log(widened)

    def pooled(self, noises: tuple[JointNoise, ...]) -> Pooling | None:
        """An average where all measured alike, else a tree smoother for every interaction."""
        alike = tuple(noise for noise in noises if isinstance(noise, MarginalsNoise))
        if len(alike) < len(noises) or not all(self.comparable(other) for other in alike):
            return None
        from subspacedp.mechanisms.marginals.pooling import TreePooling, averaging

        return averaging(alike) or TreePooling(alike)

    def comparable(self, other: MarginalsNoise) -> bool:
        """Whether both take the same answers apart in the same way."""
        mine, theirs = self.interactions, other.interactions
        return (
            self.cells == other.cells
            and mine.domain.matches(theirs.domain)
            and mine.nested
            and theirs.nested
            and [m.names for m in mine.workload] == [m.names for m in theirs.workload]
            and {m.names for m in mine.held} == {m.names for m in theirs.held}
        )

    def tables_of(self, values: FloatArray) -> list[FloatArray]:
        """Answers as the tables of `published`, nodes of the tree first; cells are the first."""
        return [table for _, table in self.interactions.tables_of(values)]

    def answers_of(self, tables: list[FloatArray]) -> FloatArray:
        """The inverse of `tables_of`."""
        inter = self.interactions
        pairs = zip(inter.published, tables, strict=False)
        out = [inter.from_nodes(table, where.level) for where, table in pairs]
        return out[0] if self.cells else np.concatenate([t.reshape(-1) for t in out])

    # ------------------------------------------------------------------------ weighted sums

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of the noise variables, times their standard deviations."""
        on_estimate = (
            weights if self.empty is None else self.empty.adjoint(np.asarray(weights, float))
        )
        tables = [pair for pair in self.interactions.tables_of(on_estimate) if np.any(pair[1])]
        return self.measurement.noise_vector(self._on_measured(tables))

    @property
    def nothing(self) -> float:
        """Less exact where a system of equations is solved for empty cells."""
        return 1e-20 if self.empty is None else NO_VARIANCE

    def _on_measured(
        self, tables: list[tuple[Published, FloatArray]]
    ) -> dict[tuple[int, ...], ByLevel]:
        """Weights of what is measured, by the adjoints of spreading and of least squares."""
        inter = self.interactions
        out: dict[tuple[int, ...], ByLevel] = {}
        for interaction in self.measurement.errors.measured:
            by_level: ByLevel = {}
            for where, table in tables:
                if not determines(where.steps, interaction.steps):
                    continue
                gathered = inter.gather(table, where.steps, interaction.steps)
                known = by_level.get(where.level)
                by_level[where.level] = gathered if known is None else known + gathered
            if by_level:
                out[interaction.steps] = self.measurement.smoother(interaction).noise_weights(
                    by_level
                )
        return out

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """By law."""
        return self.measurement.parts(inside)

    def stated_noise(self) -> dict[str, Any]:
        """Axes with the steps in use; for every interaction its precision and noise by level.

        Where levels cross there is no tree to go along: a matrix, or for larger tables no weights.
        """
        inter = self.interactions
        if not inter.nested:
            integers = sum(
                inter.tree.nodes(t.level) * self.measurement.width(t)
                for t in self.measurement.measured
            )
            if self.workload.domain.size * integers <= MOST_STATED:
                return super().stated_noise()
            return {"kind": "unstated"} | stated_law(None, 1.0, self.each)
        empty = None if self.empty is None else self.empty.as_dict()
        return {
            "kind": "interactions",
            "tables": [list(m.names) for m in self.workload.margins[: 1 if self.cells else None]],
            **inter.as_dict(),
            **self.measurement.as_dict(),
            "empty": empty,
        } | stated_law(None, 1.0, self.each)

    def stated_rounding(self) -> dict[str, Any] | None:
        """Entries of a cumulated table of cells; or those of several tables, as a matrix."""
        if self.rounding is not None and not isinstance(self.rounding, PrefixRounding):
            domain = self.workload.domain
            if domain.size > self.rounding.most_stated:
                return self.rounding.at_most()
            return self.rounding.as_dict(self.rounding.coefficients(np.zeros(domain.shape))[1])
        return None if self.rounding is None else self.rounding.as_dict(self.workload.size)

    def roundings(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds, and a bound on its variance."""
        if self.rounding is None:
            return super().roundings(weights)
        return self.rounding.coefficients(weights)

    def law_from(
        self,
        parts: tuple[Part, ...],
        coefficients: FloatArray,
        step: float | None,
        variance: float,
    ) -> SumLaw:
        """The law of a weighted sum: as a normal one with a bound where that is close."""
        rounding = Rounding.of(coefficients)
        near = near_normal(parts, rounding, step)
        return near or super().law_from(parts, coefficients, step, variance)

    def total_law(self, margin: Margin, kind: int) -> SumLaw:
        """The law of the error of the totals of one kind, from their variance where that is enough.

        Contrasts are drawn in fine steps, so their sum is normal up to what rounding to these adds.
        """
        alike, measurement = self.alike(margin), self.measurement
        noise = float(alike.noise[kind])
        if noise == 0:
            return WeightedSum(parts=())
        roundings = np.zeros(0)
        if self.rounding is not None:
            roundings = self.rounding.of_kind(
                margin, int(alike.draws[kind]), int(alike.first[kind])
            )
        squared = measurement.squared_weights(noise)
        if squared is not None:
            grid = self.grid if roundings.size else None
            return NormalAndBounded(math.sqrt(noise), squared, Rounding.of(roundings), grid)
        return self.law_from(
            self._noise_parts(margin, kind), roundings, self.grid, float(alike.variance[kind])
        )

    def _noise_parts(self, margin: Margin, kind: int) -> tuple[Part, ...]:
        """The noise in totals of a kind; kinds that differ by their roundings alone share it."""
        alike, known = self.alike(margin), self._parts_of_totals
        which = (margin.steps, int(alike.noise_class[kind]))
        if which not in known:
            where = self.interactions.locate(margin)
            first = np.unravel_index(int(alike.first[kind]), margin.shape)
            place = tuple(int(p) for p in first)
            node = self.interactions.node_of(place, where.level)
            parts = self.measurement.parts_of_total(where, *node)
            if parts is None:
                parts = self.parts(self.inside(self.indicator(margin, place)))
            known[which] = parts
        return known[which]

    @cached_property
    def _parts_of_totals(self) -> dict[tuple[tuple[int, ...], int], tuple[Part, ...]]:
        return {}

    def indicator(self, margin: Margin, place: tuple[int, ...]) -> FloatArray:
        """Weights of the answers whose weighted sum is one total of a margin."""
        one = np.zeros(margin.shape)
        one[place] = 1.0
        if self.cells:
            return np.array(np.broadcast_to(margin.spread(one), self.workload.domain.shape))
        return self.workload.indicator(margin, one)


def noise_by_orbit(
    inter: Interactions,
    where: Published,
    groups: Sequence[Int64Array],
    smoothers: Mapping[tuple[int, ...], LeastSquares],
) -> FloatArray:
    """Σ over interactions of path² · ∏(1 − 1/k)² · V, for every orbit of nodes and some groups.

    `groups` has those of every other axis at the steps of the margin.
    """
    number = len(inter.tree.orbits.number[where.level])
    out = np.zeros((number, *(len(g) for g in groups)))
    for interaction in inter.inside(where.steps):
        if interaction.steps in smoothers:
            variances = smoothers[interaction.steps].variances[where.level]
            taken = inter.taken(where.steps, interaction.steps, groups)
            out += np.multiply.outer(variances, taken)
    return out


@frozen(eq=False, repr=False)
class TotalsOfMargin(MarginFigures):
    """The totals of one margin; those of alike nodes and groups share a law."""

    noise: MarginalsNoise
    margin: Margin

    def variance(self) -> FloatArray:
        """In closed form."""
        return self.noise.margin_variance(self.margin)

    def classes(self) -> Int64Array:
        """One number for alike nodes, groups of alike sizes and equally many roundings."""
        return self.noise.alike(self.margin).kind.astype(np.int64)

    def kinds(self) -> Iterator[Kinds]:
        """Counted, none by itself."""
        alike, rounding = self.noise.alike(self.margin), self.noise.rounding
        family = None
        if rounding is None or rounding.counted:
            family = 2 * alike.noise_class + (alike.draws > 0)
        yield Kinds(alike.variance, alike.number, np.arange(alike.number.size), family)

    def law(self, number: int) -> SumLaw:
        """That of its kind."""
        return self.noise.total_law(self.margin, int(number))


@frozen(eq=False, repr=False)
class AllTotals(Figures):
    """Every answer of a workload, margin after margin."""

    noise: MarginalsNoise

    @cached_property
    def _margins(self) -> list[TotalsOfMargin]:
        return [TotalsOfMargin(self.noise, m) for m in self.noise.workload.margins]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """One vector."""
        return self.noise.workload.shape

    @property
    def whole(self) -> bool:
        """Whether all figures are published as whole numbers, and so are the true ones."""
        return self.noise.grid == 1.0

    def variance(self) -> FloatArray:
        """In closed form."""
        return np.concatenate([totals.variance().reshape(-1) for totals in self._margins])

    @cached_property
    def _starts(self) -> list[int]:
        sizes = [int(totals.classes().max(initial=0)) + 1 for totals in self._margins]
        return [0, *np.cumsum(sizes).tolist()]

    def classes(self) -> Int64Array:
        """The classes of every margin, counted on."""
        pairs = zip(self._margins, self._starts, strict=False)
        return np.concatenate([totals.classes().reshape(-1) + start for totals, start in pairs])

    def law(self, number: int) -> SumLaw:
        """By margin."""
        which = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self._margins[which].law(number - self._starts[which])


def totals_apart(noise: MarginalsNoise, margin: Margin) -> EachApart:
    """Totals of a margin at a level that no margin of the workload uses."""

    def weights(i: int) -> FloatArray:
        place = tuple(int(p) for p in np.unravel_index(i, margin.shape))
        return noise.indicator(margin, place)

    known = noise.margin_variance(margin) if noise.knows(margin) else None
    return EachApart(noise, margin.shape, weights, known)


def _same_orbit(axis: AxisSteps, step: int) -> Int64Array:
    """Groups that a symmetry of the levels in use takes to each other; one class without labels."""
    tree = Tree(axis.axis, axis.steps)
    level = axis.steps.index(step)
    orbits = tree.scatter(tree.orbits.of_node[level] + 1, level)
    return np.asarray(np.unique(orbits, return_inverse=True)[1].reshape(-1), np.int64)


def _firsts(classes: Int64Array) -> Int64Array:
    """The first member of every class."""
    return np.asarray(np.unique(classes, return_index=True)[1], np.int64)
