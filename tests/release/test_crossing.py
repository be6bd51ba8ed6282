"""Releases with held classifications that cross: exact, unbiased, and the same when read back."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp
from scipy.spatial import cKDTree

import subspacedp as sdp
from subspacedp.agents import Partition, Secret, collect, make_plan, privatize
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.inference import combine, non_negative
from subspacedp.invariants.linear import hold_matrix
from subspacedp.noise import Keystream
from subspacedp.rounding import GroupProfiles

PLACE = sdp.Axis(
    "block", list("abcdefg"), {"county": list("xxxyyyy")},
    groupings={"school": ["N", "N", "M", "M", "M", None, "S"], "grid": [1, 2, 1, 2, 1, 2, 1]},
)  # fmt: skip
DOMAIN = sdp.Domain([sdp.Axis("sex", ["F", "M"]), PLACE])
TABLE = sdp.Table(np.random.default_rng(0).poisson(9, DOMAIN.shape), DOMAIN)
BOTH = sdp.hold("county") & sdp.hold("school")


def texas(tracts, counties, side, cells, seed=0):
    """Invented tracts in counties, a square grid across them, and cells in every tract."""
    rng = np.random.default_rng(seed)
    where = rng.random((tracts, 2))
    county = cKDTree(rng.random((counties, 2))).query(where)[1]
    square = (where[:, 0] * side).astype(int) * side + (where[:, 1] * side).astype(int)
    order = np.argsort(county, kind="stable")
    axis = sdp.Axis(
        "tract", range(tracts), {"county": county[order].tolist()},
        groupings={"grid": square[order].tolist()},
    )  # fmt: skip
    domain = sdp.Domain([axis, sdp.Axis("cell", range(cells))])
    return sdp.Table(rng.poisson(20, domain.shape), domain)


def totals(domain, names, values):
    return domain.margin(*names).sum(np.asarray(values))


@pytest.mark.parametrize("decimals", [0, 2])
@pytest.mark.parametrize(
    "held", [BOTH, sdp.hold("county", "sex") & sdp.hold("school", "sex"), sdp.hold("grid", "sex")]
)
def test_held_totals_are_kept_in_whole_numbers(held, decimals):
    for budget in (sdp.PureDP(0.5), sdp.ZCDP(0.05)):
        release = sdp.design(DOMAIN, held, budget, decimals=decimals).release(TABLE, seed=4)
        steps = np.rint(np.asarray(release.values) * 10**decimals).astype(np.int64)
        for names in held.margins:
            wanted = totals(DOMAIN, names, TABLE.counts) * 10**decimals
            assert np.array_equal(totals(DOMAIN, names, steps), wanted)
        assert release.guarantee.kind == "G"
        assert release.verify().ok


def test_a_value_altered_within_all_totals_but_one_is_seen():
    release = sdp.design(DOMAIN, BOTH, sdp.PureDP(1.0), decimals=0).release(TABLE, seed=1)
    values = np.array(release.values)
    values[0, 1] += 1
    values[0, 2] -= 1  # the same county, another school
    assert not replace(release, values=values).verify().ok


def test_texas_in_whole_numbers_is_exact_and_unbiased():
    table = texas(600, 40, 6, 4)
    domain = table.domain
    for held in (
        sdp.hold("county") & sdp.hold("grid"),
        sdp.hold("county", "cell") & sdp.hold("grid", "cell"),
    ):
        design = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0)
        errors = []
        for seed in range(40):
            values = design.release(table, seed=seed).values
            for names in held.margins:
                assert np.array_equal(
                    totals(domain, names, values), totals(domain, names, table.counts)
                )
            errors.append(values - table.counts)
        each = np.asarray(design.stderr() if hasattr(design, "stderr") else
                          design.mechanism.noise.cell_variance() ** 0.5)  # fmt: skip
        z = np.mean(errors, axis=0) / each * np.sqrt(40)
        assert np.abs(z).max() < 6
        spread = np.mean(np.square(errors)) / np.mean(each**2)
        assert 0.9 < spread < 1.02


def test_a_rounding_of_the_same_totals_is_feasible_as_a_solver_says():
    """HiGHS finds whole tables with the totals, within one of the real values; ours is near."""
    table = texas(40, 6, 3, 2)
    domain = table.domain
    held = sdp.hold("county", "cell") & sdp.hold("grid")
    design = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0)
    bound, rounding = design.mechanism.held, design.mechanism.rounding
    wanted = bound.sums(table.counts)[0]
    noisy = table.counts + np.random.default_rng(2).integers(-9, 10, domain.shape)
    residual = bound.residual(noisy, (wanted,))
    real = noisy - bound.space.lift(residual)
    words = Keystream(bytes(32))
    digits = rounding.round_in_place(noisy.copy(), residual, words)
    assert np.array_equal(bound.sums(digits)[0], wanted)
    found = milp(
        np.zeros(domain.size),
        integrality=np.ones(domain.size),
        bounds=(np.floor(real).ravel(), np.ceil(real).ravel()),
        constraints=LinearConstraint(bound.matrix.astype(float), wanted, wanted),
    )
    assert found.status == 0  # bipartite graphs have whole vertices
    assert np.abs(digits - real).max() < rounding.most


@pytest.mark.parametrize("held", [BOTH, sdp.hold("school", "sex"), sdp.hold("county"), None])
@pytest.mark.parametrize("decimals", [None, 0])
def test_margins_of_groupings_have_the_error_of_their_weights(held, decimals):
    release = sdp.design(DOMAIN, held, sdp.PureDP(1.0), decimals=decimals).release(TABLE, seed=3)
    noise = release.mechanism.noise
    for names in (("school",), ("sex", "grid"), ("county",), ("sex", "block"), ()):
        margin = DOMAIN.margin(*names)
        estimate = release.margin(*names)
        for i, group in enumerate(np.ndindex(margin.shape)):
            one = np.zeros(margin.shape)
            one[group] = 1.0
            w = np.array(np.broadcast_to(margin.spread(one), DOMAIN.shape))
            assert np.ravel(estimate.stderr)[i] == pytest.approx(noise.variance(w) ** 0.5, abs=1e-7)
            assert np.ravel(estimate.value)[i] == pytest.approx(np.sum(w * release.values))
    school = release.estimate(release.where(school="M", sex="F"))
    assert school.value == pytest.approx(np.asarray(release.values)[0, 2:5].sum())


def test_a_saved_release_is_read_back_with_its_groupings(tmp_path):
    release = sdp.design(DOMAIN, BOTH, sdp.PureDP(1.0), decimals=0).release(TABLE, seed=5)
    release.save(tmp_path / "folder")
    again = sdp.Release.load(tmp_path / "folder")
    assert again.mechanism.domain.matches(DOMAIN)
    assert np.array_equal(again.values, release.values)
    assert np.array_equal(again.margin("grid").stderr, release.margin("grid").stderr)
    assert again.verify().ok
    rows = (tmp_path / "folder" / "values.csv").read_text().splitlines()
    assert rows[0] == '"sex","block","county","school","grid","value","stderr"'
    assert rows[6].startswith('"F","f","y",,2,')  # in no school district
    assert release.to_frame("pandas")["school"].tolist()[5] == ""


def test_three_that_cross_are_real_valued_or_refused_in_one_sentence():
    three = BOTH & sdp.hold("grid")
    release = sdp.design(DOMAIN, three, sdp.PureDP(1.0)).release(TABLE, seed=1)
    assert release.guarantee.kind == "S"
    for names in three.margins:
        assert np.allclose(
            totals(DOMAIN, names, release.values), totals(DOMAIN, names, TABLE.counts)
        )
    with pytest.raises(InvariantError, match="hold two of them, or publish real values"):
        sdp.design(DOMAIN, three, sdp.PureDP(1.0), decimals=0)


@pytest.mark.parametrize("decimals", [None, 0])
def test_two_that_cross_are_held_where_all_is_measured_together(decimals):
    release = sdp.design(
        DOMAIN, BOTH, sdp.PureDP(1.0), mechanism="marginals", decimals=decimals
    ).release(TABLE, seed=1)
    assert release.guarantee.kind == "G"
    for names in BOTH.margins:
        ours, true = (totals(DOMAIN, names, of) for of in (release.values, TABLE.counts))
        assert np.array_equal(ours, true) if decimals == 0 else np.allclose(ours, true)


def test_two_chains_that_cross_add_up_at_all_their_levels():
    rng = np.random.default_rng(3)
    tract = rng.integers(0, 6, 24)
    square = rng.integers(0, 8, 24)
    axis = sdp.Axis(
        "block", range(24), {"tract": tract.tolist(), "county": (tract // 2).tolist()},
        groupings={"km": square.tolist(), "ten km": (square // 3).tolist()},
    )  # fmt: skip
    domain = sdp.Domain([axis, sdp.Axis("sex", ["F", "M"]), sdp.Axis("age", range(3))])
    table = sdp.Table(rng.poisson(9, domain.shape), domain)
    held = (
        sdp.hold("tract") & sdp.hold("county", "sex", "age")
        & sdp.hold("km", "sex") & sdp.hold("ten km", "age")
    )  # fmt: skip
    bound = hold_matrix(held, sdp.Cells(domain)).matrix.toarray()
    design = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0)
    assert design.mechanism.space.rank == np.linalg.matrix_rank(bound)
    release = design.release(table, seed=1)
    for names in held.margins:
        assert np.array_equal(
            totals(domain, names, release.values), totals(domain, names, table.counts)
        )


def test_groupings_of_two_axes_are_not_held_together():
    jobs = sdp.Axis("job", range(4), groupings={"branch": [1, 2, 1, 2]})
    domain = sdp.Domain([PLACE, jobs])
    for held in (BOTH & sdp.hold("branch"), sdp.hold("school", "branch")):
        with pytest.raises(InvariantError, match="these are of `block` and `job`; hold those of"):
            sdp.design(domain, held, sdp.PureDP(1.0))
    release = sdp.design(domain, BOTH, sdp.PureDP(1.0), decimals=0).release(
        sdp.Table(np.ones((7, 4), np.int64), domain), seed=1
    )
    assert np.all(release.margin("branch", "school").stderr > 0)


def test_holding_what_follows_from_levels_costs_nothing_more():
    """A grouping of whole counties is a sum of county totals: rank and release stay the same."""
    axis = sdp.Axis(
        "block", range(6), {"county": [1, 1, 2, 2, 3, 3]},
        groupings={"metro": ["m", "m", "m", "m", None, None]},
    )  # fmt: skip
    domain = sdp.Domain([axis])
    one = sdp.null_space(domain, sdp.hold("county"))
    two = sdp.null_space(domain, sdp.hold("county") & sdp.hold("metro"))
    assert one.rank == two.rank == 3
    v = np.arange(6.0) ** 2
    assert np.allclose(one.project(v), two.project(v))


def test_agents_hold_crossing_totals_in_digits_alone(tmp_path):
    design = sdp.design(DOMAIN, BOTH, sdp.PureDP(1.0), decimals=0)
    plan = make_plan(design, Partition.by(DOMAIN, "county"))
    secret = Secret(bytes(range(32)))
    flat = TABLE.counts.reshape(-1)
    parts = [
        privatize(plan, name, flat[plan.partition.cells(name)], secret, record=tmp_path / "r").part
        for name in plan.partition.names
    ]
    release = collect(plan, parts)
    for names in BOTH.margins:
        assert np.array_equal(
            totals(DOMAIN, names, release.values), totals(DOMAIN, names, TABLE.counts)
        )
    real = sdp.design(DOMAIN, BOTH, sdp.PureDP(1.0))
    with pytest.raises(ReleaseError, match="publish decimals"):
        make_plan(real, Partition.by(DOMAIN, "county"))


@pytest.mark.parametrize("held", [sdp.hold("county"), BOTH, sdp.hold("school"), None])
@pytest.mark.parametrize("decimals", [None, 0])
def test_releases_combined_know_the_error_of_a_grouping(held, decimals):
    """A closed form for levels alone once gave a standard error of zero here."""
    releases = [
        sdp.design(DOMAIN, held, budget, decimals=decimals, mechanism="projected").release(
            TABLE, seed=seed
        )
        for seed, budget in enumerate((sdp.PureDP(1.0), sdp.PureDP(2.0)))
    ]
    together = combine(*releases)
    margin = DOMAIN.margin("grid")
    stderr = together.margin("grid").stderr
    for i in range(2):
        w = np.array(np.broadcast_to(margin.spread(np.eye(2)[[i]]), DOMAIN.shape))
        assert stderr[i] == pytest.approx(together.estimate(w).stderr, abs=1e-6)
        assert stderr[i] > 1
    with pytest.raises(InvariantError, match="names a grouping"):
        GroupProfiles(sdp.null_space(DOMAIN, sdp.hold("county")), margin)


def test_what_knows_levels_alone_says_so_in_one_sentence():
    release = sdp.design(DOMAIN, BOTH, sdp.PureDP(1.0), decimals=0).release(TABLE, seed=1)
    second = np.asarray(non_negative(release))
    assert second.min() >= 0
    for names in BOTH.margins:
        assert np.array_equal(totals(DOMAIN, names, second), totals(DOMAIN, names, release.values))
    beside = sdp.design(DOMAIN, sdp.hold("county"), sdp.PureDP(1.0)).release(TABLE, seed=1)
    assert non_negative(beside).shape == DOMAIN.shape
    limits = sdp.Inequalities(at_most={("grid",): 500})
    with pytest.raises(InvariantError, match="limits are of margins of levels"):
        sdp.design(DOMAIN, sdp.hold("county"), sdp.PureDP(1.0), inequalities=limits)
    known = sdp.Inequalities(at_most={("county",): 500})
    for held in (sdp.hold("sex"), BOTH):
        design = sdp.design(DOMAIN, held, sdp.PureDP(1.0), inequalities=known)
        release = design.release(TABLE, seed=1)
        low, high = release.margin("grid").interval(0.95)
        truth = DOMAIN.margin("grid").sum(TABLE.counts).ravel()
        assert np.all(low <= high)
        assert np.all(low >= 0)
        assert truth.shape == low.shape


@pytest.mark.parametrize("decimals", [0, 1, None])
@pytest.mark.parametrize("budget", [sdp.PureDP(0.7), sdp.ZCDP(0.2)])
@pytest.mark.parametrize(
    "held", [BOTH, sdp.hold("county", "sex") & sdp.hold("school") & sdp.hold("sex")]
)
def test_totals_that_are_alike_share_the_law_of_their_own_weights(held, budget, decimals):
    domain = sdp.Domain([sdp.Axis("age", range(4), {"young": [0, 0, 1, 1]}), *DOMAIN.axes])
    design = sdp.design(domain, held, budget, decimals=decimals)
    shared = 0
    for names in (["block"], ["block", "sex"], ["block", "age"], ["school", "young"], ["grid"]):
        accuracy = design.margin_accuracy(*names)
        figures = accuracy.figures
        margins = np.asarray(accuracy.margin_of_error()).reshape(-1)
        for i, variance in enumerate(figures.variance().reshape(-1)):
            weights = figures.weights(i)
            assert variance == pytest.approx(figures.noise.variance(weights), rel=1e-9, abs=1e-12)
            apart = figures.noise.law_of(weights).margin_of_error(0.05)
            assert margins[i] == pytest.approx(apart, rel=1e-9)
        shared += figures.classes().size - np.unique(figures.classes()).size
    assert shared > 20


def test_a_grouping_with_the_groups_of_a_level_is_held_once():
    place = sdp.Axis(
        "block", range(6), {"county": [0, 0, 0, 1, 1, 1]},
        groupings={"same": list("xxxyyy"), "school": list("NNMMSS")},
    )  # fmt: skip
    domain = sdp.Domain([place, sdp.Axis("sex", ["F", "M"])])
    table = sdp.Table(np.random.default_rng(1).poisson(9, domain.shape), domain)
    for held in (
        sdp.hold("county") & sdp.hold("same"),
        sdp.hold("same", "sex") & sdp.hold("county") & sdp.hold("school"),
    ):
        release = sdp.design(domain, held, sdp.PureDP(1.0), decimals=0).release(table, seed=3)
        for names in held.margins:
            exact = totals(domain, names, table.counts)
            assert np.array_equal(totals(domain, names, release.values), exact)
        assert release.verify().ok
