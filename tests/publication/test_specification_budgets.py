"""Shares of a budget: exact where decimals are, and on the safe side where they are not."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import BudgetError
from subspacedp.privacy.numbers import exact_decimal, exact_total
from subspacedp.publication.document import Data, Privacy
from subspacedp.publication.specification import read_specification

shares = st.lists(st.integers(1, 10**6), min_size=1, max_size=6)
budgets = st.floats(1e-12, 1e6)


def parts(numbers):
    """Shares that add up to exactly 1."""
    return [Fraction(number, sum(numbers)) for number in numbers]


@given(budgets, st.floats(1e-300, 0.5), shares)
def test_epsilon_and_delta_never_add_up_to_more(epsilon, delta, numbers):
    privacy = Privacy(epsilon=epsilon, delta=delta)
    made = [privacy.budget.part(part) for part in parts(numbers)]
    assert sum(exact_decimal(b.epsilon) for b in made) <= exact_decimal(epsilon)
    assert sum(exact_decimal(b.delta) for b in made) <= exact_decimal(delta)


@given(budgets, shares)
def test_rho_and_squared_mu_never_add_up_to_more(number, numbers):
    rhos = [Privacy(rho=number).budget.part(part).rho for part in parts(numbers)]
    mus = [Privacy(mu=number).budget.part(part).mu for part in parts(numbers)]
    assert sum(map(exact_decimal, rhos)) <= exact_decimal(number)
    assert sum(exact_decimal(mu) ** 2 for mu in mus) <= exact_decimal(number) ** 2


@given(budgets, st.fractions(Fraction(1, 10**6), 1))
def test_no_larger_float_would_do(number, share):
    epsilon = Privacy(epsilon=number).budget.part(share).epsilon
    assert exact_decimal(math.nextafter(epsilon, math.inf)) > exact_decimal(number) * share
    mu = Privacy(mu=number).budget.part(share).mu
    assert exact_decimal(math.nextafter(mu, math.inf)) ** 2 > exact_decimal(number) ** 2 * share


@given(budgets)
def test_the_whole_is_what_was_written(number):
    assert Privacy(epsilon=number).budget == sdp.PureDP(number)
    assert Privacy(rho=number).budget == sdp.ZCDP(number)
    assert Privacy(mu=number).budget == sdp.GaussianDP(number)
    assert Privacy(epsilon=number, delta=0.25).budget == sdp.ApproxDP(number, 0.25)


def test_a_twin_that_multiplies_floats_spends_too_much():
    # 0.1 × 3 is 0.30000000000000004 in floats: read as a decimal, more than three tenths.
    assert exact_decimal(3 * 0.1) > Fraction(3, 10)
    assert exact_decimal(Privacy(epsilon=3).budget.part(Fraction(1, 10)).epsilon) == Fraction(3, 10)
    pairs = [(a, b) for a in range(1, 10) for b in range(1, 10)]
    over = [(a, b) for a, b in pairs if exact_decimal((a / 10) * (b / 10)) > Fraction(a * b, 100)]
    assert (1, 2) in over  # 0.1 × 0.2 is 0.020000000000000004
    for a, b in pairs:
        part = Privacy(epsilon=a / 10).budget.part(Fraction(b, 10))
        assert exact_decimal(part.epsilon) == Fraction(a * b, 100)


def test_shares_are_the_decimals_that_were_written():
    assert 0.1 + 0.2 + 0.7 != 1.0 or sum([0.1] * 10) != 1.0  # what floats make of it
    assert exact_total([0.1, 0.2, 0.7]) == 1
    assert exact_total([0.1] * 10) == 1
    assert 1 - exact_total([0.1, 0.2]) == Fraction(7, 10)
    assert exact_total([]) == 0


def tables(*shares):
    return {
        "data": {"source": "a.csv", "unit": "row"},
        "axes": {"sex": {"labels": ["F", "M"]}},
        "privacy": {"epsilon": 0.1},
        "tables": {f"t{i}": {"axes": ["sex"], "share": s} for i, s in enumerate(shares)},
    }


@pytest.mark.parametrize("shares", [[0.1, 0.2, 0.7], [0.1] * 10, [0.3, 0.3, 0.4], [0.5], [1]])
def test_shares_that_add_up_to_one_are_accepted(shares):
    specification = read_specification(tables(*shares))
    spent = sum(exact_decimal(table.budget().epsilon) for table in specification.tables)
    assert spent == Fraction(1, 10) * exact_total(shares)


def test_one_billionth_too_much_is_refused():
    with pytest.raises(ValueError, match=r"add up to 1\.000000001, more than 1"):
        read_specification(tables(0.1, 0.2, 0.700000001))


def test_a_single_table_may_leave_its_share_out():
    data = tables(0.5)
    del data["tables"]["t0"]["share"]
    assert read_specification(data).table("t0").budget() == sdp.PureDP(0.1)


@pytest.mark.parametrize("share", [0, -1, Fraction(3, 2)])
def test_shares_outside_are_refused(share):
    with pytest.raises(BudgetError, match="above 0 and at most 1"):
        Privacy(epsilon=1.0).budget.part(share)


def test_a_share_that_vanishes_is_refused():
    with pytest.raises(BudgetError, match="too small for a float64"):
        Privacy(epsilon=5e-324).budget.part(Fraction(1, 2))
    with pytest.raises(BudgetError, match="too small for a float64"):
        Privacy(mu=5e-324).budget.part(Fraction(1, 2))


def test_neighbours():
    data = Data(source="a", unit="id", records=3, per_cell=2)
    assert Privacy(rho=1).protected(data) == sdp.ReplaceOne(records=3, per_cell=2)
    assert Privacy(rho=1, exactly=True).protected(data) == sdp.ReplaceOne(
        records=3, per_cell=2, exactly=True
    )
    for name in ("add-remove", "add-remove-one"):
        assert Privacy(rho=1, neighbours=name).protected(data) == sdp.AddRemoveOne(
            records=3, per_cell=2
        )
