"""The projected Laplace and Gaussian mechanisms (the paper's Corollaries 17 and 14).

release = noisy − lift(C·noisy − c), which equals A(x) + Π_N(noise), computed from integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.noise import Keystream, KnownLaw, ReleaseKeys, add_noise
from subspacedp.problem import Problem

__all__ = ["Projected", "ProjectedOptions"]


@dataclass(frozen=True, eq=False, repr=False)
class Projected(Mechanism):
    """Integer noise on every count; the part of it that would move a held total is taken out.

    Guarantees
    ----------
    1. The measurement counts + noise is private with its budget over all neighbours
       (docs/proofs/projected-laplace.md, docs/proofs/projected-gaussian.md).
    2. Real-valued: noisy − lift(C·noisy − c), whole parts in integers and fractions in float64:
       within a few units in the last place of 1 + |value| of the exact rational.
    3. With decimals: whole numbers of steps whose group sums equal the held totals as integers.
    4. Unbiased, with its noise model.
    """

    name: ClassVar[str] = "projected"
    offers_decimals: ClassVar[bool] = True
    measures_counts: ClassVar[bool] = True
    fitted_at_once: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = (
        "projected-laplace.md",
        "projected-gaussian.md",
        "guarantees.md",
        "digits.md",
    )

    @property
    def proof(self) -> str:
        """By the law of the noise."""
        return self.proofs[0] if self.budget.pure else self.proofs[1]

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        return "every answer, independently, before projection onto the null space"

    @property
    def law_of_answers(self) -> KnownLaw:
        """Every answer has its own noise."""
        law: KnownLaw = self.law
        return law

    @property
    def can_round(self) -> bool:
        """Whole answers have digits that add up."""
        return self.query.grid == 1

    def add_noise(self, answers: npt.NDArray[np.int64], keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """Answers plus independent integer noise, modulo 2**64."""
        noisy = np.empty(answers.shape, np.int64)
        add_noise(self.law, keys, 0, answers.reshape(-1), noisy.reshape(-1))
        if self.held.empty is not None:
            noisy[self.held.empty] = 0  # publicly known: no noise is needed there
        return noisy

    def reconstruct(
        self,
        noisy: npt.NDArray[np.int64],
        exact: HeldValues,
        dither: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """`noisy - lift(C·noisy - c)`, as rationals rounded once or as digits that add up."""
        residual = self.held.residual(noisy, exact)
        rounding, grid = self.rounding, float(self.query.grid)
        if rounding is None:
            real = self.null_space.subtract_lift(noisy, residual, overwrite=overwrite)
            return real if grid == 1.0 else real * grid
        workspace = noisy if overwrite else noisy.copy()
        steps = rounding.round_in_place(workspace, residual, dither)
        return steps if rounding.decimals == 0 else steps / rounding.step


@dataclass(frozen=True)
class ProjectedOptions(Options):
    """Noise on every answer, projected onto the null space of the invariants."""

    mechanism: ClassVar[type[Mechanism]] = Projected

    def fit(self, problem: Problem) -> Projected:
        """There is nothing to choose."""
        return Projected(problem)
