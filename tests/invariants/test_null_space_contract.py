"""One contract for all null spaces, and what a workload's free contrasts share with them.

Every space is compared with a dense oracle: C as a matrix, and Π_R = C⁺C. A twin that breaks one
promise fails.
"""

import numpy as np
import pytest
from tests import dense

import subspacedp as sdp
from subspacedp.errors import InvariantError
from subspacedp.invariants import FreeContrasts, NullSpace

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", range(5), levels={"state": ["x", "y", "x", "y", "x"]}),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
MARGINS = sdp.hold("state", "sex") & sdp.hold("county")
PLACES = sdp.Domain(
    [
        sdp.Axis("sex", ["F", "M"]),
        sdp.Axis("block", range(6), {"county": list("aaabbb")},
                 groupings={"grid": [1, 2, 2, 1, 2, None], "school": [1, 1, 2, 2, None, 2],
                            "all of it": [1] * 6}),
    ]
)  # fmt: skip
EQUALITIES = np.zeros((3, 10), np.int64)
EQUALITIES[0, [0, 1, 3, 9]] = 1, -1, 2, 1
EQUALITIES[1, [2, 4]] = 3, 1
EQUALITIES[2] = EQUALITIES[0] + EQUALITIES[1]
EMPTY = np.zeros(DOMAIN.shape, bool)
EMPTY[1, 1] = True
WORKLOAD = sdp.Margins(DOMAIN, [["county"], ["state", "sex"]])


def bound(query, held=None):
    return sdp.null_space(query, held)


SPACES = {
    "margins": lambda: bound(DOMAIN, MARGINS),
    "nothing": lambda: bound(DOMAIN),
    "crossing": lambda: bound(PLACES, sdp.hold("county") & sdp.hold("grid")),
    "crossing, beside others": lambda: bound(PLACES, sdp.hold("county", "sex") & sdp.hold("grid")),
    "three crossing": lambda: bound(
        PLACES, sdp.hold("county", "sex") & sdp.hold("grid") & sdp.hold("school", "sex")
    ),
    "one grouping": lambda: bound(PLACES, sdp.hold("school")),
    "a grouping of one group": lambda: bound(PLACES, sdp.hold("all of it") & sdp.hold("grid")),
    "the total of sums": lambda: bound(sdp.ClippedSums(DOMAIN, "pay", 0, 9), sdp.hold()),
    "a matrix": lambda: bound(DOMAIN, sdp.LinearInvariants(EQUALITIES)),
    "a real matrix": lambda: bound(DOMAIN, sdp.LinearInvariants(EQUALITIES * 0.3)),
    "margins and empty cells": lambda: bound(DOMAIN, MARGINS & sdp.zeros(EMPTY)),
    "of a linear query": lambda: bound(
        sdp.LinearQuery(np.eye(4)), sdp.LinearInvariants([[1, 1, 1, 1], [0, 2, 0, 2]])
    ),
}
WORKLOADS = {
    "a workload": lambda: bound(WORKLOAD, sdp.hold("state")),
    "a workload, held apart": lambda: bound(WORKLOAD, sdp.hold("sex") & sdp.hold("state")),
    "a workload, nothing held": lambda: bound(WORKLOAD),
}
every_space = pytest.mark.parametrize("name", SPACES)
all_contrasts = pytest.mark.parametrize("name", [*SPACES, *WORKLOADS])


def matrices(space: FreeContrasts) -> tuple[np.ndarray, np.ndarray]:
    """What is asked and what is held, as matrices on the cells of a table, or on the answers."""
    if space.held.family is None:
        return np.eye(space.size), space.held.matrix.toarray()
    names = [margin.names for margin in space.held.margins]
    held = [dense.margin_matrix(DOMAIN, own) for own in names] or [np.zeros((0, DOMAIN.size))]
    if isinstance(space, NullSpace):
        return np.eye(space.size), np.concatenate(held)
    asked = [dense.margin_matrix(DOMAIN, margin.names) for margin in WORKLOAD.margins]
    return np.concatenate(asked), np.concatenate(held)


