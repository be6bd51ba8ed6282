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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError

SMALLEST = 1e-11  # of the largest singular value: directions that no vector reaches
GRADED = 1e4  # ratio of singular values beyond which M itself is not formed
Progress = Callable[[int, float], None]
Pairs = Int64Array
EXPONENTS = (3.0, 2.0, 1.0)  # of the update: the next one when the dual value falls
ROUNDS = 5000


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """M^½ of some weights: `half` H with HᵀH = M^{-½}, and `trace` = tr M^½.

    For volumes H with HᵀH = M⁻¹, and the dimension.
    """

    half: FloatArray
    trace: float


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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


def best_covariance(
    vectors: ArrayLike, *, tolerance: float = 1e-3, progress: Progress | None = None
) -> BestCovariance:
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
    for rounds in range(1, ROUNDS + 1):
        metric = frame.metric((R * weights) @ R.T)
        turned = metric.half @ inner
        lengths = np.einsum("ij,ij->j", turned, turned) / metric.trace  # Σ λ_j lengths_j = 1
        gap = float(lengths.max()) - 1.0
        if progress is not None:
            progress(rounds, gap)
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
