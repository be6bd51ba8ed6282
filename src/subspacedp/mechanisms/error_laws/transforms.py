"""Characteristic and moment generating functions of the noise laws.

Sums of weighted independent noise are products here, which is what `sums.py` needs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import DiscreteLaplace, KnownLaw, RoundedGaussian

__all__ = ["characteristic", "envelope", "log_moment"]

FloatArray = npt.NDArray[np.float64]

# Below it the rounded Gaussian is a sum over a few whole numbers, above it over a few periods.
FEW_NUMBERS = 0.6


def characteristic(law: KnownLaw, t: FloatArray) -> FloatArray:
    """E exp(itZ), real because the laws are symmetric.

    The discrete Laplace law has 1/(1 + 2 Var sin²(t/2)). Rounding a normal variable samples its
    density smoothed over one step, so the rounded Gaussian has, by Poisson summation,
    Σ_m exp(−σ²s²/2) sin(s/2)/(s/2) with s = t + 2πm.
    """
    if isinstance(law, DiscreteLaplace):
        return np.asarray(1.0 / (1.0 + 2.0 * law.variance * np.sin(t / 2) ** 2))
    if law.sigma < FEW_NUMBERS:
        numbers, mass = _few(law)
        out = np.full(t.shape, float(mass[0]))
        for z, p in zip(numbers[1:], mass[1:], strict=True):
            out += 2 * p * np.cos(z * t)
        return out
    near = t - 2 * np.pi * np.rint(t / (2 * np.pi))
    out = np.zeros(t.shape)
    for m in range(-2, 3):
        if abs(m) == 2 and law.sigma > 1:
            continue
        s = near + 2 * np.pi * m
        out += np.exp(-0.5 * (law.sigma * s) ** 2) * np.sinc(s / (2 * np.pi))
    return out


def envelope(law: KnownLaw, t: FloatArray) -> FloatArray:
    """A bound on |E exp(isZ)| for all s from t to π, with 0 ≤ t ≤ π.

    The discrete Laplace one decreases itself. For the Gaussian, |sin(s/2)/(s/2)| ≤ 1 leaves
    Σ_m exp(−σ²(t + 2πm)²/2), a wrapped normal density up to a factor: it decreases too.
    """
    if isinstance(law, DiscreteLaplace):
        return characteristic(law, t)
    total = sum(np.exp(-0.5 * (law.sigma * (t + 2 * np.pi * m)) ** 2) for m in range(-3, 4))
    return np.asarray(np.minimum(1.0, total))


def log_moment(law: KnownLaw, s: FloatArray) -> FloatArray:
    """Log E exp(sZ) for s ≥ 0; infinite where the discrete Laplace law has no moment."""
    s = np.asarray(s, np.float64)
    if isinstance(law, DiscreteLaplace):
        with np.errstate(over="ignore"):
            inside = 2.0 * law.variance * np.sinh(s / 2) ** 2
        out = np.full(s.shape, np.inf)
        return np.asarray(-np.log1p(-inside, where=inside < 1, out=-out))
    if law.sigma < FEW_NUMBERS:
        from scipy.special import log_ndtr, logsumexp

        # The mass beyond 40 standard deviations and the tilt is nothing beside the rest.
        last = int(np.ceil(law.sigma**2 * float(s.max(initial=0.0)) + 40 * law.sigma)) + 3
        z = np.arange(-last, last + 1, dtype=np.float64)
        upper, lower = (z + 0.5) / law.sigma, (z - 0.5) / law.sigma
        flip = z > 0
        high = log_ndtr(np.where(flip, -lower, upper))
        low = log_ndtr(np.where(flip, -upper, lower))
        mass = high + np.log1p(-np.exp(low - high))
        return np.asarray(logsumexp(mass + np.multiply.outer(s, z), axis=-1))
    # E exp(sZ) = Σ_m (−1)^m exp(σ²(s + 2πim)²/2) sinh(s/2)/((s + 2πim)/2)
    series = np.zeros(s.shape)
    for m in (1, 2, 3):
        turn = np.exp(2j * np.pi * m * law.sigma**2 * s) * s / (s + 2j * np.pi * m)
        series += 2 * (-1) ** m * np.exp(-2 * (np.pi * m * law.sigma) ** 2) * turn.real
    half = np.maximum(s / 2, 1e-12)
    log_sinhc = half + np.log(-np.expm1(-2 * half) / (2 * half))
    return np.asarray(0.5 * (law.sigma * s) ** 2 + log_sinhc + np.log1p(series))


def _few(law: RoundedGaussian) -> tuple[FloatArray, FloatArray]:
    """The whole numbers from 0 on that carry the law, and their mass."""
    from scipy.special import log_ndtr

    z = np.arange(int(12 * law.sigma) + 2, dtype=np.float64)
    mass = np.exp(log_ndtr((0.5 - z) / law.sigma)) - np.exp(log_ndtr((-0.5 - z) / law.sigma))
    return z, mass
