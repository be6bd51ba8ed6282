"""What is measured, and with which laws: the budget over all neighbours by brute force.

Laws are taken where they are handed to the sampler, and exact integers where they get noise, so
nothing that the design says of itself is believed.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.privacy.exhaustion import changes

import subspacedp as sdp
from subspacedp.mechanisms.marginals import MarginalsOptions, measurement
from subspacedp.noise import ReleaseKeys

SMALL = sdp.Axis("l", range(4), levels={"g": [0, 0, 0, 1]})
DEEP = sdp.Axis("l", range(5), levels={"g": [0, 0, 1, 1, 2], "r": [0, 0, 0, 0, 1]})
SEX = sdp.Axis("sex", ["f", "m"])
TWO, ANSWER = sdp.Axis("t", range(2)), sdp.Axis("u", range(2))
THREE = sdp.Axis("c", range(3))
NESTED = sdp.Axis("n", range(3), levels={"h": [0, 0, 1]})  # a second axis of unequal groups
EMPTY = sdp.Axis("e", range(3), levels={"h": ["x", "x", "y"]}, groups={"h": ["x", "none", "y"]})
CASES = {
    "one tree": ([DEEP], [["l"], ["g"], ["r"], []], None),
    "tree and sex": ([SMALL, SEX], [["l", "sex"], ["g"], ["sex"]], None),
    "held group": ([SMALL, SEX], [["l", "sex"], ["g", "sex"]], sdp.hold("g")),
    "held total": ([DEEP], [["l"], ["g"]], sdp.hold()),
    "regions": ([DEEP, SEX], [["l", "sex"], ["g"]], sdp.hold("g")),
    "no tree": ([SEX, THREE], [["sex", "c"], ["c"]], None),
    "two trees": ([SMALL, NESTED], [["l", "n"], ["g", "h"], ["h"]], sdp.hold("g")),
    "empty group": ([EMPTY, SEX], [["e", "sex"], ["h"]], None),
    "a joint table": ([SEX, TWO, ANSWER], [["sex", "t"], ["t", "u"], ["sex", "u"]], None),
    "only a margin": ([SMALL, THREE], [["g", "c"]], None),
}
RELATIONS = [
    sdp.AddRemoveOne(),
    sdp.ReplaceOne(),
    sdp.AddRemoveOne(records=2),
    sdp.ReplaceOne(records=2, per_cell=1),
]
BUDGETS = [sdp.ZCDP(0.5), sdp.ApproxDP(1.0, 1e-6), sdp.PureDP(1.0)]


class Sampler:
    """In place of the sampler: notes integers and laws, and writes zeros."""

    def __init__(self):
        self.laws, self.integers, self.words = [], [], []

    def __call__(self, law, keys, start, base, out):
        assert keys is None
        self.laws.extend([law] * base.size)
        self.integers.extend(base.tolist())
        self.words.extend(range(start, start + base.size))
        out[:] = 0


def measured(mechanism, table, monkeypatch):
    """Laws and integers in the order of the sampler, and what is left when they are zeros."""
    sampler = Sampler()
    with monkeypatch.context() as patch:
        patch.setattr(measurement, "add_noise", sampler)
        left = mechanism.mechanism.measure(table, None)
    assert len(set(sampler.words)) == len(sampler.words), "two integers share a random word"
    return sampler.laws, np.array(sampler.integers, np.int64), left


def columns(mechanism, monkeypatch):
    """The integers of every single record, and the laws; nothing else depends on the data."""
    domain = mechanism.mechanism.domain
    empty = np.zeros(domain.shape, np.int64)
    laws, base, left = measured(mechanism, sdp.Table(empty, domain), monkeypatch)
    out = []
    for place in np.ndindex(domain.shape):
        one = empty.copy()
        one[place] = 1
        same, vector, rest = measured(mechanism, sdp.Table(one, domain), monkeypatch)
        assert same == laws
        changed = np.flatnonzero(rest - left)
        if changed.size:  # the grand total, where no neighbouring change alters it
            assert changed.tolist() == [len(rest) - 1]
            assert mechanism.mechanism.neighbours.keeps_total
            assert mechanism.mechanism.neighbours.persons == 2
        out.append(vector - base)
    return laws, np.array(out, np.int64)


def spent(mechanism, monkeypatch):
    """The largest Σ (Δ/σ)², or Σ |Δ|·rate, over all neighbouring changes, as a fraction."""
    domain, relation = mechanism.mechanism.domain, mechanism.mechanism.neighbours
    laws, vectors = columns(mechanism, monkeypatch)
    moves = np.array(sorted(changes(domain.size, relation)), np.int64) @ vectors
    pure = mechanism.mechanism.budget.pure
    each = np.abs(moves) if pure else moves**2
    distinct = list(dict.fromkeys(laws))
    member = np.array([distinct.index(law) for law in laws])
    sums = np.array([each[:, member == i].sum(axis=1) for i in range(len(distinct))])
    costs = [law.rate if pure else 1 / Fraction(law.sigma) ** 2 for law in distinct]
    rough = np.array([float(c) for c in costs]) @ sums
    top = np.flatnonzero(rough >= rough.max() * (1 - 1e-9))
    return max(
        sum((c * int(s) for c, s in zip(costs, sums[:, j], strict=True)), Fraction(0)) for j in top
    )


def limit(budget):
    return Fraction(1) if budget.pure else Fraction(budget.gaussian_mu) ** 2


def made(case, budget, relation, **options):
    axes, margins, held = case
    domain = sdp.Domain(axes)
    return sdp.design(sdp.Margins(domain, margins), held, budget, neighbours=relation, **options)


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_budget_is_kept_over_all_neighbours(case, budget, relation, monkeypatch):
    mechanism = made(case, budget, relation)
    loss = spent(mechanism, monkeypatch)
    assert loss <= limit(budget)
    if relation == sdp.AddRemoveOne():
        assert loss >= limit(budget) * Fraction(999, 1000)  # and it is spent


@pytest.mark.parametrize("relation", RELATIONS[:2], ids=str)
@pytest.mark.parametrize("budget", [BUDGETS[0], BUDGETS[2]], ids=str)
def test_larger_shares_than_the_budget_are_caught(budget, relation, monkeypatch):
    """The twin with every share two per cent larger."""
    mechanism = made(CASES["tree and sex"], budget, relation)
    shares = mechanism.mechanism.strategy.shares
    more = tuple(int(u * 1.02) for u in shares) if budget.pure else np.asarray(shares) * 1.02
    twin = replace(mechanism.mechanism, strategy=replace(mechanism.mechanism.strategy, shares=more))
    assert spent(type(mechanism)(twin), monkeypatch) > limit(budget)


def test_a_split_for_the_pair_that_differs_everywhere_is_caught(monkeypatch):
    """The twin that looks at one kind of pair: changing one of two answers moves more."""
    axes = [sdp.Axis("a", range(2)), sdp.Axis("b", range(3)), sdp.Axis("c", range(2))]
    case = (axes, [["a", "b"], ["b", "c"], ["a", "c"]], None)
    mechanism = made(case, BUDGETS[0], sdp.ReplaceOne())
    loss = spent(mechanism, monkeypatch)
    assert loss <= limit(BUDGETS[0])
    laws, vectors = columns(mechanism, monkeypatch)
    sigma = np.array([law.sigma for law in laws])
    everywhere = (((vectors[0] - vectors[-1]) / sigma) ** 2).sum()
    shares = np.asarray(mechanism.mechanism.strategy.shares) * (float(loss) / everywhere)
    assert everywhere < 0.95 * float(loss)
    twin = replace(
        mechanism.mechanism, strategy=replace(mechanism.mechanism.strategy, shares=shares)
    )
    assert spent(type(mechanism)(twin), monkeypatch) > limit(BUDGETS[0])


def test_cells_with_margins_beside_them(monkeypatch):
    domain = sdp.Domain([SMALL, SEX])
    for budget in BUDGETS:
        mechanism = sdp.design(
            domain,
            sdp.hold("g"),
            budget,
            mechanism=MarginalsOptions(margins=[["g", "sex"], ["sex"]]),
        )
        assert spent(mechanism, monkeypatch) <= limit(budget)


def test_tables_for_a_gaussian_budget(monkeypatch):
    domain = sdp.Domain([SMALL, SEX])
    for relation in RELATIONS[:2]:
        mechanism = sdp.design(
            sdp.Margins(domain, [["l", "sex"], ["g"]]), None, BUDGETS[0], neighbours=relation,
            mechanism=MarginalsOptions(measured="tables"),
        )  # fmt: skip
        loss = spent(mechanism, monkeypatch)
        assert limit(BUDGETS[0]) * Fraction(999, 1000) <= loss <= limit(BUDGETS[0])


def test_capped_designs_add_noise_to_the_grand_total_too(monkeypatch):
    """Held totals are then of all records: nothing may be measured without noise."""
    domain = sdp.Domain([DEEP])
    mechanism = sdp.design(
        sdp.Margins(domain, [["l"], ["g"], []]), None, BUDGETS[0], capped=True,
        neighbours=sdp.ReplaceOne(records=2),
    )  # fmt: skip
    assert spent(mechanism, monkeypatch) <= limit(BUDGETS[0])
    free = np.zeros(domain.shape, np.int64)
    free[0] = 1
    left = measured(mechanism, sdp.Table(free, domain), monkeypatch)[2]
    assert not left.any()


def test_measurements_are_linear():
    """Integers of a table are the sums of those of its records."""
    mechanism = made(CASES["two trees"], BUDGETS[0], sdp.ReplaceOne())
    with pytest.MonkeyPatch.context() as patch:
        _, vectors = columns(mechanism, patch)
        domain = mechanism.mechanism.domain
        table = np.random.default_rng(0).integers(0, 50, domain.shape)
        _, found, _ = measured(mechanism, sdp.Table(table, domain), patch)
    assert np.array_equal(found, table.ravel() @ vectors)


def test_no_two_integers_share_noise():
    """Equal laws of different pieces draw different words."""
    axis = sdp.Axis(
        "l", range(600), levels={"g": np.repeat(range(20), range(11, 50, 2)[:20]).tolist()}
    )
    domain = sdp.Domain([axis, SEX])
    mechanism = sdp.design(sdp.Margins(domain, [["l", "sex"], ["l"]]), None, sdp.PureDP(1.0))
    noise = mechanism.mechanism.add_noise(
        np.zeros(domain.size + 600, np.int64), ReleaseKeys.from_seed(1, b"x")
    )
    first, second = noise[:600], noise[1200:1800]
    assert np.count_nonzero(first == second) < 300
