"""The best shares of a budget: a convex problem, solved with a proven gap.

Errors F(b) are convex and homogeneous of degree −1 in the shares b of the squared budget (each is
tr(W·(Σ b_j M_j)⁻¹) for positive semidefinite W and M_j), and so is their largest or a weighted sum.
What neighbouring changes may spend is a set of rows, C b ≤ 1. With g = −∂F/∂b, so that g·b = F, and
any weights λ ≥ 0 of the rows that sum to one, c = λC:

    for every b' with C b' ≤ 1:   F(b') ≥ F(b)² / max_j (g_j/c_j).

Proof: convexity gives F(αb') ≥ 2F(b) − α g·b' ≥ 2F(b) − α max_j(g_j/c_j) for every α > 0, and
F(αb') = F(b')/α; α = F(b)/max_j(g_j/c_j) gives the bound. It holds whatever found b and λ.

Small linear programmes go by the simplex algorithm, smooth functions by steps of limited memory
(L-BFGS: J. Nocedal, S. J. Wright: Numerical Optimization, 2nd ed., Algorithm 7.4, with the weak
conditions on steps of A. S. Lewis, M. L. Overton: Nonsmooth optimization via quasi-Newton methods,
2013). They are written out because importing SciPy's takes longer than a plan.

Where levels cross, one error takes the elimination of a sparse system for every interaction, every
look at it is dear, and shares are found by models of its curvature (`best_by_curvature`). The
error is a sum over interactions, so its second derivatives are a block H for each of them. They
begin with those of Σ_j g_j·b₀_j²/b_j, which is above the error and touches it at b₀ (operator
Jensen inequality), learn from every slope that is seen (BFGS), and know without one that Hb = 2g,
as the slope has degree −2. Every step is the least of −g·d + dᵀHd/2 under the rows that are known.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen

GAP = 1e-3
SHARPNESS = (16.0, 256.0, 4096.0)  # of the smooth maximum over rows
SHARPER = 4.0  # by what it grows in every round: many rows that spend the same need it
MAX_ROUNDS = 12  # of looking for rows that stick out
EVEN = 1e-7  # of the weights that prove a bound go to all rows alike: no share is left without
REVIVED = -7.0  # the logarithm of a share that starts again
FLOOR = 1e-9  # of the budget: a share below it counts as none
WIDE = math.log(FLOOR) - 4.0, 30.0
NARROW = -14.0, 4.0  # where far apart shares would leave float64


@frozen(eq=False)
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


def distinct_rows(rows: ArrayLike) -> AnyArray:
    """What `np.unique` gives along the first axis, sooner and without masked arrays."""
    table = np.asarray(rows)
    if not table.size:
        return table[:1]
    table = table[np.lexsort(table.T[::-1])]
    new = (table[1:] != table[:-1]).any(axis=1)
    return np.concatenate([table[:1], table[1:][new]])


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
    known = distinct_rows(rows)
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
        known = distinct_rows(np.concatenate([known, more]))
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
    price, _ = least_price(distinct_rows(rows), slopes)
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


SMALL = 1 << 16  # entries of a tableau
ZERO = 1e-11  # of a slope, beside numbers of about one
EXACT = 1e-9  # by which the answer may miss its conditions


def covering_weights(rows: FloatArray, needed: FloatArray) -> FloatArray | None:
    """The least y ≥ 0 in sum with y·rows ≥ needed; None where there is none, or none was found.

    Parameters
    ----------
    rows
        Not negative.
    needed
        What every column needs; the largest about one.

    Notes
    -----
    Dantzig's algorithm on the dual programme, max needed·b over b ≥ 0 with rows·b ≤ 1, which
    b = 0 begins; y are the slopes of its slacks. That b and y meet their conditions and have equal
    sums is looked at in the given numbers; a programme for which they do not, because pivots lost
    its figures, or that is large or takes long, goes to SciPy.
    """
    if np.any((needed > 0) & (rows.max(axis=0) <= 0)):
        return None  # nothing can be enough for that column
    found = _by_tableau(rows, needed)
    if found is not None:
        return found
    from scipy.optimize import linprog

    solution = linprog(
        np.ones(len(rows)), A_ub=-rows.T, b_ub=-needed, bounds=(0, None), method="highs"
    )
    if solution.status != 0 or solution.x is None:
        return None
    return np.asarray(np.maximum(solution.x, 0.0), np.float64)


def _by_tableau(rows: FloatArray, needed: FloatArray) -> FloatArray | None:
    """The same for small programmes; None where the answer does not prove itself."""
    number, columns = rows.shape
    if number * (number + columns) > SMALL:
        return None
    tableau = np.hstack([rows, np.eye(number), np.ones((number, 1))])
    slopes = np.concatenate([needed, np.zeros(number + 1)])
    basis = np.arange(columns, columns + number)
    for _ in range(20 * columns + 20):
        enters = int(np.argmax(slopes[:-1]))
        if slopes[enters] <= ZERO:
            break
        column = tableau[:, enters]
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(column > ZERO, tableau[:, -1] / column, math.inf)
        leaves = int(np.argmin(reach))
        if reach[leaves] == math.inf:
            return None
        pivot = tableau[leaves] / column[leaves]
        tableau -= np.outer(column, pivot)
        tableau[leaves] = pivot
        slopes -= slopes[enters] * pivot
        basis[leaves] = enters
    point = np.zeros(columns + number)
    point[basis] = tableau[:, -1]
    b, y = point[:columns], np.maximum(-slopes[columns:-1], 0.0)
    proved = (
        np.all(b >= -EXACT)
        and np.all(rows @ b <= 1 + EXACT)
        and np.all(y @ rows >= needed - EXACT)
        and abs(float(y.sum()) - float(needed @ b)) <= EXACT * float(y.sum())
    )
    return np.asarray(y, np.float64) if proved else None


MEMORY = 30  # steps whose change of the slope is remembered
DECREASE, CURVATURE = 1e-4, 0.9  # of the weak conditions of Wolfe
MAX_TRIALS = 40


def least_point(
    function: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: tuple[float, float],
    *,
    steps: int = 300,
    gain: float = 1e-10,
    slope: float = 1e-6,
) -> FloatArray:
    """Where a function is least, near enough.

    Parameters
    ----------
    function
        Value and gradient.
    start
        Where to begin.
    bounds
        No coordinate leaves them; steps are cut off there.
    steps
        At most so many.
    gain
        Enough when a step lowers the value by less than this part of it.
    slope
        Enough when no coordinate has more.
    """
    x = np.clip(start, *bounds)
    value, gradient = function(x)
    memory: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=MEMORY)
    for _ in range(steps):
        if not np.max(np.abs(x - np.clip(x - gradient, *bounds)), initial=0.0) > slope:
            break
        # What a bound holds back stays there for this step.
        free = ((x > bounds[0]) | (gradient < 0)) & ((x < bounds[1]) | (gradient > 0))
        direction = -_preconditioned(gradient * free, memory) * free
        if not direction @ gradient < 0:
            memory.clear()
            direction = -gradient * free
        if not memory:
            direction /= max(1.0, float(np.linalg.norm(direction)))
        near, below, slopes = _line(function, x, value, gradient, direction, bounds)
        moved, turned = near - x, slopes - gradient
        if moved @ turned > 1e-16 * (turned @ turned):
            memory.append((moved, turned, float(1.0 / (moved @ turned))))
        lowered = value - below
        x, value, gradient = near, below, slopes
        if lowered <= gain * max(abs(value), abs(value + lowered), 1.0):
            break
    return x


def _preconditioned(
    gradient: FloatArray, memory: deque[tuple[FloatArray, FloatArray, float]]
) -> FloatArray:
    """The inverse Hessian that the remembered steps tell of, on a gradient."""
    out, parts = gradient.copy(), []
    for moved, turned, inverse in reversed(memory):
        part = inverse * float(moved @ out)
        out -= part * turned
        parts.append(part)
    if memory:
        moved, turned, inverse = memory[-1]
        out /= inverse * float(turned @ turned)
    for (moved, turned, inverse), part in zip(memory, reversed(parts), strict=True):
        out += (part - inverse * float(turned @ out)) * moved
    return out


def _line(
    function: Callable[[FloatArray], tuple[float, FloatArray]],
    x: FloatArray,
    value: float,
    gradient: FloatArray,
    direction: FloatArray,
    bounds: tuple[float, float],
) -> tuple[FloatArray, float, FloatArray]:
    """A point in that direction that is lower by enough, and less steep."""
    fall = slope = float(gradient @ direction)
    low, high, length = 0.0, math.inf, 1.0
    best = x, value, gradient
    for _ in range(MAX_TRIALS):
        wanted = x + length * direction
        point = np.clip(wanted, *bounds)
        reached, slopes = function(point)
        there = float(np.where(point == wanted, slopes, 0.0) @ direction)
        # Where a straight line through both slopes is zero, in multiples of the way between.
        way, zero = length - low, slope / (slope - there) if there > slope else math.inf
        if not reached <= value + DECREASE * float(gradient @ (point - x)):
            high = length
            length = low + min(max(zero, 0.1), 0.5) * way
            continue
        best = point, reached, slopes
        if there >= CURVATURE * fall:
            break
        low, slope = length, there
        length = (low + high) / 2 if high < math.inf else low + min(max(zero - 1, 1.0), 9.0) * way
    return best


MAX_STEPS = 80
FIRST_STEPS = 4  # by slopes alone
OVER = 1.9  # steps by slopes, in multiples of the one that suits shares that do not help each other
LEAP = 100.0  # the most that slopes alone count for
MODEL_ROUNDS = 5  # of looking for rows that stick out of a model's least point
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
    known = distinct_rows(rows)

    def spent(shares: FloatArray) -> float:
        nonlocal known
        more, most = sticking_out(shares)
        known = distinct_rows(np.concatenate([known, more]))
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
    values, vectors = np.linalg.eigh(curved * np.outer(b, b) / f)
    # What shares that buy nothing taught is rounding, of either sign.
    H = (vectors * (np.maximum(values, 0.0) + STEADY)) @ vectors.T
    down = np.minimum(SHRINK, np.maximum(1.0 - floor / b, 0.0))
    for _ in range(MODEL_ROUNDS):
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
