"""The null space of any matrix against exact elimination: the contract, and twins that break it."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from flint import fmpz_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import dense, strategies

import subspacedp as sdp
from subspacedp.errors import InvariantError
from subspacedp.invariants import MarginNullSpace
from subspacedp.invariants.components import Rows, peel
from subspacedp.invariants.matrix_space import MatrixNullSpace

SUBSPACE = "subspacedp.invariants."
NEAR = 1e-9  # conjugate gradients and condition numbers of small random integers, with room


def whole_numbers(C: np.ndarray) -> np.ndarray:
    """C with its rows scaled to integers, which have the same null space."""
    exact = [[Fraction(v) for v in row] for row in C.tolist()]
    out = np.zeros(C.shape, object)
    for i, row in enumerate(exact):
        scale = np.lcm.reduce(np.array([v.denominator for v in row], object))
        out[i] = [int(v * int(scale)) for v in row]
    return out


def check_projection(space: MatrixNullSpace, C: np.ndarray, rng: np.random.Generator) -> None:
    """All that a null space promises, against an independent one over the rationals."""
    n, whole = C.shape[1], whole_numbers(C)
    numerators, denominator = dense.row_projector(whole)
    R = dense.fractions(numerators, denominator).astype(float)
    rank = dense.rank(whole)
    unit = C / np.maximum(np.linalg.norm(C, axis=1, keepdims=True), 1e-300)
    P = np.stack([space.project(e) for e in np.eye(n)])

    assert np.abs(P @ P - P).max() < NEAR
    assert np.abs(P - P.T).max() < NEAR
    assert np.abs(unit @ P).max(initial=0.0) < NEAR
    assert np.abs(P + R - np.eye(n)).max() < NEAR
    assert (space.size, space.rows) == (n, len(C))
    assert space.rank == rank
    assert space.dimension == n - rank == round(np.trace(P))

    diagonal = space.diagonal()
    assert (diagonal - (1 - np.diag(R))).min() > -NEAR
    if space.diagonal_is_exact:
        assert np.abs(diagonal - (1 - np.diag(R))).max() < 1e-6
    assert (diagonal[~C.any(axis=0)] == 1.0).all()

    basis = space.basis()
    assert basis.shape == (n, n - rank)
    assert np.abs(basis.T @ basis - np.eye(n - rank)).max(initial=0.0) < NEAR
    assert np.abs(basis @ basis.T - P).max() < NEAR

    z = rng.standard_normal(n) * 1000
    lifted = space.lift(C @ z)
    assert np.abs(lifted - R @ z).max() < NEAR * 1000
    assert np.linalg.norm(C @ lifted - C @ z) <= 1e-9 * max(1.0, np.linalg.norm(C @ z))

    assert space.contains(P @ z)
    step = np.zeros(n)
    step[int(np.argmax(np.abs(unit).max(axis=0, initial=0.0)))] = np.abs(P @ z).max() + 1
    assert space.contains(P @ z + step) is (not C.any())
    if (whole == C).all():
        check_integers(space, whole, numerators, denominator, rng)

    w = rng.integers(-9, 10, n) + 10 * step
    assert abs(space.share_exposed(w) - (w @ R @ w) / (w @ w)) < NEAR
    if C.any():
        assert space.share_exposed(unit.T @ rng.standard_normal(len(C))) == 1.0
    if np.linalg.norm(P @ z) > 1:
        assert space.share_exposed(P @ z) == 0.0


def check_integers(space, whole, numerators, denominator, rng) -> None:
    """`contains` is exact for integers of an integer matrix."""
    v = rng.integers(-9, 10, whole.shape[1]).astype(object)
    inside = denominator * v - numerators @ v
    if max(abs(value) for value in inside) < 2**62:
        inside = inside.astype(np.int64)
        assert space.contains(inside)
        used = np.flatnonzero(whole.any(axis=0))
        if used.size:
            inside[used[0]] += 1
            assert not space.contains(inside)


# -------------------------------------------------------------------------------- the contract


@st.composite
def matrices(draw, max_rows: int = 12, max_columns: int = 16) -> np.ndarray:
    """Small matrices of every kind: dense, sparse, disjoint, redundant, zero rows, real, scaled."""
    rng = np.random.default_rng(draw(strategies.seeds))
    m, n = draw(st.integers(0, max_rows)), draw(st.integers(1, max_columns))
    kind = draw(st.sampled_from(["dense", "sparse", "groups", "windows", "ones"]))
    if kind == "dense":
        C = rng.integers(-3, 4, (m, n))
    elif kind == "sparse":
        C = rng.integers(-3, 4, (m, n)) * (rng.random((m, n)) < 0.2)
    elif kind == "groups":
        C = (rng.integers(0, max(m, 1), n) == np.arange(m)[:, None]).astype(int)
    elif kind == "windows":
        width = int(rng.integers(1, n + 1))
        first = np.arange(m)[:, None] % n
        C = ((np.arange(n) >= first) & (np.arange(n) < first + width)).astype(int)
    else:
        C = (rng.random((m, n)) < 0.5).astype(int)
    if m and draw(st.booleans()):  # sums, multiples, copies and zero rows
        C = np.vstack([C, rng.integers(-2, 3, (3, m)) @ C, -2 * C[:1], C[-1:], 0 * C[:1]])
        C = C[rng.permutation(len(C))]
    if draw(st.booleans()):  # real numbers, rows of very different scale
        C = C / 8 * 2.0 ** rng.integers(-30, 31, (len(C), 1))
    return C


def as_given(C: np.ndarray, form: str):
    return {"dense": lambda: C, "csr": lambda: sp.csr_array(C), "coo": lambda: sp.coo_matrix(C)}[
        form
    ]()


@settings(max_examples=strategies.examples(2))
@given(C=matrices(), form=st.sampled_from(["dense", "csr", "coo"]), seed=strategies.seeds)
def test_any_matrix_keeps_the_contract(C, form, seed):
    check_projection(MatrixNullSpace(as_given(C, form)), C, np.random.default_rng(seed))


# Every way to solve a component, on matrices small enough for the oracle.
WAYS = {
    "one by one": {"gram_solve.SMALL_ROWS": 1},
    "singular vectors": {"gram_solve.SMALL_ROWS": 1, "gram.CLEAR": 2.0},
    "tall": {"gram_solve.SMALL_ROWS": 1, "gram_solve.DENSE_ROWS": 4},
    "gradients": {"gram_solve.SMALL_ROWS": 1, "gram_solve.DENSE_ROWS": 1},
    "gradients without G": {
        "gram_solve.SMALL_ROWS": 1,
        "gram_solve.DENSE_ROWS": 1,
        "gram_solve.GRAM_WORK": 0,
        "gram_solve.EIGENVECTOR_ROWS": 0,
        "gram_solve.CHOLESKY_ROWS": 0,
    },
    "banded": {
        "gram_solve.SMALL_ROWS": 1,
        "gram_solve.DENSE_ROWS": 1,
        "gram_solve.FEW": 0,
        "gram_solve.FACTORED_ROWS": 0,
        "gram_solve.EIGENVECTOR_ROWS": 0,
    },
    "dense Cholesky": {
        "gram_solve.SMALL_ROWS": 1,
        "gram_solve.DENSE_ROWS": 1,
        "gram_solve.FEW": 0,
        "gram_solve.GRAM_ENTRIES": -1,
        "gram_solve.EIGENVECTOR_ROWS": 0,
    },
    "bounds": {
        "gram_solve.SMALL_ROWS": 1,
        "gram_solve.DENSE_ROWS": 1,
        "gram_solve.TRACE": -1.0,
    },
    "elimination": {"gram_solve.FLINT_WORK": -1},
    "modular": {"gram_solve.FLINT_EXACT": -1},
}


def forced(patch: pytest.MonkeyPatch, way: str) -> None:
    for name, value in WAYS[way].items():
        patch.setattr(SUBSPACE + name, value)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=strategies.examples(1) // 2)
@given(C=matrices(), seed=strategies.seeds)
def test_every_way_to_solve_keeps_the_contract(way, C, seed):
    with pytest.MonkeyPatch.context() as patch:
        forced(patch, way)
        check_projection(MatrixNullSpace(C), C, np.random.default_rng(seed))


@settings(max_examples=strategies.examples(1))
@given(problem=strategies.problems(min_margins=1, max_cells=60), seed=strategies.seeds)
def test_margins_as_a_matrix_agree_with_margins(problem, seed):
    domain, held = problem
    rng = np.random.default_rng(seed)
    structured = MarginNullSpace(held.on(domain))
    space = MatrixNullSpace(dense.matrix(domain, held))
    v = rng.standard_normal(domain.shape) * 100
    assert np.abs(space.project(v.ravel()) - structured.project(v).ravel()).max() < NEAR
    assert (space.rank, space.dimension) == (structured.rank, structured.dimension)
    assert space.rank_method == "exact over the rationals"
    assert np.abs(space.diagonal() - structured.diagonal().ravel()).max() < NEAR
    residual = dense.residual(domain, held, strategies.integers(rng, domain.shape, 1000))
    flat = np.concatenate([part.ravel() for part in residual])
    assert np.abs(space.lift(flat) - structured.lift(residual).ravel()).max() < 1000 * NEAR
    assert abs(space.share_exposed(v.ravel()) - structured.share_exposed(v)) < NEAR


# ------------------------------------------------------------------------------- large matrices


def scattered(rows: int, columns: int, each: int, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, columns, rows * each)
    return sp.csr_array(
        (np.ones(cells.size, np.int64), (np.repeat(np.arange(rows), each), cells)),
        shape=(rows, columns),
    )


def windows(length: int, width: int, *, circular: bool = False) -> sp.csr_array:
    rows = length if circular else length - width + 1
    cells = (np.arange(rows)[:, None] + np.arange(width)) % length
    return sp.csr_array(
        (np.ones(cells.size, np.int64), (np.repeat(np.arange(rows), width), cells.ravel())),
        shape=(rows, length),
    )


def check_large(space: MatrixNullSpace, rng: np.random.Generator) -> np.ndarray:
    """What can be checked without an oracle: C P v = 0, P² = P, Pᵀ = P, least norm."""
    v, u = rng.standard_normal((2, space.size))
    held = space.matrix @ v
    inside = space.project(v)
    assert np.linalg.norm(space.matrix @ inside) <= 1e-11 * np.linalg.norm(held)
    assert np.abs(space.project(inside) - inside).max() < NEAR
    assert abs(u @ inside - space.project(u) @ v) < NEAR * space.size**0.5
    lifted = space.lift(held)
    assert np.linalg.norm(space.matrix @ lifted - held) <= 1e-9 * np.linalg.norm(held)
    assert np.abs(lifted - (v - inside)).max() < NEAR
    assert np.linalg.norm(space.project(lifted)) < NEAR * np.linalg.norm(lifted)
    assert space.contains(inside)
    assert not space.contains(v)
    return v - inside


def test_large_scattered_rows_agree_with_lsmr(monkeypatch):
    from scipy.sparse.linalg import lsmr

    space = MatrixNullSpace(scattered(2500, 200_000, 40))
    rng = np.random.default_rng(1)
    lifted = check_large(space, rng)
    assert (space.rank, space.rank_method) == (2500, "exact over the rationals")
    v = np.random.default_rng(1).standard_normal((2, space.size))[0]
    peer = lsmr(space.matrix.astype(float), space.matrix @ v, atol=0, btol=1e-14)[0]
    assert np.abs(lifted - peer).max() < NEAR
    # A bound, and a sharp one: rows hardly overlap.
    monkeypatch.setattr(SUBSPACE + "gram_solve.CHOLESKY_ROWS", 0)
    monkeypatch.setattr(SUBSPACE + "gram_solve.INVERSE_WORK", 0)
    assert not space.diagonal_is_exact
    diagonal = space.diagonal()
    assert 0 <= diagonal.sum() - space.dimension < 0.02 * space.rank
    for cell in rng.integers(0, space.size, 20):
        e = np.zeros(space.size)
        e[cell] = 1.0
        assert diagonal[cell] >= space.project(e)[cell] - NEAR


@pytest.mark.parametrize("circular", [False, True])
def test_windows_of_a_series(circular):
    space = MatrixNullSpace(windows(3000, 25, circular=circular))
    check_large(space, np.random.default_rng(2))
    # Only series of period 25 that sum to zero over it are invisible, and 25 divides 3000.
    assert (space.dimension, space.rank_method) == (24, "exact over the rationals")
    assert space.diagonal_is_exact
    assert np.abs(space.diagonal() - 24 / 3000).max() < 1e-8
    period = np.tile(np.arange(25) - 12, 120)
    assert space.contains(period)
    assert space.share_exposed(period) == 0.0
    assert space.share_exposed(np.ones(3000)) == 1.0


def test_a_circular_series_whose_windows_say_everything():
    space = MatrixNullSpace(windows(701, 25, circular=True))  # 25 and 701 have no common factor
    assert (space.rank, space.dimension) == (701, 0)
    v = np.random.default_rng(0).standard_normal(701)
    assert np.abs(space.lift(space.matrix @ v) - v).max() < 1e-8
    assert np.abs(space.project(v)).max() < 1e-8


def test_a_hundred_thousand_disjoint_groups():
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(100_000), 3)
    weight = rng.integers(1, 4, group.size)
    space = MatrixNullSpace(
        sp.csr_array((weight, (group, np.arange(group.size))), shape=(100_000, 300_001))
    )
    v = rng.standard_normal(space.size)
    share = np.bincount(group, weight * v[:-1]) / np.bincount(group, weight**2)
    assert np.abs(space.project(v)[:-1] - (v[:-1] - weight * share[group])).max() < 1e-13
    assert space.project(v)[-1] == v[-1]
    assert (space.rank, space.diagonal_is_exact) == (100_000, True)
    expected = 1 - weight**2 / np.bincount(group, weight**2)[group]
    assert np.abs(space.diagonal()[:-1] - expected).max() < 1e-14
    assert space.diagonal()[-1] == 1.0


def test_many_small_components_at_once():
    blocks = [np.ones((1, 4)), [[1, 1, 0], [0, 1, 1]], [[1, 2], [2, 4], [1, 0]]]
    C = sp.block_diag(blocks * 500 + [np.kron(np.eye(3), np.ones(3)), np.zeros((1, 1))])
    space = MatrixNullSpace(C)
    check_large(space, np.random.default_rng(4))
    assert space.rank == 500 * (1 + 2 + 2) + 3
    assert space.diagonal_is_exact
    for first, block in [(0, blocks[0]), (4, blocks[1]), (7, blocks[2])]:
        truth = np.diag(dense.float_projector(np.array(block, float)))
        assert np.abs(space.diagonal()[first : first + truth.size] - truth).max() < 1e-12


def test_more_rows_than_cells():
    rng = np.random.default_rng(5)
    C = rng.integers(0, 2, (2000, 30)) @ np.diag(np.arange(30) < 25).astype(int)
    space = MatrixNullSpace(C)
    assert (space.rank, space.dimension) == (25, 5)
    v = rng.standard_normal(30)
    assert np.abs(space.project(v) - np.where(np.arange(30) < 25, 0, v)).max() < 1e-12
    assert space.basis().shape == (30, 5)


def test_all_two_way_margins_of_a_cube():
    domain = sdp.Domain([sdp.Axis(name, range(12)) for name in "abc"])
    held = sdp.hold("a", "b") & sdp.hold("a", "c") & sdp.hold("b", "c")
    space = MatrixNullSpace(dense.matrix(domain, held))
    check_large(space, np.random.default_rng(6))
    assert space.diagonal_is_exact
    assert (space.rank, space.dimension) == (3 * 144 - 3 * 12 + 1, 11**3)
    assert space.rank_method == "exact over the rationals"
    assert np.abs(space.diagonal() - (11 / 12) ** 3).max() < 1e-12


def test_scales_from_component_to_component_do_not_disturb_each_other():
    C = sp.block_diag([windows(400, 20), scattered(400, 4000, 10), np.ones((1, 5))])
    space = MatrixNullSpace(C)
    v = np.random.default_rng(7).standard_normal(space.size)
    v[:400] *= 1e12
    v[-5:] *= 1e-6
    for part, rows in [(slice(400, 4400), slice(381, 781)), (slice(4400, None), slice(781, None))]:
        alone = np.zeros(space.size)
        alone[part] = v[part]
        held = (space.matrix @ alone)[rows]
        inside = space.project(v)[part]
        assert np.abs(inside - space.project(alone)[part]).max() < 1e-10 * np.abs(v[part]).max()
        assert np.linalg.norm((space.matrix @ space.project(v))[rows]) < 1e-11 * np.linalg.norm(
            held
        )


def test_results_repeat_themselves():
    C, v = scattered(500, 1000, 10), np.random.default_rng(8).standard_normal(1000)
    one, other = MatrixNullSpace(C), MatrixNullSpace(C.toarray())
    assert np.array_equal(one.project(v), other.project(v))
    assert np.array_equal(one.project(v), one.project(v))
    assert np.array_equal(one.diagonal(), other.diagonal())


# ----------------------------------------------------------------------------------------- rank


@pytest.mark.parametrize("way", ["elimination", "modular", "one by one"])
@pytest.mark.parametrize("size", [1, 1000, 10**9])
def test_rank_of_redundant_integers_is_that_of_flint(way, size):
    rng = np.random.default_rng(9)
    for rows, columns in [(8, 20), (20, 8), (30, 30)]:
        factor = rng.integers(-size, size + 1, (rows, 6)) * (rng.random((rows, 6)) < 0.7)
        C = factor @ rng.integers(-2, 3, (6, columns))
        with pytest.MonkeyPatch.context() as patch:
            forced(patch, way)
            space = MatrixNullSpace(C)
            assert space.rank == fmpz_mat(C.tolist()).rank()
            exact = space.rank_method == "exact over the rationals"
            assert exact or way == "modular"


def test_rank_counts_what_float64_would_overlook():
    C = np.array([[10**12, 10**12, 1], [10**12, 10**12, 0], [1, 1, 0]])
    space = MatrixNullSpace(C)
    assert (space.rank, space.rank_method) == (2, "exact over the rationals")
    assert np.abs(space.project([1.0, -1.0, 0.0]) - [1, -1, 0]).max() < 1e-12
    assert np.abs(space.project([1.0, 1.0, 1.0])).max() < 1e-3
    real = MatrixNullSpace(C + 0.5 * np.eye(3)[:1] * 0 + np.array([[0, 0, 0.5]] * 2 + [[0, 0, 0]]))
    assert real.rank_method == "numerical, relative tolerance 1e-10"


def test_rank_of_real_rows_by_tolerance():
    a, b = np.random.default_rng(10).standard_normal((2, 6))
    for gap, rank in [(0.0, 2), (1e-12, 2), (1e-7, 3)]:
        third = a / 3 + b / 7 + gap * np.eye(6)[0]
        space = MatrixNullSpace([a, b, third])
        assert (space.rank, space.rank_method) == (rank, "numerical, relative tolerance 1e-10")
        assert space.basis().shape == (6, 6 - rank)
        z = np.arange(6.0)
        assert np.abs([a, b, third] @ (space.lift([a, b, third] @ z) - z)).max() < 1e-9


def test_hundreds_of_real_rows_have_their_rank_by_singular_values():
    C = scattered(400, 390, 12).toarray()[:380] / 3
    space = MatrixNullSpace(np.vstack([C, C[:7] + C[7:14]]))
    assert (space.rank, space.rank_method) == (380, "numerical, relative tolerance 1e-10")


def test_rank_by_random_vectors():
    C = scattered(300, 290, 12).toarray()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SUBSPACE + "gram_solve.SPECTRAL_ROWS", 0)
        redundant = np.vstack([C[:100], C[:7] + C[7:14]]) / 3
        space = MatrixNullSpace(redundant)
        assert (space.rank, space.rank_method) == (100, "numerical, by random vectors")
        patch.setattr(SUBSPACE + "gram_solve.PROBES", 3)
        space = MatrixNullSpace(redundant)
        sentence = "The rank of 107 rows that share cells is out of reach; `project` and `lift` do"
        assert refused(lambda: space.rank).startswith(sentence)


def test_rows_with_a_cell_of_their_own_peel_off():
    assert peel(windows(50, 7)).size == 0
    assert peel(windows(50, 7, circular=True)).size == 50
    C = sp.csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]]))
    assert peel(C).tolist() == [1, 2]
    assert peel(C, least=2.0).tolist() == [0, 1, 2, 3]


def test_copies_and_multiples_are_dropped_and_order_is_kept():
    C = np.array([[0, 2, 4], [0, 0, 0], [0, -1, -2], [3, 0, 0], [0, 1, 3], [0, 1, 2]])
    assert sorted(Rows.of(MatrixNullSpace(C).matrix).source.tolist()) == [0, 3, 4]
    assert sorted(Rows.of(MatrixNullSpace(C / 8).matrix).source.tolist()) == [0, 3, 4]


# --------------------------------------------------------------------------------- contradiction


def test_values_that_contradict_each_other_are_refused():
    contradiction = (
        "The exact values contradict each other: no table has them all, because some rows of the "
        "invariants follow from others."
    )
    parts = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]
    space = MatrixNullSpace(parts)
    assert np.abs(space.lift([1, 2, 3]) - [0.5, 0.5, 1.0, 1.0]).max() < 1e-14
    assert refused(lambda: space.lift([1, 2, 4])) == contradiction
    assert refused(lambda: space.lift([1e6, 2e6, 3e6 + 1])) == contradiction
    assert refused(lambda: MatrixNullSpace([[1, 1], [2, 2]]).lift([1, 3])) == contradiction
    assert refused(lambda: MatrixNullSpace([[1, 1], [0, 0]]).lift([1, 1])) == contradiction
    assert np.abs(MatrixNullSpace([[1, 1], [0, 0]]).lift([1, 0]) - 0.5).max() < 1e-15
    # Rounding of larger numbers, as the caller knows it.
    assert refused(lambda: space.lift([1, 2, 3 + 1e-6])) == contradiction
    assert np.abs(space.lift([1, 2, 3 + 1e-6], error=1e-6) - [0.5, 0.5, 1, 1]).max() < 1e-6


@pytest.mark.parametrize("way", ["gradients", "gradients without G", "banded", "dense Cholesky"])
def test_iterations_refuse_contradictions_too(way):
    rng = np.random.default_rng(11)
    C = rng.integers(0, 2, (12, 30))
    C = np.vstack([C, C[:6].sum(axis=0) - C[6:].sum(axis=0)])
    with pytest.MonkeyPatch.context() as patch:
        forced(patch, way)
        space = MatrixNullSpace(C)
        r = C @ rng.integers(0, 100, 30)
        assert np.abs(C @ space.lift(r) - r).max() < 1e-9
        r[3] += 1
        assert refused(lambda: space.lift(r)).startswith("The exact values contradict each other")


def test_independent_rows_are_never_called_contradictory():
    C = np.array([[2**40, 2**40, 1], [2**40, 2**40, 0]])
    space = MatrixNullSpace(C)
    assert space.rank == 2
    z = np.array([3.0, 5.0, 2.0])
    assert np.linalg.norm(C @ (space.lift(C @ z) - z)) <= 1e-9 * np.linalg.norm(C @ z)
    assert refused(lambda: space.lift([1.0, -(2.0**30)])) == (
        "The invariants are too close to dependent to meet the exact values to 1e-9."
    )


def test_a_component_that_no_way_solves_is_refused(monkeypatch):
    forced(monkeypatch, "gradients")
    monkeypatch.setattr(SUBSPACE + "gram_solve.REACHED", -1.0)
    monkeypatch.setattr(SUBSPACE + "gram_solve.REFINABLE", -1.0)
    space = MatrixNullSpace(windows(20, 5))
    assert space.rank == 16
    assert refused(lambda: space.project(np.arange(20))) == (
        "The invariants are too close to dependent: 16 rows that share cells cannot be solved "
        "together. Drop rows that follow from others."
    )


# ------------------------------------------------------------------------------------- the border


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, bool])
def test_contains_is_exact_for_integers_of_every_width(dtype):
    space = MatrixNullSpace(np.ones((1, 4), dtype))
    assert space.matrix.dtype == np.int64
    assert not space.contains(np.full(4, 64).astype(dtype))
    assert space.contains(np.zeros(4, dtype))


def test_contains_is_exact_beyond_64_bits():
    space = MatrixNullSpace([[2**53, 2**53 - 1, 1, 0], [0, 0, 0, 1]])
    v = np.array([2**62, -(2**62), -(2**62), 0])
    assert space.contains(v)
    assert not space.contains(v + np.eye(4, dtype=int)[2])
    wraps = np.array([2**11, 0, 0, 0])  # 2**53 · 2**11 is 0 in 64 bits
    assert not space.contains(wraps)


def test_contains_allows_floats_their_rounding_error_and_no_more():
    space = MatrixNullSpace([[1, 1, 1]])
    assert space.contains([0.1, 0.2, -0.3])
    assert not space.contains([0.1, 0.2, -0.3 + 1e-6])


def test_integers_are_stored_as_integers():
    assert MatrixNullSpace([[1.0, 2.0]]).matrix.dtype == np.int64
    assert MatrixNullSpace([[1.5, 2.0]]).matrix.dtype == np.float64
    assert MatrixNullSpace([[1e300, 2.0]]).matrix.dtype == np.float64
    assert MatrixNullSpace([[Fraction(1, 2), Fraction(3)]]).matrix.dtype == np.float64
    doubled = sp.coo_array(([100, 100], ([0, 0], [0, 0])), shape=(1, 2), dtype=np.int8)
    assert MatrixNullSpace(doubled).matrix.toarray().tolist() == [[200, 0]]


def test_the_argument_is_left_alone():
    C = sp.csr_array(np.array([[1.0, 0.0], [3.0, 4.0]]))
    space = MatrixNullSpace(C)
    C.data[:] = 7.0
    assert space.matrix.toarray().tolist() == [[1, 0], [3, 4]]
    v = np.array([1.0, 2.0])
    space.project(v)
    assert v.tolist() == [1.0, 2.0]
    space.diagonal()[:] = 5.0
    assert space.diagonal().max() <= 1.0


def test_nothing_held_protects_everything():
    for C in (np.zeros((0, 3)), np.zeros((2, 3))):
        check_projection(MatrixNullSpace(C), C, np.random.default_rng(0))


def refused(call) -> str:
    with pytest.raises(InvariantError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ([[1.0, np.nan]], "must have finite entries; got NaN or infinity."),
        ([[1.0, np.inf]], "must have finite entries; got NaN or infinity."),
        (sp.csr_array([[1.0, -np.inf]]), "must have finite entries; got NaN or infinity."),
        ([1, 2, 3], "must have two dimensions, rows and columns; got 1."),
        (np.ones((2, 2, 2)), "must have two dimensions, rows and columns; got 3."),
        (sp.coo_array([1, 2, 3]), "must have two dimensions, rows and columns; got 1."),
        (np.ones((3, 0)), "must have at least one column; got none."),
        ([[1j, 2]], "must have real numbers as entries; got complex128."),
        ([["a", "b"]], "must have real numbers as entries; got <U1."),
        ([[None, 2]], "must have finite entries; got NaN or infinity."),
        ([[object(), 2]], "must have real numbers as entries."),
        ([[2**53 + 1, 1]], None),
    ],
)
def test_bad_matrices(matrix, sentence):
    expected = (
        f"An invariant matrix {sentence}"
        if sentence
        else "Whole numbers in an invariant matrix must not exceed 2**53; divide the row by a "
        "common factor."
    )
    assert refused(lambda: MatrixNullSpace(matrix)) == expected


def test_bad_arguments():
    space = MatrixNullSpace([[1, 1, 0], [0, 1, 1]])
    wrong = "Expected an array of 3 cells; got (2,)."
    for call in (space.project, space.contains, space.share_exposed):
        assert refused(lambda call=call: call(np.zeros(2))) == wrong
    assert refused(lambda: space.lift(np.zeros(3))) == (
        "Expected one number for each of the 2 rows; got an array of shape (3,)."
    )
    assert refused(lambda: space.lift([np.nan, 0])) == "The exact values must be finite numbers."
    assert refused(lambda: space.project([np.inf, 0, 0])) == "Cells must be finite numbers."
    assert refused(lambda: space.share_exposed(np.zeros(3))) == (
        "A question needs at least one weight that is not zero."
    )
    assert refused(MatrixNullSpace(sp.csr_array((1, 5001))).basis) == (
        "A dense basis of 5,001 cells is out of reach; `project` needs none."
    )
    assert repr(space) == "MatrixNullSpace(2 invariants of 3 cells)"


def test_importing_loads_no_scipy():
    code = "import sys, subspacedp.invariants.matrix_space; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# -------------------------------------------------------------------------------- broken twins


class DropsOneRow(MatrixNullSpace):
    """Projects onto the null space of all rows but the last."""

    def project(self, values):
        return MatrixNullSpace(self.matrix[:-1]).project(values)


class TakesRowsForOrthogonal(MatrixNullSpace):
    """Removes every row's part as if rows had nothing in common."""

    def project(self, values):
        C = self.matrix.toarray() / np.linalg.norm(self.matrix.toarray(), axis=1, keepdims=True)
        return np.asarray(values, float) - C.T @ (C @ values)


