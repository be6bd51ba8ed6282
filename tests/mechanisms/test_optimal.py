"""The optimal Gaussian mechanism: privacy by brute force, error, dual bound, files, bad input."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.privacy.exhaustion import neighbours, tables
from tests.statistical import ALPHA, mean_p

import subspacedp as sdp
from subspacedp.errors import BudgetError, InvariantError, ReleaseError
from subspacedp.mechanisms.covariance import best_covariance
from subspacedp.mechanisms.optimal import inside, with_rows
from subspacedp.mechanisms.optimality import moved_alike
from subspacedp.mechanisms.registry import mechanism_from
from subspacedp.queries.linear import matrix_sensitivity
from subspacedp.release import compare, verify_folder

GAUSS = sdp.ApproxDP(1.0, 1e-6)
PREFIX = sdp.LinearQuery(np.tril(np.ones((6, 6))))
RELATIONS = [
    sdp.AddRemoveOne(),
    sdp.ReplaceOne(),
    sdp.ReplaceOne(records=2),
    sdp.AddRemoveOne(records=2, per_cell=1),
    sdp.ReplaceOne(records=2, exactly=True),
]
SUMS = sdp.LinearInvariants([[1, 1, 0, 0], [0, 0, 1, 0]])
SMALL = {
    "free": (sdp.LinearQuery([[1, 1, 0], [0, 1, 1], [2, 0, 1], [1, 1, 1]]), None),
    "held sums": (sdp.LinearQuery([[1, 1, 0], [0, 1, 1], [2, 0, 1], [0, 3, -1]]), SUMS),
    "rank 2 of 4": (sdp.LinearQuery([[1, 0, 1], [1, 0, 1], [0, 2, 1], [2, 2, 3]]), None),
    "real numbers": (sdp.LinearQuery([[0.1, 0.7, 0.3], [1 / 3, -0.2, 0.9]]), None),
}


def optimal(query, held=None, budget=GAUSS, *, importance=None, **arguments):
    options = sdp.Optimal(importance=importance)
    return sdp.design(query, held, budget, mechanism=options, **arguments)


def table(counts):
    return sdp.Table(counts, sdp.Domain([sdp.Axis("x", range(len(counts)))]))


# ----------------------------------------------------------------------------------- privacy


def brute_force(mechanism, cells):
    """The largest squared move of the measured integers over all neighbouring small tables."""
    worst = 0
    for x in tables(cells, 2):
        a = mechanism.integers(mechanism.answers(table(x)))
        for y in neighbours(x, mechanism.neighbours):
            b = mechanism.integers(mechanism.answers(table(y)))
            worst = max(worst, sum(int(p - q) ** 2 for p, q in zip(a, b, strict=True)))
    return worst


@pytest.mark.parametrize("name", ["optimal", "correlated"])
@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL.keys())
def test_noise_covers_every_neighbouring_change(case, relation, name):
    query, held = case
    mechanism = sdp.design(query, held, GAUSS, neighbours=relation, mechanism=name)
    sigma, mu = Fraction(mechanism.mechanism.law.sigma), Fraction(GAUSS.gaussian_mu)
    moved = brute_force(mechanism.mechanism, 3)
    assert moved <= (mu * sigma) ** 2
    if relation.records == 1:  # and nothing is wasted but the places that are rounded off
        assert float(mu * sigma) <= math.sqrt(moved) * (1 + 1e-4)


@pytest.mark.parametrize("name", ["optimal", "correlated"])
def test_broken_twin_columns_instead_of_differences_is_not_private(name):
    """The printed algorithm: A = [1, −1] under replace-one with the noise of add-remove."""
    query = sdp.LinearQuery([[1, -1]])
    right = sdp.design(query, None, GAUSS, neighbours=sdp.ReplaceOne(), mechanism=name)
    twin = sdp.design(query, None, GAUSS, neighbours=sdp.AddRemoveOne(), mechanism=name)
    mu = Fraction(GAUSS.gaussian_mu)

    def private(design):
        moved = brute_force(design.mechanism.for_problem(neighbours=sdp.ReplaceOne()), 2)
        return moved <= (mu * Fraction(design.mechanism.law.sigma)) ** 2

    assert private(right)
    assert not private(twin)
    # Half the noise that is needed: the true δ at ε = 1 is a thousand times what was promised.
    mu_twin = 2 * GAUSS.gaussian_mu
    delta = norm.cdf(mu_twin / 2 - 1 / mu_twin) - math.e * norm.cdf(-mu_twin / 2 - 1 / mu_twin)
    assert delta > 1e-3


def test_rounded_places_are_counted_in_the_sensitivity():
    """Without the + √k of rounding, a neighbouring pair moves further than the noise covers."""
    design = optimal(SMALL["real numbers"][0], neighbours=sdp.AddRemoveOne()).mechanism
    coarse = replace(design.basis, drop=design.basis.drop + 36)
    made = replace(design, basis=coarse)
    moved = brute_force(made, 3)
    exact = replace(coarse, drop=0).sensitivity(design.query, design.neighbours).l2_squared
    assert moved <= made.sensitivity.l2_squared
    assert moved > exact / 4**coarse.drop


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_inner_products_bound_the_largest_distance(seed):
    """The Gram matrix's Δ₂² against exact integers: never below, and hardly above."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(seed)
    size = int(10 ** rng.uniform(0, 17))
    A = rng.integers(-size, size + 1, (int(rng.integers(1, 6)), int(rng.integers(2, 9))))
    A[0, 0] += 1
    for relation in (sdp.ReplaceOne(), sdp.ReplaceOne(records=2)):
        columns = [list(map(int, c)) for c in A.T]
        if not relation.keeps_total:
            columns.append([0] * len(A))
        truth = max(
            sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
            for a, b in itertools.combinations(columns, 2)
        )
        truth *= relation.records**2
        found = matrix_sensitivity(csr_array(A), relation, most=0)
        assert truth <= found.l2_squared
        if truth > size:
            assert float(found.l2_squared) <= truth * (1 + 1e-9) + 1e-9 * float(size) ** 2
        assert found.l1 >= matrix_sensitivity(csr_array(A), relation).l1


