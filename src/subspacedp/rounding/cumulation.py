"""Which axes are merged for cumulation, and in which order, where margins are published.

A published total is a signed sum of entries of the cumulative table, one for every corner that its
group has in the merged order, and an entry that held totals do not determine is rounded at random.
One merged axis more doubles the corners of a cell; a group that is no run has a corner for each of
its pieces. Numbers of corners are products over the merged axes, so their means over the groups of
a table need no list of groups, and the cumulation with the fewest roundings can be searched for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldMargins
from subspacedp.rounding.merged import chain_of, fewest_classes
from subspacedp.tables import Axis, Margin

__all__ = ["Cumulation"]

FloatArray = npt.NDArray[np.float64]
Steps = tuple[int, ...]
Chain = tuple[Steps, ...]

MAX_AXES = 7  # 877 partitions; with more axes as few merged ones as the held margins allow
SAME = 1e-9  # roundings that differ by less are as many: the rounding of float64 decides nothing


@dataclass(frozen=True, eq=False, repr=False)
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
    3. `roundings` is the mean of `corner_counts` over the groups of a margin that have cells.
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

    def _ordered(self, members: Steps) -> Chain:
        """The chain of the held levels, extended as long as no more roundings are needed.

        By published margins and single levels, the one that saves most first, with every other
        axis on its own.
        """
        if members not in self._known_chains:
            self._known_chains[members] = self._extended(members)
        return self._known_chains[members]

    @cached_property
    def _known_chains(self) -> dict[Steps, Chain]:
        return {}

    def _extended(self, members: Steps) -> Chain:
        axes = self.held.domain.axes
        chain = self._held_chain(members)
        others: dict[Steps, Chain] = {
            (b,): self._all_levels(b) for b in range(len(axes)) if b not in members
        }
        wanted = [tuple(margin.steps[b] for b in members) for margin in self.published]
        wanted += [
            tuple(step if b == own else (axes[b].depth - 1) * summed for b in members)
            for summed in (1, 0)
            for own in members
            for step in range(axes[own].depth)
        ]
        roundings = self._counted({members: chain, **others})
        while wanted := [s for s in dict.fromkeys(wanted) if _fits(s, chain)]:
            longer = [tuple(sorted({*chain, s}, reverse=True)) for s in wanted]
            counted = [self._counted({members: own, **others}) for own in longer]
            first = _first_of_least(counted)
            if counted[first] > roundings + SAME * abs(roundings):
                break
            chain, roundings = longer[first], counted[first]
        return chain

    def _all_levels(self, axis: int) -> Chain:
        return tuple((step,) for step in reversed(range(self.held.domain.axes[axis].depth)))

    # ------------------------------------------------------------------------ borders

    def _borders(self, members: Steps, chain: Chain) -> FloatArray:
        """How often groups begin or end: all in all, and where runs of a held margin or meet end.

        (1 + terms of the expansion, published), summed over the groups of a margin on these axes:
        `axis_borders` without a list of groups.
        """
        key = (members, chain)
        if key not in self._known_borders:
            levels = (chain.index(tuple(k.steps[b] for b in members)) for k in self.held.expansion)
            self._known_borders[key] = self._by_level(members, chain)[[-1, *levels]]
        return self._known_borders[key]

    @cached_property
    def _known_borders(self) -> dict[tuple[Steps, Chain], FloatArray]:
        return {}

    def _by_level(self, members: Steps, chain: Chain) -> FloatArray:
        """Borders where a loop over runs of a level, or of a coarser one, steps; labels last."""
        axes = self.held.domain.axes
        levels = (tuple(axes[b].depth - 1 for b in members), *chain, (0,) * len(members))
        loops = [self._loops(b, {own[i] for own in levels}) for i, b in enumerate(members)]
        by_level = np.zeros((len(chain) + 1, len(self.published)))
        for level, (around, here) in enumerate(pairwise(levels)):
            for i in range(len(members)):
                # Members before i stand still in a run of this level, those after it go round.
                parts = [
                    own.steps[around[j], here[j]]
                    if j == i
                    else own.stands[(around, here)[j < i][j]]
                    for j, own in enumerate(loops)
                ]
                pairs = math.prod(number for number, _ in parts)
                if pairs:
                    alike = np.prod([inside for _, inside in parts], axis=0)
                    by_level[level] += 2.0 * (pairs - alike)
        return np.cumsum(by_level, axis=0) + 1.0  # behind the last position there is a border too

    def _loops(self, axis: int, steps: set[int]) -> _Loops:
        key = (axis, tuple(sorted(steps)))
        if key not in self._known_loops:
            at = np.array([margin.steps[axis] for margin in self.published])
            self._known_loops[key] = _Loops(self.held.domain.axes[axis], key[1], at)
        return self._known_loops[key]

    @cached_property
    def _known_loops(self) -> dict[tuple[int, Steps], _Loops]:
        return {}


@dataclass(frozen=True, eq=False, repr=False)
class _Loops:
    """The loops over one member of a merged axis: `_Loops` of profiles, summed over groups."""

    axis: Axis
    used: Steps  # levels that are in runs, finest first
    published: npt.NDArray[np.int64]  # the level of every published margin

    @cached_property
    def _runs(self) -> dict[int, tuple[Any, Any, Any]]:
        """Where the runs of a level begin, and every margin's group at their ends."""
        order = np.lexsort([self.axis.step(s).codes for s in self.used])
        groups = np.stack([self.axis.step(s).codes[order] for s in range(self.axis.depth)])
        out = {}
        for step in self.used:
            starts = np.flatnonzero(np.diff(groups[step], prepend=-1))
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

    @cached_property
    def steps(self) -> dict[tuple[int, int], tuple[int, FloatArray]]:
        """Steps from run to run inside a coarser one, and how many stay in one group."""
        out = {}
        for around, here in product(self.used, self.used):
            starts, first, last = self._runs[here]
            inside = ~np.isin(starts[1:], self._runs[around][0])
            alike = self._alike(last[:, :-1][:, inside], first[:, 1:][:, inside])
            out[around, here] = (int(inside.sum()), alike)
        return out

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


def _fits(steps: Steps, chain: Chain) -> bool:
    """Whether a chain takes one more level: nested with all of it, and not among it."""
    return steps not in chain and all(
        all(a <= b for a, b in zip(steps, known, strict=True))
        or all(a >= b for a, b in zip(steps, known, strict=True))
        for known in chain
    )
