"""Budgets of tables: shares of one budget, as exact decimals that never add up to more than it.

A share s of a budget is s·ε and s·δ, s·ρ, or √s·μ: these add up (μ in squares) under composition.
A budget is a float that is read as the decimal it prints, so a share is rounded down to the
largest such decimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from subspacedp.errors import BudgetError
from subspacedp.privacy import (
    ZCDP,
    AddRemoveOne,
    ApproxDP,
    Budget,
    GaussianDP,
    Neighbours,
    PureDP,
    ReplaceOne,
)
from subspacedp.privacy.numbers import exact_decimal

if TYPE_CHECKING:
    from subspacedp.publication.document import Data, Privacy

__all__ = ["budget_of", "neighbours_of", "rest_of", "total_of"]


def budget_of(privacy: Privacy, share: Fraction | int = 1) -> Budget:
    """The part of a budget that a share buys.

    Guarantees
    ----------
    1. For shares that add up to at most 1, the ε, δ and ρ of the parts, and the squares of their μ,
       add up to at most those of the whole, as decimals are read and without rounding.
    2. A share of 1 is the budget as written.

    Examples
    --------
    >>> from subspacedp.publication.document import Privacy
    >>> budget_of(Privacy(epsilon=0.3), Fraction(1, 10))
    PureDP(epsilon=0.03)
    >>> budget_of(Privacy(mu=1.0), Fraction(1, 2))
    GaussianDP(mu=0.7071067811865475)
    """
    if not 0 < share <= 1:
        raise BudgetError("A share of a budget must be above 0 and at most 1.")
    if privacy.epsilon is not None and privacy.delta is not None:
        return ApproxDP(_part(privacy.epsilon, share), _part(privacy.delta, share))
    if privacy.epsilon is not None:
        return PureDP(_part(privacy.epsilon, share))
    if privacy.rho is not None:
        return ZCDP(_part(privacy.rho, share))
    if privacy.mu is None:
        raise BudgetError("A budget needs `epsilon`, `epsilon` and `delta`, `rho`, or `mu`.")
    return GaussianDP(_root_part(privacy.mu, share))


def neighbours_of(privacy: Privacy, data: Data) -> Neighbours:
    """The change of the data that is protected."""
    if privacy.neighbours == "replace-one":
        return ReplaceOne(records=data.records, per_cell=data.per_cell, exactly=privacy.exactly)
    return AddRemoveOne(records=data.records, per_cell=data.per_cell)


def total_of(shares: Iterable[float]) -> Fraction:
    """The sum of shares as they were written.

    >>> total_of([0.1, 0.2, 0.7])
    Fraction(1, 1)
    """
    return sum((exact_decimal(share) for share in shares), Fraction(0))


def rest_of(shares: Iterable[float]) -> Fraction:
    """What shares leave of 1."""
    return 1 - total_of(shares)


def _part(whole: float, share: Fraction | int) -> float:
    exact = exact_decimal(whole) * share
    return _largest(float(exact), lambda number: exact_decimal(number) <= exact)


def _root_part(whole: float, share: Fraction | int) -> float:
    square = exact_decimal(whole) ** 2 * share
    guess = whole * math.sqrt(share)
    return _largest(guess, lambda number: exact_decimal(number) ** 2 <= square)


def _largest(guess: float, fits: Callable[[float], bool]) -> float:
    """The largest float near a guess whose decimal fits, decided with fractions."""
    while fits(up := math.nextafter(guess, math.inf)):
        guess = up
    while guess > 0 and not fits(guess):
        guess = math.nextafter(guess, 0)
    if guess <= 0:
        raise BudgetError("The share of the budget is too small for a float64.")
    return guess
