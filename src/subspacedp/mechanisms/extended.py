"""The extended Gaussian and Laplace mechanisms (the paper's Algorithm 1 and Corollaries 15, 18).

Noise lives inside the null space from the start: Π_N A(x) is measured with noise for its own
sensitivity Δ(Π_N A), which is never more than Δ(A) in ℓ₂, and the release is what it says of the
null space plus C⁺c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import BudgetError, DataError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues, space_of
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.error_laws import BasisNoise, JointNoise, MarginNoise
from subspacedp.mechanisms.optimality import reached_by
from subspacedp.mechanisms.strategies import LARGEST_BASIS, BasisStrategy, MarginStrategy
from subspacedp.noise import Keystream, ReleaseKeys, RoundedGaussian, add_noise, draw_each
from subspacedp.problem import Problem
from subspacedp.queries import Sensitivity

ExtendedT = TypeVar("ExtendedT", bound="Extended")

MOST_BITS = 30
LEAST_BITS = 12
MOST_STATED_BITS, MOST_DROPPED = 40, 128  # of a basis in a file, and of the product with it
VISIBLE = 0.05  # of the scale of the noise on a coordinate
LARGEST_UNITS = 2.0**38  # noise scale in units of the grid: coarser grids for small budgets


@frozen(eq=False, repr=False)
class Extended(Mechanism):
    """Noise on the answers' part in the null space.

    Guarantees
    ----------
    1. The measurement is private with its budget over all neighbours, for the sensitivity
       of exactly the integers that are measured (docs/proofs/extended.md).
    2. The release is g(noisy) + C⁺c with g(noisy) in the null space: S.
    3. With Gaussian noise the mean squared error is (n − n_c)·σ², σ for Δ₂(Π_N A); never above the
       projected mechanism's but for the rounding of the grid.
    """

    basis: BasisStrategy | None = None  # what is measured; None: Π_N of counts, margins held

    name: ClassVar[str] = "extended"
    fitted_at_once: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("extended.md", "guarantees.md")
    keys_in_files: ClassVar[tuple[str, ...]] = ("basis",)
    exact_rationals: ClassVar[bool] = False  # values are computed in float64

    @cached_property
    def on_margins(self) -> MarginStrategy:
        """What is measured when margins are held and no basis is chosen."""
        if self.held.family is None:
            raise ReleaseError("This strategy is for held margins alone.")
        return MarginStrategy(self.held.family.cell_space)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Of the numbers that are measured, in units of `unit`."""
        if self.basis is not None:
            return self.basis.sensitivity(self.query, self.neighbours)
        squared = self.on_margins.sensitivity(self.neighbours)
        return Sensitivity(self.query.sensitivity(self.neighbours).l1, squared)

    @property
    def unit(self) -> Fraction:
        """One unit of the integer noise; without a basis, before it is rounded to denominators."""
        return self.query.grid if self.basis is None else self.query.grid * self.basis.step

    @cached_property
    def noise(self) -> JointNoise:
        """The joint law of release minus truth."""
        if self.basis is not None:
            return BasisNoise(law=self.law, unit=float(self.unit), strategy=self.basis)
        return MarginNoise(
            law=self.law,
            unit=float(self.unit),
            space=self.on_margins.space,
            rounding=self.rounding,
            grids=self.on_margins,
        )

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        if self.basis is None:
            return (
                "every answer projected onto the null space, independently, rounded to steps of "
                "one over the answer's denominator, then projected again"
            )
        return (
            "every coordinate of the answers in a basis of the null space, independently; the "
            f"basis is on a grid of 2**-{self.basis.bits}, which moves no coordinate by more "
            f"than 2**-{self.basis.bits + 1} of the sum of the answers' sizes"
        )

    @property
    def uses_quantile(self) -> bool:
        """Whether noise, in steps of the finest denominator, rests on a float64 quantile."""
        if self.basis is not None:
            return bool(self.law.float_quantile)
        return RoundedGaussian(self.law.scale * int(self.on_margins.distinct[-1])).float_quantile

    @property
    def rounds_products(self) -> bool:
        """Whether places of the products with the basis are rounded off."""
        return self.basis is not None and self.basis.drop > 0

    def without_rounded_products(self) -> Mechanism:
        """With the basis on a coarser grid; sensitivity and noise are those of its integers."""
        basis = self.basis
        if basis is None or not basis.drop:
            return self
        weights = np.rint(basis.weights / 2.0**basis.drop).astype(np.int64)
        coarse = replace(basis, weights=weights, bits=basis.bits - basis.drop, drop=0)
        return replace(self, basis=coarse)

    def fitted(self) -> dict[str, Any]:
        """The basis, where there is one."""
        return {} if self.basis is None else {"basis": self.basis.as_dict()}

    @classmethod
    def from_dict(cls, problem: Problem, data: Mapping[str, Any]) -> Self:
        """The basis must be one of what the invariants leave free; Δ follows from its integers."""
        if "basis" in data:
            return cls(problem, basis=basis_from(data["basis"], problem))
        # Π_N·counts is measured in its denominators: for counts, and in ℓ₂ alone.
        if cls is not Extended or not whole_counts(problem):
            raise ReleaseError("what it measures is not what its mechanism measures.")
        return cls(problem)

    def integers(self, answers: Int64Array) -> Int64Array:
        """The part of the answers in the null space, as integers."""
        return (self.on_margins if self.basis is None else self.basis).integers(answers)

    def coordinates(self, values: FloatArray, exact: HeldValues) -> FloatArray | None:
        """Those in the basis; what Π_N of rounded cells came from is not told by its projection."""
        if self.basis is None:
            return None
        return self.basis.coordinates(values - self.null_space.lift(exact))

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """The part of the answers in the null space, as integers, plus noise."""
        measured = self.integers(answers)
        if self.basis is not None:
            add_noise(self.law, keys, 0, measured, measured)
            return measured
        sizes, member = np.unique(self.on_margins.denominators, return_inverse=True)
        # One step up: the product must not round below σ times the denominator.
        scales = [math.nextafter(self.law.scale * int(size), math.inf) for size in sizes]
        laws = [RoundedGaussian(scale) for scale in scales]
        return measured + draw_each(laws, member.reshape(-1), keys).reshape(measured.shape)

    def check_size(self, answers: Int64Array) -> None:
        """Refuse also answers for which the grid of the basis could cause a visible bias.

        Or whose coordinates in the basis do not fit in 64 bits: they are computed as `add_noise`
        does it.
        """
        super().check_size(answers)
        basis = self.basis
        if basis is None:
            return
        try:
            basis.integers(answers)
        except (DataError, ReleaseError):
            raise ReleaseError(
                "The answers are too large for the grid of the basis, whose coordinates take 64 "
                "bits; use the projected mechanism."
            ) from None
        if self.space.rank == 0:
            return  # the weights are undone exactly
        noise = self.law.scale * float(basis.step)
        total = float(np.abs(answers.astype(np.float64)).sum())
        if basis.bias_bound(total) > VISIBLE * noise:
            raise ReleaseError(
                "The answers are too large for the grid of the basis to be free of bias; use the "
                "projected mechanism."
            )

    def reconstruct(
        self, noisy: Int64Array, exact: HeldValues, dither: Keystream, *, overwrite: bool = False
    ) -> AnyArray:
        """Π_N·noisy + C⁺c."""
        del dither, overwrite
        if self.basis is not None:
            coordinates = noisy * float(self.basis.step)
            inside = (self.basis.back @ coordinates).reshape(self.query.shape)
        else:
            inside = self.null_space.project(noisy / self.on_margins.denominators)
        return (inside + self.null_space.lift(exact)) * float(self.query.grid)


