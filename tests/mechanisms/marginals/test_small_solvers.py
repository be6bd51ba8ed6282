"""Descent and simplex, beside SciPy's solvers of the same problems."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from subspacedp.mechanisms.marginals import shares
from subspacedp.mechanisms.marginals.shares import covering_weights, least_point


def rows_and_needs(seed):
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, 5, rng.integers(1, 60, 2)) / 2.0, axis=0)
    needed = rng.random(rows.shape[1]) * 10.0 ** rng.uniform(-6, 0, rows.shape[1])
    if seed % 2:  # ties: a mean of rows, as at the best shares
        needed = rows[rng.integers(0, len(rows), 3)].mean(axis=0)
    return rows, needed / max(needed.max(), 1e-300)


@pytest.mark.parametrize("seed", range(60))
def test_weights_cover_at_the_least_sum(seed, monkeypatch):
    rows, needed = rows_and_needs(seed)
    highs = linprog(np.ones(len(rows)), A_ub=-rows.T, b_ub=-needed, bounds=(0, None))
    weights = covering_weights(rows, needed)
    if weights is None:
        assert highs.status == 2  # infeasible: a column that no row has
        return
    assert highs.status == 0
    assert np.all(weights >= 0)
    assert np.all(weights @ rows >= needed - 1e-9)
    assert weights.sum() == pytest.approx(highs.fun, rel=1e-9)
    monkeypatch.setattr(shares, "SMALL", 0)  # by SciPy, as for large programmes
    assert covering_weights(rows, needed).sum() == pytest.approx(highs.fun, rel=1e-9)


def test_no_weights_cover_what_no_row_has():
    assert covering_weights(np.array([[1.0, 0.0]]), np.array([1.0, 1.0])) is None


def posynomials(seed):
    """log Σ exp of affine functions: convex, smooth, and bounded below."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    slopes = rng.normal(size=(4 * n, n)) * 10.0 ** rng.uniform(-1, 1, n)
    slopes = np.concatenate([slopes, -slopes])
    offsets = rng.normal(size=len(slopes)) * 3

    def function(x):
        terms = slopes @ x + offsets
        largest = terms.max()
        parts = np.exp(terms - largest)
        return float(largest + np.log(parts.sum())), parts / parts.sum() @ slopes

    return function, rng.normal(size=n)


@pytest.mark.parametrize("bounds", [(-30.0, 30.0), (-0.2, 0.1)])
@pytest.mark.parametrize("seed", range(12))
def test_descent_is_as_low_as_scipys(seed, bounds):
    function, start = posynomials(seed)
    found = least_point(function, start, bounds)
    other = minimize(
        function, np.clip(start, *bounds), jac=True, method="L-BFGS-B",
        bounds=[bounds] * len(start), options={"maxiter": 5000, "ftol": 1e-13, "gtol": 1e-9},
    )  # fmt: skip
    assert np.all((found >= bounds[0]) & (found <= bounds[1]))
    assert function(found)[0] <= other.fun + 1e-6 * max(1.0, abs(other.fun))


def test_one_step_is_not_enough():
    """The comparison can fail."""
    function, start = posynomials(3)
    early = least_point(function, start, (-30.0, 30.0), steps=1)
    late = least_point(function, start, (-30.0, 30.0))
    assert function(early)[0] > function(late)[0] + 1e-3
