"""Least squares without negative values, and controlled rounding: against oracles."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.solvers import (
    nearest_with_margins,
    nearest_with_total,
    round_with_margins,
    round_with_total,
)
from subspacedp.errors import ReleaseError

SEEDS = st.integers(0, 2**32 - 1)


def margins_of(rng, shape, zeros=False):
    """Sums that some table of whole numbers has."""
    table = rng.poisson(3.0, shape)
    if zeros:
        table[rng.integers(shape[0])] = 0
        table[:, rng.integers(shape[1])] = 0
    return table.sum(axis=1), table.sum(axis=0)


@given(SEEDS, st.integers(1, 30), st.integers(0, 50))
def test_the_simplex_projection_is_a_threshold_that_adds_up(seed, size, total):
    y = np.random.default_rng(seed).normal(0, 20, size)
    z = nearest_with_total(y, total)
    assert z.sum() == pytest.approx(total, abs=1e-9)
    assert np.all(z >= 0)
    # The conditions of Karush, Kuhn and Tucker: one shift on the positive cells, none below it.
    positive = z > 0
    if positive.any():
        shifts = (y - z)[positive]
        assert np.ptp(shifts) < 1e-9
        assert np.all(y[~positive] <= shifts.min() + 1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("zeros", [False, True])
def test_the_nearest_table_with_margins_agrees_with_a_solver(seed, zeros):
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 9)), int(rng.integers(2, 6)))
    rows, columns = margins_of(rng, shape, zeros)
    y = rng.normal(3, 8, shape)
    z = nearest_with_margins(y, rows, columns)
    assert np.all(z >= 0)
    np.testing.assert_allclose(z.sum(axis=1), rows, atol=1e-7)
    np.testing.assert_allclose(z.sum(axis=0), columns, atol=1e-7)
    asked = cvxpy.Variable(shape)
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(asked - y)),
        [asked >= 0, cvxpy.sum(asked, axis=1) == rows, cvxpy.sum(asked, axis=0) == columns],
    )
    problem.solve(solver="CLARABEL")
    np.testing.assert_allclose(z, asked.value, atol=2e-4)
    # The oracle's tables are near; no feasible one may be nearer.
    assert np.sum((z - y) ** 2) <= problem.value + 1e-5


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_no_step_to_another_table_comes_nearer_at_any_scale(scale):
    rng = np.random.default_rng(7)
    table = np.rint(scale * rng.lognormal(0, 2, (120, 16))).astype(np.int64)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    y = table + rng.normal(0, 0.3 * scale, table.shape)
    z = nearest_with_margins(y, rows, columns)
    np.testing.assert_allclose(z.sum(axis=0), columns, rtol=1e-12, atol=1e-7)
    np.testing.assert_allclose(z.sum(axis=1), rows, rtol=1e-12, atol=1e-7)
    # Moving people around a rectangle of cells, as far as they last, never pays: the slope of the
    # squared distance along it is not negative.
    gap = z - y
    for _ in range(3000):
        i, k = rng.choice(120, 2, replace=False)
        j, m = rng.choice(16, 2, replace=False)
        if min(z[i, m], z[k, j]) > 1e-6 * scale:  # room to take from these two
            assert gap[i, j] + gap[k, m] - gap[i, m] - gap[k, j] >= -1e-6 * scale


def test_sums_that_do_not_agree_are_refused():
    with pytest.raises(ReleaseError, match="agree in total"):
        nearest_with_margins(np.zeros((2, 2)), [1, 1], [1, 2])
    with pytest.raises(ReleaseError, match="must not be negative"):
        nearest_with_margins(np.zeros((2, 2)), [2, -1], [1, 0])


@given(SEEDS, st.integers(1, 20), st.integers(0, 60))
def test_rounding_to_a_total_moves_no_cell_by_one_and_is_the_nearest(seed, size, total):
    z = nearest_with_total(np.random.default_rng(seed).normal(2, 5, size), total)
    q = round_with_total(z, total)
    assert q.sum() == total
    assert np.all(np.abs(q - z) < 1)
    assert np.all(q >= 0)
    # Exchanging an up for a down never comes nearer.
    ups, downs = z[q > z] - np.floor(z[q > z]), z[q <= z] - np.floor(z[q <= z])
    if ups.size and downs.size:
        assert ups.min() >= downs.max() - 1e-6


@given(SEEDS)
def test_rounding_to_margins_is_the_nearest_of_all(seed):
    rng = np.random.default_rng(seed)
    rows, columns = margins_of(rng, (3, 3))
    z = nearest_with_margins(rng.normal(2, 4, (3, 3)), rows, columns)
    q = round_with_margins(z, rows, columns)
    assert q.dtype == np.int64
    assert q.sum(axis=1).tolist() == rows.tolist()
    assert q.sum(axis=0).tolist() == columns.tolist()
    assert np.all(np.abs(q - z) < 1)
    low = np.floor(z + 1e-6).astype(int)
    best = min(
        np.abs(low + np.reshape(ups, (3, 3)) - z).sum()
        for ups in itertools.product((0, 1), repeat=9)
        if (low + np.reshape(ups, (3, 3))).sum(axis=1).tolist() == rows.tolist()
        and (low + np.reshape(ups, (3, 3))).sum(axis=0).tolist() == columns.tolist()
    )
    assert np.abs(q - z).sum() <= best + 1e-6


def test_values_without_the_sums_are_refused():
    with pytest.raises(ReleaseError, match="do not add up"):
        round_with_total([0.5, 0.5], 9)
    with pytest.raises(ReleaseError, match="do not have the sums"):
        round_with_margins([[0.5, 0.5], [0.5, 0.5]], [2, 2], [2, 1])
