"""Queries beyond matrices: declared sensitivities, random neighbours, clipped sums."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import DataError, DomainError, InvariantError

LINE = sdp.Domain([sdp.Axis("a", range(4))])
TABLE = sdp.Table([5, 5, 5, 5], LINE)
SQUARE = sdp.Domain([sdp.Axis("row", ["r", "s"]), sdp.Axis("column", ["t", "u", "v"])])

BOTH = ["projected", "extended"]


# ----------------------------------------------------------------------------- general functions


@given(
    n=st.integers(1, 20),
    l2=st.floats(1e-3, 1e3),
    first=st.lists(st.floats(-100, 100), min_size=20, max_size=20),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_is_within_what_noise_is_for(n, l2, first, seed):
    """|round(a) − round(b)| ≤ |a − b| + 1 in units of the grid, so Δ₂ + √n and Δ₁ + n suffice."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=n)
    move = direction / np.linalg.norm(direction) * l2
    a = np.array(first[:n])
    b = a + move
    l1 = float(np.abs(b - a).sum()) * (1 + 1e-9)
    query = sdp.GeneralQuery(lambda data: data, n, max(l1, l2), l2 * (1 + 1e-9))
    stated = query.sensitivity(sdp.ReplaceOne())
    moved = [int(v) for v in query.answers(b) - query.answers(a)]
    assert sum(map(abs, moved)) <= stated.l1
    assert sum(v * v for v in moved) <= stated.l2_squared
    # And it costs little: a thousandth of the sensitivity, or so.
    assert float(stated.l2_squared) ** 0.5 * float(query.grid) <= l2 * (1 + 1e-9) * 1.003
    assert np.abs(query.answers(a) * float(query.grid) - a).max() <= float(query.grid) / 2


def test_whole_answers_are_not_rounded():
    query = sdp.GeneralQuery(lambda data: data, 2, 3, 2, whole=True)
    assert query.grid == 1
    assert query.answers([7, -2]).tolist() == [7, -2]
    stated = query.sensitivity(sdp.ReplaceOne())
    assert (stated.l1, stated.l2_squared) == (3, 4)
    with pytest.raises(DataError, match="declared whole and gave a fraction"):
        query.answers([7.5, 0])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([1.0], "must give 2 answers"),
        ([[1.0, 2.0]], "must give 2 answers"),
        ([1.0, math.nan], "not a finite number"),
        ([1.0, 1e300], "too large"),
    ],
)
def test_answers_that_are_none(answer, words):
    query = sdp.GeneralQuery(lambda data: answer, 2, 1.0, 1.0)
    with pytest.raises(DataError, match=words) as error:
        query.answers(None)
    assert str(error.value).endswith(".")


def test_a_query_from_a_certificate_cannot_be_asked():
    with pytest.raises(DataError, match="has no function"):
        sdp.GeneralQuery(None, 2, 1.0, 1.0).answers(TABLE)


def test_declarations_are_checked():
    with pytest.raises(DomainError, match="at least one answer"):
        sdp.GeneralQuery(None, 0, 1.0, 1.0)
    with pytest.raises(DomainError, match="2 distinct names"):
        sdp.GeneralQuery(None, 2, 1.0, 1.0, labels=["x", "x"])
    with pytest.raises(DomainError, match="`l1` must be a positive"):
        sdp.GeneralQuery(None, 2, -1.0, 1.0)


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_black_box_is_released_under_invariants(mechanism):
    query = sdp.GeneralQuery(lambda t: [t.counts.mean(), t.counts.max(), t.counts.min()], 3, 3, 2)
    held = sdp.LinearInvariants([[1, 0, 0]], labels=["mean"])
    made = sdp.design(query, held, sdp.ApproxDP(1.0, 1e-6), mechanism=mechanism)
    release = made.release(TABLE, seed=0)
    assert release.values[0] == pytest.approx(5.0, abs=float(query.grid))
    assert made.guarantee.kind == "S"
    assert release.verify().ok


