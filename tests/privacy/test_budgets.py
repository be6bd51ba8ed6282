"""Budgets: bad input gets one clear sentence, decimals are read as they are written."""

import dataclasses
import math
import re
from fractions import Fraction

import numpy as np
import pytest

from subspacedp import ZCDP, ApproxDP, Axis, Domain, GaussianDP, PureDP, design
from subspacedp.errors import BudgetError
from subspacedp.noise import DiscreteLaplace
from subspacedp.privacy import AddRemoveOne, ReplaceOne
from subspacedp.privacy.budgets import Budget, exact_decimal

MAKERS = {
    "epsilon": [PureDP, lambda v: ApproxDP(v, 1e-6)],
    "delta": [lambda v: ApproxDP(1.0, v)],
    "rho": [ZCDP],
    "mu": [GaussianDP],
}
CASES = [(name, make) for name, makers in MAKERS.items() for make in makers]
NOT_POSITIVE = [0, 0.0, -0.0, -1, -0.5, math.inf, -math.inf, math.nan]
NOT_A_NUMBER = [True, False, "1", "one", None, 1j, [1.0], np.array([1.0])]
DOMAIN = Domain([Axis("a", ["x", "y"])])


def one_sentence(message):
    return message.endswith(".") and not re.search(r"\. [A-Z]", message) and "\n" not in message


@pytest.mark.parametrize(("name", "make"), CASES)
@pytest.mark.parametrize("value", NOT_POSITIVE)
def test_a_number_that_is_not_positive_and_finite_is_refused_and_quoted(name, make, value):
    with pytest.raises(BudgetError) as caught:
        make(value)
    message = str(caught.value)
    assert message == f"`{name}` must be a positive finite number; got {value!r}."
    assert one_sentence(message)


@pytest.mark.parametrize(("name", "make"), CASES)
@pytest.mark.parametrize("value", NOT_A_NUMBER, ids=repr)
def test_what_is_no_number_is_refused_by_its_type(name, make, value):
    with pytest.raises(BudgetError, match=f"`{name}` must be a positive finite number") as caught:
        make(value)
    assert type(value).__name__ in str(caught.value)
    assert one_sentence(str(caught.value))


@pytest.mark.parametrize("value", [1, 1.0, 1.5, 10])
def test_delta_of_one_or_more_is_refused(value):
    with pytest.raises(BudgetError) as caught:
        ApproxDP(1.0, value)
    assert str(caught.value) == f"`delta` must be below 1; got {float(value)!r}."


@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_whole_number_too_large_for_a_float_is_refused_in_the_same_words(name, make):
    with pytest.raises(BudgetError, match=f"`{name}` must be"):
        make(10**400)


def test_budget_errors_are_value_errors():
    with pytest.raises(ValueError, match="epsilon"):
        PureDP(-1)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0.192, Fraction(24, 125)),
        (0.1, Fraction(1, 10)),
        (1e-6, Fraction(1, 10**6)),
        (1e-30, Fraction(1, 10**30)),
        (2.5, Fraction(5, 2)),
        (3, Fraction(3)),
        (1e22, Fraction(10**22)),
    ],
)
def test_decimals_mean_what_they_say(written, meant):
    assert exact_decimal(written) == meant


def test_the_laplace_rate_is_the_exact_quotient_of_the_decimals():
    law = design(DOMAIN, None, PureDP(0.192), neighbours=ReplaceOne(records=3)).mechanism.law
    assert law == DiscreteLaplace(Fraction(24, 125) / 6)
    law = design(DOMAIN, None, PureDP(0.3), neighbours=AddRemoveOne()).mechanism.law
    assert law.rate == Fraction(3, 10)
    assert law.rate != Fraction(0.3)  # the float nearest to 0.3 is another number


def test_numpy_floats_and_integers_are_read_like_python_ones():
    assert PureDP(np.float64(0.192)) == PureDP(0.192)
    assert type(PureDP(np.float64(0.192)).epsilon) is float
    assert PureDP(2) == PureDP(2.0)


