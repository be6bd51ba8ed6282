"""The law of a weighted sum Σ aᵢzᵢ of k-norm noise z: exact, simulated, or a proven bound.

Proofs: docs/proofs/knorm.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.error_laws.simulated import Simulated
from subspacedp.mechanisms.error_laws.sums import Least, OnlyVariance, Part, SumLaw, part
from subspacedp.mechanisms.knorm.bodies import (
    Body,
    CrossPolytope,
    Deviations,
    Ellipsoid,
    Exchanges,
    Polytope,
    SkewCross,
)
from subspacedp.mechanisms.knorm.bounds import Radial, Stretched, Unimodal
from subspacedp.mechanisms.knorm.exponentials import exponential_sum
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.mechanisms.knorm.simulation import continuous_noise, whole_noise
from subspacedp.mechanisms.knorm.totals import conditioned
from subspacedp.noise.laws import DiscreteLaplace

__all__ = ["independent_parts", "weighted_sum"]

FloatArray = npt.NDArray[np.float64]

NEAR = 1 + 1e-9  # floats that state a variance


def weighted_sum(law: KNormLaw, weights: FloatArray, variance: float) -> SumLaw:
    """Σ aᵢzᵢ for dependent entries, its variance known.

    The noise is at most e^(2·rate·c) times as likely as continuous noise that is rounded, c the
    norm of half a cell; and noise on groups of counts is independent noise under a condition, or
    is simulated. The least of these bounds and Chebyshev's is taken.
    """
    body = law.body
    bounds: list[SumLaw] = [_rounded(law, weights), OnlyVariance(variance)]
    if isinstance(body, Exchanges | Deviations):
        bounds = [conditioned(body, law.rate, weights), *bounds]
        drawn = None if bounds[0].method == "exact" else whole_noise(body, law.rate)
        if drawn is not None:
            bounds = [Simulated.of(drawn @ weights), *bounds]
    return Least(tuple(bounds))


def independent_parts(body: CrossPolytope, rate: Fraction, weights: FloatArray) -> tuple[Part, ...]:
    """Σ aᵢzᵢ for the independent entries of a cross-polytope's noise, one part a width."""
    kinds = {w: j for j, w in enumerate(sorted(set(body.widths)))}
    member = np.array([kinds[w] for w in body.widths])
    return tuple(part(DiscreteLaplace(rate / w), weights[member == j]) for w, j in kinds.items())


def _rounded(law: KNormLaw, weights: FloatArray) -> Stretched:
    """By continuous noise. Where cells are in groups, one of each is fixed by the others."""
    body = law.body
    half, middle = body.half_cell, 0.0
    if isinstance(body, Exchanges | Deviations):
        half = Fraction(body.dimension, 2)
    if isinstance(body, Exchanges):
        middle = float(np.median(weights))  # noise adds up to zero: a constant weighs nothing
    factor = math.exp(min(2 * float(law.rate * half), 700.0))
    shift = float(np.abs(weights - middle).sum()) / 2
    return Stretched(_smooth(body, float(law.rate), weights), factor, shift)


@singledispatch
def _smooth(body: Body, rate: float, weights: FloatArray) -> SumLaw:
    """Σ aᵢxᵢ for x with density ∝ exp(−rate·‖x‖), which is log-concave, as are its marginals."""
    bound = _unimodal(body, rate, float(weights @ body.second_moment @ weights))
    drawn = continuous_noise(body)
    if drawn is None:
        return bound
    return Least((Simulated.of(drawn @ weights * (NEAR / rate)), bound))


def _unimodal(body: Body, rate: float, squared: float) -> Unimodal:
    k = body.dimension
    return Unimodal((k + 1) * (k + 2) / rate**2 * squared * NEAR)


@_smooth.register(Exchanges)
def _smooth_exchanges(body: Exchanges, rate: float, weights: FloatArray) -> SumLaw:
    """E[U Uᵀ] is a multiple of I − 11ᵀ/n."""
    n = body.cells
    squared = float(np.square(weights - weights.mean()).sum())
    return _unimodal(body, rate, 4 * (2 * n - 1) / (n * (n + 1) ** 2) * squared)


@_smooth.register(Deviations)
def _smooth_deviations(body: Deviations, rate: float, weights: FloatArray) -> SumLaw:
    """In each group a multiple of I − 11ᵀ/n."""
    k = body.dimension
    parts = np.split(weights, np.cumsum(body.groups)[:-1])
    pairs = zip(parts, body.spreads, strict=True)
    squared = math.fsum(s * float(np.square(w - w.mean()).sum()) for w, s in pairs)
    return _unimodal(body, rate, squared / ((k + 1) * (k + 2)))


@_smooth.register(Ellipsoid)
def _smooth_ellipsoid(body: Ellipsoid, rate: float, weights: FloatArray) -> SumLaw:
    reach = float(np.linalg.norm(weights @ body.shape))
    return Radial(body.dimension, reach * NEAR / rate)


@_smooth.register(SkewCross)
def _smooth_skew(body: SkewCross, rate: float, weights: FloatArray) -> SumLaw:
    slopes = weights @ body.columns / rate * NEAR
    return exponential_sum(np.ones(1), np.zeros((1, 0)), slopes)


@_smooth.register(Polytope)
def _smooth_polytope(body: Polytope, rate: float, weights: FloatArray) -> SumLaw:
    cones, scale = body.cones, NEAR / rate
    return exponential_sum(
        cones.volumes / cones.volume, cones.rest @ weights * scale, cones.apart @ weights * scale
    )
