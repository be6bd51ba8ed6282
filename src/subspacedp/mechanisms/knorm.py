"""The k-norm mechanism: pure ε, with noise in the shape of what one person can change."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError, InvariantError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.extended import LARGEST_UNITS, LEAST_BITS, MOST_BITS, Extended
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.noise.bodies import (
    MOST_DIMENSIONS,
    CrossPolytope,
    Deviations,
    Exchanges,
    Fit,
    Swaps,
    fit,
    least_spread,
    scaled,
)
from subspacedp.noise.knorm import KNormLaw
from subspacedp.privacy import PureDP
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.release import Design
from subspacedp.release.body import OWN, BodyStrategy, cell_norm
from subspacedp.release.changes import changes, measured_columns
from subspacedp.release.optimality import inner_columns, reached_by
from subspacedp.subspace import BasisStrategy
from subspacedp.subspace.groups import HeldGroups
from subspacedp.tables import Cells

__all__ = ["KNorm", "with_body"]

TOO_SMALL = "The budget is too small for this mechanism's grid; use the projected mechanism."
FREE = 1e-3  # of the others' size: noise in a direction that no replacement can change


@dataclass(frozen=True, eq=False, repr=False)
class KNorm(Extended):
    """Noise in the shape of the sensitivity body.

    Guarantees
    ----------
    1. The measurement is ε-private over all neighbours: every change of the measured integers lies
       in `records · within` times the body, decided in whole numbers (docs/proofs/knorm.md).
    2. The law of the noise is exactly the stated one; no Markov chain is run.
    3. A histogram with its total held: whole counts whose total is exact, and plain privacy.
       Otherwise the release is g(noisy) + C⁺c with g(noisy) in the null space: S.
    """

    proofs: ClassVar[tuple[str, ...]] = ("knorm.md", "guarantees.md")

    def integers(self, answers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Answers, their differences in groups, or coordinates in the basis."""
        design = self.design
        if design.basis is not None:
            return design.basis.integers(answers)
        if isinstance(cast("KNormLaw", design.law).body, CrossPolytope | Exchanges):
            return answers
        return HeldGroups.of(design.held).differences(answers)

    def add_noise(self, answers: npt.NDArray[np.int64], keys: ReleaseKeys) -> npt.NDArray[np.int64]:
        """Answers, their differences in groups, or coordinates in the basis, plus one draw."""
        design = self.design
        law = cast("KNormLaw", design.law)
        noise = law.draw(keys)[0]
        if design.basis is not None:
            return np.asarray(design.basis.integers(answers) + noise)
        if isinstance(law.body, CrossPolytope):
            return np.asarray(answers + noise.reshape(answers.shape))
        groups = HeldGroups.of(design.held)
        noisy = answers + groups.placed(noise)
        return noisy if isinstance(law.body, Exchanges) else groups.differences(noisy)

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
            return super().reconstruct(noisy, exact, coins, overwrite=overwrite)
        if design.decimals is not None:  # whole counts, of the right total already
            return noisy if design.decimals == 0 else noisy.astype(np.float64)
        # The residual is zero unless held values count records that were not measured.
        residual = design.held.residual(noisy, exact)
        real = design.space.subtract_lift(noisy, residual, overwrite=overwrite)
        return real if design.query.grid == 1 else real * float(design.query.grid)


def with_body(design: Design, *, exact: bool = False) -> Design:
    """The design with what it measures and the body of its noise.

    Of what can be drawn exactly, that of least expected error: the sensitivity body K itself on a
    fine grid, held groups on whole counts, or the answers with the cross-polytope of Δ₁. Where K
    cannot be drawn from, the best body around it takes its place.

    Parameters
    ----------
    exact
        Refuse everything but K itself.
    """
    if not isinstance(design.budget, PureDP):
        raise BudgetError(
            "The k-norm mechanism is for pure budgets: use PureDP(...), or another mechanism."
        )
    if design.query.contributions is None:
        raise ReleaseError(
            "The k-norm mechanism needs to know what a record adds to the answers; a query of "
            "which only the sensitivity is declared has no such columns."
        )
    found = _chosen(design, exact=exact)
    cast("BodyStrategy", found.strategy).check(found)
    relation = design.neighbours
    if relation.per_cell is None or relation.per_cell == relation.records:
        return found
    # K is smaller than m times the hull for one record, and not smaller than that hull.
    if exact:
        raise ReleaseError(
            "`exact=True` asks for noise of the sensitivity body itself, and with `per_cell` below "
            "`records` only bodies around it can be sampled exactly; leave it out to use one."
        )
    fitted = _fitted(found)
    if fitted.own:
        one = fitted.body
        least = least_spread(one.dimension, one.log_volume)
        fitted = replace(fitted, own=False, price=one.spread() / least)
    elif not fitted.bound:
        fitted = replace(fitted, price=fitted.price * _smaller_spread(fitted.body.dimension))
    return _with(found, replace(fitted, price=relation.records**2 * fitted.price, bound=True))


