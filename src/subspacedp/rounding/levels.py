"""Published digits that add up for a table estimated from several levels.

`MarginRounding` rounds a lifted residual, whose cumulative sums are known group by group. Here
any real correction z is rounded whose held sums are whole numbers: its cumulative table is
computed, not interpolated, and everything else is as there. Axes are merged and ordered so that
published totals are off by few roundings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.rounding.controlled import WordSource
from subspacedp.rounding.cumulation import Cumulation
from subspacedp.rounding.margins import MarginRounding, differences, round_entries
from subspacedp.rounding.merged import MergedAxis, in_order
from subspacedp.rounding.profiles import corner_counts
from subspacedp.tables import Margin

__all__ = ["LevelRounding"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

RUN = 256  # numbers that are added up before whole parts are taken off


class _LevelAxis(MergedAxis):
    """A merged axis that costs no sorting where every level is in runs already."""

    @cached_property
    def order(self) -> Int64Array:
        """The positions, sorted by coarsest group, then the next finer, then as they come."""
        keys = (self._codes(steps) for steps in self.chain)
        if all(bool(np.all(key[1:] >= key[:-1])) for key in keys):
            return np.arange(len(self))
        return super().order


@dataclass(frozen=True, eq=False, repr=False)
class LevelRounding(MarginRounding):
    """How a real correction is rounded to multiples of 10**-decimals, keeping its held sums.

    Parameters
    ----------
    published
        The margins whose totals shall collect few roundings.
    importance
        What a rounding in every total of each of them counts for.

    Guarantees
    ----------
    1. `round` returns integers R with C R = 10**decimals · C z, exactly.
    2. Given z, E[R] = 10**decimals · z up to the rounding error of float64.
    3. `variance` bounds the rounding part of a variance from above: `unit_variance` squared
       steps for every rounding. 1/6 is enough for a correction made of noise alone whose
       characteristic function is never negative, 1/4 for any (docs/proofs/marginals.md).
    """

    published: tuple[Margin, ...]
    importance: tuple[float, ...]

    @property
    def needed(self) -> bool:
        """An estimate from several levels is never on the grid by itself."""
        return True

    @cached_property
    def axes(self) -> tuple[MergedAxis, ...]:
        """Merged axes, and an order on each, with few roundings in what is published."""
        chains = Cumulation(self.held, self.published, self.importance).best()
        domain = self.held.domain
        return in_order([_LevelAxis(domain, members, chain) for members, chain in chains.items()])

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            f"cumulative random rounding of the whole correction along {len(self.axes)} merged "
            f"axes to multiples of 10**-{self.decimals}, independent of the noise; a bound on its "
            "variance is in every stated error"
        )

    def round(self, whole: Int64Array | int, rest: FloatArray, dither: WordSource) -> Int64Array:
        """Round 10**decimals·(whole + rest) to integers that keep its held sums.

        Parameters
        ----------
        whole
            The whole part of the correction, where it was split off.
        rest
            The correction, or what is left of it.
        dither
            Uniform words, one an entry of the merged table in row-major order.
        """
        scaled = rest * self.step
        near = np.rint(scaled)
        scaled -= near
        entry = np.ascontiguousarray(self._from_domain(scaled))
        sums = np.zeros(self.shape, np.int64)
        for a in range(entry.ndim):
            np.cumsum(sums, axis=a, out=sums)
            turns, entry = cumulate(entry, a)
            sums += turns
        sums += round_entries(entry, self._all_ends, dither.words)
        rounded = self._to_domain(differences(sums))
        return np.asarray(rounded + near.astype(np.int64) + whole * self.step, np.int64)

    def _from_domain(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._as_it_is:
            return values.reshape(self.shape)
        return super()._from_domain(values)

    def _to_domain(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._as_it_is:
            return values.reshape(self.held.domain.shape)
        return super()._to_domain(values)

    @cached_property
    def _as_it_is(self) -> bool:
        """Whether the merged table is the table itself in its own order."""
        members = [b for axis in self.axes for b in axis.members]
        return members == sorted(members) and all(
            bool(np.array_equal(axis.order, np.arange(len(axis)))) for axis in self.axes
        )

    def variance(self, weights: npt.NDArray[Any] | None = None) -> Any:
        """The variance that rounding adds: to every cell, or to one weighted sum of cells."""
        if weights is None:
            return self.group_variance(self.held.domain.cells)
        coefficients, variance = self.coefficients(weights)
        return float(coefficients**2 @ variance)

    def coefficients(self, weights: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds to a weighted sum of cells, and a bound on its variance."""
        thrown = self._entry_variance > 0
        return self._corners(weights)[thrown] / self.step, self._entry_variance[thrown]

    def rounding_counts(self, margin: Margin) -> Int64Array:
        """How many roundings enter the rounding of every group's total of a margin."""
        return corner_counts(self, margin)

    def group_variance(self, margin: Margin) -> FloatArray:
        """The variance that rounding adds to every group's total of a margin."""
        return np.asarray(
            self.rounding_counts(margin) * (self.unit_variance / self.step**2), np.float64
        )

    @cached_property
    def _entry_variance(self) -> FloatArray:
        """E[f (1 − f)] of every entry, at most; none where the held totals determine it."""
        return np.where(self._all_ends, 0.0, self.unit_variance)


def cumulate(values: FloatArray, axis: int) -> tuple[Int64Array, FloatArray]:
    """Cumulative sums as whole numbers plus what is left, at most half.

    Numbers of at most a half are added up in runs, and whole parts of the sums of runs are taken
    off before they are added up in turn: no partial sum exceeds RUN/2, and the error of all n of
    them is at most n·RUN·2**-53, however large the sums get.
    """
    rows = np.moveaxis(values, axis, -1)
    number = rows.shape[-1]
    if number <= RUN:
        sums = np.cumsum(rows, axis=-1)
    else:
        padded = np.zeros((*rows.shape[:-1], -(-number // RUN) * RUN))
        padded[..., :number] = rows
        runs = padded.reshape(*rows.shape[:-1], -1, RUN)
        np.cumsum(runs, axis=-1, out=runs)
        last = runs[..., :-1, -1]
        turns = np.rint(last)
        above, left = cumulate(last - turns, -1)
        runs[..., 1:, :] += left[..., None]
        sums = padded[..., :number]
    whole = np.rint(sums)
    sums = sums - whole
    out = whole.astype(np.int64)
    if number > RUN:
        above += np.cumsum(turns, axis=-1).astype(np.int64)
        out[..., RUN:] += np.repeat(above, RUN, axis=-1)[..., : number - RUN]
    return np.moveaxis(out, -1, axis), np.moveaxis(sums, -1, axis)
