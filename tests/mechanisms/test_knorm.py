"""The k-norm mechanism: what it measures, its privacy, errors, certificates and refusals."""

import dataclasses
import json
import math
from fractions import Fraction

import jsonschema
import numpy as np
import pytest
from tests.mechanisms.contract import functionals, stated_variance
from tests.privacy.exhaustion import line, neighbours, tables
from tests.statistical import ALPHA, mean_p

import subspacedp as sdp
from subspacedp.disclosure import audit_privacy
from subspacedp.errors import BudgetError, ReleaseError, SubspaceDPError
from subspacedp.inference import Likelihood, combine, replicates
from subspacedp.inference import test_value as test_value_
from subspacedp.inference.likelihood import Shifted
from subspacedp.ledger import spend_of
from subspacedp.mechanisms.knorm.fitting import Ellipsoid, Fit, enclosing, hull_of
from subspacedp.mechanisms.knorm.groups import Exchanges, HeldGroups
from subspacedp.mechanisms.knorm.images import Swaps
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.mechanisms.knorm.mechanism import _smaller_spread, changes
from subspacedp.mechanisms.knorm.norm_balls import CrossPolytope, dot
from subspacedp.mechanisms.registry import mechanism_from
from subspacedp.noise import ReleaseKeys
from subspacedp.release.designs import WORTH_WHILE

KEYS = ReleaseKeys.from_seed(11, b"k-norm tests")
PREFIX = sdp.LinearQuery(np.tril(np.ones((4, 4))))


def made(domain, held, epsilon=1.0, *, relation=None, decimals=None, capped=False, exact=False):
    """The k-norm mechanism, and the projected one beside it."""
    shared = {"neighbours": relation, "decimals": decimals, "capped": capped}
    budget = sdp.PureDP(epsilon)
    return (
        sdp.design(domain, held, budget, mechanism=sdp.KNorm(exact=exact), **shared),
        sdp.design(domain, held, budget, **shared),
    )


def fitted_of(mechanism):
    return mechanism.mechanism.choice


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_error_with_a_held_total_is_below_projected_laplace_noise(epsilon):
    for n in (2, 3, 5, 20, 200):
        mechanism, base = made(line(n), sdp.hold(), epsilon)
        ratio = mechanism.expected_error().total / base.expected_error().total
        assert ratio < 1
        if epsilon < 0.1:  # a fine grid
            assert math.isclose(ratio, (2 * n - 1) / (2 * n + 2), rel_tol=1e-3)
        else:
            assert ratio < (2 * n - 1) / (2 * n + 2)


@pytest.mark.parametrize("relation", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=repr)
def test_error_with_held_groups_is_below_projected_laplace_noise(relation):
    for sizes in ((2, 2), (3, 4, 2), (10, 30)):
        codes = [g for g, n in enumerate(sizes) for _ in range(n)]
        domain = sdp.Domain([sdp.Axis("c", range(sum(sizes)), levels={"s": codes})])
        mechanism, base = made(domain, sdp.hold("s"), relation=relation)
        assert mechanism.expected_error().total < base.expected_error().total


def test_error_is_never_above_projected_laplace_noise_where_only_enclosing_norm_balls_are_left():
    square = sdp.Domain([sdp.Axis("r", range(5)), sdp.Axis("c", range(5))])
    both = sdp.hold("r") & sdp.hold("c")
    rng = np.random.default_rng(4)
    cases = [
        (square, both, sdp.ReplaceOne(), CrossPolytope),
        (square, both, sdp.AddRemoveOne(), CrossPolytope),
        (sdp.LinearQuery(rng.integers(-9, 10, (15, 30))), None, sdp.AddRemoveOne(), Ellipsoid),
    ]
    for query, held, relation, kind in cases:
        mechanism, base = made(query, held, relation=relation)
        fitted = fitted_of(mechanism)
        assert type(fitted.norm_ball) is kind
        assert not fitted.is_hull
        assert fitted.bound
        assert fitted.price > 1
        limit = base.expected_error().total * (1 + 1e-9)
        assert mechanism.expected_error().total <= limit


def test_whole_numbers_are_kept_where_that_is_better_than_the_norm_ball_itself():
    domain = sdp.Domain([sdp.Axis("c", range(6), levels={"s": list("AABBBB")})])
    small, _ = made(domain, sdp.hold("s"), 0.5)
    assert fitted_of(small).is_hull
    large, base = made(domain, sdp.hold("s"), 6.0)
    exact, _ = made(domain, sdp.hold("s"), 6.0, exact=True)
    assert fitted_of(exact).is_hull
    assert not fitted_of(large).is_hull
    errors = [m.expected_error().total for m in (large, exact, base)]
    assert min(errors) == errors[0]
    assert math.isclose(fitted_of(large).price, errors[0] / errors[1])


