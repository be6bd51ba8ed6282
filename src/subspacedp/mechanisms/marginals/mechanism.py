"""The marginals mechanism: margins at the levels of a tree, noise where it pays.

Measured are contrasts of interactions at several levels, or whole tables; the release is rebuilt
from their noisy versions and the held totals by least squares, interaction by interaction, so that
all margins agree with each other and with what is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import (
    HeldMargins,
    HeldMatrix,
    HeldOfWorkload,
    HeldValues,
    MarginNullSpace,
)
from subspacedp.mechanisms.base import REAL_LIMIT, Mechanism
from subspacedp.mechanisms.figures import Figures
from subspacedp.mechanisms.gaussian.optimality import Optimality, moved_alike
from subspacedp.mechanisms.marginals.empty_cells import EmptyCells
from subspacedp.mechanisms.marginals.error_model import (
    AllTotals,
    MarginalsNoise,
    TotalsOfMargin,
    totals_apart,
)
from subspacedp.mechanisms.marginals.fitting import SHARP, Goal
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.lower_bound import LowerBound
from subspacedp.mechanisms.marginals.measurement import (
    ByLevel,
    ContrastMeasurement,
    Measurement,
    TableMeasurement,
)
from subspacedp.mechanisms.marginals.nesting import nesting_cost
from subspacedp.mechanisms.marginals.prefix_rounding import PrefixRounding
from subspacedp.mechanisms.marginals.strategy import (
    ManyScales,
    MarginalsStrategy,
    held_margins,
    total_known,
)
from subspacedp.noise import Keystream, ReleaseKeys, RoundedGaussian
from subspacedp.problem import Problem
from subspacedp.queries import Cells, Margins, Sensitivity
from subspacedp.rounding.levels import LevelDigits
from subspacedp.tables import Margin

__all__ = ["Marginals"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Marginals(Mechanism):
    """Noise at the levels and interactions of a workload, combined by least squares.

    Guarantees
    ----------
    1. The measurement is private with its budget over all neighbours
       (docs/proofs/marginals.md).
    2. Margins agree with each other and with the held totals; with decimals, in exact integers.
    3. Unbiased, with its noise model.
    4. Real-valued, and contrasts orthogonal to what is held: S. For every question w with Aᵀw in
       the null space of the held totals in the domain's cells, wᵀ(answers) is a function of the
       measurement alone.
    """

    strategy: MarginalsStrategy

    name: ClassVar[str] = "marginals"
    with_digits: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("marginals.md", "guarantees.md")
    keys_in_files: ClassVar[tuple[str, ...]] = ("marginals",)
    for_workloads: ClassVar[bool] = True
    linear: ClassVar[bool] = False

    @cached_property
    def held_margins(self) -> HeldMargins:
        """The margins among what is held."""
        return held_margins(self.problem)

    def _held_totals(self, exact: HeldValues) -> HeldValues:
        """The held values of the margins; those of empty cells, all zero, come last."""
        if isinstance(self.held, HeldMargins):
            return exact
        shapes = self.held_margins.value_shapes
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        pieces = np.split(exact[0], ends)
        return tuple(piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=False))

    @cached_property
    def empty_cells(self) -> EmptyCells | None:
        """The cells known to be empty; None where there are none."""
        mask = self.held.empty if isinstance(self.held, HeldMatrix) else None
        if mask is None or not np.any(mask):
            return None

        def column(weights: FloatArray) -> FloatArray:
            return self._of_noise(measurement.drawn(noise.inside(weights)))

        measurement = self.measurement
        noise = MarginalsNoise(workload=self.strategy.workload, measurement=measurement, cells=True)
        return EmptyCells(mask, column)

    def _of_noise(self, drawn: FloatArray) -> FloatArray:
        """What noise alone makes of the table, before empty cells are imposed."""
        nothing = tuple(np.zeros(shape, np.int64) for shape in self.held_margins.value_shapes)
        total = 0.0 if self._total_measured else None
        measured = self.measurement.contrasts(drawn)  # type: ignore[arg-type]
        return self._table(self._combined(measured, nothing, total), nothing, 0)

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.strategy.interactions

    # ------------------------------------------------------------------------ facts

    @cached_property
    def measurement(self) -> Measurement:
        """What gets noise, and its laws."""
        return self.strategy.measurement(self.problem)

    @cached_property
    def law(self) -> ManyScales:
        """One scale for every interaction and level, or for every table."""
        measurement = self.measurement
        least, most, number = measurement.scales()
        if isinstance(measurement, TableMeasurement):
            widest = max(measurement.laws, key=lambda law: law.scale)
            return ManyScales(widest, least, number)
        return ManyScales(RoundedGaussian(most), least, number)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Of all that is measured together, in units of the answers, without the scales."""
        n, measurement = self.neighbours, self.measurement
        if not isinstance(measurement, ContrastMeasurement):
            number = len(self.strategy.tables or ()) * n.persons
            return Sensitivity(Fraction(number * n.records), Fraction(number * n.records**2))
        inter, pieces = self.interactions, measurement.pieces
        squared = math.fsum(2.0 * float(inter.shares(own.steps).max()) for own, _ in pieces)
        l1 = sum(2 ** len(inter.kept(own.steps)) for own, _ in pieces) * n.persons
        safe = Fraction(squared) * (1 + Fraction(1, 2**40)) * n.persons
        return Sensitivity(Fraction(l1 * n.records), safe * n.records**2)

    @property
    def unit(self) -> Fraction:
        """Scales are stated in units of the answers."""
        return Fraction(1)

    @cached_property
    def digits(self) -> Any:
        """How published digits are made to add up; None for a real-valued release."""
        if self.decimals is None:
            return None
        if isinstance(self.space, MarginNullSpace) and isinstance(self.query, Cells):
            margins = self.interactions.workload
            counts = tuple(float(w) for w in self._goal.scaled())
            return LevelDigits(self.space, self.decimals, margins, counts, coin=1 / 4)
        return PrefixRounding(
            interactions=self.interactions,
            decimals=self.decimals,
            total_known=total_known(self.problem),
        )

    @property
    def has_digits(self) -> bool:
        """Counts have digits that add up."""
        return self.query.grid == 1

    @cached_property
    def noise(self) -> MarginalsNoise:
        """The joint law of release minus truth."""
        return MarginalsNoise(
            workload=self.strategy.workload,
            measurement=self.measurement,
            cells=isinstance(self.query, Cells),
            rounding=self.digits,
            bounded=self.capped,
            empty=self.empty_cells,
        )

    def noise_before_rounding(self) -> MarginalsNoise:
        """With the same estimator: digits decide whether held totals enter it."""
        return replace(self.noise, rounding=None)

    @property
    def conditional(self) -> str:
        """Why real values too are protected only given what is held; empty where they are not."""
        if isinstance(self.held, HeldMatrix):
            return "cells known to be empty enter the least squares beside the held totals"
        even = self.interactions.orthogonal
        return "" if even else "totals of unequal groups of a second axis are split equally"

    def cell_figures(self) -> Figures:
        """Every answer."""
        noise = self.noise
        return self.margin_figures(noise.workload.margins[0]) if noise.cells else AllTotals(noise)

    def margin_figures(self, margin: Margin) -> Figures:
        """The total of every group of a margin that the workload determines."""
        noise = self.noise
        noise.workload.source_of(margin)
        if noise.empty is not None:
            return totals_apart(noise, margin)
        return TotalsOfMargin(noise, margin) if noise.knows(margin) else totals_apart(noise, margin)

    @property
    def measured_beside(self) -> tuple[tuple[str, ...], ...]:
        """The levels of tables that are measured and not published: the data must tell them."""
        return tuple(m.names for m in self.interactions.beside)

    @property
    def uses_quantile(self) -> bool:
        """Contrasts are drawn on a fine grid, where draws rest on a float64 quantile."""
        measurement = self.measurement
        if isinstance(measurement, TableMeasurement):
            return any(law.float_quantile for law in measurement.laws)
        return True

    @property
    def exact_rationals(self) -> bool:
        """Values are computed in float64."""
        return False

    @cached_property
    def nesting(self) -> str:
        """Which axis with unequal groups is treated exactly, and what others cost, in words."""
        inter, said = self.interactions, []
        for axis in inter.axes:
            if axis.axis.name not in inter.uneven_axes:
                continue
            cost = nesting_cost(self.problem, axis, contrasts=self.strategy.tables is None)
            much = (
                "" if cost is None else f", at {cost:.2f} times the squared error of a tree there"
            )
            said.append(f"those of `{axis.axis.name}` by nested contrasts{much}")
        if not said:
            return ""
        exact = f"the unequal groups of `{inter.tree.axis.name}` are treated exactly"
        return ", ".join([exact, *said])

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        inter, tables = self.interactions, self.strategy.tables
        tree = (
            f" at {len(inter.tree)} levels of `{inter.tree.axis.name}`"
            if inter.place is not None
            else ""
        )
        known = (
            "; the grand total, which no neighbouring change alters, gets none"
            if total_known(self.problem)
            else ""
        ) + (f"; {self.nesting}" if self.nesting else "")
        if tables is None:
            number = len(self.measurement.errors.measured)
            return (
                f"the contrasts of {number:,} interactions{tree}, every contrast independently, in "
                "steps of one over its denominator, each interaction and level with its share of "
                f"the budget; combined by least squares{known}"
            )
        joint = " × ".join(names for m in self.measured_beside for names in m)
        which = f", `{joint}`, which is not published, among them" if joint else ""
        return (
            f"every total of {len(tables):,} tables{tree}{which}, independently, each table with "
            f"its share of the budget; combined by least squares{known}"
        )

    def fitted(self) -> dict[str, Any]:
        """Shares of the budget, and what they were chosen for."""
        return {"marginals": self.strategy.as_dict()}

    @classmethod
    def from_dict(cls, problem: Problem, data: Mapping[str, Any]) -> Self:
        """What neighbouring changes spend is computed again, not believed."""
        return cls(problem, MarginalsStrategy.from_dict(data["marginals"], problem))

    def scales(self) -> tuple[float, float]:
        """The least scale of noise in units of the answers, the largest in drawn units."""
        return self.measurement.scales()[0], self.measurement.largest_drawn()

    def gap(self) -> float:
        """By what share the goal may exceed that of the best split of the budget.

        Proven from the shares, whatever a certificate states; infinite where no bound is known.
        """
        if self.empty_cells is not None:
            return math.inf
        goal, bound = self.strategy.proved(self.problem)
        return max(goal / bound - 1.0, 0.0) if goal is not None and bound else math.inf

    def gap_in_words(self, bound: float = 0.0) -> str:
        """How near the split is to the best one over these levels and interactions."""
        del bound  # of noise for the cells alone
        if self.empty_cells is not None:
            return "that of a split of the budget chosen as if no cell were known to be empty"
        gap = self.gap()
        if math.isinf(gap):
            return f"that of a split chosen as if groups were of equal size; {self.nesting}"
        percent = math.ceil(max(100 * gap, 0.01) * 100) / 100
        if self.budget.pure:
            return f"at most {1 + gap:.3g} times that of the best split over these tables"
        within = f"within {percent:.2g} % of that of the best split over levels and interactions"
        return f"{within}; {self.nesting}" if self.nesting else within

    def optimality(self) -> Optimality:
        """How near the error, by what tables count for, is to that of the best Gaussian noise.

        For the cells of a table alone their squared error is compared, as for other mechanisms.
        """
        if not isinstance(self.query, Margins) or self.budget.pure:
            return super().optimality()
        alike = moved_alike(self)
        if not alike:
            raise ReleaseError("No person can change anything here, so no error is needed at all.")
        scaled, margins = self._goal.scaled(), self.interactions.workload
        each = np.array([float(self.noise.margin_variance(m).mean()) for m in margins]) * scaled
        error = float(each.sum())
        if self.strategy.objective == "largest":
            # The largest is at least any mean, and this one is near it.
            ratio = (each / each.max()) ** SHARP
            error, scaled = float(each.max()), scaled * ratio / ratio.sum()
        found = LowerBound(self.measurement.errors, scaled, self.neighbours.persons == 2)
        bound = found.best(given=self.strategy.constrained)
        return Optimality(
            error=error,
            bound=bound * (alike / self.budget.gaussian_mu) ** 2 * (1 - 1e-9),
            how="dual weights",
            weighted=True,
        )

    @property
    def _goal(self) -> Goal:
        """What the errors of the published tables count for."""
        weights = np.asarray(self.strategy.workload.weights, np.float64)
        return Goal(self.measurement.errors, self.strategy.objective, weights)

    # ------------------------------------------------------------------------ data

    def answers(self, data: Any) -> Int64Array:
        """The table of cells, or the totals of the workload and of held margins beyond it."""
        held = self.held
        if isinstance(held, HeldOfWorkload):
            return held.query.vector(data, (*held.sources, *self.interactions.beside))
        return self.query.answers(data)

    def _totals(self, answers: Int64Array) -> Callable[[Margin], Int64Array]:
        """The exact totals of any margin that is measured, from the answers."""
        held = self.held
        if isinstance(held, HeldOfWorkload):
            tables, beside = held.split(answers), self.interactions.beside
            number = sum(table.size for table in tables)
            further = dict(zip(beside, np.split(answers[number:], len(beside) or 1), strict=False))

            def of(margin: Margin) -> Int64Array:
                for own, values in further.items():
                    if own.determines(margin):
                        return np.asarray(own.coarsen(values.reshape(own.shape), margin), np.int64)
                return held.of_sources(tables, margin)

            return of
        return lambda margin: np.asarray(margin.sum(answers), np.int64)

    def nothing(self) -> Int64Array:
        """What `check` returns of an empty table: zeros."""
        held = self.held
        if isinstance(held, HeldOfWorkload):
            margins = (*held.sources, *self.interactions.beside)
            return np.zeros(sum(math.prod(m.shape) for m in margins), np.int64)
        return super().nothing()

    def check_size(self, answers: Int64Array) -> None:
        """Refuse totals that float64 could not carry through the sums over contrasts."""
        super().check_size(answers)
        whole = self.held.query.bounds if isinstance(self.held, HeldOfWorkload) else None
        most = int(answers.max(initial=0)) if whole else int(np.abs(answers).sum(dtype=np.float64))
        if most >= REAL_LIMIT:
            raise ReleaseError("The totals are too large: margins take totals below 2**43.")
        if most >= self.measurement.largest_total():
            raise ReleaseError(
                "The totals times the denominators of their contrasts leave 64 bits; ask for "
                "margins of fewer cells, or measure whole tables."
            )

    # ------------------------------------------------------------------------ measure

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """Contrasts or tables plus noise; last the grand total where none is needed."""
        of = self._totals(answers)

        def totals(level: int, steps: tuple[int, ...]) -> Int64Array:
            table = of(self.interactions.margin(level, steps))
            return np.asarray(self.interactions.to_nodes(table, level), np.int64)

        noisy = self.measurement.measure(totals, keys)
        if not self._total_measured:
            return noisy
        empty = self.interactions.domain.margin()
        return np.concatenate([noisy, of(empty).reshape(-1)])

    @cached_property
    def _total_measured(self) -> bool:
        """Whether the grand total is measured as it is: no neighbouring change alters it."""
        inter = self.interactions
        return total_known(self.problem) and any(not inter.kept(i.steps) for i in inter.measured)

    # ------------------------------------------------------------------------ reconstruct

    def reconstruct(
        self,
        noisy: Int64Array,
        exact: HeldValues,
        coins: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """Every margin of the workload from the measurement and the held totals."""
        del overwrite
        inter = self.interactions
        exact = self._held_totals(exact)
        total = float(noisy[-1]) if self._total_measured else None
        estimates = self._estimates(noisy, exact, total)
        rounding = self.digits
        if isinstance(rounding, PrefixRounding):
            steps = self._rounded(rounding, estimates, exact, noisy, coins)
            tables = [
                inter.from_nodes(rounding.table(steps, p.level, p.steps), p.level)
                for p in inter.published
            ]
            whole = np.concatenate([t.reshape(-1) for t in tables])
            return whole if rounding.decimals == 0 else whole / rounding.step
        if isinstance(rounding, LevelDigits):
            near, rest = self._in_parts(self._table(estimates, exact, 0), exact, rounding)
            whole = rounding.round(near, rest, coins)
            return whole if rounding.decimals == 0 else whole / rounding.step
        return self._real(estimates, exact)

    def _real(self, estimates: Mapping[tuple[int, ...], ByLevel], exact: HeldValues) -> FloatArray:
        """The answers, real-valued."""
        if isinstance(self.query, Cells):
            cells = self._table(estimates, exact, 0)
            return cells if self.empty_cells is None else self.empty_cells.impose(cells)
        number = len(self.interactions.published)
        return np.concatenate([self._table(estimates, exact, t).reshape(-1) for t in range(number)])

    def _in_parts(
        self, cells: FloatArray, exact: HeldValues, rounding: LevelDigits
    ) -> tuple[Int64Array, FloatArray]:
        """Whole numbers and what is left of cells, whose sums keep the held totals.

        Of large counts float64 loses the sums of what is left. These are known: the held totals
        less the sums of whole numbers, and the difference, of rounding error, is spread evenly.
        """
        near = np.rint(cells)
        whole, rest = near.astype(np.int64), cells - near
        off = tuple(
            margin.sum(rest) - (totals - margin.sum(whole))
            for margin, totals in zip(self.held_margins.margins, exact, strict=True)
        )
        return whole, rest - rounding.space.lift(off, error=1.0) if off else rest

    def _table(
        self, estimates: Mapping[tuple[int, ...], ByLevel], exact: HeldValues, number: int
    ) -> FloatArray:
        """A table of the workload, real-valued, in its margin's shape."""
        inter = self.interactions
        margin, where = inter.workload[number], inter.published[number]
        if any(h.determines(margin) for h in self.held_margins.margins):
            return self.held_margins.of(exact, margin).astype(np.float64)
        by_interaction = {s: e[where.level] for s, e in estimates.items() if where.level in e}
        table = inter.table_from(by_interaction, where.level, where.steps)
        return inter.from_nodes(table, where.level)

    def without_noise(self, answers: Int64Array, exact: HeldValues) -> FloatArray:
        """What would be released without noise and rounding: confidential, as the answers are."""
        inter, of = self.interactions, self._totals(answers)
        exact = self._held_totals(exact)
        measured: dict[tuple[int, ...], ByLevel] = {}
        for own in self.measurement.errors.measured:
            for level, _ in self.measurement.errors.places(own):
                totals = inter.to_nodes(of(inter.margin(level, own.steps)), level)
                by_level = measured.setdefault(own.steps, {})
                by_level[level] = inter.contrasts(totals, own.steps)
        total = None
        if self._total_measured:
            total = float(of(inter.domain.margin()).reshape(()))
        return self._real(self._combined(measured, exact, total), exact)

    def _exact(self, exact: HeldValues, own: Interaction, level: int) -> FloatArray:
        """The contrasts of an interaction at a level that is held."""
        inter = self.interactions
        totals = self.held_margins.of(exact, inter.margin(level, own.steps))
        return inter.contrasts(inter.to_nodes(totals, level), own.steps)

    def _estimates(
        self, noisy: Int64Array, exact: HeldValues, total: float | None
    ) -> dict[tuple[int, ...], ByLevel]:
        """For every interaction its contrasts at every level from its finest one on."""
        return self._combined(self.measurement.contrasts(noisy), exact, total)

    def _combined(
        self,
        measured: Mapping[tuple[int, ...], ByLevel],
        exact: HeldValues,
        total: float | None,
    ) -> dict[tuple[int, ...], ByLevel]:
        """Least squares for every interaction; what is held is taken from the held totals."""
        inter, tree = self.interactions, self.interactions.tree
        out: dict[tuple[int, ...], ByLevel] = {}
        for own in inter.all.values():
            known = None
            if own.held is not None:
                known = self._exact(exact, own, own.held)
            root = None
            if total is not None and not inter.kept(own.steps):
                root = np.full((1, *(1,) * len(inter.axes)), total)
            if own.steps in measured:
                smoother = self.measurement.smoother(own)
                out[own.steps] = smoother.estimate(measured[own.steps], known, root)
            elif known is not None and own.held is not None:
                out[own.steps] = {
                    level: tree.climb(known, own.held, level)
                    for level in range(own.finest, len(tree))
                }
            elif root is not None:
                out[own.steps] = {tree.root: root}
        return out

    def _rounded(
        self,
        rounding: PrefixRounding,
        estimates: Mapping[tuple[int, ...], ByLevel],
        exact: HeldValues,
        noisy: Int64Array,
        coins: Keystream,
    ) -> dict[tuple[int, ...], Int64Array]:
        inter = self.interactions
        real: dict[tuple[int, ...], FloatArray] = {}
        known: dict[tuple[int, ...], Int64Array] = {}
        for own in inter.all.values():
            level = rounding.exact_level(own)
            if level is not None:
                if own.held is not None:
                    totals = self.held_margins.of(exact, inter.margin(level, own.steps))
                    known[own.steps] = np.asarray(inter.to_nodes(totals, level), np.int64)
                else:
                    known[own.steps] = noisy[-1:].reshape(1, *(1,) * len(inter.axes))
            if level is None or level > own.finest:
                here = {s: e[own.finest] for s, e in estimates.items() if own.finest in e}
                real[own.steps] = inter.table_from(here, own.finest, own.steps)
        return rounding.round(real, known, coins)
