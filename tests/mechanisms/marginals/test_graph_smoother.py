"""The sparse system against dense least squares: estimates, variances, sums, slopes, adjoint."""

import itertools

import numpy as np
import pytest

from subspacedp.mechanisms.marginals import sparse_inverse
from subspacedp.mechanisms.marginals.graph_smoother import GraphSmoother, GraphSystem
from subspacedp.mechanisms.marginals.tree import Overlap
from subspacedp.tables import Axis

HELD = {"free": (), "state": (4,), "district": (3,), "both": (4, 3)}
# Levels: 0 block, 1 tract, 2 grid (with holes), 3 district, 4 state, 5 everything.


def overlap_of(seed, blocks=14):
    """Tracts in states, with districts and a grid across them, out of order."""
    rng = np.random.default_rng(seed)
    tract = rng.permutation(np.arange(blocks) // 2)
    state = tract % 3
    grid = [None if rng.random() < 0.2 else int(g) for g in rng.integers(0, 4, blocks)]
    district = rng.integers(0, 3, blocks)
    if seed % 2:  # districts within states: held together they are linearly dependent in no way
        district = state * 2 + rng.integers(0, 2, blocks)
    axis = Axis(
        "block",
        range(blocks),
        levels={"tract": tract.tolist(), "state": state.tolist()},
        groupings={"grid": [0, *grid[1:]], "district": district.tolist()},
    )
    return Overlap(axis, (0, 1, 4, 5, 2, 3))


def system_of(seed, held, constrained):
    overlap = overlap_of(seed)
    levels = [lv for lv in range(1, len(overlap)) if overlap.determines(0, lv)]
    exact = HELD[held]
    known = {lv for lv in levels if any(overlap.determines(e, lv) for e in exact)}
    exact = tuple(e for e in exact if not any(f != e and overlap.determines(f, e) for f in exact))
    measured = tuple(lv for lv in levels if not (constrained and lv in known))
    held = None if constrained or not exact else exact[0]
    return GraphSystem(
        overlap=overlap, finest=0, measured=measured, exact=exact if constrained else (), held=held
    )


def smoother_of(seed, held="free", constrained=True):
    system = system_of(seed, held, constrained)
    rng = np.random.default_rng(seed + 1000)
    return GraphSmoother(system, {lv: rng.uniform(0.1, 3) for lv in (0, *system.measured)})


def dense(smoother):
    """Maps from the measurements, level by level, and from exact totals to the finest level."""
    system = smoother.system
    overlap, n = system.overlap, system.overlap.nodes(0)
    levels = (0, *system.measured)
    S = np.concatenate([overlap.sums(0, lv).toarray() for lv in levels]).astype(float)
    t = np.concatenate([np.full(overlap.nodes(lv), smoother.precision[lv]) for lv in levels])
    A = [overlap.sums(0, lv).toarray().astype(float) for lv in system.given]
    A = np.concatenate(A) if A else np.zeros((0, n))
    if system.held is not None or not system.exact:
        gain = np.linalg.solve(S.T @ (t[:, None] * S), S.T * t)
        if not len(A):
            return gain, np.zeros((n, 0))
        back = np.linalg.pinv(A)
        return gain - back @ A @ gain, back
    _, s, vt = np.linalg.svd(A) if len(A) else (None, np.zeros(0), np.eye(n))
    Z = vt[(s > 1e-9).sum() :].T
    M = S.T @ (t[:, None] * S)
    gain = Z @ np.linalg.solve(Z.T @ M @ Z, Z.T @ (S.T * t))
    back = (np.eye(n) - gain @ S) @ np.linalg.pinv(A) if len(A) else np.zeros((n, 0))
    return gain, back


CASES = [
    (seed, held, constrained)
    for seed, held, constrained in itertools.product(range(5), HELD, (True, False))
    if constrained or held in ("state", "district")
]


def expected_variances(smoother):
    system, (gain, _) = smoother.system, dense(smoother)
    overlap = system.overlap
    t = np.concatenate(
        [np.full(overlap.nodes(lv), smoother.precision[lv]) for lv in (0, *system.measured)]
    )
    covariance = (gain / t) @ gain.T
    out = {}
    for level in system.levels:
        to = overlap.sums(0, level).toarray().astype(float)
        out[level] = np.diag(to @ covariance @ to.T)
    return out


@pytest.fixture(params=[0, 256], ids=["sparse", "whole"])
def inversion(request, monkeypatch):
    """The selected inverse even for small matrices, or the whole one."""
    monkeypatch.setattr(sparse_inverse, "WHOLE", request.param)


@pytest.mark.parametrize(("seed", "held", "constrained"), CASES)
def test_the_estimate_is_that_of_dense_least_squares(seed, held, constrained, inversion):
    smoother = smoother_of(seed, held, constrained)
    system, rng = smoother.system, np.random.default_rng(seed)
    overlap = system.overlap
    measured = {lv: rng.normal(size=(overlap.nodes(lv), 3)) for lv in (0, *system.measured)}
    truth = rng.normal(size=(overlap.nodes(0), 3))
    exact = {lv: overlap.climb(truth, 0, lv) for lv in system.given}
    gain, back = dense(smoother)
    given = np.concatenate([measured[lv] for lv in (0, *system.measured)])
    totals = np.concatenate([np.zeros((0, 3)), *(exact[lv] for lv in system.given)])
    expected = gain @ given + back @ totals
    got = smoother.estimate(measured, exact)
    for level in system.levels:
        np.testing.assert_allclose(got[level], overlap.climb(expected, 0, level), atol=1e-9)


@pytest.mark.parametrize(("seed", "held", "constrained"), CASES)
def test_variances_and_their_sums(seed, held, constrained, inversion):
    smoother = smoother_of(seed, held, constrained)
    expected = expected_variances(smoother)
    sums, slopes = smoother.summed(None)
    assert slopes == {}
    for level, variances in expected.items():
        np.testing.assert_allclose(smoother.variances[level], variances, atol=1e-9)
        if not smoother.system.known(level):
            np.testing.assert_allclose(sums[level], variances.sum(), rtol=1e-9)


@pytest.mark.parametrize(("seed", "held", "constrained"), CASES[::2])
def test_slopes_are_finite_differences(seed, held, constrained, inversion):
    smoother = smoother_of(seed, held, constrained)
    system, rng = smoother.system, np.random.default_rng(seed)
    weights = {lv: rng.uniform(0.1, 2) for lv in system.figures}
    each = np.array([weights.get(lv, 0.0) for lv in range(len(system.overlap))])

    def goal(precision):
        found = expected_variances(GraphSmoother(system, precision))
        return sum(w * found[lv].sum() for lv, w in weights.items())

    _, slopes = smoother.summed(each)
    for level in (0, *system.measured):
        step = 1e-5 * smoother.precision[level]
        up, down = dict(smoother.precision), dict(smoother.precision)
        up[level] += step
        down[level] -= step
        numeric = -(goal(up) - goal(down)) / (2 * step)
        np.testing.assert_allclose(slopes[level][0], numeric, rtol=2e-5, atol=1e-8)


@pytest.mark.parametrize(("seed", "held", "constrained"), CASES[::3])
def test_one_nodes_slopes_add_up_to_those_of_all(seed, held, constrained):
    smoother = smoother_of(seed, held, constrained)
    for level in smoother.system.figures:
        each = [
            smoother.slopes_at(level, node) for node in range(smoother.system.overlap.nodes(level))
        ]
        together = smoother.summed(np.eye(6)[level])[1]
        for lv, slope in together.items():
            np.testing.assert_allclose(sum(e[lv] for e in each), slope, atol=1e-9)


@pytest.mark.parametrize(("seed", "held", "constrained"), CASES)
def test_noise_weights_are_the_adjoint(seed, held, constrained, inversion):
    smoother = smoother_of(seed, held, constrained)
    system, rng = smoother.system, np.random.default_rng(seed)
    overlap = system.overlap
    noise = {lv: rng.normal(size=(overlap.nodes(lv), 2)) for lv in (0, *system.measured)}
    weights = {lv: rng.normal(size=(overlap.nodes(lv), 2)) for lv in system.levels}
    nothing = {lv: np.zeros((overlap.nodes(lv), 2)) for lv in system.given}
    estimate = smoother.estimate(noise, nothing)
    left = sum(float((weights[lv] * estimate[lv]).sum()) for lv in system.levels)
    adjoint = smoother.noise_weights(weights)
    right = sum(float((adjoint[lv] * noise[lv]).sum()) for lv in noise)
    np.testing.assert_allclose(left, right, rtol=1e-9)


def test_what_is_not_measured_by_itself_has_a_variance_too():
    every = smoother_of(3)
    system = GraphSystem(overlap=every.system.overlap, finest=0, measured=(1, 3))
    smoother = GraphSmoother(system, {0: 1.0, 1: 0.5, 3: 2.0})
    for level, variances in expected_variances(smoother).items():
        np.testing.assert_allclose(smoother.variances[level], variances, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_meetings_are_those_of_all_pairs_of_labels(seed):
    overlap = overlap_of(seed)
    of = np.stack(overlap.of_label, axis=1)
    every = set()
    for i, j in itertools.product(range(len(of)), repeat=2):
        pair = sorted([tuple((of[i] >= 0).tolist()), tuple((of[j] >= 0).tolist())])
        every.add((*pair, tuple(((of[i] == of[j]) & (of[i] >= 0)).tolist())))
    inside = [tuple(row) for row in overlap.inside.tolist()]
    found = {
        (*sorted([inside[p], inside[q]]), tuple(same.tolist())) for p, q, same in overlap.meetings
    }
    assert found == every