# ------------------------------------------------------------------------- law of the release


@pytest.mark.parametrize("name", ["optimal", "correlated"])
@pytest.mark.parametrize("relation", RELATIONS[:2], ids=repr)
@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL.keys())
def test_unbiased_with_the_stated_covariance_and_exact_invariants(case, relation, name):
    query, held = case
    mechanism = sdp.design(query, held, GAUSS, neighbours=relation, mechanism=name)
    data = table([30, 500, 7])
    truth = query.matrix.toarray() @ data.counts
    number = 1500
    errors = np.array([mechanism.release(data, seed=s).values for s in range(number)]) - truth
    questions = np.vstack(
        [np.eye(query.size), np.random.default_rng(0).normal(size=(4, query.size))]
    )
    stated = np.array([mechanism.mechanism.noise.variance(w) for w in questions])
    answers = errors @ questions.T
    loose = stated > 1e-6 * stated.max()
    assert np.abs(answers[:, ~loose]).max(initial=0) < 0.1
    assert np.all(mean_p(answers[:, loose], 0.0) > ALPHA)
    assert np.all(mean_p(answers[:, loose] ** 2, stated[loose]) > ALPHA)
    assert np.any(mean_p(answers[:, loose] ** 2, 1.5 * stated[loose]) < ALPHA)
    assert np.allclose(mechanism.expected_error().per_cell, stated[: query.size])
    if held is not None:
        C = np.array([[1, 1, 0, 0], [0, 0, 1, 0]])
        assert np.abs(errors @ C.T).max() < 1e-6


def test_a_sum_that_no_replacement_changes_has_hardly_any_noise():
    """Under replace-one the number of records is fixed: noise on it would be wasted."""
    mechanism = optimal(sdp.LinearQuery(np.vstack([np.eye(4), np.ones(4)])))
    assert mechanism.accuracy().stderr[4] < 0.05
    assert mechanism.guarantee.kind == "plain"
    release = mechanism.release(table([10, 20, 30, 40]), seed=1)
    assert abs(release.values[4] - 100) < 0.5


