"""How a mechanism is carried out piece by piece: the contract, and its simplest case.

A release in blocks has three sweeps over the pieces of a table:

1. `look` at the counts of every piece, before anything is paid: what must be refused, and the held
   totals c;
2. `first`: what the other pieces need to know of a piece, such as the totals of its noise;
3. `values`: the released values of a piece, from what all pieces `shared`.

Every method is a function of its arguments alone, and sums do not depend on the order, so
pieces may be done in any order, by threads, processes or machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import DataError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.noise.words import KeySource
from subspacedp.tables import MAX_TOTAL, RowPlan
from subspacedp.tables.domain import Box, blocks

if TYPE_CHECKING:
    from subspacedp.mechanisms.base import Mechanism

PIECE = 1 << 16  # cells looked at together: they stay in a core's cache from one step to the next


@frozen
class CountFacts:
    """What must be known of counts before anything is released of them. Confidential.

    Parameters
    ----------
    negative, filled
        How many counts are negative, and how many are of cells publicly known to be empty.
    largest, total
        The largest count, and the sum of all.
    """

    negative: int = 0
    filled: int = 0
    largest: int = 0
    total: int = 0

    def __add__(self, other: CountFacts) -> CountFacts:
        return CountFacts(
            self.negative + other.negative,
            self.filled + other.filled,
            max(self.largest, other.largest),
            self.total + other.total,
        )

    def __repr__(self) -> str:
        return "CountFacts(hidden)"

    @classmethod
    def of(cls, counts: Int64Array) -> CountFacts:
        """Look at some counts."""
        parts = (counts[at : at + PIECE] for at in range(0, counts.size, PIECE))
        return reduce(lambda facts, part: facts + cls._of_part(part), parts, cls())

    @classmethod
    def _of_part(cls, counts: Int64Array) -> CountFacts:
        low, high = int(counts.min()), int(counts.max())
        if low < 0:
            return cls(negative=int(np.count_nonzero(counts < 0)), largest=high)
        if high * counts.size < 2**62:
            return cls(largest=high, total=int(counts.sum()))
        upper, lower = int((counts >> 31).sum()), int((counts & (2**31 - 1)).sum())
        return cls(largest=high, total=(upper << 31) + lower)

    def check(self) -> None:
        """Refuse what `Table` and `Mechanism.check` refuse, in the same words."""
        self.check_counts()
        check_filled(self.filled)

    def check_counts(self) -> None:
        """Refuse what `Table` refuses, in the same words."""
        if self.negative:
            counts = "1 count is" if self.negative == 1 else f"{self.negative} counts are"
            raise DataError(f"{counts} negative.", cells=self.negative)
        if self.total > MAX_TOTAL:
            raise DataError("The counts must sum to at most 2**62.")


def check_filled(filled: int) -> None:
    """Cells declared empty must be so; how many are not is said, never which."""
    if filled:
        raise DataError(
            f"{filled} of the cells declared empty have someone in them; a structural zero must "
            "be impossible, not just unobserved.",
            cells=filled,
        )


@frozen(eq=False, repr=False)
class BlockView(ABC):
    """A mechanism piece by piece.

    Guarantees
    ----------
    1. With the same keys and data, values and held totals are those of `Design.release`, bit for
       bit, for every number of pieces and any order of them.
    2. `first` and `values` are the only steps that touch counts and noise; what they return of the
       counts is differentially private given the held totals, as in `Mechanism`.
    """

    mechanism: Mechanism

    @property
    def answers_shape(self) -> tuple[int, ...]:
        """The shape of the counts that pieces are cut from: that of the table."""
        return self.mechanism.query.shape

    @property
    def purposes(self) -> tuple[str, ...]:
        """What keystreams are asked for: all that a machine must be given to do a piece."""
        parts = range(len(self.mechanism.law.components()))
        return ("dither", *(f"{what}/{i}" for i in parts for what in ("noise", "refinement")))

    @property
    def bytes_per_cell(self) -> int:
        """About how much memory a piece takes while it is worked on, per cell."""
        return 12

    @property
    def reads_first(self) -> bool:
        """Whether the first pass needs the data."""
        return False

    def boxes(self, cells: int) -> list[Box]:
        """Pieces of at most about that many cells, each a run of row-major order, in order."""
        return blocks(self.answers_shape, cells)

    # ------------------------------------------------------------------ before anything is paid

    def look(self, box: Box, counts: Int64Array) -> CountFacts:
        """What must be known of a piece's counts, flat."""
        return CountFacts.of(counts)

    def check(self, facts: CountFacts) -> None:
        """Refuse counts of which all pieces together know these facts."""
        facts.check()
        try:
            self.mechanism.check_size(np.array([facts.largest], np.int64))
            self.mechanism.check_total(facts.total)
        except ReleaseError as error:
            raise DataError(str(error)) from None  # these data, whatever else is tried

    def held_totals(self, box: Box, counts: Int64Array, totals: Any = None) -> Any:
        """C·counts of a piece, added to `totals`, whose memory it may take."""
        return add_totals(self._margins, box, counts, totals)

    def add_totals(self, totals: Any, other: Any) -> Any:
        """Two results of `held_totals` as one."""
        totals += other
        return totals

    def exact(self, totals: Any) -> HeldValues:
        """The held values c, from the totals of all pieces."""
        return split_totals(self._margins, totals)

    @property
    def _margins(self) -> HeldMargins:
        family = self.mechanism.held.family
        if family is None:
            raise ReleaseError("This design holds more than margins.")
        return family

    # ------------------------------------------------------------------ the two passes

    @abstractmethod
    def first(self, keys: KeySource, box: Box, counts: Int64Array | None, total: Any = None) -> Any:
        """What others need to know of a piece, added to `total`, whose memory it may take.

        `counts` are given where `reads_first`; they are not changed.
        """

    def add(self, total: Any, other: Any) -> Any:
        """Two results of `first` as one: the same in any order."""
        total += other
        return total

    @abstractmethod
    def shared(self, total: Any, keys: KeySource, exact: HeldValues) -> Any:
        """What all pieces of the second pass need, from the first pass and the held values.

        It is sent to every worker once: tables of the size of the held margins, not of the cells.
        """

    @abstractmethod
    def values(self, shared: Any, keys: KeySource, box: Box, counts: Int64Array) -> AnyArray:
        """The released values of a piece, flat, possibly in the memory of its counts."""


