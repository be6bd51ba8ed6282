"""Privacy: budgets, the exact Gaussian trade-off, and the guarantees plain, S and G."""

from subspacedp.privacy.budgets import ZCDP, ApproxDP, Budget, GaussianDP, PureDP, budget_from
from subspacedp.privacy.composition import Composed, Spend, compose
from subspacedp.privacy.gaussian import calibrate_gaussian, gaussian_delta, paper_constant
from subspacedp.privacy.guarantees import Coverage, Guarantee, Kind, kind_of

__all__ = [
    "ZCDP",
    "ApproxDP",
    "Budget",
    "Composed",
    "Coverage",
    "GaussianDP",
    "Guarantee",
    "Kind",
    "PureDP",
    "Spend",
    "budget_from",
    "calibrate_gaussian",
    "compose",
    "gaussian_delta",
    "kind_of",
    "paper_constant",
]
