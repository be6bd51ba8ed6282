"""Targets: the least budget with which the worst figure of every table has a given variance.

The variance of a figure is f(b) = tr(W·(Σ b_j M_j)⁻¹) of the shares b of a squared budget: convex,
of degree −1. So the least budget that meets f_k ≤ v_k for all k is, with F = max_k f_k/v_k, the
least F(b) under C b ≤ 1, and its shares are those of any other budget. With g = −∂f/∂b at shares b₀

    f(b) ≤ Σ_j g_j·b₀_j²/b_j,      equal at b₀

(operator Jensen inequality), exactly where every interaction has one share. The right-hand sides in
place of f make a geometric programme, convex in log b, which an interior-point method solves; its
solution is the next b₀, so F falls with every step.

Bound and prices: with weights λ ≥ 0 of the figures and y ≥ 0 of the rows such that
λ·(g_k) ≤ y·C, every b with C b ≤ 1 has F(b) ≥ (λ·f)²/(Σλ·Σy). (`shares` proves it for one convex
error; Σλ_k f_k/Σλ is one, and at most F.) At the best shares equality holds, and the elasticity of
the least budget to v_k is λ_k f_k/(λ·f). Proofs: `docs/proofs/targets.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.marginals.plan import TableErrors
from subspacedp.mechanisms.marginals.shares import EVEN, FLOOR, distinct_rows

TIGHT = 2e-4  # the gap at which the search ends
MAX_STEPS = 60
FEW = 48  # figures whose slopes are looked at from the beginning
NEAR = 0.9  # of the largest multiple: figures beyond it are looked at too
PRECISE = 1e-6  # of the logarithm of the goal: where the interior-point method ends
NEWTON_STEPS = 100
FASTER = 10.0  # by what the gap shall fall in a step
OVER = (1.0, 1.9)  # steps to try, in multiples of the one to the next solution


@frozen(eq=False, repr=False)
class WorstFigures:
    """The variances of all kinds of figures of some tables, in multiples of what is allowed.

    Parameters
    ----------
    errors
        The tables, and their errors as a function of precisions.
    allowed
        The variance that each table's figures may have; infinite where it does not matter.
    matrix
        What unit shares give the precisions of `errors`; None where shares are these.
    """

    errors: TableErrors
    allowed: FloatArray
    matrix: FloatArray | None = None

    @cached_property
    def _member(self) -> Int64Array:
        """The number of the interaction of every precision."""
        number = {interaction.steps: i for i, interaction in enumerate(self.errors.measured)}
        return np.array([number[i.steps] for i, _, _ in self.errors.slots], np.int64)

    @cached_property
    def _tables(self) -> list[tuple[int, int, FloatArray]]:
        """Tables that count: number, level, and what their figures take of each interaction."""
        inter = self.errors.interactions
        out = []
        for t, where in enumerate(inter.published):
            if math.isfinite(self.allowed[t]):
                groups = [axis.kinds(s) for axis, s in zip(inter.axes, where.steps, strict=True)]
                below = set(inter.below(where.steps))
                parts = [
                    inter.taken(where.steps, i.steps, groups).reshape(-1)
                    if i.steps in below
                    else np.zeros(math.prod(len(g) for g in groups))
                    for i in self.errors.measured
                ]
                taken = distinct_rows(np.array(parts).T)
                out.append((t, where.level, taken / self.allowed[t]))
        return out

    @cached_property
    def figures(self) -> Int64Array:
        """Table, row of what is taken, and orbit of every kind of figure."""
        number = self.errors.interactions.tree.orbits.number
        rows = [
            np.array([(k, g, o) for g in range(len(taken)) for o in range(len(number[level]))])
            for k, (_, level, taken) in enumerate(self._tables)
        ]
        return np.concatenate(rows).astype(np.int64) if rows else np.zeros((0, 3), np.int64)

    @property
    def table_of(self) -> Int64Array:
        """The number of every figure's table in the workload."""
        tables = np.array([t for t, _, _ in self._tables], np.int64)
        return np.asarray(tables[self.figures[:, 0]])

    def __call__(self, shares: FloatArray) -> FloatArray:
        """The multiple of every kind of figure."""
        errors, inter = self.errors, self.errors.interactions
        precision = self._precision(shares)
        one, slot = errors.measured_once
        by_level = [np.zeros((len(errors.measured), len(n))) for n in inter.tree.orbits.number]
        by_level[-1][one, 0] = 1.0 / precision[slot]
        for i, interaction in errors.on_tree:
            for level, variance in enumerate(errors.smoother(interaction, precision).variances):
                if len(variance):
                    by_level[level][i] = variance
        parts = [(taken @ by_level[level]).reshape(-1) for _, level, taken in self._tables]
        return np.concatenate([np.zeros(0), *parts])

    def slopes(self, shares: FloatArray, which: Int64Array) -> FloatArray:
        """−∂/∂shares of some kinds of figures, in rows."""
        errors, inter = self.errors, self.errors.interactions
        precision = self._precision(shares)
        _, slot = errors.measured_once
        smoothers = [(i, errors.smoother(i, precision)) for _, i in errors.on_tree]
        at_node: dict[tuple[int, int], FloatArray] = {}
        out = np.empty((len(which), len(precision)))
        for row, (k, g, orbit) in enumerate(self.figures[which].tolist()):
            _, level, taken = self._tables[k]
            if (level, orbit) not in at_node:
                slopes = np.zeros(len(precision))
                if level == inter.tree.root:
                    slopes[slot] = 1.0 / precision[slot] ** 2
                for interaction, smoother in smoothers:
                    if inter.tree.determines(interaction.finest, level):
                        at_orbit = smoother.slopes_at(level, orbit)
                        errors.gather_slopes(interaction, at_orbit, slopes)
                at_node[level, orbit] = slopes
            out[row] = taken[g, self._member] * at_node[level, orbit]
        return out if self.matrix is None else out @ self.matrix

    def _precision(self, shares: FloatArray) -> FloatArray:
        return shares if self.matrix is None else np.asarray(self.matrix @ shares)


