"""Composition: against sums over all outcomes in ball arithmetic, and against dp-accounting."""

import itertools
import logging
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.balls import ball
from subspacedp.errors import BudgetError
from subspacedp.privacy import (
    ZCDP,
    AddRemoveOne,
    ApproxDP,
    GaussianDP,
    PureDP,
    ReplaceOne,
    gaussian_delta,
)
from subspacedp.privacy.composition import Spend, compose, gaussian_profile
from subspacedp.privacy.numbers import exact_decimal

ONE = ReplaceOne()


def spend(budget, neighbours=ONE, **more):
    return Spend(budget=budget, neighbours=neighbours, **more)


def true_delta(epsilon, pure=(), mu=0.0, stated=()):
    """δ(ε) of randomised responses and a Gaussian by summing over all outcomes, as a ball.

    Independent of the code under test: no grid, no float, the losses one by one. The dominating
    pair is attained, so this is what the releases can really lose.
    """
    pairs = [*((exact_decimal(e), Fraction(0)) for e in pure), *stated]
    with ctx.workprec(200):
        total, kept = arb(0), arb(1)
        for _, d in pairs:
            kept *= 1 - ball(d)
        for signs in itertools.product((1, -1), repeat=len(pairs)):
            mass, loss = arb(1), arb(0)
            for sign, (e, _) in zip(signs, pairs, strict=True):
                mass /= 1 + (-sign * ball(e)).exp()  # e^ε/(1 + e^ε), or 1/(1 + e^ε)
                loss += sign * ball(e)
            total += mass * _gaussian(ball(Fraction(epsilon)) - loss, mu)
        return float((1 - kept + kept * total).mid())


def _gaussian(excess, mu):
    if mu == 0:
        return 1 - excess.exp() if excess < 0 else arb(0)
    m, root = ball(mu), ball(2).sqrt()
    first = ((excess / m - m / 2) / root).erfc() / 2
    return first - excess.exp() * ((excess / m + m / 2) / root).erfc() / 2


# ---------------------------------------------------------------------------------- closed forms


def test_pure_budgets_add_up_as_decimals():
    total = compose([spend(PureDP(0.1))] * 3)
    assert total.pure == 0.3
    assert total.exact_pure == Fraction(3, 10)
    assert total.mu is None
    assert total.rho == 0.015
    assert total.epsilon(1e-300) == 0.3


def test_gaussian_budgets_add_up_in_squares():
    total = compose([spend(GaussianDP(0.3)), spend(GaussianDP(0.4))])
    assert total.mu == 0.5
    assert total.rho == 0.125
    assert total.pure is None
    assert compose([spend(ZCDP(0.1))] * 10).rho == 1.0
    assert compose([spend(ZCDP(0.5)), spend(GaussianDP(1.0))]).exact_square == 2


def test_nothing_spent_is_nothing():
    total = compose([])
    assert (total.pure, total.mu, total.rho) == (0, 0, 0)
    assert total.epsilon(1e-9) == 0
    assert total.delta(1e-9) == 0
    assert total.within(ApproxDP(1.0, 1e-6)) is True


@pytest.mark.parametrize(
    "budgets",
    [
        [ApproxDP(1.0, 1e-6)],
        [GaussianDP(0.3), GaussianDP(0.4)],
        [ZCDP(0.5), GaussianDP(2.0), ApproxDP(0.1, 1e-9)],
        [GaussianDP(0.01)] * 40,
    ],
)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_gaussian_releases_compose_to_the_closed_form(budgets, delta):
    total = compose([spend(budget) for budget in budgets])
    mu = math.sqrt(sum(b.rho * 2 if isinstance(b, ZCDP) else b.gaussian_mu**2 for b in budgets))
    assert total.mu == pytest.approx(mu, rel=1e-14)
    epsilon = total.epsilon(delta)
    assert total.delta(epsilon) <= delta
    assert true_delta(epsilon * (1 - 1e-9), mu=total.mu) > delta  # the least, to 1e-9
    assert true_delta(epsilon, mu=total.mu) <= delta * (1 + 1e-12)
    assert total.delta(epsilon) == pytest.approx(gaussian_delta(1 / mu, epsilon), rel=1e-9)


def test_a_budget_is_within_itself_and_so_are_its_parts():
    for budget in (PureDP(0.7), ApproxDP(0.7, 1e-7), ZCDP(0.3), GaussianDP(0.9)):
        assert compose([spend(budget)]).within(budget) is True
        assert compose([spend(budget, stated=True)]).within(budget) is True
        assert compose([spend(budget)] * 2).within(budget) is False
    assert compose([spend(PureDP(0.1))] * 7).within(PureDP(0.7)) is True
    assert compose([spend(ApproxDP(0.1, 1e-8))] * 7).within(ApproxDP(0.7, 7e-8)) is True
    stated = [spend(ApproxDP(0.1, 1e-8), stated=True)] * 7
    assert compose(stated).within(ApproxDP(0.7, 7e-8)) is True
    assert compose([spend(ZCDP(0.1))] * 7).within(ZCDP(0.7)) is True
    assert compose([spend(GaussianDP(0.3))] * 9).within(GaussianDP(0.9)) is True


