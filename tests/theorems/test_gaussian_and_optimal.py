"""Error formulas of Corollaries 14 and 15, conditioning (Theorem 22), and opt (Corollary 19)."""

import itertools
import math
import warnings
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import dense

import subspacedp as sdp

BUDGET = sdp.ApproxDP(1.0, 1e-6)
c = sdp.calibrate_gaussian(1.0, 1e-6)  # in place of the paper's constant


def random_problem(seed):
    """A small integer query and invariants with something left to protect."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 6)), int(rng.integers(2, 6))
    A = rng.integers(-3, 4, (n, d))
    A[0, 0], A[0, 1] = 5, -4  # never constant, so that one person matters
    C = rng.integers(-2, 3, (int(rng.integers(1, n)), n))
    if dense.rank(C) == n:
        C = C[:1]
    return A, C


def delta2(A, relation):
    if relation.persons == 1:
        return max(np.linalg.norm(a) for a in A.T)
    return max(np.linalg.norm(a - b) for a, b in itertools.combinations(A.T, 2))


@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne()], ids=repr)
@given(seed=st.integers(0, 2**32 - 1))
def test_error_formulas(relation, seed):
    A, C = random_problem(seed)
    query, held = sdp.LinearQuery(A), sdp.LinearInvariants(C)
    free = A.shape[0] - dense.rank(C)
    P = dense.float_projector(C)
    if delta2(P @ A, relation) < 1e-9:
        return  # nothing of the query is left to protect
    projected = sdp.design(query, held, BUDGET, neighbours=relation)
    extended = sdp.design(query, held, BUDGET, neighbours=relation, mechanism="extended")
    # Corollary 14: (n − n_c)c²Δ₂(A)²; noise rounded to whole numbers adds 1/12 a dimension.
    formula = free * (c * delta2(A, relation)) ** 2
    assert projected.expected_error().total == pytest.approx(formula + free / 12, rel=1e-6)
    # Corollary 15: (n − n_c)c²Δ₂(QᵀA)²; the grid of 2⁻³⁰ adds nothing that shows.
    formula = free * (c * delta2(P @ A, relation)) ** 2
    assert extended.expected_error().total == pytest.approx(formula, rel=1e-6)
    assert extended.expected_error().total <= projected.expected_error().total * (1 + 1e-7)


@given(seed=st.integers(0, 2**32 - 1))
def test_extended_sensitivity_is_the_projected_querys(seed):
    A, C = random_problem(seed)
    space = sdp.null_space(sdp.LinearQuery(A), sdp.LinearInvariants(C))
    Q, P = space.basis(), dense.float_projector(C)
    for relation in (sdp.ReplaceOne(), sdp.AddRemoveOne()):
        inside = delta2(Q.T @ A, relation)
        assert inside == pytest.approx(delta2(P @ A, relation), abs=1e-9)
        assert inside <= delta2(A, relation) + 1e-9


# ----------------------------------------------------------------------- Theorem 22: conditioning


@given(seed=st.integers(0, 2**32 - 1))
def test_projected_spherical_gaussian_is_conditioning(seed):
    """Both are normal: the means and covariances of the ideal laws agree."""
    _, C = random_problem(seed)
    C = dense.independent_rows(C) if C.any() else C[:0]
    n = C.shape[1]
    rng = np.random.default_rng(seed)
    truth, variance = rng.normal(0, 100, n), 7.5
    P = dense.float_projector(C)
    gain = C.T @ np.linalg.inv(C @ C.T) if C.size else np.zeros((n, 0))
    # Given C M = C A(x): mean A(x) + gain·(C A(x) − C A(x)) and the Schur complement.
    covariance = variance * (np.eye(n) - gain @ C)
    mean = truth + gain @ (C @ truth - C @ truth)
    assert np.allclose(variance * P @ P.T, covariance, atol=1e-9)
    assert np.array_equal(mean, truth)  # A(x), not C A(x)


def laws_of_the_difference(mass):
    """Two cells, their total held: the law of e₁ − e₂ projected, and given e₁ + e₂ = 0."""
    projected, given_ = {}, {}
    for a, b in itertools.product(mass, repeat=2):
        projected[a - b] = projected.get(a - b, Fraction(0)) + mass[a] * mass[b]
        if a + b == 0:
            given_[a - b] = given_.get(a - b, Fraction(0)) + mass[a] * mass[b]
    total = sum(given_.values())
    return projected, {k: v / total for k, v in given_.items()}


def test_projected_laplace_is_not_conditioning():
    q = Fraction(1, 2)
    mass = {z: q ** abs(z) for z in range(-8, 9)}
    total = sum(mass.values())
    projected, given_ = laws_of_the_difference({z: m / total for z, m in mass.items()})
    # Even on the common support the ratios differ: q²(2 + s)/s against q².
    assert given_[2] / given_[0] == q**2
    assert projected[2] / projected[0] > Fraction(3, 2) * q**2
    variance = [sum(k * k * p for k, p in law.items()) for law in (projected, given_)]
    assert variance[0] > Fraction(3, 2) * variance[1]


def test_a_rounded_gaussian_is_conditioned_only_nearly():
    """The theorem is about the ideal law: rounded noise, projected, reaches odd differences too."""
    mass = {z: Fraction(round(10**9 * math.exp(-z * z / 8))) for z in range(-9, 10)}
    total = sum(mass.values())
    projected, given_ = laws_of_the_difference({z: m / total for z, m in mass.items()})
    assert 1 in projected
    assert 1 not in given_


# ----------------------------------------------------------- Corollary 19: opt^C(A) = opt(Π_N A)


def smallest_trace(vectors, n, C=None):
    """min tr Σ with vᵀΣ⁻¹v ≤ 1 for all v (a Schur complement each), and CΣ = 0 if C is given."""
    covariance = cp.Variable((n, n), symmetric=True)
    limits = [
        cp.bmat([[covariance, v.reshape(-1, 1)], [v.reshape(1, -1), np.ones((1, 1))]]) >> 0
        for v in vectors
    ]
    if C is not None:
        limits.append(C @ covariance == 0)
    problem = cp.Problem(cp.Minimize(cp.trace(covariance)), limits)
    with warnings.catch_warnings():
        # CΣ = 0 leaves no interior: on some machines the last digits are not reached, and that is
        # told. The callers compare three programmes to 1e-5.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    return float(problem.value)


@pytest.mark.parametrize("seed", range(4))
def test_optimal_error_under_invariants_is_that_of_the_projected_query(seed):
    """Over Gaussian mechanisms: solved in the whole space, for Π_N A, and in coordinates of N."""
    rng = np.random.default_rng(seed)
    A = rng.integers(-3, 4, (4, 5)).astype(float) * [[1], [1], [5], [1]]
    C = rng.integers(-1, 2, (1, 4))
    C[0, 0] = 1
    P = dense.float_projector(C)
    Q = sdp.null_space(sdp.LinearQuery(A), sdp.LinearInvariants(C)).basis()
    moves = [a - b for a, b in itertools.combinations(A.T, 2)]
    under = smallest_trace([P @ v for v in moves], 4, C)  # noise in N, whole space
    free = smallest_trace([P @ v for v in moves], 4)  # any private mechanism for Π_N A
    inner = smallest_trace([Q.T @ v for v in moves], 3)  # in coordinates
    assert under == pytest.approx(free, rel=1e-5)
    assert inner == pytest.approx(free, rel=1e-5)
    # And spherical noise, the extended Gaussian, cannot be better.
    query, held = sdp.LinearQuery(A), sdp.LinearInvariants(C)
    extended = sdp.design(query, held, BUDGET, mechanism="extended").expected_error().total
    assert free * c**2 <= extended * (1 + 1e-5)