# ---------------------------------------------------------------------------- error and bound


@pytest.mark.parametrize("relation", RELATIONS[:2], ids=repr)
@pytest.mark.parametrize("case", [(PREFIX, None), *SMALL.values()], ids=str)
def test_error_is_within_the_stated_gap_and_never_above_the_others(case, relation):
    query, held = case
    found = compare(query, held, GAUSS, neighbours=relation)
    errors = {entry.name: entry.error for entry in found.entries if entry.error is not None}
    assert errors["optimal"] <= min(errors.values()) * (1 + 1e-4)
    best = next(e.design for e in found.entries if e.name == "optimal").optimality()
    assert best.gap <= 1e-3
    assert best.bound <= min(errors.values())
    for entry in found.entries:
        if entry.design is not None:
            other = entry.design.optimality()
            assert other.bound <= best.error * (1 + 1e-9)


def test_dual_value_against_the_solver():
    mechanism = optimal(PREFIX, neighbours=sdp.AddRemoveOne())
    best = best_covariance(np.tril(np.ones((6, 6))), tolerance=1e-6)
    stated = mechanism.optimality()
    mu = GAUSS.gaussian_mu
    assert stated.error == pytest.approx(best.trace / mu**2, rel=1e-3)
    assert stated.bound <= best.trace / mu**2


def test_importance_moves_noise_to_where_it_counts_less():
    weights = np.array([100.0, 1, 1, 1, 1, 1])
    plain, heavy = optimal(PREFIX), optimal(PREFIX, importance=weights)
    before, after = (m.expected_error().per_cell for m in (plain, heavy))
    assert after[0] < 0.7 * before[0]
    assert after @ weights < before @ weights
    assert after.sum() > before.sum()
    assert heavy.optimality().gap <= 1e-3
    assert "by importance" in str(heavy.optimality())
    # And inside a null space, where coordinates are no longer answers.
    held = sdp.LinearInvariants([[1, 0, 0, 0, 0, 1]])
    inner = optimal(PREFIX, held, importance=weights)
    assert inner.optimality().gap <= 1e-3
    rest = optimal(PREFIX, held).expected_error().per_cell
    assert inner.expected_error().per_cell @ weights < rest @ weights


def test_no_other_rows_do_better_than_the_bound():
    """A hundred perturbed designs, calibrated like the optimum: none is below the bound."""
    mechanism = optimal(PREFIX)
    bound = mechanism.optimality().bound
    plain = replace(mechanism.mechanism, basis=None, dual=None)
    given_ = inside(plain, None)
    rng = np.random.default_rng(5)
    rows = mechanism.mechanism.basis.weights * 2.0**-36
    for size in np.logspace(-3, 0, 30):
        moved = rows + size * rng.normal(size=rows.shape) * np.abs(rows).max()
        error = with_rows(plain, moved, given_).expected_error().total
        assert error >= bound


def test_every_gaussian_design_says_how_near_it_is():
    domain = sdp.Domain([sdp.Axis("a", range(6))])
    for name, relation in itertools.product(("projected", "extended"), RELATIONS[:2]):
        made = sdp.design(domain, sdp.hold(), GAUSS, mechanism=name, neighbours=relation)
        found = made.optimality()
        assert found.how == "singular values"
        assert "of the best possible Gaussian noise" in str(found)
        assert found.bound <= optimal(domain, sdp.hold(), neighbours=relation).optimality().error
    # With the total held under replace-one, spherical noise is optimal but for rounding.
    made = sdp.design(domain, sdp.hold(), GAUSS, mechanism="extended")
    assert made.optimality().gap < 0.01


