"""Regression on released outcomes: unbiased, and intervals that cover where naive ones do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.statistical import ALPHA, mean_p, proportion_bounds, z_limit

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.inference.regression import regress
from subspacedp.inference.replicates import replicates
from subspacedp.release import Release

LEVEL = 0.95
# Intervals that cover 83 % are told from 95 % by either test, except with probability ALPHA:
# exp(−n·D(t‖p)) is below it for p = 0.83, 0.95 and the t between them.
TRIALS = 1200
KURTOSIS = 3.5  # at most, of a coefficient: a weighted sum of many errors
COUNTIES = 40
BETA = np.array([100.0, 5.0, 3.0])

DOMAIN = sdp.Domain([sdp.Axis("county", list(range(COUNTIES))), sdp.Axis("sex", ["F", "M"])])
PUBLIC = np.random.default_rng(0)
MEN = np.tile([0.0, 1.0], COUNTIES)
URBAN = np.repeat(PUBLIC.normal(size=COUNTIES), 2)
POPULATION = np.exp(PUBLIC.normal(7.0, 1.0, 2 * COUNTIES)) / 1000
SEXES = {"men": MEN, "urban": URBAN}
SIZES = {"log size": np.log(POPULATION), "urban": URBAN}


def simulated(held, budget, X, *, sd=10.0, decimals=None, scale=None, weights=None, seed=1):
    """Regressions over outcomes Xβ + errors and the noise of the mechanism."""
    mechanism = sdp.design(DOMAIN, held, budget, decimals=decimals)
    rng = np.random.default_rng(seed)
    n = DOMAIN.size
    matrix = np.column_stack([np.ones(n), *X.values()])
    divisor = np.ones(n) if scale is None else scale
    spread = sd / np.sqrt(np.ones(n) if weights is None else weights)
    exact = mechanism.mechanism.held.sums(np.zeros(DOMAIN.shape, np.int64))
    out = []
    for noise in replicates(mechanism, TRIALS, seed=seed):
        truth = (matrix @ BETA + rng.normal(0, spread)) * divisor
        release = Release(
            mechanism=mechanism.mechanism,
            values=truth.reshape(DOMAIN.shape) + noise,
            exact=exact,
            release_id="0" * 32,
            seeded=True,
            version="0",
        )
        out.append(regress(release, X, scale=scale, weights=weights))
    return out


def covered(found, *, naive: bool = False) -> np.ndarray:
    """How often each coefficient is covered."""
    ends = np.array([f.interval(LEVEL, naive=naive) for f in found])
    return ((ends[:, 0] <= BETA) & (ends[:, 1] >= BETA)).sum(axis=0)


def assert_right(found, *, room: float = 0.015) -> None:
    coefficients = np.array([f.coefficients for f in found])
    assert np.all(mean_p(coefficients, BETA) > ALPHA)
    for hits in covered(found):
        low, high = proportion_bounds(int(hits), len(found))
        assert low - room <= LEVEL <= high + room


CASES = {
    "pairs": (sdp.hold("county"), sdp.PureDP(0.05), SEXES, {}),
    "pairs, digits": (sdp.hold("county"), sdp.PureDP(0.05), SEXES, {"decimals": 0}),
    "pairs, mostly noise": (sdp.hold("county"), sdp.GaussianDP(0.1), SEXES, {"sd": 1.0}),
    "rates": (None, sdp.PureDP(0.2), SIZES, {"scale": POPULATION}),
    "rates, digits": (sdp.hold(), sdp.GaussianDP(0.1), SIZES, {"scale": POPULATION, "decimals": 0}),
    "equal noise": (None, sdp.PureDP(0.2), SEXES, {}),
    "weighted": (None, sdp.PureDP(0.5), SIZES, {"weights": POPULATION}),
}
# Coefficients, by place, whose naive intervals cover too seldom, and those where they are too wide.
NAIVE_SHORT = {"pairs": [1], "pairs, digits": [1], "pairs, mostly noise": [1], "rates": [1]}
NAIVE_WIDE = {"pairs": [2], "pairs, mostly noise": [2]}


def first(names, *kept):
    """Cases that differ in kind always run; the others in a soak."""
    return [name if name in kept else pytest.param(name, marks=pytest.mark.soak) for name in names]


@pytest.mark.parametrize("name", first(CASES, "pairs", "rates"))
def test_corrected_intervals_cover_where_naive_ones_do_not(name):
    held, budget, X, more = CASES[name]
    found = simulated(held, budget, X, **more)
    assert_right(found)
    naive = covered(found, naive=True)
    for place in NAIVE_SHORT.get(name, []):
        assert proportion_bounds(int(naive[place]), TRIALS)[1] < LEVEL
    for place in NAIVE_WIDE.get(name, []):
        assert proportion_bounds(int(naive[place]), TRIALS)[0] > LEVEL
    # The stated variances are right on average, not only where they cover.
    stated = np.mean([np.diag(f.covariance) for f in found], axis=0)
    seen = np.var([f.coefficients for f in found], axis=0)
    room = z_limit() * np.sqrt((KURTOSIS - 1) / TRIALS)
    np.testing.assert_allclose(seen, stated, rtol=room)
    if name == "equal noise":
        ratio = [f.stderr / f.naive_stderr for f in found]
        np.testing.assert_allclose(np.median(ratio, axis=0), 1.0, atol=0.02)


def test_noise_taken_as_uncorrelated_is_caught():
    # The twin knows every cell's variance and forgets that a county's two errors are opposite.
    found = simulated(sdp.hold("county"), sdp.PureDP(0.1), SEXES, sd=3.0)
    assert_right(found)
    matrix = np.column_stack([np.ones(DOMAIN.size), MEN, URBAN])
    own = sdp.design(DOMAIN, sdp.hold("county"), sdp.PureDP(0.1)).mechanism.noise.cell_variance()
    A = np.linalg.pinv(matrix)
    diagonal = (A * own.reshape(-1)) @ A.T
    half = np.array(
        [1.99 * np.sqrt(np.diag(f.covariance - f.noise_covariance + diagonal)) for f in found]
    )
    off = np.abs(np.array([f.coefficients for f in found]) - BETA)
    hits = int((off <= half)[:, 1].sum())
    assert proportion_bounds(hits, TRIALS)[1] < LEVEL


# ----------------------------------------------------- few residuals that are free of noise

PLACES = sdp.Domain(
    [
        sdp.Axis("county", range(24), levels={"state": [f"s{i // 8}" for i in range(24)]}),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
NORTH = np.repeat([0.0, 0.0, 1.0], 16)
AREA = np.repeat(np.random.default_rng(3).normal(size=24), 2)
# Held, budget, residual standard deviation, digits: the noise has a standard deviation of 28 under
# PureDP(0.1), of 14 under GaussianDP(0.1); state × sex leaves 3 residuals that are free of it.
GRID = {
    "state × sex, little beside noise": (sdp.hold("state", "sex"), sdp.PureDP(0.1), 3.0, None),
    "state × sex, half the noise": (sdp.hold("state", "sex"), sdp.PureDP(0.1), 14.0, None),
    "state × sex, as much as noise": (sdp.hold("state", "sex"), sdp.GaussianDP(0.1), 14.0, None),
    "state, digits": (sdp.hold("state"), sdp.GaussianDP(0.1), 4.0, 0),
}
MORE = {
    f"{held}, {budget}, {sd}, {decimals}": (held, budget, sd, decimals)
    for held in (None, sdp.hold(), sdp.hold("state"), sdp.hold("state", "sex"), sdp.hold("county"))
    for budget in (sdp.PureDP(0.05), sdp.PureDP(0.5), sdp.GaussianDP(0.1))
    for sd in (0.5, 2.0, 8.0, 30.0)
    for decimals in (None, 0)
}
FEW_TRIALS = 600
ROOM = 0.01  # intervals are approximate: noise is not normal, and one prior serves all σ²


def fits(held, budget, sd, decimals, *, trials):
    """Regressions on places, where the covariates are constant in states, or nearly so."""
    X = {"men": np.tile([0.0, 1.0], 24), "north": NORTH, "area": AREA}
    matrix, beta = np.column_stack([np.ones(48), *X.values()]), np.array([100.0, 5.0, 3.0, 2.0])
    mechanism = sdp.design(PLACES, held, budget, decimals=decimals)
    rng = np.random.default_rng(11)
    exact = mechanism.mechanism.held.sums(np.zeros(PLACES.shape, np.int64))
    out = []
    for noise in replicates(mechanism, trials, seed=12):
        truth = matrix @ beta + rng.normal(0, sd, 48)
        release = Release(
            mechanism=mechanism.mechanism,
            values=truth.reshape(PLACES.shape) + noise,
            exact=exact,
            release_id="0" * 32,
            seeded=True,
            version="0",
        )
        out.append(regress(release, X))
    return out, beta


def by_old_degrees_of_freedom(found):
    """The twin: Student's t with n − p degrees of freedom, whatever σ² leans on."""
    half = stats.t.ppf((1 + LEVEL) / 2, found.df) * found.stderr
    return found.coefficients - half, found.coefficients + half


