"""The marginals mechanism from design to files: exact, unbiased, with the stated law."""

import itertools
import json
import math
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
from tests import margin_oracle as oracle
from tests.mechanisms.contract import check_unbiased
from tests.spanning import spanning
from tests.statistical import ALPHA, mean_p, proportion_bounds

import subspacedp as sdp
from subspacedp.errors import BudgetError, DomainError, ReleaseError
from subspacedp.mechanisms.marginals import MarginalsOptions, measurement, strategy, with_budget
from subspacedp.mechanisms.registry import mechanism_from
from subspacedp.noise import Keystream
from subspacedp.release.folder_checks import verify_folder

hold = sdp.hold
PLAIN = oracle.plain(2, 3, 4)
EQUAL, UNEQUAL, THREE = oracle.equal_levels(), oracle.unequal_levels(), oracle.three_levels()
TWO = sdp.Domain([THREE.axes[0], sdp.Axis("n", range(4), levels={"h": [0, 0, 0, 1]})])
CASES = {
    "two-way": (PLAIN, [["a", "b"], ["b", "c"]], None),
    "one-way held": (PLAIN, oracle.all_of_order(PLAIN, 2), hold("a") & hold("c")),
    "beyond": (PLAIN, [["a", "b"], ["c"]], hold("b", "c")),
    "equal levels": (EQUAL, [["l", "b"], ["g", "b"]], hold("g")),
    "unequal levels": (UNEQUAL, [["l"], ["g", "b"]], hold("b")),
    "groups held": (UNEQUAL, [["l", "b"], ["g", "b"], ["b"]], hold("g")),
    "three levels": (THREE, [["l", "b"], ["g"], ["r", "b"]], hold("r")),
    "labels unasked": (THREE, [["g", "b"], ["r"]], hold("r") & hold("b")),
    "held at two levels": (THREE, [["l", "b"], ["g", "b"]], hold("g") & hold("r", "b")),
}
ADD, REPLACE = sdp.AddRemoveOne(), sdp.ReplaceOne()
KINDS = {
    "replace": (sdp.ZCDP(0.5), REPLACE, None),
    "add-2": (sdp.ApproxDP(1.0, 1e-6), sdp.AddRemoveOne(records=2), None),
    "pure": (sdp.PureDP(1.0), REPLACE, None),
    "tables": (sdp.GaussianDP(1.0), ADD, "tables"),
}


def made(case, kind="replace", **options):
    domain, margins, held = case
    budget, relation, what = KINDS[kind]
    return sdp.design(
        sdp.Margins(domain, margins), held, budget,
        **{"neighbours": relation, "mechanism": MarginalsOptions(measured=what), **options},
    )  # fmt: skip


def table_of(domain, seed=0, high=40):
    return sdp.Table(np.random.default_rng(seed).integers(0, high, domain.shape), domain)


def matrices(mechanism):
    """The answers by cells, and the held totals by cells."""
    design = mechanism.mechanism
    margins = (
        design.query.margins if isinstance(design.query, sdp.Margins) else [design.domain.cells]
    )
    A = oracle.matrix(design.domain, margins)
    held = design.held.margins
    C = oracle.matrix(design.domain, held) if held else np.zeros((0, design.domain.size))
    return A, C


# ---------------------------------------------------------------------------- the stated law


def deviations(mechanism, monkeypatch):
    """The standard deviation of every integer of the measurement, from the laws that are drawn."""
    laws = []

    def sampler(law, keys, start, base, out):
        laws.append(law)
        out[:] = len(laws)

    with monkeypatch.context() as patch:
        patch.setattr(measurement, "add_noise", sampler)
        number = mechanism.mechanism.measure(table_of(mechanism.mechanism.domain, high=1), None)
    deviation = np.array([0.0, *(math.sqrt(law.variance) for law in laws)])
    return deviation[number]


