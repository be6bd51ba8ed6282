"""Tests that know the noise: their level by simulation, and the naive tests they replace."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from tests.statistical import ALPHA, proportion_bounds

import subspacedp as sdp
from subspacedp.errors import DomainError, ReleaseError
from subspacedp.inference import hypotheses
from subspacedp.inference import hypotheses as by_two
from subspacedp.inference.hypotheses import TestResult, statistics
from subspacedp.inference.replicates import replicates
from subspacedp.noise import ReleaseKeys, draw
from subspacedp.release import Release

LEVEL = 0.05
TRIALS = 3000


def two_way(r: int, c: int) -> sdp.Domain:
    return sdp.Domain([sdp.Axis("a", list(range(r))), sdp.Axis("b", list(range(c)))])


HELD = {
    "nothing": None,
    "total": sdp.hold(),
    "rows": sdp.hold("a"),
    "both": sdp.hold("a") & sdp.hold("b"),
}


@cache
def mechanism_of(shape, held, budget, decimals):
    return sdp.design(two_way(*shape), HELD[held], budget, decimals=decimals)


@cache
def noise_of(mechanism, number: int) -> np.ndarray:
    """Exact draws of release minus truth: Π_N e in bulk, or with digits by the mechanism itself."""
    design = mechanism.mechanism
    if design.decimals is None:
        n = design.query.size
        drawn = draw(design.law, ReleaseKeys.from_seed(11, design.context), 0, number * n)
        projector = np.stack(
            [design.space.project(e.reshape(design.query.shape)) for e in np.eye(n)]
        )
        out = (drawn.reshape(number, n) @ projector.reshape(n, n)).reshape(-1, *design.query.shape)
    else:
        out = np.stack([np.asarray(e, float) for e in replicates(mechanism, number, seed=11)])
    out.setflags(write=False)
    return out


def release_with(mechanism, values) -> Release:
    """A release with given values: what a simulation needs of the mechanism."""
    values = np.asarray(values, np.float64)
    exact = mechanism.mechanism.held.sums(np.rint(values).astype(np.int64))
    return Release(
        mechanism=mechanism.mechanism,
        values=values,
        exact=exact,
        release_id="0" * 32,
        seeded=True,
        version="0",
    )


def null_tables(shape, total: int, number: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    p = np.arange(1, shape[0] + 1) / np.arange(1, shape[0] + 1).sum()
    q = np.arange(2, shape[1] + 2) / np.arange(2, shape[1] + 2).sum()
    return rng.multinomial(total, np.outer(p, q).ravel(), size=number).reshape(number, *shape)


def holds_level(pvalues, level=LEVEL, *, room: float = 0.0, at_least: bool = True) -> None:
    """The share of rejections is the level, up to `room` and Monte Carlo error at ALPHA."""
    hits = int(np.count_nonzero(np.asarray(pvalues) <= level))
    low, high = proportion_bounds(hits, len(pvalues))
    assert low <= level + room, f"rejects {hits} of {len(pvalues)} at {level}"
    if at_least:
        assert high >= level - room, f"rejects only {hits} of {len(pvalues)} at {level}"


def rejects_far_too_often(pvalues, level=LEVEL, *, factor: float = 2.0) -> None:
    hits = int(np.count_nonzero(np.asarray(pvalues) <= level))
    assert proportion_bounds(hits, len(pvalues))[0] > factor * level


# ------------------------------------------------------------------------------- one true figure


def value_pvalues(mechanism, weights, number: int) -> np.ndarray:
    """p-values of the true value over the noise; a law is built once and gives all tails."""
    law = mechanism.mechanism.noise.law_of(weights)
    found = np.tensordot(noise_of(mechanism, number), weights, weights.ndim)
    tail = cache(lambda d: law.tail(d - 1e-12))
    return np.array([tail(round(abs(float(d)), 9)) for d in found])


@pytest.mark.parametrize(
    ("held", "budget", "decimals"),
    [
        ("nothing", sdp.PureDP(1.0), None),
        ("nothing", sdp.GaussianDP(0.2), 0),
        ("rows", sdp.PureDP(0.1), None),
        ("rows", sdp.PureDP(1.0), 0),
        ("rows", sdp.GaussianDP(0.2), None),
        ("both", sdp.PureDP(0.1), 0),
        ("both", sdp.GaussianDP(0.2), 0),
    ],
)
def test_the_level_of_a_value_is_exact_or_safe(held, budget, decimals):
    mechanism = mechanism_of((3, 4), held, budget, decimals)
    weights = np.zeros((3, 4))
    weights[0, :2], weights[1, 0] = 1.0, -1.0
    pvalues = value_pvalues(mechanism, weights, TRIALS)
    rounded = decimals is not None and held != "nothing"
    for level in (0.05, 0.01):
        # On a lattice the level is met up to the mass of one point.
        holds_level(pvalues, level, at_least=False)
    lattice_step = budget == sdp.PureDP(1.0) or rounded
    holds_level(pvalues, 0.2, room=0.15 if lattice_step else 0.02)


def test_a_value_tested_with_too_small_a_noise_is_caught():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.1), None)
    weights = np.zeros((3, 4))
    weights[0, 0] = 1.0
    found = noise_of(mechanism, TRIALS)[:, 0, 0]
    forgetful = np.sqrt(mechanism.mechanism.noise.variance(weights)) * 0.7
    rejects_far_too_often(2 * stats.norm.sf(np.abs(found) / forgetful))


def test_the_value_test_is_the_tail_of_the_law():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.5), None)
    counts = np.full((3, 4), 50)
    release = mechanism.release(sdp.Table(counts, mechanism.mechanism.domain), seed=3)
    weights = release.where(a=0, b=[0, 1])
    found = hypotheses.test_value(release, weights, 100)
    estimate = release.estimate(weights)
    law = mechanism.mechanism.noise.law_of(weights)
    assert found.pvalue == pytest.approx(law.tail(abs(estimate.value - 100)), rel=1e-6)
    assert found.statistic == pytest.approx((estimate.value - 100) / estimate.stderr)
    assert found.df is None
    assert hypotheses.test_value(release, estimate, 100) == found
    far = hypotheses.test_value(release, weights, 1000)
    assert far.pvalue < ALPHA


def test_the_value_test_agrees_with_the_interval():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.5), 0)
    release = mechanism.release(sdp.Table(np.full((3, 4), 50), mechanism.mechanism.domain), seed=5)
    weights = release.where(a=1, b=2)
    low, high = release.estimate(weights).interval(0.95)
    for value in (low - 1, low + 1, high - 1, high + 1):
        inside = low <= value <= high
        assert (hypotheses.test_value(release, weights, value).pvalue > 0.05) == inside


def test_a_figure_fixed_by_the_invariants_is_certain():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.5), None)
    release = mechanism.release(sdp.Table(np.full((3, 4), 50), mechanism.mechanism.domain), seed=5)
    row = release.where(a=0)
    right, wrong = (hypotheses.test_value(release, row, v) for v in (200, 201))
    assert (right.pvalue, right.statistic) == (1.0, 0.0)
    assert (wrong.pvalue, wrong.statistic) == (0.0, -np.inf)
    assert "invariants fix" in right.method
    assert hypotheses.test_equal(release, row, release.where(a=1)).pvalue == 1.0
    one = release.margin("a")
    with pytest.raises(ReleaseError, match="One figure is tested at a time"):
        hypotheses.test_value(release, one, 200)


def test_only_a_variance_known_means_chebyshev():
    domain = two_way(2, 2)
    wrapped = sdp.impose_on(
        domain, sdp.hold("a"), lambda x: x + 1.0, budget=sdp.PureDP(1.0), variance=4.0
    )
    release = wrapped.release(sdp.Table([[40, 40], [40, 40]], domain))
    found = hypotheses.test_value(release, release.where(a=0, b=0), 50)
    assert "Chebyshev" in found.method
    assert found.pvalue == pytest.approx(2.0 / 100)
    assert by_two.test_independence(release, rows="a", columns="b").pvalue == 1.0
    with pytest.raises(ReleaseError, match="no replicates"):
        by_two.test_independence(release, rows="a", columns="b", method="replicates")
    silent = sdp.impose_on(domain, sdp.hold("a"), lambda x: x + 1.0, budget=sdp.PureDP(1.0))
    release = silent.release(sdp.Table([[40, 40], [40, 40]], domain))
    for ask in (
        lambda: hypotheses.test_value(release, release.where(a=0, b=0), 50),
        lambda: hypotheses.test_equal(
            release, release.where(a=0, b=0), release.where(a=0, b=1), sampling="poisson"
        ),
        lambda: by_two.test_independence(release, rows="a", columns="b"),
    ):
        with pytest.raises(ReleaseError, match="without a variance"):
            ask()


# -------------------------------------------------------------------------- two figures, Poisson


def poisson_pvalues(mechanism, rate: float, *, seed: int, number: int = TRIALS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rate, (number, *mechanism.mechanism.query.shape))
    values = counts + noise_of(mechanism, number)
    first, second = np.zeros((2, *mechanism.mechanism.query.shape))
    first[0, 0] = second[0, 1] = 1.0
    return np.array(
        [
            hypotheses.test_equal(
                release_with(mechanism, v), first, second, sampling="poisson"
            ).pvalue
            for v in values
        ]
    )


@pytest.mark.parametrize("held", ["nothing", "rows"])
@pytest.mark.parametrize("budget", [sdp.PureDP(0.5), sdp.PureDP(0.1), sdp.GaussianDP(0.2)])
def test_equal_poisson_rates_keep_the_level(held, budget):
    # With rows held, the two cells of a row of two are tested given their exact total.
    mechanism = mechanism_of((3, 2), held, budget, None)
    holds_level(poisson_pvalues(mechanism, 60.0, seed=1), room=0.015)


def test_poisson_needs_people():
    mechanism = mechanism_of((3, 2), "nothing", sdp.GaussianDP(3.0), None)
    few = release_with(mechanism, np.ones((3, 2)))
    with pytest.raises(ReleaseError, match="too few people"):
        hypotheses.test_equal(few, few.where(a=0, b=0), few.where(a=0, b=1), sampling="poisson")


def test_tests_of_counts_want_counts():
    domain = two_way(2, 2)
    sums = sdp.design(sdp.ClippedSums(domain, "income", 0, 10), None, sdp.PureDP(1.0))
    release = sums.release(np.full((2, 2), 500), seed=1)
    with pytest.raises(ReleaseError, match="not counts"):
        by_two.test_independence(release, rows="a", columns="b")
    with pytest.raises(ReleaseError, match="not counts"):
        hypotheses.test_equal(release, release.where(a=0), release.where(a=1), sampling="poisson")
    assert hypotheses.test_equal(release, release.where(a=0), release.where(a=1)).pvalue > 0


def test_poisson_without_the_noise_variance_is_caught():
    mechanism = mechanism_of((3, 2), "rows", sdp.PureDP(0.1), None)
    rng = np.random.default_rng(2)
    values = rng.poisson(60.0, (TRIALS, 3, 2)) + noise_of(mechanism, TRIALS)
    difference, total = values[:, 0, 0] - values[:, 0, 1], values[:, 0].sum(axis=1)
    rejects_far_too_often(stats.chi2.sf(difference**2 / total, 1))


def test_unequal_poisson_rates_are_found():
    mechanism = mechanism_of((3, 2), "rows", sdp.PureDP(0.5), None)
    values = np.full((3, 2), 100.0)
    values[0] = 150.0, 50.0
    release = release_with(mechanism, values)
    found = hypotheses.test_equal(
        release, release.where(a=0, b=0), release.where(a=0, b=1), sampling="poisson"
    )
    assert found.pvalue < 1e-4
    assert found.df == 1
    noise = release.covariance(release.where(a=0, b=0) - release.where(a=0, b=1))[0, 0]
    assert found.statistic == pytest.approx(100**2 / (200 + noise))
    with pytest.raises(ReleaseError, match="`sampling` must be"):
        hypotheses.test_equal(release, values, values, sampling="binomial")


# -------------------------------------------------------------------------------- two-way tables


CASES = [
    ((2, 2), "nothing", sdp.PureDP(0.2), None, 400),
    ((2, 2), "rows", sdp.PureDP(0.2), 0, 300),
    ((2, 2), "both", sdp.PureDP(1.0), None, 200),
    ((2, 2), "rows", sdp.GaussianDP(0.1), None, 300),
    ((3, 4), "nothing", sdp.PureDP(1.0), 0, 400),
    ((3, 4), "nothing", sdp.GaussianDP(0.1), None, 2000),
    ((3, 4), "total", sdp.PureDP(0.2), None, 2000),
    ((3, 4), "rows", sdp.PureDP(0.2), 0, 1000),
    ((3, 4), "both", sdp.PureDP(0.2), None, 500),
    ((3, 4), "both", sdp.GaussianDP(0.1), 0, 500),
]


def two_way_pvalues(mechanism, tables) -> np.ndarray:
    """What the public function gives, its parts taken once; refused tables are not rejected."""
    base = by_two._TwoWay.of(release_with(mechanism, tables[0]), "a", "b")
    found, out = statistics(tables, base.noise), np.ones(len(tables))
    for i, values in enumerate(tables):
        table = replace(base, values=values)
        try:
            table.check()
        except ReleaseError:
            continue
        out[i] = hypotheses.scaled_tail(
            found[i], (values.shape[0] - 1) * (values.shape[1] - 1), table.fourth()
        )[0]
    for i in range(0, len(tables), 100):
        release = release_with(mechanism, tables[i])
        try:
            public = by_two.test_independence(release, rows="a", columns="b").pvalue
        except ReleaseError:
            public = 1.0
        assert public == pytest.approx(out[i], rel=1e-9)
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_way_tests_keep_the_level(case):
    shape, held, budget, decimals, total = case
    mechanism = mechanism_of(shape, held, budget, decimals)
    tables = null_tables(shape, total, TRIALS, 4) + noise_of(mechanism, TRIALS)
    pvalues = two_way_pvalues(mechanism, tables)
    holds_level(pvalues, room=0.01)
    holds_level(pvalues, 0.01, room=0.005, at_least=False)


@pytest.mark.parametrize("case", [CASES[0], CASES[7], CASES[9]], ids=str)
def test_the_chi_square_test_that_ignores_the_noise_is_caught(case):
    shape, held, budget, decimals, total = case
    mechanism = mechanism_of(shape, held, budget, decimals)
    tables = null_tables(shape, total, TRIALS, 4) + noise_of(mechanism, TRIALS)
    tables = tables[(tables > 0).all(axis=(1, 2))][:1000]
    naive = [stats.chi2_contingency(t, correction=False).pvalue for t in tables]
    rejects_far_too_often(naive)


def test_the_plain_chi_square_reference_is_caught_under_laplace_noise():
    # Why the fourth moment is matched: quadratic forms of Laplace noise vary more.
    mechanism = mechanism_of((3, 4), "both", sdp.PureDP(0.2), None)
    tables = null_tables((3, 4), 500, 4 * TRIALS, 4) + noise_of(mechanism, 4 * TRIALS)
    noise = mechanism.mechanism.noise.covariance(np.eye(12).reshape(12, 3, 4))
    found = stats.chi2.sf(statistics(tables, noise), 6)
    rejects_far_too_often(found, 0.01, factor=1.25)


def test_without_noise_it_is_pearsons_test():
    domain = sdp.Domain(
        [sdp.Axis("a", [0, 1, 2]), sdp.Axis("b", [0, 1]), sdp.Axis("c", ["x", "y"])]
    )
    mechanism = sdp.design(domain, sdp.hold("a", "b"), sdp.PureDP(0.2))
    counts = np.random.default_rng(3).poisson(30, domain.shape)
    release = mechanism.release(sdp.Table(counts, domain), seed=1)
    table = counts.sum(axis=2)
    oracle = stats.chi2_contingency(table, correction=False)
    for test in (by_two.test_independence, by_two.test_homogeneity):
        found = test(release, rows="a", columns="b")
        assert found.statistic == pytest.approx(oracle.statistic)
        assert found.pvalue == pytest.approx(oracle.pvalue)
        assert found.df == oracle.dof
        assert "no noise" in found.method
    turned = by_two.test_independence(release, rows="b", columns="a")
    assert turned.statistic == pytest.approx(oracle.statistic)
    many = by_two.test_independence(
        release, rows="a", columns="b", method="replicates", number=4999, seed=1
    )
    assert abs(many.pvalue - oracle.pvalue) < 0.05


def test_the_statistic_is_the_quadratic_form_with_a_generalised_inverse():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.5), None)
    counts = null_tables((3, 4), 900, 1, 7)[0]
    release = mechanism.release(sdp.Table(counts, mechanism.mechanism.domain), seed=2)
    found = by_two.test_independence(release, rows="b", columns="a")
    y = np.asarray(release.values).T
    total, p, q = y.sum(), y.sum(axis=1) / y.sum(), y.sum(axis=0) / y.sum()
    residual = (y - total * np.outer(p, q)).ravel()
    J = np.kron(np.eye(4) - np.outer(p, np.ones(4)), np.eye(3) - np.outer(q, np.ones(3)))
    pi = np.outer(p, q).ravel()
    sampling = total * (np.diag(pi) - np.outer(pi, pi))
    rows = np.stack([e.reshape(4, 3).T for e in np.eye(12)])
    covariance = J @ (sampling + release.covariance(rows)) @ J.T
    inverse = np.linalg.pinv(covariance, rcond=1e-9)
    assert np.linalg.matrix_rank(covariance, tol=1e-6) == found.df == 6
    assert found.statistic == pytest.approx(residual @ inverse @ residual)
    # The product multinomial of homogeneity has the same covariance of residuals.
    product = sum(
        total * p[i] * np.kron(np.outer(e, e), np.diag(q) - np.outer(q, q))
        for i, e in enumerate(np.eye(4))
    )
    np.testing.assert_allclose(J @ product @ J.T, J @ sampling @ J.T, atol=1e-9)


def test_a_strong_association_is_found():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.5), 0)
    counts = np.full((3, 4), 40)
    counts[0] = 5, 5, 75, 75
    release = mechanism.release(sdp.Table(counts, mechanism.mechanism.domain), seed=1)
    assert by_two.test_independence(release, rows="a", columns="b").pvalue < 1e-4
    found = by_two.test_homogeneity(
        release, rows="a", columns="b", method="replicates", number=199, seed=1
    )
    assert found.pvalue == 1 / 200


def test_replicates_keep_the_level_where_chi_square_refuses():
    # 60 persons in 12 cells, noise of standard deviation 12 in each.
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.2), None)
    number, trials = 39, 2000
    noise = noise_of(mechanism, TRIALS)
    tables = null_tables((3, 4), 60, trials, 8) + noise[:trials]
    with pytest.raises(ReleaseError, match="too small for the noise"):
        by_two.test_independence(release_with(mechanism, tables[0]), rows="a", columns="b")
    pvalues = np.array(
        [
            by_two.test_independence(
                release_with(mechanism, t),
                rows="a",
                columns="b",
                method="replicates",
                number=number,
                seed=i,
            ).pvalue
            for i, t in enumerate(tables[:50])
        ]
    )
    assert pvalues.min() >= 1 / (number + 1)
    holds_level(pvalues, 0.05)
    # The same draws in bulk: every table against replicates of its own fitted null.
    covariance = mechanism.mechanism.noise.covariance(np.eye(12).reshape(12, 3, 4))
    rng = np.random.default_rng(5)
    observed = statistics(tables, covariance)
    R, C = np.maximum(tables.sum(axis=2), 1), np.maximum(tables.sum(axis=1), 1)
    fitted = R[:, :, None] * C[:, None, :]
    fitted = (fitted / fitted.sum(axis=(1, 2), keepdims=True)).reshape(trials, 12)
    totals = np.maximum(np.rint(tables.sum(axis=(1, 2))), 1).astype(int)
    larger = np.zeros(trials)
    for _ in range(number):
        drawn = rng.multinomial(totals, fitted).reshape(trials, 3, 4)
        drawn = drawn + noise[rng.integers(0, TRIALS, trials)]
        larger += statistics(drawn, covariance) >= observed
    holds_level((1 + larger) / (number + 1), 0.05, room=0.01)


def test_replicates_are_reproducible_and_never_the_noise_of_the_release():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.5), 0)
    counts = np.full((3, 4), 40)
    release = mechanism.release(sdp.Table(counts, mechanism.mechanism.domain), seed=1)
    ask = {"rows": "a", "columns": "b", "method": "replicates", "number": 99}
    first, again = (by_two.test_independence(release, **ask, seed=1) for _ in range(2))
    assert first == again
    table = by_two._TwoWay.of(release, "a", "b")
    drawn = table.noise_draws(50, 1)
    assert not any(np.array_equal(e, release.values - counts) for e in drawn)
    covariance = np.cov(table.noise_draws(2000, 2).reshape(2000, 12).T)
    assert np.trace(covariance) == pytest.approx(np.trace(table.noise), rel=0.15)


def test_rows_known_to_be_empty_are_left_out():
    domain = two_way(3, 3)
    empty = np.zeros((3, 3), bool)
    empty[2] = True
    mechanism = sdp.design(domain, sdp.zeros(empty), sdp.PureDP(1.0))
    counts = np.array([[40, 50, 60], [30, 40, 50], [0, 0, 0]])
    release = mechanism.release(sdp.Table(counts, domain), seed=1)
    for method in ("chi-square", "replicates"):
        found = by_two.test_independence(
            release, rows="a", columns="b", method=method, number=19, seed=1
        )
        assert found.df == 2


def test_a_margin_of_three_axes():
    domain = sdp.Domain(
        [sdp.Axis("c", list(range(5))), sdp.Axis("a", [0, 1, 2]), sdp.Axis("b", [0, 1])]
    )
    mechanism = sdp.design(domain, sdp.hold("c"), sdp.PureDP(0.5))
    counts = np.random.default_rng(3).poisson(30, domain.shape)
    release = mechanism.release(sdp.Table(counts, domain), seed=1)
    table = by_two._TwoWay.of(release, "b", "a")
    np.testing.assert_allclose(table.values, np.asarray(release.values).sum(axis=0).T)
    sums = table.noise_draws(TRIALS, 3).reshape(TRIALS, 6)
    np.testing.assert_allclose(np.cov(sums.T), table.noise, atol=0.2 * table.noise.max())
    assert by_two.test_independence(release, rows="b", columns="a").pvalue > 1e-4


def test_errors_are_one_sentence():
    mechanism = mechanism_of((3, 4), "rows", sdp.PureDP(0.5), None)
    release = mechanism.release(sdp.Table(np.full((3, 4), 50), mechanism.mechanism.domain), seed=5)
    ask = by_two.test_independence
    with pytest.raises(ReleaseError, match="`method` must be"):
        ask(release, rows="a", columns="b", method="exact")
    with pytest.raises(ReleaseError, match="`number` must be"):
        ask(release, rows="a", columns="b", method="replicates", number=0)
    with pytest.raises(ReleaseError, match="`seed` must be"):
        ask(release, rows="a", columns="b", method="replicates", seed=0.5)
    with pytest.raises(DomainError):
        ask(release, rows="a", columns="z")
    with pytest.raises(ReleaseError, match="`value` must be a finite number"):
        hypotheses.test_value(release, release.where(a=0, b=0), float("nan"))
    one = sdp.design(two_way(1, 3), None, sdp.PureDP(1.0))
    flat = one.release(sdp.Table([[50, 50, 50]], one.mechanism.domain), seed=1)
    with pytest.raises(ReleaseError, match="two rows and two columns"):
        ask(flat, rows="a", columns="b")


def test_pytest_does_not_take_them_for_tests():
    assert TestResult.__test__ is False
    for module in (hypotheses, by_two):
        taken = {name: value for name, value in vars(module).items() if name.startswith("test")}
        assert taken
        assert all(value.__test__ is False for value in taken.values())
    found = TestResult(statistic=1.5, df=2, pvalue=0.25, null="a null", method="a method")
    assert repr(found) == (
        "TestResult(statistic 1.5, df 2, p-value 0.25; null: a null; by a method)"
    )


def test_answers_without_axes_are_tested_too():
    """A linear query has no domain: the p-value is that of its noise, P(|Z| ≥ |d|)."""
    table = sdp.Table([30, 20, 10], sdp.Domain([sdp.Axis("a", ["x", "y", "z"])]))
    design = sdp.design(sdp.LinearQuery(np.eye(3)), None, sdp.PureDP(1.0), mechanism="projected")
    release = design.release(table, seed=1)
    rate = float(release.mechanism.law.rate)
    distance = abs(float(release.values[0]) - 25)
    q = np.exp(-rate)
    expected = 2 * q ** np.ceil(distance - 1e-9) / (1 + q) if distance else 1.0
    found = sdp.inference.test_value(release, [1.0, 0.0, 0.0], 25)
    assert found.pvalue == pytest.approx(expected, rel=1e-6)
    assert sdp.inference.test_equal(release, [1, 0, 0], [0, 1, 0]).pvalue > 0
