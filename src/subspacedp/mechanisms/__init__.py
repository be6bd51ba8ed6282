"""Mechanisms: measure under differential privacy, then reconstruct under the invariants."""

from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.comparing import Comparison
from subspacedp.mechanisms.correlated import Correlated, Decomposition, decompose
from subspacedp.mechanisms.design import COMPARED, MECHANISMS, compare, design, mechanism_of
from subspacedp.mechanisms.extended import Extended
from subspacedp.mechanisms.impose import impose
from subspacedp.mechanisms.imposed import Imposed, impose_on
from subspacedp.mechanisms.knorm import KNorm
from subspacedp.mechanisms.marginals import MarginalsOptions
from subspacedp.mechanisms.optimal import Optimal
from subspacedp.mechanisms.planning import budget_for
from subspacedp.mechanisms.projected import Projected

__all__ = [
    "COMPARED",
    "MECHANISMS",
    "Comparison",
    "Correlated",
    "Decomposition",
    "Extended",
    "Imposed",
    "KNorm",
    "MarginalsOptions",
    "Mechanism",
    "Optimal",
    "Projected",
    "budget_for",
    "compare",
    "decompose",
    "design",
    "impose",
    "impose_on",
    "mechanism_of",
]
