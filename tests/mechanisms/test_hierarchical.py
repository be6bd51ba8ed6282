"""Noise at several levels: private, exact, unbiased at every level, with the stated law."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import jsonschema
import numpy as np
import pytest
from subspacedp.mechanisms.hierarchical import Hierarchical
from subspacedp.mechanisms.level_strategy import WHOLE
from tests.mechanisms.contract import Family, check_unbiased, stated_variance
from tests.privacy.exhaustion import changes
from tests.statistical import ALPHA, kurtosis, mean_p, proportion_bounds, replicates_for_variance

import subspacedp as sdp
from subspacedp.errors import DomainError, ReleaseError, SubspaceDPError
from subspacedp.inference import Likelihood, combine, replicates
from subspacedp.noise import DiscreteLaplace, ReleaseKeys, RoundedGaussian
from subspacedp.release import certificate_schema
from subspacedp.release.rebuild import rebuild_design

BLOCK = sdp.Axis(
    "block",
    range(7),
    levels={"county": ["k", "k", "k", "k", "l", "l", "m"], "state": ["x"] * 6 + ["y"]},
)
STATUS = sdp.Axis("status", ["occupied", "vacant"])
LEVELS = ["block", "county", "state"]
UNITS = sdp.hold("block") & sdp.hold("state", "status")  # housing units, and states by status
ONE, TABLE = sdp.Domain([BLOCK]), sdp.Domain([STATUS, BLOCK])
COUNTS = np.arange(14).reshape(2, 7) * 7 % 20
BUDGETS = [sdp.ZCDP(0.4), sdp.PureDP(1.0)]
FAMILIES = [
    Family("nothing held", [BLOCK], [], COUNTS[0]),
    Family("states", [BLOCK], [("state",)], COUNTS[0]),
    Family("two invariants", [STATUS, BLOCK], [("block",), ("state", "status")], COUNTS),
    Family("a margin of another axis", [STATUS, BLOCK], [("status",), ("county",)], COUNTS),
]


def made(domain, held, budget=BUDGETS[0], **options):
    return sdp.design(
        domain, held, budget, **{"mechanism": "hierarchical", "levels": LEVELS, **options}
    )


# -------------------------------------------------------------------------------------- privacy


def losses(mechanism, domain, *, forget=None):
    """The largest Σ Δ²/σ² (Gaussian) or Σ |Δ|·rate (Laplace) over all neighbouring changes.

    From the words of the relation alone: every change is put through the sums of every level.
    With `forget` a level is left out of the accounting, as a wrong split would.
    """
    laws = mechanism.strategy.law(mechanism.design)
    place = mechanism.strategy.place(mechanism.design)
    worst = Fraction(0)
    for change in changes(domain.size, mechanism.design.neighbours):
        moved = np.array(change).reshape(domain.shape)
        loss = Fraction(0)
        for step, law in laws.of_step.items():
            if step == forget:
                continue
            codes = domain.axes[place].step(step).codes
            sums = np.zeros((*np.moveaxis(moved, place, 0).shape[1:], int(codes.max()) + 1), int)
            for i, code in enumerate(codes):
                sums[..., code] += np.moveaxis(moved, place, 0)[i]
            if mechanism.design.budget.pure:
                loss += int(np.abs(sums).sum()) * law.rate
            else:
                loss += int((sums**2).sum()) / Fraction(law.sigma) ** 2
        worst = max(worst, loss)
    return worst


RELATIONS = [
    sdp.AddRemoveOne(),
    sdp.ReplaceOne(),
    sdp.ReplaceOne(records=2, per_cell=1),
    sdp.AddRemoveOne(records=3, per_cell=2),
]


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_all_levels_together_stay_within_the_budget(relation, budget):
    """Brute force over all neighbours; for one record the budget is spent to the last millionth."""
    small = sdp.Axis("block", range(4), levels={"county": [0, 0, 1, 2], "state": [0, 0, 0, 1]})
    for domain in (sdp.Domain([small]), sdp.Domain([small, STATUS])):
        mechanism = made(domain, None, budget, neighbours=relation)
        assert np.count_nonzero(list(mechanism.shares().values())) > 1 or budget.pure
        loss = losses(mechanism, domain)
        limit = Fraction(1) if budget.pure else Fraction(budget.gaussian_mu) ** 2
        assert loss <= limit
        if relation.records == 1:
            assert loss > limit * Fraction(999_999, 1_000_000)


@pytest.mark.parametrize("relation", RELATIONS[:2], ids=str)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_split_that_forgets_a_level_is_caught(relation, budget):
    """The twin gives the cells what is left when the state tables are taken to be free."""
    mechanism = made(ONE, None, budget, neighbours=relation)
    shares = {"block": WHOLE // 2, "state": WHOLE // 2}
    right = replace(mechanism.design, strategy=replace(mechanism.strategy, shares=shares))
    twin = replace(mechanism.strategy, shares={**shares, "block": WHOLE})
    wrong = Hierarchical(replace(mechanism.design, strategy=twin))
    limit = Fraction(1) if budget.pure else Fraction(budget.gaussian_mu) ** 2
    assert losses(Hierarchical(right), ONE) <= limit
    assert Hierarchical(right).split_gap() is None or Hierarchical(right).split_gap() > 2e-3
    assert losses(wrong, ONE, forget=2) <= limit < losses(wrong, ONE)
    with pytest.raises(ReleaseError, match="shares of the budget over levels are out of range"):
        rebuild_design(replace(mechanism.design, strategy=twin).as_dict())


def test_shares_are_exact():
    for held in (None, sdp.hold("state"), UNITS):
        for budget in BUDGETS:
            mechanism = made(TABLE, held, budget)
            assert sum(mechanism.strategy.shares.values()) == WHOLE
            if budget.pure:
                laws = mechanism.strategy.law(mechanism.design).of_step.values()
                assert sum(2 * law.rate for law in laws) == 1
                assert mechanism.split_gap() is None
            else:
                assert mechanism.split_gap() < 2e-3


def test_no_two_numbers_share_a_word():
    """The noise of a level is that of other words, even where the laws are equal."""
    axis = sdp.Axis("a", range(400), levels={"b": range(400)})
    mechanism = made(sdp.Domain([axis]), None, levels=["a", "b"])
    equal = replace(mechanism.strategy, shares={"a": WHOLE // 2, "b": WHOLE // 2})
    twice = Hierarchical(replace(mechanism.design, strategy=equal))
    noise = twice.add_noise(np.zeros(400, np.int64), ReleaseKeys.from_seed(1, b"x"))
    assert np.count_nonzero(noise[:400] == noise[400:]) < 250


# ---------------------------------------------------------------------------- which guarantee


def parts_in_null_space(mechanism, noisy, tables):
    """Π_N of what is rebuilt from one measurement and the held values of several tables."""
    space = mechanism.design.space
    coins = ReleaseKeys.from_seed(1, b"x").stream("dither")
    values = [mechanism.reconstruct(noisy, mechanism.design.held.sums(t), coins) for t in tables]
    return [space.project(np.asarray(v, np.float64)) for v in values]


@pytest.mark.parametrize("held", [sdp.hold("state"), UNITS, sdp.hold("county")], ids=str)
def test_real_values_are_s_and_least_squares_under_the_totals_is_not(held):
    """f(noisy, c) = g(noisy) + C⁺c: the part in N is the same for neighbours that change c."""
    mechanism = made(TABLE, held, neighbours=sdp.AddRemoveOne())
    assert mechanism.guarantee.kind == "S"
    noisy = mechanism.add_noise(COUNTS.astype(np.int64), ReleaseKeys.from_seed(3, b"y"))
    tables = [COUNTS.copy() for _ in range(15)]
    for i in range(14):
        tables[i + 1].reshape(-1)[i] += 1
    first, *others = parts_in_null_space(mechanism, noisy, tables)
    assert max(np.abs(other - first).max() for other in others) < 1e-10

    class Tied(Hierarchical):
        @property
        def estimate(self):
            return replace(self.strategy.estimate(self.design), constrained=True)

    strategy = replace(
        mechanism.strategy, shares={"block": 400_000, "county": 500_000, "state": 100_000}
    )
    twin = Tied(replace(mechanism.design, strategy=strategy))
    noisy = twin.add_noise(COUNTS.astype(np.int64), ReleaseKeys.from_seed(3, b"y"))
    first, *others = parts_in_null_space(twin, noisy, tables)
    moved = max(np.abs(other - first).max() for other in others)
    if held.margins == (("county",),):  # every county has alike parts: both are one
        assert moved < 1e-10
    else:
        assert moved > 1e-3


def test_kinds_of_guarantee():
    assert made(ONE, None).guarantee.kind == "plain"
    assert made(ONE, sdp.hold()).guarantee.kind == "plain"
    assert made(ONE, sdp.hold(), neighbours=sdp.AddRemoveOne()).guarantee.kind == "S"
    assert made(ONE, sdp.hold("state")).guarantee.kind == "S"
    assert made(ONE, sdp.hold("state"), decimals=0).guarantee.kind == "G"
    # Nothing that a neighbour can change is held: least squares may use it.
    assert made(ONE, sdp.hold()).estimate.constrained
    assert not made(ONE, sdp.hold("state")).estimate.constrained
    assert made(ONE, sdp.hold("state"), decimals=1).estimate.constrained
    covers = made(TABLE, UNITS).guarantee.covers
    assert covers(np.ones((2, 7))).share_exposed == 1.0


def test_exact_totals_make_the_error_smaller_where_they_may():
    """G uses them, S may not: the price of S, level by level."""
    free = made(TABLE, UNITS, importance={"county": 1.0}).compare_levels().here
    tied = made(TABLE, UNITS, importance={"county": 1.0}, decimals=6).compare_levels().here
    assert tied[1] <= free[1] * (1 + 1e-9)


# ------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_contract(family, budget):
    """Held totals kept, no bias at any level, variances as stated; a wrong one is rejected."""
    domain, held = family.single()
    weights = {"block": 1.0, "county": 4.0}
    small = made(domain, held, budget, importance=weights)
    laws = small.strategy.law(small.design).of_step.values()
    number = replicates_for_variance(max(kurtosis(law) for law in laws))
    many, all_held, table = family.replicated(number)
    large = made(many, all_held, budget, importance=weights)
    assert large.shares() == pytest.approx(small.shares(), abs=2e-6)
    release = large.release(table, seed=1)
    assert release.verify().ok
    for margin, exact in zip(large.design.held.margins, release.exact, strict=True):
        assert np.abs(margin.sum(release.values) - exact).max() < 1e-9
    errors = (release.values - table.counts).reshape(number, -1).astype(np.float64)
    questions = level_questions(domain)
    check_unbiased(errors, questions, small)
    stated = np.array([stated_variance(small, w) for w in questions])
    squares = (errors @ questions[stated > 0].T) ** 2
    assert np.all(mean_p(squares, stated[stated > 0]) > ALPHA)
    assert np.all(mean_p(squares, 1.1 * stated[stated > 0]) < ALPHA)


@pytest.mark.parametrize(("budget", "decimals"), [(BUDGETS[0], 1), (BUDGETS[1], 0)], ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_contract_with_digits(family, budget, decimals):
    """Held totals exact in integers, no bias at any level, variances within their bounds."""
    domain, held = family.single()
    small = made(domain, held, budget, decimals=decimals, importance={"block": 1, "county": 4})
    number, step = 1000, 10**decimals
    errors = np.stack([np.asarray(d) for d in replicates(small, number, seed=1)])
    for margin in small.design.held.margins:
        for one in errors[:50]:
            assert not np.any(margin.sum(np.rint(one * step).astype(np.int64)))
    questions = level_questions(domain)
    flat = errors.reshape(number, -1).astype(np.float64)
    check_unbiased(flat, questions, small)
    stated = np.array([stated_variance(small, w) for w in questions])
    squares = (flat @ questions[stated > 0].T) ** 2
    spread = squares.std(axis=0) / number**0.5
    assert np.all(squares.mean(axis=0) <= stated[stated > 0] + 6.2 * spread)
    assert np.all(squares.mean(axis=0) >= 0.6 * stated[stated > 0] - 6.2 * spread)


def level_questions(domain):
    """Every group of every level with each label of the other axes, and a few at random."""
    rows = []
    place = [axis.name for axis in domain.axes].index("block")
    for step in range(3):
        for steps in itertools.product(*[
            (step,) if a == place else (0, axis.depth - 1) for a, axis in enumerate(domain.axes)
        ]):  # fmt: skip
            margin = type(domain.cells)(domain.cells.axes, steps)
            for i in range(int(np.prod(margin.shape))):
                groups = np.zeros(margin.shape)
                groups.reshape(-1)[i] = 1.0
                rows.append(np.broadcast_to(margin.spread(groups), domain.shape).ravel())
    return np.array([*rows, *np.random.default_rng(0).normal(size=(3, domain.size))])


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("held", [None, sdp.hold("state"), UNITS], ids=str)
def test_closed_forms_agree_with_the_noise_model(held, decimals):
    mechanism = made(TABLE, held, decimals=decimals, importance={"block": 1, "county": 4})
    noise = mechanism.design.noise
    for names in [("block", "status"), ("county", "status"), ("county",), ("state", "status"), ()]:
        accuracy = mechanism.margin_accuracy(*names)
        margin = TABLE.margin(*names)
        one_by_one = []
        for i in range(int(np.prod(margin.shape))):
            groups = np.zeros(margin.shape)
            groups.reshape(-1)[i] = 1.0
            w = np.broadcast_to(margin.spread(groups), TABLE.shape)
            one_by_one.append(noise.variance(w))
        assert np.asarray(accuracy.stderr).ravel() ** 2 == pytest.approx(one_by_one, abs=1e-9)
    assert mechanism.expected_error().per_cell == pytest.approx(
        np.asarray(mechanism.accuracy().stderr) ** 2
    )


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_intervals_cover(budget, decimals):
    """95 % intervals of every level's totals cover at least that often, all classes of groups."""
    mechanism = made(TABLE, UNITS, budget, decimals=decimals, importance={"block": 1, "county": 4})
    draws = [np.asarray(d, float) for d in replicates(mechanism, 1000, seed=1)]
    for names in (("block", "status"), ("county", "status")):
        margin = TABLE.margin(*names)
        half = np.asarray(mechanism.margin_accuracy(*names).margin_of_error(0.95))
        off = np.abs(np.stack([margin.sum(d) for d in draws])) <= half + 1e-9
        for hits in off.reshape(len(draws), -1).sum(axis=0):
            assert proportion_bounds(int(hits), len(draws))[1] >= 0.95


