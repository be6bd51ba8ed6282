"""Tests that know the noise: their level counts what privacy added to the data.

Two kinds of null hypothesis. About the *confidential figures* themselves the only randomness is the
noise, whose law is public: p-values are exact, or proven bounds. About the *population* behind the
counts there is sampling too: p-values are asymptotic, with the noise covariance in the variance, or
from replicates that draw counts and noise anew. Derivations: `docs/proofs/inference-tests.md`.
"""

# ruff: noqa: PT028 - functions named test_* of a library, with defaults; not tests of pytest

from __future__ import annotations

import math

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.inference.results import (
    TestResult,
    check_counts,
    check_estimates,
    check_variance,
    no_test,
    scaled_tail,
)
from subspacedp.mechanisms.error_laws import SumLaw
from subspacedp.mechanisms.estimates import Estimate
from subspacedp.mechanisms.figures import checked_weights
from subspacedp.release import Published

__all__ = ["test_equal", "test_value"]


MIN_POISSON_VARIANCE = 8.0  # of a difference of cells, for the normal approximation

EXACT = "the exact law of the noise"
HOW = {
    "exact": EXACT,
    "smeared": "the law of the noise, conservative by at most 0.6 % of a standard error",
    "simulated": "draws of the noise with a public key, with room for the error of simulation",
    "conservative": "a proven bound on the law of the noise",
    "Chebyshev": "Chebyshev's inequality: only the variance of the noise is known",
}


# ------------------------------------------------------------------ about the confidential figures


@no_test
def test_value(release: Published, figure: ArrayLike | Estimate, value: float) -> TestResult:
    """Test that the true figure equals a value.

    Parameters
    ----------
    release
        The release.
    figure
        Weights of the answers, or one figure that `release.estimate` or `release.margin` gave.
    value
        What the confidential figure is under the null.

    Guarantees
    ----------
    1. Under the null P(p-value ≤ a) ≤ a for every a, over the noise, whatever the data: the p-value
       is a tail of the law of the noise. Equality, up to the steps of a lattice, where nothing
       was rounded.
    2. A figure that the invariants fix has the p-value 1 or 0: it is published exactly.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
    >>> release = mechanism.release(sdp.Table([[30, 20], [10, 40]], domain), seed=1)
    >>> result = test_value(release, release.where(sex="F"), 40)
    >>> result.method, round(result.statistic, 3), result.pvalue > 0.2
    ('the exact law of the noise', -1.25, True)
    >>> test_value(release, release.where(age="old"), 50).pvalue
    1.0
    """
    if isinstance(figure, Estimate):
        if figure.values.size != 1:
            raise ReleaseError(
                f"One figure is tested at a time; this estimate has {figure.values.size:,}."
            )
        estimate, size = float(figure.values.reshape(-1)[0]), 0.0
        stderr = float(np.reshape(figure.stderr, -1)[0])
        law = figure.figures.law(int(figure.figures.classes().reshape(-1)[0]))
    else:
        w = _one_figure(release, figure)
        estimate, size = _weighted(release, w)
        stderr, law = math.sqrt(release.noise.variance(w)), release.noise.law_of(w)
    wanted = _number(value)
    null = f"the true figure is {wanted:,.10g}"
    return _against_noise(estimate - wanted, max(size, abs(estimate), 1.0), stderr, law, null)


@no_test
def test_equal(
    release: Published, first: ArrayLike, second: ArrayLike, *, sampling: str = "none"
) -> TestResult:
    """Test that two figures are equal.

    Parameters
    ----------
    release
        The release, or several combined.
    first, second
        Weights of the answers; `release.where(...)` gives those of a group.
    sampling
        "none": the null is that the two confidential figures are equal. "poisson": that their
        expectations are, for cells with independent Poisson counts.

    Guarantees
    ----------
    1. "none": that of `test_value`.
    2. "poisson": the level is asymptotic, for differences large enough to be nearly normal. It is
       the same when a sum of cells is held: given n = a + b the difference a − b has variance n
       under the null, and n is then known exactly.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
    >>> release = mechanism.release(sdp.Table([[30, 20], [10, 40]], domain), seed=1)
    >>> cell = {"age": "old"}
    >>> women, men = release.where(sex="F", **cell), release.where(sex="M", **cell)
    >>> test_equal(release, women, men).pvalue < test_equal(
    ...     release, women, men, sampling="poisson"
    ... ).pvalue < 0.01
    True
    """
    if sampling not in ("none", "poisson"):
        raise ReleaseError(f"`sampling` must be 'none' or 'poisson'; got {sampling!r}.")
    w = _one_figure(release, first) - _one_figure(release, second)
    difference, size = _weighted(release, w)
    joint = release.noise
    noise = joint.variance(w)
    if sampling == "none":
        law = joint.law_of(w)
        null = "the two true figures are equal"
        return _against_noise(difference, max(size, 1.0), math.sqrt(noise), law, null)
    check_counts(release.query)
    check_variance(noise)
    values = np.asarray(release.values, np.float64)
    sampled = float(np.vdot(w * w, values))  # Var(w·n) = Σ w²λ, estimated
    variance = noise + max(0.0, sampled)
    if variance < MIN_POISSON_VARIANCE * float(np.abs(w).max(initial=0.0)) ** 2:
        raise ReleaseError(
            "The two figures have too few people for a Poisson test; `sampling='none'` tests the "
            "confidential figures themselves."
        )
    statistic, fourth = 0.0, 0.0
    if variance > 0:
        statistic = difference**2 / variance
        fourth = float(np.sum(joint.fourth_roots(w) ** 4)) / variance**2
    pvalue, how = scaled_tail(statistic, 1, fourth)
    return TestResult(
        statistic=statistic,
        df=1,
        pvalue=pvalue,
        null="the expectations behind two independent Poisson figures are equal",
        method=f"{how}; variance: Poisson, estimated, plus that of the noise",
    )


def _against_noise(
    difference: float, size: float, stderr: float, law: SumLaw, null: str
) -> TestResult:
    """|difference| against the law of the noise; `size` is that of the numbers it came from."""
    slack = 1e-12 * size  # what float64 may have done to a sum of published values
    if stderr == 0:
        equal = abs(difference) <= slack
        return TestResult(
            statistic=0.0 if equal else math.copysign(math.inf, difference),
            df=None,
            pvalue=1.0 if equal else 0.0,
            null=null,
            method="no noise: the invariants fix the figure, and it is published exactly",
        )
    return TestResult(
        statistic=difference / stderr,
        df=None,
        pvalue=law.tail(abs(difference) - slack),
        null=null,
        method=HOW.get(law.method, law.method),
    )


def _one_figure(release: Published, weights: ArrayLike) -> FloatArray:
    check_estimates(release, "A test")
    if isinstance(weights, Estimate):
        raise ReleaseError("Give the weights of a figure; an estimate has forgotten its own.")
    w = checked_weights(weights, release.values.shape)
    if w.shape != release.values.shape:
        raise ReleaseError(f"One figure is tested at a time; got weights of {len(w)}.")
    return w


def _weighted(release: Published, w: FloatArray) -> tuple[float, float]:
    """Σ wᵢ·answerᵢ and Σ |wᵢ·answerᵢ|."""
    terms = w * np.asarray(release.values, np.float64)
    return float(terms.sum()), float(np.abs(terms).sum())


def _number(value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ReleaseError(f"`value` must be a finite number; got {value!r}.")
    return number