def test_error_of_prefix_sums_under_replace_one_is_that_of_exchanges_of_cells():
    n = 20
    query = sdp.LinearQuery(np.tril(np.ones((n, n))))
    mechanism, base = made(query, None, 0.01, exact=True)
    assert type(fitted_of(mechanism).norm_ball) is Swaps
    # Exchanges on a fine grid: covariance s²(I − 11ᵀ/n), and a partial sum has s²·i(n − i)/n.
    cells = n * (n + 1) * Exchanges(n).second_moment
    assert math.isclose(
        mechanism.expected_error().total,
        1e4 * float(np.trace(np.tril(np.ones((n, n))) @ cells @ np.tril(np.ones((n, n))).T)),
        rel_tol=1e-3,
    )
    assert base.expected_error().total > 25 * mechanism.expected_error().total


def test_error_of_prefix_sums_is_that_of_noise_on_the_cells():
    n = 20
    query = sdp.LinearQuery(np.tril(np.ones((n, n))))
    mechanism, base = made(query, None, relation=sdp.AddRemoveOne())
    assert fitted_of(mechanism).is_hull
    # Noise of variance 2 on each cell, on a fine grid: Σ_i 2i.
    assert math.isclose(mechanism.expected_error().total, n * (n + 1), rel_tol=1e-6)
    assert base.expected_error().total > 30 * mechanism.expected_error().total


# --------------------------------------------------------------------------------------- mechanism

SQUARE = sdp.Domain([sdp.Axis("row", ["r", "s"]), sdp.Axis("column", ["t", "u"])])
GROUPS = sdp.Domain([sdp.Axis("c", range(4), levels={"s": list("ABAB")})])
MECHANISMS = {
    "exchanges": (line(3), sdp.hold(), sdp.ReplaceOne()),
    "two records": (line(3), sdp.hold(), sdp.ReplaceOne(records=2, exactly=True)),
    "deviations": (line(3), sdp.hold(), sdp.AddRemoveOne()),
    "deviations of two": (line(3), sdp.hold(), sdp.AddRemoveOne(records=2)),
    "groups": (GROUPS, sdp.hold("s"), sdp.AddRemoveOne()),
    "groups, replace": (GROUPS, sdp.hold("s"), sdp.ReplaceOne()),
    "at most one record": (line(3), sdp.hold(), sdp.ReplaceOne(exactly=False)),
    "both margins": (SQUARE, sdp.hold("row") & sdp.hold("column"), sdp.ReplaceOne()),
    "nothing held": (line(2), None, sdp.AddRemoveOne()),
    "answers": (
        sdp.Domain([sdp.Axis("r", range(4)), sdp.Axis("c", range(4))]),
        sdp.hold("r") & sdp.hold("c"),
        sdp.AddRemoveOne(),
    ),
}
TINY = [name for name, (domain, *_) in MECHANISMS.items() if domain.size <= 4]


def measured(mechanism, x, monkeypatch):
    """What `add_noise` adds noise to: its result for a draw of zero."""
    design = mechanism.mechanism
    zero = np.zeros((1, design.law.norm_ball.entries), np.int64)
    with monkeypatch.context() as m:
        m.setattr(KNormLaw, "draw", lambda *_: zero)
        return design.add_noise(np.array(x).reshape(design.query.shape), KEYS)


def norm_of(design, v):
    flat = np.asarray(v).reshape(-1)
    if design.basis is None and not isinstance(design.law.norm_ball, CrossPolytope):
        flat = flat[HeldGroups.of(design.held).order]
    return design.law.norm_ball.gauge([int(x) for x in flat])


@pytest.mark.parametrize("name", TINY)
def test_the_measurement_is_private_for_all_small_tables(name, monkeypatch):
    domain, held, relation = MECHANISMS[name]
    mechanism, _ = made(domain, held, relation=relation)
    design = mechanism.mechanism
    small = tables(domain.size, 3 if domain.size < 4 else 2)
    centre = {x: measured(mechanism, x, monkeypatch) for x in tables(domain.size, 7)
              if sum(x) <= max(map(sum, small)) + 2 * relation.records}  # fmt: skip
    # Outcomes: all measurements of small tables, and some beside them.
    rng = np.random.default_rng(1)
    seen = [centre[x] for x in small]
    if design.basis is not None:
        step = 2**design.basis.bits
        seen += [y + rng.integers(-3 * step, 3 * step, y.shape) for y in seen]
    largest = max(
        design.law.rate * (norm_of(design, y - centre[there]) - norm_of(design, y - centre[here]))
        for here in small
        for there in neighbours(here, relation)
        for y in seen
        if not isinstance(design.law.norm_ball, Exchanges) or y.sum() == sum(here) == sum(there)
    )
    assert largest <= 1  # ε
    if fitted_of(mechanism).is_hull:
        assert largest == 1