def with_strategy(mechanism: ExtendedT, basis: ArrayLike | None) -> ExtendedT:
    """The mechanism with what it measures: margins need no basis for Gaussian noise, others do.

    The grid of a basis is 2**-30, or coarser where the noise would otherwise leave its range.
    Where that would be too coarse, places of the product are rounded off instead.
    """
    if basis is None and whole_counts(mechanism.problem):
        largest = int(mechanism.on_margins.distinct[-1])
        if mechanism.law.scale * largest > LARGEST_UNITS:
            raise ReleaseError(
                "The budget is too small for noise in steps of the held groups' denominators; use "
                "the projected mechanism."
            )
        return mechanism
    fine = replace(
        mechanism, basis=BasisStrategy.from_basis(mechanism.null_space, MOST_BITS, basis)
    )
    if not math.isfinite(fine.law.scale):  # no float64 holds it
        raise BudgetError(
            "The budget is too small for this mechanism's grid; use the projected mechanism."
        )
    spare = int(np.ceil(np.log2(max(fine.law.scale / LARGEST_UNITS, 1.0))))
    if spare == 0:
        return fine
    if MOST_BITS - spare >= LEAST_BITS:
        coarser = BasisStrategy.from_basis(mechanism.null_space, MOST_BITS - spare, basis)
        return replace(mechanism, basis=coarser)
    return dropping(fine, spare)