def share_covered(found, beta, ends):
    lower, upper = (np.array(side) for side in zip(*map(ends, found), strict=True))
    return ((lower <= beta) & (beta <= upper)).sum(axis=0)


@pytest.mark.parametrize("name", first(GRID, "state × sex, little beside noise", "state, digits"))
def test_intervals_cover_where_few_residuals_are_free_of_noise(name):
    found, beta = fits(*GRID[name], trials=FEW_TRIALS)
    for hits in share_covered(found, beta, lambda f: f.interval(LEVEL)):
        assert proportion_bounds(int(hits), FEW_TRIALS)[1] >= LEVEL - ROOM
    if name == "state × sex, little beside noise":
        old = share_covered(found, beta, by_old_degrees_of_freedom)
        assert min(proportion_bounds(int(hits), FEW_TRIALS)[1] for hits in old) < LEVEL - ROOM


@pytest.mark.soak
@pytest.mark.parametrize("name", MORE)
def test_intervals_cover_over_a_large_grid(name):
    found, beta = fits(*MORE[name], trials=4000)
    for hits in share_covered(found, beta, lambda f: f.interval(LEVEL)):
        assert proportion_bounds(int(hits), 4000)[1] >= LEVEL - ROOM


def test_without_noise_intervals_are_students():
    release = a_release(sdp.hold("county"))
    x = np.random.default_rng(2).normal(size=COUNTIES)
    found = regress(release, x, figures="county")  # held: no noise at all
    for level in (0.5, 0.95, 0.999):
        np.testing.assert_allclose(
            found.interval(level), found.interval(level, naive=True), rtol=1e-6
        )
    t = found.coefficients / found.naive_stderr
    np.testing.assert_allclose(found.pvalues, 2 * stats.t.sf(np.abs(t), COUNTIES - 2), atol=1e-9)


