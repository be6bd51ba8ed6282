"""Least squares on a released outcome: standard errors that know the noise.

Noise of mean zero in the outcome leaves the coefficients unbiased. What it does to their standard
errors depends on the invariants and the scale: noise is correlated within held groups, and unequal
when counts are divided by unequal populations, so the residual variance alone says little about the
noise in a coefficient. Its covariance is public, and so it is put in as it is. Derivation:
`docs/proofs/inference-tests.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference.hypotheses import (
    check_estimates,
    noise_without_rounding,
    sum_excess,
)
from subspacedp.invariants import NullSpace
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.error_laws.sums import check_variance
from subspacedp.mechanisms.estimates import check_level
from subspacedp.mechanisms.figures import checked_weights
from subspacedp.queries import Query
from subspacedp.release import PublishedValues
from subspacedp.tables import Margin

MIN_SINGULAR_RATIO = 1e-10  # of X with columns of length one: smallest singular value over largest

MAX_DENSE_FIGURES = 800  # figures whose covariance is taken apart
MAX_COVARIANCE_WEIGHTS = 2**25  # figures × answers, where covariances are matrices
SIGMA_POINTS = 160  # values of σ² that are averaged over
MIN_GAMMA_SHAPE = 0.05  # of the law of the variance of noise
MIN_PVALUE = 1e-12  # less than this is not told apart
NORMAL_FROM_SHAPE = 100.0  # from this shape on noise is normal


@frozen(eq=False, repr=False, kw_only=True)
class Regression:
    """Coefficients with standard errors that count the noise, and the naive ones beside them.

    Guarantees
    ----------
    1. If the true outcome is Xβ plus independent errors of equal variance σ² (or σ²/weight), the
       coefficients are unbiased for β, over errors and noise.
    2. `covariance` is σ²(XᵀWX)⁻¹, estimated, plus the known covariance of the noise. Where σ²
       cannot be told from 0, one standard error of its estimate stands for it, and under
       controlled rounding an upper bound: both make the covariance larger, never smaller.
    3. `interval` averages over the likelihood of σ², with the public variance and kurtosis of the
       noise: Student's t with n − p degrees of freedom where there is none, and with only as many
       as there are residuals free of noise where σ² is far below it. Approximate; for normal errors
       and noise, 95 % intervals cover at least 94.8 % whatever σ² (computed for up to 2,000
       residuals, and simulated with the noise of the mechanisms).
    4. `naive_stderr` is what least squares states when it takes the release for the truth.
    """

    names: tuple[str, ...]
    coefficients: FloatArray
    covariance: FloatArray
    noise_covariance: FloatArray  # the part of it that the noise makes
    naive_stderr: FloatArray
    spread: ResidualSpread  # what the residuals say of σ²
    shares: FloatArray  # of σ² in the variance of every coefficient
    excess: FloatArray  # the excess kurtosis of the noise in every coefficient
    sigma: float
    truncated: bool  # whether the noise explains more than all residuals, so that sigma is 0
    noise_share: float
    r2: float
    naive_r2: float
    n: int

    @property
    def stderr(self) -> FloatArray:
        """Standard errors: errors of the outcome and noise together."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def df(self) -> int:
        """Degrees of freedom of the naive regression, n − p."""
        return self.n - len(self.names)

    def interval(
        self, level: float = 0.95, *, naive: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper limits for every coefficient.

        Parameters
        ----------
        level
            The probability that an interval covers its coefficient, about.
        naive
            The interval of somebody who does not know about the noise, to compare: Student's t.
        """
        alpha = 1 - check_level(level)
        if naive:
            from scipy.special import stdtrit

            half = float(stdtrit(self.df, 1 - alpha / 2)) * self.naive_stderr
        else:
            half = np.array([self.spread.margin_of_error(alpha, *each) for each in self._laws])
        return self.coefficients - half, self.coefficients + half

    @property
    def _laws(self) -> list[tuple[float, float, float]]:
        """The share of σ², the variance of the noise and its kurtosis, for every coefficient."""
        known = np.diag(self.noise_covariance)
        return list(zip(self.shares.tolist(), known.tolist(), self.excess.tolist(), strict=True))

    @property
    def pvalues(self) -> FloatArray:
        """Two-sided, against a coefficient of 0."""
        sizes = np.abs(self.coefficients).tolist()
        pairs = zip(sizes, self._laws, strict=True)
        return np.array([self.spread.tail(size, *each) for size, each in pairs])

    def columns(self, level: float = 0.95) -> dict[str, AnyArray]:
        """One row per coefficient."""
        lower, upper = self.interval(level)
        return {
            "name": np.asarray(self.names),
            "coefficient": self.coefficients,
            "stderr": self.stderr,
            "naive_stderr": self.naive_stderr,
            "lower": lower,
            "upper": upper,
        }

    def __repr__(self) -> str:
        columns = self.columns()
        heads = ["", "coefficient", "std. error", "naive s.e.", "95 % from", "to"]
        rows = [
            [str(name), *(f"{v:.5g}" for v in row)]
            for name, *row in zip(*columns.values(), strict=True)
        ]
        widths = [max(len(line[j]) for line in [heads, *rows]) for j in range(len(heads))]
        lines = [
            "  ".join(
                cell.ljust(w) if j == 0 else cell.rjust(w)
                for j, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in [heads, *rows]
        ]
        sigma = f"residual standard deviation {self.sigma:.5g} without the noise"
        if self.truncated:
            sigma = "the noise explains all residuals: what else they hold cannot be told from 0"
        about = [
            f"Regression of {self.n:,} released figures; intervals count the noise and how well "
            "σ² is known",
            *lines,
            f"{sigma}; {self.noise_share:.1%} of the residual variance is noise",
            f"R² {self.r2:.4f} (naive {self.naive_r2:.4f})",
        ]
        return "\n".join(about)


def regress(
    release: PublishedValues,
    X: Any,
    *,
    names: Sequence[str] | None = None,
    intercept: bool = True,
    scale: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    figures: ArrayLike | str | Sequence[str] | None = None,
) -> Regression:
    """Regress released figures on public covariates.

    Parameters
    ----------
    release
        The release, or several combined; the answers are the outcome, in row-major order.
    X
        Public covariates: a matrix with one row per figure, or named columns (a mapping or
        a dataframe).
    names
        Of the columns of a matrix.
    intercept
        Whether a constant is fitted too.
    scale
        Public numbers that the figures are divided by, such as populations, to make rates.
    weights
        For weighted least squares: the error of the outcome has variance σ²/weight.
    figures
        What the outcome is, if not the answers: level names of a margin, or weights of the answers
        with one row per figure.

    Returns
    -------
    A `Regression`, with the guarantees stated there.

    Notes
    -----
    With S = diag(1/scale), W = diag(weights) and A = (XᵀWX)⁻¹XᵀW the coefficients are A·S·figures.
    Their covariance is σ²(XᵀWX)⁻¹ + (AS)Σ(AS)ᵀ, the second term by one projection per coefficient.
    σ² is what is left of the residual sum of squares when t, which the noise adds, is taken off:
    t = Σ wᵢΣᵢᵢ/scaleᵢ² − tr(XᵀWX·(AS)Σ(AS)ᵀ). It is estimated by residual maximum likelihood, from
    contrasts that are independent of the coefficients: those that held totals keep free of noise
    count most. Controlled rounding, for which there are upper bounds, stays out of t, so that it
    only makes errors larger.

    When noise is independent and equal for all figures, the naive standard errors are right too.
    They are wrong when totals are held (a county's two sexes, of a held county total, have opposite
    noise: the naive standard error of a difference between sexes is too small by up to √2, that of
    a covariate of counties too large), and when scales are unequal.

    Examples
    --------
    >>> import numpy as np, subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("county", range(50)), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("county"), sdp.PureDP(0.05))
    >>> counts = np.random.default_rng(1).poisson(500, (50, 2))
    >>> release = mechanism.release(sdp.Table(counts, domain), seed=1)
    >>> men = np.tile([0.0, 1.0], 50)
    >>> fitted = regress(release, {"men": men})
    >>> fitted.names, bool(fitted.stderr[1] > 1.2 * fitted.naive_stderr[1])
    (('intercept', 'men'), True)
    """
    outcome = Outcome.of(release, figures)
    n = outcome.values.size
    divisor = public_numbers(scale, n, "scale", positive=False)
    if np.any(divisor == 0):
        raise ReleaseError("`scale` must be different from 0 everywhere.")
    w = public_numbers(weights, n, "weights", positive=True)
    matrix, labels = covariates(X, n, names, intercept=intercept)
    p = matrix.shape[1]
    if n <= p:
        raise ReleaseError(
            f"A regression needs more figures than coefficients; got {n} figures and {p}."
        )
    gram, A = solution(matrix, w, labels)
    y = outcome.values / divisor
    beta = A @ y
    rss = float(w @ (y - matrix @ beta) ** 2)
    rows = A / divisor
    noise = outcome.covariance(rows)
    smallest = outcome.covariance(rows, rounding=False)
    in_figures = float((w / divisor**2) @ outcome.variance())
    added = in_figures - float(np.sum(gram * smallest))  # t, what the noise adds to RSS
    check_variance(added)
    spread = residual_spread(outcome, matrix, w, divisor, labels)
    sigma2 = spread.sigma2
    inverse = np.linalg.inv(gram)
    centre = w @ y / w.sum() if intercept else 0.0
    tss = float(w @ (y - centre) ** 2)
    added_total = in_figures
    if intercept:
        mean = (w / w.sum() / divisor)[None]
        added_total -= float(w.sum() * outcome.covariance(mean, rounding=False)[0, 0])
    return Regression(
        names=labels,
        coefficients=beta,
        covariance=max(sigma2, spread.unsure) * inverse + noise,
        noise_covariance=noise,
        spread=spread,
        shares=np.diag(inverse).copy(),
        excess=np.array([sum_excess(outcome.plain, outcome.weights(row)) for row in rows]),
        naive_stderr=np.sqrt(rss / (n - p) * np.diag(inverse)),
        sigma=math.sqrt(max(sigma2, 0.0)),
        truncated=sigma2 < 0,
        noise_share=min(1.0, max(0.0, added / rss)) if rss > 0 else 0.0,
        r2=_share(rss - added, tss - added_total),
        naive_r2=_share(rss, tss),
        n=n,
    )


def _share(residual: float, total: float) -> float:
    """R² from sums of squares; not a number when there is nothing to explain."""
    return min(1.0, max(0.0, 1 - residual / total)) if total > 0 else math.nan


@frozen(eq=False, repr=False, kw_only=True)
class Outcome:
    """Figures of a release, and the covariance of linear combinations of them."""

    query: Query
    noise: JointNoise
    plain: JointNoise  # the same without rounding: what is certainly noise
    values: FloatArray
    margin: Margin | None = None  # whose totals the figures are
    rows: FloatArray | None = None  # weights of the answers

    @classmethod
    def of(cls, release: PublishedValues, figures: Any) -> Outcome:
        """The answers of a release, or the given figures of it."""
        check_estimates(release, "A regression")
        plain = noise_without_rounding(release)
        make = partial(cls, query=release.query, noise=release.noise, plain=plain)
        if figures is None:
            values = np.asarray(release.values, np.float64).reshape(-1)
            return make(values=values)
        names = (figures,) if isinstance(figures, str) else figures
        if isinstance(names, Sequence) and names and all(isinstance(v, str) for v in names):
            values = np.asarray(release.margin(*names).values, np.float64).reshape(-1)
            return make(values=values, margin=release.domain.margin(*names))
        shape = release.query.shape
        rows = checked_weights(figures, shape)
        if rows.shape == shape:
            raise ReleaseError("`figures` must have one row of weights per figure; got one figure.")
        values = np.tensordot(rows, np.asarray(release.values, np.float64), len(shape))
        return make(values=np.asarray(values), rows=rows)

    def covariance(self, combinations: FloatArray, *, rounding: bool = True) -> FloatArray:
        """The noise covariance of combinations of the figures, one per row."""
        noise = self.noise if rounding else self.plain
        return noise.covariance(np.stack([self.weights(row) for row in combinations]))

    def variance(self) -> FloatArray:
        """The noise variance of every figure, without rounding."""
        if self.is_cells:
            return np.asarray(self.plain.cell_variance(), np.float64).reshape(-1)
        n = self.values.size
        units = (np.eye(1, n, i)[0] for i in range(n))
        return np.array([self.plain.variance(self.weights(unit)) for unit in units])

    @property
    def is_cells(self) -> bool:
        """Whether the figures are the answers themselves."""
        return self.margin is None and self.rows is None

    def weights(self, row: FloatArray) -> FloatArray:
        """The weights of the answers in a combination of the figures."""
        if self.rows is not None:
            return np.asarray(np.tensordot(row, self.rows, 1))
        if self.margin is None:
            return row.reshape(self.query.shape)
        return self.query.indicator(self.margin, row)


def covariates(
    X: Any, n: int, names: Sequence[str] | None, *, intercept: bool
) -> tuple[FloatArray, tuple[str, ...]]:
    """The matrix of covariates, constant first, and the names of its columns."""
    named: list[str] | None = None
    columns = X if isinstance(X, Mapping) else None
    if columns is None and hasattr(X, "columns"):  # a dataframe; pyarrow keeps names elsewhere
        columns = {str(name): X[name] for name in getattr(X, "column_names", X.columns)}
    try:
        if columns is not None:
            named = [str(name) for name in columns]
            parts = [np.asarray(column, np.float64) for column in columns.values()]
            matrix = np.stack(parts, axis=1) if parts else np.zeros((n, 0))
        else:
            matrix = np.asarray(X, np.float64)
            matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    except (TypeError, ValueError):
        raise ReleaseError("The covariates must be columns of numbers of equal length.") from None
    if matrix.ndim != 2 or matrix.shape[0] != n:
        raise ReleaseError(
            f"The covariates must have one row for each of {n:,} figures; got the shape "
            f"{matrix.shape}."
        )
    if not np.all(np.isfinite(matrix)):
        raise ReleaseError("The covariates must be finite numbers.")
    given = list(names) if names is not None else named
    labels = given or [f"x{j + 1}" for j in range(matrix.shape[1])]
    if len(labels) != matrix.shape[1]:
        raise ReleaseError(
            f"`names` must name the {matrix.shape[1]} covariates; got {len(labels)} names."
        )
    if intercept:
        matrix, labels = np.column_stack([np.ones(n), matrix]), ["intercept", *labels]
    if not labels:
        raise ReleaseError("A regression needs a covariate or an intercept.")
    return matrix, tuple(map(str, labels))


def public_numbers(given: ArrayLike | None, n: int, name: str, *, positive: bool) -> FloatArray:
    """Public numbers, one per figure; 1 by default."""
    if given is None:
        return np.ones(n)
    try:
        out = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ReleaseError(f"`{name}` must be numbers.") from None
    out = np.full(n, float(out)) if out.ndim == 0 else out.reshape(-1)
    if out.size != n:
        raise ReleaseError(
            f"`{name}` must have one number for each of {n:,} figures; got {out.size:,}."
        )
    if not np.all(np.isfinite(out)) or (positive and np.any(out <= 0)):
        raise ReleaseError(f"`{name}` must be {'positive' if positive else 'finite'} numbers.")
    return out


def solution(
    matrix: FloatArray, w: FloatArray, labels: tuple[str, ...]
) -> tuple[FloatArray, FloatArray]:
    """XᵀWX, and A = (XᵀWX)⁻¹XᵀW by the QR decomposition of W½X with columns of length one."""
    root = np.sqrt(w)
    weighted = matrix * root[:, None]
    lengths = np.sqrt(np.sum(weighted**2, axis=0))
    if np.any(lengths == 0):
        zero = labels[int(np.argmin(lengths))]
        raise ReleaseError(f"The covariate `{zero}` is 0 everywhere; leave it out.")
    Q, R = np.linalg.qr(weighted / lengths)
    values = np.linalg.svd(R, compute_uv=False)
    if values[-1] <= MIN_SINGULAR_RATIO * values[0]:
        raise ReleaseError(
            "The covariates are collinear: one of "
            + ", ".join(f"`{name}`" for name in labels)
            + " is a combination of others; leave one out."
        )
    A = np.linalg.solve(R, Q.T) * root / lengths[:, None]
    return weighted.T @ weighted, np.asarray(A)


@frozen(eq=False, repr=False)
class ResidualSpread:
    """What the residuals say of σ²: sums of squares of independent contrasts.

    Residual contrasts that are uncorrelated with the coefficients are independent, of variance
    σ² + λ: σ² is unknown and λ, the part of the noise, is public. All that is known of σ² is their
    likelihood. An interval for a coefficient averages over it, which is Student's t where there is
    no noise. Derivation and choice of the weight of small σ²: `docs/proofs/inference-tests.md`.

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
        scales = [x for x in (without, typical, seen) if x > 0]
        low, high = math.log(1e-6 * min(scales)), math.log(1e9 * max(scales))
        for _ in range(3):  # ever closer to where the weight is
            logs = np.linspace(low, high, SIGMA_POINTS)
            sigma2 = np.exp(logs)
            variance = sigma2[:, None] + self.noise
            log = -0.5 * (np.log(variance) @ numbers + (squares / variance).sum(axis=1))
            # The weight σ(σ² + λ)^(−3/2) dσ²; without noise dσ²/σ², which is Student's t.
            log += 1.5 * (logs - np.log(sigma2 + typical))
            log -= log.max()
            inside = np.flatnonzero(log > -30)
            first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, SIGMA_POINTS - 1)
            low, high = float(logs[first]), float(logs[last])
        weights = np.exp(log)
        return sigma2, weights / weights.sum()

    def tail(self, distance: float, share: float, known: float, excess: float) -> float:
        """P(|β̂ − β| ≥ distance) for a coefficient of variance share·σ² + known.

        `excess` is the excess kurtosis of its noise: Laplace noise is normal noise of random
        variance, and a gamma law with the right mean and variance stands for that variance.
        """
        return max(MIN_PVALUE, _beyond(distance, *self._mixture(share, known, excess)))

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
    if excess <= 3 / NORMAL_FROM_SHAPE:
        return np.ones(1), np.ones(1)
    from scipy.special import roots_genlaguerre

    shape = max(3 / excess, MIN_GAMMA_SHAPE)
    points, weights = roots_genlaguerre(16, shape - 1)
    return points / shape, weights / weights.sum()


