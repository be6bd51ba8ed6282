"""The marginals mechanism: margins at the levels of a tree, noise where it pays.

Measured are contrasts of interactions at several levels, or whole tables; the release is rebuilt
from their noisy versions and the held totals by least squares, interaction by interaction, so that
all margins agree with each other and with what is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.base import REAL_LIMIT, Mechanism, Options, check_scales
from subspacedp.mechanisms.block_view import BlockView, OnePiece
from subspacedp.mechanisms.error_laws.sums import Rounding, widest_normal
from subspacedp.mechanisms.figures import Figures
from subspacedp.mechanisms.marginals.cell_rounding import CellRounding, CrossingCellRounding, Cut
from subspacedp.mechanisms.marginals.error_model import (
    AllTotals,
    MarginalsNoise,
    TotalsOfMargin,
    totals_apart,
)
from subspacedp.mechanisms.marginals.estimate import EmptyCells, Estimate
from subspacedp.mechanisms.marginals.fitting import (
    SHARP,
    Goal,
    Objective,
    least_goal,
    prices_of_contrasts,
    prices_of_tables,
)
from subspacedp.mechanisms.marginals.interactions import Interactions
from subspacedp.mechanisms.marginals.lower_bound import LowerBound, nesting_cost
from subspacedp.mechanisms.marginals.measurement import ByLevel, Measurement, Totals
from subspacedp.mechanisms.marginals.prefix_rounding import PrefixRounding
from subspacedp.mechanisms.marginals.strategy import (
    ManyScales,
    MarginalsStrategy,
    fit_marginals,
    held_margins,
    normal_variances,
    squared_budget,
    total_known,
)
from subspacedp.mechanisms.marginals.subtrees import SubtreeBlocks, cut_of
from subspacedp.mechanisms.optimality import Optimality, moved_alike
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.privacy import Budget
from subspacedp.problem import Problem
from subspacedp.queries import Cells, Sensitivity
from subspacedp.queries.margins import block_name
from subspacedp.tables import Margin

ALPHA = 0.05  # targets are of 95 % intervals


@frozen(eq=False, repr=False)
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
    offers_decimals: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("marginals.md", "guarantees.md")
    keys_in_files: ClassVar[tuple[str, ...]] = ("marginals",)
    for_workloads: ClassVar[bool] = True
    linear: ClassVar[bool] = False
    unit: ClassVar[Fraction] = Fraction(1)  # scales are stated in units of the answers
    exact_rationals: ClassVar[bool] = False  # values are computed in float64

    @cached_property
    def held_margins(self) -> HeldMargins:
        """The margins among what is held."""
        return held_margins(self.problem)

    def estimate_of(
        self, measured: Mapping[tuple[int, ...], ByLevel], exact: HeldValues, total: Any
    ) -> Estimate:
        """Least squares; of the held values those of margins, cells known to be empty left out."""
        return Estimate(
            measurement=self.measurement,
            measured=measured,
            held=self.held_margins,
            held_totals=tuple(totals for _, totals in self.held.totals(exact)),
            grand_total=int(total) if self.total_measured else None,
        )

    @cached_property
    def empty_cells(self) -> EmptyCells | None:
        """The cells known to be empty; None where there are none."""
        mask = self.held.empty
        if mask is None or not np.any(mask):
            return None

        def column(weights: FloatArray) -> FloatArray:
            return self._of_noise(measurement.drawn(noise.inside(weights)))

        measurement = self.measurement
        noise = MarginalsNoise(workload=self.strategy.workload, measurement=measurement, cells=True)
        return EmptyCells(mask, column)

    def _of_noise(self, drawn: FloatArray) -> FloatArray:
        """What noise alone makes of the table, before empty cells are imposed."""
        measured = self._contrasts(drawn)
        nothing = tuple(np.zeros(shape, np.int64) for shape in self.held.value_shapes)
        return self.estimate_of(measured, nothing, 0).table(0)

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.strategy.interactions

    @property
    def designed_for(self) -> tuple[Margin, ...]:
        """Those of the workload."""
        return self.interactions.workload

    # ------------------------------------------------------------------------ facts

    @cached_property
    def measurement(self) -> Measurement:
        """What gets noise, and its laws."""
        return self.strategy.measurement(self.problem)

    @cached_property
    def law(self) -> ManyScales:
        """One scale for every interaction and level, or for every table."""
        least, _, number = self.measurement.scales()
        return ManyScales(self.measurement.widest, least, number)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Of all that is measured together, in units of the answers, without the scales."""
        return self.measurement.sensitivity(self.neighbours)

    @cached_property
    def rounding(self) -> Any:
        """How published digits are made to add up; None for a real-valued release."""
        if self.decimals is None:
            return None
        if self.query.is_histogram:
            space = None if self.held.family is not None else self.held.as_matrix().crossing_space
            if space is not None:
                return CrossingCellRounding(space, self.decimals, unit_variance=1 / 4)
            counts = tuple(float(w) for w in self._goal.scaled())
            return CellRounding(
                self.held_margins.cell_space,
                self.decimals,
                self.interactions.workload,
                counts,
                unit_variance=1 / 4,
                cut=self.cut,
            )
        return PrefixRounding(
            interactions=self.interactions,
            decimals=self.decimals,
            total_known=total_known(self.problem),
        )

    @property
    def can_round(self) -> bool:
        """Counts have digits that add up."""
        return self.query.grid == 1

    @cached_property
    def noise(self) -> MarginalsNoise:
        """The joint law of release minus truth."""
        return MarginalsNoise(
            workload=self.strategy.workload,
            measurement=self.measurement,
            cells=self.query.is_histogram,
            rounding=self.rounding,
            bounded=self.capped,
            empty=self.empty_cells,
        )

    def noise_before_rounding(self) -> MarginalsNoise:
        """With the same estimator: digits decide whether held totals enter it."""
        return replace(self.noise, rounding=None)

    @property
    def conditional(self) -> str:
        """Why real values too are protected only given what is held; empty where they are not."""
        if self.held.empty is not None:
            return "cells known to be empty enter the least squares beside the held totals"
        if any(len(i.exact) > 1 for i in self.interactions.measured):
            return "held classifications that cross enter the least squares together"
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
        return self.measurement.float_quantile

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
        if self.query.workload is None or self.budget.pure:
            return super().optimality()
        alike = moved_alike(self)
        if not alike:
            raise ReleaseError("No person can change anything here, so no error is needed at all.")
        scaled, margins = self._goal.scaled(), self.interactions.workload
        each = np.array([float(self.noise.margin_variance(m).mean()) for m in margins]) * scaled
        error = float(each.sum())
        if self.strategy.objective in ("largest", "targets"):
            # The largest is at least any mean, and this one is near it.
            ratio = (each / each.max()) ** SHARP
            error = self.strategy.proved(self.problem)[0] or float(each.max())
            if self.strategy.objective == "largest":
                error = float(each.max())
            scaled = scaled * ratio / ratio.sum()
        lower = LowerBound(self.measurement.errors, scaled, self.neighbours.persons == 2)
        bound = lower.best(given=self.strategy.constrained)
        return Optimality(
            error=error,
            bound=bound * (alike / self.budget.gaussian_mu) ** 2 * (1 - 1e-9),
            how="dual weights",
            weighted=True,
        )

    def allowed_variances(self) -> tuple[float | None, ...]:
        """The variance of the noise with which the worst figure of each table meets its target.

        Contrasts have normal noise, so that the rounding of published digits alone takes something
        off. Sums of other noise have the shape of those of this mechanism.
        """
        out: list[float | None] = []
        contrasts, rounding = self.strategy.tables is None, self.rounding
        workload = self.strategy.workload
        for margin, target in zip(workload.margins, workload.targets or (), strict=True):
            if target is None or (contrasts and rounding is None):
                out += normal_variances((target,))
                continue
            alike = self.noise.alike(margin)
            kind = int(np.argmax(alike.variance))
            if not contrasts:
                error = self.noise.total_law(margin, kind).margin_of_error(ALPHA)
                error = error or math.sqrt(alike.variance[kind])  # of noise that mostly is 0
                out.append(float(alike.noise[kind]) * (target / error) ** 2)
                continue
            most = int(np.argmax(np.where(alike.noise > 0, alike.rounding, -1.0)))
            roundings = rounding.of_kind(margin, int(alike.draws[most]), int(alike.first[most]))
            rounded = Rounding.of(roundings)
            deviation = widest_normal(target, ALPHA, rounded, self.noise.grid)
            if deviation is None:
                raise ReleaseError(
                    f"The rounding of published digits alone is beyond the target of "
                    f"{target:g} for `{block_name(margin)}`; publish real values (decimals=None) "
                    "or more decimals."
                )
            out.append(deviation**2)
        return tuple(out)

    def prices(self) -> FloatArray:
        """By how many per cent the least squared budget falls with 1 % more variance for a table.

        One for every table of the workload, together 1; of a pure budget for nearby splits.
        """
        strategy, errors = self.strategy, self.measurement.errors
        shares = np.asarray(strategy.shares, np.float64)
        if strategy.tables is None:
            shares = shares / squared_budget(self.budget, self.neighbours)
            return prices_of_contrasts(errors, self.neighbours, strategy.counted, shares)
        shares = shares / shares.sum()
        pure = self.budget.pure
        return prices_of_tables(errors, strategy.tables, strategy.counted, shares, pure=pure)

    @staticmethod
    def normal_variance(target: float) -> float:
        """Of normal noise with this 95 % margin of error."""
        return float(normal_variances((target,))[0] or 0.0)

    def without_target(self, table: int) -> float:
        """The least squared budget without one target over that with it; 0 if there is no other."""
        strategy, errors = self.strategy, self.measurement.errors
        weights = strategy.counted.copy()
        weights[table] = 0.0
        if not weights.any():
            return 0.0
        shares = np.asarray(strategy.shares, np.float64) / float(np.sum(strategy.shares))
        return least_goal(
            errors, self.neighbours, weights, shares, strategy.tables, pure=self.budget.pure
        ) / least_goal(
            errors, self.neighbours, strategy.counted, shares, strategy.tables,
            pure=self.budget.pure,
        )  # fmt: skip

    @property
    def _goal(self) -> Goal:
        """What the errors of the published tables count for."""
        return Goal(self.measurement.errors, self.strategy.objective, self.strategy.counted)

    # ------------------------------------------------------------------------ data

    def answers(self, data: Any) -> Int64Array:
        """The table of cells, or the totals of the workload and of held margins beyond it."""
        return self.query.answers_and_totals(data, self._told_beside)

    @property
    def _told_beside(self) -> tuple[Margin, ...]:
        """The margins that are held or measured and do not follow from the answers."""
        return (*self.held_margins.beyond_answers, *self.interactions.beside)

    def _totals(self, answers: Int64Array) -> Callable[[Margin], Int64Array]:
        """The exact totals of any margin that is measured, from the answers."""
        held, beside = self.held_margins, self.interactions.beside
        tables = held.split(answers)
        number = sum(table.size for table in tables)
        blocks = np.split(answers.reshape(-1)[number:], len(beside) or 1)
        further = dict(zip(beside, blocks, strict=False))

        def of(margin: Margin) -> Int64Array:
            for finer, values in further.items():
                if finer.determines(margin):
                    return np.asarray(finer.coarsen(values.reshape(finer.shape), margin), np.int64)
            return held.of_sources(tables, margin)

        return of

    def nothing(self) -> Int64Array:
        """What `check` returns of an empty table: zeros."""
        zeros, beside = super().nothing(), self._told_beside
        further = np.zeros(sum(math.prod(m.shape) for m in beside), np.int64)
        return np.concatenate([zeros, further]) if beside else zeros

    def check_size(self, answers: Int64Array) -> None:
        """Refuse totals that float64 could not carry through the sums over contrasts."""
        super().check_size(answers)
        self.check_total(self.query.largest_total(answers))

    def check_total(self, most: int) -> None:
        """Refuse a largest total that float64 or 64-bit contrasts could not carry."""
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
        inter, of = self.interactions, self._totals(answers)
        levels = range(len(inter.tree))

        def from_margins(level: int, steps: tuple[int, ...]) -> Int64Array:
            return np.asarray(inter.to_nodes(of(inter.margin(level, steps)), level), np.int64)

        totals: Totals = from_margins
        if self.query.is_histogram:
            cells = inter.published[0].steps
            totals = inter.totals_of(inter.tree, inter.to_nodes(answers, 0), cells)
        noisy = self.measurement.measure(totals, keys, inter.tree, levels)
        total = [of(inter.domain.margin())] if self.total_measured else []
        return np.concatenate([np.zeros(0, np.int64), *map(np.ravel, [*noisy.values(), *total])])

    @cached_property
    def total_measured(self) -> bool:
        """Whether the grand total is measured as it is: no neighbouring change alters it."""
        inter = self.interactions
        return total_known(self.problem) and any(not inter.kept(i.steps) for i in inter.measured)

    # ------------------------------------------------------------------------ reconstruct

    @cached_property
    def cut(self) -> Cut | None:
        """Where a large table is cut into subtrees; None where it is one piece."""
        return cut_of(self)

    def blocks(self) -> BlockView:
        """Runs of subtrees of a large table of cells."""
        return OnePiece(self) if self.cut is None else SubtreeBlocks(self)

    def reconstruct(
        self,
        noisy: Int64Array,
        exact: HeldValues,
        dither: Keystream,
        *,
        overwrite: bool = False,
    ) -> AnyArray:
        """Every margin of the workload from the measurement and the held totals."""
        del overwrite
        total = noisy[-1] if self.total_measured else None
        estimate = self.estimate_of(self._contrasts(noisy), exact, total)
        if self.rounding is None:
            return self._real(estimate)
        return self.in_answers(self.rounding.round_estimate(estimate, dither))

    def in_answers(self, steps: Int64Array) -> AnyArray:
        """Whole numbers of published steps as values."""
        return np.asarray(steps if self.decimals == 0 else steps / self.rounding.step)

    def _contrasts(self, noisy: AnyArray) -> dict[tuple[int, ...], ByLevel]:
        """What was measured of every interaction, from all integers in order."""
        return self.measurement.contrasts(dict(enumerate(self.measurement.split(noisy))))

    def _real(self, estimate: Estimate) -> FloatArray:
        """The answers, real-valued."""
        if self.query.is_histogram:
            cells = estimate.table(0)
            return cells if self.empty_cells is None else self.empty_cells.impose(cells)
        number = len(self.interactions.published)
        return np.concatenate([estimate.table(t).reshape(-1) for t in range(number)])

    def without_noise(self, answers: Int64Array, exact: HeldValues) -> FloatArray:
        """What would be released without noise and rounding: confidential, as the answers are."""
        inter, of = self.interactions, self._totals(answers)
        measured: dict[tuple[int, ...], ByLevel] = {}
        for interaction in self.measurement.errors.measured:
            for level, _ in self.measurement.errors.places(interaction):
                totals = inter.to_nodes(of(inter.margin(level, interaction.steps)), level)
                by_level = measured.setdefault(interaction.steps, {})
                by_level[level] = inter.contrasts(totals, interaction.steps)
        total = of(inter.domain.margin()).reshape(()) if self.total_measured else None
        return self._real(self.estimate_of(measured, exact, total))


