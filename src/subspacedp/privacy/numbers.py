"""Privacy parameters as the exact numbers a person reads."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction

import numpy as np

from subspacedp.errors import BudgetError


def exact_decimal(value: float) -> Fraction:
    """The number a person reads: 0.192 means 192/1000, not the float nearest to it.

    >>> exact_decimal(0.192)
    Fraction(24, 125)
    """
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def exact_total(values: Iterable[float]) -> Fraction:
    """The sum of numbers as they were written.

    >>> exact_total([0.1, 0.2, 0.7])
    Fraction(1, 1)
    """
    return sum((exact_decimal(value) for value in values), Fraction(0))


def decimal_part(whole: float, share: Fraction | int, power: int) -> float:
    """The largest float, as the decimal it prints, whose power is at most a share of the whole's.

    >>> decimal_part(0.3, Fraction(1, 10), 1), decimal_part(1.0, Fraction(1, 2), 2)
    (0.03, 0.7071067811865475)
    """
    most = exact_decimal(whole) ** power * share
    part = min(_nearest(most if power == 1 else _root(most)), whole)  # from here with fractions
    while (up := math.nextafter(part, math.inf)) <= whole and exact_decimal(up) ** power <= most:
        part = up
    while part > 0 and exact_decimal(part) ** power > most:
        part = math.nextafter(part, 0)
    if part <= 0:
        raise BudgetError("The share of the budget is too small for a float64.")
    return part


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


def six_digits(value: float, *, down: bool = False) -> str:
    """Six digits, the last one rounded up: what is spent is not told as less.

    >>> six_digits(0.3), six_digits(2.5828712), six_digits(2.5828799, down=True)
    ('0.3', '2.58288', '2.58287')
    """
    cut = Context(prec=6, rounding=ROUND_FLOOR if down else ROUND_CEILING)
    return f"{float(cut.create_decimal(repr(float(value)))):.6g}"


def decimal_above(exact: Fraction) -> float:
    """The least float that, read as a decimal, is not below a fraction; infinite if none is.

    >>> decimal_above(Fraction(3, 10))
    0.3
    """
    guess = _nearest(exact)
    while guess < math.inf and exact_decimal(guess) < exact:
        guess = math.nextafter(guess, math.inf)
    return guess


def root_above(square: Fraction) -> float:
    """The least float near √square that, read as a decimal, is not below it."""
    guess = _nearest(_root(square))
    while guess < math.inf and exact_decimal(guess) ** 2 < square:
        guess = math.nextafter(guess, math.inf)
    if math.isinf(guess):
        return guess
    while guess > 0 and exact_decimal(down := math.nextafter(guess, 0)) ** 2 >= square:
        guess = down
    return guess


def _nearest(exact: Fraction) -> float:
    """The float nearest to a positive fraction; infinite beyond the largest."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf


def _root(square: Fraction) -> Fraction:
    """√square to more than 100 bits, whatever its size: floats of tiny squares have few."""
    size = square.numerator.bit_length() - square.denominator.bit_length()
    shift = max(0, 128 - size // 2)
    return Fraction(math.isqrt((square.numerator << 2 * shift) // square.denominator), 1 << shift)
