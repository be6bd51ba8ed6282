"""Margins at the levels of a tree: noise where it pays, combined by least squares."""

from subspacedp.mechanisms.marginals.lower_bound import TableComparison, compare_tables
from subspacedp.mechanisms.marginals.mechanism import Marginals, MarginalsOptions, with_budget
from subspacedp.mechanisms.marginals.strategy import MarginalsStrategy

__all__ = [
    "Marginals",
    "MarginalsOptions",
    "MarginalsStrategy",
    "TableComparison",
    "compare_tables",
    "with_budget",
]
