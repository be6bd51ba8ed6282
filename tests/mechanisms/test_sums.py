"""The law of a weighted sum of noise: never below the truth, and close to it.

The oracles enumerate: all values of a few noise variables with their exact masses, two halves of
the variables against each other, and every outcome of the randomised roundings. Masses
are positive and summed without differences, so a tail is right to a dozen digits however small.
"""

import itertools
import math
import time
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.mechanisms.test_transforms import masses
from tests.statistical import rescaled
from tests.strategies import examples

import subspacedp as sdp
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.error_laws.sums import (
    OnlyVariance,
    Part,
    Rounding,
    WeightedSum,
    _noise_of,
    largest_tail,
    part,
)
from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, RoundedGaussian

SMALL = [
    DiscreteLaplace(Fraction(1, 2)),
    DiscreteLaplace(Fraction(3, 2)),
    DiscreteLaplace(Fraction(5)),
    RoundedGaussian(0.2),
    RoundedGaussian(0.7),
    RoundedGaussian(3.0),
    DiscreteGaussian(Fraction(1, 3)),
    DiscreteGaussian(Fraction(4)),
]
SCALES = [
    *(DiscreteLaplace(Fraction(r)) for r in ("1/1000000000", "1/1000", "1/10", "1", "6", "40")),
    *(RoundedGaussian(s) for s in (0.03, 0.06, 0.1, 0.4, 2.0, 1e3, 1e9)),
    *(DiscreteGaussian(Fraction(s)) for s in ("0.0025", "0.01", "0.16", "4", "1000000")),
]
ALPHAS = [0.5, 0.1, 0.05, 0.01, 1e-3, 1e-6]
law_of = st.one_of(
    st.fractions(Fraction(3, 4), Fraction(8), max_denominator=50).map(DiscreteLaplace),
    st.floats(0.15, 1.5).map(RoundedGaussian),
    st.fractions(Fraction(1, 40), Fraction(2), max_denominator=50).map(DiscreteGaussian),
)


class Truth:
    """P(|Σ aᵢeᵢ| ≥ x) by enumeration of two halves of the variables."""

    def __init__(self, laws, weights):
        middle = len(weights) // 2
        self.one = _all_values(laws[:middle], weights[:middle])
        values, mass = _all_values(laws[middle:], weights[middle:])
        order = np.argsort(values)
        self.values, self.from_above = values[order], np.cumsum(mass[order][::-1])[::-1]

    def tail(self, x):
        """At and above x, twice: the laws are symmetric."""
        total = 0.0
        values, mass = self.one
        place = np.searchsorted(self.values, x - values - 1e-9, side="left")
        inside = place < len(self.values)
        total = float(mass[inside] @ self.from_above[place[inside]])
        return min(1.0, 2 * total) if x > 0 else 1.0


def _all_values(laws, weights):
    values, mass = np.zeros(1), np.ones(1)
    for law, w in zip(laws, weights, strict=True):
        z, p = masses(law)
        z, p = z[p > 1e-22], p[p > 1e-22]
        both = np.concatenate([-z[:0:-1], z]) * w
        weight = np.concatenate([p[:0:-1], p])
        values = np.add.outer(values, both).ravel()
        mass = np.multiply.outer(mass, weight).ravel()
        kept = mass > 1e-19
        values, mass = values[kept], mass[kept]
    return values, mass


def of(law, weights, **more):
    return WeightedSum(parts=(part(law, weights),), **more)


# --------------------------------------------------------------------------------------- lattices

LATTICES = [[1.0], [0.25, 0.75], [2 / 3, 1 / 3, 1 / 3], [0.9, 0.1], [5 / 7, 2 / 3, 1.0, 0.5]]


@pytest.mark.parametrize("law", SMALL, ids=repr)
@pytest.mark.parametrize("weights", LATTICES, ids=str)
def test_on_a_lattice_the_tail_is_the_exact_one(law, weights):
    found, truth = of(law, weights), Truth([law] * len(weights), weights)
    assert found.method == "exact"
    g, spread = found.lattice, math.sqrt(found.variance)
    for x in np.unique(np.ceil(np.linspace(0.01, 7, 15) * max(spread / g, 1.0))) * g:
        exact = truth.tail(x)
        assert exact * (1 - 1e-9) <= found.tail(x) <= exact + 1e-9
        # Between two points it is at most that of the lower one.
        assert truth.tail(x + g / 3) <= found.tail(x + g / 3) <= exact + 1e-9