# ----------------------------------------------------------------------------- whole releases


def test_a_release_from_files_is_the_same(tmp_path):
    table = sdp.Table(COUNTS, TABLE)
    for number, (budget, decimals) in enumerate(itertools.product(BUDGETS, (None, 0, 2))):
        mechanism = made(TABLE, UNITS, budget, decimals=decimals)
        release = mechanism.release(table, seed=2)
        jsonschema.validate(release.certificate(), json.loads(certificate_schema()))
        release.save(tmp_path / str(number))
        again = sdp.Release.load(tmp_path / str(number))
        assert again.verify().ok
        assert np.array_equal(again.values, release.values)
        assert again.design.as_dict() == mechanism.design.as_dict()
        assert again.margin("county", "status").stderr == pytest.approx(
            release.margin("county", "status").stderr
        )
        assert again.margin("block").value.tolist() == COUNTS.sum(axis=0).tolist()


def test_levels_agree_and_large_counts_lose_nothing():
    """2**42 people in a block: held totals and levels still agree to the last place."""
    counts = COUNTS + 2**42
    table = sdp.Table(counts, TABLE)
    whole = made(TABLE, UNITS, decimals=0).release(table, seed=1)
    assert np.array_equal(whole.values.sum(axis=0), counts.sum(axis=0))
    real = made(TABLE, UNITS).release(table, seed=1)
    assert np.abs(real.values - counts).max() < 100
    assert real.verify().ok


