"""One contract for every controlled rounding: exact sums, no bias, and the variance it states.

Given the noisy answers, the rounding part of Σ wᵢ·answerᵢ is Σ vⱼuⱼ with independent uⱼ of mean
zero that take two values one apart. So by Hoeffding's inequality the mean of n draws is within
√(log(2/α)·Σv²/2n) of zero, and the mean of n squares, each at most (Σ|v|)², exceeds the variance
by at most (Σ|v|)²·√(log(1/α)/2n), each but for a probability α. A twin that breaks one promise
fails.
"""

import math

import numpy as np
import pytest
from tests.statistical import ALPHA

import subspacedp as sdp
from subspacedp.frozen import frozen
from subspacedp.invariants import as_held, bind
from subspacedp.rounding import (
    ControlledRounding,
    CrossingRounding,
    MarginRounding,
    MatrixRounding,
    rounding_of,
)
from subspacedp.rounding.levels import LevelRounding

DRAWS = 1500
ANY = 1 / 4  # the variance of a rounding, at most, given the noisy answers
DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", range(5), levels={"state": ["x", "y", "x", "y", "x"]}),
        sdp.Axis("sex", ["F", "M", "X"]),
    ]
)
MARGINS = sdp.hold("state", "sex") & sdp.hold("county")
PUBLISHED = (DOMAIN.cells, DOMAIN.margin("sex"))
PLACES = sdp.Domain(
    [
        sdp.Axis("sex", ["F", "M"]),
        sdp.Axis("block", range(7), {"county": list("aaabbbb")},
                 groupings={"grid": [1, 2, 2, 1, 2, None, 1],
                            "school": [None, 1, 1, 1, 2, 2, None]}),
        sdp.Axis("age", range(3), levels={"old": [0, 0, 1]}),
    ]
)  # fmt: skip
CROSSING = {
    "crossing": sdp.hold("county") & sdp.hold("grid"),
    "crossing, cell by cell beside": sdp.hold("county", "sex", "age")
    & sdp.hold("grid", "sex", "age"),
    "crossing, margins that cross beside": sdp.hold("county", "sex") & sdp.hold("grid", "age"),
    "crossing, and levels beside": sdp.hold("block", "sex")
    & sdp.hold("grid", "age")
    & sdp.hold("county", "old"),
    "one grouping with holes": sdp.hold("school", "old"),
}
EQUALITIES = sdp.LinearInvariants([[1, 1, 1, 0, 0, 0], [0, 0, 2, 1, 1, 3]])


@frozen(eq=False, repr=False)
class OfCorrection(LevelRounding):
    """`LevelRounding` as mechanisms use it: the whole correction is rounded, not its groups."""

    def round_in_place(self, noisy, residual, dither):
        """10**decimals · noisy − R."""
        return noisy * self.step - self.round(0, self.space.lift(residual), dither)


def margins(kind, *more, decimals=0):
    return kind(
        bind(as_held(MARGINS), sdp.Cells(DOMAIN)).cell_space, decimals, *more, unit_variance=ANY
    )


def crossing(held, decimals=0):
    return rounding_of(bind(as_held(held), sdp.Cells(PLACES)), decimals, unit_variance=ANY)


ROUNDINGS = {
    **{name: lambda held=held: crossing(held) for name, held in CROSSING.items()},
    "crossing, two decimals": lambda: crossing(CROSSING["crossing"], 2),
    "margins": lambda: margins(MarginRounding),
    "margins, two decimals": lambda: margins(MarginRounding, decimals=2),
    "levels": lambda: margins(LevelRounding, PUBLISHED, (1.0, 1.0)),
    "levels, the whole correction": lambda: margins(OfCorrection, PUBLISHED, (1.0, 1.0)),
    "a matrix": lambda: rounding_of(
        bind(as_held(EQUALITIES), sdp.LinearQuery(np.eye(6))), 0, unit_variance=ANY
    ),
    "a matrix, one decimal": lambda: rounding_of(
        bind(as_held(EQUALITIES), sdp.LinearQuery(np.eye(6))), 1, unit_variance=ANY
    ),
}


class Words:
    """Uniform words by their numbers."""

    def __init__(self, rng: np.random.Generator, number: int = 64) -> None:
        self.all = rng.integers(0, 2**64, number, np.uint64)

    def words(self, start, count, scratch=None):
        return self.all[start : start + count].copy()


