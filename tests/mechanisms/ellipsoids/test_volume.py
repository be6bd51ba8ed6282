"""Ellipsoids of least volume: all points inside, and no smaller one by the dual."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subspacedp.errors import InvariantError
from subspacedp.mechanisms.correlated import (
    smallest_ellipsoid,
    smallest_ellipsoid_of_pairs,
)

RNG = np.random.default_rng(3)


def reach(found, points):
    return float(np.square((found.axes / found.radii).T @ points).sum(axis=0).max())


def differences(points):
    return np.array([a - b for a, b in itertools.combinations(points.T, 2)]).T


def log_volume(points):
    """Of the least ellipsoid {|Bx| ≤ 1}, by a determinant programme."""
    n = len(points)
    B = cp.Variable((n, n), PSD=True)
    problem = cp.Problem(cp.Maximize(cp.log_det(B)), [cp.norm(B @ points, 2, axis=0) <= 1])
    problem.solve(solver=cp.CLARABEL)
    return -float(problem.value)


@pytest.mark.parametrize("shape", [(2, 5), (4, 12), (5, 30)])
def test_against_a_determinant_programme(shape):
    V = RNG.normal(size=shape) * np.logspace(0, 1, shape[0])[:, None]
    for found, points in (
        (smallest_ellipsoid(V, tolerance=1e-5), V),
        (smallest_ellipsoid_of_pairs(V, tolerance=1e-5), differences(V)),
    ):
        assert np.log(found.radii).sum() == pytest.approx(log_volume(points), abs=1e-3)


@given(seed=st.integers(0, 2**32 - 1))
def test_all_points_are_inside_and_the_gap_holds(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 7)), int(rng.integers(2, 25))
    V = rng.normal(size=(n, d)) * np.exp(2 * rng.normal(size=(n, 1)))
    if rng.random() < 0.3:
        V[:, 1] = V[:, 0]
    for found, points in (
        (smallest_ellipsoid(V), V),
        (smallest_ellipsoid_of_pairs(V), differences(V)),
    ):
        assert 1 - 1e-9 < reach(found, points) <= 1 + 1e-9
        assert found.gap <= 1e-3
        k = len(found.radii)
        assert k == np.linalg.matrix_rank(points)
        assert np.allclose(found.axes.T @ found.axes, np.eye(k), atol=1e-9)
        assert np.all(np.diff(found.radii) <= 0)


def test_away_steps_take_weight_off_points_inside():
    """Most points of a cube's grid are inside; only corners keep weight."""
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=3))).T
    inner = 0.6 * np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=3))).T
    found = smallest_ellipsoid(np.concatenate([inner, corners], axis=1), tolerance=1e-6)
    assert found.weights[: inner.shape[1]].sum() < 1e-5
    assert np.allclose(found.radii, np.sqrt(3), rtol=1e-5)


def test_points_of_lower_rank_are_handled_in_their_span():
    V = np.outer([1.0, 2.0, 2.0], [1.0, -2.0])
    found = smallest_ellipsoid(V)
    assert found.radii.tolist() == pytest.approx([6.0])
    assert np.abs(found.axes[:, 0]).tolist() == pytest.approx([1 / 3, 2 / 3, 2 / 3])


def test_nothing_has_no_ellipsoid():
    with pytest.raises(InvariantError, match="nothing to protect"):
        smallest_ellipsoid(np.zeros((2, 3)))
