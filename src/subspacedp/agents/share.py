"""The total noise of some cells: what an agent adds to its counts, and nothing else.

total = noise − lift(C·noise), the noise of a cell less what would move a held total. It depends on
keys and on the public design alone, never on data. An agent that has the common secret computes its
own; a dealer computes everybody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.invariants import Mixed
from subspacedp.mechanisms.base import Mechanism


class Form(StrEnum):
    """How the total noise is written down."""

    STEPS = "steps"  # whole numbers of published steps
    MIXED = "mixed"  # a whole number and a numerator over the cell's public denominator
    NEAR = "near"  # a whole number less a float64 of at most one half
    MASK = "mask"  # whole numbers to be added to a part's sums, not to its cells


@dataclass(frozen=True, eq=False, repr=False)
class Share:
    """The total noise of some cells. Secret: with it the published figures show the data.

    Parameters
    ----------
    form
        What the two arrays mean.
    whole
        One whole number a cell; for `Form.MASK` one for each measured number and held figure.
    fraction
        Numerators, or floats; None for `Form.STEPS` and `Form.MASK`.
    """

    form: Form
    whole: Int64Array
    fraction: AnyArray | None

    def add(self, answers: Int64Array, mechanism: Mechanism, cells: Int64Array) -> AnyArray:
        """The published values of cells with these confidential answers.

        Guarantees
        ----------
        1. The very numbers, to the last bit, that the mechanism releases for these cells when it
           has the whole table; for masks, sums modulo 2⁶⁴ that add up to what it measures.
        """
        if self.form is Form.MASK:
            return answers + self.whole
        if self.form is Form.STEPS:
            step = 1 if mechanism.rounding is None else mechanism.rounding.step
            steps = answers * step + self.whole
            return steps if step == 1 else steps / step
        fraction = self.fraction
        if fraction is None:
            raise ReleaseError("A share of this form needs fractions.")
        if self.form is Form.MIXED:
            denominators = denominators_at(mechanism, cells)
            return Mixed(answers + self.whole, fraction, denominators).to_float()
        return np.asarray((answers + self.whole).astype(np.float64) - fraction)

    def take(self, places: Int64Array) -> Share:
        """The share of some of these cells."""
        fraction = None if self.fraction is None else self.fraction[places]
        return Share(self.form, self.whole[places], fraction)

    def __repr__(self) -> str:
        return f"Share({self.whole.size:,} cells, {self.form.value}, noise hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a share is secret and is not pickled")


def denominators_at(mechanism: Mechanism, cells: Int64Array) -> AnyArray:
    """The public denominators of some cells when margins are held."""
    family = mechanism.held.family
    if family is None:
        raise ReleaseError("Only held margins have a denominator for every cell.")
    classes, members = family.cell_space.denominator_classes
    index = np.unravel_index(cells, family.domain.shape)
    places = [
        member[i] if n > 1 else np.zeros(cells.size, np.int64)
        for i, member, n in zip(index, members, classes.shape, strict=True)
    ]
    return np.asarray(classes[tuple(places)])


def rounding_of_sums(mechanism: Mechanism, largest: float) -> float:
    """What float64 may take from a held total when every value is at most so large."""
    return mechanism.held.largest_row * largest * 2.0**-52
