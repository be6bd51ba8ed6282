"""A version of a release without negative values; biased, and named so.

The invariants can live with unbiased noise, and a table without negative counts cannot: moving a
negative cell up moves others down. Some readers need such a table all the same, so the nearest one
in least squares that keeps every invariant is offered beside the release, never instead of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins
from subspacedp.release import Release
from subspacedp.tables import Margin

__all__ = ["biased_non_negative"]

FloatArray = npt.NDArray[np.float64]

ROUNDS = 3000
TOLERANCE = 1e-9  # of the largest value


def biased_non_negative(release: Release) -> FloatArray:
    """The nearest table without negative values that keeps every held figure.

    Parameters
    ----------
    release
        Of counts, with margins held or nothing.

    Returns
    -------
    ndarray
        Real values in the shape of the release: z ≥ 0 that minimises |z − values|² with C z = c,
        to a part in 10⁹. It is post-processing of the release, so the privacy guarantee G holds for
        it too; it is biased (small cells upward, large ones downward), and the standard errors and
        intervals of the release do not apply to it.

    Notes
    -----
    One held margin, or none: the groups are apart, and each is a projection onto a simplex by
    sorting. Several: Dykstra's alternating projections, onto the positive cone and onto the
    invariants, which converge to the projection onto both.
    """
    held = release.design.held
    if not isinstance(held, HeldMargins):
        raise ReleaseError(
            "A version without negative values is offered for held margins; this release holds "
            "other figures."
        )
    values = np.asarray(release.values, np.float64)
    if any(np.any(total < 0) for total in release.exact):
        raise ReleaseError("A held total is negative, so no table without negative values fits.")
    if not held.essential:
        return np.maximum(values, 0.0)
    if len(held.essential) == 1:
        margin = held.essential[0]
        return _simplices(values, margin, held.of(release.exact, margin))
    return _dykstra(values, release)


def _simplices(values: FloatArray, margin: Margin, totals: npt.NDArray[Any]) -> FloatArray:
    """Project every group onto {z ≥ 0, Σ z = total}: z = max(v − t, 0) with the right t."""
    numbers = np.arange(int(np.prod(margin.shape))).reshape(margin.shape)
    group = np.broadcast_to(margin.spread(numbers), values.shape).ravel()
    flat = values.ravel()
    order = np.lexsort((-flat, group))
    sorted_values, sorted_group = flat[order], group[order]
    starts = np.flatnonzero(np.diff(sorted_group, prepend=-1))
    sizes = np.diff(starts, append=len(flat))
    place = np.arange(len(flat)) - np.repeat(starts, sizes) + 1
    sums = np.cumsum(sorted_values)
    before = np.repeat(sums[starts] - sorted_values[starts], sizes)
    wanted = np.repeat(totals.ravel()[sorted_group[starts]].astype(np.float64), sizes)
    shift = (sums - before - wanted) / place
    kept = sorted_values > shift  # the largest values of the group, as many as stay positive
    last = np.maximum.reduceat(np.where(kept, np.arange(len(flat)), -1), starts)
    empty = last < 0  # a total of zero and no positive value
    t = np.where(empty, np.inf, shift[np.maximum(last, 0)])
    out = np.empty_like(flat)
    out[order] = np.maximum(sorted_values - np.repeat(t, sizes), 0.0)
    return out.reshape(values.shape)


def _dykstra(values: FloatArray, release: Release) -> FloatArray:
    space = release.design.space
    z = values.copy()
    memory = np.zeros_like(z)
    scale = max(1.0, float(np.abs(values).max(initial=0.0)))
    anchor = values  # C·values = c already, so z stays compliant by moving inside the null space
    for _ in range(ROUNDS):
        positive = np.maximum(z + memory, 0.0)
        memory += z - positive
        z_next = anchor + space.project(positive - anchor)
        change = float(np.abs(z_next - z).max(initial=0.0))
        z = z_next
        if float(z.min(initial=0.0)) > -TOLERANCE * scale and change < TOLERANCE * scale:
            return np.maximum(z, 0.0)
    worst = -float(z.min(initial=0.0))
    if worst > 1e-3 * max(1.0, float(np.median(release.stderr()))):
        raise ReleaseError(
            "No version without negative values was found that keeps the invariants; the held "
            "totals may leave no room for one."
        )
    return np.maximum(z, 0.0)
