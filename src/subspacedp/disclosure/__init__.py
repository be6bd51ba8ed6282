"""What invariants and mechanisms give away: exact bounds from held totals, statistical audits."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.disclosure.blackbox import Batched, PrivacyLowerBound, audit_privacy
    from subspacedp.disclosure.bounds import UNBOUNDED, CellBounds, CellRange, SmallTotal
    from subspacedp.disclosure.coverage import QuestionCoverage, covers, stack
    from subspacedp.disclosure.invariants import (
        InvariantAudit,
        Linkage,
        audit_invariants,
        audit_releases,
    )
    from subspacedp.disclosure.moves import Loss, Move, smallest_epsilon, smallest_move

__all__ = [
    "UNBOUNDED",
    "Batched",
    "CellBounds",
    "CellRange",
    "InvariantAudit",
    "Linkage",
    "Loss",
    "Move",
    "PrivacyLowerBound",
    "QuestionCoverage",
    "SmallTotal",
    "audit_invariants",
    "audit_privacy",
    "audit_releases",
    "covers",
    "smallest_epsilon",
    "smallest_move",
    "stack",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "disclosure.blackbox": ["Batched", "PrivacyLowerBound", "audit_privacy"],
        "disclosure.bounds": ["CellBounds", "CellRange", "SmallTotal", "UNBOUNDED"],
        "disclosure.coverage": ["QuestionCoverage", "covers", "stack"],
        "disclosure.invariants": [
            "InvariantAudit",
            "Linkage",
            "audit_invariants",
            "audit_releases",
        ],
        "disclosure.moves": ["Loss", "Move", "smallest_epsilon", "smallest_move"],
    },
)
