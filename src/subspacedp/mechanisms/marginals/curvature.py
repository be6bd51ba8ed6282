"""The best shares of a budget where every look at the error is dear: by models of its curvature.

Where levels cross, one error takes the elimination of a sparse system for every interaction. The
error is a sum over interactions, so its second derivatives are a block H for each of them. They
begin with those of Σ_j g_j·b₀_j²/b_j, which is above the error and touches it at b₀ (operator
Jensen inequality), learn from every slope that is seen (BFGS), and know without one that Hb = 2g,
as the slope has degree −2. Every step is the least of −g·d + dᵀHd/2 under the rows that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.marginals.shares import BestShares, least_price

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MAX_STEPS = 80
FIRST_STEPS = 4  # by slopes alone
OVER = 1.9  # steps by slopes, in multiples of the one that suits shares that do not help each other
LEAP = 100.0  # the most that slopes alone count for
MAX_ROUNDS = 5  # of looking for rows that stick out of a model's least point
NEARLY = 1e-3  # by how much the least point of a model may stick out
SHRINK = 0.9  # of a share: the most that one step takes off
HALVINGS = 10
STEADY = 1e-10  # added to curvature in units of the error
NEWTON_STEPS, PRECISE = 60, 1e-8  # of the least point of a model, in units of the error
FLAT, STEPS_FLAT = 1e-6, 4  # a step lowers the error by less than this part: so many end it


def best_by_curvature(
    error: Callable[[FloatArray], tuple[float, FloatArray]],
    rows: FloatArray,
    sticking_out: Callable[[FloatArray], tuple[FloatArray, float]],
    blocks: Sequence[Int64Array],
    least: FloatArray,
    *,
    possible: FloatArray | None = None,
    gap: float,
    start: FloatArray | None = None,
    curved: FloatArray | None = None,
) -> tuple[BestShares, FloatArray | None]:
    """Minimise a convex error of degree −1 over shares that no row spends more than one of.

    Parameters
    ----------
    error, rows, sticking_out, possible
        As `best_shares` takes them.
    blocks
        Shares that the error couples: together all, each once.
    least
        For every share what part of the largest of its block it has at least.
    gap
        Enough when this is proven.
    start, curved
        Shares and second derivatives to begin with, of a problem that is nearly the same.

    Returns
    -------
    best, curved
        The shares, and the second derivatives there as far as they were learned.
    """
    known = np.unique(rows, axis=0)

    def spent(shares: FloatArray) -> float:
        nonlocal known
        more, most = sticking_out(shares)
        known = np.unique(np.concatenate([known, more]), axis=0)
        return most

    def floor(shares: FloatArray) -> FloatArray:
        """Of every share its part of the largest of its block."""
        out = np.empty_like(shares)
        for block in blocks:
            out[block] = least[block] * shares[block].max()
        return out

    b = np.ones(rows.shape[1]) if start is None else start
    b = b / spent(b)
    f, g = error(b)
    bound, flat = 0.0, 0
    for turn in range(MAX_STEPS):
        price, cost = least_price(known if possible is None else possible, g)
        bound = max(bound, f * f / price)
        if f <= bound * (1 + gap) or flat >= STEPS_FLAT:
            break
        worth = np.clip(g / (f * cost), 1 / LEAP, LEAP)
        if curved is None:
            tried = b * worth ** (OVER / 2)
            tried = np.maximum(tried, floor(tried))
        else:
            for block in blocks:
                _learn(curved, block, b, 2 * g)
            tried = _least_of_model(b, f, g, curved, known, floor(b), spent)
        for _ in range(1 if curved is None else HALVINGS):
            tried /= spent(tried)
            value, slopes = error(tried)
            if value < f:
                break
            tried = (b + tried) / 2
        lower = value < f
        if curved is not None:
            for block in blocks:
                _learn(curved, block, tried - b, g - slopes)
            flat = 0 if value < f * (1 - FLAT) else flat + 1
        if lower:
            b, f, g = tried, value, slopes
        if flat or (curved is None and (turn + 1 == FIRST_STEPS or not lower)):
            curved = np.diag(2 * g / b)
    if not np.isfinite(f):
        raise ReleaseError("No split of the budget was found for this workload.")
    return BestShares(b, f, bound), curved


def _learn(curved: FloatArray, block: Int64Array, step: FloatArray, turned: FloatArray) -> None:
    """Put into a block of second derivatives what a step along it showed of them."""
    s, y, part = step[block], turned[block], np.ix_(block, block)
    if s @ y > 1e-12 * float(np.linalg.norm(s) * np.linalg.norm(y)):
        H = curved[part]
        Hs = H @ s
        curved[part] = H - np.outer(Hs, Hs) / (s @ Hs) + np.outer(y, y) / (s @ y)


def _least_of_model(
    b: FloatArray,
    f: float,
    g: FloatArray,
    curved: FloatArray,
    known: FloatArray,
    floor: FloatArray,
    spent: Callable[[FloatArray], float],
) -> FloatArray:
    """The least point of the model, in parts of every share, under the rows that matter there."""
    H = curved * np.outer(b, b) / f + STEADY * np.eye(len(b))
    down = np.minimum(SHRINK, np.maximum(1.0 - floor / b, 0.0))
    for _ in range(MAX_ROUNDS):
        rows = np.concatenate([known * b, -np.eye(len(b))])
        limits = np.concatenate([1.0 - known @ b, down])
        tried = np.maximum(b * (1 + _quadratic(H, g * b / f, rows, limits)), floor)
        before = len(known)
        most = spent(tried)
        if most <= 1 + NEARLY or len(known) == before:
            break
    return tried


def _quadratic(H: FloatArray, g: FloatArray, rows: FloatArray, limits: FloatArray) -> FloatArray:
    """The least of −g·u + uᵀHu/2 with rows·u ≤ limits, by a primal-dual interior-point method.

    Mehrotra's predictor and corrector (Nocedal, Wright: Numerical Optimization, algorithm 16.4).
    """
    u, z = np.zeros(len(g)), np.ones(len(limits))
    s = np.maximum(limits, 1.0)
    for _ in range(NEWTON_STEPS):
        dual, primal = H @ u - g + z @ rows, rows @ u + s - limits
        mean = float(s @ z) / len(s)
        if mean < PRECISE and np.abs(dual).max() < PRECISE and np.abs(primal).max() < PRECISE:
            break
        K = np.linalg.cholesky(H + (rows.T * (z / s)) @ rows)
        target = s * z
        for corrects in (False, True):
            right = -dual + ((target - z * primal) / s) @ rows
            du = np.linalg.solve(K.T, np.linalg.solve(K, right))
            ds = -primal - rows @ du
            dz = (-target - z * ds) / s
            length = min(1.0, 0.995 * _reach(s, ds), 0.995 * _reach(z, dz))
            if not corrects:
                there = float((s + length * ds) @ (z + length * dz)) / len(s)
                target = s * z + ds * dz - mean * (there / mean) ** 3
        u, s, z = u + length * du, s + length * ds, z + length * dz
    return np.asarray(u)


def _reach(values: FloatArray, step: FloatArray) -> float:
    """How many steps until the first of some positive numbers is zero."""
    down = step < 0
    return float(np.min(-values[down] / step[down], initial=np.inf))