def test_small_counts_under_large_noise_verify():
    """Values are differences of numbers as large as the noise, however small they are."""
    rng = np.random.default_rng(0)
    tract = np.sort(rng.integers(0, 150, 3000))
    domain = sdp.Domain([sdp.Axis("block", range(3000), levels={"tract": tract}), STATUS])
    table = sdp.Table(rng.poisson([[2, 0.3]], (3000, 2)), domain)
    for rho in (0.1, 1e-6):
        units = made(domain, sdp.hold("block"), sdp.ZCDP(rho), levels=["block", "tract"])
        for seed in range(8):
            release = units.release(table, seed=seed)
            assert release.verify().ok
    values = release.values.copy()
    values[7, 0] += 1e-6  # what rounding leaves is a thousandth of that
    assert not replace(release, values=values).verify().ok


def test_held_totals_of_all_records():
    """A capped table: held values from all records, noise on the bounded ones."""
    bounded, everything = sdp.Table(COUNTS, TABLE), sdp.Table(COUNTS * 3, TABLE)
    for decimals in (None, 0):
        mechanism = made(TABLE, UNITS, decimals=decimals, capped=True)
        release = mechanism.release(bounded, everything=everything, seed=1)
        assert release.verify().ok
        assert np.allclose(release.values.sum(axis=0), 3 * COUNTS.sum(axis=0))
    assert mechanism.guarantee.kind == "G"


