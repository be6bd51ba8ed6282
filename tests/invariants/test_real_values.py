"""Held values of a real-valued C: exact sums rounded once, and nothing else of the table."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import subspacedp as sdp
from subspacedp.errors import DataError, InvariantError
from subspacedp.invariants import as_held, bind
from subspacedp.invariants.linear import real_product


def line(n):
    return sdp.Domain([sdp.Axis("a", range(n))])


def held(C):
    return bind(as_held(sdp.LinearInvariants(C)), sdp.Cells(line(C.shape[1])))


def in_floats(C, counts):
    """The twin: a sum in floating point, in the order of storage."""
    return sparse.csr_array(C) @ np.asarray(counts).astype(np.float64)


def exactly(row, counts):
    return sum(Fraction(c) * int(x) for c, x in zip(row.tolist(), counts.tolist(), strict=True))


def nearest(value):
    """Python rounds a ratio of whole numbers to the nearest float64, to even in a tie."""
    return value.numerator / value.denominator


@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0, 5, 60, 450]),
    bits=st.integers(1, 63),
)
def test_every_value_is_the_float_nearest_to_the_exact_sum(seed, spread, bits):
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(3, 12)) * 2.0 ** rng.integers(-spread, spread + 1, (3, 12))
    C[rng.random(C.shape) < 0.3] = 0.0
    C[0, 0] = 0.1
    counts = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 12)
    values = held(C).sums(counts)[0]
    assert values.tolist() == [nearest(exactly(row, counts)) for row in C]


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        ([2.0**53, 1.0, 0.5, 0.5], [1, 1, 1, -1]),  # a tie, to even
        ([2.0**53, 1.0, 5e-324, 0.5], [1, 1, 1, 0]),  # just above a tie
        ([0.1, 0.2, 0.3, -0.3], [-(2**63), 2**63 - 1, 2**62 + 1, 7]),
        ([5e-324, 3e-320, 2.0**-1060, 0.5], [3, 2**40 + 1, -5, 0]),
        ([0.1, -0.1, 0.0, 0.5], [4, 4, 9, 0]),  # zero, without a sign
    ],
)
def test_ties_ends_of_the_range_and_zero(row, counts):
    C, counts = np.array([row]), np.array(counts, np.int64)
    value = held(C).sums(counts)[0][0]
    wanted = nearest(exactly(C[0], counts))
    assert (value, np.signbit(value)) == (wanted, np.signbit(wanted))


def equal_pairs(rng, tries):
    """Random real C with repeated values, and two tables with equal exact C·x a few moves apart."""
    for _ in range(tries):
        n, kinds = int(rng.integers(4, 10)), int(rng.integers(2, 4))
        columns = rng.integers(0, kinds, n)
        columns[:2] = 0
        # Columns of one kind are equal in all rows: exchanging their records keeps C·x exactly.
        C = rng.normal(size=(int(rng.integers(1, 6)), kinds))[:, columns]
        counts = rng.integers(1, 200, n)
        other = counts.copy()
        other[0], other[1] = counts[0] - 1, counts[1] + 1  # one record replaced: a neighbour
        assert all(exactly(row, counts) == exactly(row, other) for row in C)
        yield C, counts, other


def test_neighbours_with_equal_held_figures_have_the_same_values_bit_by_bit():
    rng = np.random.default_rng(20)
    told_apart = 0
    for C, counts, other in equal_pairs(rng, 300):
        values = held(C).sums(counts)[0]
        assert values.tobytes() == held(C).sums(other)[0].tobytes()
        told_apart += in_floats(C, counts).tobytes() != in_floats(C, other).tobytes()
    assert told_apart > 30  # the twin tells neighbours apart


def test_redundant_rows_tell_nothing_of_a_table_whose_total_is_held():
    rng = np.random.default_rng(3)
    C = np.outer(rng.normal(size=60), np.ones(4))  # the total, sixty times over
    bound = held(C)
    tables = [c for c in itertools.product(range(13), repeat=4) if sum(c) == 12]
    assert len({bound.sums(np.array(c))[0].tobytes() for c in tables}) == 1
    assert len({in_floats(C, c).tobytes() for c in tables}) > 10


def test_order_format_and_repetition_do_not_matter():
    rng = np.random.default_rng(8)
    different = 0
    for _ in range(100):
        C = rng.normal(size=(2, 30)) * 10.0 ** rng.integers(-8, 8, (2, 30))
        counts = rng.integers(0, 10**6, 30)
        wanted = held(C).sums(counts)[0].tobytes()
        order = rng.permutation(30)
        assert held(C[:, order]).sums(counts[order])[0].tobytes() == wanted
        different += (
            in_floats(C[:, order], counts[order]).tobytes() != in_floats(C, counts).tobytes()
        )
        shuffled = sparse.csr_array(C)
        for lo, hi in itertools.pairwise(shuffled.indptr):  # entries of a row in another order
            mixed = lo + rng.permutation(hi - lo)
            shuffled.indices[lo:hi] = shuffled.indices[mixed]
            shuffled.data[lo:hi] = shuffled.data[mixed]
        for form in (shuffled, sparse.coo_array(C), sparse.csc_array(C), C.tolist()):
            given_ = bind(as_held(sdp.LinearInvariants(form)), sdp.Cells(line(30)))
            assert given_.sums(counts)[0].tobytes() == wanted
        assert real_product(shuffled, counts).tobytes() == wanted
    assert different > 20


def test_rows_are_summed_in_parts_of_any_size(monkeypatch):
    rng = np.random.default_rng(4)
    C = sparse.random_array((50, 200), density=0.2, rng=rng, format="csr")
    counts = rng.integers(0, 2**40, 200)
    wanted = [nearest(exactly(row, counts)) for row in C.toarray()]
    for most in (1, 7, 100, 10**6):
        monkeypatch.setattr("subspacedp.invariants.linear.MOST_TERMS", most)
        assert real_product(C, counts).tolist() == wanted


@pytest.mark.parametrize("mechanism", ["projected", "extended"])
def test_releases_of_neighbours_publish_the_same_held_figures(mechanism):
    C = np.full((3, 5), 0.1) * np.array([[1.0], [3.0], [7.0]])
    made = sdp.design(
        line(5), sdp.LinearInvariants(C), sdp.ZCDP(0.5), mechanism=mechanism
    )  # fmt: skip
    counts = np.array([10, 3, 4, 6, 7])
    other = np.array([9, 4, 4, 6, 7])
    one, two = (made.release(sdp.Table(c, line(5)), seed=1) for c in (counts, other))
    assert one.exact[0].tobytes() == two.exact[0].tobytes()
    assert one.verify().ok


def test_an_imposed_mechanism_gets_the_same_values():
    C = np.full((1, 3), 0.1)
    wrapped = sdp.impose_on(
        line(3), sdp.LinearInvariants(C), lambda x: x + 0.5, budget=sdp.PureDP(1.0)
    )
    tables = [[2, 7, 1], [10, 0, 0]]
    values = [wrapped.release(sdp.Table(t, line(3))).exact[0].tolist() for t in tables]
    assert values == [[1.0], [1.0]]
    assert in_floats(C, tables[0]) != in_floats(C, tables[1])


def test_values_beyond_the_range_are_refused_without_them():
    with pytest.raises(DataError, match="too large for float64; scale the invariants down") as e:
        held(np.array([[1e300, 0.5]])).sums(np.array([12345, 1]))
    assert "12345" not in str(e.value)


def test_whole_coefficients_are_not_rounded_beside_real_ones():
    large = sdp.LinearInvariants(np.array([[2**60 + 1, 0]]))
    with pytest.raises(InvariantError, match="beyond 2\\*\\*53 cannot be held beside real ones"):
        bind(large & sdp.LinearInvariants([[0.5, 0.1]]), sdp.Cells(line(2)))
    assert bind(as_held(large), sdp.Cells(line(2))).exact
