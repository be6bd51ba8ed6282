"""Inference from a release: tests, regression, combination; sees a release, never data."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.inference.bias import BiasTrend, bias_trend
    from subspacedp.inference.combination import Combined, combine
    from subspacedp.inference.hypotheses import (
        TestResult,
        test_equal,
        test_homogeneity,
        test_independence,
        test_value,
    )
    from subspacedp.inference.likelihood import Likelihood
    from subspacedp.inference.nonnegative import NonNegativeTable, non_negative
    from subspacedp.inference.regression import Regression, regress
    from subspacedp.inference.replicates import replicate_interval, replicate_quantiles, replicates

__all__ = [
    "BiasTrend",
    "Combined",
    "Likelihood",
    "NonNegativeTable",
    "Regression",
    "TestResult",
    "bias_trend",
    "combine",
    "non_negative",
    "regress",
    "replicate_interval",
    "replicate_quantiles",
    "replicates",
    "test_equal",
    "test_homogeneity",
    "test_independence",
    "test_value",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "inference.bias": ["BiasTrend", "bias_trend"],
        "inference.combination": ["Combined", "combine"],
        "inference.hypotheses": [
            "TestResult",
            "test_equal",
            "test_homogeneity",
            "test_independence",
            "test_value",
        ],
        "inference.likelihood": ["Likelihood"],
        "inference.nonnegative": ["NonNegativeTable", "non_negative"],
        "inference.regression": ["Regression", "regress"],
        "inference.replicates": ["replicate_interval", "replicate_quantiles", "replicates"],
    },
)
