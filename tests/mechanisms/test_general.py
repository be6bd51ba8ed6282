"""The projected mechanism on any C, structural zeros, digits for small C, and `impose`."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tests import dense
from tests.privacy.exhaustion import null_space_part
from tests.statistical import ALPHA, mean_p

import subspacedp as sdp
from subspacedp.errors import DataError, InvariantError, ReleaseError
from subspacedp.release import verify_folder

SQUARE = sdp.Domain([sdp.Axis("row", ["r", "s"]), sdp.Axis("column", ["t", "u", "v"])])
C = np.array([[1, 2, 0, 0, -1, 0], [0, 0, 1, 1, 1, 1], [1, 2, 1, 1, 0, 1]])  # rank 2
COUNTS = np.array([[30, 20, 10], [0, 50, 7]])
TABLE = sdp.Table(COUNTS, SQUARE)
BUDGETS = [sdp.PureDP(0.5), sdp.ApproxDP(1.0, 1e-6)]


def line(n):
    return sdp.Domain([sdp.Axis("a", range(n))])


# ----------------------------------------------------------------------- any C, projected noise

FORMS = {
    "dense": C,
    "sparse": sparse.coo_array(C),
    "without the redundant row": C[:2],
    "real": C * math.pi,
    "nested lists": C.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_same_release_however_c_is_written(form, budget):
    held = sdp.LinearInvariants(FORMS[form])
    mechanism = sdp.design(SQUARE, held, budget)
    assert mechanism.mechanism.space.rank == 2
    assert mechanism.guarantee.kind == "S"
    P = dense.float_projector(C)
    per_cell = mechanism.expected_error().per_cell.ravel()
    assert np.allclose(per_cell, mechanism.mechanism.law.variance * np.diag(P), rtol=1e-6)
    for seed in range(5):
        release = mechanism.release(TABLE, seed=seed)
        assert np.abs(C @ (release.values - COUNTS).ravel()).max() < 1e-9
        assert release.verify().ok


@given(st.integers(0, 2**32 - 1))
def test_release_is_truth_plus_projected_integer_noise(seed):
    """noisy − lift(C·noisy − c) = A(x) + Π_N e for some whole e, against exact fractions."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    C = rng.integers(-2, 3, (int(rng.integers(1, n)), n))
    if dense.rank(C) == n:
        C = C[:1]
    mechanism = sdp.design(line(n), sdp.LinearInvariants(C), sdp.PureDP(0.3))
    counts, noise = rng.integers(0, 1000, n), rng.integers(-50, 51, n)
    held = mechanism.mechanism.held
    made = mechanism.mechanism.reconstruct(counts + noise, held.sums(counts), None)
    part = null_space_part(C.tolist())
    exact = [Fraction(int(x)) + v for x, v in zip(counts, part(noise.tolist()), strict=True)]
    assert np.allclose(made, [float(v) for v in exact], rtol=0, atol=1e-9)


def test_unbiased_with_the_stated_variance():
    mechanism = sdp.design(SQUARE, sdp.LinearInvariants(C), sdp.PureDP(1.0))
    number = 1500
    errors = np.array([(mechanism.release(TABLE, seed=s).values - COUNTS).ravel()
                       for s in range(number)])  # fmt: skip
    stated = mechanism.expected_error().per_cell.ravel()
    assert np.all(mean_p(errors, 0.0) > ALPHA)
    assert np.all(mean_p(errors**2, stated) > ALPHA)
    assert np.any(mean_p(errors**2, 1.5 * stated) < ALPHA)


def test_many_sparse_rows():
    rng = np.random.default_rng(0)
    rows = sparse.csr_array(rng.random((40, 3000)) < 0.005).astype(np.int64)
    domain = line(3000)
    table = sdp.Table(rng.integers(0, 100, 3000), domain)
    release = sdp.design(domain, sdp.LinearInvariants(rows), sdp.PureDP(1.0)).release(table)
    truth = rows @ table.counts
    assert np.abs(rows @ release.values - truth).max() <= 1e-9 * truth.max()
    assert release.verify().ok


def test_redundant_real_rows_and_large_counts():
    rng = np.random.default_rng(0)
    R = rng.normal(size=(2, 4))
    held = sdp.LinearInvariants(np.vstack([R, R[0] + R[1]]))
    mechanism = sdp.design(line(4), held, sdp.PureDP(1.0))
    for seed in range(20):
        table = sdp.Table(rng.integers(0, 10**9, 4), line(4))
        assert mechanism.release(table, seed=seed).verify().ok


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("decimals", [None, 0])
def test_saved_loaded_verified(tmp_path, budget, decimals):
    held = sdp.hold("row") & sdp.LinearInvariants(C, labels=["x", "y", "z"])
    held = held & sdp.zeros(COUNTS == 0)
    release = sdp.design(SQUARE, held, budget, decimals=decimals).release(TABLE)
    release.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    assert np.array_equal(loaded.values, release.values)
    assert loaded.certificate() == release.certificate()
    assert verify_folder(tmp_path / "r").ok