def test_the_bound_in_closed_form_for_cells_is_that_of_the_matrix():
    domain = sdp.Domain([sdp.Axis("a", range(5), levels={"b": list("XXYYY")})])
    matrix = sdp.LinearQuery(np.eye(5))
    rows = sdp.LinearInvariants([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
    for relation in (sdp.AddRemoveOne(), sdp.ReplaceOne(), sdp.ReplaceOne(records=2)):
        for held, same in ((sdp.hold("b"), rows), (None, None)):
            cells = sdp.design(domain, held, GAUSS, neighbours=relation).optimality()
            dense = sdp.design(matrix, same, GAUSS, neighbours=relation).optimality()
            assert cells.bound == pytest.approx(dense.bound, rel=1e-6)


def test_several_records_keep_a_true_bound():
    """Two records, one a cell: the bound is for one record of a kind, and says so by its size."""
    made = optimal(PREFIX, neighbours=sdp.AddRemoveOne(records=2, per_cell=1))
    alike = optimal(PREFIX, neighbours=sdp.AddRemoveOne(records=2))
    assert alike.optimality().gap <= 1e-3
    assert made.optimality().factor == pytest.approx(4, rel=2e-3)


# -------------------------------------------------------------------------------------- auto


def test_auto_takes_the_least_error_and_says_why():
    made = sdp.design(PREFIX, None, GAUSS, mechanism="auto")
    assert made.mechanism.name == "optimal"
    assert made.why.startswith("optimal: 95 % intervals of ±")
    assert "(projected ±" in made.why
    pure = sdp.design(PREFIX, None, sdp.PureDP(1.0), mechanism="auto")
    assert pure.mechanism.name == "knorm"
    assert "not applicable: correlated, optimal" in pure.why
    domain = sdp.Domain([sdp.Axis("a", range(6))])
    cells = sdp.design(domain, sdp.hold(), GAUSS, mechanism="auto")
    assert "not looked at" in cells.why


def test_a_plan_compares_all_mechanisms_and_says_how_near():
    from subspacedp.publication.planning import plan

    asked = {
        "data": {"source": "nowhere.parquet", "unit": "row"},
        "axes": {"a": {"labels": list("uvwx"), "levels": {"b": {"1": ["u"], "2": list("vwx")}}}},
        "hold": [["b"]],
        "privacy": {"rho": 0.05},
    }  # fmt: skip
    (quick,), (whole,) = (plan(asked, compare=every).releases for every in (False, True))
    assert set(quick.compared) == {"projected", "extended"}
    assert set(whole.compared) >= {"projected", "extended", "correlated", "optimal"}
    assert all(isinstance(error, float) for error in list(whole.compared.values())[:4])
    assert "of the best possible Gaussian noise" in quick.near
    assert whole.as_dict()["optimality"] == whole.near
    taken = whole.design.mechanism.name
    assert whole.design.why.startswith(f"{taken}: 95 % intervals of ±")


# ------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("relation", RELATIONS[:3], ids=repr)
@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL.keys())
def test_saved_loaded_verified(tmp_path, case, relation):
    query, held = case
    mechanism = optimal(query, held, neighbours=relation)
    release = mechanism.release(table([3, 40, 5]))
    release.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    assert np.array_equal(loaded.values, release.values)
    assert loaded.certificate() == release.certificate()
    result = verify_folder(tmp_path / "r")
    assert result.ok, str(result)
    certificate = json.loads((tmp_path / "r" / "certificate.json").read_text("utf-8"))
    jsonschema.validate(certificate, json.loads(sdp.certificate_schema()))
    assert certificate["noise"]["optimality"]["statement"] == str(mechanism.optimality())


def test_a_bound_that_its_weights_do_not_prove_is_caught(tmp_path):
    release = optimal(PREFIX).release(table([3, 40, 5, 1, 2, 3]))
    release.save(tmp_path / "r")
    path = tmp_path / "r" / "certificate.json"
    data = json.loads(path.read_text("utf-8"))
    data["noise"]["optimality"]["lower_bound"] *= 1.0005
    path.write_text(json.dumps(data), "utf-8")
    assert not verify_folder(tmp_path / "r").ok


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [-1.0], "vectors": [0]},
        {"weights": [1.0], "vectors": [99]},
        {"weights": [1.0], "vectors": [[0, 1, 2]]},
        {"weights": [float("nan")], "vectors": [0]},
        {"weights": [1.0], "vectors": [0], "importance": [1.0]},
        {"weights": [1.0], "vectors": [[0, 1]], "importance": [math.inf] * 6},
        {"weights": [1.0], "vectors": [0]},  # a column proves nothing about replacements
        {"weights": [1.0], "vectors": [[0, 6]]},  # everybody has a record
    ],
)
def test_altered_weights_are_refused(change):
    data = optimal(PREFIX).mechanism.as_dict()
    assert mechanism_from(data).name == "optimal"
    with pytest.raises(ReleaseError, match=r"out of range|not finite"):
        mechanism_from({**data, "optimality": change})


