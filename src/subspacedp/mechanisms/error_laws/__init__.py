"""The law of release − truth: joint noise, kinds of figures, and laws of weighted sums."""

from subspacedp.mechanisms.error_laws.joint import BasisNoise, JointNoise, MarginNoise, NoiseModel
from subspacedp.mechanisms.error_laws.sums import (
    OnlyVariance,
    Part,
    Rounding,
    SumLaw,
    WeightedSum,
    part,
)

__all__ = [
    "BasisNoise",
    "JointNoise",
    "MarginNoise",
    "NoiseModel",
    "OnlyVariance",
    "Part",
    "Rounding",
    "SumLaw",
    "WeightedSum",
    "part",
]
