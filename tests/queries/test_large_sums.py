"""Sensitivities beyond 2**53: never below the exact ones, however many terms are summed."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import subspacedp as sdp
from subspacedp.queries import linear as queries
from subspacedp.queries.linear import matrix_sensitivity

MANY = 1 << 21
FIXED = 1 + Fraction(1, 2**40)  # the guard of the twin


def fixed_guard(total, terms, off=0.0):
    """The twin: a guard that does not grow with the number of terms."""
    exact = Fraction(total)
    return exact if exact < 2**53 else exact * FIXED


def tall(first):
    """Nine columns, sparse: one large entry above very many ones, then a single one in each."""
    rows, columns = np.arange(MANY + 8), np.concatenate([np.zeros(MANY, int), np.arange(1, 9)])
    data = np.ones(MANY + 8, np.int64)
    data[0] = first
    return sparse.csr_array((data, (rows, columns)), shape=(MANY + 8, 9))


@pytest.mark.parametrize("first", [2**53 - 2, 2**27])
def test_very_many_small_terms_beside_a_large_one_are_counted(first, monkeypatch):
    matrix = tall(first)
    l1, l2_squared = first + MANY - 1, first**2 + MANY - 1
    stated = matrix_sensitivity(matrix, sdp.AddRemoveOne())
    assert l1 <= stated.l1 <= l1 * (1 + Fraction(1, 10**8))
    assert l2_squared <= stated.l2_squared <= l2_squared * (1 + Fraction(1, 10**8))
    pairs = matrix_sensitivity(matrix, sdp.ReplaceOne())
    assert l1 + 1 <= pairs.l1
    assert l2_squared + 1 <= pairs.l2_squared
    monkeypatch.setattr(queries, "_sum_at_most", fixed_guard)
    twin = matrix_sensitivity(matrix, sdp.AddRemoveOne())
    assert twin.l1 < l1 or twin.l2_squared < l2_squared


def test_sums_below_two_to_the_53_are_exact():
    stated = matrix_sensitivity(tall(2**25), sdp.AddRemoveOne())
    assert (stated.l1, stated.l2_squared) == (2**25 + MANY - 1, 2**50 + MANY - 1)


@pytest.mark.parametrize(
    "relation", [sdp.ReplaceOne(), sdp.AddRemoveOne(), sdp.ReplaceOne(records=2)]
)
@pytest.mark.parametrize("largest", [2**30, 2**53, 2**61])
def test_random_matrices_against_whole_numbers(relation, largest):
    rng = np.random.default_rng(0)
    for n in (3, 50, 400):
        whole = rng.integers(-largest, largest, (n, 6))
        columns = whole.astype(object)
        if relation.persons == 2:
            choices = [*columns.T, *([] if relation.keeps_total else [0 * columns[:, 0]])]
            moves = [a - b for a in choices for b in choices]
        else:
            moves = list(columns.T)
        m = relation.records
        l1 = m * max(sum(map(abs, v)) for v in moves)
        l2_squared = m * m * max(sum(x * x for x in v) for v in moves)
        for most in (1 << 31, 1):  # all pairs, and column by column
            stated = matrix_sensitivity(sparse.csr_array(whole), relation, most=most)
            assert stated.l1 >= l1
            assert stated.l2_squared >= l2_squared
            assert stated.l2_squared <= 2 * l2_squared
        exact = matrix_sensitivity(sparse.csr_array(whole), relation)
        assert exact.l1 <= l1 * (1 + Fraction(1, 10**11))


def test_what_a_rounded_matrix_may_be_off_is_added_in_full():
    whole = np.array([[2**60 + 1, 0], [3, 2**60 - 1]])
    stated = matrix_sensitivity(sparse.csr_array(whole.astype(float)), sdp.AddRemoveOne(), 1.0)
    assert stated.l1 >= 2**60 + 4
    assert stated.l2_squared >= (2**60 + 1) ** 2 + 9
