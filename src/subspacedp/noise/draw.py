"""Exact noise of any cells: words → integers, refinement included.

Cells are one run, several runs, or given by their numbers; cell i uses word i whatever others it
comes with, so the noise of any part of a table can be computed alone.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import Int64Array, WordArray
from subspacedp.balls import certain_compare, certain_floor
from subspacedp.frozen import frozen
from subspacedp.noise.laws import IntegerLaw, NoiseLaw
from subspacedp.noise.words import KeySource, Keystream, ReleaseKeys
from subspacedp.parallel import compiled, for_each, kernel, pieces, thread_count

TOP = 2**64 - 1
MOST_OPEN = 64  # room for words of one block that equal a threshold; about 1 in 10**16 does

MoreWords = Callable[[int], int]  # k ↦ word k of the refinement of one cell

# |computed Φ⁻¹(u) − Φ⁻¹(u)| ≤ QUANTILE_BOUND·(1 + |x|), rounding of u included. The largest error
# that tests find against ball arithmetic is 2**-51 (1 + |x|); the bound leaves a factor of eight.
QUANTILE_BOUND = 2.0**-48


class Lookup(Protocol):
    """Words to values; the few words that do not decide are named."""

    @property
    def law(self) -> IntegerLaw:
        """The law of the values."""

    def lookup(self, words: WordArray) -> tuple[Int64Array, Int64Array]:
        """The value for every word (a guess where it is open), and the places that are open."""

    def compiled(
        self, words: WordArray, weight: int, base: Int64Array, out: Int64Array
    ) -> Int64Array | None:
        """Write base + weight · values by a compiled loop; the open places, or None without one."""


@frozen(eq=False, repr=False)
class ThresholdTable:
    """t_z for z = first, first + 1, …, increasing from 0 to 2⁶⁴ − 1."""

    law: IntegerLaw
    first: int
    thresholds: WordArray

    def lookup(self, words: WordArray) -> tuple[Int64Array, Int64Array]:
        """The value for every word, and the places of the words that need refinement."""
        place = np.searchsorted(self.thresholds, words, side="left")
        # t_z ≥ w first at `place`: w < t_z decides z = first + place; equality leaves it open.
        inside = np.minimum(place, len(self.thresholds) - 1)
        open_ = np.flatnonzero(self.thresholds[inside] == words)
        return place + self.first, open_

    def compiled(
        self, words: WordArray, weight: int, base: Int64Array, out: Int64Array
    ) -> Int64Array:
        """Write base + weight · values by a compiled loop; the open places."""
        guide, shift = self.guide
        open_ = np.empty(MOST_OPEN, np.int64)
        number = add_values(
            words, self.thresholds, guide, np.uint64(shift), self.first, weight, base, out, open_
        )
        return open_[:number] if number <= MOST_OPEN else self.lookup(words)[1]

    @cached_property
    def guide(self) -> tuple[npt.NDArray[np.int32], int]:
        """What the leading bits of a word say of its place, and how many bits are not used.

        Twice the place, or where a threshold has these leading bits, so that the other bits decide,
        twice the place to start from and one. Many guide entries per threshold make that rare.
        """
        bits = min(16, max(12, int(32 * len(self.thresholds) - 1).bit_length()))
        unused = np.uint64(64 - bits)
        leading = np.arange(1 << bits, dtype=np.uint64) << unused
        last = leading | ((np.uint64(1) << unused) - np.uint64(1))
        places = np.searchsorted(self.thresholds, leading, side="left")
        open_ = np.searchsorted(self.thresholds, last, side="right") != places
        return (2 * places + open_).astype(np.int32), 64 - bits


@kernel
def add_values(
    words: Any, thresholds: Any, guide: Any, shift: Any, first: Any, weight: Any,
    base: Any, out: Any, open_: Any,
) -> Any:  # fmt: skip
    """Write base + weight·value of each word to out; returns how many words need refinement.

    The compiled twin of `ThresholdTable.lookup`: one guide step and a short scan per word. The
    places of the first `MOST_OPEN` of those are written to `open_`.
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


@lru_cache(maxsize=64)
def threshold_table(law: IntegerLaw) -> ThresholdTable:
    """The table of a symmetric law, computed with ball arithmetic.

    Only the lower tail is evaluated, where F keeps its relative precision: F(z) = 1 − F(−z − 1),
    and as no F(z) is a multiple of 2⁻⁶⁴, t_z = 2⁶⁴ − 1 − t_{−z−1}.
    """

    def threshold(z: int) -> int:
        return certain_floor(lambda: law.cdf(z)() * 2**64)

    lower = [threshold(-1)]
    while lower[-1] > 0:
        lower.append(threshold(-1 - len(lower)))
    values = np.array([*reversed(lower), *(TOP - t for t in lower)], np.uint64)
    values.setflags(write=False)
    return ThresholdTable(law, -len(lower), values)


