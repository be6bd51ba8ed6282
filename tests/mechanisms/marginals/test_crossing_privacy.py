"""Levels and groupings measured together: the budget over all neighbours, by brute force.

As in `test_privacy.py`, laws and integers are taken where the sampler gets them.
"""

import copy
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.mechanisms.marginals.test_privacy import BUDGETS, RELATIONS, limit, spent

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.marginals import MarginalsOptions, fitting, strategy
from subspacedp.mechanisms.marginals.spending import spending_of
from subspacedp.mechanisms.registry import mechanism_from

PLACES = sdp.Axis(
    "place",
    range(5),
    levels={"county": [0, 0, 1, 1, 1]},
    groupings={"district": [0, 1, 1, None, 0], "grid": [0, 1, 0, 1, None]},
)
SEX = sdp.Axis("sex", ["f", "m"])
DOMAIN = sdp.Domain([PLACES, SEX])
MARGINS = [["county"], ["district", "sex"], ["grid"]]
HELD = {
    "nothing": None,
    "the total": sdp.hold(),
    "a level": sdp.hold("county"),
    "a grouping with a hole": sdp.hold("district"),
    "two that cross": sdp.hold("county") & sdp.hold("district"),
}


def made(held, budget, relation, **options):
    kind = MarginalsOptions(margins=MARGINS, **options)
    return sdp.design(DOMAIN, held, budget, neighbours=relation, mechanism=kind)


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
def test_the_budget_is_kept_over_all_neighbours(held, budget, relation, monkeypatch):
    design = made(held, budget, relation)
    loss = spent(design, monkeypatch)
    assert loss <= limit(budget)
    if relation in RELATIONS[:2] and not budget.pure:
        assert loss >= limit(budget) * Fraction(999, 1000)  # and it is spent


class Forgetting:
    """The twin: what neighbours spend, without one level."""

    def __init__(self, errors, neighbours, level):
        self.inner = spending_of(errors, neighbours)
        step = errors.interactions.tree.axis.step_of(level)
        number = errors.interactions.tree.steps.index(step)
        self.kept = np.array([lv != number for _, lv, _ in errors.slots], float)

    def first_rows(self):
        return self.inner.first_rows()  # a search needs rows for every share

    def possible(self):
        return self.inner.possible()

    def sticking_out(self, shares, number=64):
        rows, most = self.inner.sticking_out(shares * self.kept, number)
        return rows * np.maximum(self.kept, 1e-3), most


def forgetful(level, monkeypatch, *arguments):
    """A design of the twin, made whole: its budget forgets a level wherever it is looked at."""
    with monkeypatch.context() as patch:
        for module in (fitting, strategy):
            patch.setattr(module, "spending_of", lambda e, n: Forgetting(e, n, level))
        return made(*arguments)


@pytest.mark.parametrize("relation", RELATIONS[:2], ids=str)
@pytest.mark.parametrize("level", ["district", "grid"])
def test_a_budget_that_forgets_a_grouping_is_caught(level, relation, monkeypatch):
    budget = sdp.ZCDP(0.5)
    twin = forgetful(level, monkeypatch, None, budget, relation)
    assert spent(twin, monkeypatch) > limit(budget) * Fraction(11, 10)
    stated = twin.mechanism.as_dict()
    with pytest.raises(ReleaseError, match="too small for the budget"):
        mechanism_from(json.loads(json.dumps(stated)))


def with_shares(design, shares):
    """A design with other shares of its tables, whatever they add up to."""
    inner, out = design.mechanism, copy.copy(design)
    strategy_ = replace(inner.strategy, shares=tuple(shares))
    object.__setattr__(out, "mechanism", replace(inner, strategy=strategy_))
    return out


@pytest.mark.parametrize("relation", RELATIONS[:2], ids=str)
@pytest.mark.parametrize("budget", [sdp.PureDP(1.0), sdp.ZCDP(0.5)], ids=str)
def test_tables_whose_shares_forget_a_grouping_are_caught(budget, relation, monkeypatch):
    design = made(None, budget, relation, measured="tables")
    inner = design.mechanism
    names = [inner.interactions.margin(t.level, t.steps).names for t in inner.strategy.tables]
    assert ("district", "sex") in names
    count = len(names)
    equal = [strategy.UNITS // count] * count
    assert spent(with_shares(design, equal), monkeypatch) <= limit(budget)
    forgotten = [strategy.UNITS // (count if "district" in n else count - 1) for n in names]
    assert spent(with_shares(design, forgotten), monkeypatch) > limit(budget) * Fraction(11, 10)
