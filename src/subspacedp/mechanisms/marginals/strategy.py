"""What the marginals mechanism measures, as part of a problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np

from subspacedp.arrays import FloatArray
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins
from subspacedp.mechanisms.base import calibrated_law
from subspacedp.mechanisms.marginals.fitting import (
    WORTH,
    Goal,
    Objective,
    best_contrasts,
    best_tables,
    bound_of_contrasts,
    bound_of_tables,
)
from subspacedp.mechanisms.marginals.interactions import Interactions, Published
from subspacedp.mechanisms.marginals.measurement import (
    ContrastMeasurement,
    Measurement,
    TableMeasurement,
    table_information,
)
from subspacedp.mechanisms.marginals.plan import Regions, TableErrors
from subspacedp.mechanisms.marginals.shares import GAP
from subspacedp.mechanisms.marginals.spending import spending_of
from subspacedp.mechanisms.marginals.targets import WorstFigures
from subspacedp.noise import KnownLaw
from subspacedp.privacy import Budget, Neighbours
from subspacedp.problem import Problem
from subspacedp.queries import Margins, Sensitivity
from subspacedp.queries.margins import block_name
from subspacedp.tables import Margin

MAX_JOINT_CELLS = 1 << 16  # of the table that tells all margins, for which pure noise is tried
MAX_JOINT_AXES = 8
UNITS = 1 << 40  # shares of tables are whole parts of the budget
LEAST_UNIT = UNITS >> 20
OBJECTIVES = ("balanced", "sum", "largest", "targets")
MEASURED = ("contrasts", "tables")
MOST_PLACES = 2000  # labels of an axis with classifications that cross, for targets
GOAL_ROUNDING = 1e-6  # of a goal, computed again on another machine
NORMAL_95 = 1.959963984540054  # standard deviations of a normal variable, 95 % within


@frozen
class ManyScales:
    """One family of laws with several scales, in units of the answers."""

    largest: KnownLaw
    smallest: float
    number: int

    @property
    def scale(self) -> float:
        """The largest scale."""
        return self.largest.scale

    @property
    def nearly_normal(self) -> bool:
        """Whether it is nearly normal, once it spreads over several whole numbers."""
        return self.largest.nearly_normal

    @property
    def variance(self) -> float:
        """Of the noise with the largest scale."""
        return self.largest.variance

    def as_dict(self) -> dict[str, Any]:
        """As plain data: the law of the largest scale, and how many others there are."""
        scales = {"number": self.number, "smallest": self.smallest, "largest": self.scale}
        return {**self.largest.as_dict(), "scales": scales}


@frozen(eq=False, repr=False, kw_only=True)
class MarginalsStrategy:
    """Noise at several levels of a tree and on several interactions, each with its share.

    Parameters
    ----------
    workload
        The margins that the shares are chosen for; where cells are released, they come first.
    shares
        For contrasts: shares of the squared budget of one record, one for every slot of
        `TableErrors`. For tables: whole parts of `UNITS`, one for every table.
    tables
        The tables that get noise; None for contrasts.
    constrained
        Whether held totals enter the least squares (G, plain), or the estimate is projected (S).
    objective, goal, bound
        What the shares were chosen for, what they reach of it (noise before it is rounded to whole
        numbers), and what no split of the budget can be below. None where whole tables are measured
        beside a second axis with unequal groups: errors there have no closed form to choose by.
    allowed
        For the objective "targets": the variance of noise that each table's figures may have, None
        where it has no target.
    """

    workload: Margins
    interactions: Interactions
    shares: FloatArray | tuple[int, ...]
    tables: tuple[Published, ...] | None
    constrained: bool
    objective: Objective
    goal: float | None
    bound: float | None
    allowed: tuple[float | None, ...] | None = None
    _proofs: dict[Problem, tuple[float | None, float | None]] = field(
        default_factory=dict, init=False
    )

    @property
    def counted(self) -> FloatArray:
        """What each table counts for, as `Goal` takes it."""
        return _counted(self.workload, self.allowed)

    # ------------------------------------------------------------------ what follows from both

    def errors(self, problem: Problem) -> TableErrors:
        """Errors as a function of shares."""
        return errors_of(problem, self.interactions, contrasts=self.tables is None)

    def measurement(self, problem: Problem) -> Measurement:
        """What gets noise, and its laws."""
        errors = self.errors(problem)
        if self.tables is None:
            return ContrastMeasurement(errors, np.asarray(self.shares, np.float64))
        laws = table_laws(problem, [int(u) for u in self.shares])
        return TableMeasurement(errors, self.tables, laws)

    # ------------------------------------------------------------------ plain data

    def as_dict(self) -> dict[str, Any]:
        """Shares, and what they were chosen for."""
        shares: list[Any] = np.asarray(self.shares).tolist()
        return {
            "workload": [list(m.names) for m in self.workload.margins],
            "weights": list(self.workload.weights or ()),
            "measured": MEASURED[0] if self.tables is None else MEASURED[1],
            "tables": None if self.tables is None else [self._names(t) for t in self.tables],
            "shares": shares,
            "constrained": self.constrained,
            "objective": self.objective,
            "goal": self.goal,
            "bound": self.bound,
            **self._stated_targets(),
        }

    def _stated_targets(self) -> dict[str, Any]:
        if self.allowed is None:
            return {}
        return {"targets": list(self.workload.targets or ()), "allowed": list(self.allowed)}

    def _names(self, table: Published) -> list[str]:
        return list(self.interactions.margin(table.level, table.steps).names)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], problem: Problem) -> MarginalsStrategy:
        """From plain data: what neighbouring changes spend is computed again, not believed."""
        known = {"workload", "weights", "measured", "tables", "shares"}
        known |= {"constrained", "objective", "goal", "bound"}
        known |= {"targets", "allowed"} if data.get("objective") == "targets" else set()
        if set(data) != known or data["measured"] not in MEASURED:
            raise ReleaseError("what it measures cannot be read.")
        if data["objective"] not in OBJECTIVES or not all(
            data[k] is None
            or (isinstance(data[k], float) and math.isfinite(data[k]) and data[k] > 0)
            for k in ("goal", "bound")
        ):
            raise ReleaseError("what its shares were chosen for is out of range.")
        targets, allowed = data.get("targets"), data.get("allowed")
        weights = None if targets else data["weights"]
        workload = Margins(problem.domain, data["workload"], weights, targets)
        _check_workload(problem, workload)
        if allowed is not None:
            _check_allowed(allowed, workload)
            allowed = tuple(allowed)
        inter = interactions_of(problem, workload, tables=data["measured"] == "tables")
        if data["tables"] is not None:
            joint = with_joint_table(problem, inter)
            measured = {workload.domain.margin(*names) for names in data["tables"]}
            if joint is not None and joint.joint in measured:
                inter = joint
        if data["constrained"] is not constrained(problem, inter):
            raise ReleaseError("its estimate is not that of its digits and invariants.")
        tables: tuple[Published, ...] | None = None
        shares: FloatArray | tuple[int, ...]
        if data["measured"] == "tables":
            domain = inter.domain
            tables = tuple(inter.locate(domain.margin(*names)) for names in data["tables"])
            if not all(type(u) is int and u > 0 for u in data["shares"]):
                raise ReleaseError("its shares of the budget are out of range.")
            shares = tuple(data["shares"])
        else:
            if data["tables"] is not None:
                raise ReleaseError("what it measures cannot be read.")
            shares = np.asarray(data["shares"], np.float64)
            inter = _with_shares_for(problem, inter, shares)
        strategy = cls(
            workload=workload,
            interactions=inter,
            shares=shares,
            tables=tables,
            constrained=data["constrained"],
            objective=data["objective"],
            goal=data["goal"],
            bound=data["bound"],
            allowed=allowed,
        )
        strategy.check(problem)
        strategy.check_goal(problem)
        return strategy

    def check_goal(self, problem: Problem) -> None:
        """Refuse a goal that the shares do not reach, and a bound that nothing proves."""
        goal, bound = self.proved(problem)
        if goal is None or bound is None:
            if (self.goal, self.bound) != (None, None):
                raise ReleaseError("it states a goal where none is known.")
        elif (
            self.goal is None
            or self.bound is None
            or not abs(self.goal / goal - 1) <= GOAL_ROUNDING
            or not self.bound <= bound * (1 + GAP)
        ):
            raise ReleaseError("its shares do not reach the goal, or prove the bound, it states.")

    def proved(self, problem: Problem) -> tuple[float | None, float | None]:
        """The goal that the shares reach and a bound for all shares, from nothing else."""
        if problem not in self._proofs:
            self._proofs[problem] = self._prove(problem)
        return self._proofs[problem]

    def _prove(self, problem: Problem) -> tuple[float | None, float | None]:
        errors, objective, weights = self.errors(problem), self.objective, self.counted
        if self.tables is None:
            shares = np.asarray(self.shares, np.float64)
            unit = squared_budget(problem.budget, problem.neighbours)
            bound = bound_of_contrasts(
                errors, problem.neighbours, objective, weights, shares / unit
            )
            return Goal(errors, objective, weights).of(shares), bound / unit
        if self.interactions.uneven_axes:
            return None, None
        parts = np.asarray(self.shares, np.float64) / UNITS
        precision = parts**2 if problem.budget.pure else parts
        slot_precision = table_information(errors, self.tables) @ precision
        scale = _table_scale(problem)
        return (
            Goal(errors, objective, weights).of(slot_precision) * scale,
            bound_of_tables(self._all_tables(problem), objective, weights) * scale,
        )

    def _all_tables(self, problem: Problem) -> TableErrors:
        """Errors for all tables that a split may be over, measured here or not."""
        joint = with_joint_table(problem, replace(self.interactions, beside=()))
        return errors_of(problem, joint or self.interactions, contrasts=False)

    def check(self, problem: Problem) -> None:
        """Refuse shares that spend more than the budget, or leave something without a measure."""
        errors = self.errors(problem)
        if self.tables is None:
            shares = np.asarray(self.shares, np.float64)
            if not (np.all(np.isfinite(shares)) and np.all(shares >= 0)):
                raise ReleaseError("its shares of the budget are out of range.")
            spent = spending_of(errors, problem.neighbours).sticking_out(shares)[1]
            # The budget is 10⁻¹² above this; a tenth of that is for the rounding of shares.
            if not spent <= squared_budget(problem.budget, problem.neighbours) * (1 + 1e-13):
                raise ReleaseError("its noise is too small for the budget.")
            slot_precision = shares
        else:
            units = [int(u) for u in self.shares]
            published = {*self.interactions.published, *self.interactions.measured_beside}
            if (
                len(units) != len(self.tables)
                or sum(units) != UNITS
                or len(set(self.tables)) != len(self.tables)
                or not set(self.tables) <= published
            ):
                raise ReleaseError("its shares do not add up to the budget.")
            laws = table_laws(problem, units)
            slot_precision = TableMeasurement(errors, self.tables, laws).shares
        for share, (interaction, level, _) in zip(slot_precision, errors.slots, strict=True):
            if level == interaction.finest and not share > 0:
                raise ReleaseError("what is measured does not tell all that is released.")

    def for_budget(self, problem: Problem, budget: Budget) -> MarginalsStrategy:
        """The same split for another budget of the same kind."""
        n, other = problem.neighbours, replace(problem, budget=budget)
        if self.tables is not None:
            ratio = _table_scale(problem) / _table_scale(other)
            shares: Any = self.shares
        else:
            ratio = squared_budget(budget, n) / squared_budget(problem.budget, n)
            shares = np.asarray(self.shares, np.float64) * ratio
        goal, bound = (None if each is None else each / ratio for each in (self.goal, self.bound))
        return replace(self, shares=shares, goal=goal, bound=bound)


def squared_budget(budget: Budget, neighbours: Neighbours) -> float:
    """The squared budget of one of a person's records: lengths of several add up at most."""
    return float((budget.gaussian_mu / neighbours.records) ** 2 * (1 - 1e-12))


