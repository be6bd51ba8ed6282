"""The joint law of released minus true totals of a workload of margins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.error_laws.joint import JointNoise
from subspacedp.mechanisms.error_laws.near_normal import NormalAndBounded, near_normal
from subspacedp.mechanisms.error_laws.sums import Part, Rounding, SumLaw, WeightedSum
from subspacedp.mechanisms.figures import EachApart, Figures, MarginFigures
from subspacedp.mechanisms.marginals.axis_steps import AxisSteps
from subspacedp.mechanisms.marginals.empty_cells import EmptyCells
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions, Published
from subspacedp.mechanisms.marginals.measurement import (
    ByLevel,
    ContrastMeasurement,
    Measurement,
)
from subspacedp.mechanisms.marginals.prefix_rounding import COIN_VARIANCE, PrefixRounding
from subspacedp.mechanisms.marginals.tree import Tree
from subspacedp.queries import Margins
from subspacedp.rounding.levels import LevelDigits
from subspacedp.tables import Margin, along

__all__ = ["AllTotals", "MarginalsNoise", "TotalsOfMargin", "totals_apart"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NO_VARIANCE = 1e-9  # of the variance before empty cells were imposed: less is rounding error


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
    rounding: PrefixRounding | LevelDigits | None = None
    bounded: bool = False  # held totals count all records: what is true of bounded ones is real
    empty: EmptyCells | None = None

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.measurement.interactions

    @property
    def each(self) -> float:
        """`inside` counts in standard deviations."""
        return 1.0

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
            p.level <= where.level and _determines(p.steps, where.steps) for p in inter.published
        )

    def margin_variance(self, margin: Margin) -> FloatArray:
        """The variance of every total of a margin that `knows` says is known."""
        inter = self.interactions
        where = inter.locate(margin)
        noise = inter.from_nodes(self._noise_variance(where), where.level)
        if self.rounding is not None:
            added = self.draws(margin) * (COIN_VARIANCE / self.rounding.step**2)
            noise = np.where(noise > 0, noise + added, 0.0)
        if self.empty is not None:
            left = noise - self.empty.variance_taken_off(margin)
            noise = np.where(left > NO_VARIANCE * noise, left, 0.0)
        return noise

    def draws(self, margin: Margin) -> Int64Array:
        """How many roundings enter each total of a margin."""
        if self.rounding is None:
            return np.zeros(margin.shape, np.int64)
        if isinstance(self.rounding, PrefixRounding):
            where = self.interactions.locate(margin)
            table = self.rounding.draws(where.level, where.steps)
            return self.interactions.from_nodes(table, where.level)
        return np.broadcast_to(self.rounding.coin_counts(margin), margin.shape)

    def _noise_variance(self, where: Published) -> FloatArray:
        """Σ over interactions of path² · ∏(1 − 1/k)² · V of the node."""
        inter = self.interactions
        out = np.zeros((inter.tree.nodes(where.level), *inter.shape(where.steps)))
        if not self.measurement.closed_form:
            return self._variance_by_kind(where)
        for own in inter.inside(where.steps):
            if own in self._measured:
                node = inter.tree.orbits.spread(
                    self.measurement.smoother(own).variances[where.level], where.level
                )
                each = inter.spread((inter.shares(own.steps) ** 2)[None], own.steps, where.steps, 2)
                out += node.reshape(-1, *(1,) * (each.ndim - 1)) * each
        return out

    def _variance_by_kind(self, where: Published) -> FloatArray:
        """From the noise in one total of every kind: alike nodes and alike groups share it."""
        inter = self.interactions
        kinds = self.kinds(where)
        numbers, first = np.unique(kinds, return_index=True)
        values = np.zeros(len(numbers))
        for i, place in enumerate(first.tolist()):
            one = np.zeros(kinds.shape)
            one.reshape(-1)[place] = 1.0
            if not all(
                axis.axis.step(s).sizes[p] > 0
                for axis, s, p in zip(
                    inter.axes, where.steps, np.unravel_index(place, kinds.shape)[1:], strict=True
                )
            ):
                continue  # a group without labels
            vector = self.measurement.noise_vector(self._on_measured([(where, one)]))
            values[i] = float(vector @ vector)
        return values[np.searchsorted(numbers, kinds)]

    def kinds(self, where: Published) -> Int64Array:
        """A number for every total of a table: those alike by the symmetries of the axes."""
        inter = self.interactions
        orbits = inter.tree.orbits.of_node[where.level]
        kinds: Int64Array = orbits.reshape(-1, *(1,) * len(inter.axes))
        for a, (axis, step) in enumerate(zip(inter.axes, where.steps, strict=True)):
            own = _alike(axis, step) if self.measurement.closed_form else _same_orbit(axis, step)
            kinds = kinds * (int(own.max(initial=0)) + 1) + along(own, a + 1, len(inter.axes) + 1)
        shape = (inter.tree.nodes(where.level), *inter.shape(where.steps))
        flat = np.unique(np.broadcast_to(kinds, shape), return_inverse=True)[1]
        return np.asarray(flat.reshape(shape), np.int64)

    @cached_property
    def _measured(self) -> set[Interaction]:
        return set(self.measurement.errors.measured)

    # ------------------------------------------------------------------------ weighted sums

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of the noise variables, times their standard deviations."""
        own = weights if self.empty is None else self.empty.adjoint(np.asarray(weights, float))
        return self.measurement.noise_vector(self._on_measured(self._tables(own)))

    @property
    def nothing(self) -> float:
        """Less exact where a system of equations is solved for empty cells."""
        return 1e-20 if self.empty is None else NO_VARIANCE

    def _tables(self, weights: FloatArray) -> list[tuple[Published, FloatArray]]:
        inter = self.interactions
        asked = np.asarray(weights, np.float64)
        split = [asked] if self.cells else self.workload.split(asked)
        return [
            (where, inter.to_nodes(table, where.level))
            for where, table in zip(inter.published, split, strict=False)
            if np.any(table)
        ]

    def _on_measured(
        self, tables: list[tuple[Published, FloatArray]]
    ) -> dict[tuple[int, ...], ByLevel]:
        """Weights of what is measured, by the adjoints of spreading and of least squares."""
        inter = self.interactions
        out: dict[tuple[int, ...], ByLevel] = {}
        for own in self.measurement.errors.measured:
            asked: ByLevel = {}
            for where, table in tables:
                if not _determines(where.steps, own.steps):
                    continue
                gathered = inter.gather(table, where.steps, own.steps)
                known = asked.get(where.level)
                asked[where.level] = gathered if known is None else known + gathered
            if asked:
                out[own.steps] = self.measurement.smoother(own).noise_weights(asked)
        return out

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """By law."""
        return self.measurement.parts(inside)

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds, and a bound on its variance."""
        if self.rounding is None:
            return np.zeros(0), np.zeros(0)
        if isinstance(self.rounding, LevelDigits):
            return self.rounding.coefficients(weights)
        asked = [(w.level, w.steps, table) for w, table in self._tables(weights)]
        found = self.rounding.coefficients(asked)
        return found, np.full(found.size, COIN_VARIANCE)

    def law_from(
        self,
        parts: tuple[Part, ...],
        coefficients: FloatArray,
        step: float | None,
        variance: float,
    ) -> SumLaw:
        """The law of a weighted sum: as a normal one with a bound where that is close."""
        used = coefficients[np.abs(coefficients) > 1e-12]
        rounding = Rounding(float(used @ used), float(np.abs(used).sum())) if used.size else None
        return near_normal(parts, rounding) or super().law_from(parts, coefficients, step, variance)

    def total_law(self, margin: Margin, place: tuple[int, ...], variance: float) -> SumLaw:
        """The law of the error of one total, from its variance where that is enough."""
        if variance == 0:
            return WeightedSum(parts=())
        draws, step = 0, 1.0
        if self.rounding is not None:
            draws, step = int(self.draws(margin)[place]), 1.0 / self.rounding.step
        if isinstance(self.measurement, ContrastMeasurement) and self.rounding is None:
            least = self.measurement.least_drawn()
            return NormalAndBounded(math.sqrt(variance), variance / least**2)
        parts = self.parts(self.inside(self.indicator(margin, place)))
        return self.law_from(parts, np.full(draws, step), self.grid, variance)

    def indicator(self, margin: Margin, place: tuple[int, ...]) -> FloatArray:
        """Weights of the answers whose weighted sum is one total of a margin."""
        one = np.zeros(margin.shape)
        one[place] = 1.0
        if self.cells:
            return np.array(np.broadcast_to(margin.spread(one), self.workload.domain.shape))
        return self.workload.indicator(margin, one)


@dataclass(frozen=True, eq=False, repr=False)
class TotalsOfMargin(MarginFigures):
    """The totals of one margin; those of alike nodes and groups share a law."""

    noise: MarginalsNoise
    margin: Margin

    def variance(self) -> FloatArray:
        """In closed form."""
        return self._variance

    @cached_property
    def _variance(self) -> FloatArray:
        return self.noise.margin_variance(self.margin)

    @cached_property
    def _classes(self) -> Int64Array:
        inter = self.noise.interactions
        where = inter.locate(self.margin)
        # 0: groups without labels
        out = inter.from_nodes(self.noise.kinds(where) + 1, where.level)
        draws = self.noise.draws(self.margin)
        return np.asarray(out * (int(draws.max(initial=0)) + 1) + draws)

    def classes(self) -> Int64Array:
        """One number for alike nodes, groups of alike sizes and equally many roundings."""
        return self._classes

    @cached_property
    def _first(self) -> dict[int, int]:
        numbers, first = np.unique(self._classes, return_index=True)
        return dict(zip(numbers.tolist(), first.tolist(), strict=True))

    def law(self, number: int) -> SumLaw:
        """That of the first total of its class."""
        first = self._first[int(number)]
        place = tuple(int(p) for p in np.unravel_index(first, self.shape))
        return self.noise.total_law(self.margin, place, float(self._variance.reshape(-1)[first]))


@dataclass(frozen=True, eq=False, repr=False)
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
        return np.concatenate([own.variance().reshape(-1) for own in self._margins])

    @cached_property
    def _starts(self) -> list[int]:
        sizes = [int(own.classes().max(initial=0)) + 1 for own in self._margins]
        return [0, *np.cumsum(sizes).tolist()]

    def classes(self) -> Int64Array:
        """The classes of every margin, counted on."""
        pairs = zip(self._margins, self._starts, strict=False)
        return np.concatenate([own.classes().reshape(-1) + start for own, start in pairs])

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


def _determines(fine: tuple[int, ...], coarse: tuple[int, ...]) -> bool:
    return all(s <= t for s, t in zip(fine, coarse, strict=True))


def _same_orbit(axis: AxisSteps, step: int) -> Int64Array:
    """Groups that some symmetry of the levels in use takes to each other; 0 without labels."""
    tree = Tree(axis.axis, axis.steps)
    level = axis.steps.index(step)
    return np.asarray(tree.scatter(tree.orbits.of_node[level] + 1, level), np.int64)


def _alike(axis: AxisSteps, step: int) -> Int64Array:
    """Groups of a step with equally many siblings at every step in use, all the way up."""
    if step == axis.top:
        return np.zeros(1, np.int64)
    rows = [
        axis.siblings(coarse)[axis.axis.parents(step, coarse)] for coarse in axis.coarser(step)[:-1]
    ]
    found = np.unique(np.array(rows, np.int64), axis=1, return_inverse=True)[1]
    return np.asarray(found.reshape(-1), np.int64)