@pytest.mark.parametrize("entry", [0.1, 0.3, 0.7])
def test_a_query_on_a_rounded_grid_survives_the_files(tmp_path, entry):
    query = sdp.LinearQuery(np.eye(3) * entry)
    mechanism = sdp.design(query, sdp.LinearInvariants([[1, 1, 1]]), sdp.PureDP(1.0))
    release = mechanism.release(sdp.Table([1, 2, 3], line(3)))
    release.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    assert loaded.mechanism.query.grid == query.grid
    assert loaded.certificate() == release.certificate()
    assert verify_folder(tmp_path / "r").ok


# ------------------------------------------------------------------------------- structural zeros

MASK = np.array([[False, False, True], [True, False, False]])
EMPTY = sdp.Table(np.where(MASK, 0, COUNTS + 1), SQUARE)


@pytest.mark.parametrize("mechanism", ["projected", "extended"])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    "held", [sdp.zeros(MASK), sdp.zeros(MASK) & sdp.hold("row"),
             sdp.zeros(MASK) & sdp.LinearInvariants(C)], ids=str,
)  # fmt: skip
def test_empty_cells_stay_empty_without_noise(held, budget, mechanism):
    made = sdp.design(SQUARE, held, budget, mechanism=mechanism)
    for seed in range(5):
        release = made.release(EMPTY, seed=seed)
        assert np.all(release.values[MASK] == 0.0)
        assert np.any(release.values[~MASK] != EMPTY.counts[~MASK])
        assert np.all(release.stderr()[MASK] == 0.0)
        assert np.any(release.stderr()[~MASK] > 0.0)
        assert release.verify().ok
    assert np.all(made.expected_error().per_cell[MASK] == 0.0)


def test_zeros_with_digits():
    made = sdp.design(SQUARE, sdp.zeros(MASK) & sdp.hold("row"), sdp.PureDP(1.0), decimals=0)
    for seed in range(20):
        values = made.release(EMPTY, seed=seed).values
        assert values.dtype == np.int64
        assert values[MASK].tolist() == [0, 0]
        assert np.array_equal(values.sum(axis=1), EMPTY.counts.sum(axis=1))
    assert np.all(made.expected_error().per_cell[MASK] == 0.0)


def test_people_in_cells_declared_empty_are_counted_and_not_named():
    mechanism = sdp.design(SQUARE, sdp.zeros(COUNTS > 25), sdp.PureDP(1.0))
    with pytest.raises(DataError, match=r"^2 of the cells declared empty have someone") as error:
        mechanism.release(TABLE)
    assert error.value.cells == 2
    assert "30" not in str(error.value)
    assert "50" not in str(error.value)


# ------------------------------------------------------------------------- digits for a small C

SMALL = {
    "the issue's": C,
    "odd": np.array([[1, 0, 1, 0, 1, 0]]),
    "with coefficients": np.array([[2, 3, 5, 0, 0, 0], [0, 0, 1, -7, 2, 1]]),
    "a common factor": np.array([[2, 2, 4, 6, 2, 2]]),
    "flow": np.array([[1, -1, -1, 0, 0, 0], [0, 1, 0, -1, 1, 0], [0, 0, 1, 0, -1, -1]]),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("decimals", [0, 1])
def test_digits_add_up_exactly(name, decimals):
    matrix = SMALL[name]
    mechanism = sdp.design(SQUARE, sdp.LinearInvariants(matrix), sdp.PureDP(0.7), decimals=decimals)
    exact = matrix @ COUNTS.ravel()
    for seed in range(30):
        release = mechanism.release(TABLE, seed=seed)
        steps = np.rint(release.values * 10**decimals).astype(np.int64)
        assert np.array_equal(steps / 10**decimals, release.values)
        assert (matrix @ steps.ravel()).tolist() == (exact * 10**decimals).tolist()
        assert release.verify().ok
    assert mechanism.guarantee.kind in {"G", "S"}


def test_digits_are_unbiased_and_within_the_stated_error():
    mechanism = sdp.design(SQUARE, sdp.LinearInvariants(C), sdp.PureDP(1.0), decimals=0)
    errors = np.array([(mechanism.release(TABLE, seed=s).values - COUNTS).ravel()
                       for s in range(1500)])  # fmt: skip
    assert np.all(mean_p(errors, 0.0) > ALPHA)
    stated = mechanism.expected_error().per_cell.ravel()
    above = (errors**2).mean(axis=0) > stated
    assert np.all((mean_p(errors**2, stated) > ALPHA) | ~above)


def test_digits_out_of_reach_say_what_to_do_instead():
    rng = np.random.default_rng(0)
    big = rng.integers(-5, 6, (30, 4000))
    for held in (sdp.LinearInvariants(big), sdp.LinearInvariants([[0.5, 1.0] * 2000])):
        with pytest.raises((InvariantError, ReleaseError), match="decimals=None") as error:
            sdp.design(line(4000), held, sdp.PureDP(1.0), decimals=0)
        assert str(error.value).endswith(".")
        assert len(str(error.value)) < 300


# ---------------------------------------------------------------------------------------- impose


@given(st.integers(0, 2**32 - 1))
def test_impose_equals_truth_plus_projected_noise(seed):
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 10, SQUARE.shape)
    for held, matrix in (
        (sdp.hold("row") & sdp.hold("column"), None),
        (sdp.LinearInvariants(C), C),
        (sdp.LinearInvariants(C[:2] * 0.37), C),
    ):
        matrix = dense.matrix(SQUARE, held) if matrix is None else matrix
        P = dense.float_projector(matrix)
        exact = (
            [COUNTS.sum(axis=1), COUNTS.sum(axis=0)]
            if not isinstance(held, sdp.LinearInvariants)
            else held.matrix @ COUNTS.ravel()
        )
        made = sdp.impose(SQUARE, held, COUNTS + noise, exact)
        assert np.allclose(made.ravel(), COUNTS.ravel() + P @ noise.ravel(), atol=1e-9)