@pytest.mark.parametrize("law", SMALL, ids=repr)
@pytest.mark.parametrize("weights", LATTICES, ids=str)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_on_a_lattice_the_margin_is_the_least_one(law, weights, alpha):
    found, truth = of(law, weights), Truth([law] * len(weights), weights)
    g, q = found.lattice, found.margin_of_error(alpha)
    assert truth.tail(q + g / 2) <= alpha  # P(|S| > q)
    assert q < 1.5 * g or truth.tail(q - g / 2) > alpha * (1 - 1e-3)  # P(|S| > q − g)


@given(
    law=law_of,
    whole=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    unit=st.sampled_from([1.0, 1 / 3, 0.1, 1e-6, 2.0**30]),
    alpha=st.sampled_from(ALPHAS),
)
@settings(max_examples=examples(1) // 2)
def test_any_lattice(law, whole, unit, alpha):
    weights = [w * unit for w in whole]
    found, truth = of(law, weights), Truth([law] * len(whole), whole)
    q = found.margin_of_error(alpha)
    step = found.lattice / unit
    assert truth.tail(q / unit + step / 2) <= alpha
    x = math.ceil(2 * math.sqrt(found.variance) / found.lattice)
    exact = truth.tail(x * step)
    assert exact * (1 - 1e-9) <= found.tail(x * found.lattice) <= exact + 1e-9


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(2)), RoundedGaussian(0.9)], ids=repr)
@pytest.mark.parametrize("hair", [0.0, 3e-12, 6e-11])
def test_weights_a_hair_off_a_fine_lattice(law, hair):
    """Angles of 10⁴ turns: what a weight is off must not come back 10⁴ times as large."""
    weights = [1.0 + hair, 1 / 4999]
    found, truth = of(law, weights), Truth([law] * 2, weights)
    assert found.lattice is not None
    computed = found._tail(1e-6)
    assert computed.step is not None
    for place in np.linspace(1, 4 * 4999, 200).astype(int):
        x, above = computed.points[place], computed.above[place]
        assert truth.tail(x * (1 + 1e-9) + 1.2e-9) / 2 <= above  # the oracle's own tolerance: 1e-9
        # What is added for other periods, twice, and for floating point.
        assert above <= truth.tail(x) / 2 + 2e-6 * 3e-4 + 2e-12


def test_laws_of_several_kinds_are_added():
    one, two = DiscreteLaplace(Fraction(1)), RoundedGaussian(0.8)
    found = WeightedSum(parts=(part(one, [1.0, 0.5]), part(two, [0.25, 1.5])))
    truth = Truth([one, one, two, two], [1.0, 0.5, 0.25, 1.5])
    for x in np.arange(0.25, 12, 0.25):
        assert truth.tail(x) * (1 - 1e-9) <= found.tail(x) <= truth.tail(x) + 1e-9


def test_far_out_tails_are_covered_and_not_absurd():
    law = DiscreteLaplace(Fraction(1, 3))
    found, truth = of(law, [1.0, 0.5]), Truth([law] * 2, [1.0, 0.5])
    for x in (40.0, 60.0, 80.0, 100.0):
        assert truth.tail(x) * (1 - 1e-9) <= found.tail(x) <= 1e-9 + 60 * truth.tail(x)
    for alpha in (1e-9, 1e-10, 1e-12):
        q = found.margin_of_error(alpha)
        assert truth.tail(q + 0.25) <= alpha
        assert truth.tail(0.75 * q) > alpha


# --------------------------------------------------------------------------------------- smearing

ODD = [[1.0, math.sqrt(2)], [1.0, math.pi / 3, math.sqrt(0.4)], [0.3, 1.0, 0.57721566, 0.1234567]]


def check_smeared(found, truth, alpha):
    """Valid, and wider by at most 0.4 % of a standard deviation and a part in 1000 of alpha."""
    spread = math.sqrt(found.variance)
    q = found.margin_of_error(alpha)
    assert truth.tail(q + 1e-7 * spread) <= alpha
    assert truth.tail(q - 0.0045 * spread) >= alpha * (1 - 1e-3)


