"""The totals of a margin's groups as seen from inside the null space, without a matrix.

The error of a group total is Σ (Π_N 1_G)ᵢ eᵢ. On every axis Π_N 1_G depends only on which of the
groups that contain G's group also contain the label, so Π_N 1_G takes few values, and groups whose
containing groups have the same sizes have the same values the same number of times: one law.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from subspacedp.subspace.digits import DigitPlan
from subspacedp.subspace.margins import MarginNullSpace
from subspacedp.tables import Margin, along

__all__ = ["GroupProfiles", "corner_counts"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class GroupProfiles:
    """The groups of a margin, sorted into classes of equal sizes.

    Guarantees
    ----------
    1. Groups of one class have the same values of Π_N 1_G, each the same number of times.
    2. `squared` and `profile` agree with the dense projector to rounding error.
    """

    space: MarginNullSpace
    margin: Margin

    @cached_property
    def _axes(self) -> tuple[tuple[tuple[int, ...], Int64Array, Int64Array], ...]:
        """For every axis: the steps in use from the margin's own on, sizes by class, classes."""
        out = []
        for a, axis in enumerate(self.space.domain.axes):
            own = self.margin.steps[a]
            above = {k.steps[a] for k in self.space.held.expansion if k.steps[a] > own}
            steps = (own, *sorted(above))
            sizes = np.stack(
                [axis.step(s).sizes[axis.parents(own, s)] if s > own else axis.step(s).sizes
                 for s in steps]
            )  # fmt: skip
            distinct, member = np.unique(sizes, axis=1, return_inverse=True)
            out.append((steps, distinct, member.reshape(-1)))
        return tuple(out)

    @cached_property
    def class_shape(self) -> tuple[int, ...]:
        """The number of classes on every axis."""
        return tuple(sizes.shape[1] for _, sizes, _ in self._axes)

    def classes(self) -> Int64Array:
        """The class of every group, in the margin's shape, numbered in row-major order."""
        out = np.zeros((1,) * len(self._axes), np.int64)
        for a, (_, _, member) in enumerate(self._axes):
            out = out * self.class_shape[a] + along(member, a, len(self._axes))
        return np.broadcast_to(out, self.margin.shape)

    def squared(self) -> FloatArray:
        """|Π_N 1_G|² of every group, in the margin's shape; 0 for totals that are held.

        Π_R = Σ_k a_k P_k, and |P_k 1_G|² is a product over the axes: |g|²/|h| where k's group h
        contains g, and |g| where k is finer there.
        """
        dimensions = len(self._axes)
        whole = np.ones((1,) * dimensions)
        for a, (_, sizes, _) in enumerate(self._axes):
            whole = whole * along(sizes[0].astype(np.float64), a, dimensions)
        out = whole.copy()
        for k, factor in self.space.held.expansion.items():
            term = np.ones((1,) * dimensions)
            for a, (steps, sizes, _) in enumerate(self._axes):
                own = sizes[0].astype(np.float64)
                if k.steps[a] > steps[0]:
                    own = own**2 / np.maximum(sizes[steps.index(k.steps[a])], 1)
                term = term * along(own, a, dimensions)
            out = out - factor * term
        out[out < 1e-11 * whole] = 0.0  # rounding error of a difference that is zero
        for a, (_, _, member) in enumerate(self._axes):
            out = np.take(out, member, axis=a)
        return np.asarray(out)

    def profile(self, number: int) -> tuple[FloatArray, FloatArray]:
        """The values of Π_N 1_G other than zero for a class, and how often each occurs."""
        place = np.unravel_index(number, self.class_shape)
        dimensions = len(self._axes)
        counts = np.ones((1,) * dimensions)
        inside = np.ones((1,) * dimensions)
        for a, (_, sizes, _) in enumerate(self._axes):
            column = sizes[:, place[a]].astype(np.float64)
            counts = counts * along(np.diff(column, prepend=0.0), a, dimensions)
            inside = inside * along(_first(len(column)), a, dimensions)
        weights = inside
        for k, factor in self.space.held.expansion.items():
            term = np.ones((1,) * dimensions)
            for a, (steps, sizes, _) in enumerate(self._axes):
                column = sizes[:, place[a]].astype(np.float64)
                if k.steps[a] > steps[0]:
                    step = steps.index(k.steps[a])
                    share = column[0] / column[step] if column[step] else 0.0
                    here = np.where(np.arange(len(column)) <= step, share, 0.0)
                else:
                    here = _first(len(column))
                term = term * along(here, a, dimensions)
            weights = weights - factor * term
        weights, counts = weights.reshape(-1), counts.reshape(-1)
        kept = (counts > 0) & (np.abs(weights) > 1e-13)
        return weights[kept], counts[kept]


def corner_counts(plan: DigitPlan, margin: Margin) -> Int64Array:
    """How many coins enter the rounding of every group's total, in the margin's shape.

    A total is a signed sum of entries of the cumulative table, one for each border between the
    group and its neighbours in the merged order; each enters once, and those that the held margins
    determine are not rounded. Inclusion and exclusion over the held margins leaves products.
    """
    if not plan.needed:
        return np.zeros(margin.shape, np.int64)
    dimensions = len(plan.axes)
    total = np.zeros((1,) * dimensions, np.int64)
    essential = plan.held.essential
    for size in range(len(essential) + 1):
        for chosen in combinations(essential, size):
            term = np.ones((1,) * dimensions, np.int64)
            for a, axis in enumerate(plan.axes):
                ends = np.ones(len(axis), bool)
                for m in chosen:
                    run = axis.run(m)
                    ends &= run.place == run.sizes[run.group]
                borders = _borders(axis.codes(margin)[axis.order], axis.groups(margin), ends)
                term = term * along(borders, a, dimensions)
            total = total + (-1) ** size * term
    members = [b for axis in plan.axes for b in axis.members]
    out = total.reshape([margin.shape[b] for b in members])
    return np.ascontiguousarray(out.transpose(np.argsort(members)))


def _borders(groups: Int64Array, number: int, ends: npt.NDArray[np.bool_]) -> Int64Array:
    """For every group, at how many places marked in `ends` it has a border behind them."""
    following = np.append(groups[1:], -1)
    border = (groups != following) & ends
    out = np.bincount(groups[border], minlength=number)
    inner = border & (following >= 0)
    return np.asarray(out + np.bincount(following[inner], minlength=number), np.int64)


def _first(length: int) -> FloatArray:
    out = np.zeros(length)
    out[0] = 1.0
    return out