def test_combination_optimality_and_no_likelihood():
    table = sdp.Table(COUNTS, TABLE)
    levels = made(TABLE, UNITS, importance={"county": 1.0}).release(table, seed=1)
    plain = sdp.design(TABLE, UNITS, BUDGETS[0]).release(table, seed=2)
    both = combine([levels, plain])
    w = levels.where(county="k", status="vacant")
    alone = [float(r.estimate(w).stderr) for r in (levels, plain)]
    assert float(both.estimate(w).stderr) < min(alone)
    assert made(TABLE, UNITS).optimality().factor >= 1
    with pytest.raises(ReleaseError, match="likelihood"):
        Likelihood(levels)


def test_errors_by_level_and_cells_alone():
    errors = made(TABLE, None).compare_levels()
    assert errors.levels == ("block", "county", "state")
    assert errors.groups == (7, 3, 2)
    alone = sdp.design(TABLE, None, BUDGETS[0])
    for i, names in enumerate([("block", "status"), ("county", "status"), ("state", "status")]):
        stderr = np.asarray(alone.margin_accuracy(*names).stderr)
        assert errors.cells_alone[i] == pytest.approx(np.sqrt(np.mean(stderr**2)))
    assert errors.ratio[0] > 1 > errors.ratio[2]
    assert str(errors).splitlines()[0].split()[:2] == ["level", "groups"]
    names = ["level", "groups", "share", "rmse", "rmse_cells_alone", "rmse_levels_apart"]
    assert list(errors.columns()) == names


