"""Exact noise for a stretch of cells: words → integers, refinement included."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import NoiseLaw
from subspacedp.noise.thresholds import refine, threshold_table
from subspacedp.noise.words import Keystream, ReleaseKeys

__all__ = ["draw"]

# Each cell has 2**40 refinement words of its own; one is needed about once in 10**16 cells.
REFINEMENT_STRIDE = 1 << 40


def draw(law: NoiseLaw, keys: ReleaseKeys, start: int, count: int) -> npt.NDArray[np.int64]:
    """The noise of cells `start` to `start + count - 1`.

    Guarantees
    ----------
    1. Every value has exactly the law's distribution, tails included, if the keystream is uniform:
       exactness rests on AES-256 as a pseudorandom function and on nothing else.
    2. The noise of a cell depends on the keys and its number alone.
    """
    total = np.zeros(count, np.int64)
    for number, (weight, part) in enumerate(law.components()):
        table = threshold_table(part)
        words = keys.stream(f"noise/{number}").words(start, count)
        values, open_ = table.lookup(words)
        if open_.size:
            more = keys.stream(f"refinement/{number}")
            for i in open_.tolist():
                values[i] = _settle(refine(part, int(words[i]), _words_of(more, start + i)))
        total += weight * values
    return total


def _words_of(stream: Keystream, cell: int):  # type: ignore[no-untyped-def]
    return lambda k: int(stream.words(cell * REFINEMENT_STRIDE + k, 1)[0])


def _settle(value: int) -> int:
    """The value modulo 2⁶⁴ as a signed word.

    Taking noisy counts modulo 2⁶⁴ is post-processing of the exact measurement, so nothing about
    the guarantee changes even for the values (of probability below exp(−2²⁰)) that wrap.
    """
    return (value + 2**63) % 2**64 - 2**63
