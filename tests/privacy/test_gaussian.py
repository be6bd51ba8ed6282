"""The Gaussian trade-off against integration, and its calibration: safe, and no safer than that."""

import math
import subprocess
import sys
from fractions import Fraction

import pytest
from flint import ctx
from tests.privacy.tradeoff import delta_against, exact

from subspacedp import ZCDP, AddRemoveOne, ApproxDP, GaussianDP, PureDP, ReplaceOne
from subspacedp.errors import BudgetError, NotPrivateError
from subspacedp.mechanisms.base import calibrated_law
from subspacedp.privacy import calibrate_gaussian, gaussian_delta, paper_constant

EPSILONS = [1e-6, 1e-3, 0.1, 0.5, 1.0, 4.0, 10.0, 100.0, 1e4]
DELTAS = [0.9, 0.1, 1e-3, 1e-6, 1e-12, 1e-30]


SIGMAS = [0.05, 0.3, 1.0, 5.0, 1000.0]
# Where δ(ε), about exp(−(ε σ − 1/2σ)²/2), is a float at all.
WITHIN_FLOATS = [(s, e) for s in SIGMAS for e in EPSILONS if e * s - 0.5 / s < 36]


@pytest.mark.parametrize(("sigma", "epsilon"), WITHIN_FLOATS)
def test_the_stated_delta_is_the_hockey_stick_divergence_rounded_up(sigma, epsilon):
    stated, mu = Fraction(gaussian_delta(sigma, epsilon)), 1 / Fraction(sigma)
    assert delta_against(stated, epsilon, mu) == -1
    assert delta_against(stated * (1 - Fraction(1, 10**15)), epsilon, mu) == 1


def test_a_delta_nearer_to_one_than_floats_tell_is_stated_as_one():
    """σ = 0.01: 1 − δ is about e^{-1250}."""
    for epsilon in (1e-6, 1.0, 100.0):
        assert 1.0 <= gaussian_delta(0.01, epsilon) <= math.nextafter(1.0, 2.0)


