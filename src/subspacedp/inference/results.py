"""The result of a test, and the pieces that all tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np

from subspacedp.arrays import FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.queries import Query
from subspacedp.release import PublishedValues, Release

Function = TypeVar("Function", bound=Callable[..., object])


@frozen
class TestResult:
    """The result of a test.

    Parameters
    ----------
    statistic
        The test statistic; (estimate − value)/standard error, or a quadratic form.
    df
        Degrees of freedom of a chi-square statistic; None otherwise.
    pvalue
        The probability, under the null, of a statistic at least as extreme; at least.
    null
        The null hypothesis in a sentence.
    method
        Where the p-value comes from.
    """

    __test__: ClassVar[bool] = False  # not a test class, whatever its name says to pytest

    statistic: float
    df: int | None
    pvalue: float
    null: str
    method: str

    def __repr__(self) -> str:
        df = "" if self.df is None else f", df {self.df}"
        return (
            f"TestResult(statistic {self.statistic:.4g}{df}, p-value {self.pvalue:.4g}; "
            f"null: {self.null}; by {self.method})"
        )


def no_test(function: Function) -> Function:
    """Keep pytest from collecting a function for its name."""
    function.__dict__["__test__"] = False
    return function


def sum_excess(noise: JointNoise, weights: FloatArray) -> float:
    """The excess kurtosis of Σ wᵢ·answerᵢ, without rounding."""
    variance = noise.variance(weights)
    roots = noise.fourth_roots(weights)
    return float(np.sum(roots**4)) / variance**2 if variance > 0 else 0.0


def scaled_tail(statistic: float, df: int, fourth: float) -> tuple[float, str]:
    """The tail of a quadratic form with mean df and variance 2·df + fourth, and its origin.

    It is that of a multiple of a chi-square variable with the same mean and variance.
    """
    from scipy.special import chdtrc

    if fourth <= 0:
        return float(chdtrc(df, statistic)), "the chi-square approximation"
    effective = 2 * df**2 / (2 * df + fourth)
    how = "the chi-square approximation, matched to the fourth moment of Laplace noise "
    how += f"({effective:.3g} effective degrees of freedom)"
    return float(chdtrc(effective, statistic * effective / df)), how


def noise_without_rounding(release: PublishedValues) -> JointNoise:
    """The noise without controlled rounding, for which there are only bounds."""
    plain = tuple(mechanism.noise_before_rounding() for mechanism in release.designs)
    return release.noise.without_rounding(plain)


def check_estimates(release: object, what: str) -> None:
    """Refuse what is neither a release nor several combined."""
    if not isinstance(release, PublishedValues):
        raise ReleaseError(f"{what} needs a release; got a {type(release).__name__}.")


def check_release(release: object, what: str) -> Release:
    """A release, where nothing else will do."""
    if not isinstance(release, Release):
        raise ReleaseError(f"{what} needs a release; got a {type(release).__name__}.")
    return release


def check_counts(query: Query) -> None:
    """Refuse answers that are not counts of records, for tests with a sampling model of counts."""
    if not query.counts_records:
        raise ReleaseError(
            "This test is for counts of people; the answers of this release are not counts."
        )
