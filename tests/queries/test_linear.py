"""Cells and linear queries: exact integers on a public grid, and what one person changes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tests.privacy.exhaustion import changes

import subspacedp as sdp
from subspacedp.errors import DataError, DomainError, SubspaceDPError

RELATIONS = [
    sdp.ReplaceOne(),
    sdp.AddRemoveOne(),
    sdp.ReplaceOne(records=2),
    sdp.ReplaceOne(records=2, exactly=True),
    sdp.ReplaceOne(records=3, per_cell=1),
    sdp.AddRemoveOne(records=2),
    sdp.AddRemoveOne(records=3, per_cell=2),
]


def line(n):
    return sdp.Domain([sdp.Axis("a", range(n))])


def truth(integers, relation):
    """Δ₁ and Δ₂² over all neighbouring changes, in Python integers."""
    moved = [integers.astype(object) @ np.array(v, object)
             for v in changes(integers.shape[1], relation)]  # fmt: skip
    return max(sum(map(abs, m)) for m in moved), max(sum(x * x for x in m) for m in moved)


# ------------------------------------------------------------------------------------------ cells


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
def test_cells_are_the_identity(relation):
    query = sdp.Cells(line(6))  # enough cells for two persons with three records each
    assert query.grid == 1
    assert (query.shape, query.size) == ((6,), 6)
    assert np.array_equal(query.contributions.toarray(), np.eye(6))
    table = sdp.Table([1, 2, 3, 4, 5, 6], line(6))
    assert np.array_equal(query.answers(table), table.counts)
    stated = query.sensitivity(relation)
    assert (stated.l1, stated.l2_squared) == truth(np.eye(6, dtype=int), relation)


def test_cells_on_another_domain_are_refused():
    with pytest.raises(DataError, match="is not on the domain"):
        sdp.Cells(line(4)).answers(sdp.Table([1, 2, 3], line(3)))
    with pytest.raises(DataError, match="Expected a `Table`; got a list"):
        sdp.Cells(line(4)).answers([1, 2, 3, 4])


# ----------------------------------------------------------------------------------------- linear


@given(seed=st.integers(0, 2**32 - 1), bits=st.integers(0, 12))
def test_dyadic_matrices_are_exact(seed, bits):
    rng = np.random.default_rng(seed)
    integers = rng.integers(-(2**15), 2**15, (3, 4))
    integers[0, 0] = 1  # needs all the bits
    for matrix in (integers / 2**bits, sparse.csr_array(integers / 2**bits)):
        query = sdp.LinearQuery(matrix)
        assert query.grid == Fraction(1, 2**bits)
        assert np.array_equal(query.integers, integers)
        assert query.deviation == 0
    counts = rng.integers(0, 2**30, 4)
    answers = query.answers(sdp.Table(counts, line(4)))
    assert answers.tolist() == [int(v) for v in integers.astype(object) @ counts]


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(-40, 20))
def test_other_matrices_are_rounded_to_the_grid(seed, size):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(3, 4)) * 2.0**size
    query = sdp.LinearQuery(matrix)
    grid = query.grid
    off = max(
        abs(Fraction(float(m)) - int(i) * grid)
        for m, i in zip(matrix.ravel(), query.integers.ravel(), strict=True)
    )
    assert off <= grid / 2
    assert query.deviation == float(off)
    assert off <= Fraction(float(np.abs(matrix).max())) / 2**30


def test_the_deviation_is_as_small_as_promised():
    matrix = np.random.default_rng(0).random((20, 20)) * 0.51
    assert sdp.LinearQuery(matrix).deviation <= 2.0**-30 * matrix.max()


def test_whole_numbers_are_exact_however_large():
    query = sdp.LinearQuery([[2**31 + 1, 1]])
    assert query.deviation == 0


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
@given(seed=st.integers(0, 2**32 - 1))
def test_sensitivity_against_all_neighbours(relation, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-5, 6, (int(rng.integers(1, 4)), int(rng.integers(1, 4)))) / 4
    matrix[0, 0] = 0.25
    query = sdp.LinearQuery(matrix)
    stated = query.sensitivity(relation)
    if not changes(matrix.shape[1], relation):
        return  # one kind of record: nothing can change
    l1, l2_squared = truth(query.integers, relation)
    assert l1 <= stated.l1
    assert l2_squared <= stated.l2_squared
    if relation.records == 1:
        assert (stated.l1, stated.l2_squared) == (l1, l2_squared)


def test_repeated_columns_cost_nothing():
    matrix = np.repeat([[1, 2], [0, 5]], 500, axis=1)
    assert sdp.LinearQuery(matrix).sensitivity(sdp.ReplaceOne()).l2_squared == 26


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1, np.nan]], "must not have NaN or infinite"),
        ([[1, np.inf]], "must not have NaN or infinite"),
        ([["a", 1]], "must be a matrix of numbers"),
        ([[1, 2], [3]], "must be a matrix of numbers"),
        (np.zeros((0, 2)), "at least one row"),
        (np.zeros((2, 2)), "is zero"),
        (np.zeros((2, 2, 2)), "must be a matrix of numbers"),
    ],
    ids=str,
)
def test_matrices_that_are_none(matrix, words):
    with pytest.raises(DomainError, match=words) as error:
        sdp.LinearQuery(matrix)
    assert str(error.value).endswith(".")


def test_labels():
    assert sdp.LinearQuery([[1, 0], [0, 1]], labels=["x", "y"]).labels == ("x", "y")
    for labels in (["x"], ["x", "x"], ["x", "y", "z"]):
        with pytest.raises(DomainError, match="2 distinct names"):
            sdp.LinearQuery([[1, 0], [0, 1]], labels=labels)


def test_data_that_do_not_fit():
    query = sdp.LinearQuery([[1, 0, 2]])
    with pytest.raises(DataError, match="has 3 columns; the table has 2 cells"):
        query.answers(sdp.Table([1, 2], line(2)))
    with pytest.raises(DataError, match="too large for 64 bits"):
        sdp.LinearQuery([[2**20, 1]]).answers(sdp.Table([2**50, 0], line(2)))


def test_the_first_argument_is_a_domain_or_a_query():
    for thing in ([1, 2], None, np.eye(2)):
        with pytest.raises(SubspaceDPError, match="must be a `Domain` or a query"):
            sdp.design(thing, None, sdp.PureDP(1.0))


def test_digits_need_whole_answers():
    with pytest.raises(SubspaceDPError, match="whole answers"):
        sdp.design(sdp.LinearQuery([[0.5, 1]]), None, sdp.PureDP(1.0), decimals=0)


def test_labels_come_back_in_the_frame():
    query = sdp.LinearQuery([[1, 0], [1, 1]], labels=["young", "all"])
    release = sdp.design(query, None, sdp.PureDP(1.0)).release(sdp.Table([3, 4], line(2)), seed=0)
    assert release.to_frame("pandas")["question"].tolist() == ["young", "all"]
