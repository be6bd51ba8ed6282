"""The groups of nested levels as a tree, and least squares on it in one pass up and one down.

A table is measured at several levels of one axis: Y_j = S_j x + noise, S_j the sums of a level's
groups, with precision t_j (one over the variance of the noise). The estimate of least squares,
V·Σ t_j S_jᵀ Y_j with V = (Σ t_j S_jᵀ S_j)⁻¹, is a Kalman smoother on the tree: on the way up every
group combines the sum of its parts with its own measurement, on the way down what is left over is
shared out among the parts by their variances. Nothing of the size of V is ever formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from subspacedp.tables import Axis

__all__ = ["LevelTree", "TreeGains"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
ArrayT = TypeVar("ArrayT", bound=npt.NDArray[Any])

ZERO = 1e-11  # a variance below this share of its parts is rounding error of zero


@dataclass(frozen=True, eq=False, repr=False)
class LevelTree:
    """The groups of some levels of an axis; groups without labels are left out.

    Parameters
    ----------
    axis
        The axis with nested levels.
    steps
        The places of the levels in the chain of the axis, ascending; from 0, the labels, to
        `axis.depth - 1`, all in one.

    Notes
    -----
    Nodes of a level are numbered so that the parts of every group are neighbours. In arrays the
    first dimension runs over the nodes of one level.
    """

    axis: Axis
    steps: tuple[int, ...]

    @property
    def top(self) -> int:
        """The number of the coarsest level: one group."""
        return len(self.steps) - 1

    @cached_property
    def order(self) -> Int64Array | None:
        """The labels in the order of the tree; None when they are in it already."""
        codes = [self.axis.step(s).codes for s in self.steps[1:-1]]
        if all(bool(np.all(c[1:] >= c[:-1])) for c in codes):
            return None
        return np.lexsort(codes)

    @cached_property
    def _starts(self) -> tuple[Int64Array, ...]:
        """For every level the first label of each node, as a place in the order."""
        out = [np.arange(len(self.axis))]
        for step in self.steps[1:]:
            codes = self.axis.step(step).codes
            codes = codes if self.order is None else codes[self.order]
            out.append(np.flatnonzero(np.diff(codes, prepend=-1)))
        return tuple(out)

    @cached_property
    def leaves(self) -> tuple[Int64Array, ...]:
        """For every level how many labels each node has."""
        return tuple(np.diff(starts, append=len(self.axis)) for starts in self._starts)

    @cached_property
    def ids(self) -> tuple[Int64Array, ...]:
        """For every level the number of each node among the groups of the axis."""
        out = []
        for step, starts in zip(self.steps, self._starts, strict=True):
            first = starts if self.order is None else self.order[starts]
            out.append(self.axis.step(step).codes[first])
        return tuple(out)

    @cached_property
    def _parts(self) -> tuple[Int64Array, ...]:
        """For every level from 1 on the first part of each node, among the nodes below."""
        below = zip(self._starts, self._starts[1:], strict=False)
        return (np.zeros(0, np.int64), *(np.searchsorted(fine, coarse) for fine, coarse in below))

    @cached_property
    def parts(self) -> tuple[Int64Array, ...]:
        """For every level from 1 on how many nodes of the level below each node has."""
        sizes = zip(self._parts[1:], self._starts, strict=False)
        return (
            np.zeros(0, np.int64),
            *(np.diff(first, append=len(fine)) for first, fine in sizes),
        )

    def nodes(self, level: int) -> int:
        """The number of nodes of a level."""
        return len(self._starts[level])

    def path(self, level: int, node: int) -> list[int]:
        """For every level the node with the first label of a node: itself, and its wholes."""
        first = self._starts[level][node]
        return [int(np.searchsorted(s, first, side="right")) - 1 for s in self._starts]

    def up(self, level: int, values: ArrayT) -> ArrayT:
        """Sums of the level below into the nodes of a level."""
        sums: Any = np.add.reduceat(values, self._parts[level], axis=0)
        return sums  # type: ignore[no-any-return]

    def down(self, level: int, values: ArrayT) -> ArrayT:
        """Every node's value for each of its parts on the level below."""
        out: Any = np.repeat(values, self.parts[level], axis=0)
        return out  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, repr=False)