# ----------------------------------------------------------------------------- check_sensitivity

RELATIONS = [
    sdp.ReplaceOne(),
    sdp.AddRemoveOne(),
    sdp.ReplaceOne(records=3),
    sdp.AddRemoveOne(records=3),
    sdp.ReplaceOne(records=3, per_cell=1),
]


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
def test_right_sensitivities_pass(relation):
    sdp.check_sensitivity(sdp.Cells(LINE), TABLE, relation)
    sdp.check_sensitivity(sdp.LinearQuery(np.tril(np.ones((4, 4)))), TABLE, relation)
    l1, l2 = float(relation.l1), math.sqrt(relation.l2_squared) * (1 + 1e-12)
    sdp.check_sensitivity(sdp.GeneralQuery(lambda t: t.counts, 4, l1, l2), TABLE, relation)


@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne()], ids=repr)
@pytest.mark.parametrize("which", ["l1", "l2"])
def test_understated_sensitivities_are_found(relation, which):
    l1, l2 = 2.0 * relation.l1, 2.0 * math.sqrt(relation.l2_squared) * (1 + 1e-12)
    declared = {"l1": l1, "l2": l2} | {which: (l1 if which == "l1" else l2) / 2}
    query = sdp.GeneralQuery(lambda t: 2 * t.counts, 4, **declared)
    with pytest.raises(DataError, match="2 times as far") as error:
        sdp.check_sensitivity(query, TABLE, relation)
    assert error.value.factor == pytest.approx(2.0, rel=0.01)


def test_an_empty_table_can_be_tried():
    sdp.check_sensitivity(sdp.Cells(LINE), sdp.Table([0, 0, 0, 0], LINE), sdp.ReplaceOne())


# ---------------------------------------------------------------------------------- clipped sums


@given(seed=st.integers(0, 2**32 - 1))
def test_clipped_sums_against_pandas(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 60))
    frame = pd.DataFrame(
        {
            "row": rng.choice(["r", "s"], n),
            "column": rng.choice(["t", "u", "v"], n),
            "income": rng.normal(0, 50, n).round(2),
        }
    )
    lower, upper = -40.0, 70.0
    query = sdp.ClippedSums(SQUARE, "income", lower, upper, unit=0.5)
    assert query.grid == Fraction(1, 2)
    units = np.rint(frame["income"].astype(float).clip(lower, upper) / 0.5)
    sums = units.groupby([frame["row"], frame["column"]]).sum()
    for (i, row), (j, column) in itertools.product(enumerate("rs"), enumerate("tuv")):
        assert query.answers(frame)[i, j] == sums.get((row, column), 0)


@pytest.mark.parametrize(("lower", "upper"), [(0, 3), (-2, 3), (-3, 1), (-2, -1)])
@pytest.mark.parametrize(
    "relation",
    [sdp.ReplaceOne(), sdp.AddRemoveOne(), sdp.ReplaceOne(records=2),
     sdp.ReplaceOne(records=2, per_cell=1), sdp.AddRemoveOne(records=2)],
    ids=repr,
)  # fmt: skip
def test_sensitivity_of_clipped_sums_by_brute_force(relation, lower, upper):
    domain = sdp.Domain([sdp.Axis("a", range(2))])
    stated = sdp.ClippedSums(domain, "v", lower, upper).sensitivity(relation)
    cap = relation.per_cell or relation.records
    one = {(0, 0)} if not relation.keeps_total else set()
    values = range(lower, upper + 1)
    for number in range(1, relation.records + 1):
        if relation.keeps_total and number < relation.records:
            continue
        for cells in itertools.product(range(2), repeat=number):
            if max(cells.count(0), cells.count(1)) > cap:
                continue
            for amounts in itertools.product(values, repeat=number):
                sums = [0, 0]
                for cell, amount in zip(cells, amounts, strict=True):
                    sums[cell] += amount
                one.add(tuple(sums))
    others = one if relation.persons == 2 else {(0, 0)}
    moved = [(u[0] - v[0], u[1] - v[1]) for u in one for v in others]
    l1 = max(abs(a) + abs(b) for a, b in moved)
    l2_squared = max(a * a + b * b for a, b in moved)
    assert l1 <= stated.l1
    assert l2_squared <= stated.l2_squared
    if lower == -upper or relation.persons == 1:
        assert l1 == stated.l1
        assert l2_squared == stated.l2_squared


