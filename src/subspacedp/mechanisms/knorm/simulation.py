"""Many draws of k-norm noise at once, in floats: for the law of weighted sums, not for releases.

Each body is drawn by the same steps as by its `draw`, or, on fine grids, as continuous noise.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.error_laws.simulated import draws_for, public_generator
from subspacedp.mechanisms.knorm.counting import exchange_series, median_sums, series_sums

if TYPE_CHECKING:
    from flint import arb

__all__ = ["box_noise", "deviation_noise", "exchange_noise", "swap_noise"]

FloatArray = npt.NDArray[np.float64]
BITS = 256  # of sums whose ratios become floats


@lru_cache(maxsize=4)
def exchange_noise(n: int, rate: Fraction) -> FloatArray | None:
    """Draws of the discrete law of exchanges, one a row; None for too many cells."""
    number = draws_for(n)
    return None if number is None else _exchanges(n, rate, number, public_generator())


@lru_cache(maxsize=4)
def deviation_noise(groups: tuple[int, ...], rate: Fraction) -> FloatArray | None:
    """Draws of the discrete law of deviations, one a row; None for too many cells."""
    number = draws_for(sum(groups))
    if number is None:
        return None
    rng = public_generator()
    return np.concatenate([_group(n, rate, number, rng) for n in groups], axis=1)


def _exchanges(n: int, rate: Fraction, number: int, rng: np.random.Generator) -> FloatArray:
    """The norm first, then how many entries are positive, which ones, and how it is shared."""
    from flint import ctx
    from scipy.special import gammaln

    with ctx.workprec(BITS + 4 * n):
        levels = _chances(series_sums(exchange_series, n - 1, rate, ctx.prec))
    norm = np.searchsorted(levels, rng.random(number), side="right")
    norm = norm + rng.negative_binomial(n - 1, -np.expm1(-float(rate)), number)
    sizes, which = np.unique(norm, return_inverse=True)
    m, a = sizes[:, None].astype(np.float64), np.arange(1, n)[None, :].astype(np.float64)
    inside = (a <= m) & (m > 0)
    log = np.where(inside, -gammaln(a + 1) - gammaln(n - a + 1), -np.inf)
    # C(n, a)·C(m − 1, a − 1)·C(m + n − a − 1, n − a − 1)
    more = -gammaln(a) - gammaln(np.where(inside, m - a + 1, 1.0))
    log = log + more + gammaln(m + n - a) - gammaln(n - a)
    chances = np.exp(log - np.where(inside.any(1, keepdims=True), log.max(1, keepdims=True), 0.0))
    sums = np.cumsum(np.where(inside, chances, 0.0), axis=1)
    u = rng.random(number) * sums[which.reshape(-1), -1]
    positive = 1 + (sums[which.reshape(-1)] <= u[:, None]).sum(axis=1)
    positive = np.minimum(positive, np.minimum(np.maximum(norm, 1), n - 1))
    up = _ranks(number, n, rng) < positive[:, None]
    # A uniform composition is multinomial with uniform shares of a simplex.
    shares = rng.exponential(size=(number, n))
    above, below = np.where(up, shares, 0.0), np.where(up, 0.0, shares)
    gained = rng.multinomial(
        np.maximum(norm - positive, 0), above / above.sum(axis=1, keepdims=True)
    )
    lost = rng.multinomial(norm, below / below.sum(axis=1, keepdims=True))
    return np.where(norm[:, None] > 0, gained + up - lost, 0).astype(np.float64)


def _group(n: int, rate: Fraction, number: int, rng: np.random.Generator) -> FloatArray:
    """Entries with lower median 0: how many are not, how many of these negative, and sizes."""
    from flint import ctx
    from scipy.special import gammaln

    if n == 1:
        return np.zeros((number, 1))
    with ctx.workprec(BITS + 4 * n):
        chances = _chances(median_sums(n, rate, ctx.prec))
    moved = np.searchsorted(chances, rng.random(number), side="right")
    half = (n + 1) // 2
    t, a = np.arange(n + 1.0)[:, None], np.arange(n + 1.0)[None, :]
    allowed = (a >= t - n + half) & (a <= np.minimum(t, half - 1))
    log = -gammaln(a + 1) - gammaln(np.maximum(t - a, 0.0) + 1)
    sums = np.cumsum(np.where(allowed, np.exp(log + gammaln(t + 1) - t * np.log(2)), 0.0), axis=1)
    u = rng.random(number) * sums[moved, -1]
    negative = (sums[moved] <= u[:, None]).sum(axis=1)
    ranks = _ranks(number, n, rng)
    size = rng.geometric(-np.expm1(-float(rate)), (number, n)).astype(np.float64)
    size[ranks < negative[:, None]] *= -1
    size[ranks >= moved[:, None]] = 0.0
    return size


@lru_cache(maxsize=4)
def box_noise(widths: tuple[Fraction, ...]) -> FloatArray | None:
    """Draws of the density exp(−‖x‖) of a box, one a row; None for too many entries."""
    k = len(widths)
    number = draws_for(k)
    if number is None:
        return None
    rng = public_generator()
    inside = rng.uniform(-1.0, 1.0, (number, k)) * np.array([float(w) for w in widths])
    return np.asarray(inside * rng.gamma(k + 1, size=(number, 1)))


@lru_cache(maxsize=4)
def swap_noise(n: int, more: int) -> FloatArray | None:
    """Exchanges of n kinds of records, and Laplace noise in `more` directions apart."""
    from scipy.special import gammaln

    number = draws_for(n + more)
    if number is None:
        return None
    rng = public_generator()
    a = np.arange(1.0, n)
    log = -gammaln(a + 1) - gammaln(n - a + 1) - gammaln(a) - gammaln(n - a)
    chances = np.cumsum(np.exp(log - log.max()))
    positive = 1 + np.searchsorted(chances, rng.random(number) * chances[-1], side="right")
    up = _ranks(number, n, rng) < positive[:, None]
    shares = rng.exponential(size=(number, n))
    above, below = np.where(up, shares, 0.0), np.where(up, 0.0, shares)
    moved = above / above.sum(axis=1, keepdims=True) - below / below.sum(axis=1, keepdims=True)
    moved *= rng.gamma(n - 1, size=(number, 1))
    return np.hstack([moved, rng.laplace(size=(number, more))])


def _chances(sums: tuple[arb, ...]) -> FloatArray:
    """Cumulative sums over the last of them."""
    return np.array([float(s / sums[-1]) for s in sums])


def _ranks(number: int, n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Random permutations, one a row."""
    return np.argsort(np.argsort(rng.random((number, n)), axis=1), axis=1)
