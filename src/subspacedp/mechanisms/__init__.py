"""Mechanisms: measure under differential privacy, then reconstruct under the invariants."""

from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.design import MECHANISMS, design
from subspacedp.mechanisms.impose import impose
from subspacedp.mechanisms.projected import Projected

__all__ = ["MECHANISMS", "Mechanism", "Projected", "design", "impose"]
