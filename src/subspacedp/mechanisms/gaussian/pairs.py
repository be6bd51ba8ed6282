"""The best covariance for all differences of two points: what replacing a record can change.

d points have d(d − 1)/2 differences. Up to a few thousand points all of them are weighed at once,
as a symmetric matrix Λ: M = 2·P(diag(Λ1) − Λ)Pᵀ, and the lengths of all differences come from one
Gram matrix. Beyond, an active set of pairs is weighed, and pairs that stick out of the ellipsoid
join it until none does (docs/adr/0018-weigh-all-pairs.md).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import ArrayLike, FloatArray
from subspacedp.errors import InvariantError
from subspacedp.mechanisms.gaussian.covariance import (
    BestCovariance,
    Coordinates,
    Metric,
    Pairs,
    Progress,
    checked,
    distinct,
    pair_moment,
    scaled_covariance,
    trace_bound,
)

EXPONENTS = (5, 3, 2, 1)
ROUNDS = 5000
DENSE_ROUNDS = 150
DENSE = 5000  # points: a matrix of weights of all pairs in single precision has 100 MB
FORGOTTEN = 1e-25  # a weight below it never comes back; denormal numbers are slow
DROPPED = 1e-3  # of all weight, on the lightest pairs that the certificate leaves out
FORGOTTEN_OF_FEW = 1e-9
SHARE = 0.02  # of all weight, on pairs that join
KEPT = 20  # pairs a point in a first active set


def centred(points: ArrayLike) -> FloatArray:
    """Points with their mean at the origin; differences stay."""
    whole = checked(points)
    if whole.shape[1] < 2:
        raise InvariantError("Replacing a record needs at least two kinds of records.")
    middle: FloatArray = whole - whole.mean(axis=1, keepdims=True)
    if float(np.abs(middle).max()) <= 1e-13 * float(np.abs(whole).max()):
        raise InvariantError("All records are alike to this query: there is nothing to protect.")
    return middle


def best_covariance_of_pairs(
    points: ArrayLike,
    *,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
    dense: int = DENSE,
) -> BestCovariance:
    """The best covariance for all differences of the columns of a matrix.

    Examples
    --------
    >>> covariance = best_covariance_of_pairs(np.eye(3))
    >>> round(covariance.trace, 3), covariance.gap < 1e-3
    (4.0, True)
    """
    P = centred(points)
    chosen = distinct(P)
    frame = Coordinates.of(P[:, chosen])
    first = all_at_once if len(chosen) <= dense else _longest_first
    pairs, weights, rounds = first(frame, tolerance, progress)
    metric, pairs, weights, rounds = _active(frame, pairs, weights, rounds, tolerance, progress)
    _, lengths = longest_pairs(metric.half @ frame.vectors, 1)
    return scaled_covariance(
        frame,
        metric,
        float(lengths[0]) / metric.trace,
        bound=trace_bound(P[:, chosen], weights, pairs),
        weights=weights,
        rounds=rounds,
        pairs=chosen[pairs],
    )


def all_at_once(
    frame: Coordinates,
    tolerance: float,
    progress: Progress | None = None,
    exponents: tuple[int, ...] = EXPONENTS,
) -> tuple[Pairs, FloatArray, int]:
    """The pairs that keep their weight in the multiplicative update of all, in single precision."""
    R, inner = frame.turned.astype(np.float32), frame.vectors
    d = R.shape[1]
    weights = np.full((d, d), 1.0 / (d * (d - 1)), np.float32)
    np.fill_diagonal(weights, 0.0)
    left, reached = list(exponents), 0.0
    lengths = np.empty((d, d), np.float32)
    for rounds in range(1, DENSE_ROUNDS + 1):
        metric = _dense_metric(frame, R, weights)
        turned = (metric.half @ inner / np.sqrt(metric.trace)).astype(np.float32)
        squares = np.einsum("ij,ij->j", turned, turned)
        np.matmul(turned.T, turned, out=lengths)
        lengths *= -2.0
        lengths += squares[:, None]
        lengths += squares[None, :]
        gap = float(lengths.max()) - 1.0
        if progress is not None:
            progress(rounds, gap)
        if gap <= 2 * tolerance:
            break
        # Single precision shows in the sixth digit.
        if metric.trace < reached * (1 - 1e-6) and len(left) > 1:
            left.pop(0)
        reached = max(reached, metric.trace)
        np.maximum(lengths, 0.0, out=lengths)
        _grow(weights, lengths, left[0])
        if rounds % 8 == 0:
            weights[weights < FORGOTTEN] = 0.0
    return (*_heaviest(weights), rounds)


def _dense_metric(
    frame: Coordinates, R: npt.NDArray[np.float32], weights: npt.NDArray[np.float32]
) -> Metric:
    K = (R * weights.sum(axis=1)) @ R.T - (R @ weights) @ R.T
    return frame.metric((K + K.T).astype(np.float64))


def _grow(
    weights: npt.NDArray[np.float32], lengths: npt.NDArray[np.float32], exponent: int
) -> None:
    """Weights times lengths to a power, in place; whole powers by multiplication are faster."""
    for bit in bin(exponent)[2:][::-1]:
        if bit == "1":
            weights *= lengths
        lengths *= lengths
    weights /= weights.sum(dtype=np.float64)


def _heaviest(weights: npt.NDArray[np.float32]) -> tuple[Pairs, FloatArray]:
    """The pairs that carry nearly all weight, each once."""
    i, j = np.nonzero(np.triu(weights, 1) > 0)
    each = weights[i, j].astype(np.float64)
    order = np.argsort(each)
    light = np.searchsorted(np.cumsum(each[order]), DROPPED * each.sum())
    kept = np.sort(order[light:])
    return np.stack([i[kept], j[kept]], axis=1).astype(np.int64), each[kept] / each[kept].sum()


def _longest_first(
    frame: Coordinates, tolerance: float, progress: Progress | None
) -> tuple[Pairs, FloatArray, int]:
    """The longest pairs in the metric of equal weights on all, M = 2VVᵀ/(d − 1)."""
    del tolerance, progress
    r, d = frame.turned.shape
    metric = frame.metric(np.eye(r) * (2.0 / (d - 1)))
    turned = metric.half @ frame.vectors
    pairs = spanning(longest_pairs(turned, max(KEPT * d, 2 * r * r))[0], d)
    lengths = _pair_lengths(turned, pairs)
    return pairs, lengths / lengths.sum(), 0


def spanning(pairs: Pairs, d: int) -> Pairs:
    """The pairs, and those with the first point, which span all differences."""
    star = np.stack([np.zeros(d - 1, np.int64), np.arange(1, d, dtype=np.int64)], axis=1)
    codes = np.unique(np.concatenate([pairs, star]) @ np.array([d, 1]))
    return np.stack(np.divmod(codes, d), axis=1)


def _active(
    frame: Coordinates,
    pairs: Pairs,
    weights: FloatArray,
    rounds: int,
    tolerance: float,
    progress: Progress | None,
) -> tuple[Metric, Pairs, FloatArray, int]:
    """Weights of an active set of pairs; pairs that are too long join it until none is."""
    R, inner = frame.turned, frame.vectors
    d = R.shape[1]
    while True:
        exponents, reached = list(EXPONENTS), 0.0
        while True:
            rounds += 1
            metric = frame.metric(pair_moment(R, weights, pairs))
            lengths = _pair_lengths(metric.half @ inner, pairs) / metric.trace
            if float(lengths.max()) - 1.0 <= 0.8 * tolerance or rounds >= ROUNDS:
                break
            if metric.trace < reached * (1 - 1e-12) and len(exponents) > 1:
                exponents.pop(0)
            reached = metric.trace
            weights = weights * lengths ** exponents[0]
            weights /= weights.sum()
        more, lengths = longest_pairs(metric.half @ inner, KEPT * d)
        gap = float(lengths[0]) / metric.trace - 1.0
        if progress is not None:
            progress(rounds, gap)
        if gap <= 0.95 * tolerance or rounds >= ROUNDS:
            return metric, pairs, weights, rounds
        kept = weights > FORGOTTEN_OF_FEW / len(weights)
        long = more[lengths > (1 + 0.1 * tolerance) * metric.trace]
        pairs, weights = _joined(pairs[kept], weights[kept], long, d)


def _pair_lengths(turned: FloatArray, pairs: Pairs) -> FloatArray:
    rows = np.ascontiguousarray(turned.T)
    out = np.empty(len(pairs))
    step = max(1, 2**22 // max(1, rows.shape[1]))
    for at in range(0, len(pairs), step):
        part = pairs[at : at + step]
        difference = rows[part[:, 0]] - rows[part[:, 1]]
        out[at : at + step] = np.einsum("ij,ij->i", difference, difference)
    return out


def longest_pairs(turned: FloatArray, number: int) -> tuple[Pairs, FloatArray]:
    """The pairs of columns that are farthest apart and their squared distances, longest first."""
    squares = np.einsum("ij,ij->j", turned, turned)
    d = turned.shape[1]
    pairs, distances = np.empty((0, 2), np.int64), np.empty(0)
    step = max(1, 2**22 // d)
    for start in range(0, d, step):
        stop = min(start + step, d)
        block = squares[start:stop, None] + squares[None, :]
        block -= 2 * turned[:, start:stop].T @ turned
        block[np.arange(d)[None, :] <= np.arange(start, stop)[:, None]] = -np.inf
        flat = block.ravel()
        count = min(number, flat.size)
        top = np.argpartition(flat, flat.size - count)[flat.size - count :]
        top = top[np.isfinite(flat[top])]
        i, j = np.divmod(top, d)
        pairs = np.concatenate([pairs, np.stack([i + start, j], axis=1)])
        distances = np.concatenate([distances, flat[top]])
    order = np.argsort(-distances, kind="stable")[:number]
    return pairs[order], np.maximum(distances[order], 0.0)


def _joined(pairs: Pairs, weights: FloatArray, new: Pairs, d: int) -> tuple[Pairs, FloatArray]:
    """Old pairs with their weights, and new ones with a little weight each."""
    fresh = new[~np.isin(new[:, 0] * d + new[:, 1], pairs[:, 0] * d + pairs[:, 1])]
    share = SHARE / max(1, len(fresh))
    joined = np.concatenate([weights * ((1 - SHARE) / weights.sum()), np.full(len(fresh), share)])
    return np.concatenate([pairs, fresh]), joined / joined.sum()