def total_known(problem: Problem) -> bool:
    """Whether no neighbouring change of what is measured alters the grand total."""
    n = problem.neighbours
    return n.persons == 2 and n.keeps_total and not problem.capped


def constrained(problem: Problem, interactions: Interactions) -> bool:
    """Whether held totals enter the least squares.

    They do wherever the guarantee does not rest on the contrary: with digits that add up (G), where
    no neighbouring change can alter them (plain), or where contrasts are not orthogonal to them.
    """
    if problem.capped:
        return False  # the held totals are then not those of the table that is measured
    return (
        problem.decimals is not None
        or problem.held.empty is not None  # cells known to be empty enter it too
        or problem.held.fixed_by(problem.neighbours)
        or any(len(i.exact) > 1 for i in interactions.measured)
        or not interactions.orthogonal
    )


def interactions_of(problem: Problem, workload: Margins, *, tables: bool) -> Interactions:
    """A workload with what is held, taken apart.

    Where tables are measured and an estimate is projected onto levels that cross others, what is
    held is measured too: least squares takes the noise there from other levels.
    """
    inter = Interactions(
        domain=workload.domain,
        workload=tuple(workload.margins),
        held=held_margins(problem).essential,
    )
    if tables and not inter.nested and not constrained(problem, inter):
        return replace(inter, with_held=True)
    return inter


