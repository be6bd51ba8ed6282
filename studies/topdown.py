"""Today's practice: noisy counts, then least squares without negative values, then whole numbers.

`TopDown` goes level by level, as the disclosure avoidance of the 2020 Census does: the cells of the
whole (race by age in a state), the total of every place in it, then the cells of every place. Each
step keeps what the steps above it decided. `OneLevel` measures the cells alone, with the whole
budget. Both hold the total of the whole exactly.

What the measuring adds is the same exact noise as everywhere in this package; everything after it
is post-processing, so both have the guarantee of their measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from studies.solvers import (
    nearest_with_margins,
    nearest_with_total,
    round_with_margins,
    round_with_total,
)
from subspacedp.errors import BudgetError
from subspacedp.frozen import frozen
from subspacedp.inference import replicates
from subspacedp.invariants import hold
from subspacedp.privacy import PureDP
from subspacedp.release import Design, design
from subspacedp.tables import Domain, Table

__all__ = ["OneLevel", "Shares", "TopDown"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@frozen(kw_only=True)
class Shares:
    """How the budget is split: the cells of the whole, the totals of places, the cells of places.

    By default 0.1, 0.2 and 0.7. The cells of the whole are large, so little is enough for them.
    With a fifth the totals of places come out nearer than by adding up cells that had the whole
    budget, which is what the extra levels are for; the rest goes to the cells, where the error is.
    """

    whole: Fraction = Fraction(1, 10)
    totals: Fraction = Fraction(2, 10)
    cells: Fraction = Fraction(7, 10)

    def __post_init__(self) -> None:
        parts = (self.whole, self.totals, self.cells)
        if any(part <= 0 for part in parts) or sum(parts) != 1:
            raise BudgetError("Shares of a budget must be positive and add up to 1.")


@frozen(eq=False, repr=False, kw_only=True)
class OneLevel:
    """The cells measured with the whole budget, made non-negative and whole.

    Guarantees
    ----------
    1. Whole numbers, none negative, and their total is the true one.
    2. Post-processing of a measurement of the cells with the budget ε and of the held total.
    """

    domain: Domain
    epsilon: float

    @cached_property
    def cells(self) -> Design:
        """What is measured."""
        return design(self.domain, hold(), PureDP(self.epsilon))

    def release(self, table: Table, *, seed: int | None = None) -> Int64Array:
        """One release."""
        measured = np.asarray(self.cells.release(table, seed=seed).values)
        return self.finish(measured, int(table.counts.sum()))

    def finish(self, cells: FloatArray, total: int) -> Int64Array:
        """The release from the noisy cells and the held total."""
        return round_with_total(nearest_with_total(cells, total), total)

    def errors(self, table: Table, number: int, *, seed: int) -> Iterator[Int64Array]:
        """Release minus truth, over so many runs."""
        truth, total = table.counts, int(table.counts.sum())
        for noise in replicates(self.cells, number, seed=seed):
            yield self.finish(np.asarray(truth + noise, np.float64), total) - truth


@frozen(eq=False, repr=False, kw_only=True)
class TopDown:
    """Level by level; the first axis of the domain are the places.

    Guarantees
    ----------
    1. Whole numbers, none negative, and their total is the true one.
    2. Post-processing of three measurements of the same people, whose budgets add up to ε, and of
       the held total.

    Notes
    -----
    Measurements keep the held total too. For least squares with that total this changes nothing:
    the part of the noise that is taken out is the part that the total corrects.
    """

    domain: Domain
    epsilon: float
    shares: Shares = Shares()

    @cached_property
    def mechanisms(self) -> tuple[Design, Design, Design]:
        """What is measured: the cells of the whole, the totals of places, the cells of places."""
        axes, shares = self.domain.axes, self.shares
        return (
            design(Domain(axes[1:]), hold(), _part(self.epsilon, shares.whole)),
            design(Domain(axes[:1]), hold(), _part(self.epsilon, shares.totals)),
            design(self.domain, hold(), _part(self.epsilon, shares.cells)),
        )

    def release(self, table: Table, *, seed: int | None = None) -> Int64Array:
        """One release."""
        axes = self.domain.axes
        tables = [
            Table(counts, Domain(kept))
            for counts, kept in zip(_levels(table.counts), (axes[1:], axes[:1], axes), strict=True)
        ]
        measured = [
            np.asarray(mechanism.release(part, seed=seed).values, np.float64)
            for mechanism, part in zip(self.mechanisms, tables, strict=True)
        ]
        return self.finish(measured, int(table.counts.sum()))

    def finish(self, measured: Sequence[FloatArray], total: int) -> Int64Array:
        """The release from the three measurements and the held total."""
        whole, totals, cells = measured
        columns = round_with_total(nearest_with_total(whole.ravel(), total), total)
        rows = self.places(totals, cells, total)
        flat = cells.reshape(len(cells), -1)
        nearest = nearest_with_margins(flat, rows, columns)
        return round_with_margins(nearest, rows, columns).reshape(cells.shape)

    def places(self, totals: FloatArray, cells: FloatArray, total: int) -> Int64Array:
        """The released totals of places, from both measurements that tell about them."""
        flat = cells.reshape(len(cells), -1)
        # Variances in common units: that of a law is proportional to the inverse square of its ε.
        apart = float(self.shares.totals) ** 2
        added = float(self.shares.cells) ** 2 / flat.shape[1]
        known = (apart * totals + added * flat.sum(axis=1)) / (apart + added)
        return round_with_total(nearest_with_total(known, total), total)

    def errors(self, table: Table, number: int, *, seed: int) -> Iterator[Int64Array]:
        """Release minus truth, over so many runs."""
        total = int(table.counts.sum())
        for measured in self._measured(table, number, seed):
            yield self.finish(measured, total) - table.counts

    def place_errors(self, table: Table, number: int, *, seed: int) -> Iterator[Int64Array]:
        """The same for the totals of places alone, without the work on the cells."""
        total, truth = int(table.counts.sum()), _levels(table.counts)[1]
        for _, totals, cells in self._measured(table, number, seed):
            yield self.places(totals, cells, total) - truth

    def _measured(self, table: Table, number: int, seed: int) -> Iterator[list[FloatArray]]:
        truth = _levels(table.counts)
        noise = [replicates(mechanism, number, seed=seed) for mechanism in self.mechanisms]
        for drawn in zip(*noise, strict=True):
            yield [t + n for t, n in zip(truth, drawn, strict=True)]


def _part(epsilon: float, share: Fraction) -> PureDP:
    """A share of a budget, rounded down, so that the shares never add up to more."""
    exact = Fraction(repr(PureDP(epsilon).epsilon)) * share  # budgets are read as decimals
    part = float(exact)
    return PureDP(part if Fraction(repr(part)) <= exact else math.nextafter(part, 0.0))


def _levels(counts: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The cells of the whole, the totals of places, and the cells of places."""
    return counts.sum(axis=0), counts.reshape(len(counts), -1).sum(axis=1), counts
