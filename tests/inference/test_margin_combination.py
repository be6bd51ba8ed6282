"""Combined releases of margins against dense least squares, and by simulation."""

import math

import numpy as np
import pytest
from tests import dense
from tests.statistical import ALPHA, mean_p, proportion_bounds, replicates_for_variance

import subspacedp as sdp
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.inference import (
    combine,
    regress,
    replicates,
    test_equal,
    test_independence,
    test_value,
)
from subspacedp.inference.combined_noise import CombinedNoise, DensePooling
from subspacedp.mechanisms.error_laws.joint import Averaging
from subspacedp.mechanisms.marginals.pooling import TreePooling

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", range(7), levels={"state": list("AABBBBC")}),
        sdp.Axis("race", ["x", "y", "z"]),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
TABLE = sdp.Table(np.random.default_rng(4).poisson(40, DOMAIN.shape), DOMAIN)
MARGINS = [["county", "race"], ["state", "sex"], []]
WORKLOAD = sdp.Margins(DOMAIN, MARGINS)
UNEVEN = sdp.Margins(DOMAIN, MARGINS, [100.0, 1.0, 1.0])
GAUSS, LAPLACE = sdp.ZCDP(0.3), sdp.PureDP(0.8)


def released(query, held, budget, seed, *, domain=DOMAIN, table=TABLE, **options):
    del domain
    return sdp.design(query, held, budget, **options).release(table, seed=seed)


# ---------------------------------------------------------------------------------- the oracle


def sums(query):
    """The answers of a query as sums of cells, one a row."""
    if isinstance(query, sdp.Margins):
        return np.concatenate([dense.margin_matrix(DOMAIN, m.names) for m in query.margins])
    return np.eye(DOMAIN.size)


def oracle(releases, helds, total):
    """Least squares for the cells themselves, in the directions that the releases tell."""
    rows = [dense.matrix(DOMAIN, h) for h in helds if h is not None]
    rows += [np.ones((1, DOMAIN.size))] if total else []
    C = np.concatenate([np.zeros((0, DOMAIN.size)), *rows])
    rank = np.linalg.matrix_rank(C) if len(C) else 0
    U = np.linalg.svd(C)[2][rank:].T if len(C) else np.eye(DOMAIN.size)
    base = TABLE.counts.ravel().astype(float)  # has all exact values
    gram, right = np.zeros((U.shape[1],) * 2), np.zeros(U.shape[1])
    for release in releases:
        A, n = sums(release.query), release.query.size
        noise = release.mechanism.noise
        units = np.eye(n).reshape(n, *release.query.shape)
        inside = np.stack([noise.inside(u).ravel() for u in units])
        V = (inside * noise.variances(inside.shape[1])) @ inside.T
        inverse = np.linalg.pinv(V, rcond=1e-10, hermitian=True)
        gram += U.T @ A.T @ inverse @ A @ U
        right += U.T @ A.T @ inverse @ (release.values.ravel() - A @ base)
    covariance = U @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ U.T
    theta = np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ right
    return base + U @ theta, covariance


def check(releases, helds, *, total=False, kind=None):
    combined = combine(releases)
    assert kind is None or isinstance(combined.noise.pooling, kind)
    cells, covariance = oracle(releases, helds, total)
    A, n = sums(combined.query), combined.query.size
    wanted, spread = A @ cells, A @ covariance @ A.T
    assert np.allclose(combined.values.ravel(), wanted, rtol=0, atol=1e-5)
    found = combined.covariance(np.eye(n).reshape(n, *combined.query.shape))
    assert np.allclose(found, spread, rtol=0, atol=1e-5 * spread.max())
    assert np.allclose(combined.stderr().ravel() ** 2, np.diag(spread), atol=1e-5 * spread.max())
    return combined


HELDS = {
    "nothing": None,
    "states": sdp.hold("state"),
    "total": sdp.hold(),
    "race": sdp.hold("race"),
}