def frame_of(values):
    return pd.DataFrame({"row": ["r", "s", "s"], "column": ["t", "t", "v"], "v": values})


def test_the_total_of_sums_is_not_plain():
    """Replacing one person keeps the number of people and changes the sum of what they have."""
    query = sdp.ClippedSums(SQUARE, "v", 0, 10)
    for held in (sdp.hold(), sdp.LinearInvariants(np.ones((1, 6), int))):
        made = sdp.design(query, held, sdp.PureDP(1.0), neighbours=sdp.ReplaceOne())
        assert made.guarantee.kind == "S"
    assert sdp.design(SQUARE, sdp.hold(), sdp.PureDP(1.0)).guarantee.kind == "plain"


@pytest.mark.parametrize(
    ("mechanism", "unit"), [("projected", 1.0), ("projected", 0.01), ("extended", 1.0),
                            ("extended", 0.01)],
)  # fmt: skip
def test_sums_are_released_with_their_margins_held(mechanism, unit):
    query = sdp.ClippedSums(SQUARE, "v", -10, 10, unit=unit)
    made = sdp.design(query, sdp.hold("row"), sdp.ApproxDP(1.0, 1e-6), mechanism=mechanism)
    release = made.release(frame_of([3.25, -4.0, 99.0]), seed=0)
    first = round(3.25 / unit) * unit
    assert release.values.sum(axis=1) == pytest.approx([first, 6.0], abs=1e-6)
    assert release.verify().ok


def test_digits_of_whole_sums_add_up():
    query = sdp.ClippedSums(SQUARE, "v", -10, 10)
    made = sdp.design(query, sdp.hold("row") & sdp.hold("column"), sdp.PureDP(1.0), decimals=0)
    release = made.release(frame_of([3, -4, 9]), seed=0)
    assert release.values.sum(axis=1).tolist() == [3, 5]
    assert release.values.sum(axis=0).tolist() == [-1, 0, 9]
    assert release.verify().ok


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((1, 0), "at most `upper`"),
        ((0, 0), "nothing but 0"),
        ((0, math.inf), "finite"),
        ((math.nan, 1), "finite"),
        ((0, 1, 0), "`unit` positive"),
        ((0, 1, -1), "`unit` positive"),
        (("a", 1), "finite"),
    ],
)
def test_ranges_that_are_none(numbers, words):
    with pytest.raises(DomainError, match=words) as error:
        sdp.ClippedSums(SQUARE, "v", *numbers)
    assert str(error.value).endswith(".")


def test_frames_that_do_not_fit():
    query = sdp.ClippedSums(SQUARE, "v", 0, 10)
    for value in (math.nan, math.inf):
        with pytest.raises(DataError, match="Column `v` has"):
            query.answers(frame_of([1.0, value, 2.0]))
    with pytest.raises(DataError):
        query.answers(frame_of([1, 2, 3]).drop(columns="v"))
    with pytest.raises(DataError):
        query.answers(frame_of([1, 2, 3]).assign(row=["r", "s", "other"]))


def test_held_margins_of_sums_may_be_negative_and_are_checked():
    query = sdp.ClippedSums(SQUARE, "v", -10, 10)
    with pytest.raises(InvariantError, match="contradict"):
        sdp.impose(
            query, sdp.hold("row") & sdp.hold("column"), np.zeros((2, 3)), [[-5, 1], [1, 1, 1]]
        )
