"""Errors over the semidefinite optimum: of all Gaussian noise, on small trees and tables."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from tests import margin_oracle as oracle

import subspacedp as sdp
from subspacedp.mechanisms.marginals import MarginalsOptions, plan

ADD = sdp.AddRemoveOne()
TREES = {"one large": [1, 1, 15, 1, 1, 1, 1, 1], "ten and one": [1] * 10 + [40]}


def domain_of(sizes, *more):
    county = np.repeat(np.arange(len(sizes)), sizes).tolist()
    return sdp.Domain([sdp.Axis("tract", range(sum(sizes)), levels={"county": county}), *more])


def over_optimum(domain, margins, held=None, relation=ADD, objective="sum"):
    """Our summed squared error over a lower bound on that of any Gaussian noise."""
    query = sdp.Margins(domain, margins)
    mechanism = sdp.design(
        query, held, sdp.GaussianDP(0.1), neighbours=relation,
        mechanism=MarginalsOptions(objective=objective),
    )  # fmt: skip
    ours = mechanism.expected_error().total * 0.1**2
    bound = oracle.explicit_optimum(query, mechanism.mechanism.held.margins, relation, 1e-3)[1]
    assert ours >= bound * (1 - 1e-9)
    return ours / bound


@pytest.mark.parametrize("sizes", TREES.values(), ids=TREES)
def test_unequal_trees_with_nothing_held(sizes):
    assert over_optimum(domain_of(sizes), [["tract"], ["county"]]) <= 1.03
    assert over_optimum(domain_of(sizes), [["tract"], ["county"], []]) <= 1.03


@pytest.mark.parametrize("sizes", TREES.values(), ids=TREES)
@pytest.mark.parametrize("held", [sdp.hold(), sdp.hold("county")], ids=str)
def test_unequal_trees_with_totals_held(sizes, held):
    sex = sdp.Axis("sex", ["f", "m"])
    assert over_optimum(domain_of(sizes), [["tract"], ["county"]], held) <= 1.15
    margins = [["tract", "sex"], ["county", "sex"], ["county"]]
    if len(sizes) == 8:
        assert over_optimum(domain_of(sizes, sex), margins, held) <= 1.15


def test_one_noise_for_all_of_a_tree_is_worse(monkeypatch):
    """The twin: regions of a held level that share their precisions."""
    domain = domain_of(TREES["one large"], sdp.Axis("sex", ["f", "m"]))
    margins = [["tract", "sex"], ["county", "sex"], ["county"]]
    assert over_optimum(domain, margins, sdp.hold("county")) <= 1.03
    monkeypatch.setattr(plan, "MAX_REGIONS", 0)
    assert over_optimum(domain, margins, sdp.hold("county")) > 1.1


CENSUS = {
    "wide": ([2, 3, 1, 4], [0, 0, 1, 1]),
    "narrow": ([1, 1, 2, 1, 3], [0, 1, 1, 2, 2]),
    "one large county": ([1, 8, 1, 2], [0, 0, 0, 1]),
}


@pytest.mark.parametrize(("counties", "states"), CENSUS.values(), ids=CENSUS)
def test_nation_to_tract_by_race_age_and_hispanic(counties, states):
    """Totals, voting age, and race × Hispanic at every level; nothing held, and states held."""
    county = np.repeat(np.arange(len(counties)), counties)
    levels = {"county": county.tolist(), "state": np.array(states)[county].tolist()}
    axes = [
        sdp.Axis("tract", range(len(county)), levels=levels),
        sdp.Axis("race", range(3)), sdp.Axis("age", range(2)), sdp.Axis("hispanic", range(2)),
    ]  # fmt: skip
    margins = [
        level + table
        for level in (["tract"], ["county"], ["state"], [])
        for table in ([], ["age"], ["race", "hispanic"])
    ]
    assert over_optimum(sdp.Domain(axes), margins) <= 1.03
    assert over_optimum(sdp.Domain(axes), margins, sdp.hold("state")) <= 1.15


@pytest.mark.parametrize("relation", [ADD, sdp.ReplaceOne()], ids=["add", "replace"])
def test_tables_without_a_tree_are_optimal(relation):
    domain = oracle.plain(2, 3, 4)
    for order in (1, 2):
        margins = oracle.all_of_order(domain, order)
        assert over_optimum(domain, margins, None, relation) <= 1.003
    assert over_optimum(oracle.equal_levels(), [["l", "b"], ["g"]], None, relation) <= 1.003


def residual_planner(sizes, order):
    """ResidualPlanner's least sum of variances, add-remove and squared budget one."""
    coefficient = {}
    for margin in itertools.combinations(range(len(sizes)), order):
        cells = math.prod(sizes[a] for a in margin)
        for r in range(order + 1):
            for part in itertools.combinations(margin, r):
                inner = math.prod((sizes[a] - 1) / sizes[a] for a in part)
                outer = math.prod(1 / sizes[a] ** 2 for a in margin if a not in part)
                coefficient[part] = coefficient.get(part, 0.0) + cells * inner * outer
    costs = {p: math.prod((sizes[a] - 1) / sizes[a] for a in p) for p in coefficient}
    return sum(math.sqrt(coefficient[p] * costs[p]) for p in costs) ** 2


@pytest.mark.parametrize("sizes", [(2, 3, 4), (3, 3, 5), (2, 2, 2, 3)], ids=str)
@pytest.mark.parametrize("order", [1, 2])
def test_the_error_is_residual_planners(sizes, order):
    domain = oracle.plain(*sizes)
    query = sdp.Margins(domain, oracle.all_of_order(domain, order))
    mechanism = sdp.design(
        query, None, sdp.GaussianDP(0.1), neighbours=ADD,
        mechanism=MarginalsOptions(objective="sum"),
    )  # fmt: skip
    ours = mechanism.expected_error().total * 0.1**2
    theirs = residual_planner(sizes, order)
    assert theirs * (1 - 1e-9) <= ours <= theirs * 1.001
    assert mechanism.mechanism.strategy.bound * 0.1**2 <= theirs * (1 + 1e-9)


def test_the_oracle_is_the_semidefinite_optimum():
    """By another solver: least trace of a covariance whose ellipsoid has every record."""
    domain = domain_of([1, 3, 1])
    query = sdp.Margins(domain, [["tract"], ["county"]])
    A = oracle.matrix(domain, query.margins)
    n = len(A)
    u, s, _ = np.linalg.svd(A, full_matrices=False)
    frame = u[:, s > 1e-9]
    V = frame.T @ A
    X = cp.Variable((V.shape[0], V.shape[0]), PSD=True)
    bounds = [cp.quad_form(v, X) <= 1 for v in V.T]
    value = cp.Problem(cp.Minimize(cp.tr_inv(X)), bounds).solve(
        solver="SCS", eps=1e-7, max_iters=50000
    )
    trace, bound = oracle.explicit_optimum(query, [], ADD, 1e-4)
    assert n == 8
    assert bound <= value * (1 + 1e-4)
    assert trace >= value * (1 - 1e-4)
