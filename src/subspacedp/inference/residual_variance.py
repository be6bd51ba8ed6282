"""The residual variance of a regression without the noise, which is public, and how sure it is.

Residual contrasts that are uncorrelated with the coefficients are independent, of variance σ² + λ:
σ² is unknown and λ, the part of the noise, is public. All that is known of σ² is their likelihood.
An interval for a coefficient averages over it, which is Student's t where there is no noise.
Derivation and choice of the weight of small σ²: `docs/proofs/inference-tests.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from subspacedp.inference.covariates import solution
from subspacedp.inference.outcome import Outcome
from subspacedp.invariants import NullSpace

__all__ = ["ResidualSpread", "residual_spread"]

FloatArray = npt.NDArray[np.float64]

MOST_DENSE = 800  # figures whose covariance is taken apart
MOST_WEIGHTS = 2**25  # figures × answers, where covariances are matrices
POINTS = 160  # values of σ² that are averaged over
LEAST_SHAPE = 0.05  # of the law of the variance of noise
LEAST_TAIL = 1e-12  # less than this is not told apart
NORMAL = 100.0  # from this shape on noise is normal


@dataclass(frozen=True, eq=False, repr=False)
class ResidualSpread:
    """Sums of squares of independent residual contrasts, each of variance σ² + λ.

    Parameters
    ----------
    noise
        λ of every kind of contrast.
    numbers
        How many contrasts there are of a kind; less than that where they depend on each other.
    squares
        The sum of their squares, in proportion to `numbers`.
    excess
        The excess kurtosis of one noise variable, at most.
    """

    noise: FloatArray
    numbers: FloatArray
    squares: FloatArray
    excess: float

    @cached_property
    def _estimated(self) -> tuple[float, float]:
        if not np.any(self.noise) and not np.any(self.squares):
            return 0.0, 0.0
        estimates = self.squares / self.numbers - self.noise
        sigma2 = float(self.numbers @ estimates / self.numbers.sum())
        precision = self._information(sigma2)
        for _ in range(20):  # Fisher's scoring of the residual likelihood
            precision = self._information(sigma2)
            sigma2 = float(precision @ estimates / precision.sum())
        return sigma2, float(1 / math.sqrt(precision.sum()))

    @property
    def sigma2(self) -> float:
        """The estimate of σ² by residual maximum likelihood, which may be negative."""
        return self._estimated[0]

    @property
    def unsure(self) -> float:
        """Its standard error."""
        return self._estimated[1]

    def _information(self, sigma2: float) -> FloatArray:
        typical = float(self.numbers @ (self.noise + self.squares / self.numbers))
        level = max(sigma2, 1e-9 * typical / float(self.numbers.sum()), 1e-300)
        variance = 2 * (level + self.noise) ** 2 + self.excess * self.noise**2
        return np.asarray(self.numbers / variance)

    @cached_property
    def _posterior(self) -> tuple[FloatArray, FloatArray]:
        """Values of σ², and their weights by likelihood and the weight of small ones."""
        level = max(self.sigma2, 0.0)
        spread = 2 * (level + self.noise) ** 2
        shares = np.ones(self.noise.size)
        np.divide(spread, spread + self.excess * self.noise**2, out=shares, where=spread > 0)
        numbers, squares = self.numbers * shares, self.squares * shares
        positive = self.noise[self.noise > 0]
        typical = float(np.median(positive)) if positive.size else 0.0
        seen = float(squares.sum() / numbers.sum())
        free = self.noise == 0
        without = float(squares[free].sum() / numbers[free].sum()) if free.any() else 0.0
        ends = [x for x in (without, typical, seen) if x > 0]
        low, high = math.log(1e-6 * min(ends)), math.log(1e9 * max(ends))
        for _ in range(3):  # ever closer to where the weight is
            logs = np.linspace(low, high, POINTS)
            sigma2 = np.exp(logs)
            variance = sigma2[:, None] + self.noise
            log = -0.5 * (np.log(variance) @ numbers + (squares / variance).sum(axis=1))
            # The weight σ(σ² + λ)^(−3/2) dσ²; without noise dσ²/σ², which is Student's t.
            log += 1.5 * (logs - np.log(sigma2 + typical))
            log -= log.max()
            inside = np.flatnonzero(log > -30)
            first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, POINTS - 1)
            low, high = float(logs[first]), float(logs[last])
        weights = np.exp(log)
        return sigma2, weights / weights.sum()

    def tail(self, distance: float, share: float, known: float, excess: float) -> float:
        """P(|β̂ − β| ≥ distance) for a coefficient of variance share·σ² + known.

        `excess` is the excess kurtosis of its noise: Laplace noise is normal noise of random
        variance, and a gamma law with the right mean and variance stands for that variance.
        """
        return max(LEAST_TAIL, _beyond(distance, *self._mixture(share, known, excess)))

    def margin_of_error(self, alpha: float, share: float, known: float, excess: float) -> float:
        """Where the tail is alpha."""
        from scipy.optimize import brentq

        deviations, weights = self._mixture(share, known, excess)
        typical = float(weights @ deviations)
        if typical == 0:
            return 0.0
        high = 4 * typical
        while _beyond(high, deviations, weights) > alpha:
            high *= 4
        low = high / 4
        while _beyond(low, deviations, weights) <= alpha:
            low /= 4
            if low < 1e-12 * typical:
                return low
        return float(
            brentq(lambda x: _beyond(x, deviations, weights) - alpha, low, high, rtol=1e-9)
        )

    def _mixture(self, share: float, known: float, excess: float) -> tuple[FloatArray, FloatArray]:
        """The normal laws that a coefficient's error is a mixture of."""
        if not np.any(self.noise) and not np.any(self.squares):
            return np.array([math.sqrt(known)]), np.ones(1)
        sigma2, chance = self._posterior
        factors, weights = _gamma(excess)
        variances = np.add.outer(share * sigma2, known * factors)
        return np.sqrt(variances).reshape(-1), np.multiply.outer(chance, weights).reshape(-1)


