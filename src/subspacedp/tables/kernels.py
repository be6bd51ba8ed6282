"""Compiled twin of `Margin.sum`, for several margins in one sweep over the rows of a table."""

from __future__ import annotations

from typing import Any

from subspacedp.parallel import kernel


@kernel
def group_of_row(number: Any, outer: Any, offsets: Any) -> Any:
    """The group number at which row `number` begins in one margin: a sum over the outer axes."""
    group = 0
    for b in range(outer.size - 1, -1, -1):
        number, index = divmod(number, outer[b])
        group += offsets[b, index]
    return group


@kernel
def _sum(segment: Any) -> Any:
    """The sum in eight interleaved parts: the same order everywhere, and fast for floats too."""
    zero = segment[0] - segment[0]
    a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
    whole = segment.size // 8
    for i in range(whole):
        part = segment[8 * i : 8 * i + 8]
        a += part[0]
        b += part[1]
        c += part[2]
        d += part[3]
        e += part[4]
        f += part[5]
        g += part[6]
        h += part[7]
    for x in segment[8 * whole :]:
        a += x
    return ((a + e) + (b + f)) + ((c + g) + (d + h))


@kernel
def _sum_in_any_order(segment: Any) -> Any:
    """The sum of integers, which the compiler may take in any order."""
    total = segment[0] - segment[0]
    for x in segment:
        total += x
    return total


@kernel
def sum_rows(
    values: Any, whole: Any, first: Any, last: Any, lo: Any, hi: Any, row: Any, outer: Any,
    offsets: Any, modes: Any, codes: Any, starts: Any, out: Any,
) -> None:  # fmt: skip
    """Add rows `first` to `last - 1`, places `lo` to `hi - 1`, into all margins at once.

    `whole` tells that the values are integers.
    """
    for r in range(first, last):
        segment = values[r * row + lo : r * row + hi]
        total = segment[0] - segment[0]
        have = False
        for m in range(modes.size):
            at = starts[m] + group_of_row(r, outer, offsets[m])
            if modes[m] == 0:
                if not have:
                    total = _sum_in_any_order(segment) if whole else _sum(segment)
                    have = True
                out[at] += total
            elif modes[m] == 1:
                target = out[at + lo : at + hi]
                for i in range(segment.size):
                    target[i] += segment[i]
            else:
                code = codes[m, lo:hi]
                for i in range(segment.size):
                    out[at + code[i]] += segment[i]
