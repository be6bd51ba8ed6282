"""Mechanisms: measure under differential privacy, then reconstruct under the invariants.

By name, in the order of the registry:

- "projected": noise on every answer, projected onto the null space of the invariants; the default.
- "extended": noise inside the null space, for the sensitivity that is left there.
- "correlated": noise block by block, the paper's appendix algorithm; Gaussian budgets.
- "optimal": correlated noise of least total error, with a proof; Gaussian budgets.
- "knorm": noise in the shape of what one person can change; pure budgets.
- "marginals": noise for several margins and levels at once, combined by least squares; the default
  for a workload of margins.
- "discrete": discrete Gaussian noise on every answer, projected; zero-concentrated budgets.
"""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.mechanisms.base import Mechanism, Options
    from subspacedp.mechanisms.correlated import (
        Correlated,
        CorrelatedOptions,
        Decomposition,
        decompose,
    )
    from subspacedp.mechanisms.extended import Extended, ExtendedOptions
    from subspacedp.mechanisms.impose import Imposed, impose
    from subspacedp.mechanisms.knorm.mechanism import KNorm, KNormOptions
    from subspacedp.mechanisms.marginals import Marginals, MarginalsOptions
    from subspacedp.mechanisms.optimal import Optimal, OptimalOptions
    from subspacedp.mechanisms.projected import (
        Discrete,
        DiscreteOptions,
        Projected,
        ProjectedOptions,
    )
    from subspacedp.mechanisms.registry import MECHANISMS, OPTIONS, default_name, mechanism_from

__all__ = [
    "MECHANISMS",
    "OPTIONS",
    "Correlated",
    "CorrelatedOptions",
    "Decomposition",
    "Discrete",
    "DiscreteOptions",
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
    "default_name",
    "impose",
    "mechanism_from",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "mechanisms.base": ["Mechanism", "Options"],
        "mechanisms.extended": ["Extended", "ExtendedOptions"],
        "mechanisms.correlated": [
            "Correlated",
            "CorrelatedOptions",
            "Decomposition",
            "decompose",
        ],
        "mechanisms.optimal": ["Optimal", "OptimalOptions"],
        "mechanisms.impose": ["Imposed", "impose"],
        "mechanisms.knorm.mechanism": ["KNorm", "KNormOptions"],
        "mechanisms.marginals": ["Marginals", "MarginalsOptions"],
        "mechanisms.projected": ["Discrete", "DiscreteOptions", "Projected", "ProjectedOptions"],
        "mechanisms.registry": ["MECHANISMS", "OPTIONS", "default_name", "mechanism_from"],
    },
)