def test_noise_for_one_record_is_caught_with_two(monkeypatch):
    mechanism, _ = made(line(3), sdp.hold(), relation=sdp.ReplaceOne())
    design, relation = mechanism.mechanism, sdp.ReplaceOne(records=2, exactly=True)
    x = (2, 1, 0)
    losses = [design.law.rate * norm_of(design, np.subtract(x, y)) for y in neighbours(x, relation)]
    assert max(losses) > 1


@pytest.mark.parametrize("name", MECHANISMS)
def test_releases_keep_what_is_held_and_protect_what_is_left(name):
    domain, held, relation = MECHANISMS[name]
    mechanism, base = made(domain, held, relation=relation)
    table = sdp.Table(np.arange(5, 5 + domain.size).reshape(domain.shape), domain)
    release = mechanism.release(table, seed=3)
    again = mechanism.mechanism.held.sums(np.rint(release.values * 2**20).astype(np.int64))
    for got, exact in zip(again, release.exact, strict=True):
        assert np.allclose(np.asarray(got) / 2**20, exact, atol=1e-5)
    assert mechanism.guarantee.kind == base.guarantee.kind
    if isinstance(mechanism.mechanism.law.norm_ball, Exchanges):
        assert np.array_equal(release.values, np.rint(release.values))
        assert release.values.sum() == table.counts.sum()


def test_a_measurement_of_groups_sees_differences_alone():
    domain, held, relation = MECHANISMS["groups"]
    design, _ = made(domain, held, relation=relation)
    mechanism = design.mechanism
    x = np.array([3, 1, 4, 1])
    other = x + np.array([5, -1, 5, -1])  # constants in the groups A and B
    assert np.array_equal(mechanism.add_noise(x, KEYS), mechanism.add_noise(other, KEYS))


@pytest.mark.parametrize("name", MECHANISMS)
def test_stated_variances_are_those_of_releases(name, monkeypatch):
    domain, held, relation = MECHANISMS[name]
    mechanism, _ = made(domain, held, relation=relation)
    design = mechanism.mechanism
    counts = np.full(domain.shape, 2**20)
    exact = design.held.sums(counts)
    size = 2**design.basis.bits if design.basis is not None else 1

    def released(noise):
        with monkeypatch.context() as m:
            m.setattr(KNormLaw, "draw", lambda *_: noise.astype(np.int64)[None])
            noisy = design.add_noise(counts, KEYS)
        return design.reconstruct(noisy, exact, None).ravel()

    # What is published is linear in the noise: its columns, from noise on one entry each.
    unit = np.eye(design.law.norm_ball.entries) * size
    columns = np.array([(released(e) - released(-e)) / (2 * size) for e in unit]).T
    truth = columns @ design.law.covariance @ columns.T
    stated = design.noise.covariance(np.eye(domain.size).reshape(-1, *domain.shape))
    assert np.allclose(stated, truth, atol=1e-6 * np.trace(truth))
    assert np.allclose(design.noise.cell_variance().ravel(), np.diag(truth), rtol=1e-6)
    assert math.isclose(np.trace(stated), mechanism.expected_error().total, rel_tol=1e-9)
    accuracy = mechanism.accuracy()
    assert np.allclose(accuracy.figures.variance().ravel(), np.diag(truth), rtol=1e-6)


def test_whole_counts_and_capped_tables():
    mechanism, _ = made(line(3), sdp.hold(), decimals=0)
    release = mechanism.release(sdp.Table([4, 0, 9], line(3)), seed=1)
    assert release.values.dtype.kind == "i"
    assert release.values.sum() == 13
    mechanism, _ = made(line(3), sdp.hold(), capped=True)
    bounded, full = sdp.Table([4, 0, 9], line(3)), sdp.Table([6, 2, 11], line(3))
    release = mechanism.release(bounded, everything=full, seed=1)
    assert math.isclose(release.values.sum(), 19)


