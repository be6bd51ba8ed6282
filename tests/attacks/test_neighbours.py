"""Every law that reaches the sampler, over all neighbours of random designs: the budget is kept.

The same for designs that were read back from a certificate or from a plan of agents. Losses are
fractions, compared exactly.
"""

import json
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from tests.attacks.designs import (
    BUDGETS,
    NAMES,
    PAIRS,
    QUERIES,
    RELATIONS,
    random_design,
)
from tests.attacks.interception import Sampler, intercepted
from tests.attacks.losses import loss, neighbours
from tests.release.fitted import FITTED

import subspacedp as sdp
from subspacedp.agents import AgentPlan, Partition, make_plan
from subspacedp.errors import SubspaceDPError
from subspacedp.invariants import HeldMargins
from subspacedp.mechanisms import MECHANISMS
from subspacedp.mechanisms.knorm.fitting import NORM_BALLS
from subspacedp.mechanisms.marginals.measurement import ContrastMeasurement, TableMeasurement
from subspacedp.noise import ReleaseKeys
from subspacedp.privacy import Neighbours
from subspacedp.privacy.budgets import BUDGETS as KINDS
from subspacedp.queries import Cells, Query

QUICK, SOAK = range(3), range(3, 33)
KNORM = [name for name in FITTED if name.startswith("knorm")]
each_pair = pytest.mark.parametrize(
    ("name", "query"), PAIRS, ids=[f"{n}-{q.__name__}" for n, q in PAIRS]
)


def cases(name, query, seeds=QUICK):
    for seed in seeds:
        case = random_design(seed, name, query)
        assert case is not None, f"no random design of {name} for {query.__name__}"
        yield case


def subclasses(kind):
    return {c for s in kind.__subclasses__() for c in (s, *subclasses(s))}


# ------------------------------------------------------------------------------------ nothing left


def test_the_registry_of_what_is_attacked_is_complete():
    """A mechanism, query, budget or relation that is new fails here until it has designs."""
    designs = [case.mechanism for pair in PAIRS for case in cases(*pair, range(9))]
    assert {d.name for d in designs} == set(MECHANISMS) == set(NAMES)
    stated = {query for query in subclasses(Query) if "kind" in vars(query)}
    assert {type(d.query) for d in designs} == stated == set(QUERIES)
    assert {type(d.budget) for d in designs} == set(KINDS.values()) == set(BUDGETS)
    assert {type(d.neighbours) for d in designs} == subclasses(Neighbours) == set(RELATIONS)
    for name in NAMES:  # every relation for every mechanism, and all budgets it takes
        ours = [d for d in designs if d.name == name]
        assert {type(d.neighbours) for d in ours} == set(RELATIONS)
        pure = {d.budget.pure for d in ours}
        gaussian = name in ("optimal", "correlated", "discrete")
        assert pure == ({True} if name == "knorm" else {False} if gaussian else {True, False})
    assert {d.held.exact for d in designs} == {True, False}
    assert {isinstance(d.held, HeldMargins) for d in designs} == {True, False}
    assert any(getattr(d.held, "empty", None) is not None for d in designs)
    for name in ("projected", "extended", "optimal", "knorm", "marginals"):
        assert any(d.capped for d in designs if d.name == name), name
    assert {type(d.decimals) for d in designs} == {type(None), int}
    measured = [d.measurement for d in designs if d.name == "marginals"]
    assert {type(m) for m in measured} == {ContrastMeasurement, TableMeasurement}
    assert any(m.errors.regions.number > 1 for m in measured)


def test_pairs_without_designs_are_those_that_are_refused():
    for name in NAMES:
        for query in set(QUERIES) - {q for n, q in PAIRS if n == name}:
            assert random_design(0, name, query) is None, (name, query)


@pytest.mark.parametrize("name", KNORM)
def test_every_norm_ball_of_k_norm_noise_keeps_the_budget(name):
    """Designs large enough for boxes and ellipsoids, which random ones do not meet."""
    assert loss(FITTED[name]().mechanism) <= 1


def test_every_norm_ball_of_k_norm_noise_is_attacked():
    norm_balls = {FITTED[name]().mechanism.choice.norm_ball.as_dict()["body"] for name in KNORM}
    assert norm_balls == set(NORM_BALLS)


# ------------------------------------------------------------------------------------- neighbours


@each_pair
def test_the_budget_is_kept_over_all_neighbours(name, query):
    for case in cases(name, query):
        assert loss(case.mechanism) <= 1, case.mechanism


@pytest.mark.soak
@each_pair
def test_the_budget_is_kept_by_hundreds_of_designs(name, query):
    for case in cases(name, query, SOAK):
        assert loss(case.mechanism) <= 1, case.mechanism


