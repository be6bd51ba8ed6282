"""Controlled rounding of a table estimated from several levels, and its axes.

`MarginRounding` rounds a lifted residual, whose cumulative sums are known group by group. Here any
real correction z is rounded whose held sums are whole numbers: its cumulative table is computed,
not interpolated, and everything else is as there.

Which axes are merged for cumulation, and in which order, is chosen so that published totals
collect few roundings. A published total is a signed sum of entries of the cumulative table, one for
every corner that its group has in the merged order, and an entry that held totals do not determine
is rounded at random. One merged axis more doubles the corners of a cell; a group that is no run has
a corner for each of its pieces. Numbers of corners are products over the merged axes, so their
means over the groups of a table need no list of groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.frozen import frozen, remembered
from subspacedp.invariants import HeldMargins
from subspacedp.rounding.controlled import WordSource
from subspacedp.rounding.margins import MarginRounding, differences, round_entries
from subspacedp.rounding.merged import MergedAxis, chain_of, fewest_classes, in_order
from subspacedp.tables import Axis, Margin

RUN = 256  # numbers that are added up before whole parts are taken off
Steps = tuple[int, ...]
Chain = tuple[Steps, ...]
MAX_AXES = 7  # 877 partitions; with more axes as few merged ones as the held margins allow
SAME = 1e-9  # roundings that differ by less are as many: the rounding of float64 decides nothing


class _LevelAxis(MergedAxis):
    """A merged axis that costs no sorting where every level is in runs already."""

    @cached_property
    def order(self) -> Int64Array:
        """The positions, sorted by coarsest group, then the next finer, then as they come."""
        keys = (self._codes(steps) for steps in self.chain)
        if all(bool(np.all(key[1:] >= key[:-1])) for key in keys):
            return np.arange(len(self))
        return super().order


@frozen(eq=False, repr=False)
class LevelRounding(MarginRounding):
    """How a real correction is rounded to multiples of 10**-decimals, keeping its held sums.

    Parameters
    ----------
    published
        The margins whose totals shall collect few roundings.
    importance
        What a rounding in every total of each of them counts for.

    Guarantees
    ----------
    1. `round` returns integers R with C R = 10**decimals · C z, exactly.
    2. Given z, E[R] = 10**decimals · z up to the rounding error of float64.
    3. `variance` bounds the rounding part of a variance from above: `unit_variance` squared
       steps for every rounding. 1/6 is enough for a correction made of noise alone whose
       characteristic function is never negative, 1/4 for any (docs/proofs/marginals.md).
    """

    published: tuple[Margin, ...]
    importance: tuple[float, ...]
    needed: ClassVar[bool] = True  # an estimate from several levels is never on the grid by itself

    @cached_property
    def axes(self) -> tuple[MergedAxis, ...]:
        """Merged axes, and an order on each, with few roundings in what is published."""
        chains = Cumulation(self.held, self.published, self.importance).best()
        domain = self.held.domain
        return in_order([_LevelAxis(domain, members, chain) for members, chain in chains.items()])

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            f"cumulative random rounding of the whole correction along {len(self.axes)} merged "
            f"axes to multiples of 10**-{self.decimals}, independent of the noise; a bound on its "
            "variance is in every stated error"
        )

    def round(self, whole: Int64Array | int, rest: FloatArray, dither: WordSource) -> Int64Array:
        """Round 10**decimals·(whole + rest) to integers that keep its held sums.

        Parameters
        ----------
        whole
            The whole part of the correction, where it was split off.
        rest
            The correction, or what is left of it.
        dither
            Uniform words, one per entry of the merged table in row-major order.
        """
        scaled = rest * self.step
        near = np.rint(scaled)
        scaled -= near
        steps = near.astype(np.int64)
        steps += whole * self.step
        del near  # large tables: no more of them at a time than are needed
        entry = np.ascontiguousarray(self._from_domain(scaled))
        del scaled
        sums = np.zeros(self.shape, np.int64)
        for a in range(entry.ndim):
            np.cumsum(sums, axis=a, out=sums)
            turns, entry = cumulate(entry, a)
            sums += turns
        del turns
        sums += round_entries(entry, self._all_ends, dither.words)
        del entry
        steps += self._to_domain(differences(sums))
        return steps

    def _from_domain(self, values: AnyArray) -> AnyArray:
        if self._as_it_is:
            return values.reshape(self.shape)
        return super()._from_domain(values)

    def _to_domain(self, values: AnyArray) -> AnyArray:
        if self._as_it_is:
            return values.reshape(self.held.domain.shape)
        return super()._to_domain(values)

    @cached_property
    def _as_it_is(self) -> bool:
        """Whether the merged table is the table itself in its own order."""
        members = [b for axis in self.axes for b in axis.members]
        return members == sorted(members) and all(
            bool(np.array_equal(axis.order, np.arange(len(axis)))) for axis in self.axes
        )

    def _cell_variance(self) -> FloatArray:
        return self.group_variance(self.held.domain.cells)

    @cached_property
    def _entry_variance(self) -> FloatArray:
        """E[f (1 − f)] of every entry, at most; none where the held totals determine it."""
        return np.where(self._all_ends, 0.0, self.unit_variance)


def cumulate(values: FloatArray, axis: int) -> tuple[Int64Array, FloatArray]:
    """Cumulative sums as whole numbers plus what is left, at most half.

    Numbers of at most a half are added up in runs, and whole parts of the sums of runs are taken
    off before they are added up in turn: no partial sum exceeds RUN/2, and the error of all n of
    them is at most n·RUN·2**-53, however large the sums get.
    """
    rows = np.moveaxis(values, axis, -1)
    number = rows.shape[-1]
    if number <= RUN:
        sums = np.cumsum(rows, axis=-1)
    else:
        padded = np.zeros((*rows.shape[:-1], -(-number // RUN) * RUN))
        padded[..., :number] = rows
        runs = padded.reshape(*rows.shape[:-1], -1, RUN)
        np.cumsum(runs, axis=-1, out=runs)
        last = runs[..., :-1, -1]
        turns = np.rint(last)
        above, left = cumulate(last - turns, -1)
        runs[..., 1:, :] += left[..., None]
        sums = padded[..., :number]
    whole = np.rint(sums)
    sums -= whole
    out = whole.astype(np.int64)
    if number > RUN:
        above += np.cumsum(turns, axis=-1).astype(np.int64)
        out[..., RUN:] += np.repeat(above, RUN, axis=-1)[..., : number - RUN]
    return np.moveaxis(out, -1, axis), np.moveaxis(sums, -1, axis)


@frozen(eq=False, repr=False)
class Cumulation:
    """The merged axes along which published totals collect few roundings.

    Parameters
    ----------
    held
        The held margins: on every merged axis their levels are a chain.
    published
        The margins that are published.
    importance
        What a rounding in every total of each of them counts for.

    Guarantees
    ----------
    1. `best` is a function of these fields alone.
    2. Every chain of `best` contains the levels of all held margins.
    3. `roundings` is the mean of `corner_counts` over the groups of a margin that have cells;
       labels in no group of a grouping are taken as one more.
    4. By importance, `best` needs no more roundings than a cumulation along as few merged axes as
       the held margins allow.
    """

    held: HeldMargins
    published: tuple[Margin, ...]
    importance: tuple[float, ...]

    def best(self) -> dict[Steps, Chain]:
        """The chain, coarsest level first, of every merged axis, by its members."""
        number = len(self.held.domain.axes)
        fewest = fewest_classes(number, self.held.essential)
        partitions = [fewest]
        if number <= MAX_AXES:
            partitions = [p for p in _partitions(number) if all(map(self._mergeable, p))]
        candidates = [
            {members: self._ordered(members) for members in classes}
            for classes in sorted(partitions, key=len)
        ]
        candidates.append({members: self._held_chain(members) for members in fewest})
        roundings = [self._counted(chains) for chains in candidates]
        return candidates[_first_of_least(roundings)]

    def roundings(self, chains: dict[Steps, Chain]) -> FloatArray:
        """The mean number of roundings in a total of each published margin.

        Inclusion and exclusion over the held margins, as in the expansion of their projection:
        ends of two of them are ends of their meet.
        """
        borders = [self._borders(members, chain) for members, chain in chains.items()]
        corners = np.prod(borders, axis=0)
        factors = np.array([1, *(-a for a in self.held.expansion.values())], np.float64)
        return np.asarray(factors @ corners / self._groups)

    def _counted(self, chains: dict[Steps, Chain]) -> float:
        return float(self.roundings(chains) @ np.asarray(self.importance, np.float64))

    @cached_property
    def _groups(self) -> FloatArray:
        return np.array([float(margin.nonempty) for margin in self.published])

    # ------------------------------------------------------------------------ chains

    def _mergeable(self, members: Steps) -> bool:
        return chain_of(members, self.held.essential) is not None

    def _held_chain(self, members: Steps) -> Chain:
        return chain_of(members, self.held.essential) or ()

    @remembered
    def _ordered(self, members: Steps) -> Chain:
        """The chain of the held levels, extended as long as no more roundings are needed.

        By published margins and single levels, the one that saves most first, with every other
        axis on its own.
        """
        axes = self.held.domain.axes
        chain = self._held_chain(members)
        others: dict[Steps, Chain] = {
            (b,): self._all_levels(b) for b in range(len(axes)) if b not in members
        }
        wanted = [tuple(margin.steps[b] for b in members) for margin in self.published]
        wanted += [
            tuple(step if b == axis else (axes[b].depth - 1) * summed for b in members)
            for summed in (1, 0)
            for axis in members
            for step in range(axes[axis].depth)
        ]
        roundings, held = self._counted({members: chain, **others}), chain
        fits = self._inserted
        while longer := [c for s in dict.fromkeys(wanted) for c in fits(members, held, chain, s)]:
            counted = [self._counted({members: extended, **others}) for extended in longer]
            first = _first_of_least(counted)
            if counted[first] > roundings + SAME * abs(roundings):
                break
            chain, roundings = longer[first], counted[first]
        return chain

    def _inserted(self, members: Steps, held: Chain, chain: Chain, steps: Steps) -> list[Chain]:
        """A chain with one more level, wherever held groups stay in runs and levels nest.

        Levels have one place at most; a grouping can come before levels that it crosses.
        """
        axes = [self.held.domain.axes[b] for b in members]
        if steps in chain:
            return []
        out = []
        for i in range(len(chain) + 1):
            before, behind = chain[:i], chain[i:]
            pairs = [*((known, steps) for known in before), *((steps, known) for known in behind)]
            in_runs = all(_nested(axes, steps, known) for known in behind if known in held)
            if in_runs and all(_in_order(axes, coarse, fine) for coarse, fine in pairs):
                out.append((*before, steps, *behind))
        return out

    def _all_levels(self, axis: int) -> Chain:
        return tuple((step,) for step in reversed(range(self.held.domain.axes[axis].depth)))

    # ------------------------------------------------------------------------ borders

    @remembered
    def _borders(self, members: Steps, chain: Chain) -> FloatArray:
        """How often groups begin or end: all in all, and where runs of a held margin or meet end.

        (1 + terms of the expansion, published), summed over the groups of a margin on these axes:
        `axis_borders` without a list of groups.
        """
        levels = (chain.index(tuple(k.steps[b] for b in members)) for k in self.held.expansion)
        return np.asarray(self._by_level(members, chain)[[-1, *levels]])

    def _by_level(self, members: Steps, chain: Chain) -> FloatArray:
        """Borders where a loop over runs of a level, or of a coarser one, steps; labels last."""
        axes = self.held.domain.axes
        levels = (tuple(axes[b].depth - 1 for b in members), *chain, (0,) * len(members))
        used = (tuple(dict.fromkeys(loop[i] for loop in levels)) for i in range(len(members)))
        loops = [self._loops(b, steps) for b, steps in zip(members, used, strict=True)]
        by_level = np.zeros((len(chain) + 1, len(self.published)))
        for level, (around, here) in enumerate(pairwise(levels)):
            for i in range(len(members)):
                # Members before i stand still in a run of this level, those after it go round.
                parts = [
                    loop.steps(around[j], here[j])
                    if j == i
                    else loop.stands[(around, here)[j < i][j]]
                    for j, loop in enumerate(loops)
                ]
                pairs = math.prod(number for number, _ in parts)
                if pairs:
                    alike = np.prod([inside for _, inside in parts], axis=0)
                    by_level[level] += 2.0 * (pairs - alike)
        return np.cumsum(by_level, axis=0) + 1.0  # behind the last position there is a border too

    @remembered
    def _loops(self, axis: int, steps: Steps) -> _Loops:
        at = np.array([margin.steps[axis] for margin in self.published])
        return _Loops(self.held.domain.axes[axis], steps, at)


@frozen(eq=False, repr=False)
class _Loops:
    """The loops over one member of a merged axis: `_Loops` of profiles, summed over groups."""

    axis: Axis
    used: Steps  # levels that are in runs, coarsest first
    published: Int64Array  # the level of every published margin

    @cached_property
    def _runs(self) -> dict[int, tuple[Any, Any, Any]]:
        """Where the runs of a level begin, and every margin's group at their ends."""
        order = np.lexsort([self.axis.step(s).codes for s in reversed(self.used)])
        number = self.axis.depth + len(self.axis.crossing)
        groups = np.stack([self.axis.step(s).codes[order] for s in range(number)])
        out, begins = {}, np.zeros(len(order), bool)
        for step in self.used:  # a run ends where a coarser one does, also where they cross
            begins |= np.diff(groups[step], prepend=-1) != 0
            starts = np.flatnonzero(begins)
            ends = np.append(starts[1:], len(order)) - 1
            out[step] = (starts, groups[:, starts], groups[:, ends])
        return out

    @cached_property
    def stands(self) -> dict[int, tuple[int, FloatArray]]:
        """Of a level: its runs, and how many begin and end in one group of each margin."""
        return {
            step: (len(starts), self._alike(last, first))
            for step, (starts, first, last) in self._runs.items()
        }

    @remembered
    def steps(self, around: int, here: int) -> tuple[int, FloatArray]:
        """Steps from run to run inside a coarser one, and how many stay in one group."""
        starts, first, last = self._runs[here]
        inside = ~np.isin(starts[1:], self._runs[around][0])
        alike = self._alike(last[:, :-1][:, inside], first[:, 1:][:, inside])
        return int(inside.sum()), alike

    def _alike(self, last: Any, first: Any) -> FloatArray:
        alike = np.sum(last == first, axis=1).astype(np.float64)
        return np.asarray(alike[self.published])


def _partitions(axes: int) -> Iterator[list[Steps]]:
    """All partitions of the axes into classes."""
    if axes == 0:
        yield []
        return
    for classes in _partitions(axes - 1):
        yield [*classes, (axes - 1,)]
        for i, members in enumerate(classes):
            yield [*classes[:i], (*members, axes - 1), *classes[i + 1 :]]


def _first_of_least(roundings: list[float]) -> int:
    least = min(roundings)
    return next(i for i, c in enumerate(roundings) if c <= least + SAME * abs(least))


def _nested(axes: Sequence[Axis], coarse: Steps, fine: Steps) -> bool:
    """Whether groups of one level consist of whole groups of another, on some axes."""
    pairs = zip(axes, fine, coarse, strict=True)
    return all(axis.determines(f, c) for axis, f, c in pairs)


def _in_order(axes: Sequence[Axis], coarse: Steps, fine: Steps) -> bool:
    """Whether one level may come before another: it is coarser, or a grouping it crosses."""
    grouped = any(max(c, f) >= axis.depth for axis, c, f in zip(axes, coarse, fine, strict=True))
    return _nested(axes, coarse, fine) or (grouped and not _nested(axes, fine, coarse))
