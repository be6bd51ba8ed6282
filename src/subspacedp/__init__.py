"""Publish tables under differential privacy while mandated totals stay exact.

The public names are loaded on first use, so `import subspacedp` costs little more than NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subspacedp import datasets, distributed, inference
    from subspacedp.disclosure import audit_invariants, audit_privacy, audit_releases
    from subspacedp.errors import SubspaceDPError
    from subspacedp.invariants import LinearInvariants, hold, zeros
    from subspacedp.mechanisms import MarginalsOptions as Marginals
    from subspacedp.mechanisms import budget_for, compare, design, impose, impose_on
    from subspacedp.privacy import (
        ZCDP,
        ApproxDP,
        GaussianDP,
        PureDP,
        Spend,
        calibrate_gaussian,
        compose,
        gaussian_delta,
        paper_constant,
    )
    from subspacedp.publication import audit, plan, read_specification, run
    from subspacedp.release import Release, certificate_schema
    from subspacedp.subspace import null_space
    from subspacedp.tables import (
        AddRemoveOne,
        Axis,
        Cells,
        ClippedSums,
        Domain,
        GeneralQuery,
        LinearQuery,
        LocalEntries,
        Margins,
        MarginTables,
        ReplaceOne,
        Table,
        check_sensitivity,
    )

__version__ = "0.1.0"

__all__ = [
    "ZCDP",
    "AddRemoveOne",
    "ApproxDP",
    "Axis",
    "Cells",
    "ClippedSums",
    "Domain",
    "GaussianDP",
    "GeneralQuery",
    "LinearInvariants",
    "LinearQuery",
    "LocalEntries",
    "MarginTables",
    "Marginals",
    "Margins",
    "PureDP",
    "Release",
    "ReplaceOne",
    "Spend",
    "SubspaceDPError",
    "Table",
    "audit",
    "audit_invariants",
    "audit_privacy",
    "audit_releases",
    "budget_for",
    "calibrate_gaussian",
    "certificate_schema",
    "check_sensitivity",
    "compare",
    "compose",
    "datasets",
    "design",
    "distributed",
    "gaussian_delta",
    "hold",
    "impose",
    "impose_on",
    "inference",
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
    "invariants": ["LinearInvariants", "hold", "zeros"],
    "mechanisms": ["MarginalsOptions", "budget_for", "compare", "design", "impose", "impose_on"],
    "privacy": [
        "ZCDP",
        "ApproxDP",
        "GaussianDP",
        "PureDP",
        "Spend",
        "calibrate_gaussian",
        "compose",
        "gaussian_delta",
        "paper_constant",
    ],
    "publication": ["audit", "plan", "read_specification", "run"],
    "release": ["Release", "certificate_schema"],
    "subspace": ["null_space"],
    "tables": [
        "AddRemoveOne",
        "Axis",
        "Cells",
        "ClippedSums",
        "Domain",
        "GeneralQuery",
        "LinearQuery",
        "LocalEntries",
        "MarginTables",
        "Margins",
        "ReplaceOne",
        "Table",
        "check_sensitivity",
    ],
}
# What a mechanism is asked for with has that mechanism's name here.
_CALLED = {"Marginals": "MarginalsOptions"}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("datasets", "distributed", "inference"):
        return import_module(f"subspacedp.{name}")
    there = _CALLED.get(name, name)
    module = _MODULE_OF.get(there) if name in __all__ else None
    if module is None:
        raise AttributeError(f"module 'subspacedp' has no attribute {name!r}")
    value = getattr(import_module(f"subspacedp.{module}"), there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
