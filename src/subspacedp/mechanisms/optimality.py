"""How near a design's error is to that of the best Gaussian noise, proven by dual weights.

For vectors v that neighbouring changes add to Π_N A, any weights λ ≥ 0 with sum one give a lower
bound (tr M(λ)^½)²/μ² on the total squared error of every Gaussian mechanism that meets the budget
and keeps the invariants (docs/proofs/optimal.md). The design carries the weights, so whoever has
the certificate can compute the bound again; nothing rests on how they were found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import NullSpace
from subspacedp.mechanisms.covariance import Coordinates, checked, trace_bound
from subspacedp.privacy import Neighbours
from subspacedp.queries import Query

if TYPE_CHECKING:
    from subspacedp.mechanisms.base import Mechanism

LARGEST = 1 << 24  # entries of a query for which the singular-value bound is computed
MOST_ANSWERS = 2048
LARGE_GAP = 0.1  # from here on a statement says that the bound may be what is far away


@frozen(eq=False, repr=False, kw_only=True)
class DualWeights:
    """Weights that prove a lower bound, and what the error of each answer counts for.

    Parameters
    ----------
    weights
        λ, one per column of the query, or one per pair of columns.
    pairs
        Under replace-one the numbers of the two columns; one past the last stands for no record.
    importance
        What the squared error of every answer is multiplied with; None for one each.
    """

    weights: FloatArray
    pairs: Int64Array | None = None
    importance: FloatArray | None = None

    def as_dict(self) -> dict[str, Any]:
        """As plain data; weights that are zero are left out, as columns of their own."""
        used = np.flatnonzero(self.weights)
        where = used if self.pairs is None else self.pairs[used]
        return {
            "vectors": where.tolist(),
            "weights": self.weights[used].tolist(),
            **({} if self.importance is None else {"importance": self.importance.tolist()}),
        }

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], columns: int, answers: int, neighbours: Neighbours
    ) -> DualWeights:
        """From plain data, with every rule checked.

        Columns prove nothing for neighbours that replace a record, pairs nothing for others.
        """
        pairs = neighbours.persons == 2
        last = columns - 1 + int(pairs and not neighbours.keeps_total)
        given, where = np.asarray(data["weights"], np.float64), np.asarray(data["vectors"])
        importance = data.get("importance")
        importance = None if importance is None else np.asarray(importance, np.float64)
        usable = (
            given.ndim == 1
            and given.size > 0
            and bool(np.all(np.isfinite(given)) and np.all(given >= 0) and given.sum() > 0)
            and where.dtype.kind == "i"
            and where.shape == ((given.size, 2) if pairs else (given.size,))
            and 0 <= int(where.min()) <= int(where.max()) <= last
            and (
                importance is None
                or (
                    importance.shape == (answers,)
                    and 0 < float(importance.min()) <= float(importance.max()) < math.inf
                )
            )
        )
        if not usable:
            raise ReleaseError("The weights that prove a bound are out of range.")
        if pairs:
            return cls(weights=given, pairs=where.astype(np.int64), importance=importance)
        every = np.zeros(columns)
        np.add.at(every, where, given)
        return cls(weights=every, importance=importance)


@frozen(kw_only=True)
class Optimality:
    """A design's squared error beside a lower bound for all Gaussian noise.

    The bound need not be reached: a large gap may be that of the noise or that of the bound.

    >>> str(Optimality(error=1.005, bound=1.0, how="dual weights"))
    'within 0.51 % of the best possible Gaussian noise with this guarantee'
    >>> str(Optimality(error=3.745, bound=1.0, how="a regular tree inside the levels"))[:28]
    'at most 3.75 times the error'
    """

    error: float
    bound: float
    how: str  # "dual weights" or "singular values"
    weighted: bool = False

    @property
    def gap(self) -> float:
        """By what share the error may exceed the least possible one."""
        return max(self.error / self.bound - 1.0, 0.0)

    @property
    def factor(self) -> float:
        """By what factor the error may exceed the least possible one."""
        return 1.0 + self.gap

    def as_dict(self) -> dict[str, Any]:
        """As plain data: the error rounded up and the bound down to five digits."""
        return {
            "statement": str(self),
            "squared_error": _rounded(self.error, math.ceil),
            "lower_bound": _rounded(self.bound, math.floor),
            "bound_from": self.how,
        }

    def __str__(self) -> str:
        weighted = ", by importance" if self.weighted else ""
        best = f"the best possible Gaussian noise with this guarantee{weighted}"
        if self.gap < LARGE_GAP:
            percent = math.ceil(1e4 * self.gap + 1e-6) / 100
            return f"within {percent:.2f} % of {best}"
        factor = math.ceil(100 * self.factor + 1e-6) / 100
        return f"at most {factor:,.2f} times the error of {best}, as far as a lower bound shows"


def optimality(mechanism: Mechanism) -> Optimality:
    """How near the design's expected error is to the least possible, by its own weights or equal.

    With several records a person the bound is that for people whose records are all of one kind
    (`moved_alike`): those are neighbours too, so it holds for all.
    """
    if mechanism.budget.pure or mechanism.declared is not None:
        raise BudgetError("The best Gaussian noise is known for Gaussian budgets only.")
    proven = mechanism.proven_optimality
    if proven is not None:
        return proven
    alike = moved_alike(mechanism)
    if not alike:
        raise ReleaseError("No person can change anything here, so no error is needed at all.")
    dual: DualWeights | None = getattr(mechanism, "dual", None)
    importance = None if dual is None else dual.importance
    if dual is None:
        error = mechanism.total_error()
    else:
        per_cell = mechanism.expected_error().per_cell.reshape(-1)
        error = float(per_cell.sum() if importance is None else per_cell @ importance)
    if dual is not None:
        columns = inner_columns(mechanism.query, mechanism.null_space, importance)
        base = _dual_bound(mechanism, columns, dual)
    else:
        base = _singular_bound(mechanism)
    if not base > 0:
        raise ReleaseError("The weights of this design prove no bound.")
    scale = alike * float(mechanism.query.grid) / mechanism.budget.gaussian_mu
    return Optimality(
        error=error,
        bound=base * scale**2 * (1 - 1e-12),
        how="singular values" if dual is None else "dual weights",
        weighted=importance is not None,
    )


def moved_alike(mechanism: Mechanism) -> int:
    """How many records of a person can go from any one cell to any other together, or come and go.

    As many as may be in one cell, unless every person has exactly m records. Then t of them move
    from cell i to j where the other m − t, the same before and after, have a place: at most k in
    each of the n − 2 other cells and k − t in i and j, so t ≤ nk − m.
    """
    query, relation = mechanism.query, mechanism.neighbours
    most = relation.per_cell or relation.records
    if relation.persons == 1 or not relation.keeps_total:
        return most
    cells = query.size if query.record_kinds is None else query.record_kinds
    cells -= len(impossible_kinds(mechanism))
    return max(0, min(most, cells * most - relation.records))


def impossible_kinds(mechanism: Mechanism) -> Int64Array:
    """The kinds of records that nobody can have: they add to a cell known to be empty.

    Changes of such records are not neighbouring, so they must not prove a lower bound.
    """
    query, empty = mechanism.query, mechanism.held.empty
    if empty is None or query.contributions is None:
        return np.empty(0, np.int64)
    return np.unique(query.contributions[np.flatnonzero(empty.reshape(-1))].indices)


def inner_columns(
    query: Query, space: NullSpace, importance: FloatArray | None = None
) -> FloatArray:
    """Π_N A in coordinates that keep lengths: QᵀA, or diag(importance)^½ Π_N A."""
    if query.contributions is None:
        raise ReleaseError(
            "This needs to know what a record adds to the answers; a query of which only the "
            "sensitivity is declared has no such columns."
        )
    if query.size > MOST_ANSWERS:
        raise ReleaseError(
            f"This forms a basis, and {query.size:,} answers are more than {MOST_ANSWERS:,}."
        )
    records = query.contributions.astype(np.float64)
    if space.rank == 0:
        columns = records.toarray()
        return columns if importance is None else np.sqrt(importance)[:, None] * columns
    Q = space.basis()
    columns = np.asarray((records.T @ Q).T)
    # A column that lies in the row space leaves rounding error only.
    sizes = np.sqrt(np.asarray(records.power(2).sum(axis=0)).reshape(-1))
    columns[:, np.linalg.norm(columns, axis=0) <= 1e-13 * sizes] = 0.0
    return columns if importance is None else np.sqrt(importance)[:, None] * (Q @ columns)


def reached_by(query: Query, space: NullSpace) -> FloatArray:
    """An orthonormal basis, as columns, of the part of N that some record reaches.

    Π_N A(x) is a combination of the columns of Π_N A: outside their span it is zero.
    """
    columns = checked(inner_columns(query, space))
    span = Coordinates.of(columns).span
    return span if space.rank == 0 else np.asarray(space.basis() @ span)


def with_nothing(columns: FloatArray, neighbours: Neighbours) -> FloatArray:
    """The columns, with a zero one where a replaced person may have no record at all."""
    if neighbours.persons == 1 or neighbours.keeps_total:
        return columns
    return np.concatenate([columns, np.zeros((len(columns), 1))], axis=1)


def _singular_bound(mechanism: Mechanism) -> float:
    """(Σ singular values)² of the vectors with equal weights; in closed form for cells."""
    query, space, relation = mechanism.query, mechanism.null_space, mechanism.neighbours
    extra = int(relation.persons == 2 and not relation.keeps_total)
    if query.is_histogram:
        points, n = query.size - len(impossible_kinds(mechanism)) + extra, space.dimension
        if relation.persons == 1:
            return n * n / points
        if points < 2:
            return 0.0
        # 2/(points − 1) times Π_N − Π_N 1 1ᵀ Π_N / points: one eigenvalue differs from one.
        lost = space.squared_ones() / points
        roots = n - 1 + math.sqrt(max(1 - lost, 0.0)) if lost > 1e-12 else n
        return 2 / (points - 1) * roots**2
    if query.contributions is None or np.prod(query.contributions.shape) > LARGEST:
        raise ReleaseError("No lower bound is known for the error of a query of this kind.")
    columns = inner_columns(query, space)
    return _equal_weights(np.delete(columns, impossible_kinds(mechanism), axis=1), relation)


def _dual_bound(mechanism: Mechanism, columns: FloatArray, dual: DualWeights) -> float:
    """By the weights of a design; those of records that nobody can have prove nothing."""
    relation, gone = mechanism.neighbours, impossible_kinds(mechanism)
    every = with_nothing(columns, relation)
    known = np.ones(every.shape[1], bool)
    known[gone] = False
    if not relation.keeps_total:
        known |= ~every.any(axis=0)  # moves what is not held as no record does
    used = known if dual.pairs is None else known[dual.pairs].all(axis=1)
    weights = np.where(used, dual.weights, 0.0)
    if np.array_equal(weights, dual.weights):
        return trace_bound(every, weights, dual.pairs)
    equal = _equal_weights(np.delete(columns, gone, axis=1), relation)
    return max(equal, trace_bound(every, weights, dual.pairs)) if weights.any() else equal


def _equal_weights(records: FloatArray, relation: Neighbours) -> float:
    """(Σ singular values)² of what records add, or of its differences, with equal weights."""
    columns = with_nothing(records, relation)
    d = columns.shape[1]
    if d < relation.persons:
        return 0.0
    if relation.persons == 1:
        return trace_bound(columns, np.ones(d))
    # Σ over pairs with weight 2/(d(d − 1)) is 2/(d − 1) times the sum over centred columns.
    middle = columns - columns.mean(axis=1, keepdims=True)
    return float(2 * d / (d - 1) * trace_bound(middle, np.ones(d)))


def _rounded(value: float, end: Any) -> float:
    exponent = math.floor(math.log10(value)) - 4
    return float(f"{end(value / 10.0**exponent)}e{exponent}")
