"""The likelihood against enumeration of the noise, and posteriors that are right."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import ctx, fmpz_mat
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import dense
from tests.statistical import ALPHA, p_value, sample_size, z_limit
from tests.strategies import problems, seeds

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.inference.likelihood import Likelihood
from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, ReleaseKeys, RoundedGaussian

GROUPS = sdp.Domain([sdp.Axis("cell", range(5), levels={"group": ["a", "b", "a", "b", "b"]})])
SQUARE = sdp.Domain([sdp.Axis("row", ["r", "s"]), sdp.Axis("column", ["c", "d"])])
LAPLACE, GAUSS = sdp.PureDP(2.4), sdp.GaussianDP(1.9)


def masses(law, reach):
    z = np.arange(-reach, reach + 1)
    cdf = [float(law.cdf(int(k))()) for k in range(-reach - 1, 1)]
    below = np.diff(cdf)
    return dict(zip(z.tolist(), [*below, *below[-2::-1]], strict=True))


def enumerate_noise(law, size, reach):
    """P(e − mean e) for a group of cells, by all noise vectors within `reach`."""
    p, out = masses(law, reach), {}
    for e in itertools.product(range(-reach, reach + 1), repeat=size):
        key = tuple(size * z - sum(e) for z in e)
        out[key] = out.get(key, 0.0) + math.prod(p[z] for z in e)
    return out


# -------------------------------------------------------------------------- one value of the noise


@pytest.mark.parametrize(
    "law",
    [
        DiscreteLaplace(Fraction(1, 7)),
        DiscreteLaplace(Fraction(3)),
        RoundedGaussian(0.4),
        RoundedGaussian(3.0),
        RoundedGaussian(999.0),
        RoundedGaussian(1001.0),
        DiscreteGaussian(Fraction(1, 5)),
        DiscreteGaussian(Fraction(400)),
    ],
    ids=repr,
)
def test_log_mass_is_that_of_the_law(law):
    z = np.array([0, 1, -1, 2, *np.rint(np.array([0.5, -1, 3, 6]) * law.scale)], np.int64)
    with ctx.workprec(400):
        wanted = [float((law.cdf(int(k))() - law.cdf(int(k) - 1)()).log()) for k in z]
    assert np.allclose(law.log_mass(z), wanted, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------- groups, by enumeration


def with_group_values(release, moved):
    """The release with other values in group "a" (cells 0 and 2)."""
    values = release.values.copy()
    values[[0, 2]] = moved
    return replace(release, values=values)


@pytest.mark.parametrize("budget", [LAPLACE, GAUSS], ids=["Laplace", "Gauss"])
def test_one_held_margin_is_the_sum_over_all_noise(budget):
    mechanism = sdp.design(GROUPS, sdp.hold("group") & sdp.hold(), budget)
    truth = np.array([4, 1, 9, 3, 2])
    release = mechanism.release(sdp.Table(truth, GROUPS), seed=3)
    likelihood = Likelihood(release)
    law = mechanism.mechanism.law
    three = enumerate_noise(law, 3, 14)
    d = release.values - truth
    key = tuple(int(np.rint(3 * d[i])) for i in (1, 3, 4))
    assert likelihood.exact
    # Group "a" has two cells: sum over its noise by hand.
    p = masses(law, 40)
    difference = int(np.rint(d[0] - d[2]))
    two = math.fsum(p[z] * p.get(z - difference, 0.0) for z in p)
    assert likelihood.log_density(truth) == pytest.approx(math.log(two * three[key]), abs=1e-9)
    assert likelihood.by_group(truth) == pytest.approx(np.log([two, three[key]]), abs=1e-9)
    # A twin whose rate is 2 % off is caught by the same comparison.
    twin = release.mechanism.for_problem(budget=_off(budget))
    wrong = Likelihood(replace(release, mechanism=twin)).log_density(truth)
    assert abs(wrong - math.log(two * three[key])) > 1e-4


def _off(budget):
    if isinstance(budget, sdp.PureDP):
        return sdp.PureDP(budget.epsilon * 1.02)
    return sdp.GaussianDP(budget.mu * 1.02)


@pytest.mark.parametrize("budget", [LAPLACE, GAUSS], ids=["Laplace", "Gauss"])
def test_probabilities_of_all_outcomes_add_up_to_one(budget):
    mechanism = sdp.design(GROUPS, sdp.hold("group"), budget)
    truth = np.array([4, 1, 9, 3, 2])
    release = mechanism.release(sdp.Table(truth, GROUPS), seed=3)
    total = 0.0
    for twice in range(-80, 81):  # every value of group "a": its cells at (±twice)/2 off the truth
        moved = with_group_values(release, truth[[0, 2]] + np.array([twice, -twice]) / 2)
        total += math.exp(float(Likelihood(moved).by_group(truth)[0]))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_large_groups_and_far_truths_agree_with_a_plain_sum():
    rng = np.random.default_rng(5)
    domain = sdp.Domain([sdp.Axis("cell", range(40)), sdp.Axis("place", range(3))])
    table = sdp.Table(rng.integers(0, 1000, domain.shape), domain)
    for budget in (sdp.PureDP(0.02), sdp.PureDP(3.0), sdp.GaussianDP(0.02), sdp.GaussianDP(2.0)):
        release = sdp.design(domain, sdp.hold("place"), budget).release(table, seed=1)
        likelihood = Likelihood(release)
        law = release.mechanism.law
        other = table.counts.copy()
        other[:20] += 7
        other[20:] -= 7
        for truth in (table.counts, other):
            d = release.values - truth
            whole = np.rint(d - (d[:1] - np.floor(d[:1])))
            reach = int(40 * max(law.scale, 1.0)) + 40
            shifted = (whole.astype(np.int64) + k for k in range(-reach, reach))
            logs = np.array([law.log_mass(z).sum(axis=0) for z in shifted])
            wanted = np.logaddexp.reduce(logs, axis=0)
            assert np.allclose(likelihood.by_group(truth).ravel(), wanted, rtol=1e-11, atol=1e-9)


def test_nothing_held_is_a_product():
    domain = sdp.Domain([sdp.Axis("cell", range(4))])
    truth = np.array([5, 0, 2, 9])
    for decimals in (None, 0, 2):
        mechanism = sdp.design(domain, None, LAPLACE, decimals=decimals)
        release = mechanism.release(sdp.Table(truth, domain), seed=2)
        noise = np.rint(release.values - truth).astype(np.int64)
        likelihood = Likelihood(release)
        assert likelihood.exact
        wanted = mechanism.mechanism.law.log_mass(noise).sum()
        assert likelihood.log_density(truth) == pytest.approx(wanted)
    with pytest.raises(ReleaseError, match="one margin"):
        likelihood.by_group(truth)


def test_a_truth_without_the_held_totals_is_impossible():
    release = sdp.design(GROUPS, sdp.hold("group"), LAPLACE).release(
        sdp.Table([4, 1, 9, 3, 2], GROUPS), seed=3
    )
    likelihood = Likelihood(release)
    assert likelihood.log_density([5, 1, 9, 3, 2]) == -math.inf
    assert likelihood.by_group([5, 1, 9, 3, 2])[0] == -math.inf
    assert np.isfinite(likelihood.by_group([5, 1, 9, 3, 2])[1])
    assert likelihood.log_density(np.array([4.0, 1, 9, 3, 2])) > -math.inf


# ------------------------------------------------------------------------------ other mechanisms


@pytest.mark.parametrize("budget", [LAPLACE, GAUSS], ids=["Laplace", "Gauss"])
def test_a_basis_gives_the_measurement_back(budget):
    matrix = [[1, 1, 0, 0, 0], [0, 1, 2, 1, 1]]
    held = sdp.LinearInvariants(matrix)
    mechanism = sdp.design(GROUPS, held, budget, mechanism="extended")
    table = sdp.Table([40, 11, 9, 300, 2], GROUPS)
    release = mechanism.release(table, seed=9)
    likelihood = Likelihood(release)
    keys = ReleaseKeys.from_seed(9, mechanism.mechanism.context)
    measured = mechanism.mechanism.measure(table, keys)
    basis = mechanism.mechanism.basis
    assert likelihood.exact
    for truth in ([40, 11, 9, 300, 2], [41, 10, 9, 301, 2]):
        z = measured - basis.integers(np.array(truth))
        wanted = math.fsum(mechanism.mechanism.law.log_mass(z))
        assert likelihood.log_density(truth) == pytest.approx(wanted, abs=1e-9)
    assert likelihood.log_density([40, 11, 9, 300, 3]) == -math.inf


def test_overlapping_margins_carry_a_shift():
    mechanism = sdp.design(SQUARE, sdp.hold("row") & sdp.hold("column"), LAPLACE)
    truth = np.array([[4, 1], [2, 3]])
    release = mechanism.release(sdp.Table(truth, SQUARE), seed=4)
    likelihood = Likelihood(release)
    first = likelihood.start()
    p = masses(mechanism.mechanism.law, 12)
    # N is spanned by (1, −1; −1, 1): P(release) sums over noise with e00 − e01 − e10 + e11 given.
    corner = int(np.rint(4 * (release.values - truth)[0, 0]))
    wanted = math.fsum(
        p[a] * p[b] * p[c] * p.get(corner - a + b + c, 0.0)
        for a, b, c in itertools.product(p, repeat=3)
    )
    total = 0.0
    for a, b, c in itertools.product(range(-16, 17), repeat=3):
        shift = first + np.array([[a, a + c], [b, b + c]])
        total += math.exp(likelihood.log_density(truth, shift=shift))
    assert total == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(ReleaseError, match="give `shift`"):
        likelihood.log_density(truth)
    with pytest.raises(ReleaseError, match="row space"):
        likelihood.log_density(truth, shift=[[1, 0], [0, 0]])
    with pytest.raises(ReleaseError, match="must be whole"):
        likelihood.log_density(truth, shift=first + 0.5)


@given(problem=problems(min_margins=1, max_cells=40), seed=seeds)
def test_a_first_shift_is_valid_and_held_groups_reach_all_others(problem, seed):
    domain, held = problem
    assume(sdp.null_space(domain, held).dimension > 0)
    mechanism = sdp.design(domain, held, LAPLACE)
    truth = np.random.default_rng(seed).integers(0, 50, domain.shape)
    release = mechanism.release(sdp.Table(truth, domain), seed=seed)
    shift = Likelihood(release).start()
    noise = release.values - truth + shift
    assert np.allclose(noise, np.rint(noise), rtol=0, atol=1e-9)
    C = dense.matrix(domain, held)
    assert np.abs(dense.float_projector(C) @ shift.ravel()).max() < 1e-9
    assert np.abs(shift).max() <= 0.5 * 2.0 ** len(held.on(domain).essential)
    # All integer vectors of the row space are integer sums of rows: elementary divisors of 1.
    divisors = fmpz_mat(C.tolist()).snf()
    assert {abs(int(divisors[i, i])) for i in range(min(C.shape))} <= {0, 1}


@given(st.data())
def test_a_normal_density_is_near_the_exact_probability(data):
    """Up to a constant: the error of a difference is bounded by the fourth power of 1/σ."""
    rng = np.random.default_rng(data.draw(seeds))
    domain = sdp.Domain([sdp.Axis("cell", range(6)), sdp.Axis("place", range(2))])
    mu = data.draw(st.sampled_from([0.3, 0.7, 1.4]))
    truth = rng.integers(0, 50, domain.shape)
    release = sdp.design(domain, sdp.hold("place"), sdp.GaussianDP(mu)).release(
        sdp.Table(truth, domain), seed=data.draw(seeds)
    )
    law = release.mechanism.law
    exact = Likelihood(release)
    matrix = np.kron(np.ones((1, 6), int), np.eye(2, dtype=int))
    general = sdp.design(domain, sdp.LinearInvariants(matrix), sdp.GaussianDP(mu))
    same = replace(release, mechanism=general.mechanism, exact=(truth.sum(axis=0),))
    normal = Likelihood(same)
    assert exact.exact
    assert not normal.exact
    other = (
        truth
        + rng.multinomial(4, np.full(6, 1 / 6), 2).T
        - rng.multinomial(4, np.full(6, 1 / 6), 2).T
    )
    difference = exact.log_density(other) - exact.log_density(truth)
    approximately = normal.log_density(other) - normal.log_density(truth)
    s2 = law.variance
    u = np.maximum(np.abs(release.values - truth), np.abs(release.values - other)) / s2**0.5 + 1.5
    bound = float(np.sum(u**4 + 6 * u**2 + 3)) / (2880 * s2**2) * 2
    assert abs(difference - approximately) <= bound
    assert bound < 2.0 * (1 / s2) ** 2 * 12


def rounded_by_hand(law, d, step, reach):
    """P(published steps | truth): all noise, all roundings of the cumulative sums, one by one."""
    m, p, total = len(d), masses(law, reach), 0.0
    for r in range(-m * reach, m * reach + 1):
        floors = [r * step * j // m for j in range(m)] + [r * step]
        ups = [Fraction(r * step * j, m) - floors[j] for j in range(m)]
        for roundings in itertools.product((0, 1), repeat=m - 1):
            chance = math.prod(u if c else 1 - u for u, c in zip(ups[1:], roundings, strict=True))
            if not chance:
                continue
            sums = [f + c for f, c in zip(floors, (0, *roundings, 0), strict=True)]
            moves = [b - a for a, b in itertools.pairwise(sums)]
            noise = [Fraction(int(v) + move, step) for v, move in zip(d, moves, strict=True)]
            if all(e.denominator == 1 for e in noise):
                total += float(chance) * math.prod(p.get(int(e), 0.0) for e in noise)
    return total


@pytest.mark.parametrize("decimals", [0, 1])
@pytest.mark.parametrize("budget", [LAPLACE, GAUSS], ids=["Laplace", "Gauss"])
def test_digits_of_one_margin_are_the_sum_over_all_noise_and_roundings(budget, decimals):
    truth = np.array([4, 1, 9, 3, 2])
    mechanism = sdp.design(GROUPS, sdp.hold("group"), budget, decimals=decimals)
    release = mechanism.release(sdp.Table(truth, GROUPS), seed=1)
    likelihood = Likelihood(release)
    assert likelihood.exact
    assert "rounding" in likelihood.describe()
    step = 10**decimals
    for other in (truth, np.array([6, 0, 7, 4, 2])):
        d = np.rint((release.values - other) * step).astype(int)
        wanted = [
            rounded_by_hand(mechanism.mechanism.law, d[g], step, 16) for g in ([0, 2], [1, 3, 4])
        ]
        assert likelihood.by_group(other) == pytest.approx(np.log(wanted), abs=1e-6)
    assert likelihood.by_group([5, 1, 9, 3, 2])[0] == -math.inf


def test_probabilities_of_all_whole_outcomes_add_up_to_one():
    truth = np.array([4, 1, 9, 3, 2])
    mechanism = sdp.design(GROUPS, sdp.hold("group"), LAPLACE, decimals=0)
    release = mechanism.release(sdp.Table(truth, GROUPS), seed=1)
    total = 0.0
    for a, b in itertools.product(range(-16, 17), repeat=2):
        values = release.values.copy()
        values[[1, 3, 4]] = truth[[1, 3, 4]] + np.array([a, b, -a - b])
        total += math.exp(float(Likelihood(replace(release, values=values)).by_group(truth)[1]))
    assert total == pytest.approx(1.0, abs=1e-6)


@given(problem=problems(min_margins=1, max_cells=60))
def test_roundings_are_thrown_in_the_order_that_the_likelihood_takes(problem):
    domain, held = problem
    assume(len(held.on(domain).essential) == 1)
    assume(sdp.null_space(domain, held).dimension > 0)
    mechanism = sdp.design(domain, held, LAPLACE, decimals=0)
    (axis,) = mechanism.mechanism.rounding.axes
    margin = mechanism.mechanism.held.essential[0]
    numbers = np.arange(int(np.prod(margin.shape))).reshape(margin.shape)
    group = np.broadcast_to(margin.spread(numbers), domain.shape).ravel()
    assert np.array_equal(axis.places, np.argsort(group, kind="stable"))


def test_extended_gaussian_and_digits_of_several_margins_are_normal_and_say_so():
    truth = np.array([4, 1, 9, 3, 2])
    table = sdp.Table(truth, GROUPS)
    extended = sdp.design(GROUPS, sdp.hold("group"), GAUSS, mechanism="extended")
    likelihood = Likelihood(extended.release(table, seed=1))
    assert not likelihood.exact
    assert "approximate" in likelihood.describe()
    assert likelihood.log_density(truth) > likelihood.log_density([13, 1, 0, 3, 2])
    square, both = np.array([[4, 1], [2, 3]]), sdp.hold("row") & sdp.hold("column")
    rounded = sdp.design(SQUARE, both, GAUSS, decimals=0).release(sdp.Table(square, SQUARE), seed=1)
    with pytest.raises(ReleaseError, match="approximate=True"):
        Likelihood(rounded)
    near = Likelihood(rounded, approximate=True)
    assert not near.exact
    assert "average variance" in near.describe()
    assert near.log_density(square) > near.log_density(square + np.array([[-40, 40], [40, -40]]))


def test_digits_that_need_no_rounding_are_exact():
    domain = sdp.Domain([sdp.Axis("cell", range(2))])
    truth = np.array([7, 5])
    release = sdp.design(domain, sdp.hold(), LAPLACE, decimals=1).release(
        sdp.Table(truth, domain), seed=8
    )
    likelihood = Likelihood(release)
    p = masses(release.mechanism.law, 40)
    difference = int(np.rint(2 * (release.values[0] - truth[0])))
    wanted = math.log(math.fsum(p[z] * p.get(z - difference, 0.0) for z in p))
    assert likelihood.exact
    assert likelihood.log_density(truth) == pytest.approx(wanted, abs=1e-9)


def test_refusals_are_one_sentence():
    truth = sdp.Table([4, 1, 9, 3, 2], GROUPS)
    release = sdp.design(GROUPS, sdp.hold("group"), LAPLACE).release(truth, seed=1)
    likelihood = Likelihood(release)
    with pytest.raises(ReleaseError, match="whole"):
        likelihood.log_density([4.5, 1, 9, 2.5, 2])
    with pytest.raises(ReleaseError, match="shape"):
        likelihood.log_density([4, 1])
    with pytest.raises(ReleaseError, match="finite"):
        likelihood.log_density([4, 1, np.nan, 3, 2])
    with pytest.raises(ReleaseError, match="leave it out"):
        likelihood.log_density(truth.counts, shift=np.zeros(5))
    with pytest.raises(ReleaseError, match="needs a release"):
        Likelihood("release")
    imposed = sdp.impose_on(GROUPS, sdp.hold("group"), lambda x: x + 1.5, budget=LAPLACE)
    with pytest.raises(ReleaseError, match="not known"):
        Likelihood(imposed.release(truth))
    both = sdp.hold("row") & sdp.hold("column")
    digits = sdp.design(SQUARE, both, LAPLACE, decimals=0).release(
        sdp.Table([[4, 1], [2, 3]], SQUARE), seed=1
    )
    with pytest.raises(ReleaseError, match="not even an approximate"):
        Likelihood(digits, approximate=True)


def test_a_table_with_totals_of_other_records_has_none():
    table = sdp.Table([4, 1, 9, 3, 2], GROUPS)
    more = sdp.Table([5, 1, 9, 3, 4], GROUPS)
    mechanism = sdp.design(GROUPS, sdp.hold("group"), LAPLACE, capped=True)
    with pytest.raises(ReleaseError, match="count all records"):
        Likelihood(mechanism.release(table, everything=more, seed=1))


def test_answers_on_a_grid_of_their_own():
    query = sdp.LinearQuery([[0.5, 0.5, 0], [0, 1, 0.25]])
    domain = sdp.Domain([sdp.Axis("cell", range(3))])
    mechanism = sdp.design(query, None, sdp.PureDP(1.0))
    release = mechanism.release(sdp.Table([4, 2, 6], domain), seed=1)
    truth = np.array([3.0, 3.5])
    noise = np.rint((release.values - truth) * 4).astype(np.int64)
    likelihood = Likelihood(release)
    wanted = mechanism.mechanism.law.log_mass(noise).sum()
    assert likelihood.log_density(truth) == pytest.approx(wanted)
    with pytest.raises(ReleaseError, match="grid 1/4"):
        likelihood.log_density([3.1, 3.5])


# ------------------------------------------------------------------ posteriors, by simulation


COMPOSITIONS = np.array([(a, b, 6 - a - b) for a in range(7) for b in range(7 - a)])  # (28, 3)


def ranks(budget, claimed, number, seed, decimals=None):
    """The posterior probability below the true first cell, for tables drawn from the prior.

    Every group of one table is a simulation of its own: six people in three cells, all
    compositions equally likely. Ties are broken at random, so the result is uniform.
    """
    rng = np.random.default_rng(seed)
    domain = sdp.Domain([sdp.Axis("group", range(number)), sdp.Axis("cell", range(3))])
    truth = COMPOSITIONS[rng.integers(0, len(COMPOSITIONS), number)]
    mechanism = sdp.design(domain, sdp.hold("group"), budget, decimals=decimals)
    release = mechanism.release(sdp.Table(truth, domain), seed=seed)
    release = replace(release, mechanism=release.mechanism.for_problem(budget=claimed))
    likelihood = Likelihood(release)
    logs = np.stack(
        [likelihood.by_group(np.broadcast_to(c, domain.shape)).reshape(-1) for c in COMPOSITIONS]
    )
    posterior = np.exp(logs - logs.max(axis=0))
    posterior /= posterior.sum(axis=0)
    first = COMPOSITIONS[:, 0][:, None]
    below = np.sum(posterior * (first < truth[:, 0]), axis=0)
    tied = np.sum(posterior * (first == truth[:, 0]), axis=0)
    return below + rng.random(number) * tied


@pytest.mark.parametrize(
    ("budget", "claimed"),
    [
        (sdp.PureDP(1.0), sdp.PureDP(1.3)),
        (sdp.GaussianDP(0.8), sdp.GaussianDP(1.04)),
    ],
    ids=["Laplace", "Gauss"],
)
def test_posterior_ranks_are_uniform_and_those_of_a_wrong_rate_are_not(budget, claimed):
    bins = np.linspace(0, 1, 21)
    flat = np.full(20, 0.05)
    # How far a wrong rate bends the ranks, from a pilot of its own; then the size to see it.
    pilot = np.histogram(ranks(budget, claimed, 100_000, 1), bins)[0] / 100_000
    number = sample_size(flat, pilot) * 5 // 4  # the pilot has an error too
    right = np.histogram(ranks(budget, budget, number, 2), bins)[0]
    wrong = np.histogram(ranks(budget, claimed, number, 3), bins)[0]
    assert p_value(right, flat) > ALPHA
    assert p_value(wrong, flat) < ALPHA


@pytest.mark.parametrize("decimals", [None, 0])
def test_posterior_intervals_cover(decimals):
    budget, number = sdp.PureDP(4.0), 4000  # rounding counts as much as noise
    u = ranks(budget, budget, number, 4, decimals)
    covered = np.mean((u > 0.05) & (u < 0.95))
    assert abs(covered - 0.9) < z_limit() * math.sqrt(0.09 / number)
