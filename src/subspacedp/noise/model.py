"""The joint noise of a release: independent of the data, public, and known in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import NoiseLaw
from subspacedp.subspace import Digits, NullSpace

__all__ = ["NoiseModel"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoiseModel:
    """Release minus truth: Π_N e with independent integer noise e, plus digit rounding.

    Guarantees
    ----------
    1. The mean is zero.
    2. Without digits, variances are exact: Var(w·e) = Var(e₁)·|Π_N w|².
    3. With digits, the rounding part is uncorrelated with Π_N e and bounded as `DigitPlan` says,
       so stated variances are never too small.
    """

    law: NoiseLaw
    space: NullSpace
    digits: Digits | None
    grid: float = 1.0  # one unit of the integer noise

    def cell_variance(self) -> npt.NDArray[np.float64]:
        """The variance of every cell, in the domain's shape."""
        out = self.space.diagonal()
        out *= self.law.variance * self.grid**2
        if self.digits is not None:
            out += self.digits.variance() * self.grid**2
        return out

    def variance(self, weights: npt.ArrayLike) -> float:
        """The variance of Σ wᵢ·cellᵢ; zero for what the invariants fix."""
        w = np.asarray(weights, np.float64)
        inside: Any = self.space.project(w)
        out = self.law.variance * float(np.vdot(inside, inside)) * self.grid**2
        if self.digits is not None:
            out += self.digits.variance(w) * self.grid**2
        scale = float(np.vdot(w, w)) * self.law.variance * self.grid**2
        return 0.0 if out < 1e-20 * scale else out
