"""The null space of held margins against the dense projector: `check_projection` and its twins."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import dense, strategies

import subspacedp as sdp
from subspacedp.errors import DomainError, InvariantError
from subspacedp.invariants import Held, MarginNullSpace, Mixed

NEAR = 1e-12  # rounding error of a sweep over at most two hundred cells, with room


def check_projection(
    space: MarginNullSpace, domain: sdp.Domain, held: Held, rng: np.random.Generator
) -> None:
    """All that a null space promises, against an independent dense one."""
    n, C = domain.size, dense.matrix(domain, held)
    numerators, denominator = dense.row_projector(C)
    row_space = (numerators / denominator).astype(float)
    P = np.stack([space.project(e).ravel() for e in np.eye(n)])

    assert np.abs(P @ P - P).max() < NEAR
    assert np.abs(P - P.T).max() < NEAR
    assert np.abs(C @ P).max(initial=0.0) < NEAR * n
    assert np.abs(P + row_space - np.eye(n)).max() < NEAR
    assert space.rank == dense.rank(C)
    assert space.dimension == n - dense.rank(C) == round(np.trace(P))
    assert np.abs(space.diagonal().ravel() - (1 - np.diag(row_space))).max() < NEAR

    basis = space.basis()
    assert basis.shape == (n, space.dimension)
    assert np.abs(basis.T @ basis - np.eye(space.dimension)).max(initial=0.0) < NEAR
    assert np.abs(basis @ basis.T - P).max() < NEAR

    for magnitude in (1, 1000, 2**61 // n):
        z = strategies.integers(rng, domain.shape, magnitude)
        check_lift(space, domain, held, z, dense.fractions(numerators @ flat(z), denominator))

    v = strategies.integers(rng, domain.shape, 1000)
    inside = (denominator * flat(v) - numerators @ flat(v)).reshape(domain.shape)
    assert space.contains(np.array(inside, np.int64))
    if space.dimension:  # else only rounding errors of floats are left
        assert space.contains(space.project(v))
    step = np.zeros(domain.shape, np.int64)
    step.flat[rng.integers(n)] = 1
    assert space.contains(np.array(inside, np.int64) + step) is (len(C) == 0)
    assert space.contains(space.project(v) + 1000 * step) is (len(C) == 0)

    w = strategies.integers(rng, domain.shape, 9) + 10 * step
    exposed = Fraction(int(flat(w) @ numerators @ flat(w)), denominator * int(flat(w) @ flat(w)))
    assert abs(space.share_exposed(w) - exposed) < NEAR
    assert space.share_exposed(C.sum(axis=0) if len(C) else w) == (1.0 if len(C) else 0.0)
    if inside.any():
        assert space.share_exposed(inside) == 0.0


def check_lift(space, domain, held, z, expected) -> None:
    """lift_exact(C z) is Π_R z as Fractions, and lift is its float."""
    residual = dense.residual(domain, held, z)
    lifted = space.lift_exact(residual).fractions().ravel()
    assert lifted.tolist() == expected.tolist()
    near = space.lift(residual).ravel()
    scale = max([1.0, *(abs(float(v)) for v in expected)])
    assert all(abs(a - b) <= 2.0**-50 * scale for a, b in zip(near, expected, strict=True))


def flat(values: np.ndarray) -> np.ndarray:
    return values.ravel().astype(object)


@strategies.both_engines
@settings(max_examples=strategies.examples(3))
@given(problem=strategies.problems(min_margins=1, max_cells=40), seed=strategies.seeds)
def test_held_margins_keep_the_contract(engine, problem, seed):
    domain, held = problem
    space = sdp.null_space(domain, held)
    with strategies.using(engine):
        check_projection(space, domain, held, np.random.default_rng(seed))


@strategies.both_engines
@settings(max_examples=strategies.examples(1) // 4)
@given(problem=strategies.problems(max_cells=120), seed=strategies.seeds)
def test_held_margins_keep_the_contract_on_larger_tables(engine, problem, seed):
    domain, held = problem
    space = sdp.null_space(domain, held)
    with strategies.using(engine):
        check_projection(space, domain, held, np.random.default_rng(seed))


@settings(max_examples=strategies.examples(5))
@given(strategies.problems(), strategies.seeds, st.sampled_from([1, 100, 2**40, 2**61]))
def test_a_lift_has_the_totals_exactly_and_is_orthogonal_to_the_null_space(problem, seed, size):
    domain, held = problem
    rng = np.random.default_rng(seed)
    space = sdp.null_space(domain, held)
    residual = dense.residual(domain, held, strategies.integers(rng, domain.shape, size // 200))
    lifted = space.lift_exact(residual)
    common = int(np.lcm.reduce(lifted.denominator.ravel().astype(object)))
    whole = flat(lifted.whole) * common + flat(
        lifted.numerator * (common // lifted.denominator.astype(object))
    )
    expected = [value * common for part in residual for value in part.ravel().tolist()]
    assert (dense.matrix(domain, held).astype(object) @ whole).tolist() == expected
    v = space.project(rng.normal(size=domain.shape)).ravel()
    z = lifted.to_float().ravel()
    assert abs(v @ z) <= NEAR * domain.size * max(np.abs(z).max(), 1) * np.abs(v).max(initial=1.0)


@settings(max_examples=strategies.examples(2))
@given(strategies.problems(min_margins=1), strategies.seeds, st.sampled_from([3, 1000, 2**40]))
def test_lifted_floats_are_within_one_unit_in_the_last_place(problem, seed, size):
    domain, held = problem
    rng = np.random.default_rng(seed)
    residual = dense.residual(domain, held, strategies.integers(rng, domain.shape, size))
    lifted = sdp.null_space(domain, held).lift_exact(residual)
    pairs = zip(lifted.to_float().ravel().tolist(), lifted.fractions().flat, strict=True)
    assert max(dense.ulps(computed, exact) for computed, exact in pairs) <= 1


@strategies.both_engines
@settings(max_examples=strategies.examples(2))
@given(problem=strategies.problems(), seed=strategies.seeds)
def test_projecting_leaves_the_argument_alone_unless_told_otherwise(engine, problem, seed):
    domain, held = problem
    space = sdp.null_space(domain, held)
    values = np.random.default_rng(seed).normal(size=domain.shape)
    before = values.copy()
    with strategies.using(engine):
        projected = space.project(values)
        assert np.array_equal(values, before)
        assert not np.shares_memory(projected, values)
        assert np.array_equal(space.project(values, overwrite=True), projected)
        assert np.array_equal(values, projected)


@strategies.both_engines
@settings(max_examples=strategies.examples(3))
@given(
    problem=strategies.problems(),
    seed=strategies.seeds,
    size=st.sampled_from([5, 10**6, 2**51, 2**61]),
    overwrite=st.booleans(),
)
def test_subtracting_a_lift_is_exact_to_the_rounding_of_its_value(
    engine, problem, seed, size, overwrite
):
    domain, held = problem
    rng = np.random.default_rng(seed)
    space = sdp.null_space(domain, held)
    noisy = strategies.integers(rng, domain.shape, size)
    residual = dense.residual(domain, held, strategies.integers(rng, domain.shape, size // 200))
    exact = [int(v) - z for v, z in zip(noisy.flat, space.lift_exact(residual).fractions().flat,
                                        strict=True)]  # fmt: skip
    with strategies.using(engine):
        values = space.subtract_lift(noisy.copy(), residual, overwrite=overwrite)
    assert values.dtype == np.float64
    # Fractions below Σ|aₖ| are added in float64; the whole part is rounded once.
    terms = 1 + sum(abs(a) for a in space.held.expansion.values())
    for computed, value in zip(values.ravel().tolist(), exact, strict=True):
        bound = Fraction(terms * (len(space.held.expansion) + 1), 2**53) + dense.ulp(value)
        assert abs(Fraction(computed) - value) <= bound


# ---------------------------------------------------------------------------- special families


def primes_domain() -> tuple[sdp.Domain, Held]:
    """Groups around cell 0 that grow from prime to prime: a denominator of more than 61 bits."""
    chain = {"a": [19, 23, 29, 31, 37, 41], "b": [43, 47, 53, 59, 61, 67]}

    def axis(name: str) -> sdp.Axis:
        *sizes, n = chain[name]
        levels = {f"{name}{s}": [max(i, s - 1) for i in range(n)] for s in sizes}
        return sdp.Axis(name, range(n), levels=levels)

    fine_to_coarse = [("a",), *((f"a{s}",) for s in chain["a"][:-1]), ()]
    coarse_to_fine = [(), *((f"b{s}",) for s in reversed(chain["b"][:-1])), ("b",)]
    held = Held()
    for one, other in zip(fine_to_coarse, coarse_to_fine, strict=True):
        held = held & sdp.hold(*one, *other)
    return sdp.Domain([axis("a"), axis("b")]), held


def test_denominators_beyond_64_bits_stay_exact():
    domain, held = primes_domain()
    space = sdp.null_space(domain, held)
    assert space.denominators.dtype == object
    assert max(int(d).bit_length() for d in space.denominators.flat) > 61
    z = strategies.integers(np.random.default_rng(3), domain.shape, 10**6)
    family = held.on(domain)
    residual = tuple(m.sum(z) for m in family.margins)
    lifted = space.lift_exact(residual).fractions()
    for margin, total in zip(family.margins, residual, strict=True):
        assert margin.sum(lifted).tolist() == total.tolist()
    assert np.abs(space.project(lifted.astype(float))).max() < 1e-6
    assert np.abs(space.project(z) - (z - lifted.astype(float))).max() < 1e-6


def test_nothing_held_protects_everything():
    domain = sdp.Domain([sdp.Axis("a", range(3)), sdp.Axis("b", range(2))])
    space = sdp.null_space(domain)
    assert (space.rank, space.dimension) == (0, 6)
    assert space.lift_exact(()).fractions().tolist() == [[0, 0]] * 3
    assert space.contains([[1, 2], [3, 4], [5, 6]])
    check_projection(space, domain, Held(), np.random.default_rng(0))


def test_everything_held_protects_nothing():
    domain = sdp.Domain([sdp.Axis("a", range(3)), sdp.Axis("b", range(2))])
    held = sdp.hold("a", "b")
    space = sdp.null_space(domain, held)
    assert (space.rank, space.dimension) == (6, 0)
    assert space.basis().shape == (6, 0)
    check_projection(space, domain, held, np.random.default_rng(0))


def test_campus():
    domain = sdp.Domain(
        [
            sdp.Axis("hour", range(14)),
            sdp.Axis("group", range(24)),
            sdp.Axis("building", range(20)),
        ]
    )
    space = sdp.null_space(domain, sdp.hold("hour", "building") & sdp.hold("group", "building"))
    assert (space.rank, space.dimension) == (740, 5980)
    assert set(space.denominators.ravel().tolist()) == {14 * 24}
    assert repr(space) == (
        "NullSpace(dimension 5,980 of 6,720; held exactly: "
        "every hour × building total; every group × building total)"
    )


# ------------------------------------------------------------------------------------ contains


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_contains_is_exact_for_integers_of_every_width(dtype):
    domain = sdp.Domain([sdp.Axis("a", range(2)), sdp.Axis("b", range(2))])
    space = sdp.null_space(domain, sdp.hold())
    assert not space.contains(np.full((2, 2), 64, dtype))  # 256, which is 0 in 8 bits
    assert space.contains(np.zeros((2, 2), dtype))


def test_contains_is_exact_for_large_integers_in_either_shape():
    domain = sdp.Domain([sdp.Axis("a", range(2)), sdp.Axis("b", range(2))])
    space = sdp.null_space(domain, sdp.hold())
    off_by_one = np.array([10**12, -(10**12), 1, 0])
    assert not space.contains(off_by_one.reshape(2, 2))
    assert not space.contains(off_by_one)
    assert space.contains(off_by_one - [0, 0, 1, 0])


def test_contains_allows_floats_their_rounding_error_and_no_more():
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    space = sdp.null_space(domain, sdp.hold())
    assert space.contains([0.1, 0.2, -0.1 - 0.2])
    assert space.contains([0.1, 0.2, -0.3])
    assert not space.contains([0.1, 0.2, -0.3 + 1e-6])
    assert space.contains([0.0, 0.0, 0.0])


# -------------------------------------------------------------------------------------- errors


def refused(call) -> str:
    with pytest.raises(InvariantError) as caught:
        call()
    return str(caught.value)


def test_errors():
    domain = sdp.Domain([sdp.Axis("a", range(3)), sdp.Axis("b", range(2))])
    space = sdp.null_space(domain, sdp.hold("a"))
    wrong = "Expected an array of the domain's shape (3, 2); got (2, 3)."
    assert refused(lambda: space.project(np.zeros((2, 3)))) == wrong
    assert refused(lambda: space.contains(np.zeros((2, 3)))) == wrong
    assert refused(lambda: space.share_exposed(np.zeros((3, 2)))) == (
        "A question needs at least one weight that is not zero."
    )
    with pytest.raises(DomainError) as caught:
        sdp.null_space("domain")
    assert str(caught.value) == "The first argument must be a `Domain` or a query; got a str."
    assert refused(lambda: sdp.null_space(domain, "a")) == (
        "What is held must come from hold(...), LinearInvariants(...) or zeros(...); got a str."
    )
    long = sdp.null_space(sdp.Domain([sdp.Axis("a", range(5001))]), sdp.hold())
    assert refused(long.basis) == (
        "A dense basis of 5,001 cells is out of reach; `project` needs none."
    )


# -------------------------------------------------------------------------------- broken twins


class IgnoresOneMargin(MarginNullSpace):
    """Projects onto the null space of all margins but the last."""

    def project(self, values):
        out = self._table(values).copy()
        for margin in self.held.essential[:-1]:
            out -= margin.spread(margin.sum(out) / margin.sizes)
        return out


class ForgetsMeets(MarginNullSpace):
    """Adds the means of all margins without taking back what they share."""

    def lift_exact(self, residual):
        out = np.full(self.domain.shape, Fraction(0))
        for margin, total in zip(self.held.margins, residual, strict=True):
            out = out + margin.spread(total * np.full(total.shape, Fraction(1)) / margin.sizes)
        return mixed(out)


class NotLeastNorm(MarginNullSpace):
    """A lift with the right totals that is not orthogonal to the null space."""

    def lift_exact(self, residual):
        lifted = super().lift_exact(residual)
        inside = np.array([[1, -1], [0, 0], [-1, 1], [0, 0], [0, 0]])
        return Mixed(lifted.whole + inside, lifted.numerator, lifted.denominator)


class ThroughFloats(MarginNullSpace):
    """A lift computed in float64: right for small residuals only."""

    def lift_exact(self, residual):
        z = super().lift_exact(residual).to_float()
        d = np.broadcast_to(self.denominators, z.shape)
        whole = np.floor(z)
        return Mixed.normal(whole.astype(np.int64), np.rint((z - whole) * d).astype(np.int64), d)


class RowsForRank(MarginNullSpace):
    """Takes the number of rows of C for its rank."""

    @property
    def rank(self):
        return self.held.rows


class SkewedBasis(MarginNullSpace):
    """A basis of the right space that is not orthonormal."""

    def basis(self):
        return super().basis() * 1.001


class OneSidedDiagonal(MarginNullSpace):
    """The share of noise that remains, for the first margin alone."""

    def diagonal(self):
        margin = self.held.essential[0]
        return 1.0 - 1.0 / np.broadcast_to(margin.spread(margin.sizes), self.domain.shape)


class Lenient(MarginNullSpace):
    """Calls everything that is small contained."""

    def contains(self, values):
        return bool(np.abs(np.asarray(self.project(values)) - values).max() <= 1)


def mixed(values: np.ndarray) -> Mixed:
    d = np.array([v.denominator for v in values.flat], object).reshape(values.shape)
    whole = np.array([v.numerator // v.denominator for v in values.flat]).reshape(values.shape)
    return Mixed(whole, (values - whole) * d, d)


TWINS = [
    IgnoresOneMargin,
    ForgetsMeets,
    NotLeastNorm,
    ThroughFloats,
    RowsForRank,
    SkewedBasis,
    OneSidedDiagonal,
    Lenient,
]


@pytest.mark.parametrize("twin", [MarginNullSpace, *TWINS])
def test_the_contract_catches_every_broken_twin(twin):
    county = sdp.Axis("county", range(5), levels={"state": ["p", "q", "p", "q", "q"]})
    domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
    held = sdp.hold("county") & sdp.hold("state", "sex")
    space = twin(held.on(domain))
    if twin is MarginNullSpace:
        check_projection(space, domain, held, np.random.default_rng(1))
        return
    with pytest.raises(AssertionError):
        check_projection(space, domain, held, np.random.default_rng(1))
