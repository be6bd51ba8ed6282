"""Mechanisms: measure under differential privacy, then reconstruct under the invariants."""

from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.design import MECHANISMS, design
from subspacedp.mechanisms.extended import Extended
from subspacedp.mechanisms.impose import impose
from subspacedp.mechanisms.imposed import Imposed, impose_on
from subspacedp.mechanisms.planning import budget_for
from subspacedp.mechanisms.projected import Projected

__all__ = [
    "MECHANISMS",
    "Extended",
    "Imposed",
    "Mechanism",
    "Projected",
    "budget_for",
    "design",
    "impose",
    "impose_on",
]
