"""Whole tables near real ones: exact totals, nothing below zero, for any totals that agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.inference.nonnegative import _Fitting
from subspacedp.rounding import whole_tables
from subspacedp.rounding.whole_tables import of_margins, whole_table


def domain(a, b, c):
    axis = sdp.Axis("a", range(a), levels={"g": [i // 2 for i in range(a)]})
    return sdp.Domain([axis, sdp.Axis("b", range(b)), sdp.Axis("c", range(c))])


FAMILIES = {
    "nothing": [],
    "one": [("g", "b")],
    "two that cross": [("a",), ("b", "c")],
    "two that share a level": [("a", "b"), ("g", "c")],
    "two of one axis": [("a",), ("g", "b")],
    "three": [("a", "b"), ("b", "c"), ("a", "c")],
}


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=st.integers(0, 2**32 - 1), mean=st.sampled_from([0.2, 2.0, 30.0]))
def test_totals_are_exact_whatever_the_real_table(family, seed, mean):
    """The real table has nothing to do with the totals: those are of another table."""
    rng = np.random.default_rng(seed)
    where = domain(int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    truth = rng.poisson(mean, where.shape)
    margins = [where.margin(*names) for names in FAMILIES[family]]
    totals = [(m, m.sum(truth)) for m in dict.fromkeys(margins)]
    totals = [(m, t) for m, t in totals if not any(o != m and o.determines(m) for o, _ in totals)]
    near = rng.gamma(0.3, mean, truth.size) * (rng.random(truth.size) < 0.7)
    dither = rng.random(truth.size) - 0.5
    whole = whole_table(near, where.cells, totals, None, dither).reshape(where.shape)
    assert whole.dtype == np.int64
    assert (whole >= 0).all()
    for margin, total in totals:
        assert np.array_equal(margin.sum(whole), total)


def test_values_go_to_a_neighbour_and_are_nearly_unbiased_on_average():
    """Over n roundings the mean of a value has a standard error of 1/(2√n) at most.

    A sum that is held makes going up only nearly as probable as the fraction says: 0.1 is allowed.
    """
    where, rng, n = domain(40, 1, 1), np.random.default_rng(1), 2_000
    near = rng.gamma(1.0, 2.0, 40)
    near *= np.rint(near.sum()) / near.sum()
    totals = [(where.margin(), np.array([[[round(near.sum())]]]))]
    mean = np.zeros(40)
    for _ in range(n):
        whole = whole_table(near, where.cells, totals, None, rng.random(40) - 0.5)
        assert (np.abs(whole - near) < 1).all()
        mean += whole / n
    assert np.abs(mean - near).max() < 0.1 + 3 / np.sqrt(n)
    # The twin, without dither, is as near as can be, and far from unbiased.
    still = whole_table(near, where.cells, totals, None, np.zeros(40))
    assert np.sum((still - near) ** 2) < np.sum((whole - near) ** 2)
    assert np.abs(still - near).max() > 0.3


def test_a_whole_table_stays_as_it_is_in_an_integer_programme():
    where, rng = domain(4, 3, 2), np.random.default_rng(1)
    whole = rng.poisson(2, where.shape)
    totals = [(m, m.sum(whole)) for m in (where.margin(*names) for names in FAMILIES["three"])]
    dither = rng.random(whole.size) - 0.5
    real, given = whole.reshape(-1).astype(float), of_margins(where.cells, totals)
    for beyond in (None, given):  # by exchanges, and by the programme
        found = whole_table(real, where.cells, totals, beyond, dither)
        assert np.array_equal(found.reshape(whole.shape), whole)


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((20, 20, 25), ["ab", "bc", "ac"]),
        ((30, 2, 12), ["ab", "bc", "ac"]),
        ((6, 5, 4, 3), ["ab", "cd", "ac", "bd", "ad", "bc"]),
        ((5, 4, 4, 3), ["abc", "bcd", "ad"]),
    ],
)
@pytest.mark.parametrize("mean", [0.5, 5.0])
def test_margins_that_cross_are_exact_at_what_rounding_costs(shape, names, mean, monkeypatch):
    """Without the programme; another table with these margins would be far from the real one."""

    def programme(*_):
        raise AssertionError("an integer programme was begun")

    monkeypatch.setattr(whole_tables, "_programme", programme)
    where = sdp.Domain([sdp.Axis(n, range(k)) for n, k in zip("abcd", shape, strict=False)])
    rng = np.random.default_rng(3)
    truth = rng.poisson(rng.gamma(0.5, 2 * mean, where.shape))
    totals = [(m, m.sum(truth)) for m in (where.margin(*name) for name in names)]
    held = sdp.hold(*names[0])
    for name in names[1:]:
        held &= sdp.hold(*name)
    release = sdp.design(where, held, sdp.PureDP(1.0)).release(sdp.Table(truth, where), seed=1)
    near = _Fitting(release, None).projected
    dither = rng.random(truth.size) - 0.5
    whole = whole_table(near, where.cells, totals, None, dither)
    assert (whole >= 0).all()
    for margin, total in totals:
        assert np.array_equal(margin.sum(whole.reshape(where.shape)), total)
    share = near - np.floor(near)
    cost = float(np.sum((whole - near) ** 2))
    assert cost < 1.6 * float(np.sum(share * (1 - share)))
    assert cost < float(np.sum((truth.reshape(-1) - near) ** 2))


def test_none_fits():
    where = domain(2, 2, 2)
    family = [where.margin(*names) for names in FAMILIES["three"]]
    # Sums of two of the axes agree, and no table of whole numbers ≥ 0 has all three.
    even = np.array([[1, 0], [0, 1]])
    totals = [
        (family[0], even[:, :, None]),
        (family[1], even[None]),
        (family[2], 1 - even[:, None, :]),
    ]
    with pytest.raises(ReleaseError, match="No table of whole numbers"):
        whole_table(np.full(8, 0.5), where.cells, totals, None, np.zeros(8))
