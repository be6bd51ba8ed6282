"""Discrete Gaussian noise under the projection framework.

The law of OpenDP and of the United States Census Bureau: the normal density on the whole numbers,
where the projected mechanism rounds a normal variable to them. Reconstruction is that of the
projected mechanism; law and calibration are its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from subspacedp.errors import BudgetError
from subspacedp.mechanisms.base import Mechanism, Options, check_moved
from subspacedp.mechanisms.projected import Projected
from subspacedp.noise import DiscreteGaussian
from subspacedp.privacy import ZCDP
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class Discrete(Projected):
    """Discrete Gaussian noise on every answer; what would move a held total is taken out.

    Guarantees
    ----------
    1. The measurement answers + noise is ρ-zero-concentrated private over all neighbours, with
       σ² = Δ₂²/(2ρ) as a fraction (docs/proofs/discrete-gaussian.md). Nothing more is claimed: it
       is composed by ρ, and not as Gaussian noise.
    2. The variance of the noise is at most σ², where rounded Gaussian noise has about σ² + 1/12.
    3. All else as for the projected mechanism.
    """

    name: ClassVar[str] = "discrete"
    laws: ClassVar[tuple[type[DiscreteGaussian], ...]] = (DiscreteGaussian,)
    only_stated: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("discrete-gaussian.md", "guarantees.md", "digits.md")

    @property
    def proof(self) -> str:
        """That of the discrete Gaussian law."""
        return self.proofs[0]

    @cached_property
    def law(self) -> DiscreteGaussian:
        """σ² = Δ₂²/(2ρ), without any rounding."""
        check_moved(self.sensitivity)
        if not isinstance(self.budget, ZCDP):
            raise BudgetError(
                f"The {self.name} mechanism is proven private for zero-concentrated budgets; give "
                f"ZCDP(rho), or take the {Projected.name} mechanism."
            )
        rho = exact_decimal(self.budget.rho)
        sigma_squared = Fraction(self.sensitivity.l2_squared) / (2 * rho)
        if sigma_squared > DiscreteGaussian.LARGEST:
            raise BudgetError(
                f"The {self.name} mechanism draws noise with a sigma of at most "
                f"{float(DiscreteGaussian.LARGEST) ** 0.5:,.0f}, and {self.budget} asks for "
                f"{float(sigma_squared) ** 0.5:,.4g}; take the {Projected.name} mechanism, whose "
                "error is then the same to six digits."
            )
        return DiscreteGaussian(sigma_squared)


@dataclass(frozen=True)
class DiscreteOptions(Options):
    """Discrete Gaussian noise on every answer, for a zero-concentrated budget."""

    mechanism: ClassVar[type[Mechanism]] = Discrete

    def fit(self, problem: Problem) -> Discrete:
        """There is nothing to choose."""
        return Discrete(problem)
