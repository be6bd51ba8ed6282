"""Statistical tests with proven error rates, at one threshold.

`ALPHA` bounds both errors of every test here: the right law is rejected (p < ALPHA) with
probability at most ALPHA, and with the computed sample size the named wrong law is accepted with
probability at most ALPHA. So any seed will do, and nothing is ever tried twice.

Goodness of fit is the likelihood-ratio test on bins, with finite-sample bounds instead of limits:

* level: P(D(p̂‖p) ≥ x/n) ≤ e^{-x} (e·x/(k − 1))^{k−1} for x > k − 1 (Agrawal 2020, IEEE Trans. Inf.
  Theory 66(10), Theorem I.2), for n draws in k bins and any masses p;
* power: the laws accepted form a convex set A, so P_q(p̂ ∈ A) ≤ exp(−n·min_{a∈A} D(a‖q)) (Sanov's
  bound for convex sets, Csiszár 1984), and the minimum lies on the path a ∝ p^{1−t} q^t.

Moments are compared by a z-test. Its normal limit is used at z ≈ 6, where Cramér's correction is a
factor exp(skewness·z³/6√n); the sample sizes keep it within a factor of about two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import ctx
from scipy import optimize, stats

from subspacedp.noise import DiscreteGaussian, DiscreteLaplace, RoundedGaussian

ALPHA = 1e-9
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Halves of the distribution at these levels and their mirrors: fine in the tails, where a wrong
# scale shows most.
LEVELS = (2.0**-9, 2.0**-7, 2.0**-5, 2.0**-4, 0.125, 0.25, 0.375)


# ---------------------------------------------------------------------------------- goodness of fit


def p_value(counts: npt.ArrayLike, masses: npt.ArrayLike) -> float:
    """A p-value of counts in bins against the bins' masses: P(p ≤ a) ≤ a for every a."""
    n_of, p = np.asarray(counts, np.float64).ravel(), np.asarray(masses, np.float64).ravel()
    n = n_of.sum()
    if np.any(n_of[p == 0]):
        return 0.0
    seen = n_of > 0
    statistic = float(np.sum(n_of[seen] * np.log(n_of[seen] / (n * p[seen]))))  # n·D(p̂‖p)
    return math.exp(-_excess(statistic, len(p)))


def _excess(statistic: float, bins: int) -> float:
    """Minus the logarithm of the bound on P(n·D ≥ statistic)."""
    d = bins - 1
    return statistic - d * (1 + math.log(statistic / d)) if statistic > d else 0.0


def critical(bins: int) -> float:
    """The statistic n·D(p̂‖p) whose p-value is ALPHA."""
    wanted = math.log(1 / ALPHA)
    return float(optimize.brentq(lambda x: _excess(x, bins) - wanted, bins, bins + 1000 * wanted))


def sample_size(null: npt.ArrayLike, truth: npt.ArrayLike) -> int:
    """The draws of `truth` after which `null` is rejected, except with probability ALPHA."""
    p, q = np.asarray(null, np.float64).ravel(), np.asarray(truth, np.float64).ravel()
    both = (p > 0) & (q > 0)
    p, q = p[both] / p[both].sum(), q[both] / q[both].sum()
    x, wanted = critical(len(p)), math.log(1 / ALPHA)

    def between(t: float) -> FloatArray:
        a = p ** (1 - t) * q**t
        return a / a.sum()

    def enough(n: int) -> bool:
        if divergence(q, p) <= x / n:
            return False
        t = optimize.brentq(lambda t: divergence(between(t), p) - x / n, 0.0, 1.0, xtol=1e-14)
        return n * divergence(between(t), q) >= wanted

    high = 1024
    while not enough(high):
        high *= 2
        if high > 1 << 30:
            raise ValueError("these two laws are too near each other to be told apart")
    low = high // 2
    while high - low > high // 100 + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def divergence(a: FloatArray, b: FloatArray) -> float:
    """D(a‖b) in nats."""
    seen = a > 0
    return float(np.sum(a[seen] * np.log(a[seen] / b[seen])))