MAX_CELL_WEIGHT = 1e6
WEIGHT_STEPS = 30  # of the search for the least weight of the cells
LIMIT_REACHED = 5e-3  # of what cells may lose: the weight is found when they lose this near it
LEAST_BEYOND = 1e-9


@frozen(kw_only=True)
class MarginalsOptions(Options):
    """What noise is designed for, and how.

    Parameters
    ----------
    margins
        For the cells of a table: the margins to answer well beside them; by default the table at
        every level of its axes.
    weights
        What each of them counts for, the cells first; by default all the same.
    objective
        "balanced": the sum of mean squared errors, each in multiples of the least that its table
        could have; "sum": that of squared errors by weight; "largest": the largest multiple. By
        default "sum" where weights differ, else "balanced".
    cells_at_most
        For the cells of a table: what the mean squared error of the cells may be at most, in
        multiples of the least they could have with the whole budget; for example 1.05. With
        digits it may stay below: at some weight their rounding needs fewer roundings all at once.
    targets
        What the 95 % margin of error of the worst figure of each table shall be at most, or None,
        the cells first; the largest multiple of a target is then as small as can be.
    measured
        "contrasts" of interactions (Gaussian budgets, the default for them) or whole "tables".
    """

    margins: Sequence[Sequence[str]] | None = None
    weights: Sequence[float] | None = None
    objective: Objective | None = None
    cells_at_most: float | None = None
    targets: Sequence[float | None] | None = None
    measured: str | None = None

    mechanism: ClassVar[type[Mechanism]] = Marginals

    def fit(self, problem: Problem) -> Marginals:
        """The best shares of the budget; no data are touched."""
        if self.cells_at_most is not None:
            return self._within(problem, self.cells_at_most)
        fit = partial(
            fit_marginals,
            problem,
            margins=self.margins,
            weights=self.weights,
            targets=self.targets,
            objective=self.objective,
            measured=self.measured,
        )
        mechanism = Marginals(problem, fit())
        if mechanism.strategy.allowed is not None:
            allowed = mechanism.allowed_variances()
            if allowed != mechanism.strategy.allowed:
                mechanism = Marginals(problem, fit(allowed=allowed))
        return _checked(mechanism)

    def _within(self, problem: Problem, most: float) -> Marginals:
        """The least weight of the cells with which their error stays within a multiple."""
        if not isinstance(problem.query, Cells) or self.weights is not None:
            raise ReleaseError("`cells_at_most` is for the cells of a table, without `weights`.")
        if not isinstance(most, int | float) or not 1 < most < math.inf:
            raise ReleaseError(f"`cells_at_most` must be a number above 1; got {most!r}.")
        plain = replace(self, cells_at_most=None)
        least = _cell_error(replace(plain, margins=[]).fit(problem))
        best = plain.fit(problem)
        number = len(best.strategy.workload.margins)
        counted = (1.0,) * (number - 1)

        def tried(weight: float) -> tuple[Marginals, float]:
            """The best for a weight of the cells, and what they lose of what they may lose."""
            weighted = replace(plain, weights=(weight, *counted), objective="balanced")
            candidate = weighted.fit(problem)
            return candidate, (_cell_error(candidate) / least - 1.0) / (most - 1.0)

        beyond = (_cell_error(best) / least - 1.0) / (most - 1.0)
        if beyond <= 1.0:
            return best
        # Beyond the least, errors fall about as a power of the weight: a secant of logarithms.
        low, above = 0.0, math.log(beyond)
        high, below = 0.0, math.inf
        while below > 0.0:
            high += math.log(8.0)
            if high > math.log(MAX_CELL_WEIGHT):
                raise ReleaseError(
                    f"No split of the budget keeps the error of the cells within {most:g} times "
                    "the least possible."
                )
            best, beyond = tried(math.exp(high))
            below = math.log(max(beyond, LEAST_BEYOND))
            if below > 0.0:
                low, above = high, below
        lost = below
        for _ in range(WEIGHT_STEPS):
            if lost > -LIMIT_REACHED or high - low < LIMIT_REACHED:
                break
            part = min(max(above / (above - below), 0.05), 0.95)
            middle = low + part * (high - low)
            candidate, beyond = tried(math.exp(middle))
            here = math.log(max(beyond, LEAST_BEYOND))
            if here <= 0.0:
                best, high, below, lost = candidate, middle, here, here
                above /= 2.0  # the other end is half as far: neither stays for ever
            else:
                low, above = middle, here
                below /= 2.0
        return best


def _cell_error(mechanism: Marginals) -> float:
    return mechanism.expected_error().total


def with_budget(mechanism: Marginals, budget: Budget) -> Marginals:
    """The same mechanism for another budget of the same kind: the split stays, scales change."""
    problem = mechanism.problem
    strategy = mechanism.strategy.for_budget(problem, budget)
    return _checked(Marginals(replace(problem, budget=budget), strategy))


def _checked(mechanism: Marginals) -> Marginals:
    """The mechanism, unless its noise is too wide to be drawn or too narrow to protect."""
    _ = mechanism.empty_cells  # too many are refused now, and not after noise was drawn
    check_scales(
        *mechanism.scales(),
        unit=" in the units that are measured",
        remedy="; take a larger budget, or margins of fewer cells",
    )
    return mechanism
