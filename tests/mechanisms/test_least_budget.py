"""The least budget: targets are met, not with less, and prices are finite differences."""

import cvxpy as cp
import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import BudgetError, DomainError, ReleaseError
from subspacedp.invariants import StructuralZeros
from subspacedp.mechanisms.marginals import with_budget
from subspacedp.mechanisms.marginals.spending import spending_of
from subspacedp.mechanisms.marginals.targets import WorstFigures, worst_bound
from subspacedp.release import Design

NAMES = "abc"
RELATIONS = [sdp.AddRemoveOne(), sdp.ReplaceOne()]


def random_workload(seed):
    rng = np.random.default_rng(seed)
    domain = sdp.Domain([sdp.Axis(n, range(int(rng.integers(2, 5)))) for n in NAMES])
    subsets = [[n for i, n in enumerate(NAMES) if mask >> i & 1] for mask in range(1, 8)]
    chosen = [subsets[i] for i in sorted(rng.choice(7, 4, replace=False))]
    held = subsets[int(rng.integers(3))]
    left = [m for m in chosen if not set(m) <= set(held)] or [list(NAMES)]
    targets = rng.uniform(5, 50, len(left)).tolist()
    return domain, left, targets, sdp.hold(*held)


def worst(design):
    workload = design.mechanism.strategy.workload
    return max(
        float(np.max(design.margin_accuracy(*m.names).margin_of_error())) / t
        for m, t in zip(workload.margins, workload.targets, strict=True)
        if t is not None
    )


@pytest.mark.parametrize("relation", RELATIONS, ids=["add", "replace"])
@pytest.mark.parametrize("seed", range(20))
def test_variance_targets_take_the_optimum_of_cvxpy(seed, relation):
    """Flat axes: every interaction has one share, so variances are sums of reciprocals."""
    domain, margins, targets, held = random_workload(seed)
    least = sdp.least_budget(sdp.Margins(domain, margins, targets=targets), held, sdp.GaussianDP,
                             neighbours=relation)  # fmt: skip
    errors = least.design.mechanism.measurement.errors
    allowed = (np.array(targets) / 1.959963984540054) ** 2
    figures = WorstFigures(errors, allowed)
    ones = np.ones(len(errors.slots))
    parts = figures.slopes(ones, np.arange(len(figures.figures)))
    rows = spending_of(errors, relation).sticking_out(ones)[0]
    b, t = cp.Variable(len(ones), pos=True), cp.Variable()
    cp.Problem(
        cp.Minimize(t), [parts @ cp.inv_pos(b) <= t, rows @ b <= 1]
    ).solve(solver="CLARABEL")  # fmt: skip
    strategy = least.design.mechanism.strategy
    reached = strategy.goal * least.budget.mu**2
    assert reached == pytest.approx(float(t.value), rel=1e-3)
    assert least.gap < 2.5e-4  # as proven again from the shares alone


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("kind", [sdp.ZCDP, sdp.GaussianDP, sdp.ApproxDP(1.0, 1e-6)])
@pytest.mark.parametrize("seed", [1, 4])
def test_targets_are_met_and_not_with_one_per_cent_less(kind, seed, decimals):
    domain, margins, targets, held = random_workload(seed)
    query = sdp.Margins(domain, margins, targets=targets)
    least = sdp.least_budget(query, held, kind, decimals=decimals)
    assert worst(least.design) <= 1
    assert worst(sdp.design(query, held, least.budget, decimals=decimals)) <= 1 + 1e-9
    fewer = least.budget.with_amount(least.budget.amount * 0.99)
    assert worst(sdp.design(query, held, fewer, decimals=decimals)) > 1


def test_a_pure_budget_meets_its_targets():
    domain, margins, targets, held = random_workload(2)
    least = sdp.least_budget(sdp.Margins(domain, margins, targets=targets), held, sdp.PureDP)
    assert worst(least.design) <= 1
    assert 0 < least.bound <= least.budget.epsilon


@pytest.mark.parametrize("seed", [1, 4, 7])
def test_whole_targets_of_whole_figures_are_met_by_the_target_itself(seed):
    """An error of 4 is 4: with a hair more, budgets were those of an error of 3."""
    domain, margins, targets, held = random_workload(seed)
    query = sdp.Margins(domain, margins, targets=[float(round(t)) for t in targets])
    least = sdp.least_budget(query, held, sdp.PureDP, decimals=0)
    assert worst(least.design) == 1
    assert all(price.error.is_integer() for price in least.prices)
    fitted = least.design.mechanism
    fewer = [with_budget(fitted, sdp.PureDP(least.epsilon * part)) for part in (0.97, 0.9, 0.8)]
    assert min(worst(Design(mechanism)) for mechanism in fewer) > 1


@pytest.mark.parametrize("relation", RELATIONS, ids=["add", "replace"])
def test_prices_are_finite_differences(relation):
    domain, margins, targets, held = random_workload(4)

    def amount(changed):
        query = sdp.Margins(domain, margins, targets=changed)
        return sdp.least_budget(query, held, neighbours=relation).budget.rho

    query = sdp.Margins(domain, margins, targets=targets)
    least = sdp.least_budget(query, held, neighbours=relation)
    for t, price in enumerate(least.prices):
        h = 0.01 * targets[t]
        up, down = ([x + s * (i == t) for i, x in enumerate(targets)] for s in (h, -h))
        difference = (amount(down) - amount(up)) / (2 * h)
        assert price.price == pytest.approx(difference, rel=0.02, abs=1e-4 * least.rho / targets[t])
        assert price.without <= least.rho * (1 + 1e-3)


