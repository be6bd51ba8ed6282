"""Covariances without a closed form: summed up on coarse grids, or bounded."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.knorm.bodies import Body

__all__ = ["bounded", "summed"]

FloatArray = npt.NDArray[np.float64]

MOST_SUMMED = 2e6  # integer vectors


def summed(body: Body, rate: Fraction) -> FloatArray | None:
    """Σ z zᵀ P(z) in floats, where few z matter: beyond the ends there is less than 1e-12."""
    ends = np.floor(body.reach * ((body.dimension + 40) / float(rate)))
    if float(np.log(2 * ends + 1).sum()) > math.log(MOST_SUMMED):
        return None
    axes = np.meshgrid(*(np.arange(-e, e + 1) for e in ends), indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    weights = np.exp(-float(rate) * body.lengths(points))
    return np.asarray((points.T * weights) @ points / weights.sum() * (1 + 1e-9))


def bounded(body: Body, rate: Fraction) -> FloatArray:
    """An upper bound, close on fine grids.

    With x the continuous noise and c the norm of half a cell, the law is that of round(x) times a
    density of at most exp(2·rate·c), and rounding moves x by u with |u|² ≤ k/4.
    """
    k = body.dimension
    smooth = (k + 1) * (k + 2) / float(rate) ** 2 * body.second_moment
    share = math.sqrt(k * k / 4 / float(np.trace(smooth)))
    rounded = (1 + share) * smooth + (1 + 1 / share) * k / 4 * np.eye(k)
    return np.asarray(rounded * math.exp(2 * float(rate * body.half_cell)))