# ------------------------------------------------------------------------------------ integer laws


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of the integers: up to and including each edge, and what is above the last."""

    edges: IntArray

    @classmethod
    def of(cls, law) -> Bins:
        """Bins at round levels of a symmetric law."""
        below = {_quantile(law, level) for level in LEVELS}
        return cls(np.array(sorted({*below, *(-1 - z for z in below)})))

    def masses(self, law) -> FloatArray:
        """The exact mass of every bin, to the last digit of a float."""
        with ctx.workprec(256):
            cdf = [law.cdf(int(z))() for z in self.edges]
            steps = [b - a for a, b in zip([0, *cdf], [*cdf, 1], strict=True)]
            return np.array([float(step) for step in steps])

    def count(self, values: npt.ArrayLike) -> IntArray:
        """How many values fall in every bin."""
        place = np.searchsorted(self.edges, np.asarray(values).ravel(), side="left")
        return np.bincount(place, minlength=len(self.edges) + 1)


def _quantile(law, level: float) -> int:
    low, high = -1, 0  # F(high) ≥ level for every level below one half
    while float(law.cdf(low)()) >= level:
        low *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if float(law.cdf(middle)()) >= level else (middle, high)
    return high


def fits(values: npt.ArrayLike, law) -> float:
    """The p-value of draws against an integer law."""
    bins = Bins.of(law)
    return p_value(bins.count(values), bins.masses(law))


def rescaled(law, factor: float):
    """The law of the same family with its scale times `factor`."""
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(law.rate / Fraction(factor))
    if isinstance(law, DiscreteGaussian):
        return DiscreteGaussian(law.sigma_squared * Fraction(factor) ** 2)
    return RoundedGaussian(law.sigma * factor)


def draws_to_tell(law, factor: float = 1.05) -> int:
    """The draws of a law after which its neighbours in scale, on both sides, are rejected."""
    wrong = (rescaled(law, factor), rescaled(law, 1 / factor))
    bins = [Bins.of(other) for other in wrong]
    return max(
        sample_size(b.masses(other), b.masses(law)) for b, other in zip(bins, wrong, strict=True)
    )


# ------------------------------------------------------------------------- moments and proportions


def z_limit() -> float:
    """The |z| beyond which a two-sided p-value is below ALPHA."""
    return float(stats.norm.isf(ALPHA / 2))


def mean_p(values: npt.ArrayLike, expected: npt.ArrayLike) -> Any:
    """The two-sided p-value of a mean, by its z-score; of each column's mean for a matrix."""
    v = np.asarray(values, np.float64)
    spread = v.std(axis=0, ddof=1) / math.sqrt(len(v))
    off = np.abs(v.mean(axis=0) - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(off == 0, 0.0, off / spread)
    return 2 * stats.norm.sf(z)


def replicates_for_variance(kurtosis: float, off: float = 0.05) -> int:
    """Replicates after which a variance off by a share `off` is rejected, except with ALPHA.

    The square of a variable with kurtosis κ has standard deviation V√(κ − 1).
    """
    both = z_limit() + float(stats.norm.isf(ALPHA))
    return math.ceil((both * (1 + off) / off) ** 2 * (kurtosis - 1))


def kurtosis(law) -> float:
    """E Z⁴ / (E Z²)² of a symmetric integer law; a weighted sum of draws has at most as much."""
    z = np.arange(-int(45 * law.scale) - 5, int(45 * law.scale) + 6)
    cdf = np.array([float(law.cdf(int(k))()) for k in range(z[0] - 1, 1)])
    below = np.diff(cdf)  # masses of z[0] … 0; the upper half by symmetry, without cancellation
    mass = np.concatenate([below, below[-2::-1]])
    second, fourth = float(np.sum(mass * z**2)), float(np.sum(mass * z.astype(np.float64) ** 4))
    return fourth / second**2


def proportion_bounds(hits: int, trials: int) -> tuple[float, float]:
    """Clopper-Pearson bounds, each of which holds except with probability ALPHA."""
    low = stats.beta.ppf(ALPHA, hits, trials - hits + 1) if hits else 0.0
    high = stats.beta.isf(ALPHA, hits + 1, trials - hits) if hits < trials else 1.0
    return float(low), float(high)
