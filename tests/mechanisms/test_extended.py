"""The extended mechanisms: sensitivity against brute force, privacy by exhaustion, law, files."""

import itertools
import json
import math
from fractions import Fraction

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import dense
from tests.privacy.exhaustion import changes, held_rows, neighbours, null_space_part, tables
from tests.queries.test_linear import RELATIONS
from tests.statistical import ALPHA, mean_p, z_limit
from tests.strategies import problems

import subspacedp as sdp
from subspacedp.errors import BudgetError, InvariantError, ReleaseError
from subspacedp.mechanisms.strategies import BasisStrategy, MarginStrategy
from subspacedp.noise import ReleaseKeys, RoundedGaussian
from subspacedp.release import verify_folder

GAUSS = sdp.ApproxDP(1.0, 1e-6)
SQUARE = sdp.Domain([sdp.Axis("row", ["r", "s"]), sdp.Axis("column", ["t", "u", "v"])])
COUNTIES = sdp.Domain(
    [
        sdp.Axis("county", range(5), levels={"state": list("AAABB"), "land": list("XXXXX")}),
        sdp.Axis("sex", ["F", "M"]),
    ]
)
UNIFORM = [
    (SQUARE, sdp.hold()),
    (SQUARE, sdp.hold("row")),
    (SQUARE, sdp.hold("row") & sdp.hold("column")),
]
UNEQUAL = [
    (COUNTIES, sdp.hold("state")),
    (COUNTIES, sdp.hold("state", "sex")),
    (COUNTIES, sdp.hold("state") & sdp.hold("land", "sex")),
    (sdp.Domain([sdp.Axis("c", range(4), levels={"s": list("ABBB")})]), sdp.hold("s")),
]
LINE = sdp.Domain([sdp.Axis("c", range(6), levels={"s": list("ABBBCC"), "t": list("XXXXYY")})])
SMALL_UNEQUAL = [UNEQUAL[3], (LINE, sdp.hold("s")), (LINE, sdp.hold("t"))]


def extended(domain, held, budget=GAUSS, *, basis=None, **arguments):
    return sdp.design(domain, held, budget, mechanism=sdp.Extended(basis=basis), **arguments)


def squared(v):
    return sum(x * x for x in v)


def brute_force(domain, held, relation):
    """The largest ‖Π_N v‖² over all neighbouring changes v, in fractions."""
    part = null_space_part(held_rows(held.on(domain)))
    columns = [part(unit) for unit in np.eye(domain.size, dtype=int).tolist()]
    gram = np.array([[sum(a * b for a, b in zip(u, v, strict=True)) for v in columns]
                     for u in columns], object)  # fmt: skip
    moves = np.array(sorted(changes(domain.size, relation)), object)
    return max(((moves @ gram) * moves).sum(axis=1))


# ------------------------------------------------------------------- sensitivity of held margins


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
@pytest.mark.parametrize(("domain", "held"), [*UNIFORM, *SMALL_UNEQUAL], ids=str)
def test_margin_sensitivity_is_never_below_brute_force(domain, held, relation):
    stated = MarginStrategy(sdp.null_space(domain, held)).sensitivity(relation)
    truth = brute_force(domain, held, relation)
    assert truth <= stated <= relation.l2_squared


@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne()], ids=repr)
@pytest.mark.parametrize(("domain", "held"), UNIFORM + UNEQUAL, ids=str)
def test_margin_sensitivity_is_exact_for_one_record(domain, held, relation):
    stated = MarginStrategy(sdp.null_space(domain, held)).sensitivity(relation)
    truth = brute_force(domain, held, relation)
    assert truth <= stated <= truth * (1 + Fraction(1, 10**11))


@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne()], ids=repr)
@given(problem=problems(max_axes=3, max_cells=40, max_labels=6, min_margins=1))
def test_margin_sensitivity_on_any_levels(relation, problem):
    domain, held = problem
    space = sdp.null_space(domain, held)
    stated = float(MarginStrategy(space).sensitivity(relation))
    P = dense.float_projector(dense.matrix(domain, held))
    each = np.diag(P)
    pairs = each[:, None] + each[None, :] - 2 * P
    truth = each.max() if relation.persons == 1 else pairs.max()
    assert truth <= stated * (1 + 1e-9) + 1e-9
    assert stated <= relation.l2_squared