def test_impose_is_the_nearest_vector_with_the_exact_values():
    noisy = COUNTS + np.array([[1.5, -2, 0.25], [3, 0, -7]])
    made = sdp.impose(SQUARE, sdp.LinearInvariants(C), noisy, C @ COUNTS.ravel())
    assert np.abs(C @ made.ravel() - C @ COUNTS.ravel()).max() < 1e-10
    back = np.linalg.lstsq(C.T, (noisy - made).ravel(), rcond=None)
    assert np.allclose(C.T @ back[0], (noisy - made).ravel())  # the change lies in the row space


def test_impose_takes_one_array_for_one_margin():
    exact = COUNTS.sum(axis=1)
    a = sdp.impose(SQUARE, sdp.hold("row"), COUNTS + 1, exact)
    b = sdp.impose(SQUARE, sdp.hold("row"), COUNTS + 1, [exact])
    assert np.array_equal(a, b)
    assert np.allclose(a, COUNTS)


def test_impose_with_cells_known_to_be_empty():
    held = sdp.hold() & sdp.zeros([True, False, False])
    made = sdp.impose(line(3), held, [1.0, 1.0, 3.0], [6, 0])  # one value a row, zeros too
    assert made[0] == 0.0
    assert np.allclose(made, [0.0, 2.0, 4.0], atol=1e-12)


def test_impose_on_large_counts_with_redundant_rows():
    rows = np.array([[1, 1, 0], [0, 0, 1], [1, 1, 1]])
    counts = np.array([3_000_000_000, 5_000_000_000, 7_000_000_001])
    rng = np.random.default_rng(0)
    for _ in range(50):
        noisy = counts + rng.laplace(0, 5, 3)
        made = sdp.impose(line(3), sdp.LinearInvariants(rows), noisy, rows @ counts)
        assert np.abs(rows @ made - rows @ counts).max() < 1e-4


# Three mechanisms that a curator may already run. Each takes counts and a generator.


def double_geometric(counts, rng, epsilon=0.5):
    p = 1 - math.exp(-epsilon / 2)
    return counts + rng.geometric(p, counts.shape) - rng.geometric(p, counts.shape)


def student_t(counts, rng, scale=4.0):
    return counts + scale * rng.standard_t(5, counts.shape)


def randomised_response(counts, rng, keep=0.6):
    """Everyone tells his cell with probability `keep`, otherwise any cell: not additive."""
    n = counts.size
    told = np.zeros(n)
    for cell, people in enumerate(counts.ravel()):
        honest = rng.binomial(people, keep)
        told[cell] += honest
        told += rng.multinomial(people - honest, np.full(n, 1 / n))
    return ((told - counts.sum() * (1 - keep) / n) / keep).reshape(counts.shape)


EXISTING = {
    "double geometric": double_geometric,
    "Student t": student_t,
    "randomised response": randomised_response,
}


@pytest.mark.parametrize("name", EXISTING)
def test_existing_mechanisms_get_exact_totals_and_stay_unbiased(name):
    held = sdp.hold("row") & sdp.LinearInvariants([[1, 0, 0, 1, 0, 0]])
    exact = [60, 57, 30]
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(400):
        noisy = EXISTING[name](COUNTS, rng)
        made = sdp.impose(SQUARE, held, noisy, exact)
        assert np.abs(made.sum(axis=1) - [60, 57]).max() < 1e-9
        assert abs(made[:, 0].sum() - 30) < 1e-9
        # The part in the null space is the existing mechanism's own: post-processing of it.
        space = sdp.null_space(SQUARE, held)
        assert np.allclose(space.project(made), space.project(noisy), atol=1e-9)
        runs.append((made - COUNTS).ravel())
    assert np.all(mean_p(np.array(runs), 0.0) > ALPHA)


def test_imposing_reduces_the_error_of_an_unbiased_mechanism():
    rng = np.random.default_rng(1)
    before = after = 0.0
    for _ in range(50):
        noisy = double_geometric(COUNTS, rng)
        made = sdp.impose(SQUARE, sdp.hold("row"), noisy, [60, 57])
        before += np.sum((noisy - COUNTS) ** 2)
        after += np.sum((made - COUNTS) ** 2)
        assert np.sum((made - COUNTS) ** 2) <= np.sum((noisy - COUNTS) ** 2) + 1e-9
    assert after < 0.9 * before
