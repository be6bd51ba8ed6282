"""Noise: keyed random words, and exact laws on the integers."""

from subspacedp.noise.draw import add_noise, draw, draw_each
from subspacedp.noise.laws import (
    DeclaredNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    KnownLaw,
    NoiseLaw,
    RoundedGaussian,
)
from subspacedp.noise.thresholds import QUANTILE_BOUND
from subspacedp.noise.words import Keystream, ReleaseKeys

__all__ = [
    "QUANTILE_BOUND",
    "DeclaredNoise",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Keystream",
    "KnownLaw",
    "NoiseLaw",
    "ReleaseKeys",
    "RoundedGaussian",
    "add_noise",
    "draw",
    "draw_each",
]
