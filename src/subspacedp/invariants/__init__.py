"""Invariants: the figures that are published exactly."""

from subspacedp.invariants.held import Held, HeldMargins, HeldValues, as_held, hold
from subspacedp.invariants.linear import (
    HeldMatrix,
    LinearInvariants,
    StructuralZeros,
    bind,
    hold_matrix,
    zeros,
)
from subspacedp.invariants.stated import held_from
from subspacedp.invariants.workload import HeldOfWorkload

__all__ = [
    "Held",
    "HeldMargins",
    "HeldMatrix",
    "HeldOfWorkload",
    "HeldValues",
    "LinearInvariants",
    "StructuralZeros",
    "as_held",
    "bind",
    "held_from",
    "hold",
    "hold_matrix",
    "zeros",
]
