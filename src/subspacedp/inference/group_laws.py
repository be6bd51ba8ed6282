"""The law of the noise where one margin is held: a product over its groups."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.group_shifts import REACH, Layout, gaussian_shifts, laplace_shifts
from subspacedp.inference.table_laws import Law, no_shift
from subspacedp.noise import KnownLaw
from subspacedp.tables import Margin

__all__ = ["ByGroup", "DigitGroups", "Groups"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MOST_AT_ONCE = 1 << 19  # sums over residuals held in memory


@dataclass(frozen=True, eq=False)
class ByGroup(Law):
    """Noise on every answer, and one margin held: independent groups."""

    law: KnownLaw
    values: Int64Array
    margin: Margin | None
    words: str
    exact: bool = True

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """The sum over groups."""
        no_shift(shift)
        return math.fsum(self.by_group(units).reshape(-1).tolist())

    @abstractmethod
    def by_group(self, units: Int64Array) -> FloatArray:
        """The log-probability of every group, in the margin's shape."""

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(self.margin, self.values.shape)


class Groups(ByGroup):
    """Real values, whole parts given: a sum over one shift a group; or nothing held at all."""

    def log(self, units: Int64Array, shift: FloatArray | None) -> float:
        """Group by group, or cell by cell where nothing is held."""
        if self.margin is not None:
            return super().log(units, shift)
        no_shift(shift)
        return math.fsum(self.law.log_mass(self.values - units).reshape(-1).tolist())

    def by_group(self, units: Int64Array) -> FloatArray:
        """Log Σ_k P(e = d + k) over whole k, for every group."""
        layout = self._layout
        out = np.zeros(int(np.prod(layout.shape)))
        d = (self.values - units).reshape(-1)[layout.order]
        rate = self.law.geometric_rate
        if rate is not None:
            out[layout.filled] = laplace_shifts(rate, d, layout)
        else:
            out[layout.filled] = gaussian_shifts(self.law, d, layout)
        return out.reshape(layout.shape)


@dataclass(frozen=True, eq=False)
class DigitGroups(ByGroup):
    """Digits that add up, values in steps: a sum over the group's residual and over all coins.

    The lifted residual r adds r/m to each of m cells. Its cumulative sums r·j/m are rounded up or
    down by independent coins, so a cell's correction depends on two neighbouring coins only, and
    the sum over all 2^(m−1) of them is a product of 2 × 2 matrices, for every r.
    """

    step: int = 1

    def by_group(self, units: Int64Array) -> FloatArray:
        """Log Σ_r Σ_coins P(coins | r) ∏ P(e), for every group."""
        layout = self._layout
        out = np.zeros(int(np.prod(layout.shape)))
        d = (self.values - units * self.step).reshape(-1)[layout.order]
        spread = np.add.reduceat(np.abs(d), layout.starts) / self.step
        for m in np.unique(layout.sizes):
            chosen = np.flatnonzero(layout.sizes == m)
            cells = layout.starts[chosen][:, None] + np.arange(m)
            reach = self._reach(float(spread[chosen].max()), int(m))
            if reach * self.step * int(m) >= 2**62:
                raise ReleaseError("There are too many decimals to sum over their rounding.")
            r = np.arange(-reach, reach + 1)
            at_once = max(1, MOST_AT_ONCE // r.size)
            for start in range(0, chosen.size, at_once):
                piece = slice(start, start + at_once)
                out[layout.filled[chosen[piece]]] = self._forward(d[cells[piece]], r)
        return out.reshape(layout.shape)

    def _reach(self, spread: float, m: int) -> int:
        """The largest residual that matters, for d that add up to zero; see the proof note."""
        if self.law.geometric_rate is not None:
            return math.ceil(spread + 40 / self.law.geometric_rate) + 2 * m
        return (
            math.ceil(REACH * math.sqrt(self.law.variance * m) + math.sqrt(4 * m * spread)) + 2 * m
        )

    def _forward(self, d: Int64Array, r: Int64Array) -> FloatArray:
        """For groups (rows of d) with the same number of cells, all residuals r together."""
        m = d.shape[1]
        with np.errstate(divide="ignore"):
            down = np.zeros((d.shape[0], r.size))  # log-weight of a sum rounded down, and up
            up = np.full(down.shape, -math.inf)
            before = np.zeros(r.size, np.int64)
            for j in range(1, m + 1):
                here, rest = np.divmod(r * (self.step * j), m)
                coin_up, coin_down = np.log(rest / m), np.log1p(-rest / m)
                middle = np.asarray(d[:, j - 1 : j] + (here - before), np.int64)
                same = self._mass(middle)
                down, up = (
                    coin_down + np.logaddexp(down + same, up + self._mass(middle - 1)),
                    coin_up + np.logaddexp(down + self._mass(middle + 1), up + same),
                )
                before = here
            most = np.maximum(down.max(axis=1), -1e300)  # where nothing is possible, log 0 is −∞
            return np.asarray(most + np.log(np.exp(down - most[:, None]).sum(axis=1)))

    def _mass(self, steps: Int64Array) -> FloatArray:
        """Log P(e) for noise in steps, which must be whole."""
        if self.step == 1:
            return self.law.log_mass(steps)
        e, rest = np.divmod(steps, self.step)
        return np.where(rest == 0, self.law.log_mass(e), -math.inf)
