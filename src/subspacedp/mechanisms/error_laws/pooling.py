"""How several releases become one estimate: a linear map of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues
from subspacedp.tables import Margin

__all__ = ["Averaging", "Pooling"]

FloatArray = npt.NDArray[np.float64]


class Pooling(ABC):
    """A linear estimate x̂ = x₀ + Σ_r T_r(y_r − A_r x₀) from releases y_r of A_r x.

    Guarantees
    ----------
    1. Unbiased: Σ_r T_r A_r u = u for every u that the exact values leave open, and x₀ has them.
    """

    shares: tuple[float, ...]  # of every release, on average over all directions

    @property
    def best(self) -> bool:
        """Whether no linear unbiased estimate has a smaller variance, up to a part in 10,000."""
        return True

    def figure_variance(
        self, each: Sequence[FloatArray], margins: Sequence[Margin]
    ) -> FloatArray | None:
        """The variances of the totals of some margins, from those in every release.

        None where there is no closed form. Where there is one, figures whose errors have the same
        law in every release have the same law in the estimate.
        """
        del each, margins
        return None

    @abstractmethod
    def under(self, weights: FloatArray) -> list[FloatArray]:
        """T_rᵀ w: the weights of every release's answers in a weighted sum of the estimate."""

    @abstractmethod
    def mix(
        self,
        values: Sequence[npt.NDArray[Any]],
        held: HeldMargins | HeldMatrix,
        exact: HeldValues,
    ) -> FloatArray:
        """The estimate from released values, in units of the query's grid."""


@dataclass(frozen=True, eq=False, repr=False)
class Averaging(Pooling):
    """Σ ω_r y_r with Σ ω_r = 1: for covariances that are multiples of one another."""

    shares: tuple[float, ...]

    def figure_variance(
        self, each: Sequence[FloatArray], margins: Sequence[Margin]
    ) -> FloatArray | None:
        """Σ ω_r² Var_r: releases are independent."""
        del margins
        pairs = zip(self.shares, each, strict=True)
        return np.asarray(sum((w * w * v for w, v in pairs), 0.0))

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """ω_r w."""
        return [share * weights for share in self.shares]

    def mix(
        self,
        values: Sequence[npt.NDArray[Any]],
        held: HeldMargins | HeldMatrix,
        exact: HeldValues,
    ) -> FloatArray:
        """The average has all that is held: every release has it."""
        del held, exact
        pairs = zip(self.shares, values, strict=True)
        return np.asarray(sum((w * np.asarray(v, np.float64) for w, v in pairs), 0.0))
