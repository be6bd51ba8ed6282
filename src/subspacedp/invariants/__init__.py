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

__all__ = [
    "Held",
    "HeldMargins",
    "HeldMatrix",
    "HeldValues",
    "LinearInvariants",
    "StructuralZeros",
    "as_held",
    "bind",
    "hold",
    "hold_matrix",
    "zeros",
]
