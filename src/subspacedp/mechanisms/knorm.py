"""The k-norm mechanism: pure ε, with noise in the shape of what one person can change.

Several ways to have integers. A histogram of which only the total is held, and no neighbouring
change alters that: the counts are measured with noise that adds up to zero. The totals of disjoint
groups: differences of counts within each group are measured. Everything else: coordinates in a
basis of the null space on a public grid, as in the extended mechanism, and the body is the hull of
what one record does to exactly these integers, or a body around it; if noise on the answers
themselves is better than any such body, that.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import DiscreteLaplace, JointNoise, Keystream, NoiseModel, ReleaseKeys
from subspacedp.noise.bodies import (
    MOST_DIMENSIONS,
    CrossPolytope,
    Deviations,
    Exchanges,
    Fit,
    fit,
    least_spread,
)
from subspacedp.noise.knorm import GroupedNoise, KNormLaw, KNormNoise
from subspacedp.privacy import PureDP
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.release import Design
from subspacedp.subspace import BasisStrategy, MarginNullSpace
from subspacedp.tables import Cells, Neighbours, Sensitivity

__all__ = ["KNorm", "KNormDesign", "with_body"]

BITS = 30
LEAST_BITS = 12
LARGEST_UNITS = 2.0**38  # noise scale in units of the grid: coarser grids for small budgets
VISIBLE = 0.05  # of the scale of the noise on a coordinate
MOST_VECTORS = 200_000


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class KNormDesign(Design):
    """A design with the body of its noise.

    Parameters
    ----------
    fitted
        The body, whether it is the sensitivity body itself, and the price if it is not.
    """

    fitted: Fit

    @property
    def rate(self) -> Fraction:
        """ε over the most records a person has: each of them changes the integers within K."""
        if not isinstance(self.budget, PureDP):
            raise BudgetError(
                "The k-norm mechanism is for pure budgets: use PureDP(...), or another mechanism."
            )
        most = self.neighbours.records * self.fitted.within
        return exact_decimal(self.budget.epsilon) / most

    @cached_property
    def groups(self) -> Groups:
        """The held groups of cells, where counts are measured."""
        if not isinstance(self.held, HeldMargins):
            raise ReleaseError("This strategy is for held margins alone.")
        return Groups.of(self.held)

    @cached_property
    def law(self) -> KNormLaw:  # type: ignore[override]  # one law of a vector, not of an entry
        """The law of the noise on the vector that is measured, in units of `unit`."""
        return KNormLaw(self.fitted.body, self.rate)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Δ₁ and Δ₂² of the numbers that are measured, for comparison."""
        if self.basis is None:
            return self.query.sensitivity(self.neighbours)
        return self.basis.sensitivity(self.query, self.neighbours)

    @cached_property
    def noise(self) -> JointNoise:
        """The law of release minus truth, or its mean and covariance."""
        if self.basis is not None:
            return KNormNoise(
                law=self.law,
                unit=float(self.unit),
                back=self.basis.back,
                shape=self.query.shape,
            )
        if isinstance(self.law.body, CrossPolytope):
            each = DiscreteLaplace(self.rate / self.law.body.widths[0])
            return NoiseModel(law=each, unit=float(self.unit), space=self.space)
        return GroupedNoise(space=self.groups.space, deviations=self.groups.spread(self.law))

    def as_dict(self) -> dict[str, Any]:
        """The design as plain data: enough to rebuild it."""
        fitted = self.fitted
        described = {
            **fitted.body.as_dict(),
            "own": fitted.own,
            "within": str(fitted.within),
            "price": fitted.price,
            "bound": fitted.bound,
        }
        return {**super().as_dict(), "body": described}


