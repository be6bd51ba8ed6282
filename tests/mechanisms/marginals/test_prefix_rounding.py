"""Digits of all tables at once: exact in integers, unbiased, draws counted and weighed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from tests import margin_oracle as oracle
from tests.statistical import z_limit

import subspacedp as sdp
from subspacedp.invariants import as_held, bind
from subspacedp.mechanisms.marginals.interactions import Interactions
from subspacedp.mechanisms.marginals.prefix_rounding import PrefixRounding, _thresholds

PLAIN = oracle.plain(3, 4, 2)
UNEQUAL, THREE, EQUAL = oracle.unequal_levels(), oracle.three_levels(), oracle.equal_levels()
NESTED = sdp.Domain(
    [THREE.axes[0], sdp.Axis("n", range(5), levels={"h": [1, 0, 1, 1, 0]}), sdp.Axis("s", range(2))]
)
hold = sdp.hold
CASES = {
    "one margin": (PLAIN, [["a", "b"]], None, False),
    "meets": (PLAIN, [["a", "b"], ["b", "c"], ["a", "c"]], None, False),
    "total known": (PLAIN, [["a", "b"], ["b", "c"]], None, True),
    "held below": (PLAIN, [["a", "b"], ["b", "c"]], hold("a") & hold("c"), False),
    "held beside": (PLAIN, [["a", "b", "c"], ["a"]], hold("a", "b") & hold("b", "c"), False),
    "held above": (PLAIN, [["a", "b"], ["c"]], hold("a", "c") & hold(), False),
    "unequal levels": (UNEQUAL, [["l", "b"], ["g", "b"], ["l"]], hold("g"), False),
    "unequal, other held": (UNEQUAL, [["l"], ["g", "b"]], hold("b"), False),
    "three levels": (THREE, [["l", "b"], ["g", "b"], ["r"]], hold("r") & hold("b"), False),
    "levels, nothing held": (THREE, [["l"], ["g", "b"], ["r", "b"]], None, True),
    "even levels": (EQUAL, [["l", "b"], ["g"]], hold("g"), False),
    "two trees": (NESTED, [["l", "n"], ["g", "h", "s"], ["r", "s"]], hold("g"), False),
}
SOME = ["meets", "three levels", "two trees", "levels, nothing held"]


class Words:
    """Given words, each served once."""

    def __init__(self, words):
        self.given, self.next = words, 0

    def words(self, start, count, scratch=None):
        assert start >= self.next, "a word is used twice"
        self.next = start + count
        return self.given[start : start + count].copy()


def uniform(seed, count=1 << 12):
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def setting(case, decimals=0, seed=0):
    """A rounding, a table of whole counts with real noise that keeps what is held, both sums."""
    domain, margins, held, known = case
    query = sdp.Margins(domain, margins)
    bound = bind(as_held(held), query)
    inter = Interactions(domain=domain, workload=tuple(query.margins), held=bound.essential)
    rounding = PrefixRounding(interactions=inter, decimals=decimals, total_known=known)
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 30, domain.shape)
    kept = [*bound.margins, *([domain.margin()] if known else [])]
    noise = oracle.orthogonal_to(domain, kept) @ rng.normal(0, 5, domain.size)
    cells = counts + noise.reshape(domain.shape)
    real, exact = {}, {}
    for own in inter.all.values():
        margin = inter.margin(own.finest, own.steps)
        real[own.steps] = inter.to_nodes(margin.sum(cells), own.finest)
        level = rounding.exact_level(own)
        if level is not None:
            totals = inter.margin(level, own.steps).sum(counts)
            exact[own.steps] = np.asarray(inter.to_nodes(totals, level), np.int64)
    return rounding, real, exact, counts, cells, kept


def rounded(rounding, real, exact, words):
    """Every published table in steps, in its margin's shape."""
    inter = rounding.interactions
    totals = rounding.round(real, exact, Words(words))
    return [
        inter.from_nodes(rounding.table(totals, p.level, p.steps), p.level) for p in inter.published
    ]


@pytest.mark.parametrize("decimals", [0, 1, 3])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_tables_agree_with_each_other_and_with_what_is_held(case, decimals):
    rounding, real, exact, counts, cells, kept = setting(case, decimals)
    workload = rounding.interactions.workload
    for seed in range(10):
        tables = rounded(rounding, real, exact, uniform(seed))
        for i, first in enumerate(workload):
            assert tables[i].dtype == np.int64
            for h in kept:
                if first.determines(h):
                    step = rounding.step
                    assert np.array_equal(first.coarsen(tables[i], h), h.sum(counts) * step)
            for j, second in enumerate(workload[:i]):
                meet = first.meet(second)
                assert np.array_equal(
                    first.coarsen(tables[i], meet), second.coarsen(tables[j], meet)
                )
            error = np.abs(tables[i] - first.sum(cells) * rounding.step)
            assert np.all(error < 2 ** (1 + len(rounding.interactions.axes)))