class OnePiece(BlockView):
    """A mechanism that is carried out as a whole: its answers are the one piece."""

    @property
    def answers_shape(self) -> tuple[int, ...]:
        """The shape of what `Mechanism.check` returns."""
        return self.mechanism.nothing().shape

    @property
    def purposes(self) -> tuple[str, ...]:
        """No other machine does it."""
        return ()

    @property
    def bytes_per_cell(self) -> int:
        """Answers, measurement, and what is made of them."""
        return 64

    def boxes(self, cells: int) -> list[Box]:
        """All of it."""
        del cells
        shape = self.answers_shape
        return [Box((0,) * len(shape), shape)]

    def look(self, box: Box, counts: Int64Array) -> CountFacts:
        """Counts as everywhere; other answers were checked by `Mechanism.check`."""
        if not self.mechanism.query.is_histogram:
            return CountFacts()
        facts, empty = CountFacts.of(counts), self.mechanism.held.empty
        filled = 0 if empty is None else int(np.count_nonzero(counts.reshape(box.shape)[empty]))
        if not facts.negative:
            self.mechanism.check_size(counts.reshape(box.shape))
        return facts + CountFacts(filled=filled)

    def check(self, facts: CountFacts) -> None:
        """The sizes were looked at with the whole of the counts."""
        facts.check()

    def held_totals(self, box: Box, counts: Int64Array, totals: Any = None) -> Any:
        """The held values themselves."""
        del totals
        return self.mechanism.held.sums(counts.reshape(box.shape))

    def exact(self, totals: Any) -> HeldValues:
        """The same."""
        held: HeldValues = totals
        return held

    def first(self, keys: KeySource, box: Box, counts: Int64Array | None, total: Any = None) -> Any:
        """There are no others."""
        del keys, box, counts
        return total

    def shared(self, total: Any, keys: KeySource, exact: HeldValues) -> HeldValues:
        """The held values."""
        del total, keys
        return exact

    def values(self, shared: HeldValues, keys: Any, box: Box, counts: Int64Array) -> AnyArray:
        """Measure, then reconstruct."""
        noisy = self.mechanism.add_noise(counts.reshape(box.shape), keys)
        dither = keys.stream("dither")
        values = self.mechanism.reconstruct(noisy, shared, dither, overwrite=True)
        return values.reshape(-1)


# ---------------------------------------------------------------------------------- held totals


def add_totals(
    held: HeldMargins, box: Box, values: AnyArray, totals: Int64Array | None = None
) -> Int64Array:
    """Add the held totals of a box to `totals`, laid end to end; integers modulo 2**64."""
    if not held.margins:
        return np.zeros(0, np.int64)
    plan = RowPlan(held.margins, box)
    out = no_totals(held) if totals is None else totals
    plan.add_sums(values, out)
    return out


def no_totals(held: HeldMargins) -> Int64Array:
    """Zero for every held total, laid end to end."""
    return np.zeros(int(RowPlan(held.margins).starts[-1]) if held.margins else 0, np.int64)


def split_totals(held: HeldMargins, flat: Int64Array) -> HeldValues:
    """Totals laid end to end, as one array per held margin."""
    if not held.margins:
        return ()
    return tuple(part.copy() for part in RowPlan(held.margins).split(flat))
