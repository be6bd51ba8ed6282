"""Invariants: the figures that are published exactly, and the null space they leave."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.invariants.held import Held, HeldMargins, HeldValues, as_held, hold
    from subspacedp.invariants.inequalities import Feasible, Inequalities, Limits
    from subspacedp.invariants.linear import (
        HeldMatrix,
        LinearInvariants,
        StructuralZeros,
        bind,
        held_from,
        hold_matrix,
        zeros,
    )
    from subspacedp.invariants.margin_space import HeldOfWorkload, MarginNullSpace, WorkloadSpace
    from subspacedp.invariants.matrix_space import GeneralNullSpace
    from subspacedp.invariants.mixed import Mixed
    from subspacedp.invariants.null_space import FreeContrasts, NullSpace, null_space, space_of

__all__ = [
    "Feasible",
    "FreeContrasts",
    "GeneralNullSpace",
    "Held",
    "HeldMargins",
    "HeldMatrix",
    "HeldOfWorkload",
    "HeldValues",
    "Inequalities",
    "Limits",
    "LinearInvariants",
    "MarginNullSpace",
    "Mixed",
    "NullSpace",
    "StructuralZeros",
    "WorkloadSpace",
    "as_held",
    "bind",
    "held_from",
    "hold",
    "hold_matrix",
    "null_space",
    "space_of",
    "zeros",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "invariants.held": ["Held", "HeldMargins", "HeldValues", "as_held", "hold"],
        "invariants.inequalities": ["Feasible", "Inequalities", "Limits"],
        "invariants.linear": [
            "HeldMatrix",
            "LinearInvariants",
            "StructuralZeros",
            "bind",
            "held_from",
            "hold_matrix",
            "zeros",
        ],
        "invariants.margin_space": ["HeldOfWorkload", "MarginNullSpace", "WorkloadSpace"],
        "invariants.matrix_space": ["GeneralNullSpace"],
        "invariants.mixed": ["Mixed"],
        "invariants.null_space": ["FreeContrasts", "NullSpace", "null_space", "space_of"],
    },
)
