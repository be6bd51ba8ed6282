"""Rounding of a small table: every rounding's variance, and draws of noise and rounding together.

A rounding's probability is the fractional part of X = Σ bᵢeᵢ, a function of the noise. Where noise
is small, X is not spread over the whole numbers, and the bounds that hold for any noise are
far from the law itself. Proof: `docs/proofs/intervals.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.error_laws.simulated import Simulated, draws_for, public_generator
from subspacedp.noise.laws import KnownLaw
from subspacedp.rounding import MarginRounding

__all__ = ["MOST_CELLS", "SmallTable"]

FloatArray = npt.NDArray[np.float64]

MOST_CELLS = 256
FREQUENCIES = 40  # of the variance of a rounding; those left out would make it smaller


@dataclass(frozen=True, eq=False, repr=False)
class SmallTable:
    """Independent noise e of one law on the cells of a table, and the rounding of its digits."""

    law: KnownLaw
    plan: MarginRounding

    @cached_property
    def entries(self) -> FloatArray:
        """What is rounded, as weights of the noise of every cell: roundings × cells."""
        space = self.plan.space
        units = np.eye(space.size).reshape(space.size, *space.shape)
        return np.stack([self.plan.thrown_entries(e - space.project(e)) for e in units], axis=1)

    @cached_property
    def rounding_variances(self) -> FloatArray:
        """E[f(1 − f)] = 1/6 − Σ_k φ_X(2πk)/(πk)² each, from above: φ_X is not negative."""
        out = np.full(len(self.entries), 1 / 6)
        for k in range(1, FREQUENCIES + 1):
            turns = self.law.characteristic(2 * np.pi * k * self.entries).prod(axis=1)
            out -= np.maximum(turns - 1e-12, 0.0) / (np.pi * k) ** 2
        return np.asarray(np.maximum(out, 0.0) + 1e-12)

    @cached_property
    def _draws(self) -> tuple[FloatArray, FloatArray]:
        """Noise of every cell, and up to what the roundings move."""
        number = draws_for(self.plan.space.size) or 1
        rng, shape = public_generator(), (number, self.plan.space.size)
        noise = self.law.simulate(rng, shape)
        exact = noise @ self.entries.T
        return noise, np.floor(exact + rng.random(exact.shape)) - exact

    def law_of(self, inside: FloatArray, coefficients: FloatArray) -> Simulated:
        """The law of Σ aᵢeᵢ − Σ vⱼuⱼ."""
        noise, moved = self._draws
        return Simulated.of(noise @ inside.reshape(-1) - moved @ coefficients)