# ------------------------------------------------------------------------- against dense algebra


def a_release(held=None, *, decimals=None, domain=DOMAIN, seed=3):
    counts = np.random.default_rng(seed).poisson(200, domain.shape)
    mechanism = sdp.design(domain, held, sdp.PureDP(0.3), decimals=decimals)
    return mechanism.release(sdp.Table(counts, domain), seed=seed)


def test_the_coefficients_are_those_of_least_squares():
    release = a_release(sdp.hold("county"))
    matrix = np.column_stack([np.ones(DOMAIN.size), MEN, URBAN])
    y = np.asarray(release.values).ravel()
    plain = regress(release, SEXES)
    np.testing.assert_allclose(plain.coefficients, np.linalg.lstsq(matrix, y, rcond=None)[0])
    residual = y - matrix @ plain.coefficients
    naive = np.sqrt(residual @ residual / 77 * np.diag(np.linalg.inv(matrix.T @ matrix)))
    np.testing.assert_allclose(plain.naive_stderr, naive)
    assert plain.naive_r2 == pytest.approx(1 - residual @ residual / np.sum((y - y.mean()) ** 2))
    root = np.sqrt(POPULATION)
    weighted = regress(release, matrix, intercept=False, scale=POPULATION, weights=POPULATION)
    oracle = np.linalg.lstsq(matrix * root[:, None], y / POPULATION * root, rcond=None)[0]
    np.testing.assert_allclose(weighted.coefficients, oracle)
    assert weighted.names == ("x1", "x2", "x3")


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_noise_part_is_the_dense_one(decimals, scaled):
    release = a_release(sdp.hold("county"), decimals=decimals)
    scale = POPULATION if scaled else np.full(DOMAIN.size, 2.0)
    found = regress(release, SEXES, scale=scale)
    eye = np.eye(DOMAIN.size).reshape(-1, *DOMAIN.shape)
    cells = release.covariance(eye)
    A = np.linalg.pinv(np.column_stack([np.ones(DOMAIN.size), MEN, URBAN])) / scale
    np.testing.assert_allclose(found.noise_covariance, A @ cells @ A.T, atol=1e-9)
    assert 0 < found.noise_share <= 1
    # What the noise adds to the residuals, by the dense trace; digits' bounds are left out of it.
    plain = sdp.design(DOMAIN, sdp.hold("county"), sdp.PureDP(0.3)).mechanism
    y = np.asarray(release.values).ravel() / scale
    matrix = np.column_stack([np.ones(DOMAIN.size), MEN, URBAN])
    M = np.eye(DOMAIN.size) - matrix @ np.linalg.pinv(matrix)
    added = np.trace(M @ (plain.noise.covariance(eye) / np.outer(scale, scale)))
    assert found.noise_share == pytest.approx(min(1, added / (y @ M @ y)))


