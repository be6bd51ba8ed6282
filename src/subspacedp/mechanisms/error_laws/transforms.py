"""Characteristic and moment generating functions of the noise laws.

Sums of weighted independent noise are products here, which is what `sums.py` needs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import DiscreteLaplace, KnownLaw, RoundedGaussian

__all__ = ["Transform", "transform_of"]

FloatArray = npt.NDArray[np.float64]

# Below it the rounded Gaussian is a sum over a few whole numbers, above it over a few periods.
FEW_NUMBERS = 0.6


class Transform(ABC):
    """What sums need to know of the law of one noise variable Z, which is symmetric."""

    @abstractmethod
    def characteristic(self, t: FloatArray) -> FloatArray:
        """E exp(itZ), real because Z is symmetric."""

    def multiply(self, out: FloatArray, t: FloatArray, counts: FloatArray, *, once: bool) -> None:
        """Multiply `out` with ∏ E exp(itZ)^count over the rows of t, which may be overwritten.

        `once` says that every count is one.
        """
        out *= np.multiply.reduce(self.characteristic(t) ** counts[:, None], axis=0)

    @abstractmethod
    def envelope(self, t: FloatArray) -> FloatArray:
        """A bound on |E exp(isZ)| for all s from t to π, with 0 ≤ t ≤ π."""

    @abstractmethod
    def log_moment(self, s: FloatArray) -> FloatArray:
        """Log E exp(sZ) for s ≥ 0; infinite where there is no moment."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The variance of Z, or of what is rounded to it where tails are that wide."""

    @property
    def last_moment(self) -> float:
        """The s from which on E exp(sZ) is infinite."""
        return math.inf

    @property
    def normal_deviation(self) -> float | None:
        """The standard deviation of a normal variable that is within 1/2 of Z, if one is."""
        return None

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Independent draws in float64: for quantiles of public noise, never for a release."""


@dataclass(frozen=True)
class LaplaceTransform(Transform):
    """Of the discrete Laplace law: E exp(itZ) = 1/(1 + 2 Var sin²(t/2))."""

    law: DiscreteLaplace

    def characteristic(self, t: FloatArray) -> FloatArray:
        """In closed form."""
        return np.asarray(1.0 / (1.0 + 2.0 * self.law.variance * np.sin(t / 2) ** 2))

    def multiply(self, out: FloatArray, t: FloatArray, counts: FloatArray, *, once: bool) -> None:
        """One division for all rows, or logarithms where some occur often."""
        np.sin(t * 0.5, out=t)
        t *= t
        t *= 2 * self.law.variance
        if once:
            t += 1.0
            out /= np.multiply.reduce(t, axis=0)
        else:
            out *= np.exp(-(counts @ np.log1p(t)))

    def envelope(self, t: FloatArray) -> FloatArray:
        """The function itself, which decreases."""
        return self.characteristic(t)

    def log_moment(self, s: FloatArray) -> FloatArray:
        """In closed form; infinite from the rate on."""
        s = np.asarray(s, np.float64)
        with np.errstate(over="ignore"):
            inside = 2.0 * self.law.variance * np.sinh(s / 2) ** 2
        out = np.full(s.shape, np.inf)
        return np.asarray(-np.log1p(-inside, where=inside < 1, out=-out))

    @property
    def spread(self) -> float:
        """The variance."""
        return self.law.variance

    @property
    def last_moment(self) -> float:
        """The rate."""
        return float(self.law.rate)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """A difference of two geometric variables."""
        chance = -np.expm1(-float(self.law.rate))
        noise = np.asarray(rng.geometric(chance, shape), np.float64)
        noise -= rng.geometric(chance, shape)
        return noise


@dataclass(frozen=True)
class GaussianTransform(Transform):
    """Of the rounded Gaussian law.

    Rounding a normal variable samples its density smoothed over one step, so by Poisson summation
    E exp(itZ) = Σ_m exp(−σ²s²/2) sin(s/2)/(s/2) with s = t + 2πm.
    """

    law: RoundedGaussian

    def characteristic(self, t: FloatArray) -> FloatArray:
        """Over a few whole numbers, or over a few periods."""
        sigma = self.law.sigma
        if sigma < FEW_NUMBERS:
            numbers, mass = _few(self.law)
            out = np.full(t.shape, float(mass[0]))
            for z, p in zip(numbers[1:], mass[1:], strict=True):
                out += 2 * p * np.cos(z * t)
            return out
        near = t - 2 * np.pi * np.rint(t / (2 * np.pi))
        out = np.zeros(t.shape)
        for m in range(-2, 3):
            if abs(m) == 2 and sigma > 1:
                continue
            s = near + 2 * np.pi * m
            out += np.exp(-0.5 * (sigma * s) ** 2) * np.sinc(s / (2 * np.pi))
        return out

    def envelope(self, t: FloatArray) -> FloatArray:
        """|sin(s/2)/(s/2)| ≤ 1 leaves a wrapped normal density up to a factor: it decreases."""
        sigma = self.law.sigma
        total = sum(np.exp(-0.5 * (sigma * (t + 2 * np.pi * m)) ** 2) for m in range(-3, 4))
        return np.asarray(np.minimum(1.0, total))

    def log_moment(self, s: FloatArray) -> FloatArray:
        """Over a few whole numbers, or over a few periods."""
        s, sigma = np.asarray(s, np.float64), self.law.sigma
        if sigma < FEW_NUMBERS:
            from scipy.special import log_ndtr, logsumexp

            # The mass beyond 40 standard deviations and the tilt is nothing beside the rest.
            last = int(np.ceil(sigma**2 * float(s.max(initial=0.0)) + 40 * sigma)) + 3
            z = np.arange(-last, last + 1, dtype=np.float64)
            upper, lower = (z + 0.5) / sigma, (z - 0.5) / sigma
            flip = z > 0
            high = log_ndtr(np.where(flip, -lower, upper))
            low = log_ndtr(np.where(flip, -upper, lower))
            mass = high + np.log1p(-np.exp(low - high))
            return np.asarray(logsumexp(mass + np.multiply.outer(s, z), axis=-1))
        # E exp(sZ) = Σ_m (−1)^m exp(σ²(s + 2πim)²/2) sinh(s/2)/((s + 2πim)/2)
        series = np.zeros(s.shape)
        for m in (1, 2, 3):
            turn = np.exp(2j * np.pi * m * sigma**2 * s) * s / (s + 2j * np.pi * m)
            series += 2 * (-1) ** m * np.exp(-2 * (np.pi * m * sigma) ** 2) * turn.real
        half = np.maximum(s / 2, 1e-12)
        log_sinhc = half + np.log(-np.expm1(-2 * half) / (2 * half))
        return np.asarray(0.5 * (sigma * s) ** 2 + log_sinhc + np.log1p(series))

    @property
    def spread(self) -> float:
        """Rounding can leave a normal variable far less variance than its tails have."""
        return max(self.law.variance, self.law.sigma**2)

    @property
    def normal_deviation(self) -> float:
        """That of the variable that is rounded."""
        return self.law.sigma

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Normal variables, rounded."""
        return np.asarray(np.rint(rng.normal(0.0, self.law.sigma, shape)))


def transform_of(law: KnownLaw) -> Transform:
    """The transform of a law of noise."""
    return LaplaceTransform(law) if isinstance(law, DiscreteLaplace) else GaussianTransform(law)


def _few(law: RoundedGaussian) -> tuple[FloatArray, FloatArray]:
    """The whole numbers from 0 on that carry the law, and their mass."""
    from scipy.special import log_ndtr

    z = np.arange(int(12 * law.sigma) + 2, dtype=np.float64)
    mass = np.exp(log_ndtr((0.5 - z) / law.sigma)) - np.exp(log_ndtr((-0.5 - z) / law.sigma))
    return z, mass
