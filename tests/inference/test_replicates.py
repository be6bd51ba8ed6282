"""Replicates have the law of release minus truth, and intervals from them cover."""

import itertools

import numpy as np
import pytest
from tests.inference.test_combination import COUNTS, DOMAIN, GAUSS, LAPLACE
from tests.statistical import (
    ALPHA,
    draws_to_tell,
    fits,
    mean_p,
    proportion_bounds,
    rescaled,
    z_limit,
)

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.inference.replicates import replicate_interval, replicate_quantiles, replicates

EMPTY = np.zeros((5, 2), bool)
EMPTY[1, 0] = True
LINEAR = sdp.LinearInvariants([[1, 2, 0, 0, 1, 0, 0, 0, 1, 0], [0, 0, 1, 1, 1, 1, 0, 0, 0, 0]])

DESIGNS = {
    "nothing held": lambda: sdp.design(DOMAIN, None, LAPLACE),
    "projected Laplace": lambda: sdp.design(DOMAIN, sdp.hold("state"), LAPLACE),
    "projected Gauss": lambda: sdp.design(DOMAIN, sdp.hold("county") & sdp.hold("sex"), GAUSS),
    "whole digits": lambda: sdp.design(DOMAIN, sdp.hold("state", "sex"), LAPLACE, decimals=0),
    "two decimals": lambda: sdp.design(
        DOMAIN, sdp.hold("county") & sdp.hold("sex"), GAUSS, decimals=2
    ),
    "linear": lambda: sdp.design(DOMAIN, LINEAR, LAPLACE),
    "linear digits": lambda: sdp.design(DOMAIN, LINEAR, LAPLACE, decimals=0),
    "empty cells": lambda: sdp.design(DOMAIN, sdp.hold("sex") & sdp.zeros(EMPTY), LAPLACE),
    "extended Gauss": lambda: sdp.design(DOMAIN, sdp.hold("state"), GAUSS, mechanism="extended"),
    "extended Laplace": lambda: sdp.design(
        DOMAIN, sdp.hold("state"), LAPLACE, mechanism="extended"
    ),
    "extended linear": lambda: sdp.design(DOMAIN, LINEAR, GAUSS, mechanism="extended"),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_noise_is_the_same_for_every_table(name):
    """What replicates rest on: release minus truth depends on the keys alone."""
    mechanism = DESIGNS[name]()
    zeros = mechanism.release(sdp.Table(np.zeros((5, 2), np.int64), DOMAIN), seed=3).values
    moved = mechanism.release(sdp.Table(COUNTS, DOMAIN), seed=3).values - COUNTS
    if mechanism.mechanism.decimals == 0:
        assert np.array_equal(zeros, moved)
    else:
        # A basis on its grid moves coordinates by at most 2**-31 of the sum of the counts.
        assert np.allclose(zeros, moved, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", DESIGNS)
def test_replicates_have_the_stated_variance_and_hold_what_is_held(name):
    mechanism = DESIGNS[name]()
    number = 1500
    draws = np.stack(list(replicates(mechanism, number, seed=5)))
    held, zeros = mechanism.mechanism.held, np.zeros((5, 2), np.int64)
    for draw in draws[:20]:
        if mechanism.mechanism.decimals == 0:
            assert draw.dtype == np.int64
            for a, b in zip(held.sums(draw), held.sums(zeros), strict=True):
                assert np.array_equal(a, b)
        else:
            assert mechanism.mechanism.space.contains(np.where(np.abs(draw) < 1e-9, 0.0, draw))
    assert np.all(mean_p(draws, 0.0) > ALPHA)
    stated = mechanism.mechanism.noise.cell_variance()
    squares = draws.astype(float) ** 2
    spread = squares.std(axis=0, ddof=1) / np.sqrt(number)
    rounding = (
        0 if mechanism.mechanism.rounding is None else mechanism.mechanism.rounding.variance()
    )
    # Rounding is a bound from above, so between the two: nothing more, and no less than the noise.
    assert np.all(squares.mean(axis=0) <= stated + z_limit() * spread + 1e-9)
    assert np.all(squares.mean(axis=0) >= stated - rounding - z_limit() * spread - 1e-9)


@pytest.mark.parametrize("budget", [sdp.PureDP(0.4), sdp.GaussianDP(0.3)], ids=["Laplace", "Gauss"])
def test_replicates_fit_the_law_and_not_a_near_one(budget):
    domain = sdp.Domain([sdp.Axis("cell", range(20_000))])
    mechanism = sdp.design(domain, None, budget)
    law = mechanism.mechanism.law
    number = -(-draws_to_tell(law) // domain.size)
    draws = np.concatenate(list(replicates(mechanism, number, seed=7)))
    assert fits(draws, law) > ALPHA
    assert fits(draws, rescaled(law, 1.05)) < ALPHA


def test_draws_are_independent_of_each_other_and_of_a_seeded_release():
    domain = sdp.Domain([sdp.Axis("cell", range(50_000))])
    mechanism = sdp.design(domain, None, LAPLACE)
    release = mechanism.release(sdp.Table(np.zeros(50_000, np.int64), domain), seed=1)
    first, second = replicates(release, 2, seed=1)
    fresh, other = replicates(release, 2)
    limit = z_limit() / np.sqrt(50_000)
    for a, b in itertools.combinations([release.values, first, second, fresh, other], 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 1.5 * limit
    again = next(replicates(release, 1, seed=1))
    assert np.array_equal(first, again)


def test_one_replicate_at_a_time_is_drawn():
    domain = sdp.Domain([sdp.Axis("cell", range(1000))])
    endless = replicates(sdp.design(domain, sdp.hold(), LAPLACE), 10**12)
    assert next(endless).shape == (1000,)
    assert next(endless).shape == (1000,)


def test_a_loaded_release_of_a_black_box_has_replicates(tmp_path):
    query = sdp.GeneralQuery(lambda data: [1.5, 2.5], 2, 1.0, 1.0)
    release = sdp.design(query, None, LAPLACE).release("anything", seed=1)
    release.save(tmp_path / "release")
    loaded = sdp.Release.load(tmp_path / "release")
    draws = np.stack(list(replicates(loaded, 400, seed=2)))
    assert draws.std() == pytest.approx(release.stderr()[0], rel=0.25)


# -------------------------------------------------------------------------------------- intervals


def test_a_linear_statistic_is_covered_and_with_too_little_noise_it_is_not():
    domain = sdp.Domain([sdp.Axis("cell", range(3))])
    truth = np.array([40, 5, 11])
    mechanism = sdp.design(domain, sdp.hold(), sdp.PureDP(0.2))
    loud = sdp.design(domain, sdp.hold(), sdp.PureDP(0.8))

    def statistic(v):
        return 2.0 * v[0] - v[2]

    trials, covered, twin = 300, 0, 0
    for seed in range(trials):
        release = mechanism.release(sdp.Table(truth, domain), seed=seed)
        low, high = replicate_interval(release, statistic, 0.95, 39, seed=seed)
        covered += low <= statistic(truth) <= high
        # A twin that draws a quarter of the noise.
        here = statistic(release.values)
        moves = [statistic(release.values + e) - here for e in replicates(loud, 39, seed=seed)]
        twin += here - max(moves) <= statistic(truth) <= here - min(moves)
    assert proportion_bounds(covered, trials)[1] >= 0.95
    assert proportion_bounds(twin, trials)[1] < 0.95


def test_a_ratio_agrees_with_its_exact_interval():
    release = DESIGNS["projected Laplace"]().release(sdp.Table(COUNTS * 100, DOMAIN), seed=4)
    above, below = release.where(sex="F"), release.where(state="B")
    low, high = release.ratio(above, below).interval(0.9)
    found = replicate_interval(
        release, lambda v: float(np.sum(v * above) / np.sum(v * below)), 0.9, 3000, seed=6
    )
    assert found[0] == pytest.approx(low, abs=0.15 * (high - low))
    assert found[1] == pytest.approx(high, abs=0.15 * (high - low))


def test_quantiles_are_order_statistics():
    release = DESIGNS["whole digits"]().release(sdp.Table(COUNTS, DOMAIN), seed=4)
    moves = sorted(int(e[0, 0]) for e in replicates(release, 99, seed=2))
    found = replicate_quantiles(release, lambda v: v[0, 0], [0.05, 0.5, 0.95], 99, seed=2)
    assert found.tolist() == [moves[4], moves[49], moves[94]]
    with pytest.raises(ReleaseError, match="at least 199 replicates; got 99"):
        replicate_quantiles(release, lambda v: v[0, 0], [0.005], 99)


def test_refusals_are_one_sentence():
    release = DESIGNS["whole digits"]().release(sdp.Table(COUNTS, DOMAIN), seed=4)
    for number in (0, -1, 2.5, True):
        with pytest.raises(ReleaseError, match="`number` must be"):
            replicates(release, number)
    with pytest.raises(ReleaseError, match="`seed` must be"):
        replicates(release, 1, seed="one")
    with pytest.raises(ReleaseError, match="a release or a mechanism"):
        replicates(COUNTS, 1)
    with pytest.raises(ReleaseError, match="need a release"):
        replicate_interval(DESIGNS["linear"](), lambda v: v.sum())
    with pytest.raises(ReleaseError, match="one finite number"):
        replicate_interval(release, lambda v: v[0])
    with pytest.raises(ReleaseError, match="one finite number"):
        replicate_interval(release, lambda v: float("nan"))
    imposed = sdp.impose_on(DOMAIN, sdp.hold(), lambda x: x + 0.5, budget=LAPLACE, variance=1.0)
    for source in (imposed, imposed.release(sdp.Table(COUNTS, DOMAIN))):
        with pytest.raises(ReleaseError, match="law is not known"):
            replicates(source, 1)
