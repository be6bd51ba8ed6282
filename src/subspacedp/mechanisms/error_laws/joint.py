"""The joint noise of a release: independent of the data, public, and known in closed form."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, MarginNullSpace, NullSpace
from subspacedp.mechanisms.error_laws.kinds import CellKinds
from subspacedp.mechanisms.error_laws.simulated import MOST_CELLS, SmallTable
from subspacedp.mechanisms.error_laws.sums import (
    Least,
    OnlyVariance,
    Part,
    Rounding,
    SumLaw,
    WeightedSum,
    check_variance,
    part,
)
from subspacedp.mechanisms.strategies import BasisStrategy, MarginStrategy
from subspacedp.noise.laws import DeclaredNoise, KnownLaw, RoundedGaussian
from subspacedp.rounding import ControlledRounding, GroupProfiles, MarginRounding, corner_counts
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from subspacedp.mechanisms.figures import Figures


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
        self, values: Sequence[AnyArray], held: HeldMargins | HeldMatrix, exact: HeldValues
    ) -> FloatArray:
        """The estimate from released values, in units of the query's grid."""


@frozen(eq=False, repr=False)
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
        self, values: Sequence[AnyArray], held: HeldMargins | HeldMatrix, exact: HeldValues
    ) -> FloatArray:
        """The average has all that is held: every release has it."""
        del held, exact
        pairs = zip(self.shares, values, strict=True)
        return np.asarray(sum((w * np.asarray(v, np.float64) for w, v in pairs), 0.0))


UNEQUAL = 0.02  # spread of variances that costs less than a part in 10,000 of the best one
WORTH_WHILE = 0.005  # of a variance: rounding whose law is simulated


