"""The form of a design: what each mechanism measures, for which queries, budgets and digits.

`design(...)` makes designs of these forms alone. A file may state anything: a design of another
form is refused, since the proof of its mechanism would be of something else than what is measured.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins
from subspacedp.tables import Cells, Margins

if TYPE_CHECKING:
    from subspacedp.release.design import Design

__all__ = ["OPTIONAL", "check_form"]

# What a design may have beside query, invariants, budget, neighbours and decimals.
OPTIONAL = ("basis", "optimality", "declared", "body", "marginals")

LARGEST_SCALE = 2.0**62  # of noise that is added in 64 bits
SMALLEST_SCALE = 0.0009  # just below what a design may have


def check_form(design: Design) -> None:
    """Refuse a design that its mechanism does not have, or whose noise cannot be drawn.

    Guarantees
    ----------
    1. What is measured is what the mechanism's proof is about: its strategy, and no other.
    2. Δ₁, Δ₂ and the law of the noise follow from the integers of the design, and were computed.
    """
    parts = {
        key
        for key, part in (
            ("basis", design.basis),
            ("optimality", design.dual),
            ("declared", design.declared),
            (getattr(design.strategy, "key", ""), design.strategy),
        )
        if part is not None
    }
    if parts not in _forms(design):
        raise ReleaseError("what it measures is not what its mechanism measures.")
    if design.declared is not None and design.capped:
        raise ReleaseError("another mechanism's noise protects the table it was given.")
    if design.decimals is not None and not _has_digits(design):
        raise ReleaseError("its mechanism does not publish digits that add up.")
    if design.space.dimension <= 0:
        raise ReleaseError("what is held fixes every answer.")
    _ = design.guarantee
    for moved in (design.sensitivity, design.query.sensitivity(design.neighbours)):
        if not 0 < float(moved.l1) < math.inf or not 0 < math.sqrt(moved.l2_squared) < math.inf:
            raise ReleaseError("what one person changes is out of range.")
    if design.declared is None:
        law = design.law
        smallest = float(getattr(law, "smallest", law.scale))  # of several laws
        if not SMALLEST_SCALE <= smallest <= float(law.scale) <= LARGEST_SCALE:
            raise ReleaseError("the scale of its noise is out of range.")


def _forms(design: Design) -> list[set[str]]:
    """The sets of optional parts that a mechanism has on this query with this budget."""
    pure, workload = design.budget.pure, isinstance(design.query, Margins)
    cells = isinstance(design.query, Cells)
    if workload:
        return [{"marginals"}] if design.mechanism == "marginals" else []
    # Without a basis Π_N·counts is measured in its denominators: for counts, and in ℓ₂ alone.
    whole = cells and isinstance(design.held, HeldMargins) and not pure
    forms: dict[str, list[set[str]]] = {
        "projected": [set()],
        "extended": [{"basis"}, set()] if whole else [{"basis"}],
        "correlated": [] if pure else [{"basis"}],
        "optimal": [] if pure else [{"basis", "optimality"}],
        "knorm": [{"body"}, {"body", "basis"}] if pure else [],
        "marginals": [{"marginals"}] if cells else [],
        "imposed": [{"declared"}],
    }
    return forms.get(design.mechanism, [])


def _has_digits(design: Design) -> bool:
    if design.query.grid != 1:
        return False
    if design.mechanism in ("projected", "marginals"):
        return True
    return design.mechanism == "knorm" and design.basis is None  # its body has the last word
