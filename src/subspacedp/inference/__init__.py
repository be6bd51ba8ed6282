"""Inference from a release: tests, regression, combination; sees a release, never data."""

from subspacedp.inference.bias import BiasTrend, bias_trend
from subspacedp.inference.biased import biased_non_negative
from subspacedp.inference.combination import Combined, combine
from subspacedp.inference.hypotheses import test_equal, test_value
from subspacedp.inference.likelihood import Likelihood
from subspacedp.inference.nonnegative import NonNegativeTable, non_negative
from subspacedp.inference.regression import Regression, regress
from subspacedp.inference.replicates import replicate_interval, replicate_quantiles, replicates
from subspacedp.inference.results import TestResult
from subspacedp.inference.two_way import test_homogeneity, test_independence

__all__ = [
    "BiasTrend",
    "Combined",
    "Likelihood",
    "NonNegativeTable",
    "Regression",
    "TestResult",
    "bias_trend",
    "biased_non_negative",
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
