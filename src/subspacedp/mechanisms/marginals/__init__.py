"""Margins at the levels of a tree: noise where it pays, combined by least squares."""

from subspacedp.mechanisms.marginals.mechanism import Marginals
from subspacedp.mechanisms.marginals.strategy import MarginalsStrategy, fit_marginals

__all__ = ["Marginals", "MarginalsStrategy", "fit_marginals"]
