"""Exact rational arrays: a whole number and a fraction over a public denominator, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.frozen import frozen

SAFE_BITS = 61


@frozen(eq=False, repr=False)
class Mixed:
    """`whole + numerator / denominator` with 0 ≤ numerator < denominator in every cell.

    `whole` is int64; numerator and denominator are int64 where the public denominators allow it,
    and Python integers in an object array where they do not. The denominators never depend on
    data.
    """

    whole: Int64Array
    numerator: AnyArray
    denominator: AnyArray  # broadcastable to the shape of `whole`

    @classmethod
    def normal(cls, whole: Int64Array, numerator: AnyArray, denominator: AnyArray) -> Mixed:
        """Carry whole parts out of any integer numerator."""
        carry = numerator // denominator
        return cls(whole + carry.astype(np.int64), numerator - carry * denominator, denominator)

    def rsub(self, integers: Int64Array) -> Mixed:
        """`integers - self`, exactly."""
        return Mixed.normal(integers - self.whole, -self.numerator, self.denominator)

    def to_float(self) -> FloatArray:
        """The nearest float64, within one unit in the last place."""
        # From the side of zero, so that small negative values keep their digits.
        below = self.whole < 0
        part = np.where(below, self.denominator - self.numerator, self.numerator)
        fraction = np.asarray(part / self.denominator, np.float64)
        return (self.whole + below).astype(np.float64) + np.where(below, -fraction, fraction)

    def fractions(self) -> AnyArray:
        """An object array of `fractions.Fraction`; for small tables and tests."""
        denominator = np.broadcast_to(self.denominator, self.whole.shape)
        out = np.empty(self.whole.shape, object)
        for i in np.ndindex(self.whole.shape):
            part = Fraction(int(self.numerator[i]), int(denominator[i]))
            out[i] = int(self.whole[i]) + part
        return out


def centred_divmod(numbers: Int64Array, sizes: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Quotient and remainder with the remainder at most half the size in either direction."""
    quotient, rest = np.divmod(numbers, sizes)
    up = 2 * rest > sizes
    return quotient + up, rest - np.where(up, sizes, 0)


def lcm(arrays: Iterable[Int64Array]) -> AnyArray:
    """Least common multiple of broadcastable positive arrays, exactly.

    The product bounds the multiple; where even that fits 64 bits no overflow is possible,
    otherwise Python integers do the work and the result is narrowed again if it fits.
    """
    factors = list(arrays)
    bits = sum(float(np.log2(np.max(f))) for f in factors)
    wide = bits >= SAFE_BITS
    out: AnyArray = np.ones((1,) * (factors[0].ndim if factors else 1), np.int64)
    if wide:
        out = out.astype(object)
    for f in factors:
        out = np.lcm(out, f.astype(object) if wide else f)
    if wide and max(int(v).bit_length() for v in out.flat) < SAFE_BITS:
        out = out.astype(np.int64)
    return out
