"""One axis of a workload: the levels in use, and contrasts between the groups of one parent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.tables import Axis
from subspacedp.tables.margin import sum_groups

__all__ = ["AxisSteps"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class AxisSteps:
    """The steps of an axis that some margin uses, finest first; the last is all in one.

    The contrasts of a step are the deviations of its totals from an equal split of each parent's
    total: T(g) − T(parent)/k, the parent a group of the next step in use, k the number of groups
    in it. Groups without a label have no total and no contrast.
    """

    axis: Axis
    steps: tuple[int, ...]

    @property
    def top(self) -> int:
        """The step that has everything in one group."""
        return self.steps[-1]

    def above(self, step: int) -> int:
        """The next coarser step in use."""
        return self.steps[self.steps.index(step) + 1]

    def coarser(self, step: int) -> tuple[int, ...]:
        """The step itself and all coarser ones in use."""
        return self.steps[self.steps.index(step) :]

    @cached_property
    def _siblings(self) -> dict[int, Int64Array]:
        out = {}
        for step in self.steps[:-1]:
            present = self.axis.step(step).sizes > 0
            up = self.axis.parents(step, self.above(step))
            number = np.bincount(up[present], minlength=self.axis.step(self.above(step)).groups)
            out[step] = np.where(present, number[up], 0).astype(np.int64)
        return out

    def siblings(self, step: int) -> Int64Array:
        """For every group of a step how many its parent has, itself included; 0 for empty ones."""
        return self._siblings[step]

    def share(self, step: int) -> FloatArray:
        """1 − 1/k for every group of a step: the squared length of one record's contrast."""
        k = self.siblings(step)
        return np.where(k > 0, 1.0 - 1.0 / np.maximum(k, 1), 0.0)

    def dimension(self, step: int) -> int:
        """The number of independent contrasts of a step."""
        if step == self.top:
            return 1
        return self.axis.step(step).nonempty - self.axis.step(self.above(step)).nonempty

    def equal(self) -> bool:
        """Whether at every step all parents have equally many groups."""
        return all(len(np.unique(k[k > 0])) == 1 for k in self._siblings.values())

    def path(self, fine: int, coarse: int) -> FloatArray:
        """The share of every fine group when a coarse total is split equally, step by step."""
        if (fine, coarse) not in self._paths:
            self._paths[fine, coarse] = self._path(fine, coarse)
        return self._paths[fine, coarse]

    @cached_property
    def _paths(self) -> dict[tuple[int, int], FloatArray]:
        return {}

    def _path(self, fine: int, coarse: int) -> FloatArray:
        out = (self.axis.step(fine).sizes > 0).astype(np.float64)
        step = fine
        while step != coarse:
            k = self.siblings(step)[self.axis.parents(fine, step)]
            out = np.where(k > 0, out / np.maximum(k, 1), 0.0)
            step = self.above(step)
        return out

    def cost(self, fine: int, step: int, power: int) -> float:
        """Σ over fine groups of path² · share^power: how much noise on contrasts counts there."""
        path = self.path(fine, step)
        if step == self.top:
            return float(path @ path)
        share = self.share(step)[self.axis.parents(fine, step)]
        return float(np.square(path) @ share**power)

    def balanced(self, step: int) -> bool:
        """Whether groups of one parent have equally many labels."""
        sizes = self.axis.step(step).sizes
        up = self.axis.parents(step, self.above(step))
        present = sizes > 0
        largest = np.zeros(self.axis.step(self.above(step)).groups, np.int64)
        np.maximum.at(largest, up[present], sizes[present])
        return bool(np.array_equal(largest[up[present]], sizes[present]))

    def sum_up(self, values: npt.NDArray[Any], fine: int, coarse: int, a: int) -> npt.NDArray[Any]:
        """Totals of coarse groups along dimension `a`."""
        if fine == coarse:
            return values
        up = self.axis.parents(fine, coarse)
        groups = self.axis.step(coarse).groups
        return sum_groups(values, up, groups, a, one=coarse == self.top)

    def spread(self, values: npt.NDArray[Any], fine: int, coarse: int, a: int) -> npt.NDArray[Any]:
        """Every fine group's value of its coarse group; broadcast where there is only one."""
        if fine == coarse or coarse == self.top:
            return values
        return np.take(values, self.axis.parents(fine, coarse), axis=a)

    def same_parent(self, values: npt.NDArray[Any], step: int, a: int) -> npt.NDArray[Any]:
        """For every group of a step the total of all groups of its parent."""
        up = self.above(step)
        return self.spread(self.sum_up(values, step, up, a), step, up, a)
