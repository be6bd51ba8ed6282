"""Noise: keyed random words, and exact laws on the integers."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "noise.draw": [
            "CellNoise",
            "QUANTILE_BOUND",
            "add_noise",
            "draw",
            "draw_each",
            "noise_at",
            "words_at",
        ],
        "noise.laws": [
            "DeclaredNoise",
            "DiscreteGaussian",
            "DiscreteLaplace",
            "KnownLaw",
            "NoiseLaw",
            "RoundedGaussian",
        ],
        "noise.words": ["KeySource", "Keystream", "ReleaseKeys"],
    },
)
