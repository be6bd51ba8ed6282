"""Noise: keyed random words, exact laws on the integers, and the joint model of a release."""

from subspacedp.noise.draw import add_noise, draw, draw_each
from subspacedp.noise.inversion import QUANTILE_BOUND
from subspacedp.noise.laws import (
    DeclaredNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    KnownLaw,
    NoiseLaw,
    RoundedGaussian,
)
from subspacedp.noise.model import BasisNoise, JointNoise, NoiseModel
from subspacedp.noise.sums import OnlyVariance, Part, Rounding, SumLaw, WeightedSum, part
from subspacedp.noise.words import Keystream, ReleaseKeys

__all__ = [
    "QUANTILE_BOUND",
    "BasisNoise",
    "DeclaredNoise",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "JointNoise",
    "Keystream",
    "KnownLaw",
    "NoiseLaw",
    "NoiseModel",
    "OnlyVariance",
    "Part",
    "ReleaseKeys",
    "RoundedGaussian",
    "Rounding",
    "SumLaw",
    "WeightedSum",
    "add_noise",
    "draw",
    "draw_each",
    "part",
]
