"""How a budget is best split over levels.

With the error F as a function of the precisions t, 1/F is concave and F(λt) = F(t)/λ: slopes say
how far from the best a Gaussian split can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError
from subspacedp.subspace.hierarchy_error import ErrorOfLevels

__all__ = ["LevelSplit", "SplitFound"]

FloatArray = npt.NDArray[np.float64]

# A level that would get a smaller share of the budget is not measured; the labels get this much.
SMALLEST = 1e-4
MOST_TRIED = 8  # levels of which all sets are tried for a pure budget
ENOUGH = 1e-4  # of the error: where the search stops
MOST_ROUNDS = 2000


@dataclass(frozen=True, kw_only=True)
class SplitFound:
    """Shares of a budget, one a level of the tree, and by what share their error may be improved.

    `gap` is proven for Gaussian budgets. For pure ones the error is not convex in the shares, and
    `gap` is None: the shares are the best of where descents over all sets of levels ended.
    """

    shares: tuple[float, ...]
    error: float
    gap: float | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LevelSplit(ErrorOfLevels):
    """The search for the shares of a budget that make the error of all levels least."""

    def best(self, costs: Sequence[float], measured: Sequence[int], *, pure: bool) -> SplitFound:
        """The shares of least error.

        Parameters
        ----------
        costs
            For Gaussian noise Δ₂² of each level, so that share s buys the precision s/Δ₂²; for
            Laplace noise Δ₁, so that it buys s²/(2Δ₁²).
        measured
            The levels that may get a share, the labels among them.
        pure
            Whether the noise is Laplace.
        """
        if pure:
            found, error = self._best_of_sets(costs, measured)
        else:
            found, error = self._descend(measured, costs, pure=False)
        if error == 0:
            raise BudgetError(
                "The held totals fix every level that counts, so no split of the budget is better "
                "than another; give `importance` to a level that is not held."
            )
        small = (found < SMALLEST) & (np.arange(found.size) > 0)
        found = np.where(small, 0.0, found)
        found /= found.sum()
        error, _ = self._by_share(found, costs, pure=pure)
        gap = None if pure else self.gap(found.tolist(), costs, measured)
        return SplitFound(shares=tuple(found.tolist()), error=error, gap=gap)

    def gap(self, shares: Sequence[float], costs: Sequence[float], asked: Sequence[int]) -> float:
        """By what share the error of a Gaussian split may exceed that of the best one.

        1/F is concave and grows in proportion to the shares: 1/F* ≤ max_j slope_j/F², over the
        levels that may get a share.
        """
        error, slopes = self._by_share(np.asarray(shares, np.float64), costs, pure=False)
        return max(float(max(slopes[i] for i in asked)) / error - 1, 0.0)

    def _best_of_sets(
        self, costs: Sequence[float], measured: Sequence[int]
    ) -> tuple[FloatArray, float]:
        """Laplace noise at few levels often beats that at many: try every set of levels.

        With many levels only those sets that leave out one more level of the last one that helped.
        """
        coarser = [i for i in measured if i]
        if len(coarser) < MOST_TRIED:
            sets = (own for k in range(len(coarser) + 1) for own in combinations(coarser, k))
            tried = (self._descend([0, *own], costs, pure=True) for own in sets)
            return min(tried, key=lambda pair: pair[1])
        best = self._descend(measured, costs, pure=True)
        while coarser:
            fewer = [[i for i in coarser if i != out] for out in coarser]
            found = [self._descend([0, *own], costs, pure=True) for own in fewer]
            least = min(range(len(found)), key=lambda i: found[i][1])
            if found[least][1] > best[1] * (1 + ENOUGH):
                break
            coarser = fewer[least]
            best = min(best, found[least], key=lambda pair: pair[1])
        return best

    def _by_share(
        self, shares: FloatArray, costs: Sequence[float], *, pure: bool
    ) -> tuple[float, FloatArray]:
        """F and t_j·(−∂F/∂t_j)/share_j, for shares of a budget of one."""
        c = np.asarray(costs, np.float64)
        t = shares**2 / (2 * c**2) if pure else shares / c
        error, slopes = self.slopes(t.tolist())
        return error, slopes * (shares / (2 * c**2) if pure else 1 / c)

    def _descend(
        self, levels: Sequence[int], costs: Sequence[float], *, pure: bool
    ) -> tuple[FloatArray, float]:
        """From equal shares minimise an upper bound again and again: the error never rises.

        Keeping the weights of the old estimate, its error is Σ q_j/t_j with q_j = t_j²·slope_j:
        at least F everywhere, and equal to it where we are. Its minimum under Σ share = 1 is
        share ∝ √(cost·q) for Gaussian noise, ∝ ³√(cost²·q) for Laplace noise.
        """
        shares = np.zeros(len(self.tree.steps))
        shares[list(levels)] = 1 / len(levels)
        before = np.inf
        for round_ in range(MOST_ROUNDS):
            error, slopes = self._by_share(shares, costs, pure=pure)
            if error == 0:
                return shares, 0.0
            if not pure and float(slopes.max(where=shares > 0, initial=0.0)) <= error * (
                1 + ENOUGH
            ):
                break
            if round_ % 8 == 0:
                if before - error <= ENOUGH / 10 * error:
                    break
                before = error
            # slopes·share is t·(−∂F/∂t): q/t for both laws.
            power = slopes * shares
            shares = np.cbrt(power * shares**2) if pure else np.sqrt(power * shares)
            shares = _with_labels(shares / shares.sum())
        return shares, error


def _with_labels(shares: FloatArray) -> FloatArray:
    """Shares with enough for the labels, the others in proportion: without them nothing is known.

    Where the bound would give the labels less, this is its minimum with that much for them.
    """
    if shares[0] >= SMALLEST:
        return shares
    out: FloatArray = shares * ((1 - SMALLEST) / shares[1:].sum())
    out[0] = SMALLEST
    return out