def test_levels_of_a_tree_and_certificates(tmp_path):
    county = sdp.Axis("county", range(7), levels={"state": [0, 0, 0, 0, 1, 1, 2]})
    domain = sdp.Domain([county, sdp.Axis("sex", ["f", "m"])])
    query = sdp.Margins(domain, [["county", "sex"], ["state"], []], targets=[20, 8, None])
    least = sdp.least_budget(query, None, neighbours=sdp.AddRemoveOne())
    assert worst(least.design) <= 1
    table = sdp.Table(np.arange(14).reshape(7, 2), domain)
    Design(least.design.mechanism).release(table, seed=1).save(tmp_path / "out")
    loaded = sdp.load(tmp_path / "out")
    assert loaded.verify().ok
    assert loaded.mechanism.strategy.workload.targets == (20.0, 8.0, None)


TINY = sdp.Domain([sdp.Axis("a", range(3)), sdp.Axis("b", range(2))])


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: sdp.Margins(TINY, ["a"], targets=[0]), DomainError, "The target of `a` must be"),
        (lambda: sdp.Margins(TINY, ["a"], targets=[1, 2]), DomainError, "1 in all; got 2"),
        (lambda: sdp.Margins(TINY, ["a"], targets=[None]), DomainError, "leave it out"),
        (lambda: sdp.least_budget(TINY, None), ReleaseError, "needs targets"),
        (
            lambda: sdp.least_budget(
                sdp.Margins(TINY, ["a", ["a", "b"]], targets=[5, 5]), sdp.hold("a")
            ),
            ReleaseError, "`a` has a target, and is published exactly",
        ),
        (
            lambda: sdp.least_budget(sdp.Margins(TINY, ["a"], targets=[5]), None, sdp.ApproxDP),
            BudgetError, "needs its δ",
        ),
        (
            lambda: sdp.least_budget(TINY, None, 0.5, error=5),
            BudgetError, "`kind` must be PureDP",
        ),
        (lambda: sdp.least_budget(TINY, None, error=-1), ReleaseError, "positive finite number"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_bound_holds_and_the_twin_with_infeasible_weights_exceeds_what_is_reached():
    """Statement 2 of docs/proofs/targets.md, at shares that are not the best."""
    domain, margins, targets, held = random_workload(4)
    least = sdp.least_budget(sdp.Margins(domain, margins, targets=targets), held, sdp.GaussianDP)
    errors = least.design.mechanism.measurement.errors
    figures = WorstFigures(errors, (np.array(targets) / 1.959963984540054) ** 2)
    spending = spending_of(errors, sdp.ReplaceOne())
    best = np.asarray(least.design.mechanism.strategy.shares)
    best = best / spending.sticking_out(best)[1]
    reached = float(figures(best).max())
    rng = np.random.default_rng(1)
    twin = 0.0
    for _ in range(50):
        shares = best * np.exp(rng.normal(0, 0.5, len(best)))
        rows, most = spending.sticking_out(shares)
        shares = shares / most
        assert worst_bound(figures, rows, shares)[0] <= reached * (1 + 1e-9)
        # The twin prices the largest figure by the shares, feasible or not.
        multiples = figures(shares)
        slope = figures.slopes(shares, np.array([int(np.argmax(multiples))]))[0]
        cost = rows.mean(axis=0)
        twin = max(twin, float(multiples.max() ** 2 / np.mean(slope[cost > 0] / cost[cost > 0])))
    assert twin > reached * 1.01


@pytest.mark.parametrize("decimals", [None, 0, 2])
def test_capped_records(decimals):
    domain, margins, targets, held = random_workload(4)
    query = sdp.Margins(domain, margins, targets=targets)
    three = sdp.ReplaceOne(records=3)
    given = {"neighbours": three, "decimals": decimals, "capped": True}
    least = sdp.least_budget(query, held, **given)
    assert worst(least.design) <= 1
    fewer = least.budget.with_amount(0.99 * least.rho)
    assert worst(sdp.design(query, held, fewer, **given)) > 1


def test_targets_of_the_options():
    wanted = sdp.Marginals(margins=[["a"], ["b"]], targets=[6, None, 5])
    least = sdp.least_budget(TINY, sdp.hold(), mechanism=wanted)
    assert worst(least.design) <= 1
    assert [price.margin for price in least.prices] == [("a", "b"), ("b",)]


def test_targets_beside_cells_known_to_be_empty():
    """Shares are chosen as if no cell were empty, so that no gap is known."""
    empty = np.zeros(TINY.shape, bool)
    empty[0, 1] = True
    given = {"mechanism": sdp.Marginals(margins=[["a"]], targets=[5, 6])}
    least = sdp.least_budget(TINY, StructuralZeros(empty), **given)
    assert worst(least.design) <= 1
    assert np.isinf(least.gap)
    fewer = least.budget.with_amount(0.99 * least.rho)
    assert worst(sdp.design(TINY, StructuralZeros(empty), fewer, **given)) > 1
