"""The inverse question: a budget that reaches a margin of error, and none that is smaller."""

import math

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import BudgetError, DomainError, ReleaseError
from subspacedp.release import budget_for, design

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", list("abcdef"), levels={"state": list("XXXYYY")}),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
HELD = sdp.hold("state")
KINDS = [sdp.PureDP(1.0), sdp.ApproxDP(1.0, 1e-6), sdp.ZCDP(1.0), sdp.GaussianDP(1.0)]
NAMES = {sdp.PureDP: "epsilon", sdp.ApproxDP: "epsilon", sdp.ZCDP: "rho", sdp.GaussianDP: "mu"}


def parameter(budget):
    return getattr(budget, NAMES[type(budget)])


def with_parameter(budget, value):
    import dataclasses

    return dataclasses.replace(budget, **{NAMES[type(budget)]: value})


def largest(budget, margin=None, weights=None, *, level=0.95, simultaneous=False, **options):
    made = design(DOMAIN, HELD, budget, **options)
    accuracy = made.accuracy(weights) if margin is None else made.margin_accuracy(*margin)
    return float(np.max(accuracy.margin_of_error(level, simultaneous=simultaneous)))


@pytest.mark.parametrize("like", KINDS)
@pytest.mark.parametrize("target", [3.7, 50, 1234.5])
def test_it_reaches_the_target_and_hardly_more(like, target):
    budget = budget_for(DOMAIN, HELD, margin_of_error=target, like=like)
    assert type(budget) is type(like)
    assert getattr(budget, "delta", 1e-6) == 1e-6
    assert largest(budget) <= target
    # Ends of intervals are multiples of 1/6; four digits of the parameter are kept.
    less = with_parameter(budget, parameter(budget) * 0.99)
    assert largest(less) > target * (1 - 1e-3) - 1 / 6
    assert largest(with_parameter(budget, parameter(budget) * 0.8)) > target
    digits = f"{parameter(budget):.17e}".partition("e")[0]
    assert abs(float(digits) * 1000 - round(float(digits) * 1000)) < 1e-6


@pytest.mark.parametrize("like", KINDS)
def test_a_smaller_target_never_takes_less(like):
    targets = [2, 3, 5, 8, 13, 21, 34]
    found = [parameter(budget_for(DOMAIN, HELD, margin_of_error=t, like=like)) for t in targets]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    "options",
    [
        {"margin": ("sex",)},
        {"margin": ("state", "sex")},
        {"weights": np.linspace(-1, 1, 12).reshape(6, 2)},
        {"simultaneous": True},
        {"level": 0.5},
        {"level": 0.999},
        {"decimals": 0},
        {"decimals": 1, "margin": ("sex",)},
        {"neighbours": sdp.AddRemoveOne(records=3)},
        {"mechanism": "extended"},
        {"mechanism": "auto"},
        {"capped": True},
    ],
    ids=lambda options: ",".join(options),
)
def test_every_figure_and_every_option(options):
    budget = budget_for(DOMAIN, HELD, margin_of_error=40, **options)
    assert largest(budget, **options) <= 40
    assert largest(with_parameter(budget, parameter(budget) * 0.9), **options) > 40 - 1


def test_more_is_asked_for_more():
    one = parameter(budget_for(DOMAIN, HELD, margin_of_error=40))
    for options in (
        {"simultaneous": True},
        {"level": 0.99},
        {"neighbours": sdp.ReplaceOne(records=2)},
    ):
        assert parameter(budget_for(DOMAIN, HELD, margin_of_error=40, **options)) > one


def test_what_is_held_needs_no_budget():
    for margin in (("state",), ()):
        with pytest.raises(ReleaseError, match="fixed by the invariants"):
            budget_for(DOMAIN, HELD, margin_of_error=5, margin=margin)
    with pytest.raises(ReleaseError, match="fixed by the invariants"):
        budget_for(DOMAIN, HELD, margin_of_error=5, weights=np.zeros((6, 2)))


def test_what_is_held_needs_no_budget_for_large_sensitivities_either():
    relation = sdp.ReplaceOne(records=10_000)
    with pytest.raises(ReleaseError, match="fixed by the invariants"):
        budget_for(DOMAIN, HELD, margin_of_error=5, margin=("state",), neighbours=relation)


def test_a_target_beyond_every_error_is_not_said_to_be_fixed():
    try:
        budget_for(DOMAIN, HELD, margin_of_error=1e11)
    except ReleaseError as error:
        said = str(error)
    else:
        said = ""
    assert "fixed" not in said


LARGE = sdp.Domain([sdp.Axis("place", range(40)), sdp.Axis("kind", range(8))])
KINDS = [sdp.PureDP(1.0), sdp.ApproxDP(1.0, 1e-6), sdp.ZCDP(1.0), sdp.GaussianDP(1.0)]


@pytest.mark.parametrize("like", KINDS)
def test_bounds_on_digits_can_stand_in_the_way(like):
    held = sdp.hold("place")
    with pytest.raises(BudgetError, match="try decimals=None"):
        budget_for(LARGE, held, margin_of_error=0.2, decimals=0, like=like)
    assert budget_for(LARGE, held, margin_of_error=0.9, like=like)


def test_digits_of_a_small_table_do_not():
    # With next to no noise no rounding has anything to decide, and the simulated law knows it.
    budget = budget_for(DOMAIN, HELD, margin_of_error=0.2, decimals=0)
    found = sdp.design(DOMAIN, HELD, budget, decimals=0).accuracy().margin_of_error()
    assert float(np.max(found)) <= 0.2


@pytest.mark.parametrize("target", [0, -1, math.nan, math.inf, True, "5", None, [5]])
def test_targets_that_are_none(target):
    with pytest.raises(ReleaseError, match="`margin_of_error` must be a positive finite number"):
        budget_for(DOMAIN, HELD, margin_of_error=target)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"level": 1.5}, ReleaseError, "`level` must be a number between 0 and 1; got 1.5"),
        ({"like": 0.5}, BudgetError, "`like` must be PureDP, ApproxDP, ZCDP or GaussianDP"),
        ({"margin": ("age",)}, DomainError, "no level `age`"),
        ({"margin": ("county", "state")}, DomainError, "county"),
        ({"weights": np.ones(3)}, ReleaseError, "must have the shape"),
        ({"weights": np.ones((6, 2)), "margin": ()}, ReleaseError, "not by both"),
        ({"mechanism": "best"}, ReleaseError, "`mechanism` must be one of"),
        ({"decimals": -1}, ReleaseError, "`decimals` must be"),
    ],
)
def test_bad_input_is_a_sentence(options, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        budget_for(DOMAIN, HELD, margin_of_error=5, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
