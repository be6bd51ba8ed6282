"""Noise: keyed random words, exact laws on the integers, and the joint model of a release."""

from subspacedp.noise.draw import add_noise, draw, draw_each, uses_float_quantile
from subspacedp.noise.inversion import QUANTILE_BOUND
from subspacedp.noise.laws import DeclaredNoise, DiscreteLaplace, NoiseLaw, RoundedGaussian
from subspacedp.noise.model import BasisNoise, NoiseModel
from subspacedp.noise.words import Keystream, ReleaseKeys

__all__ = [
    "QUANTILE_BOUND",
    "BasisNoise",
    "DeclaredNoise",
    "DiscreteLaplace",
    "Keystream",
    "NoiseLaw",
    "NoiseModel",
    "ReleaseKeys",
    "RoundedGaussian",
    "add_noise",
    "draw",
    "draw_each",
    "uses_float_quantile",
]
