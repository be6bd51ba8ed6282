"""The joint noise of a release: independent of the data, public, and known in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.subspace import BasisStrategy, Digits, NullSpace

__all__ = ["BasisNoise", "NoiseModel"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoiseModel:
    """Release minus truth: Π_N e with independent noise e of one variance, plus digit rounding.

    Guarantees
    ----------
    1. The mean is zero.
    2. Without digits, variances are exact: Var(w·e) = Var(e₁)·|Π_N w|². Two exceptions are upper
       bounds: cells of a general C of large size, and the extended mechanism on margins with
       unequal groups, where the coarsest grid stands for all.
    3. With digits, the rounding part is uncorrelated with Π_N e and bounded as the digits say,
       so stated variances are never too small.
    """

    each: float  # Var(e₁), in units of the published values squared
    space: NullSpace
    digits: Digits | None = None

    def cell_variance(self) -> npt.NDArray[np.float64]:
        """The variance of every answer, in their shape."""
        out = self.space.diagonal()
        out *= self.each
        if self.digits is not None:
            out += self.digits.variance()
        return out

    def variance(self, weights: npt.ArrayLike) -> float:
        """The variance of Σ wᵢ·answerᵢ; zero for what the invariants fix."""
        w = np.asarray(weights, np.float64)
        inside: Any = self.space.project(w)
        out = self.each * float(np.vdot(inside, inside))
        if self.digits is not None:
            out += self.digits.variance(w)
        return 0.0 if out < 1e-20 * float(np.vdot(w, w)) * self.each else out


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BasisNoise:
    """Release minus truth: B e, with independent noise e on the coordinates of a basis B of N."""

    each: float
    strategy: BasisStrategy

    def cell_variance(self) -> npt.NDArray[np.float64]:
        """The variance of every answer, in their shape."""
        squares = np.square(self.strategy.back).sum(axis=1)
        return np.asarray(squares * self.each).reshape(self.strategy.space.shape)

    def variance(self, weights: npt.ArrayLike) -> float:
        """The variance of Σ wᵢ·answerᵢ; zero for what the invariants fix."""
        w = np.asarray(weights, np.float64).reshape(-1)
        inside = self.strategy.back.T @ w
        out = self.each * float(np.vdot(inside, inside))
        return 0.0 if out < 1e-20 * float(np.vdot(w, w)) * self.each else out
