"""Agents, each with its own cells and the secret, against one who has the whole table."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.strategies import both_engines, problems, using

import subspacedp as sdp
from subspacedp.agents import AgentPlan, Partition, Secret, collect, make_plan, privatize
from subspacedp.agents import totals as totals_module
from subspacedp.agents.totals import connected_cells, regions_of, separating
from subspacedp.errors import AlteredError, InvariantError, ReleaseError, SubspaceDPError
from subspacedp.noise import Keystream
from subspacedp.release import Design

SECRET = Secret(bytes(range(100, 132)))


def county_domain():
    county = sdp.Axis(
        "county",
        [f"c{i}" for i in range(12)],
        levels={
            "state": [f"s{i % 3}" for i in range(12)],  # members are not neighbours
            "region": ["A" if i % 3 < 2 else "B" for i in range(12)],
        },
    )
    age = sdp.Axis("age", range(5), levels={"stage": ["y", "y", "o", "o", "o"]})
    return sdp.Domain([county, age, sdp.Axis("sex", ["F", "M"])])


def counts(domain, seed=1):
    return np.random.default_rng(seed).integers(0, 60, domain.shape)


def central(plan, answers, secret=SECRET):
    return Design(plan.mechanism).release_with(secret.keys(plan), answers, answers, seeded=False)


def by_agents(plan, answers, folder, secret=SECRET):
    flat = answers.reshape(-1)
    made = [
        privatize(plan, name, flat[plan.partition.cells(name)], secret, record=folder / "record")
        for name in plan.partition.names
    ]
    return collect(plan, [one.part for one in made]), {m.part.name: m.drawn for m in made}


def same(one, other):
    return (
        one.values.dtype == other.values.dtype
        and np.array_equal(one.values, other.values)
        and len(one.exact) == len(other.exact)
        and all(np.array_equal(a, b) for a, b in zip(one.exact, other.exact, strict=True))
    )


FAMILIES = {
    "nothing": None,
    "total": sdp.hold(),
    "states": sdp.hold("state"),
    "counties": sdp.hold("county"),
    "crossing": sdp.hold("age") & sdp.hold("sex"),
    "in states": sdp.hold("state", "age") & sdp.hold("state", "sex"),
    "coarse": sdp.hold("state", "stage") & sdp.hold("county"),
    "levels": sdp.hold("region", "stage") & sdp.hold("state", "sex"),
}


@both_engines
@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_put_together_are_the_release_of_the_whole_table(family, decimals, engine, tmp_path):
    domain = county_domain()
    with using(engine):
        mechanism = sdp.design(domain, FAMILIES[family], sdp.PureDP(0.4), decimals=decimals)
        for level in ("state", "sex"):
            plan = make_plan(mechanism, Partition.by(domain, level))
            release, _ = by_agents(plan, counts(domain), tmp_path)
            assert same(release, central(plan, counts(domain)))
            assert release.verify().ok


@st.composite
def parted(draw, domain):
    """A partition of the cells into at most four parts, by numbers, at random."""
    size = domain.size
    owner = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    parts = {f"p{k}": [i for i in range(size) if owner[i] == k] for k in set(owner)}
    return Partition.from_dict(domain, {name: {"cells": cells} for name, cells in parts.items()})


@both_engines
@given(data=st.data())
def test_any_margins_any_parts(engine, tmp_path_factory, data):
    domain, held = data.draw(problems(max_cells=60))
    budget = data.draw(st.sampled_from([sdp.PureDP(0.3), sdp.ZCDP(0.02)]))
    decimals = data.draw(st.sampled_from([None, 0, 1]))
    with using(engine):
        try:
            mechanism = sdp.design(domain, held, budget, decimals=decimals)
        except InvariantError:
            assume(False)
        plan = make_plan(mechanism, data.draw(parted(domain)))
        release, drawn = by_agents(plan, counts(domain), tmp_path_factory.mktemp("agents"))
        assert same(release, central(plan, counts(domain)))
        if decimals is None:
            for name, number in drawn.items():
                assert number == _connected(plan, plan.partition.cells(name))


def _connected(plan, cells):
    """How many cells are connected to some, through groups of any held margin, by brute force."""
    domain = plan.mechanism.domain
    reached = np.zeros(domain.shape, bool)
    reached.reshape(-1)[cells] = True
    while True:
        more = reduce(
            lambda a, m: a | (m.spread(m.sum(reached.astype(np.int64))) > 0),
            plan.mechanism.held.essential,
            reached,
        )
        if np.array_equal(more, reached):
            return int(reached.sum())
        reached = np.broadcast_to(more, domain.shape).copy()


MATRIX = np.zeros((4, 120), int)
MATRIX[0, :20], MATRIX[1, 10:30], MATRIX[2, 50:60], MATRIX[3, 100:120] = 1, 2, 1, -1
EMPTY = np.arange(120).reshape(county_domain().shape) % 7 == 0


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("zeros", [False, True])
def test_any_linear_invariants(decimals, zeros, tmp_path):
    domain, answers = county_domain(), counts(county_domain())
    held = sdp.LinearInvariants(MATRIX) & sdp.hold("region")
    if zeros:
        held, answers = held & sdp.zeros(EMPTY), np.where(EMPTY, 0, answers)
    mechanism = sdp.design(domain, held, sdp.ZCDP(0.05), decimals=decimals)
    plan = make_plan(mechanism, Partition.by(domain, "state"))
    release, _ = by_agents(plan, answers, tmp_path)
    assert same(release, central(plan, answers))
    exact = release.exact[0]
    assert np.array_equal(exact, np.asarray(plan.mechanism.held.matrix @ answers.reshape(-1)))


def test_noise_of_unconnected_rows_is_not_computed(tmp_path):
    domain = sdp.Domain([sdp.Axis("cell", range(100))])
    rows = np.kron(np.eye(10, dtype=int), np.ones(10, int))
    plan = make_plan(
        sdp.design(domain, sdp.LinearInvariants(rows), sdp.PureDP(1.0)),
        Partition.from_dict(domain, {"a": {"cells": [[0, 14]]}, "b": {"cells": [[15, 99]]}}),
    )
    release, drawn = by_agents(plan, counts(domain), tmp_path)
    assert drawn == {"a": 20, "b": 90}
    assert same(release, central(plan, counts(domain)))
    near = connected_cells(plan.mechanism.held, np.arange(15))
    assert np.array_equal(np.flatnonzero(near), np.arange(20))


def test_a_real_valued_matrix_is_kept_to_the_stated_residual(tmp_path):
    domain = county_domain()
    held = sdp.LinearInvariants(np.random.default_rng(3).normal(size=(3, 120)))
    plan = make_plan(sdp.design(domain, held, sdp.ZCDP(0.05)), Partition.by(domain, "state"))
    release, _ = by_agents(plan, counts(domain), tmp_path)
    other = central(plan, counts(domain))
    assert np.allclose(release.values, other.values, rtol=0, atol=1e-8)
    assert release.verify().ok


@pytest.fixture
def read_words(monkeypatch):
    """Every word of a keystream that is asked for."""
    seen = []
    words = Keystream.words

    def counting(self, start, count, scratch=None):
        seen.append((start, count))
        return words(self, start, count, scratch)

    monkeypatch.setattr(Keystream, "words", counting)
    return seen


def test_only_the_noise_words_of_ones_own_states_are_read(read_words, tmp_path):
    county = sdp.Axis("county", range(60), levels={"state": [i // 20 for i in range(60)]})
    domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
    mechanism = sdp.design(domain, sdp.hold("state"), sdp.PureDP(0.5), decimals=0)
    parts = {"few": {"cells": [[40, 45]]}, "rest": {"cells": [[0, 39], [46, 119]]}}
    plan = make_plan(mechanism, Partition.from_dict(domain, parts))
    made = privatize(plan, "few", np.zeros(6, int), SECRET, record=tmp_path / "r")
    assert made.drawn == 40
    assert read_words
    touched = {i for start, count in read_words for i in range(start, start + count)}
    assert touched == set(range(40, 80))


def test_where_float64_cannot_tell_the_whole_table_is_computed(monkeypatch, tmp_path):
    domain = county_domain()
    mechanism = sdp.design(domain, sdp.hold("state"), sdp.PureDP(0.4), decimals=0)
    plan = make_plan(mechanism, Partition.by(domain, "state"))
    monkeypatch.setattr(totals_module, "_doubt", lambda digits: 0.4)
    release, drawn = by_agents(plan, counts(domain), tmp_path)
    assert set(drawn.values()) == {domain.size}
    assert same(release, central(plan, counts(domain)))


def test_digits_that_are_not_cut_need_a_larger_region():
    axes = [
        sdp.Axis("county", range(6), levels={"state": [0, 0, 0, 1, 1, 1]}),
        sdp.Axis("hour", range(4), levels={"shift": [0, 0, 1, 1]}),
        sdp.Axis("group", range(4), levels={"kind": [0, 0, 1, 1]}),
    ]
    domain = sdp.Domain(axes)
    held = sdp.hold("state", "shift") & sdp.hold("state", "kind")
    for decimals, sizes in ((None, {48}), (0, {96})):
        design = sdp.design(domain, held, sdp.PureDP(1.0), decimals=decimals).mechanism
        margin = separating(design.held, design.rounding)
        regions = regions_of(design.held, np.arange(5), margin)
        assert {region.cells.size for region in regions} == sizes


def test_a_twin_that_takes_out_its_own_noise_alone_is_found(tmp_path):
    """An agent that lifts C times its own noise, not everybody's, breaks totals across parts."""
    domain, answers = county_domain(), counts(county_domain())
    mechanism = sdp.design(domain, sdp.hold("sex"), sdp.PureDP(0.4))
    plan = make_plan(mechanism, Partition.by(domain, "state"))
    # One in nine sums is whole by chance and could be a total: this plan's is not.
    plan = replace(plan, plan_id="2" * 32)
    noise = plan.mechanism.add_noise(np.zeros(domain.shape, np.int64), SECRET.keys(plan))
    parts = []
    for name in plan.partition.names:
        cells = plan.partition.cells(name)
        right = privatize(plan, name, answers.reshape(-1)[cells], SECRET, record=tmp_path / "r")
        own = np.zeros(domain.size, np.int64)
        own[cells] = noise.reshape(-1)[cells]
        own = own.reshape(domain.shape)
        wrong = plan.mechanism.space.subtract_lift(answers + own, plan.mechanism.held.sums(own))
        parts.append(replace(right.part, values=wrong.reshape(-1)[cells]))
    with pytest.raises(AlteredError, match="do not add up"):
        collect(plan, parts)


