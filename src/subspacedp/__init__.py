"""Publish tables under differential privacy while mandated totals stay exact.

The public names are loaded on first use, so `import subspacedp` costs little more than NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subspacedp import agents, datasets, inference
    from subspacedp.disclosure import audit_invariants, audit_privacy, audit_releases
    from subspacedp.errors import SubspaceDPError
    from subspacedp.invariants import Inequalities, LinearInvariants, hold, null_space, zeros
    from subspacedp.mechanisms import (
        CorrelatedOptions as Correlated,
    )
    from subspacedp.mechanisms import (
        DiscreteOptions as Discrete,
    )
    from subspacedp.mechanisms import (
        ExtendedOptions as Extended,
    )
    from subspacedp.mechanisms import (
        KNormOptions as KNorm,
    )
    from subspacedp.mechanisms import (
        MarginalsOptions as Marginals,
    )
    from subspacedp.mechanisms import (
        OptimalOptions as Optimal,
    )
    from subspacedp.mechanisms import (
        ProjectedOptions as Projected,
    )
    from subspacedp.mechanisms import (
        impose,
    )
    from subspacedp.privacy import (
        ZCDP,
        AddRemoveOne,
        ApproxDP,
        GaussianDP,
        PureDP,
        ReplaceOne,
        Spend,
        calibrate_gaussian,
        compose,
        gaussian_delta,
        paper_constant,
    )
    from subspacedp.publication import audit, plan, read_specification, run
    from subspacedp.queries import (
        Cells,
        ClippedSums,
        GeneralQuery,
        LinearQuery,
        LocalEntries,
        Margins,
        check_sensitivity,
    )
    from subspacedp.release import (
        Release,
        certificate_schema,
        compare,
        design,
        impose_on,
        least_budget,
    )
    from subspacedp.tables import Axis, Domain, MarginTables, Table

__version__ = "0.1.0"

__all__ = [
    "ZCDP",
    "AddRemoveOne",
    "ApproxDP",
    "Axis",
    "Cells",
    "ClippedSums",
    "Correlated",
    "Discrete",
    "Domain",
    "Extended",
    "GaussianDP",
    "GeneralQuery",
    "Inequalities",
    "KNorm",
    "LinearInvariants",
    "LinearQuery",
    "LocalEntries",
    "MarginTables",
    "Marginals",
    "Margins",
    "Optimal",
    "Projected",
    "PureDP",
    "Release",
    "ReplaceOne",
    "Spend",
    "SubspaceDPError",
    "Table",
    "agents",
    "audit",
    "audit_invariants",
    "audit_privacy",
    "audit_releases",
    "calibrate_gaussian",
    "certificate_schema",
    "check_sensitivity",
    "compare",
    "compose",
    "datasets",
    "design",
    "gaussian_delta",
    "hold",
    "impose",
    "impose_on",
    "inference",
    "least_budget",
    "load",
    "null_space",
    "paper_constant",
    "plan",
    "read_specification",
    "run",
    "zeros",
]

_HOME = {
    "disclosure": ["audit_invariants", "audit_privacy", "audit_releases"],
    "errors": ["SubspaceDPError"],
    "invariants": ["Inequalities", "LinearInvariants", "hold", "null_space", "zeros"],
    "mechanisms": ["impose"],
    "privacy": [
        "ZCDP",
        "AddRemoveOne",
        "ApproxDP",
        "GaussianDP",
        "PureDP",
        "ReplaceOne",
        "Spend",
        "calibrate_gaussian",
        "compose",
        "gaussian_delta",
        "paper_constant",
    ],
    "publication": ["audit", "plan", "read_specification", "run"],
    "queries": [
        "Cells",
        "ClippedSums",
        "GeneralQuery",
        "LinearQuery",
        "LocalEntries",
        "Margins",
        "check_sensitivity",
    ],
    "release": [
        "Release",
        "least_budget",
        "certificate_schema",
        "compare",
        "design",
        "impose_on",
    ],
    "tables": ["Axis", "Domain", "MarginTables", "Table"],
}
# Options go by the name of their mechanism: `design(..., mechanism=Optimal(importance=w))`.
_OPTIONS = ("Correlated", "Discrete", "Extended", "KNorm", "Marginals", "Optimal", "Projected")
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("agents", "datasets", "inference"):
        return import_module(f"subspacedp.{name}")
    if name in _OPTIONS:
        from subspacedp import mechanisms

        value = getattr(mechanisms, f"{name}Options")
        globals()[name] = value
        return value
    if name == "load":
        from subspacedp.release import Release

        value = Release.load
        globals()[name] = value
        return value
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'subspacedp' has no attribute {name!r}")
    value = getattr(import_module(f"subspacedp.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