@pytest.mark.parametrize("law", [SMALL[0], SMALL[1], SMALL[4], SMALL[5]], ids=repr)
@pytest.mark.parametrize("weights", ODD, ids=str)
def test_smeared_margins_are_valid_and_close(law, weights):
    found, truth = of(law, weights), Truth([law] * len(weights), weights)
    assert found.method == "smeared"
    for alpha in (0.1, 0.05, 0.01, 1e-4):
        check_smeared(found, truth, alpha)


@pytest.mark.parametrize("law", SMALL, ids=repr)
@pytest.mark.parametrize("weights", ODD, ids=str)
def test_smeared_tails_are_never_below_the_truth(law, weights):
    found, truth = of(law, weights), Truth([law] * len(weights), weights)
    atoms = np.abs(truth.values[:: max(1, len(truth.values) // 25)])
    spread = math.sqrt(found.variance)
    for x in [*atoms[atoms > 0], *np.linspace(0.05, 6, 20) * spread]:
        assert truth.tail(x + 2e-9) <= found.tail(x) * (1 + 1e-12)
        if law.scale > 0.5:  # below, atoms are so far apart that bounds of the series may not do
            assert found.tail(x) <= truth.tail(x - 0.012 * spread) * 1.001 + 4e-9


@given(
    law=law_of,
    weights=st.lists(st.floats(0.02, 4.0), min_size=1, max_size=4),
    alpha=st.sampled_from([0.3, 0.05, 0.01, 1e-4]),
)
@settings(max_examples=examples(1) // 10)
def test_any_weights(law, weights, alpha):
    found, truth = of(law, weights), Truth([law] * len(weights), weights)
    q = found.margin_of_error(alpha)
    assert truth.tail(q * (1 + 1e-7) + 1e-7) <= alpha
    x = 1.5 * math.sqrt(found.variance)
    assert truth.tail(x + 2e-9) * (1 - 1e-9) <= found.tail(x)


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(2, 3)), RoundedGaussian(1.2)], ids=repr)
def test_many_weights_against_convolution_on_a_fine_lattice(law):
    rng = np.random.default_rng(3)
    whole = rng.integers(3000, 20_000, 8)  # of a unit: no lattice of moderate size
    found = of(law, whole / 1e3)
    assert found.method == "smeared"
    _, p = masses(law)
    last = int(np.searchsorted(-p, -1e-15))
    line = np.ones(1)
    for w in whole:
        comb = np.zeros(2 * w * last + 1)
        comb[::w] = np.concatenate([p[last:0:-1], p[: last + 1]])
        n = 1 << (len(line) + len(comb)).bit_length()
        line = np.fft.irfft(np.fft.rfft(line, n) * np.fft.rfft(comb, n), n)[
            : len(line) + len(comb) - 1
        ]
        keep = int(9e3 * math.sqrt(found.variance))
        middle = len(line) // 2
        if middle > keep:
            line = line[middle - keep : middle + keep + 1]
    middle = len(line) // 2
    above = np.cumsum(line[middle:][::-1])[::-1]
    spread = math.sqrt(found.variance)
    for alpha in (0.1, 0.05, 0.01, 1e-3):
        q = found.margin_of_error(alpha)
        assert 2 * above[math.floor(q * 1e3 * (1 + 1e-9)) + 1] <= alpha
        assert 2 * above[math.floor((q - 0.0045 * spread) * 1e3)] >= alpha * (1 - 1e-3)


# -------------------------------------------------------------------------------------- the twin


@pytest.mark.parametrize("law", [SMALL[0], SMALL[1], SMALL[5]], ids=repr)
@pytest.mark.parametrize("weights", [[0.25, 0.75, 0.5], ODD[2]], ids=str)
def test_a_margin_for_noise_five_percent_smaller_is_no_margin(law, weights):
    """What accepts the right law rejects the twin, by the same comparison with the truth.

    On a coarse lattice a level or another may have the same margin for both.
    """
    truth = Truth([law] * len(weights), weights)
    right, wrong = of(law, weights), of(rescaled(law, 1 / 1.05), weights)
    near = 1e-7 * math.sqrt(right.variance)
    levels = (0.1, 0.05, 0.02, 0.01)
    assert all(truth.tail(right.margin_of_error(alpha) + near) <= alpha for alpha in levels)
    caught = [truth.tail(wrong.margin_of_error(alpha) + near) > alpha for alpha in levels]
    assert sum(caught) >= 3


# -------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("law", SCALES, ids=repr)
@pytest.mark.parametrize("unit", [1.0, 1e-12, 1e12])
def test_one_variable_of_any_scale(law, unit):
    """Against the quantile of the law itself, by its distribution function as a ball."""
    found = of(law, [unit])
    for alpha in (0.2, 0.05, 1e-3, 1e-6):
        q = round(found.margin_of_error(alpha) / unit, 6)
        step = 1.0 if law.scale < 1e3 else 0.0
        outside = 2 * float(law.cdf(-math.floor(q) - 1)())
        assert outside <= alpha * (1 + 1e-12)
        inner = q - step - 0.005 * law.scale * (law.scale >= 1e3)
        if inner >= 0:
            assert 2 * float(law.cdf(-math.floor(inner) - 1)()) >= alpha * (1 - 2e-3)


@pytest.mark.parametrize("law", SCALES[::2], ids=repr)
def test_margins_shrink_as_alpha_grows_and_scale_with_the_weights(law):
    weights = np.array([1.0, 0.4, 0.3333])
    found, larger = of(law, weights), of(law, weights * 8)
    margins = [found.margin_of_error(alpha) for alpha in (1e-12, 1e-6, 0.05, 0.5)]
    assert all(a >= b for a, b in pairwise(margins))
    assert larger.margin_of_error(0.05) == pytest.approx(8 * margins[2], rel=1e-6)


PATHOLOGIES = {
    "one huge weight": np.r_[1e6, np.random.default_rng(1).random(10**4)],
    "one large weight": np.r_[1.0, 1e-4 * np.random.default_rng(2).random(10**4)],
    "powers of two": 2.0 ** -np.arange(40),
    "two of incommensurable size": np.array([1.0, math.pi * 1e-5]),
    "nearly equal": 1 + 1e-9 * np.arange(64),
    "a million": np.random.default_rng(3).random(10**6),
}


@pytest.mark.parametrize("name", PATHOLOGIES)
@pytest.mark.parametrize(
    "law", [DiscreteLaplace(Fraction(1, 10)), DiscreteLaplace(Fraction(8)), RoundedGaussian(3.0)],
    ids=repr,
)  # fmt: skip
def test_no_weights_are_out_of_reach(law, name):
    """In seconds, and between the quantiles of its largest part and Chebyshev's bound."""
    found = of(law, PATHOLOGIES[name])
    start = time.process_time()
    q = found.margin_of_error(0.05)
    assert time.process_time() - start < 10.0
    assert q <= math.sqrt(found.variance / 0.05)
    if law.scale > 1:
        assert 1.9 * math.sqrt(found.variance) <= q <= 2.4 * math.sqrt(found.variance)


def test_nothing_but_zeros_is_fixed():
    for found in (WeightedSum(parts=()), of(SMALL[0], [0.0, 0.0])):
        assert found.fixed
        assert found.method == "fixed"
        assert found.margin_of_error(0.05) == 0.0
        assert found.tail(1e-300) == 0.0
        assert found.tail(0.0) == 1.0


def test_parts_merge_equal_weights_and_forget_signs():
    found = part(SMALL[0], [0.1, -0.1, 0.1 + 1e-16, 0.2, 0.0, 1e-20])
    assert found.counts.tolist() == [3.0, 1.0]
    assert np.allclose(found.weights, [0.1, 0.2], rtol=1e-12)
    assert np.all(np.abs(found.weights / [0.1, 0.2] - 1) <= 2.0**-40)


def test_counts_are_repeated_weights():
    law, weights = DiscreteLaplace(Fraction(1)), np.array([0.5, 0.3])
    counted = WeightedSum(parts=(Part(law, weights, np.array([3.0, 2.0])),))
    repeated = of(law, [0.5, 0.5, 0.5, 0.3, 0.3])
    truth = Truth([law] * 5, [0.5, 0.5, 0.5, 0.3, 0.3])
    for x in np.arange(0.1, 8, 0.3):
        assert counted.tail(x) == pytest.approx(repeated.tail(x), rel=1e-9)
        assert truth.tail(x) * (1 - 1e-9) <= counted.tail(x)


def test_only_a_variance():
    law = OnlyVariance(4.0)
    assert law.method == "Chebyshev"
    assert law.margin_of_error(0.04) == 10.0
    assert law.tail(10.0) == pytest.approx(0.04)
    assert law.tail(0.0) == 1.0
    assert law.tail(1.0) == 1.0


# -------------------------------------------------------------------------------------- rounding


@given(
    v=st.lists(st.floats(-3, 3).filter(lambda x: abs(x) > 1e-3), min_size=1, max_size=8),
    f=st.lists(st.floats(0.001, 0.999), min_size=8, max_size=8),
)
def test_rounding_tail_bounds_every_law_of_the_roundings(v, f):
    """All 2^k outcomes of roundings with any fractional parts."""
    values, mass = np.zeros(1), np.ones(1)
    for weight, share in zip(v, f, strict=False):
        both = np.array([-share, 1 - share]) * weight
        values = np.add.outer(values, both).ravel()
        mass = np.multiply.outer(mass, [1 - share, share]).ravel()
    bound = Rounding.of(np.array(v))
    for s in [*values, *np.linspace(0, 1.2, 20) * bound.total]:
        for side in (1, -1):
            truth = float(mass[side * values >= s + 1e-12].sum())
            assert truth <= float(bound.tail(np.array([s]))[0]) + 1e-12


def trials(shares):
    """The law of the number of successes in independent trials."""
    mass = np.ones(1)
    for share in shares:
        mass = np.convolve(mass, [1 - share, share])
    return mass


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_the_largest_tail_is_never_below_that_of_any_trials(shares):
    above = np.cumsum(trials(shares)[::-1])[::-1]
    whole = np.arange(len(shares) + 1)
    bound = largest_tail(len(shares), whole - math.fsum(shares))
    assert np.all(above <= bound + 1e-12)


@pytest.mark.parametrize("roundings", [1, 2, 3, 5, 20, 65])
def test_the_largest_tail_is_attained_and_decreases(roundings):
    s = np.linspace(0.01, roundings, 150)
    bound = largest_tail(roundings, s)
    assert np.all(np.diff(bound) <= 1e-12)
    step = 0.0 if roundings <= 16 else 1 / 32 if roundings <= 64 else 1 / 16
    attained = np.zeros(s.size)
    for m in range(1, roundings + 1):
        for k in range(m, roundings + 1):
            share = (m - np.maximum(s - step, 0.0)) / k
            attained = np.maximum(attained, stats.binom.sf(m - 1, k, np.clip(share, 0, 1)))
    assert np.all(bound <= attained * (1 + 1e-9) + 1e-12)


def test_a_twin_with_fair_roundings_is_caught():
    """Roundings of the largest variance do not have the largest tail."""
    seen = float(trials([0.75] * 4)[4])  # one above its mean
    twin = float(stats.binom.sf(2, 4, 0.5))
    assert twin < seen <= float(largest_tail(4, np.ones(1))[0])


def rounded_truth(law, cells, weights, decimals):
    """|Σ w·(release − truth)| and its masses: cells in a line with their total held.

    All noise that matters, and all outcomes of rounding: entry i of the cumulated correction is
    i·total/cells in steps, rounded up with the probability of its fractional part.
    """
    z, p = masses(law)
    z, p = z[p > 1e-14], p[p > 1e-14]
    line, mass = np.concatenate([-z[:0:-1], z]), np.concatenate([p[:0:-1], p])
    noise = np.stack(np.meshgrid(*[line] * cells, indexing="ij"), -1).reshape(-1, cells)
    weight = np.ones(1)
    for _ in range(cells):
        weight = np.multiply.outer(weight, mass).ravel()
    step = 10**decimals
    total = noise.sum(axis=1) * step
    outcomes, chances = [], []
    for roundings in np.ndindex(*[2] * (cells - 1)):
        cumulated, chance = np.zeros((len(noise), cells + 1)), weight.copy()
        cumulated[:, cells] = total
        for i, up in enumerate(roundings, start=1):
            whole, rest = np.divmod(i * total, cells)
            cumulated[:, i] = whole + up
            chance = chance * (rest / cells if up else 1 - rest / cells)
        error = noise - np.diff(cumulated, axis=1) / step
        outcomes.append(np.abs(error @ weights))
        chances.append(chance)
    return np.concatenate(outcomes), np.concatenate(chances)


@pytest.mark.parametrize("law", [SMALL[1], SMALL[2], RoundedGaussian(0.7)], ids=repr)
@pytest.mark.parametrize(
    "weights",
    [[1.0, 0, 0], [0, 1.0, 0], [1.0, 1.0, 0], [0.3, -1.1, 2.0], [1.0, 3.0, -2.0]],
    ids=str,
)
@pytest.mark.parametrize("decimals", [0, 1])
def test_with_rounding_the_tail_is_never_below_enumeration(law, weights, decimals):
    weights = np.array(weights)
    budget = (
        sdp.PureDP(float(2 * law.rate)) if isinstance(law, DiscreteLaplace) else sdp.GaussianDP(2.0)
    )
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    design = sdp.design(domain, sdp.hold(), budget, decimals=decimals).mechanism
    bound, found = JointNoise.law_of(design.noise, weights), design.noise.law_of(weights)
    assert bound.method == "conservative"
    assert found.method == ("simulated" if decimals == 0 else found.method)
    distance, mass = rounded_truth(design.law, 3, weights, decimals)
    order = np.argsort(distance)
    distance, above = distance[order], np.cumsum(mass[order][::-1])[::-1]

    def truth(x):
        place = int(np.searchsorted(distance, x - 1e-9))
        return float(above[place]) if place < len(above) else 0.0

    for x in [*np.unique(np.round(distance, 9))[1:40], *np.linspace(0.2, 12, 25)]:
        assert truth(x) <= found.tail(x) * (1 + 1e-9)
        assert found.tail(x) <= bound.tail(x)
    for law, alpha in itertools.product((bound, found), ALPHAS):
        q = law.margin_of_error(alpha)
        assert truth(q + 2e-9 + 1e-9 * q) <= alpha
        # Conservative, and not absurd: the bound for roundings costs a step or two.
        loose = [x for x in np.unique(np.round(distance, 9)) if truth(x + 1e-6) <= alpha]
        steps = np.abs(weights).sum() * 4 / 10**decimals
        assert q <= (loose[0] if loose else distance.max()) + steps


def test_a_twin_that_forgets_the_roundings_is_caught():
    law, weights = DiscreteLaplace(Fraction(5)), np.array([1.0, 0.0, 0.0])
    domain = sdp.Domain([sdp.Axis("a", range(3))])
    design = sdp.design(domain, sdp.hold(), sdp.PureDP(10.0), decimals=0).mechanism
    assert design.law == law
    right = JointNoise.law_of(design.noise, weights)
    twin = WeightedSum(parts=right.parts)
    distance, mass = rounded_truth(law, 3, weights, 0)
    outside = {n: float(mass[distance > n.margin_of_error(0.005)].sum()) for n in (right, twin)}
    assert outside[right] <= 0.005
    assert outside[twin] > 0.005


def test_sums_that_share_their_noise_do_not_depend_on_what_was_asked_before():
    law, other = DiscreteLaplace(Fraction(7)), DiscreteLaplace(Fraction(3))
    parts = [part(law, np.array([1.0, 0.3, 0.3])), part(other, np.array([0.17, 1.0]))]
    roundings = [Rounding.of(np.ones(n)) for n in (1, 2, 4)]

    def asked(parts, rounding):
        return WeightedSum(parts=parts, rounding=rounding, step=1.0).margin_of_error(0.05)

    fresh = []
    for rounding in roundings:
        _noise_of.cache_clear()
        fresh.append(asked(parts, rounding))
    # In another order, of parts in another order, and after a sum of other noise.
    asked([part(law, np.array([1.0, 0.3]))], roundings[0])
    later = [asked(parts[::-1], rounding) for rounding in reversed(roundings)]
    assert later[::-1] == fresh
    assert fresh == sorted(fresh)
    # A broken twin: the noise of another sum gives another margin.
    assert asked(parts[:1], roundings[0]) < fresh[0]
