"""Any linear equality held exact: values, rank, what is plain, flow conservation, bad input."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tests import dense
from tests.privacy.exhaustion import changes

import subspacedp as sdp
from subspacedp.errors import DataError, DomainError, InvariantError
from subspacedp.invariants import as_held, bind

LINE = sdp.Domain([sdp.Axis("a", range(4))])
SQUARE = sdp.Domain([sdp.Axis("row", ["r", "s"]), sdp.Axis("column", ["t", "u", "v"])])


def line(n):
    return sdp.Domain([sdp.Axis("a", range(n))])


def bound(thing, held):
    query = thing if not isinstance(thing, sdp.Domain) else sdp.Cells(thing)
    return bind(as_held(held), query)


# ------------------------------------------------------------------------------- values and rank


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_values_and_rank_of_an_integer_matrix_are_exact(rows, n, seed):
    rng = np.random.default_rng(seed)
    C = rng.integers(-3, 4, (rows, n))
    if rng.random() < 0.5:
        C = np.vstack([C, C[0] + 2 * C[-1], 0 * C[0]])  # redundant and empty rows
    counts = rng.integers(0, 2**50, n)
    for given_ in (C, sparse.csr_array(C), sparse.coo_array(C), C.astype(float), C.tolist()):
        held = bound(line(n), sdp.LinearInvariants(given_))
        assert held.exact
        assert held.sums(counts)[0].dtype == np.int64
        assert held.sums(counts)[0].tolist() == [int(v) for v in C.astype(object) @ counts]
    space = sdp.null_space(line(n), sdp.LinearInvariants(C))
    assert space.rank == dense.rank(C)
    assert space.dimension == n - dense.rank(C)


def test_real_coefficients_are_held_to_float_precision():
    C = np.array([[0.5, 0.25, 0.1, 0.0], [0.0, 1.5, -0.3, 2.0]])
    held = bound(LINE, sdp.LinearInvariants(C))
    assert not held.exact
    counts = np.array([10, 20, 30, 40])
    assert np.allclose(held.sums(counts)[0], C @ counts, rtol=1e-15)


def test_everything_combines_with_and():
    mask = np.zeros((2, 3), bool)
    mask[0, 1] = True
    C = np.array([[1, 0, 0, 0, 2, 0]])
    held = sdp.hold("row") & sdp.LinearInvariants(C, labels=["mine"]) & sdp.zeros(mask)
    other = sdp.zeros(mask) & (sdp.LinearInvariants(C, labels=["mine"]) & sdp.hold("row"))
    made = bound(SQUARE, held)
    dense_rows = [[1, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 2, 0], [0, 1, 0, 0, 0, 0]]
    assert made.matrix.toarray().tolist() == dense_rows
    assert bound(SQUARE, other).matrix.toarray().tolist() == dense_rows
    assert made.labels == ("r", "s", "mine", "empty cell 1")
    assert sdp.null_space(SQUARE, held).rank == 4
    counts = np.array([[1, 0, 3], [4, 5, 6]])
    assert made.sums(counts)[0].tolist() == [4, 15, 11, 0]


def test_zeros_take_their_cells_out_of_every_other_row():
    mask = np.zeros((2, 3), bool)
    mask[1] = True
    space = sdp.null_space(SQUARE, sdp.hold("row") & sdp.hold("column") & sdp.zeros(mask))
    assert space.rank == 6 - space.dimension == 6  # one row left, and its columns are held
    space = sdp.null_space(SQUARE, sdp.hold("row") & sdp.zeros(mask))
    assert space.dimension == 2
    assert np.array_equal(space.diagonal()[1], [0, 0, 0])


@given(st.integers(0, 2**32 - 1))
def test_margins_written_as_a_matrix_mean_the_same(seed):
    rng = np.random.default_rng(seed)
    held = sdp.hold("row") & sdp.hold("column")
    C = dense.matrix(SQUARE, held)
    as_margins, as_matrix = (
        sdp.null_space(SQUARE, held),
        sdp.null_space(SQUARE, sdp.LinearInvariants(C)),
    )
    assert as_margins.rank == as_matrix.rank
    v = rng.normal(size=SQUARE.shape)
    assert np.allclose(as_margins.project(v), as_matrix.project(v), atol=1e-12)
    assert np.allclose(as_margins.diagonal(), as_matrix.diagonal(), atol=1e-9)


# ----------------------------------------------------------------------------- when it is plain

RELATIONS = [
    sdp.ReplaceOne(),
    sdp.AddRemoveOne(),
    sdp.ReplaceOne(records=2),
    sdp.ReplaceOne(records=2, exactly=True),
    sdp.AddRemoveOne(records=2),
]


def truly_fixed(C, A, relation):
    """C A v = 0 for every neighbouring change v, by enumerating them all."""
    return all(not (C @ A @ np.array(v)).any() for v in changes(A.shape[1], relation))


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
@given(seed=st.integers(0, 2**32 - 1))
def test_plain_is_claimed_exactly_when_no_neighbour_changes_a_held_value(relation, seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    A = rng.integers(-1, 2, (n, d))
    A[0, 0] = 1  # not zero
    C = rng.integers(-1, 2, (int(rng.integers(1, 3)), n))
    kind = rng.integers(0, 3)
    if kind == 0:  # a matrix that vanishes on every column, or is the same on all
        C[:] = 0
    elif kind == 1:
        A = np.repeat(A[:, :1], d, axis=1)
    held = bound(sdp.LinearQuery(A), sdp.LinearInvariants(C))
    assert held.fixed_by(relation) == truly_fixed(C, A, relation)


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
def test_the_total_as_a_matrix_is_plain_like_the_total_as_a_margin(relation):
    as_matrix = bound(LINE, sdp.LinearInvariants(np.ones((1, 4), int)))
    assert as_matrix.fixed_by(relation) == bound(LINE, sdp.hold()).fixed_by(relation)


def test_nobody_has_a_record_in_a_cell_known_to_be_empty():
    # Without cell 0, the row (7, 1, 1, 1) is the total.
    row = sdp.LinearInvariants([[7, 1, 1, 1]])
    assert not bound(LINE, row).fixed_by(sdp.ReplaceOne())
    held = row & sdp.zeros([True, False, False, False])
    assert bound(LINE, held).fixed_by(sdp.ReplaceOne())
    assert not bound(LINE, held).fixed_by(sdp.AddRemoveOne())


def test_zeros_of_answers_say_nothing_about_kinds_of_records():
    # Answer 0 is always zero; answer 1 counts the records of kind 0, which one person can change.
    query = sdp.LinearQuery([[0, 0, 0], [1, 0, 0], [0, 1, 1]])
    held = sdp.LinearInvariants([[0, 1, 0]]) & sdp.zeros([True, False, False])
    assert not bound(query, held).fixed_by(sdp.ReplaceOne())


def test_what_is_plain_does_not_move_by_rounding_either():
    # 0.1·a + 0.1·b is the same for all neighbours as a number, but not as float64.
    mechanism = sdp.design(line(2), sdp.LinearInvariants([[0.1, 0.1]]), sdp.PureDP(1.0))
    held = mechanism.mechanism.held
    published = {float(held.sums(np.array([a, 6 - a]))[0][0]) for a in range(7)}
    assert mechanism.guarantee.kind != "plain" or len(published) == 1


def test_a_black_box_is_never_plain():
    query = sdp.GeneralQuery(lambda table: [1.0, 2.0], 2, 1.0, 1.0)
    assert not bound(query, sdp.LinearInvariants([[1, 0]])).fixed_by(sdp.ReplaceOne())


# --------------------------------------------------------------------------- flow conservation

USES = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]])  # roads by ways
BALANCE = np.array([[1, 0, -1, -1, 0], [0, 1, 1, 0, -1]])  # junctions by roads


def test_a_trip_conserves_flow():
    assert not (BALANCE @ USES).any()


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("budget", [sdp.PureDP(0.5), sdp.ApproxDP(1.0, 1e-6)], ids=str)
def test_flow_is_conserved_and_plain(relation, decimals, budget):
    query = sdp.LinearQuery(USES)
    trips = sdp.Table([420, 310, 95], line(3))
    mechanism = sdp.design(
        query, sdp.LinearInvariants(BALANCE), budget, neighbours=relation, decimals=decimals
    )
    assert mechanism.guarantee.kind == "plain"
    for seed in range(5):
        release = mechanism.release(trips, seed=seed)
        assert release.verify().ok
        assert release.exact[0].tolist() == [0, 0]
        if decimals is None:
            assert np.abs(BALANCE @ release.values).max() < 1e-9 * np.abs(release.values).max()
        else:
            steps = np.rint(release.values * 10**decimals).astype(np.int64)
            assert np.array_equal(steps / 10**decimals, release.values)
            assert (BALANCE @ steps).tolist() == [0, 0]


def test_flow_by_the_extended_mechanism():
    query = sdp.LinearQuery(USES)
    mechanism = sdp.design(
        query, sdp.LinearInvariants(BALANCE), sdp.PureDP(1.0), mechanism="extended"
    )
    assert mechanism.guarantee.kind == "plain"
    release = mechanism.release(sdp.Table([420, 310, 95], line(3)), seed=1)
    assert np.abs(BALANCE @ release.values).max() < 1e-9
    assert release.verify().ok


def test_holding_what_one_trip_changes_is_not_plain():
    query = sdp.LinearQuery(USES)
    held = sdp.LinearInvariants(BALANCE) & sdp.LinearInvariants([[1, 0, 0, 0, 0]])
    assert sdp.design(query, held, sdp.PureDP(1.0)).guarantee.kind == "S"


# ------------------------------------------------------------------------------------ bad input

BAD_MATRICES = [
    ([[1.0, np.nan]], "must not have NaN or infinite"),
    ([[1.0, np.inf]], "must not have NaN or infinite"),
    ([["a", "b"]], "must be a matrix of numbers"),
    ([[1, 2], [3]], "must be a matrix of numbers"),
    (np.zeros((2, 2, 2)), "must be a matrix of numbers"),
    (np.zeros((0, 3)), "at least one row"),
    (None, "must be a matrix of numbers"),
    (sparse.csr_array(np.array([[np.nan, 1.0]])), "must not have NaN or infinite"),
]


def one_sentence(error):
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 250
    return text


@pytest.mark.parametrize(("matrix", "words"), BAD_MATRICES, ids=lambda v: str(v)[:20])
def test_a_matrix_that_is_none(matrix, words):
    with pytest.raises(InvariantError, match=words) as error:
        sdp.LinearInvariants(matrix)
    one_sentence(error)


@pytest.mark.parametrize(
    "matrix", [np.array([[1j, 1]]), np.array([[2**63, 1]], np.uint64)], ids=["complex", "uint64"]
)
def test_numbers_that_do_not_fit_are_refused_and_not_altered(matrix):
    with pytest.raises(InvariantError):
        sdp.LinearInvariants(matrix)


BAD_USES = [
    (LINE, sdp.LinearInvariants([[1, 1]]), "have 2 columns; the query has 4 answers"),
    (LINE, sdp.LinearInvariants(np.eye(4)), "fixes every answer"),
    (LINE, sdp.hold() & sdp.LinearInvariants(np.eye(4)[:3]), "fixes every answer"),
    (LINE, sdp.zeros([True] * 4), "fixes every answer"),
    (LINE, sdp.zeros([True]), "must have the shape"),
    (SQUARE, sdp.zeros(np.eye(3, 2, dtype=bool)), "must have the shape"),
    (sdp.LinearQuery([[1, 1]]), sdp.hold(), "has no axes"),
    (LINE, [[1, 1, 1, 1]], "must come from hold"),
]


@pytest.mark.parametrize(("domain", "held", "words"), BAD_USES, ids=lambda v: str(v)[:40])
def test_invariants_that_do_not_fit(domain, held, words):
    with pytest.raises(InvariantError, match=words) as error:
        sdp.design(domain, held, sdp.PureDP(1.0))
    one_sentence(error)


def test_labels_and_masks():
    with pytest.raises(InvariantError, match="each of the 2 rows") as error:
        sdp.LinearInvariants([[1, 0], [0, 1]], labels=["one"])
    one_sentence(error)
    with pytest.raises(InvariantError, match="True and False") as error:
        sdp.zeros([0, 1])
    one_sentence(error)


CONTRADICTIONS = [
    (LINE, sdp.LinearInvariants([[1, 1, 0, 0], [2, 2, 0, 0]]), [1, 3]),
    (LINE, sdp.LinearInvariants([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]), [5, 5, 11]),
    (LINE, sdp.LinearInvariants([[0, 0, 0, 0]]), [1]),
    (SQUARE, sdp.hold("row") & sdp.hold("column"), [[5, 6], [4, 4, 4]]),
    (SQUARE, sdp.hold("row") & sdp.hold("column"), [[10**10, 0], [10**10 + 1, 0, 0]]),
]


@pytest.mark.parametrize(("domain", "held", "exact"), CONTRADICTIONS, ids=lambda v: str(v)[:40])
def test_exact_values_without_a_solution(domain, held, exact):
    with pytest.raises(InvariantError, match="contradict") as error:
        sdp.impose(domain, held, np.zeros(domain.shape), exact)
    one_sentence(error)


BAD_IMPOSED = [
    (np.zeros(3), 1, "must be 6 numbers"),
    (np.full((2, 3), np.nan), 1, "finite"),
    ([["a"] * 3] * 2, 1, "must be 6 numbers"),
    (np.zeros((2, 3)), [1, 2], "must have the shape"),
    (np.zeros((2, 3)), np.nan, "finite"),
    (np.zeros((2, 3)), "x", "must be numbers"),
    (np.zeros((3, 2)), 1, "must be 6 numbers"),
]


@pytest.mark.parametrize(("noisy", "exact", "words"), BAD_IMPOSED, ids=lambda v: str(v)[:20])
def test_bad_arguments_of_impose(noisy, exact, words):
    with pytest.raises(InvariantError, match=words) as error:
        sdp.impose(SQUARE, sdp.hold(), noisy, exact)
    one_sentence(error)


def test_a_sensitivity_found_too_small():
    query = sdp.GeneralQuery(lambda table: 3.0 * table.counts, 4, 2.0, 2.0)
    with pytest.raises(DataError, match=r"too small.* times as far") as error:
        sdp.check_sensitivity(query, sdp.Table([5, 5, 5, 5], LINE), sdp.ReplaceOne())
    one_sentence(error)
    # Exactly 3 where replaced, less what the bound leaves for rounding.
    assert 2.9 < error.value.factor <= 3.0


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "1"])
def test_a_declared_sensitivity_must_be_positive(value):
    with pytest.raises(DomainError, match="`l2` must be a positive finite number"):
        sdp.GeneralQuery(None, 3, 1.0, value)


def test_the_public_scale_of_held_values_is_the_querys_grid():
    query = sdp.LinearQuery([[0.5, 0], [0, 0.25]])
    mechanism = sdp.design(query, sdp.LinearInvariants([[1, 1]]), sdp.PureDP(1.0))
    release = mechanism.release(sdp.Table([3, 5], line(2)), seed=0)
    assert query.grid == Fraction(1, 4)
    assert release.exact[0].tolist() == [6 + 5]
    assert abs(release.values.sum() - 2.75) < 1e-9