def with_joint_table(problem: Problem, interactions: Interactions) -> Interactions | None:
    """With the table that determines all margins measured beside them, where that may pay.

    Of a pure budget every table takes its part, so noise on one table and its sums can be better
    than noise on every margin. None where the table is published, or large.
    """
    joint = interactions.joint
    kept = sum(s != axis.depth - 1 for s, axis in zip(joint.steps, joint.axes, strict=True))
    if (
        not problem.budget.pure
        or joint in interactions.workload
        or math.prod(joint.shape) > MAX_JOINT_CELLS
        or kept > MAX_JOINT_AXES
        or interactions.uneven_axes
        or not interactions.nested
    ):
        return None
    return replace(interactions, beside=(joint,))


def held_margins(problem: Problem) -> HeldMargins:
    """The margins among what is held; beside them cells may be known to be empty."""
    held = problem.held
    if held.family is not None:
        return held.family
    if not problem.query.is_histogram or any("linear" in part for part in held.as_list()):
        raise ReleaseError(
            "The marginals mechanism holds margins and empty cells of a table, hold(...) and "
            "zeros(...) with &; other linear invariants take mechanism='projected'."
        )
    if problem.held.empty is not None and (problem.decimals is not None or problem.capped):
        what = "decimals" if problem.decimals is not None else "capped=True"
        raise ReleaseError(
            f"Cells known to be empty and {what} together are not for the marginals mechanism: "
            "leave out one of them, or write mechanism='projected'."
        )
    return HeldMargins(domain=problem.domain, margins=held.margins, counts=True)


