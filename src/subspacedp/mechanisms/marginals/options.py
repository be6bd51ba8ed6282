"""How the marginals mechanism is asked for, and fitted to a design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from subspacedp.errors import BudgetError
from subspacedp.mechanisms.marginals.fitting import Objective
from subspacedp.mechanisms.marginals.mechanism import Marginals
from subspacedp.mechanisms.marginals.strategy import fit_marginals
from subspacedp.privacy import Budget
from subspacedp.release import Design

__all__ = ["MarginalsOptions", "with_budget"]

LARGEST_SCALE = 2.0**40  # of noise in the units that are drawn
SMALLEST_SCALE = 0.001  # of noise in units of the answers


@dataclass(frozen=True, kw_only=True)
class MarginalsOptions:
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
    measured
        "contrasts" of interactions (Gaussian budgets, the default for them) or whole "tables".
    """

    margins: Sequence[Sequence[str]] | None = None
    weights: Sequence[float] | None = None
    objective: Objective | None = None
    measured: str | None = None

    def fit(self, design: Design) -> Marginals:
        """The best shares of the budget; no data are touched."""
        strategy = fit_marginals(
            design,
            margins=self.margins,
            weights=self.weights,
            objective=self.objective,
            measured=self.measured,
        )
        return _checked(Marginals(replace(design, strategy=strategy)))


def with_budget(mechanism: Marginals, budget: Budget) -> Marginals:
    """The same mechanism for another budget of the same kind: the split stays, scales change."""
    design = mechanism.design
    strategy = mechanism.strategy.for_budget(design, budget)
    made = replace(mechanism, design=replace(design, budget=budget, strategy=strategy))
    return _checked(made)


def _checked(mechanism: Marginals) -> Marginals:
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
