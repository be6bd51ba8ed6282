"""The noise of any cells of one release, runs of them at a time, on the caller's thread.

The very numbers of `subspacedp.noise.add_noise`; keystreams and tables are set up once for many
calls, and words of short runs are gathered so that the compiled loop is entered rarely.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from subspacedp.noise import NoiseLaw
from subspacedp.noise.draw import BLOCK, REFINEMENT_STRIDE, lookup_of
from subspacedp.noise.kernels import MOST_OPEN, add_values
from subspacedp.noise.thresholds import Lookup, ThresholdTable, refine
from subspacedp.noise.words import KeySource, Keystream

__all__ = ["CellNoise"]

Int64Array = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class CellNoise:
    """The noise of a release by the numbers of its cells.

    Guarantees
    ----------
    1. Cell i gets the noise that `add_noise` gives it, whatever other cells it comes with.
    """

    def __init__(self, law: NoiseLaw, keys: KeySource) -> None:
        self._parts = [
            _Part(
                weight, lookup_of(part), keys.stream(f"noise/{i}"), keys.stream(f"refinement/{i}")
            )
            for i, (weight, part) in enumerate(law.components())
        ]
        self._local = threading.local()

    def add(self, starts: Int64Array, length: int, base: Int64Array, out: Int64Array) -> None:
        """Write base + noise to `out`, which may be `base` itself.

        Parameters
        ----------
        starts, length
            The numbers of the cells: runs of that length, each from its start on.
        base, out
            The cells in that order, one run after another.
        """
        scratch, gathered = self._room()
        at = 0
        for runs, size in _pieces(starts, length):
            inside = slice(at, at + runs.size * size)
            source = base[inside]
            for part in self._parts:
                words = part.gather(runs, size, scratch, gathered)
                part.add(runs, size, words, source, out[inside])
                source = out[inside]
            at = inside.stop

    def _room(self) -> tuple[Words, Words]:
        """Memory for words, kept for the next call of this thread."""
        if not hasattr(self._local, "room"):
            self._local.room = np.empty(BLOCK + 3, np.uint64), np.empty(BLOCK, np.uint64)
        return self._local.room  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return "CellNoise(keys hidden)"


def _pieces(starts: Int64Array, length: int) -> Iterator[tuple[Int64Array, int]]:
    """Runs of cells in pieces of at most `BLOCK` cells: starts and length of each piece."""
    if length >= BLOCK:
        for start in starts.tolist():
            for at in range(0, length, BLOCK):
                yield np.array([start + at], np.int64), min(BLOCK, length - at)
        return
    several = BLOCK // max(length, 1)
    for i in range(0, len(starts), several):
        yield starts[i : i + several], length


class _Part:
    """One component of a law, with its keystreams."""

    def __init__(self, weight: int, lookup: Lookup, words: Keystream, more: Keystream) -> None:
        self._weight, self._lookup, self._words, self._more = weight, lookup, words, more

    def gather(self, starts: Int64Array, length: int, scratch: Words, gathered: Words) -> Words:
        """The words of some runs of cells, one run after another."""
        if len(starts) == 1:
            return self._words.words(int(starts[0]), length, scratch)
        for i, start in enumerate(starts.tolist()):
            gathered[i * length : (i + 1) * length] = self._words.words(start, length, scratch)
        return gathered[: len(starts) * length]

    def add(
        self, starts: Int64Array, length: int, words: Words, base: Int64Array, out: Int64Array
    ) -> None:
        """Write base + weight · noise of these runs, whose words these are."""
        if isinstance(self._lookup, ThresholdTable):
            guide, shift = self._lookup.guide
            open_ = np.empty(MOST_OPEN, np.int64)
            found = add_values(
                words, self._lookup.thresholds, guide, np.uint64(shift), self._lookup.first,
                self._weight, base, out, open_,
            )  # fmt: skip
            if not found:
                return
            places = open_[:found] if found <= MOST_OPEN else self._lookup.lookup(words)[1]
        else:
            values, places = self._lookup.lookup(words)
            np.add(base, self._weight * values, out=out)
        guesses = self._lookup.lookup(words[places])[0]
        for i, guess in zip(places.tolist(), guesses.tolist(), strict=True):
            cell = int(starts[i // length]) + i % length
            exact = refine(self._lookup.law, int(words[i]), self._refinement(cell), guess)
            # Modulo 2⁶⁴, as everywhere.
            value = int(out[i]) + self._weight * (exact - guess)
            out[i] = (value + 2**63) % 2**64 - 2**63

    def _refinement(self, cell: int) -> _MoreWords:
        return _MoreWords(self._more, cell)


class _MoreWords:
    """Words k = 0, 1, … of the refinement of one cell."""

    def __init__(self, stream: Keystream, cell: int) -> None:
        self._stream, self._cell = stream, cell

    def __call__(self, k: int) -> int:
        return int(self._stream.words(self._cell * REFINEMENT_STRIDE + k, 1)[0])
