"""The best split of a squared budget: against a solver, and its proof."""

import numpy as np
import pytest
from scipy.optimize import minimize
from subspacedp.ellipsoids.shares import best_shares, dual_value, shares_for


def solved(costs, rows, tolerance=1e-6):
    def sticking_out(split, count):
        found = rows @ split
        return np.argsort(found)[-count:], float(found.max())

    first = np.arange(min(3, len(rows)))
    return best_shares(costs, first, lambda k: rows[k], sticking_out, tolerance=tolerance)


@pytest.mark.parametrize("seed", range(5))
def test_split_is_feasible_and_within_its_gap_of_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    costs, rows = rng.uniform(0.1, 5, 6), rng.uniform(0.1, 2, (40, 6))
    found = solved(costs, rows)
    assert np.all(rows @ found.shares <= 1 + 1e-12)
    assert found.gap(costs) <= 1e-5
    general = minimize(
        lambda b: np.sum(costs / b), np.full(6, 0.05), jac=lambda b: -costs / b**2,
        bounds=[(1e-6, None)] * 6, method="SLSQP",
        constraints={"type": "ineq", "fun": lambda b: 1 - rows @ b, "jac": lambda b: -rows},
        options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    assert np.sum(costs / found.shares) <= general.fun * (1 + 1e-5)
    assert found.bound <= general.fun * (1 + 1e-6)  # which may be infeasible by so much


def test_bound_holds_for_any_weights_and_the_closed_form_meets_it():
    rng = np.random.default_rng(9)
    costs, rows = rng.uniform(0.1, 5, 4), rng.uniform(0.1, 2, (10, 4))
    best = np.sum(costs / solved(costs, rows).shares)
    for weights in rng.dirichlet(np.ones(10), 50):
        assert dual_value(costs, weights @ rows) <= best
    one = shares_for(costs, rows[0])
    assert rows[0] @ one == pytest.approx(1)
    assert np.sum(costs / one) == pytest.approx(dual_value(costs, rows[0]), rel=1e-9)


def test_parts_that_no_first_row_uses_are_reached_later():
    rows = np.array([[1.0, 1e-6], [1.0, 1e-6], [1.0, 1e-6], [1e-6, 1.0]])
    found = solved(np.ones(2), rows)
    assert np.all(rows @ found.shares <= 1 + 1e-12)
    assert found.shares == pytest.approx([1, 1], rel=1e-4)