class JointNoise(ABC):
    """Release minus truth, as a linear map of independent noise, plus controlled rounding.

    Guarantees
    ----------
    1. The mean is zero.
    2. Stated variances and covariances are never too small, and exact where nothing is rounded.
    """

    @property
    def each(self) -> float:
        """The variance of one noise variable, in units of the published values squared.

        One where `inside` carries the deviations.
        """
        return 1.0

    @abstractmethod
    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""

    def total_variance(self) -> float | None:
        """The variances of all answers together, where a closed form is known."""
        return None

    def expected_variance(self) -> FloatArray:
        """At least that of every answer, by a rule that holds for tables of any size."""
        return self.cell_variance()

    @abstractmethod
    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of the independent noise in Σ wᵢ·answerᵢ."""

    @abstractmethod
    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The independent noise with its laws, for weights from `inside`."""

    def roundings(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each randomised rounding adds to Σ wᵢ·answerᵢ, and a bound on its variance."""
        return np.zeros(0), np.zeros(0)

    # ------------------------------------------------------------- as plain data

    def stated_noise(self) -> dict[str, Any]:
        """`inside`, the variance of a noise variable and its law, as plain data.

        Enough to find the variance of any weighted sum in any language: what each kind means is in
        docs/error-model.md. Here a matrix, figure by figure, and no law.
        """
        shape = self.cell_variance().shape
        units = np.eye(math.prod(shape)).reshape(-1, *shape)
        matrix = np.stack([self.inside(one).reshape(-1) for one in units])
        return {"kind": "matrix", "matrix": stated_matrix(matrix)} | stated_law(
            None, 1.0, self.each
        )

    def stated_rounding(self) -> dict[str, Any] | None:
        """`roundings` as plain data; None where nothing is rounded."""
        rounding = self.rounded
        if rounding is None:
            return None
        if math.prod(rounding.space.shape) > rounding.most_stated:
            return rounding.at_most()
        return rounding.as_dict(self.roundings(np.zeros(rounding.space.shape))[1])

    # ------------------------------------------------------------- how directions differ

    @property
    def null_space(self) -> NullSpace | None:
        """The space of answers that noise fills, where it is the null space of what is held."""
        return None

    def dimension(self, answers: int) -> int:
        """In how many directions there is noise, of so many answers."""
        return answers if self.null_space is None else self.null_space.dimension

    @property
    def uniform(self) -> bool:
        """Whether the variance is the same in all directions of the null space, nearly."""
        return False

    def variances(self, number: int) -> FloatArray:
        """The variance of each of so many noise variables."""
        return np.full(number, self.each)

    @property
    def rounded(self) -> ControlledRounding | None:
        """The controlled rounding of projected answers, where there is any."""
        return None

    def counted(self, weights: FloatArray, counts: FloatArray) -> tuple[Part, ...] | None:
        """The parts for values of `inside` and how often each occurs.

        None where noise variables differ in their laws.
        """
        del weights, counts
        return None

    def rounding_counts(self, margin: Margin) -> tuple[float, float, Int64Array] | None:
        """What one rounding adds to a margin's totals, its variance, and how many each total has.

        None where nothing was rounded.
        """
        del margin
        return None

    def log_normal(self, difference: FloatArray) -> float | None:
        """The log-density at release − truth of a normal law with this covariance.

        None where there is no closed form. Rounding counts by its average variance.
        """
        del difference
        return None

    # ------------------------------------------------------------------ fourth moments

    @property
    def excess(self) -> float:
        """κ₄/κ₂² of one noise variable, at most; 0 where it is not known to be positive."""
        return 0.0

    def fourth_roots(self, weights: FloatArray) -> FloatArray:
        """bᵢ for every independent noise variable, Σ bᵢ⁴ the fourth cumulant of Σ wᵢ·answerᵢ.

        They are linear in the weights; empty where no fourth cumulant is known to be positive.
        """
        fourth = self.excess * self.each**2
        if fourth <= 0:
            return np.empty(0)
        return np.asarray(fourth**0.25 * self.inside(weights).reshape(-1))

    # ------------------------------------------------------------------ several releases

    def without_rounding(self, plain: tuple[JointNoise, ...]) -> JointNoise:
        """The noise of the same estimate from releases that have these noises instead."""
        return plain[0]

    def pooled(self, noises: tuple[JointNoise, ...]) -> Pooling | None:
        """How releases with these noises, this one among them, become one estimate.

        None where no closed form is known.
        """
        del noises
        return None

    # ------------------------------------------------------------------ weighted sums

    @property
    def nothing(self) -> float:
        """The squared relative error of `inside`: a share of the weights below it is zero."""
        return 1e-20

    @property
    def known(self) -> bool:
        """Whether the law is known, and not only its variance."""
        return True

    @property
    def grid(self) -> float | None:
        """What published and true values are multiples of; None where either can be real."""
        return None

    def figures_of(self, margin: Margin) -> Figures:
        """The totals of a margin's groups: here each with a law of its own."""
        from subspacedp.mechanisms.figures import groups_apart

        return groups_apart(self, margin)

    def cell_figures(self, shape: tuple[int, ...]) -> Figures:
        """Every answer: here each with a law of its own."""
        from subspacedp.mechanisms.figures import cells_apart

        return cells_apart(self, shape)

    def is_fixed(self, weights: FloatArray) -> bool:
        """Whether the invariants fix Σ wᵢ·answerᵢ."""
        return self._fixed(weights, self.inside(weights))

    def variance(self, weights: ArrayLike) -> float:
        """The variance of Σ wᵢ·answerᵢ; zero for what the invariants fix."""
        w = np.asarray(weights, np.float64)
        inside = self.inside(w)
        if self._fixed(w, inside):
            return 0.0
        return self._variance(inside, *self.roundings(w))

    def _variance(
        self, inside: FloatArray, coefficients: FloatArray, unit_variance: FloatArray
    ) -> float:
        return self.each * float(np.vdot(inside, inside)) + float(coefficients**2 @ unit_variance)

    def covariance(self, rows: ArrayLike) -> FloatArray:
        """The covariance matrix of several weighted sums, one per row of weights.

        With controlled rounding it is an upper bound: it exceeds the true one by a matrix without
        negative eigenvalues.
        """
        each = [np.asarray(row, np.float64) for row in np.asarray(rows, np.float64)]
        if not each:
            return np.zeros((0, 0))
        inner = [self.inside(w) for w in each]
        fixed = np.array(
            [self._fixed(w, inside) for w, inside in zip(each, inner, strict=True)], bool
        )
        inside = np.stack([i.reshape(-1) for i in inner])
        out = self.each * (inside @ inside.T)
        pairs = [self.roundings(w) for w in each]
        if pairs and pairs[0][0].size:
            coefficients = np.stack([v for v, _ in pairs])
            out += (coefficients * pairs[0][1]) @ coefficients.T
        out[fixed, :] = 0.0
        out[:, fixed] = 0.0
        return np.asarray(out)

    def law_of(self, weights: ArrayLike) -> SumLaw:
        """The law of the error of Σ wᵢ·answerᵢ."""
        w = np.asarray(weights, np.float64)
        inside = self.inside(w)
        if self._fixed(w, inside):
            return WeightedSum(parts=())
        coefficients, unit_variance = self.roundings(w)
        variance = self._variance(inside, coefficients, unit_variance)
        return self.law_from(self.parts(inside), coefficients, self._step(w), variance)

    def law_from(
        self, parts: tuple[Part, ...], coefficients: FloatArray, step: float | None, variance: float
    ) -> SumLaw:
        """The law of a weighted sum from its parts; by the variance alone where no law is known."""
        if not self.known:
            check_variance(variance)
            return OnlyVariance(variance)
        rounding = Rounding.of(coefficients)
        return WeightedSum(parts=parts, rounding=rounding, step=step if rounding else None)

    def _step(self, weights: FloatArray) -> float | None:
        """What the weighted sum is a multiple of, for whole weights of values on a grid."""
        if self.grid is None:
            return None
        w = weights[weights != 0]
        if w.size == 0 or not np.array_equal(w, np.rint(w)) or np.abs(w).max() > 2**40:
            return None
        return float(np.gcd.reduce(w.astype(np.int64))) * self.grid

    def _fixed(self, weights: FloatArray, inside: FloatArray) -> bool:
        """What is left of the weights below the rounding error of a projection is zero."""
        left, whole = float(np.vdot(inside, inside)), float(np.vdot(weights, weights))
        return left <= self.nothing * whole


@frozen(eq=False, repr=False, kw_only=True)
class NoiseModel(JointNoise):
    """Release minus truth: Π_N e with independent noise e, plus digit rounding.

    Guarantees
    ----------
    1. Without rounding, variances are exact: Var(w·e) = Var(e₁)·|Π_N w|². Two exceptions are upper
       bounds: cells of a general C of large size, and the extended mechanism on margins with
       unequal groups, where the cell with most variance stands for all.
    2. With rounding, its part is uncorrelated with Π_N e and bounded as `rounding` says.
    """

    law: KnownLaw | DeclaredNoise
    unit: float  # of the noise, in units of the published values
    space: NullSpace
    rounding: ControlledRounding | None = None
    # Group means leave 1e-15 of the weights, and so does a solver that is asked twice.
    nothing: ClassVar[float] = 1e-26

    @classmethod
    def on(
        cls,
        held: HeldMargins | HeldMatrix,
        law: KnownLaw | DeclaredNoise,
        unit: float,
        rounding: ControlledRounding | None = None,
    ) -> NoiseModel:
        """The model for invariants: with closed forms where they are margins."""
        if held.family is not None:
            space = held.family.cell_space
            return MarginNoise(law=law, unit=unit, space=space, rounding=rounding)
        return cls(law=law, unit=unit, space=held.as_matrix().space, rounding=rounding)

    @cached_property
    def known_law(self) -> KnownLaw | None:
        """The law of the noise; None where only a variance was declared."""
        return self.law.known

    @property
    def denominators(self) -> Int64Array | None:
        """The denominator of every cell, where each has noise in steps of one over it."""
        return None

    @property
    def one_grid(self) -> bool:
        """Whether all noise variables have the same law."""
        return True

    @property
    def each(self) -> float:
        """Var(e₁), in units of the published values squared."""
        return self.law.variance * self.unit**2

    @property
    def known(self) -> bool:
        """Whether the law is known, and not only its variance."""
        return self.known_law is not None

    @property
    def grid(self) -> float | None:
        """What published and true values are multiples of; None where either can be real.

        Where held values count more records than are protected, the true value is Π_N of the
        bounded table plus C⁺c: a fraction, although a whole number is published.
        """
        rounding = self.rounding
        return None if rounding is None or not rounding.of_noise_alone else 1.0 / rounding.step

    def stated_noise(self) -> dict[str, Any]:
        """Π_N, and one law for all answers."""
        return {**self.space.as_dict(), **stated_law(self.known_law, self.unit, self.each)}

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return self.expected_variance()

    def expected_variance(self) -> FloatArray:
        """At least that of every answer: closed forms, with 1/6 or less for every rounding."""
        out = self.space.diagonal()
        out *= self.each
        if self.rounding is not None:
            out += self.rounding.variance()
        return out

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w, by a solver that is asked twice."""
        return self.space.project(self.space.project(weights))

    def roundings(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each randomised rounding adds, and a bound on its variance."""
        return (
            super().roundings(weights)
            if self.rounding is None
            else self.rounding.coefficients(weights)
        )

    def figures_of(self, margin: Margin) -> Figures:
        """The totals of a margin's groups, with variances in closed form where there is one."""
        from subspacedp.mechanisms.figures import crossing_totals, groups_apart

        squares = self.space.group_squares(margin)
        if squares is None:
            return groups_apart(self, margin)
        kinds = self.space.group_kinds(margin)
        variance = squares * self.each
        if self.rounding is not None and self.rounding.needed:
            added = self.rounding.group_variance(margin)
            if added is None:
                return groups_apart(self, margin)
            variance += np.where(squares > 0, added, 0.0)
        if kinds is not None:
            return crossing_totals(self, margin, variance, kinds)
        return groups_apart(self, margin, variance)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """One law for all cells."""
        law = self.known_law
        return () if law is None else (part(law, inside * self.unit),)

    def counted(self, weights: FloatArray, counts: FloatArray) -> tuple[Part, ...] | None:
        """The parts for values of Π_N w and how often each occurs."""
        law = self.known_law
        return () if law is None else (Part(law, np.abs(weights) * self.unit, counts),)

    @property
    def null_space(self) -> NullSpace:
        """N."""
        return self.space

    @property
    def uniform(self) -> bool:
        """One law for all answers."""
        return True

    @property
    def rounded(self) -> ControlledRounding | None:
        """The controlled rounding, where any is needed."""
        return self.rounding if self.rounding is not None and self.rounding.needed else None

    @property
    def average(self) -> float:
        """The variance averaged over the directions of N, without rounding."""
        return self.each

    def log_normal(self, difference: FloatArray) -> float | None:
        """−|d|²/(2s²) − (dim/2)·log(2πs²)."""
        variance = self.average
        if self.rounded is not None:
            variance += float(np.sum(self.rounded.variance())) / self.space.dimension
        constant = 0.5 * self.space.dimension * math.log(2 * math.pi * variance)
        return -float(np.vdot(difference, difference)) / (2 * variance) - constant

    @property
    def excess(self) -> float:
        """That of the law of every answer."""
        return self.law.excess


@frozen(eq=False, repr=False, kw_only=True)
class MarginNoise(NoiseModel):
    """The same where margins are held: closed forms for totals of any margin."""

    space: MarginNullSpace
    # For the extended mechanism: each cell's noise is rounded to steps of one over its denominator.
    grids: MarginStrategy | None = None

    @cached_property
    def plan(self) -> MarginRounding | None:
        """Controlled rounding along merged axes, where there is any."""
        if not isinstance(self.rounding, MarginRounding | None):
            raise ReleaseError("Digits of held margins are rounded along merged axes.")
        return self.rounding

    @property
    def denominators(self) -> Int64Array | None:
        """The denominator of every cell, where each has noise in steps of one over it."""
        return None if self.grids is None else self.grids.denominators

    @cached_property
    def one_grid(self) -> bool:
        """Whether all noise variables have the same law."""
        return self.grids is None or self.grids.distinct.size == 1

    @property
    def each(self) -> float:
        """Var(e₁), in units of the published values squared; with grids, of the cell with most."""
        return super().each if self.grids is None else self._largest * self.unit**2

    def stated_noise(self) -> dict[str, Any]:
        """Π_N by group means; where noise is on several grids, without its laws."""
        law, unit = self.known_law, self.unit
        if self.grids is not None:
            d = int(self.grids.distinct[0])
            law = RoundedGaussian(self.law.scale * d) if self.one_grid else None
            unit = unit / d
        return {**self.space.as_dict(), **stated_law(law, unit, self.each)}

    @cached_property
    def _largest(self) -> float:
        """The variance of the cell that has most; rounding to a coarse grid may add or take."""
        sizes = [1] if self.grids is None else self.grids.distinct.tolist()
        return max(RoundedGaussian(self.law.scale * d).variance / d**2 for d in sizes)

    def total_variance(self) -> float:
        """Var(e₁) for every dimension of N, and what rounding adds to all kinds of cells."""
        total = self.each * self.space.dimension
        if self.plan is not None and self.plan.needed:
            total += CellKinds(self.plan).rounding()
        return total

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        small = self.small
        if small is None:
            return self.expected_variance()
        return self.space.diagonal() * self.each + small.plan.cell_variance_from(self._roundings)

    @cached_property
    def small(self) -> SmallTable | None:
        """The table with every rounding, where it is small and what is rounded is noise alone."""
        plan, law = self.plan, self.known_law
        if (
            plan is None
            or law is None
            or self.grids is not None
            or self.unit != 1.0
            or self.space.size > MOST_CELLS
            or not plan.of_noise_alone
            or not plan.held.margins
            or not plan.needed
        ):
            return None
        return SmallTable(law, plan)

    @cached_property
    def _roundings(self) -> FloatArray:
        """The variance of every random rounding, at most."""
        if self.small is None:
            return np.zeros(0)
        bound = self.small.plan.coefficients(np.zeros(self.space.shape))[1]
        return np.minimum(bound, self.small.rounding_variances)

    def law_of(self, weights: ArrayLike) -> SumLaw:
        """The law of the error of Σ wᵢ·answerᵢ; simulated where a small table is rounded."""
        w = np.asarray(weights, np.float64)
        law = super().law_of(w)
        inside = self.inside(w)
        if self.small is None or self._fixed(w, inside):
            return law
        coefficients, unit_variance = self.roundings(w)
        if float(coefficients**2 @ unit_variance) < WORTH_WHILE * self.variance(w):
            return law
        return Least((self.small.law_of(inside, coefficients, self._step(w)), law))

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w, by group means."""
        return self.space.project(weights)

    def roundings(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each randomised rounding adds, and a bound on its variance."""
        coefficients, bound = super().roundings(weights)
        return coefficients, bound if self.small is None else self._roundings

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """One law for all cells, or one for every denominator."""
        if self.denominators is None or not self.known:
            return super().parts(inside)
        sigma = self.law.scale
        flat, grids = inside.reshape(-1), np.broadcast_to(self.denominators, inside.shape).ravel()
        return tuple(
            part(RoundedGaussian(sigma * int(d)), flat[grids == d] * (self.unit / int(d)))
            for d in np.unique(grids)
        )

    @property
    def uniform(self) -> bool:
        """Whether the variance is the same in all directions of N, but for denominators."""
        if self.grids is None:
            return True
        sizes = self.grids.distinct.tolist()
        steps = [RoundedGaussian(self.law.scale * d).variance / d**2 for d in sizes]
        return bool(max(steps) <= (1 + UNEQUAL) * min(steps))

    def variances(self, number: int) -> FloatArray:
        """By denominator."""
        if self.denominators is None:
            return super().variances(number)
        grids = np.broadcast_to(self.denominators, self.space.shape).reshape(-1)
        sizes, member = np.unique(grids, return_inverse=True)
        each = [
            RoundedGaussian(self.law.scale * int(d)).variance * (self.unit / int(d)) ** 2
            for d in sizes
        ]
        return np.array(each)[member.reshape(-1)]

    @property
    def average(self) -> float:
        """The variance averaged over the directions of N, without rounding."""
        if self.denominators is None:
            return self.each
        sizes = self.denominators.astype(np.float64)
        return (self.law.scale**2 + float(np.mean(1 / (12 * sizes**2)))) * self.unit**2

    def rounding_counts(self, margin: Margin) -> tuple[float, float, Int64Array] | None:
        """One kind of rounding for all totals."""
        plan = self.plan
        if plan is None or not plan.needed:
            return None
        return 1.0 / plan.step, plan.unit_variance, corner_counts(plan, margin)

    def counted(self, weights: FloatArray, counts: FloatArray) -> tuple[Part, ...] | None:
        """The parts for values of Π_N w and how often each occurs; one grid for all."""
        if not self.one_grid:
            return None
        if self.grids is None or not self.known:
            return super().counted(weights, counts)
        d = int(self.grids.distinct[0])
        law = RoundedGaussian(self.law.scale * d)
        return (Part(law, np.abs(weights) * (self.unit / d), counts),)

    def figures_of(self, margin: Margin) -> Figures:
        """The totals of a margin's groups: classes of them where all noise has one law."""
        from subspacedp.mechanisms.figures import GroupTotals, groups_apart, totals_apart

        if margin.grouped and self.small is not None:
            return groups_apart(self, margin)
        if margin.grouped:
            return super().figures_of(margin)
        profiles = GroupProfiles(self.space, margin)
        return GroupTotals(self, profiles) if self.one_grid else totals_apart(self, profiles)

    def cell_figures(self, shape: tuple[int, ...]) -> Figures:
        """Every cell, as the margin of all."""
        del shape
        return self.figures_of(self.space.domain.cells)


@frozen(eq=False, repr=False, kw_only=True)
class BasisNoise(JointNoise):
    """Release minus truth: B e, with independent noise e on the coordinates of a basis B of N."""

    law: KnownLaw
    unit: float
    strategy: BasisStrategy

    @property
    def each(self) -> float:
        """Var(e₁), in units of the published values squared."""
        return self.law.variance * self.unit**2

    def stated_noise(self) -> dict[str, Any]:
        """Bᵀ, and one law for all coordinates."""
        back = stated_matrix(self.strategy.back)
        return {"kind": "matrix", "matrix": back} | stated_law(self.law, self.unit, self.each)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        squares = np.square(self.strategy.back).sum(axis=1)
        return np.asarray(squares * self.each).reshape(self.strategy.space.shape)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Bᵀw."""
        flat: Any = weights.reshape(-1)
        return np.asarray(self.strategy.back.T @ flat)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """One law for all coordinates."""
        return (part(self.law, inside * self.unit),)

    @property
    def null_space(self) -> NullSpace:
        """N."""
        return self.strategy.space

    @property
    def uniform(self) -> bool:
        """Whether the basis is orthonormal, nearly."""
        back = self.strategy.back
        return bool(np.allclose(back.T @ back, np.eye(back.shape[1]), rtol=0, atol=UNEQUAL / 2))

    @property
    def excess(self) -> float:
        """That of the law of every coordinate."""
        return self.law.excess


def stated_law(law: KnownLaw | None, unit: float, variance: float) -> dict[str, Any]:
    """The variance of a noise variable; and its law in units, where all have one that is known."""
    stated = None
    if law is not None:
        known = law.as_dict()
        stated = {name: known[name] for name in ("family", *law.states)} | {"unit": unit}
    return {"variance": None if math.isnan(variance) else variance, "law": stated}


def stated_matrix(matrix: FloatArray) -> dict[str, Any]:
    """A dense matrix, row by row."""
    return {"shape": list(matrix.shape), "values": matrix.reshape(-1).tolist()}
