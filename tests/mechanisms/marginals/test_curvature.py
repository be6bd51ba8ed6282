"""The search by models of curvature: the same least errors as the tested one, with fewer looks."""

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.mechanisms.marginals import fitting, shares
from subspacedp.mechanisms.marginals.fitting import Goal, best_contrasts
from subspacedp.mechanisms.marginals.interactions import Interactions
from subspacedp.mechanisms.marginals.plan import Regions, TableErrors
from subspacedp.mechanisms.marginals.shares import best_by_curvature, best_shares
from subspacedp.mechanisms.marginals.spending import spending_of

ADD, REPLACE = sdp.AddRemoveOne(), sdp.ReplaceOne()


def errors_of(labels=60, seed=0, held=True):
    rng = np.random.default_rng(seed)
    tract = np.sort(rng.integers(0, labels // 3, labels))
    places = sdp.Axis(
        "p", range(labels), levels={"tract": tract.tolist(), "state": (tract // 5).tolist()},
        groupings={
            "district": rng.integers(0, labels // 6, labels).tolist(),
            "grid": [None if rng.random() < 0.1 else int(g)
                     for g in rng.integers(0, labels // 4, labels)],
        },
    )  # fmt: skip
    domain = sdp.Domain([places, sdp.Axis("sex", range(2)), sdp.Axis("age", range(3))])
    names = [["tract"], ["district", "sex"], ["grid"], ["state", "sex", "age"]]
    inter = Interactions(
        domain=domain,
        workload=(domain.cells, *(domain.margin(*m) for m in names)),
        held=(domain.margin("state"),) if held else (),
    )
    return TableErrors(
        interactions=inter, regions=Regions(inter, None), constrained=False, total_known=False
    )


@pytest.mark.parametrize("relation", [ADD, REPLACE], ids=["add", "replace"])
@pytest.mark.parametrize("objective", ["balanced", "sum"])
@pytest.mark.parametrize("held", [True, False])
def test_errors_are_those_of_the_other_search(relation, objective, held):
    errors = errors_of(held=held)
    weights = np.ones(len(errors.interactions.published))
    best = best_contrasts(errors, relation, objective, weights)
    spending, goal = spending_of(errors, relation), Goal(errors, objective, weights)
    scaled = goal.scaled()
    other = best_shares(
        lambda b: goal(scaled, b), spending.first_rows(), np.ones(len(errors.slots)),
        spending.sticking_out, between=fitting.NARROW,
    )  # fmt: skip
    assert best.gap <= 0.02
    assert best.bound <= other.error
    assert best.error <= other.error * 1.003
    assert goal(scaled, best.shares)[0] <= best.error * 1.001
    assert spending.sticking_out(best.shares)[1] <= 1 + 1e-9


def test_a_sample_says_where_to_begin(monkeypatch):
    errors = errors_of(240)
    weights = np.ones(len(errors.interactions.published))
    whole = best_contrasts(errors, ADD, "balanced", weights)
    monkeypatch.setattr(fitting, "SAMPLE", 60)
    few, order = errors.of_sample(60)
    assert len(few.interactions.tree.axis) == 60
    assert [few.interactions.tree.steps[lv] for _, lv, _ in few.slots] == [
        errors.interactions.tree.steps[errors.slots[s][1]] for s in order
    ]
    looks = []
    count = TableErrors.with_slopes

    def counted(self, *given):
        looks.append(len(self.interactions.tree.axis))
        return count(self, *given)

    monkeypatch.setattr(TableErrors, "with_slopes", counted)
    best = best_contrasts(errors, ADD, "balanced", weights)
    assert best.error <= whole.error * 1.006
    assert best.gap <= 0.02
    assert looks.count(240) < looks.count(60)
    assert errors_of(100).of_sample(60) is None


def test_the_model_is_minimised_under_its_rows():
    rng = np.random.default_rng(0)
    for _ in range(20):
        root = rng.normal(size=(6, 6))
        H, g = root @ root.T + 0.1 * np.eye(6), rng.normal(size=6) * 3
        rows, limits = rng.normal(size=(15, 6)), rng.random(15)
        u = shares._quadratic(H, g, rows, limits)
        slack = limits - rows @ u
        assert slack.min() > -1e-6
        # No direction that the active rows allow lowers it: multipliers are not negative.
        active = slack < 1e-5
        multipliers, *_ = np.linalg.lstsq(rows[active].T, g - H @ u, rcond=None)
        assert np.allclose(rows[active].T @ multipliers, g - H @ u, atol=1e-5)
        assert multipliers.min(initial=0.0) > -1e-5


def test_shares_that_replace_each_other():
    """1/(b₁ + 3b₂) + 4/b₃: all of the first two in the second, 1 : 2√3."""

    def error(b):
        both = b[0] + 3 * b[1]
        slopes = np.array([1 / both**2, 3 / both**2, 4 / b[2] ** 2])
        return 1 / both + 4 / b[2], slopes

    best, _ = best_by_curvature(
        error, np.ones((1, 3)), lambda b: (np.ones((1, 3)), float(b.sum())),
        [np.array([0, 1]), np.array([2])], np.full(3, 1e-9), gap=1e-6,
    )  # fmt: skip
    exact = (np.sqrt(1 / 3) + 2) ** 2
    assert best.bound <= exact * (1 + 1e-12)
    assert exact <= best.error <= exact * (1 + 1e-5)
