"""Compiled twin of the projection: subtracting what margins say of every cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from subspacedp.parallel import kernel
from subspacedp.tables.kernels import group_of_row

__all__ = ["subtract_rows", "subtract_rows_exactly"]


@kernel
def _take_away(target: Any, at: Any, lo: Any, mode: Any, code: Any, values: Any) -> None:
    """Subtract one margin's values from a stretch of a row."""
    if mode == 1:
        source = values[at + lo : at + lo + target.size]
        for i in range(target.size):
            target[i] -= source[i]
    else:
        for i in range(target.size):
            target[i] -= values[at + code[i]]


@kernel
def subtract_rows(
    table: Any, first: Any, last: Any, lo: Any, hi: Any, row: Any, outer: Any, offsets: Any,
    modes: Any, codes: Any, starts: Any, values: Any,
) -> None:  # fmt: skip
    """Subtract every margin's value from its cells, in place."""
    for r in range(first, last):
        target = table[r * row + lo : r * row + hi]
        constant = target[0] - target[0]
        for m in range(modes.size):
            at = starts[m] + group_of_row(r, outer, offsets[m])
            if modes[m] == 0:
                constant += values[at]
            else:
                _take_away(target, at, lo, modes[m], codes[m, lo:hi], values)
        for i in range(target.size):
            target[i] -= constant


@kernel
def subtract_rows_exactly(
    noisy: Any, out: Any, first: Any, last: Any, lo: Any, hi: Any, row: Any, outer: Any,
    offsets: Any, modes: Any, codes: Any, starts: Any, whole: Any, fraction: Any,
) -> None:  # fmt: skip
    """Write noisy − Σ (whole + fraction) as floats; whole parts are subtracted as integers.

    `out` may be the memory of `noisy` itself.
    """
    integers = np.empty(hi - lo, np.int64)
    floats = np.empty(hi - lo, np.float64)
    for r in range(first, last):
        source = noisy[r * row + lo : r * row + hi]
        target = out[r * row + lo : r * row + hi]
        for i in range(source.size):
            integers[i] = source[i]
        constant, part = np.int64(0), 0.0
        floats[:] = 0.0
        for m in range(modes.size):
            at = starts[m] + group_of_row(r, outer, offsets[m])
            if modes[m] == 0:
                constant += whole[at]
                part += fraction[at]
            else:
                _take_away(integers, at, lo, modes[m], codes[m, lo:hi], whole)
                _take_away(floats, at, lo, modes[m], codes[m, lo:hi], fraction)
        for i in range(target.size):
            target[i] = np.float64(integers[i] - constant) + (floats[i] - part)
