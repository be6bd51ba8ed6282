"""Whole tables measured where two axes have levels with groups of unequal size."""

from __future__ import annotations

import numpy as np
import pytest
from tests import margin_oracle as oracle

import subspacedp as sdp
from subspacedp.mechanisms.marginals.lower_bound import nesting_cost
from subspacedp.noise import Keystream, ReleaseKeys

FIRST = sdp.Axis("l", range(7), levels={"g": [2, 0, 0, 1, 0, 1, 0]})
SECOND = sdp.Axis(
    "n",
    range(6),
    levels={"h": ["x", "x", "x", "x", "y", "z"], "r": ["p", "p", "p", "p", "p", "q"]},
    groups={"h": ["x", "none", "y", "z"]},
)
DOMAIN = sdp.Domain([FIRST, SECOND])
WORKLOADS = [
    [["l", "n"], ["g", "h"]],
    [["l", "n"], ["g", "n"], ["h"], ["l"]],
    [["l", "n"], ["r"], ["g", "h"], ["l", "h"]],
]
BUDGETS = [sdp.ZCDP(0.5), sdp.PureDP(1.0)]


def _design(workload, held, budget, **more):
    kind = sdp.Marginals(measured="tables")
    return sdp.design(sdp.Margins(DOMAIN, workload), held, budget, mechanism=kind, **more)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("held", [None, sdp.hold(), sdp.hold("g") & sdp.hold("h")], ids=str)
def test_variances_of_kinds_are_those_of_every_total(workload, held, budget) -> None:
    design = _design(workload, held, budget)
    noise, size = design.mechanism.noise, design.mechanism.query.size
    each = np.diag(noise.covariance(np.eye(size)))
    np.testing.assert_allclose(noise.cell_variance(), each, rtol=1e-9, atol=1e-9)
    release = design.release(sdp.Table(np.arange(42).reshape(7, 6), DOMAIN), seed=1)
    assert release.verify().ok


@pytest.mark.parametrize("workload", WORKLOADS)
def test_not_far_from_least_squares_of_the_same_measurements(workload) -> None:
    design = _design(workload, None, BUDGETS[0], neighbours=sdp.AddRemoveOne())
    mechanism, query = design.mechanism, design.mechanism.query
    tables = [mechanism.interactions.margin(t.level, t.steps) for t in mechanism.strategy.tables]
    X = oracle.matrix(DOMAIN, tables)
    precision = np.concatenate(
        [
            np.full(int(np.prod(t.shape)), 1 / law.variance)
            for t, law in zip(tables, mechanism.measurement.laws, strict=True)
        ]
    )
    A = oracle.matrix(DOMAIN, query.margins)
    least = np.einsum("ij,jk,ik->i", A, np.linalg.inv(X.T @ (precision[:, None] * X)), A)
    variance = mechanism.noise.cell_variance()
    assert np.all(variance >= least * (1 - 1e-9))  # Gauss and Markov
    for ours, best in zip(query.split(variance), query.split(least), strict=True):
        assert ours.mean() <= 1.15 * best.mean()
    # Equal variances for all groups would be stated too small for the largest: the twin.
    twin = np.concatenate([np.full(v.size, v.mean()) for v in query.split(variance)])
    assert np.any(twin < 0.9 * variance)


def test_errors_have_the_stated_variance() -> None:
    design = _design(WORKLOADS[0], sdp.hold("g"), BUDGETS[1])
    mechanism, replicates = design.mechanism, 1500
    zeros = mechanism.nothing()
    exact = mechanism.held.sums(zeros)
    errors = np.stack(
        [
            mechanism.reconstruct(
                mechanism.add_noise(zeros, ReleaseKeys.from_seed(seed, b"two")),
                exact,
                Keystream(bytes(32)),
            )
            for seed in range(replicates)
        ]
    )
    variance = mechanism.noise.cell_variance()
    free = variance > 0
    # Sums of Laplace noise have a kurtosis of at most 6: a mean square is off by √(5/n) at one σ.
    ratio = (errors[:, free] ** 2).mean(axis=0) / variance[free]
    assert np.all(np.abs(ratio - 1) < 6 * np.sqrt(5 / replicates))
    assert np.abs(errors[:, ~free]).max(initial=0.0) < 1e-9


def test_the_cost_of_nested_contrasts_is_one_where_groups_are_equal() -> None:
    equal = sdp.Axis("e", range(6), levels={"h": [0, 0, 0, 1, 1, 1]})
    for contrasts in (True, False):
        for axis, least, most in ((equal, 1.0, 1.002), (SECOND, 1.05, 2.0)):
            margins = [[level.name] for level in axis.chain]
            problem = _design(WORKLOADS[0], None, BUDGETS[0]).mechanism.problem
            domain = sdp.Domain([axis])
            mechanism = sdp.design(sdp.Margins(domain, margins), None, BUDGETS[0]).mechanism
            steps = mechanism.interactions._used[0]
            cost = nesting_cost(problem, steps, contrasts=contrasts)
            assert least <= cost <= most


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne()], ids=str)
def test_a_level_with_everything_in_one_group_has_its_words(budget, relation):
    first = sdp.Axis("a", range(4), levels={"g": [0, 1, 2, 0]})
    second = sdp.Axis("b", range(3), levels={"h": [0, 1, 1], "all": [0, 0, 0]})
    design = sdp.design(
        sdp.Domain([first, second]), sdp.hold("h") & sdp.hold("g", "all"), budget,
        neighbours=relation, mechanism=sdp.Marginals(margins=[[]]),
    )  # fmt: skip
    assert "those of `b` by nested contrasts, at 1" in design.mechanism.measured