def residual_spread(
    outcome: Outcome,
    matrix: FloatArray,
    w: FloatArray,
    divisor: FloatArray,
    labels: tuple[str, ...],
) -> ResidualSpread:
    """What the residuals say of σ², the outcome having errors of variance σ²/w."""
    noise = outcome.plain
    excess = noise.excess
    equal = np.all(w == w[0]) and np.all(divisor == divisor[0])
    space = noise.null_space if outcome.is_cells else None
    if space is not None and noise.uniform and equal:
        factor = float(w[0])
        split = _from_parts(
            space, matrix, outcome.values / divisor[0], noise.each / float(divisor[0]) ** 2
        )
        if split is not None:
            values, numbers, squares = split
            return ResidualSpread(factor * values, numbers, factor * squares, excess)
    n = outcome.values.size
    if n <= MAX_DENSE_FIGURES and n * outcome.query.size <= MAX_COVARIANCE_WEIGHTS:
        values, squares = _taken_apart(outcome, matrix, w, divisor)
        return ResidualSpread(values, np.ones(values.size), squares, excess)
    _, A = solution(matrix, w, labels)
    y = outcome.values / divisor
    squares = w * (y - matrix @ (A @ y)) ** 2
    # Errors within held groups repeat each other: as many count as the noise has dimensions.
    dimensions = noise.dimension(n) if outcome.is_cells else n
    share = min(1.0, max(dimensions, 1) / n)
    left = (n - matrix.shape[1]) / n
    noise_variance = w * outcome.variance() / divisor**2
    return ResidualSpread(noise_variance, np.full(n, share * left), share * squares, excess)


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
