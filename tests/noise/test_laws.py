"""Noise laws: distribution functions, masses, digits, variances and characteristic functions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq

from subspacedp.errors import BudgetError
from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from subspacedp.noise.laws import SEARCHED, DigitDifference, _geometric

RATES = [Fraction(1, 300), Fraction(1, 10), Fraction(24, 125), Fraction(1), Fraction(7, 2)]
SIGMAS = [0.05, 0.3, 0.5, 1.0, 2.0, 3.0, 3.0000001, 10.0, 75.3]
LAPLACE = [DiscreteLaplace(rate) for rate in RATES]
GAUSSIAN = [RoundedGaussian(sigma) for sigma in SIGMAS]
DISCRETE = [DiscreteGaussian(Fraction(s) ** 2) for s in ("0.05", "0.5", "2", "3", "75.3")]
DIGITS = [
    DigitDifference(rate, base) for rate in (Fraction(1, 5), Fraction(3, 2)) for base in (2, 3, 10)
]


@pytest.fixture(autouse=True)
def _precision():
    with ctx.workprec(512):
        yield


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.4054651, 0.4054652, 0.5, 1.0, 3.0, 40.0])
def test_geometric_variables_are_those_of_numpy(rate):
    """Simulated laws are public and frozen, so the draws must be the same, and what comes next."""
    chance, shape = -math.expm1(-rate), (2000, 17)
    assert (chance >= SEARCHED) == (rate > 0.40546510810)
    ours, numpys = (np.random.Generator(np.random.Philox(key=7)) for _ in range(2))
    for _ in range(2):
        assert np.array_equal(_geometric(ours, chance, shape), numpys.geometric(chance, shape))
    assert ours.random() == numpys.random()
    assert not np.array_equal(_geometric(ours, chance, shape), numpys.geometric(0.99, shape))
    assert _geometric(ours, chance, (0, 3)).shape == (0, 3)


def number(value):
    exact = Fraction(value)
    return arb(fmpq(exact.numerator, exact.denominator))


def mass(law, z):
    """P(Z = z) from the distribution function, in the lower tail where nothing cancels."""
    low = -abs(z)
    return law.cdf(low)() - law.cdf(low - 1)()


def same(a, b, bits=300):
    """Whether two balls overlap, both being small: equal to that many bits."""
    tiny = arb(2) ** -bits
    return bool(a.overlaps(b)) and bool(a.rad() < tiny * (1 + abs(a)).upper()) and b.is_finite()


def direct_mass(law, z):
    """The mass by its definition, for each law in its own words."""
    if isinstance(law, DiscreteLaplace):
        q = (-number(law.rate)).exp()
        return (1 - q) / (1 + q) * q ** abs(z)
    if isinstance(law, RoundedGaussian):
        root = number(law.sigma) * arb(2).sqrt()
        low, high = (number(Fraction(2 * abs(z) + side, 2)) / root for side in (-1, 1))
        return (low.erfc() - high.erfc()) / 2
    if isinstance(law, DiscreteGaussian):
        r, last = number(1 / (2 * law.sigma_squared)), int(60 * law.scale) + 60
        others = sum(((-r * k * k).exp() for k in range(1, last)), arb(0))
        return (-r * z * z).exp() / (1 + 2 * others)
    digit = [(-number(law.rate) * d).exp() for d in range(law.base)]
    pairs = itertools.product(range(law.base), repeat=2)
    return sum((digit[d] * digit[e] for d, e in pairs if d - e == z), arb(0)) / sum(digit) ** 2


# --------------------------------------------------------------------------- distribution function


@pytest.mark.parametrize("law", [*LAPLACE, *GAUSSIAN, *DISCRETE, *DIGITS], ids=repr)
def test_masses_are_those_of_the_definition(law):
    for z in (*range(-12, 13), 40, -77):
        assert same(mass(law, z), direct_mass(law, z))


@pytest.mark.parametrize("law", [*LAPLACE, *GAUSSIAN, *DISCRETE, *DIGITS], ids=repr)
def test_the_distribution_function_is_the_running_sum_of_the_masses(law):
    total = law.cdf(-31)()
    for z in range(-30, 31):
        total += direct_mass(law, z)
        assert same(law.cdf(z)(), total)


@pytest.mark.parametrize("law", [*LAPLACE, *GAUSSIAN, *DISCRETE, *DIGITS], ids=repr)
def test_the_law_is_symmetric(law):
    for z in range(-30, 31):
        assert same(law.cdf(z)() + law.cdf(-z - 1)(), arb(1))


@pytest.mark.parametrize("law", [*LAPLACE, *GAUSSIAN, *DISCRETE], ids=repr)
def test_the_tails_end_at_zero_and_one(law):
    far = int(400 * law.scale) + 20
    assert law.cdf(-far)() < arb(10) ** -150
    assert 1 - law.cdf(far)() < arb(10) ** -150
    assert law.cdf(-far)() > 0  # and reach as far as one looks


@pytest.mark.parametrize("law", DIGITS, ids=repr)
def test_digit_differences_are_bounded(law):
    assert law.cdf(law.base - 1)() == 1
    assert law.cdf(-law.base)() == 0
    assert same(sum((direct_mass(law, z) for z in range(-law.base, law.base + 1)), arb(0)), arb(1))


# ------------------------------------------------------------------------------------------ digits


@pytest.mark.parametrize("rate", [Fraction(1, 7), Fraction(1, 40), Fraction(1, 90)])
@pytest.mark.parametrize(("base", "largest"), [(2, 1), (3, 2), (10, 1), (4, 50)])
def test_digits_add_up_to_exactly_the_law(rate, base, largest, monkeypatch):
    """The weighted sum of the components, convolved mass by mass: the sums are finite."""
    monkeypatch.setattr(DiscreteLaplace, "BASE", base)
    monkeypatch.setattr(DiscreteLaplace, "LARGEST_TABLE", largest)
    law = DiscreteLaplace(rate)
    (top, rest), *digits = law.components()
    assert isinstance(rest, DiscreteLaplace)
    assert rest.scale <= largest
    assert [weight for weight, _ in digits] == [base**j for j in range(len(digits))]
    assert top == base ** len(digits)
    assert all(part.base == base for _, part in digits)

    def convolved(z, left):
        """P(Σ of the digits still `left` + top·Z' = z)."""
        if not left:
            return mass(rest, z // top) if z % top == 0 else arb(0)
        (weight, part), *others = left
        values = range(-base + 1, base)
        if weight == 1:
            # The other parts are multiples of the base: only some values can do.
            values = [d for d in values if (z - d) % (base if others else top) == 0]
        return sum((mass(part, d) * convolved(z - weight * d, others) for d in values), arb(0))

    for z in (0, 1, -1, 2, 5, base, -base, base**2 + 1):
        assert same(convolved(z, digits), direct_mass(law, z))


def test_the_digits_of_a_release_are_small_tables():
    for scale in (1, 100, 128, 129, 5000, 10**6, 2**40, 10**15):
        law = DiscreteLaplace(Fraction(1, scale))
        (top, rest), *digits = law.components()
        assert rest.scale <= DiscreteLaplace.LARGEST_TABLE
        assert rest.rate == top * law.rate
        assert [part.rate for _, part in digits] == [w * law.rate for w, _ in digits]
        assert len(digits) <= 5


def test_a_twin_with_a_wrong_digit_rate_is_caught(monkeypatch):
    """Were the second digit given the rate of the first, masses would differ."""
    monkeypatch.setattr(DiscreteLaplace, "BASE", 3)
    monkeypatch.setattr(DiscreteLaplace, "LARGEST_TABLE", 10)
    law = DiscreteLaplace(Fraction(1, 20))
    (top, rest), (_, digit) = law.components()
    wrong = DigitDifference(digit.rate * 3, digit.base)
    total = arb(0)
    for d in range(-2, 3):
        if d % 3 == 0:
            total += mass(wrong, d) * mass(rest, -d // top)
    assert not same(total, direct_mass(law, 0))


# --------------------------------------------------------------------------------------- variances


@pytest.mark.parametrize("law", [*LAPLACE, *GAUSSIAN, *DISCRETE], ids=repr)
def test_the_variance_is_the_sum_of_squares(law):
    far = int(80 * law.scale) + 40
    total = 2 * sum((z * z * mass(law, z) for z in range(1, far)), arb(0))
    assert law.variance == pytest.approx(float(total), rel=4e-15)


def test_variances_of_the_rounded_law_are_larger_than_those_of_the_ideal():
    assert round(RoundedGaussian(0.5).variance / 0.25, 2) == 1.30
    assert round(RoundedGaussian(2.0).variance / 4.0, 2) == 1.02
    assert RoundedGaussian(5000.0).variance == 5000.0**2 + 1 / 12


def test_extreme_laws_have_a_variance():
    assert DiscreteLaplace(Fraction(10**6)).variance == 0.0
    assert DiscreteLaplace(Fraction(1, 10**9)).variance == pytest.approx(2e18, rel=1e-12)
    assert DiscreteLaplace(Fraction(700)).variance == pytest.approx(2 * math.exp(-700), rel=1e-12)
    assert RoundedGaussian(1e-3).variance < 1e-300


# ------------------------------------------------------------------------- characteristic functions


def characteristic(law, angle):
    """E cos(θZ) as a ball: a window of masses, and what is left out as an error."""
    far = int(60 * law.scale) + 60
    inside = mass(law, 0)
    inside += 2 * sum((mass(law, z) * (angle * z).cos() for z in range(1, far)), arb(0))
    left = 2 * law.cdf(-far)()
    return inside + left.union(-left)


ANGLES = [Fraction(k, 24) for k in range(25)]  # multiples of π; the function is even and periodic


@pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 3), Fraction(1), Fraction(5)])
def test_the_characteristic_function_of_laplace_noise_is_positive(rate):
    """The digits' variance bound needs it. φ(θ) = (1 − q)²/(1 − 2q cos θ + q²)."""
    law, q = DiscreteLaplace(rate), (-number(rate)).exp()
    for k in ANGLES:
        angle = number(k) * arb.pi()
        value = characteristic(law, angle)
        assert value > 0
        closed = (1 - q) ** 2 / (1 - 2 * q * angle.cos() + q**2)
        assert value.overlaps(closed)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.5, 1.0, 1.7, 3.0])
