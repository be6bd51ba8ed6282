"""One contract for every controlled rounding: exact sums, no bias, and the variance it states.

Given the noisy answers, the rounding part of Σ wᵢ·answerᵢ is Σ vⱼuⱼ with independent uⱼ of mean
zero that take two values one apart. So by Hoeffding's inequality the mean of n draws is within
√(log(2/α)·Σv²/2n) of zero, and the mean of n squares, each at most (Σ|v|)², exceeds the variance
by at most (Σ|v|)²·√(log(1/α)/2n), each but for a probability α. A twin that breaks one promise
fails.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from tests.statistical import ALPHA

import subspacedp as sdp
from subspacedp.invariants import as_held, bind
from subspacedp.rounding import DigitPlan, Digits, GeneralDigits, digits_of
from subspacedp.rounding.levels import LevelDigits

DRAWS = 1500
ANY = 1 / 4  # the variance of a coin, at most, given the noisy answers
DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", range(5), levels={"state": ["x", "y", "x", "y", "x"]}),
        sdp.Axis("sex", ["F", "M", "X"]),
    ]
)
MARGINS = sdp.hold("state", "sex") & sdp.hold("county")
PUBLISHED = (DOMAIN.cells, DOMAIN.margin("sex"))
EQUALITIES = sdp.LinearInvariants([[1, 1, 1, 0, 0, 0], [0, 0, 2, 1, 1, 3]])


@dataclass(frozen=True, eq=False, repr=False)
class OfCorrection(LevelDigits):
    """`LevelDigits` as mechanisms use it: the whole correction is rounded, not its groups."""

    def round_in_place(self, noisy, residual, coins):
        """10**decimals · noisy − R."""
        return noisy * self.step - self.round(0, self.space.lift(residual), coins)


def margins(kind, *more, decimals=0):
    return kind(bind(as_held(MARGINS), sdp.Cells(DOMAIN)).cell_space, decimals, *more, coin=ANY)


ROUNDINGS = {
    "margins": lambda: margins(DigitPlan),
    "margins, two decimals": lambda: margins(DigitPlan, decimals=2),
    "levels": lambda: margins(LevelDigits, PUBLISHED, (1.0, 1.0)),
    "levels, the whole correction": lambda: margins(OfCorrection, PUBLISHED, (1.0, 1.0)),
    "a matrix": lambda: digits_of(
        bind(as_held(EQUALITIES), sdp.LinearQuery(np.eye(6))), 0, coin=ANY
    ),
    "a matrix, one decimal": lambda: digits_of(
        bind(as_held(EQUALITIES), sdp.LinearQuery(np.eye(6))), 1, coin=ANY
    ),
}


class Words:
    """Uniform words by their numbers."""

    def __init__(self, rng: np.random.Generator, number: int = 64) -> None:
        self.all = rng.integers(0, 2**64, number, np.uint64)

    def words(self, start, count, scratch=None):
        return self.all[start : start + count].copy()


def check_digits(digits: Digits, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    held, shape = digits.space.held, digits.space.shape
    C = held.as_matrix().matrix.toarray().astype(object)
    truth, noise = rng.integers(0, 60, shape), rng.integers(-9, 10, shape)
    noisy, exact = truth + noise, held.sums(truth)
    residual = held.residual(noisy, exact)
    assert digits.needed
    assert digits.step == 10**digits.decimals
    assert f"10**-{digits.decimals}" in digits.describe()

    wanted = digits.step * (C @ truth.ravel().astype(object))
    draws = np.empty((DRAWS, noisy.size))
    for i in range(DRAWS):
        steps = digits.round_in_place(noisy.copy(), residual, Words(rng))
        assert steps.dtype == np.int64
        assert np.array_equal(C @ steps.ravel().astype(object), wanted)
        draws[i] = steps.ravel()
    off = draws / digits.step - (noisy - digits.space.lift(residual)).ravel()

    cells = np.eye(noisy.size)
    each = np.asarray(digits.variance()).ravel()
    for i, w in enumerate((*cells, *rng.normal(size=(4, noisy.size)), np.ones(noisy.size))):
        v, coin = digits.coefficients(w.reshape(shape))
        stated = digits.variance(w.reshape(shape))
        assert stated == pytest.approx(float(v**2 @ coin), rel=1e-9, abs=1e-15)
        if i < len(cells):
            assert each[i] == pytest.approx(stated, rel=1e-9, abs=1e-15)
        mean = math.sqrt(math.log(2 / ALPHA) * float(v @ v) / (2 * DRAWS))
        assert abs(float(np.mean(off @ w))) <= mean + 1e-9
        square = float(np.abs(v).sum()) ** 2 * math.sqrt(math.log(1 / ALPHA) / (2 * DRAWS))
        assert float(np.mean((off @ w) ** 2)) <= stated + square + 1e-9

    again = [
        digits.round_in_place(noisy.copy(), residual, Words(np.random.default_rng(5)))
        for _ in range(2)
    ]
    assert np.array_equal(*again)


@pytest.mark.parametrize("name", ROUNDINGS)
def test_every_rounding_keeps_the_contract(name):
    digits = ROUNDINGS[name]()
    assert isinstance(digits, Digits)
    check_digits(digits)


def test_which_rounding_follows_from_what_is_held():
    cells = sdp.Cells(DOMAIN)
    assert isinstance(digits_of(bind(as_held(MARGINS), cells), 0), DigitPlan)
    both = MARGINS & sdp.zeros(np.zeros(DOMAIN.shape, bool))
    assert isinstance(digits_of(bind(as_held(both), cells), 0), GeneralDigits)
    assert digits_of(bind(as_held(MARGINS), cells), None) is None


def cell_by_cell(digits, noisy, residual, coins):
    """The twin that rounds every cell to the nearest step: sums no longer add up."""
    return np.rint((noisy - digits.space.lift(residual)) * digits.step).astype(np.int64)


class NoCoins:
    """The twin whose coins always fall the same way."""

    def words(self, start, count, scratch=None):
        return np.zeros(count, np.uint64)


def always_down(digits, noisy, residual, coins):
    return type(digits).__mro__[1].round_in_place(digits, noisy, residual, NoCoins())


def too_little(digits, weights=None):
    return type(digits).__mro__[1].variance(digits, weights) / 50


def half_of_a_coin(digits, weights):
    v, coin = type(digits).__mro__[1].coefficients(digits, weights)
    return v / 2, coin


def a_fiftieth(digits, weights):
    v, coin = type(digits).__mro__[1].coefficients(digits, weights)
    return v, coin / 50


TWINS = {
    "sums": {"round_in_place": cell_by_cell},
    "bias": {"round_in_place": always_down},
    "variance of a sum": {"variance": too_little},
    "variance": {"variance": too_little, "coefficients": a_fiftieth},
    "coefficients": {"coefficients": half_of_a_coin},
    "words": {"describe": lambda digits: "rounded"},
}


@pytest.mark.parametrize("broken", TWINS)
@pytest.mark.parametrize("name", ["margins", "levels, the whole correction", "a matrix"])
def test_a_rounding_that_breaks_one_promise_fails(name, broken):
    digits = ROUNDINGS[name]()
    more = (digits.published, digits.importance) if isinstance(digits, LevelDigits) else ()
    twin = type("Twin", (type(digits),), TWINS[broken])
    with pytest.raises(AssertionError):
        check_digits(twin(digits.space, digits.decimals, *more, coin=ANY))
