"""What is asked of a release, and which guarantee a release under invariants can have."""

from subspacedp.problem.guarantees import Coverage, Guarantee, Kind, kind_of
from subspacedp.problem.problem import MAX_DECIMALS, Problem

__all__ = ["MAX_DECIMALS", "Coverage", "Guarantee", "Kind", "Problem", "kind_of"]
