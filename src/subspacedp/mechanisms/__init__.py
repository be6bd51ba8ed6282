"""Mechanisms: measure under differential privacy, then reconstruct under the invariants."""

from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.extended import Extended, ExtendedOptions
from subspacedp.mechanisms.gaussian.correlated import (
    Correlated,
    CorrelatedOptions,
    Decomposition,
    decompose,
)
from subspacedp.mechanisms.gaussian.optimal import Optimal, OptimalOptions
from subspacedp.mechanisms.impose import impose
from subspacedp.mechanisms.imposed import Imposed
from subspacedp.mechanisms.knorm.mechanism import KNorm, KNormOptions
from subspacedp.mechanisms.marginals import Marginals, MarginalsOptions
from subspacedp.mechanisms.projected import Projected, ProjectedOptions
from subspacedp.mechanisms.registry import MECHANISMS, OPTIONS, mechanism_from

__all__ = [
    "MECHANISMS",
    "OPTIONS",
    "Correlated",
    "CorrelatedOptions",
    "Decomposition",
    "Extended",
    "ExtendedOptions",
    "Imposed",
    "KNorm",
    "KNormOptions",
    "Marginals",
    "MarginalsOptions",
    "Mechanism",
    "Optimal",
    "OptimalOptions",
    "Options",
    "Projected",
    "ProjectedOptions",
    "decompose",
    "impose",
    "mechanism_from",
]
