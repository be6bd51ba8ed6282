"""Whole numbers without negative ones beside a release: exact, feasible, the same every time."""

import dataclasses

import numpy as np
import pytest

import subspacedp as sdp
from studies.solvers import nearest_with_total
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.inference import NonNegativeTable, non_negative
from subspacedp.inference.nonnegative import _Fitting

HELDS = {
    "nothing": None,
    "the total": sdp.hold(),
    "one margin": sdp.hold("a"),
    "a level": sdp.hold("g", "b"),
    "two margins": sdp.hold("a") & sdp.hold("b"),
    "a margin and a level": sdp.hold("a") & sdp.hold("g", "b"),
}
CROSSING = sdp.hold("a", "b") & sdp.hold("b", "c") & sdp.hold("a", "c")


def domain(*shape):
    groups = [i // 2 for i in range(shape[0])]
    axes = [sdp.Axis("a", range(shape[0]), levels={"g": groups})]
    axes += [sdp.Axis(name, range(k)) for name, k in zip("bc", shape[1:], strict=False)]
    return sdp.Domain(axes)


def small(shape, seed=1, mean=2.0):
    where = domain(*shape)
    return sdp.Table(np.random.default_rng(seed).poisson(mean, where.shape), where)


def check(release, **known):
    """The table of a release, with what must hold of every one."""
    table = non_negative(release, **known)
    assert table.dtype == np.int64
    assert table.shape == release.values.shape
    assert (table >= 0).all()
    assert release.mechanism.held.agrees(table, release.exact)
    assert np.array_equal(non_negative(release, **known), table)
    return table


@pytest.mark.parametrize("held", HELDS)
@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("budget", [sdp.PureDP(0.1), sdp.PureDP(3.0), sdp.GaussianDP(0.3)])
@pytest.mark.parametrize("name", ["projected", "marginals"])
def test_it_is_whole_not_negative_and_exact(held, decimals, budget, name):
    table = small((6, 4))
    mechanism = sdp.design(table.domain, HELDS[held], budget, mechanism=name, decimals=decimals)
    for seed in range(2):
        check(mechanism.release(table, seed=seed))


@pytest.mark.parametrize("name", ["extended", "correlated", "optimal", "knorm"])
def test_every_mechanism_has_one(name):
    table = small((4, 3))
    budget = sdp.PureDP(0.5) if name == "knorm" else sdp.GaussianDP(0.5)
    mechanism = sdp.design(table.domain, sdp.hold("a"), budget, mechanism=name)
    check(mechanism.release(table, seed=1))


@pytest.mark.parametrize("seed", range(4))
def test_three_crossing_margins(seed):
    table = small((5, 4, 3), seed, mean=1.0)
    check(sdp.design(table.domain, CROSSING, sdp.PureDP(0.2)).release(table, seed=seed))


def test_few_cells_and_much_noise():
    table = small((5, 2))
    mechanism = sdp.design(table.domain, HELDS["two margins"], sdp.PureDP(0.1))
    for seed in range(10):
        check(mechanism.release(table, seed=seed))


def test_other_equations_and_empty_cells():
    table = small((6, 4))
    rows = sdp.LinearInvariants(np.random.default_rng(1).integers(-1, 2, (3, 24)))
    check(sdp.design(table.domain, rows, sdp.PureDP(0.3)).release(table, seed=1))
    mask = np.zeros(table.domain.shape, bool)
    mask[2] = True
    counts = np.where(mask, 0, table.counts)
    held = sdp.hold() & sdp.zeros(mask)
    mechanism = sdp.design(table.domain, held, sdp.PureDP(0.3))
    found = check(mechanism.release(sdp.Table(counts, table.domain), seed=1))
    assert not found[mask].any()


def test_a_workload_whose_finest_margin_determines_the_others():
    table = small((6, 4, 3))
    workload = sdp.Margins(table.domain, [["a", "b"], ["g"], ["b"]])
    release = sdp.design(workload, sdp.hold("g"), sdp.PureDP(0.3)).release(table, seed=1)
    found = NonNegativeTable(release)
    cells, groups, columns = workload.split(check(release))
    assert np.array_equal(cells.sum(axis=0, keepdims=True), columns)
    assert np.array_equal(found.margin("b"), columns.reshape(-1))
    assert np.array_equal(found.margin("g"), groups.reshape(-1))
    with pytest.raises(ReleaseError, match="does not follow from the table"):
        found.margin("c")
    crossing = sdp.Margins(table.domain, [["a", "b"], ["c"]])
    release = sdp.design(crossing, None, sdp.PureDP(0.3)).release(table, seed=1)
    with pytest.raises(ReleaseError, match="one margin determines all others"):
        non_negative(release)


def test_inequalities_hold_and_contradictions_are_refused():
    table = small((6, 4))
    limits = {("a", "b"): 9, "b": 30}
    known = sdp.Inequalities(at_most=limits, part_of=[])
    for held in HELDS.values():
        release = sdp.design(table.domain, held, sdp.PureDP(0.1)).release(table, seed=3)
        found = check(release, inequalities=known)
        assert found.max() <= 9
        assert found.sum(axis=0).max() <= 30
    release = sdp.design(table.domain, sdp.hold(), sdp.PureDP(0.1)).release(table, seed=3)
    with pytest.raises(InvariantError, match="contradict the held figures"):
        non_negative(release, inequalities=sdp.Inequalities(at_most={"b": 1}))


def test_a_part_is_at_most_its_whole():
    axes = [sdp.Axis("place", range(30)), sdp.Axis("what", ["households", "persons"])]
    where = sdp.Domain(axes)
    persons = np.random.default_rng(2).poisson(4, 30)
    counts = np.stack([persons, persons], axis=1)
    known = sdp.Inequalities(part_of=[("households", "persons")])
    mechanism = sdp.design(where, sdp.hold("what"), sdp.PureDP(0.2))
    release = mechanism.release(sdp.Table(counts, where), seed=1)
    found = check(release, inequalities=known)
    assert (found[:, 0] <= found[:, 1]).all()
    assert not (non_negative(release)[:, 0] <= non_negative(release)[:, 1]).all()


def test_what_has_no_such_table_is_refused():
    table = small((6, 4))
    release = sdp.design(table.domain, sdp.hold("a"), sdp.PureDP(1.0)).release(table, seed=1)
    (exact,) = release.exact
    altered = dataclasses.replace(release, exact=(exact - 100,))
    with pytest.raises(ReleaseError, match="held total is negative"):
        non_negative(altered)
    query = sdp.LinearQuery(np.eye(3))
    answers = sdp.Table(np.arange(3), sdp.Domain([sdp.Axis("q", range(3))]))
    with pytest.raises(ReleaseError, match="made of counts"):
        non_negative(sdp.design(query, None, sdp.PureDP(1.0)).release(answers, seed=1))
    with pytest.raises(ReleaseError, match="needs a release"):
        non_negative(table)


def test_one_cell_and_one_axis():
    for shape in ((1,), (300,)):
        where = domain(*shape)
        counts = np.random.default_rng(1).poisson(2, shape)
        mechanism = sdp.design(where, None, sdp.PureDP(0.5))
        check(mechanism.release(sdp.Table(counts, where), seed=1))


def places(seed=5, number=400):
    """Invented places of very different size, with classes that are rare and common."""
    rng = np.random.default_rng(seed)
    size, share = np.exp(rng.normal(5, 1.2, number)), np.array([0.7, 0.2, 0.06, 0.02, 0.01, 0.01])
    mean = size[:, None] * share * rng.gamma(1.5, 1 / 1.5, (number, 6))
    where = sdp.Domain([sdp.Axis("place", range(number)), sdp.Axis("class", range(6))])
    return sdp.Table(rng.poisson(mean), where)


@pytest.fixture(scope="module")
def runs():
    """Releases of the same places, their tables, and what is expected of them."""
    table = places()
    mechanism = sdp.design(table.domain, sdp.hold("class"), sdp.PureDP(0.2))
    releases = [mechanism.release(table, seed=seed) for seed in range(12)]
    return table, releases, [NonNegativeTable(release) for release in releases]


def bias_by_size(table, errors, bands):
    ends = [*(band.least for band in bands), np.inf]
    member = np.digitize(table.counts, ends) - 1
    cells = np.bincount(member.reshape(-1), minlength=len(bands))
    sums = [np.bincount(member.reshape(-1), e.reshape(-1), len(bands)) for e in errors]
    return cells, np.array(sums) / np.maximum(cells, 1)


def off(expected, bias, cells):
    """How far the average expectation is from the average bias, in bands with 60 cells or more.

    Against 4 standard errors of the difference and 0.4 of a count, for a prior that is not the
    truth.
    """
    apart = expected - bias
    error = apart.std(axis=0, ddof=1) / np.sqrt(len(apart))
    return (np.abs(apart.mean(axis=0)) - 4 * error - 0.4)[cells >= 60].max()


def test_the_expected_bias_is_that_of_the_truth(runs):
    """From the release alone, by size of the true count; the harm of clipping is far from it."""
    table, releases, found = runs
    bands = found[0].expected_bias()
    expected = np.array([[band.bias for band in one.expected_bias()] for one in found])
    cells, bias = bias_by_size(table, [one.values - table.counts for one in found], bands)
    assert np.count_nonzero(cells >= 60) >= 5
    assert off(expected, bias, cells) < 0
    # The twin states no bias but publishes what clipping at zero gives.
    clipped = [np.maximum(np.rint(one.values), 0) - table.counts for one in releases]
    assert off(np.zeros_like(expected), bias_by_size(table, clipped, bands)[1], cells) > 1
    for one, number in zip(bands, cells, strict=True):
        assert abs(one.cells - number) < 0.25 * number + 40


def test_small_counts_are_nearer_and_their_sum_is_not_inflated(runs):
    """Beside the unbiased values, and beside those cut off at zero."""
    table, releases, found = runs
    truth, small = table.counts, table.counts < 10
    errors = np.array([one.values - truth for one in found], float)
    plain = np.array([release.values - truth for release in releases])
    cut = np.array([np.maximum(release.values, 0) - truth for release in releases])
    assert np.mean(errors**2) < 0.75 * np.mean(plain**2)
    assert np.mean(errors**2) < np.mean(cut**2)
    assert np.mean(errors[:, small] ** 2) < 0.3 * np.mean(plain[:, small] ** 2)
    assert abs(errors[:, small].sum(axis=1).mean()) < 0.3 * cut[:, small].sum(axis=1).mean()


def beside_projection(runs=12):
    """Squared error beside that of the nearest real table, where most are empty and none is small.

    No negative binomial law is like that.
    """
    where, ours, theirs = domain(30, 4), 0.0, 0.0
    design = sdp.design(where, sdp.hold(), sdp.PureDP(1.0))
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        counts = np.where(rng.random(where.shape) < 0.8, 0, rng.poisson(15, where.shape))
        release = design.release(sdp.Table(counts, where), seed=seed)
        ours += np.sum((non_negative(release) - counts) ** 2)
        nearest = nearest_with_total(release.values, counts.sum())
        theirs += np.sum((nearest - counts) ** 2)
    return ours / theirs


def test_a_model_that_does_not_fit_does_little_harm(monkeypatch):
    assert beside_projection() < 1.07
    # The twin trusts its model.
    monkeypatch.setattr(_Fitting, "share", 1.0)
    assert beside_projection() > 1.12


def test_what_the_error_is_estimated_to_be_is_right_on_average():
    """Along the noisy counts themselves, where the estimate has no bias whatever the noise."""
    table = small((6, 4), mean=9.0)
    design = sdp.design(table.domain, sdp.hold("a"), sdp.PureDP(0.5))
    truth, off, twin = table.counts.reshape(-1), [], []
    for seed in range(200):
        one = _Fitting(design.release(table, seed=seed), None)
        estimate, _ = one._beside_truth(np.zeros(truth.size), lambda other: other.noisy)
        off.append(estimate + truth @ one.noisy)
        twin.append((truth - one.noisy) @ one.noisy)  # forgets that noise is in both
    stderr = np.std(off, ddof=1) / np.sqrt(len(off))
    assert abs(np.mean(off)) < 4 * stderr
    assert abs(np.mean(twin)) > 8 * stderr


def test_words_say_that_it_is_biased(runs):
    _, releases, found = runs
    assert found[0].describe().startswith("BIASED")
    assert "not guaranteed" in found[0].describe()
    assert "sums, comparisons, intervals and tests" in found[0].describe()
    assert "biased" in repr(found[0])
    assert np.array_equal(np.asarray(found[0]), non_negative(releases[0]))


def test_a_class_that_is_held_empty_has_no_bias_and_one_that_is_not_held_has():
    where = sdp.Domain([sdp.Axis("place", range(300)), sdp.Axis("class", range(3))])
    counts = np.random.default_rng(1).poisson(5, (300, 3)) * [1, 1, 0]
    for held, somebody in ((sdp.hold("class"), False), (sdp.hold(), True)):
        design = sdp.design(where, held, sdp.PureDP(0.2))
        found = check(design.release(sdp.Table(counts, where), seed=1))
        assert found[:, 2].any() == somebody
        nobody = design.release(sdp.Table(counts * 0, where), seed=1)
        assert not check(nobody).any()
        bands = NonNegativeTable(nobody).expected_bias()
        assert [(band.cells, band.bias) for band in bands if band.cells] == [(900, 0)]


def test_noise_that_is_not_known_is_refused():
    table = small((6, 4))
    mechanism = sdp.impose_on(
        table.domain, sdp.hold(), lambda answers: answers + 1, budget=sdp.PureDP(1.0), variance=2.0
    )
    release = mechanism.release(table)
    with pytest.raises(ReleaseError, match="law of the noise"):
        non_negative(release)


@pytest.mark.parametrize("largest", [10**12, 10**17])
@pytest.mark.parametrize("held", ["nothing", "one margin", "two margins"])
def test_counts_of_any_size(held, largest):
    """Large counts take no more memory or time than small ones, and are as exact."""
    where = domain(10, 3)
    counts = (np.random.default_rng(2).random(where.shape) * largest).astype(np.int64)
    counts[0] = 0, 1, 3  # beside small ones
    mechanism = sdp.design(where, HELDS[held], sdp.PureDP(0.5), decimals=0)
    table = check(mechanism.release(sdp.Table(counts, where), seed=1))
    if largest < 2**52:
        assert np.abs(table - counts).max() < 200


def test_cells_of_held_zeros_are_known_and_not_guessed():
    """They count as cells of size 0, and the prior of the others is none of theirs."""
    rng, where = np.random.default_rng(0), domain(300, 4)
    size = np.exp(rng.normal(1.5, 1, 300)) * (rng.random(300) < 0.4)
    table = sdp.Table(rng.poisson(size[:, None] * np.array([0.7, 0.2, 0.08, 0.02])), where)
    release = sdp.design(where, sdp.hold("a"), sdp.PureDP(0.2)).release(table, seed=1)
    assert not check(release)[table.counts.sum(axis=1) == 0].any()
    cells = NonNegativeTable(release).expected_bias()[0].cells
    assert abs(cells - np.count_nonzero(table.counts == 0)) < 50  # 130 off where they are guessed
    nobody = sdp.Table(np.zeros(where.shape, np.int64), where)
    release = sdp.design(where, sdp.hold("a"), sdp.PureDP(0.2)).release(nobody, seed=1)
    assert not check(release).any()
    (only,) = (one for one in NonNegativeTable(release).expected_bias() if one.cells >= 1)
    assert (only.words, only.cells, only.bias) == ("0", 1200.0, 0.0)


def test_held_zeros_of_groupings_say_nothing_of_what_is_in_no_group():
    place = sdp.Axis("block", list("abcdef"), groupings={"school": ["N", "N", "M", None, "S", "S"]})
    where = sdp.Domain([place, sdp.Axis("sex", ["F", "M"])])
    counts = np.array([[5, 7], [2, 0], [3, 4], [60, 50], [0, 0], [0, 0]])
    release = sdp.design(where, sdp.hold("school"), sdp.PureDP(0.5)).release(
        sdp.Table(counts, where), seed=1
    )
    table = check(release)
    assert (table[3] > 20).all()
    assert not table[4:].any()


@pytest.mark.parametrize("budget", [sdp.PureDP(40.0), sdp.GaussianDP(37.0)])
def test_noise_that_is_hardly_any(budget):
    table = small((6, 4), mean=10.0**9)
    mechanism = sdp.design(table.domain, sdp.hold("g"), budget)
    assert np.abs(check(mechanism.release(table, seed=1)) - table.counts).max() <= 1


@pytest.mark.parametrize("budget", [sdp.GaussianDP(40.0), sdp.ZCDP(2000.0)])
@pytest.mark.parametrize("decimals", [0, 1])
def test_noise_that_is_nothing_beside_the_rounding_has_a_second_table(budget, decimals):
    domain = sdp.Domain([sdp.Axis("place", list("abcde")), sdp.Axis("sex", ["F", "M"])])
    counts = np.arange(10).reshape(5, 2) * 7
    mechanism = sdp.design(domain, sdp.hold("place"), budget, decimals=decimals)
    release = mechanism.release(sdp.Table(counts, domain), seed=1)
    table = np.asarray(sdp.inference.non_negative(release))
    assert np.array_equal(table.sum(axis=1), counts.sum(axis=1))
    assert np.abs(table - counts).max() <= 1
