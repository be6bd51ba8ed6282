"""(ε, δ) of rounded Gaussian noise by summing every atom, in balls: the claims hold, twins fail."""

from fractions import Fraction
from itertools import pairwise

import pytest
from flint import arb, ctx
from tests.privacy.tradeoff import exact, hockey_stick

from subspacedp import ZCDP, AddRemoveOne, ApproxDP, GaussianDP, ReplaceOne
from subspacedp.mechanisms.base import calibrated_law
from subspacedp.noise import RoundedGaussian

BITS = 256
BUDGETS = [ApproxDP(1.0, 1e-6), ApproxDP(0.5, 1e-3), ApproxDP(4.0, 1e-8), ApproxDP(10.0, 1e-5)]


class Masses:
    """P(Z = z) of a symmetric law for |z| ≤ reach, with the chance of the rest."""

    def __init__(self, law, spreads=14):
        self.reach = int(spreads * law.scale) + 3
        cdf = [law.cdf(-z - 1)() for z in range(self.reach + 1)]  # F(−1), F(−2), …: no cancelling
        self.rest = 2 * cdf[-1]
        half = [a - b for a, b in pairwise(cdf)]
        self.of = {0: 1 - 2 * cdf[0]}
        for z, mass in enumerate(half, start=1):
            self.of[z] = self.of[-z] = mass

    def __call__(self, z):
        return self.of.get(z, arb(0))

    def at(self, z):
        """The mass, or where it lies beyond the reach what it can be at most."""
        return self.of.get(z, self.rest.union(arb(0)))


def positive(value):
    return arb(0).max(value)


def delta_1d(law, shift, epsilon):
    """δ(ε) for tables that differ by `shift` in one cell, as an enclosing ball."""
    m, e = Masses(law), exact(epsilon).exp()
    inside = sum((positive(m(z) - e * m.at(z - shift)) for z in m.of), arb(0))
    return inside + m.rest.union(arb(0))


def delta_2d(law, epsilon):
    """δ(ε) for one record moved from one cell to another: x and x + (1, −1)."""
    m, e = Masses(law, 9), exact(epsilon).exp()
    inside = arb(0)
    for z in m.of:
        first, second = m(z), e * m.at(z - 1)
        for w in m.of:
            # p > e^ε q needs z on the far side; elsewhere the term is zero for certain.
            if z - w > 0:
                continue
            inside += positive(first * m(w) - second * m.at(w + 1))
    # Skipped terms: P and Q trade places under z − w ↦ 1 − (z − w); checked in a test below.
    return inside + (2 * m.rest).union(arb(0))


def delta_difference(law, epsilon):
    """δ(ε) of the protected part of two cells with their total held, one record added.

    Π_N(release) is a function of noisy₁ − noisy₂, one to one, whose noise is e₁ − e₂.
    """
    m, e = Masses(law, 9), exact(epsilon).exp()
    reach = 2 * m.reach
    law_of = {}
    for d in range(-reach, reach + 1):
        terms = (m(z) * m(z - d) for z in range(-m.reach, m.reach + 1) if z - d in m.of)
        law_of[d] = sum(terms, arb(0))
    doubt = (2 * m.rest).union(arb(0))
    inside = arb(0)
    for d, p in law_of.items():
        inside += positive(p - e * (law_of.get(d - 1, arb(0))))
    return inside + doubt * (1 + e)


@pytest.fixture(autouse=True)
def _precision():
    with ctx.workprec(BITS):
        yield


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    ("relation", "shift"),
    [(AddRemoveOne(), 1), (AddRemoveOne(records=2), 2), (AddRemoveOne(records=2), 1)],
)
def test_one_cell_keeps_the_claimed_delta(budget, relation, shift):
    law = calibrated_law(budget, relation)
    for signed in (shift, -shift):
        assert delta_1d(law, signed, budget.epsilon) < exact(budget.delta)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_two_cells_keep_the_claimed_delta(budget):
    law = calibrated_law(budget, ReplaceOne())
    assert delta_2d(law, budget.epsilon) < exact(budget.delta)


def test_terms_left_out_in_two_dimensions_are_zero():
    law, epsilon = RoundedGaussian(1.5), 0.5
    m, e = Masses(law), exact(epsilon).exp()
    for z in range(-15, 16):
        for w in range(-15, z):
            assert m(z) * m(w) < e * m(z - 1) * m(w + 1)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_protected_part_keeps_the_claimed_delta_when_the_total_changes(budget):
    law = calibrated_law(budget, AddRemoveOne())
    assert delta_difference(law, budget.epsilon) < exact(budget.delta)


@pytest.mark.parametrize("budget", BUDGETS[:3], ids=str)
def test_twins_with_noise_five_percent_too_small_are_caught(budget):
    law = calibrated_law(budget, AddRemoveOne())
    small = RoundedGaussian(0.95 * law.sigma)
    assert delta_1d(small, -1, budget.epsilon) > exact(budget.delta)
    law = calibrated_law(budget, ReplaceOne())
    small = RoundedGaussian(0.95 * law.sigma)
    assert delta_2d(small, budget.epsilon) > exact(budget.delta)


def test_twin_calibrated_to_adding_a_person_is_caught_when_one_is_replaced():
    """√2 too little noise: the sensitivity of the wrong relation."""
    budget = BUDGETS[0]
    law = calibrated_law(budget, AddRemoveOne())
    assert delta_2d(law, budget.epsilon) > 10 * exact(budget.delta)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_a_gaussian_budget_keeps_the_whole_curve(mu):
    law = calibrated_law(GaussianDP(mu), AddRemoveOne())
    for epsilon in (0.05, 0.6, 1.1, 2.9):  # where no step of the law is met exactly
        assert delta_1d(law, -1, epsilon) < hockey_stick(epsilon, Fraction(repr(mu)), BITS)


@pytest.mark.parametrize("rho", [0.05, 0.5, 2.0])
def test_a_zero_concentrated_budget_keeps_every_renyi_divergence(rho):
    """Σ p^α q^{1−α} ≤ exp(α(α − 1)ρ), summed until nothing is added."""
    law = calibrated_law(ZCDP(rho), AddRemoveOne())
    for alpha in (Fraction(3, 2), Fraction(2), Fraction(8)):
        m, a = Masses(law, 30 + 2 * int(alpha)), exact(alpha)
        terms = [m(z) ** a * m(z - 1) ** (1 - a) for z in range(-m.reach + 1, m.reach + 1)]
        assert terms[0] < exact(1e-40)
        assert terms[-1] < exact(1e-40)
        assert sum(terms, arb(0)) < (a * (a - 1) * exact(rho)).exp()


def test_a_zero_concentrated_twin_with_five_percent_less_noise_is_caught():
    law = RoundedGaussian(0.95 * calibrated_law(ZCDP(0.05), AddRemoveOne()).sigma)
    m = Masses(law, 40)
    terms = (m(z) ** 2 / m(z - 1) for z in range(-m.reach + 1, m.reach + 1))
    assert sum(terms, arb(0)) > (2 * exact(0.05)).exp()