def test_budgets_are_frozen_values():
    assert ApproxDP(1.0, 1e-6) == ApproxDP(1, 1e-6)
    assert hash(ZCDP(0.5)) == hash(ZCDP(0.5))
    assert PureDP(1.0) != GaussianDP(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PureDP(1.0).epsilon = 2.0


@pytest.mark.parametrize(
    ("budget", "data", "words"),
    [
        (PureDP(0.192), {"name": "pure", "epsilon": 0.192}, "ε = 0.192"),
        (
            ApproxDP(1.0, 1e-6),
            {"name": "approximate", "epsilon": 1.0, "delta": 1e-6},
            "ε = 1, δ = 1e-06",
        ),
        (ZCDP(0.5), {"name": "zero-concentrated", "rho": 0.5}, "ρ = 0.5 (zero-concentrated)"),
        (GaussianDP(0.7), {"name": "gaussian", "mu": 0.7}, "μ = 0.7 (Gaussian)"),
    ],
)
def test_budgets_as_data_and_in_words(budget, data, words):
    assert budget.as_dict() == data
    assert str(budget) == words


@pytest.mark.parametrize(
    "budget",
    [PureDP(1.0000004), ApproxDP(0.1, 1.2345614e-7), ZCDP(0.1234564), GaussianDP(12345614.0)],
)
def test_words_never_promise_more_than_the_budget(budget):
    """A certificate that prints a smaller number than the one kept claims too much privacy."""
    printed = [float(x) for x in re.findall(r"= ([0-9.e+-]+)", str(budget))]
    kept = [v for v in budget.as_dict().values() if isinstance(v, float)]
    assert [p >= k for p, k in zip(printed, kept, strict=True)] == [True] * len(kept)


def test_only_the_pure_budget_buys_laplace_noise():
    assert [b.pure for b in (PureDP, ApproxDP, ZCDP, GaussianDP)] == [True, False, False, False]
    with pytest.raises(NotImplementedError):
        _ = PureDP(1.0).gaussian_mu
    with pytest.raises(BudgetError, match="`budget` must be"):
        design(DOMAIN, None, 1.0)
    with pytest.raises(TypeError, match="abstract"):
        Budget()


@pytest.mark.parametrize("value", [0, -1, 1.0, "2", True, None])
def test_bad_numbers_of_records_are_refused(value):
    for relation in (ReplaceOne, AddRemoveOne):
        with pytest.raises(BudgetError, match="`records` must be a whole number of at least 1"):
            relation(records=value)
    if value is not None:
        with pytest.raises(BudgetError, match="`per_cell`"):
            ReplaceOne(records=3, per_cell=value)


def test_more_in_a_cell_than_there_are_records_is_refused():
    with pytest.raises(BudgetError, match="`per_cell` must be at most `records`; got 3 > 2"):
        AddRemoveOne(records=2, per_cell=3)


@pytest.mark.parametrize("people", [1, 2, 5])
def test_a_group_costs_what_group_privacy_says(people):
    assert PureDP(0.3).for_group(people) == PureDP(float(f"{0.3 * people:.10g}"))
    assert ZCDP(0.1).for_group(people) == ZCDP(float(f"{0.1 * people**2:.10g}"))
    assert GaussianDP(0.7).for_group(people) == GaussianDP(float(f"{0.7 * people:.10g}"))
    larger = ApproxDP(0.5, 1e-6).for_group(people)
    delta = 1e-6 * sum(math.exp(0.5 * i) for i in range(people))
    assert larger.epsilon == 0.5 * people
    assert delta * (1 - 1e-14) <= larger.delta <= delta * (1 + 1e-14)


def test_a_delta_of_one_is_no_promise_for_a_group():
    with pytest.raises(BudgetError, match="says nothing about 40 people"):
        ApproxDP(1.0, 1e-6).for_group(40)