@pytest.mark.parametrize("relation", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=["add", "replace"])
@pytest.mark.parametrize("budget", [GAUSS, LAPLACE], ids=["contrasts", "tables"])
@pytest.mark.parametrize("held", HELDS.values(), ids=HELDS)
def test_one_workload_measured_alike_or_not_is_dense_least_squares(held, budget, relation):
    total = relation.keeps_total
    one, two = (released(WORKLOAD, held, budget, s, neighbours=relation) for s in (1, 2))
    check([one, two], [held], total=total, kind=Averaging)
    other = released(UNEVEN, held, sdp.ZCDP(0.1), 3, neighbours=relation)
    combined = check([one, other], [held], total=total)
    assert combined.best
    assert not isinstance(combined.noise.pooling, Averaging)


@pytest.mark.parametrize("held", [None, sdp.hold("state")], ids=["nothing", "states"])
def test_cells_margins_and_other_margins_are_one_estimate(held):
    cells = released(DOMAIN, sdp.hold("sex"), GAUSS, 1)
    margins = released(WORKLOAD, held, GAUSS, 2)
    others = released(
        sdp.Margins(DOMAIN, [["race", "sex"], ["county"]]), sdp.hold("race"), GAUSS, 3
    )
    table = released(DOMAIN, held, LAPLACE, 4, mechanism="marginals")
    helds = [sdp.hold("sex"), held, sdp.hold("race")]
    combined = check([margins, cells], helds[:2], kind=DensePooling)
    assert combined.values.shape == DOMAIN.shape
    assert np.allclose(combined.margin("sex").stderr, 0)
    union = check([margins, others], helds[1:], kind=DensePooling)
    assert [m.names for m in union.query.margins][-1] == ("county",)
    assert union.margin("race").value.tolist() == TABLE.counts.sum(axis=(0, 2)).tolist()
    check([table, others, cells, margins], helds, kind=DensePooling)


def test_a_smoother_for_projected_releases_is_near_the_best_and_says_so():
    relation = sdp.AddRemoveOne()
    one = released(WORKLOAD, sdp.hold(), GAUSS, 1, neighbours=relation)
    two = released(UNEVEN, sdp.hold(), sdp.ZCDP(0.1), 2, neighbours=relation)
    combined = combine([one, two])
    tree = TreePooling(combined.noise.noises)
    assert not tree.best
    near = CombinedNoise(
        designs=combined.designs, noises=combined.noise.noises, pooling=tree, query=combined.query
    )
    best, found = np.sum(combined.stderr() ** 2), np.sum(near.cell_variance())
    assert best <= found * (1 + 1e-9)
    assert found <= 1.01 * best
    # The estimate is still the stated map of the noise: values, and variances one by one.
    values = tree.mix([one.values, two.values], combined.held, combined.exact)
    base = WORKLOAD.answers(TABLE)
    maps = [np.stack(rows) for rows in zip(*map(tree.under, np.eye(base.size)), strict=True)]
    moved = sum(m @ (r.values - base) for m, r in zip(maps, (one, two), strict=True))
    assert np.allclose(values, base + moved, atol=1e-6)


# ------------------------------------------------------------------------------- by simulation

STATES = 3 * replicates_for_variance(3.0, off=0.5)
SIZES = (1, 2, 3)


def many(decimals, seed, weights=(None, (100.0, 1.0)), budgets=(0.5, 0.1)):
    """One simulation for every held state: their counties' errors are independent."""
    state = np.repeat(np.arange(STATES), [SIZES[i % 3] for i in range(STATES)])
    domain = sdp.Domain(
        [
            sdp.Axis("county", range(state.size), levels={"state": state.tolist()}),
            sdp.Axis("sex", ["F", "M"]),
        ]
    )
    table = sdp.Table(np.random.default_rng(seed).integers(0, 60, domain.shape), domain)
    margins = [["county", "sex"], ["county"]]
    releases = [
        sdp.design(
            sdp.Margins(domain, margins, w), sdp.hold("state"), sdp.ZCDP(b), decimals=decimals
        ).release(table, seed=seed + i)
        for i, (w, b) in enumerate(zip(weights, budgets, strict=True))
    ]
    first = np.flatnonzero(np.diff(state, prepend=-1))
    return table, releases, first[2::3]  # the first county of every state of three


