"""Boxes of cells give the very numbers of the whole table: noise, totals, lifts and digits."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import domains, examples, families, using

import subspacedp as sdp
from subspacedp.invariants import null_space
from subspacedp.mechanisms.error_laws.kinds import CellKinds
from subspacedp.noise import DiscreteLaplace, ReleaseKeys, RoundedGaussian, draw
from subspacedp.noise.draw import CellNoise
from subspacedp.rounding import MarginRounding
from subspacedp.rounding import rows as rounding
from subspacedp.rounding.merged import AxisPart, ordered_groups
from subspacedp.tables import RowPlan
from subspacedp.tables.domain import Box, blocks


@st.composite
def partitions(draw, shape):
    """A table cut into boxes: by random cuts of every axis, or into ranges of cells."""
    if draw(st.booleans()):
        return blocks(shape, draw(st.integers(1, 40)))
    ranges = []
    for n in shape:
        cuts = sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=3))})
        ranges.append(list(itertools.pairwise(cuts)))
    return [
        Box(tuple(lo for lo, _ in place), tuple(hi for _, hi in place))
        for place in itertools.product(*ranges)
    ]


def inside(box):
    return tuple(slice(lo, hi) for lo, hi in zip(box.lower, box.upper, strict=True))


@given(st.data())
def test_blocks_are_ranges_of_all_cells_in_order(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    most = data.draw(st.integers(1, 60))
    cells = []
    for box in blocks(shape, most):
        starts, length = box.runs(shape)
        assert len(starts) == 1
        assert box.size == length <= most
        cells += range(int(starts[0]), int(starts[0]) + length)
    assert cells == list(range(int(np.prod(shape))))


@given(st.data())
def test_runs_name_the_cells_of_a_box(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    numbers = np.arange(np.prod(shape)).reshape(shape)
    for box in data.draw(partitions(shape)):
        starts, length = box.runs(shape)
        named = (starts[:, None] + np.arange(length)).ravel()
        assert np.array_equal(named, numbers[inside(box)].ravel())


@given(st.data())
@settings(max_examples=examples(1))
def test_part_of_a_merged_axis_is_where_the_order_has_it(data):
    domain = data.draw(domains())
    plan = MarginRounding(null_space(domain, data.draw(families(domain))), 0)
    box = data.draw(st.sampled_from(data.draw(partitions(domain.shape))))
    for axis in plan.axes:
        part = AxisPart(axis, box, box)
        found = part.range()
        position = np.argsort(axis.order).reshape([domain.shape[b] for b in axis.members])
        own = position[tuple(inside(box)[b] for b in axis.members)]
        assert np.array_equal(found.positions[found.wanted], np.sort(own, axis=None))
        listed = set(found.positions.tolist())
        assert all(p == 0 or p - 1 in listed for p in found.positions[found.wanted].tolist())
        for k in plan.held.expansion:
            run, (group, place, size) = axis.run(k), found.inside[part.level(k)]
            ids, sizes = ordered_groups(axis, k)
            assert np.array_equal(ids, run.ids)
            assert np.array_equal(sizes, run.sizes)
            assert np.array_equal(group, run.group[found.positions])
            share = run.place / run.sizes[run.group]
            assert np.array_equal(place / size, share[found.positions])


@given(st.data())
@settings(max_examples=examples(1) // 2)
def test_every_box_gives_the_numbers_of_the_whole_table(data):
    domain = data.draw(domains())
    space = null_space(domain, data.draw(families(domain)))
    if not space.held.margins:
        return
    held, rng = space.held, np.random.default_rng(data.draw(st.integers(0, 99)))
    noisy = rng.integers(-(2**40), 2**40, domain.shape)
    residual = held.sums(rng.integers(-60, 60, domain.shape))
    plan = MarginRounding(space, data.draw(st.integers(0, 2)))
    dither = ReleaseKeys.from_seed(1, b"boxes").stream("dither")
    rows = rounding.RowRounding(plan, tuple(r * plan.step for r in residual))
    steps = noisy.copy()
    rows.run(steps.reshape(-1), dither)
    with using("compiled"):
        real = space.subtract_lift(noisy.copy(), residual)
    parts, totals = space.lift_parts(residual), np.zeros(RowPlan(held.margins).starts[-1], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        # Lists of positions cut short, and words fetched one by one, change nothing.
        patch.setattr(rounding, "LONGEST", data.draw(st.sampled_from([2, 2**18])))
        patch.setattr(rounding, "GAP", data.draw(st.sampled_from([1, 2**11])))
        for box in data.draw(partitions(domain.shape)):
            own = noisy[inside(box)].copy()
            RowPlan(held.margins, box).add_sums(own, totals)
            rows.run_box(own.reshape(-1), box, dither)
            assert np.array_equal(own, steps[inside(box)])
            own = noisy[inside(box)].copy()
            assert np.array_equal(space.subtract_parts(own, parts, box), real[inside(box)])
    assert np.array_equal(totals, np.concatenate([t.ravel() for t in held.sums(noisy)]))


def test_a_lift_in_whole_numbers_is_subtracted_as_such():
    domain = sdp.Domain([sdp.Axis("a", range(6)), sdp.Axis("b", range(10))])
    space = null_space(domain, sdp.hold("a"))
    residual = tuple(10 * r for r in space.held.sums(np.arange(60).reshape(6, 10) * 2**50))
    noisy = np.full(domain.shape, 2**60 + 1)
    wanted = noisy - space.lift_exact(residual).whole
    for box in blocks(domain.shape, 7):
        own = noisy[inside(box)].copy()
        space.subtract_whole(own, space.lift_parts(residual), box)
        assert np.array_equal(own, wanted[inside(box)])


LAWS = [DiscreteLaplace(1 / Fraction(9)), DiscreteLaplace(1 / Fraction(5000)), RoundedGaussian(3.0)]


@pytest.mark.parametrize("law", [*LAWS, RoundedGaussian(5000.0)], ids=str)
@pytest.mark.parametrize("length", [1, 7, 65_535, 65_536, 70_001])
def test_noise_of_runs_is_the_noise_of_cells(law, length):
    keys = ReleaseKeys.from_seed(2, b"runs")
    starts = np.array([5, 2**33, 123_456], np.int64)
    base = np.arange(3 * length)
    out = np.empty_like(base)
    CellNoise(law, keys).add(starts, length, base, out)
    wanted = np.concatenate([draw(law, keys, int(start), length) for start in starts])
    assert np.array_equal(out - base, wanted)


def test_words_on_a_threshold_are_refined_as_in_memory(monkeypatch):
    """A keystream whose every word equals a threshold; cells then differ by refinement alone."""
    from subspacedp.noise.draw import threshold_table
    from subspacedp.noise.words import Keystream

    law = LAWS[0]
    word = threshold_table(law).thresholds[60]
    real = Keystream.words

    def on_threshold(self, start, count, scratch=None):
        found = real(self, start, count, scratch)
        return np.full(count, word, np.uint64) if self._key == noise else found

    keys = ReleaseKeys.from_seed(3, b"open")
    noise = keys.subkey("noise/0")
    monkeypatch.setattr(Keystream, "words", on_threshold)
    out = np.zeros(150, np.int64)
    CellNoise(law, keys).add(np.array([40, 900], np.int64), 75, out, out)
    wanted = np.concatenate([draw(law, keys, 40, 75), draw(law, keys, 900, 75)])
    assert np.array_equal(out, wanted)
    assert len(np.unique(out)) == 2


@given(st.data())
@settings(max_examples=examples(1))
def test_total_error_without_a_table_of_cells(data):
    domain = data.draw(domains())
    plan = MarginRounding(
        null_space(domain, data.draw(families(domain))), data.draw(st.integers(0, 2))
    )
    wanted = float(np.sum(plan.variance()))
    if plan.held.margins and plan.needed:
        assert CellKinds(plan).rounding() == pytest.approx(wanted, rel=1e-9, abs=1e-12)
