"""Compiled twin of `ThresholdTable.lookup`: one guide step and a short scan per word."""

from __future__ import annotations

from typing import Any

import numpy as np

from subspacedp.parallel import kernel

MOST_OPEN = 64  # room for words of one block that equal a threshold; about 1 in 10**16 does


@kernel
def add_values(
    words: Any, thresholds: Any, guide: Any, shift: Any, first: Any, weight: Any,
    base: Any, out: Any, open_: Any,
) -> Any:  # fmt: skip
    """Write base + weight·value of each word to out; returns how many words need refinement.

    The places of the first `MOST_OPEN` of those are written to `open_`.
    """
    number = 0
    for i in range(words.size):
        word = words[i]
        known = np.int64(guide[word >> shift])
        place = known >> 1
        if known & 1:
            while thresholds[place] < word:
                place += 1
            if thresholds[place] == word:
                if number < open_.size:
                    open_[number] = i
                number += 1
        out[i] = base[i] + weight * (first + place)
    return number