def _smaller_spread(d: int) -> float:
    """By what factor a symmetric convex body may spread less than one inside it, at most.

    In a direction where a body reaches h, E⟨u, θ⟩² is between that of a double cone,
    2h²/((d + 1)(d + 2)), and that of a box, h²/3.
    """
    return (d + 1) * (d + 2) / 6


def _with(design: Design, fitted: Fit) -> Design:
    return replace(design, strategy=BodyStrategy(fitted=fitted))


def _fitted(design: Design) -> Fit:
    return cast("BodyStrategy", design.strategy).fitted


def _chosen(design: Design, *, exact: bool) -> Design:
    """What is measured, and the body, for one record or for several without a bound a cell."""
    grouped = _grouped(design)
    if grouped is not None and isinstance(grouped.body, Exchanges) and not design.capped:
        return _with(design, grouped)
    if design.decimals is not None:
        raise ReleaseError(
            "Digits that add up need the projected mechanism here; publish real values "
            "(decimals=None) with the k-norm mechanism, or hold the grand total alone."
        )
    if grouped is not None and grouped.own:
        return _with(design, grouped)
    cells = isinstance(design.query, Cells)
    if cells and design.space.rank == 0 and design.neighbours.persons == 1:
        return _with(design, Fit(body=_cross(design), own=True))
    small = design.space.dimension <= MOST_DIMENSIONS
    if grouped is not None and not small and not exact:
        return _best(_with(design, grouped), _on_answers(design))
    try:
        found = _in_basis(design, exact=exact or grouped is not None)
    except ReleaseError:
        if grouped is None or exact:
            raise
        return _best(_with(design, grouped), _on_answers(design))
    if exact:
        return found
    others = [_on_answers(design)] if grouped is None else [_with(design, grouped)]
    return _best(found, *others)


def _in_basis(design: Design, *, exact: bool) -> Design:
    """Coordinates in a basis, and the hull of what one record does to them.

    The grid is 2**-30, or coarser where the noise would otherwise leave its range; for a query on
    a fine grid of its own, places of the product are rounded off instead.
    """
    rate = exact_decimal(cast("PureDP", design.budget).epsilon) / design.neighbours.records
    basis, moves = _measured(design, MOST_BITS)
    size = float(np.abs(moves).max(initial=0))
    # The noise reaches about (k + 1)/rate times the body.
    reach = (moves.shape[1] + 1) / float(rate) * size
    spare = math.ceil(math.log2(max(reach / LARGEST_UNITS, 1.0)))
    if 0 < spare <= MOST_BITS - LEAST_BITS:
        basis, moves = _measured(design, MOST_BITS - spare)
    elif spare:
        if size * 2.0**-spare < 2.0**LEAST_BITS * math.sqrt(moves.shape[1]):
            raise BudgetError(TOO_SMALL)
        basis, half = replace(basis, drop=spare), 1 << (spare - 1)
        moves = (moves + half) >> spare
        if np.linalg.matrix_rank(scaled(moves)) < moves.shape[1]:
            raise BudgetError(TOO_SMALL)  # some direction is rounded off altogether
    fitted = fit(moves, rate, exact=exact, swaps=_swaps(basis, design))
    if basis.drop:
        fitted = _widened(fitted, exact=exact)
    return _with(replace(design, basis=basis), fitted)


def _widened(fitted: Fit, *, exact: bool) -> Fit:
    """With room for rounding of the vectors and of both measurements: docs/proofs/knorm.md."""
    within = 1 + 4 * cell_norm(fitted.body)
    if within <= 1 + OWN:
        return replace(fitted, within=within)
    if exact:
        raise ReleaseError(
            "`exact=True` asks for noise of the sensitivity body itself, and on the grid that this "
            "budget allows only wider noise is private; leave it out to use that."
        )
    price = fitted.price * float(within) ** 2
    return replace(fitted, within=within, own=False, price=price)


