"""Discrete Gaussian noise: its calibration, its divergence, and what must not be claimed of it."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import jsonschema
import numpy as np
import pytest
from flint import ctx
from tests.attacks.losses import loss
from tests.mechanisms.contract import check_mechanism
from tests.mechanisms.test_projected import TOTAL, TWO, maker

import subspacedp as sdp
from subspacedp.balls import ball, certain_compare, round_down
from subspacedp.errors import BudgetError
from subspacedp.inference import Likelihood
from subspacedp.ledger.entries import spend_of
from subspacedp.mechanisms import Discrete
from subspacedp.noise import DiscreteGaussian, RoundedGaussian
from subspacedp.privacy.numbers import exact_decimal

CELLS = sdp.Domain([sdp.Axis("cell", range(3))])
RHOS = [0.03, 0.1, 0.5, 2.0, 7.3]
ORDERS = [Fraction(101, 100), Fraction(3, 2), Fraction(2), Fraction(17, 5), Fraction(10)]


def designed(rho=0.5, held=None, relation=None, **options):
    return sdp.design(
        CELLS, held, sdp.ZCDP(rho), neighbours=relation, mechanism=sdp.Discrete(), **options
    )


class TooSmall(Discrete):
    """σ² one percent too small."""

    @cached_property
    def law(self):
        return DiscreteGaussian(super().law.sigma_squared * Fraction(99, 100))


# ------------------------------------------------------------------------------------ the contract


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("family", [TOTAL, TWO], ids=str)
def test_the_contract(family, decimals):
    check_mechanism(maker(sdp.ZCDP(0.6), decimals, Discrete), family)


def test_the_contract_where_most_noise_is_zero():
    check_mechanism(maker(sdp.ZCDP(3.0), None, Discrete), TOTAL)


class StatesRoundedNoise(Discrete):
    """Draws discrete Gaussian noise and states the variance of rounded noise, 1/12 more."""

    @cached_property
    def noise(self):
        sigma = math.sqrt(super().law.sigma_squared)
        return type(super().noise)(
            law=RoundedGaussian(sigma), unit=1.0, space=self.space, rounding=self.rounding
        )


def test_the_variance_of_rounded_noise_is_not_its_own():
    with pytest.raises(AssertionError, match="covariance"):
        check_mechanism(maker(sdp.ZCDP(0.6), None, StatesRoundedNoise), TOTAL)


# ----------------------------------------------------------------------------------- the guarantee


def renyi(law, shift, order):
    """A function that computes D_α(Z ‖ Z + shift) as a ball, from the law that is sampled.

    Terms beyond 30 σ of where they are largest are left out, less than 2⁻⁵⁰⁰ of the sum.
    """
    reach = int(30 * law.scale) + math.ceil(order * abs(shift)) + 20

    def value():
        def mass(z):
            return law.cdf(-abs(z))() - law.cdf(-abs(z) - 1)()

        masses = {z: mass(z) for z in range(-reach - abs(shift), reach + abs(shift) + 1)}
        a = ball(order)
        total = sum(
            ((masses[z].log() * a + masses[z - shift].log() * (1 - a)).exp()
             for z in range(-reach, reach + 1)), ball(0),
        )  # fmt: skip
        return total.log() / (a - 1)

    return value


def exceeds(law, shift, order, limit):
    """Whether the divergence is above a limit; equal to 200 bits is not above."""
    with ctx.workprec(2048):
        return bool(renyi(law, shift, order)() > ball(limit) * (1 + ball(2) ** -200))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("sigma_squared", [Fraction(1, 9), Fraction(13, 7)], ids=str)
def test_the_divergence_is_at_most_that_of_gaussian_noise(sigma_squared, order):
    """For every shift, and equal where order times shift is whole: no smaller σ² would do."""
    law = DiscreteGaussian(sigma_squared)
    for shift in (1, 2, 3):
        limit = order * shift**2 / (2 * sigma_squared)
        assert not exceeds(law, shift, order, limit)
        if (order * shift).denominator == 1:
            assert exceeds(law, shift, order, limit * (1 - Fraction(1, 10**6)))
            less = DiscreteGaussian(sigma_squared * Fraction(99, 100))
            assert exceeds(less, shift, order, limit)


@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne(records=3, per_cell=2)])
@pytest.mark.parametrize("rho", RHOS)
def test_sigma_is_calibrated_without_rounding(rho, relation):
    law = designed(rho, relation=relation).mechanism.law
    assert law == DiscreteGaussian(Fraction(relation.l2_squared) / (2 * exact_decimal(rho)))


@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne(records=2)], ids=str)
@pytest.mark.parametrize("held", [None, sdp.hold()], ids=str)
@pytest.mark.parametrize("rho", RHOS)
def test_the_loss_over_all_neighbours_is_the_budget_and_the_twin_exceeds_it(rho, held, relation):
    made = designed(rho, held, relation).mechanism
    assert loss(made) == 1
    assert loss(TooSmall(made.problem)) == Fraction(100, 99)


# ----------------------------------------------------------------------- and what is not guaranteed


def exact_delta(law, shift, epsilon):
    """A lower bound on δ(ε) between Z and Z + shift: Σ (P(z) − e^ε Q(z))₊ over some z."""
    with ctx.workprec(256):
        grown, reach = ball(Fraction(epsilon)).exp(), int(20 * law.scale) + 8
        cdf = {z: law.cdf(z)() for z in range(-reach - shift - 1, 1)}

        def mass(z):
            return cdf[-abs(z)] - cdf[-abs(z) - 1]

        terms = [mass(z) - grown * mass(z + shift) for z in range(-reach, reach - shift)]
        return round_down(lambda: sum((t for t in terms if t > 0), ball(0)))


def test_it_is_not_composed_as_gaussian_noise():
    """The twin of the ledger would promise an ε that the law itself refutes; ours promises less."""
    made = designed(0.5, relation=sdp.AddRemoveOne()).mechanism
    spend = spend_of(made)
    assert spend.stated
    delta = sdp.gaussian_delta(1.0, 5.4)  # just below a loss of 5.5, which the law has
    honest = sdp.compose([spend]).epsilon(delta)
    as_gaussian = sdp.compose(
        [sdp.Spend(budget=made.budget, neighbours=made.neighbours)]
    ).epsilon(delta)  # fmt: skip
    assert exact_delta(made.law, 1, as_gaussian) > delta
    assert exact_delta(made.law, 1, honest) <= delta
    assert honest > as_gaussian


def test_of_the_projected_mechanism_everything_is_known():
    rounded = sdp.design(CELLS, None, sdp.ZCDP(0.5)).mechanism
    assert not spend_of(rounded).stated


@pytest.mark.parametrize("budget", [sdp.PureDP(1.0), sdp.GaussianDP(1.0), sdp.ApproxDP(1.0, 1e-6)])
def test_other_budgets_are_refused_with_what_to_take(budget):
    with pytest.raises(BudgetError, match=r"give ZCDP\(rho\), or take the projected mechanism"):
        sdp.design(CELLS, None, budget, mechanism="discrete")


def test_scales_beyond_a_table_are_refused():
    assert designed(1e-6).mechanism.law.scale == 1000
    with pytest.raises(BudgetError, match="asks for 1,005; take the projected"):
        designed(9.9e-7)


def test_auto_and_comparisons_leave_it_out_unless_asked():
    arguments = CELLS, None, sdp.ZCDP(4.0)
    assert "discrete" not in sdp.design(*arguments, mechanism="auto").why
    assert "discrete" not in str(sdp.compare(*arguments))
    assert "discrete" in str(sdp.compare(*arguments, options=[sdp.Discrete()]))


# ------------------------------------------------------------------------------------ around it


@pytest.mark.parametrize("rho", [*RHOS, 1e-3])
def test_it_has_less_variance_than_rounded_noise_of_the_same_budget(rho):
    mine = designed(rho).mechanism.law
    rounded = sdp.design(CELLS, None, sdp.ZCDP(rho)).mechanism.law
    assert mine.variance <= float(mine.sigma_squared) * (1 + 1e-15)
    assert certain_compare(lambda: ball(rounded.sigma) ** 2, mine.sigma_squared) >= 0
    assert mine.variance < rounded.variance


def test_the_likelihood_of_a_held_total_adds_up_to_one():
    domain = sdp.Domain([sdp.Axis("cell", range(2))])
    made = sdp.design(domain, sdp.hold(), sdp.ZCDP(0.8), mechanism="discrete")
    truth = sdp.Table([5, 7], domain)
    release = made.release(truth, seed=1)
    assert "discrete Gaussian" in Likelihood(release).describe()
    total = 0.0
    for twice in range(-60, 61):  # differences of the two noises, halved
        values = np.array([5 + twice / 2, 7 - twice / 2])
        total += math.exp(Likelihood(replace(release, values=values)).log_density(truth))
    assert total == pytest.approx(1.0, rel=1e-12)


def test_a_release_in_a_store_states_the_law_it_has(tmp_path):
    """A certificate that was built from another mechanism stated rounded noise."""
    made = designed(0.5, sdp.hold(), decimals=0)
    drawn = made.release_to(tmp_path / "out", np.array([4, 5, 6]), seed=1, store="npy")
    memory = made.release(sdp.Table([4, 5, 6], CELLS), seed=1)
    assert np.array_equal(drawn.values, memory.values)
    for key in ("design", "noise", "guarantee"):
        assert drawn.certificate()[key] == memory.certificate()[key]
    assert drawn.verify().ok


def test_a_certificate_that_states_another_law_is_refused():
    """The schema takes the family of every mechanism, each with its own parameters."""
    certificate = designed().release(sdp.Table([4, 5, 6], CELLS), seed=1).certificate()
    schema = json.loads(sdp.certificate_schema())
    jsonschema.validate(certificate, schema)
    for wrong in ({"family": "rounded Gaussian"}, {"family": "normal"}, {"sigma_squared": 2.0}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**certificate, "noise": {**certificate["noise"], **wrong}}, schema)