def test_all_changes_of_a_record_are_in_the_norm_ball():
    rng = np.random.default_rng(2)
    query = sdp.LinearQuery(rng.integers(-4, 5, (3, 6)))
    for relation in (sdp.ReplaceOne(), sdp.AddRemoveOne(), sdp.ReplaceOne(exactly=False)):
        mechanism, _ = made(query, None, relation=relation)
        design = mechanism.mechanism
        for here in tables(6, 2):
            for there in neighbours(here, relation):
                v = query.integers @ np.subtract(here, there)
                assert norm_of(design, design.basis.integers(v)) <= 1


# ---------------------------------------------------------------------------------------- messages


def test_messages():
    with pytest.raises(BudgetError, match="pure budgets: use PureDP"):
        sdp.design(line(3), sdp.hold(), sdp.ApproxDP(1.0, 1e-6), mechanism="knorm")
    with pytest.raises(ReleaseError, match="only the sensitivity is declared"):
        made(sdp.GeneralQuery(lambda t: t.counts, 3, l1=2, l2=2), None)
    with pytest.raises(ReleaseError, match="Digits that add up"):
        made(SQUARE, sdp.hold("row"), decimals=0)
    with pytest.raises(ReleaseError, match="Digits that add up"):
        made(line(3), sdp.hold(), decimals=0, capped=True)
    with pytest.raises(BudgetError, match="too small for this mechanism's grid"):
        made(SQUARE, sdp.hold("row") & sdp.hold("column"), 1e-9)
    with pytest.raises(TypeError, match="exact"):
        sdp.Extended(exact=True)
    # Columns of zeros, columns that are alike, and nothing left after the projection.
    alike = sdp.LinearQuery([[1, 1, 1], [1, 1, 1]])
    for query, held, relation in [
        (sdp.LinearQuery([[0, 1, 0]]), sdp.LinearInvariants([[1]]), None),
        (alike, sdp.LinearInvariants([[1, 0]]), None),
        (alike, sdp.LinearInvariants([[1, 1]]), sdp.AddRemoveOne()),
        (alike, None, None),
        (line(1), None, None),
    ]:
        with pytest.raises(SubspaceDPError, match="nothing"):
            made(query, held, relation=relation)
    zero_column = sdp.LinearQuery([[1, 0, 2], [3, 0, 1]])
    assert fitted_of(made(zero_column, None, relation=sdp.AddRemoveOne())[0]).is_hull


