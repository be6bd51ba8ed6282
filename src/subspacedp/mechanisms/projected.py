"""The projected Laplace and Gaussian mechanisms (the paper's Corollaries 9 and 11).

release = noisy − lift(C·noisy − c), which equals A(x) + Π_N(noise), computed from integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import Keystream, ReleaseKeys, draw
from subspacedp.subspace import DigitPlan
from subspacedp.tables import Table

__all__ = ["Projected"]

EXACT_FLOAT = 2**53


@dataclass(frozen=True, eq=False, repr=False)
class Projected(Mechanism):
    """Integer noise on every count; the part of it that would move a held total is taken out.

    Guarantees
    ----------
    1. The measurement counts + noise is private with the design's budget over all neighbours
       (docs/proofs/projected-laplace.md, docs/proofs/projected-gaussian.md).
    2. Real-valued: the release is exactly noisy − lift(C·noisy − c) in rationals, rounded to
       float64 once at the end.
    3. With decimals: whole numbers of steps whose group sums equal the held totals as integers.
    4. Unbiased, with the noise model of the design.
    """

    proofs: ClassVar[tuple[str, ...]] = (
        "projected-laplace.md",
        "projected-gaussian.md",
        "guarantees.md",
        "digits.md",
    )

    def measure(self, table: Table, keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """Counts plus independent integer noise, modulo 2**64."""
        noise = draw(self.design.law, keys, 0, table.counts.size)
        return noise.reshape(table.counts.shape) + table.counts

    def reconstruct(
        self, noisy: npt.NDArray[np.int64], exact: HeldValues, coins: Keystream
    ) -> npt.NDArray[Any]:
        """`noisy - lift(C·noisy - c)`, as rationals rounded once or as digits that add up."""
        residual = self.design.held.residual(noisy, exact)
        if self.design.digits is None:
            return self.design.space.lift_exact(residual).rsub(noisy).to_float()
        return _with_digits(self.design.digits, noisy, residual, coins)


def _with_digits(
    digits: DigitPlan, noisy: npt.NDArray[np.int64], residual: HeldValues, coins: Keystream
) -> npt.NDArray[Any]:
    if digits.decimals == 0:
        return noisy - digits.apply(residual, coins.words(0, noisy.size))
    if np.any(np.abs(noisy) >= EXACT_FLOAT // (2 * digits.step)):
        raise ReleaseError(
            f"The counts are too large to carry {digits.decimals} decimals in float64; ask for "
            "fewer decimals."
        )
    steps = noisy * digits.step - digits.apply(residual, coins.words(0, noisy.size))
    return steps / digits.step