def test_rounding_each_table_apart_is_caught():
    """The twin: independent roundings of two tables disagree where they meet."""
    rounding, real, exact, *_ = setting(CASES["meets"])
    first, second = rounding.interactions.workload[:2]
    meet = first.meet(second)
    apart = [rounded(rounding, real, exact, uniform(seed)) for seed in (1, 2)]
    assert not np.array_equal(first.coarsen(apart[0][0], meet), second.coarsen(apart[1][1], meet))


@pytest.mark.parametrize("case", [CASES[name] for name in SOME], ids=SOME)
def test_no_bias(case):
    """The mean over many roundings is the real table, cell by cell."""
    rounding, real, exact, _, cells, _ = setting(case)
    runs = 500
    sums = [0.0] * len(rounding.interactions.workload)
    for seed in range(runs):
        tables = rounded(rounding, real, exact, uniform(seed))
        sums = [s + t for s, t in zip(sums, tables, strict=True)]
    for margin, p, s in zip(
        rounding.interactions.workload, rounding.interactions.published, sums, strict=True
    ):
        inter = rounding.interactions
        draws = inter.from_nodes(rounding.draws(p.level, p.steps), p.level)
        limit = z_limit() * np.sqrt(draws / 4 / runs) + 1e-9
        off = np.abs(s / runs - margin.sum(cells))
        assert np.all(off <= limit)


def test_thresholds_are_fractions_of_all_words():
    """A word is below with the probability of the fraction, to 2⁻⁵²."""
    fractions = np.array([0.0, 2.0**-60, 0.25, 1 / 3, 0.5, 1 - 2.0**-53])
    for fraction, word in zip(fractions, _thresholds(fractions), strict=True):
        assert abs(int(word) / 2**64 - fraction) <= 2.0**-52


@pytest.mark.parametrize("decimals", [0, 1])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_coefficients_say_what_each_draw_adds(case, decimals):
    """Every word is changed from never up to always up, one at a time."""
    rounding, real, exact, _, _, _ = setting(case, decimals)
    inter = rounding.interactions
    never = np.full(1 << 12, 2**64 - 1, np.uint64)
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=m.shape) for m in inter.workload]
    stated, bound = rounding.coefficients(np.concatenate([w.reshape(-1) for w in weights]))
    assert bound.shape == stated.shape
    assert np.all(bound == 1 / 4)
    words = Words(never)
    rounding.round(real, exact, words)
    base = rounded(rounding, real, exact, never)
    found = []
    for i in range(words.next):
        one = never.copy()
        one[i] = 0
        moved = rounded(rounding, real, exact, one)
        change = sum(np.sum(w * (m - b)) for w, m, b in zip(weights, moved, base, strict=True))
        found.append(float(change) / rounding.step)
    drawn = np.array([f for f in found if f != 0.0])
    # The same numbers, in an order of their own; a total that a held one pins has no draw.
    assert len(drawn) == np.count_nonzero(stated)
    assert np.allclose(np.sort(drawn), np.sort(stated[stated != 0]), atol=1e-9)
    assert math.isclose(drawn @ drawn, stated @ stated, rel_tol=1e-9)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_draws_count_what_enters_a_cell(case):
    rounding = setting(case)[0]
    inter = rounding.interactions
    stated = np.concatenate([rounding.rounding_counts(m).reshape(-1) for m in inter.workload])
    for number, one in zip(stated, np.eye(stated.size), strict=True):
        adds, _ = rounding.coefficients(one)
        assert number == np.count_nonzero(adds)
        assert np.all(np.isin(adds, [-1, 0, 1]))


def test_large_totals_lose_nothing():
    """Whole parts are added up as integers: totals near 2⁴³ keep their fractions."""
    rounding, real, *_ = setting(CASES["three levels"], 3)
    own = max(rounding.interactions.all.values(), key=lambda i: real[i.steps].size)
    table = real[own.steps] + np.float64(2**33)
    whole, left = rounding._real_totals(table, own)
    sums = np.vectorize(Fraction)(rounding._ordered(table * 1000.0, own.steps))
    for a in range(sums.ndim):
        sums = np.cumsum(sums, axis=a)
    off = rounding._picked(sums, own) - whole - np.vectorize(Fraction)(left)
    assert max(abs(float(v)) for v in off.ravel()) < 1e-9
    in_floats = np.cumsum(np.cumsum(table * 1000.0, axis=0), axis=1)  # the twin
    lost = rounding._picked(in_floats, own) - whole - left if sums.ndim == 2 else None
    assert lost is None or np.abs(lost).max() > 1e-9