def small(mechanism, decimals=None, **options):
    county = sdp.Axis("county", range(6), levels={"state": ["s0", "s0", "s0", "s1", "s1", "s2"]})
    domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
    budget = sdp.PureDP(0.3) if mechanism == "knorm" else sdp.ZCDP(0.05)
    options = {"held": sdp.hold("state"), "budget": budget, **options}
    held, budget = options["held"], options["budget"]
    return domain, sdp.design(domain, held, budget, mechanism=mechanism, decimals=decimals)


@pytest.mark.parametrize("mechanism", ["extended", "optimal", "correlated", "knorm"])
@pytest.mark.parametrize("held", ["state", "matrix", "total"])
def test_other_mechanisms_are_put_together_from_masked_sums(mechanism, held, tmp_path):
    rows = np.array([[1] * 12, [0, 2, 1, 1] * 3])
    families = {
        "state": sdp.hold("state"), "matrix": sdp.LinearInvariants(rows), "total": sdp.hold(),
    }  # fmt: skip
    domain, design = small(mechanism, held=families[held])
    plan = make_plan(design, Partition.by(domain, "state"))
    assert plan.masked
    release, drawn = by_agents(plan, counts(domain), tmp_path)
    assert same(release, central(plan, counts(domain)))
    assert sorted(drawn.values())[:-1] == [0, 0]  # one agent alone computes noise
    release.save(tmp_path / "release")
    loaded = sdp.Release.load(tmp_path / "release")
    certificate = loaded.certificate()
    assert loaded.verify().ok
    assert certificate["distributed"]["exact"] is True
    assert "Approximate" not in str(certificate)