def _beyond(distance: float, deviations: FloatArray, weights: FloatArray) -> float:
    """P(|X| ≥ distance) for a mixture of centred normal laws."""
    from scipy.special import erfc

    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = erfc(distance / (math.sqrt(2.0) * deviations))
    return float(weights @ np.nan_to_num(beyond, nan=1.0))


@lru_cache(maxsize=256)
def _gamma(excess: float) -> tuple[FloatArray, FloatArray]:
    """Points and weights of a gamma law of mean 1 and variance excess/3."""
    if excess <= 3 / NORMAL:
        return np.ones(1), np.ones(1)
    from scipy.special import roots_genlaguerre

    shape = max(3 / excess, LEAST_SHAPE)
    points, weights = roots_genlaguerre(16, shape - 1)
    return points / shape, weights / weights.sum()


def residual_spread(
    outcome: Outcome,
    matrix: FloatArray,
    w: FloatArray,
    divisor: FloatArray,
    labels: tuple[str, ...],
) -> ResidualSpread:
    """What the residuals tell about σ², the outcome having errors of variance σ²/w."""
    noise = outcome.plain
    excess = noise.excess
    equal = np.all(w == w[0]) and np.all(divisor == divisor[0])
    space = noise.null_space if outcome.is_cells else None
    if space is not None and noise.uniform and equal:
        factor = float(w[0])
        found = _from_parts(
            space, matrix, outcome.values / divisor[0], noise.each / float(divisor[0]) ** 2
        )
        if found is not None:
            values, numbers, squares = found
            return ResidualSpread(factor * values, numbers, factor * squares, excess)
    n = outcome.values.size
    if n <= MOST_DENSE and n * outcome.query.size <= MOST_WEIGHTS:
        values, squares = _taken_apart(outcome, matrix, w, divisor)
        return ResidualSpread(values, np.ones(values.size), squares, excess)
    _, A = solution(matrix, w, labels)
    y = outcome.values / divisor
    squares = w * (y - matrix @ (A @ y)) ** 2
    # Errors within held groups repeat each other: as many count as the noise has dimensions.
    dimensions = noise.dimension(n) if outcome.is_cells else n
    share = min(1.0, max(dimensions, 1) / n)
    left = (n - matrix.shape[1]) / n
    own = w * outcome.variance() / divisor**2
    return ResidualSpread(own, np.full(n, share * left), share * squares, excess)


def _from_parts(
    space: NullSpace, matrix: FloatArray, y: FloatArray, each: float
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """The part of the residuals that the invariants keep free of noise, and the rest.

    Π_R y = Π_R Xβ + Π_R u and Π_N y = Π_N Xβ + Π_N(u + e): residuals of variance σ² and σ² + each,
    uncorrelated, in known dimensions. None when the covariates, fitted in both parts, leave no
    residuals.
    """
    both = np.column_stack([matrix, y])
    free = np.stack([space.project(c.reshape(space.shape)).reshape(-1) for c in both.T], axis=1)
    squares, numbers = [], []
    for part, dimension in ((both - free, space.rank), (free, space.dimension)):
        ours, theirs = part[:, :-1] / np.linalg.norm(matrix, axis=0), part[:, -1]
        U, values, _ = np.linalg.svd(ours, full_matrices=False)
        U = U[:, values > 1e-9]
        squares.append(float(np.sum((theirs - U @ (U.T @ theirs)) ** 2)))
        numbers.append(max(dimension - U.shape[1], 0))
    kept = np.array(numbers) > 0
    if not kept.any():
        return None
    return np.array([0.0, each])[kept], np.array(numbers, float)[kept], np.array(squares)[kept]


def _taken_apart(
    outcome: Outcome, matrix: FloatArray, w: FloatArray, divisor: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """λ and squares of contrasts orthogonal to W½X and to ΣW½X, independent of the coefficients.

    Where these leave nothing, of all contrasts orthogonal to W½X.
    """
    root, n = np.sqrt(w), outcome.values.size
    covariance = outcome.covariance(np.diag(1 / divisor), rounding=False)
    covariance = root[:, None] * covariance * root
    X = matrix * root[:, None]
    X = X / np.linalg.norm(X, axis=0)
    moved = covariance @ X
    moved /= max(float(np.abs(moved).max()), 1e-300)
    y = root * outcome.values / divisor
    for fitted in (np.hstack([X, moved]), X):
        U, values, _ = np.linalg.svd(fitted, full_matrices=True)
        contrasts = U[:, int(np.count_nonzero(values > 1e-9 * values[0])) :]
        if contrasts.shape[1]:
            break
    noise, vectors = np.linalg.eigh(contrasts.T @ covariance @ contrasts)
    noise[noise < 1e-9 * max(float(np.trace(covariance)) / n, 1e-300)] = 0.0
    return np.asarray(noise), np.asarray((vectors.T @ (contrasts.T @ y)) ** 2)