def linear_map(mechanism):
    """What every measured integer adds to every answer."""
    empty = table_of(mechanism.mechanism.domain, high=1)
    answers = mechanism.check(empty)[0] if not mechanism.mechanism.capped else None
    exact = mechanism.mechanism.held.sums(answers)
    size = mechanism.mechanism.measure(empty, sdp_keys()).size
    columns = []
    for row in np.eye(size, dtype=np.int64):
        found = mechanism.mechanism.reconstruct(row * 2**20, exact, Keystream(bytes(32)))
        columns.append(np.asarray(found, np.float64).ravel() / 2**20)
    return np.stack(columns, 1)


def sdp_keys(seed=0):
    from subspacedp.noise import ReleaseKeys

    return ReleaseKeys.from_seed(seed, b"test")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_covariances_are_those_of_the_explicit_linear_map(case, kind, monkeypatch):
    mechanism = made(case, kind)
    B = linear_map(mechanism) * deviations(mechanism, monkeypatch)
    covariance = B @ B.T
    noise, n = mechanism.mechanism.noise, mechanism.mechanism.query.size
    scale = np.abs(covariance).max()
    assert np.allclose(noise.covariance(np.eye(n)), covariance, rtol=0, atol=1e-9 * scale)
    # Closed forms leave out the rounding of noise with a scale of 1024 or more: 1/12 in 2²⁰.
    assert np.allclose(noise.cell_variance(), np.diag(covariance), rtol=0, atol=1e-7 * scale)
    w = np.random.default_rng(1).normal(size=n)
    assert math.isclose(noise.variance(w), w @ covariance @ w, rel_tol=1e-8)
    margin = noise.law_of(w).margin_of_error(0.05)
    assert margin == pytest.approx(1.96 * math.sqrt(w @ covariance @ w), rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [CASES[n] for n in ("groups held", "three levels", "two-way")])
def test_margins_that_follow_have_the_variances_of_their_weights(case, kind):
    mechanism = made(case, kind)
    noise, query = mechanism.mechanism.noise, mechanism.mechanism.query
    for names in ((), ("b",), ("g",), ("g", "b"), ("r",)):
        try:
            margin = query.domain.margin(*names)
            query.source_of(margin)
        except DomainError:
            continue
        found = np.asarray(mechanism.margin_accuracy(*names).stderr) ** 2
        for i in range(found.size):
            one = np.zeros(margin.shape)
            one.reshape(-1)[i] = 1
            wanted = (
                0.0 if margin.empty.reshape(-1)[i] else noise.variance(query.indicator(margin, one))
            )
            assert found.reshape(-1)[i] == pytest.approx(wanted, rel=1e-7, abs=1e-8)


RUNS = 100


def released(mechanism, table, runs=RUNS):
    return np.stack([np.asarray(mechanism.release(table, seed=s).values) for s in range(runs)])


def check_agreement(mechanism, values, table):
    """Margins agree where they meet, and with what is held: as integers of the last digit."""
    query, design = mechanism.mechanism.query, mechanism.mechanism
    step = 10 ** (design.decimals or 0)
    exact = design.decimals is not None
    whole = np.rint(values * step).astype(np.int64) if exact else values
    if exact:
        assert np.abs(whole - values * step).max() < 1e-6

    def same(x, y):
        return np.array_equal(x, y) if exact else np.allclose(x, y, atol=1e-7)

    tables = query.split(whole)
    for m, t in zip(query.margins, tables, strict=True):
        for h in design.held.margins:
            if m.determines(h):
                assert same(m.coarsen(t, h), h.sum(table.counts) * step)
        for other, u in zip(query.margins, tables, strict=True):
            meet = m.meet(other)
            assert same(m.coarsen(t, meet), other.coarsen(u, meet))


DIGITS = [*itertools.product(KINDS, (None, 0)), ("replace", 1), ("pure", 1)]