def test_a_delta_below_all_floats_is_rounded_up_to_the_least_of_them():
    """In a process of its own with bounded memory: such numbers have exponents of many digits."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); "
        "from subspacedp import gaussian_delta; "
        "print([gaussian_delta(s, e) for s, e in [(1e6, 1e6), (10.0, 1e3), (1.0, 100.0)]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[5e-324, 5e-324, 5e-324]", done.stderr


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_is_private_and_tight(epsilon, delta):
    """δ(σ) ≤ δ, and at σ·(1 − 10⁻¹²) it is not: decided by an independent integral."""
    sigma = Fraction(calibrate_gaussian(epsilon, delta))
    assert delta_against(delta, epsilon, 1 / sigma) == -1
    assert delta_against(delta, epsilon, 1 / (sigma * (1 - Fraction(1, 10**12)))) == 1


@pytest.mark.parametrize("relation", [ReplaceOne(), AddRemoveOne(), ReplaceOne(records=3)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_law_of_a_design_keeps_the_budget_at_its_sensitivity(relation, epsilon):
    """σ is calibrated to Δ₂ = √(an integer), rounded up after the root."""
    law = calibrated_law(ApproxDP(epsilon, 1e-7), relation)
    with ctx.workprec(400):
        mu = exact(relation.l2_squared).sqrt() / exact(Fraction(law.sigma))
        low, high = (float(side) for side in (mu * (1 - exact(1e-15)), mu * (1 + exact(1e-12))))
        assert Fraction(low) < Fraction(high)
    assert delta_against(1e-7, epsilon, Fraction(low)) == -1
    assert delta_against(1e-7, epsilon, Fraction(high)) == 1


def test_more_of_either_parameter_needs_less_noise():
    sigmas = [[calibrate_gaussian(e, d) for d in DELTAS] for e in EPSILONS]
    for row in sigmas:
        assert row == sorted(row)
    for column in zip(*sigmas, strict=True):
        assert list(column) == sorted(column, reverse=True)


# ------------------------------------------------------------------------- the paper's constant


@pytest.mark.parametrize(
    ("epsilon", "delta", "truth"),
    [(0.5, 1e-12, 1.6e-12), (1.0, 1e-12, 4.2e-12), (4.0, 1e-8, 2.9e-8), (10.0, 1e-5, 1.1e-4)],
)
def test_the_papers_constant_is_refused_where_it_is_not_private(epsilon, delta, truth):
    with pytest.raises(NotPrivateError) as caught:
        paper_constant(epsilon, delta)
    error = caught.value
    assert float(f"{error.true_delta:.1e}") == truth
    sigma = (1 + math.sqrt(1 + math.log(1 / delta))) / epsilon
    assert error.constant == pytest.approx(sigma, rel=1e-14)
    mu, stated = 1 / Fraction(error.constant), Fraction(error.true_delta)
    assert delta_against(stated, epsilon, mu) == -1
    assert delta_against(stated * (1 - Fraction(1, 10**15)), epsilon, mu) == 1
    assert "calibrate_gaussian" in str(error)
    assert f"the true δ is {error.true_delta:.3g}" in str(error)


@pytest.mark.parametrize(("epsilon", "delta", "waste"), [(1.0, 1e-6, 1.32), (0.1, 1e-5, 2.2)])
def test_where_the_papers_constant_is_private_it_wastes_error(epsilon, delta, waste):
    ratio = (paper_constant(epsilon, delta) / calibrate_gaussian(epsilon, delta)) ** 2
    digits = 2 if waste == 1.32 else 1
    assert round(ratio, digits) == waste


def test_the_papers_constant_is_refused_exactly_where_integration_says_so():
    for epsilon in (0.3, 0.5, 1.0, 2.0, 4.0, 10.0):
        for delta in (1e-2, 1e-4, 1e-6, 1e-8, 1e-12):
            sigma = (1 + math.sqrt(1 + math.log(1 / delta))) / epsilon
            private = delta_against(delta, epsilon, 1 / Fraction(sigma)) == -1
            try:
                assert paper_constant(epsilon, delta) == pytest.approx(sigma, rel=1e-14)
                accepted = True
            except NotPrivateError:
                accepted = False
            assert accepted is private


# ----------------------------------------------------------------------------- the other budgets


@pytest.mark.parametrize("rho", [1e-6, 0.1, 0.125, 0.5, 2.0, 32.0])
def test_zero_concentrated_budgets_are_kept_and_tight(rho):
    """Gaussian noise is exactly ρ-zCDP for ρ = μ²/2."""
    mu = Fraction(ZCDP(rho).gaussian_mu)
    assert mu**2 / 2 <= Fraction(repr(rho))
    assert (mu * (1 + Fraction(1, 10**15))) ** 2 / 2 > Fraction(repr(rho))


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.3, 1.0, 2.7])
def test_gaussian_budgets_are_kept_and_tight(mu):
    allowed = Fraction(GaussianDP(mu).gaussian_mu)
    assert allowed <= Fraction(repr(mu))
    assert allowed * (1 + Fraction(1, 10**15)) > Fraction(repr(mu))


@pytest.mark.parametrize("relation", [ReplaceOne(), AddRemoveOne(), AddRemoveOne(records=2)])
def test_sigma_is_rounded_up(relation):
    """σ·μ ≥ Δ₂ in exact arithmetic, and one float less would not do."""
    for budget in (ZCDP(0.3), GaussianDP(0.7), ApproxDP(1.0, 1e-6)):
        sigma, mu = calibrated_law(budget, relation).sigma, Fraction(budget.gaussian_mu)
        assert (Fraction(sigma) * mu) ** 2 >= relation.l2_squared
        less = Fraction(math.nextafter(sigma, 0.0))
        assert (less * mu) ** 2 < relation.l2_squared


@pytest.mark.parametrize("sigma", [0, -1.0, math.inf, math.nan, "1", None])
def test_a_bad_sigma_is_refused(sigma):
    with pytest.raises(BudgetError, match="`sigma` must be a positive finite number"):
        gaussian_delta(sigma, 1.0)


def test_bad_parameters_are_refused_by_all_three_functions():
    for function in (calibrate_gaussian, paper_constant):
        with pytest.raises(BudgetError, match="`epsilon`"):
            function(0.0, 1e-6)
        with pytest.raises(BudgetError, match="`delta`"):
            function(1.0, 1.0)
    with pytest.raises(BudgetError, match="`epsilon`"):
        gaussian_delta(1.0, -1.0)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e5, 1e8])
def test_extreme_budgets_are_calibrated(epsilon):
    for delta in (1e-300, 1e-6, 1 - 1e-12):
        sigma = calibrate_gaussian(epsilon, delta)
        assert delta_against(delta, epsilon, 1 / Fraction(sigma)) == -1


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-300, 1e-300), (1e300, 1e-3), (1e308, 0.5)])
def test_what_is_beyond_calibration_is_refused_in_a_sentence(epsilon, delta):
    with pytest.raises(BudgetError):
        calibrate_gaussian(epsilon, delta)


# ------------------------------------------------------------------------------------------ opendp


def test_opendp_agrees_on_zero_concentrated_privacy_and_never_claims_less_than_exact():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    for rho in (0.05, 0.5, 3.0):
        sigma = calibrated_law(ZCDP(rho), AddRemoveOne()).sigma
        theirs = dp.m.make_gaussian(*space, scale=sigma)
        assert theirs.map(1.0) == pytest.approx(rho, rel=1e-14)
        # Their conversion to (ε, δ) is a bound; the exact trade-off lies below it.
        curve = dp.c.make_zCDP_to_approxDP(theirs).map(1.0)
        for delta in (1e-3, 1e-6, 1e-9):
            assert gaussian_delta(sigma, curve.epsilon(delta)) < delta


def test_opendp_agrees_on_the_laplace_rate():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    for relation in (ReplaceOne(), AddRemoveOne(records=3)):
        scale = calibrated_law(PureDP(0.5), relation).scale
        assert dp.m.make_laplace(*space, scale=scale).map(relation.l1) == pytest.approx(0.5)