@frozen(eq=False)
class WorstShares:
    """Shares that spend at most one, the largest multiple they reach, and a bound for all shares.

    `elasticity` has for every table by how many per cent the least budget falls if its figures may
    have one per cent more variance; together one.
    """

    shares: FloatArray
    error: float
    bound: float
    elasticity: FloatArray


def least_worst(
    worst: WorstFigures,
    rows: FloatArray,
    start: FloatArray,
    sticking_out: Callable[[FloatArray], tuple[FloatArray, float]],
    possible: FloatArray | None = None,
    *,
    pure: bool = False,
) -> WorstShares:
    """The least largest multiple over shares that no row spends more than one of.

    Parameters
    ----------
    rows, sticking_out, possible
        What neighbouring changes spend, as `best_shares` takes it.
    start
        Positive shares.
    pure
        Whether rows spend the roots of shares instead: not convex, so what is found is the best
        near the start, and the bound holds there alone.
    """
    known = distinct_rows(rows)
    b = start / sticking_out(start)[1]
    multiples = worst(b)
    order = np.argsort(-multiples, kind="stable")[:FEW]
    looked_at = order[multiples[order] > 0]
    best, bound, elasticity = (b, float(multiples.max())), 0.0, np.zeros(len(worst.allowed))
    for _ in range(MAX_STEPS):
        looked_at = np.union1d(looked_at, np.flatnonzero(multiples > NEAR * multiples.max()))
        slopes = worst.slopes(b, looked_at)
        costs = known if possible is None else possible
        lower, prices = _bound(
            1 / np.sqrt(b)[None] if pure else costs, multiples[looked_at], slopes
        )
        if lower > bound:
            elasticity = _by_table(worst, looked_at, prices)
            bound = lower
        if best[1] <= bound * (1 + TIGHT):
            break
        solution = _geometric(slopes * b**2, known, b, 0.5 if pure else 1.0)
        tried = []
        for over in OVER:
            b_next = np.maximum(b * (solution / b) ** over, FLOOR * float(solution.max()))
            more, most = sticking_out(b_next)
            known = np.concatenate([known, more])
            tried.append((b_next / most, worst(b_next / most)))
        known = distinct_rows(known)
        b, multiples = min(tried, key=lambda step: float(step[1].max()))
        if multiples.max() < best[1]:
            best = b, float(multiples.max())
    if not math.isfinite(best[1]):
        raise ReleaseError("No split of the budget was found for this workload.")
    return WorstShares(best[0], best[1], bound, elasticity)


def worst_bound(
    worst: WorstFigures, rows: FloatArray, shares: FloatArray
) -> tuple[float, FloatArray]:
    """What the largest multiple of no shares that the rows allow is below, and elasticities.

    They are computed from the shares alone, whoever chose them; 0 where nothing is proven.
    """
    multiples = worst(shares)
    which = np.flatnonzero(multiples > NEAR * multiples.max())
    bound, prices = _bound(distinct_rows(rows), multiples[which], worst.slopes(shares, which))
    return bound, _by_table(worst, which, prices)


def _by_table(worst: WorstFigures, which: Int64Array, prices: FloatArray) -> FloatArray:
    """Prices of figures added up by their tables."""
    summed = np.bincount(worst.table_of[which], prices, len(worst.allowed))
    return np.asarray(summed, np.float64)


