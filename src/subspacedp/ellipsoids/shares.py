"""The best split of a squared budget over independent parts, with a proof of how near it is.

Minimise Σ cᵢ/bᵢ subject to r·b ≤ 1 for every row r ≥ 0 of a family that may be far too large to
list: an oracle says which rows stick out most. For weights λ of rows that sum to one, d = Σ λ_j r_j
and Z = Σ √(cᵢdᵢ), every feasible b has Σ cᵢ/bᵢ ≥ Z² (Cauchy–Schwarz, as Σ bᵢdᵢ ≤ 1), with
equality at bᵢ = √(cᵢ/dᵢ)/Z. Rows that stick out there join the active ones until hardly any does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Shares", "best_shares", "dual_value", "shares_for"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

ROUNDS = 200
INNER = 1000
JOIN = 128  # rows that join at a time
ENOUGH = 5e-4  # a gap that is good enough once much work was done
MUCH = 1.5e9  # multiplications


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Shares:
    """A split of the budget, and the weights of rows that prove how good it is."""

    shares: FloatArray  # b, with the largest r·b at most 1
    kinds: Int64Array  # numbers of the rows with weight
    weights: FloatArray
    bound: float  # Z²: no feasible split has less error

    def gap(self, costs: FloatArray) -> float:
        """By what share the error of the split exceeds the bound, at most."""
        return max(float(np.sum(costs / self.shares)) / self.bound - 1.0, 0.0)


def dual_value(costs: FloatArray, mean: FloatArray) -> float:
    """Z² for the mean row of some weights: a lower bound, rounded down."""
    return math.fsum(np.sqrt(costs * mean)) ** 2 * (1 - 1e-12)


def shares_for(costs: FloatArray, mean: FloatArray) -> FloatArray:
    """The best split where the mean row is the only one."""
    roots = np.sqrt(costs * mean)
    return np.sqrt(costs / mean) / float(roots.sum())


def best_shares(
    costs: FloatArray,
    first: Int64Array,
    rows: Callable[[Int64Array], FloatArray],
    sticking_out: Callable[[FloatArray, int], tuple[Int64Array, float]],
    *,
    tolerance: float = 1e-5,
) -> Shares:
    """The best split over a family of rows.

    Parameters
    ----------
    costs
        c > 0.
    first
        Numbers of rows to begin with; together they must use every part.
    rows
        From numbers to rows.
    sticking_out
        For a split b the numbers of so many rows with the largest r·b, and a safe upper bound on
        the largest.

    Guarantees
    ----------
    1. Every row has r·b ≤ 1, as far as the bound of the oracle is one.
    2. Σ c/b ≤ (1 + gap) · bound, and the bound holds for every feasible split.
    """
    work = 0.0
    kinds = first
    matrix = rows(kinds)
    weights = np.full(len(kinds), 1.0 / len(kinds))
    best: tuple[float, FloatArray] | None = None
    bound, proof, gap = 0.0, (kinds, weights), 1.0
    for _ in range(ROUNDS):
        weights, steps = _weigh(costs, matrix, weights, max(tolerance / 4, gap / 20))
        work += 2.0 * steps * matrix.size
        mean = weights @ matrix
        value = dual_value(costs, mean)
        if value > bound:
            bound, proof = value, (kinds, weights)
        split = shares_for(costs, mean)
        found, largest = sticking_out(split, JOIN)
        error = float(np.sum(costs / split)) * largest
        if best is None or error < best[0]:
            best = error, split / largest
        gap = best[0] / bound - 1
        if gap <= tolerance or (gap <= ENOUGH and work > MUCH):
            break
        new = np.setdiff1d(found, kinds)
        if not new.size:
            continue  # the weights are not yet what they should be
        kept = weights > 1e-9 / len(weights)
        kinds = np.concatenate([kinds[kept], new])
        weights = np.concatenate([weights[kept] * 0.9 / weights[kept].sum(),
                                  np.full(new.size, 0.1 / new.size)])  # fmt: skip
        matrix = np.concatenate([matrix[kept], rows(new)])
    used = proof[1] > 0
    shares = best[1] if best is not None else split
    return Shares(shares=shares, kinds=proof[0][used], weights=proof[1][used], bound=bound)


def _weigh(
    costs: FloatArray, matrix: FloatArray, weights: FloatArray, tolerance: float
) -> tuple[FloatArray, int]:
    """Weights of the listed rows: each multiplied by how far its row sticks out, and again."""
    power = 3.0  # rows without common parts: 2 takes one step, from 4 on weights swing for ever
    value = 0.0
    steps = 0
    while steps < INNER:
        steps += 1
        mean = weights @ matrix
        roots = np.sqrt(costs * mean)
        total = float(roots.sum())
        lengths = matrix @ (roots / mean) / total  # their mean by weight is one
        if float(lengths.max()) - 1 <= tolerance:
            break
        if total < value:  # the steps were too long
            power = max(1.0, power / 2)
        value = max(value, total)
        weights = weights * lengths**power
        weights /= weights.sum()
    return weights, steps
