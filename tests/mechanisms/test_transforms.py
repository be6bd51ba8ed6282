"""Characteristic and moment generating functions against sums over the whole numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.statistical import rescaled

from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, RoundedGaussian

rates = st.fractions(Fraction(1, 60), Fraction(25), max_denominator=1000).map(DiscreteLaplace)
sigmas = st.one_of(st.floats(0.09, 3.0), st.floats(0.55, 1.1), st.floats(3.0, 60.0))
squares = sigmas.map(lambda sigma: DiscreteGaussian(Fraction(sigma) ** 2))
laws = st.one_of(rates, sigmas.map(RoundedGaussian), squares)
SOME = [
    *(DiscreteLaplace(Fraction(r)) for r in ("1/50", "1/3", "1", "4", "20")),
    *(RoundedGaussian(s) for s in (0.1, 0.3, 0.59, 0.6, 0.61, 0.99, 1.0, 1.01, 2.5, 40.0)),
    *(DiscreteGaussian(Fraction(s)) for s in ("1/25", "0.35", "0.36", "0.37", "1", "1.1", "900")),
]


def masses(law):
    """The whole numbers from 0 on and their mass, as far as it matters to float64 and beyond."""
    if isinstance(law, DiscreteLaplace):
        rate = float(law.rate)
        z = np.arange(int(60 / rate) + 3)
        return z, math.tanh(rate / 2) * np.exp(-rate * z)
    if isinstance(law, DiscreteGaussian):
        z = np.arange(int(40 * law.scale) + 3)
        weights = np.exp(-(z**2) / (2 * float(law.sigma_squared)))
        return z, weights / math.fsum([*weights, *weights[1:]])
    root = law.sigma * math.sqrt(2)
    z = np.arange(int(40 * law.sigma) + 3)
    above = np.array([math.erfc((k - 0.5) / root) / 2 for k in range(1, len(z) + 1)])
    return z, np.concatenate([[math.erf(0.5 / root)], above[:-1] - above[1:]])


def characteristic(law, t):
    return law.characteristic(t)


def envelope(law, t):
    return law.envelope(t)


def log_moment(law, s):
    return law.log_moment(s)


def summed_characteristic(law, t):
    z, p = masses(law)
    return p[0] + 2 * np.cos(np.multiply.outer(t, z[1:])) @ p[1:]


def summed_log_moment(law, s):
    """Log of 1 + Σ P(z)·(exp(sz) − 1), which loses nothing where s is small."""
    z, p = masses(law)
    grown = 2 * np.sinh(np.multiply.outer(s, z[1:]) / 2) ** 2
    return np.log1p(2 * grown @ p[1:])


@given(law=laws, t=st.lists(st.floats(-60.0, 60.0), min_size=1, max_size=20))
def test_characteristic_is_the_sum_over_whole_numbers(law, t):
    t = np.array(t)
    assert np.allclose(law.characteristic(t), summed_characteristic(law, t), rtol=0, atol=1e-13)


@given(law=laws)
def test_characteristic_is_one_on_the_lattice_and_never_negative(law):
    t = np.linspace(0, np.pi, 300)
    found = law.characteristic(t)
    assert np.all(found >= 0)
    assert np.all(found <= 1 + 1e-15)
    turns = law.characteristic(2 * np.pi * np.arange(4.0))
    assert np.allclose(turns, 1.0, rtol=0, atol=1e-12)


@given(law=laws, t=st.floats(0.0, math.pi))
def test_envelope_bounds_all_that_follows(law, t):
    after = np.linspace(t, math.pi, 200)
    bound = law.envelope(np.array([t]))[0]
    assert bound <= 1.0
    assert np.abs(summed_characteristic(law, after)).max() <= bound * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("law", SOME, ids=repr)
def test_envelope_is_of_use(law):
    """It comes down with the characteristic function: at most four times as large halfway."""
    t = np.array([math.pi / 2])
    assert law.envelope(t)[0] <= min(1.0, 4 * law.characteristic(t)[0] + 1e-300)


@given(law=laws, share=st.floats(1e-9, 0.97))
def test_log_moment_is_the_sum_over_whole_numbers(law, share):
    if isinstance(law, DiscreteLaplace):
        # The share of mass beyond the sum has to vanish in the tilted law as well.
        s = np.array([share * min(1.0, 0.5 + 0.1 * float(law.rate)) * 0.5 * float(law.rate)])
    else:
        s = np.array([share * 5 / max(law.scale, 0.3)])
    truth = summed_log_moment(law, s)
    assert np.allclose(law.log_moment(s), truth, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("law", SOME, ids=repr)
@pytest.mark.parametrize("s", [0.0, 1e-12, 1e-9, 1e-8, 3e-8, 1e-6, 1e-4, 1e-3])
def test_log_moment_loses_nothing_at_small_slopes(law, s):
    """A total over 10⁸ cells multiplies an error here by 10⁸, inside an exponent."""
    truth = float(summed_log_moment(law, np.array([s]))[0])
    found = float(law.log_moment(np.array([s]))[0])
    assert abs(found - truth) <= 1e-15 + 1e-9 * truth


def test_log_moment_is_infinite_where_there_is_none():
    law = DiscreteLaplace(Fraction(1, 2))
    found = law.log_moment(np.array([0.0, 0.4999, 0.5001, 3.0, 800.0]))
    assert found[0] == 0.0
    assert np.isfinite(found[1])
    assert np.all(np.isposinf(found[2:]))


@pytest.mark.parametrize("law", SOME, ids=repr)
def test_second_derivatives_are_the_variance(law):
    """−φ″(0) = (log E exp)″(0) = Var: the two functions and the law agree with each other."""
    h = 1e-3 / max(law.scale, 1.0)
    expected = law.variance
    curvature = 2 * (1 - float(law.characteristic(np.array([h]))[0])) / h**2
    assert curvature == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert 2 * float(law.log_moment(np.array([h]))[0]) / h**2 == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("law", SOME, ids=repr)
def test_a_scale_five_percent_off_is_another_function(law):
    """The twin: what the comparisons above accept, they would not accept of a near-wrong law."""
    t = np.linspace(0.01, np.pi, 400)
    wrong = rescaled(law, 1.05).characteristic(t)
    # Of noise that is nearly always zero 1 − φ is tiny, and the twin's has to differ by a share.
    off = np.abs(wrong - summed_characteristic(law, t))
    assert np.any(off > 1e-13 + 0.02 * np.abs(1 - summed_characteristic(law, t)))


@pytest.mark.parametrize("sigma", [1e3, 1e6, 1e9, 1e12])
def test_large_scales_have_the_normal_limit(sigma):
    """To the last digits: a slip of 2⁻⁵³ in t would be one of σ·2⁻⁵³ standard deviations."""
    x = np.linspace(0.0, 8.0, 50)
    close = {"rtol": 10 / sigma**2 + 1e-11, "atol": 1e-16}
    law = RoundedGaussian(sigma)
    assert np.allclose(law.characteristic(x / sigma), np.exp(-(x**2) / 2), **close)
    assert np.allclose(law.log_moment(x / sigma), x**2 / 2, **close)
    laplace = DiscreteLaplace(Fraction(1) / Fraction(sigma))
    assert np.allclose(laplace.characteristic(x / sigma), 1 / (1 + x**2), **close)
    part = x[x < 0.99]
    assert np.allclose(laplace.log_moment(part / sigma), -np.log1p(-(part**2)), rtol=1e-4)
