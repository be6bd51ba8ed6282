"""The inverse question: the least budget that meets targets for the error, and what each costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import FloatArray
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, Inequalities, LinearInvariants, StructuralZeros
from subspacedp.mechanisms.base import LARGEST_SCALE, Mechanism, Options
from subspacedp.mechanisms.estimates import check_level
from subspacedp.mechanisms.marginals import Marginals, with_budget
from subspacedp.privacy import ZCDP, ApproxDP, Budget, Neighbours
from subspacedp.privacy.budgets import kinds_of_budgets
from subspacedp.queries import Query, as_query
from subspacedp.queries.margins import block_name
from subspacedp.release.designs import Design, design
from subspacedp.tables import Domain

LEAST, MOST = 1e-9, 100.0
DIGITS = 6  # of the amount, rounded up
START = 1e-3  # the amount that shares are first chosen for: small enough for any noise
LEVEL = 0.95  # of the intervals that targets are of
FREE = 1e-6  # of elasticity: a target with less is met anyway


@frozen(kw_only=True)
class Price:
    """One target: what it is, what is reached, and what it costs.

    `price` is by how much the least amount of the budget falls for one more unit of the target, and
    `without` the least amount if this target were left out and its table worth nothing.
    """

    margin: tuple[str, ...]
    target: float
    error: float
    price: float
    without: float

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "margin": list(self.margin),
            "target": self.target,
            "margin_of_error_95": self.error,
            "price": self.price,
            "without": self.without,
        }


@frozen(eq=False, repr=False)
class LeastBudget:
    """The least budget that meets all targets, and the design that does.

    Guarantees
    ----------
    1. Every target is met by the law of the noise, rounding of published digits included.
    2. No split of a smaller budget than `bound` over these levels and interactions has noise of
       the variances that the targets allow.
    """

    design: Design

    @property
    def budget(self) -> Budget:
        """The budget itself, its amount rounded up to six digits."""
        return self.design.problem.budget

    def __getattr__(self, name: str) -> Any:
        if name in ("amount", "epsilon", "delta", "rho", "mu"):
            return getattr(self.budget, name)
        raise AttributeError(name)

    @property
    def shares(self) -> FloatArray:
        """The parts of the squared budget (of ε, where it is pure) of all that is measured."""
        return np.asarray(self._marginals.strategy.shares, np.float64) / float(
            np.sum(self._marginals.strategy.shares)
        )

    @property
    def measured(self) -> dict[str, float]:
        """The shares by what they measure: contrasts of these levels, or their tables."""
        strategy, out = self._marginals.strategy, dict[str, float]()
        inter = strategy.interactions
        at = [(level, i.steps) for i, level, _ in self._marginals.measurement.errors.slots]
        if strategy.tables is not None:
            at = [(table.level, table.steps) for table in strategy.tables]
        for (level, steps), share in zip(at, self.shares.tolist(), strict=True):
            name = block_name(inter.margin(level, steps))
            out[name] = out.get(name, 0.0) + share
        return out

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "budget": self.budget.as_dict(),
            "bound": self.bound,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "shares": self.measured,
            "prices": [price.as_dict() for price in self.prices],
        }

    @property
    def hardest(self) -> Price:
        """The target without which the least budget would be smallest."""
        return min(self.prices, key=lambda price: price.without)

    @property
    def gap(self) -> float:
        """By what share the budget may exceed the least possible; infinite where none is known."""
        return self.budget.amount / self.bound - 1.0 if self.bound > 0 else math.inf

    @cached_property
    def bound(self) -> float:
        """An amount that no split of the budget meets the targets below; 0 where none is known."""
        squared = self._marginals.gap()
        return 0.0 if math.isinf(squared) else _stronger(self.budget, 1 / (1 + squared)).amount

    @cached_property
    def prices(self) -> tuple[Price, ...]:
        """What every target costs, in the order of the workload."""
        mechanism, budget = self._marginals, self.budget
        strategy = mechanism.strategy
        workload, allowed = strategy.workload, strategy.allowed or ()
        elasticity = mechanism.prices()
        # d log(amount)/d log(squared budget)
        by_amount = math.log(_stronger(budget, 1.01).amount / budget.amount) / math.log(1.01)
        out = []
        for t, target in enumerate(workload.targets or ()):
            if target is None:
                continue
            names, variance = workload.margins[t].names, float(allowed[t] or 1.0)
            # Of the variance that a target allows, rounding takes a constant part.
            ratio = 2 * mechanism.normal_variance(target) / variance if mechanism.rounding else 2.0
            free = elasticity[t] < FREE
            left = 1.0 if free else mechanism.without_target(t)
            without = budget.amount if free else 0.0
            out.append(
                Price(
                    margin=names,
                    target=target,
                    error=self.design.margin_accuracy(*names).largest_margin_of_error(LEVEL),
                    price=float(ratio * elasticity[t] * by_amount * budget.amount / target),
                    without=_stronger(budget, left).amount if left and not free else without,
                )
            )
        return tuple(out)

    @property
    def _marginals(self) -> Marginals:
        mechanism = self.design.mechanism
        if not isinstance(mechanism, Marginals) or mechanism.strategy.allowed is None:
            raise ReleaseError(
                "Shares, bounds and prices are for Margins(domain, [...], targets=)."
            )
        return mechanism

    def __repr__(self) -> str:
        return f"LeastBudget({self.budget!r})"


def least_budget(
    query: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    kind: type[Budget] | Budget = ZCDP,
    *,
    error: float | None = None,
    neighbours: Neighbours | None = None,
    mechanism: str | Options | None = None,
    decimals: int | None = None,
    capped: bool = False,
    inequalities: Inequalities | None = None,
) -> LeastBudget:
    """The least budget with which every target is met; no data needed.

    Parameters
    ----------
    query, held, neighbours, mechanism, decimals, capped, inequalities
        As for `design`; the query with targets, `Margins(domain, [...], targets=[...])`.
    kind
        `ZCDP`, `GaussianDP` or `PureDP`; for (ε, δ) a budget with the δ, `ApproxDP(1.0, 1e-6)`.
    error
        For a query without targets: what the 95 % margin of error of every answer shall be at most.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("county", range(20)), sdp.Axis("sex", ["F", "M"])])
    >>> wanted = sdp.Margins(domain, ["county", ["county", "sex"]], targets=[20, 12])
    >>> least = sdp.least_budget(wanted, sdp.hold())
    >>> least.budget
    ZCDP(rho=0.0261628)
    >>> [round(price.without, 4) for price in least.prices]
    [0.0262, 0.0092]
    """
    asked_for = as_query(query)
    workload = asked_for.workload
    targets = None if workload is None else workload.targets
    options = getattr(mechanism, "targets", None)
    template = _kind(kind)
    given: dict[str, Any] = {
        "neighbours": neighbours, "mechanism": mechanism, "decimals": decimals, "capped": capped,
        "inequalities": inequalities,
    }  # fmt: skip
    if targets is None and options is None:
        if error is None:
            raise ReleaseError(
                "A least budget needs targets: Margins(domain, [...], targets=[...]), or `error` "
                "for every answer of another query."
            )
        return LeastBudget(
            budget_reaching(query, held, template, error, lambda d: d.accuracy(), **given)
        )
    if error is not None:
        raise ReleaseError("The query has targets; leave out `error`.")
    first = design(query, held, template.with_amount(START), **given)
    if template.pure:  # the shape of the noise, which targets are met by, depends on its scale
        first = design(query, held, _near(first), **given)
    fitted = first.mechanism
    if not isinstance(fitted, Marginals):
        raise ReleaseError("Targets are for the marginals mechanism.")
    start = _near(first)

    def at(amount: float) -> Marginals:
        return with_budget(fitted, template.with_amount(amount))

    def worst(amount: float) -> float:
        try:
            return max(multiples_of(at(amount)).values())
        except BudgetError as problem:
            return _beyond(problem)

    try:
        amount = _smallest(worst, 1.0, start.amount)
    except BudgetError:
        hardest = max((m := multiples_of(fitted)), key=lambda name: m[name])
        raise BudgetError(
            f"No budget that protects anything meets all targets; the hardest is that of "
            f"`{hardest}`: ask for a larger margin of error."
        ) from None
    return LeastBudget(replace(first, mechanism=at(amount)))


def multiples_of(mechanism: Mechanism) -> dict[str, float]:
    """The largest margin of error of every table with a target, in multiples of it."""
    if not isinstance(mechanism, Marginals):
        return {}
    workload, out = mechanism.strategy.workload, {}
    for margin, target in zip(workload.margins, workload.targets or (), strict=False):
        if target is not None:
            accuracy = Design(mechanism).margin_accuracy(*margin.names)
            out[block_name(margin)] = accuracy.largest_margin_of_error(LEVEL) / target
    return out


def budget_reaching(
    query: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    like: Budget,
    error: float,
    figures: Callable[[Design], Any],
    *,
    level: float = LEVEL,
    **options: Any,
) -> Design:
    """The design of the least budget whose figures have a margin of error at most as given.

    Parameters
    ----------
    figures
        The `Accuracy` in question, of a design.
    """
    check_level(level)
    number = isinstance(error, int | float | np.number) and not isinstance(error, bool)
    if not number or not (math.isfinite(error) and error > 0):
        raise ReleaseError(f"`error` must be a positive finite number; got {error!r}.")
    known: list[Marginals] = []  # the design of a workload, which other budgets only scale

    def made_for(amount: float) -> Design:
        budget = like.with_amount(amount)
        if known:
            return Design(with_budget(known[0], budget))
        designed = design(query, held, budget, **options)
        if isinstance(designed.mechanism, Marginals):
            known.append(designed.mechanism)
        return designed

    def reached(amount: float) -> float:
        try:
            accuracy = figures(made_for(amount))
        except BudgetError as problem:
            return _beyond(problem)
        if not any(np.any(kinds.variance > 0) for kinds in accuracy.figures.kinds()):
            raise ReleaseError("The figures in question are fixed by the invariants: no error.")
        return float(accuracy.largest_margin_of_error(level))

    return made_for(_smallest(reached, float(error), 1.0))


def _kind(kind: type[Budget] | Budget) -> Budget:
    """A budget of a kind, of any amount."""
    if isinstance(kind, type) and issubclass(kind, Budget) and kind is not Budget:
        if issubclass(kind, ApproxDP):
            raise BudgetError("(ε, δ) needs its δ: write kind=ApproxDP(1.0, delta).")
        return kind(START)  # type: ignore[call-arg]
    if not isinstance(kind, Budget):
        raise BudgetError(f"`kind` must be {kinds_of_budgets()}; got {kind!r}.")
    return kind


def _beyond(problem: BudgetError) -> float:
    """The error where noise would be too wide to be drawn, or too narrow to protect."""
    scale = problem.evidence.get("scale")
    if not isinstance(scale, float):
        raise problem
    return math.inf if scale > LARGEST_SCALE else 0.0


def _near(designed: Design) -> Budget:
    """About the budget that meets the targets: variances are those that are allowed."""
    mechanism, budget = designed.mechanism, designed.problem.budget
    goal = mechanism.strategy.goal if isinstance(mechanism, Marginals) else None
    return budget.with_amount(1.0) if goal is None else _stronger(budget, goal)


def _stronger(budget: Budget, factor: float) -> Budget:
    """The budget that buys noise of one over so many times the variance."""
    if budget.pure:
        return budget.with_amount(budget.amount * math.sqrt(factor))
    wanted = budget.gaussian_mu * math.sqrt(factor)
    low = high = math.log(budget.amount)
    for step in (0.5 * 2.0**k for k in range(12)):
        if budget.with_amount(math.exp(high)).gaussian_mu >= wanted:
            break
        high += step
    for step in (0.5 * 2.0**k for k in range(12)):
        if budget.with_amount(math.exp(low)).gaussian_mu <= wanted:
            break
        low -= step
    from scipy.optimize import brentq

    def short(x: float) -> float:
        return math.log(budget.with_amount(math.exp(x)).gaussian_mu / wanted)

    if high - low < 1e-12:
        return budget
    return budget.with_amount(math.exp(float(brentq(short, low, high, xtol=1e-12))))


def _smallest(error: Callable[[float], float], target: float, start: float) -> float:
    """The smallest amount, to a few digits and rounded up, with error(amount) ≤ target."""

    def above(amount: float) -> float:
        """How far the error is beyond the target, as a logarithm."""
        return math.log(max(error(amount), 1e-300)) - math.log(target)

    low = high = min(max(start, LEAST), MOST)
    at_high = at_low = above(high)
    ratio = 1.02
    while at_high > 0:
        if high >= MOST:
            raise BudgetError(
                f"No budget that protects anything brings the margin of error down to "
                f"{target:g}; the rounding of published digits may stand in the way: try "
                "decimals=None."
            )
        low, at_low = high, at_high
        high = min(high * ratio, MOST)
        at_high, ratio = above(high), min(ratio**2, 16.0)
    while at_low <= 0:
        if low <= LEAST:
            raise ReleaseError(f"Every budget brings the margin of error down to {target:g}.")
        high, at_high = low, at_low
        low = max(low / ratio, LEAST)
        at_low, ratio = above(low), min(ratio**2, 16.0)
    # Regula falsi in logarithms where both ends are finite; halves where that is slow.
    for turn in range(100):
        width = math.log(high / low)
        if width < 10.0**-DIGITS or _up(low) >= _up(high):
            break
        part = 0.5
        if turn % 3 < 2 and math.isfinite(at_low) and at_high > -100:
            part = at_low / (at_low - at_high)
            part = min(max(part + (-1, 1)[turn % 2] * 1e-3, 1e-3), 1 - 1e-3)
        middle = low * math.exp(part * width)
        at_middle = above(middle)
        if at_middle <= 0:
            high, at_high = middle, at_middle
        else:
            low, at_low = middle, at_middle
    amount = _up(high)
    # Margins on a lattice come in steps; rounding the budget up may land on the next one.
    while error(amount) > target:
        amount = _up(amount * (1 + 2 * 10.0 ** (1 - DIGITS)))
    return amount


def _up(value: float) -> float:
    """The next number of six digits that is not smaller."""
    exponent = math.floor(math.log10(value)) - DIGITS + 1
    return float(f"{math.ceil(value / 10.0**exponent - 1e-9)}e{exponent}")