class TreeGains:
    """Variances of least squares on a tree, for one precision a level.

    Guarantees
    ----------
    1. `own` and `spread` agree with the dense matrix V to rounding error
       (docs/proofs/hierarchies.md).
    2. Time and memory are those of the groups of all levels but the finest: labels of one group
       are alike, and values of the labels are given for their group.

    Parameters
    ----------
    tree
        The levels.
    precision
        One over the variance of the noise at every level of the tree; 0 where nothing is measured.
        The labels themselves must be measured.
    """

    tree: LevelTree
    precision: Sequence[float]

    @cached_property
    def below(self) -> tuple[FloatArray, ...]:
        """A: for every node the variance of the sum of its parts, each from its own subtree."""
        return self._up_pass[0]

    @cached_property
    def own(self) -> tuple[FloatArray, ...]:
        """a: for every node the variance of its total estimated from its subtree."""
        return self._up_pass[1]

    @cached_property
    def _up_pass(self) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
        """A = Σ a over parts; a = A/(1 + tA) with a measurement of precision t."""
        tree, t = self.tree, self.precision
        below, own = [np.zeros(0)], [np.full(1, 1 / t[0])]
        for i in range(1, len(tree.steps)):
            sums = tree.parts[1] / t[0] if i == 1 else tree.up(i, own[-1])
            below.append(sums)
            own.append(sums / (1 + t[i] * sums))
        return tuple(below), tuple(own)

    def gain(self, level: int) -> FloatArray:
        """k: for every node below a level the share it gets of what is left over."""
        if level == 1:
            return 1.0 / self.tree.parts[1]  # by group: all labels of one group are alike
        return self.own[level - 1] / self.tree.down(level, self.below[level])

    def spread(self, start: int, known: FloatArray | None = None) -> list[FloatArray]:
        """The variance of every node's total, from level `start` down to the labels.

        Parameters
        ----------
        start
            The level where the pass begins.
        known
            The variances there; by default those from the subtrees, right at the top.

        Notes
        -----
        f_part = a + k²(f − A): what is left over at the whole is shared by k = a/A.
        """
        f = self.own[start] if known is None else known
        out = [f]
        for i in range(start, 0, -1):
            left = f - self.below[i]
            if i > 1:
                f = self.own[i - 1] + self.gain(i) ** 2 * self.tree.down(i, left)
            else:
                f = self.own[0] + self.gain(1) ** 2 * left
            f = np.where(f > ZERO * self.own[i - 1], f, 0.0)
            out.append(f)
        return out[::-1]

    def total_variances(self, held: int | None, *, constrained: bool) -> list[FloatArray]:
        """The variance of every node's total in the part of the table held from a level on.

        Parameters
        ----------
        held
            The finest level whose totals are exact; None where none are.
        constrained
            Whether the exact totals enter the least squares. Otherwise the estimate without them
            is projected: every node loses its share, by number of labels, of what the estimate of
            the group with the exact total is off.

        Returns
        -------
        For every level one value a node; for the labels one value a group of level 1, and zeros
        from the held level up.
        """
        tree, top = self.tree, self.tree.top
        if held is None:
            return self.spread(top)
        zeros = [np.zeros(tree.nodes(max(i, 1))) for i in range(held, top + 1)]
        if held == 0:
            return zeros
        if constrained:
            return [*self.spread(held, np.zeros(tree.nodes(held)))[:-1], *zeros]
        f = self.free
        out: list[FloatArray] = []
        whole, shared = f[held], f[held]  # Var of the held group, Cov of the node with it
        share = np.ones(tree.nodes(held))
        for i in range(held, 0, -1):
            if i > 1:
                shared = self.gain(i) * tree.down(i, shared)
                share = tree.leaves[i - 1] / tree.down(i, tree.leaves[i] / share)
                whole = tree.down(i, whole)
            else:
                shared, share = shared * self.gain(1), share / tree.leaves[1]
            found = f[i - 1] - 2 * share * shared + share**2 * whole
            out.append(np.where(found > ZERO * f[i - 1], found, 0.0))
        return [*out[::-1], *zeros]

    @cached_property
    def free(self) -> list[FloatArray]:
        """The variance of every node's total where nothing is held."""
        return self.spread(self.tree.top)
