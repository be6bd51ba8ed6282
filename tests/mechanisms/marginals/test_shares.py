"""The split of a budget: its bound is below every split, and its spending within the budget."""

import cvxpy as cp
import numpy as np
import pytest
from tests.mechanisms.marginals.test_spending import BOUNDED, CASES, RELATIONS, errors_of

import subspacedp as sdp
from subspacedp.mechanisms.marginals import fitting
from subspacedp.mechanisms.marginals.fitting import Goal, best_contrasts, best_tables
from subspacedp.mechanisms.marginals.shares import GAP, best_shares, distinct_rows
from subspacedp.mechanisms.marginals.spending import spending_of


@pytest.mark.parametrize("shape", [(1, 3), (40, 1), (200, 2), (50, 5), (0, 2)])
def test_distinct_rows_are_those_of_numpy_in_its_order(shape):
    rng = np.random.default_rng(0)
    for rows in (rng.integers(-2, 3, shape), rng.integers(0, 3, shape) / 7):
        found = distinct_rows(rows)
        assert found.dtype == rows.dtype
        assert found.tolist() == np.unique(rows, axis=0).tolist()
        assert len(distinct_rows(rows.repeat(2, axis=0))) == len(found) <= len(rows)


def problem(seed, size=4, shares=5, rows=3):
    """tr(W·(Σ b_j M_j)⁻¹) for random positive semidefinite matrices, and random rows."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(shares, size, 2))
    roots[0] = rng.normal(size=(size, 2)) * 0.1
    M = roots @ roots.transpose(0, 2, 1) + 1e-3 * np.eye(size)
    w = rng.normal(size=(size, size))
    W = w @ w.T

    def error(b):
        inverse = np.linalg.inv(np.tensordot(b, M, 1))
        return float(np.trace(W @ inverse)), np.einsum(
            "ab,jbc,ca->j", inverse @ W @ inverse, M, np.eye(size)
        )

    return error, rng.uniform(0.2, 1, (rows, shares)), M, W


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_below_the_semidefinite_optimum(seed):
    error, rows, M, W = problem(seed)
    found = best_shares(error, rows, np.ones(5))
    b = cp.Variable(5, nonneg=True)
    root = np.linalg.cholesky(W)
    information = sum(b[j] * M[j] for j in range(5))
    objective = cp.matrix_frac(root, information)
    optimum = cp.Problem(cp.Minimize(objective), [rows @ b <= 1]).solve(solver="CLARABEL")
    assert (rows @ found.shares).max() <= 1 + 1e-12
    assert found.error == pytest.approx(error(found.shares)[0], rel=1e-12)
    assert found.bound <= optimum * (1 + 1e-6)
    assert optimum <= found.error * (1 + 1e-6)
    assert found.gap <= GAP


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_are_found_later_count(seed):
    """Rows are shown only where they stick out; the twin that ignores them overspends."""
    error, rows, _, _ = problem(seed, rows=8)

    def sticking_out(b):
        return rows[[int(np.argmax(rows @ b))]], float((rows @ b).max())

    found = best_shares(error, rows[:1], np.ones(5), sticking_out)
    assert (rows @ found.shares).max() <= 1 + 1e-12
    whole = best_shares(error, rows, np.ones(5))
    assert found.error == pytest.approx(whole.error, rel=3e-3)
    twin = best_shares(error, rows[:1], np.ones(5))
    assert (rows @ twin.shares).max() > 1.01


def goal_of(errors, objective="balanced", weights=None):
    counted = np.ones(len(errors.interactions.published)) if weights is None else weights
    goal = Goal(errors, objective, counted)
    scaled = goal.scaled()
    return lambda shares: goal(scaled, shares)


@pytest.mark.parametrize("objective", ["balanced", "sum", "largest"])
@pytest.mark.parametrize("relation", RELATIONS, ids=["add", "replace"])
@pytest.mark.parametrize("case", [*CASES.values(), *BOUNDED.values()])
def test_no_split_at_random_beats_the_bound(case, relation, objective):
    """Near the best split and far from it."""
    errors = errors_of(case, relation)
    weights = np.arange(1.0, len(errors.interactions.published) + 1)
    found = best_contrasts(errors, relation, objective, weights)
    spending, goal = spending_of(errors, relation), goal_of(errors, objective, weights)
    assert spending.sticking_out(found.shares)[1] <= 1 + 1e-12
    assert found.gap <= 2 * GAP
    rng = np.random.default_rng(0)
    for spread in (0.05, 0.3, 1.0, 3.0):
        for _ in range(8):
            other = found.shares * np.exp(spread * rng.normal(size=len(found.shares))) + 1e-9
            other /= spending.sticking_out(other)[1]
            assert goal(other)[0] >= found.bound * (1 - 1e-9)


@pytest.mark.parametrize("objective", ["balanced", "sum", "largest"])
@pytest.mark.parametrize("case", [*CASES.values(), *BOUNDED.values()])
def test_slopes_of_goals(case, objective):
    """By central differences, and Σ b·slope = F for a goal of degree −1."""
    errors = errors_of(case, sdp.AddRemoveOne())
    goal = goal_of(errors, objective)
    rng = np.random.default_rng(1)
    b = rng.uniform(0.2, 1, len(errors.slots))
    value, slopes = goal(b)
    assert slopes @ b == pytest.approx(value, rel=1e-9)
    for j in range(len(b)):
        h = 1e-5 * b[j]
        up, down = b.copy(), b.copy()
        up[j] += h
        down[j] -= h
        found = -(goal(up)[0] - goal(down)[0]) / (2 * h)
        assert slopes[j] == pytest.approx(found, rel=1e-4, abs=1e-7 * value)


@pytest.mark.parametrize("pure", [False, True])
def test_whole_tables(pure, monkeypatch):
    for case in (CASES["tree"], CASES["tree and axes"], CASES["flat"], CASES["held groups"]):
        errors = errors_of(case, sdp.AddRemoveOne(), regions=False)
        weights = np.ones(len(errors.interactions.published))
        found = best_tables(errors, "balanced", weights, pure=pure)
        assert found.shares.sum() <= 1 + 1e-9
        assert found.bound <= found.error * (1 + 1e-9)
        if not pure:
            assert found.error <= found.bound * (1 + GAP)
        matrix = fitting.table_information(errors, found.tables)
        goal = goal_of(errors)
        rng = np.random.default_rng(2)
        for spread in (0.05, 0.5, 2.0):
            for _ in range(10):
                other = found.shares * np.exp(spread * rng.normal(size=len(found.shares)))
                other /= other.sum()
                error = goal(matrix @ (other**2 if pure else other))[0]
                assert error >= found.bound * (1 - 1e-9)
                if pure:  # no proof that it is the best, but nothing near it is better
                    assert error >= found.error * (1 - 1e-3)