def test_the_budget_is_spent():
    """Else a loss that is always zero would pass."""
    losses = [loss(c.mechanism) for pair in PAIRS for c in cases(*pair, range(1))]
    assert min(losses) > Fraction(1, 8)
    assert np.median([float(x) for x in losses]) > 0.9


class Stated:
    """A twin: the noise of one design under the claims of another."""

    def __init__(self, mechanism, **claims):
        self.inner, self.claimed = mechanism, replace(mechanism.problem, **claims)
        self.context = mechanism.context

    def __getattr__(self, name):
        return getattr(self.claimed, name)

    def check(self, data, **more):
        return self.inner.check(data, **more)

    def add_noise(self, answers, keys):
        return self.inner.add_noise(answers, keys)


@pytest.mark.parametrize(("name", "query"), [p for p in PAIRS if p[1] is not sdp.GeneralQuery])
def test_noise_for_fewer_records_than_are_stated_is_caught(name, query):
    """But of functions, whose neighbours are those that were declared, whatever the relation.

    Of one of a few designs at least: what is held may leave little that neighbours can change.
    """

    def short(seed):
        mechanism = random_design(seed, name, query).mechanism
        relation = mechanism.neighbours
        more = replace(relation, records=relation.records + 2, per_cell=None)
        return loss(Stated(mechanism, neighbours=more)) > 1

    assert any(short(seed) for seed in range(4))


@each_pair
def test_noise_for_a_larger_budget_than_is_stated_is_caught(name, query):
    case = random_design(0, name, query)
    budget = case.mechanism.budget
    weak = {"pure": "epsilon", "zcdp": "rho"}.get(budget.name)
    claims = {f.name: getattr(budget, f.name) for f in fields(budget)}
    claims[weak or next(iter(claims))] /= 8
    assert loss(Stated(case.mechanism, budget=type(budget)(**claims))) > 1


# ------------------------------------------------------------------------------- read from a file


def measured(mechanism, seed=0):
    """Laws and words in their order, and the integers that get noise."""
    keys = ReleaseKeys.from_seed(1, mechanism.context)
    with intercepted(Sampler()) as sampler:
        base = neighbours(mechanism, np.random.default_rng(seed))[0]
        sampler.drawn.clear()
        noisy = np.asarray(mechanism.add_noise(base.copy(), keys))
    return sampler.drawn, noisy.tolist()


@each_pair
def test_a_certificate_that_was_read_has_the_same_laws(name, query, tmp_path):
    for number, case in enumerate(cases(name, query)):
        release = case.release(np.random.default_rng(number))
        release.save(tmp_path / str(number))
        again = sdp.Release.load(tmp_path / str(number)).mechanism
        assert release.verify().ok
        if name == "imposed":
            continue
        assert measured(again) == measured(case.mechanism)
        assert loss(again, seed=1) <= 1


def plans(name, query, seeds=QUICK):
    """Plans of agents for random designs, as somebody else reads them; None for what is refused."""
    for case in cases(name, query, seeds):
        if case.mechanism.query.axes is None:  # answers that are nobody's own
            yield case, None
            continue
        rng = np.random.default_rng(7)
        owners = rng.permutation(case.size)
        parts = {f"part{i}": {"cells": sorted(c.tolist())} for i, c in
                 enumerate(np.array_split(owners, min(3, case.size)))}  # fmt: skip
        try:
            partition = Partition.from_dict(case.mechanism.query.axes, parts)
            plan = make_plan(case.design, partition)
        except SubspaceDPError:
            yield case, None
            continue
        yield (
            case,
            AgentPlan.from_dict(json.loads(json.dumps({**plan.content(), "sha256": plan.digest}))),
        )


AGENTS = [(n, q) for n, q in PAIRS if q in (Cells, sdp.LocalEntries) and MECHANISMS[n].linear]


@pytest.mark.parametrize(("name", "query"), AGENTS)
def test_a_plan_that_was_read_keeps_the_budget(name, query):
    number = 0
    for case, plan in plans(name, query, range(8)):
        if plan is None:
            continue
        number += 1
        assert loss(plan.mechanism, seed=2) <= 1
        basis = getattr(case.mechanism, "basis", None)
        if basis is None or not basis.drop:
            assert measured(plan.mechanism) == measured(case.mechanism)
    assert number >= 3


def test_what_agents_cannot_have_is_refused():
    for name, query in set(PAIRS) - set(AGENTS):
        if name != "imposed" or query in (Cells, sdp.LocalEntries):
            assert all(plan is None for _, plan in plans(name, query, range(2)))