def test_an_accounting_that_cannot_count_a_release_says_so():
    gaussian, pure = spend(ZCDP(0.1)), spend(PureDP(0.1))
    stated = spend(ApproxDP(0.1, 1e-9), stated=True)
    assert compose([gaussian, pure]).within(PureDP(100.0)) is None
    assert compose([gaussian, pure]).within(GaussianDP(100.0)) is None
    assert compose([gaussian, pure]).within(ZCDP(0.105)) is True
    assert compose([gaussian, pure]).within(ZCDP(0.1049)) is False
    assert compose([stated]).within(ZCDP(100.0)) is None
    assert compose([stated, pure, gaussian]).within(ApproxDP(5.0, 1e-6)) is True


# ---------------------------------------------------------------------------------- mixed, exact

MIXED = [
    ([0.1] * 8, 0.5, []),
    ([0.1, 0.2, 0.35, 0.5], 1.0, []),
    ([1 / 3, 0.0123, 0.77, 0.31415926], 0.25, []),
    ([2.0, 0.01], 3.0, [(Fraction(1, 2), Fraction(1, 10**10))]),
    ([0.3] * 5 + [0.4] * 5, 0.0, []),
    ([0.05] * 9, 0.02, [(Fraction(1, 10), Fraction(1, 10**10))] * 2),
]


def mixed(pure, mu, stated):
    return compose(
        [
            *(spend(PureDP(e)) for e in pure),
            *([spend(GaussianDP(mu))] if mu else []),
            *(spend(ApproxDP(float(e), float(d)), stated=True) for e, d in stated),
        ]
    )


@pytest.mark.parametrize(("pure", "mu", "stated"), MIXED)
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-9])
def test_mixed_releases_are_on_the_safe_side_and_close(pure, mu, stated, delta):
    total = mixed(pure, mu, stated)
    epsilon = total.epsilon(delta)
    assert total.delta(epsilon) <= delta
    assert true_delta(epsilon, pure, mu, stated) <= delta
    assert true_delta(epsilon / 1.001, pure, mu, stated) > delta  # asked for: within 2 %
    exact = true_delta(epsilon / 2, pure, mu, stated)
    assert exact <= total.delta(epsilon / 2) <= exact * 1.001


@settings(max_examples=25)
@given(
    pure=st.lists(st.floats(0.001, 2), min_size=1, max_size=6),
    mu=st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.0]),
    share=st.floats(0.05, 1.2),
)
def test_any_mixture_is_on_the_safe_side(pure, mu, share):
    total = mixed(pure, mu, [])
    epsilon = share * (sum(pure) + mu)
    exact = true_delta(epsilon, pure, mu)
    found = total.delta(epsilon)
    assert exact <= found
    assert found <= exact * 1.02 + 1e-15


@settings(max_examples=25)
@given(
    st.lists(
        st.sampled_from(
            [
                spend(PureDP(0.1)),
                spend(PureDP(0.25)),
                spend(ZCDP(0.02)),
                spend(GaussianDP(0.5)),
                spend(ApproxDP(0.5, 1e-9)),
                spend(ApproxDP(0.2, 1e-9), stated=True),
                spend(ZCDP(0.01), stated=True),
            ]
        ),
        min_size=1,
        max_size=12,
    )
)
def test_order_does_not_matter_and_spending_more_costs_more(spends):
    total = compose(spends)
    epsilon = total.epsilon(1e-6)
    assert compose(spends[::-1]) == total
    assert compose(spends[1:]).epsilon(1e-6) <= epsilon * (1 + 1e-6)
    assert total.delta(epsilon) <= 1e-6
    assert total.within(ApproxDP(epsilon, 1e-6)) is True


def test_never_below_what_concentrated_privacy_can_lose():
    # Gaussian noise is ρ-zero-concentrated: a stated ρ can be that, and must cost at least as much.
    for others in ([], [spend(PureDP(0.3))], [spend(GaussianDP(0.4)), spend(PureDP(0.1))]):
        known = compose([*others, spend(ZCDP(0.1))])
        stated = compose([*others, spend(ZCDP(0.1), stated=True)])
        for delta in (1e-4, 1e-9):
            assert known.epsilon(delta) < stated.epsilon(delta) < 1.35 * known.epsilon(delta)


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 1.0, 8.0, 40.0])
def test_the_gaussian_profile_is_from_above_and_close(mu):
    heights = np.concatenate([[0.0], np.geomspace(1e-6, 30, 60)]) * mu
    epsilon = np.concatenate([heights, -heights[1:]])
    found = gaussian_profile(epsilon, mu)
    with ctx.workprec(400):
        exact = [_gaussian(ball(Fraction(e)), mu) for e in epsilon.tolist()]
        for e, value, truth in zip(epsilon, found, exact, strict=True):
            assert arb(float(value)) * (1 + 1e-9) >= truth, e
            # δ is about μ times the terms it is the difference of, at least, where it is small.
            assert arb(float(value)) <= truth * (1 + 1e-9 + 4e-12 * (1 + abs(e) / mu) / mu), e


