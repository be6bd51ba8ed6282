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
from subspacedp.inference.results import check_release
from subspacedp.invariants import HeldMargins, HeldOfWorkload, HeldValues
from subspacedp.release import Release
from subspacedp.tables import Margin

__all__ = ["biased_non_negative"]

FloatArray = npt.NDArray[np.float64]

MAX_NEWTON_STEPS = 300
TOLERANCE = 1e-7  # of a held total, or what float64 tells apart if that is more


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
        to 10⁻⁷ of a unit in every held total. It is post-processing of the release, so the privacy
        guarantee G holds for it too; it is biased (small cells upward, large ones downward), and
        the standard errors and intervals of the release do not apply to it.

    Notes
    -----
    One held margin, or none: the groups are apart, and each is a projection onto a simplex by
    sorting. Several: the dual problem, to minimise ½|max(v + Cᵀλ, 0)|² − cᵀλ, by semismooth Newton
    steps. Its gradient at λ is C z − c with z = max(v + Cᵀλ, 0), so a λ where it vanishes gives z.
    """
    held = check_release(release, "A version without negative values").mechanism.held
    if isinstance(held, HeldOfWorkload):
        raise ReleaseError(
            "A version without negative values is not offered for several margins at once: margins "
            "without negative values need not come from any table."
        )
    if not isinstance(held, HeldMargins):
        raise ReleaseError(
            "A version without negative values is offered for held margins; this release holds "
            "other figures."
        )
    grid = float(release.mechanism.query.grid)  # held totals are whole numbers of its units
    totals: tuple[npt.NDArray[Any], ...] = tuple(
        np.asarray(total) * grid for total in release.exact
    )
    values = np.asarray(release.values, np.float64)
    if any(np.any(total < 0) for total in release.exact):
        raise ReleaseError("A held total is negative, so no table without negative values fits.")
    if not held.essential:
        return np.maximum(values, 0.0)
    if len(held.essential) == 1:
        margin = held.essential[0]
        return _simplices(values, margin, held.of(totals, margin))
    return _newton(values, held, totals)


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


def _newton(values: FloatArray, held: HeldMargins, exact: HeldValues) -> FloatArray:
    from scipy.sparse.linalg import LinearOperator, cg

    margins = held.essential
    parts = [np.asarray(held.of(exact, margin), np.float64) for margin in margins]
    cuts = np.cumsum([part.size for part in parts])[:-1]
    totals = np.concatenate([part.ravel() for part in parts])
    goal = max(TOLERANCE, 1e-13 * float(totals.max(initial=0.0)))

    def lift(dual: FloatArray) -> FloatArray:
        pieces = zip(margins, np.split(dual, cuts), parts, strict=True)
        return np.asarray(sum(m.spread(piece.reshape(part.shape)) for m, piece, part in pieces))

    def sums(cells: FloatArray) -> FloatArray:
        return np.concatenate([margin.sum(cells).ravel() for margin in margins])

    def at(dual: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        z = np.maximum(values + lift(dual), 0.0)
        return z, sums(z) - totals, 0.5 * float(np.vdot(z, z)) - float(totals @ dual)

    def newton_step(z: FloatArray, miss: FloatArray, worst: float) -> FloatArray:
        """Solve C D Cᵀ·step = −miss by conjugate gradients, D the cells that are positive."""
        positive = (z > 0).astype(np.float64)
        damping = 1e-9 + 1e-3 * min(1.0, worst)  # groups without a positive cell have no curvature
        diagonal = sums(positive) + damping

        def curvature(d: FloatArray) -> FloatArray:
            return sums(positive * lift(d)) + damping * d

        def scaling(d: FloatArray) -> FloatArray:
            return np.asarray(d / diagonal)

        shape = (totals.size, totals.size)
        step, _ = cg(
            LinearOperator(shape, curvature, dtype=np.float64),
            -miss,
            rtol=min(0.1, 1e-3 * worst**0.5) if worst < 1 else 0.1,
            atol=0.0,
            maxiter=500,
            M=LinearOperator(shape, scaling, dtype=np.float64),
        )
        return np.asarray(step)

    dual = np.zeros(totals.size)
    z, miss, height = at(dual)
    for _ in range(MAX_NEWTON_STEPS):
        worst = float(np.abs(miss).max())
        if worst <= goal:
            return z
        step, size = newton_step(z, miss, worst), 1.0
        slope = float(miss @ step)
        while True:
            tried = at(dual + size * step)
            halved = np.linalg.norm(tried[1]) <= 0.5 * np.linalg.norm(miss)
            if halved or tried[2] <= height + 1e-4 * size * slope or size < 1e-10:
                break
            size /= 2
        dual, (z, miss, height) = dual + size * step, tried
    raise ReleaseError(
        "No version without negative values was found that keeps the invariants; the held totals "
        "may leave no room for one."
    )
