"""The best split of a budget over the levels and interactions of a workload."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray
from subspacedp.errors import BudgetError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.marginals.interactions import Interactions, Published, determines
from subspacedp.mechanisms.marginals.measurement import table_information
from subspacedp.mechanisms.marginals.plan import TableErrors
from subspacedp.mechanisms.marginals.shares import (
    FLOOR,
    NARROW,
    WIDE,
    BestShares,
    best_by_curvature,
    best_shares,
    least_point,
    proven_bound,
)
from subspacedp.mechanisms.marginals.spending import Spending, spending_of
from subspacedp.mechanisms.marginals.targets import (
    WorstFigures,
    WorstShares,
    least_worst,
    worst_bound,
)
from subspacedp.privacy import Neighbours

Objective = Literal["balanced", "sum", "largest", "targets"]

SHARP = 64.0  # of the smooth maximum over tables
SPARE = 0.01  # of the budget: for tables without a target beside some that have one
LITTLE = 0.02  # of all shares, for tables beside one that tells them
STARTS = 3  # of the search for the best split of a pure budget
WIDE_ROOTS = -14.0, 4.0  # the logarithms of shares of a pure budget
ROOT_STEPS, ROOT_GAIN = 40, 1e-5  # of the search for them where levels cross
PROVING = 10  # rows for every share, of those that spend the most: they prove a bound
NOTHING_MEASURED = (
    "No person can change what would be measured: publish these margins as they are, or ask for "
    "finer ones."
)
LEAST_FINEST = 1e-4  # of the largest share of an interaction, where levels cross
LEAST_LEVEL = 1e-6
CROSSING_GAP = 5e-3  # proven, where levels cross
SAMPLE = 6000  # labels that the search begins with
MOST_CURVED = 512  # shares of which second derivatives are kept
WORTH = 1e-3  # of a pure budget: a table with less is left out where it can be


@frozen(eq=False)
class Goal:
    """What the errors of the published tables count for.

    "sum": Σ weight · (sum of squared errors of a table). "balanced": Σ weight · (mean squared
    error over the least that the table could have if the whole budget measured it alone).
    "largest": the largest weight · (such a multiple). "targets": the largest weight · (variance of
    any figure), where a weight is one over the variance that is allowed.
    """

    errors: TableErrors
    objective: Objective
    weights: FloatArray

    def worst(self, matrix: FloatArray | None = None) -> WorstFigures:
        """The figures of the tables that have a target."""
        return self._worst if matrix is None else replace(self._worst, matrix=matrix)

    @cached_property
    def _worst(self) -> WorstFigures:
        with np.errstate(divide="ignore"):
            return WorstFigures(self.errors, 1.0 / self.weights)

    def scaled(self) -> FloatArray:
        """What the mean squared error of each table is multiplied with."""
        inter = self.errors.interactions
        if self.objective == "targets":
            return self.weights
        if self.objective == "sum":
            cells = [
                inter.tree.nodes(p.level) * math.prod(inter.shape(p.steps)) for p in inter.published
            ]
            return np.asarray(self.weights * np.array(cells, np.float64))
        least = alone(self.errors)
        return np.where(least > 0, self.weights / np.where(least > 0, least, 1.0), 0.0)

    def of(self, shares: FloatArray) -> float:
        """The goal that given shares reach."""
        if self.objective == "targets":
            return float(self.worst()(shares).max(initial=0.0))
        return self(self.scaled(), shares)[0]

    def __call__(self, scaled: FloatArray, shares: FloatArray) -> tuple[float, FloatArray]:
        """The goal and −∂/∂shares."""
        if self.objective == "targets":
            worst = self.worst()
            multiples = worst(shares)
            near = np.flatnonzero(multiples > multiples.max() / 2)  # the others' powers are nothing
            ratio = (multiples[near] / multiples.max()) ** SHARP
            norm = float(multiples.max() * ratio.sum() ** (1 / SHARP))
            by_figure = norm * ratio / ratio.sum() / multiples[near]
            return norm, by_figure @ worst.slopes(shares, near)
        if self.objective != "largest":
            errors, slopes = self.errors.with_slopes(shares, scaled)
            return float(scaled @ errors), slopes
        errors = self.errors(shares) * scaled
        top = float(errors.max())
        ratio = (errors / top) ** SHARP
        norm = top * float(ratio.sum()) ** (1 / SHARP)
        weights = np.where(errors > 0, ratio / np.maximum(errors, 1e-300), 0.0)
        weights *= norm / float(ratio.sum()) * scaled
        return norm, self.errors.with_slopes(shares, weights)[1]


def alone(errors: TableErrors) -> FloatArray:
    """The mean squared error of each table where the unit budget measures its own level alone.

    Σ_τ cost_τ/b_τ is least for b_τ ∝ √cost_τ: (Σ √cost_τ)².
    """
    inter = errors.interactions
    out = np.zeros(len(inter.published))
    at_level: dict[tuple[tuple[int, ...], int], float] = {}
    for t, table in enumerate(inter.published):
        roots = 0.0
        for i, interaction in enumerate(errors.measured):
            if errors.mixing[t, i] == 0:
                continue
            key = (interaction.steps, table.level)
            if key not in at_level:
                at_level[key] = errors.level_alone(interaction, table.level)
            roots += math.sqrt(errors.mixing[t, i] * at_level[key])
        out[t] = roots**2
    return out


def best_contrasts(
    errors: TableErrors, neighbours: Neighbours, objective: Objective, weights: FloatArray
) -> BestShares:
    """Shares of a unit squared budget of one record, for contrasts with Gaussian noise."""
    spending = spending_of(errors, neighbours)
    goal = Goal(errors, objective, weights)
    scaled = goal.scaled()
    rows = spending.first_rows()
    if not errors.slots or not np.any(rows > 0) or not np.any(scaled > 0):
        raise BudgetError(NOTHING_MEASURED)
    start, possible = np.ones(len(errors.slots)), spending.possible()
    if objective != "targets":
        best = _best_of_sum(goal, rows, spending, possible)
        return _trimmed(best, errors, spending)
    worst = least_worst(goal.worst(), rows, start, spending.sticking_out, possible)
    shares, others = worst.shares, untold(errors, weights)
    if others.any():
        beside = best_contrasts(errors, neighbours, "balanced", others)
        shares = (1 - SPARE) * shares + SPARE * beside.shares
    return _trimmed(BestShares(shares, worst.error, worst.bound), errors, spending)


def _best_of_sum(
    goal: Goal, rows: FloatArray, spending: Spending, possible: FloatArray | None
) -> BestShares:
    """Where levels cross with few looks at the error, if it is a sum over interactions."""
    errors, scaled = goal.errors, goal.scaled()

    def error(shares: FloatArray) -> tuple[float, FloatArray]:
        return goal(scaled, shares)

    number = len(errors.slots)
    if errors.interactions.nested or goal.objective == "largest" or number > MOST_CURVED:
        return best_shares(
            error, rows, np.ones(number), spending.sticking_out, possible=possible,
            between=_between(errors),
        )  # fmt: skip
    places = [(i, errors.places(i)) for i in errors.measured]
    blocks = [np.concatenate([np.arange(w.start, w.stop) for _, w in at]) for _, at in places]
    least = np.full(number, LEAST_LEVEL)
    least[[w.start for i, at in places for level, w in at if level == i.finest]] = LEAST_FINEST

    def best_from(
        error: Callable[[FloatArray], tuple[float, FloatArray]],
        start: FloatArray | None = None,
        curved: FloatArray | None = None,
    ) -> tuple[BestShares, FloatArray | None]:
        return best_by_curvature(
            error, rows, spending.sticking_out, blocks, least,
            possible=possible, gap=CROSSING_GAP, start=start, curved=curved,
        )  # fmt: skip

    few = errors.of_sample(SAMPLE)
    if few is None:
        return best_from(error)[0]
    sample, order = few

    def nearly(shares: FloatArray) -> tuple[float, FloatArray]:
        """The error of the sample: mean squared errors of both are about the same."""
        value, slopes = Goal(sample, goal.objective, goal.weights)(scaled, shares[order])
        out = np.empty(number)
        out[order] = slopes
        return value, out

    near, curved = best_from(nearly)
    return best_from(error, near.shares, curved)[0]


def untold(errors: TableErrors, weights: FloatArray) -> FloatArray:
    """One for every table without a target that no table with one determines; else zero."""
    inter = errors.interactions
    told = [p for p, weight in zip(inter.published, weights, strict=True) if weight > 0]
    return np.array(
        [0.0 if any(_tells(inter, t, p) for t in told) else 1.0 for p in inter.published]
    )


def _tells(inter: Interactions, fine: Published, coarse: Published) -> bool:
    """Whether a table determines another one."""
    return inter.tree.determines(fine.level, coarse.level) and determines(fine.steps, coarse.steps)


def bound_of_contrasts(
    errors: TableErrors,
    neighbours: Neighbours,
    objective: Objective,
    weights: FloatArray,
    shares: FloatArray,
) -> float:
    """What the goal of no shares of a unit squared budget is below, proven from given ones."""
    spending = spending_of(errors, neighbours)
    goal = Goal(errors, objective, weights)
    scaled = goal.scaled()
    rows = spending.possible()
    if rows is None:
        many = spending.sticking_out(shares, PROVING * len(shares))[0]
        rows = np.concatenate([spending.first_rows(), many])
    if objective == "targets":
        return worst_bound(goal.worst(), rows, shares)[0]
    return proven_bound(lambda b: goal(scaled, b), rows, shares)


def bound_of_tables(errors: TableErrors, objective: Objective, weights: FloatArray) -> float:
    """What the goal of no split of a unit budget over the tables is below (Σ share² ≤ 1)."""
    return _relaxed(errors, Goal(errors, objective, weights), tables_of(errors))[1].bound


def least_goal(
    errors: TableErrors,
    neighbours: Neighbours,
    weights: FloatArray,
    shares: FloatArray,
    tables: tuple[Published, ...] | None,
    *,
    pure: bool,
) -> float:
    """The least largest multiple of targets, of a unit squared budget, from given shares on."""
    goal = Goal(errors, "targets", weights)
    if tables is not None:
        worst = goal.worst(table_information(errors, tables))
        return _least_worst_tables(worst, shares**2 if pure else shares, pure=pure).error
    spending = spending_of(errors, neighbours)
    start = np.maximum(shares, 1e-4 / len(shares))
    rows, possible = spending.first_rows(), spending.possible()
    return least_worst(goal.worst(), rows, start, spending.sticking_out, possible).error


def prices_of_contrasts(
    errors: TableErrors, neighbours: Neighbours, weights: FloatArray, shares: FloatArray
) -> FloatArray:
    """By how many per cent the least squared budget falls if a table may have 1 % more variance."""
    spending = spending_of(errors, neighbours)
    rows = np.concatenate([spending.first_rows(), spending.sticking_out(shares)[0]])
    return worst_bound(Goal(errors, "targets", weights).worst(), rows, shares)[1]


def prices_of_tables(
    errors: TableErrors,
    tables: tuple[Published, ...],
    weights: FloatArray,
    shares: FloatArray,
    *,
    pure: bool,
) -> FloatArray:
    """The same for shares of tables; of a pure budget, for the squared budget, near this split."""
    worst = Goal(errors, "targets", weights).worst(table_information(errors, tables))
    precision = shares**2 if pure else shares
    row = 1 / shares if pure else np.ones(len(shares))
    return worst_bound(worst, row[None], precision)[1]


def _trimmed(best: BestShares, errors: TableErrors, spending: Spending) -> BestShares:
    """Without shares that buy nothing; the finest level of every interaction stays.

    Where levels cross every level stays, and none is measured so little beside another that
    rounding in least squares would show.
    """
    shares = best.shares.copy()
    if not errors.interactions.nested:
        shares = _not_too_little(errors, shares)
        shares /= spending.sticking_out(shares)[1]
        return BestShares(shares, best.error, best.bound)
    needed = np.array([level == interaction.finest for interaction, level, _ in errors.slots])
    shares[(shares < 100 * FLOOR) & ~needed] = 0.0
    shares /= spending.sticking_out(shares)[1]
    return BestShares(shares, best.error, best.bound)


def _between(errors: TableErrors) -> tuple[float, float]:
    """The logarithms of shares to look at: where levels cross, none too far from the others."""
    return WIDE if errors.interactions.nested else NARROW


def _not_too_little(errors: TableErrors, shares: FloatArray) -> FloatArray:
    """Shares of at least a part of the largest of their interaction."""
    out = shares.copy()
    for interaction in errors.measured:
        places = errors.places(interaction)
        most = max(float(shares[where].max()) for _, where in places)
        for level, where in places:
            least = LEAST_FINEST if level == interaction.finest else LEAST_LEVEL
            out[where] = np.maximum(out[where], least * most)
    return out


@frozen(eq=False)
class TableSplit:
    """Shares of a budget over whole tables, their error, and a lower bound for any split."""

    tables: tuple[Published, ...]
    shares: FloatArray
    error: float
    bound: float


def tables_of(errors: TableErrors) -> tuple[Published, ...]:
    """The tables that say something of what is not exact: published, or beside them, each once."""
    inter = errors.interactions
    published = (p for t, p in enumerate(inter.published) if np.any(errors.mixing[t] > 0))
    return tuple(dict.fromkeys((*published, *inter.measured_beside)))


def best_tables(
    errors: TableErrors, objective: Objective, weights: FloatArray, *, pure: bool
) -> TableSplit:
    """Shares of the unit budget over tables: of ε (noise of variance share⁻²) or of μ² (share⁻¹).

    A pure split is not a convex problem: the best of several searches is taken, and the bound is
    that of the convex relaxation Σ share² ≤ 1.
    """
    tables = tables_of(errors)
    goal = Goal(errors, objective, weights)
    of_precision, relaxed = _relaxed(errors, goal, tables)
    matrix = table_information(errors, tables)
    if not pure:
        shares = relaxed.shares
        if not errors.interactions.nested:
            shares = np.maximum(shares, LEAST_LEVEL * float(shares.max()))
        split = TableSplit(tables, shares, relaxed.error, relaxed.bound)
        return _with_untold(split, errors, objective, weights, pure=False)
    best, least = relaxed.shares, math.inf
    rng = np.random.default_rng(0)
    # One table that tells all others, with all of ε: they are sums of its noisy totals.
    needed = np.array([level == interaction.finest for interaction, level, _ in errors.slots])
    nested = errors.interactions.nested
    alone = [np.eye(len(tables))[t] for t in np.flatnonzero(np.all(matrix[needed] > 0, axis=0))]
    for single in alone if nested else ():
        error = of_precision(single)[0]
        if error < least:
            best, least = single, error
    at_random = [rng.random(len(tables)) + 0.1 for _ in range(STARTS - 1)]
    nearly_alone = [np.maximum(single, LITTLE) for single in alone]
    for first in (np.cbrt(relaxed.shares), *(at_random if nested else nearly_alone)):
        shares, error = _search(of_precision, first, nested)
        if error < least:
            best, least = shares, error
    # A table that gets next to nothing is better not measured, unless nothing else tells it.
    kept = np.ones(len(tables), bool)
    for t in np.argsort(best) if nested else ():
        fewer = kept & (np.arange(len(tables)) != t)
        if best[t] < WORTH and fewer.any() and np.all(matrix[needed][:, fewer].sum(axis=1) > 0):
            kept = fewer
    if not kept.all():
        shares = best[kept]
        best, least = _search(
            lambda p: _on(of_precision, kept, p), np.maximum(shares, WORTH), nested
        )
        if kept.sum() == 1:
            best = np.ones(1)
        tables = tuple(table for table, stays in zip(tables, kept, strict=True) if stays)
    if objective == "targets":
        sharp = _least_worst_tables(goal.worst(matrix[:, kept]), best**2, pure=True)
        best, least = np.sqrt(sharp.shares), sharp.error
    if not nested:  # where levels cross every table stays
        best = np.maximum(best, WORTH * float(best.max()))
        best = best / best.sum()
    split = TableSplit(tables, best, least, relaxed.bound)
    return _with_untold(split, errors, objective, weights, pure=True)


def _with_untold(
    split: TableSplit, errors: TableErrors, objective: Objective, weights: FloatArray, *, pure: bool
) -> TableSplit:
    """A split for targets, with a little for tables that have none."""
    others = untold(errors, weights) if objective == "targets" else np.zeros(1)
    if not others.any():
        return split
    beside = best_tables(errors, "balanced", others, pure=pure)
    shares = {table: (1 - SPARE) * s for table, s in zip(split.tables, split.shares, strict=True)}
    for table, share in zip(beside.tables, beside.shares, strict=True):
        shares[table] = shares.get(table, 0.0) + SPARE * float(share)
    return replace(split, tables=tuple(shares), shares=np.array(list(shares.values())))


def _least_worst_tables(worst: WorstFigures, start: FloatArray, *, pure: bool) -> WorstShares:
    """The best precisions t of tables for targets, under Σt ≤ 1, or Σ√t ≤ 1 near a start."""
    one = np.ones((1, len(start)))

    def sticking_out(t: FloatArray) -> tuple[FloatArray, float]:
        return one[:0], float(np.sqrt(t).sum() ** 2 if pure else t.sum())

    return least_worst(worst, one, np.maximum(start, FLOOR), sticking_out, pure=pure)


def _relaxed(
    errors: TableErrors, goal: Goal, tables: tuple[Published, ...]
) -> tuple[Callable[[FloatArray], tuple[float, FloatArray]], BestShares]:
    """The goal as a function of precisions of tables, and its best under Σ precision ≤ 1."""
    scaled = goal.scaled()
    if not tables or not np.any(scaled > 0):
        raise BudgetError(NOTHING_MEASURED)
    matrix = table_information(errors, tables)

    def of_precision(t: FloatArray) -> tuple[float, FloatArray]:
        value, slopes = goal(scaled, matrix @ t)
        return value, slopes @ matrix

    start = np.ones(len(tables))
    if goal.objective == "targets":
        found = _least_worst_tables(goal.worst(matrix), start, pure=False)
        return of_precision, BestShares(found.shares, found.error, found.bound)
    if errors.interactions.nested or goal.objective == "largest":
        return of_precision, best_shares(of_precision, start[None], start, between=_between(errors))
    best, _ = best_by_curvature(
        of_precision, start[None], lambda t: (start[None], float(t.sum())),
        [np.arange(len(tables))], np.full(len(tables), LEAST_LEVEL), gap=CROSSING_GAP,
    )  # fmt: skip
    return of_precision, best


def _on(
    of_precision: Callable[[FloatArray], tuple[float, FloatArray]],
    kept: BoolArray,
    precision: FloatArray,
) -> tuple[float, FloatArray]:
    """A goal of some tables, the others without noise and without information."""
    every = np.zeros(len(kept))
    every[kept] = precision
    value, slopes = of_precision(every)
    return value, slopes[kept]


def _search(
    of_precision: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray, nested: bool
) -> tuple[FloatArray, float]:
    """Log F(e²) + 2 log Σe, which no scale of the shares e changes.

    Where levels cross, with few looks: F is at most Σ g·p²/e², p the squares of the shares before,
    and that is least for e in proportion to the cube roots.
    """
    if not nested:
        e = start / start.sum()
        value, slopes = of_precision(e * e)
        for _ in range(ROOT_STEPS):
            tried = np.cbrt(slopes * e**4)
            tried = np.maximum(tried, WORTH * float(tried.max()))
            tried /= tried.sum()
            there, next_slopes = of_precision(tried * tried)
            done = there > value * (1 - ROOT_GAIN)
            if there < value:
                e, value, slopes = tried, there, next_slopes
            if done:
                break
        return e, value

    def in_logarithms(x: FloatArray) -> tuple[float, FloatArray]:
        e = np.exp(x)
        f, g = of_precision(e * e)
        whole = float(e.sum())
        return math.log(f) + 2 * math.log(whole), 2 * e / whole - 2 * e * e * g / f

    e = np.exp(
        least_point(in_logarithms, np.log(start / start.sum()), WIDE_ROOTS, gain=1e-11, slope=1e-5)
    )
    e /= e.sum()
    return np.asarray(e, np.float64), float(of_precision(e * e)[0])
