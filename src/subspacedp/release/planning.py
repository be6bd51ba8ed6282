"""The inverse question: which budget gives this margin of error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.invariants import Held, LinearInvariants, StructuralZeros
from subspacedp.mechanisms.estimates import Accuracy, check_level
from subspacedp.mechanisms.marginals import Marginals, with_budget
from subspacedp.privacy import Budget, PureDP
from subspacedp.privacy.budgets import kinds_of_budgets
from subspacedp.queries import Query
from subspacedp.release.designs import LARGEST_SCALE, Design, design
from subspacedp.tables import Domain

__all__ = ["budget_for"]

LEAST, MOST = 1e-9, 100.0
DIGITS = 4


def budget_for(
    domain: Domain | Query,
    held: Held | LinearInvariants | StructuralZeros | None,
    *,
    margin_of_error: float,
    level: float = 0.95,
    weights: npt.ArrayLike | None = None,
    margin: Sequence[str] | None = None,
    simultaneous: bool = False,
    like: Budget | None = None,
    **options: Any,
) -> Budget:
    """The smallest budget whose intervals are no wider than asked for; no data needed.

    Parameters
    ----------
    domain, held
        As for `design`.
    margin_of_error
        Half the width of an interval, at most, for every figure in question.
    level, simultaneous
        Of the intervals, as for `Accuracy.margin_of_error`.
    weights, margin
        The figures in question: a weighted sum of answers, or the totals of a margin by the names
        of its levels; by default every answer.
    like
        The kind of budget: `PureDP` by default; the δ of an `ApproxDP` is kept.
    **options
        Passed on to `design`: neighbours, mechanism, decimals, basis.

    Returns
    -------
    Budget
        Its parameter is rounded up to four digits, so it buys at least what was asked for.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("county", range(20))])
    >>> sdp.budget_for(domain, sdp.hold(), margin_of_error=50, like=sdp.PureDP(1.0))
    PureDP(epsilon=0.116)
    """
    check_level(level)
    if not (
        isinstance(margin_of_error, (int, float, np.number))
        and not isinstance(margin_of_error, bool)
        and math.isfinite(margin_of_error)
        and margin_of_error > 0
    ):
        raise ReleaseError(
            f"`margin_of_error` must be a positive finite number; got {margin_of_error!r}."
        )
    template: Budget = PureDP(1.0) if like is None else like
    if not isinstance(template, Budget):
        raise BudgetError(f"`like` must be {kinds_of_budgets()}; got a {type(template).__name__}.")
    if isinstance(margin, str):
        margin = (margin,)
    if "budget" in options:
        raise BudgetError("The budget is what is looked for; its kind is given by `like`.")
    if weights is not None and margin is not None:
        raise ReleaseError("Name the figures by `weights` or by `margin`, not by both.")

    known: list[Marginals] = []  # the design of a workload, which other budgets only scale

    def made_for(budget: Budget) -> Design:
        if known:
            return Design(with_budget(known[0], budget))
        designed = design(domain, held, budget, **options)
        if isinstance(designed.mechanism, Marginals):
            known.append(designed.mechanism)
        return designed

    def error(value: float) -> float:
        try:
            design_at = made_for(template.with_amount(value))
        except BudgetError as problem:
            scale = problem.evidence.get("scale")
            if not isinstance(scale, float):
                raise
            return math.inf if scale > LARGEST_SCALE else 0.0
        accuracy: Accuracy = (
            design_at.accuracy(weights) if margin is None else design_at.margin_accuracy(*margin)
        )
        if not any(np.any(kinds.variance > 0) for kinds in accuracy.figures.kinds()):
            raise ReleaseError("The figures in question are fixed by the invariants: no error.")
        return accuracy.largest_margin_of_error(level, simultaneous=simultaneous)

    return template.with_amount(_smallest(error, float(margin_of_error)))


def _smallest(error: Callable[[float], float], target: float) -> float:
    """The smallest parameter, to a few digits and rounded up, with error(parameter) ≤ target."""
    low, high = 0.0, 1.0
    if error(high) <= target:
        while high > LEAST and error(high / 4) <= target:
            high /= 4
        low = high / 4
        if high <= LEAST:
            raise ReleaseError(f"Every budget brings the margin of error down to {target:g}.")
    else:
        while error(high) > target:
            low, high = high, high * 4
            if high > MOST:
                raise BudgetError(
                    f"No budget that protects anything brings the margin of error down to "
                    f"{target:g}; the rounding of published digits may stand in the way: try "
                    "decimals=None."
                )
    while _up(low) < _up(high) and high / low > 1 + 10.0**-DIGITS:
        middle = math.sqrt(low * high)
        if error(middle) <= target:
            high = middle
        else:
            low = middle
    parameter = _up(high)
    # Margins on a lattice come in steps; rounding the budget up may land on the next one.
    while error(parameter) > target:
        parameter = _up(parameter * (1 + 2 * 10.0**-DIGITS))
    return parameter


def _up(value: float) -> float:
    """The next number of four digits that is not smaller."""
    exponent = math.floor(math.log10(value)) - DIGITS + 1
    return float(f"{math.ceil(value / 10.0**exponent - 1e-9)}e{exponent}")