@given(problem=problems(max_axes=3, max_cells=40, max_labels=6), seed=st.integers(0, 2**32 - 1))
def test_what_is_measured_on_margins_is_the_projection_in_integers(problem, seed):
    domain, held = problem
    space = sdp.null_space(domain, held)
    counts = np.random.default_rng(seed).integers(0, 10**6, domain.shape)
    strategy = MarginStrategy(space)
    C = dense.matrix(domain, held)
    inside = counts.ravel().astype(object) - dense.project_rows(C, counts)
    scaled = inside * strategy.denominators.ravel().astype(object)
    assert scaled.tolist() == strategy.integers(counts).ravel().tolist()


# ------------------------------------------------------------------------- sensitivity of a basis

QUERIES = [
    (sdp.Cells(sdp.Domain([sdp.Axis("a", range(4))])), np.eye(4, dtype=int), [[1, 1, 1, 1]]),
    (sdp.LinearQuery([[1, 2, 0], [0, 1, -1], [1, 1, 1]]), None, [[1, 0, 1]]),
    (sdp.LinearQuery([[0.5, 2, 0], [0, 0.25, -1]]), None, [[1, -1]]),
]


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
@pytest.mark.parametrize(("query", "columns", "C"), QUERIES, ids=repr)
@pytest.mark.parametrize("bits", [3, 30])
def test_basis_sensitivity_by_brute_force(query, columns, C, relation, bits):
    columns = query.integers if columns is None else columns
    strategy = BasisStrategy.from_basis(sdp.null_space(query, sdp.LinearInvariants(C)), bits)
    stated = strategy.sensitivity(query, relation)
    moved = [
        strategy.weights.astype(object) @ columns.astype(object) @ np.array(v, object)
        for v in changes(columns.shape[1], relation)
    ]
    l1 = max(int(np.abs(m).sum()) for m in moved)
    l2 = max(int((m * m).sum()) for m in moved)
    assert l1 <= stated.l1
    assert l2 <= stated.l2_squared
    if relation.records == 1:
        assert stated.l1 == l1
        assert stated.l2_squared <= l2 * (1 + Fraction(1, 2**39))


def test_basis_sensitivity_of_a_black_box_follows_from_the_declared_one():
    query = sdp.GeneralQuery(None, 4, 3.0, 2.0)
    strategy = BasisStrategy.from_basis(
        sdp.null_space(query, sdp.LinearInvariants([[1, 1, 1, 1]])), 30
    )
    stated, declared = strategy.sensitivity(query, sdp.ReplaceOne()), query.sensitivity(None)
    norm = np.linalg.norm(strategy.weights.astype(float), 2)
    assert norm**2 * float(declared.l2_squared) <= float(stated.l2_squared)
    assert stated.l1**2 >= 3 * stated.l2_squared
    assert float(stated.l2_squared) <= 1.0001 * 2.0**60 * float(declared.l2_squared)


def test_a_basis_a_little_too_long_is_refused():
    query = sdp.GeneralQuery(None, 3, 1.0, 1.0)
    held = sdp.LinearInvariants([[1, 1, 1]])
    long = sdp.null_space(query, held).basis() * (1 + 4.5e-6)
    try:
        made = extended(query, held, basis=long).mechanism
    except InvariantError:
        return
    norm = np.linalg.norm(made.basis.weights.astype(float), 2)
    declared = query.sensitivity(made.neighbours)
    assert norm**2 * float(declared.l2_squared) <= float(made.sensitivity.l2_squared)


