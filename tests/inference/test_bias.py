"""The trend of errors in size: unbiased releases pass, non-negative post-processing is caught."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats
from tests.statistical import ALPHA, proportion_bounds

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.inference.bias import bias_trend

SEEDS = 60


def states(table) -> np.ndarray:
    level = next(lv for lv in table.domain.axes[0].chain if lv.name == "state")
    return np.asarray(level.labels)[level.codes]


def test_the_slopes_are_those_of_linregress():
    rng = np.random.default_rng(1)
    groups = rng.choice(["a", "b", "c", "d"], 200, p=[0.5, 0.3, 0.18, 0.02])
    size, errors = rng.integers(0, 10_000, 200), rng.laplace(size=200)
    found = bias_trend(errors, size, groups)
    usable = size > 0
    assert found.dropped == np.count_nonzero(~usable)
    assert found.groups + found.skipped == 4
    for i, label in enumerate(found.labels):
        mine = usable & (groups == label)
        oracle = stats.linregress(np.log(size[mine]), errors[mine])
        assert found.n[i] == mine.sum() >= 6
        assert found.slope[i] == pytest.approx(oracle.slope)
        assert found.stderr[i] == pytest.approx(oracle.stderr)
        assert found.t[i] == pytest.approx(oracle.slope / oracle.stderr)
        assert found.pvalue[i] == pytest.approx(oracle.pvalue)
    signs = stats.binomtest(found.negative, found.groups)
    assert found.sign_pvalue == pytest.approx(signs.pvalue)
    assert set(found.columns()) == {"group", "n", "slope", "stderr", "t", "pvalue"}


def census_trends(budget, seeds: int):
    table = sdp.datasets.census2010()
    mechanism = sdp.design(table.domain, sdp.hold("state"), budget)
    for seed in range(seeds):
        release = mechanism.release(table, seed=seed)
        yield bias_trend(release.values - table.counts, table.counts, states(table))


def test_the_census_release_has_no_trend():
    trends = list(census_trends(sdp.PureDP(0.192), SEEDS))
    # 48 states and territories have more than five counties.
    assert {(t.groups, t.skipped, t.dropped) for t in trends} == {(48, 4, 0)}
    negative, slopes = sum(t.negative for t in trends), 48 * SEEDS
    low, high = proportion_bounds(negative, slopes)
    assert low <= 0.5 <= high
    significant = sum(t.significant_negative + t.significant_positive for t in trends)
    low, high = proportion_bounds(significant, slopes)
    assert low <= 0.01 <= high
    assert significant < 0.02 * slopes
    low, high = proportion_bounds(sum(t.sign_pvalue <= 0.05 for t in trends), SEEDS)
    assert low <= 0.05


def small_counties(seed: int):
    """Counts of a few dozen in 48 states, and a release with their totals held."""
    rng = np.random.default_rng(seed)
    state = np.repeat(np.arange(48), 60)
    counts = np.floor(np.exp(rng.normal(2.5, 1.0, state.size))).astype(np.int64) + 1
    domain = sdp.Domain(
        [sdp.Axis("county", list(range(state.size)), levels={"state": state.tolist()})]
    )
    release = sdp.design(domain, sdp.hold("state"), sdp.PureDP(0.2)).release(
        sdp.Table(counts, domain), seed=seed
    )
    return counts, state, np.asarray(release.values)


def test_non_negative_post_processing_is_caught():
    negative = significant = caught = 0
    for seed in range(10):
        counts, state, values = small_counties(seed)
        fair = bias_trend(values - counts, counts, state)
        assert fair.sign_pvalue > ALPHA
        negative += fair.negative
        significant += fair.significant_negative
        clipped = np.maximum(values, 0.0)
        totals, kept = np.bincount(state, counts), np.bincount(state, clipped)
        twin = bias_trend(clipped * (totals / kept)[state] - counts, counts, state)
        assert twin.sign_pvalue < 0.01
        caught += twin.negative
    assert proportion_bounds(caught, 480)[0] > 0.75
    low, high = proportion_bounds(negative, 480)
    assert low <= 0.5 <= high
    assert significant <= 24


def test_a_hundred_thousand_cells_take_no_time():
    rng = np.random.default_rng(2)
    size, groups = rng.integers(1, 10**6, 100_000), rng.integers(0, 3000, 100_000)
    started = time.process_time()
    found = bias_trend(rng.laplace(size=100_000), size, groups)
    assert time.process_time() - started < 20.0
    assert found.groups == 3000
    assert found.sign_pvalue > ALPHA


def test_groups_that_cannot_have_a_slope_are_counted():
    size = np.array([5] * 7 + [1, 2, 3] + [0, 0] + [1, 2, 3, 4, 5, 6])
    groups = np.array([0] * 7 + [1] * 3 + [2] * 2 + [3] * 6)
    errors = np.arange(18.0)
    found = bias_trend(errors, size, groups)
    assert (found.groups, found.skipped, found.dropped) == (1, 3, 2)
    assert list(found.labels) == [3]
    flat = bias_trend(np.zeros(8), np.arange(1, 9))
    assert (flat.negative, flat.positive, flat.sign_pvalue) == (0, 0, 1.0)
    assert flat.pvalue[0] == 1.0
    assert "1 groups: 0 negative slopes" in repr(flat)
    assert bias_trend(errors, size, groups, least=3).groups == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([1.0, 2.0], [1.0]), "equally many"),
        (([np.nan] * 3, [1, 2, 3]), "`errors` must be finite"),
        (([1, 2, 3], ["a", "b", "c"]), "`size` must be numbers"),
    ],
)
def test_errors_are_one_sentence(arguments, sentence):
    with pytest.raises(ReleaseError, match=sentence):
        bias_trend(*arguments)


def test_levels_are_checked():
    with pytest.raises(ReleaseError, match="`level`"):
        bias_trend([1, 2, 3], [1, 2, 3], level=1.5)
    with pytest.raises(ReleaseError, match="`least`"):
        bias_trend([1, 2, 3], [1, 2, 3], least=2)