def refine(law: IntegerLaw, word: int, more: MoreWords, guess: int = 0) -> int:
    """The exact value for a uniform U whose first 64 bits are `word`; the law must be symmetric.

    Bits are added until one integer is certain. U in the upper half is mirrored, 1 − U ↦ −Z, so
    that the search is always in the lower tail, where F(z) tells small probabilities apart.
    `guess` only says where to look first.
    """
    bits, numerator, drawn = 64, word, 0
    while True:
        upper = numerator >> (bits - 1) == 1
        near = 2**bits - 1 - numerator if upper else numerator
        low, high = Fraction(near, 2**bits), Fraction(near + 1, 2**bits)
        z = _least_reaching(law, high, -abs(guess))
        # Decided when F(z − 1) ≤ low and high ≤ F(z): every continuation of the bits gives z.
        if certain_compare(law.cdf(z - 1), low) <= 0:
            return -z if upper else z
        numerator = (numerator << 64) | more(drawn)
        bits, drawn = bits + 64, drawn + 1


def _least_reaching(law: IntegerLaw, level: Fraction, guess: int) -> int:
    """The least z with F(z) ≥ level, for 0 < level ≤ 1/2 (or a little more at the centre)."""

    def reaches(z: int) -> bool:
        return certain_compare(law.cdf(z), level) >= 0

    step = 2
    while reaches(guess - step):
        step *= 2
    low, step = guess - step, 2
    while not reaches(guess + step):
        step *= 2
    high = guess + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


@frozen(eq=False, repr=False)
class GaussianInversion:
    """Words to rounded Gaussian values, where σ is so large that a table had some 18 σ entries.

    The quantile x = Φ⁻¹(u) is computed in float64 with a stated bound on its error, and σx is
    rounded where it is farther from a half-integer than the bound; the other words are refined with
    ball arithmetic, as everywhere.
    """

    law: IntegerLaw  # a rounded Gaussian one, of scale σ

    def lookup(self, words: WordArray) -> tuple[Int64Array, Int64Array]:
        """The value for every word (a guess where it is open), and the places that are open."""
        from scipy.special import ndtri

        upper = words >> np.uint64(63) == 1
        near = np.where(upper, ~words, words)  # distance from the nearer of 0 and 1, below 2⁶³
        x = ndtri((near.astype(np.float64) + 0.5) * 2.0**-64)
        # The word leaves u open by half of 2⁻⁶⁴ either way, and so x by that over the density.
        with np.errstate(over="ignore"):
            spread = 2.0**-64 * math.sqrt(2 * math.pi) * np.exp(x * x / 2)
        slack = self.law.scale * (QUANTILE_BOUND * (1 - x) + spread)
        y = self.law.scale * x
        z = np.rint(y)
        open_ = np.flatnonzero(np.abs(y - z) + slack >= 0.5)
        values = z.astype(np.int64)
        return np.where(upper, -values, values), open_

    def compiled(self, words: WordArray, weight: int, base: Int64Array, out: Int64Array) -> None:
        """There is no compiled loop."""


# Each cell has 2**40 refinement words of its own; one is needed about once in 10**16 cells.
REFINEMENT_STRIDE = 1 << 40
BLOCK = 1 << 16  # cells per block: words, table and output of one stay in a core's cache
LONG = 1 << 12  # cells in a row, on average, that are worth the threads of `draw`