@pytest.mark.parametrize(("name", "digits"), spanning(list(CASES), DIGITS, every=3))
def test_releases_agree_are_unbiased_and_covered(name, digits):
    """Every answer: exact sums, no bias, the stated variance, intervals that cover."""
    case, (kind, decimals) = CASES[name], digits
    mechanism = made(case, kind, decimals=decimals)
    table = table_of(case[0])
    truth = mechanism.mechanism.query.answers(table)
    found = released(mechanism, table)
    for values in found[:5]:
        check_agreement(mechanism, values, table)
    variance = mechanism.expected_error().per_cell
    loose = variance > 0
    errors = (found - truth).astype(np.float64)
    assert np.abs(errors[:, ~loose]).max(initial=0) < 1e-7
    spread = np.sqrt(variance[loose] / RUNS)
    z = np.abs(errors[:, loose].mean(axis=0)) / spread
    assert np.all(z < 6.5)  # a normal mean is beyond with probability 8e-11
    ratio = (errors[:, loose] ** 2).mean() / variance[loose].mean()
    assert ratio < 1.5
    assert ratio > (0.6 if decimals != 0 else 0.4)
    half = np.asarray(mechanism.accuracy().margin_of_error(0.95))
    hits = (np.abs(errors) <= half + 1e-9).sum(axis=0)
    for h in hits[loose]:
        assert proportion_bounds(int(h), RUNS)[1] >= 0.95
    release = mechanism.release(table, seed=1)
    assert release.verify().ok, release.verify()


@pytest.mark.parametrize("kind", ["replace", "pure"])
def test_a_variance_a_fifth_too_large_or_small_is_rejected(kind):
    """The same releases tell a wrong statement: the sums of squares of many answers."""
    mechanism = made(CASES["three levels"], kind)
    errors = released(mechanism, table_of(THREE), 500) - mechanism.mechanism.query.answers(
        table_of(THREE)
    )
    variance = mechanism.expected_error().per_cell
    loose = variance > 0
    squares = (errors[:, loose] ** 2 / variance[loose]).mean(axis=1)
    assert mean_p(squares, 1.0) > ALPHA
    assert mean_p(squares, 1.25) < ALPHA
    assert mean_p(squares, 0.8) < ALPHA


def test_intervals_are_hardly_wider_than_normal_ones():
    for name, case in CASES.items():
        mechanism = made(case, "replace", decimals=None)
        accuracy = mechanism.accuracy()
        stderr = np.asarray(accuracy.stderr)
        half = np.asarray(accuracy.margin_of_error(0.95))
        assert np.all(half <= 1.02 * 1.959964 * stderr + 1e-12), name


# ---------------------------------------------------------------------------- S, plain and G


def orthogonal_questions(mechanism, number=6):
    """Weights w of the answers with Aᵀw in the null space of the held totals."""
    A, C = matrices(mechanism)
    _, s, vt = np.linalg.svd(C @ A.T)
    rank = int(np.sum(s > 1e-9))
    basis = vt[rank:]
    rng = np.random.default_rng(4)
    return [rng.normal(size=len(basis)) @ basis for _ in range(number)]


def rebuilt(mechanism, tables):
    """One measurement with the held totals of several tables."""
    noisy = mechanism.mechanism.measure(tables[0], sdp_keys())
    out = []
    for table in tables:
        answers = mechanism.mechanism.answers(table)
        exact = mechanism.mechanism.held.sums(answers)
        out.append(
            np.asarray(
                mechanism.mechanism.reconstruct(noisy.copy(), exact, Keystream(bytes(32)))
            ).ravel()
        )
    return out


