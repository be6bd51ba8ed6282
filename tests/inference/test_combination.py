"""Combined releases against dense generalised least squares, exact fractions and simulation."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import dense
from tests.statistical import (
    ALPHA,
    kurtosis,
    mean_p,
    proportion_bounds,
    replicates_for_variance,
)
from tests.strategies import domains, families, seeds

import subspacedp as sdp
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.inference import (
    regress,
    replicate_interval,
    replicates,
    test_equal,
    test_homogeneity,
    test_independence,
    test_value,
)
from subspacedp.inference.combination import combine
from subspacedp.inference.combined_noise import DensePooling
from subspacedp.mechanisms.figures import cells_apart, groups_apart
from subspacedp.noise import RoundedGaussian

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", range(5), levels={"state": ["A", "A", "B", "B", "B"]}),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
COUNTS = np.array([[13, 4], [0, 7], [25, 31], [2, 2], [9, 0]])
TABLE = sdp.Table(COUNTS, DOMAIN)
LAPLACE, GAUSS = sdp.PureDP(0.7), sdp.GaussianDP(0.5)


def released(held, budget, seed, *, domain=DOMAIN, table=TABLE, **options):
    return sdp.design(domain, held, budget, **options).release(table, seed=seed)


# ---------------------------------------------------------------------------------- the oracle


def oracle(releases, matrices, covariances):
    """Constrained generalised least squares, dense: the estimate and its covariance."""
    C = np.concatenate(matrices)
    truth_sums = np.concatenate(
        [m @ np.asarray(r.values, float).ravel() for m, r in zip(matrices, releases, strict=True)]
    )
    x0 = np.linalg.lstsq(C, truth_sums, rcond=None)[0] if C.size else np.zeros(C.shape[1])
    rank = np.linalg.matrix_rank(C) if C.size else 0
    n = C.shape[1]
    U = np.linalg.svd(C)[2][rank:].T if C.size else np.eye(n)
    inverses = [np.linalg.pinv(v, rcond=1e-10, hermitian=True) for v in covariances]
    gram = sum(U.T @ v @ U for v in inverses)
    right = sum(
        U.T @ v @ (np.asarray(r.values, float).ravel() - x0)
        for v, r in zip(inverses, releases, strict=True)
    )
    return x0 + U @ np.linalg.solve(gram, right), U @ np.linalg.inv(gram) @ U.T


def check_against_oracle(releases, matrices, covariances):
    combined = combine(releases)
    values, covariance = oracle(releases, matrices, covariances)
    n = values.size
    scale = float(np.sqrt(np.abs(covariance).max(initial=0.0))) + 1e-6 * np.abs(values).max()
    assert np.allclose(combined.values.ravel(), values, rtol=0, atol=1e-6 * scale + 1e-9)
    eye = np.eye(n).reshape(n, *combined.values.shape)
    found = combined.covariance(eye)
    assert np.allclose(found, covariance, rtol=0, atol=1e-6 * np.abs(covariance).max() + 1e-12)
    assert np.allclose(combined.stderr().ravel() ** 2, np.diag(found), atol=1e-9 * found.max())
    return combined


@given(data=st.data())
def test_margins_agree_with_dense_least_squares(data):
    domain = data.draw(domains(max_cells=30))
    table = sdp.Table(np.random.default_rng(data.draw(seeds)).integers(0, 99, domain.shape), domain)
    releases, matrices, covariances = [], [], []
    for number in range(data.draw(st.integers(1, 3))):
        held = data.draw(families(domain, max_margins=2))
        assume(sdp.null_space(domain, held).dimension > 0)
        budget = data.draw(st.sampled_from([LAPLACE, GAUSS, sdp.PureDP(2.0), sdp.ZCDP(0.3)]))
        mechanism = sdp.design(domain, held, budget)
        releases.append(mechanism.release(table, seed=number))
        C = dense.matrix(domain, held)
        matrices.append(C)
        covariances.append(mechanism.mechanism.noise.each * dense.float_projector(C))
    all_rows = np.concatenate(matrices)
    assume(dense.rank(all_rows) < domain.size)
    check_against_oracle(releases, matrices, covariances)


def test_bases_and_linear_invariants_agree_with_dense_least_squares():
    A = np.array([[1, 2, 0, 0, 1, 0, 0, 0, 1, 0], [0, 0, 1, 1, 1, 1, 0, 0, 0, 0]])
    B = np.array([[0, 0, 1, 1, 1, 1, 0, 0, 0, 0], [1, -1, 0, 0, 0, 0, 1, -1, 0, 0]])
    sexes = dense.margin_matrix(DOMAIN, ("sex",))
    states = dense.margin_matrix(DOMAIN, ("state",))
    releases = [
        released(sdp.LinearInvariants(A), LAPLACE, 1),
        released(sdp.LinearInvariants(B), GAUSS, 2, mechanism="extended"),
        released(sdp.hold("sex"), LAPLACE, 3, mechanism="extended"),
        released(sdp.hold("state"), sdp.GaussianDP(1.0), 4, mechanism="extended"),
    ]
    matrices = [A, B, sexes, states]
    covariances = [
        r.mechanism.noise.each * dense.float_projector(m)
        for r, m in zip(releases, matrices, strict=True)
    ]
    combined = check_against_oracle(releases, matrices, covariances)
    assert combined.weights == pytest.approx(
        np.array([1 / r.mechanism.noise.each for r in releases])
        / sum(1 / r.mechanism.noise.each for r in releases)
    )
    assert np.allclose(np.concatenate(matrices) @ combined.values.ravel(),
                       np.concatenate(matrices) @ COUNTS.ravel())  # fmt: skip
    low, high = combined.interval(0.9)
    assert np.all(low <= combined.values)
    assert np.all(combined.values <= high)


def test_unequal_grids_are_solved_as_matrices():
    budget = sdp.GaussianDP(8.0)
    first = released(sdp.hold("state"), budget, 1, mechanism="extended")
    second = released(sdp.hold("sex"), sdp.GaussianDP(3.0), 2)
    noise = first.mechanism.noise
    grids = np.broadcast_to(noise.denominators, (5, 2)).ravel()
    variances = [RoundedGaussian(noise.law.scale * int(d)).variance / d**2 for d in grids]
    assert max(variances) > 1.05 * min(variances)
    matrices = [dense.margin_matrix(DOMAIN, (name,)) for name in ("state", "sex")]
    projector = dense.float_projector(matrices[0])
    covariances = [
        projector @ np.diag(variances) @ projector,
        second.mechanism.noise.each * dense.float_projector(matrices[1]),
    ]
    combined = check_against_oracle([first, second], matrices, covariances)
    assert isinstance(combined.noise.pooling, DensePooling)
    assert sum(combined.weights) == pytest.approx(1.0)
    law = combined.noise.law_of(np.eye(10)[3].reshape(5, 2))
    assert law.variance == pytest.approx(combined.stderr()[1, 1] ** 2)
    assert combined.margin("county").interval(0.9)[0].shape == (5,)


def test_empty_cells_of_one_release_are_known_to_all():
    empty = np.zeros((5, 2), bool)
    empty[1, 0] = empty[4, 1] = True
    releases = [
        released(sdp.hold("sex") & sdp.zeros(empty), LAPLACE, 1),
        released(sdp.hold("state"), LAPLACE, 2),
    ]
    combined = combine(releases)
    assert combined.values[empty].tolist() == [0.0, 0.0]
    assert np.allclose(combined.stderr()[empty], 0)
    assert np.allclose(combined.values.sum(axis=0), COUNTS.sum(axis=0))
    C = np.concatenate(
        [
            dense.margin_matrix(DOMAIN, ("sex",)),
            dense.margin_matrix(DOMAIN, ("state",)),
            np.eye(10, dtype=int)[empty.ravel()],
        ]
    )
    variance = sum(1 / r.mechanism.noise.each for r in releases) ** -1
    assert np.allclose(combined.stderr().ravel() ** 2, variance * np.diag(dense.float_projector(C)))


# --------------------------------------------------------------------------- exactly, in fractions


@pytest.mark.parametrize("decimals", [None, 0])
def test_two_alike_are_the_exact_mean_inside_and_the_exact_totals_outside(decimals):
    helds = [sdp.hold("state"), sdp.hold("sex")]
    releases = [released(h, LAPLACE, s, decimals=decimals) for s, h in enumerate(helds)]
    combined = combine([releases[0], replace(releases[0], release_id="other")])
    assert combined.weights == (0.5, 0.5)
    whole = released(helds[0], LAPLACE, 1, decimals=0), released(helds[0], LAPLACE, 2, decimals=0)
    both = combine(whole)
    C = dense.matrix(DOMAIN, helds[0])
    numerators, denominator = dense.row_projector(C)
    total = sum(r.values.ravel().astype(object) for r in whole)
    exact_total = numerators @ COUNTS.ravel().astype(object)
    inside = numerators @ total
    for i in range(10):
        wanted = (
            Fraction(int(total[i]), 2)
            - Fraction(int(inside[i]), 2 * denominator)
            + Fraction(int(exact_total[i]), denominator)
        )
        assert abs(Fraction(both.values.ravel()[i]) - wanted) <= 8 * math.ulp(
            float(abs(wanted)) + 1
        )
    sums = C @ both.values.ravel()
    assert np.allclose(sums, C @ COUNTS.ravel(), rtol=1e-14)
    joint = combine(releases)
    assert joint.margin("state").value.tolist() == [24, 69]
    assert joint.margin("sex").value.tolist() == [49, 44]
    assert np.all(joint.margin("state").fixed)


def test_one_release_alone_is_itself():
    release = released(sdp.hold("state"), GAUSS, 1)
    combined = combine([release])
    assert np.allclose(combined.values, release.values, rtol=1e-14, atol=1e-12)
    assert np.allclose(combined.stderr(), release.stderr())
    assert np.allclose(combined.interval(0.9), release.interval(0.9), rtol=1e-6)


def test_what_is_fixed_by_all_together_is_exact():
    square = sdp.Domain([sdp.Axis("a", ["x", "y"])])
    table = sdp.Table([3, 4], square)
    one = released(sdp.LinearInvariants([[1, 1]]), LAPLACE, 1, domain=square, table=table)
    two = released(sdp.LinearInvariants([[1, -1]]), LAPLACE, 2, domain=square, table=table)
    combined = combine([one, two])
    assert np.allclose(combined.values, [3, 4], atol=1e-12)
    assert np.allclose(combined.stderr(), 0)


# --------------------------------------------------------------------------------- classes of laws


@pytest.mark.parametrize("decimals", [(None, None), (0, 0), (0, 1), (0, None)], ids=str)
@pytest.mark.parametrize("same", [True, False], ids=["same held", "other held"])
def test_classes_have_the_laws_of_their_figures(decimals, same):
    helds = [sdp.hold("state"), sdp.hold("state") if same else sdp.hold("sex")]
    budgets = [LAPLACE, sdp.PureDP(1.0)]
    combined = combine(
        released(h, b, s, decimals=d)
        for s, (h, b, d) in enumerate(zip(helds, budgets, decimals, strict=True))
    )
    apart = cells_apart(combined.noise, (5, 2))
    found = combined.cells()
    exact = np.array(
        [combined.noise.variance(e.reshape(5, 2)) for e in np.eye(10)]
    ).reshape(5, 2)  # fmt: skip
    assert np.allclose(combined.stderr() ** 2, exact, rtol=1e-9)
    margins = found.margin_of_error(0.9)
    for i in range(0, 10, 3):
        wanted = apart.law(i).margin_of_error(1 - 0.9)
        assert margins.ravel()[i] == pytest.approx(wanted, rel=1e-3)
    sexes = combined.margin("sex")
    others = groups_apart(combined.noise, DOMAIN.margin("sex"))
    assert np.all(sexes.stderr**2 >= others.variance() - 1e-9)
    if same:
        wanted = others.law(0).margin_of_error(0.1)
        assert sexes.margin_of_error(0.9).ravel()[0] == pytest.approx(wanted, rel=1e-3)
    weights = combined.where(state="B", sex="F")
    one = combined.estimate(weights)
    assert one.value == pytest.approx(float(np.sum(combined.values * weights)))
    assert one.stderr**2 == pytest.approx(combined.covariance(weights)[0, 0])


def test_declared_variances_are_enough_for_weights_and_chebyshev():
    rng = np.random.default_rng(1)
    imposed = sdp.impose_on(
        DOMAIN, sdp.hold("sex"), lambda x: x + rng.normal(0, 2, x.shape), budget=LAPLACE, variance=4
    )
    combined = combine([imposed.release(TABLE), released(sdp.hold("state"), LAPLACE, 1)])
    assert combined.cells().methods() == {"Chebyshev"}
    assert combined.weights[0] > combined.weights[1]


# -------------------------------------------------------------------------------- by simulation


def many(number, budgets, seed, decimals=None):
    """One pair of releases a group: rows of three cells, of which the second release holds two."""
    domain = sdp.Domain([sdp.Axis("row", range(number)), sdp.Axis("cell", range(3))])
    truth = np.random.default_rng(seed).integers(0, 50, domain.shape)
    table = sdp.Table(truth, domain)
    helds = [sdp.hold("row"), sdp.hold("row")]
    return truth, [
        sdp.design(domain, h, b, decimals=decimals).release(table, seed=seed + i)
        for i, (h, b) in enumerate(zip(helds, budgets, strict=True))
    ]


def test_stderr_is_right_and_wrong_weights_are_caught():
    budgets = [sdp.PureDP(1.0), sdp.PureDP(2.0)]
    law = sdp.design(DOMAIN, sdp.hold("state"), budgets[0]).mechanism.law
    # Kurtosis of a sum is at most that of one; equal weights are 1.6 times worse here.
    number = replicates_for_variance(kurtosis(law), off=0.08)
    truth, releases = many(number, budgets, 11)
    combined = combine(releases)
    errors = (combined.values - truth)[:, 0]
    assert mean_p(errors, 0.0) > ALPHA
    stated = combined.stderr()[0, 0] ** 2
    assert mean_p(errors**2, stated) > ALPHA
    assert mean_p(errors**2, 1.08 * stated) < ALPHA
    for release in releases:
        single = (release.values - truth)[:, 0]
        assert np.mean(single**2) > np.mean(errors**2)
        assert release.stderr()[0, 0] ** 2 > stated
    equal = (0.5 * releases[0].values + 0.5 * releases[1].values - truth)[:, 0]
    assert mean_p(equal**2, stated) < ALPHA
    assert np.mean(equal**2) > 1.2 * np.mean(errors**2)


@pytest.mark.parametrize("decimals", [None, 0])
def test_intervals_cover(decimals):
    truth, releases = many(20_000, [sdp.PureDP(1.0), sdp.PureDP(1.7)], 5, decimals)
    low, high = combine(releases).interval(0.9)
    covered = np.count_nonzero((low <= truth)[:, 0] & (truth <= high)[:, 0])
    bounds = proportion_bounds(covered, 20_000)
    assert bounds[1] >= 0.9
    if decimals is None:
        assert bounds[0] < 0.92  # no wider than it must be
    # A twin that takes the noise of the better release alone for the width is caught.
    half = (high - low)[:, 0] / 2 * 0.9
    near = np.abs(combine(releases).values - truth)[:, 0] <= half
    if decimals is None:
        assert proportion_bounds(np.count_nonzero(near), 20_000)[1] < 0.9


@pytest.mark.parametrize("decimals", [None, 0])
def test_a_thousand_pairs_that_hold_different_things(decimals):
    first = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(1.0), decimals=decimals)
    second = sdp.design(DOMAIN, sdp.hold("sex"), sdp.PureDP(1.5))
    weights = np.zeros((5, 2))
    weights[2, 0], weights[0, 1] = 1.0, -1.0
    truth = float(np.sum(weights * COUNTS))
    errors, singles, hits = [], [], 0
    half = None
    for seed in range(1000):
        releases = [first.release(TABLE, seed=2 * seed), second.release(TABLE, seed=2 * seed + 1)]
        combined = combine(releases)
        figure = combined.estimate(weights)
        if half is None:
            half, stated = figure.margin_of_error(0.9), figure.stderr
        errors.append(figure.value - truth)
        singles.append([float(np.sum(weights * r.values)) - truth for r in releases])
        hits += abs(errors[-1]) <= half
    off = np.array(errors)
    assert mean_p(off, 0.0) > ALPHA
    # With digits the stated variance is a bound.
    assert mean_p(off**2, stated**2) > ALPHA or (decimals == 0 and np.mean(off**2) < stated**2)
    assert mean_p(off**2, (1.5 * stated) ** 2) < ALPHA
    assert np.all(np.mean(np.square(singles), axis=0) > 1.2 * np.mean(off**2))
    low, high = proportion_bounds(hits, 1000)
    assert high > 0.9
    assert low < (0.91 if decimals is None else 0.96)


# ------------------------------------------------------------------------------------- refusals


def test_the_same_noise_is_not_combined_with_itself(tmp_path):
    release = released(sdp.hold("state"), LAPLACE, 1)
    release.save(tmp_path / "release")
    loaded = sdp.Release.load(tmp_path / "release")
    for other in (release, loaded, released(sdp.hold("state"), LAPLACE, 1)):
        with pytest.raises(ReleaseError, match="given twice"):
            combine([release, other])
    # A loaded copy goes with other releases, although its domain is another object.
    assert combine([loaded, released(sdp.hold("sex"), LAPLACE, 2)]).held.rank == 3


def test_contradictions_are_named():
    other = sdp.Table(COUNTS + 1, DOMAIN)
    first = released(sdp.hold("state"), LAPLACE, 1)
    with pytest.raises(InvariantError, match="disagree on a total"):
        combine([first, released(sdp.hold("sex"), LAPLACE, 2, table=other)])
    with pytest.raises(InvariantError, match="disagree on a total"):
        combine([first, released(sdp.hold("state"), LAPLACE, 2, table=other)])
    rows = sdp.LinearInvariants(np.ones((1, 10), int))
    with pytest.raises(InvariantError, match="contradict each other"):
        combine([first, released(rows, LAPLACE, 2, table=other)])
    assert combine([first, released(rows, LAPLACE, 2)]).values.sum() == pytest.approx(COUNTS.sum())
    real = sdp.LinearInvariants(np.full((1, 10), 0.1))
    with pytest.raises(InvariantError, match="contradict each other"):
        combine([first, released(real, LAPLACE, 2, table=other)])


def test_totals_beyond_float64_are_compared_exactly():
    large = COUNTS + 2**55
    first = released(sdp.hold("state"), LAPLACE, 1, table=sdp.Table(large, DOMAIN), decimals=0)
    moved = large.copy()
    moved[0, 0] += 1
    second = released(sdp.hold("state"), LAPLACE, 2, table=sdp.Table(moved, DOMAIN), decimals=0)
    with pytest.raises(InvariantError, match="disagree"):
        combine([first, second])


def test_refusals_are_one_sentence():
    release = released(sdp.hold("state"), LAPLACE, 1)
    with pytest.raises(ReleaseError, match="at least one release"):
        combine([])
    with pytest.raises(ReleaseError, match="a list of releases"):
        combine(3)
    assert np.allclose(combine(release).values, release.values)
    other_way = combine(release, released(sdp.hold("sex"), LAPLACE, 2))
    assert len(other_way.releases) == 2
    with pytest.raises(ReleaseError, match="takes releases; got a int"):
        combine([release, 3])
    renamed = sdp.Domain([sdp.Axis("county", range(1, 6)), sdp.Axis("sex", ["F", "M"])])
    other = released(sdp.hold("sex"), LAPLACE, 2, domain=renamed, table=sdp.Table(COUNTS, renamed))
    with pytest.raises(ReleaseError, match="release 2 differs from the first"):
        combine([release, other])
    unknown = sdp.impose_on(DOMAIN, sdp.hold("sex"), lambda x: x + 0.5, budget=LAPLACE)
    with pytest.raises(ReleaseError, match="without a variance"):
        combine([release, unknown.release(TABLE)])
    nothing = sdp.impose_on(DOMAIN, sdp.hold("sex"), lambda x: x, budget=LAPLACE, variance=0)
    with pytest.raises(ReleaseError, match="no noise at all"):
        combine([release, nothing.release(TABLE)])
    questions = sdp.LinearQuery(np.eye(10))
    flat = sdp.design(questions, None, LAPLACE).release(TABLE, seed=1)
    with pytest.raises(ReleaseError, match="same questions"):
        combine([release, flat])


def test_tables_of_differently_bounded_records_are_not_combined():
    more = sdp.Table(COUNTS + 1, DOMAIN)
    bounded = sdp.design(DOMAIN, sdp.hold("state"), LAPLACE, capped=True)
    releases = [bounded.release(TABLE, everything=more, seed=s) for s in (1, 2)]
    assert combine(releases).margin("state").value.tolist() == [28, 75]
    plain = released(sdp.hold("state"), LAPLACE, 3, table=more)
    with pytest.raises(ReleaseError, match="count the same records"):
        combine([releases[0], plain])


def test_sums_in_units_of_their_own():
    frame = pd.DataFrame({"sex": ["F", "M", "F"], "county": [0, 3, 4], "paid": [1.5, 2.0, 0.5]})
    query = sdp.ClippedSums(DOMAIN, "paid", 0, 4, 0.5)
    releases = [sdp.design(query, sdp.hold("sex"), LAPLACE).release(frame, seed=s) for s in (1, 2)]
    combined = combine(releases)
    assert np.allclose(combined.values.sum(axis=0), [2.0, 2.0])
    assert combined.margin("sex").value.tolist() == [2.0, 2.0]


def test_questions_on_a_grid_of_their_own():
    query = sdp.LinearQuery(np.array([[0.5] * 10, [0.25] * 5 + [0] * 5, [0] * 8 + [1, 1]]))
    held = sdp.LinearInvariants([[1, 0, 0]])
    releases = [sdp.design(query, held, LAPLACE).release(TABLE, seed=s) for s in (1, 2)]
    combined = combine(releases)
    assert combined.values[0] == pytest.approx(COUNTS.sum() / 2)
    assert np.allclose(combined.values, np.mean([r.values for r in releases], axis=0))
    assert np.allclose(combined.stderr(), releases[0].stderr() / np.sqrt(2))


# --------------------------------------------------- tests, regression and replicates of several


PEOPLE = sdp.Domain([sdp.Axis("age", range(4)), sdp.Axis("sex", ["F", "M"])])


def pair(kind, *, counts=None, seed=1):
    """Two releases: noise alike in all directions or not, or one and the same design twice."""
    table = sdp.Table(np.full(PEOPLE.shape, 300) if counts is None else counts, PEOPLE)
    if kind == "dense":
        designs = [
            sdp.design(PEOPLE, sdp.hold("age"), sdp.PureDP(0.4), mechanism="extended"),
            sdp.design(PEOPLE, sdp.hold("sex"), sdp.PureDP(0.6), mechanism="extended"),
        ]
    elif kind == "alike":
        designs = [
            sdp.design(PEOPLE, sdp.hold("age"), sdp.PureDP(0.4)),
            sdp.design(PEOPLE, sdp.hold("sex"), sdp.GaussianDP(0.2), decimals=0),
        ]
    else:
        designs = [sdp.design(PEOPLE, sdp.hold("age"), sdp.PureDP(0.4))] * 2
    return combine([d.release(table, seed=seed + i) for i, d in enumerate(designs)])


@pytest.mark.parametrize("kind", ["alike", "dense", "one design twice"])
def test_replicates_have_the_joint_law(kind):
    both, number = pair(kind), 4000
    rows = np.stack([both.where(age=0, sex="F"), both.where(sex="F"), both.where(age=[0, 1])])
    drawn = np.array(list(replicates(both, number, seed=5))).reshape(number, -1)
    sums = drawn @ rows.reshape(3, -1).T
    stated = np.diag(both.covariance(rows))
    seen = np.mean(sums**2, axis=0)
    spread = np.std(sums**2, axis=0) / np.sqrt(number)
    fixed = stated < 1e-9
    assert np.all(np.abs(sums[:, fixed]) < 1e-6)
    assert np.all(np.abs(seen - stated)[~fixed] <= 6.2 * spread[~fixed] + 0.03 * stated[~fixed])
    if kind == "one design twice":
        # The twin draws both releases from the same words: twice the variance.
        one = np.array(list(replicates(both.releases[0], number, seed=5)))
        twin = np.mean((one.reshape(number, -1) @ rows[0].ravel()) ** 2)
        assert abs(twin - stated[0]) > 0.5 * stated[0]


@pytest.mark.parametrize("kind", ["alike", "dense"])
def test_combined_releases_are_tested_and_regressed(kind):
    trials, level = 400, 0.95
    X = {"men": np.tile([0.0, 1.0], 4), "age": np.repeat(np.arange(4.0), 2)}
    beta = np.array([300.0, 8.0, 5.0])
    matrix = np.column_stack([np.ones(8), *X.values()])
    hits, rejected = np.zeros(3), np.zeros(2)
    rng = np.random.default_rng(7)
    start = pair(kind)
    for noise in replicates(start, trials, seed=9):
        truth = matrix @ beta + rng.normal(0, 5.0, 8)
        found = regress(replace(start, values=truth.reshape(4, 2) + noise), X)
        lower, upper = found.interval(level)
        hits += (lower <= beta) & (beta <= upper)
        counts = rng.multinomial(2400, np.full(8, 1 / 8)).reshape(4, 2)
        tested = replace(start, values=counts + noise)
        women, men = (tested.where(sex=s, age=0) for s in "FM")
        rejected += [
            test_independence(tested, rows="age", columns="sex").pvalue <= 0.05,
            test_equal(tested, women, men, sampling="poisson").pvalue <= 0.05,
        ]
    for number in hits:
        assert proportion_bounds(int(number), trials)[1] >= level - 0.01
    for number in rejected:
        assert proportion_bounds(int(number), trials)[0] <= 0.06
    drawn = test_homogeneity(
        tested, rows="age", columns="sex", method="replicates", number=39, seed=3
    )
    assert 1 / 40 <= drawn.pvalue <= 1
    assert 1e-6 < test_value(tested, women, float(counts[0, 0])).pvalue <= 1
    low, high = replicate_interval(start, lambda v: v[0, 0] / v.sum(), number=99, seed=2)
    assert low < 1 / 8 < high
    with pytest.raises(ReleaseError, match="needs a release; got a list"):
        regress([start], X)
