"""The privacy loss of randomised responses beside one Gaussian pair, from above."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = ["Losses", "concentrated_delta", "gaussian_profile"]

INFLATION = 1 + 1e-9  # float64 computes δ to a relative 1e-10: its terms are positive
TERM = 1e-13  # relative error of erfcx and of the weights of one term, with room
GRID = 1 << 13  # grid points at least, where the losses have no grid of their own
MOST = 1 << 17  # ... and at most
MESH = 0.05  # of the grid's own spread to that of the losses


class Losses:
    """Randomised responses beside one Gaussian pair: δ(ε) of both together, from above.

    Parameters
    ----------
    parts
        ε, δ and number of the responses.
    mu
        Of the Gaussian pair; 0 for none.

    Notes
    -----
    The loss of n responses with ε is (2j − n)ε with the binomial probability of j. It is put on a
    grid by splitting each atom between its two neighbours on the grid such that the mass under
    both laws stays: merging the two again gives the atom back, so the pair with split atoms
    dominates.
    """

    def __init__(self, parts: Iterable[tuple[Fraction, Fraction, int]], mu: float) -> None:
        listed = [part for part in parts if part[1] < 1]
        self.mu = mu
        self.lost = sum((n * d for _, d, n in parts), Fraction(0))
        step = _grid_step([(e, n) for e, _, n in listed])
        masses, start = np.ones(1), 0
        for epsilon, _, number in listed:
            masses, start = _add_responses(masses, start, epsilon, number, step)
        used = np.flatnonzero(masses)
        self.masses = masses[used]
        self.losses = (used + start) * float(step)

    def delta(self, epsilon: float) -> float:
        """Σ δᵢ + E[δ_μ(ε − L)], rounded up."""
        # A loss is right to 1e-15 of its size: taken that much larger, it is on the safe side.
        excess = epsilon - self.losses - 1e-14 * (epsilon + np.abs(self.losses))
        found = float(self.masses @ gaussian_profile(excess, self.mu)) + 1e-300
        return (float(self.lost) + found) * INFLATION


def _grid_step(parts: Sequence[tuple[Fraction, int]]) -> Fraction:
    """A grid for the losses: their own where it has few points, else one fine beside them."""
    if not parts:
        return Fraction(1)
    total = sum((n * e for e, n in parts), Fraction(0))
    bottom = math.lcm(*(e.denominator for e, _ in parts))
    own = Fraction(math.gcd(*(int(e * bottom) for e, _ in parts)), bottom)
    if 2 * total / own <= MOST // 2:
        return own
    spread = math.sqrt(sum(n * float(e) ** 2 for e, n in parts) / len(parts))
    fine = min(float(2 * total) / GRID, MESH * spread)
    return Fraction(max(fine, float(2 * total) / MOST))


def _add_responses(
    masses: npt.NDArray[np.float64], start: int, epsilon: Fraction, number: int, step: Fraction
) -> tuple[npt.NDArray[np.float64], int]:
    """The law of a loss on the grid after adding `number` responses with ε."""
    law, low = _binomial_on_grid(epsilon, number, step)
    out = np.zeros(masses.size + law.size - 1)
    short, long = (masses, law) if masses.size < law.size else (law, masses)
    for shift in np.flatnonzero(short):  # sums of positive numbers, not a Fourier transform
        out[shift : shift + long.size] += short[shift] * long
    return out, start + low


def _binomial_on_grid(
    epsilon: Fraction, number: int, step: Fraction
) -> tuple[npt.NDArray[np.float64], int]:
    from scipy.special import gammaln

    j = np.arange(number + 1)
    e = float(epsilon)
    # log p = −log(1 + e^−ε), log(1 − p) = −ε − log(1 + e^−ε); a relative 1e-16 of each, times n.
    log_choose = gammaln(number + 1.0) - gammaln(j + 1.0) - gammaln(number - j + 1.0)
    log_mass = log_choose - (number - j) * e - number * math.log1p(math.exp(-e))
    slack = 1e-15 * (number + 10) * (1 + e + math.log(number + 1))
    mass = np.exp(np.minimum(log_mass + slack, 0.0))
    ratio = epsilon / step
    places = [(2 * int(i) - number) * ratio for i in j]
    floors = np.array([math.floor(place) for place in places])
    rest = np.array([float(place - math.floor(place)) for place in places])
    h, low = float(step), int(floors[0])
    upper = np.expm1(-rest * h) / math.expm1(-h)  # the share whose mass under both laws is kept
    law = np.zeros(int(floors[-1]) - low + 2)
    np.add.at(law, floors - low, mass * (1 - upper))
    np.add.at(law, floors - low + 1, mass * upper)
    return np.trim_zeros(law, "b"), low


def gaussian_profile(epsilon: npt.NDArray[np.float64], mu: float) -> npt.NDArray[np.float64]:
    """δ_μ at every ε of any sign, from above; μ = 0 stands for no Gaussian."""
    from scipy.special import erfcx, ndtr

    size = np.abs(epsilon)
    tail = np.zeros_like(size)
    if mu > 0:
        # e^ε φ(b) = φ(a), so δ = φ(a)·(m(a) − m(b)) with Mills' ratio m, a = ε/μ − μ/2, b = a + μ.
        a = size / mu - mu / 2
        density = np.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        mills = math.sqrt(math.pi / 2) * erfcx(np.maximum(a, 0) / math.sqrt(2))
        first = np.where(a < 0, ndtr(-a), density * mills)
        second = density * math.sqrt(math.pi / 2) * erfcx((a + mu) / math.sqrt(2))
        tail = np.maximum(first * (1 + TERM) - second, 0) * (1 + 1e-15 * a * a)
    # δ(−ε) = 1 − e^−ε + e^−ε δ(ε)
    return np.where(epsilon < 0, -np.expm1(-size) + np.exp(-size) * tail, tail)


def concentrated_delta(rho: float, epsilon: float) -> float:
    """A δ of ρ-zero-concentrated privacy at ε (Canonne, Kamath and Steinke 2020, Corollary 13).

    Every α > 1 gives one; the best of many is taken.
    """
    if rho == 0:
        return 0.0
    best = max((epsilon + rho) / (2 * rho), 1.01)
    alpha = np.concatenate([1 + (best - 1) * np.linspace(0.2, 2, 400), [1.01, 1.1, 1.5, 2.0]])
    log_delta = (
        (alpha - 1) * (alpha * rho - epsilon) - np.log(alpha - 1) + alpha * np.log1p(-1 / alpha)
    )
    return min(1.0, math.exp(min(0.0, float(log_delta.min()))) * INFLATION + 1e-300)
