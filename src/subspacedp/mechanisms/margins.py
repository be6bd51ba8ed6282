"""Which mechanism measures a workload of margins: contrasts or tables, and the better of both."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.mechanisms.margin_contrasts import MarginContrasts
from subspacedp.mechanisms.margin_mechanism import MarginMechanism
from subspacedp.mechanisms.margin_totals import MarginTotals
from subspacedp.privacy import Budget
from subspacedp.release import Design
from subspacedp.release.contrast_strategy import ContrastStrategy, squared_budget
from subspacedp.release.table_strategy import TableStrategy
from subspacedp.release.workload_strategy import contrasts_of
from subspacedp.subspace import Contrasts, plan_contrasts, plan_tables

__all__ = ["for_margins", "of_margins", "with_budget"]

LARGEST_SCALE = 2.0**40  # of noise in the units that are measured
SMALLEST_SCALE = 0.001  # of noise in units of the answers


def for_margins(design: Design, importance: npt.ArrayLike | None = None) -> MarginMechanism:
    """The mechanism for a workload: contrasts for "optimal", tables for "projected"."""
    if importance is not None:
        raise ReleaseError("A workload has its weights: Margins(domain, [...], weights=[...]).")
    contrasts = contrasts_of(design)
    if design.mechanism == "auto":
        return _least(design, contrasts)
    if design.mechanism == "projected":
        tables = plan_tables(
            contrasts, design.neighbours, pure=design.budget.pure, capped=design.capped
        )
        return _checked(
            MarginTotals(replace(design, strategy=TableStrategy(tables, design.budget)))
        )
    if design.mechanism != "optimal":
        raise ReleaseError(
            f"The {design.mechanism} mechanism is not for workloads of margins; take 'optimal' for "
            "Gaussian budgets, or 'projected'."
        )
    if design.budget.pure:
        raise BudgetError(
            "The optimal mechanism adds Gaussian noise: use ApproxDP, ZCDP or GaussianDP, or the "
            "projected mechanism for PureDP."
        )
    squared = squared_budget(design.budget, design.neighbours)
    plan = plan_contrasts(contrasts, design.neighbours, squared, capped=design.capped)
    return _checked(MarginContrasts(replace(design, strategy=ContrastStrategy(plan))))


def with_budget(mechanism: MarginMechanism, budget: Budget) -> MarginMechanism:
    """The same mechanism for another budget of the same kind: the split stays, scales change."""
    design = mechanism.design
    strategy = mechanism.strategy.for_budget(design, budget)
    made = replace(mechanism, design=replace(design, budget=budget, strategy=strategy))
    return _checked(made)


def of_margins(design: Design) -> MarginMechanism | None:
    """The mechanism of a design that is made already; None if it is not one of these."""
    if isinstance(design.strategy, ContrastStrategy):
        return MarginContrasts(design)
    return MarginTotals(design) if isinstance(design.strategy, TableStrategy) else None


def _least(design: Design, contrasts: Contrasts) -> MarginMechanism:
    """Contrasts where they are known to be best; with unequal groups the better of the two."""
    if design.budget.pure:
        names = ["projected"]
    else:
        names = ["optimal"] if contrasts.equal else ["optimal", "projected"]
    made = [for_margins(replace(design, mechanism=name)) for name in names]
    errors = [float(_weighted_error(m)) for m in made]
    best = int(np.argmin(errors))
    others = ", ".join(
        f"{n} {e:,.4g}" for n, e in zip(names, errors, strict=True) if n != names[best]
    )
    least = f", the least (the others: {others})" if others else ""
    why = f"{names[best]}: expected squared error {errors[best]:,.4g}{least}."
    return replace(made[best], why=why)


def _weighted_error(mechanism: MarginMechanism) -> float:
    contrasts = mechanism.strategy.contrasts
    per_cell = mechanism.expected_error().per_cell
    weights = np.repeat(contrasts.weights, [math.prod(m.shape) for m in contrasts.workload])
    return float(per_cell @ weights)


def _checked(mechanism: MarginMechanism) -> MarginMechanism:
    """The mechanism, unless its noise is too wide to be drawn or too narrow to protect."""
    smallest, largest = mechanism.scales()
    if largest > LARGEST_SCALE:
        raise BudgetError(
            f"The budget is too small for counts in 64 bits: the noise would have a scale of "
            f"{largest:.3g}, and at most 2**40 is possible.",
            scale=largest,
        )
    if smallest < SMALLEST_SCALE:
        raise BudgetError(
            f"The budget is so large that no noise would be left: a scale of {smallest:.3g}, "
            f"where at least {SMALLEST_SCALE:g} is asked for.",
            scale=smallest,
        )
    return mechanism
