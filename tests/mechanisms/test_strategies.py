"""Sensitivities of what the extended mechanism measures, beside exact fractions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.invariants import Held, as_held, bind, space_of
from subspacedp.mechanisms.strategies import MarginStrategy

GUARD = 1 + Fraction(1, 10**12)  # of the twin, whatever the number of terms
MANY_AXES = [(2,) * 9 + (3,), (2,) * 12 + (3,), (2, 2, 3) * 4]


def strategy(domain, held):
    return MarginStrategy(space_of(bind(as_held(held), sdp.Cells(domain))))


def all_but_one(sizes):
    """All margins that sum over one axis: Π_N is the product of centred axes, ∏(δ_ij − 1/n)."""
    domain = sdp.Domain([sdp.Axis(f"x{i}", range(n)) for i, n in enumerate(sizes)])
    names = [axis.name for axis in domain.axes]
    held = Held()
    for name in names:
        held = held & sdp.hold(*(other for other in names if other != name))
    return strategy(domain, held)


def one_record(sizes):
    return math.prod((1 - Fraction(1, n) for n in sizes), start=Fraction(1))


def two_records(sizes):
    """2∏(1 − 1/n) − 2Π_ij for every set of axes on which two records differ."""
    best = Fraction(0)
    for differ in itertools.product((False, True), repeat=len(sizes)):
        if any(differ):
            inner = [Fraction(-1, n) if d else 1 - Fraction(1, n)
                     for n, d in zip(sizes, differ, strict=True)]  # fmt: skip
            best = max(best, 2 * one_record(sizes) - 2 * math.prod(inner, start=Fraction(1)))
    return best


def in_floats(made, sizes):
    """The twin: the same sums over all interactions in float64, one by one, with a fixed guard."""
    meets = made.space.held.expansion
    summed = np.array([k.steps for k in meets], bool)  # over which axes a meet sums
    terms = np.array(list(meets.values())) / np.where(summed, sizes, 1).prod(axis=1)
    own = np.cumsum(terms)[-1]
    best = 0.0
    for differ in itertools.product((False, True), repeat=len(sizes)):
        if any(differ):
            together = summed[:, np.array(differ)].all(axis=1)
            shared = np.cumsum(np.where(together, terms, 0.0))[-1]
            best = max(best, (1 - own) + (1 - own) + 2 * shared)
    return Fraction(float(best)) * GUARD


@pytest.mark.parametrize("sizes", [*MANY_AXES, (3, 5, 7), (2, 2)])
def test_margins_of_many_axes_are_exact(sizes):
    made = all_but_one(sizes)
    assert made.sensitivity(sdp.AddRemoveOne()) == one_record(sizes)
    assert made.sensitivity(sdp.ReplaceOne()) == two_records(sizes)
    both = max(one_record(sizes), two_records(sizes))
    assert made.sensitivity(sdp.ReplaceOne(exactly=False)) == both


def test_floats_with_a_fixed_guard_fall_below_the_sensitivity():
    sizes = (2,) * 9 + (3,)
    made = all_but_one(sizes)
    assert made.sensitivity(sdp.ReplaceOne()) == two_records(sizes)
    assert in_floats(made, sizes) < two_records(sizes)


def random_domain(rng):
    axes = []
    for i in range(int(rng.integers(1, 4))):
        groups = np.sort(rng.integers(0, 3, int(rng.integers(2, 5))))
        axes.append(sdp.Axis(f"a{i}", range(len(groups)), levels={f"g{i}": groups.tolist()}))
    return sdp.Domain(axes)


def test_random_families_against_every_pair_of_cells():
    rng = np.random.default_rng(7)
    tried = 0
    while tried < 60:
        domain = random_domain(rng)
        held = Held()
        for _ in range(int(rng.integers(1, 4))):
            choice = [rng.choice([axis.name, f"g{i}", ""]) for i, axis in enumerate(domain.axes)]
            held = held & sdp.hold(*(str(name) for name in choice if name))
        made = strategy(domain, held)
        if made.space.dimension == 0 or domain.size > 80:
            continue
        tried += 1
        # Numerators over one denominator: Π_N e_i is exact.
        cells = np.eye(domain.size, dtype=np.int64).reshape(domain.size, *domain.shape)
        over = np.broadcast_to(made.denominators, domain.shape).ravel()
        columns = [
            [Fraction(int(v), int(d)) for v, d in zip(made.integers(c).ravel(), over, strict=True)]
            for c in cells
        ]
        own = [columns[i][i] for i in range(domain.size)]
        pairs = [
            own[i] + own[j] - 2 * columns[i][j] for i in range(domain.size) for j in range(i)
        ]  # fmt: skip
        assert made.sensitivity(sdp.AddRemoveOne()) == max(own)
        stated = made.sensitivity(sdp.ReplaceOne())
        assert max(pairs) <= stated <= 2
