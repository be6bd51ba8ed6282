"""Publications: one specification file from data to release.

The public names are loaded on first use. Reading a specification needs PyYAML, which the extra
`subspacedp[publish]` brings; importing this package does not.
"""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "publication.auditing": ["audit"],
        "publication.code_lists": ["CodeList", "read_code_list"],
        "publication.planning": ["Plan", "plan"],
        "publication.faults": ["SpecificationError"],
        "publication.running": ["Publication", "run"],
        "publication.schema": ["specification_schema"],
        "publication.specification": ["Specification", "TableSpecification", "read_specification"],
    },
)
