"""Privacy parameters as the exact numbers a person reads."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from subspacedp.errors import BudgetError

__all__ = ["decimal_above", "exact_decimal", "positive", "root_above", "shown"]


def exact_decimal(value: float) -> Fraction:
    """The number a person reads: 0.192 means 192/1000, not the float nearest to it.

    >>> exact_decimal(0.192)
    Fraction(24, 125)
    """
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def positive(name: str, value: object) -> float:
    """A positive finite number as a float, or an error."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise BudgetError(
            f"`{name}` must be a positive finite number; got a {type(value).__name__}."
        )
    try:
        number = float(value)
    except OverflowError:
        raise BudgetError(f"`{name}` must be a number that float64 can hold.") from None
    if not math.isfinite(number) or number <= 0:
        raise BudgetError(f"`{name}` must be a positive finite number; got {value!r}.")
    return number


def shown(value: float) -> str:
    """All digits of a parameter: rounding one down would claim too much.

    >>> shown(1.0), shown(0.192), shown(1.0000004)
    ('1', '0.192', '1.0000004')
    """
    return repr(value).removesuffix(".0")


def decimal_above(exact: Fraction) -> float:
    """The least float that, read as a decimal, is not below a fraction.

    >>> decimal_above(Fraction(3, 10))
    0.3
    """
    guess = exact.numerator / exact.denominator
    while exact_decimal(guess) < exact:
        guess = math.nextafter(guess, math.inf)
    return guess


def root_above(square: Fraction) -> float:
    """The least float near √square that, read as a decimal, is not below it."""
    guess = math.sqrt(square.numerator / square.denominator)
    while exact_decimal(guess) ** 2 < square:
        guess = math.nextafter(guess, math.inf)
    while guess > 0 and exact_decimal(down := math.nextafter(guess, 0)) ** 2 >= square:
        guess = down
    return guess
