"""How the marginals mechanism is asked for, and fitted to a problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.marginals.fitting import Objective
from subspacedp.mechanisms.marginals.mechanism import Marginals
from subspacedp.mechanisms.marginals.strategy import fit_marginals
from subspacedp.privacy import Budget
from subspacedp.problem import Problem
from subspacedp.queries import Cells

LARGEST_SCALE = 2.0**40  # of noise in the units that are drawn
SMALLEST_SCALE = 0.001  # of noise in units of the answers
MAX_CELL_WEIGHT = 1e6
WEIGHT_STEPS = 30  # of the search for the least weight of the cells
LIMIT_REACHED = 5e-3  # of what cells may lose: the weight is found when they lose this near it
LEAST_BEYOND = 1e-9


@dataclass(frozen=True, kw_only=True)
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
    smallest, largest = mechanism.scales()
    if largest > LARGEST_SCALE:
        raise BudgetError(
            f"The budget is too small for counts in 64 bits: the noise would have a scale of "
            f"{largest:.3g} in the units that are measured, and at most 2**40 is possible; take a "
            "larger budget, or margins of fewer cells.",
            scale=largest,
        )
    if smallest < SMALLEST_SCALE:
        raise BudgetError(
            f"The budget is so large that no noise would be left: a scale of {smallest:.3g}, "
            f"where at least {SMALLEST_SCALE:g} is asked for.",
            scale=smallest,
        )
    return mechanism
