"""Controlled rounding of a lifted residual: unbiased, and C z = r stays exact.

The lifted residual z has C z = r in rationals. Rounding its cells one by one would break that;
rounding its *cumulative* table does not. Order the axes so that every group of every held level is
a run of neighbours, take cumulative sums S along all axes, round every entry of S up or down at
random with the probability of its fractional part, and take differences back. A group total is a
signed sum of entries of S at ends of groups, and those are whole numbers already: they stay as they
are, and no dither is drawn for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array, WordArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.invariants.margin_space import MarginNullSpace
from subspacedp.invariants.mixed import centred_divmod
from subspacedp.parallel import compiled
from subspacedp.rounding.controlled import ControlledRounding, WordSource
from subspacedp.rounding.merged import MergedAxis, fewest_merged_axes
from subspacedp.tables import Margin, along, outer

LIMIT = 2**61
SLAB = 1 << 20  # words fetched at a time


@frozen(eq=False, repr=False)
class MarginRounding(ControlledRounding):
    """How a lifted residual is rounded to multiples of 10**-decimals.

    Guarantees
    ----------
    1. `apply` returns integers R with C R = 10**decimals · r, exactly.
    2. Given r, E[R] = 10**decimals · lift(r) up to the rounding error of float64, which decides
       the roundings (bounded in `docs/proofs/digits.md`; 4e-11 seen for 27 million cells).
    3. `variance` bounds the rounding part of a variance from above, whatever the scale of the
       noise, and comes close to it once the noise is spread over several whole numbers.
       (`docs/proofs/digits.md`: 1/6 is enough as `unit_variance` for a residual made of noise
       alone, whose characteristic function is non-negative; 1/4 for any residual.)
    """

    space: MarginNullSpace

    most_stated: ClassVar[int] = 100_000

    @property
    def held(self) -> HeldMargins:
        """The held margins."""
        return self.space.held

    @cached_property
    def needed(self) -> bool:
        """Whether a lifted integer residual can miss the grid at all."""
        return bool(np.any(self.step % self.space.denominator_classes[0] != 0))

    @cached_property
    def axes(self) -> tuple[MergedAxis, ...]:
        """The axes along which sums are cumulated: as few as the held margins allow."""
        return fewest_merged_axes(self.held.domain, self.held.essential)

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            f"cumulative random rounding along {len(self.axes)} merged axes to multiples of "
            f"10**-{self.decimals}, independent of the noise; a bound on its variance is in "
            "every stated error"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table over the merged axes."""
        return tuple(len(axis) for axis in self.axes)

    def apply(self, residual: HeldValues, dither: WordArray) -> Int64Array:
        """Round 10**decimals · lift(r) to integers R with C R = 10**decimals · r.

        Parameters
        ----------
        residual
            One integer array for every held margin.
        dither
            One uniform word per cell, independent of everything else.
        """
        scaled = tuple(self._scaled(r) for r in residual)
        if not self.needed:
            return self.space.lift_exact(scaled).whole
        whole = np.zeros(self.shape, np.int64)
        entry = np.zeros(self.shape)
        for k, a, quotient, rest in self.parts(scaled):
            whole += a * self._spread(quotient, k)
            entry += a * self._interpolated(cumulated(rest).astype(np.float64), k)
        words = dither.reshape(-1)
        rounded = round_entries(entry, self._all_ends, lambda at, count: words[at : at + count])
        return self._to_domain(whole + differences(rounded))

    def parts(self, scaled: HeldValues) -> Iterator[tuple[Margin, int, Int64Array, Int64Array]]:
        """Each term of the lift, by groups in order: margin, coefficient, quotient, remainder.

        The term adds a·T/s to every cell of a group with total T and s cells. Its whole part a·q
        needs no rounding; what is left, T − q·s, is at most s/2 in size, so that the cumulated
        table stays small whatever the scale of the noise.
        """
        for k, a in self.held.expansion.items():
            totals = self._group_totals(self.held.of(scaled, k), k)
            yield k, a, *centred_divmod(totals, outer(axis.run(k).sizes for axis in self.axes))

    def round_in_place(
        self, noisy: Int64Array, residual: HeldValues, dither: WordSource
    ) -> Int64Array:
        """Turn noisy counts into 10**decimals · noisy − R, in their own memory when large.

        The dither of an entry of the merged table is the word of its number in row-major order, so
        the result depends on neither blocks nor threads.
        """
        if not compiled(noisy.size) or not self.held.margins or not noisy.flags.c_contiguous:
            words = dither.words(0, noisy.size)
            return noisy * self.step - self.apply(residual, words)
        if not self.needed:
            return noisy * self.step - self.space.lift_exact(self.scaled(residual)).whole
        from subspacedp.rounding.rows import RowRounding

        RowRounding(self, self.scaled(residual)).run(noisy.reshape(-1), dither)
        return noisy

    def scaled(self, residual: HeldValues) -> HeldValues:
        """A residual in published steps."""
        return tuple(self._scaled(r) for r in residual)

    def _cell_variance(self) -> FloatArray:
        out = self._entry_variance
        for a in range(out.ndim):
            out = out + _shifted(out, a)
        return np.asarray(self._to_domain(out) * (1.0 / self.step**2))

    def rounding_counts(self, margin: Margin) -> Int64Array:
        """How many roundings enter the rounding of every group's total of a margin."""
        from subspacedp.rounding.profiles import corner_counts  # which builds on this

        return corner_counts(self, margin)

    def group_variance(self, margin: Margin) -> FloatArray:
        """The variance that rounding adds, at most, to every total of any margin."""
        return np.asarray(self.rounding_counts(margin) * (self.unit_variance / self.step**2))

    def coefficients(self, weights: AnyArray) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds to a weighted sum of cells, and a bound on its variance.

        The rounding part of Σ wᵢ·cellᵢ is Σ vⱼuⱼ; given the noise the uⱼ are independent, of mean
        zero, and each takes two values one apart.
        """
        if not self.needed:
            return np.zeros(0), np.zeros(0)
        thrown = self._entry_variance > 0
        return self._corners(weights)[thrown] / self.step, self._entry_variance[thrown]

    def as_dict(self, variances: FloatArray) -> dict[str, Any]:
        """Order of cells along every merged axis, and the variance of every cumulative entry.

        The weight of an entry is that of its cell less those that follow along the axes, by
        inclusion and exclusion.
        """
        entries = np.zeros(self.shape)
        entries[self._entry_variance > 0] = variances
        distinct, code = np.unique(entries, return_inverse=True)
        names = [axis.name for axis in self.held.domain.axes]
        return {
            "kind": "cumulated",
            "axes": [
                {"members": [names[b] for b in axis.members], "order": axis.order.tolist()}
                for axis in self.axes
            ],
            "step": 1 / self.step,
            "variances": distinct.tolist(),
            "variance_of": code.reshape(-1).tolist(),
        }

    def at_most(self) -> dict[str, Any]:
        """A cell is a difference of two entries along every merged axis; no table is looked at."""
        variance = 2 ** len(self.axes) * self.unit_variance / self.step**2
        return {"kind": "at most", "variance": variance}

    def thrown_entries(self, lifted: FloatArray) -> FloatArray:
        """What is rounded at random where the lifted residual is this table: cumulative entries."""
        out = self._from_domain(np.asarray(lifted, np.float64))
        for a in range(out.ndim):
            out = np.cumsum(out, axis=a)
        return np.asarray(out[self._entry_variance > 0] * self.step)

    def cell_variance_from(self, variances: FloatArray) -> FloatArray:
        """The variance of every cell from that of every random rounding, in their order."""
        out = np.zeros(self.shape)
        out[self._entry_variance > 0] = variances
        for a in range(out.ndim):
            out = out + _shifted(out, a)
        return np.asarray(self._to_domain(out) / self.step**2)

    def _corners(self, weights: AnyArray) -> FloatArray:
        """The weights of the cumulative entries in a weighted sum of cells."""
        w = self._from_domain(np.asarray(weights, np.float64))
        for a in range(w.ndim):
            w = w - _shifted(w, a, back=True)
        return np.asarray(w)

    @cached_property
    def _entry_variance(self) -> FloatArray:
        """E[f (1 − f)] of every cumulative entry, at most (1 − 1/L²)/6 for noise alone.

        L is a denominator of the entry's weights on the noise; see the proof note.
        """
        parts: list[dict[Margin, Int64Array]] = []
        for axis in self.axes:
            runs = {k: axis.run(k) for k in (*self.held.expansion, *self.held.essential)}
            parts.append(
                {
                    k: run.sizes[run.group] // np.gcd(run.sizes[run.group], run.place)
                    for k, run in runs.items()
                }
            )
        return self.entry_variance(parts)

    def entry_variance(self, parts: Sequence[Mapping[Margin, Int64Array]]) -> FloatArray:
        """The same for chosen positions of every axis, by what their places leave of runs' sizes.

        For every held margin and position the size of its run over what that shares with the
        place: 1 at the end of a run, and a denominator of its weight elsewhere.
        """
        shape = tuple(len(next(iter(denominators.values()))) for denominators in parts)
        fixed = np.zeros(shape, bool)
        for m in self.held.essential:
            fixed |= outer((denominators[m] == 1 for denominators in parts), np.logical_and)
        if not self.of_noise_alone:
            return np.where(fixed, 0.0, self.unit_variance)
        multiple = np.ones(shape, np.int64)
        saturated = np.zeros(shape, bool)
        for k, factor in self.held.expansion.items():
            denominator = outer(denominators[k] for denominators in parts)
            denominator = denominator // np.gcd(denominator, factor * self.step)
            # Beyond 2**20 the factor 1 − 1/L² is 1 to twelve digits: stop multiplying there.
            saturated |= denominator > 2**20
            multiple = np.lcm(multiple, np.where(denominator > 2**20, 1, denominator))
            saturated |= multiple > 2**20
            multiple[saturated] = 1
        out = np.where(saturated, 1.0, 1.0 - 1.0 / multiple.astype(np.float64) ** 2) / 6.0
        out[fixed] = 0.0
        return out

    def check_total(self, most: int) -> None:
        """Refuse a largest total beyond half of the limit: the other half is for the noise."""
        self._check(2 * most)

    def _scaled(self, residual: Int64Array) -> Int64Array:
        self._check(int(np.abs(residual).max(initial=0)))
        return residual * self.step

    def _check(self, largest: int) -> None:
        if self.step > 1 and largest >= LIMIT // self.step:
            raise ReleaseError(
                f"The totals are too large for {self.decimals} decimals; ask for fewer."
            )

    @cached_property
    def _all_ends(self) -> BoolArray:
        """The entries that the held totals determine: every index ends one of a margin's groups."""
        out = np.zeros(self.shape, bool)
        for margin in self.held.essential:
            runs = (axis.run(margin) for axis in self.axes)
            out |= outer((run.place == run.sizes[run.group] for run in runs), np.logical_and)
        return out

    def _spread(self, groups: Int64Array, k: Margin) -> Int64Array:
        """Every position's group value, broadcastable to the merged shape."""
        out = groups
        for a, axis in enumerate(self.axes):
            if out.shape[a] > 1:
                out = np.take(out, axis.run(k).group, axis=a)
        return out

    def _interpolated(self, corners: FloatArray, k: Margin) -> FloatArray:
        """Cumulative sums at every position from those at ends of groups.

        Within a group the sum grows by equal steps, so at place p of a group of s it is
        (1 − p/s)·lower + (p/s)·upper, one axis after another.
        """
        out = corners
        for a, axis in enumerate(self.axes):
            run = axis.run(k)
            lower = np.take(out, run.group, axis=a)
            share = along(run.place / run.sizes[run.group], a, out.ndim)
            out = lower + (np.take(out, run.group + 1, axis=a) - lower) * share
        return out

    def _group_totals(self, totals: Int64Array, k: Margin) -> Int64Array:
        """Totals of margin k with one dimension per merged axis, groups in order of their runs."""
        arranged = totals.transpose([b for axis in self.axes for b in axis.members])
        arranged = arranged.reshape([axis.groups(k) for axis in self.axes])
        for a, axis in enumerate(self.axes):
            arranged = np.take(arranged, axis.run(k).ids, axis=a)
        return arranged

    def _from_domain(self, values: AnyArray) -> AnyArray:
        out = values.reshape(self.held.domain.shape)
        out = out.transpose([b for axis in self.axes for b in axis.members]).reshape(self.shape)
        for a, axis in enumerate(self.axes):
            out = np.take(out, axis.order, axis=a)
        return out

    def _to_domain(self, values: AnyArray) -> AnyArray:
        out = values
        for a, axis in enumerate(self.axes):
            out = np.take(out, np.argsort(axis.order), axis=a)
        members = [b for axis in self.axes for b in axis.members]
        shape = self.held.domain.shape
        out = out.reshape([shape[b] for b in members])
        return np.ascontiguousarray(out.transpose(np.argsort(members)))


