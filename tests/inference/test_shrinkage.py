"""Posteriors against sums over all counts, fitted priors, and the nearest table."""

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse, stats

from subspacedp.inference.nearest import Rows, nearest
from subspacedp.inference.shrinkage import Errors, ErrorTable, fit_prior, posterior
from subspacedp.mechanisms.error_laws import WeightedSum, part
from subspacedp.noise import DiscreteLaplace, RoundedGaussian

LAWS = [
    DiscreteLaplace(Fraction(2)),
    DiscreteLaplace(Fraction(1, 10)),
    RoundedGaussian(0.7),
    RoundedGaussian(40.0),
]


def errors(law, number):
    summed = WeightedSum(parts=(part(law, [1.0]),))
    table = ErrorTable.of(summed, float(np.sqrt(law.variance)))
    return Errors([table], np.zeros(number, np.int64))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_moments_are_those_of_all_counts_together(law):
    """The grids of noisy counts and of prior means cost 3 % of a standard error and of a mean."""
    deviation, rng = float(np.sqrt(law.variance)), np.random.default_rng(1)
    noisy = np.rint(rng.normal(0, 3 * deviation, 40) + rng.gamma(0.5, 6 * deviation, 40))
    log_mean, dispersion = rng.normal(np.log(2 * deviation + 1), 1.5, 40), np.repeat([0.5, 4.0], 20)
    bands = (0, 1, 10, 30)
    found = posterior(noisy, log_mean, dispersion, errors(law, 40), bands)
    counts = np.arange(int(40 * deviation + noisy.max() + 50))
    number, of_values, partial = np.zeros(4), np.zeros(4), np.zeros(4)
    for i in range(40):
        r, mean = dispersion[i], np.exp(log_mean[i])
        mass = np.exp(law.log_mass(noisy[i].astype(np.int64) - counts))
        mass *= stats.nbinom.pmf(counts, r, r / (r + mean))
        mass /= mass.sum()
        expected = mass @ counts
        assert abs(found.mean[i] - expected) < 0.03 * deviation + 0.03 * expected
        spread = mass @ (counts - expected) ** 2
        assert abs(found.variance[i] - spread) < 0.05 * (deviation**2 + spread) + 0.01
        band = np.searchsorted(bands, counts, side="right") - 1
        number += np.bincount(band, mass, 4)
        of_values += i * np.bincount(band, mass, 4)
        partial += np.bincount(band, mass * counts, 4)
    sums = found.sums(np.arange(40.0))
    assert np.abs(sums[0] - number).max() < 0.5
    assert np.abs(sums[1] - of_values).max() < 15
    assert np.abs(sums[2] - partial).max() < 0.01 * partial.sum() + 0.5
    below = found.below(2)
    assert below[0].sum() == pytest.approx(sums[0][:2].sum())
    assert below[1].sum() == pytest.approx(sums[2][:2].sum())


def test_what_is_known_of_a_count_does_not_depend_on_far_ones():
    """Candidates are shared among counts, and each looks at those near it."""
    noisy = np.array([-40.0, 3.0, 150.0, 2_000.0, 10.0**7, 10.0**7 + 90, 10.0**11])
    log_mean, dispersion = np.full(noisy.size, 20.0), np.full(noisy.size, 100.0)

    def known(of):
        given = errors(DiscreteLaplace(Fraction(1, 10)), of.size)
        found = posterior(noisy[of], log_mean[of], dispersion[of], given, (0, 10, 1_000))
        return np.column_stack([found.mean, found.variance, *found.below(1), *found.below(2)])

    together = known(np.arange(noisy.size))
    alone = np.concatenate([known(np.array([i])) for i in range(noisy.size)])
    assert np.allclose(together, alone, rtol=1e-9, atol=1e-9)
    assert np.abs(together[2:, 0] - noisy[2:]).max() < 150


def test_the_prior_is_found_again_and_not_another():
    rng, law = np.random.default_rng(3), DiscreteLaplace(Fraction(1, 5))
    expected = np.exp(rng.normal(3, 1.2, 1500))
    mean, r = 0.5 * expected**1.2, 1.5
    counts = rng.negative_binomial(r, r / (r + mean))
    noisy = counts + rng.geometric(1 - np.exp(-0.2), 1500) - rng.geometric(1 - np.exp(-0.2), 1500)
    given = np.log(expected)[:, None]
    prior = fit_prior(noisy.astype(float), given, errors(law, 1500))
    assert np.abs(prior.log_mean(given) - np.log(mean)).max() < 0.4
    assert 1.2 < prior.dispersion < 1.9
    # The twin takes the noise for a tenth of what it is, and finds more dispersion than there is.
    twin = fit_prior(noisy.astype(float), given, errors(DiscreteLaplace(Fraction(2)), 1500))
    assert not 1.2 < twin.dispersion < 1.9


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_point_is_that_of_a_quadratic_programme(seed):
    rng, n = np.random.default_rng(seed), 30
    inside = rng.gamma(0.5, 4.0, n)
    held = (rng.random((3, n)) < 0.4).astype(float)
    wish, below = rng.random((2, n)), (rng.random((3, n)) < 0.3).astype(float)
    limits = below @ inside * np.array([1.0, 1.1, 2.0])
    middle, weight = rng.normal(3, 5, n), rng.gamma(2.0, 1.0, n)
    slack = np.array([1.0, 5.0])
    upper = np.maximum(inside, rng.gamma(1.0, 10.0, n))
    rows = Rows.stacked(
        [
            Rows.of(sparse.csr_array(held), held @ inside),
            Rows.of(sparse.csr_array(wish), wish @ inside, slack),
            Rows.of(sparse.csr_array(below), limits, at_most=True),
        ],
        n,
    )
    found = nearest(middle, weight, rows, np.zeros(n), upper)
    z = cp.Variable(n)
    cost = cp.sum(cp.multiply(cp.square(z - middle), 1 / weight)) / 2
    cost += cp.sum(cp.multiply(cp.square(wish @ z - wish @ inside), 1 / slack)) / 2
    rules = [z >= 0, z <= upper, held @ z == held @ inside, below @ z <= limits]
    exact = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
    cp.Problem(cp.Minimize(cost), rules).solve(solver=cp.CLARABEL, **exact)
    assert np.abs(found - z.value).max() < 1e-3
    assert np.abs(held @ found - held @ inside).max() < 1e-4