def row_projector(C: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(C) @ C if len(C) else np.zeros((C.shape[1], C.shape[1]))


def check_contrasts(space: FreeContrasts) -> None:
    W, C = matrices(space)
    assert space.size == np.linalg.matrix_rank(np.concatenate([W, C]))
    assert space.rank == (np.linalg.matrix_rank(C) if len(C) else 0)
    assert space.rank + space.dimension == space.size
    assert str(space.held) in repr(space)
    R = row_projector(C)
    rng = np.random.default_rng(1)
    for w in (*rng.normal(size=(5, len(W))), *np.eye(len(W)), np.ones(len(W))):
        question = W.T @ w
        share = question @ R @ question / (question @ question)
        for scale in (1.0, -1e200, 1e-200):
            found = space.share_exposed(scale * w.reshape(space.shape))
            assert 0.0 <= found <= 1.0
            assert found == pytest.approx(share, abs=1e-9)
    for weights in (np.zeros(space.shape), np.full(space.shape, np.nan), np.ones(3)):
        with pytest.raises(InvariantError):
            space.share_exposed(weights)


def check_null_space(space: NullSpace) -> None:
    check_contrasts(space)
    _, C = matrices(space)
    rng = np.random.default_rng(2)
    close = {"rtol": 0, "atol": 1e-8}
    P = np.stack([space.project(e.reshape(space.shape)).ravel() for e in np.eye(space.size)])
    assert np.allclose(P @ P, P, **close)
    assert np.allclose(P, P.T, **close)
    assert np.allclose(C @ P, 0.0, **close)
    assert np.trace(P) == pytest.approx(space.dimension)
    assert np.all(space.diagonal().ravel() >= np.diag(P) - 1e-9)
    assert space.diagonal().shape == space.shape
    Q = space.basis()
    assert np.allclose(Q.T @ Q, np.eye(space.dimension), **close)
    assert np.allclose(Q @ Q.T, P, **close)
    assert space.squared_ones() == pytest.approx(P.sum(), abs=1e-9)
    for _ in range(5):
        whole = rng.integers(-50, 50, space.shape)
        if space.held.empty is not None:
            whole[space.held.empty] = 0
        residual = space.held.sums(whole)
        lifted = space.lift(residual, error=space.rounding(whole))
        assert np.allclose(space.project(whole) + lifted, whole, **close)
        assert np.allclose(P @ lifted.ravel(), 0.0, **close)  # of least norm
        assert np.allclose(space.subtract_lift(whole.copy(), residual), whole - lifted, **close)
        assert np.allclose(space.project(whole.ravel()), space.project(whole))
        assert space.contains(space.project(whole))
        assert space.contains(whole) == (not (C @ whole.ravel()).any())
    for row in C:
        assert not space.contains(row.reshape(space.shape))
    if space.held.exact:
        assert space.rounding(np.ones(space.shape, np.int64)) == 0.0


@every_space
def test_every_null_space_keeps_the_contract(name):
    space = SPACES[name]()
    assert isinstance(space, NullSpace)
    check_null_space(space)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_contrasts_of_a_workload_keep_theirs(name):
    space = WORKLOADS[name]()
    assert not isinstance(space, NullSpace)
    check_contrasts(space)


@all_contrasts
def test_nothing_of_a_space_raises_by_design(name):
    """No class overrides a promise of its base with a refusal: what it has, it can do."""
    space = {**SPACES, **WORKLOADS}[name]()
    promises = {m for base in type(space).__mro__ for m in getattr(base, "__abstractmethods__", ())}
    assert promises <= set(dir(space))
    assert not getattr(type(space), "__abstractmethods__", None)


def test_who_needs_a_projection_of_a_workload_is_told():
    problem = sdp.design(WORKLOAD, sdp.hold("state"), sdp.ZCDP(0.5)).mechanism
    assert problem.space.rank == 2
    with pytest.raises(InvariantError, match="no table to project"):
        _ = problem.null_space


def oblique(space, values):
    """C P = 0 and P² = P, and not the nearest vector: one held cell is moved to fit."""
    inside = np.asarray(values, np.float64).reshape(space.shape)
    nearest = np.linalg.pinv(matrices(space)[1] * np.linspace(1, 2, space.size))
    moved = np.linspace(1, 2, space.size)[:, None] * nearest @ matrices(space)[1]
    return inside - (moved @ inside.ravel()).reshape(space.shape)


TWINS = {
    "rank": property(lambda self: self.held.space.rank + 1),
    "share_exposed": lambda self, w: self.held.space.share_exposed(w) / 2,
    "project": oblique,
    "lift": lambda self, r, error=0.0: (
        self.held.space.lift(r, error=error) + self.held.space.project(np.eye(10)[0])
    ),
    "subtract_lift": lambda self, y, r, overwrite=False: y.astype(np.float64),
    "diagonal": lambda self: self.held.space.diagonal() / 2,
    "basis": lambda self: self.held.space.basis()[:, ::-1] * 1.001,
    "contains": lambda self, v: True,
    "squared_ones": lambda self: self.held.space.squared_ones() + 1,
    "rounding": lambda self, v: 1.0,
}


@pytest.mark.parametrize("promise", TWINS)
@pytest.mark.parametrize("name", ["margins", "a matrix"])
def test_a_null_space_that_breaks_one_promise_fails(name, promise):
    space = SPACES[name]()
    twin = type("Twin", (type(space),), {promise: TWINS[promise]})(space.held)
    with pytest.raises(AssertionError):
        check_null_space(twin)


@pytest.mark.parametrize("promise", ["rank", "share_exposed"])
def test_contrasts_that_break_one_promise_fail(promise):
    space = WORKLOADS["a workload"]()
    twin = type("Twin", (type(space),), {promise: TWINS[promise]})(space.held)
    with pytest.raises(AssertionError):
        check_contrasts(twin)
