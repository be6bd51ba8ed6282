"""Least squares on trees against explicit matrices; splits of a budget; digits that add up."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from subspacedp.noise.level_noise import LevelNoise
from subspacedp.subspace.hierarchy_classes import place_classes
from subspacedp.subspace.hierarchy_estimate import LevelEstimate
from subspacedp.subspace.hierarchy_split import LevelSplit
from tests.strategies import axes, examples, families, seeds

from subspacedp import Axis, Domain, hold, null_space
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.noise import RoundedGaussian
from subspacedp.noise.words import ReleaseKeys
from subspacedp.subspace.hierarchy_digits import RUN, LevelDigits, cumulate
from subspacedp.tables import Margin

# Unequal groups, a chain of single parts (tract 10 in county 9 in state 8), labels out of order.
TRACT = [1, 1, 1, 2, 2, 3, 4, 4, 4, 4, 5, 10, 6, 6]
COUNTY = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 9, 3, 3]
STATE = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 2, 2]
MIXED = [3, 0, 12, 5, 7, 1, 2, 13, 9, 4, 11, 10, 6, 8]


def geography(order):
    levels = {"tract": TRACT, "county": COUNTY, "state": STATE}
    return Axis("block", range(14), levels={k: [v[i] for i in order] for k, v in levels.items()})


STATUS = Axis("status", ["occupied", "vacant"])
RACE = Axis("race", range(3), levels={"group": ["a", "a", "b"]})
PLAIN = Domain([geography(range(14))])
TWO = Domain([STATUS, geography(MIXED)])
THREE = Domain([geography(range(14)), RACE, STATUS])
CASES = [
    (PLAIN, None),
    (PLAIN, hold()),
    (PLAIN, hold("state")),
    (PLAIN, hold("tract")),
    (TWO, hold("county")),
    (TWO, hold("block") & hold("state", "status")),
    (TWO, hold("status") & hold("tract")),
    (THREE, hold("county", "group") & hold("state", "race") & hold("status")),
    (THREE, hold("block", "group") & hold("county", "race", "status")),
]
PRECISIONS = [{0: 1.0}, {0: 0.7, 1: 0.3, 2: 1.5, 3: 0.2}, {0: 0.5, 3: 2.0}, {0: 0.01, 2: 30.0}]


def dense(margin):
    """The matrix of the sums of a margin's groups."""
    shape = tuple(len(axis) for axis in margin.axes)
    size = int(np.prod(shape))
    return np.stack([margin.sum(e.reshape(shape)).ravel() for e in np.eye(size)], axis=1)


def at_step(domain, place, step):
    steps = tuple(step if a == place else 0 for a in range(len(domain.axes)))
    return Margin(domain.cells.axes, steps)


class Explicit:
    """The same estimate by matrices."""

    def __init__(self, domain, held, place, precision, *, constrained):
        self.space = null_space(domain, held)
        self.sums = {s: dense(at_step(domain, place, s)) for s in precision}
        self.precision, self.constrained = precision, constrained
        self.M = sum(t * self.sums[s].T @ self.sums[s] for s, t in precision.items())
        n = domain.size
        self.projector = np.stack(
            [self.space.project(e.reshape(domain.shape)).ravel() for e in np.eye(n)]
        )
        self.C = np.zeros((0, n))
        if self.space.held.margins:
            self.C = np.concatenate([dense(m) for m in self.space.held.margins])
        self.Q = self.space.basis() if self.space.dimension else np.zeros((n, 0))

    @property
    def covariance(self):
        if self.constrained:
            return self.Q @ np.linalg.inv(self.Q.T @ self.M @ self.Q) @ self.Q.T
        return self.projector @ np.linalg.inv(self.M) @ self.projector

    def estimate(self, measured, c):
        right = sum(t * self.sums[s].T @ measured[s] for s, t in self.precision.items())
        lifted = np.linalg.pinv(self.C) @ c if len(self.C) else np.zeros(len(self.M))
        if not self.constrained:
            return self.projector @ np.linalg.solve(self.M, right) + lifted
        inner = np.linalg.solve(self.Q.T @ self.M @ self.Q, self.Q.T @ (right - self.M @ lifted))
        return lifted + self.Q @ inner


def both(domain, held, precision, *, constrained, place=None):
    names = [axis.name for axis in domain.axes]
    place = names.index("block") if place is None else place
    made = LevelEstimate(
        space=null_space(domain, held), place=place, precision=precision, constrained=constrained
    )
    return made, Explicit(domain, held, place, precision, constrained=constrained)