def _measured(design: Design, bits: int) -> tuple[BasisStrategy, npt.NDArray[np.object_]]:
    """A basis on a grid, and what one record does to the integers measured in it."""
    basis = _basis(design, bits)
    moves = changes(basis, design.query, design.neighbours)
    return basis, np.concatenate([moves, _free(basis, design)])


def _swaps(basis: BasisStrategy, design: Design) -> Swaps | None:
    """K itself, where it is that of exchanges of kinds of records without a common direction."""
    columns, apart = measured_columns(basis, design.query), _free(basis, design)
    if not design.neighbours.keeps_total or len(columns) - 1 + len(apart) != columns.shape[1]:
        return None
    rows = [(part + (1 << basis.drop >> 1)) >> basis.drop for part in (columns, apart)]
    try:
        return Swaps(*(tuple(tuple(map(int, row)) for row in part.tolist()) for part in rows))
    except ReleaseError:  # independent in floats alone
        return None


def _basis(design: Design, bits: int) -> BasisStrategy:
    """A basis of the null space, or of the part of it that records reach."""
    query, space = design.query, design.space
    if isinstance(query, Cells):
        return BasisStrategy.from_basis(space, bits)
    if not inner_columns(query, space).any():
        raise InvariantError(
            "What is held fixes everything that a record can change: nothing is left to protect.",
            rank=0,
        )
    reached = reached_by(query, space)
    if reached.shape[1] == space.dimension:
        return BasisStrategy.from_basis(space, bits)
    return BasisStrategy.from_rows(space, reached.T, bits, reached)


def _free(basis: BasisStrategy, design: Design) -> npt.NDArray[np.object_]:
    """A short vector in the direction that records reach and no replacement changes, if any.

    All records share what they add there. It needs no noise; a little keeps the body solid, and
    noise of the others is not touched, as the hull with a vector apart is a sum of norms.
    """
    columns = np.asarray(measured_columns(basis, design.query), np.float64)
    none = np.empty((0, columns.shape[1]), object)
    if not design.neighbours.keeps_total or len(columns) == 1:
        return none
    left = columns.mean(axis=0)
    centred, whole = columns - left, float(np.linalg.norm(left))
    _, sizes, rows = np.linalg.svd(centred, full_matrices=False)
    span = rows[sizes > 1e-9 * sizes.max()]
    for _ in range(2):
        left = left - span.T @ (span @ left)
    length = float(np.linalg.norm(left))
    if len(span) == columns.shape[1] or length <= 1e-9 * whole:
        return none
    mean = float(np.linalg.norm(centred, axis=1).mean())
    return np.array([[int(x) for x in np.rint(FREE * mean / length * left)]], object)


def _cross(design: Design) -> CrossPolytope:
    return CrossPolytope((Fraction(1),) * design.query.size)


def _on_answers(design: Design) -> Design | None:
    """The answers with noise of the cross-polytope of Δ₁: projected Laplace noise.

    The part of it that would move held values is taken out.
    """
    if getattr(design.held, "empty", None) is not None:
        return None
    relation = design.neighbours
    within = Fraction(design.query.sensitivity(relation).l1) / relation.records
    return _with(design, Fit(body=_cross(design), own=False, within=within))


def _best(first: Design, *others: Design | None) -> Design:
    """The design of least expected error; prices of others are relative to that of the first.

    Noise of a large budget is mostly zero on whole numbers, and never on a fine grid, so a body
    around K may have less error than K itself.
    """
    base, fitted = first.expected_error().total, _fitted(first)
    best, least = first, base
    for other in others:
        if other is not None and (error := other.expected_error().total) < least:
            price = replace(_fitted(other), price=fitted.price * error / base, bound=fitted.bound)
            best, least = _with(other, price), error
    return best


def _grouped(design: Design) -> Fit | None:
    """The body of counts whose held totals are those of disjoint groups; None for others."""
    held, relation = design.held, design.neighbours
    if not isinstance(design.query, Cells) or not isinstance(held, HeldMargins):
        return None
    if len(held.essential) != 1:
        return None
    if held.rank == 1 and relation.keeps_total:
        return Fit(body=Exchanges(design.query.size), own=True)
    body = Deviations(HeldGroups.of(held).sizes)
    if relation.persons == 1:
        return Fit(body=body, own=True)
    # Π(e_i − e_j) has a norm of at most 2. The hull of these holds every Π e_i, the mean of such
    # vectors over the j of another group, so that its volume is at least this body's.
    least = least_spread(body.dimension, body.log_volume)
    return Fit(
        body=body, own=False, within=Fraction(2), price=4 * body.spread() / least, bound=True
    )
