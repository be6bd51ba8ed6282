"""The law of the noise where one margin is held: a product over its groups."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.table_laws import Law, no_shift
from subspacedp.noise import KnownLaw
from subspacedp.tables import Margin

__all__ = ["ByGroup", "Groups", "RoundedGroups"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MOST_AT_ONCE = 1 << 19  # sums over residuals held in memory


@dataclass(frozen=True, eq=False)
class Layout:
    """The cells of a table group by group."""

    shape: tuple[int, ...]  # of the margin
    order: Int64Array  # cells, those of a group together
    group: Int64Array  # of each cell in this order, empty groups left out
    starts: Int64Array  # of every group in this order
    filled: Int64Array  # the number of each group in the margin

    @classmethod
    def of(cls, margin: Margin | None, shape: tuple[int, ...]) -> Layout:
        """The groups of a margin on a table of this shape."""
        groups = () if margin is None else margin.shape
        numbers = np.arange(int(np.prod(groups))).reshape(groups)
        spread = numbers if margin is None else margin.spread(numbers)
        group = np.broadcast_to(spread, shape).reshape(-1)
        order = np.argsort(group, kind="stable")
        filled, starts, member = np.unique(group[order], return_index=True, return_inverse=True)
        return cls(groups, order, member.reshape(-1), starts, filled)

    @cached_property
    def sizes(self) -> Int64Array:
        """The number of cells of every group."""
        return np.diff(self.starts, append=self.order.size)

    @cached_property
    def last(self) -> npt.NDArray[np.bool_]:
        """Whether a place is the last of its group."""
        out = np.zeros(self.order.size, bool)
        out[self.starts + self.sizes - 1] = True
        return out

    @cached_property
    def slope(self) -> Int64Array:
        """How many of a group are up to here, minus how many come after."""
        rank = np.arange(self.order.size) - self.starts[self.group]
        return 2 * (rank + 1) - self.sizes[self.group]


@dataclass(frozen=True, eq=False)
class ByGroup(Law):
    """Noise on every answer, and one margin held: independent groups."""

    law: KnownLaw
    values: Int64Array
    margin: Margin | None
    words: str
    exact: bool = True

    @property
    def groups(self) -> Margin | None:
        """The held margin."""
        return self.margin

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
        out[layout.filled] = self.law.log_shift_sums(d, layout)
        return out.reshape(layout.shape)


@dataclass(frozen=True, eq=False)
class RoundedGroups(ByGroup):
    """Digits that add up, values in steps: a sum over the group's residual and over all roundings.

    The lifted residual r adds r/m to each of m cells. Its cumulative sums r·j/m are rounded up or
    down at random, independently, so a cell's correction depends on two neighbours only, and
    the sum over all 2^(m−1) of them is a product of 2 × 2 matrices, for every r.
    """

    step: int = 1

    def by_group(self, units: Int64Array) -> FloatArray:
        """Log Σ_r Σ_roundings P(roundings | r) ∏ P(e), for every group."""
        layout = self._layout
        out = np.zeros(int(np.prod(layout.shape)))
        d = (self.values - units * self.step).reshape(-1)[layout.order]
        spread = np.add.reduceat(np.abs(d), layout.starts) / self.step
        for m in np.unique(layout.sizes):
            chosen = np.flatnonzero(layout.sizes == m)
            cells = layout.starts[chosen][:, None] + np.arange(m)
            reach = self.law.reach(float(spread[chosen].max()), int(m))
            if reach * self.step * int(m) >= 2**62:
                raise ReleaseError("There are too many decimals to sum over their rounding.")
            r = np.arange(-reach, reach + 1)
            at_once = max(1, MOST_AT_ONCE // r.size)
            for start in range(0, chosen.size, at_once):
                piece = slice(start, start + at_once)
                out[layout.filled[chosen[piece]]] = self._forward(d[cells[piece]], r)
        return out.reshape(layout.shape)

    def _forward(self, d: Int64Array, r: Int64Array) -> FloatArray:
        """For groups (rows of d) with the same number of cells, all residuals r together."""
        m = d.shape[1]
        with np.errstate(divide="ignore"):
            down = np.zeros((d.shape[0], r.size))  # log-weight of a sum rounded down, and up
            up = np.full(down.shape, -math.inf)
            before = np.zeros(r.size, np.int64)
            for j in range(1, m + 1):
                here, rest = np.divmod(r * (self.step * j), m)
                chance_up, chance_down = np.log(rest / m), np.log1p(-rest / m)
                middle = np.asarray(d[:, j - 1 : j] + (here - before), np.int64)
                same = self._mass(middle)
                down, up = (
                    chance_down + np.logaddexp(down + same, up + self._mass(middle - 1)),
                    chance_up + np.logaddexp(down + self._mass(middle + 1), up + same),
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
