"""The smallest change that no invariant notices, against brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from tests import dense
from tests.disclosure import brute
from tests.strategies import examples, problems

import subspacedp as sdp
from subspacedp.disclosure import audit_invariants, smallest_epsilon, smallest_move
from subspacedp.invariants import bind
from subspacedp.queries import Cells


def moved(domain, move):
    """A move as a vector."""
    out = np.zeros(domain.shape, np.int64)
    for labels, by in move.cells:
        place = tuple(
            list(axis.labels).index(label) for axis, label in zip(domain.axes, labels, strict=True)
        )
        out[place] = by
    return out.ravel()


def found(domain, held, neighbours):
    return smallest_move(bind(held, Cells(domain)), neighbours)


@settings(max_examples=examples(3))
@given(problem=problems(min_margins=1, max_axes=3, max_cells=12, max_labels=4, max_levels=2))
def test_moves_of_margins_are_the_smallest(problem):
    domain, held = problem
    C = dense.matrix(domain, held)
    move = found(domain, held, sdp.ReplaceOne())
    truth = brute.smallest_records(C)
    assert (None if move is None else move.people) == truth
    if move is not None:
        z = moved(domain, move)
        assert not np.any(C @ z)
        assert np.abs(z).sum() == move.records == move.squared == 2 * truth
        assert found(domain, held, sdp.AddRemoveOne()).people == 2 * truth


@settings(max_examples=40)
@given(problem=problems(min_margins=1, max_axes=3, max_cells=12, max_labels=4, max_levels=1))
def test_the_search_for_any_matrix_finds_the_same(problem):
    domain, held = problem
    matrix = sdp.LinearInvariants(dense.matrix(domain, held))
    by_margins = found(domain, held, sdp.ReplaceOne())
    by_search = found(domain, sdp.hold() & matrix, sdp.ReplaceOne())
    assert (by_search is None) == (by_margins is None)
    if by_search is not None:
        assert by_search.people == by_margins.people
        assert by_search.exact


def test_moves_of_wider_tables():
    domain = sdp.Domain([sdp.Axis(name, range(3)) for name in "abcd"])
    cases = [
        ([()], 1),
        ([("a",)], 1),
        ([("a",), ("b",)], 1),  # c and d are free
        ([("a",), ("b",), ("c",), ("d",)], 2),
        ([("a", "b"), ("c", "d")], 2),
        ([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")], 2),  # a and c together
        ([("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")], 4),
        ([("a", "b", "c"), ("a", "b", "d"), ("a", "c", "d"), ("b", "c", "d")], 8),
    ]
    for margins, people in cases:
        held = sdp.hold(*margins[0])
        for names in margins[1:]:
            held &= sdp.hold(*names)
        assert found(domain, held, sdp.ReplaceOne()).people == people


def test_nothing_held_and_everything_held():
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    nothing = sdp.hold("a")
    assert found(domain, nothing, sdp.ReplaceOne()) is None
    empty = bind(type(nothing)(), Cells(domain))
    assert smallest_move(empty, sdp.ReplaceOne()).people == 1
    assert smallest_move(empty, sdp.AddRemoveOne()).records == 1


def test_people_with_several_records_need_fewer_people():
    domain = sdp.Domain([sdp.Axis(name, range(2)) for name in "abc"])
    held = sdp.hold("a", "b") & sdp.hold("b", "c") & sdp.hold("a", "c")
    for records, replaced in ((1, 4), (2, 2), (3, 2), (4, 1), (9, 1)):
        assert found(domain, held, sdp.ReplaceOne(records=records)).people == replaced
        assert found(domain, held, sdp.AddRemoveOne(records=records)).people == 2 * replaced


TWO = sdp.Domain([sdp.Axis("age", range(3)), sdp.Axis("zip", range(4))])
BOTH = sdp.hold("age") & sdp.hold("zip")


def loss(budget, neighbours=None, decimals=None):
    audit = audit_invariants(
        TWO, BOTH, neighbours=neighbours or sdp.ReplaceOne(), budget=budget, decimals=decimals
    )
    return audit.loss


def test_the_loss_of_a_move_is_exact_from_the_noise_law():
    assert loss(sdp.PureDP(0.3)).amount == pytest.approx(0.6, rel=1e-12)
    assert loss(sdp.PureDP(0.3), sdp.AddRemoveOne()).amount == pytest.approx(1.2, rel=1e-12)
    assert loss(sdp.GaussianDP(0.5)).amount == pytest.approx(0.5 * math.sqrt(2), rel=1e-12)
    assert loss(sdp.ZCDP(0.1)).amount == pytest.approx(0.2, rel=1e-12)
    approximate = loss(sdp.ApproxDP(1.0, 1e-6))
    mu = sdp.ApproxDP(1.0, 1e-6).gaussian_mu * math.sqrt(2)
    assert sdp.gaussian_delta(1 / mu, approximate.amount) <= 1e-6
    assert sdp.gaussian_delta(1 / mu, approximate.amount * (1 - 1e-6)) > 1e-6
    assert 1.0 < approximate.amount < 2.0  # less than two persons one after the other


def test_the_loss_of_a_move_is_attained_by_the_measurement():
    """The largest ratio of two discrete Laplace laws at distance z is e^{ε‖z‖₁/Δ₁}."""
    budget = sdp.PureDP(1.0)
    mechanism = sdp.design(TWO, BOTH, budget)
    z = moved(TWO, audit_invariants(TWO, BOTH, neighbours=sdp.ReplaceOne()).move)
    rate = float(mechanism.mechanism.law.rate)
    assert loss(budget).amount == pytest.approx(rate * np.abs(z).sum(), rel=1e-12)


def test_the_smallest_epsilon_inverts_the_trade_off():
    for epsilon, delta in ((0.1, 1e-5), (1.0, 1e-6), (4.0, 1e-8)):
        mu = sdp.ApproxDP(epsilon, delta).gaussian_mu
        assert smallest_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9)


def test_the_sense_is_said():
    total = audit_invariants(TWO, sdp.hold(), neighbours=sdp.ReplaceOne(), budget=sdp.PureDP(1.0))
    assert total.kind == "plain"
    assert "No person's change alters an invariant" in str(total.loss)
    assert "orthogonal to the invariants" in str(loss(sdp.PureDP(1.0)))
    assert "given the invariants only" in str(loss(sdp.PureDP(1.0), decimals=0))