def test_fifty_mixed_releases_do_not_take_long():
    rng = np.random.default_rng(5)
    spends = [
        *(spend(PureDP(float(e))) for e in rng.uniform(0.01, 0.5, 25)),
        *(spend(GaussianDP(float(m))) for m in rng.uniform(0.01, 0.5, 20)),
        *(spend(ApproxDP(0.1, 1e-9), stated=True) for _ in range(5)),
    ]
    compose(spends[:3]).epsilon(1e-6)  # imports
    began = time.process_time()
    compose(spends).epsilon(1e-6)
    assert time.process_time() - began < 5.0


# ---------------------------------------------------------------------------- another's accounting


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-9])
def test_between_the_bounds_of_dp_accounting(delta):
    distribution = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    common = pytest.importorskip("dp_accounting.pld.common")
    logging.getLogger("absl").setLevel(logging.ERROR)
    h, pure, mu = 1e-4, [0.1] * 20 + [0.25] * 10, 0.8
    above = distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=h)
    below = distribution.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=h, pessimistic_estimate=False, use_connect_dots=False
    )
    for epsilon, number in ((0.1, 20), (0.25, 10)):
        parameters = common.DifferentialPrivacyParameters(epsilon, 0)
        one = distribution.from_privacy_parameters(parameters, value_discretization_interval=h)
        above = above.compose(one.self_compose(number))
        flips = distribution.from_randomized_response(
            2 / (1 + math.exp(epsilon)),
            2,
            pessimistic_estimate=False,
            value_discretization_interval=h,
        )
        below = below.compose(flips.self_compose(number))
    found = mixed(pure, mu, []).epsilon(delta)
    low, high = below.get_epsilon_for_delta(delta), above.get_epsilon_for_delta(delta)
    assert low <= found <= 1.02 * low
    assert found <= high * (1 + 1e-6)


# -------------------------------------------------------------------------------------- neighbours


def test_adding_and_removing_counts_twice_under_replacing():
    both = AddRemoveOne()
    assert compose([spend(PureDP(0.1), both)], neighbours=ONE).pure == 0.2
    assert compose([spend(GaussianDP(0.3), both)], neighbours=ONE).mu == 0.6
    assert compose([spend(ZCDP(0.1), both)], neighbours=ONE).rho == 0.4
    assert compose([spend(ZCDP(0.1), both, stated=True)], neighbours=ONE).rho == 0.4
    stated = compose([spend(ApproxDP(1.0, 1e-6), both, stated=True)], neighbours=ONE)
    assert stated.delta(2.0) == pytest.approx((1 + math.e) * 1e-6, rel=1e-12)
    assert stated.delta(2.0) >= (1 + math.e) * 1e-6 * (1 - 1e-16)
    assert compose([spend(PureDP(0.1), both), spend(PureDP(0.1))]).pure == 0.3
    assert compose([spend(PureDP(0.1), both)]).pure == 0.1


def test_two_steps_of_an_approximate_budget_can_lose_as_much_as_is_counted():
    # Three laws, neighbours in a row at (ε, δ) each: the ends reach (2ε, (1 + e^ε)δ) itself.
    e, d = math.log(2), 0.01
    first, middle, last = (np.array(p) for p in (
        [d + 2 * (d + 2 * 0.1), 0], [d + 2 * 0.1, 0], [0.1, 0],
    ))  # fmt: skip
    for law in (first, middle, last):
        law[1] = 1 - law[0]
    for a, b in ((first, middle), (middle, last)):
        assert _hockey(a, b, e) <= d + 1e-15
    lost = _hockey(first, last, 2 * e)
    counted = compose([spend(ApproxDP(e, d), AddRemoveOne(), stated=True)], neighbours=ONE)
    assert lost == pytest.approx(counted.delta(2 * e), rel=1e-12)
    forgotten = compose([spend(ApproxDP(2 * e, 2 * d), stated=True)])  # the twin: (2ε, 2δ)
    assert lost > forgotten.delta(2 * e)


def _hockey(a, b, epsilon):
    return float(np.maximum(a - math.exp(epsilon) * b, 0).sum())


