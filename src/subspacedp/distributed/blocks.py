"""One box of a table at a time: its noise, its totals, and what is released of it.

Everything here is a function of the box, the keys and the residual alone, so boxes may be worked
on in any order, by any number of threads or machines, and give the very numbers of a release made
in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.cell_noise import CellNoise
from subspacedp.errors import DataError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldValues, MarginNullSpace
from subspacedp.mechanisms import default_name
from subspacedp.mechanisms.base import Mechanism
from subspacedp.parallel import compiled
from subspacedp.release.designs import Design
from subspacedp.rounding import MarginRounding
from subspacedp.rounding.margins import LIMIT
from subspacedp.tables import MAX_TOTAL, RowPlan
from subspacedp.tables.boxes import Box

if TYPE_CHECKING:
    from subspacedp.invariants.margin_space import LiftParts
    from subspacedp.rounding.rows import RowRounding

__all__ = ["BoxFacts", "Reconstruction", "noise_totals", "read_design", "whole_counts"]

Int64Array = npt.NDArray[np.int64]
PIECE = 1 << 20  # cells for which memory is had when noise is only summed
CACHE = 1 << 16  # cells that stay in a core's cache from one step to the next


def read_design(design: Design) -> Mechanism:
    """The mechanism of a design that can be carried out box by box; an error for any other."""
    mechanism = design.mechanism
    if not mechanism.measures_counts or not mechanism.query.is_histogram:
        raise ReleaseError(
            f"A table is released in blocks by the {default_name()} mechanism on its cells alone; "
            f'ask for design(domain, ..., mechanism="{default_name()}").'
        )
    if mechanism.held.family is None:
        raise ReleaseError("A table is released in blocks with margins held, and nothing else.")
    if mechanism.capped:
        raise ReleaseError(
            "A design with capped=True takes two tables, and blocks are made of one; release it in "
            "memory."
        )
    return mechanism


def margins_of(mechanism: Mechanism) -> HeldMargins:
    """The held margins of a design that `read_design` accepts."""
    if mechanism.held.family is None:
        raise ReleaseError("This design holds more than margins.")
    return mechanism.held.family


def plan_of(held: HeldMargins, box: Box | None = None) -> RowPlan | None:
    """How the held margins see a box; None when nothing is held."""
    return RowPlan(held.margins, box) if held.margins else None


def empty_totals(held: HeldMargins) -> Int64Array:
    """Zero for every held total, laid end to end."""
    plan = plan_of(held)
    return np.zeros(0 if plan is None else int(plan.starts[-1]), np.int64)


def split_totals(held: HeldMargins, flat: npt.NDArray[Any]) -> HeldValues:
    """Totals laid end to end, as one array a held margin."""
    plan = plan_of(held)
    return () if plan is None else tuple(part.copy() for part in plan.split(flat))


def add_totals(
    held: HeldMargins, box: Box, values: npt.NDArray[Any], totals: npt.NDArray[Any]
) -> None:
    """Add the held totals of a box; integers modulo 2**64."""
    plan = plan_of(held, box)
    if plan is not None:
        plan.add_sums(values, totals)


def noise_totals(mechanism: Mechanism, noise: CellNoise, box: Box, totals: Int64Array) -> None:
    """Add C·noise of a box: drawn, summed and forgotten, piece by piece."""
    held = margins_of(mechanism)
    if not held.margins:
        return
    buffer = _room(min(PIECE, box.size))
    for part in box.split(PIECE):
        starts, length = part.runs(mechanism.query.shape)
        plan, own = RowPlan(held.margins, part), buffer[: part.size]
        if len(starts) > 1:  # a chunk that is no stretch of cells
            noise.add(starts, length, _zeros(part.size), own)
            plan.add_sums(own, totals)
            continue
        for stretch in plan.ranges(CACHE):
            at, stop = cells_of(plan, stretch)
            noise.add(starts + at, stop - at, _zeros(stop - at), own[at:stop])
            plan.add_sums(own, totals, stretch)


def cells_of(plan: RowPlan, stretch: tuple[int, int, int, int]) -> tuple[int, int]:
    """Where a stretch of a box begins and ends among its cells."""
    first, last, lo, hi = stretch
    return first * plan.row + lo, (last - 1) * plan.row + hi


_KEPT = threading.local()


def _room(size: int) -> Int64Array:
    """Memory of this thread, kept for its next box: fresh memory costs as much as the sums."""
    if getattr(_KEPT, "room", np.empty(0)).size < size:
        _KEPT.room = np.empty(size, np.int64)
    return _KEPT.room[:size]  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def _zeros(size: int) -> Int64Array:
    out = np.zeros(size, np.int64)
    out.setflags(write=False)
    return out


def measure(
    mechanism: Mechanism, noise: CellNoise, box: Box, counts: Int64Array, totals: Int64Array
) -> Iterator[BoxFacts]:
    """Add noise to the counts of a box that is one stretch of cells, and their totals to `totals`.

    Part by part, so that each is still in the processor's cache when it is looked at, summed and
    measured; what is found of a part is told before noise is put on it.
    """
    held = margins_of(mechanism)
    starts, _ = box.runs(mechanism.query.shape)
    plan = RowPlan(held.margins or (mechanism.domain.cells,), box)
    for stretch in plan.ranges(CACHE):
        at, stop = cells_of(plan, stretch)
        own = counts[at:stop]
        yield BoxFacts.of(own)
        if held.margins:
            plan.add_sums(counts, totals, stretch)
        noise.add(starts + at, stop - at, own, own)


@dataclass(frozen=True)
class BoxFacts:
    """What must be known of the counts of a box before anything is released: bad ones, and sizes.

    Confidential.
    """

    negative: int = 0
    largest: int = 0
    total: int = 0

    def __add__(self, other: BoxFacts) -> BoxFacts:
        return BoxFacts(
            self.negative + other.negative,
            max(self.largest, other.largest),
            self.total + other.total,
        )

    def __repr__(self) -> str:
        return "BoxFacts(hidden)"

    @classmethod
    def of(cls, counts: Int64Array) -> BoxFacts:
        """Look at the counts of a box."""
        low, high = int(counts.min()), int(counts.max())
        if low < 0:
            return cls(int(np.count_nonzero(counts < 0)), high, 0)
        if high * counts.size < 2**62:
            return cls(0, high, int(counts.sum()))
        upper, lower = int((counts >> 31).sum()), int((counts & (2**31 - 1)).sum())
        return cls(0, high, (upper << 31) + lower)

    def check(self, mechanism: Mechanism) -> None:
        """Refuse what `Table` and `Mechanism.check` refuse, in the same words."""
        if self.negative:
            counts = "1 count is" if self.negative == 1 else f"{self.negative} counts are"
            raise DataError(f"{counts} negative.", cells=self.negative)
        if self.total > MAX_TOTAL:
            raise DataError("The counts must sum to at most 2**62.")
        try:
            mechanism.check_size(np.array([self.largest], np.int64))
        except ReleaseError as error:
            raise DataError(str(error)) from None  # these data, whatever else is tried


def whole_counts(values: npt.NDArray[Any], out: Int64Array) -> None:
    """Whole numbers of any type as int64."""
    if values.dtype.kind not in "iu" or values.size != out.size:
        raise DataError("A block of the table does not have a whole number for each of its cells.")
    if np.ma.is_masked(values):
        raise DataError("Some counts are masked: missing.")
    if values.dtype == np.uint64 and values.size and int(values.max()) > MAX_TOTAL:
        raise DataError("The counts must sum to at most 2**62.")
    np.copyto(out, values.reshape(-1), casting="unsafe")


class Reconstruction:
    """noisy − lift(C·noise) for any box, from the totals of the noise.

    Guarantees
    ----------
    1. The same numbers as those of `Projected.reconstruct` for the whole table, bit for bit.
    """

    def __init__(self, mechanism: Mechanism, residual: HeldValues) -> None:
        self.mechanism = mechanism
        self._residual = residual
        self._small = not compiled(mechanism.query.size)

    @property
    def dtype(self) -> npt.DTypeLike:
        """What the released values are."""
        return np.int64 if self.mechanism.decimals == 0 else np.float64

    def apply(self, noisy: Int64Array, box: Box, dither: Any) -> npt.NDArray[Any]:
        """Released values of a box, flat, in the memory of its noisy counts."""
        rounding = self.mechanism.rounding
        if rounding is None:
            return self._real(noisy, box)
        steps = self._steps(noisy, box, dither)
        if rounding.decimals == 0:
            return steps
        return np.divide(steps, rounding.step, out=steps.view(np.float64))

    def _real(self, noisy: Int64Array, box: Box) -> npt.NDArray[Any]:
        if self._small:
            whole = noisy.reshape(self.mechanism.query.shape)
            return self._space.subtract_lift(whole, self._residual).reshape(-1)
        if not self._held.margins:
            return noisy.astype(np.float64)
        return self._space.subtract_parts(noisy, self._parts, box).reshape(-1)

    def _steps(self, noisy: Int64Array, box: Box, dither: Any) -> Int64Array:
        rounding = self._plan
        if self._small:
            whole = noisy.reshape(self.mechanism.query.shape)
            return rounding.round_in_place(whole, self._residual, dither).reshape(-1)
        if not self._held.margins:
            noisy *= rounding.step
        elif rounding.needed:
            self._rounding.run_box(noisy, box, dither)
        else:
            noisy *= rounding.step
            self._space.subtract_whole(noisy, self._parts, box)
        return noisy

    @property
    def _held(self) -> HeldMargins:
        return margins_of(self.mechanism)

    @cached_property
    def _space(self) -> MarginNullSpace:
        return self._held.cell_space

    @cached_property
    def _plan(self) -> MarginRounding:
        return MarginRounding(self._space, self.mechanism.decimals or 0)

    @cached_property
    def _scaled(self) -> HeldValues:
        step = self._plan.step
        if step > 1 and any(np.any(np.abs(r) >= LIMIT // step) for r in self._residual):
            raise ReleaseError(
                f"The totals are too large for {self.mechanism.decimals} decimals; ask for fewer."
            )
        return tuple(r * step for r in self._residual)

    @cached_property
    def _parts(self) -> LiftParts:
        return self._space.lift_parts(self._scaled)

    @cached_property
    def _rounding(self) -> RowRounding:
        from subspacedp.rounding.rows import RowRounding

        return RowRounding(self._plan, self._scaled)

    def prepare(self) -> None:
        """Make the tables that all boxes share; before threads ask for them at once."""
        if self._small or not self._held.margins:
            return
        if self.mechanism.decimals is None or not self._plan.needed:
            _ = self._parts
        else:
            _ = self._rounding