def workload_for(
    problem: Problem,
    margins: Sequence[Sequence[str]] | None,
    weights: Sequence[float] | None,
    targets: Sequence[float | None] | None = None,
) -> Margins:
    """What the noise is designed for.

    A workload that is asked for is its own. For the cells of a table: the cells and the margins
    that are named, or the table at every level of its axes where none are.
    """
    query = problem.query
    if query.workload is not None:
        if any(given is not None for given in (margins, weights, targets)):
            raise ReleaseError(
                "A workload has its margins, weights and targets: Margins(domain, [...])."
            )
        return query.workload
    if not query.is_histogram:
        raise ReleaseError(
            "The marginals mechanism is for the cells of a table, or for Margins(domain, [...])."
        )
    domain = problem.domain
    cells = domain.cells
    if margins is None:
        named = []
        grouped = [a for a, axis in enumerate(domain.axes) if axis.crossing]
        for a, axis in enumerate(domain.axes):
            levels = axis.named if grouped == [a] else axis.chain
            for step in (axis.step_of(level.name) for level in levels[1:]):
                steps = tuple(step if b == a else 0 for b in range(len(domain.axes)))
                named.append(Margin(tuple(domain.axes), steps))
    else:
        named = [domain.margin(*names) for names in margins]
    rest = [m for m in named if m != cells]
    return Margins(domain, [cells, *rest], weights, targets)


