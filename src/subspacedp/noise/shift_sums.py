"""Sums over the shift that all cells of a held group have in common, group by group."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.noise.laws import REACH, KnownLaw


@frozen(eq=False)
class GroupedCells:
    """The cells of a table group by group, those of a group together."""

    shape: tuple[int, ...]  # of the groups
    order: Int64Array  # of the cells
    group: Int64Array  # of each cell in this order, empty groups left out
    starts: Int64Array  # of every group in this order
    filled: Int64Array  # the number of each group among all

    @classmethod
    def of(cls, group: Int64Array, shape: tuple[int, ...]) -> GroupedCells:
        """From the number of the group of every cell, the groups having this shape."""
        order = np.argsort(group, kind="stable")
        filled, starts, member = np.unique(group[order], return_index=True, return_inverse=True)
        return cls(shape, order, member.reshape(-1), starts, filled)

    @cached_property
    def sizes(self) -> Int64Array:
        """The number of cells of every group."""
        return np.diff(self.starts, append=self.order.size)

    @cached_property
    def last(self) -> BoolArray:
        """Whether a place is the last of its group."""
        out = np.zeros(self.order.size, bool)
        out[self.starts + self.sizes - 1] = True
        return out

    @cached_property
    def slope(self) -> Int64Array:
        """How many of a group are up to here, minus how many come after."""
        rank = np.arange(self.order.size) - self.starts[self.group]
        return 2 * (rank + 1) - self.sizes[self.group]


def laplace_shifts(rate: float, d: Int64Array, groups: GroupedCells) -> FloatArray:
    """Log Σ_k ∏ P(Z = d_i + k) over the cells of every group, in closed form.

    F(k) = Σ|d_i + k| is linear between the places b = −d in order, so the sum is one geometric
    series between each two of them and one beyond either side. F at the places is in integers.
    """
    group, starts, sizes, slope = groups.group, groups.starts, groups.sizes, groups.slope
    b = -d
    b = b[np.lexsort((b, group))]
    gap = np.append(b[1:], 0) - b
    gap[groups.last] = 0
    rises = slope * gap  # of F, up to the next place
    # F at the first place is Σ(b_i − b_first), then it grows by slope·gap.
    first = np.add.reduceat(b, starts) - sizes * b[starts]
    before = np.cumsum(rises) - rises
    height = (first - before[starts])[group] + before
    # Between two places Σ_{0≤l<gap} exp(−rate(F + slope·l)), begun where F is lower.
    low = np.where(slope >= 0, height, height + rises - slope)
    steep = rate * np.abs(slope)
    with np.errstate(divide="ignore", invalid="ignore"):
        series = np.where(slope == 0, gap, np.expm1(-steep * gap) / np.expm1(-steep))
        log_terms = np.log(series) - rate * low  # a gap of 0 adds nothing: −∞
    # From the last place on (l ≥ 0), and before the first (l ≥ 1): slope ± size.
    tail = -np.log(-np.expm1(-rate * sizes))
    above = tail - rate * height[starts + sizes - 1]
    below = tail - rate * (sizes + first)
    most = np.maximum(np.maximum.reduceat(log_terms, starts), np.maximum(above, below))
    total = np.add.reduceat(np.exp(log_terms - most[group]), starts)
    total += np.exp(above - most) + np.exp(below - most)
    return np.asarray(most + np.log(total) + sizes * math.log(math.tanh(rate / 2)))


def gaussian_shifts(law: KnownLaw, d: Int64Array, groups: GroupedCells) -> FloatArray:
    """The same for Gaussian noise, whose sum over k is that of a narrow bell.

    As a function of k the product is nearly exp(−m(k + d̄)²/2s²). Where s/√m is large, steps of h
    whole numbers and a factor h miss a part of 2·exp(−2π²s²/(m h²)), below 10⁻¹⁸.
    """
    sizes = groups.sizes
    centre = np.rint(np.add.reduceat(d, groups.starts) / sizes).astype(np.int64)
    width = math.sqrt(law.variance) / np.sqrt(sizes)
    out = np.empty(sizes.size)
    steps = np.maximum(1, np.floor(width / 1.5)).astype(np.int64)
    for h in np.unique(steps):
        chosen = np.flatnonzero(steps == h)
        reach = int(np.ceil(REACH * float(width[chosen].max()) / h)) + 1
        near = (d - centre[groups.group])[(steps == h)[groups.group]]
        begin = np.cumsum(sizes[chosen]) - sizes[chosen]
        mass = _looked_up(law, near, int(h) * reach)
        logs = np.stack(
            [np.add.reduceat(mass(int(h) * j), begin) for j in range(-reach, reach + 1)]
        )
        most = logs.max(axis=0)
        out[chosen] = most + np.log(np.exp(logs - most).sum(axis=0)) + math.log(h)
    return out


def _looked_up(law: KnownLaw, z: Int64Array, reach: int) -> Callable[[int], FloatArray]:
    """Log P(Z = z + k) for |k| ≤ reach, from a table where that is less work."""
    low, high = int(z.min()) - reach, int(z.max()) + reach
    if high - low > 8 * z.size:
        return lambda k: law.log_mass(z + k)
    table = law.log_mass(np.arange(low, high + 1))
    place = z - low
    return lambda k: table[place + k]
