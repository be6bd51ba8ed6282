"""Classifications that cross, measured together: least squares, privacy, digits, files."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from tests import margin_oracle as oracle
from tests.mechanisms.contract import check_unbiased
from tests.mechanisms.marginals.test_marginals import (
    deviations,
    linear_map,
    matrices,
    mean_moves,
    orthogonal_questions,
    rebuilt,
)
from tests.mechanisms.marginals.test_spending import brute, shares_at_random, vectors
from tests.statistical import proportion_bounds

import subspacedp as sdp
from subspacedp.errors import DomainError, InvariantError, ReleaseError
from subspacedp.mechanisms.marginals import MarginalsOptions
from subspacedp.mechanisms.marginals import strategy as strategy_module
from subspacedp.mechanisms.marginals.graph_smoother import GraphSmoother
from subspacedp.mechanisms.marginals.interactions import Interactions
from subspacedp.mechanisms.marginals.plan import Regions, TableErrors
from subspacedp.mechanisms.marginals.spending import Replacements, spending_of
from subspacedp.release.folder_checks import verify_folder

hold = sdp.hold
ADD, REPLACE = sdp.AddRemoveOne(), sdp.ReplaceOne()
PLACES = sdp.Axis(
    "p",
    range(8),
    levels={"tract": [0, 1, 1, 2, 2, 2, 3, 3], "state": [0, 0, 0, 0, 0, 0, 1, 1]},
    groupings={
        "district": [0, 0, 1, 1, 2, 2, 2, 1],
        "grid": [0, 1, 0, None, 1, 0, None, 1],
        "again": ["a", "b", "b", "c", "c", "c", "d", "d"],  # tracts by another name
        "half": [0, None, 0, 1, 1, None, 1, 0],
        "one": [0] * 8,
    },
)
SEX = sdp.Axis("b", range(3))
DOMAIN = sdp.Domain([PLACES, SEX])
TURNED = sdp.Domain([SEX, PLACES])
MARGINS = [["tract"], ["district", "b"], ["grid"], ["state", "b"]]
CASES = {
    "free": (DOMAIN, MARGINS, None),
    "state": (DOMAIN, MARGINS, hold("state")),
    "district": (TURNED, MARGINS, hold("district")),
    "grid, with holes": (DOMAIN, MARGINS, hold("grid", "b")),
    "by sex": (DOMAIN, MARGINS, hold("state", "b") & hold("district")),
    "two that cross": (DOMAIN, MARGINS, hold("state") & hold("district")),
    "three that cross": (DOMAIN, [["district"]], hold("tract") & hold("district") & hold("grid")),
    "the same twice": (DOMAIN, [["again"], ["tract"], ["grid"]], hold("district")),
    "held twice": (DOMAIN, MARGINS, hold("again") & hold("tract")),
    "held twice, nested": (DOMAIN, [["tract"], ["b"]], hold("tract", "b") & hold("again", "b")),
    "two with holes": (DOMAIN, MARGINS, hold("grid") & hold("half")),
    "all in one group": (DOMAIN, [["one"], ["district"]], hold("one")),
    "one group and nothing held": (DOMAIN, [["one"], ["grid", "b"]], None),
    "groupings alone": (DOMAIN, [["district"], ["grid", "b"]], hold("b")),
}
KINDS = {
    "replace": (sdp.ZCDP(0.5), REPLACE, None),
    "add": (sdp.GaussianDP(1.0), ADD, None),
    "pure": (sdp.PureDP(1.0), REPLACE, None),
    "tables": (sdp.GaussianDP(1.0), ADD, "tables"),
}


def made(case, kind="replace", **options):
    domain, margins, held = case
    budget, relation, what = KINDS[kind]
    given = {"neighbours": relation, "mechanism": MarginalsOptions(margins=margins, measured=what)}
    return sdp.design(domain, held, budget, **{**given, **options})


def table_of(domain, seed=0, high=40):
    return sdp.Table(np.random.default_rng(seed).integers(0, high, domain.shape), domain)


# ---------------------------------------------------------------------------- least squares


def measured_matrix(mechanism):
    """What every cell adds to every measured integer, in answers: contrasts or totals."""
    inner = mechanism.mechanism
    inter, measurement = inner.interactions, inner.measurement
    rows = []
    for table in measurement.measured:
        margin = inter.margin(table.level, table.steps)
        columns = []
        for place in np.ndindex(inter.domain.shape):
            one = np.zeros(inter.domain.shape)
            one[place] = 1.0
            totals = inter.to_nodes(margin.sum(one), table.level)
            of_contrasts = inner.strategy.tables is None
            found = inter.contrasts(totals, table.steps) if of_contrasts else totals
            columns.append(found.ravel())
        rows.append(np.array(columns).T)
    return np.concatenate(rows)


def standard_deviations(mechanism, monkeypatch):
    """Of every measured integer, in answers."""
    inner = mechanism.mechanism
    drawn = deviations(mechanism, monkeypatch)
    drawn = drawn[: drawn.size - (1 if inner.total_measured else 0)]
    if inner.strategy.tables is not None:
        return drawn
    units = [
        np.broadcast_to(
            inner.measurement._units(interaction, level),
            (inner.interactions.tree.nodes(level), *inner.interactions.shape(interaction.steps)),
        ).ravel()
        for interaction, level in inner.measurement.pieces
    ]
    return drawn / np.concatenate(units)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_covariances_are_those_of_dense_least_squares(case, kind, monkeypatch):
    design = made(case, kind)
    inner = design.mechanism
    M, s = measured_matrix(design), standard_deviations(design, monkeypatch)
    M, s = M[s > 0], s[s > 0]  # a region of one held label is not measured
    _, C = matrices(design)
    projected = not inner.strategy.constrained
    A = np.ones((1, M.shape[1])) if inner.total_measured else C[:0]  # a total without noise
    A = A if projected else np.concatenate([C, A])
    _, values, rows = np.linalg.svd(A) if len(A) else (None, np.zeros(0), np.eye(M.shape[1]))
    Z = rows[int(np.sum(values > 1e-9)) :].T
    expected = Z @ np.linalg.inv(Z.T @ (M.T / s**2) @ M @ Z) @ Z.T
    if projected and inner.held.margins:
        keep = np.eye(len(expected)) - np.linalg.pinv(C) @ C
        expected = keep @ expected @ keep
    noise, scale = inner.noise, np.abs(expected).max()
    found = noise.covariance(np.eye(len(expected)))
    assert np.allclose(found, expected, rtol=0, atol=2e-9 * scale)
    B = linear_map(design) * deviations(design, monkeypatch)
    assert np.allclose(B @ B.T, expected, rtol=0, atol=2e-9 * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_variances_of_published_margins(case, kind):
    noise = made(case, kind).mechanism.noise
    for margin in noise.workload.margins:
        weights = [noise.indicator(margin, place).ravel() for place in np.ndindex(margin.shape)]
        wanted = np.diag(noise.covariance(np.array(weights)))
        found = noise.margin_variance(margin).ravel()
        assert np.allclose(found, wanted, rtol=1e-6, atol=1e-9)
        assert np.array_equal(found == 0, wanted < 1e-12)


def test_nothing_crosses_and_nothing_changes():
    """A grouping that nests makes a tree, and the same errors as a level."""
    codes, coarse = [0, 0, 1, 1, 1, 2, 2, 3], [0, 0, 0, 0, 0, 1, 1, 1]
    level = sdp.Axis("p", range(8), levels={"g": codes, "r": coarse})
    beside = sdp.Axis("p", range(8), levels={"r": coarse}, groupings={"g": codes})
    errors = []
    for axis in (level, beside):
        design = made((sdp.Domain([axis, SEX]), [["g"], ["r", "b"]], hold("r")), "replace")
        assert design.mechanism.interactions.nested
        errors.append([design.margin_accuracy(*m).stderr for m in (["p", "b"], ["g"], ["r", "b"])])
    for one, other in zip(*errors, strict=True):
        assert np.allclose(one, other, rtol=1e-9)


def test_the_graph_gives_what_the_tree_gives():
    from subspacedp.mechanisms.marginals.graph_smoother import GraphSystem
    from subspacedp.mechanisms.marginals.smoother import Smoother
    from subspacedp.mechanisms.marginals.tree import Overlap, Tree

    codes, coarse = [0, 0, 1, 1, 1, 2, 2, 3], [0, 0, 0, 0, 0, 1, 1, 1]
    axis = sdp.Axis("p", range(8), levels={"g": codes, "r": coarse})
    tree, overlap = Tree(axis, (0, 1, 2, 3)), Overlap(axis, (0, 1, 2, 3))
    tau = {0: 1.3, 1: 0.4, 2: 2.0, 3: 0.7}
    for constrained in (True, False):
        given = {lv: t for lv, t in tau.items() if not constrained or lv < 2}
        passes = Smoother(
            tree=tree, finest=0, held=2, constrained=constrained,
            precision=[np.full(len(n), given.get(lv, 0.0)) for lv, n in
                       enumerate(tree.orbits.number)],
        )  # fmt: skip
        system = GraphSystem(
            overlap=overlap, finest=0, exact=(2,) if constrained else (),
            held=None if constrained else 2, measured=tuple(lv for lv in given if lv),
        )  # fmt: skip
        graph = GraphSmoother(system, given)
        rng = np.random.default_rng(0)
        measured = {lv: rng.normal(size=(tree.nodes(lv), 2)) for lv in given}
        exact = {2: rng.normal(size=(2, 2))}
        one, other = passes.estimate(measured, exact), graph.estimate(measured, exact)
        for level in range(4):
            assert np.allclose(one[level], other[level], atol=1e-9)
            by_node = tree.spread(passes.variances[level], level)
            assert np.allclose(by_node, graph.variances[level], atol=1e-9)


# ---------------------------------------------------------------------------- privacy


def errors_of(case, relation):
    domain, margins, held = case
    held = () if held is None else tuple(held.margins_on(domain))
    asked = [domain.cells, *(domain.margin(*names) for names in margins)]
    inter = Interactions(domain=domain, workload=tuple(asked), held=held)
    return TableErrors(
        interactions=inter,
        regions=Regions(inter, None),
        constrained=len(held) > 1,
        total_known=relation.persons == 2 and relation.keeps_total,
    )


@pytest.mark.parametrize("relation", [ADD, REPLACE], ids=["add", "replace"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_spending_is_the_largest_change(case, relation):
    errors = errors_of(case, relation)
    for shares in shares_at_random(errors):
        rows, most = spending_of(errors, relation).sticking_out(shares)
        wanted = brute(errors, shares, relation)
        assert most == pytest.approx(wanted, rel=1e-9)
        assert wanted <= most * (1 + 1e-12)
        assert (rows @ shares).max() == pytest.approx(wanted, rel=1e-9)


class AsInATree(Replacements):
    """The twin: two records share a node at every level from the finest common one on."""

    @property
    def _meetings(self):
        levels = np.arange(len(self.errors.interactions.tree))
        found = self.errors.interactions.as_overlap.meetings
        return [((p, q), levels >= int(np.argmax(at))) for p, q, at in found]


def test_a_twin_that_takes_crossing_levels_for_a_tree_spends_too_much():
    errors = errors_of(CASES["free"], REPLACE)
    too_little = [
        AsInATree(errors, single=False).sticking_out(shares)[1] / brute(errors, shares, REPLACE)
        for shares in shares_at_random(errors, 20)
    ]
    assert min(too_little) < 0.95


@pytest.mark.parametrize("relation", [ADD, REPLACE], ids=["add", "replace"])
@pytest.mark.parametrize("kind", ["replace", "tables"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_law_of_the_release_has_the_stated_kind_of_privacy(case, kind, relation):
    design = made(case, kind, neighbours=relation)
    limit = design.mechanism.budget.gaussian_mu**2
    assert mean_moves(design, design.guarantee.kind) <= limit * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["state", "district", "grid, with holes", "groupings alone"])
def test_orthogonal_questions_do_not_depend_on_what_is_held(name, kind):
    design = made(CASES[name], kind)
    assert design.guarantee.kind == "S"
    first, *others = rebuilt(design, [table_of(CASES[name][0], seed) for seed in range(4)])
    for w in orthogonal_questions(design):
        assert max(abs(w @ other - w @ first) for other in others) < 1e-9


def test_several_that_cross_are_not_s():
    assert made(CASES["two that cross"]).guarantee.kind == "G"
    assert "cross" in made(CASES["two that cross"]).mechanism.conditional


def test_shares_are_nearly_the_best():
    for name, kind in itertools.product(CASES, ["replace", "add", "tables"]):
        strategy = made(CASES[name], kind).mechanism.strategy
        assert strategy.bound <= strategy.goal * (1 + 1e-9)
        assert strategy.goal <= 1.03 * strategy.bound, (name, kind)


def test_a_measured_district_beats_sums_of_cells():
    """Many small places: what the issue of noise is about."""
    rng = np.random.default_rng(3)
    places = sdp.Axis(
        "p", range(200), levels={"state": (np.arange(200) // 50).tolist()},
        groupings={"district": rng.permutation(200 * [*range(5)])[:200].tolist()},
    )  # fmt: skip
    domain = sdp.Domain([places, SEX])
    both = made((domain, [["district"]], hold("state")), "replace")
    alone = made((domain, [["state"]], hold("state")), "replace")
    district = domain.margin("district")
    with_noise = both.mechanism.noise.margin_variance(district).mean()
    as_sums = alone.mechanism.margin_figures(district).variance().mean()
    assert with_noise < as_sums / 4


# ---------------------------------------------------------------------------- digits and files

HELD = {name: case for name, case in CASES.items() if name != "three that cross"}
RUNS = 400


@pytest.mark.parametrize("kind", ["replace", "pure"])
@pytest.mark.parametrize("decimals", [0, 2])
@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_digits_add_up_to_what_is_held(case, kind, decimals, tmp_path):
    design = made(case, kind, decimals=decimals)
    table = table_of(case[0])
    release = design.release(table, seed=1)
    assert release.verify().ok
    whole = np.rint(release.values * 10**decimals).astype(np.int64)
    for margin in design.mechanism.held.margins:
        assert np.array_equal(margin.sum(whole), margin.sum(table.counts) * 10**decimals)
    release.save(tmp_path / "r")
    assert verify_folder(tmp_path / "r").ok


@pytest.mark.parametrize("name", ["state", "grid, with holes", "two that cross"])
@pytest.mark.parametrize("kind", ["replace", "pure"])
def test_digits_are_unbiased_and_intervals_cover(name, kind):
    case = CASES[name]
    design, table = made(case, kind, decimals=0), table_of(case[0])
    runs = [np.asarray(design.release(table, seed=s).values, float).ravel() for s in range(RUNS)]
    errors = np.stack(runs) - table.counts.ravel()
    district = matrices_of_margin(case[0], "district")
    check_unbiased(errors, np.concatenate([np.eye(case[0].size), district]), design)
    half = np.asarray(design.margin_accuracy("district").margin_of_error(0.95)).ravel()
    inside = np.abs(errors @ district.T) <= half + 1e-9
    for hits in inside.sum(axis=0):
        assert proportion_bounds(int(hits), RUNS)[1] >= 0.95
    stated = np.asarray(design.margin_accuracy("district").stderr).ravel() ** 2
    spread = (errors @ district.T).var(axis=0)
    assert np.all(spread <= stated * 1.35 + 1e-9)


def matrices_of_margin(domain, *names):
    return oracle.matrix(domain, [domain.margin(*names)])


def test_targets_of_groupings_are_met():
    options = MarginalsOptions(margins=[["district"], ["tract"]], targets=[None, 5.0, 8.0])
    least = sdp.design(
        DOMAIN, hold("state"), sdp.GaussianDP(1.0), neighbours=ADD, mechanism=options
    )
    worst = least.mechanism.strategy.goal
    district = least.margin_accuracy("district").margin_of_error(0.95).max() / 5.0
    tract = least.margin_accuracy("tract").margin_of_error(0.95).max() / 8.0
    assert max(district, tract) == pytest.approx(math.sqrt(worst), rel=0.08)
    assert min(district, tract) == pytest.approx(max(district, tract), rel=0.08)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", [hold("tract"), hold("again"), hold("district") & hold("again")])
def test_targets_of_what_is_held_are_refused(held, kind):
    """The cells get noise, and sums of them over tracts have none."""
    options = MarginalsOptions(margins=[["tract"]], targets=[None, 5.0])
    with pytest.raises(ReleaseError, match="published exactly"):
        made((DOMAIN, None, held), kind, mechanism=options)


def test_levels_that_several_held_ones_tell_together_buy_nothing():
    """Their shares teach the search for the best ones rounding alone."""
    axis = sdp.Axis(
        "p", range(5),
        groupings={"fine": [0, 0, 1, 2, 2], "pair": [0, 0, 1, 0, 0],
                   "late": [None, None, None, 0, 1]},
    )  # fmt: skip
    a, b = (sdp.Axis(x, range(4), levels={x + x: [0, 0, 1, 1]}) for x in "ab")
    held = hold("aa", "pair", "b") & hold("aa", "late", "b")
    mechanism = MarginalsOptions()
    design = sdp.design(
        sdp.Domain([a, axis, b]), held, sdp.GaussianDP(1.0), mechanism=mechanism, decimals=2,
        neighbours=sdp.ReplaceOne(records=2),
    )  # fmt: skip
    assert design.mechanism.gap() < 0.01


def test_targets_of_too_many_places_are_refused(monkeypatch):
    monkeypatch.setattr(strategy_module, "MOST_PLACES", 7)
    options = MarginalsOptions(margins=[["district"]], targets=[None, 5.0])
    with pytest.raises(ReleaseError, match="at most 7 labels of `p`"):
        sdp.design(DOMAIN, hold("state"), sdp.GaussianDP(1.0), mechanism=options)


def test_a_pure_budget_is_not_split_where_one_table_does_better():
    """Many tables of few cells: nearly all of ε on the cells, which tell the others."""
    strategy = made((DOMAIN, [["tract"], ["district"], ["grid"]], None), "pure").mechanism.strategy
    equal = replace(strategy, shares=(strategy_module.UNITS // 4,) * 4)
    assert strategy.goal < 0.9 * equal.proved(made(CASES["free"], "pure").mechanism.problem)[0]


def test_kinds_of_like_variance_are_taken_together(monkeypatch):
    from subspacedp.mechanisms.marginals import error_model

    exact = made(CASES["state"], decimals=0).mechanism.noise
    wanted = exact.margin_variance(DOMAIN.cells), exact.alike(DOMAIN.cells)
    monkeypatch.setattr(error_model, "MOST_KINDS", 4)
    binned = made(CASES["state"], decimals=0).mechanism.noise
    alike = binned.alike(DOMAIN.cells)
    assert np.allclose(binned.margin_variance(DOMAIN.cells), wanted[0], rtol=1e-12)
    largest = np.take(alike.variance, alike.kind)
    assert np.all(largest >= wanted[0] * (1 - 1e-12))
    assert np.all(largest <= wanted[0] * 1.0011)


@pytest.mark.parametrize("name", ["free", "by sex", "two that cross"])
def test_the_density_is_that_of_the_normal_law(name):
    design = made(CASES[name], "replace")
    noise, rng = design.mechanism.noise, np.random.default_rng(0)
    covariance = noise.covariance(np.eye(DOMAIN.size))
    values, vectors_ = np.linalg.eigh(covariance)
    free = values > 1e-9 * values.max()
    assert free.sum() == noise.dimension(DOMAIN.size)
    off = vectors_[:, free] @ (np.sqrt(values[free]) * rng.normal(size=free.sum()))
    inner = vectors_[:, free].T @ off
    logs = -0.5 * (np.sum(inner**2 / values[free]) + np.log(2 * math.pi * values[free]).sum())
    # In contrasts at their own scale: the density differs by a constant of the basis alone.
    other = vectors_[:, free] @ (np.sqrt(values[free]) * rng.normal(size=free.sum()))
    second = vectors_[:, free].T @ other
    wanted = logs + 0.5 * (
        np.sum(second**2 / values[free]) + np.log(2 * math.pi * values[free]).sum()
    )
    found = noise.log_normal(off.reshape(DOMAIN.shape)) - noise.log_normal(
        other.reshape(DOMAIN.shape)
    )
    # Closed forms leave out the rounding of noise with a scale of 1024 or more.
    assert found == pytest.approx(wanted, rel=1e-6)


# ---------------------------------------------------------------------------- bad input


def test_groupings_of_two_axes_are_refused():
    other = sdp.Axis("q", range(3), groupings={"h": [0, 1, 0]})
    with pytest.raises(DomainError, match="Groupings of one axis"):
        made((sdp.Domain([PLACES, other]), [["district"], ["h"]], None))


def test_margins_alone_take_levels_that_nest():
    with pytest.raises(InvariantError, match="release the cells"):
        sdp.design(sdp.Margins(DOMAIN, MARGINS), None, sdp.PureDP(1.0), mechanism="marginals")


def test_digits_of_three_that_cross_are_refused():
    with pytest.raises(InvariantError, match="two classifications"):
        made(CASES["three that cross"], decimals=0).release(table_of(DOMAIN), seed=1)


def test_the_density_of_a_projected_estimate_is_refused():
    noise = made(CASES["state"]).mechanism.noise
    with pytest.raises(ReleaseError, match="density"):
        noise.log_normal(np.zeros(DOMAIN.shape))


def test_vectors_of_records_in_no_group_are_shorter():
    """A record in a hole spends nothing on the grouping: the case the rows must tell apart."""
    errors = errors_of(CASES["free"], ADD)
    own = vectors(errors, np.ones(len(errors.slots)))
    lengths = (own**2).sum(axis=1).reshape(8, 3)
    assert lengths[3].max() < lengths[0].min()


def test_a_held_table_that_is_published_too_is_measured_once(tmp_path):
    """Twice would cost twice, and no reader would take its shares."""
    place = sdp.Axis(
        "p", range(8), {"l": [0, 0, 0, 0, 1, 1, 1, 1]}, groupings={"g": [0, 0, 1, 1, 1, None, 2, 2]}
    )
    domain = sdp.Domain([place, sdp.Axis("s", range(2))])
    design = sdp.design(
        domain, sdp.hold("l"), sdp.PureDP(1.0), mechanism=sdp.Marginals(margins=[["l"], ["g"]])
    )
    tables = design.mechanism.strategy.tables
    assert len(set(tables)) == len(tables) == 3
    design.release(sdp.Table(np.ones(domain.shape, np.int64), domain)).save(tmp_path / "r")
    assert sdp.load(tmp_path / "r").verify().ok
