"""The covariance of least trace whose ellipsoid holds every sensitivity vector.

Gaussian noise with covariance Σ hides a change v of the answers as well as one unit of standard
noise hides a change of √(vᵀΣ⁻¹v). So the best Gaussian noise solves

    minimise tr Σ   subject to   vᵀ Σ⁻¹ v ≤ 1 for every sensitivity vector v.

Its dual is to maximise (tr M(λ)^½)² over weights λ ≥ 0 that add up to one, with
M(λ) = Σ λ_j v_j v_jᵀ; then Σ = tr(M^½)·M^½. Any λ gives both a lower bound on the error of every
Gaussian mechanism and a mechanism whose error is larger by at most the factor 1 + gap,
gap = max_j v_jᵀM^{-½}v_j / tr M^½ − 1 (docs/proofs/optimal.md).

Vectors are weighed in the coordinates of their own singular vectors. V = U S R with orthonormal
rows in R, and M(λ) = V diag(λ) Vᵀ = U·S K S·Uᵀ with K = R diag(λ) Rᵀ. So K is well conditioned for
weights that matter however different the scales in S are, and the singular values of chol(K)ᵀ S are
the square roots of the eigenvalues of M, without M's squared condition.

Replacing a record changes a difference of two points; d points have d(d − 1)/2 differences. Up to a
few thousand points all of them are weighed at once, as a symmetric matrix Λ: M = 2·P(diag(Λ1) −
Λ)Pᵀ, and the lengths of all differences come from one Gram matrix. Beyond, an active set of pairs
is weighed, and pairs that stick out of the ellipsoid join it until none does
(docs/adr/0018-weigh-all-pairs.md).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen

SMALLEST = 1e-11  # of the largest singular value: directions that no vector reaches
GRADED = 1e4  # ratio of singular values beyond which M itself is not formed
Pairs = Int64Array
EXPONENTS = (3.0, 2.0, 1.0)  # of the update: the next one when the dual value falls
ROUNDS = 5000


@frozen(eq=False, repr=False)
class Metric:
    """M^½ of some weights: `half` H with HᵀH = M^{-½}, and `trace` = tr M^½.

    For volumes H with HᵀH = M⁻¹, and the dimension.
    """

    half: FloatArray
    trace: float


@frozen(eq=False, repr=False)
class Coordinates:
    """V = span · diag(scales) · turned, `turned` with orthonormal rows."""

    span: FloatArray  # (n, r)
    scales: FloatArray  # (r,)
    turned: FloatArray  # (r, d)

    @classmethod
    def of(cls, V: FloatArray) -> Coordinates:
        """Of the columns of a matrix that is not zero."""
        left, singular, right = np.linalg.svd(V, full_matrices=False)
        rank = int(np.count_nonzero(singular > SMALLEST * singular[0]))
        return cls(left[:, :rank], singular[:rank], right[:rank])

    @property
    def vectors(self) -> FloatArray:
        """The vectors in the basis `span`."""
        return np.asarray(self.scales[:, None] * self.turned)

    def metric(self, K: FloatArray) -> Metric:
        """M^½ for M = S K S."""
        S = self.scales
        if S[0] > GRADED * S[-1]:
            try:
                upper = np.linalg.cholesky(K).T * S
            except np.linalg.LinAlgError:  # too few weights to reach every direction
                values, vectors = np.linalg.eigh(K)
                upper = np.sqrt(np.maximum(values, 1e-15 * values[-1]))[:, None] * vectors.T * S
            _, roots, rows = np.linalg.svd(upper)
            roots = np.maximum(roots, 1e-16 * roots[0])
            return Metric(rows / np.sqrt(roots)[:, None], float(roots.sum()))
        values, vectors = np.linalg.eigh(S[:, None] * K * S)
        roots = np.sqrt(np.maximum(values, 1e-15 * values[-1]))
        return Metric(vectors.T / np.sqrt(roots)[:, None], float(roots.sum()))


@frozen(eq=False, repr=False)
class Whitened(Coordinates):
    """The same vectors without their scales, in the metric of volumes: X⁻¹ in place of M^{-½}."""

    @property
    def vectors(self) -> FloatArray:
        """The turned vectors."""
        return self.turned

    def metric(self, K: FloatArray) -> Metric:
        """X⁻¹ for X = K."""
        values, vectors = np.linalg.eigh(K)
        roots = np.sqrt(np.maximum(values, 1e-15 * values[-1]))
        return Metric(vectors.T / roots[:, None], float(len(K)))


def checked(vectors: ArrayLike) -> FloatArray:
    """Vectors as the columns of a matrix, or one sentence that says what is wrong."""
    V = np.asarray(vectors, np.float64)
    if V.ndim != 2 or not V.size or not np.all(np.isfinite(V)):
        raise InvariantError(
            "Sensitivity vectors must be the columns of a matrix of finite numbers."
        )
    if not np.any(V):
        raise InvariantError("All sensitivity vectors are zero: there is nothing to protect.")
    return V


def distinct(V: FloatArray) -> Int64Array:
    """The numbers of columns that are not equal to an earlier one."""
    _, first = np.unique(V.T, axis=0, return_index=True)
    return np.sort(first).astype(np.int64)


@frozen(eq=False, repr=False, kw_only=True)
class BestCovariance:
    """A covariance and the proof of how good it is.

    Parameters
    ----------
    root
        W with WᵀW = Σ⁻¹ on the span of the vectors: what they are multiplied with before standard
        noise is added. As many rows as the span has dimensions.
    covariance
        Σ, scaled so that the largest vᵀΣ⁻¹v is 1; zero in directions that no vector reaches.
    bound
        A lower bound on tr Σ over all covariances that qualify.
    weights
        λ, which prove the bound, one for each vector (or pair in `pairs`).
    pairs
        For differences of points: the numbers of the two points of each weight.
    rounds
        How many rounds it took.
    """

    root: FloatArray
    covariance: FloatArray
    bound: float
    weights: FloatArray
    rounds: int
    pairs: Pairs | None = None

    @property
    def trace(self) -> float:
        """The trace of Σ."""
        return float(np.trace(self.covariance))

    @property
    def gap(self) -> float:
        """By what share tr Σ may exceed the least possible one."""
        return max(self.trace / self.bound - 1.0, 0.0)

    def __repr__(self) -> str:
        n = len(self.covariance)
        return f"BestCovariance({n} dimensions, within {self.gap:.3%} of the best)"


def best_covariance(vectors: ArrayLike, *, tolerance: float = 1e-3) -> BestCovariance:
    """The best covariance for given sensitivity vectors, the columns of a matrix.

    Examples
    --------
    >>> covariance = best_covariance(np.tril(np.ones((8, 8))))
    >>> covariance.gap < 1e-3
    True
    >>> spherical = 8 * 8  # noise for the longest column, on all 8 answers
    >>> round(spherical / covariance.trace, 2)
    3.58
    """
    V = checked(vectors)
    chosen = distinct(V)
    frame = Coordinates.of(V[:, chosen])
    R, inner = frame.turned, frame.vectors
    weights = np.full(len(chosen), 1.0 / len(chosen))
    exponents, reached = list(EXPONENTS), 0.0
    for rounds in range(1, ROUNDS + 1):  # noqa: B007 - they are stated behind the loop
        metric = frame.metric((R * weights) @ R.T)
        turned = metric.half @ inner
        lengths = np.einsum("ij,ij->j", turned, turned) / metric.trace  # Σ λ_j lengths_j = 1
        gap = float(lengths.max()) - 1.0
        if gap <= 0.98 * tolerance:  # the rest is for the rounding of the bound
            break
        if metric.trace < reached * (1 - 1e-12) and len(exponents) > 1:
            exponents.pop(0)
        reached = metric.trace
        weights = weights * lengths ** exponents[0]
        weights /= weights.sum()
    every = np.zeros(V.shape[1])
    every[chosen] = weights
    return scaled_covariance(
        frame, metric, float(lengths.max()), bound=trace_bound(V, every), weights=every,
        rounds=rounds,
    )  # fmt: skip


def scaled_covariance(
    frame: Coordinates,
    metric: Metric,
    longest: float,
    *,
    bound: float,
    weights: FloatArray,
    rounds: int,
    pairs: Pairs | None = None,
) -> BestCovariance:
    """Σ = tr(M^½)·M^½, scaled so that the longest vector has length exactly one."""
    # vᵀΣ⁻¹v = vᵀM^{-½}v / tr M^½ for Σ = tr(M^½)·M^½; times `longest` it is at most 1.
    root = metric.half / np.sqrt(metric.trace * longest)  # rows are orthogonal
    squares = np.einsum("ij,ij->i", root, root)
    back = frame.span @ (root / squares[:, None]).T
    return BestCovariance(
        root=root @ frame.span.T,
        covariance=back @ back.T,
        bound=bound,
        weights=weights,
        rounds=rounds,
        pairs=pairs,
    )


def trace_bound(vectors: ArrayLike, weights: ArrayLike, pairs: ArrayLike | None = None) -> float:
    """(tr M(λ)^½)²: no covariance that qualifies has a smaller trace.

    It holds for every λ ≥ 0; λ is scaled to add up to one, and rounding error is taken off. With
    `pairs`, the weights are of differences of the vectors with these numbers. Equal weights give
    the singular-value bound.
    """
    V, lam = np.asarray(vectors, np.float64), np.maximum(np.asarray(weights, np.float64), 0.0)
    lam = lam / lam.sum()
    M = (V * lam) @ V.T if pairs is None else pair_moment(V, lam, np.asarray(pairs, np.int64))
    eigenvalues = np.linalg.eigvalsh(M)
    # Of the product and of the eigenvalues: far below n·d·eps of the largest, which is at most
    # the trace of the sum of |λ_j||v_j|², doubled for differences.
    size = float(lam.sum() * np.einsum("ij,ij->j", V, V).max()) * (4 if pairs is not None else 1)
    error = 8 * len(V) * np.finfo(float).eps * max(size, float(eigenvalues[-1]))
    certain = np.maximum(eigenvalues - error, 0.0)
    return float(np.sqrt(certain).sum()) ** 2 * (1 - 1e-12)


def pair_moment(P: FloatArray, weights: FloatArray, pairs: Pairs) -> FloatArray:
    """Σ λ_k (p_i − p_j)(p_i − p_j)ᵀ over pairs k = (i, j): P·L·Pᵀ with a sparse Laplacian L."""
    from scipy.sparse import csr_array

    d = P.shape[1]
    i, j = pairs[:, 0], pairs[:, 1]
    diagonal = np.bincount(i, weights, d) + np.bincount(j, weights, d)
    across = csr_array((weights, (i, j)), shape=(d, d))
    mixed = np.asarray(across @ P.T)
    cross = P @ mixed
    return np.asarray((P * diagonal) @ P.T - cross - cross.T)


PAIR_EXPONENTS = (5, 3, 2, 1)
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
    pairs, weights, rounds = first(frame, tolerance)
    metric, pairs, weights, rounds = _active(frame, pairs, weights, rounds, tolerance)
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
    exponents: tuple[int, ...] = PAIR_EXPONENTS,
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


def _longest_first(frame: Coordinates, tolerance: float) -> tuple[Pairs, FloatArray, int]:
    """The longest pairs in the metric of equal weights on all, M = 2VVᵀ/(d − 1)."""
    del tolerance
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
) -> tuple[Metric, Pairs, FloatArray, int]:
    """Weights of an active set of pairs; pairs that are too long join it until none is."""
    R, inner = frame.turned, frame.vectors
    d = R.shape[1]
    while True:
        exponents, reached = list(PAIR_EXPONENTS), 0.0
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