def test_the_characteristic_function_of_gaussian_noise_is_positive(sigma):
    """It falls like exp(−σ²θ²/2), so windows and precision reach far below that."""
    law = RoundedGaussian(sigma)
    for k in ANGLES:
        assert characteristic(law, number(k) * arb.pi()) > 0


def test_a_law_whose_characteristic_function_is_not_positive_is_caught():
    """Uniform on −1, 0, 1: φ(π) = −1/3. The check above can fail."""

    class Uniform:
        scale = 1.0

        def cdf(self, z):
            return lambda: number(Fraction(min(max(z + 2, 0), 3), 3))

    assert characteristic(Uniform(), arb.pi()) < 0


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1)])
def test_a_rate_must_be_positive(rate):
    with pytest.raises(BudgetError, match="positive"):
        DiscreteLaplace(rate)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_a_sigma_must_be_positive_and_finite(sigma):
    with pytest.raises(BudgetError, match="positive"):
        RoundedGaussian(sigma)


def test_laws_as_data_are_enough_to_compute_them():
    laplace = DiscreteLaplace(Fraction(24, 125)).as_dict()
    assert Fraction(laplace["rate"]) == Fraction(24, 125)
    assert "exp(-rate * |z|)" in laplace["mass"]
    gaussian = RoundedGaussian(1.5).as_dict()
    assert gaussian["sigma"] == 1.5
    assert "Phi((z + 1/2)/sigma)" in gaussian["mass"]
