"""Bounds of cells against brute force over all tables with the held totals."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import dense
from tests.disclosure import brute
from tests.strategies import examples, problems, seeds

import subspacedp as sdp
from subspacedp.disclosure import UNBOUNDED, audit_invariants, coverage
from subspacedp.disclosure.bounds import (
    cell_bounds,
    closed_form,
    junction,
    programs_of,
    shuttle,
    walk_of,
)

SMALL = {"max_axes": 3, "max_cells": 12, "max_labels": 4, "max_levels": 2}
CUBE = sdp.Domain([sdp.Axis("a", range(2)), sdp.Axis("b", range(2)), sdp.Axis("c", range(3))])
ALL_PAIRS = sdp.hold("a", "b") & sdp.hold("b", "c") & sdp.hold("a", "c")


def small_counts(domain, seed):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, domain.size, rng.integers(0, 6))
    return np.bincount(places, minlength=domain.size).reshape(domain.shape)


def part_of(domain, held, counts):
    return coverage.published_invariants(domain, held, list(brute.values(domain, held, counts)))


@settings(max_examples=examples(3))
@given(problem=problems(min_margins=1, **SMALL), seed=seeds)
def test_closed_forms_are_sharp(problem, seed):
    domain, held = problem
    counts = small_counts(domain, seed)
    part = part_of(domain, held, counts)
    found = closed_form(domain, part.totals())
    assume(found is not None)
    every = brute.like(dense.matrix(domain, held), counts)
    assert np.array_equal(found.lower.ravel(), every.min(axis=0))
    assert np.array_equal(found.upper.ravel(), every.max(axis=0))


@settings(max_examples=60)
@given(problem=problems(min_margins=1, **SMALL), seed=seeds)
def test_programs_agree_with_brute_force(problem, seed):
    """The same families by linear programs, every cell examined."""
    from subspacedp.disclosure.bounds import program_bounds

    domain, held = problem
    counts = small_counts(domain, seed)
    found = program_bounds(
        programs_of(part_of(domain, held, counts)), narrow=10**6, most=1000, progress=None
    )
    every = brute.like(dense.matrix(domain, held), counts)
    assert np.array_equal(found.lower, every.min(axis=0))
    assert np.array_equal(found.upper, every.max(axis=0))
    assert found.sharp.all()


@given(seed=seeds)
def test_three_two_way_margins_have_no_closed_form_and_programs_are_sharp(seed):
    counts = np.random.default_rng(seed).integers(0, 2, CUBE.shape)
    assume(counts.sum() <= 7)
    part = part_of(CUBE, ALL_PAIRS, counts)
    assert closed_form(CUBE, part.totals()) is None
    found = cell_bounds(part, narrow=100, programs=1000)
    every = brute.like(dense.matrix(CUBE, ALL_PAIRS), counts)
    assert np.array_equal(found.lower.ravel(), every.min(axis=0))
    assert np.array_equal(found.upper.ravel(), every.max(axis=0))


@given(problem=problems(min_margins=1, **SMALL), seed=seeds)
def test_the_shuttle_is_safe(problem, seed):
    domain, held = problem
    counts = small_counts(domain, seed)
    low, high = shuttle(domain, part_of(domain, held, counts).totals())
    every = brute.like(dense.matrix(domain, held), counts)
    assert np.all(low.ravel() <= every.min(axis=0))
    assert np.all(high.ravel() >= every.max(axis=0))


@pytest.mark.parametrize(
    ("margins", "decomposable"),
    [
        ([("a",)], True),
        ([("a",), ("b",)], True),
        ([("a", "b"), ("b", "c")], True),
        ([("a", "b"), ("c",)], True),
        ([("a", "b"), ("b", "c"), ("a", "c")], False),
        ([("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")], True),  # which says it all
        ([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], False),
        ([("a", "b"), ("b", "c"), ("c", "d")], True),
    ],
)
def test_which_families_are_decomposable(margins, decomposable):
    domain = sdp.Domain([sdp.Axis(name, range(2)) for name in "abcd"])
    family = [domain.margin(*names) for names in margins]
    assert (junction(family) is not None) is decomposable


def test_an_axis_with_one_label_does_not_make_a_cycle():
    domain = sdp.Domain([sdp.Axis("a", range(2)), sdp.Axis("b", range(2)), sdp.Axis("c", [0])])
    family = [domain.margin(*names) for names in (("a", "c"), ("b", "c"), ("a", "b"))]
    assert len(junction(family)) == 1  # a × b is every cell


def test_nested_levels_are_margins_of_the_finest_axis():
    county = sdp.Axis("county", range(4), levels={"state": ["x", "x", "y", "y"]})
    domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
    held = sdp.hold("county") & sdp.hold("state", "sex")
    counts = np.array([[1, 0], [2, 1], [0, 0], [0, 3]])
    part = part_of(domain, held, counts)
    order = junction([m for m, _ in part.totals()])
    assert [s.names for _, s in order if s is not None] == [("state",)]
    found = cell_bounds(part, narrow=2, programs=0)
    every = brute.like(dense.matrix(domain, held), counts)
    assert np.array_equal(found.lower.ravel(), every.min(axis=0))
    assert np.array_equal(found.upper.ravel(), every.max(axis=0))


def test_structural_zeros_and_linear_equalities_go_through_programs():
    domain = sdp.Domain([sdp.Axis("a", range(2)), sdp.Axis("b", range(3))])
    empty = np.zeros((2, 3), bool)
    empty[0, 0] = True
    held = sdp.hold("a") & sdp.LinearInvariants([[0, 1, 0, 0, 1, 0]]) & sdp.zeros(empty)
    counts = np.array([[0, 1, 2], [1, 0, 1]])
    C = np.vstack([dense.matrix(domain, sdp.hold("a")), [[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0]]])
    values = C[:3] @ counts.ravel()  # that an empty cell is empty need not be said
    audit = audit_invariants(
        domain, held, values, neighbours=sdp.ReplaceOne(), narrow=100, programs=100
    )
    every = brute.like(C, counts)
    assert np.array_equal(audit.bounds.lower.ravel(), every.min(axis=0))
    assert np.array_equal(audit.bounds.upper.ravel(), every.max(axis=0))
    assert audit.bounds.method == "linear programs"
    assert audit.free == ("the 1 cell known to be empty", "the grand total")


@settings(max_examples=60)
@given(problem=problems(min_margins=1, **SMALL), seed=seeds)
def test_margins_around_empty_cells(problem, seed):
    domain, held = problem
    rng = np.random.default_rng(seed)
    empty = rng.random(domain.shape) < 0.3
    assume(not empty.all())
    counts = small_counts(domain, seed) * ~empty
    C = dense.matrix(domain, held)
    values = np.concatenate([t.ravel() for t in brute.values(domain, held, counts)])
    audit = audit_invariants(
        domain, held & sdp.zeros(empty), values, neighbours=sdp.ReplaceOne(), narrow=2
    )
    every = brute.like(C, counts)
    every = every[~np.any(every[:, empty.ravel()], axis=1)]
    low, high = every.min(axis=0), every.max(axis=0)
    found = audit.bounds
    assert np.all((found.lower.ravel() <= low) & (high <= found.upper.ravel()))
    assert audit.not_examined == 0
    narrow = high - low <= 2
    assert np.array_equal(found.lower.ravel()[narrow], low[narrow])
    assert np.array_equal(found.upper.ravel()[narrow], high[narrow])
    move = audit.move
    truth = brute.smallest_records(np.vstack([C, np.eye(domain.size, dtype=int)[empty.ravel()]]))
    assert (None if move is None else move.people) == truth


def test_cells_that_nothing_bounds_are_unbounded():
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    audit = audit_invariants(
        domain,
        sdp.LinearInvariants([[1, -1, 0]]),
        [2],
        neighbours=sdp.AddRemoveOne(),
        narrow=5,
    )
    assert audit.bounds.lower.tolist() == [2, 0, 0]
    assert audit.bounds.upper.tolist() == [UNBOUNDED] * 3
    assert audit.pinned == 0


def test_a_budget_of_programs_is_kept_and_the_rest_is_counted():
    rng = np.random.default_rng(1)
    domain = sdp.Domain([sdp.Axis("a", range(5)), sdp.Axis("b", range(5)), sdp.Axis("c", range(5))])
    counts = rng.poisson(1.0, domain.shape)
    part = part_of(domain, ALL_PAIRS, counts)
    calls = []
    few = cell_bounds(part, narrow=1, programs=6, progress=lambda *at: calls.append(at))
    assert few.programs <= 9  # a cell that was begun is finished
    assert few.open > 0
    assert calls[-1] == (6, 6)
    many = cell_bounds(part, narrow=1, programs=10**6)
    assert many.open == 0
    assert np.all(few.lower <= many.lower)
    assert np.all(few.upper >= many.upper)
    assert np.all((many.lower <= counts) & (counts <= many.upper))


@settings(max_examples=60)
@given(problem=problems(min_margins=1, **SMALL), seed=seeds)
def test_what_a_walk_finds_is_possible(problem, seed):
    domain, held = problem
    counts = small_counts(domain, seed)
    walk = walk_of(domain, held.on(domain).margins)
    limit = np.full(domain.size, UNBOUNDED)
    least, most = walk(counts.ravel(), limit, np.arange(domain.size))
    every = brute.like(dense.matrix(domain, held), counts)
    for cell in range(domain.size):
        assert {least[cell], counts.ravel()[cell], most[cell]} <= set(every[:, cell])


@given(seed=seeds, weights=st.lists(st.integers(-2, 2), min_size=12, max_size=12))
@settings(max_examples=40)
def test_the_range_of_any_question_contains_that_of_brute_force(seed, weights):
    counts = np.random.default_rng(seed).integers(0, 2, CUBE.shape)
    assume(counts.sum() <= 6)
    held = sdp.hold("a", "b") & sdp.hold("c")
    audit = audit_invariants(
        CUBE, held, list(brute.values(CUBE, held, counts)), neighbours=sdp.ReplaceOne()
    )
    low, high = audit.range_of(weights)
    answers = brute.like(dense.matrix(CUBE, held), counts) @ np.array(weights)
    assert low == answers.min()  # decomposable here: the polytope has whole corners
    assert high == answers.max()