@dataclass(frozen=True, eq=False, repr=False)
class KNorm(Mechanism):
    """Noise in the shape of the sensitivity body.

    Guarantees
    ----------
    1. The measurement is ε-private over all neighbours: every change of the measured integers lies
       in `records · within` times the body, decided in whole numbers (docs/proofs/knorm.md).
    2. The law of the noise is exactly the stated one; no Markov chain is run.
    3. A histogram with its total held: whole counts whose total is exact, and plain privacy.
       Otherwise the release is g(noisy) + C⁺c with g(noisy) in the null space: S.
    """

    design: KNormDesign

    proofs: ClassVar[tuple[str, ...]] = ("knorm.md", "guarantees.md")

    def add_noise(self, answers: npt.NDArray[np.int64], keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """Answers, their differences in groups, or coordinates in the basis, plus one draw."""
        design = self.design
        noise = design.law.draw(keys)[0]
        if design.basis is not None:
            return np.asarray(design.basis.integers(answers) + noise)
        if isinstance(design.law.body, CrossPolytope):
            return np.asarray(answers + noise.reshape(answers.shape))
        noisy = answers + design.groups.placed(noise)
        return noisy if _adds_up(design.fitted) else design.groups.differences(noisy)

    def check_size(self, answers: npt.NDArray[np.int64]) -> None:
        """Refuse also answers for which the grid of the basis could cause a visible bias."""
        super().check_size(answers)
        basis = self.design.basis
        if basis is None:
            return
        total = float(np.abs(answers.astype(np.float64)).sum())
        if basis.bias_bound(total) > VISIBLE * self.design.law.scale * 2.0**-basis.bits:
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
        """Π_N·noisy + C⁺c; for counts as noisy − lift(C·noisy − c), in integers."""
        design = self.design
        if design.basis is not None:
            coordinates = noisy * 2.0**-design.basis.bits
            inside = (design.basis.back @ coordinates).reshape(design.query.shape)
            return (inside + design.space.lift(exact)) * float(design.query.grid)
        # The residual is zero unless held values count records that were not measured.
        residual = design.held.residual(noisy, exact)
        if design.digits is None:
            real = design.space.subtract_lift(noisy, residual, overwrite=overwrite)
            return real if design.query.grid == 1 else real * float(design.query.grid)
        own = noisy if overwrite else noisy.copy()
        steps = design.digits.round_in_place(own, residual, coins)
        return steps if design.digits.decimals == 0 else steps / design.digits.step


def with_body(
    design: Design, *, exact: bool = False, basis: npt.ArrayLike | None = None
) -> KNormDesign:
    """The design with what it measures and the body of its noise.

    Parameters
    ----------
    exact
        Refuse a body around the sensitivity body where that itself cannot be sampled exactly.
    basis
        An orthonormal basis of the null space as columns, by default any. The sensitivity body
        does not depend on it; a body around it may.
    """
    if not isinstance(design.budget, PureDP):
        raise BudgetError(
            "The k-norm mechanism is for pure budgets: use PureDP(...), or another mechanism."
        )
    found = _chosen(design, exact=exact, basis=basis)
    relation = design.neighbours
    if relation.per_cell is None or relation.per_cell == relation.records:
        return found
    # K is smaller than m times the hull for one record, and not smaller than that hull.
    if exact:
        raise ReleaseError(
            "`exact=True` asks for noise of the sensitivity body itself, and with `per_cell` below "
            "`records` only bodies around it can be sampled exactly; leave it out to use one."
        )
    one, fitted = found.fitted.body, found.fitted
    if fitted.own:
        least = least_spread(one.dimension, one.log_volume)
        fitted = replace(fitted, own=False, price=one.spread() / least)
    price = relation.records**2 * fitted.price
    return replace(found, fitted=replace(fitted, price=price, bound=True))


def _chosen(design: Design, *, exact: bool, basis: npt.ArrayLike | None) -> KNormDesign:
    """What is measured, and the body, for one record or for several without a bound a cell."""
    values = {f.name: getattr(design, f.name) for f in fields(Design)}
    grouped = None if basis is not None else _grouped(design)
    if grouped is not None and _adds_up(grouped):
        return KNormDesign(**values, fitted=grouped)
    if design.decimals is not None:
        raise ReleaseError(
            "Digits that add up need the projected mechanism here; publish real values "
            "(decimals=None) with the k-norm mechanism, or hold the grand total alone."
        )
    small = design.space.dimension <= MOST_DIMENSIONS
    if grouped is not None and (grouped.own or (not small and not exact)):
        return KNormDesign(**values, fitted=grouped)
    try:
        found = _in_basis(design, values, basis, exact=exact or grouped is not None)
        if exact or basis is not None:
            return found
        if grouped is not None:
            return _or_groups(found, KNormDesign(**values, fitted=grouped))
        return found if found.fitted.own else _or_answers(found, values)
    except ReleaseError:
        if grouped is None or exact:
            raise
        return KNormDesign(**values, fitted=grouped)


def _in_basis(
    design: Design, values: dict[str, Any], basis: npt.ArrayLike | None, *, exact: bool
) -> KNormDesign:
    """Coordinates in a basis, and the hull of what one record does to them."""
    rate = exact_decimal(cast("PureDP", design.budget).epsilon) / design.neighbours.records
    # The noise reaches about (k + 1)/rate times the body: a coarser grid for small budgets.
    reach = (design.space.dimension + 1) / float(rate) * 2.0**BITS
    spare = int(np.ceil(np.log2(max(reach / LARGEST_UNITS, 1.0))))
    if BITS - spare < LEAST_BITS:
        raise BudgetError(
            "The budget is too small for this mechanism's grid; use the projected mechanism."
        )
    strategy = BasisStrategy.from_basis(design.space, BITS - spare, basis)
    fitted = fit(changes(strategy, design), rate, exact=exact)
    return KNormDesign(**{**values, "basis": strategy}, fitted=fitted)


def _or_groups(found: KNormDesign, other: KNormDesign) -> KNormDesign:
    """K itself on a fine grid, or a body around it on the counts' own grid if that is better.

    Noise of a large budget is mostly zero on whole numbers, and never on a fine grid.
    """
    ratio = other.expected_error().total / found.expected_error().total
    if ratio >= 1:
        return found
    return replace(other, fitted=replace(other.fitted, price=ratio, bound=False))


def _or_answers(found: KNormDesign, values: dict[str, Any]) -> KNormDesign:
    """The design with an enclosing body in the null space, or around the answers if that is better.

    The answers themselves are measured with noise of the cross-polytope of Δ₁, and the part of it
    that would move held values is taken out: the projected Laplace mechanism.
    """
    if getattr(found.held, "empty", None) is not None:
        return found
    around = Fit(
        body=CrossPolytope((Fraction(1),) * found.query.size),
        own=False,
        within=found.query.sensitivity(found.neighbours).l1 / found.neighbours.records,
    )
    other = KNormDesign(**values, fitted=around)
    ratio = other.expected_error().total / found.expected_error().total
    if ratio >= 1:
        return found
    price = replace(around, price=found.fitted.price * ratio, bound=found.fitted.bound)
    return KNormDesign(**values, fitted=price)


def _adds_up(fitted: Fit) -> bool:
    """Whether counts are measured with noise that adds up to zero."""
    return isinstance(fitted.body, Exchanges)


def _grouped(design: Design) -> Fit | None:
    """The body of counts whose held totals are those of disjoint groups; None for others."""
    held, relation = design.held, design.neighbours
    if not isinstance(design.query, Cells) or not isinstance(held, HeldMargins):
        return None
    if len(held.essential) != 1:
        return None
    if held.rank == 1 and relation.keeps_total:
        return Fit(body=Exchanges(design.query.size), own=True)
    body = Deviations(Groups.of(held).sizes)
    if relation.persons == 1:
        return Fit(body=body, own=True)
    # Π(e_i − e_j) has a norm of at most 2. The hull of these holds every Π e_i, the mean of such
    # vectors over the j of another group, so that its volume is at least this body's.
    least = least_spread(body.dimension, body.log_volume)
    return Fit(
        body=body, own=False, within=Fraction(2), price=4 * body.spread() / least, bound=True
    )


@dataclass(frozen=True, eq=False)
class Groups:
    """Cells in the disjoint groups of a held margin, group after group."""

    space: MarginNullSpace
    order: npt.NDArray[np.int64]  # cells by group
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, held: HeldMargins) -> Groups:
        """The groups of the one margin that determines all that are held."""
        (margin,) = held.essential
        codes = np.ix_(*(level.codes for level in margin.levels))
        code = np.zeros(held.domain.shape, np.int64)
        for axis, size in zip(codes, margin.shape, strict=True):
            code = code * size + axis
        flat = code.reshape(-1)
        sizes = tuple(int(n) for n in np.bincount(flat) if n)
        return cls(MarginNullSpace(held), np.argsort(flat, kind="stable"), sizes)

    def placed(self, noise: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Noise group after group, in the domain's shape."""
        out = np.empty(noise.size, np.int64)
        out[self.order] = noise
        return out.reshape(self.space.shape)

    def differences(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Counts minus that of their group's first cell: all that is left up to constants."""
        flat = counts.reshape(-1)
        starts = np.cumsum([0, *self.sizes[:-1]])
        first = np.repeat(flat[self.order[starts]], self.sizes)
        return self.placed(flat[self.order] - first)

    def spread(self, law: KNormLaw) -> npt.NDArray[np.float64]:
        """The standard deviation of every cell's group, in the domain's shape."""
        out = np.empty(len(self.order))
        out[self.order] = np.repeat(np.sqrt(law.group_variances), self.sizes)
        return out.reshape(self.space.shape)


def changes(strategy: BasisStrategy, design: Design) -> npt.NDArray[np.object_]:
    """What one record's worth of change does to the measured integers, up to sign, as rows."""
    if design.query.contributions is None:
        raise ReleaseError(
            "The k-norm mechanism needs to know what a record adds to the answers; a query of "
            "which only the sensitivity is declared has no such columns."
        )
    records = design.query.contributions.toarray().astype(object)
    return _differences((strategy.weights.astype(object) @ records).T, design.neighbours)


def _differences(columns: npt.NDArray[np.object_], relation: Neighbours) -> npt.NDArray[np.object_]:
    """Columns, and under replace-one their differences; columns alone where one may be missing."""
    whole = np.array(sorted({tuple(map(int, row)) for row in columns.tolist()}), object)
    if relation.persons == 1:
        return whole
    if len(whole) * (len(whole) - 1) // 2 > MOST_VECTORS:
        raise ReleaseError(
            f"{len(whole):,} kinds of records have too many pairs for this mechanism; use the "
            "projected mechanism."
        )
    first, second = np.triu_indices(len(whole), 1)
    pairs = whole[first] - whole[second]
    return pairs if relation.keeps_total else np.concatenate([pairs, whole])
