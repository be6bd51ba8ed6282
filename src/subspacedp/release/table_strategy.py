"""Margins by the totals of some tables with noise, combined interaction by interaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.balls import ball, round_up
from subspacedp.errors import ReleaseError
from subspacedp.noise import (
    DiscreteLaplace,
    KnownLaw,
    RoundedGaussian,
    TableNoise,
    uses_float_quantile,
)
from subspacedp.privacy import Budget, PureDP
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.release.contrast_strategy import ContrastStrategy, squared_budget
from subspacedp.release.optimality import Optimality
from subspacedp.release.workload_strategy import (
    ManyScales,
    WorkloadStrategy,
    contrasts_of,
    whole_total_of,
)
from subspacedp.subspace import TablePlan, plan_contrasts
from subspacedp.subspace.table_plan import UNITS
from subspacedp.tables import Margins, Sensitivity

if TYPE_CHECKING:
    from subspacedp.release.design import Design

__all__ = ["TableStrategy"]


@dataclass(frozen=True, eq=False, repr=False)
class TableStrategy(WorkloadStrategy):
    """Totals of some tables with noise, combined part by part."""

    plan: TablePlan
    budget: Budget

    key: ClassVar[str] = "tables"

    @cached_property
    def laws(self) -> tuple[KnownLaw, ...]:
        """The noise on the totals of every table, for its share of the budget.

        A replaced record moves one total of a table down and one up: Δ₁ = 2, Δ₂² = 2, and times
        the records of a person; an added one moves one: Δ₁ = Δ₂ = 1.
        """
        n = self.plan.neighbours
        shares = [Fraction(units, UNITS) for units in self.plan.units]
        if isinstance(self.budget, PureDP):
            epsilon = exact_decimal(self.budget.epsilon)
            return tuple(
                DiscreteLaplace(epsilon * share / (n.persons * n.records)) for share in shares
            )
        mu = self.budget.gaussian_mu
        squared = [Fraction(n.persons * n.records**2) / share for share in shares]
        return tuple(RoundedGaussian(_ratio_up(s, mu)) for s in squared)

    def law(self, design: Design) -> ManyScales:
        """One scale for every table."""
        del design
        widest = max(self.laws, key=lambda law: law.scale)
        least = min(law.scale for law in self.laws)
        return ManyScales(widest, widest.scale, least, len(self.laws))

    def sensitivity(self, design: Design) -> Sensitivity:
        """Of the tables that are measured."""
        n, number = design.neighbours, len(self.plan.tables)
        return Sensitivity(
            Fraction(number * n.persons * n.records), Fraction(number * n.persons * n.records**2)
        )

    def for_budget(self, design: Design, budget: Budget) -> TableStrategy:
        """Shares are parts of the budget, whatever it is."""
        del design
        return TableStrategy(self.plan, budget)

    def noise(self, design: Design) -> TableNoise:
        """The joint law of release minus truth."""
        query = design.query
        if not isinstance(query, Margins):
            raise ReleaseError("This strategy is for a workload of margins.")
        return TableNoise(
            query=query,
            plan=self.plan,
            laws=self.laws,
            digits=self.digits(design),
            capped=design.capped,
        )

    def measured(self, design: Design) -> str:
        """What gets noise, in words."""
        del design
        return (
            f"every total of {len(self.plan.tables):,} tables, independently, each table with its "
            "share of the budget; interactions are then combined by least squares"
        )

    def uses_quantile(self, design: Design) -> bool:
        """Whether draws rest on the stated bound of a float64 quantile."""
        del design
        return any(uses_float_quantile(law) for law in self.laws)

    def optimality(self, design: Design) -> Optimality | None:
        """How near the error is to that of the best Gaussian noise for the same budget."""
        if design.budget.pure:
            return None
        squared = squared_budget(design.budget, design.neighbours)
        best = plan_contrasts(self.contrasts, design.neighbours, squared, capped=design.capped)
        return ContrastStrategy(best).optimality(design)

    def as_dict(self) -> dict[str, Any]:
        """The tables and their shares of the budget, in parts of 2**40."""
        return {
            "tables": [list(t.names) for t in self.plan.tables],
            "shares": list(self.plan.units),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], design: Design) -> TableStrategy:
        """From plain data: shares must add up to the budget, tables must tell every part."""
        contrasts = contrasts_of(design)
        units = tuple(data["shares"])
        tables = tuple(contrasts.domain.margin(*names) for names in data["tables"])
        whole = all(type(u) is int and u > 0 for u in units)
        if not whole or sum(units) != UNITS or len(units) != len(tables):
            raise ReleaseError("its shares do not add up to the budget.")
        plan = TablePlan(
            contrasts=contrasts,
            neighbours=design.neighbours,
            tables=tables,
            units=units,
            whole_total=whole_total_of(design),
        )
        steps = [axis.steps for axis in contrasts.axes]
        sources = (*contrasts.workload, *contrasts.held)
        known = all(
            any(m.determines(t) for m in sources)
            and all(s in own for s, own in zip(t.steps, steps, strict=True))
            for t in tables
        )
        if not known or not np.all(plan.cells.max(axis=1) > 0):
            raise ReleaseError("its tables do not tell all that is released.")
        return cls(plan, design.budget)


def _ratio_up(squared: Fraction, mu: float) -> float:
    return round_up(lambda: ball(squared).sqrt() / ball(mu))