HELD = {name: case for name, case in CASES.items() if case[2] is not None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_orthogonal_questions_do_not_depend_on_what_is_held(case, kind):
    mechanism = made(case, kind)
    assert mechanism.guarantee.kind == "S"
    tables = [table_of(case[0], seed) for seed in range(4)]
    first, *others = rebuilt(mechanism, tables)
    for w in orthogonal_questions(mechanism):
        for other in others:
            assert abs(w @ other - w @ first) < 1e-9


@pytest.mark.parametrize("name", ["groups held", "three levels", "labels unasked"])
def test_least_squares_under_the_totals_is_not_s(name, monkeypatch):
    """The twin: exact totals in the least squares move questions that they should not."""
    monkeypatch.setattr(strategy, "constrained", lambda design, interactions: True)
    case = CASES[name]
    if name == "groups held":  # alike parts in every group: hold what is above them instead
        case = (case[0], case[1], hold())
    mechanism = made(case, "replace", neighbours=ADD)
    tables = [table_of(case[0], seed) for seed in range(4)]
    first, *others = rebuilt(mechanism, tables)
    moved = max(
        abs(w @ other - w @ first) for w in orthogonal_questions(mechanism) for other in others
    )
    assert moved > 1e-3


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("kind", ["replace", "pure"])
def test_cells_are_s_too(kind, decimals):
    budget, relation, _ = KINDS[kind]
    mechanism = sdp.design(
        THREE, hold("r"), budget, neighbours=relation, decimals=decimals,
        mechanism=MarginalsOptions(margins=[["g"], ["r", "b"]]),
    )  # fmt: skip
    assert mechanism.guarantee.kind == ("S" if decimals is None else "G")
    table = table_of(THREE)
    release = mechanism.release(table, seed=1)
    assert release.verify().ok
    assert release.values.shape == THREE.shape
    r = THREE.margin("r")
    assert np.allclose(r.sum(release.values), r.sum(table.counts), atol=1e-9)
    if decimals is None:
        first, *others = rebuilt(mechanism, [table_of(THREE, s) for s in range(3)])
        for w in orthogonal_questions(mechanism):
            assert max(abs(w @ (other - first)) for other in others) < 1e-9
    errors = (
        np.stack(
            [
                np.asarray(mechanism.release(table, seed=s).values, float).ravel()
                for s in range(RUNS)
            ]
        )
        - table.counts.ravel()
    )
    check_unbiased(errors, np.eye(THREE.size), mechanism)
    half = np.asarray(mechanism.accuracy().margin_of_error(0.95)).ravel()
    for h in (np.abs(errors) <= half + 1e-9).sum(axis=0):
        assert proportion_bounds(int(h), RUNS)[1] >= 0.95


@pytest.mark.parametrize("decimals", [0, 1, 3])
@pytest.mark.parametrize("held", [hold("r"), hold("g") & hold("b")], ids=str)
def test_digits_of_large_counts_are_exact(held, decimals):
    """Sums of cells near 2³¹ leave float64's last digits; the held totals are kept all the same."""
    group = np.sort(np.random.default_rng(0).integers(0, 40, 3000))
    levels = {"g": group.tolist(), "r": (group // 10).tolist()}
    domain = sdp.Domain([sdp.Axis("l", range(3000), levels=levels), sdp.Axis("b", range(2))])
    counts = np.random.default_rng(1).integers(0, 2**31, domain.shape)
    mechanism = sdp.design(
        domain, held, sdp.ZCDP(0.5), decimals=decimals,
        mechanism=MarginalsOptions(margins=[["g", "b"], ["r"]]),
    )  # fmt: skip
    release = mechanism.release(sdp.Table(counts, domain), seed=1)
    assert release.verify().ok
    whole = np.rint(release.values * 10**decimals).astype(np.int64)
    for margin in mechanism.mechanism.held.margins:
        assert np.array_equal(margin.sum(whole), margin.sum(counts) * 10**decimals)


def mean_moves(mechanism, kind):
    """The largest (shift of the mean)ᵀ Cov⁺ (shift) over all pairs or single records.

    Of Π_N(release) for S; of the release, over changes that keep what is held, for G.
    """
    A, C = matrices(mechanism)
    relation = mechanism.mechanism.neighbours
    n = A.shape[1]
    cells = np.eye(n)
    changes = (cells if relation.persons == 1 else (cells[:, None] - cells[None]).reshape(-1, n)).T
    if kind == "G":
        moves = A @ changes[:, ~np.any(np.abs(C @ changes) > 0, axis=0)]
    else:
        moves = A @ (np.eye(n) - np.linalg.pinv(C) @ C) @ changes
    covariance = mechanism.mechanism.noise.covariance(np.eye(len(A)))
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    assert np.allclose(covariance @ (inverse @ moves), moves, atol=1e-7)  # noise reaches all
    return np.einsum("ij,ij->j", moves, inverse @ moves).max(initial=0.0)


TWO_TREES = (TWO, [["l", "n"], ["g", "h"]], hold("g") & hold("n"))


@pytest.mark.parametrize("relation", [ADD, REPLACE], ids=["add", "replace"])
@pytest.mark.parametrize("case", [*CASES.values(), TWO_TREES])
def test_the_law_of_the_release_has_the_stated_kind_of_privacy(case, relation):
    for kind in ("replace", "tables"):
        if kind == "tables" and case is TWO_TREES:
            continue
        mechanism = made(case, kind, neighbours=relation)
        limit = mechanism.mechanism.budget.gaussian_mu**2
        assert mean_moves(mechanism, mechanism.guarantee.kind) <= limit * (1 + 1e-9)


def test_kinds_of_guarantee():
    assert made(CASES["two-way"]).guarantee.kind == "plain"
    assert made(CASES["one-way held"], decimals=0).guarantee.kind == "G"
    assert made((THREE, [["l"], ["g"]], hold())).guarantee.kind == "plain"
    assert made((THREE, [["l"], ["g"]], hold()), neighbours=ADD).guarantee.kind == "S"
    # Contrasts of a second tree of unequal groups are not orthogonal to its held totals.
    second = made((TWO, [["l", "n"], ["g", "h"]], hold("n")), neighbours=ADD)
    assert "unequal groups" in str(second.guarantee) or second.guarantee.kind == "S"
    exposed = made(CASES["three levels"]).guarantee.covers
    A, C = matrices(made(CASES["three levels"]))
    keep = np.eye(A.shape[1]) - np.linalg.pinv(C) @ C
    for w in [*np.random.default_rng(2).normal(size=(4, len(A))), np.eye(1, len(A))[0]]:
        q = w @ A
        assert exposed(w).share_exposed == pytest.approx(
            1 - np.sum((q @ keep) ** 2) / (q @ q), abs=1e-9
        )


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decimals", [None, 0, 1])
def test_saved_loaded_and_verified(tmp_path, kind, decimals):
    for number, case in enumerate((CASES["one-way held"], CASES["three levels"])):
        mechanism = made(case, kind, decimals=decimals)
        release = mechanism.release(table_of(case[0]), seed=3)
        folder = tmp_path / str(number)
        release.save(folder)
        loaded = sdp.Release.load(folder)
        assert np.array_equal(loaded.values, release.values)
        assert np.allclose(loaded.stderr(), release.stderr(), rtol=1e-12)
        checked = verify_folder(folder)
        assert checked.ok, checked
        schema = json.loads(sdp.certificate_schema())
        jsonschema.validate(json.loads((folder / "certificate.json").read_text()), schema)


def test_an_altered_release_is_found():
    release = made(CASES["one-way held"], decimals=0).release(table_of(PLAIN), seed=3)
    values = release.values.copy()
    values[0] += 1
    assert not replace(release, values=values).verify().ok


@pytest.mark.parametrize("kind", KINDS)
def test_altered_shares_are_refused(kind):
    data = json.loads(json.dumps(made(CASES["three levels"], kind).mechanism.as_dict()))
    assert mechanism_from(data).as_dict() == data
    own = data["marginals"]
    tables = own["measured"] == "tables"
    right = list(own["shares"])
    for wrong in (
        [int(s * 1.01) if tables else s * 1.01 for s in right],
        [s if i else -s for i, s in enumerate(right)],
        right[1:],
        [*right[:-1], float("nan")],
        [0 if tables else 0.0 for _ in right],
    ):
        own["shares"] = wrong
        with pytest.raises(ReleaseError, match="certificate is not usable"):
            mechanism_from(data)
    own["shares"] = right
    for key, value in (
        ("objective", "smallest"), ("goal", -1.0), ("bound", float("inf")), ("measured", "cells"),
        ("workload", [["l", "b"]]), ("weights", [1.0]),
    ):  # fmt: skip
        with pytest.raises(ReleaseError, match="certificate is not usable"):
            mechanism_from({**data, "marginals": {**own, key: value}})


def test_a_mechanism_measures_what_its_name_says():
    margins = made(CASES["three levels"]).mechanism.as_dict()
    cells = sdp.design(THREE, hold("r"), sdp.ZCDP(0.5)).mechanism.as_dict()
    for data in (
        {**margins, "mechanism": "projected"},
        {**cells, "mechanism": "marginals"},
        {**cells, "marginals": margins["marginals"]},
        {key: value for key, value in margins.items() if key != "marginals"},
    ):
        with pytest.raises(ReleaseError, match="certificate is not usable"):
            mechanism_from(json.loads(json.dumps(data)))


@pytest.mark.parametrize("kind", KINDS)
def test_another_budget_scales_a_design(kind):
    budget = KINDS[kind][0]
    parameter = {"ZCDP": "rho", "GaussianDP": "mu"}.get(type(budget).__name__, "epsilon")
    other = replace(budget, **{parameter: 0.37})
    for name in ("two-way", "three levels"):
        scaled = with_budget(made(CASES[name], kind).mechanism, other)
        domain, margins, held = CASES[name]
        fresh = sdp.design(
            sdp.Margins(domain, margins), held, other, neighbours=KINDS[kind][1],
            mechanism=MarginalsOptions(measured=KINDS[kind][2]),
        )  # fmt: skip
        assert scaled.expected_error().total == pytest.approx(
            fresh.expected_error().total, rel=1e-6
        )
        mechanism_from(json.loads(json.dumps(scaled.as_dict())))
    first = made(CASES["two-way"], kind).mechanism
    small = () if parameter == "epsilon" and not budget.pure else (1e-28,)  # δ alone buys some
    for value in (*small, 1e8):
        with pytest.raises(BudgetError):
            with_budget(first, replace(budget, **{parameter: value}))


# ---------------------------------------------------------------------------- uses


@pytest.mark.parametrize("decimals", [None, 0, 1])
@pytest.mark.parametrize("held", [hold("a"), hold("r"), hold("g"), hold()], ids=str)
def test_capped_designs_hold_totals_of_all_records(held, decimals):
    """The estimand is Π_N of the bounded table plus C⁺c; digits and intervals know it."""
    domain = PLAIN if held.margins == (("a",),) else THREE
    margins = [["a", "b"], ["a"]] if domain is PLAIN else [["l", "b"], ["g"], ["r", "b"]]
    bounded = table_of(domain, 1, 10)
    more = (np.arange(domain.size).reshape(domain.shape) % 5 == 1).astype(np.int64)
    everything = sdp.Table(bounded.counts + more, domain)
    mechanism = sdp.design(
        sdp.Margins(domain, margins), held, sdp.ZCDP(2.0), decimals=decimals, capped=True,
        neighbours=sdp.ReplaceOne(records=2),
    )  # fmt: skip
    A, C = matrices(mechanism)
    project = np.eye(domain.size) - np.linalg.pinv(C) @ C
    truth = A @ (
        project @ bounded.counts.ravel() + np.linalg.pinv(C) @ C @ everything.counts.ravel()
    )
    found = np.stack(
        [np.asarray(mechanism.release(bounded, everything=everything, seed=s).values, float)
         for s in range(RUNS)]
    )  # fmt: skip
    check_agreement(mechanism, found[0], everything)
    errors = found - truth
    half = np.asarray(mechanism.accuracy().margin_of_error(0.95))
    loose = half > 0
    assert np.abs(errors[:, ~loose]).max(initial=0) < 1e-7
    spread = np.asarray(mechanism.accuracy().stderr)[loose] / math.sqrt(RUNS)
    assert np.all(np.abs(errors[:, loose].mean(axis=0)) < 6.5 * spread)
    for h in (np.abs(errors) <= half + 1e-9).sum(axis=0)[loose]:
        assert proportion_bounds(int(h), RUNS)[1] >= 0.95
    with pytest.raises(ReleaseError, match="capped=True"):
        mechanism.release(bounded, seed=1)


def test_margins_of_a_release_and_questions_by_label():
    mechanism = made(CASES["equal levels"], decimals=0)
    table = table_of(EQUAL)
    release = mechanism.release(table, seed=5)
    both = release.margin("g", "b")
    assert both.value.shape == (2, 3)
    assert np.array_equal(both.value.sum(axis=1), release.margin("g").value)
    assert np.all(release.margin("g").stderr == 0)
    one = release.estimate(release.where(b=1))
    assert one.value == release.margin("b").value[1]
    assert one.stderr > 0
    with pytest.raises(DomainError, match="does not follow"):
        made(CASES["two-way"]).release(table_of(PLAIN), seed=1).margin("a", "c")


def test_tables_of_margins_give_the_same_release_as_the_table():
    mechanism = made(CASES["beyond"])
    table = table_of(PLAIN)
    data = sdp.MarginTables(
        PLAIN,
        {
            ("a", "b"): PLAIN.margin("a", "b").sum(table.counts)[:, :, 0],
            ("b", "c"): PLAIN.margin("b", "c").sum(table.counts)[0],
        },
    )
    assert np.array_equal(
        mechanism.release(table, seed=9).values, mechanism.release(data, seed=9).values
    )


def test_weights_and_objectives_move_the_error():
    def errors(weights=None, **options):
        query = sdp.Margins(PLAIN, [["a", "b"], ["b", "c"]], weights)
        mechanism = sdp.design(query, None, sdp.ZCDP(0.5), mechanism=MarginalsOptions(**options))
        per_cell = mechanism.expected_error().per_cell
        return per_cell[:6].mean(), per_cell[6:].mean(), mechanism.mechanism.strategy

    even, first = errors([1, 1]), errors([10, 1])
    assert first[0] < even[0]
    assert first[1] > even[1]
    assert even[2].objective == "balanced"
    assert first[2].objective == "sum"
    largest = errors(objective="largest")[2]
    assert largest.goal <= errors(objective="balanced")[2].goal
    assert largest.bound <= largest.goal * (1 + 1e-9)


def test_a_grand_total_without_noise_keeps_its_digits():
    for kind in ("replace", "pure"):
        for decimals in (0, 2):
            mechanism = made((PLAIN, [["a", "b"], ["a", "c"]], None), kind, decimals=decimals)
            table = table_of(PLAIN)
            for seed in range(10):
                total = mechanism.release(table, seed=seed).margin()
                assert total.value == pytest.approx(table.counts.sum(), rel=1e-12)
                assert total.stderr == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decimals", [None, 0])
def test_edges(kind, decimals):
    """An axis of one label, groups without labels, one chain, everything but one thing held."""
    one = sdp.Axis("one", ["only"])
    chain = sdp.Axis("l", range(3), levels={"g": [0, 1, 2], "r": [0, 0, 1]})
    empty = UNEQUAL.axes[0]
    for axes, margins, held in (
        ([one, PLAIN.axes[1]], [["one", "b"], ["one"]], None),
        ([chain, PLAIN.axes[1]], [["l", "b"], ["g", "b"], ["r"]], None),
        ([chain], [["l"], ["g"]], hold("r")),
        ([empty, PLAIN.axes[0]], [["l", "a"], ["g"]], hold("g")),
        ([empty, PLAIN.axes[0]], [["g", "a"], ["g"]], None),
        ([THREE.axes[0], PLAIN.axes[1]], [["l", "b"], ["g"]], hold("l") & hold("g", "b")),
    ):
        domain = sdp.Domain(axes)
        mechanism = made((domain, margins, held), kind, decimals=decimals)
        table = table_of(domain)
        release = mechanism.release(table, seed=1)
        assert release.verify().ok
        check_agreement(mechanism, np.asarray(release.values), table)
        assert np.all(np.isfinite(release.stderr()))
