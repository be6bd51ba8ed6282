"""The optimal Gaussian mechanism: correlated noise of least total error, with a proof of it.

What is measured is W Qᵀ A(x), W = Σ^{-½} for the covariance Σ of least trace whose ellipsoid holds
everything a neighbouring change can do (`ellipsoids`). W Qᵀ is put on a public grid, and
the noise is calibrated to the sensitivity of exactly the integers that are measured: privacy
rests on no optimiser. How near the error is to the least possible follows from dual weights that
the mechanism carries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray
from subspacedp.errors import BudgetError, InvariantError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.covariance import best_covariance, best_covariance_of_pairs
from subspacedp.mechanisms.extended import LARGEST_UNITS, Extended, ExtendedT, dropping
from subspacedp.mechanisms.optimality import (
    DualWeights,
    Optimality,
    inner_columns,
    moved_alike,
    reached_by,
    with_nothing,
)
from subspacedp.mechanisms.strategies import BasisStrategy
from subspacedp.problem import Problem
from subspacedp.queries import Query

BITS = 36  # of the grid of the basis
TOLERANCE, FINE = 9e-4, 1e-5  # of the duality gap: for large and for small queries
SMALL = 4096  # entries
FREE = 1e-6  # of the mean variance: noise in a direction that no replacement can change
QUICK_ANSWERS, QUICK_COLUMNS = 400, 2000
LARGEST_MATRIX = 1 << 25  # entries of what the optimisation forms


@frozen(eq=False, repr=False)
class Optimal(Extended):
    """Correlated noise with nearly the least total error of all Gaussian noise.

    Guarantees
    ----------
    1. The measurement is private with its budget over all neighbours, for the sensitivity
       of exactly the integers that are measured (docs/proofs/optimal.md).
    2. The release is g(noisy) + C⁺c with g(noisy) in the null space: S.
    3. Among all Gaussian noise that meets the budget and keeps the invariants, none has less than
       1/(1 + gap) times the error (by `importance`), gap as `optimality()` says: computed again
       from its dual weights, whatever found them.
    """

    dual: DualWeights | None = None  # what proves how near to the best possible the error is

    name: ClassVar[str] = "optimal"
    fitted_at_once: ClassVar[bool] = False
    proofs: ClassVar[tuple[str, ...]] = ("optimal.md", "guarantees.md")
    keys_in_files: ClassVar[tuple[str, ...]] = ("basis", "optimality")

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        return correlated_words(self)

    @property
    def stated_optimality(self) -> Optimality | None:
        """By the dual weights, where a person can change anything."""
        return self.optimality() if moved_alike(self) else None

    def fitted(self) -> dict[str, Any]:
        """The basis, and the weights that prove a bound."""
        proof = {} if self.dual is None else {"optimality": self.dual.as_dict()}
        return {**super().fitted(), **proof}

    @classmethod
    def from_dict(cls, problem: Problem, data: Mapping[str, Any]) -> Self:
        """The bound is computed again from the weights, whatever found them."""
        if problem.budget.pure or problem.query.contributions is None:
            raise ReleaseError("what it measures is not what its mechanism measures.")
        columns = int(problem.query.contributions.shape[1])
        dual = DualWeights.from_dict(
            data["optimality"], columns, problem.query.size, problem.neighbours
        )
        return replace(super().from_dict(problem, data), dual=dual)


@frozen(eq=False)
class OptimalOptions(Options):
    """Correlated noise of least total error, with a proof; Gaussian budgets.

    Parameters
    ----------
    importance
        What the squared error of every answer counts for; one each by default.
    """

    importance: ArrayLike | None = None

    mechanism: ClassVar[type[Mechanism]] = Optimal

    @classmethod
    def quick_for(cls, query: Query) -> bool:
        """Small matrices; for cells a basis is as large as the table squared, for a small gain."""
        return quick_basis(query)

    def importance_of(self, query: Query) -> FloatArray | None:
        """As given."""
        return checked_importance(self.importance, query.size)

    def fit(self, problem: Problem) -> Optimal:
        """The covariance of least error."""
        return with_best_noise(Optimal(problem), self.importance)


def quick_basis(query: Query) -> bool:
    """Whether the noise of a query's own matrix is optimised in seconds."""
    kinds = query.record_kinds
    few = kinds is not None and query.size <= QUICK_ANSWERS and kinds <= QUICK_COLUMNS
    return few and not query.is_histogram


