"""The best shares of a budget: a convex problem, solved with a proven gap.

Errors F(b) are convex and homogeneous of degree −1 in the shares b of the squared budget (each is
tr(W·(Σ b_j M_j)⁻¹) for positive semidefinite W and M_j), and so is their largest or a weighted sum.
What neighbouring changes may spend is a set of rows, C b ≤ 1. With g = −∂F/∂b, so that g·b = F, and
any weights λ ≥ 0 of the rows that sum to one, c = λC:

    for every b' with C b' ≤ 1:   F(b') ≥ F(b)² / max_j (g_j/c_j).

Proof: convexity gives F(αb') ≥ 2F(b) − α g·b' ≥ 2F(b) − α max_j(g_j/c_j) for every α > 0, and
F(αb') = F(b')/α; α = F(b)/max_j(g_j/c_j) gives the bound. It holds whatever found b and λ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.marginals.descent import least_point
from subspacedp.mechanisms.marginals.simplex import covering_weights

FloatArray = npt.NDArray[np.float64]

GAP = 1e-3
SHARPNESS = (16.0, 256.0, 4096.0)  # of the smooth maximum over rows
SHARPER = 4.0  # by what it grows in every round: many rows that spend the same need it
MAX_ROUNDS = 12  # of looking for rows that stick out
EVEN = 1e-7  # of the weights that prove a bound go to all rows alike: no share is left without
REVIVED = -7.0  # the logarithm of a share that starts again
FLOOR = 1e-9  # of the budget: a share below it counts as none
WIDE = math.log(FLOOR) - 4.0, 30.0
NARROW = -14.0, 4.0  # where far apart shares would leave float64


@dataclass(frozen=True, eq=False)
class BestShares:
    """Shares that spend at most one, their error, and a proof of how good they are.

    `bound` is at most the error of any shares that spend at most one.
    """

    shares: FloatArray
    error: float
    bound: float

    @property
    def gap(self) -> float:
        """The error over the least possible is at most one more than this."""
        return self.error / self.bound - 1.0


def best_shares(
    error: Callable[[FloatArray], tuple[float, FloatArray]],
    rows: FloatArray,
    start: FloatArray,
    sticking_out: Callable[[FloatArray], tuple[FloatArray, float]] | None = None,
    *,
    possible: FloatArray | None = None,
    gap: float = GAP,
    between: tuple[float, float] = WIDE,
) -> BestShares:
    """Minimise a convex error of degree −1 over shares that no row spends more than one of.

    Parameters
    ----------
    error
        F and g = −∂F/∂b.
    rows
        What a neighbouring change spends of each share; all of them, or some to begin with.
    start
        Positive shares.
    sticking_out
        For given shares, rows that spend the most, and the most that any row spends, on the safe
        side; by default `rows` are all there are.
    possible
        Rows that some changes really spend on average, where `rows` are only safe bounds; the
        error of the best shares is then bounded by these.
    between
        The logarithms of shares that are looked at.
    """
    known = np.unique(rows, axis=0)
    x = np.log(start / float((known @ start).max()))
    best: BestShares | None = None
    bound = 0.0
    for turn in range(MAX_ROUNDS):
        for sharpness in _sharpness(known, turn):
            x = _minimise(error, known, x, sharpness, between)
            more, most = (known[:0], float((known @ np.exp(x)).max()))
            if sticking_out is not None:
                more, most = sticking_out(np.exp(x))
            f, g = error(np.exp(x) / most)
            price, cost = least_price(known if possible is None else possible, g)
            bound = max(bound, f * f / price)
            if best is None or f < best.error:
                best = BestShares(np.exp(x) / most, f, bound)
            if best.error <= bound * (1 + gap / 2):
                break
        if best is not None and best.error <= bound * (1 + gap):
            break
        # A share that fell to nearly nothing while it was worth more than it costs starts again.
        worth = np.where(g > 0, g / np.maximum(cost, 1e-300), 0.0)
        x = np.where((worth > f * (1 + gap / 4)) & (x < REVIVED), REVIVED, x)
        known = np.unique(np.concatenate([known, more]), axis=0)
    if best is None or not np.isfinite(best.error):
        raise ReleaseError("No split of the budget was found for this workload.")
    return BestShares(best.shares, best.error, bound)


def proven_bound(
    error: Callable[[FloatArray], tuple[float, FloatArray]], rows: FloatArray, shares: FloatArray
) -> float:
    """The bound of Theorem 4 at given shares: no shares that the rows allow have a smaller error.

    It is computed from the shares alone, whoever chose them; 0 where it proves nothing.
    """
    value, slopes = error(shares)
    price, _ = least_price(np.unique(rows, axis=0), slopes)
    return value * value / price if 0 < price < math.inf else 0.0


def _sharpness(rows: FloatArray, turn: int) -> tuple[float, ...]:
    """One row needs no smooth maximum; later rounds begin near the end, and go beyond it."""
    if len(rows) == 1:
        return (1.0,)
    return SHARPNESS if turn == 0 else (SHARPNESS[1], SHARPNESS[2] * SHARPER**turn)


def _minimise(
    error: Callable[[FloatArray], tuple[float, FloatArray]],
    rows: FloatArray,
    x: FloatArray,
    sharpness: float,
    between: tuple[float, float],
) -> FloatArray:
    """Log F + log of the smooth maximum of the rows, both in b = exp(x): scale-free."""

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        b = np.exp(x)
        f, g = error(b)
        spent, weights = _smooth(rows, b, sharpness)
        return np.log(f) + np.log(spent), b * (weights @ rows / spent - g / f)

    found = least_point(value, x, between)
    return found - math.log(float((rows @ np.exp(found)).max()))


def _smooth(rows: FloatArray, b: FloatArray, sharpness: float) -> tuple[float, FloatArray]:
    """The norm (Σ spent^β)^(1/β) of what the rows spend, and its derivative by them."""
    spent = rows @ b
    largest = float(spent.max())
    ratio = (spent / largest) ** sharpness
    whole = float(ratio.sum())
    norm = largest * whole ** (1.0 / sharpness)
    return norm, ratio / np.maximum(spent, 1e-300) / whole * norm


def least_price(rows: FloatArray, g: FloatArray) -> tuple[float, FloatArray]:
    """The least max_j (g_j/c_j) over c = λ·rows, and that c: a linear programme in price·λ."""
    weights = covering_weights(rows, g / float(g.max()))
    if weights is None:
        return math.inf, np.ones(len(g))
    # Made feasible exactly: no share may have more slope than it costs.
    weights += EVEN * float(weights.sum()) / len(rows)
    cost = weights @ rows
    if np.any((g > 0) & (cost <= 0)):
        return math.inf, np.ones(len(g))
    worst = float(np.max(g[g > 0] / cost[g > 0], initial=0.0))
    whole = float(weights.sum())
    return worst * whole, cost / whole
