"""Whether released values keep the held totals: summed block by block, in exact integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.release.verify import Check, recover, whole_steps
from subspacedp.tables import RowPlan
from subspacedp.tables.boxes import Box
from subspacedp.tables.rows import margin_sums

__all__ = ["KeptTotals"]

HALF = 31  # sums are taken of high and low halves apart, so that none can wrap


def _add_sums(
    held: HeldMargins, box: Box, values: npt.NDArray[Any], totals: npt.NDArray[Any]
) -> None:
    """Add the held totals of a box, laid end to end; a whole table goes the way of memory."""
    if not held.margins:
        return
    plan = RowPlan(held.margins, box)
    if box.shape == plan.shape:
        totals += plan.join(margin_sums(values.reshape(plan.shape), held.margins), totals.dtype)
    else:
        plan.add_sums(values, totals)


def _number(held: HeldMargins) -> int:
    return int(RowPlan(held.margins).starts[-1]) if held.margins else 0


class _Totals:
    """Held totals of integers that cannot wrap."""

    def __init__(self, held: HeldMargins) -> None:
        self._held = held
        self._high, self._low = (np.zeros(_number(held), np.int64) for _ in range(2))

    def add(self, box: Box, values: npt.NDArray[np.int64]) -> None:
        _add_sums(self._held, box, values >> HALF, self._high)
        _add_sums(self._held, box, values & (2**HALF - 1), self._low)

    def result(self) -> tuple[npt.NDArray[Any], ...]:
        exact = self._high.astype(object) * 2**HALF + self._low.astype(object)
        return RowPlan(self._held.margins).split(exact) if self._held.margins else ()


class KeptTotals:
    """Compares group sums of values, in memory or on disk, with held totals.

    Guarantees
    ----------
    1. Digits: every held total is compared in exact integers that cannot wrap.
    2. Real values of the projected mechanism: as exact fractions recovered from float64 where it is
       fine enough for that; all others within the rounding of float64.
    """

    def __init__(self, mechanism: Mechanism, held: HeldMargins, exact: HeldValues) -> None:
        self._exact, self._held = exact, held
        self._cells, self._decimals = mechanism.query.size, mechanism.decimals
        self._step = 1 if self._decimals is None else 10**self._decimals
        self._grid, self._noise = float(mechanism.query.grid), _noise_scale(mechanism)
        self._whole = _Totals(held)
        self._parts: dict[int, _Totals] = {}  # by denominator
        self._space = held.cell_space
        # For values that float64 carries too coarsely: their sums, and the sums of their sizes.
        self._sum, self._size = np.zeros(_number(held)), np.zeros(_number(held))
        self._coarse = self._decimals is None and not mechanism.measures_counts
        fits = all(t.shape == m.shape for m, t in zip(held.margins, exact, strict=True))
        self._wrong = "" if fits else "the totals do not fit the margins"

    def add(self, box: Box, values: npt.NDArray[Any]) -> None:
        """Take in the values of a box."""
        if self._wrong:
            return
        if not np.all(np.isfinite(values)):
            self._wrong = "some values are not finite"
            return
        if self._grid != 1:
            values = values / self._grid
        if self._decimals is None:
            self._add_real(box, values)
        else:
            steps = whole_steps(values, self._step)
            if steps is None:
                self._wrong = f"some values do not have {self._decimals} decimals"
            else:
                self._whole.add(box, steps)

    def _add_real(self, box: Box, values: npt.NDArray[Any]) -> None:
        _add_sums(self._held, box, values, self._sum)
        _add_sums(self._held, box, np.abs(values), self._size)
        d = self._denominators(box)
        fractions = None if self._coarse else recover(values.reshape(box.shape), d)
        if fractions is None:
            self._coarse = True
        elif isinstance(fractions, int):
            self._wrong = f"{fractions} values are not what this design can release"
        else:
            self._whole.add(box, fractions.whole)
            spread = np.broadcast_to(d, box.shape)
            for size in np.unique(d).tolist():
                part = self._parts.setdefault(size, _Totals(self._held))
                part.add(box, np.where(spread == size, fractions.numerator, 0).astype(np.int64))

    def _denominators(self, box: Box) -> npt.NDArray[Any]:
        out, members = self._space.denominator_classes
        for a, member in enumerate(members):
            if out.shape[a] > 1:
                out = np.take(out, member[box.lower[a] : box.upper[a]], axis=a)
        return out

    def check(self) -> Check:
        """Whether all totals are kept, once every box was taken in."""
        name = "held totals are kept"
        if self._wrong:
            return Check(name, False, self._wrong)
        if self._coarse:
            return self._check_rounded(name)
        sums = self._whole.result()
        for size, part in self._parts.items():
            sums = tuple(
                s + p * Fraction(1, size) for s, p in zip(sums, part.result(), strict=True)
            )
        broken = sum(
            int(np.count_nonzero(s != t.astype(object) * self._step))
            for s, t in zip(sums, self._exact, strict=True)
        )
        fractions = "as exact fractions recovered from float64"
        return self._result(
            name, broken, fractions if self._decimals is None else "in whole numbers"
        )

    def _check_rounded(self, name: str) -> Check:
        """Where float64 is too coarse to recover the fractions: within its rounding error.

        Values are differences of numbers as large as the noise, which may be larger than they are.
        """
        sizes = [np.broadcast_to(m.sizes, m.shape).ravel() for m in self._held.margins]
        size = self._size + 64 * self._noise * np.concatenate([np.zeros(0), *sizes])
        slack = size * 2.0**-51 * (2 + np.log2(self._cells))
        wanted = np.concatenate([np.zeros(0), *(t.ravel() for t in self._exact)])
        broken = int(np.count_nonzero(np.abs(self._sum - wanted) > slack))
        return self._result(name, broken, "within the rounding of float64")

    def _result(self, name: str, broken: int, how: str) -> Check:
        rows = self._held.rows
        if broken:
            return Check(name, False, f"{broken} of {rows:,} totals are not kept, checked {how}")
        return Check(name, True, f"all {rows:,}, {how}")


def _noise_scale(mechanism: Mechanism) -> float:
    """The scale of the noise in units of the answers' grid; 0 where it was only declared."""
    if mechanism.declared is not None:
        return 0.0
    return float(mechanism.law.scale * float(mechanism.unit / mechanism.query.grid))