def test_errors_of_levels_apart():
    """Equal shares, every level by its own noise; summed where it has none, zero where held."""
    for budget, law in ((sdp.PureDP(1.0), DiscreteLaplace), (sdp.ZCDP(0.5), RoundedGaussian)):
        errors = made(ONE, sdp.hold("state"), budget, levels=["block", "county"]).compare_levels()
        # Half the budget: ε = 1/2 over Δ₁ = 2, or μ² = 1/2 over Δ₂² = 2.
        variance = law(Fraction(1, 4) if budget.pure else 2.0).variance
        assert errors.levels_apart[:2] == pytest.approx([variance**0.5] * 2)
        assert errors.levels_apart[2] == 0 == errors.here[2]
        alone = made(ONE, None, budget, levels=["block", "county"]).compare_levels()
        assert alone.levels_apart[2] == pytest.approx((variance * 3 / 2) ** 0.5)
        assert "levels apart" in str(errors)


def test_importance_moves_the_error():
    fine = made(ONE, None, importance={"block": 1.0}).compare_levels().here
    coarse = made(ONE, None, importance={"state": 1.0}).compare_levels().here
    assert fine[0] < coarse[0]
    assert coarse[2] < fine[2]


EXTREME = [
    {"county": 1.0},
    {"state": 1.0},
    {"block": 1e308, "county": 1e308},
    {"block": 5e-324},
    {"block": 5e-324, "county": 1e308},
    {"block": 1e-18, "county": 1.0},
]


@pytest.mark.parametrize("importance", EXTREME, ids=str)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_any_importance(budget, importance):
    """Labels always get enough for their variances to survive float64."""
    mechanism = made(ONE, sdp.hold(), budget, importance=importance)
    assert mechanism.strategy.shares["block"] >= 99
    assert mechanism.split_gap() is None or mechanism.split_gap() < 2e-3
    last = np.eye(7)[6]  # alone in its county
    stated = np.asarray(mechanism.accuracy().stderr)
    assert stated[6] == pytest.approx(float(mechanism.accuracy(last).stderr), rel=1e-5)
    assert np.all(stated > 0)


def test_only_ratios_of_importance_count():
    for budget in BUDGETS:
        shares = [
            made(ONE, None, budget, importance={"block": w, "county": 3 * w}).strategy.shares
            for w in (1.0, 1e-300, 1e300)
        ]
        assert shares[0] == shares[1] == shares[2]
    # A level that is held does not hide one that hardly counts.
    held = made(ONE, sdp.hold("state"), importance={"block": 5e-324, "state": 1.0})
    assert held.strategy.shares == made(
        ONE, sdp.hold("state"), importance={"block": 1.0}
    ).strategy.shares  # fmt: skip