@pytest.mark.parametrize("decimals", [None, 0], ids=["real", "whole"])
def test_stderr_is_right_and_covers_and_twins_are_caught(decimals):
    table, releases, counties = many(decimals, 7)
    combined = combine(releases)
    assert isinstance(combined.noise.pooling, TreePooling)
    truth = combined.query.answers(table)
    place = 2 * counties  # women of the county
    errors = (combined.values - truth)[place]
    weights = np.zeros((2, truth.size))
    weights[[0, 1], place[:2]] = 1.0
    some = combined.estimate(weights)
    assert np.allclose(some.stderr, some.stderr[0])
    stated = float(some.stderr[0]) ** 2
    assert mean_p(errors, 0.0) > ALPHA
    if decimals is None:
        assert mean_p(errors**2, stated) > ALPHA
    assert mean_p(errors**2, stated / 1.5) < ALPHA  # what is stated is not too large by a half
    half = float(some.margin_of_error(0.9)[0])
    hits = np.count_nonzero(np.abs(errors) <= half)
    assert proportion_bounds(hits, errors.size)[1] >= 0.9
    # Held totals: as they are, in every release and in the estimate.
    states = combined.margin("state")
    assert np.array_equal(states.value, combined.domain.margin("state").sum(table.counts).ravel())
    assert np.all(states.fixed)
    # Twins that state this error: the worse release alone, and weights the wrong way round.
    worse = (releases[1].values - truth)[place]
    assert mean_p(worse**2, stated) < ALPHA
    swapped = combine(releases[::-1]).noise.pooling.mix(
        [np.asarray(r.values, float) for r in releases], combined.held, combined.exact
    )
    assert mean_p((swapped - truth)[place] ** 2, stated) < ALPHA


@pytest.mark.parametrize("decimals", [None, 0], ids=["real", "whole"])
def test_replicates_have_the_covariance_that_is_stated(decimals):
    options = {"decimals": decimals, "neighbours": sdp.AddRemoveOne()}
    one = released(WORKLOAD, sdp.hold("state"), GAUSS, 1, **options)
    two = released(UNEVEN, sdp.hold("state"), LAPLACE, 2, **options)
    combined = combine([one, two])
    number = 1500
    draws = np.stack(list(replicates(combined, number, seed=3)))
    V = combined.covariance(np.eye(combined.query.size))
    free = np.diag(V) > 1e-9
    assert np.abs(draws[:, ~free]).max(initial=0) < 1e-7
    values, vectors = np.linalg.eigh(V)
    noisy = values > 1e-9 * values[-1]
    # Along every principal direction, whitened: mean 0 and variance 1, at most 1 with digits.
    whitened = draws @ vectors[:, noisy] / np.sqrt(values[noisy])
    for direction in whitened.T:
        assert mean_p(direction, 0.0) > ALPHA
        if decimals is None:
            assert mean_p(direction**2, 1.0) > ALPHA
        else:
            assert direction.var() < 1 + 6.5 * math.sqrt(3 / number)
    squares = (whitened**2).mean(axis=1)
    assert mean_p(squares, 1.25) < ALPHA


# ------------------------------------------------------------------------------- what uses it


@pytest.mark.parametrize("decimals", [None, 0], ids=["real", "whole"])
def test_tests_and_regression_take_combined_margins(decimals):
    releases = [
        released(query, sdp.hold("state"), sdp.ZCDP(2.0), s, decimals=decimals)
        for s, query in enumerate((WORKLOAD, UNEVEN))
    ]
    combined = combine(releases)
    women, men = (combined.where(state="B", sex=s) for s in "FM")
    true = float(TABLE.counts[2:6, :, 0].sum())
    assert test_value(combined, women, true).pvalue > 1e-6
    assert test_value(combined, women, true + 40).pvalue < 1e-3
    assert 0 <= test_equal(combined, women, men).pvalue <= 1
    assert 0 <= test_equal(combined, women, men, sampling="poisson").pvalue <= 1
    fitted = test_independence(combined, rows="state", columns="sex", seed=1)
    assert 0 <= fitted.pvalue <= 1
    X = (np.arange(21) % 3 == 0)[:, None].astype(float)
    slope = regress(combined, X, figures=["county", "race"])
    alone = regress(releases[0], X, figures=["county", "race"])
    assert slope.stderr[1] <= 1.05 * alone.stderr[1]
    ratio = combined.ratio(women, women + men)
    low, high = ratio.interval(0.999)
    assert low < true / TABLE.counts[2:6].sum() < high


