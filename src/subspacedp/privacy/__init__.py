"""Privacy: budgets, neighbours, composition, and the exact Gaussian trade-off."""

from subspacedp.privacy.budgets import (
    ZCDP,
    ApproxDP,
    Budget,
    GaussianDP,
    PureDP,
    budget_from,
    budget_of_fields,
)
from subspacedp.privacy.composition import Composed, Spend, compose
from subspacedp.privacy.gaussian import calibrate_gaussian, gaussian_delta, paper_constant
from subspacedp.privacy.neighbours import AddRemoveOne, Neighbours, ReplaceOne, neighbours_from

__all__ = [
    "ZCDP",
    "AddRemoveOne",
    "ApproxDP",
    "Budget",
    "Composed",
    "GaussianDP",
    "Neighbours",
    "PureDP",
    "ReplaceOne",
    "Spend",
    "budget_from",
    "budget_of_fields",
    "calibrate_gaussian",
    "compose",
    "gaussian_delta",
    "neighbours_from",
    "paper_constant",
]
