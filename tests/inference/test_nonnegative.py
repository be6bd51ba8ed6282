"""The nearest table without negative values: against a quadratic programme, and its bias."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.inference import biased_non_negative

HELDS = {
    "nothing": None,
    "the total": sdp.hold(),
    "one margin": sdp.hold("a"),
    "a level": sdp.hold("g", "b"),
    "implied margins": sdp.hold("a") & sdp.hold(),
    "two margins": sdp.hold("a") & sdp.hold("b"),
    "crossing margins": sdp.hold("a", "b") & sdp.hold("b", "c") & sdp.hold("a", "c"),
}


def domain(shape, three):
    groups = [i // 2 for i in range(shape[0])]
    axes = [sdp.Axis("a", range(shape[0]), levels={"g": groups}), sdp.Axis("b", range(shape[1]))]
    return sdp.Domain([*axes, sdp.Axis("c", range(2))] if three else axes)


def residual(release, table):
    """How far the held totals are missed."""
    held = release.mechanism.held.margins
    pairs = zip(held, release.exact, strict=True)
    return max((float(np.abs(m.sum(table) - e).max()) for m, e in pairs), default=0.0)


def oracle(release):
    values = np.asarray(release.values, float)
    z = cp.Variable(values.size)
    rules = [z >= 0]
    for margin, exact in zip(release.mechanism.held.margins, release.exact, strict=True):
        cells = np.eye(values.size).reshape(-1, *values.shape)
        rows = np.array([margin.sum(cell).ravel() for cell in cells]).T
        rules.append(rows @ z == exact.ravel())
    scale = max(1.0, float(np.abs(values).max()))
    problem = cp.Problem(cp.Minimize(cp.sum_squares((z - values.ravel()) / scale)), rules)
    # The defaults of the solver stop at 1e-3 of a cell.
    exact = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-13)
    problem.solve(solver=cp.CLARABEL, **exact)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return z.value.reshape(values.shape)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # it is checked below
@pytest.mark.parametrize("held", HELDS)
@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("mean", [0.3, 3.0])
def test_it_is_the_solution_of_the_quadratic_programme(held, decimals, mean):
    rng = np.random.default_rng(4)
    for trial in range(3):
        shape = tuple(rng.integers(2, 5, size=2))
        where = domain(shape, held == "crossing margins")
        table = sdp.Table(rng.poisson(mean, where.shape), where)
        mechanism = sdp.design(where, HELDS[held], sdp.PureDP(0.7), decimals=decimals)
        release = mechanism.release(table, seed=trial)
        found, wanted = biased_non_negative(release), oracle(release)
        assert found.shape == where.shape
        assert (found >= 0).all()
        assert residual(release, found) < 1e-6
        distance = np.sum((found - release.values) ** 2)
        best = np.sum((np.maximum(wanted, 0) - release.values) ** 2)
        assert distance <= best * (1 + 1e-6) + 1e-6
        assert np.abs(found - wanted).max() < 1e-3
        # The twin: negative values moved to zero, and nothing done about the totals.
        clipped = np.maximum(np.asarray(release.values, float), 0)
        if held != "nothing" and (release.values < -0.5).any():
            assert residual(release, clipped) > 0.1


def test_a_table_without_negative_values_stays_as_it_is():
    where = domain((4, 3), three=False)
    for held in ("nothing", "the total", "one margin", "two margins"):
        mechanism = sdp.design(where, HELDS[held], sdp.PureDP(1.0), decimals=0)
        release = mechanism.release(sdp.Table(np.full((4, 3), 500), where), seed=1)
        assert np.allclose(biased_non_negative(release), release.values, atol=1e-6)


@pytest.mark.parametrize("held", ["the total", "one margin", "two margins"])
def test_empty_groups_become_zero(held):
    where = domain((4, 3), three=False)
    counts = np.zeros((4, 3), np.int64)
    if held != "the total":
        counts[1] = [5, 0, 9]
    release = sdp.design(where, HELDS[held], sdp.PureDP(0.2)).release(
        sdp.Table(counts, where), seed=2
    )
    found = biased_non_negative(release)
    assert (found >= 0).all()
    assert np.abs(found[counts.sum(1) == 0]).max() < 1e-6
    assert residual(release, found) < 1e-6


@pytest.mark.parametrize("held", ["nothing", "one margin", "two margins"])
def test_it_is_biased_and_the_release_is_not(held):
    """Over n releases the mean error of a cell has standard error s/√n; 6 of them are the bar."""
    where = domain((4, 3), three=False)
    large = np.arange(4)[:, None] % 3 == np.arange(3)
    counts = np.where(large, 30, 0)
    mechanism = sdp.design(where, HELDS[held], sdp.PureDP(0.5))
    table, n = sdp.Table(counts, where), 400
    releases = [mechanism.release(table, seed=seed) for seed in range(n)]
    unbiased = np.array([r.values - counts for r in releases])
    biased = np.array([biased_non_negative(r) - counts for r in releases])
    assert np.all(np.abs(unbiased.mean(0)) < 6 * mechanism.accuracy().stderr / np.sqrt(n))
    bar = 6 * biased.std(0) / np.sqrt(n)
    assert np.all((biased.mean(0) > bar)[~large])  # small cells upward
    if held != "nothing":
        assert np.all((biased.mean(0) < -bar)[large])  # large ones downward


def test_other_invariants_are_refused():
    where = domain((2, 2), three=False)
    rows = sdp.LinearInvariants(np.array([[1, 2, 0, -1]]))
    release = sdp.design(where, rows, sdp.PureDP(1.0)).release(
        sdp.Table(np.full((2, 2), 9), where), seed=1
    )
    with pytest.raises(ReleaseError, match="offered for held margins"):
        biased_non_negative(release)


def test_a_negative_total_is_refused():
    where = domain((2, 2), three=False)
    release = sdp.design(where, sdp.hold("a"), sdp.PureDP(1.0)).release(
        sdp.Table(np.full((2, 2), 9), where), seed=1
    )
    (exact,) = release.exact
    altered = dataclasses.replace(release, exact=(exact - 100,))
    with pytest.raises(ReleaseError, match="held total is negative"):
        biased_non_negative(altered)


def test_the_release_is_not_changed():
    where = domain((4, 3), three=False)
    table = sdp.Table(np.arange(12).reshape(4, 3), where)
    release = sdp.design(where, HELDS["two margins"], sdp.PureDP(0.3)).release(table, seed=1)
    before = release.values.copy()
    biased_non_negative(release)
    assert np.array_equal(release.values, before)


@pytest.mark.parametrize("mean", [5, pytest.param(0.2, marks=pytest.mark.soak)])
def test_a_hundred_thousand_cells_with_two_margins(mean):
    where = sdp.Domain([sdp.Axis("a", range(100)), sdp.Axis("b", range(1000))])
    counts = np.random.default_rng(1).poisson(mean, where.shape)
    mechanism = sdp.design(where, sdp.hold("a") & sdp.hold("b"), sdp.PureDP(0.5), decimals=0)
    release = mechanism.release(sdp.Table(counts, where), seed=1)
    found = biased_non_negative(release)
    assert (found >= 0).all()
    assert residual(release, found) < 1e-5


def test_totals_of_many_small_cells_are_kept():
    where = sdp.Domain(
        [sdp.Axis(name, range(k)) for name, k in zip("abc", (20, 50, 100), strict=True)]
    )
    counts = np.random.default_rng(0).poisson(0.2, where.shape)
    mechanism = sdp.design(where, sdp.hold("a") & sdp.hold("b"), sdp.PureDP(0.5), decimals=0)
    release = mechanism.release(sdp.Table(counts, where), seed=1)
    assert residual(release, biased_non_negative(release)) < 1e-6


def test_sums_in_units_keep_their_totals():
    domain = sdp.Domain([sdp.Axis("c", range(6), levels={"s": list("aaaabb")})])
    query = sdp.ClippedSums(domain, "income", 0.0, 50.0, unit=0.1)
    release = sdp.design(query, sdp.hold("s"), sdp.PureDP(1.0)).release(
        np.arange(6) * 1000 + 700, seed=1
    )
    found = biased_non_negative(release)
    assert found.reshape(6)[:4].sum() == pytest.approx(float(release.margin("s").value[0]))
