"""Workloads of margins from design to files."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from subspacedp.ellipsoids.shares import shares_for
from subspacedp.mechanisms.margins import with_budget
from tests import margin_oracle as oracle

import subspacedp as sdp
from subspacedp.errors import BudgetError, DomainError, ReleaseError, SubspaceDPError
from subspacedp.mechanisms import margins
from subspacedp.noise import Keystream
from subspacedp.release import verify_folder
from subspacedp.release.rebuild import rebuild_design
from subspacedp.subspace import plan_contrasts

PLAIN = oracle.plain(2, 3, 4)
EQUAL, UNEQUAL = oracle.equal_levels(), oracle.unequal_levels()
CASES = {
    "two-way": (PLAIN, [["a", "b"], ["b", "c"]], None),
    "one-way held": (PLAIN, oracle.all_of_order(PLAIN, 2), sdp.hold("a") & sdp.hold("c")),
    "beyond": (PLAIN, [["a", "b"], "c"], sdp.hold("b", "c")),
    "equal levels": (EQUAL, [["l", "b"], ["g", "b"]], sdp.hold("g")),
    "unequal levels": (UNEQUAL, ["l", ["g", "b"]], sdp.hold("b")),
}
DESIGNS = [
    ("optimal", sdp.ZCDP(0.5), sdp.ReplaceOne()),
    ("optimal", sdp.ApproxDP(1.0, 1e-6), sdp.AddRemoveOne(records=2)),
    ("projected", sdp.PureDP(1.0), sdp.ReplaceOne()),
    ("projected", sdp.GaussianDP(1.0), sdp.AddRemoveOne()),
]
IDS = ["optimal-replace", "optimal-add-2", "projected-pure", "projected-gaussian"]


def made(case, kind=DESIGNS[0], **options):
    domain, margins, held = case
    name, budget, relation = kind
    return sdp.design(
        sdp.Margins(domain, margins), held, budget, mechanism=name, neighbours=relation, **options
    )


def table_of(domain, seed=0, high=40):
    return sdp.Table(np.random.default_rng(seed).integers(0, high, domain.shape), domain)


def linear_map(mechanism):
    """What every measured integer adds to every answer, and the standard deviations."""
    answers = mechanism._totals(table_of(mechanism.design.domain)) * 0
    exact = mechanism.design.held.sums(answers)
    keys = mechanism.design.strategy
    plan = keys.plan
    if mechanism.design.mechanism == "optimal":
        shapes = [p.shape for p in plan.parts]
        laws = [np.broadcast_to(plan.scales(p), p.shape).ravel() for p in plan.parts]
        deviations = np.concatenate([np.sqrt(s**2 + (s > 0) / 12) for s in laws])
    else:
        shapes = [t.shape for t in plan.tables]
        deviations = np.concatenate(
            [np.where(t.empty.ravel(), 0, math.sqrt(law.variance))
             for t, law in zip(plan.tables, keys.laws, strict=True)]
        )  # fmt: skip
    size = sum(math.prod(s) for s in shapes)
    extra = int(mechanism._total_measured)
    columns = []
    for row in np.eye(size, dtype=np.int64):
        noisy = np.concatenate([row * 2**20, np.zeros(extra, np.int64)])
        columns.append(mechanism.reconstruct(noisy, exact, Keystream(bytes(32))) / 2**20)
    return np.stack(columns, 1), deviations


@pytest.mark.parametrize("kind", DESIGNS, ids=IDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_covariances_are_those_of_the_explicit_linear_map(case, kind):
    mechanism = made(case, kind)
    B, deviations = linear_map(mechanism)
    covariance = (B * deviations) @ (B * deviations).T
    noise = mechanism.design.noise
    n = mechanism.design.query.size
    found = noise.covariance(np.eye(n))
    scale = np.abs(covariance).max()
    assert np.allclose(found, covariance, rtol=0, atol=1e-9 * scale)
    assert np.allclose(noise.cell_variance(), np.diag(covariance), rtol=0, atol=1e-9 * scale)
    w = np.random.default_rng(1).normal(size=n)
    assert math.isclose(noise.variance(w), w @ covariance @ w, rel_tol=1e-9)
    law = noise.law_of(w)
    assert law.margin_of_error(0.05) == pytest.approx(
        1.96 * math.sqrt(w @ covariance @ w), rel=0.05
    )


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("kind", DESIGNS, ids=IDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_releases_are_unbiased_and_keep_what_is_held(case, kind, decimals):
    """A z-test of every answer over 120 releases, and intervals that cover at their level."""
    mechanism = made(case, kind, decimals=decimals)
    domain = case[0]
    table = table_of(domain)
    truth = mechanism.design.query.answers(table)
    runs = 120
    found = np.stack([mechanism.release(table, seed=s).values for s in range(runs)])
    variance = mechanism.expected_error().per_cell
    spread = np.sqrt(np.maximum(variance, 1e-20) / runs)
    assert np.all(np.abs(found.mean(axis=0) - truth) <= 6.5 * spread + 1e-9)
    ratio = ((found - truth) ** 2).mean(axis=0).sum() / variance.sum()
    assert ratio < 1.5
    if decimals is None:
        assert ratio > 0.6
    release = mechanism.release(table, seed=1)
    assert release.verify().ok, release.verify()
    for m, c in zip(mechanism.design.held.margins, release.exact, strict=True):
        assert np.array_equal(c, m.sum(table.counts))
        if any(w.determines(m) for w in mechanism.design.query.margins):
            values = mechanism.design.query.totals(np.asarray(release.values), m)
            same = np.array_equal(values, c) if decimals == 0 else np.allclose(values, c)
            assert same
    lower, upper = release.interval(0.95)
    covered = (found - truth >= lower - release.values) & (found - truth <= upper - release.values)
    # Of 120 intervals that cover with probability 0.95, 23 or more fail with one below 1e-7.
    assert covered.mean(axis=0).min() > 1 - 23.5 / 120


@pytest.mark.parametrize("kind", DESIGNS, ids=IDS)
@pytest.mark.parametrize("decimals", [None, 0, 1])
def test_saved_loaded_and_verified(tmp_path, kind, decimals):
    mechanism = made(CASES["one-way held"], kind, decimals=decimals)
    release = mechanism.release(table_of(PLAIN), seed=3)
    release.save(tmp_path / "r")
    loaded = sdp.Release.load(tmp_path / "r")
    assert np.array_equal(loaded.values, release.values)
    assert np.allclose(loaded.stderr(), release.stderr(), rtol=1e-12)
    checked = verify_folder(tmp_path / "r")
    assert checked.ok, checked
    kinds = {c.name for c in checked.checks}
    assert {"held totals are kept", "margins agree with each other"} <= kinds
    schema = json.loads(sdp.certificate_schema())
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads((tmp_path / "r" / "certificate.json").read_text()), schema)


def test_an_altered_release_is_found(tmp_path):
    mechanism = made(CASES["one-way held"], decimals=0)
    release = mechanism.release(table_of(PLAIN), seed=3)
    values = release.values.copy()
    values[0] += 1
    wrong = sdp.Release(
        design=release.design, values=values, exact=release.exact, release_id=release.release_id,
        seeded=True, version=release.version,
    )  # fmt: skip
    assert not wrong.verify().ok


def test_a_certificate_with_less_noise_than_its_budget_buys_is_refused():
    for kind in (DESIGNS[0], DESIGNS[2]):
        data = json.loads(json.dumps(made(CASES["one-way held"], kind).design.as_dict()))
        rebuild_design(data)
        key = "contrasts" if kind[0] == "optimal" else "tables"
        data[key]["shares"] = [
            int(s * 1.01) if key == "tables" else s * 1.01 for s in data[key]["shares"]
        ]
        with pytest.raises(ReleaseError, match="budget"):
            rebuild_design(data)


def test_guarantees():
    plain = made(CASES["two-way"])
    assert plain.guarantee.kind == "plain"
    assert made(CASES["one-way held"]).guarantee.kind == "S"
    assert made(CASES["one-way held"], decimals=0).guarantee.kind == "G"
    assert made(CASES["equal levels"]).guarantee.kind == "S"
    uneven = made((UNEQUAL, [["g", "b"], "l"], sdp.hold("b") & sdp.hold()))
    assert made((UNEQUAL, [["l", "b"]], sdp.hold("g", "b"))).guarantee.kind == "S"
    assert uneven.guarantee.kind == "G"
    assert "unequal groups" in str(uneven.guarantee)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_exposed_is_the_projection_onto_the_held_rows(case):
    mechanism = made(case)
    query, held = mechanism.design.query, mechanism.design.held
    rows = oracle.matrix(query.domain, query.margins)
    keep = oracle.orthogonal_to(query.domain, held.margins)
    rng = np.random.default_rng(2)
    for w in [*rng.normal(size=(5, query.size)), np.eye(1, query.size)[0]]:
        question = w @ rows
        exposed = 1 - np.sum((question @ keep) ** 2) / np.sum(question**2)
        assert mechanism.guarantee.covers(w).share_exposed == pytest.approx(exposed, abs=1e-9)


def test_the_measurement_is_a_function_of_the_protected_part_where_s_is_claimed():
    """Tables that differ in the span of the held rows alone are measured alike."""
    for case in CASES.values():
        mechanism = made(case)
        if mechanism.guarantee.kind != "S":
            continue
        domain = case[0]
        plan = mechanism.design.strategy.plan
        C = oracle.matrix(domain, mechanism.design.held.margins)
        for row in C[:: max(1, len(C) // 6)]:
            table = row.reshape(domain.shape).astype(np.int64)
            for part in plan.parts:
                assert not np.any(plan.contrasts.whole_contrasts(part.sum(table), part, 1))


def test_error_equals_the_explicit_optimal_mechanism():
    margins = oracle.all_of_order(PLAIN, 2)
    for relation in (sdp.AddRemoveOne(), sdp.ReplaceOne()):
        ours = sdp.design(
            sdp.Margins(PLAIN, margins), None, sdp.GaussianDP(0.1), mechanism="optimal",
            neighbours=relation,
        )  # fmt: skip
        A = oracle.matrix(PLAIN, [PLAIN.margin(*m) for m in margins])
        explicit = sdp.design(
            sdp.LinearQuery(A), None, sdp.GaussianDP(0.1), mechanism="optimal", neighbours=relation
        )
        assert ours.expected_error().total == pytest.approx(
            explicit.expected_error().total, rel=1e-3
        )
        assert ours.optimality().gap < 1e-3


def test_weights_move_the_error():
    def error(weights):
        query = sdp.Margins(PLAIN, [["a", "b"], ["b", "c"]], weights)
        mechanism = sdp.design(query, None, sdp.ZCDP(0.5), mechanism="optimal")
        per_cell = mechanism.expected_error().per_cell
        assert mechanism.optimality().gap < 1e-3
        return per_cell[:6].sum(), per_cell[6:].sum()

    first, second = error([1, 1]), error([10, 1])
    assert second[0] < first[0]
    assert second[1] > first[1]


def test_margins_of_a_release_and_questions_by_label():
    mechanism = made(CASES["equal levels"], decimals=0)
    table = table_of(EQUAL)
    release = mechanism.release(table, seed=5)
    both = release.margin("g", "b")
    assert both.value.shape == (2, 3)
    assert np.array_equal(both.value.sum(axis=1), release.margin("g").value)
    assert np.all(release.margin("g").stderr == 0)
    assert np.array_equal(release.margin("g").value, EQUAL.margin("g").sum(table.counts).ravel())
    one = release.estimate(release.where(b=1))
    assert one.value == release.margin("b").value[1]
    assert one.stderr > 0
    assert mechanism.margin_accuracy("b").stderr == pytest.approx(release.margin("b").stderr)
    with pytest.raises(DomainError, match="does not follow"):
        made(CASES["two-way"]).release(table_of(PLAIN), seed=1).margin("a", "c")
    frame = release.to_frame()
    assert frame.column_names == ["margin", "l", "g", "b", "value", "stderr"]
    with pytest.raises(ReleaseError, match="no one array"):
        release.to_xarray()


def test_capped_designs_hold_totals_of_all_records():
    domain = PLAIN
    bounded, everything = table_of(domain, 1, 10), table_of(domain, 1, 10)
    everything = sdp.Table(everything.counts + 1, domain)
    mechanism = sdp.design(
        sdp.Margins(domain, [["a", "b"]]), sdp.hold("a"), sdp.ZCDP(0.5), mechanism="optimal",
        decimals=0, capped=True, neighbours=sdp.ReplaceOne(records=2),
    )  # fmt: skip
    release = mechanism.release(bounded, everything=everything, seed=1)
    assert np.array_equal(
        release.margin("a").value, domain.margin("a").sum(everything.counts).ravel()
    )
    assert release.verify().ok
    with pytest.raises(ReleaseError, match="capped=True"):
        mechanism.release(bounded, seed=1)


def many_axes(n):
    domain = sdp.Domain([sdp.Axis(f"x{i}", range(2 + i % 2)) for i in range(n)])
    return sdp.Margins(domain, [["x0", "x1"], *([axis.name] for axis in domain.axes)])


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("n", [24, 25, 40])
def test_many_axes_where_a_person_may_have_no_record(n, records, capped):
    relation = sdp.ReplaceOne(records=records)
    made = sdp.design(
        many_axes(n), None, sdp.GaussianDP(1.0), mechanism="optimal", decimals=0,
        neighbours=relation, capped=capped,
    )  # fmt: skip
    plan = made.design.strategy.plan
    assert np.all(np.isfinite(plan.shares) & (plan.shares > 0))
    assert made.optimality().gap < 0.25
    # One record alone, and pairs that differ on one axis, on the first two, and on all.
    share = {tuple(plan.contrasts.kept(p)): b for p, b in zip(plan.parts, plan.shares, strict=True)}
    size = [len(axis) for axis in plan.contrasts.domain.axes]

    def pair(*axes):
        x = {a: -1 / (size[a] - 1) for a in axes}
        return sum(
            2 * b * (1 - math.prod(x.get(a, 1.0) for a in part)) for part, b in share.items()
        )

    pairs = [pair(0), pair(1), pair(2), pair(0, 1), pair(*range(n))]
    alone = sum(plan.shares) if capped or records > 1 else 0.0
    assert max(*pairs, alone) * records**2 <= 1.0
    # The twin: the split that is best for pairs alone has no share for the total.
    if n > 24 and alone:
        assert plan.kinds.longest[0] == 0 == len(plan.contrasts.kept(plan.parts[0]))
        with np.errstate(divide="ignore"):
            assert not np.all(np.isfinite(shares_for(plan.costs, plan.kinds.longest)))


def test_many_axes_are_released_and_kept():
    query = many_axes(25)
    made = sdp.design(
        query, None, sdp.ZCDP(0.5), mechanism="optimal", decimals=0, capped=True,
        neighbours=sdp.ReplaceOne(records=2),
    )  # fmt: skip
    counts = {("x0", "x1"): np.array([[3, 1, 2], [0, 4, 2]])}
    counts.update({(f"x{i}",): np.array([5, 7, 0][: 2 + i % 2]) for i in range(2, 25)})
    data = sdp.MarginTables(query.domain, counts)
    release = made.release(data, everything=data, seed=1)
    assert release.verify().ok
    assert release.margin("x3").value.sum() == release.margin("x0").value.sum()


@pytest.mark.parametrize(
    ("sizes", "relation", "ratio", "stated"),
    [
        ([1, 1, 15, 1, 1, 1, 1, 1], sdp.ReplaceOne(), 1.647, 3.75),
        ([1, 1, 15, 1, 1, 1, 1, 1], sdp.AddRemoveOne(), 1.579, 2.61),
        ([1] * 10 + [40], sdp.ReplaceOne(), 1.717, 2.85),
        ([3, 3], sdp.ReplaceOne(), 1.0, 1.0),
    ],
)
def test_groups_of_unequal_size_are_as_far_from_the_best_as_the_pages_say(
    sizes, relation, ratio, stated
):
    groups = np.repeat(np.arange(len(sizes)), sizes).tolist()
    domain = sdp.Domain([sdp.Axis("tract", range(len(groups)), levels={"county": groups})])
    query = sdp.Margins(domain, ["tract", "county"])
    made = sdp.design(query, None, sdp.GaussianDP(1.0), mechanism="optimal", neighbours=relation)
    least, bound = oracle.explicit_optimum(query, [], relation, 1e-3)
    error = made.expected_error().total
    assert error / least - 0.002 <= ratio <= error / bound + 0.002
    words = str(made.optimality())
    if stated > 1.1:
        assert words.startswith(f"at most {stated:.2f} times the error of the best possible")
        assert words.endswith("as far as a lower bound shows")
    else:
        assert words.startswith("within 0.0")


def test_tables_of_margins_give_the_same_release_as_the_table():
    mechanism = made(CASES["beyond"])
    table = table_of(PLAIN)
    tables = {
        ("a", "b"): PLAIN.margin("a", "b").sum(table.counts)[:, :, 0],
        ("b", "c"): PLAIN.margin("b", "c").sum(table.counts)[0],
    }
    data = sdp.MarginTables(PLAIN, tables)
    one, two = mechanism.release(table, seed=9), mechanism.release(data, seed=9)
    assert np.array_equal(one.values, two.values)


def test_a_domain_beyond_64_bits():
    sizes = [40, 35, 30, 25, 20, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 2]
    domain = sdp.Domain([sdp.Axis(f"x{i}", range(n)) for i, n in enumerate(sizes)])
    assert domain.size > 2**64
    names = [axis.name for axis in domain.axes[:6]]
    query = sdp.Margins(domain, [list(pair) for pair in itertools.combinations(names, 2)])
    held = sdp.hold("x0") & sdp.hold("x1")
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, n, 5000) for n in sizes[:6]]
    tables = {}
    for i, j in itertools.combinations(range(6), 2):
        flat = codes[i] * sizes[j] + codes[j]
        tables[f"x{i}", f"x{j}"] = np.bincount(flat, minlength=sizes[i] * sizes[j]).reshape(
            sizes[i], sizes[j]
        )
    data = sdp.MarginTables(domain, tables)
    for decimals in (None, 0):
        mechanism = sdp.design(
            query, held, sdp.ZCDP(0.5), mechanism="auto", decimals=decimals,
            neighbours=sdp.ReplaceOne(),
        )  # fmt: skip
        release = mechanism.release(data, seed=1)
        assert release.verify().ok
        assert mechanism.guarantee.covers(np.eye(1, query.size)[0]).share_exposed > 0
        assert np.array_equal(release.margin("x0").value, np.bincount(codes[0], minlength=40))
        assert release.values.shape == (query.size,)


def test_inference_works_on_the_answers():
    mechanism = made(CASES["one-way held"], decimals=0)
    release = mechanism.release(table_of(PLAIN), seed=4)
    w = release.where(a=1, b=2)
    found = release.estimate(w)
    tested = sdp.inference.test_value(release, w, found.value)
    assert tested.pvalue == 1
    draws = np.stack(list(sdp.inference.replicates(release, 200, seed=1)))
    variance = (draws @ w).var()
    assert 0.4 * found.stderr**2 < variance < 1.6 * found.stderr**2
    for draw in draws[:20]:
        assert not np.any(mechanism.design.query.totals(draw, PLAIN.margin("a")))
    ratio = release.ratio(w, release.where(a=1))
    assert ratio.stderr > 0
    for refused in (
        lambda: sdp.inference.combine(release, mechanism.release(table_of(PLAIN), seed=5)),
        lambda: sdp.inference.biased_non_negative(release),
        lambda: sdp.inference.Likelihood(release),
    ):
        assert sentence(refused).endswith(".")


def test_a_budget_for_a_margin_of_error():
    query = sdp.Margins(PLAIN, [["a", "b"], ["b", "c"]])
    options = {"mechanism": "optimal", "margin": ["b"], "like": sdp.ZCDP(1.0)}
    budget = sdp.budget_for(query, sdp.hold("a"), margin_of_error=5.0, **options)
    mechanism = sdp.design(query, sdp.hold("a"), budget, mechanism="optimal")
    assert mechanism.margin_accuracy("b").margin_of_error(0.95).max() <= 5.0


def sentence(function):
    with pytest.raises(SubspaceDPError) as caught:
        function()
    return str(caught.value)


def test_bad_input_is_told_in_one_sentence():
    query = sdp.Margins(PLAIN, [["a", "b"]])
    zcdp = sdp.ZCDP(0.5)
    assert sentence(lambda: sdp.design(query, sdp.hold("a", "b"), zcdp, mechanism="optimal")) == (
        "What is held fixes every answer: nothing is left to protect."
    )
    assert "did you mean `a`?" not in sentence(
        lambda: sdp.design(query, sdp.hold("zzz"), zcdp, mechanism="optimal")
    )
    assert sentence(lambda: sdp.design(query, sdp.hold("zzz"), zcdp)).startswith(
        "The domain has no level `zzz`."
    )
    assert "hold margins alone" in sentence(
        lambda: sdp.design(query, sdp.LinearInvariants(np.ones((1, 6))), zcdp)
    )
    assert "adds Gaussian noise" in sentence(
        lambda: sdp.design(query, None, sdp.PureDP(1.0), mechanism="optimal")
    )
    assert "not for workloads" in sentence(
        lambda: sdp.design(query, None, zcdp, mechanism="extended")
    )
    assert "too small" in sentence(
        lambda: sdp.design(query, None, sdp.GaussianDP(1e-12), mechanism="optimal")
    )
    assert "no noise would be left" in sentence(
        lambda: sdp.design(query, None, sdp.GaussianDP(1e6), mechanism="optimal")
    )
    assert "has its weights" in sentence(
        lambda: sdp.design(query, None, zcdp, mechanism="optimal", importance=np.ones(6))
    )
    mechanism = sdp.design(query, None, zcdp, mechanism="optimal")
    other = oracle.plain(2, 3, 5)
    assert "not on the domain" in sentence(lambda: mechanism.release(table_of(other)))
    assert "Expected a `Table`" in sentence(lambda: mechanism.release([1, 2]))
    huge = np.zeros(PLAIN.shape, np.int64)
    huge[0, 0, 0] = 2**44
    assert "2**43" in sentence(lambda: mechanism.release(sdp.Table(huge, PLAIN)))


LEVELS_ALONE = (UNEQUAL, [["g", "b"]], sdp.hold("b"))  # groups of 4, 2 and 1 labels, labels unasked


def mean_moves(mechanism, kind):
    """The largest (shift of the mean)ᵀ Cov⁺ (shift) over all pairs or single records.

    Of Π_N(release) for S; of the release, over changes that keep what is held, for G.
    """
    query, relation = mechanism.design.query, mechanism.design.neighbours
    A = oracle.matrix(query.domain, query.margins)
    margins = mechanism.design.held.margins
    keep = oracle.orthogonal_to(query.domain, margins)
    cells = np.eye(query.domain.size)
    pairs = (cells[:, None] - cells[None]).reshape(-1, query.domain.size)
    changes = (cells if relation.persons == 1 else pairs).T
    if kind == "G":
        kept = ~np.any(oracle.matrix(query.domain, margins) @ changes, axis=0)
        moves = A @ changes[:, kept]
    else:
        moves = A @ keep @ changes
    covariance = mechanism.design.noise.covariance(np.eye(query.size))
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    assert np.allclose(covariance @ (inverse @ moves), moves, atol=1e-8)  # noise reaches all
    return np.einsum("ij,ij->j", moves, inverse @ moves).max(initial=0.0)


@pytest.mark.parametrize("name", ["optimal", "projected"])
@pytest.mark.parametrize("relation", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=["add", "replace"])
@pytest.mark.parametrize(
    "case", [*CASES.values(), LEVELS_ALONE], ids=[*CASES, "levels without labels"]
)
def test_the_law_of_the_release_has_the_stated_kind_of_privacy(case, relation, name):
    if case[2] is None:
        return
    mechanism = made(case, (name, sdp.GaussianDP(0.5), relation))
    assert mean_moves(mechanism, mechanism.guarantee.kind) <= 0.25 * (1 + 1e-9)


def test_levels_of_unequal_groups_are_not_orthogonal_also_where_labels_are_not_asked():
    """The twin: S would be wrong by a third in μ, for a question that nothing held answers."""
    mechanism = made(LEVELS_ALONE, ("optimal", sdp.GaussianDP(0.5), sdp.AddRemoveOne()))
    assert mechanism.guarantee.kind == "G"
    assert math.sqrt(mean_moves(mechanism, "S")) > 0.65


@pytest.mark.parametrize("decimals", [0, 2])
@pytest.mark.parametrize("kind", [DESIGNS[0], DESIGNS[2]], ids=[IDS[0], IDS[2]])
@pytest.mark.parametrize("margins", [[["a", "b"]], [["a", "b"], ["a", "c"]]])
def test_a_grand_total_without_noise_keeps_its_digits(margins, kind, decimals):
    """It is said to have no error, and is no meet of the margins that are asked."""
    mechanism = made((PLAIN, margins, None), kind, decimals=decimals)
    table = table_of(PLAIN)
    for seed in range(20):
        total = mechanism.release(table, seed=seed).margin()
        assert total.value == pytest.approx(table.counts.sum(), rel=1e-12)
        assert total.stderr == 0


def test_a_workload_that_nobody_can_change_is_told_by_both_mechanisms():
    query = sdp.Margins(PLAIN, [[]])
    for budget in (sdp.PureDP(1.0), sdp.ZCDP(0.5)):
        for name in ("projected", "auto"):
            found = sentence(lambda n=name, b=budget: sdp.design(query, None, b, mechanism=n))
            assert found == "No person can change what would be measured."


@pytest.mark.parametrize(
    "proof",
    [
        {"kinds": [[-1, -1, -1]], "weights": [1.0]},  # nobody is without a record
        {"kinds": [[0, 9, 0]], "weights": [1.0]},
        {"kinds": [[0, -1, 0]], "weights": [1.0]},
        {"kinds": [[0, 1, 0]], "weights": [0.0]},
        {"kinds": [], "weights": []},
        {"kinds": None, "weights": [0.5, 7.0]},
    ],
)
def test_a_bound_that_nothing_proves_is_refused(proof):
    data = json.loads(json.dumps(made(CASES["one-way held"]).design.as_dict()))
    data["contrasts"]["proof"] = proof
    with pytest.raises(ReleaseError, match="prove a bound"):
        rebuild_design(data)


def test_tables_that_no_source_determines_are_refused():
    data = json.loads(json.dumps(made(CASES["two-way"], DESIGNS[2]).design.as_dict()))
    data["tables"] = {"tables": [["a", "b", "c"]], "shares": [2**40]}
    with pytest.raises(ReleaseError, match="do not tell"):
        rebuild_design(data)


def test_a_total_that_nobody_alters_is_told_so():
    release = made((PLAIN, [["a", "b"]], None), decimals=0).release(table_of(PLAIN), seed=1)
    assert str(release.margin()).endswith("; no neighbouring change alters it, published exactly)")
    both = release.estimate(np.stack([np.ones(6), np.eye(6)[0]]))
    assert "; no neighbouring change alters 1 of them, published exactly" in str(both)
    held = made((PLAIN, [["a", "b"]], sdp.hold()), decimals=0).release(table_of(PLAIN), seed=1)
    assert "fixed by the invariants (the grand total)" in str(held.margin())


def test_a_question_with_a_misspelt_level():
    release = made(CASES["equal levels"]).release(table_of(EQUAL), seed=1)
    with pytest.raises(DomainError) as caught:
        release.where(bb=1)
    assert str(caught.value) == (
        "There is no axis or level `bb`; did you mean `b`? There are `l`, `g`, `b`."
    )


@pytest.mark.parametrize("kind", DESIGNS, ids=IDS)
def test_another_budget_scales_a_design(kind):
    """The same as designed for it, and accepted by the checks of a certificate."""
    name, budget, relation = kind
    parameter = {"ZCDP": "rho", "GaussianDP": "mu"}.get(type(budget).__name__, "epsilon")
    other = replace(budget, **{parameter: 0.37})
    for case in CASES.values():
        scaled, fresh = with_budget(made(case, kind), other), made(case, (name, other, relation))
        assert scaled.expected_error().total == pytest.approx(
            fresh.expected_error().total, rel=1e-9
        )
        rebuild_design(json.loads(json.dumps(scaled.design.as_dict())))


@pytest.mark.parametrize("name", ["optimal", "projected"])
def test_a_budget_out_of_range_is_refused_also_by_scaling(name):
    first = made(CASES["two-way"], (name, sdp.GaussianDP(1.0), sdp.ReplaceOne()))
    for mu in (1e-13, 1e7):
        with pytest.raises(BudgetError):
            with_budget(first, sdp.GaussianDP(mu))


def test_looking_for_a_budget_splits_it_once(monkeypatch):
    calls = []

    def counted(*arguments, **options):
        calls.append(1)
        return plan_contrasts(*arguments, **options)

    monkeypatch.setattr(margins, "plan_contrasts", counted)
    query = sdp.Margins(PLAIN, [["a", "b"], ["b", "c"]])
    for name in ("optimal", "auto"):
        calls.clear()
        options = {"mechanism": name, "like": sdp.ZCDP(1.0), "decimals": 0}
        budget = sdp.budget_for(query, sdp.hold("a"), margin_of_error=5.0, **options)
        assert len(calls) == 1
        largest = [
            sdp.design(query, sdp.hold("a"), sdp.ZCDP(rho), mechanism=name, decimals=0)
            .accuracy().margin_of_error(0.95).max()
            for rho in (budget.rho, budget.rho * 0.99)
        ]  # fmt: skip
        assert largest[0] <= 5.0 < largest[1]
