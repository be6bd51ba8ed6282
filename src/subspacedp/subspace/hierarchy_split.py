"""How a budget is best split over levels: the weighted error of all levels, and its slopes.

The error F(t) = Σ_l ω_l·(mean variance of the totals of level l) is a sum of entries of an inverse
(Σ t_j S_jᵀS_j)⁻¹, so 1/F is concave and F(λt) = F(t)/λ. Slopes come from one pass of the chain rule
back through the two passes on the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError
from subspacedp.subspace.hierarchy import LevelTree, TreeGains

__all__ = ["LevelSplit", "SplitFound"]

FloatArray = npt.NDArray[np.float64]

SMALLEST = 1e-4  # a level that would get a smaller share of the budget is not measured at all
ENOUGH = 1e-4  # of the error: where the search stops
MOST_ROUNDS = 2000


@dataclass(frozen=True, kw_only=True)
class SplitFound:
    """Shares of a budget, one a level of the tree, and by what share their error may be improved.

    `gap` is proven for Gaussian budgets. For pure ones the error is not convex in the shares, and
    `gap` is None: the shares are where a descent from several starts ended.
    """

    shares: tuple[float, ...]
    error: float
    gap: float | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LevelSplit:
    """The error of all levels as a function of the precisions of their noise.

    Parameters
    ----------
    tree
        The levels.
    components
        The finest held level, or None, and the number of dimensions, of every component of the
        other axes.
    weights
        What the mean variance of each level of the tree counts for.
    cells
        The number of cells of the other axes.
    constrained
        Whether held totals enter the least squares.
    """

    tree: LevelTree
    components: Sequence[tuple[int | None, int]]
    weights: Sequence[float]
    cells: int
    constrained: bool

    @cached_property
    def _of_each(self) -> list[float]:
        """What the variance of one total of each level counts for."""
        return [w / (self.tree.nodes(i) * self.cells) for i, w in enumerate(self.weights)]

    def level_errors(self, precision: Sequence[float]) -> FloatArray:
        """The mean variance of the totals of every level."""
        gains, out = TreeGains(self.tree, precision), np.zeros(len(self.tree.steps))
        for held, dimensions in self.components:
            if dimensions:
                found = gains.total_variances(held, constrained=self.constrained)
                for i, f in enumerate(found):
                    one = float(f @ self.tree.parts[1]) if i == 0 else float(f.sum())
                    out[i] += dimensions * one / (self.tree.nodes(i) * self.cells)
        return out

    def error(self, precision: Sequence[float]) -> float:
        """F(t)."""
        return float(np.dot(self.level_errors(precision), self.weights))

    def slopes(self, precision: Sequence[float]) -> tuple[float, FloatArray]:
        """F(t) and −∂F/∂t_j ≥ 0 for every level."""
        back = _Backward(self, precision)
        return back.error, back.slopes

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
        shares = np.zeros(len(self.tree.steps))
        shares[list(measured)] = 1 / len(measured)
        found, error = self._descend(shares, costs, pure=pure)
        if error == 0:
            raise BudgetError(
                "The held totals fix every level that counts, so no split of the budget is better "
                "than another; give `importance` to a level that is not held."
            )
        if not pure:
            small = (found < SMALLEST) & (np.arange(found.size) > 0)
            found[small] = 0.0
            found /= found.sum()
            error, _ = self._by_share(found, costs, pure=False)
            gap = self.gap(found.tolist(), costs, measured)
            return SplitFound(shares=tuple(found.tolist()), error=error, gap=gap)
        return self._without_needless(found, error, costs)

    def gap(self, shares: Sequence[float], costs: Sequence[float], asked: Sequence[int]) -> float:
        """By what share the error of a Gaussian split may exceed that of the best one.

        1/F is concave and grows in proportion to the shares: 1/F* ≤ max_j slope_j/F², over the
        levels that may get a share.
        """
        error, slopes = self._by_share(np.asarray(shares, np.float64), costs, pure=False)
        return max(float(max(slopes[i] for i in asked)) / error - 1, 0.0)

    def _without_needless(
        self, shares: FloatArray, error: float, costs: Sequence[float]
    ) -> SplitFound:
        """Laplace noise at few levels often beats that at many: leave out what does not help."""
        while True:
            tried = []
            for i in np.flatnonzero(shares)[1:]:
                fewer = shares.copy()
                fewer[i] = 0.0
                other, its_error = self._descend(fewer / fewer.sum(), costs, pure=True)
                tried.append((its_error, other))
            if not tried:
                break
            least, other = min(tried, key=lambda pair: pair[0])
            if least > error * (1 + ENOUGH):
                break
            shares, error = other, least
        return SplitFound(shares=tuple(shares.tolist()), error=error, gap=None)

    def _by_share(
        self, shares: FloatArray, costs: Sequence[float], *, pure: bool
    ) -> tuple[float, FloatArray]:
        """F and t_j·(−∂F/∂t_j)/share_j, for shares of a budget of one."""
        c = np.asarray(costs, np.float64)
        t = shares**2 / (2 * c**2) if pure else shares / c
        error, slopes = self.slopes(t.tolist())
        return error, slopes * (shares / (2 * c**2) if pure else 1 / c)

    def _descend(
        self, shares: FloatArray, costs: Sequence[float], *, pure: bool
    ) -> tuple[FloatArray, float]:
        """Minimise an upper bound again and again, which never raises the error.

        Keeping the weights of the old estimate, its error is Σ q_j/t_j with q_j = t_j²·slope_j:
        at least F everywhere, and equal to it where we are. Its minimum under Σ share = 1 is
        share ∝ √(cost·q) for Gaussian noise, ∝ ³√(cost²·q) for Laplace noise.
        """
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
            shares = shares / shares.sum()
        return shares, error


class _Backward:
    """The chain rule, backwards through both passes of `TreeGains`."""

    def __init__(self, split: LevelSplit, precision: Sequence[float]) -> None:
        self.tree, self.each = split.tree, split._of_each
        self.gains = TreeGains(self.tree, precision)
        tree, top = self.tree, self.tree.top
        self.own = [np.zeros(tree.nodes(i) if i else 1) for i in range(top + 1)]
        self.below = [np.zeros(tree.nodes(i) if i else 0) for i in range(top + 1)]
        self.of_precision = np.zeros(top + 1)
        self.error = 0.0
        free = self.gains.spread(top)
        on_free = [np.zeros(len(f)) for f in free]
        any_free = False
        for held, dimensions in split.components:
            if not dimensions or held == 0:
                continue
            if held is None or not split.constrained:
                any_free = True
                self._free(held, dimensions, free, on_free)
            else:
                start = self.gains.spread(held, np.zeros(tree.nodes(held)))
                onto = [np.zeros(len(f)) for f in start]
                self._count(start[:held], dimensions, onto)
                self._back_down(held, start, onto)
        if any_free:
            self.own[top] += self._back_down(top, free, on_free)
        self._back_up()

    @property
    def slopes(self) -> FloatArray:
        """−∂F/∂t_j."""
        return np.maximum(-self.of_precision, 0.0)

    def _weight(self, i: int) -> FloatArray:
        """What the variance of each node counts for; the labels of a group together."""
        one = np.full(self.tree.nodes(max(i, 1)), self.each[i])
        return one * self.tree.parts[1] if i == 0 else one

    def _count(self, f: list[FloatArray], dimensions: int, onto: list[FloatArray]) -> None:
        for i, values in enumerate(f):
            weight = dimensions * self._weight(i)
            self.error += float(values @ weight)
            onto[i] += weight

    def _free(
        self, held: int | None, dimensions: int, f: list[FloatArray], onto: list[FloatArray]
    ) -> None:
        """Variances of the estimate without held totals, projected where some are held."""
        if held is None:
            self._count(f, dimensions, onto)
            return
        self._count(f[:held], dimensions, onto)
        tree, gains = self.tree, self.gains
        shared, share = [f[held]], np.ones(tree.nodes(held))
        group = np.arange(tree.nodes(held))  # which held group a node is in
        on_shared = []
        for i in range(held, 0, -1):
            if i > 1:
                shared.append(gains.gain(i) * tree.down(i, shared[-1]))
                share = tree.leaves[i - 1] / tree.down(i, tree.leaves[i] / share)
                group = tree.down(i, group)
            else:
                shared.append(shared[-1] * gains.gain(1))
                share = share / tree.leaves[1]
            weight = dimensions * self._weight(i - 1)
            squared = np.bincount(group, weight * share**2, tree.nodes(held))
            self.error += float(squared @ f[held]) - 2 * float((weight * share) @ shared[-1])
            onto[held] += squared
            on_shared.append(-2 * weight * share)
        # Cov(part, held group) = k·Cov(whole, held group), from the labels up.
        on = on_shared[-1]
        for i in range(1, held + 1):
            whole = shared[held - i]
            k = gains.gain(i)
            if i > 1:
                spread = tree.down(i, whole / gains.below[i])
                self.own[i - 1] += on * spread
                self.below[i] -= tree.up(i, on * k * spread)
                on = tree.up(i, on * k)
            else:
                on = on * k
            if i < held:
                on = on + on_shared[held - i - 1]
        onto[held] += on

    def _back_down(self, start: int, f: list[FloatArray], onto: list[FloatArray]) -> FloatArray:
        """From the variances of all nodes to those of subtrees; returns what is due at `start`."""
        tree, gains = self.tree, self.gains
        for i in range(1, start + 1):
            k = gains.gain(i)
            if i == 1:
                self.of_precision[0] -= float(onto[0].sum()) / gains.precision[0] ** 2
                due = onto[0] * k**2
                onto[1] += due
                self.below[1] -= due
                continue
            left = tree.down(i, (f[i] - gains.below[i]) / gains.below[i])
            on = onto[i - 1]
            self.own[i - 1] += on * (1 + 2 * k * left)
            onto[i] += tree.up(i, on * k**2)
            self.below[i] -= tree.up(i, on * k**2 * (1 + 2 * left))
        return onto[start]

    def _back_up(self) -> None:
        """From the variances of subtrees to the precisions."""
        tree, gains = self.tree, self.gains
        for i in range(tree.top, 0, -1):
            shrink = 1 / (1 + gains.precision[i] * gains.below[i]) ** 2
            self.of_precision[i] -= float(self.own[i] @ gains.own[i] ** 2)
            due = self.below[i] + self.own[i] * shrink
            if i > 1:
                self.own[i - 1] += tree.down(i, due)
            else:
                self.of_precision[0] -= float(due @ tree.parts[1]) / gains.precision[0] ** 2
