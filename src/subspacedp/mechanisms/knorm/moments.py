"""Normalisers and covariances: exact for a closed form, summed up on coarse grids, or bounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.mechanisms.knorm.bodies import Body, Box, CrossPolytope, Deviations, Exchanges
from subspacedp.mechanisms.knorm.counting import median_sums, series_sums, signs_within
from subspacedp.mechanisms.knorm.lazy import START_BITS
from subspacedp.noise.laws import DiscreteLaplace

if TYPE_CHECKING:
    from flint import arb

__all__ = ["bounded", "covariance", "deviated", "exchanged", "normaliser", "summed"]

FloatArray = npt.NDArray[np.float64]

MOST_SUMMED = 2e6  # integer vectors


@singledispatch
def normaliser(body: Body, rate: Fraction) -> Callable[[], arb] | None:
    """Σ_z exp(−rate·‖z‖) as a function that computes a ball; None without a closed form."""
    return None


@normaliser.register(CrossPolytope)
def _sum_cross(body: CrossPolytope, rate: Fraction) -> Callable[[], arb]:
    def value() -> arb:
        out = ball(1)
        for w in body.widths:
            out *= 1 / (ball(rate / w) / 2).tanh()
        return out

    return value


@normaliser.register(Box)
def _sum_box(body: Box, rate: Fraction) -> Callable[[], arb] | None:
    k, each = body.entries, rate / body.widths[0]

    def value() -> arb:
        from flint import ctx

        return series_sums(Box, k, each, ctx.prec)[-1] / (1 - (-ball(each)).exp()) ** k

    return value if body.cube else None


@normaliser.register(Exchanges)
def _sum_exchanges(body: Exchanges, rate: Fraction) -> Callable[[], arb]:
    k = body.dimension

    def value() -> arb:
        from flint import ctx

        return series_sums(Exchanges, k, rate, ctx.prec)[-1] / (1 - (-ball(rate)).exp()) ** k

    return value


@normaliser.register(Deviations)
def _sum_deviations(body: Deviations, rate: Fraction) -> Callable[[], arb]:
    def value() -> arb:
        from flint import ctx

        out = ball(1)
        for n in body.groups:
            out *= median_sums(n, rate, ctx.prec)[-1]
        return out

    return value


@singledispatch
def covariance(body: Body, rate: Fraction) -> FloatArray | None:
    """E[z zᵀ]; None without a closed form."""
    return None


@covariance.register(CrossPolytope)
def _covariance_cross(body: CrossPolytope, rate: Fraction) -> FloatArray:
    return np.diag([DiscreteLaplace(rate / w).variance for w in body.widths])


@covariance.register(Box)
def _covariance_box(body: Box, rate: Fraction) -> FloatArray | None:
    """A cube: E[s(s + 1)]/3, s = j + a sum of k + 1 geometric variables."""
    if not body.cube:
        return None
    from flint import ctx

    k, each = body.entries, rate / body.widths[0]
    with ctx.workprec(START_BITS + 8 * k):
        q = (-ball(each)).exp()
        sums = series_sums(Box, k, each, ctx.prec)
        steps = [b - a for a, b in zip((ball(0), *sums[:-1]), sums, strict=True)]
        mean = sum((j * p for j, p in enumerate(steps)), ball(0)) / sums[-1]
        square = sum((j * j * p for j, p in enumerate(steps)), ball(0)) / sums[-1]
        more = (k + 1) * q / (1 - q)
        spread = square - mean**2 + more / (1 - q)
        value = float((spread + (mean + more) ** 2 + mean + more) / 3)
    return value * np.eye(k)


@covariance.register(Exchanges)
def _covariance_exchanges(body: Exchanges, rate: Fraction) -> FloatArray:
    """All entries have one variance, and they add up to zero."""
    n = body.cells
    return exchanged(n, rate) * n / (n - 1) * (np.eye(n) - 1.0 / n)


def exchanged(n: int, rate: Fraction) -> float:
    """E[z_i²] = (n − 1)/(n + 1)·(ρ P_n(ρ)/P_{n−1}(ρ) − 1), ρ = coth(rate/2), P_n Legendre's."""
    from flint import ctx

    with ctx.workprec(START_BITS + 2 * n):
        rho = 1 / (ball(rate) / 2).tanh()
        ratio = rho  # P_1/P_0
        for j in range(1, n):  # (j + 1)P_{j+1} = (2j + 1)ρP_j − jP_{j−1}
            ratio = ((2 * j + 1) * rho - j / ratio) / (j + 1)
        return float((n - 1) * (rho * ratio - 1) / (n + 1))


@covariance.register(Deviations)
def _covariance_deviations(body: Deviations, rate: Fraction) -> FloatArray:
    """Of the part without the groups' means; groups are independent."""
    out = np.zeros((body.entries, body.entries))
    at = 0
    for n in body.groups:
        block = slice(at, at + n)
        out[block, block] = deviated(n, rate) * (np.eye(n) - 1.0 / n)
        at += n
    return out


@lru_cache(maxsize=256)
def deviated(n: int, rate: Fraction) -> float:
    """E|z − mean|²/(n − 1) in one group: |z − mean|² = Σ z² − (Σ z)²/n, sizes independent.

    Given T entries other than 0, A of them negative, with sizes of mean μ and variance v,
    E Σ z² = T(v + μ²) and E(Σ z)² = T·v + E(T − 2A)²·μ².
    """
    from flint import ctx

    if n == 1:
        return 0.0
    h = (n + 1) // 2
    with ctx.workprec(START_BITS + 4 * n):
        q = (-ball(rate)).exp()
        mean, spread = 1 / (1 - q), q / (1 - q) ** 2
        sums = median_sums(n, rate, ctx.prec)
        # E(T − 2A)² by C(T, A)·A(T − A) = T(T − 1)·C(T − 2, A − 1).
        all_signs, inner = signs_within(n, h - 1, n - h), [0, 0, *signs_within(n, h - 2, n - h - 1)]
        total, before = ball(0), ball(0)
        for t, level in enumerate(sums):
            chance, before = (level - before) / sums[-1], level
            tilt = t * t - ball(Fraction(4 * t * (t - 1) * inner[t], all_signs[t]))
            total += chance * (t * (spread + mean**2) - (t * spread + tilt * mean**2) / n)
        return float(total / (n - 1))


def summed(body: Body, rate: Fraction) -> FloatArray | None:
    """Σ z zᵀ P(z) in floats, where few z matter: beyond the ends there is less than 1e-12."""
    ends = np.floor(body.reach * ((body.dimension + 40) / float(rate)))
    if float(np.log(2 * ends + 1).sum()) > math.log(MOST_SUMMED):
        return None
    axes = np.meshgrid(*(np.arange(-e, e + 1) for e in ends), indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    weights = np.exp(-float(rate) * body.lengths(points))
    return np.asarray((points.T * weights) @ points / weights.sum() * (1 + 1e-9))


def bounded(body: Body, rate: Fraction) -> FloatArray:
    """An upper bound, close on fine grids.

    With x the continuous noise and c the norm of half a cell, the law is that of round(x) times a
    density of at most exp(2·rate·c), and rounding moves x by u with |u|² ≤ k/4.
    """
    k = body.dimension
    smooth = (k + 1) * (k + 2) / float(rate) ** 2 * body.second_moment
    share = math.sqrt(k * k / 4 / float(np.trace(smooth)))
    rounded = (1 + share) * smooth + (1 + 1 / share) * k / 4 * np.eye(k)
    return np.asarray(rounded * math.exp(2 * float(rate * body.half_cell)))
