"""Sums of rounded Gaussian noise of large scale: tails are bounds, and close."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from subspacedp.mechanisms.error_laws import Part, Rounding
from subspacedp.mechanisms.error_laws.sums import WeightedSum, near_normal
from subspacedp.noise import DiscreteLaplace, RoundedGaussian


def part(sigma, *weights):
    return Part(RoundedGaussian(sigma), np.array(weights), np.ones(len(weights)))


@pytest.mark.parametrize("sigma", [1024.0, 5000.5])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-6])
def test_margins_hold_for_one_variable_exactly(sigma, alpha):
    law = near_normal([part(sigma, 1.0)], None)
    q = law.margin_of_error(alpha)
    beyond = math.floor(q) + 1  # |e| > q means |e| ≥ beyond, and e rounds σZ
    assert 2 * ndtr(-(beyond - 0.5) / sigma) <= alpha
    assert q <= 1.003 * sigma * float(-ndtri(alpha / 2))
    for x in (0.1 * sigma, sigma, 4 * sigma):
        assert law.tail(x) >= 2 * ndtr(-(math.ceil(x) - 0.5) / sigma)


def test_several_variables_and_roundings_against_the_exact_law():
    parts = [part(2000.0, 0.01, 0.02), part(1500.0, 0.005)]
    exact = WeightedSum(parts=parts)
    close = near_normal(parts, None)
    for alpha in (0.3, 0.05, 1e-4):
        assert 0.99 <= close.margin_of_error(alpha) / exact.margin_of_error(alpha) <= 1.01
    roundings = Rounding(4.0, 4.0)
    with_rounding = near_normal(parts, roundings)
    exact = WeightedSum(parts=parts, rounding=roundings)
    for alpha in (0.3, 0.05, 1e-4):
        ratio = with_rounding.margin_of_error(alpha) / exact.margin_of_error(alpha)
        assert 0.99 <= ratio <= 1.02
        assert with_rounding.margin_of_error(alpha) > close.margin_of_error(alpha)


def test_only_where_rounding_is_small_and_gaussian():
    assert near_normal([part(10.0, 1.0)], None) is None
    assert near_normal([part(1024.0, *np.ones(200))], None) is None
    laplace = Part(DiscreteLaplace(1 / 2000), np.ones(1), np.ones(1))
    assert near_normal([part(5000.0, 1.0), laplace], None) is None
    assert near_normal([], None) is None