def dropping(mechanism: ExtendedT, spare: int) -> ExtendedT:
    """The mechanism with the last binary places of its measured integers rounded off.

    For queries whose own grid is fine: the product with the basis then has places to spare.
    """
    if mechanism.basis is None:
        return mechanism
    moved = math.sqrt(mechanism.sensitivity.l2_squared) * 2.0**-spare
    if moved < 2.0**LEAST_BITS * math.sqrt(len(mechanism.basis.weights)):
        raise BudgetError(
            "The budget is too small for this mechanism's grid; use the projected mechanism."
        )
    return replace(mechanism, basis=replace(mechanism.basis, drop=spare))


def whole_counts(problem: Problem) -> bool:
    """Whether Π_N of counts can be measured in whole denominators: margins held, Gaussian noise."""
    margins = problem.held.family is not None and problem.query.is_histogram
    return margins and not problem.budget.pure


def basis_from(data: Mapping[str, Any], problem: Problem) -> BasisStrategy:
    """A basis on its grid; what is measured must be answers inside N but for the grid."""
    query, space = problem.query, space_of(problem.held)
    bits, drop = data["bits"], data.get("drop", 0)
    if type(bits) is not int or not 1 <= bits <= MOST_STATED_BITS:
        raise ReleaseError(
            f"the grid of its basis must have 1 to {MOST_STATED_BITS} binary places."
        )
    if type(drop) is not int or not 0 <= drop <= MOST_DROPPED:
        raise ReleaseError(f"at most {MOST_DROPPED} binary places can be rounded off.")
    if query.size > LARGEST_BASIS:
        raise ReleaseError(f"a basis is for at most {LARGEST_BASIS:,} answers.")
    weights = np.asarray(data["weights"])
    if weights.dtype != np.int64 or weights.ndim != 2 or not weights.size:
        raise ReleaseError("the weights of its basis must be whole numbers.")
    if weights.shape[1] != query.size or len(weights) > space.dimension:
        raise ReleaseError("its basis does not fit the query.")
    if int(weights.min()) < -(2**bits) - 2 or int(weights.max()) > 2**bits + 2:
        raise ReleaseError("the weights of its basis are larger than its grid allows.")
    reached = reached_by(query, space) if len(weights) < space.dimension else None
    basis = BasisStrategy(space, weights, bits, drop, reached)
    if not basis.fits:
        raise ReleaseError("its basis is not one of what the invariants leave free.")
    return basis


@frozen(eq=False)
class ExtendedOptions(Options):
    """Noise inside the null space, for the sensitivity that is left there.

    Parameters
    ----------
    basis
        An orthonormal basis of the null space as columns. Laplace noise depends on it; by default
        the one in echelon form is taken (`echelon_basis`), which no machine's rounding decides.
    """

    basis: ArrayLike | None = None

    mechanism: ClassVar[type[Mechanism]] = Extended

    def fit(self, problem: Problem) -> Extended:
        """The finest grid of the basis that the noise allows."""
        return with_strategy(Extended(problem), self.basis)
