"""Controlled rounding: published values that add up, unbiased, given the held values."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.rounding.controlled import ControlledRounding, rounding_of
    from subspacedp.rounding.crossing import CrossingRounding
    from subspacedp.rounding.lattice import MatrixRounding
    from subspacedp.rounding.margins import MarginRounding
    from subspacedp.rounding.profiles import GroupProfiles, corner_counts

__all__ = [
    "ControlledRounding",
    "CrossingRounding",
    "GroupProfiles",
    "MarginRounding",
    "MatrixRounding",
    "corner_counts",
    "rounding_of",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "rounding.controlled": ["ControlledRounding", "rounding_of"],
        "rounding.crossing": ["CrossingRounding"],
        "rounding.lattice": ["MatrixRounding"],
        "rounding.margins": ["MarginRounding"],
        "rounding.profiles": ["GroupProfiles", "corner_counts"],
    },
)