def test_masked_parts_of_other_words_do_not_add_up(tmp_path):
    domain, design = small("optimal")
    plan = make_plan(design, Partition.by(domain, "state"))
    parts = []
    for name in plan.partition.names:
        answers = counts(domain).reshape(-1)[plan.partition.cells(name)]
        parts.append(privatize(plan, name, answers, SECRET, record=tmp_path / "r").part)
    other = replace(parts[1], values=parts[1].values + np.int64(2**62))
    with pytest.raises(AlteredError, match="do not add up to sums of counts"):
        collect(plan, [parts[0], other, *parts[2:]])
    short = replace(parts[1], values=parts[1].values[:-1])
    with pytest.raises(AlteredError, match="one whole number for each that is measured or held"):
        collect(plan, [parts[0], short, *parts[2:]])
    floats = replace(parts[1], values=parts[1].values.astype(float))
    with pytest.raises(AlteredError, match="one whole number for each that is measured or held"):
        collect(plan, [parts[0], floats, *parts[2:]])


def test_counts_whose_masked_sums_could_wrap_are_refused_before_anything_is_written(tmp_path):
    domain, design = small("knorm", 0, held=sdp.hold())
    plan = make_plan(design, Partition.by(domain, "state"))
    cells = plan.partition.cells("s0").size
    with pytest.raises(ReleaseError, match="too large for sums of 64 bits over 3 parts"):
        privatize(plan, "s0", [2**61, *[0] * (cells - 1)], SECRET, record=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_masked_sums_that_are_not_whole_linear_or_few_are_refused(monkeypatch):
    domain, design = small(
        "extended", held=sdp.LinearInvariants(np.random.default_rng(1).normal(size=(2, 12)))
    )
    with pytest.raises(ReleaseError, match="have other coefficients; use the projected one"):
        make_plan(design, Partition.by(domain, "state"))
    domain, design = small("optimal", budget=sdp.ZCDP(1e-4))
    plan = make_plan(design, Partition.by(domain, "state"))
    rounding = replace(plan, mechanism=design.mechanism)  # as plans of earlier versions were
    assert rounding.mechanism.basis.drop
    with pytest.raises(ReleaseError, match="rounded products of parts do not add up"):
        AgentPlan.from_dict({**rounding.content(), "sha256": rounding.digest})
    domain, design = small("optimal")
    monkeypatch.setattr("subspacedp.agents.plan.MOST_NUMBERS", 30)
    with pytest.raises(ReleaseError, match="12 numbers that are measured or held, 36 for"):
        make_plan(design, Partition.by(domain, "state"))


def test_queries_that_no_agent_owns_are_refused():
    query = sdp.LinearQuery(np.ones((2, 5)))
    with pytest.raises(SubspaceDPError, match="one agent's own"):
        make_plan(sdp.design(query, None, sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne()), None)
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    capped = sdp.design(domain, None, sdp.PureDP(1.0), capped=True)
    with pytest.raises(SubspaceDPError, match="cannot bound a person's records"):
        make_plan(capped, Partition.by(domain, "a"))
    wrapped = sdp.impose_on(domain, sdp.hold(), lambda x: x, budget=sdp.PureDP(1.0))
    with pytest.raises(SubspaceDPError, match="cannot be distributed"):
        make_plan(wrapped, Partition.by(domain, "a"))
