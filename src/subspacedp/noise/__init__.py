"""Noise: keyed random words, and exact laws on the integers."""

from subspacedp.noise.draw import (
    QUANTILE_BOUND,
    CellNoise,
    add_noise,
    draw,
    draw_each,
    noise_at,
    words_at,
)
from subspacedp.noise.laws import (
    DeclaredNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    KnownLaw,
    NoiseLaw,
    RoundedGaussian,
)
from subspacedp.noise.words import KeySource, Keystream, ReleaseKeys

__all__ = [
    "QUANTILE_BOUND",
    "CellNoise",
    "DeclaredNoise",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "KeySource",
    "Keystream",
    "KnownLaw",
    "NoiseLaw",
    "ReleaseKeys",
    "RoundedGaussian",
    "add_noise",
    "draw",
    "draw_each",
    "noise_at",
    "words_at",
]
