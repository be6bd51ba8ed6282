"""The discrete k-norm law: its draws, its moments, and the joint noise of a release."""

from subspacedp.noise.knorm.joint import GroupedNoise, KNormNoise
from subspacedp.noise.knorm.law import KNormLaw

__all__ = ["GroupedNoise", "KNormLaw", "KNormNoise"]
