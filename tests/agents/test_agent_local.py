"""Individuals' entries: sensitivities, what is said, and what one learns from a held total."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.agents import Partition, Secret, collect, make_plan, privatize
from subspacedp.errors import BudgetError, DataError, DomainError
from subspacedp.queries import LocalEntries
from subspacedp.release import Design

SECRET = Secret(bytes(range(1, 33)))


@pytest.fixture
def people():
    return sdp.Domain([sdp.Axis("person", range(6), levels={"ward": list("AAABBB")})])


def test_sensitivity_is_the_largest_change_of_one_persons_entries():
    small = sdp.Domain([sdp.Axis("person", range(3))])
    for lower, upper in ((0, 1), (-2, 1), (3, 5)):
        entries = LocalEntries(small, lower, upper)
        every = list(itertools.product(range(lower, upper + 1), repeat=3))
        moves = [
            np.subtract(x, y)
            for x, y in itertools.product(every, repeat=2)
            if np.count_nonzero(np.subtract(x, y)) <= 1
        ]
        found = entries.sensitivity(sdp.ReplaceOne())
        assert found.l1 == max(int(np.abs(m).sum()) for m in moves)
        assert found.l2_squared == max(int((m * m).sum()) for m in moves)
        two = [np.subtract(x, y) for x, y in itertools.product(every, repeat=2)
               if np.count_nonzero(np.subtract(x, y)) <= 2]  # fmt: skip
        found = entries.sensitivity(sdp.ReplaceOne(records=2))
        assert found.l1 == max(int(np.abs(m).sum()) for m in two)
        assert found.l2_squared == max(int((m * m).sum()) for m in two)


def test_a_published_entry_is_private_for_its_person_and_a_twin_is_not(people):
    """Exact masses: with nothing held, an entry plus its noise is ε-private over the range."""
    epsilon, width = 1.0, 5
    design = sdp.design(LocalEntries(people, 0, width), None, sdp.PureDP(epsilon)).mechanism
    assert design.guarantee.kind == "plain"

    def worst(law):
        rate = float(law.rate)
        # Discrete Laplace: log p(y − x) − log p(y − x′) = rate·(|y − x′| − |y − x|).
        return max(
            rate * (abs(y - b) - abs(y - a))
            for y in range(-30, 30) for a in range(width + 1) for b in range(width + 1)
        )  # fmt: skip

    assert worst(design.law) <= epsilon * (1 + 1e-12)
    histogram = sdp.design(people, None, sdp.PureDP(epsilon)).mechanism  # calibrated to 2
    assert worst(histogram.law) > 2 * epsilon


def test_the_guarantee_is_stated_for_a_person(people):
    mechanism = sdp.design(LocalEntries(people, 0, 10), sdp.hold("ward"), sdp.ZCDP(0.1))
    assert mechanism.guarantee.kind == "S"
    assert "one person's" in str(mechanism.guarantee)
    weights = np.zeros(6)
    weights[0] = 1
    assert math.isclose(mechanism.guarantee.covers(weights).share_exposed, 1 / 3)
    contrast = np.array([1, -1, 0, 0, 0, 0])
    assert mechanism.guarantee.covers(contrast).share_exposed == 0.0
    total = sdp.design(LocalEntries(people, 0, 10), sdp.hold(), sdp.ZCDP(0.1))
    assert total.guarantee.kind == "S"  # a total of entries moves with every person's


@pytest.mark.parametrize("decimals", [None, 0])
def test_everyone_is_an_agent(people, decimals, tmp_path):
    mechanism = sdp.design(
        LocalEntries(people, -5, 10), sdp.hold("ward"), sdp.PureDP(1.0), decimals=decimals
    )
    plan = make_plan(mechanism, Partition.by(people, "person"))
    answers = [3, -5, 0, 10, 4, 4]
    made = [
        privatize(plan, str(i), [x], SECRET, record=tmp_path / "record")
        for i, x in enumerate(answers)
    ]
    assert all(one.drawn == 3 for one in made)
    release = collect(plan, [one.part for one in made])
    assert release.margin("ward").values.tolist() == [-2, 18]
    assert np.array_equal(
        release.values,
        Design(plan.mechanism)
        .release_with(SECRET.keys(plan), np.array(answers), np.array(answers), seeded=False)
        .values,
    )
    release.save(tmp_path / "release")
    loaded = sdp.Release.load(tmp_path / "release")
    assert isinstance(loaded.mechanism.query, LocalEntries)
    assert loaded.mechanism.law.rate == Fraction(1, 15)
    assert np.array_equal(loaded.values, release.values)


def test_the_central_release_of_entries_works_too(people):
    mechanism = sdp.design(LocalEntries(people, 0, 9), sdp.hold(), sdp.PureDP(1.0), decimals=0)
    release = mechanism.release(np.array([1, 2, 3, 4, 5, 9]), seed=1)
    assert int(release.values.sum()) == 24
    assert release.verify().ok
    assert len(release.to_frame()) == 6


def test_bad_entries(people):
    entries = LocalEntries(people, 0, 9)
    for bad in ([1, 2, 3, 4, 5, 10], [1, 2, 3, 4, 5, -1], [0.5] * 6, [np.nan] * 6):
        with pytest.raises(DataError, match="not whole numbers from 0 to 9") as error:
            entries.answers(np.array(bad))
        assert "10" not in str(error.value)
    with pytest.raises(DataError, match="shape"):
        entries.answers(np.zeros(5))
    with pytest.raises(BudgetError, match="ReplaceOne"):
        sdp.design(entries, None, sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne())
    with pytest.raises(DomainError, match="less than"):
        LocalEntries(people, 3, 3)
    with pytest.raises(DomainError, match="whole numbers"):
        LocalEntries(people, 0, 1.5)


def test_the_certificate_speaks_of_persons_and_their_entries(people):
    mechanism = sdp.design(LocalEntries(people, 0, 10), sdp.hold(), sdp.PureDP(1.0), decimals=0)
    assert "one person's own entry" in " ".join(mechanism.guarantee.sentences())
    certificate = mechanism.release(np.arange(6), seed=1).certificate()["guarantee"]
    assert "docs/proofs/agents.md" in certificate["proof"]
    assert any("Who has an entry is public" in line for line in certificate["not_protected"])
    assert not any("record" in line for line in certificate["not_protected"])
