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
import numpy.typing as npt

from subspacedp.invariants.margin_space import distinct_columns
from subspacedp.tables import Axis, Margin, outer

if TYPE_CHECKING:
    from subspacedp.invariants.crossing import CrossingNullSpace

__all__ = ["CrossingKinds"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class CrossingKinds:
    """The groups of a margin, those alike together.

    Guarantees
    ----------
    1. Groups with the same number in `kinds` have the same entries of Π_N 1_G, each as often.
    """

    space: CrossingNullSpace
    margin: Margin
    _last: dict[int, dict[tuple[int, ...], FloatArray]] = field(default_factory=dict, init=False)

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
        one = of.axis.step(self.margin.steps[of.place]).codes == number
        _, first, labels = np.unique(self._atoms * 2 + one, return_index=True, return_counts=True)
        inside = self._inside(number, one)
        means: list[dict[int, FloatArray]] = []
        full, often = [], []
        for a, axis in enumerate(of.domain.axes):
            if a == of.place:
                continue
            level = axis.step(self.margin.steps[a])
            mine = level.codes == chosen[a]
            rows = [mine.astype(np.float64)]
            for step in self._steps[a]:
                held = axis.step(step)
                shared = np.bincount(held.codes[mine], minlength=held.groups)
                rows.append((shared / np.maximum(held.sizes, 1))[held.codes])
            rings, count = np.unique(np.stack(rows), axis=1, return_counts=True)
            full.append(rings[0])
            means.append(dict(zip(self._steps[a], rings[1:], strict=True)))
            often.append(count.astype(np.float64))
        out = np.multiply.outer(one[first].astype(np.float64), _flat(full))
        others = [a for a in range(len(of.domain.axes)) if a != of.place]
        for steps, terms in of.terms.items():
            beside = np.zeros(out.shape[1])
            for flat, factor in terms.items():
                each = [m[flat.steps[a]] for a, m in zip(others, means, strict=True)]
                beside += factor * _flat(each)
            out -= np.multiply.outer(inside[steps][first], beside)
        return out.reshape(-1), np.multiply.outer(labels.astype(np.float64), _flat(often)).ravel()

    def _inside(self, number: int, one: npt.NDArray[np.bool_]) -> dict[tuple[int, ...], FloatArray]:
        """Π_S 1_g for a group of the crossing axis; the last one is kept."""
        if number not in self._last:
            spaces = self.space.crossings.spaces
            found = {
                steps: space.from_totals((space.matrix @ one.astype(np.float64))[:, None])[:, 0]
                for steps, space in spaces.items()
            }
            self._last.clear()
            self._last[number] = found
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
