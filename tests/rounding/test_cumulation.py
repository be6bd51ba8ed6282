"""Few roundings in published totals: counted, exact, and no less than is stated."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import strategies
from tests.statistical import ALPHA

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.invariants import as_held, bind
from subspacedp.mechanisms.registry import mechanism_from
from subspacedp.rounding.levels import Cumulation, LevelRounding
from subspacedp.rounding.merged import MergedAxis, fewest_merged_axes

HELD = sdp.hold("state", "race") & sdp.hold("county")
PUBLISHED = (("state", "age"), ("county", "sex"))


def counties(counties: int, states: int, ages: int, races: int) -> sdp.Domain:
    levels = {"state": [f"State {i % states}" for i in range(counties)]}
    return sdp.Domain(
        [
            sdp.Axis("county", range(counties), levels=levels),
            sdp.Axis("age", range(ages)),
            sdp.Axis("sex", ["F", "M"]),
            sdp.Axis("race", range(races)),
        ]
    )


SMALL = counties(4, 2, 6, 3)


def level_rounding(domain, held, published, kind=LevelRounding, importance=None):
    space = bind(as_held(held), sdp.Cells(domain)).cell_space
    margins = (domain.cells, *(domain.margin(*names) for names in published))
    return kind(space, 0, margins, importance or (1.0,) * len(margins), unit_variance=1 / 4)


class Fewest(LevelRounding):
    """As few merged axes as the held margins allow, whatever is published."""

    @property
    def axes(self):
        return fewest_merged_axes(self.held.domain, self.held.essential)


# ---------------------------------------------------------------------------- counted


@st.composite
def published(draw):
    domain, held = draw(strategies.problems(max_axes=3, max_cells=60, max_labels=6))
    return domain, held, draw(st.lists(strategies.margins(domain), max_size=3))


@given(published())
def test_the_mean_number_of_roundings_is_counted_without_a_list_of_groups(case):
    """Against the corners of every total, one by one; and no held level is left out of a chain."""
    domain, held, names = case
    rounding = level_rounding(domain, held, names)
    found = Cumulation(rounding.held, rounding.published, rounding.importance)
    chains = found.best()
    assert {axis.members: axis.chain for axis in rounding.axes} == chains
    for members, chain in chains.items():
        assert {tuple(m.steps[b] for b in members) for m in rounding.held.essential} <= {*chain}
    for margin, mean in zip(rounding.published, found.roundings(chains), strict=True):
        thrown = 0
        for place in np.ndindex(margin.shape):
            one = np.zeros(margin.shape)
            one[place] = 1.0
            cells = np.broadcast_to(margin.spread(one), domain.shape)
            thrown += np.count_nonzero(rounding.coefficients(cells)[0])
        assert mean == pytest.approx(thrown / margin.nonempty, rel=1e-12, abs=1e-12)


@given(published())
def test_what_is_published_gets_no_more_roundings_than_along_the_fewest_axes(case):
    domain, held, names = case
    assume(held.margins)
    few, plain = (level_rounding(domain, held, names, kind) for kind in (LevelRounding, Fewest))
    few, plain = (
        sum(own.rounding_counts(m).sum() / m.nonempty for m in own.published)
        for own in (few, plain)
    )
    assert few <= plain * (1 + 1e-9)


def test_margins_of_counties_get_few_roundings():
    """2500 counties × age × sex × race: at most 4 roundings instead of 100 and 199."""
    domain = counties(2500, 50, 100, 20)
    few, plain = (level_rounding(domain, HELD, PUBLISHED, kind) for kind in (LevelRounding, Fewest))
    for margin in few.published[1:]:
        assert 10 * few.rounding_counts(margin).max() <= plain.rounding_counts(margin).mean()
    # One merged axis more: 8 corners of a cell instead of 4, which is what the margins cost.
    assert few.rounding_counts(domain.margin("county", "sex")).max() == 1
    assert len(few.axes) == len(plain.axes) + 1


def test_importance_decides():
    """Where cells alone count for much, they get the fewest roundings that a rounding can have."""
    domain = counties(20, 4, 10, 5)
    few = level_rounding(domain, HELD, PUBLISHED, importance=(1e6, 1.0, 1.0))
    plain = level_rounding(domain, HELD, PUBLISHED, Fewest)
    assert few.rounding_counts(domain.cells).mean() <= plain.rounding_counts(domain.cells).mean()
    margin = domain.margin("county", "sex")
    assert few.rounding_counts(margin).mean() < plain.rounding_counts(margin).mean()


def test_many_axes_are_merged_as_far_as_they_can_be():
    domain = sdp.Domain([sdp.Axis(name, range(2)) for name in "abcdefgh"])
    rounding = level_rounding(domain, sdp.hold("a"), [["b", "c"]])
    assert len(rounding.axes) == 1


# ---------------------------------------------------------------------------- exact


def corrections(rng, rounding, number):
    """Real corrections with whole held sums."""
    held, shape = rounding.held, rounding.held.domain.shape
    for _ in range(number):
        noise, real = rng.integers(-9, 10, shape), rng.normal(0, 3, shape)
        off = tuple(m.sum(real) - m.sum(noise) for m in held.margins)
        yield noise, real - rounding.space.lift(off, error=1.0)


class Words:
    """Uniform words by their numbers."""

    def __init__(self, rng):
        self.all = rng.integers(0, 2**64, 144, np.uint64)

    def words(self, start, count, scratch=None):
        return self.all[start : start + count].copy()


def check_sums(rounding):
    rng = np.random.default_rng(3)
    for noise, real in corrections(rng, rounding, 20):
        whole = rounding.round(0, real, Words(rng))
        for margin in rounding.held.margins:
            assert np.array_equal(margin.sum(whole), margin.sum(noise))


def test_held_sums_are_exact():
    check_sums(level_rounding(SMALL, HELD, PUBLISHED))


class WithoutHeldLevels(LevelRounding):
    """The twin whose order knows what is published alone."""

    @property
    def axes(self):
        domain, top = self.held.domain, tuple(axis.depth - 1 for axis in self.held.domain.axes)
        return (MergedAxis(domain, (0, 1, 2, 3), (top, (0, top[1], 0, top[3]))),)


def test_an_order_that_leaves_out_held_levels_is_noticed():
    with pytest.raises((AssertionError, ReleaseError)):
        check_sums(level_rounding(SMALL, HELD, PUBLISHED, WithoutHeldLevels))


# ---------------------------------------------------------------------------- variance

DRAWS = 3000


def check_variance(rounding):
    """Given the correction: the mean squared rounding of published totals is as stated, at most.

    With v roundings it is at most v² for one draw, so Hoeffding bounds the mean of all.
    """
    rng = np.random.default_rng(8)
    ((_, real),) = corrections(rng, rounding, 1)
    drawn = [rounding.round(0, real, Words(rng)) - real for _ in range(DRAWS)]
    tests = sum(math.prod(m.shape) for m in rounding.published)
    for margin in rounding.published:
        square = np.mean([margin.sum(off) ** 2 for off in drawn], axis=0)
        spread = rounding.rounding_counts(margin) ** 2
        close = spread * math.sqrt(math.log(tests / ALPHA) / (2 * DRAWS))
        assert np.all(square <= rounding.group_variance(margin) + close + 1e-9)


def test_published_totals_are_off_by_no_more_than_stated():
    check_variance(level_rounding(SMALL, HELD, PUBLISHED))


class Overstated(LevelRounding):
    """The twin that rounds along the fewest axes and states the roundings of the better ones."""

    axes = Fewest.axes

    def rounding_counts(self, margin):
        more = (self.published, self.importance)
        return LevelRounding(
            self.space, 0, *more, unit_variance=self.unit_variance
        ).rounding_counts(margin)


def test_the_roundings_of_another_order_are_not_enough():
    with pytest.raises(AssertionError):
        check_variance(level_rounding(SMALL, HELD, PUBLISHED, Overstated))


# ---------------------------------------------------------------------------- certificates


@pytest.mark.parametrize("budget", [sdp.ZCDP(0.5), sdp.PureDP(1.0)], ids=["zcdp", "pure"])
def test_a_certificate_rebuilds_the_same_rounding(budget):
    options = sdp.Marginals(margins=PUBLISHED, objective="balanced")
    mechanism = sdp.design(sdp.Cells(SMALL), HELD, budget, mechanism=options, decimals=0).mechanism
    again = mechanism_from(json.loads(json.dumps(mechanism.as_dict())))
    first, second = mechanism.rounding, again.rounding
    assert first.importance == second.importance
    assert [(a.members, a.chain) for a in first.axes] == [(a.members, a.chain) for a in second.axes]
    rng = np.random.default_rng(1)
    ((_, real),) = corrections(rng, first, 1)
    words = Words(rng)
    assert np.array_equal(first.round(0, real, words), second.round(0, real, words))
    margin = SMALL.margin("county", "sex")
    stated = mechanism.noise.margin_variance(margin)
    assert np.array_equal(stated, again.noise.margin_variance(margin))
    fewest = Fewest(first.space, 0, first.published, first.importance, unit_variance=1 / 4)
    assert first.rounding_counts(margin).max() < fewest.rounding_counts(margin).min()