class RowsForRank(MatrixNullSpace):
    """Takes the number of rows of C for its rank."""

    @property
    def rank(self):
        return self.rows


class NotLeastNorm(MatrixNullSpace):
    """A lift with the right sums that is not orthogonal to the null space."""

    def lift(self, residual, *, error=0.0):
        return super().lift(residual) + 0.01 * self.basis()[:, 0]


class TooSmallDiagonal(MatrixNullSpace):
    """Stated variances a little too small."""

    def diagonal(self):
        return super().diagonal() * (1 - 1e-6)


class SkewedBasis(MatrixNullSpace):
    """A basis of the right space that is not orthonormal."""

    def basis(self):
        return super().basis() * 1.001


class Lenient(MatrixNullSpace):
    """Calls everything that is off by one contained."""

    def contains(self, values):
        return bool(np.abs(self.matrix @ np.asarray(values)).max() <= 100)


TWINS = [
    DropsOneRow,
    TakesRowsForOrthogonal,
    RowsForRank,
    NotLeastNorm,
    TooSmallDiagonal,
    SkewedBasis,
    Lenient,
]


@pytest.mark.parametrize("twin", [MatrixNullSpace, *TWINS])
def test_the_contract_catches_every_broken_twin(twin):
    C = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [1, 2, 1, 0, 0], [0, 0, 2, 0, 1]])
    if twin is MatrixNullSpace:
        check_projection(twin(C), C, np.random.default_rng(1))
        return
    with pytest.raises(AssertionError):
        check_projection(twin(C), C, np.random.default_rng(1))