def check_estimate(made, explicit, rng):
    """Reconstruction from integer measurements is that of the matrices."""
    space, domain = made.space, made.space.domain
    x = rng.integers(0, 50, domain.shape)
    measured = {
        s: (S @ x.ravel()).astype(np.int64) + rng.integers(-9, 10, len(S))
        for s, S in explicit.sums.items()
    }
    cells = measured[0].reshape(domain.shape)
    exact = space.held.sums(x)
    residual = space.held.residual(cells, exact)
    found = {}
    for level, total in made.sums(made.rows(cells)).items():
        margin = at_step(domain, made.place, made.tree.steps[level])
        own = measured[made.tree.steps[level]].reshape(margin.shape)
        nodes = np.moveaxis(own, made.place, 0)[made.tree.ids[level]]
        found[level] = (nodes.reshape(total.shape) - total).astype(np.float64)
    correction = made.table(made.correction(found, residual))
    if made.constrained:
        got = cells + correction
    else:
        got = space.subtract_lift(cells, residual) + space.project(correction)
    wanted = explicit.estimate(measured, explicit.C @ x.ravel())
    np.testing.assert_allclose(got.ravel(), wanted, rtol=0, atol=1e-8)


def check_variances(made, explicit):
    """Closed forms of every margin, and `solve`, are those of the covariance matrix."""
    domain, V = made.space.domain, explicit.covariance
    for steps in itertools.product(*[range(axis.depth) for axis in domain.axes]):
        margin = Margin(domain.cells.axes, steps)
        A = dense(margin)
        wanted = np.einsum("ij,jk,ik->i", A, V, A).reshape(margin.shape)
        np.testing.assert_allclose(made.group_variance(margin), wanted, rtol=1e-7, atol=1e-8)
    w = np.random.default_rng(3).normal(size=domain.shape)
    solved = made.table(made.solve(made.space.project(w)))
    inner = solved if made.constrained else made.space.project(solved)
    np.testing.assert_allclose(inner.ravel(), V @ w.ravel(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(("domain", "held"), CASES, ids=lambda v: str(v))
def test_estimates_and_variances_are_those_of_matrices(domain, held, constrained):
    for precision in PRECISIONS if domain is not THREE else PRECISIONS[1:2]:
        made, explicit = both(domain, held, precision, constrained=constrained)
        check_estimate(made, explicit, np.random.default_rng(1))
        check_variances(made, explicit)


@settings(max_examples=examples(1), deadline=None)
@given(data=st.data(), seed=seeds, constrained=st.booleans())
def test_any_axis_with_any_levels(data, seed, constrained):
    """Empty groups, single parts, axes of one label, levels on both axes, redundant margins."""
    first = data.draw(axes("a"))
    second = data.draw(axes("b", max_labels=3, max_levels=1))
    domain = Domain([second, first])
    held = data.draw(families(domain))
    rng = np.random.default_rng(seed)
    steps = [0, *(s for s in range(1, len(first.chain)) if rng.random() < 0.6)]
    precision = {s: float(rng.uniform(0.1, 3)) for s in steps}
    made, explicit = both(domain, held, precision, constrained=constrained, place=1)
    check_estimate(made, explicit, rng)
    check_variances(made, explicit)


def test_the_constrained_estimate_is_never_worse_and_sometimes_better():
    """Gauss–Markov: what knows more has less variance, for every question."""
    for domain, held in CASES[2:7]:
        _, free = both(domain, held, PRECISIONS[1], constrained=False)
        _, tied = both(domain, held, PRECISIONS[1], constrained=True)
        left = np.linalg.eigvalsh(free.covariance - tied.covariance)
        assert left.min() > -1e-9
    # Two counties of 20 blocks and 1: exact totals halve the error, projection shares by blocks.
    uneven = Domain([Axis("block", range(21), levels={"county": [0] * 20 + [1]})])
    county = dense(at_step(uneven, 0, 1))
    free, tied = (
        both(uneven, hold(), {0: 0.01, 1: 30.0}, constrained=constrained)[1].covariance
        for constrained in (False, True)
    )
    ratio = np.trace(county @ free @ county.T) / np.trace(county @ tied @ county.T)
    assert 1.7 < ratio < 2


def test_equal_sizes_need_no_choice():
    """Where all parts of a held group are alike, both estimates are one."""
    axis = Axis("block", range(12), levels={"county": [i // 3 for i in range(12)],
                                            "state": [i // 6 for i in range(12)]})  # fmt: skip
    for held in (hold("state"), hold("county"), hold()):
        _, free = both(Domain([axis]), held, {0: 0.4, 1: 1.3, 2: 0.2}, constrained=False)
        _, tied = both(Domain([axis]), held, {0: 0.4, 1: 1.3, 2: 0.2}, constrained=True)
        np.testing.assert_allclose(free.covariance, tied.covariance, atol=1e-12)


# ----------------------------------------------------------------------------- splitting a budget


def split_of(domain, held, weights, *, constrained):
    made, _ = both(domain, held, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, constrained=constrained)
    return LevelSplit(
        tree=made.tree, components=made.dimensions, weights=weights, cells=made.cells,
        constrained=constrained,
    ), made  # fmt: skip


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(("domain", "held"), CASES, ids=lambda v: str(v))
def test_error_and_slopes_of_a_split(domain, held, constrained):
    weights = [1.0, 2.0, 0.5, 3.0, 1.0]
    split, made = split_of(domain, held, weights, constrained=constrained)
    t = [0.7, 0.3, 1.5, 0.2, 0.0]
    estimate = LevelEstimate(space=made.space, place=made.place, constrained=constrained,
                             precision=dict(zip(made.tree.steps[:4], t, strict=False)))  # fmt: skip
    means = [
        float(estimate.group_variance(at_step(domain, made.place, s)).mean())
        for s in made.tree.steps
    ]
    np.testing.assert_allclose(split.level_errors(t), means, rtol=1e-9, atol=1e-12)
    error, slopes = split.slopes(t)
    assert error == pytest.approx(split.error(t), rel=1e-10)
    assert float(slopes @ t) == pytest.approx(error, rel=1e-9)  # F(λt) = F(t)/λ
    for j in range(4):
        up, down = list(t), list(t)
        up[j], down[j] = t[j] * (1 + 1e-5), t[j] * (1 - 1e-5)
        numeric = (split.error(down) - split.error(up)) / (2e-5 * t[j])
        assert slopes[j] == pytest.approx(numeric, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("held", [None, hold("state")], ids=str)
def test_gaussian_splits_are_best_to_their_gap(held, constrained):
    split, _ = split_of(PLAIN, held, [1.0, 1.0, 2.0, 0.0, 0.0], constrained=constrained)
    costs = [1.0, 2.0, 2.0, 2.0, 2.0]
    found = split.best(costs, [0, 1, 2, 3], pure=False)
    assert found.gap is not None
    assert found.gap < 1e-3
    assert sum(found.shares) == pytest.approx(1.0)

    def error(logs):
        shares = np.exp(logs) / np.exp(logs).sum()
        return split.error([*(shares / costs[:4]), 0.0])

    other = min(
        optimize.minimize(error, start, method="Nelder-Mead", options={"maxiter": 2000}).fun
        for start in (np.zeros(4), np.array([1.0, 0, 0, -3.0]))
    )
    assert found.error <= other * (1 + found.gap) * (1 + 1e-6)


def test_laplace_splits_are_best_on_a_grid():
    split, _ = split_of(PLAIN, None, [1.0, 1.0, 1.0, 1.0, 0.0], constrained=False)
    found = split.best([2.0] * 5, [0, 1, 2, 3], pure=True)
    assert found.gap is None

    def error(shares):
        return split.error([*(np.asarray(shares) ** 2 / 8.0), 0.0])

    assert found.error == pytest.approx(error(found.shares[:4]), rel=1e-12)
    grid = [s for s in itertools.product(range(13), repeat=4) if sum(s) == 12 and s[0]]
    assert found.error <= min(error(np.array(s) / 12) for s in grid) * (1 + 1e-6)


def test_laplace_splits_do_not_get_stuck():
    """Leaving levels out one at a time ends with the labels alone here, 13 % above the best."""
    sizes = [8, 1, 3, 3, 10, 8, 9]
    first = np.repeat(range(7), sizes)
    levels = {"b": first, "c": np.array([0, 0, 0, 1, 2, 2, 2])[first], "d": first // 4}
    domain = Domain([Axis("a", range(42), levels={k: v.tolist() for k, v in levels.items()})])
    made, _ = both(domain, hold("d"), dict.fromkeys(range(4), 1.0), constrained=True, place=0)
    split = LevelSplit(tree=made.tree, components=made.dimensions, cells=1, constrained=True,
                       weights=[1.0, 0.5, 14.9, 0.5, 0.0])  # fmt: skip
    found = split.best([2.0] * 5, [0, 1, 2, 3], pure=True)
    assert found.shares[1] == pytest.approx(0.648, abs=0.01)
    grid = [s for s in itertools.product(range(13), repeat=4) if sum(s) == 12 and s[0]]
    errors = [split.error([*((np.array(s) / 12) ** 2 / 8.0), 0.0]) for s in grid]
    assert found.error <= min(errors) * (1 + 1e-6)
    assert found.error < 0.9 * split.error([1 / 8, 0, 0, 0, 0])


@pytest.mark.parametrize("most", [1, 8])
def test_labels_keep_a_share(monkeypatch, most):
    """Where only a coarse level counts, by both ways to search."""
    monkeypatch.setattr("subspacedp.subspace.hierarchy_split.MOST_TRIED", most)
    split, _ = split_of(PLAIN, None, [0, 0, 1.0, 0, 0], constrained=False)
    for pure in (False, True):
        found = split.best([1.0] * 5, [0, 1, 2, 3], pure=pure)
        assert found.shares[0] >= 0.99e-4
        assert sum(found.shares) == pytest.approx(1.0)


def test_a_split_that_nothing_depends_on():
    split, _ = split_of(PLAIN, hold("state"), [0, 0, 0, 1.0, 1.0], constrained=True)
    with pytest.raises(BudgetError, match=r"^The held totals fix every level that counts"):
        split.best([1.0] * 5, [0, 1, 2, 3], pure=False)


# ------------------------------------------------------------------------------------- symmetries


@pytest.mark.parametrize("order", [range(14), MIXED], ids=["ordered", "mixed"])
def test_groups_of_one_place_have_one_law(order):
    """Equal numbers: equal weights of all noise. Blocks of one tract have one number."""
    domain = Domain([geography(order)])
    for held in (None, hold("state"), hold("county")):
        made, _ = both(domain, held, PRECISIONS[1], constrained=False)
        laws = {s: RoundedGaussian(1.0 / t**0.5) for s, t in PRECISIONS[1].items()}
        noise = LevelNoise(estimate=made, laws=laws)
        for step in range(4):
            groups = domain.axes[0].step(step)
            place = place_classes(domain.axes[0], made.tree.steps, step)
            seen = {}
            for g in range(groups.groups):
                w = np.sort(np.abs(noise.inside((groups.codes == g).astype(float))))
                first = seen.setdefault(int(place[g]), w)
                np.testing.assert_allclose(w, first, atol=1e-9)
            assert len(seen) < groups.groups or step > 0


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(("domain", "held"), CASES[:7], ids=lambda v: str(v))
def test_weights_by_groups_are_those_of_cells(domain, held, constrained):
    """The noise of every level in every total: one pass on the tree against projecting cells."""
    for precision in PRECISIONS:
        made, _ = both(domain, held, precision, constrained=constrained)
        laws = {s: RoundedGaussian(1.0 / t**0.5) for s, t in precision.items()}
        noise = LevelNoise(estimate=made, laws=laws)
        for steps in itertools.product(*[range(axis.depth) for axis in domain.axes]):
            margin = Margin(domain.cells.axes, steps)
            for i in range(int(np.prod(margin.shape))):
                groups = np.zeros(margin.shape)
                groups.reshape(-1)[i] = 1.0
                w = np.array(np.broadcast_to(margin.spread(groups), domain.shape))
                place = tuple(int(p) for p in np.unravel_index(i, margin.shape))
                by_group = noise.total_law(margin, place, 0).parts
                for one, other in zip(by_group, noise.parts(noise.inside(w)), strict=True):
                    a, b = (np.sort(np.repeat(p.weights, p.counts.astype(int)))[::-1]
                            for p in (one, other))  # fmt: skip
                    a, b = a[a > 1e-9], b[b > 1e-9]
                    np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


# ----------------------------------------------------------------------------------------- digits


def test_cumulative_sums_stay_exact():
    """i/3 for a million i: in one run rounding errors add up, with whole parts taken off not."""
    number = 3_000_000
    whole, rest = cumulate(np.full((1, number), 1 / 3), 1)
    i = np.arange(1, number + 1)
    bound = number * RUN * 2.0**-53
    # 1/3 in float64 is off by 2**-54 at most, and that adds up as well.
    off = np.abs((3 * whole - i) + 3 * rest) / 3
    assert off.max() <= bound + number * 2.0**-54
    assert np.abs(rest).max() <= 0.5
    assert np.abs(np.cumsum(np.full(number, 1 / 3)) - i / 3).max() > 20 * bound


@pytest.mark.parametrize("shape", [(7,), (255, 2), (2, 256), (257, 3), (3, 70_000)], ids=str)
def test_cumulative_sums_of_any_length(shape):
    values = np.random.default_rng(1).integers(-(2**20), 2**20, shape)
    for axis in range(len(shape)):
        whole, rest = cumulate(values / 2**21, axis)
        assert np.array_equal(whole * 2**21 + rest * 2**21, np.cumsum(values, axis=axis))


def test_tables_too_large_for_digits_are_refused_before_noise():
    """Cumulated errors are part of the bound: of so many cells the noise does not matter."""
    plan = digits_case(PLAIN, hold("state"), 0)
    plan.check_scale(1.0)
    cells = Domain([Axis("block", range(2**21)), Axis("other", range(2**12))])
    large = LevelDigits(null_space(cells, hold()), 0, 0, (0, 1))
    with pytest.raises(ReleaseError, match=r"^The noise is too large for digits that add up"):
        large.check_scale(0.5)


def digits_case(domain, held, decimals):
    place = [axis.name for axis in domain.axes].index("block")
    return LevelDigits(null_space(domain, held), decimals, place, tuple(range(4)))


@pytest.mark.parametrize("decimals", [0, 2])
@pytest.mark.parametrize(("domain", "held"), CASES, ids=lambda v: str(v))
def test_digits_keep_held_sums_and_move_levels_little(domain, held, decimals):
    plan = digits_case(domain, held, decimals)
    rng = np.random.default_rng(5)
    bound = {1: 2, 2: 4, 3: 8}[len(plan.axes)]
    for seed in range(40):
        # A real table with whole held sums: part of it in N, part whole.
        z = plan.space.project(rng.normal(scale=20, size=domain.shape))
        whole = rng.integers(-9, 10, domain.shape)
        got = plan.round(whole, z, ReleaseKeys.from_seed(seed, b"x").stream("dither"))
        assert got.dtype == np.int64
        for m in plan.held.margins:
            assert np.array_equal(m.sum(got), plan.step * m.sum(whole))
        for step in range(4):
            for others in ("apart", "summed"):
                margin = at_step(domain, plan.place, step)
                if others == "summed":
                    margin = margin.meet(domain.margin(domain.axes[plan.place].step(step).name))
                coins = plan.coin_counts(margin)
                off = np.abs(margin.sum(got) - plan.step * margin.sum(whole + z))
                assert np.all(off <= coins + 1e-6)
                if len(plan.axes) == 1 and others == "summed":
                    assert coins.max() <= bound


def test_rounding_is_unbiased_and_its_variance_bounded():
    """Every cell by itself, over all coins: means within 1e-9 errors, variances below the bound."""
    plan = digits_case(TWO, hold("block") & hold("state", "status"), 0)
    z = plan.space.project(np.random.default_rng(1).normal(scale=3, size=TWO.shape))
    number = 4000
    drawn = np.stack(
        [plan.round(0, z, ReleaseKeys.from_seed(i, b"y").stream("dither")) for i in range(number)]
    )
    spread = drawn.std(axis=0)
    off = np.abs(drawn.mean(axis=0) - z)
    assert np.all(off <= 6.2 * spread / number**0.5 + 1e-9)
    assert np.all(drawn.var(axis=0) <= plan.coin_counts(TWO.cells) / 4 * (1 + 6.2 / number**0.5))


def test_sums_that_are_not_whole_are_refused():
    plan = digits_case(PLAIN, hold("state"), 0)
    coins = ReleaseKeys.from_seed(0, b"x").stream("dither")
    with pytest.raises(ReleaseError, match="contradict"):
        plan.round(0, np.full(PLAIN.shape, 0.3), coins)
    with pytest.raises(ReleaseError, match=r"^The noise is too large for digits that add up"):
        plan.check_scale(2.0**40)
