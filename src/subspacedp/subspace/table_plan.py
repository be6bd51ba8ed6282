"""Noise on tables of margins themselves, combined part by part; for Laplace noise, and plain use.

Every measured table tells something of every part below it. The contrasts of a part are the
weighted mean of what the tables say, each by one over its variance there; such a mean is unbiased
whatever the weights. How the budget is split over tables is found numerically and is not claimed to
be the best possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.contrast_plan import noisy_parts, total_stays
from subspacedp.subspace.contrasts import Contrasts
from subspacedp.tables import Margin, Neighbours

__all__ = ["TablePlan", "plan_tables"]

FloatArray = npt.NDArray[np.float64]

MOST_TABLES = 1200
ROUNDS = 600
LEAST = 1e-3  # of an equal split: a table with less is left out
UNITS = 1 << 40  # shares are whole multiples of one over this


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TablePlan:
    """Which tables are measured, with which share of the budget each, in whole units.

    Guarantees
    ----------
    1. The units add up to `UNITS` exactly: the shares of the budget to the budget.
    """

    contrasts: Contrasts
    neighbours: Neighbours
    tables: tuple[Margin, ...]
    units: tuple[int, ...]
    whole_total: bool

    @cached_property
    def parts(self) -> tuple[Margin, ...]:
        """The parts that get noise."""
        return noisy_parts(self.contrasts, whole_total=self.whole_total)

    def mixing(self, variances: FloatArray) -> FloatArray:
        """What each table (columns) counts for in each part (rows); rows sum to one."""
        inverse = np.zeros((len(self.parts), len(self.tables)))
        np.divide(1.0, self.cells * variances, out=inverse, where=self.cells > 0)
        return np.asarray(inverse / inverse.sum(axis=1, keepdims=True))

    @cached_property
    def cells(self) -> FloatArray:
        """How many cells of each table (columns) make one group of each part (rows)."""
        return _cells(self.parts, self.tables)


def _cells(parts: tuple[Margin, ...], tables: tuple[Margin, ...]) -> FloatArray:
    """How many cells of a table make one group of a part, on average; 0 where it says nothing."""
    sizes = [float(t.nonempty) for t in tables]
    return np.array(
        [
            [size / p.nonempty if t.determines(p) else 0.0
             for t, size in zip(tables, sizes, strict=True)]
            for p in parts
        ]
    )  # fmt: skip


def plan_tables(
    contrasts: Contrasts, neighbours: Neighbours, *, pure: bool, capped: bool = False
) -> TablePlan:
    """A good split over the tables of the workload and of the parts below them."""
    whole_total = total_stays(neighbours, capped=capped)
    parts = noisy_parts(contrasts, whole_total=whole_total)
    tables = tuple(m for m in contrasts.workload if any(m.determines(p) for p in parts))
    if len(tables) + len(parts) <= MOST_TABLES:
        tables = tuple(dict.fromkeys((*tables, *parts)))
    costs = np.array([contrasts.cost(part, 1) for part in parts])
    cells = _cells(parts, tables)
    told = cells > 0
    exponent = 2 if pure else 1  # the variance of noise bought with a share x is 1/x^exponent
    x = np.full(len(tables), 1.0 / len(tables))
    for _ in range(ROUNDS):
        information = np.where(told, x**exponent / np.maximum(cells, 1e-300), 0.0)
        total = information.sum(axis=1)
        # −∂/∂x of Σ cost/total, times x: what each table's share is worth.
        worth = exponent * (costs / total**2) @ information
        x = x * np.sqrt(worth / np.maximum(x, 1e-300))
        x /= x.sum()
    needed = x > LEAST / len(tables)
    while not np.all(np.any(told[:, needed], axis=1)):
        lost = np.flatnonzero(~np.any(told[:, needed], axis=1))[0]
        needed[int(np.argmax(np.where(told[lost], x, -1.0)))] = True
    x, tables = (
        x[needed] / x[needed].sum(),
        tuple(t for t, keep in zip(tables, needed, strict=True) if keep),
    )
    units = [max(1, math.floor(share * UNITS)) for share in x]
    units[int(np.argmax(x))] += UNITS - sum(units)
    return TablePlan(
        contrasts=contrasts,
        neighbours=neighbours,
        tables=tables,
        units=tuple(units),
        whole_total=whole_total,
    )