def draw(law: NoiseLaw, keys: KeySource, start: int, count: int) -> Int64Array:
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
    noise = CellNoise(law, keys, kernel=compiled(base.size))

    def work(run: tuple[int, int]) -> None:
        first, inside = np.array([start + run[0]], np.int64), slice(*run)
        noise.add(first, run[1] - run[0], base[inside], out[inside])

    blocks = -(-base.size // BLOCK)
    runs = [
        (lo * BLOCK, min(hi * BLOCK, base.size)) for lo, hi in pieces(blocks, 4 * thread_count())
    ]
    for_each(work, runs if base.size else [])


def draw_each(laws: Sequence[IntegerLaw], member: Int64Array, keys: ReleaseKeys) -> Int64Array:
    """Noise where cell i has the law number `member[i]`; cell i uses word i, as everywhere."""
    words, more = keys.stream("noise/0"), keys.stream("refinement/0")
    all_words = words.words(0, member.size)
    out = np.zeros(member.size, np.int64)
    for number, law in enumerate(laws):
        places = np.flatnonzero(member == number)
        noise = np.zeros(places.size, np.int64)
        part = _Part(1, lookup_of(law), words, more)
        part.add(all_words[places], noise, noise, places.__getitem__, kernel=False)
        out[places] = noise
    return out


def noise_at(law: NoiseLaw, keys: ReleaseKeys, cells: Int64Array) -> Int64Array:
    """The noise of cells given by their numbers, in increasing order.

    Guarantees
    ----------
    1. Cell i gets the very noise that `draw` gives it in a run with other cells.
    2. The noise of no other cell is computed.
    """
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    if cells.size and cells.size >= LONG * (breaks.size + 1):
        runs = np.split(cells, breaks)
        return np.concatenate([draw(law, keys, int(run[0]), run.size) for run in runs])
    return CellNoise(law, keys).at(cells)


def words_at(stream: Keystream, places: Int64Array) -> WordArray:
    """The words at some places, in increasing order; what lies between them is skipped over."""
    out = np.empty(places.size, np.uint64)
    at = 0
    while at < places.size:
        first = int(places[at])
        stop = int(np.searchsorted(places, first + BLOCK))
        span = stream.words(first, int(places[stop - 1]) - first + 1)
        out[at:stop] = span[places[at:stop] - first]
        at = stop
    return out


def lookup_of(law: IntegerLaw) -> Lookup:
    """The way from words to values for one component of a law."""
    return GaussianInversion(law) if law.float_quantile else threshold_table(law)


class CellNoise:
    """The noise of a release by the numbers of its cells, on the thread that asks.

    Keystreams and tables are set up once for many calls, and words of short runs are gathered so
    that the compiled loop is entered rarely.

    Guarantees
    ----------
    1. Cell i gets the noise that `add_noise` gives it, whatever other cells it comes with.
    """

    def __init__(self, law: NoiseLaw, keys: KeySource, *, kernel: bool = True) -> None:
        self._parts = [
            _Part(
                weight, lookup_of(part), keys.stream(f"noise/{i}"), keys.stream(f"refinement/{i}")
            )
            for i, (weight, part) in enumerate(law.components())
        ]
        self._kernel = kernel  # whether the compiled loop is worth its loading
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
            cell = _cell_of_runs(runs, size)
            for part in self._parts:
                words = part.gather(runs, size, scratch, gathered)
                part.add(words, source, out[inside], cell, kernel=self._kernel)
                source = out[inside]
            at = inside.stop

    def at(self, cells: Int64Array) -> Int64Array:
        """The noise of cells by their numbers, in increasing order."""
        out = np.zeros(cells.size, np.int64)
        for part in self._parts:
            words = words_at(part.words, cells)
            part.add(words, out, out, cells.__getitem__, kernel=compiled(cells.size))
        return out

    def _room(self) -> tuple[WordArray, WordArray]:
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


def _cell_of_runs(starts: Int64Array, length: int) -> Callable[[int], int]:
    """The number of the i-th cell of some runs."""
    return lambda i: int(starts[i // length]) + i % length


class _Part:
    """One component of a law, with its keystreams."""

    def __init__(self, weight: int, lookup: Lookup, words: Keystream, more: Keystream) -> None:
        self._weight, self._lookup, self.words, self._more = weight, lookup, words, more

    def gather(
        self, starts: Int64Array, length: int, scratch: WordArray, gathered: WordArray
    ) -> WordArray:
        """The words of some runs of cells, one run after another."""
        if len(starts) == 1:
            return self.words.words(int(starts[0]), length, scratch)
        for i, start in enumerate(starts.tolist()):
            gathered[i * length : (i + 1) * length] = self.words.words(start, length, scratch)
        return gathered[: len(starts) * length]

    def add(
        self,
        words: WordArray,
        base: Int64Array,
        out: Int64Array,
        cell: Callable[[int], int],
        *,
        kernel: bool,
    ) -> None:
        """Write base + weight · noise of cells whose words these are; `cell` has their numbers."""
        places = self._lookup.compiled(words, self._weight, base, out) if kernel else None
        if places is None:
            values, places = self._lookup.lookup(words)
            np.add(base, self._weight * values, out=out)
        if not places.size:
            return
        guesses = self._lookup.lookup(words[places])[0]
        for i, guess in zip(places.tolist(), guesses.tolist(), strict=True):
            more = self._refinement(int(cell(i)))
            exact = refine(self._lookup.law, int(words[i]), more, guess)
            out[i] = _settle(int(out[i]) + self._weight * (exact - guess))

    def _refinement(self, cell: int) -> Callable[[int], int]:
        """Words k = 0, 1, … of the refinement of one cell."""
        return lambda k: int(self._more.words(cell * REFINEMENT_STRIDE + k, 1)[0])


def _settle(value: int) -> int:
    """The value modulo 2⁶⁴ as a signed word.

    Taking noisy counts modulo 2⁶⁴ is post-processing of the exact measurement, so nothing about
    the guarantee changes even for values that wrap; with the scales that `design` allows, up to
    2⁴⁰, none ever does (probability below exp(−2²⁰)).
    """
    return (value + 2**63) % 2**64 - 2**63
