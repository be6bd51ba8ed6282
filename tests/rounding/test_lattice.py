"""Digits that add up for general invariants: exact sums, fair roundings, and the variance they add.

Everything is checked from outside: B from C alone (its Smith form shows that it misses no whole
vector of the null space), the real correction by an exact projector, and from these two what every
rounding must do. A vector R is right for low dither when B⁻¹(10**k · lift − R) lies in [0, 1);
call that f. Each coordinate then must rise exactly at its own word, 2**64 · (1 − f) to the nearest.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq, fmpq_mat, fmpz_mat
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from tests import dense, statistical, strategies

import subspacedp as sdp
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.rounding.lattice import LARGEST, LatticeRounding

MOST = 2**64 - 1


# ------------------------------------------------------------------------------------ invariants


@st.composite
def matrices(draw, max_cells: int = 9) -> np.ndarray:
    """Entries from −3 to 3; zero rows, repeated rows, sums and multiples of rows included."""
    n = draw(st.integers(1, max_cells))
    rng = np.random.default_rng(draw(strategies.seeds))
    C = rng.integers(-3, 4, (draw(st.integers(0, n)), n))
    C *= rng.random(C.shape) < draw(st.sampled_from([0.3, 0.6, 1.0]))
    redundant = rng.integers(-2, 3, (draw(st.integers(0, 3)), len(C))) @ C
    scaled = C[: draw(st.integers(0, 1))] * draw(st.sampled_from([2, -6]))
    out = np.concatenate([C, redundant, scaled])
    return out[rng.permutation(len(out))]


@st.composite
def networks(draw, max_nodes: int = 6, max_edges: int = 10) -> np.ndarray:
    """Flow conservation: one row a node, one column an edge; the rows always add up to zero."""
    nodes, edges = draw(st.integers(2, max_nodes)), draw(st.integers(1, max_edges))
    rng = np.random.default_rng(draw(strategies.seeds))
    C = np.zeros((nodes, edges), np.int64)
    for edge in range(edges):
        tail, head = rng.choice(nodes, 2, replace=False)
        C[tail, edge], C[head, edge] = 1, -1
    return C


@st.composite
def margins(draw) -> np.ndarray:
    """A family of margins as a matrix."""
    return dense.matrix(*draw(strategies.problems(min_margins=1, max_cells=12, max_labels=6)))


any_invariants = st.one_of(matrices(), networks(), margins())

TOTAL = np.ones((1, 3), np.int64)
JUNCTION = np.array([[1, 1, -1, -1, -1, -1, -1]])
TWO_WAY = np.concatenate(
    [
        np.kron(np.eye(2, dtype=np.int64), np.ones((1, 3), np.int64)),
        np.kron(np.ones((1, 2), np.int64), np.eye(3, dtype=np.int64)),
    ]
)
WEIGHTED = np.array([[2, -1, 3, 0], [0, 3, 1, -2], [2, 2, 4, -2]])  # the third is the sum
EXAMPLES = [TOTAL, JUNCTION, TWO_WAY, WEIGHTED]


# --------------------------------------------------------------------------------------- oracles


def objects(values: np.ndarray) -> np.ndarray:
    return np.asarray(values).astype(object)


def lift(C: np.ndarray, e: np.ndarray, step: int) -> list[Fraction]:
    """10**decimals times the shortest real z with C z = C e."""
    numerators, q = dense.row_projector(C)
    return [Fraction(step * int(v), q) for v in numerators @ objects(e)]


def coordinates(B: np.ndarray, vector: list[Fraction]) -> list[Fraction]:
    """k with B k = vector, which must exist."""
    if B.shape[1] == 0:
        assert not any(vector)
        return []
    basis = fmpq_mat(fmpz_mat(B.tolist()))
    right = fmpq_mat(len(vector), 1, [fmpq(v.numerator, v.denominator) for v in vector])
    normal = basis.transpose() * basis
    out = normal.solve(basis.transpose() * right)
    assert basis * out == right
    return [Fraction(int(v.p), int(v.q)) for v in out.entries()]


def pseudoinverse(B: np.ndarray) -> list[list[Fraction]]:
    """(BᵀB)⁻¹Bᵀ, the weights of the whole noise in the coordinates."""
    basis = fmpq_mat(fmpz_mat(B.tolist()))
    out = (basis.transpose() * basis).solve(basis.transpose())
    return [[Fraction(int(v.p), int(v.q)) for v in row] for row in out.tolist()]


def check_basis(B: np.ndarray, C: np.ndarray) -> None:
    """B generates all whole v with C v = 0, and not just some of them."""
    n = C.shape[1]
    assert B.dtype == np.int64
    assert B.shape == (n, n - dense.rank(C))
    assert not (objects(C) @ objects(B)).any()
    if B.shape[1]:
        # B k is whole for fractional k exactly where an invariant factor is not 1.
        smith = fmpz_mat(B.tolist()).snf()
        assert [abs(int(smith[j, j])) for j in range(B.shape[1])] == [1] * B.shape[1]


def check_rounding(rounding, C: np.ndarray, e: np.ndarray, rng: np.random.Generator) -> None:
    """Everything promised about the digits of the residual C e, in exact arithmetic."""
    step, B, r = 10**rounding.decimals, rounding.basis, C @ e
    d = B.shape[1]
    check_basis(B, C)

    def apply(words: np.ndarray) -> np.ndarray:
        R = rounding.apply(r, words)
        assert R.dtype == np.int64
        assert R.shape == e.shape
        assert (objects(C) @ objects(R) == step * objects(r)).all()
        return objects(R)

    z = lift(C, e, step)
    low = apply(np.zeros(d, np.uint64))
    f = coordinates(B, [a - int(b) for a, b in zip(z, low, strict=True)])
    assert all(0 <= part < 1 for part in f)

    apply(strategies.words(rng, d + 3))
    for j in range(d):
        words = np.zeros(d, np.uint64)
        words[j] = MOST
        raised = low + (objects(B[:, j]) if f[j] else 0)
        assert (apply(words) == raised).all()
        if f[j]:
            first = math.ceil(2**64 * (1 - f[j]) - Fraction(1, 2))
            words[j] = first
            assert (apply(words) == raised).all()
            words[j] = first - 1
            assert (apply(words) == low).all()
            assert abs(Fraction(2**64 - first, 2**64) - f[j]) <= Fraction(1, 2**65)

    if d <= 6:  # the mean over all outcomes, each with its exact probability
        mean = [Fraction(0)] * len(e)
        for up in itertools.product([False, True], repeat=d):
            p = math.prod(a if u else 1 - a for a, u in zip(f, up, strict=True))
            if p:
                R = apply(np.where(up, MOST, 0).astype(np.uint64))
                mean = [m + p * int(v) for m, v in zip(mean, R, strict=True)]
        assert mean == z


# ---------------------------------------------------------------------------------- the contract


@settings(max_examples=strategies.examples(3))
@given(
    C=any_invariants,
    seed=strategies.seeds,
    decimals=st.integers(0, 3),
    magnitude=st.sampled_from([1, 30, 10**9]),
)
def test_digits_keep_the_contract(C, seed, decimals, magnitude):
    rng = np.random.default_rng(seed)
    e = strategies.integers(rng, (C.shape[1],), magnitude)
    check_rounding(LatticeRounding(C, decimals), C, e, rng)


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_sums_are_exact_for_many_cells(seed, density):
    rng = np.random.default_rng(seed)
    C = rng.integers(-3, 4, (12, 60)) * (rng.random((12, 60)) < density)
    C = np.concatenate([C, C[:3] - C[3:6]])
    rounding = LatticeRounding(C, 2)
    check_basis(rounding.basis, C)
    for magnitude in (1, 50, 10**12):
        e = strategies.integers(rng, (60,), magnitude)
        R = rounding.apply(C @ e, strategies.words(rng, rounding.dimension))
        assert (objects(C) @ objects(R) == 100 * objects(C @ e)).all()
        z = np.array([float(v) for v in lift(C, e, 100)])
        assert (abs(R - z) <= abs(rounding.basis).sum(axis=1) + 1e-9 * abs(z)).all()


@settings(max_examples=strategies.examples(2))
@given(C=any_invariants, decimals=st.integers(0, 3), seed=strategies.seeds)
def test_rounding_is_needed_when_a_lift_can_miss_the_grid(C, decimals, seed):
    rounding = LatticeRounding(C, decimals)
    numerators, q = dense.row_projector(C)
    assert rounding.needed is bool((10**decimals * numerators % q).any())
    if not rounding.needed:
        e = strategies.integers(np.random.default_rng(seed), (C.shape[1],), 10**6)
        R = rounding.apply(C @ e, np.zeros(0, np.uint64))
        assert R.tolist() == lift(C, e, rounding.step)
        assert not rounding.variance().any()
    if rounding.dimension:
        weights = pseudoinverse(rounding.basis)
        expected = [math.lcm(*((10**decimals * w).denominator for w in row)) for row in weights]
        assert rounding.denominators.tolist() == expected


@pytest.mark.parametrize(
    ("cells", "decimals", "needed"),
    [(1, 0, False), (2, 0, True), (2, 1, False), (4, 1, True), (4, 2, False), (3, 3, True)],
)
def test_a_total_over_s_cells_needs_no_rounding_when_s_divides_the_grid(cells, decimals, needed):
    assert LatticeRounding(np.ones((1, cells), np.int64), decimals).needed is needed


@pytest.mark.parametrize("C", [np.zeros((0, 3), np.int64), np.zeros((2, 3), np.int64)])
def test_nothing_held_needs_nothing(C):
    rounding = LatticeRounding(C, 1)
    assert (rounding.dimension, rounding.needed) == (3, False)
    assert rounding.apply(np.zeros(len(C), np.int64), np.zeros(0, np.uint64)).tolist() == [0, 0, 0]
    assert rounding.variance().tolist() == [0.0] * 3


def test_everything_held_leaves_no_choice():
    rounding = LatticeRounding([[1, 2], [3, 5], [4, 7]], 1)
    assert (rounding.dimension, rounding.needed) == (0, False)
    assert rounding.apply(np.array([8, 21, 29]), np.zeros(0, np.uint64)).tolist() == [20, 30]
    assert rounding.variance([1.0, 1.0]) == 0.0


def test_sparse_whole_floats_and_lists_mean_the_same():
    words = strategies.words(np.random.default_rng(1), 4)
    given = [sparse.csr_array(WEIGHTED), sparse.coo_matrix(WEIGHTED), WEIGHTED * 1.0]
    given += [WEIGHTED.tolist(), WEIGHTED.astype(np.int8)]
    answers = {tuple(LatticeRounding(C, 0).apply(WEIGHTED @ range(4), words)) for C in given}
    assert len(answers) == 1


def test_digits_are_frozen_and_own_their_matrix():
    C = WEIGHTED.copy()
    rounding = LatticeRounding(C, 0)
    C[:] = 7
    assert rounding.matrix.tolist() == WEIGHTED.tolist()
    for array in (rounding.matrix, rounding.basis, rounding.denominators):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert repr(rounding) == "LatticeRounding(3 × 4, decimals=0)"


# ------------------------------------------------------------------------------------- the basis


@settings(max_examples=strategies.examples(1))
@given(strategies.problems(min_margins=1, max_cells=24))
def test_margins_have_the_dimension_of_their_structured_null_space(problem):
    domain, held = problem
    rounding = LatticeRounding(dense.matrix(domain, held), 0)
    assert rounding.dimension == sdp.null_space(domain, held).dimension


@settings(max_examples=strategies.examples(2))
@given(any_invariants)
def test_the_basis_generates_the_whole_kernel_lattice(C):
    check_basis(LatticeRounding(C, 0).basis, C)


def test_a_basis_of_a_sublattice_is_caught():
    B = LatticeRounding(TOTAL, 0).basis.copy()
    B[:, 0] *= 2
    with pytest.raises(AssertionError):
        check_basis(B, TOTAL)


def test_long_vectors_are_found_where_there_are_no_short_ones():
    # Every whole v with v₂ = p·v₁: one basis vector, as long as p.
    for p in (10**6 + 3, 2**29 - 3):
        B = LatticeRounding([[p, -1]], 0).basis
        assert abs(B).ravel().tolist() == [1, p]
    # A common factor of a row means nothing.
    assert abs(LatticeRounding([[10**12, -3 * 10**12]], 0).basis).ravel().tolist() == [3, 1]
    C = np.array([[2**22, -1, 0, 0, 0], [0, 2**22, -1, 0, 0]])  # (1, 2**22, 2**44) beside units
    check_basis(LatticeRounding(C, 0).basis, C)


@pytest.mark.parametrize("n", [2, 7, 40, 100])
def test_one_total_costs_a_cell_no_more_than_rounding_cumulated_sums(n):
    B = LatticeRounding(np.ones((1, n), np.int64), 0).basis
    assert (B * B).sum(axis=1).max() <= 2


def test_rounding_is_spread_over_the_cells():
    rows, columns = np.eye(8, dtype=np.int64), np.ones((1, 8), np.int64)
    B = LatticeRounding(np.concatenate([np.kron(rows, columns), np.kron(columns, rows)]), 0).basis
    assert (B * B).sum(axis=0).tolist() == [4] * 49  # the shortest there are: 2 × 2 corners
    assert (B * B).sum(axis=1).max() <= 8  # 49 in the reduced basis before it is balanced


# -------------------------------------------------------------------------------------- variance


def laplace(rate: float):
    """The characteristic function of discrete Laplace noise."""
    decay = math.exp(-rate)
    return lambda t: (1 - decay) ** 2 / (1 - 2 * decay * np.cos(t) + decay**2)


def expected(rounding: LatticeRounding, transform) -> np.ndarray:
    """E[f (1 − f)] of every coordinate for noise with a given characteristic function.

    The law of L Σ wᵢ eᵢ modulo L has the discrete Fourier transform ∏ᵢ φ(2π h wᵢ).
    """
    out = []
    for row, L in zip(pseudoinverse(rounding.basis), rounding.denominators, strict=True):
        weights = [int(rounding.step * w * L) for w in row]
        h = np.arange(int(L))
        phases = [2 * np.pi * (h * w % L).astype(float) / L for w in weights]
        law = np.prod([transform(t) for t in phases], axis=0)
        mass = np.fft.fft(law).real / L
        out.append(float(mass @ (h / L * (1 - h / L)).astype(float)))
    return np.array(out)


def covariance(rounding: LatticeRounding, v: np.ndarray) -> np.ndarray:
    return (rounding.basis * v) @ rounding.basis.T


def stated(rounding: LatticeRounding, **options) -> np.ndarray:
    """The covariance that `variance` states, from its answers to weighted sums alone."""
    eye = np.eye(len(rounding.basis))
    own = np.array([rounding.variance(e, **options) for e in eye])
    pairs = np.array([[rounding.variance(a + b, **options) for b in eye] for a in eye])
    return (pairs - own[:, None] - own) / 2


@pytest.mark.parametrize("C", EXAMPLES)
@pytest.mark.parametrize("decimals", [0, 1])
def test_the_bound_holds_for_narrow_noise_and_is_reached_by_wide_noise(C, decimals):
    rounding = LatticeRounding(C, decimals)
    assert rounding.needed
    bound = stated(rounding)
    assert np.allclose(np.diag(bound), rounding.variance())
    for rate in (4.0, 1.0, 0.3):
        gap = bound - covariance(rounding, expected(rounding, laplace(rate)))
        assert np.linalg.eigvalsh(gap).min() > -1e-9  # for every weighted sum at once
    assert np.allclose(bound, covariance(rounding, expected(rounding, laplace(0.002))), rtol=1e-3)


@pytest.mark.parametrize("C", [TOTAL, np.array([[1, 2, -1]]), np.array([[2, 1, 0], [0, 1, 2]])])
def test_evenly_spread_noise_has_the_stated_covariance_exactly(C):
    rounding = LatticeRounding(C, 0)
    L = [int(v) for v in rounding.denominators]
    period, sums = math.lcm(*L), [Fraction(0)] * len(L)
    for e in itertools.product(range(period), repeat=3):
        z = lift(C, np.array(e), 1)
        low = rounding.apply(C @ e, np.zeros(len(L), np.uint64))
        f = coordinates(rounding.basis, [a - int(b) for a, b in zip(z, low, strict=True)])
        sums = [s + a * (1 - a) for s, a in zip(sums, f, strict=True)]
    assert [s / period**3 for s in sums] == [(1 - Fraction(1, v * v)) / 6 for v in L]
    v = np.array([(1 - 1 / x**2) / 6 for x in L])
    assert np.allclose(stated(rounding), covariance(rounding, v), atol=1e-12)


@pytest.mark.parametrize("C", EXAMPLES)
def test_released_digits_have_the_stated_variance(C):
    rng = np.random.default_rng(11)
    rounding = LatticeRounding(C, 0)
    n, d, scale = C.shape[1], rounding.dimension, 20
    projector = np.linalg.pinv(C.astype(float)) @ C
    weights = rng.normal(size=n)
    truth = float(weights @ covariance(rounding, expected(rounding, laplace(1 / scale))) @ weights)
    # Coordinates have E X⁴ ≤ E v and E vᵢvⱼ ≤ ¼ min(E vᵢ, E vⱼ) for v = f(1 − f), and E v ≥ ⅛: no
    # weighted sum of them has a kurtosis above 6 or so.
    trials = statistical.replicates_for_variance(6.0, off=0.5)
    p = -math.expm1(-1 / scale)
    noise = rng.geometric(p, (trials, n)) - rng.geometric(p, (trials, n))
    words = rng.integers(0, 2**64, (trials, d), dtype=np.uint64)
    errors = np.array(
        [rounding.apply(C @ e, w) - projector @ e for e, w in zip(noise, words, strict=True)]
    )
    squares = (errors @ weights) ** 2
    assert statistical.mean_p(errors @ weights, 0.0) > statistical.ALPHA
    assert statistical.mean_p(squares, truth) > statistical.ALPHA
    assert statistical.mean_p(squares, truth * 1.5) < statistical.ALPHA
    assert statistical.mean_p(squares, truth / 1.5) < statistical.ALPHA
    assert truth <= rounding.variance(weights) * (1 + 1e-12)
    assert rounding.variance(weights) < rounding.variance(weights, any_noise=True)


def test_noise_from_elsewhere_needs_the_wider_bound():
    # A fair coin e = ±1 in one of two cells: the coordinate is always half way.
    rounding = LatticeRounding([[1, 1]], 0)
    assert rounding.denominators.tolist() == [2]
    for e in (1, -1):
        f = coordinates(rounding.basis, [a - int(b) for a, b in zip(
            lift(np.array([[1, 1]]), np.array([e, 0]), 1),
            rounding.apply(np.array([e]), np.zeros(1, np.uint64)), strict=True,
        )])  # fmt: skip
        assert f == [Fraction(1, 2)]
    assert rounding.variance().tolist() == [1 / 8, 1 / 8]
    assert rounding.variance(any_noise=True).tolist() == [1 / 4, 1 / 4]
    # Thirds are never half way: f(1 − f) is 0 or 2/9.
    three = LatticeRounding(TOTAL, 0)
    assert np.allclose(stated(three, any_noise=True), covariance(three, np.full(2, 2 / 9)))


def test_held_figures_have_no_rounding_variance():
    for C in EXAMPLES:
        rounding = LatticeRounding(C, 0)
        for row in C:
            assert rounding.variance(row) == 0.0


# --------------------------------------------------------------------------------- broken twins


class Twin(LatticeRounding):
    """The same digits with one thing done wrong."""

    def correction(self, residual: np.ndarray) -> np.ndarray:
        return np.linalg.pinv(self.matrix.astype(float)) @ residual * self.step


class CellByCell(Twin):
    """Every cell of the real correction is rounded at random on its own: unbiased, no sums."""

    def apply(self, residual, dither):
        dither = np.resize(dither, len(self.basis)) * 2.0**-64
        return np.floor(self.correction(residual) + dither).astype(np.int64)


class Nearest(LatticeRounding):
    """Coordinates go to the nearest whole number: the sums are right, the mean is not."""

    def apply(self, residual, dither):
        return super().apply(residual, np.full(self.dimension, 2**63, np.uint64))


class OneDither(LatticeRounding):
    """One dither for all coordinates: the mean is right, the covariance is not."""

    def apply(self, residual, dither):
        return super().apply(residual, np.full(self.dimension, dither[0]))


class Plain(LatticeRounding):
    """Any whole solution, without a step towards the real correction."""

    def apply(self, residual, dither):
        return self.step * super().apply(residual, np.zeros(self.dimension, np.uint64))


@pytest.mark.parametrize("C", EXAMPLES)
@pytest.mark.parametrize("twin", [CellByCell, Nearest, OneDither, Plain])
def test_broken_twins_are_caught(C, twin):
    rng = np.random.default_rng(3)
    caught = []
    for _ in range(10):
        e = strategies.integers(rng, (C.shape[1],), 30)
        check_rounding(LatticeRounding(C, 1), C, e, rng)
        try:
            check_rounding(twin(C, 1), C, e, rng)
            caught.append(False)  # now and then there is nothing to round
        except AssertionError:
            caught.append(True)
    assert any(caught)


# ----------------------------------------------------------------------------- what is refused


@settings(max_examples=strategies.examples(2))
@given(C=any_invariants, seed=strategies.seeds, scale=st.sampled_from([1, 2, 3]))
def test_exactly_the_residuals_of_whole_tables_are_taken(C, seed, scale):
    rng = np.random.default_rng(seed)
    r = scale * (C @ rng.integers(-9, 9, C.shape[1])) + rng.integers(-1, 2, len(C))
    assume(len(C))
    image = fmpz_mat(C.T.tolist()).hnf()
    with_r = fmpz_mat([*C.T.tolist(), r.tolist()]).hnf()
    possible = [row for row in image.tolist() if any(row)] == [
        row for row in with_r.tolist() if any(row)
    ]
    rounding = LatticeRounding(C, 0)
    words = strategies.words(rng, rounding.dimension)
    if possible:
        assert (C @ rounding.apply(r, words)).tolist() == r.tolist()
    else:
        with pytest.raises(InvariantError, match="contradict each other"):
            rounding.apply(r, words)


@pytest.mark.parametrize(
    ("C", "r"),
    [([[1, 1], [2, 2]], [3, 5]), ([[2, 4]], [3]), ([[0, 0]], [1]), ([[1, 1], [1, -1]], [1, 0])],
)
def test_contradictions_are_refused_without_a_figure(C, r):
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(C, 0).apply(np.array(r), np.zeros(2, np.uint64))
    assert str(caught.value) == "The held values contradict each other."


def test_digits_beyond_a_word_are_refused():
    rounding = LatticeRounding([[1]], 3)
    most = (2**63 - 1) // 1000
    for r in (most, -most):
        assert rounding.apply(np.array([r]), np.zeros(0, np.uint64)).tolist() == [1000 * r]
    for r in (most + 1, -most - 1, 2**63 - 1, -(2**63)):
        with pytest.raises(ReleaseError) as caught:
            rounding.apply(np.array([r]), np.zeros(0, np.uint64))
        assert str(caught.value) == "The totals are too large for 3 decimals; ask for fewer."


def test_sums_that_leave_a_word_on_the_way_are_exact():
    rng = np.random.default_rng(6)
    C = np.eye(6, k=0, dtype=np.int64)[:5] - np.eye(6, k=1, dtype=np.int64)[:5]
    for m in (2**61, 2**62 + 12345):
        e = np.array([m, 0, -m, -m, 0, m])
        check_rounding(LatticeRounding(C, 0), C, e, rng)


def test_the_largest_residuals_are_exact():
    rounding = LatticeRounding(JUNCTION, 0)
    for r in (2**63 - 1, -(2**63)):
        R = rounding.apply(np.array([r]), strategies.words(np.random.default_rng(2), 6))
        assert sum(c * int(v) for c, v in zip(JUNCTION[0], R, strict=True)) == r


@pytest.mark.parametrize(
    "C",
    [[[0.5, 1]], [[1, math.nan]], [[1, math.inf]], [["a", "b"]], [[1, 2**60]], [[1e17, 1]],
     [[1j, 1]], [[2**80, 1]], sparse.csr_array([[0.25, 1]])],
)  # fmt: skip
def test_coefficients_that_are_not_whole_are_refused(C):
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(C, 0)
    assert str(caught.value) == (
        "Digits that add up need invariants with whole coefficients: publish real values "
        "(decimals=None), or hold margins."
    )


@pytest.mark.parametrize("C", [[1, 2], 3, [[]], [[1, 2], [3]], np.ones((2, 2, 2)), None])
def test_invariants_must_be_a_matrix(C):
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(C, 0)
    assert str(caught.value) == (
        "Invariants must be a matrix with one row per invariant and one column per cell."
    )


@pytest.mark.parametrize("make", [np.zeros, sparse.csr_array])
def test_too_many_cells_are_refused_before_anything_is_computed(make):
    for cells in (LARGEST + 1, 10**9):
        if make is np.zeros and cells == 10**9:
            continue
        with pytest.raises(InvariantError) as caught:
            LatticeRounding(make((2, cells)), 0)
        assert str(caught.value) == (
            f"Digits that add up need margins, or at most {LARGEST} cells; got {cells}: publish "
            "real values (decimals=None), or hold margins."
        )
        assert caught.value.cells == cells


@pytest.mark.parametrize("rows", [140, 300])
def test_more_invariants_than_can_be_reduced_in_time_are_refused(rows):
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(np.random.default_rng(0).integers(-9, 10, (rows, 300)), 0)
    assert str(caught.value) == (
        "Digits that add up are out of reach for so many invariants with such coefficients: "
        "publish real values (decimals=None), or hold margins."
    )


@pytest.mark.parametrize(
    "C",
    [
        np.random.default_rng(0).integers(-3, 4, (58, 60)),
        [[2**50 + 1, 2**49 - 3]],
        [[2**27, -1, 0, 0, 0], [0, 2**27, -1, 0, 0]],  # (1, 2**27, 2**54) beside short ones
    ],
)
def test_invariants_without_short_corrections_are_refused(C):
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(C, 0)
    assert str(caught.value) == (
        "These invariants are met by whole numbers only far from the real correction: publish "
        "real values (decimals=None), or hold margins."
    )


@pytest.mark.parametrize("decimals", [-1, 19, 1.5, "2", None, True])
def test_decimals_out_of_range_are_refused(decimals):
    with pytest.raises(InvariantError, match=r"^`decimals` must be a whole number from 0 to 18"):
        LatticeRounding(TOTAL, decimals)


@pytest.mark.parametrize("residual", [[1.0], [1, 2], 1, [[1]], ["1"], [True], []])
def test_a_residual_that_does_not_fit_is_refused(residual):
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(TOTAL, 0).apply(np.array(residual), np.zeros(2, np.uint64))
    assert str(caught.value) == "`residual` must be a vector of 1 integers."


@pytest.mark.parametrize(
    "dither", [np.zeros(1, np.uint64), np.zeros(2), np.zeros((2, 2), np.uint64), np.zeros(2, int)]
)
def test_dither_that_does_not_fit_is_refused(dither):
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(TOTAL, 0).apply(np.array([1]), dither)
    assert str(caught.value) == "`dither` must be a vector of 2 words of type uint64."


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(InvariantError) as caught:
        LatticeRounding(TOTAL, 0).variance([1.0, 2.0])
    assert str(caught.value) == "`weights` must have 3 entries, one per cell; got 2."