def _bound(rows: FloatArray, multiples: FloatArray, slopes: FloatArray) -> tuple[float, FloatArray]:
    """The largest (λ·f)²/(Σλ·Σy), by a linear programme, and λ_k f_k/(λ·f)."""
    from scipy.optimize import linprog

    # With f and what rows spend about one, Σλ + Σy is least where the product is.
    top = float(multiples.max())
    f, g = multiples / top, slopes / top
    figures, columns = len(f), len(rows)
    solution = linprog(
        np.ones(figures + columns),
        A_ub=np.concatenate([g.T, -rows.T], axis=1), b_ub=np.zeros(rows.shape[1]),
        A_eq=np.concatenate([f, np.zeros(columns)])[None], b_eq=[1.0],
        bounds=(0, None), method="highs",
    )  # fmt: skip
    if solution.status != 0 or solution.x is None:
        return 0.0, np.zeros(figures)
    # The solver's weights, made feasible exactly: no share may have more slope than it costs.
    weights = np.maximum(solution.x[:figures], 0.0)
    costs = np.maximum(solution.x[figures:], 0.0)
    costs += EVEN * float(costs.sum()) / columns
    slope, cost = weights @ g, costs @ rows
    factor = float(np.max(np.where(slope > 0, slope / np.maximum(cost, 1e-300), 0.0)))
    value = float(weights @ f)
    if not 0 < factor < math.inf or not value > 0:
        return 0.0, np.zeros(figures)
    bound = top * value**2 / (float(weights.sum()) * float(costs.sum()) * factor)
    return bound, weights * f / value


def _geometric(parts: FloatArray, rows: FloatArray, start: FloatArray, power: float) -> FloatArray:
    """The b that minimises max_k Σ_j parts_kj/b_j under rows·b^power ≤ 1.

    A geometric programme, convex in x = log b: minimise s with log Σ parts/b ≤ s,
    log rows·b^power ≤ 0 and floor ≤ x, by a primal-dual interior-point method (Boyd and
    Vandenberghe, Convex Optimization, algorithm 11.2).
    """
    rows = rows[rows.any(axis=1)]
    size, floor = len(start), math.log(FLOOR) - 2.0
    x = np.maximum(np.log(start) - math.log(float((rows @ start**power).max())) / power, floor + 1)
    x -= math.log(float((rows @ np.exp(power * x)).max())) / power + 0.1
    x = np.maximum(x, floor + 0.5)

    def constraints(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What may not be above zero of z = (x, s), and its derivatives."""
        terms, spent = parts * np.exp(-z[:size]), rows * np.exp(power * z[:size])
        goals, costs = terms.sum(axis=1), spent.sum(axis=1)
        values = np.concatenate([np.log(goals) - z[size], np.log(costs), floor - z[:size]])
        slopes = np.zeros((len(values), size + 1))
        slopes[: len(goals), :size], slopes[: len(goals), size] = -terms / goals[:, None], -1.0
        slopes[len(goals) : -size, :size] = power * spent / costs[:, None]
        slopes[-size:, :size] = -np.eye(size)
        return values, slopes

    def residual(dual: FloatArray, values: FloatArray, slopes: FloatArray, t: float) -> float:
        left = dual @ slopes
        left[size] += 1.0
        return float(np.sqrt(left @ left + ((dual * values + 1 / t) ** 2).sum()))

    z = np.append(x, math.log(float((parts / np.exp(x)).sum(axis=1).max())) + 0.5)
    values, slopes = constraints(z)
    dual = -1.0 / values / (-1.0 / values[: len(parts)]).sum()
    bent = np.concatenate([np.ones(len(parts)), np.full(len(rows), power), np.zeros(size)])
    for _ in range(NEWTON_STEPS):
        left = dual @ slopes
        left[size] += 1.0
        gap = float(-dual @ values)
        if gap < PRECISE and np.abs(left).max() < PRECISE:
            break
        t = FASTER * len(values) / gap
        # The Hessian of log Σ exp is diag(p) − p·pᵀ, for p = |slope|/power.
        hessian = (slopes.T * (dual / -values - dual * (bent > 0))) @ slopes
        hessian[size, :] = hessian[:, size] = (slopes.T * (dual / -values)) @ slopes[:, size]
        diagonal = (dual * bent) @ np.abs(slopes[:, :size])
        hessian[np.arange(size), np.arange(size)] += diagonal
        barrier = -1.0 / (t * values)
        gradient = barrier @ slopes
        gradient[size] += 1.0
        step = np.linalg.solve(hessian, -gradient)
        step_dual = barrier - dual - dual * (slopes @ step) / values
        down = step_dual < 0
        length = 0.99 * min(1.0, float(np.min(-dual[down] / step_dual[down], initial=1.0)))
        before = residual(dual, values, slopes, t)
        while length > 1e-12:
            new, new_dual = z + length * step, dual + length * step_dual
            new_values, new_slopes = constraints(new)
            if np.all(new_values < 0) and (
                residual(new_dual, new_values, new_slopes, t) <= (1 - 0.01 * length) * before
            ):
                break
            length /= 2
        else:
            break
        z, dual, values, slopes = new, new_dual, new_values, new_slopes
    return np.asarray(np.exp(z[:size]))