def correlated_words(mechanism: Extended) -> str:
    """What gets noise in a basis that is not orthonormal."""
    bits = 0 if mechanism.basis is None else mechanism.basis.bits
    return (
        "every coordinate of the answers in a basis of the null space that is not orthonormal, "
        "chosen so that the answers get correlated noise, independently; the basis is on a "
        f"grid of 2**-{bits} of its largest entry"
    )


@frozen(eq=False, repr=False)
class Inside:
    """What neighbouring changes do inside the null space, in coordinates that suit the error.

    `rows` = G^½Qᵀ takes answers to these coordinates, G = Qᵀ diag(importance) Q; squared lengths
    there are squared errors by importance.
    """

    rows: FloatArray  # (dimension, answers)
    points: FloatArray  # (dimension, kinds of records)


def inside(mechanism: Mechanism, importance: FloatArray | None) -> Inside:
    """Q, and the columns of the query in it."""
    query, space = mechanism.query, mechanism.null_space
    if mechanism.budget.pure:
        raise BudgetError(
            f"The {mechanism.name} mechanism adds Gaussian noise: use ApproxDP, ZCDP or "
            "GaussianDP, or another mechanism for PureDP."
        )
    columns = with_nothing(inner_columns(query, space), mechanism.neighbours)
    if columns.size > LARGEST_MATRIX:
        raise ReleaseError(
            f"A query of {columns.shape[0]:,} by {columns.shape[1]:,} is too large for the "
            f"{mechanism.name} mechanism; use the extended or the projected one."
        )
    if not columns.any():
        raise InvariantError(
            "What is held fixes everything that a record can change: nothing is left to protect.",
            rank=0,
        )
    basis = np.eye(query.size) if space.rank == 0 else space.basis()
    if importance is None:
        return Inside(basis.T, columns)
    values, vectors = np.linalg.eigh(basis.T @ (importance[:, None] * basis))
    root = (vectors * np.sqrt(values)) @ vectors.T
    return Inside(root @ basis.T, root @ columns)


def with_best_noise(mechanism: Optimal, importance: ArrayLike | None = None) -> Optimal:
    """The mechanism with the basis of least error, and the weights that prove it."""
    weights = checked_importance(importance, mechanism.query.size)
    given = inside(mechanism, weights)
    solve = best_covariance if mechanism.neighbours.persons == 1 else best_covariance_of_pairs
    tolerance = FINE if given.points.size <= SMALL else TOLERANCE
    best = solve(given.points, tolerance=tolerance)
    dual = DualWeights(weights=best.weights, pairs=best.pairs, importance=weights)
    return replace(with_rows(mechanism, with_free(best.root, given.points), given), dual=dual)


def with_free(rows: FloatArray, points: FloatArray) -> FloatArray:
    """The rows, and one for a direction that records reach but no replacement changes.

    It needs no noise; noise of a thousandth of the others' size keeps one law for all. Without it
    the release would be biased there: all records share what they add in this direction.
    """
    Q, _ = np.linalg.qr(rows.T)
    left = points.mean(axis=1)
    for _ in range(2):
        left = left - Q @ (Q.T @ left)
    length = float(np.linalg.norm(left))
    if length <= 1e-9 * float(np.abs(points).max()):
        return rows
    deviations = 1 / np.linalg.norm(rows, axis=1)  # the rows are orthogonal
    size = 1 / math.sqrt(FREE * float(np.mean(deviations**2)))
    return np.concatenate([rows, size / length * left[None, :]])


def with_rows(mechanism: ExtendedT, rows: FloatArray, given: Inside) -> ExtendedT:
    """The mechanism that measures these rows, on the finest grid that the noise allows."""
    space = mechanism.null_space
    reached = reached_by(mechanism.query, space) if len(rows) < space.dimension else None
    strategy = BasisStrategy.from_rows(space, rows @ given.rows, BITS, reached)
    fitted = replace(mechanism, basis=strategy)
    spare = math.ceil(math.log2(max(fitted.law.scale / LARGEST_UNITS, 1.0)))
    return fitted if spare == 0 else dropping(fitted, spare)


def checked_importance(importance: ArrayLike | None, size: int) -> FloatArray | None:
    """What the squared error of every answer counts for; None for one each."""
    if importance is None:
        return None
    try:
        out = np.asarray(importance, np.float64).reshape(-1)
    except (TypeError, ValueError):
        out = np.empty(0)
    if out.size != size or not np.all(np.isfinite(out)) or not np.all(out > 0):
        raise ReleaseError(
            f"`importance` must be {size:,} positive finite numbers, one for each answer."
        )
    return out
