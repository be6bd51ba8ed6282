"""Privacy parameters at the ends of float64: an answer on the safe side, or one sentence."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import BudgetError
from subspacedp.privacy import Spend, compose
from subspacedp.privacy.numbers import (
    decimal_above,
    decimal_part,
    exact_decimal,
    root_above,
    six_digits,
)

LARGEST, LEAST = 1.7976931348623157e308, 5e-324
SIZES = [LARGEST, 1e200, 1.0, 1e-155, 1e-200, LEAST]


@pytest.mark.parametrize("size", SIZES)
def test_a_root_is_the_least_float_above(size):
    """Squares of tiny numbers are zero, or have a few bits, as floats; of large ones, infinite."""
    square = exact_decimal(size) ** 2
    assert root_above(square) == size
    more = root_above(square * (1 + Fraction(1, 10**30)))
    assert more == math.nextafter(size, math.inf)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_the_whole_is_a_part_of_itself(size, power):
    assert decimal_part(size, 1, power) == size


def test_a_small_share_of_a_large_budget():
    assert decimal_part(1e308, Fraction(1, 10**330), 1) == 1e-22


@given(st.floats(1e-300, 1e300))
def test_six_digits_are_on_the_side_they_are_said_to_be(value):
    up, down = Fraction(six_digits(value)), Fraction(six_digits(value, down=True))
    assert down <= exact_decimal(value) <= up
    assert up - down <= up / 10**5
    assert len(six_digits(value).split("e")[0].replace(".", "").strip("0")) <= 6


def test_what_is_spent_is_never_printed_as_less():
    spends = [Spend(budget=sdp.GaussianDP(m), neighbours=sdp.ReplaceOne()) for m in (0.1, 0.37)]
    total = compose(spends)
    printed = dict(part.rsplit(" = ", 1) for part in str(total).split(": ")[1].split(", "))
    for name, value in {"μ": total.mu, "ε at δ = 1e-9": total.epsilon(1e-9)}.items():
        assert exact_decimal(value) <= Fraction(printed[name])


def test_beyond_the_largest_float_nothing_is_promised():
    assert decimal_above(2 * exact_decimal(LARGEST)) == math.inf
    for budget in (sdp.PureDP(1e308), sdp.ZCDP(1e308), sdp.GaussianDP(1e308)):
        with pytest.raises(BudgetError):
            budget.for_group(3)
    with pytest.raises(BudgetError):
        sdp.ApproxDP(1e308, 0.5).for_group(2)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("budget", [sdp.PureDP(1e200), sdp.ZCDP(1e308), sdp.GaussianDP(1e200)])
def test_releases_without_any_privacy_are_composed(budget, stated):
    spend = Spend(budget=budget, neighbours=sdp.AddRemoveOne(), stated=stated)
    total = compose([spend, spend], neighbours=sdp.ReplaceOne())
    limits = (sdp.PureDP(1.0), sdp.ApproxDP(1.0, 1e-6), sdp.ZCDP(1.0), sdp.GaussianDP(1.0))
    assert total.delta(1.0) == 1.0
    assert not any(total.within(limit) for limit in limits)
    assert all(limit.left(total) == 0.0 for limit in limits)
