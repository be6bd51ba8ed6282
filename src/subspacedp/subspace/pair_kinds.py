"""Kinds of pairs of records: what replacing one by another does to the parts of a workload.

With noise whose variance on a group is proportional to ∏(1 − 1/k), one record's contrasts of a part
have the same length for every record, and two records' contrasts have the inner product ∏ x over
the axes: x = 1 where both are in one group, −1/(k − 1) in two groups of one parent, 0 under
different parents. So with shares b of the squared budget the squared distance of two records is

    F = 2 Σ_τ b_τ (1 − ∏_{a∈τ} x_a),

and on each axis only a few kinds of pairs have to be looked at: which step they first share, and
the smallest and largest k there (F is affine in x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.contrasts import Contrasts
from subspacedp.tables import Margin

__all__ = ["PairKinds"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MOST_KINDS = 1 << 24  # of pairs that are all looked at
MOST_HALF = 1 << 25  # entries of a matrix of kinds and steps of half the axes
ROUNDING = 2.0**-53  # of one operation in float64, relative


@dataclass(frozen=True, eq=False, repr=False)
class PairKinds:
    """All kinds of pairs of records on the axes that some free part uses."""

    contrasts: Contrasts
    parts: tuple[Margin, ...]

    @cached_property
    def axes(self) -> list[int]:
        """The axes on which some part has contrasts."""
        return sorted({a for part in self.parts for a in self.contrasts.kept(part)})

    @cached_property
    def _steps(self) -> list[list[int]]:
        """On every such axis the steps of the parts; the top step comes first."""
        out = []
        for a in self.axes:
            top = self.contrasts.axes[a].top
            used = {part.steps[a] for part in self.parts} - {top}
            out.append([top, *sorted(used)])
        return out

    @cached_property
    def products(self) -> list[FloatArray]:
        """For every such axis x by kind of pair (rows) and step (columns); 1 at the top step."""
        return [self._axis_kinds(a, steps) for a, steps in zip(self.axes, self._steps, strict=True)]

    def _axis_kinds(self, a: int, steps: list[int]) -> FloatArray:
        axis = self.contrasts.axes[a]
        rows = [[1.0] * len(steps)]  # the same group at every step
        for finer in axis.steps[:-1]:  # different there, the same at the next step
            k = axis.siblings(finer)
            k = k[k > 1]
            rows.extend(
                [
                    1.0 if step > finer else -1.0 / (number - 1) if step == finer else 0.0
                    for step in steps
                ]
                for number in ({int(k.min()), int(k.max())} if k.size else ())
            )
        return np.unique(np.array(rows), axis=0)[::-1].copy()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of kinds on every axis."""
        return tuple(len(x) for x in self.products)

    @cached_property
    def _places(self) -> Int64Array:
        """The column of every part on every axis."""
        return np.array(
            [
                [
                    steps.index(part.steps[a])
                    for a, steps in zip(self.axes, self._steps, strict=True)
                ]
                for part in self.parts
            ],
            np.int64,
        ).reshape(len(self.parts), len(self.axes))

    @property
    def listable(self) -> bool:
        """Whether all kinds can be looked at, one by one."""
        if math.prod(self.shape) > MOST_KINDS:
            return False
        first, second = self._cut
        sizes = [
            math.prod(self.shape[half]) * len(np.unique(self._places[:, half], axis=0))
            for half in (first, second)
        ]
        return max(sizes) <= MOST_HALF

    @cached_property
    def _cut(self) -> tuple[slice, slice]:
        """The axes in two halves with about as many kinds each."""
        logs = np.cumsum(np.log(np.array(self.shape, float)))
        at = int(np.searchsorted(logs, logs[-1] / 2)) + 1 if logs.size else 0
        return slice(0, at), slice(at, None)

    @cached_property
    def _halves(self) -> list[tuple[FloatArray, Int64Array]]:
        """For each half ∏ x by kind of pair and pattern of steps, and every part's pattern."""
        out = []
        for half in self._cut:
            patterns, member = np.unique(self._places[:, half], axis=0, return_inverse=True)
            table = np.ones((1, len(patterns)))
            for x, column in zip(self.products[half], patterns.T, strict=True):
                table = (table[:, None, :] * x[None, :, column]).reshape(-1, len(patterns))
            out.append((table, member.reshape(-1)))
        return out

    def distances(self, shares: FloatArray) -> FloatArray:
        """F of every kind of pair, flat, in row-major order of `shape`."""
        (left, i), (right, j) = self._halves
        middle = np.zeros((left.shape[1], right.shape[1]))
        middle[i, j] = shares
        out = (left @ middle) @ right.T
        out *= -2.0
        out += 2.0 * float(shares.sum())
        return out.reshape(-1)

    @property
    def rounding(self) -> float:
        """What float64 can take from F or from Σ b·`longest`, at most, as a share of Σ b.

        An entry ∏ x comes from at most two roundings an axis, F from two sums over patterns and one
        over parts, each of no more terms than there are parts; every number is at most 1, so
        2γ(2 axes + 3 parts + 6) of Σ b in whatever order BLAS adds, γ(n) = n·2⁻⁵³/(1 − n·2⁻⁵³).
        Twice that leaves room for the rounding of Σ b and of this bound.
        """
        return 4 * (2 * len(self.axes) + 3 * len(self.parts) + 8) * ROUNDING

    def largest(self, shares: FloatArray) -> float:
        """An upper bound on F over all pairs: its largest value, or part by part."""
        if self.listable:
            return float(self.distances(shares).max()) + self.rounding * float(shares.sum())
        return float(shares @ self.longest) * (1 + self.rounding)

    def rows(self, kinds: Int64Array) -> FloatArray:
        """F's coefficients, one row a kind of pair given by its flat number."""
        numbers = np.unravel_index(kinds, self.shape) if self.shape else ()
        out = np.ones((len(kinds), len(self.parts)))
        for i, (x, own) in enumerate(zip(self.products, numbers, strict=True)):
            out *= x[own][:, self._places[:, i]]
        return 2.0 * (1.0 - out)

    @cached_property
    def longest(self) -> FloatArray:
        """For every part the largest coefficient that any pair gives it: 2(1 − least ∏ x)."""
        out = []
        for place in self._places:
            low = high = 1.0
            for x, column in zip(self.products, place, strict=True):
                values = x[:, column]
                ends = [v * w for v in (low, high) for w in (float(values.min()), 1.0)]
                low, high = min(ends), max(ends)
            out.append(2.0 * (1.0 - low))
        return np.array(out)

    def mixed_row(self, chance: float) -> FloatArray:
        """Mean coefficients over pairs that differ on each axis on their own with this chance.

        Among different labels of an axis all kinds are equally likely. Pairs that do not differ at
        all count 0, so the mean is that of some distribution over pairs, or less.
        """
        out = np.ones(len(self.parts))
        for i, x in enumerate(self.products):
            same = np.all(x == 1.0, axis=1)
            other = x[~same].mean(axis=0) if np.any(~same) else np.ones(x.shape[1])
            out *= (1 - chance + chance * other)[self._places[:, i]]
        return 2.0 * (1.0 - out)

    def index(self, kinds: Sequence[Sequence[int]]) -> Int64Array:
        """Flat numbers of kinds given axis by axis."""
        places = tuple(np.array(kinds, np.int64).T)
        return np.asarray(np.ravel_multi_index(places, self.shape), np.int64)
