"""Coordinates in which a set of vectors is easy to weigh: their own singular vectors.

V = U S R with orthonormal rows in R, and M(λ) = V diag(λ) Vᵀ = U·S K S·Uᵀ with K = R diag(λ) Rᵀ.
So K is well conditioned for weights that matter however different the scales in S are, and the
singular values of chol(K)ᵀ S are the square roots of the eigenvalues of M, without M's squared
condition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError

__all__ = ["Coordinates", "FloatArray", "Metric", "Whitened", "checked", "distinct"]

FloatArray = npt.NDArray[np.float64]

SMALLEST = 1e-11  # of the largest singular value: directions that no vector reaches
GRADED = 1e4  # ratio of singular values beyond which M itself is not formed


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


def checked(vectors: npt.ArrayLike) -> FloatArray:
    """Vectors as the columns of a matrix, or one sentence that says what is wrong."""
    V = np.asarray(vectors, np.float64)
    if V.ndim != 2 or not V.size or not np.all(np.isfinite(V)):
        raise InvariantError(
            "Sensitivity vectors must be the columns of a matrix of finite numbers."
        )
    if not np.any(V):
        raise InvariantError("All sensitivity vectors are zero: there is nothing to protect.")
    return V


def distinct(V: FloatArray) -> npt.NDArray[np.int64]:
    """The numbers of columns that are not equal to an earlier one."""
    _, first = np.unique(V.T, axis=0, return_index=True)
    return np.sort(first).astype(np.int64)
