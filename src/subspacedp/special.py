"""Special functions of a few numbers: normal and binomial tails, lengths for Fourier transforms.

SciPy's, whose import takes longer than a plan, are for many numbers.
"""

from __future__ import annotations

import math

import numpy as np

from subspacedp.arrays import FloatArray

FEW = 4096  # numbers that are worked out one by one
SMALL_BINOMIAL = 64  # trials whose tails are added up term by term
FAR = -30.0  # where the normal tail is its asymptotic series to a part in 10¹³


def normal_quantile(probability: float) -> float:
    """The x with Φ(x) = probability, for probabilities of at most one half.

    Halley's steps on log Φ, from the left of the root, where they increase towards it.

    >>> round(normal_quantile(0.025), 6)
    -1.959964
    """
    x = -math.sqrt(2 * math.log(1 / (2 * probability)))  # as Φ(x) ≤ exp(−x²/2)/2
    for _ in range(60):
        log_below = _log_below(x)
        slope = math.exp(-x * x / 2 - log_below) / math.sqrt(2 * math.pi)
        short = (math.log(probability) - log_below) / slope
        step = short / (1 + short * (x + slope) / 2)
        x += step
        if abs(step) <= 4e-16 * abs(x) + 1e-300:
            break
    return x


def log_normal_below(x: FloatArray) -> FloatArray:
    """Log Φ, number by number."""
    if x.size > FEW:
        from scipy.special import log_ndtr

        return np.asarray(log_ndtr(x), np.float64)
    return np.array([_log_below(float(v)) for v in x.flat], np.float64).reshape(x.shape)


def _log_below(x: float) -> float:
    if x > 0:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > FAR:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    y = 1 / (x * x)
    series = -y * (1 - y * (3 - y * (15 - y * (105 - y * 945))))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(series)


def log_sum_exp(terms: FloatArray) -> FloatArray:
    """Log Σ exp over the last axis; the largest term apart, so that sums of about one are right."""
    at = terms.argmax(axis=-1)[..., None]
    largest = np.take_along_axis(terms, at, axis=-1)
    parts = np.exp(terms - largest)
    np.put_along_axis(parts, at, 0.0, axis=-1)
    return np.asarray(np.log1p(parts.sum(axis=-1)) + largest[..., 0], np.float64)


def binomial_at_most(number: int, trials: int, chance: float) -> float:
    """P(Bin(trials, chance) ≤ number), for numbers below the mean.

    The last term, and those before it by their ratios.
    """
    if not 0 <= number < trials:
        return 0.0 if number < 0 else 1.0
    last = (
        math.lgamma(trials + 1) - math.lgamma(number + 1) - math.lgamma(trials - number + 1)
        + number * math.log(chance) + (trials - number) * math.log1p(-chance)
    )  # fmt: skip
    j = np.arange(number, 0, -1.0)
    ratios = np.cumprod(j * (1 - chance) / ((trials - j + 1) * chance))
    return math.exp(last) * (1 + float(ratios.sum()))


def binomial_at_least(number: FloatArray, trials: int, chance: FloatArray) -> FloatArray:
    """P(Bin(trials, chance) ≥ number), number by number."""
    if trials > SMALL_BINOMIAL:
        from scipy.special import bdtrc

        return np.asarray(bdtrc(number - 1, trials, chance), np.float64)
    number, chance = np.broadcast_arrays(number, chance)
    out = np.zeros(chance.shape)
    for j in range(trials + 1):
        term = math.comb(trials, j) * chance**j * (1 - chance) ** (trials - j)
        out += np.where(number <= j, term, 0.0)
    return out


def smooth_length(least: int) -> int:
    """The least number from there on without a prime above 5: fast Fourier transforms like those.

    >>> smooth_length(1021)
    1024
    """
    best = 1 << max(least - 1, 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            twos = three << max(-(-least // three) - 1, 0).bit_length()
            best = min(best, twos)
            three *= 3
        five *= 5
    return best
