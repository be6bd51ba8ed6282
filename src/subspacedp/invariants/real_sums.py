"""Sums of real coefficients times whole numbers, exact and then rounded once.

A float64 is a whole number times a power of two, so a row of a real-valued C times integer answers
has one exact value, whatever the order of its terms. It is summed exactly and rounded to the
nearest float64 (to even in a tie): the result is a function of that value and of nothing else. A
sum in floating point is not. Its last bits depend on the answers one by one, and would tell apart
tables that have equal held figures (docs/proofs/guarantees.md).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["real_product"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

PIECE = 26  # bits of a piece of a whole number: times 27 of a coefficient they fit into 53
MOST_TERMS = 1 << 20  # that are listed at a time, but for a single longer row


def real_product(matrix: csr_array, counts: Int64Array) -> FloatArray:
    """Every row of a real-valued matrix times whole numbers, each the float64 nearest to it.

    Guarantees
    ----------
    1. The float64 nearest to the exact sum, to even in a tie: the same for equal sums, whatever
       the order, format or repetition of the entries.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> tenths = csr_array(np.full((1, 3), 0.1))
    >>> [real_product(tenths, np.array(c)).item() for c in ([10, 0, 0], [2, 7, 1], [4, 3, 3])]
    [1.0, 1.0, 1.0]
    >>> [(tenths @ np.array(c)).item() for c in ([10, 0, 0], [2, 7, 1], [4, 3, 3])]
    [1.0, 1.0000000000000002, 1.0]
    """
    _check_range(matrix, counts)
    rows, starts = matrix.shape[0], matrix.indptr
    pieces = _whole_pieces(counts)
    halves = _halves(np.asarray(matrix.data, np.float64))
    width = len(pieces) * len(halves)
    out = np.zeros(rows)
    at = 0
    while at < rows:
        last = int(np.searchsorted(starts, starts[at] + MOST_TERMS // max(width, 1), "right")) - 1
        last = min(max(last, at + 1), rows)
        chosen = slice(int(starts[at]), int(starts[last]))
        places = matrix.indices[chosen]
        terms = np.empty((chosen.stop - chosen.start, len(pieces), len(halves)))
        for i, piece in enumerate(pieces):
            for j, half in enumerate(halves):
                np.multiply(half[chosen], piece[places], out=terms[:, i, j])
        listed = terms.reshape(-1).tolist()
        ends = ((starts[at : last + 1] - starts[at]) * width).tolist()
        # fsum keeps every bit and rounds once: the sum is that of real numbers.
        out[at:last] = [math.fsum(listed[lo:hi]) for lo, hi in pairwise(ends)]
        at = last
    return out + 0.0  # one zero


def _check_range(matrix: csr_array, counts: Int64Array) -> None:
    """Refuse sums that could leave the range of float64, in sizes alone."""
    largest = float(np.abs(matrix.data).max(initial=0.0))
    number = int(np.diff(matrix.indptr).max(initial=0))
    if largest and math.log2(largest) + math.log2(number) + _bits(counts) > 1000:
        raise DataError("The held values are too large for float64; scale the invariants down.")


def _bits(counts: Int64Array) -> int:
    largest = max(int(counts.max(initial=0)), -int(counts.min(initial=0)))
    return largest.bit_length()


def _halves(coefficients: FloatArray) -> list[FloatArray]:
    """Coefficients as sums of numbers with at most 27 significant bits; halves of zeros left out.

    The low 27 bits of the mantissa, and what is above them: both are float64 as they are.
    """
    high = (coefficients.view(np.int64) & ~np.int64(2**27 - 1)).view(np.float64)
    low = coefficients - high
    return [half for half in (high, low) if half.any()]


def _whole_pieces(counts: Int64Array) -> list[FloatArray]:
    """Whole numbers as sums of numbers with at most 26 significant bits; zeros left out."""
    out: list[FloatArray] = []
    rest: Any = counts
    scale = 0
    while rest.any():
        low = rest & (2**PIECE - 1)
        carry = low >= 2 ** (PIECE - 1)  # nearest to zero, so that small numbers are one piece
        low = low - (carry.astype(np.int64) << PIECE)
        if low.any():
            out.append(np.ldexp(low.astype(np.float64), scale))
        rest = (rest >> PIECE) + carry
        scale += PIECE
    return out