def test_basis_sensitivity_of_large_entries_is_not_below_the_truth():
    A = 2**30 - np.array([[6, 8], [8, 5], [8, 8]])  # too short by 46 of 3·10⁹ in float64
    query = sdp.LinearQuery(A)
    assert query.deviation == 0
    strategy = BasisStrategy.from_basis(
        sdp.null_space(query, sdp.LinearInvariants([[1, 3, 1]])), 30
    )
    move = strategy.weights.astype(object) @ (A[:, 0] - A[:, 1]).astype(object)
    stated = strategy.sensitivity(query, sdp.ReplaceOne())
    assert int(np.abs(move).sum()) <= stated.l1
    assert int((move * move).sum()) <= stated.l2_squared


# ------------------------------------------------------------------------- privacy by exhaustion


def normal_delta(mu, epsilon):
    return sdp.gaussian_delta(1 / mu, epsilon) if mu else 0.0


@pytest.mark.parametrize("relation", RELATIONS[:4], ids=repr)
@pytest.mark.parametrize(("domain", "held"), [*UNIFORM, UNEQUAL[3]], ids=str)
def test_extended_gaussian_is_private_for_all_neighbours(domain, held, relation):
    """Every pair of neighbours is at distance ≤ μσ in what is measured, in fractions."""
    mechanism = extended(domain, held, neighbours=relation)
    strategy, sigma = mechanism.mechanism.on_margins, Fraction(mechanism.mechanism.law.sigma)
    mu = Fraction(GAUSS.gaussian_mu)
    seen, d = 0, strategy.denominators.ravel().tolist()
    for x in tables(domain.size, 2):
        for y in neighbours(x, relation):
            a, b = (strategy.integers(np.array(t).reshape(domain.shape)).ravel() for t in (x, y))
            moved = squared(Fraction(int(p - q), n) for p, q, n in zip(a, b, d, strict=True))
            assert moved <= (mu * sigma) ** 2
            seen += 1
    assert seen > 20


def test_extended_gaussian_noise_covers_each_cells_own_denominator(monkeypatch):
    domain, held = UNEQUAL[3]
    mechanism = extended(domain, held)
    drawn = {}

    def record(laws, member, keys):
        drawn.update(laws=laws, member=member)
        return np.zeros(len(member), np.int64)

    monkeypatch.setattr("subspacedp.mechanisms.extended.draw_each", record)
    mechanism.mechanism.measure(sdp.Table([1, 2, 3, 4], domain), ReleaseKeys.from_seed(0, b""))
    d = mechanism.mechanism.on_margins.denominators.ravel()
    for cell, member in enumerate(drawn["member"]):
        used = Fraction(drawn["laws"][member].sigma)
        assert used >= Fraction(mechanism.mechanism.law.sigma) * int(d[cell])
        assert float(used) <= mechanism.mechanism.law.sigma * d[cell] * (1 + 1e-15)


def geometric_ratio(first, second):
    """sup of P(z − first)/P(z − second) for discrete Laplace noise is q^(−‖first − second‖₁)."""
    return int(np.abs(first - second).sum())


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
def test_extended_laplace_is_private_for_all_neighbours(relation):
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    mechanism = extended(domain, sdp.hold(), sdp.PureDP(0.5), neighbours=relation)
    rate, basis = mechanism.mechanism.law.rate, mechanism.mechanism.basis
    worst = 0
    for x in tables(3, 3):
        for y in neighbours(x, relation):
            exponent = geometric_ratio(basis.integers(np.array(x)), basis.integers(np.array(y)))
            worst = max(worst, rate * exponent)
    assert 0 < worst <= Fraction(1, 2)
    if relation.records == 1:
        assert worst == Fraction(1, 2)  # nothing is wasted


def test_extended_laplace_privacy_loss_of_every_atom():
    """The law of the measurement itself, atom by atom, on a grid coarse enough to enumerate."""
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    strategy = BasisStrategy.from_basis(sdp.null_space(domain, sdp.hold()), 2)
    q = Fraction(9, 10)
    bound = q ** -int(strategy.sensitivity(sdp.Cells(domain), sdp.ReplaceOne()).l1)
    atoms = list(itertools.product(range(-30, 31), repeat=2))
    reached = False
    for x in tables(3, 2):
        for y in neighbours(x, sdp.ReplaceOne()):
            a, b = strategy.integers(np.array(x)), strategy.integers(np.array(y))
            for z in atoms[::7]:
                ratio = q ** int(np.abs(z - a).sum()) / q ** int(np.abs(z - b).sum())
                assert ratio <= bound
                reached = reached or ratio == bound
    assert reached