def test_digits_of_several_margins_have_one_covariance():
    """The roundings of two weighted sums are the same ones, whichever tables they come from."""
    release = released(sdp.Margins(DOMAIN, [["county", "race"], ["county", "sex"]]), None, GAUSS, 1,
                       decimals=0)  # fmt: skip
    query = release.query
    county = np.zeros((2, query.size))
    for row, (start, groups) in enumerate(((0, 3), (21, 2))):
        county[row, start : start + groups] = 1.0  # the total of the first county, twice
    assert county[0] @ release.values == county[1] @ release.values
    covariance = release.covariance(county)
    assert covariance[0, 0] == pytest.approx(covariance[1, 1])
    assert covariance[0, 1] == pytest.approx(covariance[0, 0])


def test_one_release_of_margins_alone_is_itself():
    release = released(WORKLOAD, sdp.hold("state"), LAPLACE, 1)
    combined = combine(release)
    assert np.allclose(combined.values, release.values, atol=1e-9)
    assert np.allclose(combined.stderr(), release.stderr())
    assert np.allclose(combined.interval(0.9), release.interval(0.9), rtol=1e-6)


def test_what_cannot_be_combined_is_one_sentence():
    release = released(WORKLOAD, None, GAUSS, 1)
    questions = released(sdp.LinearQuery(np.eye(DOMAIN.size)), None, GAUSS, 2)
    with pytest.raises(ReleaseError, match="tables and margins of one domain; release 2"):
        combine([release, questions])
    renamed = sdp.Domain([sdp.Axis("county", range(7)), *DOMAIN.axes[1:]])
    other = sdp.design(sdp.Margins(renamed, [["county", "race"]]), None, GAUSS)
    with pytest.raises(ReleaseError, match="differs from the first"):
        combine([release, other.release(sdp.Table(TABLE.counts, renamed), seed=3)])
    moved = TABLE.counts.copy()
    moved[0, 0, 0] += 1
    held = [
        released(WORKLOAD, sdp.hold("state"), GAUSS, s, table=t)
        for s, t in enumerate((TABLE, sdp.Table(moved, DOMAIN)))
    ]
    with pytest.raises(InvariantError, match="disagree"):
        combine(held)
    totals = [
        released(q, None, GAUSS, s, table=t, neighbours=sdp.ReplaceOne())
        for s, (q, t) in enumerate(
            ((WORKLOAD, TABLE), (sdp.Margins(DOMAIN, ["race"]), sdp.Table(moved, DOMAIN)))
        )
    ]
    with pytest.raises(InvariantError, match="no table has all"):
        combine(totals)
    big = sdp.Domain([sdp.Axis("county", range(1500)), sdp.Axis("sex", ["F", "M"])])
    table = sdp.Table(np.ones(big.shape, np.int64), big)
    pair = [
        sdp.design(q, None, GAUSS).release(table, seed=1)
        for q in (big, sdp.Margins(big, [["county"], ["sex"]]))
    ]
    with pytest.raises(ReleaseError, match="more than the 2,000"):
        combine(pair)
    bounded = [
        sdp.design(WORKLOAD, h, GAUSS, capped=True).release(TABLE, everything=TABLE, seed=s)
        for s, h in enumerate((sdp.hold("state"), sdp.hold("race")))
    ]
    with pytest.raises(ReleaseError, match="hold the same margins"):
        combine(bounded)
