"""The statistical tools keep the error rates they state."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from subspacedp.noise import DiscreteLaplace, RoundedGaussian
from tests import statistical
from tests.statistical import (
    ALPHA,
    Bins,
    critical,
    draws_to_tell,
    fits,
    kurtosis,
    mean_p,
    p_value,
    proportion_bounds,
    replicates_for_variance,
    rescaled,
    sample_size,
)

LAWS = [DiscreteLaplace(Fraction(1, 2)), RoundedGaussian(4.0)]


def compositions(n, bins):
    for bars in itertools.combinations(range(n + bins - 1), bins - 1):
        ends = (-1, *bars, n + bins - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize(
    ("n", "masses"),
    [
        (60, (Fraction(1, 2), Fraction(1, 2))),
        (60, (Fraction(99, 100), Fraction(1, 100))),
        (40, (Fraction(1, 3), Fraction(1, 6), Fraction(1, 2))),
        (24, (Fraction(1, 1000), Fraction(1, 4), Fraction(1, 4), Fraction(499, 1000))),
    ],
)
def test_p_values_are_valid_for_every_level_by_exact_enumeration(n, masses):
    """P(p ≤ a) ≤ a for every a, summed exactly over all outcomes of the multinomial."""
    outcomes = []
    for counts in compositions(n, len(masses)):
        ways = math.factorial(n) // math.prod(map(math.factorial, counts))
        chance = ways * math.prod(m**c for m, c in zip(masses, counts, strict=True))
        outcomes.append((p_value(counts, [float(m) for m in masses]), chance))
    total = Fraction(0)
    for p, chance in sorted(outcomes):
        total += chance
        assert total <= Fraction(p) * Fraction(1 + 1e-12)  # p itself is a rounded float
    assert total == 1
    assert min(p for p, _ in outcomes) < 1e-6  # and the test can reject


@pytest.mark.parametrize("law", LAWS)
def test_the_sample_size_tells_right_from_five_percent_off(law):
    wrong, rng = rescaled(law, 1.05), np.random.default_rng(0)
    bins = Bins.of(wrong)
    null, truth = bins.masses(wrong), bins.masses(law)
    n = sample_size(null, truth)
    assert all(p_value(c, null) < ALPHA for c in rng.multinomial(n, truth, size=500))
    assert all(p_value(c, null) > ALPHA for c in rng.multinomial(n, null, size=500))
    # The size is needed: with a quarter of it the wrong law would as a rule be accepted.
    few = [p_value(c, null) < ALPHA for c in rng.multinomial(n // 4, truth, size=500)]
    assert np.mean(few) < 0.5


def test_the_critical_value_has_p_value_alpha():
    for bins in (2, 5, 15, 64):
        x = critical(bins)
        assert math.exp(-statistical._excess(x, bins)) == pytest.approx(ALPHA, rel=1e-9)
        assert statistical._excess(bins - 1.0, bins) == 0.0


@pytest.mark.parametrize("law", [*LAWS, DiscreteLaplace(Fraction(4)), RoundedGaussian(0.4)])
def test_bins_cover_the_integers_and_know_their_mass(law):
    bins = Bins.of(law)
    masses = bins.masses(law)
    assert masses.sum() == pytest.approx(1.0, abs=1e-15)
    assert np.all(masses > 0)
    values = np.arange(-400, 401)
    assert bins.count(values).sum() == values.size
    fine = np.array([float(law.cdf(int(z))() - law.cdf(int(z) - 1)()) for z in values])
    place = np.searchsorted(bins.edges, values, side="left")
    assert np.bincount(place, weights=fine) == pytest.approx(masses, rel=1e-12)


def test_an_impossible_value_has_p_value_zero():
    assert p_value([5, 1], [1.0, 0.0]) == 0.0
    assert p_value([5, 0], [1.0, 0.0]) == 1.0


def test_laws_that_are_the_same_are_never_told_apart():
    with pytest.raises(ValueError, match="too near"):
        sample_size([0.5, 0.5], [0.5, 0.5])


def test_fits_uses_the_whole_sample():
    law = DiscreteLaplace(Fraction(1, 2))
    n = draws_to_tell(law)
    with_one_value = np.zeros(n, np.int64)
    assert fits(with_one_value, law) == 0.0


def test_the_variance_test_has_its_stated_power():
    rng, n = np.random.default_rng(1), replicates_for_variance(3.0)
    for variance, right in ((1.0, True), (1.05, False), (0.95, False)):
        for _ in range(20):
            squares = variance * rng.standard_normal(n) ** 2
            assert bool(mean_p(squares, 1.0) > ALPHA) is right


def test_kurtosis_of_known_laws():
    # q = e^{-rate}: E Z⁴/(E Z²)² = 6 + (1 − q)²/(2q) for the discrete Laplace law.
    for rate in (Fraction(1, 10), Fraction(1), Fraction(3)):
        q = math.exp(-rate)
        assert kurtosis(DiscreteLaplace(rate)) == pytest.approx(6 + (1 - q) ** 2 / (2 * q))
    assert kurtosis(RoundedGaussian(20.0)) == pytest.approx(3.0, abs=1e-3)


def test_proportion_bounds_hold_for_every_proportion_by_exact_enumeration():
    trials = 40
    bounds = [proportion_bounds(hits, trials) for hits in range(trials + 1)]
    assert bounds[0][0] == 0.0
    assert bounds[-1][1] == 1.0
    for k in range(1, 40):
        share = Fraction(k, 40)
        chance = [math.comb(trials, h) * share**h * (1 - share) ** (trials - h) for h in range(41)]
        too_high = sum(c for c, (low, _) in zip(chance, bounds, strict=True) if low > share)
        too_low = sum(c for c, (_, high) in zip(chance, bounds, strict=True) if high < share)
        assert too_high <= ALPHA
        assert too_low <= ALPHA
