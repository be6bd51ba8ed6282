"""Tails of weighted sums of k-norm noise: never too small, and close where they say so."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.mechanisms.test_knorm_law import HEXAGON, NORM_BALLS, masses
from tests.spanning import spanning

from subspacedp.mechanisms.error_laws.sums import Least, OnlyVariance, WeightedSum
from subspacedp.mechanisms.knorm.fitting import Ellipsoid, hull_of
from subspacedp.mechanisms.knorm.groups import Deviations, Exchanges
from subspacedp.mechanisms.knorm.images import SkewCross
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.mechanisms.knorm.mechanism import independent_parts, weighted_sum
from subspacedp.mechanisms.knorm.norm_balls import Box, CrossPolytope
from subspacedp.mechanisms.knorm.tails import Dominated, Radial, Unimodal

RATES = [Fraction(1, 2), Fraction(2)]
ALPHAS = [0.5, 0.05, 0.001]
FINE = 2**24
SOLID = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, -1, 0]]
SMOOTH = {
    "skew": SkewCross(((2 * FINE, FINE), (-FINE, 3 * FINE))),
    "hexagon": hull_of(np.array(HEXAGON, object) * FINE),
    "solid": hull_of(np.array(SOLID, object) * FINE),
    "ellipse": Ellipsoid(((2, 1), (0, 3)), 30 * FINE**2),
    "ball": Ellipsoid(((1, 0, 0), (0, 1, 0), (0, 0, 1)), FINE**2),
    "box": Box((Fraction(FINE), Fraction(2 * FINE))),
}


def law_of(norm_ball, rate, weights):
    law = KNormLaw(norm_ball, rate)
    if isinstance(norm_ball, CrossPolytope):
        return WeightedSum(parts=independent_parts(norm_ball.widths, rate, weights))
    variance = float(weights @ law.covariance @ weights)
    return weighted_sum(law, weights, variance)


def several(norm_ball, rng):
    """Single entries, sums of a few, and anything; up to constants where the norm ball is."""
    n = norm_ball.entries
    rows = [np.eye(n)[0], np.eye(n)[-1] - np.eye(n)[0], rng.normal(size=n)]
    if isinstance(norm_ball, Deviations):
        at, out = 0, []
        for size in norm_ball.groups:
            block = np.zeros((n, n))
            block[at : at + size, at : at + size] = np.eye(size) - 1 / size
            out.append(block)
            at += size
        rows = [sum(out) @ w for w in rows]
    return [w for w in rows if np.abs(w).max() > 1e-9]


@pytest.mark.parametrize(("name", "rate"), spanning(list(NORM_BALLS), RATES))
def test_tails_are_never_too_small(name, rate):
    norm_ball = NORM_BALLS[name]
    if rate < 1 and norm_ball.dimension == 3:
        rate = Fraction(1)  # fewer vectors matter
    # Beyond there is less than a part in 10⁷ of all.
    exact = masses(norm_ball, float(rate), {1: 60, 2: 50, 3: 18}[norm_ball.dimension])
    points, weights = np.array(list(exact), float), np.array(list(exact.values()))
    for w in several(norm_ball, np.random.default_rng(1)):
        law, sums = law_of(norm_ball, rate, w), np.abs(points @ w)
        for alpha in ALPHAS:
            margin = law.margin_of_error(alpha)
            outside = float(weights[sums > margin * (1 + 1e-9) + 1e-9].sum())
            assert outside <= alpha * (1 + 1e-4)
            at = margin * (1 - 1e-6)
            assert law.tail(at) >= float(weights[sums >= at].sum()) * (1 - 1e-4)


def test_the_test_catches_a_tail_that_is_too_small():
    norm_ball = NORM_BALLS["exchanges"]
    exact = masses(norm_ball, 1.0, 60)
    points, weights = np.array(list(exact), float), np.array(list(exact.values()))
    w = np.array([1.0, 0.0, 0.0])
    law = law_of(norm_ball, Fraction(5, 4), w)  # the noise of a larger budget
    caught = [float(weights[np.abs(points @ w) > law.margin_of_error(a)].sum()) > a for a in ALPHAS]
    assert any(caught)


@pytest.mark.parametrize("cells", [2, 3, 5, 40])
def test_totals_of_exchanges_are_exact(cells):
    rate = Fraction(1, 2)
    law = KNormLaw(Exchanges(cells), rate)
    # P(T = s) from the convolution of discrete Laplace laws, cell by cell.
    q, ends = math.exp(-float(rate) / 2), np.arange(-400, 401)
    one = q ** np.abs(ends) * (1 - q) / (1 + q)
    for some in {1, cells // 2, cells - 1}:
        few, many = (sum_of(one, n) for n in (some, cells - some))
        joint = few * many
        joint /= joint.sum()
        weights = np.zeros(cells)
        weights[:some] = 2.0  # a step of two
        found = weighted_sum(law, weights - weights.mean(), float(joint @ (2 * ends) ** 2))
        assert found.method == "exact"
        for alpha in ALPHAS:
            margin = found.margin_of_error(alpha)
            outside = float(joint[np.abs(2 * ends) > margin * (1 + 1e-9)].sum())
            inside = float(joint[np.abs(2 * ends) > margin * (1 - 1e-6) - 1e-6].sum())
            assert outside <= alpha < inside * (1 + 1e-6) + 1e-9


def sum_of(one, n):
    out = np.zeros_like(one)
    out[len(one) // 2] = 1.0
    for _ in range(n):
        out = np.convolve(out, one, mode="same")
    return out


def continuous(norm_ball, number, rng):
    """Continuous noise of rate one, by an independent way: uniform in the ball times a Gamma."""
    k = norm_ball.dimension
    found = []
    while sum(map(len, found)) < number:
        trial = rng.uniform(-1, 1, (number, k)) * norm_ball.reach
        found.append(trial[norm_ball.lengths(trial) <= 1])
    return np.concatenate(found)[:number] * rng.gamma(k + 1, size=(number, 1))


@pytest.mark.parametrize("name", SMOOTH)
def test_margins_on_fine_grids_are_those_of_continuous_noise(name):
    norm_ball, number = SMOOTH[name], 200_000
    rng = np.random.default_rng(7)
    x = continuous(norm_ball, number, rng)
    for w in [np.eye(norm_ball.entries)[0], rng.normal(size=norm_ball.entries)]:
        law, sums = law_of(norm_ball, Fraction(1), w), np.abs(x @ w)
        assert law.method == ("simulated" if name == "box" else "smeared")
        for alpha in (0.5, 0.1, 0.01):
            margin = law.margin_of_error(alpha)
            outside = int(np.count_nonzero(sums > margin))
            low, high = stats.binom.ppf([1e-9, 1 - 1e-9], number, alpha)
            assert outside <= high
            # And not needlessly wide: by a hundredth less it would not do, or by a tenth where
            # there is room for the error of a simulation.
            narrow = int(np.count_nonzero(sums > (0.9 if name == "box" else 0.99) * margin))
            assert narrow >= low
            assert name == "box" or outside > 0.9 * low
        # Never wider than Chebyshev's inequality.
        chebyshev = OnlyVariance(float(w @ KNormLaw(norm_ball, Fraction(1)).covariance @ w))
        assert law.margin_of_error(0.05) <= chebyshev.margin_of_error(0.05)


def test_bounds_for_log_concave_noise():
    # Laplace, normal, uniform and a mixture of scales that is not log-concave but unimodal.
    for law in (stats.laplace(), stats.norm(), stats.uniform(-1, 2), stats.logistic()):
        bound = Unimodal(float(law.var()))
        for alpha in [0.9, 0.5, *ALPHAS, 1e-9]:
            margin = bound.margin_of_error(alpha)
            assert 2 * law.sf(margin) <= alpha
            assert bound.tail(margin) == pytest.approx(alpha, rel=0.02)
        for t in np.linspace(0.01, 9, 50):
            assert bound.tail(t) >= 2 * law.sf(t) * (1 - 1e-12)
    assert Unimodal(1.0).margin_of_error(0.05) < 3.0 < OnlyVariance(1.0).margin_of_error(0.05)
    heavy = stats.t(3)  # not log-concave: the bound must fail somewhere, or it proves nothing
    bound = Unimodal(float(heavy.var()))
    assert any(bound.tail(t) < 2 * heavy.sf(t) for t in np.linspace(5, 60, 50))


def test_a_radial_law_is_that_of_points_in_a_ball():
    for k in (1, 2, 7, 30):
        law = Radial(k, 2.0)
        if k == 1:  # a Gamma(2) times a uniform variable is Laplace noise
            for t in (0.5, 2.0, 9.0):
                assert law.tail(t) == pytest.approx(math.exp(-t / 2), rel=5e-3)
        rng = np.random.default_rng(k)
        direction = rng.normal(size=(100_000, k))
        direction /= np.linalg.norm(direction, axis=1)[:, None]
        sums = np.abs(2 * direction[:, 0] * rng.gamma(k, size=100_000))
        for alpha in (0.3, 0.05, 0.01):
            outside = np.count_nonzero(sums > law.margin_of_error(alpha))
            assert stats.binom.sf(outside, 100_000, alpha) > 1e-9
            assert stats.binom.cdf(outside, 100_000, 0.95 * alpha) > 1e-9


def test_the_least_of_bounds_and_dominated_ones():
    first, second = Unimodal(1.0), OnlyVariance(1.0)
    both = Least((first, second))
    assert both.method == "conservative"
    for t in (0.5, 1.0, 3.0):
        assert both.tail(t) == min(first.tail(t), second.tail(t))
    dominated = Dominated(OnlyVariance(1.0), 2.0, 0.5)
    assert dominated.tail(2.5) == 2 * OnlyVariance(1.0).tail(2.0)
    assert dominated.margin_of_error(0.1) == OnlyVariance(1.0).margin_of_error(0.05) + 0.5
    assert dominated.method == "conservative"