def check_rounding(rounding: ControlledRounding, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    held, shape = rounding.space.held, rounding.space.shape
    C = held.as_matrix().matrix.toarray().astype(object)
    truth, noise = rng.integers(0, 60, shape), rng.integers(-9, 10, shape)
    noisy, exact = truth + noise, held.sums(truth)
    residual = held.residual(noisy, exact)
    assert rounding.needed
    assert rounding.step == 10**rounding.decimals
    assert f"10**-{rounding.decimals}" in rounding.describe()

    wanted = rounding.step * (C @ truth.ravel().astype(object))
    draws = np.empty((DRAWS, noisy.size))
    for i in range(DRAWS):
        steps = rounding.round_in_place(noisy.copy(), residual, Words(rng))
        assert steps.dtype == np.int64
        assert np.array_equal(C @ steps.ravel().astype(object), wanted)
        draws[i] = steps.ravel()
    off = draws / rounding.step - (noisy - rounding.space.lift(residual)).ravel()

    cells = np.eye(noisy.size)
    each = np.asarray(rounding.variance()).ravel()
    for i, w in enumerate((*cells, *rng.normal(size=(4, noisy.size)), np.ones(noisy.size))):
        v, unit_variance = rounding.coefficients(w.reshape(shape))
        stated = rounding.variance(w.reshape(shape))
        assert stated == pytest.approx(float(v**2 @ unit_variance), rel=1e-9, abs=1e-15)
        if i < len(cells):
            assert each[i] == pytest.approx(stated, rel=1e-9, abs=1e-15)
        mean = math.sqrt(math.log(2 / ALPHA) * float(v @ v) / (2 * DRAWS))
        assert abs(float(np.mean(off @ w))) <= mean + 1e-9
        square = float(np.abs(v).sum()) ** 2 * math.sqrt(math.log(1 / ALPHA) / (2 * DRAWS))
        assert float(np.mean((off @ w) ** 2)) <= stated + square + 1e-9

    again = [
        rounding.round_in_place(noisy.copy(), residual, Words(np.random.default_rng(5)))
        for _ in range(2)
    ]
    assert np.array_equal(*again)


@pytest.mark.parametrize("name", ROUNDINGS)
def test_every_rounding_keeps_the_contract(name):
    rounding = ROUNDINGS[name]()
    assert isinstance(rounding, ControlledRounding)
    check_rounding(rounding)


def test_which_rounding_follows_from_what_is_held():
    cells = sdp.Cells(DOMAIN)
    assert isinstance(rounding_of(bind(as_held(MARGINS), cells), 0), MarginRounding)
    both = MARGINS & sdp.zeros(np.zeros(DOMAIN.shape, bool))
    assert isinstance(rounding_of(bind(as_held(both), cells), 0), MatrixRounding)
    assert rounding_of(bind(as_held(MARGINS), cells), None) is None
    crossed = bind(as_held(CROSSING["crossing"]), sdp.Cells(PLACES))
    assert isinstance(rounding_of(crossed, 0), CrossingRounding)


def cell_by_cell(rounding, noisy, residual, dither):
    """The twin that rounds every cell to the nearest step: sums no longer add up."""
    return np.rint((noisy - rounding.space.lift(residual)) * rounding.step).astype(np.int64)


class NoDither:
    """The twin whose dither is always the same."""

    def words(self, start, count, scratch=None):
        return np.zeros(count, np.uint64)


def always_down(rounding, noisy, residual, dither):
    return type(rounding).__mro__[1].round_in_place(rounding, noisy, residual, NoDither())


def too_little(rounding, weights=None):
    return type(rounding).__mro__[1].variance(rounding, weights) / 50


def half_of_a_rounding(rounding, weights):
    v, unit_variance = type(rounding).__mro__[1].coefficients(rounding, weights)
    return v / 2, unit_variance


def a_fiftieth(rounding, weights):
    v, unit_variance = type(rounding).__mro__[1].coefficients(rounding, weights)
    return v, unit_variance / 50


TWINS = {
    "sums": {"round_in_place": cell_by_cell},
    "bias": {"round_in_place": always_down},
    "variance of a sum": {"variance": too_little},
    "variance": {"variance": too_little, "coefficients": a_fiftieth},
    "coefficients": {"coefficients": half_of_a_rounding},
    "words": {"describe": lambda rounding: "rounded"},
}


@pytest.mark.parametrize("broken", TWINS)
@pytest.mark.parametrize("name", ["margins", "levels, the whole correction", "a matrix"])
def test_a_rounding_that_breaks_one_promise_fails(name, broken):
    rounding = ROUNDINGS[name]()
    more = (rounding.published, rounding.importance) if isinstance(rounding, LevelRounding) else ()
    twin = type("Twin", (type(rounding),), TWINS[broken])
    with pytest.raises(AssertionError):
        check_rounding(twin(rounding.space, rounding.decimals, *more, unit_variance=ANY))
