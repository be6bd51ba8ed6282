"""The weighted error of all levels, and its slopes, as a function of the noise at each.

The error F(t) = Σ_l ω_l·(mean variance of the totals of level l) is a sum of entries of an inverse
(Σ t_j S_jᵀS_j)⁻¹. Slopes come from one pass of the chain rule back through the two passes on the
tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.hierarchy import LevelTree, TreeGains

__all__ = ["ErrorOfLevels"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ErrorOfLevels:
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

    @cached_property
    def node_weights(self) -> list[FloatArray]:
        """What the variance of every node counts for; the labels of a group together."""
        tree = self.tree
        out = [np.full(tree.nodes(max(i, 1)), each) for i, each in enumerate(self._of_each)]
        out[0] *= tree.parts[1]
        return out

    @cached_property
    def projected(self) -> dict[int, list[tuple[FloatArray, FloatArray]]]:
        """For every held level, of what is projected: from the level below it to the labels.

        With n of a node's labels among the m of its held group, the node's weight times n/m, and
        for every held group the sum of weights times (n/m)².
        """
        tree = self.tree
        out: dict[int, list[tuple[FloatArray, FloatArray]]] = {}
        for held in {h for h, dimensions in self.components if h and dimensions}:
            share, group = np.ones(tree.nodes(held)), np.arange(tree.nodes(held))
            own = []
            for i in range(held, 0, -1):
                if i > 1:
                    share = tree.leaves[i - 1] / tree.down(i, tree.leaves[i] / share)
                    group = tree.down(i, group)
                else:
                    share = share / tree.leaves[1]
                weighed = self.node_weights[i - 1] * share
                squared = np.bincount(group, weighed * share, tree.nodes(held))
                own.append((weighed, squared.astype(np.float64)))
            out[held] = own
        return out

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


class _Backward:
    """The chain rule, backwards through both passes of `TreeGains`."""

    def __init__(self, split: ErrorOfLevels, precision: Sequence[float]) -> None:
        self.split, self.tree = split, split.tree
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

    def _count(self, f: list[FloatArray], dimensions: int, onto: list[FloatArray]) -> None:
        for i, values in enumerate(f):
            self.error += dimensions * _dot(values, self.split.node_weights[i])
            onto[i] += dimensions * self.split.node_weights[i]

    def _free(
        self, held: int | None, dimensions: int, f: list[FloatArray], onto: list[FloatArray]
    ) -> None:
        """Variances of the estimate without held totals, projected where some are held."""
        if held is None:
            self._count(f, dimensions, onto)
            return
        self._count(f[:held], dimensions, onto)
        tree, gains = self.tree, self.gains
        shared = [f[held]]
        on_shared = []
        for i, (weighed, squared) in zip(
            range(held, 0, -1), self.split.projected[held], strict=True
        ):
            above = tree.down(i, shared[-1]) if i > 1 else shared[-1]
            shared.append(gains.gain(i) * above)
            self.error += dimensions * (_dot(squared, f[held]) - 2 * _dot(weighed, shared[-1]))
            onto[held] += dimensions * squared
            on_shared.append(-2 * dimensions * weighed)
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
            self.of_precision[i] -= _dot(self.own[i], gains.own[i] ** 2)
            due = self.below[i] + self.own[i] * shrink
            if i > 1:
                self.own[i - 1] += tree.down(i, due)
            else:
                self.of_precision[0] -= _dot(due, tree.parts[1]) / gains.precision[0] ** 2


def _dot(one: FloatArray, other: npt.NDArray[Any]) -> float:
    """Σ one·other; for arrays of this size threads of a matrix library cost more than they save."""
    return float((one * other).sum())