def test_broken_twin_plain_counts_with_the_projected_sensitivity_is_not_private():
    """Measuring A(x) with noise for Δ(Π_N A): the integers are further apart than the noise covers.

    Two cells, their total held, add-remove: Δ₂(Π_N A) = 1/√2, and the counts move by 1.
    """
    domain = sdp.Domain([sdp.Axis("a", range(2))])
    mechanism = extended(domain, sdp.hold(), neighbours=sdp.AddRemoveOne())
    sigma = mechanism.mechanism.law.sigma
    right = math.sqrt(brute_force(domain, sdp.hold(), sdp.AddRemoveOne())) / sigma
    assert normal_delta(right, 1.0) <= 1e-6 * (1 + 1e-9)
    # The twin: an exact set, by rounding N(0, σ²) and N(1, σ²) and summing the excess.
    law = RoundedGaussian(sigma)
    z = np.arange(-200, 202)
    cdf = np.array([float(law.cdf(int(k))()) for k in z])
    mass = np.diff(cdf)
    here, there = mass[1:], mass[:-1]  # noise at z and at z − 1
    delta = np.maximum(there - math.e * here, 0).sum()
    assert delta > 30 * 1e-6
    assert delta <= normal_delta(1 / sigma, 1.0)


# ------------------------------------------------------------------------------ law of the release


def dense_release(mechanism, counts, seed):
    return mechanism.release(sdp.Table(counts, mechanism.mechanism.domain), seed=seed).values


CASES = [
    (SQUARE, sdp.hold("row"), GAUSS),
    (SQUARE, sdp.hold("row") & sdp.hold("column"), GAUSS),
    (SQUARE, sdp.hold("row"), sdp.PureDP(1.0)),
    (SQUARE, sdp.LinearInvariants([[1, 2, 0, 0, -1, 0], [0, 0, 1, 1, 1, 1]]), GAUSS),
    (SQUARE, sdp.LinearInvariants([[1, 2, 0, 0, -1, 0]]), sdp.PureDP(1.0)),
    (*UNEQUAL[3], GAUSS),
]


@pytest.mark.parametrize(("domain", "held", "budget"), CASES, ids=str)
def test_unbiased_with_the_stated_covariance_and_exact_invariants(domain, held, budget):
    mechanism = extended(domain, held, budget)
    counts = np.arange(domain.size).reshape(domain.shape) * 11
    number = 1500
    errors = np.array([dense_release(mechanism, counts, s) - counts for s in range(number)])
    errors = errors.reshape(number, -1)
    rng = np.random.default_rng(0)
    questions = np.vstack([np.eye(domain.size), rng.normal(size=(4, domain.size))])
    stated = np.array(
        [mechanism.mechanism.noise.variance(w.reshape(domain.shape)) for w in questions]
    )
    answers = errors @ questions.T
    fixed = stated == 0
    assert np.abs(answers[:, fixed]).max(initial=0) < 1e-6
    assert np.all(mean_p(answers[:, ~fixed], 0.0) > ALPHA)
    # The stated variance may exceed the true one by the rounding of coarser cells: below 1/12.
    p = mean_p(answers[:, ~fixed] ** 2, stated[~fixed])
    assert np.all(p > ALPHA)
    assert np.any(mean_p(answers[:, ~fixed] ** 2, 1.5 * stated[~fixed]) < ALPHA)
    per_cell = mechanism.expected_error().per_cell.ravel()
    assert np.allclose(per_cell, stated[: domain.size], rtol=1e-9, atol=1e-12)
    off = mechanism.mechanism.space.project(errors[0].reshape(domain.shape)) - errors[0].reshape(
        domain.shape
    )
    assert np.abs(off).max() < 1e-6


