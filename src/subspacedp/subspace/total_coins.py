"""How much the coins of a rounded table add to every total of a coarser margin, all at once.

The weights of one total are a product over axes, and so are the differences that say what each coin
adds (`Cumulated.coins`): their squares add up direction by direction. Entries of the table that
coarser tables determine have no coin; which these are is a product over directions too, one for
every coarser table, so squares are kept apart by the coarser tables that end there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.cumulated import Cumulated
from subspacedp.tables import Margin, along

__all__ = ["coin_squares"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Kept = dict[int, FloatArray]  # sums of squares, by the set of coarser tables as bits

MOST_LOWER = 60  # bits


def coin_squares(plan: Cumulated, source: Margin, margin: Margin) -> FloatArray:
    """Σ over coins of (what a coin adds)² for every total of a margin, in the margin's shape.

    Totals are summed from a margin `source` that determines both `margin` and the plan's table.
    With more than 60 coarser tables, entries that they determine are counted too: a bound.
    """
    number = len(plan.lower) if len(plan.lower) <= MOST_LOWER else 0
    dims = len(margin.shape)
    weights = [_weights(plan, source, margin, a) for a in range(dims)]
    inside = [a for axes in plan.directions for a in axes]
    out = np.ones((1,) * dims)
    for a in range(dims):
        if a not in inside:
            out = out * along(_sums(weights[a].power(2)), a, dims)
    states: Kept = {(1 << number) - 1: out}
    for d, axes in enumerate(plan.directions):
        ends = _ends(plan, d, number)
        own = (
            _one(weights[axes[0]], ends, axes[0], dims)
            if len(axes) == 1
            else _merged([weights[a] for a in axes], ends, axes, dims)
        )
        states = _together(
            (before & bits, total * squares)
            for before, total in states.items()
            for bits, squares in own.items()
        )
    return np.broadcast_to(states.get(0, np.zeros((1,) * dims)), margin.shape)


def _weights(plan: Cumulated, source: Margin, margin: Margin, a: int) -> Any:
    """On one axis what the table's groups, in their order (rows), count for in each total."""
    from scipy.sparse import coo_array

    steps, own = plan.contrasts.axes[a], plan.margin.steps[a]
    fine = source.steps[a]
    here, there = (steps.axis.parents(fine, step) for step in (own, margin.steps[a]))
    shape = (steps.axis.step(own).groups, margin.shape[a])
    found = coo_array((steps.path(fine, own), (here, there)), shape=shape).tocsr()
    return found[plan.order(a)]


def _ends(plan: Cumulated, d: int, number: int) -> Int64Array:
    """For every place of a direction the coarser tables with a run that ends there, as bits."""
    out = np.zeros(plan.shape[1 + d], np.int64)
    for k in range(number):
        out[plan.ends[k][d][0]] |= 1 << k
    return out


def _one(weights: Any, ends: Int64Array, a: int, dims: int) -> Kept:
    """Squared differences along one axis, apart by what ends there."""
    from scipy.sparse import csr_array, vstack

    nothing = csr_array((1, weights.shape[1]))
    squares = (weights - vstack([weights[1:], nothing], format="csr")).power(2).tocsr()
    return {
        int(bits): along(_sums(squares[np.flatnonzero(ends == bits)]), a, dims)
        for bits in np.unique(ends)
    }


def _merged(weights: Sequence[Any], ends: Int64Array, axes: Sequence[int], dims: int) -> Kept:
    """The same along merged axes: places but the last are alike.

    Of x = u ⊗ v, read row by row: Σ x_t² and Σ x_t x_{t+1} from those of u and v and the first and
    last entries. Then Σ (x_t − x_{t+1})² = 2 Σ x_t² − x_1² − x_T² − 2 Σ x_t x_{t+1}, t < T.
    """
    square = first = last = np.ones((1,) * dims)
    lagged = np.zeros((1,) * dims)
    for own, a in zip(reversed(weights), reversed(axes), strict=True):
        power, start, end, lag = (
            along(v, a, dims)
            for v in (
                _sums(own.power(2)),
                own[[0]].toarray()[0],
                own[[-1]].toarray()[0],
                _sums(own[:-1].multiply(own[1:])),
            )
        )
        lagged = power * lagged + lag * last * first
        square, first, last = power * square, start * first, end * last
    inner = np.maximum(2 * square - first**2 - last**2 - 2 * lagged, 0.0)
    return _together([(int(ends[0]), inner), (int(ends[-1]), last**2)])


def _together(found: Iterable[tuple[int, FloatArray]]) -> Kept:
    out: Kept = {}
    for bits, squares in found:
        out[bits] = out[bits] + squares if bits in out else squares
    return out


def _sums(values: Any) -> FloatArray:
    return np.asarray(values.sum(axis=0), np.float64).reshape(-1)