def test_exact_true_is_refused_in_one_sentence_where_it_must_be():
    rows = sdp.Domain([sdp.Axis("c", range(40), levels={"s": [i // 4 for i in range(40)]})])
    mechanism, _ = made(rows, sdp.hold("s"))
    assert not fitted_of(mechanism).is_hull
    assert fitted_of(mechanism).price > 1
    with pytest.raises(ReleaseError) as caught:
        made(rows, sdp.hold("s"), exact=True)
    text = str(caught.value)
    assert text.startswith("`exact=True` asks for noise of the sensitivity polytope itself")
    assert text.count(". ") == 0
    mechanism, _ = made(rows, sdp.hold("s"), relation=sdp.AddRemoveOne(), exact=True)
    assert fitted_of(mechanism).is_hull


def test_a_bound_a_cell_makes_the_norm_ball_one_around_the_true_one():
    relation = sdp.ReplaceOne(records=2, per_cell=1, exactly=True)
    mechanism, _ = made(line(4), sdp.hold(), relation=relation)
    fitted = fitted_of(mechanism)
    assert not fitted.is_hull
    assert fitted.bound
    assert 4 <= fitted.price < 6
    with pytest.raises(ReleaseError, match="only norm balls around it can be sampled exactly"):
        made(line(4), sdp.hold(), relation=relation, exact=True)


def test_the_price_counts_that_a_larger_norm_ball_may_spread_less():
    A = np.random.default_rng(16).integers(-3, 4, (2, 5))

    def fitted(**bounds):
        relation = sdp.AddRemoveOne(records=2, **bounds)
        query, budget = sdp.LinearQuery(A), sdp.PureDP(8.0)
        return fitted_of(sdp.design(query, None, budget, neighbours=relation, mechanism="knorm"))

    free, bounded = fitted(), fitted(per_cell=1)
    assert not free.is_hull
    assert not free.bound  # priced by moments
    assert bounded.bound
    d = free.norm_ball.dimension
    assert bounded.price == pytest.approx(2**2 * (d + 1) * (d + 2) / 6 * free.price)


@pytest.mark.parametrize("d", range(1, 7))
def test_a_box_spreads_more_than_a_double_cone_around_it_by_no_more_than_stated(d):
    # In one direction: a box reaching 1 has 1/3, a double cone reaching 1 has this.
    cone = 2 / ((d + 1) * (d + 2))
    heights = (np.arange(200_000) + 0.5) / 200_000
    weights = (1 - heights) ** (d - 1)
    assert cone == pytest.approx(float(heights**2 @ weights / weights.sum()), rel=1e-4)
    assert _smaller_spread(d) == pytest.approx((1 / 3) / cone)


# ------------------------------------------------------------------------- twins that are too small


def largest_loss(design, relation, small):
    """The largest privacy loss over tables and their neighbours, from the measured integers."""
    measure = (
        (lambda x: design.basis.integers(np.array(x))) if design.basis is not None else np.array
    )
    return max(
        design.law.rate * norm_of(design, measure(here) - measure(there))
        for here in small
        for there in neighbours(here, relation)
    )


@pytest.mark.parametrize("relation", [sdp.ReplaceOne(), sdp.AddRemoveOne()], ids=repr)
def test_a_twin_with_too_little_noise_is_caught_and_cannot_be_loaded(relation):
    # Any neighbour relation, one held margin and none: exact, and too small by a thousandth.
    for held in (sdp.hold("s"), None):
        mechanism, _ = made(GROUPS, held, relation=relation)
        design, fitted = mechanism.mechanism, fitted_of(mechanism)
        small = tables(4, 2)
        assert largest_loss(design, relation, small) <= 1
        twin = dataclasses.replace(fitted, within=fitted.within * Fraction(999, 1000))
        broken = dataclasses.replace(design, fit=twin)
        assert largest_loss(broken, relation, small) > 1
        design.check_norm_ball()
        with pytest.raises(ReleaseError, match="too little noise"):
            broken.check_norm_ball()


def test_an_enclosing_norm_ball_that_misses_a_vertex_is_refused():
    query = sdp.LinearQuery([[4, 1, -3, 2], [0, 5, 2, -4], [1, 1, 6, 3]])
    mechanism, _ = made(query, None, relation=sdp.AddRemoveOne())
    design = mechanism.mechanism
    moves = changes(design.basis, query, design.neighbours)
    for lost in range(4):
        kept = np.delete(moves, lost, axis=0)
        refused = 0
        for norm_ball in (hull_of(kept), *enclosing(kept)):
            twin = dataclasses.replace(design, fit=Fit(norm_ball=norm_ball, is_hull=False))
            if norm_ball.holds(moves[lost : lost + 1]):
                twin.check_norm_ball()
                continue
            refused += 1
            assert norm_of(twin, moves[lost]) > 1
            with pytest.raises(ReleaseError, match="too little noise"):
                twin.check_norm_ball()
        assert refused >= 2


def test_rounded_off_places_are_counted():
    # Real numbers: the product has places beyond 64 bits, and what is rounded off counts.
    rng = np.random.default_rng(3)
    query = sdp.LinearQuery(rng.normal(size=(2, 4)))
    for relation in (sdp.ReplaceOne(), sdp.AddRemoveOne()):
        mechanism, _ = made(query, None, relation=relation)
        design = mechanism.mechanism
        assert design.basis.drop > 0
        assert fitted_of(mechanism).within > 1
        losses = []
        for here in tables(4, 2):
            for there in neighbours(here, relation):
                a, b = (query.integers @ np.array(x) for x in (here, there))
                moved = design.basis.integers(a) - design.basis.integers(b)
                losses.append(design.law.rate * norm_of(design, moved))
        assert 0.999 < max(losses) <= 1
        fitted = dataclasses.replace(fitted_of(mechanism), within=Fraction(1))
        with pytest.raises(ReleaseError, match="too little noise"):
            dataclasses.replace(design, fit=fitted).check_norm_ball()


def test_a_direction_that_no_replacement_changes_gets_next_to_no_noise():
    query = sdp.LinearQuery(np.tril(np.ones((5, 5))))
    mechanism, base = made(query, None)
    deviations = mechanism.accuracy().stderr
    assert deviations[-1] < 0.02 * deviations[:-1].min()  # the total
    held, _ = made(query, sdp.LinearInvariants([[0, 0, 0, 0, 1]]))
    errors = [m.expected_error().total for m in (mechanism, held)]
    assert math.isclose(*errors, rel_tol=1e-3)
    assert errors[0] < 0.2 * base.expected_error().total


# ------------------------------------------------------------------------------------- certificates

SAVED = {
    **MECHANISMS,
    "enclosing": (sdp.LinearQuery(np.random.default_rng(4).integers(-9, 10, (10, 30))), None,
                  sdp.AddRemoveOne()),
    "real": (sdp.LinearQuery(np.random.default_rng(4).normal(size=(3, 5))), None,
             sdp.ReplaceOne()),
    "swaps": (sdp.LinearQuery(np.tril(np.ones((10, 10)))), None, sdp.ReplaceOne()),
    "real swaps": (sdp.LinearQuery(np.random.default_rng(4).normal(size=(10, 10))), None,
                   sdp.ReplaceOne()),
    "fewer kinds than answers": (sdp.LinearQuery(np.arange(8).reshape(4, 2) % 5), None,
                                 sdp.AddRemoveOne()),
    "a bound a cell": (line(4), sdp.hold(), sdp.ReplaceOne(records=2, per_cell=1)),
}  # fmt: skip


def released(query, held, relation, seed=1):
    mechanism, _ = made(query, held, relation=relation)
    domain = line(query.integers.shape[1]) if isinstance(query, sdp.LinearQuery) else query
    table = sdp.Table(np.arange(5, 5 + domain.size).reshape(domain.shape), domain)
    return mechanism.release(table, seed=seed)


@pytest.mark.parametrize("name", SAVED)
def test_releases_are_saved_loaded_and_verified(name, tmp_path):
    release = released(*SAVED[name])
    data = release.certificate()
    jsonschema.validate(data, json.loads(sdp.certificate_schema()))
    assert data["guarantee"]["proof"][0] == "docs/proofs/knorm.md"
    assert "sensitivity polytope" in data["noise"]["on"]
    release.save(tmp_path / "made")
    again = sdp.Release.load(tmp_path / "made")
    assert again.verify().ok
    assert again.mechanism.as_dict() == release.mechanism.as_dict()
    assert again.mechanism.law == release.mechanism.law
    assert np.array_equal(again.stderr(), release.stderr())
    assert again.interval(0.9)[0].shape == release.values.shape


def altered(data, **new):
    return {**data, "body": {**data["body"], **new}}


@pytest.mark.parametrize("name", SAVED)
def test_a_certificate_that_claims_less_noise_is_refused(name):
    data = released(*SAVED[name]).mechanism.as_dict()
    within = Fraction(data["body"]["within"])
    mechanism_from(data)
    for less in (within / 2, within * Fraction(999_999, 1_000_000)):
        with pytest.raises(ReleaseError, match=r"too little noise|no price"):
            mechanism_from(altered(data, within=str(less)))
        with pytest.raises(ReleaseError, match="too little noise"):
            mechanism_from(altered(data, within=str(less), own=False))


@pytest.mark.parametrize(
    "new",
    [
        {"within": "1/0"},
        {"within": "-1"},
        {"own": 1},
        {"price": -1.0},
        {"price": math.inf},
        {"own": True, "price": 2.0},
        {"body": "ball"},
        {"cells": 4},
        {"body": "deviations", "groups": [2, 1]},
        {"body": "deviations", "groups": [3], "own": False},
        {"body": "cross-polytope", "widths": ["1", "1", "1"]},
        {"body": "box", "widths": ["1", "1", "1"]},
    ],
)
def test_other_lies_about_a_norm_ball_are_refused(new):
    data = released(line(3), sdp.hold(), sdp.ReplaceOne()).mechanism.as_dict()
    with pytest.raises(ReleaseError, match="not usable"):
        mechanism_from(altered(data, **new))


def test_a_norm_ball_belongs_to_its_mechanism():
    data = released(line(3), sdp.hold(), sdp.ReplaceOne()).mechanism.as_dict()
    with pytest.raises(ReleaseError, match="not what its mechanism measures"):
        mechanism_from({**data, "mechanism": "projected"})
    with pytest.raises(ReleaseError, match="not what its mechanism measures"):
        mechanism_from({key: value for key, value in data.items() if key != "body"})
    with pytest.raises(ReleaseError, match="pure budgets"):
        mechanism_from({**data, "budget": {"name": "zero-concentrated", "rho": 1.0}})


def test_a_polytope_cannot_be_cut_down_in_a_certificate():
    query = sdp.LinearQuery([[2, 1, -1], [0, 2, 1]])
    release = released(query, None, sdp.AddRemoveOne())
    data = json.loads(json.dumps(release.mechanism.as_dict()))
    norm_ball = data["body"]
    assert norm_ball["body"] == "polytope"
    facets = [dict(f) for f in norm_ball["facets"]]
    facets[0]["offset"] = str(int(facets[0]["offset"]) - 1)
    with pytest.raises(ReleaseError, match="cuts off a corner"):
        mechanism_from(altered(data, facets=facets))
    smaller = [[str(int(x) // 2) for x in row] for row in norm_ball["corners"]]
    half = [
        {**f, "offset": str(max(abs(dot(map(int, f["normal"]), map(int, v))) for v in smaller))}
        for f in norm_ball["facets"]
    ]
    with pytest.raises(ReleaseError, match="too little noise"):
        mechanism_from(altered(data, facets=half, corners=smaller))
    # A facet less is a larger ball: private, but errors are stated for the hull of the corners.
    with pytest.raises(ReleaseError, match="larger than the hull of its corners"):
        mechanism_from(altered(data, facets=norm_ball["facets"][1:]))


# -------------------------------------------------------------------------------- mean and variance


@pytest.mark.parametrize("name", ["exchanges", "groups", "both margins"])
def test_releases_are_unbiased_with_the_stated_variance_and_a_twin_is_caught(name):
    domain, held, relation = MECHANISMS[name]
    mechanism, _ = made(domain, held, relation=relation)
    number = 4000
    drawn = np.array([n.ravel() for n in replicates(mechanism, number, seed=5)])
    questions = functionals(domain.size)
    stated = np.array([stated_variance(mechanism, w) for w in questions])
    answers = drawn @ questions.T
    loose = stated > 1e-12
    assert np.abs(answers[:, ~loose]).max(initial=0.0) < 1e-6
    assert np.all(mean_p(answers[:, loose], 0.0) > ALPHA)
    assert np.all(mean_p(answers[:, loose] ** 2, stated[loose]) > ALPHA)
    # Noise for half the budget has four times the variance; for 4/5 of it 25/16.
    assert np.all(mean_p(answers[:, loose] ** 2, stated[loose] * 25 / 16) < ALPHA)
    # Margins of error cover at least as often as stated, for all questions.
    for w, a in zip(questions[loose], answers[:, loose].T, strict=True):
        margin = mechanism.accuracy(w.reshape(domain.shape)).margin_of_error(0.9)
        outside = int(np.count_nonzero(np.abs(a) > margin * (1 + 1e-9)))
        assert outside < 0.1 * number + 6 * math.sqrt(0.09 * number)


def test_likelihoods_are_probabilities():
    # Exchanges of three cells: all tables near the release, and their probabilities add up.
    domain = line(3)
    mechanism, _ = made(domain, sdp.hold(), 2.0)
    release = mechanism.release(sdp.Table([24, 25, 26], domain), seed=2)
    likelihood = Likelihood(release)
    assert likelihood.exact
    total = 0.0
    for i in range(10, 40):
        for j in range(10, 40):
            total += math.exp(likelihood.log_density([i, j, 75 - i - j]))
    assert math.isclose(total, 1.0, rel_tol=1e-6)


def test_comparison_and_choice():
    query = sdp.LinearQuery(np.tril(np.ones((6, 6))))
    found = sdp.compare(query, None, sdp.PureDP(1.0))
    assert found.chosen.mechanism.name == "knorm"
    assert "knorm" in str(found)
    auto = sdp.design(query, None, sdp.PureDP(1.0), mechanism="auto")
    assert auto.mechanism.name == "knorm"
    assert auto.why.startswith("knorm: 95 % intervals of ±")
    gauss = sdp.compare(query, None, sdp.ApproxDP(1.0, 1e-6))
    assert "pure budgets" in str(gauss)
    assert gauss.chosen.mechanism.name == "optimal"
    for held in (sdp.hold(), None):  # never worse than projected noise
        both = sdp.compare(line(6), held, sdp.PureDP(8.0))
        errors = {e.name: e.error for e in both.entries}
        assert errors["knorm"] <= errors["projected"] * (1 + 1e-9)


def test_least_budget_and_audit():
    found = sdp.least_budget(line(5), sdp.hold(), sdp.PureDP, error=20, mechanism="knorm").budget
    mechanism, _ = made(line(5), sdp.hold(), found.epsilon)
    assert np.max(mechanism.accuracy().margin_of_error(0.95)) <= 20
    one, other = (sdp.Table(counts, line(5)) for counts in ([9, 0, 0, 0, 0], [8, 1, 0, 0, 0]))
    mechanism, _ = made(line(5), sdp.hold(), 1.0)
    found = audit_privacy(mechanism, one, other, runs=2000, seed=1)
    assert 0.3 < found.epsilon <= found.claimed == 1.0


@pytest.mark.parametrize("name", MECHANISMS)
def test_inference_takes_releases_with_norm_noise(name):
    domain, held, relation = MECHANISMS[name]
    mechanism, base = made(domain, held, relation=relation)
    counts = np.arange(15, 15 + domain.size).reshape(domain.shape)
    table = sdp.Table(counts, domain)
    release, other = (m.release(table, seed=4) for m in (mechanism, base))
    likelihood = Likelihood(release)
    moved = counts.copy().reshape(-1)
    if not isinstance(likelihood._law, Shifted):  # invariants that overlap ask for a shift
        here = likelihood.log_density(counts)
        assert math.isfinite(here)
        moved[0] += 1000
        assert likelihood.log_density(moved.reshape(domain.shape)) < here
    both = combine([release, other])
    assert np.all(both.stderr() <= np.minimum(release.stderr(), other.stderr()) * (1 + 1e-6))
    lower, upper = both.interval(0.9)
    assert np.all(lower < upper)
    cell = np.zeros(domain.shape)
    cell.reshape(-1)[0] = 1.0
    assert 0 < test_value_(release, cell, 3.0).pvalue <= 1
    low, high = release.ratio(cell, np.ones(domain.shape)).interval(0.9)
    assert low <= high
    assert "k-norm" in str(release.certificate()["noise"])


def test_what_is_rounded_off_is_paid_for_and_certificates_are_read_again():
    rng = np.random.default_rng(5)
    scales = np.array([[1e-3], [1.0], [1e3]])
    query = sdp.LinearQuery(rng.normal(size=(3, 6)) * scales)
    for relation in (sdp.AddRemoveOne(), sdp.ReplaceOne()):
        mechanism, _ = made(query, None, 1e-2, relation=relation)
        fitted = fitted_of(mechanism)
        assert mechanism.mechanism.basis.drop
        assert fitted.within > 1 + Fraction(1, 10**6)
        assert not fitted.is_hull
        assert math.isclose(fitted.price, float(fitted.within) ** 2)
        again = mechanism_from(json.loads(json.dumps(mechanism.mechanism.as_dict())))
        assert again.law == mechanism.mechanism.law
        with pytest.raises(ReleaseError, match="only wider noise is private"):
            made(query, None, 1e-2, relation=relation, exact=True)
    with pytest.raises(BudgetError, match="too small for this mechanism's grid"):
        made(sdp.LinearQuery(query.matrix.toarray() * scales**2), None, 1e-6)


@pytest.mark.parametrize(
    ("query", "held"), [(line(3), None), (line(3), sdp.hold()), (PREFIX, None)], ids=str
)
def test_a_bounded_table_is_booked_for_what_its_norm_ball_holds(query, held):
    # Differences of records are longer than records, and the norm ball holds differences alone.
    mechanism, base = made(query, held, capped=True)
    assert spend_of(mechanism.mechanism).neighbours == sdp.ReplaceOne()
    assert spend_of(base.mechanism).neighbours == sdp.ReplaceOne(exactly=query is PREFIX)
    loose = mechanism.mechanism.for_problem(neighbours=sdp.ReplaceOne(exactly=False))
    with pytest.raises(ReleaseError, match="does not hold"):
        loose.check_norm_ball()
    groups, _ = made(GROUPS, sdp.hold("s"), 6.0, capped=True)
    assert spend_of(groups.mechanism).neighbours == sdp.ReplaceOne(exactly=False)


@pytest.mark.parametrize("held", [None, sdp.hold(), sdp.hold("a")], ids=str)
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_auto_never_takes_wider_intervals_for_a_smaller_error(held, epsilon):
    domain = sdp.Domain([sdp.Axis("a", range(4)), sdp.Axis("b", range(4))])
    made = {
        name: sdp.design(domain, held, sdp.PureDP(epsilon), mechanism=name)
        for name in ("projected", "extended", "knorm", "auto")
    }
    widths = {
        name: float(np.mean(np.square(m.accuracy().margin_of_error()))) for name, m in made.items()
    }
    assert widths["auto"] <= min(widths.values()) * WORTH_WHILE**2
    least = min(("projected", "extended", "knorm"), key=lambda n: made[n].expected_error().total)
    assert least == "knorm"
    chosen = made["auto"].mechanism.name
    if held is not None and epsilon == 2.0 and not held.margins[0]:
        assert chosen == "projected"  # the twin, by errors alone, took the k-norm mechanism
