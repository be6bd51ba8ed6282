"""Invariants: the figures that are published exactly."""

from subspacedp.invariants.held import Held, HeldMargins, HeldValues, hold

__all__ = ["Held", "HeldMargins", "HeldValues", "hold"]
