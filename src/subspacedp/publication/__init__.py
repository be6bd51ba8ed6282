"""Publications: one specification file from data to release.

The public names are loaded on first use. Reading a specification needs pydantic and PyYAML, which
the extra `subspacedp[publish]` brings; importing this package needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subspacedp.publication.auditing import audit
    from subspacedp.publication.code_lists import CodeList, read_code_list
    from subspacedp.publication.faults import SpecificationError
    from subspacedp.publication.planning import Plan, plan
    from subspacedp.publication.running import Publication, run
    from subspacedp.publication.schema import specification_schema
    from subspacedp.publication.specification import (
        Specification,
        TableSpecification,
        read_specification,
    )

__all__ = [
    "CodeList",
    "Plan",
    "Publication",
    "Specification",
    "SpecificationError",
    "TableSpecification",
    "audit",
    "plan",
    "read_code_list",
    "read_specification",
    "run",
    "specification_schema",
]

_HOME = {
    "auditing": ["audit"],
    "code_lists": ["CodeList", "read_code_list"],
    "planning": ["Plan", "plan"],
    "faults": ["SpecificationError"],
    "running": ["Publication", "run"],
    "schema": ["specification_schema"],
    "specification": ["Specification", "TableSpecification", "read_specification"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'subspacedp.publication' has no attribute {name!r}")
    value = getattr(import_module(f"subspacedp.publication.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
