"""The extended Gaussian and Laplace mechanisms (the paper's Algorithm 1 and Corollaries 15, 18).

Noise lives inside the null space from the start: Π_N A(x) is measured with noise for its own
sensitivity Δ(Π_N A), which is never more than Δ(A) in ℓ₂, and the release is what it says of the
null space plus C⁺c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError, DataError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import Keystream, ReleaseKeys, RoundedGaussian, add_noise, draw_each
from subspacedp.release import Design
from subspacedp.subspace import BasisStrategy
from subspacedp.tables import Cells

__all__ = ["Extended", "dropping", "with_strategy"]

MOST_BITS = 30
LEAST_BITS = 12
VISIBLE = 0.05  # of the scale of the noise on a coordinate
LARGEST_UNITS = 2.0**38  # noise scale in units of the grid: coarser grids for small budgets


@dataclass(frozen=True, eq=False, repr=False)
class Extended(Mechanism):
    """Noise on the answers' part in the null space.

    Guarantees
    ----------
    1. The measurement is private with the design's budget over all neighbours, for the sensitivity
       of exactly the integers that are measured (docs/proofs/extended.md).
    2. The release is g(noisy) + C⁺c with g(noisy) in the null space: S.
    3. With Gaussian noise the mean squared error is (n − n_c)·σ², σ for Δ₂(Π_N A); never above the
       projected mechanism's but for the rounding of the grid.
    """

    proofs: ClassVar[tuple[str, ...]] = ("extended.md", "guarantees.md")

    def integers(self, answers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The part of the answers in the null space, as integers."""
        design = self.design
        return (design.on_margins if design.basis is None else design.basis).integers(answers)

    def add_noise(self, answers: npt.NDArray[np.int64], keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """The part of the answers in the null space, as integers, plus noise."""
        design = self.design
        measured = self.integers(answers)
        if design.basis is not None:
            add_noise(design.law, keys, 0, measured, measured)
            return measured
        sizes, member = np.unique(design.on_margins.denominators, return_inverse=True)
        # One step up: the product must not round below σ times the denominator.
        scales = [math.nextafter(design.law.scale * int(size), math.inf) for size in sizes]
        laws = [RoundedGaussian(scale) for scale in scales]
        return measured + draw_each(laws, member.reshape(-1), keys).reshape(measured.shape)

    def check_size(self, answers: npt.NDArray[np.int64]) -> None:
        """Refuse also answers for which the grid of the basis could cause a visible bias.

        Or whose coordinates in the basis do not fit in 64 bits: they are computed as `add_noise`
        does it.
        """
        super().check_size(answers)
        basis = self.design.basis
        if basis is None:
            return
        try:
            basis.integers(answers)
        except (DataError, ReleaseError):
            raise ReleaseError(
                "The answers are too large for the grid of the basis, whose coordinates take 64 "
                "bits; use the projected mechanism."
            ) from None
        if self.design.space.rank == 0:
            return  # the weights are undone exactly
        noise = self.design.law.scale * float(basis.step)
        total = float(np.abs(answers.astype(np.float64)).sum())
        if basis.bias_bound(total) > VISIBLE * noise:
            raise ReleaseError(
                "The answers are too large for the grid of the basis to be free of bias; use the "
                "projected mechanism."
            )

    def reconstruct(
        self,
        noisy: npt.NDArray[np.int64],
        exact: HeldValues,
        coins: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """Π_N·noisy + C⁺c."""
        del coins, overwrite
        design = self.design
        if design.basis is not None:
            coordinates = noisy * float(design.basis.step)
            inside = (design.basis.back @ coordinates).reshape(design.query.shape)
        else:
            inside = design.space.project(noisy / design.on_margins.denominators)
        return (inside + design.space.lift(exact)) * float(design.query.grid)


def with_strategy(design: Design, basis: npt.ArrayLike | None) -> Design:
    """The design with what it measures: margins need no basis for Gaussian noise, others do.

    The grid of a basis is 2**-30, or coarser where the noise would otherwise leave its range.
    Where that would be too coarse, places of the product are rounded off instead.
    """
    margins = isinstance(design.held, HeldMargins) and isinstance(design.query, Cells)
    if basis is None and margins and not design.budget.pure:
        largest = int(design.on_margins.distinct[-1])
        if design.law.scale * largest > LARGEST_UNITS:
            raise ReleaseError(
                "The budget is too small for noise in steps of the held groups' denominators; use "
                "the projected mechanism."
            )
        return design
    made = replace(design, basis=BasisStrategy.from_basis(design.space, MOST_BITS, basis))
    if not math.isfinite(made.law.scale):  # no float64 holds it
        raise BudgetError(
            "The budget is too small for this mechanism's grid; use the projected mechanism."
        )
    spare = int(np.ceil(np.log2(max(made.law.scale / LARGEST_UNITS, 1.0))))
    if spare == 0:
        return made
    if MOST_BITS - spare >= LEAST_BITS:
        fitting = BasisStrategy.from_basis(design.space, MOST_BITS - spare, basis)
        return replace(design, basis=fitting)
    return dropping(made, spare)


def dropping(design: Design, spare: int) -> Design:
    """The design with the last binary places of its measured integers rounded off.

    For queries whose own grid is fine: the product with the basis then has places to spare.
    """
    if design.basis is None:
        return design
    moved = math.sqrt(design.sensitivity.l2_squared) * 2.0**-spare
    if moved < 2.0**LEAST_BITS * math.sqrt(len(design.basis.weights)):
        raise BudgetError(
            "The budget is too small for this mechanism's grid; use the projected mechanism."
        )
    return replace(design, basis=replace(design.basis, drop=spare))
