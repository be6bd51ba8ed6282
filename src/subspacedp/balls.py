"""Certain answers about real numbers, by ball arithmetic (Arb, through python-flint).

A quantity is given as a function that computes an enclosing ball at the current precision; the
precision is doubled until the question asked has one answer for the whole ball.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flint import arb

Quantity = Callable[[], "arb"]
START_BITS = 128
MAX_BITS = 1 << 15
SMALLEST_FLOAT = Fraction(1, 2**1074)


def ball(number: Fraction | int | float) -> arb:
    """The number as a ball at the current precision; floats are taken at their exact value."""
    from flint import arb, fmpq

    exact = Fraction(number)
    return arb(fmpq(exact.numerator, exact.denominator))


def certain_compare(quantity: Quantity, bound: Fraction | int) -> int:
    """-1, 0 or 1 as the quantity is below, equal to, or above the bound.

    0 only where the ball is a point; a quantity that equals the bound without showing it at any
    precision raises ArithmeticError.
    """

    def decide() -> int | None:
        value = quantity() - ball(bound)
        if value < 0:
            return -1
        if value > 0:
            return 1
        return 0 if value.is_zero() else None

    return int(_sharpen(decide))


def certain_floor(quantity: Quantity) -> int:
    """The floor of a quantity."""

    def decide() -> int | None:
        whole = quantity().floor().unique_fmpz()
        return None if whole is None else int(whole)

    return int(_sharpen(decide))


def round_up(quantity: Quantity) -> float:
    """A float that is not below the quantity, and at most one step above it."""
    return _round(quantity, upward=True)


def round_down(quantity: Quantity) -> float:
    """A float that is not above the quantity, and at most one step below it."""
    return _round(quantity, upward=False)


def _round(quantity: Quantity, *, upward: bool) -> float:
    from flint import ctx

    bits, exact = START_BITS, Fraction(0)
    while bits <= MAX_BITS:
        with ctx.workprec(bits):
            value = quantity()
            if abs(value) < ball(SMALLEST_FLOAT):  # too small for its digits to be written out
                return math.ulp(0.0) if upward else 0.0 if value > 0 else -math.ulp(0.0)
            exact = _exact(value.upper() if upward else value.lower())
            if value.rel_accuracy_bits() >= START_BITS // 2:
                break
        bits *= 2
    try:
        nearest = exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if upward else math.nextafter(math.inf, 0)
    if upward and Fraction(nearest) < exact:
        return math.nextafter(nearest, math.inf)
    if not upward and Fraction(nearest) > exact:
        return math.nextafter(nearest, -math.inf)
    return nearest


def _exact(point: arb) -> Fraction:
    mantissa, exponent = point.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _sharpen(decide: Callable[[], int | None]) -> int:
    from flint import ctx

    bits = START_BITS
    while bits <= MAX_BITS:
        with ctx.workprec(bits):
            answer: Any = decide()
        if answer is not None:
            return int(answer)
        bits *= 2
    raise ArithmeticError("the comparison could not be decided")