def test_pairs_prove_nothing_where_records_are_added_or_removed():
    data = optimal(PREFIX, neighbours=sdp.AddRemoveOne()).mechanism.as_dict()
    with pytest.raises(ReleaseError, match="out of range"):
        mechanism_from({**data, "optimality": {"weights": [1.0], "vectors": [[0, 1]]}})


def test_weights_that_prove_nothing_are_one_sentence():
    data = optimal(PREFIX).mechanism.as_dict()
    made = mechanism_from({**data, "optimality": {"weights": [1.0], "vectors": [[1, 1]]}})
    with pytest.raises(ReleaseError, match="prove no bound"):
        made.optimality()


# --------------------------------------------------------------------------------- bad input


def test_scales_and_importance_beyond_floating_point_are_one_sentence():
    query = sdp.LinearQuery([[0.0, -2e4, -3e3], [0.0, -2e-4, 7e-5]])
    with pytest.raises(ReleaseError, match="scale them"):
        optimal(query, importance=[1e2, 1e-4], neighbours=sdp.AddRemoveOne())


@pytest.mark.parametrize("name", ["optimal", "correlated"])
def test_bad_input_is_one_sentence(name):
    def made(query, held=None, budget=GAUSS, **options):
        return sdp.design(query, held, budget, mechanism=name, **options)

    with pytest.raises(BudgetError, match="adds Gaussian noise"):
        made(PREFIX, budget=sdp.PureDP(1.0))
    with pytest.raises(ReleaseError, match="need the projected"):
        made(PREFIX, decimals=0)
    with pytest.raises(InvariantError, match="nothing is left to protect"):
        made(sdp.LinearQuery([[1, 2], [1, 2]]), sdp.LinearInvariants([[1, 1]]))
    with pytest.raises(InvariantError, match="alike"):
        made(sdp.LinearQuery([[2, 2], [1, 1]]))
    with pytest.raises(InvariantError, match="two kinds"):
        made(sdp.LinearQuery([[2], [1]]))
    with pytest.raises(ReleaseError, match="what a record adds"):
        made(sdp.GeneralQuery(lambda data: data, 2, 1.0, 1.0))
    zero_columns = made(sdp.LinearQuery([[0, 1, 0], [0, 1, 2]]), neighbours=sdp.AddRemoveOne())
    assert zero_columns.expected_error().total > 0


def test_options_of_other_mechanisms_are_refused():
    for other in (sdp.Extended, sdp.Correlated, sdp.KNorm, sdp.Marginals):
        with pytest.raises(TypeError, match="importance"):
            other(importance=np.ones(6))
    with pytest.raises(TypeError, match="split"):
        sdp.Optimal(split="best")
    for bad in (np.ones(5), np.zeros(6), [1, 2, 3, 4, 5, "x"], np.full(6, np.inf)):
        with pytest.raises(ReleaseError, match="`importance` must be 6 positive"):
            optimal(PREFIX, importance=bad)