def test_relations_that_do_not_cover_are_refused():
    with pytest.raises(BudgetError, match="replacing a person says nothing about adding one"):
        compose([spend(PureDP(0.1))], neighbours=AddRemoveOne())
    with pytest.raises(BudgetError, match="does not protect against one person's records"):
        compose([spend(PureDP(0.1))], neighbours=ReplaceOne(records=3))
    with pytest.raises(BudgetError, match="can change the grand total"):
        compose([spend(PureDP(0.1))], neighbours=ReplaceOne(exactly=False))
    with pytest.raises(BudgetError, match="several changes of the data"):
        compose([spend(PureDP(0.1)), spend(PureDP(0.1), ReplaceOne(records=2))])
    many = [spend(PureDP(0.1)), spend(PureDP(0.1), ReplaceOne(records=5))]
    assert compose(many, neighbours=ONE).pure == 0.2
    capped = spend(PureDP(0.1), ReplaceOne(exactly=False), capped=True)
    assert compose([capped], neighbours=ReplaceOne(records=3)).pure == 0.1
    with pytest.raises(BudgetError, match="can change the grand total"):
        compose([spend(PureDP(0.1), capped=True)], neighbours=ReplaceOne(records=3))
    wide = ReplaceOne(records=4, per_cell=4)
    with pytest.raises(BudgetError, match="does not protect"):
        compose([spend(PureDP(0.1), ReplaceOne(records=4, per_cell=2))], neighbours=wide)


def test_parameters_out_of_range():
    total = compose([spend(PureDP(0.1))])
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(BudgetError):
            total.epsilon(wrong)
        with pytest.raises(BudgetError):
            total.delta(wrong)
    with pytest.raises(BudgetError, match="below 1"):
        total.epsilon(1.0)
    assert compose([spend(ApproxDP(0.1, 1e-3), stated=True)]).epsilon(1e-6) == math.inf


# --------------------------------------------------------------------------------------- subspaces

AGE_SEX = sdp.Domain([sdp.Axis("age", ["a", "b", "c"]), sdp.Axis("sex", ["F", "M"])])


def projector(held):
    space = sdp.null_space(AGE_SEX, held)
    return np.array([space.project(e.reshape(AGE_SEX.shape)).ravel() for e in np.eye(AGE_SEX.size)])


def test_the_parts_in_their_null_spaces_compose_over_all_neighbours():
    held, mus = [sdp.hold("age"), sdp.hold("sex")], [0.3, 0.7]
    total = compose([spend(GaussianDP(mu)) for mu in mus])
    shifts, whole = [], []
    for i, j in itertools.permutations(range(AGE_SEX.size), 2):  # held totals change for most
        change = (np.eye(AGE_SEX.size)[i] - np.eye(AGE_SEX.size)[j]) / math.sqrt(2)
        parts = [mu * projector(h) @ change for h, mu in zip(held, mus, strict=True)]
        shifts.append(math.hypot(*(np.linalg.norm(part) for part in parts)))
        whole.append(math.hypot(*(mu * np.linalg.norm(change) for mu in mus)))
    assert max(shifts) <= total.mu
    assert max(whole) == pytest.approx(total.mu)  # of the measurements, which are what is counted


def test_what_several_releases_protect_is_the_common_null_space():
    age, sex = sdp.hold("age"), sdp.hold("sex")
    both = sdp.null_space(AGE_SEX, age & sex)
    one, two, common = projector(age), projector(sex), projector(age & sex)
    assert np.allclose(common @ one, common)
    assert np.allclose(common @ two, common)
    by_age = np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    # Protected by the second release alone, and answered by the first: the account decides.
    assert sdp.null_space(AGE_SEX, sex).share_exposed(by_age) == pytest.approx(0, abs=1e-12)
    assert both.share_exposed(by_age) == pytest.approx(1)
    interaction = np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    assert both.share_exposed(interaction) == pytest.approx(0, abs=1e-12)


# ------------------------------------------------------------------------------------ broken twins


@pytest.mark.parametrize(
    "twin",
    [
        lambda pure, mu: math.hypot(*pure, mu),  # ε added in squares
        lambda pure, mu: mixed(pure[1:], mu, []).epsilon(1e-6),  # a release forgotten
        lambda pure, mu: mixed(pure, mu, []).epsilon(1e-6) * 0.995,  # rounded the wrong way
        lambda pure, mu: mixed(pure, mu, []).epsilon(1.1e-6),  # δ a tenth too large
    ],
)
def test_a_broken_twin_is_below_what_is_really_lost(twin):
    pure, mu = [0.1, 0.2, 0.35, 0.5], 1.0
    assert true_delta(mixed(pure, mu, []).epsilon(1e-6), pure, mu) <= 1e-6
    assert true_delta(twin(pure, mu), pure, mu) > 1e-6
