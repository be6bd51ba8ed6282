"""Special functions of a few numbers, beside SciPy's and exact sums."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special as scipy_special

from subspacedp.special import (
    FEW,
    SMALL_BINOMIAL,
    binomial_at_least,
    binomial_at_most,
    log_normal_below,
    log_sum_exp,
    normal_quantile,
    smooth_length,
)


@pytest.mark.parametrize(
    "probability", [0.5, 0.4999, 0.25, 0.1, 0.025, 1e-3, 1e-9, 1e-16, 1e-100, 1e-300]
)
def test_quantiles(probability):
    assert normal_quantile(probability) == pytest.approx(
        scipy_special.ndtri(probability), rel=1e-13, abs=1e-15
    )


@pytest.mark.parametrize("size", [601, FEW + 2])
def test_log_of_normal_tails(size):
    x = np.linspace(-60, 12, size).reshape(-1, 1)
    assert log_normal_below(x) == pytest.approx(scipy_special.log_ndtr(x), rel=1e-12)
    assert log_normal_below(x).shape == x.shape


def exact_tail(number, trials, chance):
    p = Fraction(chance)
    terms = (
        math.comb(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(number, trials + 1)
    )
    return float(sum(terms))


@pytest.mark.parametrize("trials", [1, 2, 7, 40, SMALL_BINOMIAL, SMALL_BINOMIAL + 3])
def test_binomial_tails_are_sums_of_exact_terms(trials):
    numbers = sorted({0, 1, trials // 3, trials // 2, trials})
    chances = [0.0, 0.015625, 0.3, 0.9, 1.0]
    found = binomial_at_least(np.array(numbers, float)[:, None], trials, np.array(chances))
    wanted = [[exact_tail(m, trials, p) for p in chances] for m in numbers]
    assert found == pytest.approx(np.array(wanted), rel=1e-12)
    for p in chances[1:4]:
        for m in numbers[:2]:
            below = 1 - Fraction(exact_tail(m + 1, trials, p)) if m < trials else 1
            assert binomial_at_most(m, trials, p) == pytest.approx(
                float(below), rel=1e-9, abs=1e-15
            )


@pytest.mark.parametrize(("number", "trials", "chance"), [(100, 10_000, 0.025), (9, 4000, 0.01)])
def test_binomial_tails_of_many_trials(number, trials, chance):
    assert binomial_at_most(number, trials, chance) == pytest.approx(
        scipy_special.bdtr(number, trials, chance), rel=1e-9
    )
    assert binomial_at_most(-1, trials, chance) == 0
    assert binomial_at_most(trials, trials, chance) == 1


def test_sums_of_exponentials():
    terms = np.array([[-1000.0, -1001.0], [3.0, 800.0]])
    assert log_sum_exp(terms) == pytest.approx(scipy_special.logsumexp(terms, axis=-1), rel=1e-15)


def test_lengths_have_small_primes_alone():
    smooth = sorted(2**a * 3**b * 5**c for a in range(13) for b in range(9) for c in range(7))
    for least in (*range(1, 400), 1021, 2049, 4001):
        assert smooth_length(least) == next(n for n in smooth if n >= least)