def test_a_comparison_counts_errors_by_importance():
    weights = np.array([1e4, 1, 1, 1, 1, 1, 1, 1])
    query = sdp.LinearQuery(np.tril(np.ones((8, 8))))
    found = sdp.compare(query, None, sdp.ZCDP(0.5), options=[sdp.Optimal(importance=weights)])
    errors = {entry.name: entry.error for entry in found.entries if entry.error is not None}
    assert found.chosen.mechanism.name == min(errors, key=errors.get) == "optimal"
    assert "by importance" in found.chosen.why
    assert errors["optimal"] / found.bound < 1.002
    with pytest.raises(sdp.SubspaceDPError, match="8 positive finite numbers"):
        sdp.compare(query, None, sdp.ZCDP(0.5), options=[sdp.Optimal(importance=[1.0, -1.0])])


def moves(cells, m, k):
    """All changes of one person with exactly m records, at most k in a cell."""
    persons = [u for u in itertools.product(range(k + 1), repeat=cells) if sum(u) == m]
    return {tuple(np.subtract(u, v)) for u in persons for v in persons}


@pytest.mark.parametrize(("m", "k"), [(3, 2), (4, 3), (5, 2), (3, 1), (4, 2), (6, 3)])
@pytest.mark.parametrize("cells", [2, 3, 4])
def test_as_many_records_move_together_as_have_room(cells, m, k):
    """With exactly m records a person, those that stay need a place: by brute force."""
    if cells * k < m:
        return
    query = sdp.LinearQuery(np.eye(cells))
    relation = sdp.ReplaceOne(records=m, per_cell=k, exactly=True)
    made = sdp.design(query, None, sdp.GaussianDP(1.0), neighbours=relation)
    changes = moves(cells, m, k)
    together = max(t for t in range(k + 1) if (t, -t, *(0,) * (cells - 2)) in changes)
    assert moved_alike(made.mechanism) == together
    if together == 0:
        with pytest.raises(ReleaseError):
            made.optimality()
        return
    # Noise s²(I − J/n) has vᵀΣ⁺v = 2t²/s² for v = t(e_i − e_j): s² = 2t² and the trace (n − 1)s².
    best = 2 * together**2 * (cells - 1)
    assert made.optimality().bound == pytest.approx(best, rel=1e-3)


def test_a_release_where_nobody_can_change_anything_states_no_bound():
    """Two records of each person, one in each of two cells."""
    relation = sdp.ReplaceOne(records=2, per_cell=1, exactly=True)
    domain = sdp.Domain([sdp.Axis("a", range(2))])
    made = optimal(sdp.LinearQuery([[1, 0], [0, 1]]), neighbours=relation)
    release = made.release(sdp.Table([4, 4], domain), seed=1)
    assert "lower_bound" not in json.dumps(release.certificate())


@pytest.mark.parametrize("mechanism", ["projected", "optimal", "correlated", "marginals"])
@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.ReplaceOne(exactly=False)], ids=str)
@pytest.mark.parametrize("empty", [1, 3])
def test_records_in_cells_known_to_be_empty_prove_no_bound(empty, relation, mechanism):
    """Nobody is replaced by a person who cannot exist: the bound is at most the least error.

    That of the cells alone, where labels that nobody can have are left out: all changes are the
    same there, and with the total known s²(I − J/n), s² = 2/μ², is best.
    """
    live, mask = 2, np.arange(2 + empty) >= 2
    whole = sdp.Domain([sdp.Axis("a", range(live + empty))])
    made = sdp.design(
        whole, sdp.zeros(mask), sdp.GaussianDP(1.0), neighbours=relation, mechanism=mechanism
    )
    least = 2 * (live - 1) if relation.keeps_total else 8 / 3  # the simplex of three points
    assert 0 < made.optimality().bound <= least * (1 + 1e-9)


def test_exactly_so_many_records_have_no_place_in_empty_cells():
    """Three records in three possible cells, at most one in each: nothing can move."""
    relation = sdp.ReplaceOne(records=3, per_cell=1, exactly=True)
    domain = sdp.Domain([sdp.Axis("a", range(4))])
    zeros = sdp.zeros([False, False, False, True])
    assert moved_alike(sdp.design(domain, None, GAUSS, neighbours=relation).mechanism) == 1
    assert moved_alike(sdp.design(domain, zeros, GAUSS, neighbours=relation).mechanism) == 0
