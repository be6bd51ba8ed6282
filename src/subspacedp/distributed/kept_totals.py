"""Whether released values keep the held totals: summed block by block, in exact integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import add_totals, empty_totals, margins_of, split_totals
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.release import Check, Design
from subspacedp.release.verify import recover, whole_steps
from subspacedp.subspace import MarginNullSpace
from subspacedp.tables.boxes import Box

__all__ = ["KeptTotals"]

HALF = 31  # sums are taken of high and low halves apart, so that none can wrap


class _Totals:
    """Held totals of integers that cannot wrap."""

    def __init__(self, held: HeldMargins) -> None:
        self._held = held
        self._high, self._low = empty_totals(held), empty_totals(held)

    def add(self, box: Box, values: npt.NDArray[np.int64]) -> None:
        add_totals(self._held, box, values >> HALF, self._high)
        add_totals(self._held, box, values & (2**HALF - 1), self._low)

    def result(self) -> tuple[npt.NDArray[Any], ...]:
        exact = self._high.astype(object) * 2**HALF + self._low.astype(object)
        return tuple(split_totals(self._held, exact))


class KeptTotals:
    """Compares group sums of values with held totals."""

    def __init__(self, design: Design, exact: HeldValues) -> None:
        self._exact, self._held = exact, margins_of(design)
        self._cells, self._decimals = design.query.size, design.decimals
        self._step = 1 if self._decimals is None else 10**self._decimals
        self._whole, self._wrong = _Totals(self._held), ""
        self._parts: dict[int, _Totals] = {}  # by denominator
        self._space = MarginNullSpace(self._held)
        # For values that float64 carries too coarsely: their sums, and the sums of their sizes.
        number = empty_totals(self._held).size
        self._sum, self._size, self._coarse = np.zeros(number), np.zeros(number), False

    def add(self, box: Box, values: npt.NDArray[Any]) -> None:
        """Take in the values of a box."""
        if self._wrong:
            return
        if not np.all(np.isfinite(values)):
            self._wrong = "some values are not finite"
        elif self._decimals is None:
            self._add_real(box, values)
        else:
            steps = whole_steps(values, self._step)
            if steps is None:
                self._wrong = f"some values do not have {self._decimals} decimals"
            else:
                self._whole.add(box, steps)

    def _add_real(self, box: Box, values: npt.NDArray[Any]) -> None:
        add_totals(self._held, box, values, self._sum)
        add_totals(self._held, box, np.abs(values), self._size)
        d = self._denominators(box)
        found = None if self._coarse else recover(values.reshape(box.shape), d)
        if found is None:
            self._coarse = True
        elif isinstance(found, int):
            self._wrong = f"{found} values are not what this design can release"
        else:
            self._whole.add(box, found.whole)
            spread = np.broadcast_to(d, box.shape)
            for size in np.unique(d).tolist():
                own = self._parts.setdefault(size, _Totals(self._held))
                own.add(box, np.where(spread == size, found.numerator, 0).astype(np.int64))

    def _denominators(self, box: Box) -> npt.NDArray[Any]:
        out, members = self._space.denominator_classes
        for a, member in enumerate(members):
            if out.shape[a] > 1:
                out = np.take(out, member[box.lower[a] : box.upper[a]], axis=a)
        return out

    def check(self) -> Check:
        """Whether all totals are kept, once every box was taken in."""
        name, rows = "held totals are kept", self._held.rows
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
        how = "as exact fractions" if self._decimals is None else "in whole numbers"
        if broken:
            return Check(name, False, f"{broken} of {rows:,} totals are not kept, checked {how}")
        return Check(name, True, f"all {rows:,}, {how}")

    def _check_rounded(self, name: str) -> Check:
        """As `verify_release` does where fractions cannot be recovered: within rounding error."""
        slack = self._size * 2.0**-51 * (2 + np.log2(self._cells))
        wanted = np.concatenate([t.ravel() for t in self._exact])
        broken = int(np.count_nonzero(np.abs(self._sum - wanted) > slack))
        how = "within the rounding of float64"
        if broken:
            return Check(name, False, f"{broken} totals are not kept, checked {how}")
        return Check(name, True, f"all {self._held.rows:,}, {how}")