def cumulated(totals: Int64Array) -> Int64Array:
    """Cumulative sums along all axes with a zero in front of each."""
    out = totals
    for a in range(out.ndim):
        zeros = np.zeros([1 if b == a else n for b, n in enumerate(out.shape)], np.int64)
        out = np.concatenate([zeros, np.cumsum(out, axis=a)], axis=a)
    return out


def round_entries(
    entry: FloatArray, ends: BoolArray, words: Callable[[int, int], WordArray]
) -> Int64Array:
    """Entries of a cumulative table as whole numbers, in the memory of the entries.

    Those that held totals determine become the nearest one. floor(x + dither) is x rounded up with
    the probability of its fractional part. `words(at, count)` gives uniform words, one per entry in
    row-major order.
    """
    entry = np.ascontiguousarray(entry)
    flat, fixed = entry.reshape(-1), ends.reshape(-1)
    whole, worst = flat.view(np.int64), 0.0
    for at in range(0, flat.size, SLAB):
        slab, end = flat[at : at + SLAB], fixed[at : at + SLAB]
        nearest = np.rint(slab)
        worst = max(worst, float(np.abs(slab - nearest).max(where=end, initial=0.0)))
        up = np.floor(slab + (words(at, slab.size) >> np.uint64(12)) * 2.0**-52)
        whole[at : at + SLAB] = np.where(end, nearest, up)
    check_whole(worst)
    return whole.reshape(entry.shape)


def check_whole(worst: float) -> None:
    """Entries that the totals determine are whole up to rounding error, n·2**-48 at most.

    Anything more means that the totals contradict each other.
    """
    if worst > 1e-3:
        raise ReleaseError("The held totals contradict each other.")


def _shifted(values: FloatArray, axis: int, *, back: bool = False) -> FloatArray:
    """Entry i − 1 (or i + 1) at place i, and 0 beyond the border."""
    out = np.zeros_like(values)
    upper: list[Any] = [slice(None)] * values.ndim
    lower: list[Any] = [slice(None)] * values.ndim
    upper[axis], lower[axis] = slice(1, None), slice(None, -1)
    target, source = (lower, upper) if back else (upper, lower)
    out[tuple(target)] = values[tuple(source)]
    return out


def differences(cumulated: Int64Array) -> Int64Array:
    """The table of which these are the cumulative sums, in their memory."""
    for a in range(cumulated.ndim):
        along = np.moveaxis(cumulated, a, 0)
        along[1:] -= along[:-1]
    return cumulated
