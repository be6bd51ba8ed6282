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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.noise import DiscreteLaplace, NoiseModel
from subspacedp.release import Design, Release, check_level, checked_weights

__all__ = ["Regression", "regress"]

FloatArray = npt.NDArray[np.float64]

COLLINEAR = 1e-10  # the smallest singular value of X with columns of length one, over the largest


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Regression:
    """Coefficients with standard errors that count the noise, and the naive ones beside them.

    Guarantees
    ----------
    1. If the true outcome is Xβ plus independent errors of equal variance σ² (or σ²/weight), the
       coefficients are unbiased for β, over errors and noise.
    2. `covariance` is σ²(XᵀWX)⁻¹, estimated, plus the known covariance of the noise. Where σ²
       cannot be told from 0, one standard error of its estimate stands for it, and where digits
       were rounded an upper bound: both make the covariance larger, never smaller.
    3. `interval` is asymptotic: Student's t with n − p degrees of freedom.
    4. `naive_stderr` is what least squares states when it takes the release for the truth.
    """

    names: tuple[str, ...]
    coefficients: FloatArray
    covariance: FloatArray
    noise_covariance: FloatArray  # the part of it that the noise makes
    naive_stderr: FloatArray
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
        """Degrees of freedom, n − p."""
        return self.n - len(self.names)

    def interval(
        self, level: float = 0.95, *, naive: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends for every coefficient, by Student's t with n − p degrees of freedom.

        Parameters
        ----------
        level
            The probability that an interval covers its coefficient, about.
        naive
            The interval of somebody who does not know about the noise, to compare.
        """
        from scipy.special import stdtrit

        quantile = float(stdtrit(self.df, (1 + check_level(level)) / 2))
        half = quantile * (self.naive_stderr if naive else self.stderr)
        return self.coefficients - half, self.coefficients + half

    @property
    def pvalues(self) -> FloatArray:
        """Two-sided, against a coefficient of 0."""
        from scipy.special import stdtr

        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(self.coefficients) / self.stderr
        return np.where(np.isnan(t), 1.0, 2 * stdtr(self.df, -np.nan_to_num(t)))

    def columns(self, level: float = 0.95) -> dict[str, npt.NDArray[Any]]:
        """One row a coefficient."""
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
            f"Regression of {self.n:,} released figures; intervals by t with {self.df:,} df",
            *lines,
            f"{sigma}; {self.noise_share:.1%} of the residual variance is noise",
            f"R² {self.r2:.4f} (naive {self.naive_r2:.4f})",
        ]
        return "\n".join(about)


def regress(
    release: Release,
    X: Any,
    *,
    names: Sequence[str] | None = None,
    intercept: bool = True,
    scale: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    figures: npt.ArrayLike | str | Sequence[str] | None = None,
) -> Regression:
    """Regress released figures on public covariates.

    Parameters
    ----------
    release
        The release; its answers are the outcome, in row-major order.
    X
        Public covariates: a matrix with one row a figure, or named columns (a mapping or a
        dataframe).
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
        with one row a figure.

    Returns
    -------
    A `Regression`, with the guarantees stated there.

    Notes
    -----
    With S = diag(1/scale), W = diag(weights) and A = (XᵀWX)⁻¹XᵀW the coefficients are A·S·figures.
    Their covariance is σ²(XᵀWX)⁻¹ + (AS)Σ(AS)ᵀ, the second term by one projection a coefficient. σ²
    is what is left of the residual sum of squares when t = Σ wᵢΣᵢᵢ/scaleᵢ² − tr(XᵀWX·(AS)Σ(AS)ᵀ),
    which the noise adds, is taken off. It is estimated from residuals weighted by how much noise
    they have: those that held totals keep free of noise count most. The rounding of digits, for
    which there are upper bounds, stays out of t, so that they only make errors larger.

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
    >>> found = regress(release, {"men": men})
    >>> found.names, bool(found.stderr[1] > 1.2 * found.naive_stderr[1])
    (('intercept', 'men'), True)
    """
    outcome = _Outcome.of(release, figures)
    n = outcome.values.size
    divisor = _public(scale, n, "scale", positive=False)
    if np.any(divisor == 0):
        raise ReleaseError("`scale` must be different from 0 everywhere.")
    w = _public(weights, n, "weights", positive=True)
    matrix, labels = _covariates(X, n, names, intercept=intercept)
    p = matrix.shape[1]
    if n <= p:
        raise ReleaseError(
            f"A regression needs more figures than coefficients; got {n} figures and {p}."
        )
    gram, A = _solution(matrix, w, labels)
    y = outcome.values / divisor
    beta = A @ y
    rss = float(w @ (y - matrix @ beta) ** 2)
    rows = A / divisor
    noise = outcome.covariance(rows)
    smallest = outcome.covariance(rows, rounding=False)
    spread = float((w / divisor**2) @ outcome.variance())
    added = spread - float(np.sum(gram * smallest))  # t, what the noise adds to RSS
    _known(added)
    sigma2, unsure = _residual_variance(outcome, matrix, w, divisor, labels)
    inverse = np.linalg.inv(gram)
    centre = w @ y / w.sum() if intercept else 0.0
    tss = float(w @ (y - centre) ** 2)
    added_total = spread
    if intercept:
        mean = (w / w.sum() / divisor)[None]
        added_total -= float(w.sum() * outcome.covariance(mean, rounding=False)[0, 0])
    return Regression(
        names=labels,
        coefficients=beta,
        covariance=max(sigma2, unsure) * inverse + noise,
        noise_covariance=noise,
        naive_stderr=np.sqrt(rss / (n - p) * np.diag(inverse)),
        sigma=math.sqrt(max(sigma2, 0.0)),
        truncated=sigma2 < 0,
        noise_share=min(1.0, max(0.0, added / rss)) if rss > 0 else 0.0,
        r2=_share(rss - added, tss - added_total),
        naive_r2=_share(rss, tss),
        n=n,
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _Outcome:
    """Figures of a release, and the covariance of linear combinations of them."""

    design: Design
    plain: Design  # the same without digits: what is certainly noise
    values: FloatArray
    names: tuple[str, ...] | None = None  # of a margin
    rows: FloatArray | None = None  # weights of the answers

    @classmethod
    def of(cls, release: Release, figures: Any) -> _Outcome:
        design = release.design
        plain = design if design.decimals is None else replace(design, decimals=None)
        if figures is None:
            values = np.asarray(release.values, np.float64).reshape(-1)
            return cls(design=design, plain=plain, values=values)
        names = (figures,) if isinstance(figures, str) else figures
        if isinstance(names, Sequence) and names and all(isinstance(v, str) for v in names):
            values = np.asarray(release.margin(*names).values, np.float64).reshape(-1)
            return cls(design=design, plain=plain, values=values, names=tuple(names))
        rows = checked_weights(figures, design.query.shape)
        if rows.shape == design.query.shape:
            raise ReleaseError("`figures` must have one row of weights a figure; got one figure.")
        values = np.tensordot(rows, np.asarray(release.values, np.float64), len(design.query.shape))
        return cls(design=design, plain=plain, values=np.asarray(values), rows=rows)

    def covariance(self, combinations: FloatArray, *, rounding: bool = True) -> FloatArray:
        """The noise covariance of combinations of the figures, one a row."""
        design = self.design if rounding else self.plain
        return design.noise.covariance(np.stack([self._weights(row) for row in combinations]))

    def variance(self) -> FloatArray:
        """The noise variance of every figure, without rounding."""
        if self.names is not None:
            found = self.plain.margin_accuracy(*self.names).stderr ** 2
        elif self.rows is not None:
            found = np.array([self.plain.noise.variance(row) for row in self.rows])
        else:
            found = self.plain.noise.cell_variance()
        return np.asarray(found, np.float64).reshape(-1)

    @property
    def is_cells(self) -> bool:
        """Whether the figures are the answers themselves."""
        return self.names is None and self.rows is None

    @property
    def unevenness(self) -> float:
        """The variance of a squared noise variable in units of its squared variance, at most."""
        law = getattr(self.plain.noise, "law", None)
        return 5 + 1 / law.variance if isinstance(law, DiscreteLaplace) else 2.0

    def _weights(self, row: FloatArray) -> FloatArray:
        """The weights of the answers in a combination of the figures."""
        shape = self.design.query.shape
        if self.rows is not None:
            return np.asarray(np.tensordot(row, self.rows, 1))
        if self.names is None:
            return row.reshape(shape)
        margin = self.design.domain.margin(*self.names)
        return np.array(np.broadcast_to(margin.spread(row.reshape(margin.shape)), shape))


def _residual_variance(
    outcome: _Outcome,
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
        gram, A = _solution(matrix, u, labels)
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
    outcome: _Outcome, matrix: FloatArray, y: FloatArray, each: float
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


def _solution(
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
    if values[-1] <= COLLINEAR * values[0]:
        raise ReleaseError(
            "The covariates are collinear: one of "
            + ", ".join(f"`{name}`" for name in labels)
            + " is a combination of others; leave one out."
        )
    A = np.linalg.solve(R, Q.T) * root / lengths[:, None]
    return weighted.T @ weighted, np.asarray(A)


def _covariates(
    X: Any, n: int, names: Sequence[str] | None, *, intercept: bool
) -> tuple[FloatArray, tuple[str, ...]]:
    """The matrix of covariates, constant first, and the names of its columns."""
    found: list[str] | None = None
    columns = X if isinstance(X, Mapping) else None
    if columns is None and hasattr(X, "columns"):  # a dataframe; pyarrow keeps names elsewhere
        columns = {str(name): X[name] for name in getattr(X, "column_names", X.columns)}
    try:
        if columns is not None:
            found = [str(name) for name in columns]
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
    given = list(names) if names is not None else found
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


def _public(given: npt.ArrayLike | None, n: int, name: str, *, positive: bool) -> FloatArray:
    """Public numbers, one a figure; 1 by default."""
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


def _known(added: float) -> None:
    if not math.isfinite(added):
        raise ReleaseError(
            "The noise of this release was declared without a variance, so nothing can be said "
            "about its errors."
        )


def _share(residual: float, total: float) -> float:
    """R² from sums of squares; not a number when there is nothing to explain."""
    return min(1.0, max(0.0, 1 - residual / total)) if total > 0 else math.nan