# ------------------------------------------------------------------------------ laws of groups


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("held", [None, sdp.hold("state"), UNITS], ids=str)
def test_laws_of_groups_are_those_of_their_weights(held, decimals):
    """By groups of alike labels, and by every cell."""
    for budget in BUDGETS:
        mechanism = made(TABLE, held, budget, decimals=decimals)
        for names in (("block", "status"), ("county",), ("state", "status")):
            margin = TABLE.margin(*names)
            found = np.asarray(mechanism.margin_accuracy(*names).margin_of_error(0.9))
            for i, half in enumerate(found.reshape(-1)):
                groups = np.zeros(margin.shape)
                groups.reshape(-1)[i] = 1.0
                w = np.broadcast_to(margin.spread(groups), TABLE.shape)
                one = float(mechanism.accuracy(w).margin_of_error(0.9))
                assert half == pytest.approx(one, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("decimals", [None, 0])
def test_very_many_groups_have_a_bound(monkeypatch, decimals):
    """From the variance alone: never below the exact margin, and no law is computed."""
    mechanism = made(TABLE, UNITS, decimals=decimals)
    names = ("county", "status")
    exact = mechanism.margin_accuracy(*names)
    monkeypatch.setattr("subspacedp.mechanisms.level_strategy.MOST_EXACT", 1)
    bound = mechanism.margin_accuracy(*names)
    for level in (0.5, 0.9, 0.95, 0.999):
        wide, narrow = (np.asarray(a.margin_of_error(level)) for a in (bound, exact))
        assert np.all(wide >= narrow)
        assert np.all(wide <= 4 * narrow + 1e-9)
    for number in np.unique(bound.figures.classes()):
        law = bound.figures.law(int(number))
        if law.method == "fixed":
            continue
        for alpha in (0.2, 0.01):
            assert law.tail(law.margin_of_error(alpha) * (1 + 1e-9)) <= alpha * 1.05
    assert bound.methods() <= {"conservative", "fixed"}
    pure = made(TABLE, UNITS, BUDGETS[1]).margin_accuracy(*names)
    assert "conservative" not in pure.methods()  # no such bound for Laplace noise


# --------------------------------------------------------------------------------- bad input


TWO_NESTED = sdp.Domain([BLOCK, sdp.Axis("race", range(3), levels={"group": [0, 0, 1]})])
SENTENCES = [
    ({"levels": []}, "`levels` must be a list of names of levels, at least one."),
    ({"levels": 5}, "`levels` must be a list of names of levels, at least one."),
    ({"levels": ["block", 5]}, "`levels` must be a list of names of levels, at least one."),
    ({"levels": ["block", "block"]}, "`levels` names the level `block` twice."),
    ({"levels": ["county"]}, "`levels` must contain `block`, the labels of the axis"),
    ({"levels": ["block", "shire"]}, "The domain has no level `shire`"),
    ({"levels": ["block", "group"]}, "`levels` must be of one axis; got levels of `block` and of"),
    ({"levels": None}, "`levels` must name the levels to measure: several axes have levels."),
    ({"importance": {}}, "For the hierarchical mechanism `importance` must map names of levels"),
    ({"importance": [1, 2]}, "For the hierarchical mechanism `importance` must map names"),
    ({"importance": {"race": 1}}, "`importance` names `race`, which is no level of `block`"),
    ({"importance": {"block": -1}}, "The importance of `block` must be a finite number of at"),
    ({"importance": {"block": True}}, "The importance of `block` must be a finite number of at"),
    ({"importance": {"block": 0}}, "At least one level must have an importance above 0."),
    ({"mechanism": "projected"}, "`levels` is for the hierarchical mechanism."),
    ({"budget": sdp.ZCDP(1e9)}, "The budget is so large that no noise would be left"),
    ({"budget": sdp.ZCDP(1.5e6), "importance": {"county": 1}}, "The budget is so large that no"),
    ({"budget": sdp.ZCDP(1e-30)}, "The budget is too small for counts in 64 bits"),
    ({"budget": sdp.ZCDP(1e-22), "decimals": 0}, "The noise is too large for digits that add up"),
    ({"held": sdp.hold("block", "race")}, "What is held fixes every answer"),
    ({"held": sdp.LinearInvariants(np.ones((1, 21)))}, "The hierarchical mechanism is for the"),
    ({"held": sdp.hold("county", "race"), "importance": {"state": 1}}, "The held totals fix every"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), SENTENCES, ids=lambda v: str(v)[:40])
def test_one_clear_sentence(options, sentence):
    held = options.pop("held", None)
    budget = options.pop("budget", BUDGETS[0])
    with pytest.raises(SubspaceDPError) as error:
        made(TWO_NESTED, held, budget, **options)
    assert str(error.value).startswith(sentence)
    assert str(error.value).endswith(".")


def test_levels_must_nest_and_exist():
    with pytest.raises(DomainError, match="does not nest"):
        sdp.Axis("block", range(3), levels={"county": [0, 0, 1], "state": [0, 1, 1]})
    with pytest.raises(ReleaseError, match="no axis has any"):
        sdp.design(sdp.Domain([STATUS]), None, BUDGETS[0], mechanism="hierarchical")


def test_names_from_arrays_are_plain(tmp_path):
    levels = np.array(["block", "county"])
    mechanism = made(ONE, None, levels=levels, importance={np.str_("county"): 1.0})
    assert all(type(name) is str for name in mechanism.strategy.shares)
    assert all(type(name) is str for name in mechanism.strategy.importance)


def test_a_comparison_is_not_by_level():
    with pytest.raises(ReleaseError, match=r"^`levels` is for the hierarchical mechanism, whose"):
        sdp.compare(ONE, None, BUDGETS[0], levels=["block", "county"])


def test_no_budget_for_what_nobody_can_change():
    """Under replace-one the nation's total is the same for all neighbours."""
    levels = {"county": [0, 0, 1, 1], "nation": [0] * 4}
    domain = sdp.Domain([sdp.Axis("block", range(4), levels=levels)])
    for chosen in (None, ["block", "nation"]):
        with pytest.raises(ReleaseError, match="No neighbouring change alters the total of"):
            made(domain, None, levels=chosen)
    for options in (
        {"held": sdp.hold()},
        {"held": None, "neighbours": sdp.AddRemoveOne()},
        {"held": None, "capped": True},
        {"held": None, "levels": ["block", "county"]},
    ):
        assert made(domain, **{"levels": None, **options}).strategy.shares["block"] > 0
    assert made(sdp.Domain([domain.axes[0], STATUS]), None, levels=None).shares()["nation"] > 0


def test_a_mechanism_measures_what_its_name_says():
    """A certificate under another name, or with another's strategy, is refused."""
    levels = made(TABLE, UNITS).design.as_dict()
    other = sdp.design(TABLE, UNITS, BUDGETS[0]).design.as_dict()
    margins = sdp.Margins(TABLE, [("county",), ("status",)])
    tables = sdp.design(margins, None, BUDGETS[0], mechanism="projected").design.as_dict()
    contrasts = sdp.design(margins, None, BUDGETS[0], mechanism="optimal").design.as_dict()
    for right in (levels, other, tables, contrasts):
        assert rebuild_design(right).as_dict() == right
    wrong = [
        *({**levels, "mechanism": name} for name in ("knorm", "imposed", "projected", "optimal")),
        {**other, "mechanism": "hierarchical"},
        {**other, "levels": levels["levels"]},
        {**tables, "mechanism": "optimal"},
        {**contrasts, "mechanism": "projected"},
        {**levels, "tables": tables["tables"]},
        {key: value for key, value in levels.items() if key != "levels"},
        {key: value for key, value in tables.items() if key != "tables"},
    ]
    for data in wrong:
        with pytest.raises(ReleaseError, match="The certificate is not usable"):
            rebuild_design(data)


def test_stated_shares_are_checked():
    data = made(TABLE, UNITS).design.as_dict()
    shares = data["levels"]["shares"]
    for change in (
        {"of": 1_000_000.0},
        {"shares": {**shares, "block": 49}},
        {"shares": {**shares, "block": float(shares["block"])}},
        {"importance": dict.fromkeys(LEVELS, 0.0)},
        {"importance": {}},
    ):
        with pytest.raises(ReleaseError, match="shares of the budget over levels are out of range"):
            rebuild_design({**data, "levels": {**data["levels"], **change}})
