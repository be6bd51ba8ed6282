"""The likelihood of releases of margins: a normal law with the covariance of the estimate."""

import math

import numpy as np
import pytest
from tests.inference.test_margin_combination import DOMAIN, TABLE, WORKLOAD
from tests.statistical import ALPHA, mean_p

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.inference import Likelihood, replicates

HELDS = {
    "nothing": None,
    "states": sdp.hold("state"),
    "total": sdp.hold(),
    "two": sdp.hold("state", "sex") & sdp.hold("race"),
}
BUDGETS = {"contrasts": sdp.ZCDP(0.3), "tables": sdp.PureDP(0.8)}
RELATIONS = {"add": sdp.AddRemoveOne(), "replace": sdp.ReplaceOne()}


def designed(held, budget, relation, query=WORKLOAD, **options):
    options = {"mechanism": "marginals", "neighbours": relation, **options}
    return sdp.design(query, held, budget, **options)


def dense_log_density(mechanism, difference):
    """The density in the contrasts that are measured, from a matrix."""
    noise, query = mechanism.noise, mechanism.query
    units = np.eye(query.size).reshape(query.size, *query.shape)
    contrasts = np.stack(
        [
            np.concatenate(
                [
                    noise.interactions.contrasts_from(noise.tables_of(unit), own).ravel()
                    for own in noise.measurement.errors.measured
                ]
            )
            for unit in units
        ]
    )
    inside = np.stack([noise.inside(unit) for unit in units])
    half = contrasts.T @ inside
    values, vectors = np.linalg.eigh(half @ half.T)
    free = values > 1e-9 * values[-1]
    z = vectors[:, free].T @ (contrasts.T @ difference.ravel()) / np.sqrt(values[free])
    return -0.5 * (z @ z + np.log(2 * math.pi * values[free]).sum())


@pytest.mark.parametrize("relation", RELATIONS.values(), ids=RELATIONS)
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("held", HELDS.values(), ids=HELDS)
@pytest.mark.parametrize("query", [WORKLOAD, DOMAIN], ids=["margins", "cells"])
def test_it_is_the_normal_density_of_a_matrix(query, held, budget, relation):
    mechanism = designed(held, budget, relation, query)
    release = mechanism.release(TABLE, seed=1)
    likelihood = Likelihood(release, approximate=True)
    assert not likelihood.exact
    assert "approximate" in likelihood.describe()
    difference = release.values - release.query.answers(TABLE)
    wanted = dense_log_density(release.mechanism, difference)
    assert likelihood.log_density(TABLE) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("decimals", [None, 0], ids=["real", "whole"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("held", [None, sdp.hold("state")], ids=["nothing", "states"])
def test_squared_distances_are_right_on_average_and_a_fifth_off_is_caught(held, budget, decimals):
    """E of the quadratic form is the dimension, whatever the law; at most that with digits."""
    mechanism = designed(held, budget, sdp.AddRemoveOne(), decimals=decimals)
    noise, number = mechanism.mechanism.noise, 600
    dimension = noise.dimension(WORKLOAD.size)
    top = noise.log_normal(np.zeros(WORKLOAD.size))
    draws = replicates(mechanism, number, seed=2)
    squares = np.array([2 * (top - noise.log_normal(np.asarray(d, float))) for d in draws])
    if decimals is None:
        assert mean_p(squares, dimension) > ALPHA
    assert mean_p(squares, 1.2 * dimension) < ALPHA  # a variance a fifth off
    assert squares.mean() < 1.2 * dimension


def test_impossible_truths_have_none():
    release = designed(sdp.hold("state"), sdp.ZCDP(0.3), sdp.AddRemoveOne()).release(TABLE, seed=1)
    likelihood = Likelihood(release)
    answers = WORKLOAD.answers(TABLE)
    assert likelihood.log_density(answers) == likelihood.log_density(TABLE)
    assert math.isfinite(likelihood.log_density(answers))
    moved = TABLE.counts.copy()
    moved[0, 0, 0] += 1
    assert likelihood.log_density(sdp.Table(moved, DOMAIN)) == -math.inf  # another state total
    within = TABLE.counts.copy()
    within[0, 0, 0] += 1
    within[1, 0, 0] -= 1
    assert math.isfinite(likelihood.log_density(sdp.Table(within, DOMAIN)))
    torn = answers.copy()
    torn[0] += 1
    torn[1] -= 1
    assert math.isfinite(likelihood.log_density(torn))  # races of a county, published nowhere else
    torn[-2] += 1  # a sex of a state, but not the state's total
    assert likelihood.log_density(torn) == -math.inf
    free = designed(None, sdp.ZCDP(0.3), sdp.ReplaceOne()).release(TABLE, seed=1)
    assert math.isfinite(Likelihood(free).log_density(TABLE))
    assert Likelihood(free).log_density(sdp.Table(moved, DOMAIN)) == -math.inf  # the total is known


def test_what_must_be_asked_for_says_so():
    laplace = designed(None, sdp.PureDP(1.0), sdp.AddRemoveOne()).release(TABLE, seed=1)
    with pytest.raises(ReleaseError, match="approximate=True"):
        Likelihood(laplace)
    assert "Laplace" in Likelihood(laplace, approximate=True).describe()
    whole = designed(None, sdp.ZCDP(1.0), sdp.AddRemoveOne(), decimals=0).release(TABLE, seed=1)
    with pytest.raises(ReleaseError, match="approximate=True"):
        Likelihood(whole)
    assert "average variance" in Likelihood(whole, approximate=True).describe()
    with pytest.raises(ReleaseError, match="one margin"):
        Likelihood(whole, approximate=True).by_group(TABLE)
