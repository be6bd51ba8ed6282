"""The best guess: attained where it is said to be, never passed, and wrong twins are caught."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from subspacedp.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from subspacedp.privacy.budgets import Dominating


def right(p: np.ndarray, q: np.ndarray) -> float:
    """How often the likelier of two laws is the true one: the best that any rule can do."""
    return float(np.maximum(p, q).sum() / 2)


def response(epsilon: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response with a part δ lost: given away, given away, yes, no."""
    yes = math.exp(epsilon) / (1 + math.exp(epsilon))
    kept = 1 - delta
    p = np.array([delta, 0, kept * yes, kept * (1 - yes)])
    return p, np.array([0, delta, kept * (1 - yes), kept * yes])


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """The least ρ of a pair of laws, over orders from 1 to 200 and both directions."""
    orders = 1 + np.logspace(-6, 2.3, 60)[:, None]
    both = [
        logsumexp(orders * np.log(a) + (1 - orders) * np.log(b), axis=1) / (orders[:, 0] - 1)
        for a, b in ((p, q), (q, p))
    ]
    return float((np.array(both) / orders[:, 0]).max())


@pytest.mark.parametrize("epsilon", [0.01, 0.192, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.1])
def test_randomised_response_attains_it(epsilon, delta):
    pair = Dominating(loss=(Fraction(epsilon), Fraction(delta)))
    attained = right(*response(epsilon, delta))
    assert attained <= pair.best_guess() <= attained * (1 + 1e-11)


@pytest.mark.parametrize("mu", [0.01, 0.5, 2.0])
def test_two_normal_laws_attain_it(mu):
    pair = GaussianDP(mu).dominating(1, stated=False)
    attained = norm.cdf(mu / 2)  # above half-way the farther law is the likelier one
    assert attained * (1 - 1e-14) <= pair.best_guess() <= attained * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(20))
def test_no_pair_of_laws_passes_what_rho_allows(seed):
    random = np.random.default_rng(seed)
    p, q = random.dirichlet(np.ones(6), size=2)
    q = p + random.choice([0.02, 0.3, 0.9]) * (q - p)
    rho = divergence(p, q)
    assert right(p, q) <= Dominating(rho=Fraction(rho)).best_guess()


def test_noise_that_is_known_to_be_normal_gives_the_smaller_figure():
    for budget in (ZCDP(0.1), ZCDP(2.0), ApproxDP(1.0, 1e-6)):
        known = budget.dominating(1, stated=False).best_guess()
        assert 0.5 < known < budget.dominating(1, stated=True).best_guess() <= 1


def test_wrong_twins_are_caught():
    """Half the ε, a δ that is forgotten, Pinsker's constant twice too small."""
    assert Dominating(loss=(Fraction(1, 2), Fraction(0))).best_guess() < right(*response(1.0, 0.0))
    assert Dominating(loss=(Fraction(1), Fraction(0))).best_guess() < right(*response(1.0, 0.1))
    close = np.array([0.5, 0.5]), np.array([0.52, 0.48])
    assert right(*close) > (1 + math.sqrt(divergence(*close) / 8)) / 2


def test_it_is_a_probability():
    assert PureDP(1e-9).dominating(1, stated=False).best_guess() > 0.5
    assert PureDP(700.0).dominating(1, stated=False).best_guess() == 1.0
