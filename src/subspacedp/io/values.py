"""A number of every record, clipped to a public range and rounded to whole units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from subspacedp.errors import DataError
from subspacedp.io.coding import real_number
from subspacedp.io.engine import Kind, Source, need
from subspacedp.queries import ClippedSums
from subspacedp.tables import Domain

__all__ = ["ClippedValue"]


@dataclass(frozen=True, kw_only=True)
class ClippedValue:
    """Which value to sum, and the public range that bounds what one record adds.

    Parameters
    ----------
    column
        The column with the value.
    lower, upper
        The public range; values outside are moved to its ends.
    unit
        Values are rounded to whole multiples of it, halves to the even one.
    """

    column: str
    lower: float
    upper: float
    unit: float = 1.0

    def sums(self, domain: Domain) -> ClippedSums:
        """The query that these sums answer; it checks the range."""
        return ClippedSums(domain, self.column, self.lower, self.upper, self.unit)

    def most(self) -> int:
        """The most units that one record adds, in size."""
        grid = Fraction(repr(float(self.unit)))
        return max(abs(round(Fraction(end) / grid)) for end in (self.lower, self.upper))

    def units(self, source: Source, rows: Any) -> tuple[Any, Any]:
        """The value in units as int64, and whether it is missing or no finite number.

        Rounding is spelled out, for engines differ in what `round` does with halves: with
        f = ⌊q⌋ and r = q − f exact in float64, q is rounded up when r > ½, or r = ½ and f is odd.
        """
        ibis = need("ibis", "publish")

        kind = source.column(self.column, "the value to sum")
        if kind not in (Kind.WHOLE, Kind.REAL, Kind.TEXT):
            raise DataError(f"Column `{self.column}` must hold numbers.", column=self.column)
        number, faults = real_number(rows[self.column], kind)
        bad = faults[0][0]
        for condition, _ in faults[1:]:
            bad = bad | condition
        lower, upper = (ibis.literal(float(end), "float64") for end in (self.lower, self.upper))
        clipped = ibis.cases(
            (bad, lower), (number < lower, lower), (number > upper, upper), else_=number
        )
        quotient = clipped / ibis.literal(float(self.unit), "float64")
        floor = quotient.floor().cast("int64")
        rest = quotient - floor.cast("float64")
        up = (rest > 0.5) | ((rest == 0.5) & (floor % 2 != 0))
        units = floor + up.ifelse(1, 0).cast("int64")
        most = self.most()
        inside = ibis.cases((units > most, most), (units < -most, -most), else_=units)
        return inside.cast("int64"), bad

    def check_total(self, rows: int) -> None:
        """Refuse what could leave 64 bits."""
        if not math.isfinite(rows) or self.most() * rows >= 2**62:
            raise DataError("The sums could leave 64 bits; choose a larger unit.")