def _with_shares_for(problem: Problem, inter: Interactions, shares: FloatArray) -> Interactions:
    """A certificate's workload taken apart as in its version, which its number of shares tells."""
    for way in (inter, replace(inter, alike=False)):
        if shares.shape == (len(errors_of(problem, way, contrasts=True).slots),):
            return way
    raise ReleaseError(
        "its shares of the budget are not one for every interaction and level of its design."
    )


def _check_workload(problem: Problem, workload: Margins) -> None:
    """A certificate's workload is the query's, or begins with its cells."""
    stated = problem.query.workload
    same = stated is not None and (
        list(stated.margins) == list(workload.margins)
        and stated.weights == workload.weights
        and stated.targets == workload.targets
    )
    cells = problem.query.is_histogram and workload.margins[0] == problem.domain.cells
    if not same and not cells:
        raise ReleaseError("its workload is not that of the query.")


def _check_allowed(allowed: Any, workload: Margins) -> None:
    """Refuse variances that are not one for every target."""
    targets = workload.targets or ()
    if not isinstance(allowed, list) or not all(
        (a is None) == (t is None) and (a is None or (type(a) is float and 0 < a < math.inf))
        for a, t in zip_longest(allowed, targets, fillvalue=math.nan)
    ):
        raise ReleaseError("the variances it allows are not those of its targets.")


def _counted(workload: Margins, allowed: Sequence[float | None] | None) -> FloatArray:
    """What each table counts for: its weight, or one over the variance that it may have."""
    if allowed is None:
        return np.asarray(workload.weights, np.float64)
    return np.array([0.0 if variance is None else 1.0 / variance for variance in allowed])


def errors_of(problem: Problem, interactions: Interactions, *, contrasts: bool) -> TableErrors:
    """Errors of a design's tables as a function of shares."""
    enters, known = constrained(problem, interactions), total_known(problem)
    return _errors_of(interactions, contrasts, enters, known)


@lru_cache(maxsize=4)  # shares are chosen, proved and measured from the same errors
def _errors_of(
    interactions: Interactions, contrasts: bool, enters: bool, known: bool
) -> TableErrors:
    regions = Regions.of(interactions) if contrasts else Regions(interactions, None)
    return TableErrors(
        interactions=interactions, regions=regions, constrained=enters, total_known=known
    )


def table_laws(problem: Problem, units: list[int]) -> tuple[KnownLaw, ...]:
    """The noise on the totals of every table, for its share of the budget.

    A replaced record moves one total of a table down and one up: Δ₁ = 2, Δ₂² = 2, and times the
    records of a person; an added one moves one: Δ₁ = Δ₂ = 1.
    """
    n, shares = problem.neighbours, [Fraction(u, UNITS) for u in units]
    l1, l2_squared = n.persons * n.records, n.persons * n.records**2
    return tuple(
        calibrated_law(problem.budget, Sensitivity(l1 / s, l2_squared / s)) for s in shares
    )