CAMPUS = sdp.Domain(
    [sdp.Axis("group", range(14)), sdp.Axis("hour", range(24)), sdp.Axis("building", range(20))]
)
CAMPUS_HELD = sdp.hold("hour", "building") & sdp.hold("group", "building")


def test_error_on_the_campus_table_is_the_formula():
    """(n − n_c)·σ², σ = c·Δ₂(QᵀA): measured over 40 releases of 6720 cells."""
    mechanism = extended(CAMPUS, CAMPUS_HELD)
    n_free = 13 * 23 * 20
    assert mechanism.mechanism.space.dimension == n_free == 5980
    # Two groups in one hour and building: 2·(1 − 1/24), more than any other pair.
    delta = math.sqrt(2 * 23 / 24)
    sigma = sdp.calibrate_gaussian(1.0, 1e-6) * delta
    formula = n_free * sigma**2
    # Rounding to steps of 1/336 adds 1/12 of a step squared.
    assert mechanism.expected_error().total == pytest.approx(formula, rel=1e-5)
    table = sdp.Table(np.random.default_rng(1).poisson(9, CAMPUS.shape), CAMPUS)
    runs = 40
    total = [np.sum((mechanism.release(table, seed=s).values - table.counts) ** 2)
             for s in range(runs)]  # fmt: skip
    # ‖Π_N e‖² is σ²χ² with 5980 degrees of freedom: sd of the mean of 40 is 0.0029 of it.
    spread = formula * math.sqrt(2 / n_free / runs)
    z = (np.mean(total) - formula) / spread
    assert abs(z) < z_limit()
    projected = sdp.design(CAMPUS, CAMPUS_HELD, GAUSS).expected_error().total
    assert (np.mean(total) - projected) / spread < -z_limit()  # and not the projected one's
    assert mechanism.expected_error().total < projected


def test_extended_is_never_worse_than_projected_but_for_rounding():
    for (domain, held), relation in itertools.product(UNIFORM + UNEQUAL, RELATIONS):
        mine = extended(domain, held, neighbours=relation)
        other = sdp.design(domain, held, GAUSS, neighbours=relation)
        rounding = domain.size / 12
        assert mine.expected_error().total <= other.expected_error().total + rounding


# ------------------------------------------------------------------- Laplace depends on the basis


def test_l1_sensitivity_depends_on_the_basis():
    """Δ₁(QᵀA) in two bases of one null space, and Δ₁(A) beside them."""
    domain = sdp.Domain([sdp.Axis("a", range(4))])
    r2, r6, r12 = math.sqrt(2), math.sqrt(6), math.sqrt(12)
    helmert = np.array(
        [[1 / r2, 1 / r6, 1 / r12], [-1 / r2, 1 / r6, 1 / r12], [0, -2 / r6, 1 / r12],
         [0, 0, -3 / r12]]
    )  # fmt: skip
    hadamard = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / 2
    found = {}
    for name, basis in {"helmert": helmert, "hadamard": hadamard}.items():
        mechanism = extended(domain, sdp.hold(), sdp.PureDP(1.0), basis=basis)
        pairs = itertools.combinations(range(4), 2)
        truth = max(np.abs(basis[i] - basis[j]).sum() for i, j in pairs)
        found[name] = float(mechanism.mechanism.sensitivity.l1) * float(mechanism.mechanism.unit)
        assert found[name] == pytest.approx(truth, rel=1e-8)
    original = float(sdp.Cells(domain).sensitivity(sdp.ReplaceOne()).l1)
    assert original == 2
    assert found["hadamard"] == pytest.approx(2.0)
    assert found["helmert"] == pytest.approx(1 / r2 + 1 / r6 + 4 / r12, rel=1e-6)  # 2.27 > Δ₁(A)
    errors = {
        name: extended(domain, sdp.hold(), sdp.PureDP(1.0), basis=basis).expected_error().total
        for name, basis in {"helmert": helmert, "hadamard": hadamard}.items()
    }
    ratio = (found["helmert"] / found["hadamard"]) ** 2
    assert errors["helmert"] / errors["hadamard"] == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize(
    "bad", [np.eye(4, 3), np.ones((4, 3)), np.ones((3, 3)), np.full((4, 3), np.nan)],
    ids=["outside", "not orthonormal", "shape", "nan"],
)  # fmt: skip
def test_a_basis_that_is_none_is_refused(bad):
    domain = sdp.Domain([sdp.Axis("a", range(4))])
    with pytest.raises(InvariantError, match="basis must"):
        extended(domain, sdp.hold(), sdp.PureDP(1.0), basis=bad)