def test_margins_and_weights_are_the_same_outcome():
    domain = sdp.Domain(
        [
            sdp.Axis("county", list(range(12))),
            sdp.Axis("sex", ["F", "M"]),
            sdp.Axis("age", [0, 1, 2]),
        ]
    )
    x = np.random.default_rng(5).normal(size=24)
    for decimals in (None, 0):
        release = a_release(sdp.hold("county"), decimals=decimals, domain=domain)
        margin = regress(release, x, figures=("county", "sex"))
        rows = np.stack([release.where(county=c, sex=s) for c in range(12) for s in ("F", "M")])
        weighted = regress(release, x, figures=rows)
        for name in ("coefficients", "covariance", "noise_covariance", "naive_stderr"):
            np.testing.assert_allclose(getattr(margin, name), getattr(weighted, name), rtol=1e-9)
        assert margin.n == 24
    held = regress(release, x[:12], figures="county")
    assert not held.noise_covariance.any()
    np.testing.assert_allclose(held.stderr, held.naive_stderr)
    assert (held.noise_share, held.r2) == (0.0, pytest.approx(held.naive_r2))


def test_noise_attenuates_r2_and_the_correction_restores_it():
    domain = sdp.Domain([sdp.Axis("place", list(range(3000)))])
    rng = np.random.default_rng(1)
    x = rng.normal(size=3000)
    counts = np.rint(1000 + 30 * x + rng.normal(0, 30, 3000)).astype(int)
    release = sdp.design(domain, sdp.hold(), sdp.PureDP(0.05)).release(
        sdp.Table(counts, domain), seed=1
    )
    truth = np.corrcoef(x, counts)[0, 1] ** 2
    found = regress(release, x, names=["x"])
    assert found.naive_r2 < 0.75 * truth
    assert found.r2 == pytest.approx(truth, abs=0.05)
    assert found.sigma == pytest.approx(30, rel=0.1)
    assert found.noise_share == pytest.approx(1600 * 2 / (1600 * 2 + 900), abs=0.05)


def test_dataframes_name_the_coefficients():
    pandas, polars, arrow = (pytest.importorskip(m) for m in ("pandas", "polars", "pyarrow"))
    release = a_release(sdp.hold("county"))
    plain = regress(release, np.column_stack([MEN, URBAN]), names=["men", "urban"])
    for frame in (SEXES, pandas.DataFrame(SEXES), polars.DataFrame(SEXES), arrow.table(SEXES)):
        found = regress(release, frame)
        assert found.names == ("intercept", "men", "urban")
        np.testing.assert_allclose(found.covariance, plain.covariance)
    text = repr(plain)
    assert max(map(len, text.splitlines())) <= 100
    for word in ("men", "urban", "std. error", "naive s.e.", "R²", "is noise"):
        assert word in text
    assert set(plain.columns()) >= {"name", "coefficient", "stderr", "naive_stderr"}
    assert np.all((plain.pvalues >= 0) & (plain.pvalues <= 1))


