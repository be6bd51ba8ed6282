"""Digits of many margins: exact in integers, unbiased, with variances that are bounds."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from tests import margin_oracle as oracle
from tests.statistical import ALPHA

from subspacedp import hold
from subspacedp.subspace import WorkloadDigits
from subspacedp.tables import Margins

PLAIN = oracle.plain(3, 4, 2)
UNEQUAL, THREE = oracle.unequal_levels(), oracle.three_levels()
CASES = {
    "one margin": (PLAIN, [["a", "b"]], None),
    "meets": (PLAIN, [["a", "b"], ["b", "c"], ["a", "c"]], None),
    "held below": (PLAIN, [["a", "b"], ["b", "c"]], hold("a") & hold("c")),
    "held beside": (PLAIN, [["a", "b", "c"], "a"], hold("a", "b") & hold("b", "c")),
    "held above": (PLAIN, [["a", "b"], ["c"]], hold("a", "c") & hold()),
    "total": (PLAIN, [["a", "b", "c"]], hold()),
    "unequal levels": (UNEQUAL, [["l", "b"], ["g", "b"], "l"], hold("g")),
    "unequal, other held": (UNEQUAL, [["l"], ["g", "b"]], hold("b")),
    "three levels": (THREE, [["l", "b"], ["g", "b"], ["r"]], hold("r") & hold("b")),
    "levels, nothing held": (THREE, [["l"], ["g", "b"], ["r", "b"]], None),
}


class Words:
    """Uniform words for the tests."""

    def __init__(self, seed):
        self.rng, self.next = np.random.default_rng(seed), 0

    def words(self, start, count, scratch=None):
        if start < self.next:
            raise AssertionError("a word is used twice")
        self.next = start + count
        return self.rng.integers(0, 2**64, count, dtype=np.uint64)


def setting(case, seed=0, decimals=0):
    """Digits, exact held totals, and contrasts of a table with real noise on the free parts."""
    domain, margins, held = case
    space = oracle.space(Margins(domain, margins), held)
    digits = WorkloadDigits(space, decimals)
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 30, domain.shape)
    exact = tuple(m.sum(table) for m in space.held.margins)
    c = space.contrasts
    found = {}
    for part in c.parts:
        totals = part.sum(table).astype(float)
        if part in c.free:
            totals = totals + rng.normal(0, 5, part.shape)
        found[part] = c.project(totals, part)
    return digits, exact, found, table


@pytest.mark.parametrize("decimals", [0, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_margins_agree_with_each_other_and_with_what_is_held_in_integers(case, decimals):
    digits, exact, found, _ = setting(case, decimals=decimals)
    for seed in range(20):
        rounded = digits.round(found, exact, Words(seed))
        assert all(t.dtype == np.int64 for t in rounded.values())
        margins = list(rounded)
        for i, m in enumerate(margins):
            for k in margins[:i]:
                meet = m.meet(k)
                assert np.array_equal(m.coarsen(rounded[m], meet), k.coarsen(rounded[k], meet))
            for h, c in zip(digits.held.margins, exact, strict=True):
                meet = m.meet(h)
                wanted = h.coarsen(c, meet) * 10**decimals
                assert np.array_equal(m.coarsen(rounded[m], meet), wanted)
            assert not np.any(rounded[m][m.empty])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rounding_is_unbiased_within_its_bounds(case):
    """Means of the rounding error are 0, and its variance at most the stated one, for any weights.

    A z-test of every answer at ALPHA; variances are compared with five standard errors of room.
    """
    digits, exact, found, _ = setting(case)
    c, query = digits.contrasts, digits.held.query
    real = np.concatenate([c.margin_from(found, m).ravel() for m in query.margins])
    runs = 500
    errors = np.empty((runs, real.size))
    for seed in range(runs):
        rounded = digits.round(found, exact, Words(seed))
        errors[seed] = np.concatenate([rounded[m].ravel() for m in query.margins]) - real
    bound = digits.variance()
    z = stats.norm.isf(ALPHA / 2)
    spread = np.sqrt(np.maximum(bound, 1e-18) / runs)
    assert np.all(np.abs(errors.mean(axis=0)) <= z * spread + 1e-9)
    assert np.all(errors.var(axis=0) <= bound * (1 + 8 / np.sqrt(runs)) + 1e-18)
    rng = np.random.default_rng(7)
    for weights in rng.normal(size=(5, real.size)):
        found_variance = float((errors @ weights).var())
        assert found_variance <= digits.variance(weights) * (1 + 8 / np.sqrt(runs))
        assert digits.variance(weights) > 0


def test_a_rounding_of_cells_one_by_one_breaks_the_totals():
    """The twin: without cumulated sums margins disagree."""
    digits, exact, found, _ = setting(CASES["meets"])
    c = digits.contrasts
    rounded = {m: np.rint(c.margin_from(found, m)).astype(int) for m in digits.family}
    margins = list(rounded)
    assert any(
        not np.array_equal(m.coarsen(rounded[m], m.meet(k)), k.coarsen(rounded[k], m.meet(k)))
        for m in margins for k in margins
    )  # fmt: skip
    assert exact == ()


def test_whole_contrasts_stay_as_they_are():
    """A table without noise is published as it is: integers are never moved."""
    for case in CASES.values():
        digits, exact, _, table = setting(case)
        c = digits.contrasts
        found = {p: c.project(p.sum(table).astype(float), p) for p in c.parts}
        for margin, total in digits.round(found, exact, Words(1)).items():
            assert np.abs(total - margin.sum(table)).max() <= 1
        mean = np.mean(
            [digits.round(found, exact, Words(s))[digits.family[-1]] for s in range(200)], axis=0
        )
        assert np.abs(mean - digits.family[-1].sum(table)).max() < 1e-6


def test_the_family_of_many_margins_takes_little_memory():
    """All three-way margins of 16 axes: meets of all with all at once would take 50 MB."""
    domain = oracle.plain(*(2,) * 16)
    query = Margins(domain, oracle.all_of_order(domain, 3))
    digits = WorkloadDigits(oracle.space(query, None), 0)
    tracemalloc.start()
    try:
        assert len(digits.family) == sum(math.comb(16, k) for k in range(4))
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()
