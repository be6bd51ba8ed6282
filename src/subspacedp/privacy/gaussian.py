"""The Gaussian mechanism's exact trade-off between ε and δ, and its calibration.

For noise N(0, σ²) on a query of ℓ₂ sensitivity Δ, with μ = Δ/σ,

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)                      (Balle and Wang 2018, Theorem 8)

is not a bound but the smallest δ. It grows with μ, so bisection finds the largest μ that a budget
allows; every comparison is decided by ball arithmetic and the answer is the limit that is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from subspacedp.balls import ball, certain_compare, round_up
from subspacedp.errors import BudgetError, NotPrivateError
from subspacedp.privacy.numbers import exact_decimal, positive

if TYPE_CHECKING:
    from flint import arb

LARGEST_EPSILON = 10**12  # its noise is 7e-7 of the sensitivity: nothing is left to protect


def delta_ball(epsilon: Fraction, square: Fraction) -> Callable[[], arb]:
    """δ_μ(ε) as a ball, from μ² itself: its root is not rounded first."""

    def normal_cdf(x: arb) -> arb:
        return (-x / ball(2).sqrt()).erfc() / 2

    def delta() -> arb:
        e, m = ball(epsilon), ball(square).sqrt()
        return normal_cdf(m / 2 - e / m) - e.exp() * normal_cdf(-m / 2 - e / m)

    return delta


def _numbers(epsilon: object, delta: object) -> tuple[Fraction, Fraction]:
    e, d = positive("epsilon", epsilon), positive("delta", delta)
    if d >= 1:
        raise BudgetError(f"`delta` must be below 1; got {d!r}.")
    return exact_decimal(e), exact_decimal(d)


def about_mu(epsilon: float, delta: float) -> float:
    """About the largest μ, by bisection in floats; any positive number is a safe answer."""
    root = math.sqrt(2)
    low, high = 1e-9, 1e9
    for _ in range(100):
        mu = math.sqrt(low * high)
        a, b = mu / 2 - epsilon / mu, mu / 2 + epsilon / mu
        tail = math.erfc(b / root)
        second = math.exp(min(epsilon + math.log(tail), 700.0)) if tail > 0 else 0.0
        low, high = (mu, high) if (math.erfc(-a / root) - second) / 2 <= delta else (low, mu)
    return low


@lru_cache(maxsize=256)
def largest_mu(epsilon: Fraction, delta: Fraction) -> float:
    """The largest float μ whose δ(ε) is certainly at most `delta`.

    Guarantees
    ----------
    1. δ(ε) at the returned μ is at most `delta`: decided by ball arithmetic.
    2. Within a relative 1e-15 of the largest such μ.
    """
    if epsilon > LARGEST_EPSILON:
        raise BudgetError("`epsilon` must be at most 1e12 to calibrate Gaussian noise.")

    def private(mu: float) -> bool:
        return certain_compare(delta_ball(epsilon, Fraction(mu) ** 2), delta) <= 0

    guess = about_mu(float(epsilon), float(delta))
    low, high = guess * (1 - 1e-9), guess * (1 + 1e-9)
    if not (private(low) and not private(high)):  # the guess is only where to look first
        low = 1.0
        while not private(low):
            low /= 2
            if low < 1e-150:
                raise BudgetError("This (epsilon, delta) is too small to calibrate.")
        high = 2 * low
        while private(high):
            low, high = high, 2 * high
    while True:
        middle = low + (high - low) / 2
        if middle in (low, high) or high - low <= 2e-16 * high:
            return low
        low, high = (middle, high) if private(middle) else (low, middle)


def calibrate_gaussian(epsilon: float, delta: float) -> float:
    """The noise standard deviation per unit of ℓ₂ sensitivity for (ε, δ)-privacy.

    Guarantees
    ----------
    1. Gaussian noise of this standard deviation is (ε, δ)-private for ℓ₂ sensitivity 1; the
       comparison is exact, the result rounded up.

    Examples
    --------
    >>> round(calibrate_gaussian(1.0, 1e-6), 4)
    4.2247
    """
    mu = largest_mu(*_numbers(epsilon, delta))
    return round_up(lambda: 1 / ball(mu))


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """The exact δ at ε of Gaussian noise `sigma` per unit of ℓ₂ sensitivity, rounded up.

    >>> round(gaussian_delta(1.0, 1.0), 7)
    0.1269367
    """
    scale, exact = positive("sigma", sigma), exact_decimal(positive("epsilon", epsilon))
    return min(round_up(delta_ball(exact, 1 / Fraction(scale) ** 2)), 1.0)


def paper_constant(epsilon: float, delta: float) -> float:
    """The constant (1 + √(1 + ln(1/δ)))/ε of the paper's Gaussian lemma; for comparison only.

    It is not private for every (ε, δ), and wasteful where it is. Where it is not private this
    raises NotPrivateError with the δ that it really gives.

    >>> paper_constant(1.0, 1e-6) / calibrate_gaussian(1.0, 1e-6) > 1.14
    True
    """
    e, d = _numbers(epsilon, delta)

    def constant() -> arb:
        return (1 + (1 - ball(d).log()).sqrt()) / ball(e)

    sigma = round_up(constant)
    if certain_compare(delta_ball(e, 1 / Fraction(sigma) ** 2), d) > 0:
        true_delta = gaussian_delta(sigma, epsilon)
        raise NotPrivateError(
            f"The paper's constant is not private at ε = {epsilon:g}, δ = {delta:g}: the true δ "
            f"is {true_delta:.3g}. Use `calibrate_gaussian`.",
            true_delta=true_delta,
            constant=sigma,
        )
    return sigma
