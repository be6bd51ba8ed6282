"""What a test found, and the pieces that all tests share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from subspacedp.errors import ReleaseError
from subspacedp.noise import DiscreteLaplace, JointNoise
from subspacedp.noise.knorm import KNormLaw
from subspacedp.release import Release

__all__ = [
    "TestResult",
    "check_counts",
    "check_release",
    "check_variance",
    "fourth_cumulant",
    "no_test",
    "scaled_tail",
]

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True)
class TestResult:
    """What a test found.

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


def fourth_cumulant(noise: JointNoise) -> float:
    """κ₄ of one noise variable; taken as 0 where it is not known to be positive.

    A difference of two geometric variables has κ₄/κ₂² = 3 + 1/κ₂. K-norm noise is log-concave, so
    that no direction has more than 3.
    """
    law = getattr(noise, "law", None)
    if isinstance(law, KNormLaw):
        return 3 * noise.each**2
    return (3 + 1 / law.variance) * noise.each**2 if isinstance(law, DiscreteLaplace) else 0.0


def scaled_tail(statistic: float, df: int, fourth: float) -> tuple[float, str]:
    """The tail of a quadratic form with mean df and variance 2·df + fourth, and how it was found.

    It is that of a multiple of a chi-square variable with the same mean and variance.
    """
    from scipy.special import chdtrc

    if fourth <= 0:
        return float(chdtrc(df, statistic)), "the chi-square approximation"
    effective = 2 * df**2 / (2 * df + fourth)
    how = "the chi-square approximation, matched to the fourth moment of Laplace noise "
    how += f"({effective:.3g} effective degrees of freedom)"
    return float(chdtrc(effective, statistic * effective / df)), how


def check_release(release: object, what: str) -> Release:
    """A release, where nothing else will do."""
    if not isinstance(release, Release):
        raise ReleaseError(f"{what} needs a release; got a {type(release).__name__}.")
    return release


def check_counts(release: Release) -> None:
    """Refuse answers that are not counts of records, for tests with a sampling model of counts."""
    if not release.design.query.counts_records:
        raise ReleaseError(
            "This test is for counts of people; the answers of this release are not counts."
        )


def check_variance(variance: float) -> None:
    """Refuse noise of which not even the variance is known."""
    if not math.isfinite(variance):
        raise ReleaseError(
            "The noise of this release was declared without a variance, so nothing can be said "
            "about its errors."
        )
