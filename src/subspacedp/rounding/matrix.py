"""Digits that add up for a small integer C."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError
from subspacedp.invariants import HeldValues
from subspacedp.invariants.matrix.general import GeneralNullSpace
from subspacedp.rounding.controlled import ControlledRounding, WordSource

if TYPE_CHECKING:
    from subspacedp.rounding.lattice import LatticeRounding

__all__ = ["MatrixRounding"]


@dataclass(frozen=True, eq=False, repr=False)
class MatrixRounding(ControlledRounding):
    """Random rounding in a reduced basis of the kernel lattice of C (`lattice.py`)."""

    space: GeneralNullSpace

    @cached_property
    def lattice(self) -> LatticeRounding:
        """The rounding itself; refuses a C that is not whole or too large."""
        from subspacedp.rounding.lattice import LatticeRounding

        if not self.space.held.exact:
            raise InvariantError(
                "Digits can add up only for invariants with whole coefficients; publish real "
                "values (decimals=None) instead."
            )
        return LatticeRounding(self.space.held.matrix.toarray(), self.decimals)

    @property
    def needed(self) -> bool:
        """Whether a lifted integer residual can miss the grid at all."""
        return bool(self.space.held.rows) and self.lattice.needed

    def round_in_place(
        self, noisy: npt.NDArray[np.int64], residual: HeldValues, dither: WordSource
    ) -> npt.NDArray[np.int64]:
        """10**decimals · noisy − R with C R = 10**decimals · r."""
        if not self.space.held.rows:
            return noisy * self.step
        words = dither.words(0, max(1, self.lattice.dimension))
        return noisy * self.step - self.lattice.apply(residual[0], words).reshape(noisy.shape)

    def variance(self, weights: npt.NDArray[Any] | None = None) -> Any:
        """The variance that rounding adds, at most: to every answer, or to one weighted sum."""
        if not self.needed:
            return 0.0 if weights is not None else np.zeros(self.space.shape)
        unit = 1.0 / self.step**2
        if weights is None:
            return (
                np.asarray(self.lattice.variance(any_noise=not self.of_noise_alone)).reshape(
                    self.space.shape
                )
                * unit
            )
        flat = np.asarray(weights, float).reshape(-1)
        return float(self.lattice.variance(flat, any_noise=not self.of_noise_alone)) * unit

    def coefficients(
        self, weights: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """What each rounding adds to a weighted sum of answers, and a bound on its variance."""
        if not self.needed:
            return np.zeros(0), np.zeros(0)
        v = np.asarray(weights, np.float64).reshape(-1) @ self.lattice.basis.astype(np.float64)
        return v / self.step, self.lattice.rounding_variances(any_noise=not self.of_noise_alone)

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            f"random rounding in a reduced basis of the kernel lattice to multiples of "
            f"10**-{self.decimals}, independent of the noise; a bound on its variance is in "
            "every stated error"
        )
