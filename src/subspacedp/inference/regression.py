"""Least squares on a released outcome: standard errors that know the noise.

Noise of mean zero in the outcome leaves the coefficients unbiased. What it does to their standard
errors depends on the invariants and the scale: noise is correlated within held groups, and unequal
when counts are divided by unequal populations, so the residual variance alone says little about the
noise in a coefficient. Its covariance is public, and so it is put in as it is. Derivation:
`docs/proofs/inference-tests.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.combination import Combined
from subspacedp.inference.covariates import covariates, public_numbers, solution
from subspacedp.inference.outcome import Outcome
from subspacedp.inference.residual_variance import ResidualSpread, residual_spread
from subspacedp.inference.results import sum_excess
from subspacedp.mechanisms.estimates import check_level
from subspacedp.release import Release

__all__ = ["Regression", "regress"]

FloatArray = npt.NDArray[np.float64]


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
    spread: ResidualSpread  # what the residuals tell about σ²
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
        """Lower and upper ends for every coefficient.

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
            f"Regression of {self.n:,} released figures; intervals count the noise and how well "
            "σ² is known",
            *lines,
            f"{sigma}; {self.noise_share:.1%} of the residual variance is noise",
            f"R² {self.r2:.4f} (naive {self.naive_r2:.4f})",
        ]
        return "\n".join(about)


def regress(
    release: Release | Combined,
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
        The release, or several combined; the answers are the outcome, in row-major order.
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
    which the noise adds, is taken off. It is estimated by residual maximum likelihood, from
    contrasts that are independent of the coefficients: those that held totals keep free of noise
    count most. The rounding of digits, for which there are upper bounds, stays out of t, so that
    they only make errors larger.

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
    _known(added)
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


def _known(added: float) -> None:
    if not math.isfinite(added):
        raise ReleaseError(
            "The noise of this release was declared without a variance, so nothing can be said "
            "about its errors."
        )


def _share(residual: float, total: float) -> float:
    """R² from sums of squares; not a number when there is nothing to explain."""
    return min(1.0, max(0.0, 1 - residual / total)) if total > 0 else math.nan
