"""Random rounding of one table to whole numbers that keeps the totals of coarser tables.

The table is cumulated along as few directions as its coarser tables need; entries that those
determine are taken from them, as integers, and every other entry goes up or down at random with
the probability of its fractional part. Differences give the rounded table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.contrasts import Contrasts
from subspacedp.tables import Margin

__all__ = ["Cumulated"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Cumulated:
    """How the table of one margin is laid out for rounding, given the coarser margins it keeps.

    Axes that every coarser margin keeps are not cumulated; axes that the same of them keep, the
    others summing over them, are merged into one direction; every other axis is a direction with
    the groups of coarser levels as runs.

    Guarantees
    ----------
    1. `round` gives whole numbers whose totals in every coarser margin are exactly those given,
       whatever the coins; it is unbiased over coins.
    """

    contrasts: Contrasts
    margin: Margin
    lower: tuple[Margin, ...]

    @cached_property
    def _orders(self) -> dict[int, Int64Array]:
        """The groups of every axis that have labels, those of one coarser group side by side."""
        out = {}
        for a in self.contrasts.kept(self.margin):
            axis, step = self.contrasts.axes[a], self.margin.steps[a]
            present = np.flatnonzero(axis.axis.step(step).sizes > 0)
            keys = [axis.axis.parents(step, s)[present] for s in axis.coarser(step)]
            out[a] = present[np.lexsort(keys)]  # the coarsest is the first key
        return out

    def order(self, a: int) -> Int64Array:
        """The groups of an axis that are rounded, in order; the only one where it is summed."""
        return self._orders.get(a, np.zeros(1, np.int64))

    @cached_property
    def batch(self) -> list[int]:
        """Axes that are not cumulated."""
        return [
            a for a in self._orders
            if all(k.steps[a] == self.margin.steps[a] for k in self.lower)
        ]  # fmt: skip

    @cached_property
    def directions(self) -> list[list[int]]:
        """Axes that are cumulated, those that are merged together."""
        out: dict[Any, list[int]] = {}
        for a in self._orders:
            if a in self.batch:
                continue
            own, top = self.margin.steps[a], self.contrasts.axes[a].top
            steps = tuple(k.steps[a] for k in self.lower)
            plain = all(s in (own, top) for s in steps)
            out.setdefault(tuple(s == own for s in steps) if plain else a, []).append(a)
        return list(out.values())

    @property
    def corners(self) -> int:
        """How many entries of the cumulated table make one of the table, at most."""
        return 1 << len(self.directions)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The cumulated table: what is not cumulated first, then the directions."""
        sizes = [self._size(self.batch), *(self._size(axes) for axes in self.directions)]
        return tuple(sizes)

    @cached_property
    def entries(self) -> int:
        """The number of entries, and of words that `round` takes."""
        return int(np.prod(self.shape))

    def _size(self, axes: Sequence[int]) -> int:
        return int(np.prod([len(self._orders[a]) for a in axes], dtype=np.int64))

    def arrange(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A table of the margin in this layout."""
        out = table.reshape(self.margin.shape)
        for a, order in self._orders.items():
            out = np.take(out, order, axis=a)
        return out.transpose(self._axes).reshape(self.shape)

    def restore(self, arranged: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The table of the margin again, 0 for groups without labels."""
        inner = [len(self._orders[a]) if a in self._orders else 1 for a in self._axes]
        back = arranged.reshape(inner).transpose(np.argsort(self._axes))
        out = np.zeros(self.margin.shape, arranged.dtype)
        places = [self.order(a) for a in range(len(self.margin.shape))]
        out[np.ix_(*places)] = back
        return out

    @cached_property
    def _axes(self) -> list[int]:
        ordered = [*self.batch, *(a for axes in self.directions for a in axes)]
        others = [a for a in range(len(self.margin.shape)) if a not in self._orders]
        return [*others, *ordered]

    @cached_property
    def ends(self) -> list[list[tuple[Int64Array, Int64Array]]]:
        """For every coarser margin and direction: places that end its runs, and the runs."""
        out = []
        for k in self.lower:
            own = []
            for axes in self.directions:
                size = self._size(axes)
                kept = [k.steps[a] == self.margin.steps[a] for a in axes]
                if all(kept):
                    own.append((np.arange(size), np.arange(size)))
                elif len(axes) > 1 or k.steps[axes[0]] == self.contrasts.axes[axes[0]].top:
                    own.append((np.array([size - 1]), np.array([0])))
                else:
                    runs = self._runs(axes[0], k.steps[axes[0]])
                    last = np.flatnonzero(np.diff(runs, append=-1))
                    own.append((last, np.arange(last.size)))
            out.append(own)
        return out

    def _runs(self, a: int, step: int) -> Int64Array:
        up = self.contrasts.axes[a].axis.parents(self.margin.steps[a], step)
        return up[self._orders[a]]

    def _lower_table(self, table: Int64Array, k: Margin) -> Int64Array:
        """A coarser table in this layout: its groups in the order of their runs."""
        out = table.reshape(k.shape)
        for a, order in self._orders.items():
            if k.steps[a] == self.margin.steps[a]:
                out = np.take(out, order, axis=a)
            elif k.steps[a] != self.contrasts.axes[a].top:
                runs = self._runs(a, k.steps[a])
                out = np.take(out, runs[np.flatnonzero(np.diff(runs, prepend=-1))], axis=a)
        shape = [self.shape[0], *(len(runs) for _, runs in self.ends[self.lower.index(k)])]
        return out.transpose(self._axes).reshape(shape)

    def determined(self) -> npt.NDArray[np.bool_]:
        """Which entries the coarser margins determine."""
        out = np.zeros(self.shape, bool)
        everything = np.arange(self.shape[0])
        for own in self.ends:
            out[np.ix_(everything, *(ends for ends, _ in own))] = True
        return out

    def round(
        self,
        table: FloatArray,
        lower: Sequence[Int64Array],
        words: Callable[[int], npt.NDArray[np.uint64]],
    ) -> Int64Array:
        """Whole numbers of mean `table` with exactly the totals of the coarser tables.

        Parameters
        ----------
        table
            Real totals of the margin whose sums in coarser margins are those of `lower`.
        lower
            Whole totals of the coarser margins.
        words
            Gives so many uniform words, independent of everything else.
        """
        arranged = self.arrange(table)
        whole = np.rint(arranged)
        rest = arranged - whole
        sums = whole.astype(np.int64)
        for axis in range(1, rest.ndim):
            rest, sums = np.cumsum(rest, axis=axis), np.cumsum(sums, axis=axis)
        coins = (words(self.entries) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        sums += np.floor(rest + coins.reshape(self.shape)).astype(np.int64)
        everything = np.arange(self.shape[0])
        for k, own, totals in zip(self.lower, self.ends, lower, strict=True):
            known = self._lower_table(totals, k)
            for axis in range(1, known.ndim):
                known = np.cumsum(known, axis=axis)
            sums[np.ix_(everything, *(ends for ends, _ in own))] = known
        for axis in range(1, sums.ndim):
            sums = np.diff(sums, axis=axis, prepend=0)
        return np.asarray(self.restore(sums), np.int64)

    def coins(self, weights: FloatArray) -> FloatArray:
        """What each coin adds to a weighted sum of the table: adjoint differences."""
        out = self.arrange(weights)
        for axis in range(1, out.ndim):
            out = -np.diff(out, axis=axis, append=0.0)
        return np.asarray(out[~self.determined()])
