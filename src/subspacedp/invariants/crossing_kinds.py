"""Groups of a margin that crossing classifications treat alike, and what Π_N leaves of each.

Swapping two labels that share all held groups changes nothing that is held, so on the crossing axis
labels of one atom are alike. On every other axis held levels are a chain, and a group is known by
its size and by those of the held groups around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.invariants.margin_space import distinct_columns
from subspacedp.tables import Axis, Margin, outer

if TYPE_CHECKING:
    from subspacedp.invariants.crossing import CrossingNullSpace

__all__ = ["CrossingKinds"]

_Along = tuple[Int64Array, FloatArray, FloatArray, dict[tuple[int, ...], FloatArray]]


@dataclass(frozen=True, eq=False, repr=False)
class CrossingKinds:
    """The groups of a margin, those alike together.

    Guarantees
    ----------
    1. Groups with the same number in `kinds` have the same entries of Π_N 1_G, each as often.
    """

    space: CrossingNullSpace
    margin: Margin
    _last: dict[int, _Along] = field(default_factory=dict, init=False)
    _known_rings: dict[tuple[int, int], tuple[FloatArray, FloatArray]] = field(
        default_factory=dict, init=False
    )

    @cached_property
    def _steps(self) -> tuple[tuple[int, ...], ...]:
        """The held steps on every axis, those of meets included."""
        of = self.space.crossings
        flats = [flat for terms in of.terms.values() for flat in terms]
        steps = [{flat.steps[a] for flat in flats} for a in range(len(of.domain.axes))]
        steps[of.place] = {step for chosen in of.terms for step in chosen}
        return tuple(tuple(sorted(s)) for s in steps)

    @cached_property
    def _atoms(self) -> Int64Array:
        """The atom of every label of the crossing axis."""
        of = self.space.crossings
        codes = [of.axis.step(step).codes for step in self._steps[of.place]]
        return distinct_columns(np.stack(codes))[1].reshape(-1)

    @cached_property
    def kinds(self) -> Int64Array:
        """A number for every group of the margin."""
        of = self.space.crossings
        out = np.zeros((1,) * len(self.margin.shape), np.int64)
        for a, axis in enumerate(of.domain.axes):
            asked = self.margin.steps[a]
            if a != of.place:
                kind = _kinds_beside(axis, asked, self._steps[a])
            elif asked == 0:
                kind = self._atoms
            else:
                kind = np.arange(axis.step(asked).groups)
            shape = [1] * out.ndim
            shape[a] = -1
            out = out * (int(kind.max(initial=0)) + 1) + kind.reshape(shape)
        return out

    def profile(self, group: int) -> tuple[FloatArray, FloatArray]:
        """Entries of Π_N 1_G, and how often each occurs."""
        of = self.space.crossings
        chosen = [int(i) for i in np.unravel_index(group, self.margin.shape)]
        number = chosen[of.place]
        first, labels, mine, inside = self._along(number)
        others = [a for a in range(len(of.domain.axes)) if a != of.place]
        rings = [self._rings(a, chosen[a]) for a in others]
        out = np.multiply.outer(mine, _flat([rows[0] for rows, _ in rings]))
        for steps, terms in of.terms.items():
            beside = np.zeros(out.shape[1])
            for flat, factor in terms.items():
                places = [1 + self._steps[a].index(flat.steps[a]) for a in others]
                beside += factor * _flat(
                    [rows[k] for (rows, _), k in zip(rings, places, strict=True)]
                )
            out -= np.multiply.outer(inside[steps][first], beside)
        often = np.multiply.outer(labels, _flat([count for _, count in rings]))
        return out.reshape(-1), often.reshape(-1)

    def _rings(self, a: int, group: int) -> tuple[FloatArray, FloatArray]:
        """Along another axis, the distinct columns of 1_f and of its means by held steps."""
        if (a, group) not in self._known_rings:
            axis = self.space.crossings.domain.axes[a]
            mine = axis.step(self.margin.steps[a]).codes == group
            rows = [mine.astype(np.float64)]
            for step in self._steps[a]:
                held = axis.step(step)
                shared = np.bincount(held.codes[mine], minlength=held.groups)
                rows.append((shared / np.maximum(held.sizes, 1))[held.codes])
            columns, count = np.unique(np.stack(rows), axis=1, return_counts=True)
            self._known_rings[a, group] = columns, count.astype(np.float64)
        return self._known_rings[a, group]

    def _along(self, number: int) -> _Along:
        """Along the crossing axis: labels that stand for all, how many they are, 1_g and Π_S 1_g.

        The last group is kept: groups that differ on other axes alone follow each other.
        """
        if number not in self._last:
            one = self.space.crossings.axis.step(
                self.margin.steps[self.space.crossings.place]
            ).codes == number  # fmt: skip
            _, first, labels = np.unique(
                self._atoms * 2 + one, return_index=True, return_counts=True
            )
            inside = {
                steps: space.from_totals((space.matrix @ one.astype(np.float64))[:, None])[:, 0]
                for steps, space in self.space.crossings.spaces.items()
            }
            self._last.clear()
            self._last[number] = first, labels.astype(float), one[first].astype(float), inside
        return self._last[number]


def _flat(factors: list[FloatArray]) -> FloatArray:
    return np.asarray(outer(factors)).reshape(-1) if factors else np.ones(1)


def _kinds_beside(axis: Axis, asked: int, held: tuple[int, ...]) -> Int64Array:
    """The groups of an axis by their sizes and those of held groups around them."""
    level = axis.step(asked)
    if any(not axis.determines(asked, h) and not axis.determines(h, asked) for h in held):
        return np.arange(level.groups)
    inside = level.codes < level.groups
    rows = [level.sizes]
    for step in held:
        if axis.determines(asked, step):
            around = axis.step(step)
            size = np.zeros(level.groups, np.int64)
            size[level.codes[inside]] = around.sizes[around.codes[inside]]
            rows.append(size)
    return distinct_columns(np.stack(rows))[1].reshape(-1)
