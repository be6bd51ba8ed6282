"""Exact noise for a run of cells: words → integers, refinement included."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import IntegerLaw, NoiseLaw
from subspacedp.noise.thresholds import (
    GaussianInversion,
    Lookup,
    ThresholdTable,
    refine,
    threshold_table,
)
from subspacedp.noise.words import KeySource, Keystream, ReleaseKeys
from subspacedp.parallel import compiled, for_each, pieces, thread_count

__all__ = ["add_noise", "draw", "draw_each", "lookup_of"]

Int64Array = npt.NDArray[np.int64]

# Each cell has 2**40 refinement words of its own; one is needed about once in 10**16 cells.
REFINEMENT_STRIDE = 1 << 40
BLOCK = 1 << 16  # cells per block: words, table and output of one stay in a core's cache


def draw(law: NoiseLaw, keys: ReleaseKeys, start: int, count: int) -> Int64Array:
    """The noise of cells `start` to `start + count - 1`; see `add_noise`."""
    out = np.zeros(count, np.int64)
    add_noise(law, keys, start, out, out)
    return out


def add_noise(
    law: NoiseLaw, keys: KeySource, start: int, base: Int64Array, out: Int64Array
) -> None:
    """Write base + noise of cells `start`, `start + 1`, … to `out`, which may be `base` itself.

    Guarantees
    ----------
    1. Every value has exactly the law's distribution, tails included, if the keystream is uniform:
       exactness rests on AES-256 as a pseudorandom function and on nothing else (and, for Gaussian
       noise beyond a scale of 1000, on the stated bound of a float quantile).
    2. The noise of a cell depends on the keys and its number alone, not on blocks or threads.
    """
    parts = [
        _Part(weight, lookup_of(part), keys.stream(f"noise/{i}"), keys.stream(f"refinement/{i}"))
        for i, (weight, part) in enumerate(law.components())
    ]
    kernel = compiled(base.size)

    def work(run: tuple[int, int]) -> None:
        scratch = np.empty(BLOCK + 3, np.uint64)
        for at in range(run[0], run[1], BLOCK):
            inside = slice(at, min(at + BLOCK, run[1]))
            source = base[inside]
            for part in parts:
                part.add(start + at, source, out[inside], scratch, kernel=kernel)
                source = out[inside]

    blocks = -(-base.size // BLOCK)
    runs = [
        (lo * BLOCK, min(hi * BLOCK, base.size)) for lo, hi in pieces(blocks, 4 * thread_count())
    ]
    for_each(work, runs if base.size else [])


def draw_each(laws: Sequence[IntegerLaw], member: Int64Array, keys: ReleaseKeys) -> Int64Array:
    """Noise where cell i has the law number `member[i]`; cell i uses word i, as everywhere."""
    words = keys.stream("noise/0").words(0, member.size)
    more = keys.stream("refinement/0")
    out = np.zeros(member.size, np.int64)
    for number, law in enumerate(laws):
        places = np.flatnonzero(member == number)
        lookup = lookup_of(law)
        values, open_ = lookup.lookup(words[places])
        out[places] = values
        for j in open_.tolist():
            cell = int(places[j])
            part = _Part(1, lookup, more, more)
            exact = refine(law, int(words[cell]), part.words_of(cell), int(values[j]))
            out[cell] = _settle(exact)
    return out


def lookup_of(law: IntegerLaw) -> Lookup:
    """The way from words to values for one component of a law."""
    return GaussianInversion(law) if law.float_quantile else threshold_table(law)


class _Part:
    """One component of a law, with its keystreams."""

    def __init__(self, weight: int, lookup: Lookup, words: Keystream, more: Keystream) -> None:
        self.weight, self.lookup, self.words, self.more = weight, lookup, words, more

    def add(
        self,
        first: int,
        base: Int64Array,
        out: Int64Array,
        scratch: npt.NDArray[np.uint64],
        *,
        kernel: bool,
    ) -> None:
        """Write base + weight · noise of the cells from `first` on."""
        words = self.words.words(first, base.size, scratch)
        if kernel and isinstance(self.lookup, ThresholdTable):
            from subspacedp.noise.kernels import MOST_OPEN, add_values

            guide, shift = self.lookup.guide
            open_ = np.empty(MOST_OPEN, np.int64)
            table = self.lookup.thresholds
            at = self.lookup.first
            number = add_values(
                words, table, guide, np.uint64(shift), at, self.weight, base, out, open_
            )
            if number:
                self._correct(first, words, out, _open_places(self.lookup, words, open_, number))
            return
        values, places = self.lookup.lookup(words)
        np.add(base, self.weight * values, out=out)
        if places.size:
            self._correct(first, words, out, places)

    def _correct(
        self, first: int, words: npt.NDArray[np.uint64], out: Int64Array, places: Int64Array
    ) -> None:
        """Replace the provisional values of open words by their refined ones."""
        guesses = self.lookup.lookup(words[places])[0]
        for i, guess in zip(places.tolist(), guesses.tolist(), strict=True):
            exact = refine(self.lookup.law, int(words[i]), self.words_of(first + i), guess)
            out[i] = _settle(int(out[i]) + self.weight * (exact - guess))

    def words_of(self, cell: int) -> Callable[[int], int]:
        return lambda k: int(self.more.words(cell * REFINEMENT_STRIDE + k, 1)[0])


def _open_places(
    table: Lookup, words: npt.NDArray[np.uint64], open_: Int64Array, number: int
) -> Int64Array:
    return open_[:number] if number <= open_.size else table.lookup(words)[1]


def _settle(value: int) -> int:
    """The value modulo 2⁶⁴ as a signed word.

    Taking noisy counts modulo 2⁶⁴ is post-processing of the exact measurement, so nothing about
    the guarantee changes even for values that wrap; with the scales that `design` allows, up to
    2⁴⁰, none ever does (probability below exp(−2²⁰)).
    """
    return (value + 2**63) % 2**64 - 2**63