def fit_marginals(
    problem: Problem,
    *,
    margins: Sequence[Sequence[str]] | None = None,
    weights: Sequence[float] | None = None,
    targets: Sequence[float | None] | None = None,
    objective: Objective | None = None,
    measured: str | None = None,
    allowed: tuple[float | None, ...] | None = None,
) -> MarginalsStrategy:
    """The best shares for a design's workload, budget and invariants.

    For targets: by the variances that are `allowed`, by default those of normal noise.
    """
    workload = workload_for(problem, margins, weights, targets)
    given = len(set(workload.weights or ())) > 1
    goal: Objective = objective or ("sum" if given else "balanced")
    if goal not in OBJECTIVES[:3]:
        raise ReleaseError("`objective` must be 'balanced', 'sum' or 'largest'.")
    if workload.targets is not None:
        if objective is not None:
            raise ReleaseError("Targets are an objective of their own; leave out `objective`.")
        goal, allowed = "targets", allowed or normal_variances(workload.targets)
    kind = measured or ("tables" if problem.budget.pure else "contrasts")
    if kind not in MEASURED:
        raise ReleaseError("`measured` must be 'contrasts' or 'tables'.")
    inter = interactions_of(problem, workload, tables=kind == "tables")
    counted = _counted(workload, allowed)
    if goal == "targets":
        _check_targets(problem, inter, workload)
    shares: FloatArray | tuple[int, ...]
    if kind == "contrasts":
        if problem.budget.pure:
            raise BudgetError(
                "Contrasts get Gaussian noise: use ApproxDP, ZCDP or GaussianDP, or measure tables."
            )
        errors = errors_of(problem, inter, contrasts=True)
        best = best_contrasts(errors, problem.neighbours, goal, counted)
        unit = squared_budget(problem.budget, problem.neighbours)
        shares, tables = best.shares * unit, None
    else:
        errors = errors_of(problem, inter, contrasts=False)
        split = best_tables(errors, goal, counted, pure=problem.budget.pure)
        joint = with_joint_table(problem, inter) if measured is None else None
        if joint is not None:
            errors = errors_of(problem, joint, contrasts=False)
            other = best_tables(errors, goal, counted, pure=True)
            if other.error < split.error * (1 - WORTH):
                inter, split = joint, other
        shares, tables = whole_parts(split.shares), split.tables
    fitted = MarginalsStrategy(
        workload=workload,
        interactions=inter,
        shares=shares,
        tables=tables,
        constrained=constrained(problem, inter),
        objective=goal,
        goal=None,
        bound=None,
        allowed=allowed,
    )
    proof = fitted.proved(problem)
    out = replace(fitted, goal=proof[0], bound=proof[1])
    out._proofs[problem] = proof
    return out


def normal_variances(targets: Sequence[float | None]) -> tuple[float | None, ...]:
    """The variances of normal errors with these 95 % margins of error."""
    return tuple(None if target is None else (target / NORMAL_95) ** 2 for target in targets)


def _check_targets(problem: Problem, inter: Interactions, workload: Margins) -> None:
    """Refuse a target on what has no error, and on more places than can be looked at one by one."""
    if not inter.nested and len(inter.tree.axis) > MOST_PLACES:
        raise ReleaseError(
            f"Targets look at every place by itself where classifications cross, and take at most "
            f"{MOST_PLACES:,} labels of `{inter.tree.axis.name}`; give weights instead."
        )
    errors = errors_of(problem, inter, contrasts=False)
    targets = workload.targets or ()
    asked = np.array([math.inf if target is None else 1.0 for target in targets])
    worst = WorstFigures(errors, asked)
    moved = set(worst.table_of[worst(np.ones(len(errors.slots))) > 0].tolist())
    for t, (margin, target) in enumerate(zip(workload.margins, targets, strict=True)):
        if target is not None and t not in moved:
            raise ReleaseError(
                f"The margin `{block_name(margin)}` has a target, and is published exactly: what "
                "is held fixes it, or no neighbouring change alters it; leave out its target."
            )


def _table_scale(problem: Problem) -> float:
    """The variance of noise on a total for the whole budget, before it is whole numbers."""
    n = problem.neighbours
    return problem.budget.variance(n.persons * n.records, n.persons * n.records**2)


def whole_parts(shares: FloatArray) -> tuple[int, ...]:
    """Shares as whole parts of `UNITS` that add up to it."""
    units = np.maximum(np.floor(shares / shares.sum() * UNITS), LEAST_UNIT).astype(np.int64)
    units[int(np.argmax(units))] += UNITS - int(units.sum())
    return tuple(int(u) for u in units)
