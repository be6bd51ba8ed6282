"""Kinds of cells and of totals against every cell and every total, one by one."""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.errors import SubspaceDPError
from subspacedp.mechanisms.error_laws import joint as model
from subspacedp.mechanisms.error_laws import kinds
from subspacedp.mechanisms.error_laws.kinds import CellKinds, _divisor_pairs
from subspacedp.rounding.profiles import corner_counts
from subspacedp.tables import Margin, along


def designs(seed):
    """Small tables with nested levels, some held margins, and digits that need roundings."""
    chance = random.Random(seed)
    while True:
        axes = []
        for i in range(chance.randint(1, 3)):
            number, levels = chance.randint(1, 9), {}
            if chance.random() < 0.6:
                levels[f"g{i}"] = [chance.randint(0, 2) for _ in range(number)]
                if chance.random() < 0.4:
                    levels[f"h{i}"] = [group // 2 for group in levels[f"g{i}"]]
            axes.append(sdp.Axis(f"x{i}", range(number), levels=levels))
        domain, held = sdp.Domain(axes), None
        for _ in range(chance.randint(1, 3)):
            names = [chance.choice([None, *(lv.name for lv in axis.chain)]) for axis in axes]
            one = sdp.hold(*(name for name in names if name))
            held = one if held is None else held & one
        options = {"decimals": chance.choice([0, 0, 1]), "capped": chance.random() < 0.3}
        try:
            made = sdp.design(domain, held, sdp.PureDP(1.0), mechanism="projected", **options)
        except SubspaceDPError:  # everything is held
            continue
        if made.mechanism.rounding.needed:
            return made.mechanism


def counted(figures):
    """Variance and law of all kinds, and how many figures have both."""
    out = Counter()
    for part in figures.kinds():
        columns = (part.variance.tolist(), part.law.tolist(), part.number.tolist())
        for variance, law, number in zip(*columns, strict=True):
            out[variance, law] += number
    return out


def one_by_one(figures):
    return Counter(
        zip(figures.variance().ravel().tolist(), figures.classes().ravel().tolist(), strict=True)
    )


def borders_along(axis, margin, chosen):
    """For every group: its borders behind positions where runs of all chosen margins end."""
    ends = np.ones(len(axis), bool)
    for m in chosen:
        run = axis.run(m)
        ends &= run.place == run.sizes[run.group]
    groups = axis.codes(margin)[axis.order]
    following = np.append(groups[1:], -1)
    border = (groups != following) & ends
    inner = border & (following >= 0)
    number = axis.groups(margin)
    return np.bincount(groups[border], minlength=number) + np.bincount(
        following[inner], minlength=number
    )


@pytest.fixture
def of_any_size(monkeypatch):
    """Tables of a few cells by the rules for large ones."""
    monkeypatch.setattr(model, "MOST_CELLS", 0)


@pytest.mark.parametrize("seed", range(10))
def test_figures_of_small_tables_are_counted_one_by_one(seed):
    """Their laws are simulated, each by its weights: the number of a kind names such a law."""
    design = designs(seed)
    margins = (Margin(tuple(design.domain.axes), s) for s in itertools.product(
        *(range(axis.depth) for axis in design.domain.axes)))  # fmt: skip
    for margin in margins:
        figures = design.margin_figures(margin)
        if figures.noise.small is not None:
            assert counted(figures) == one_by_one(figures)
            variance, weights = figures.variance().ravel(), figures._apart.weights
            truth = [design.noise.variance(weights(i)) for i in range(variance.size)]
            assert np.allclose(variance, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("part", [1, 5, 1 << 20])
@pytest.mark.parametrize("seed", range(25))
def test_kinds_of_cells_are_the_cells_to_the_last_bit(seed, part, monkeypatch):
    monkeypatch.setattr(kinds, "PART", part)
    design = designs(seed)
    figures = design.cell_figures()
    assert counted(figures) == one_by_one(figures)
    rounding = float(design.rounding.variance().sum())
    assert math.isclose(CellKinds(design.rounding).rounding(), rounding, rel_tol=1e-12)
    total = design.expected_error().total
    assert math.isclose(design.total_error(), total, rel_tol=1e-12)


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("seed", range(25))
def test_kinds_of_totals_are_the_totals_to_the_last_bit(seed):
    design = designs(seed)
    plan = design.rounding
    steps = itertools.product(*(range(axis.depth) for axis in design.domain.axes))
    for margin in (Margin(tuple(design.domain.axes), s) for s in steps):
        figures = design.margin_figures(margin)
        wanted = one_by_one(figures)
        if any(variance for variance, _ in wanted):
            assert counted(figures) == wanted
        else:
            assert sum(counted(figures).values()) == sum(wanted.values())
        expected = np.zeros((1,) * len(plan.axes), np.int64)
        for size in range(len(plan.held.essential) + 1):
            for chosen in itertools.combinations(plan.held.essential, size):
                term = np.ones((1,) * len(plan.axes), np.int64)
                for a, axis in enumerate(plan.axes):
                    term = term * along(borders_along(axis, margin, chosen), a, len(plan.axes))
                expected = expected + (-1) ** size * term
        members = [b for axis in plan.axes for b in axis.members]
        expected = expected.reshape([margin.shape[b] for b in members])
        assert np.array_equal(corner_counts(plan, margin), expected.transpose(np.argsort(members)))


@pytest.mark.parametrize("size", [1, 2, 3, 12, 16, 30, 64, 210, 997])
def test_divisors_of_neighbouring_places_are_counted(size):
    place = np.arange(1, size + 1)
    pairs = zip(
        (size // np.gcd(size, place)).tolist(),
        (size // np.gcd(size, place - 1)).tolist(),
        strict=True,
    )
    here, before, number = (column.tolist() for column in _divisor_pairs(size))
    assert dict(zip(zip(here, before, strict=True), number, strict=True)) == Counter(pairs)


def test_the_diagonal_by_classes_is_that_of_the_projector():
    for seed in range(10):
        space = designs(seed).space
        cells = np.eye(space.size).reshape((space.size, *space.shape))
        dense = [space.project(cell).reshape(-1)[i] for i, cell in enumerate(cells)]
        assert np.allclose(space.diagonal().reshape(-1), dense, atol=1e-12)
        assert space.diagonal().max() == space.diagonal_of_classes.max()
