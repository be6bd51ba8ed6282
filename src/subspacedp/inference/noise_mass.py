"""The law of one noise value: its log-probability, far into the tails."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from subspacedp.noise import DiscreteLaplace, KnownLaw

__all__ = ["log_mass"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

SMOOTH = 1000.0  # σ from which a rounded normal law is a normal one to a part in 10**12


def log_mass(law: KnownLaw, z: Int64Array) -> FloatArray:
    """Log P(Z = z), far into the tails."""
    if isinstance(law, DiscreteLaplace):
        rate = float(law.rate)
        return np.asarray(math.log(math.tanh(rate / 2)) - rate * np.abs(z))
    a = np.abs(z).astype(np.float64)
    if law.sigma > SMOOTH:
        return np.asarray(-(a**2) / (2 * law.variance) - 0.5 * math.log(2 * math.pi * law.variance))
    from scipy.special import log_ndtr

    near, far = log_ndtr((0.5 - a) / law.sigma), log_ndtr((-0.5 - a) / law.sigma)
    return np.asarray(near + np.log(-np.expm1(far - near)))
