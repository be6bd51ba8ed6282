"""Rounded Gaussian noise of large scale: float inversion where it decides, refinement where not.

A table of thresholds would have some 18 σ entries. Instead the quantile x = Φ⁻¹(u) is computed in
float64 with a stated bound on its error, and σx is rounded where it is farther from a half-integer
than the bound; the other words are refined with ball arithmetic, as everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import IntegerLaw

__all__ = ["QUANTILE_BOUND", "GaussianInversion"]

# |computed Φ⁻¹(u) − Φ⁻¹(u)| ≤ QUANTILE_BOUND·(1 + |x|), rounding of u included. The largest error
# that tests find against ball arithmetic is 2**-51 (1 + |x|); the bound leaves a factor of eight.
QUANTILE_BOUND = 2.0**-48


@dataclass(frozen=True, eq=False, repr=False)
class GaussianInversion:
    """Words to rounded Gaussian values for σ too large for a table."""

    law: IntegerLaw  # a rounded Gaussian one, of scale σ

    def lookup(
        self, words: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The value for every word (a guess where it is open), and the places that are open."""
        from scipy.special import ndtri

        upper = words >> np.uint64(63) == 1
        near = np.where(upper, ~words, words)  # distance from the nearer end, below 2⁶³
        x = ndtri((near.astype(np.float64) + 0.5) * 2.0**-64)
        # The word leaves u open by half of 2⁻⁶⁴ either way, and so x by that over the density.
        with np.errstate(over="ignore"):
            spread = 2.0**-64 * math.sqrt(2 * math.pi) * np.exp(x * x / 2)
        slack = self.law.scale * (QUANTILE_BOUND * (1 - x) + spread)
        y = self.law.scale * x
        z = np.rint(y)
        open_ = np.flatnonzero(np.abs(y - z) + slack >= 0.5)
        values = z.astype(np.int64)
        return np.where(upper, -values, values), open_