# ------------------------------------------------------------------------- limits and bad input


def test_decimals_are_refused():
    with pytest.raises(ReleaseError, match="need the projected or the marginals mechanism"):
        extended(SQUARE, sdp.hold("row"), decimals=0)


def test_a_basis_is_for_the_extended_mechanism_only():
    for other in (sdp.Optimal, sdp.Correlated, sdp.KNorm, sdp.Marginals):
        with pytest.raises(TypeError, match="basis"):
            other(basis=np.eye(6, 5))


def test_budgets_too_small():
    with pytest.raises(ReleaseError, match="budget is too small"):
        extended(SQUARE, sdp.hold("row"), sdp.ZCDP(1e-26))
    with pytest.raises(BudgetError, match="budget is so large"):
        extended(SQUARE, sdp.hold("row"), sdp.ZCDP(1e9))


def test_small_budgets_take_a_coarser_grid_and_stay_private():
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    mechanism = extended(domain, sdp.hold(), sdp.PureDP(1e-5))
    basis, law = mechanism.mechanism.basis, mechanism.mechanism.law
    assert basis.bits < 30
    assert law.scale < 2.0**39
    l1 = basis.sensitivity(sdp.Cells(domain), sdp.ReplaceOne()).l1
    assert law.rate * l1 == Fraction(1, 10**5)


def test_too_many_answers_for_a_basis():
    with pytest.raises(ReleaseError, match="forms a basis"):
        extended(sdp.Domain([sdp.Axis("a", range(2049))]), sdp.hold(), sdp.PureDP(1.0))


def test_counts_too_large_are_refused_and_not_wrapped():
    domain, held = UNEQUAL[3]
    with pytest.raises(ReleaseError, match=r"too large|leave 64 bits"):
        extended(domain, held).release(sdp.Table([2**61, 2**61, 0, 0], domain))


# ------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("held", "budget"),
    [
        (sdp.hold("row"), GAUSS),
        (sdp.hold("row"), sdp.PureDP(1.0)),
        (sdp.LinearInvariants([[1, 2, 0, 0, -1, 0]]), GAUSS),
        (sdp.hold("row") & sdp.zeros(np.eye(2, 3, dtype=bool)), sdp.ZCDP(0.5)),
    ],
    ids=str,
)
def test_saved_loaded_verified(tmp_path, held, budget):
    counts = np.array([[0, 4, 5], [7, 0, 9]])
    release = extended(SQUARE, held, budget).release(sdp.Table(counts, SQUARE))
    release.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    assert np.array_equal(loaded.values, release.values)
    assert loaded.certificate() == release.certificate()
    assert np.array_equal(loaded.stderr(), release.stderr())
    assert loaded.guarantee.kind == "S"
    result = verify_folder(tmp_path / "r")
    assert result.ok, str(result)
    certificate = json.loads((tmp_path / "r" / "certificate.json").read_text("utf-8"))
    assert certificate["design"]["mechanism"] == "extended"
    jsonschema.validate(certificate, json.loads(sdp.certificate_schema()))


def test_an_altered_value_is_caught(tmp_path):
    release = extended(SQUARE, sdp.hold("row")).release(sdp.Table([[1, 2, 3], [4, 5, 6]], SQUARE))
    moved = release.values.copy()
    moved[0, 0] += 1e-6
    broken = sdp.Release(
        mechanism=release.mechanism,
        values=moved,
        exact=release.exact,
        release_id=release.release_id,
        seeded=False,
        version=release.version,
    )
    assert release.verify().ok
    assert not broken.verify().ok
