"""The residual variance of a regression without the noise, which is public and taken off."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from subspacedp.inference.covariates import solution
from subspacedp.inference.outcome import Outcome
from subspacedp.noise import NoiseModel

__all__ = ["residual_variance"]

FloatArray = npt.NDArray[np.float64]


def residual_variance(
    outcome: Outcome,
    matrix: FloatArray,
    w: FloatArray,
    divisor: FloatArray,
    labels: tuple[str, ...],
) -> tuple[float, float]:
    """An estimate of σ², which may be negative, and its standard error."""
    noise = outcome.plain.noise
    equal = np.all(w == w[0]) and np.all(divisor == divisor[0])
    if outcome.is_cells and equal and isinstance(noise, NoiseModel):
        each = noise.each / float(divisor[0]) ** 2
        found = _from_parts(outcome, matrix, outcome.values / divisor[0], each)
        if found is not None:
            return float(w[0]) * found[0], float(w[0]) * found[1]
    y, own = outcome.values / divisor, outcome.variance() / divisor**2
    u, sigma2, unsure = w, math.nan, math.nan
    for _ in range(3):
        gram, A = solution(matrix, u, labels)
        rss = float(u @ (y - matrix @ (A @ y)) ** 2)
        added = float(u @ own) - float(
            np.sum(gram * outcome.covariance(A / divisor, rounding=False))
        )
        # tr(Q W⁻¹) with Q = U − UX(XᵀUX)⁻¹XᵀU.
        enough = float(np.sum(u / w)) - float(np.einsum("ij,ji->", A / w, matrix * u[:, None]))
        sigma2 = (rss - added) / enough
        variances = max(sigma2, 0.0) / w + own
        if not np.any(variances):
            return 0.0, 0.0
        unsure = math.sqrt(outcome.unevenness * float(np.sum((u * variances) ** 2))) / enough
        u = 1 / (max(sigma2, unsure, 1e-12 * float(np.mean(w * variances))) / w + own)
        u = u / u.mean()
    return sigma2, unsure


def _from_parts(
    outcome: Outcome, matrix: FloatArray, y: FloatArray, each: float
) -> tuple[float, float] | None:
    """σ² from the part of the residuals that the invariants keep free of noise, and from the rest.

    Π_R y = Π_R Xβ + Π_R u and Π_N y = Π_N Xβ + Π_N(u + e): residuals of variance σ² and σ² + each,
    uncorrelated, in known dimensions. The two estimates are weighted by their precision. None when
    the covariates, fitted in both parts, leave no residuals.
    """
    space, shape = outcome.design.space, outcome.design.query.shape
    both = np.column_stack([matrix, y])
    free = np.stack([space.project(c.reshape(shape)).reshape(-1) for c in both.T], axis=1)
    spread, number = [], []
    for part, dimension in ((both - free, space.rank), (free, space.dimension)):
        ours, theirs = part[:, :-1] / np.linalg.norm(matrix, axis=0), part[:, -1]
        U, values, _ = np.linalg.svd(ours, full_matrices=False)
        U = U[:, values > 1e-9]
        spread.append(float(np.sum((theirs - U @ (U.T @ theirs)) ** 2)))
        number.append(max(dimension - U.shape[1], 0))
    if not any(number):
        return None
    estimates = [s / k if k else 0.0 for s, k in zip(spread, number, strict=True)]
    estimates[1] -= each
    sigma2 = estimates[0] if number[0] else estimates[1]
    precision = np.zeros(2)
    for _ in range(3):
        level = max(sigma2, 1e-9 * (each + abs(estimates[1])), 1e-300)
        precision = np.array(number) / np.array(
            [2 * level**2, 2 * (level + each) ** 2 + (outcome.unevenness - 2) * each**2]
        )
        sigma2 = float(precision @ estimates / precision.sum())
    return sigma2, float(1 / math.sqrt(precision.sum()))