def test_few_figures_and_perfect_fits():
    domain = sdp.Domain([sdp.Axis("group", [0, 1]), sdp.Axis("sex", ["F", "M"])])
    release = a_release(sdp.hold("group"), domain=domain)
    x = np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]]).T
    found = regress(release, x)  # fitted in both parts, the covariates leave no residuals
    assert found.df == 1
    assert np.all(np.isfinite(found.stderr))
    assert np.all(found.stderr > 0)
    domain = sdp.Domain([sdp.Axis("group", list(range(5))), sdp.Axis("sex", ["F", "M"])])
    mechanism = sdp.design(domain, sdp.hold("group"), sdp.PureDP(1.0))
    counts = np.repeat(10 * np.arange(1, 6), 2).reshape(5, 2)
    exact = regress(
        mechanism.release(sdp.Table(counts, domain), seed=1), np.arange(5.0), figures="group"
    )
    np.testing.assert_allclose(exact.coefficients, [20.0, 20.0])
    np.testing.assert_allclose(exact.stderr, 0.0, atol=1e-9)
    assert exact.r2 == pytest.approx(1.0)


def test_pure_noise_is_said_to_be():
    domain = sdp.Domain([sdp.Axis("place", list(range(30)))])
    mechanism = sdp.design(domain, None, sdp.PureDP(0.1))
    counts = sdp.Table(np.full(30, 500), domain)
    found = [regress(mechanism.release(counts, seed=s), np.arange(30.0)) for s in range(20)]
    small = [f for f in found if f.truncated]
    assert small
    assert all(f.sigma == 0 and np.all(f.stderr > 0) for f in small)
    assert "noise explains all residuals" in repr(small[0])


def test_errors_are_one_sentence():
    release = a_release(sdp.hold("county"))
    n = DOMAIN.size
    for X, more, sentence in [
        (np.ones((3, 1)), {}, "one row for each of 80 figures"),
        (np.ones((n, 1)), {}, "collinear"),
        (np.zeros((n, 1)), {}, "0 everywhere"),
        (np.column_stack([MEN, 1 - MEN]), {}, "collinear"),
        (np.random.default_rng(1).normal(size=(n, n)), {}, "more figures than coefficients"),
        (np.full(n, np.nan), {}, "finite"),
        (["a"] * n, {}, "columns of numbers"),
        (MEN, {"names": ["a", "b"]}, "`names` must name"),
        (MEN, {"scale": np.zeros(n)}, "`scale` must be different from 0"),
        (MEN, {"scale": np.ones(3)}, "`scale` must have one number"),
        (MEN, {"weights": -np.ones(n)}, "`weights` must be positive"),
        (MEN, {"figures": np.ones(DOMAIN.shape)}, "one row of weights"),
        (np.zeros((n, 0)), {"intercept": False}, "a covariate or an intercept"),
    ]:
        with pytest.raises(ReleaseError, match=sentence):
            regress(release, X, **more)
    silent = sdp.impose_on(DOMAIN, None, lambda x: x + 1.0, budget=sdp.PureDP(1.0))
    made = silent.release(sdp.Table(np.full(DOMAIN.shape, 5), DOMAIN))
    with pytest.raises(ReleaseError, match="without a variance"):
        regress(made, MEN)


def test_answers_without_axes_have_the_coefficients_of_least_squares():
    """A linear query has no domain, and its answers are figures like any others."""
    table = sdp.Table([30, 20, 10, 5, 40, 2], sdp.Domain([sdp.Axis("a", list("uvwxyz"))]))
    design = sdp.design(sdp.LinearQuery(np.eye(6)), None, sdp.PureDP(1.0), mechanism="projected")
    release = design.release(table, seed=1)
    x = np.arange(6.0)
    fitted = regress(release, {"x": x})
    naive = np.linalg.lstsq(np.column_stack([np.ones(6), x]), release.values, rcond=None)[0]
    np.testing.assert_allclose(fitted.coefficients, naive)
    variance = release.mechanism.law.variance / np.sum((x - x.mean()) ** 2)
    assert fitted.noise_covariance[1, 1] == pytest.approx(variance)
