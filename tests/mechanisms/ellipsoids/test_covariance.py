"""The covariance of least trace: primal against dual against a semidefinite programme."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subspacedp.errors import InvariantError
from subspacedp.mechanisms.covariance import (
    best_covariance,
    best_covariance_of_pairs,
    trace_bound,
)


def differences(points):
    return np.array([a - b for a, b in itertools.combinations(points.T, 2)]).T


def by_cvxpy(vectors):
    """min tr Σ with a Schur complement for every vector."""
    n = len(vectors)
    covariance = cp.Variable((n, n), symmetric=True)
    limits = [
        cp.bmat([[covariance, v.reshape(-1, 1)], [v.reshape(1, -1), np.ones((1, 1))]]) >> 0
        for v in vectors.T
    ]
    problem = cp.Problem(cp.Minimize(cp.trace(covariance)), limits)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def largest(found, vectors):
    """max vᵀΣ⁻¹v, by a pseudo-inverse."""
    inverse = np.linalg.pinv(found.covariance, rcond=1e-13, hermitian=True)
    return float(np.einsum("ij,ij->j", vectors, inverse @ vectors).max())


def ranges(k):
    rows = [(a, b) for a in range(k) for b in range(a + 1, k + 1)]
    return np.array([[float(a <= i < b) for i in range(k)] for a, b in rows])


RNG = np.random.default_rng(7)
CASES = {
    "prefix": np.tril(np.ones((16, 16))),
    "ranges, more answers than columns": ranges(6),
    "random": RNG.normal(size=(8, 40)),
    "rows of different scale": RNG.normal(size=(8, 30)) * np.logspace(-4, 1, 8)[:, None],
    "columns of different scale": RNG.normal(size=(6, 30)) * np.logspace(-4, 1, 30),
    "a zero column, equal columns": np.array([[0.0, 1, 1, 2, -1], [0.0, 2, 2, 0, 1]]),
    "one direction": np.outer([1.0, 2.0, -1.0], [1.0, -3.0, 2.0]),
}


@pytest.mark.parametrize("A", CASES.values(), ids=CASES.keys())
def test_primal_against_dual(A):
    for found, vectors in (
        (best_covariance(A), A),
        (best_covariance_of_pairs(A), differences(A)),
    ):
        assert largest(found, vectors) == pytest.approx(1.0, rel=1e-6)
        assert found.trace <= found.bound * 1.001
        assert found.gap <= 1e-3
        # The root is the covariance's: W Σ Wᵀ = 1, and W v has length at most one.
        inner = found.root @ found.covariance @ found.root.T
        assert np.allclose(inner, np.eye(len(inner)), atol=1e-6)
        assert np.square(found.root @ vectors).sum(axis=0).max() <= 1 + 1e-9


@pytest.mark.parametrize("name", ["prefix", "random", "a zero column, equal columns"])
def test_against_a_semidefinite_programme(name):
    A = CASES[name][:, :12][:6]
    for found, vectors in (
        (best_covariance(A, tolerance=1e-6), A),
        (best_covariance_of_pairs(A, tolerance=1e-5), differences(A)),
    ):
        exact = by_cvxpy(vectors)
        assert found.trace == pytest.approx(exact, rel=1e-4)
        assert found.bound <= exact * (1 + 1e-6)


@given(seed=st.integers(0, 2**32 - 1))
def test_any_weights_give_a_lower_bound(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 6)), int(rng.integers(2, 9))
    V = rng.normal(size=(n, d)) * np.exp(rng.normal(size=(n, 1)) * 3)
    best = best_covariance(V)
    assert trace_bound(V, rng.random(d)) <= best.trace * (1 + 1e-9)
    pairs = np.array(list(itertools.combinations(range(d), 2)))
    both = best_covariance_of_pairs(V)
    assert trace_bound(V, rng.random(len(pairs)), pairs) <= both.trace * (1 + 1e-9)
    assert trace_bound(V, both.weights, both.pairs) == pytest.approx(both.bound, rel=1e-6)


def test_equal_weights_give_the_singular_value_bound():
    V = RNG.normal(size=(5, 20))
    nuclear = np.linalg.svd(V, compute_uv=False).sum()
    assert trace_bound(V, np.ones(20)) == pytest.approx(nuclear**2 / 20, rel=1e-9)


def test_weights_of_other_vectors_prove_nothing():
    """The bound is of the vectors it is given: of longer ones it is too large for these."""
    V = CASES["random"]
    found = best_covariance(V)
    assert trace_bound(1.01 * V, found.weights) > found.trace


def test_an_active_set_finds_the_same_as_all_pairs():
    A = RNG.normal(size=(6, 60))
    dense, active = best_covariance_of_pairs(A), best_covariance_of_pairs(A, dense=0)
    assert active.gap <= 1e-3
    assert active.trace == pytest.approx(dense.trace, rel=2e-3)


def test_the_trace_scales_and_turns_with_the_vectors():
    V = CASES["random"]
    turn, _ = np.linalg.qr(RNG.normal(size=(8, 8)))
    one = best_covariance(V, tolerance=1e-5).trace
    assert best_covariance(3 * turn @ V, tolerance=1e-5).trace == pytest.approx(9 * one, rel=1e-4)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (np.zeros((3, 4)), "nothing to protect"),
        (np.full((2, 2), np.nan), "finite"),
        (np.zeros((0, 3)), "finite"),
        (np.ones(3), "matrix"),
    ],
)
def test_bad_input_is_one_sentence(bad, said):
    for solve in (best_covariance, best_covariance_of_pairs):
        with pytest.raises(InvariantError, match=said):
            solve(bad)


def test_pairs_need_two_kinds_of_records():
    with pytest.raises(InvariantError, match="two kinds"):
        best_covariance_of_pairs(np.ones((3, 1)))
    with pytest.raises(InvariantError, match="alike"):
        best_covariance_of_pairs(np.ones((3, 5)) * 0.1)
