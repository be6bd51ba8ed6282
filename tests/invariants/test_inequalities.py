"""Limits from held totals and declared inequalities, against all tables that satisfy them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import InvariantError
from subspacedp.invariants import Held, bind
from subspacedp.queries import Cells, Margins

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", ["a", "b", "c"], levels={"state": ["X", "X", "Y"]}),
        sdp.Axis("kind", ["persons", "households"]),
    ]
)
TABLES = np.array(list(itertools.product(range(4), repeat=6))).reshape(-1, 3, 2)
HELD = [
    sdp.hold(),
    sdp.hold("state"),
    sdp.hold("county"),
    sdp.hold("kind"),
    sdp.hold("county") & sdp.hold("kind"),
    sdp.hold("state", "kind") & sdp.hold(),
    Held(),
]
KNOWN = [
    sdp.Inequalities(),
    sdp.Inequalities(at_most={("county", "kind"): 2}),
    sdp.Inequalities(at_most={"state": {"X": 3}, (): 9}),
    sdp.Inequalities(part_of=[("households", "persons")]),
    sdp.Inequalities(at_most={"kind": [7, 3]}, part_of=[("households", "persons")]),
]


def allowed(held: Held, known: sdp.Inequalities, truth: np.ndarray) -> np.ndarray:
    """All small tables with the held totals of one, that satisfy the inequalities."""
    keep = np.ones(len(TABLES), bool)
    for margin in held.margins_on(DOMAIN):
        every = np.stack([margin.sum(t) for t in TABLES])
        keep &= (every == margin.sum(truth)).all(axis=(1, 2))
    for margin, limit in known.limits_on(DOMAIN):
        keep &= (np.stack([margin.sum(t) for t in TABLES]) <= limit).all(axis=(1, 2))
    if known.part_of:
        keep &= (TABLES[:, :, 1] <= TABLES[:, :, 0]).all(axis=1)
    return TABLES[keep]


@pytest.mark.parametrize("held", HELD, ids=str)
@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_limits_contain_every_table(held: Held, known: sdp.Inequalities) -> None:
    """The smallest and largest figures of all tables are within the limits."""
    rng = np.random.default_rng(5)
    weights = np.array([[[1, -1]] * 3, [[1, 0], [2, 0], [0, 0]], [[0, 0], [-1, 3], [1, -2]]], float)
    possible = allowed(Held(), known, TABLES[0])
    for truth in possible[rng.choice(len(possible), 4, replace=False)]:
        bound = bind(held, Cells(DOMAIN))
        feasible = known.given(Cells(DOMAIN), bound, bound.sums(truth), capped=False)
        tables = allowed(held, known, truth)
        for names in [("county", "kind"), ("state",), ("kind",), ("state", "kind"), ()]:
            margin = DOMAIN.margin(*names)
            figures = np.stack([margin.sum(t) for t in tables])
            limits = feasible.of_margin(margin)
            assert np.all(limits.lower <= figures.min(axis=0))
            assert np.all(limits.upper >= figures.max(axis=0))
        limits, figures = feasible.of_weights(weights), np.tensordot(tables, weights, ([1, 2],) * 2)
        assert np.all(limits.lower <= figures.min(axis=0))
        assert np.all(limits.upper >= figures.max(axis=0))


@pytest.mark.parametrize("held", HELD[:4], ids=str)
def test_limits_of_one_margin_are_sharp(held: Held) -> None:
    """With one margin held and nothing else known the limits are reached."""
    bound = bind(held, Cells(DOMAIN))
    truth = np.array([[1, 0], [0, 1], [1, 0]])  # totals below 4, so that all tables are listed
    feasible = sdp.Inequalities().given(Cells(DOMAIN), bound, bound.sums(truth), capped=False)
    tables = allowed(held, sdp.Inequalities(), truth)
    for names in [("county", "kind"), ("state",), ("county",), ("state", "kind")]:
        margin = DOMAIN.margin(*names)
        figures = np.stack([margin.sum(t) for t in tables])
        limits = feasible.of_margin(margin)
        assert np.array_equal(limits.lower, figures.min(axis=0))
        assert np.array_equal(limits.upper, figures.max(axis=0))
    weights = np.array([[[2, -1], [0, 1], [0, 0]], [[1, 1], [1, 0], [0, 0]]], float)
    limits, figures = feasible.of_weights(weights), np.tensordot(tables, weights, ([1, 2],) * 2)
    assert np.array_equal(limits.lower, figures.min(axis=0))
    assert np.array_equal(limits.upper, figures.max(axis=0))


def test_a_part_has_at_most_half_of_what_both_have() -> None:
    """Part ≤ whole and part + whole = t leave t/2 to the part."""
    bound = bind(sdp.hold("county"), Cells(DOMAIN))
    known = sdp.Inequalities(part_of=[("households", "persons")])
    truth = np.array([[5, 2], [3, 3], [1, 0]])
    limits = known.given(Cells(DOMAIN), bound, bound.sums(truth), capped=False).of_answers()
    assert limits.lower.tolist() == [[4, 0], [3, 0], [1, 0]]
    assert limits.upper.tolist() == [[7, 3], [6, 3], [1, 0]]


def test_a_table_with_one_axis() -> None:
    """Parts and wholes may be all cells that there are."""
    domain = sdp.Domain([sdp.Axis("kind", ["persons", "households", "dogs"])])
    known = sdp.Inequalities(part_of=[("households", "persons")])
    bound = bind(sdp.hold(), Cells(domain))
    feasible = known.given(Cells(domain), bound, (np.array([9]),), capped=False)
    assert feasible.of_answers().upper.tolist() == [9, 4, 9]
    differences = feasible.of_weights(np.array([[1.0, -1.0, 0.0]]))
    assert (differences.lower.tolist(), differences.upper.tolist()) == ([0], [9])


def test_workloads_have_limits_without_a_table() -> None:
    """Every margin of a workload has the limits it has by itself."""
    query = Margins(DOMAIN, [["county", "kind"], ["state"]])
    bound = bind(sdp.hold("kind"), query)
    exact = (np.array([[6, 2]]),)
    feasible = sdp.Inequalities().given(query, bound, exact, capped=False)
    assert feasible.of_answers().upper.tolist() == [6, 2, 6, 2, 6, 2, 8, 8]


@pytest.mark.parametrize(
    ("known", "held", "sentence"),
    [
        ({"at_most": {"county": 2}}, sdp.hold("county"), "contradict the held figures"),
        ({"at_most": {"kind": 2}}, sdp.hold(), "contradict the held figures"),
        (
            {"part_of": [("persons", "households")]},
            sdp.hold("kind"),
            "contradict the held figures",
        ),
        ({"at_most": {"count": 2}}, sdp.hold(), "no level `count`"),
        ({"at_most": {"county": {"d": 2}}}, sdp.hold(), "`county` has no label 'd'"),
        ({"at_most": {"county": -1}}, sdp.hold(), "whole numbers from 0 to 2\\*\\*52; got -1"),
        ({"at_most": {"county": 1.5}}, sdp.hold(), "got 1.5"),
        ({"at_most": {"county": [1, 2]}}, sdp.hold(), "must have the shape \\(3,\\)"),
        ({"part_of": [("persons", "dogs")]}, sdp.hold(), "no axis has both labels"),
        (
            {"part_of": [("persons", "households"), ("households", "persons")]},
            sdp.hold(),
            "a part of itself",
        ),
    ],
)
def test_contradictions_are_one_sentence(known: dict, held: Held, sentence: str) -> None:
    """What cannot be is refused, and no held value is quoted."""
    bound = bind(held, Cells(DOMAIN))
    exact = bound.sums(np.array([[717, 1], [2, 1], [1, 0]]))
    with pytest.raises(InvariantError, match=sentence) as caught:
        sdp.Inequalities(**known).given(Cells(DOMAIN), bound, exact, capped=False).of_margin(
            DOMAIN.margin("county", "kind")
        )
    assert "\n" not in str(caught.value)
    assert "7" not in str(caught.value)


def test_bounded_records_that_agree_with_held_totals() -> None:
    """Their figures are no counts: only one margin's non-negativity is used, nothing is whole."""
    bound = bind(sdp.hold("county"), Cells(DOMAIN))
    exact = bound.sums(np.ones((3, 2), np.int64))
    limits = sdp.Inequalities().given(Cells(DOMAIN), bound, exact, capped=True).of_answers()
    assert np.all(limits.step == 0)
    assert np.all(limits.upper == 2)
    for known in ({"at_most": {"county": 9}}, {"part_of": [("households", "persons")]}):
        with pytest.raises(InvariantError, match="leave the inequalities out"):
            sdp.Inequalities(**known).given(Cells(DOMAIN), bound, exact, capped=True)


def test_they_survive_plain_data() -> None:
    """Written and read back, they say the same."""
    for known in KNOWN:
        again = sdp.Inequalities.from_dict(known.as_dict())
        assert again.as_dict() == known.as_dict()
        assert str(again) == str(known)


@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_as_rows_of_a_matrix(known: sdp.Inequalities) -> None:
    """G x ≤ h, with the limits of cells, holds for exactly the tables that are allowed."""
    bound = bind(Held(), Cells(DOMAIN))
    feasible = known.given(Cells(DOMAIN), bound, (), capped=False)
    matrix, right = feasible.rows()
    upper = np.full(DOMAIN.shape, np.inf)
    for margin, limit in known.limits_on(DOMAIN):
        if margin.shape == DOMAIN.shape:
            upper = np.minimum(upper, limit)
    flat = TABLES.reshape(len(TABLES), -1)
    keep = (matrix @ flat.T <= right[:, None]).all(axis=0) & (flat <= upper.reshape(-1)).all(axis=1)
    assert np.array_equal(TABLES[keep], allowed(Held(), known, TABLES[0]))
