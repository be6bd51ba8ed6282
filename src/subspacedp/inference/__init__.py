"""Inference from a release: tests, regression, combination; sees a release, never data."""

from subspacedp.inference.nonnegative import biased_non_negative

__all__ = ["biased_non_negative"]
