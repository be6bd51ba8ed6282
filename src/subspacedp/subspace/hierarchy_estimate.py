"""The leaf table of least error from measurements at several levels, held margins exact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.subspace.hierarchy import ZERO, LevelTree, TreeGains
from subspacedp.subspace.margins import MarginNullSpace
from subspacedp.subspace.profiles import GroupProfiles
from subspacedp.tables import Axis, Domain, Margin

__all__ = ["LevelEstimate"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LevelEstimate:
    """Least squares over the levels of one axis of a table, in linear time.

    Parameters
    ----------
    space
        The null space of the held margins, on the whole table.
    place
        Which axis has the levels.
    precision
        One over the variance of the noise, by step of that axis; step 0, the labels, is there.
    constrained
        True: held totals enter the least squares, for the least error of all linear unbiased
        estimates from the measurements and the held totals. False: the estimate without them is
        projected, Π_N x̃ + C⁺c, for the least error of those whose part in N does not depend on c.

    Guarantees
    ----------
    1. The estimate is linear, unbiased and of least variance within its kind, for every weighted
       sum of cells at once (Gauss–Markov; docs/proofs/hierarchies.md).
    2. All levels agree: they are sums of one leaf table.

    Notes
    -----
    Rows: the first dimension of arrays runs over the nodes of a level, the second over the cells
    of the other axes.
    """

    space: MarginNullSpace
    place: int
    precision: Mapping[int, float]
    constrained: bool
    also: tuple[int, ...] = ()  # steps whose totals are asked about without being measured

    @property
    def held(self) -> HeldMargins:
        """The held margins."""
        return self.space.held

    @property
    def axis(self) -> Axis:
        """The axis with the levels."""
        return self.space.domain.axes[self.place]

    @cached_property
    def others(self) -> tuple[Axis, ...]:
        """The other axes."""
        axes = self.space.domain.axes
        return tuple(axis for a, axis in enumerate(axes) if a != self.place)

    @cached_property
    def tree(self) -> LevelTree:
        """The levels in use: measured, held, asked about, and all in one."""
        held = {m.steps[self.place] for m in self.held.essential}
        used = {0, *self.precision, *held, *self.also, self.axis.depth - 1}
        return LevelTree(self.axis, tuple(sorted(used)))

    @cached_property
    def gains(self) -> TreeGains:
        """The variances on the tree."""
        return TreeGains(self.tree, [self.precision.get(s, 0.0) for s in self.tree.steps])

    @cached_property
    def measured(self) -> tuple[int, ...]:
        """The levels of the tree above the labels that are measured."""
        return tuple(i for i, s in enumerate(self.tree.steps) if i and self.precision.get(s, 0.0))

    @property
    def cells(self) -> int:
        """The number of cells of the other axes."""
        return math.prod(len(axis) for axis in self.others)

    def sizes(self) -> list[int]:
        """How many numbers are measured: of the table, then of each measured level above it."""
        return [self.space.size, *(self.tree.nodes(i) * self.cells for i in self.measured)]

    def rows(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A table in the domain's shape as rows, one a label in the order of the tree."""
        out = np.moveaxis(table, self.place, 0).reshape(len(self.axis), self.cells)
        return out if self.tree.order is None else out[self.tree.order]

    def table(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Rows of labels back in the domain's shape."""
        if self.tree.order is not None:
            ordered = np.empty_like(rows)
            ordered[self.tree.order] = rows
            rows = ordered
        shape = (len(self.axis), *(len(axis) for axis in self.others))
        return np.ascontiguousarray(np.moveaxis(rows.reshape(shape), 0, self.place))

    def sums(self, rows: npt.NDArray[Any]) -> dict[int, npt.NDArray[Any]]:
        """The totals of every measured level above the labels, from rows of labels."""
        out, at = {}, 0
        for i in self.measured:
            for level in range(at + 1, i + 1):
                rows = self.tree.up(level, rows)
            out[i], at = rows, i
        return out

    def correction(
        self, found: Mapping[int, FloatArray], residual: HeldValues | None = None
    ) -> FloatArray:
        """What least squares adds to measured labels, as rows.

        Parameters
        ----------
        found
            For every measured level above the labels its measurement minus the sums of the
            measured labels: noise alone.
        residual
            For a constrained estimate C·labels − c, one array a held margin; None for zero.
        """
        tree, gains = self.tree, self.gains
        sums: list[Any] = [0.0, 0.0]
        own: list[Any] = [0.0]
        for i in range(1, tree.top + 1):
            if i > 1:
                sums.append(tree.up(i, own[-1]) if np.ndim(own[-1]) else 0.0)
            t = gains.precision[i]
            if i in found:
                below = gains.below[i][:, None]
                own.append((sums[i] + t * below * found[i]) / (1 + t * below))
            else:
                own.append(sums[i])
        totals = self._imposed(tree.top, own[tree.top], residual)
        for i in range(tree.top, 0, -1):
            left = totals - sums[i]
            left = np.broadcast_to(left, (tree.nodes(i), self.cells))
            if i > 1:
                parts = own[i - 1] + gains.gain(i)[:, None] * tree.down(i, left)
            else:
                parts = tree.down(1, left / tree.parts[1][:, None])
            totals = self._imposed(i - 1, parts, residual)
        return np.asarray(totals)

    def solve(self, weights: FloatArray) -> FloatArray:
        """V·w as rows, for weights in N and in the domain's shape; V is the covariance inside N."""
        first = self.rows(weights) / self.precision[0]
        found = {i: -total for i, total in self.sums(first).items()}
        return np.asarray(first + self.correction(found))

    # --------------------------------------------------------------------- exact totals on the way

    @cached_property
    def _spaces(self) -> dict[int, tuple[MarginNullSpace, list[int]]]:
        """For every level with held margins: those held there or below, on the level's own table.

        With each space come the numbers of the margins in the held family.
        """
        out = {}
        for i in self._held_levels:
            groups = Axis(self.axis.name, range(self.tree.nodes(i)))
            found, numbers = self._family(i)
            domain = Domain([groups, *self.others])
            margins = tuple(Margin(tuple(domain.axes), (0, *steps)) for steps in found)
            out[i] = MarginNullSpace(HeldMargins(domain=domain, margins=margins)), numbers
        return out

    @cached_property
    def _held_levels(self) -> tuple[int, ...]:
        """The levels of the tree at which an essential margin is held."""
        steps = {m.steps[self.place] for m in self.held.essential}
        return tuple(self.tree.steps.index(s) for s in sorted(steps))

    def _family(self, level: int) -> tuple[list[tuple[int, ...]], list[int]]:
        """The levels on the other axes of the margins held at a level or below it."""
        found: dict[tuple[int, ...], int] = {}
        for number, m in enumerate(self.held.margins):
            if m in self.held.essential and m.steps[self.place] <= self.tree.steps[level]:
                others = tuple(s for a, s in enumerate(m.steps) if a != self.place)
                found.setdefault(others, number)
        return list(found), list(found.values())

    def _imposed(self, level: int, totals: Any, residual: HeldValues | None) -> Any:
        """Totals of a level with the part that is known there put in its place."""
        if not self.constrained or level not in self._spaces:
            return totals
        space, numbers = self._spaces[level]
        full = np.broadcast_to(totals, (self.tree.nodes(level), self.cells))
        out = space.project(full.reshape(space.shape))
        if residual is not None:
            out -= space.lift(tuple(self._known(level, k, residual) for k in numbers))
        return out.reshape(full.shape)

    def _known(self, level: int, number: int, residual: HeldValues) -> npt.NDArray[Any]:
        """The values of a held margin, summed to the groups of a level, nodes first."""
        margin = self.held.margins[number]
        steps = tuple(
            self.tree.steps[level] if a == self.place else s for a, s in enumerate(margin.steps)
        )
        totals = margin.coarsen(residual[number], Margin(margin.axes, steps))
        return np.moveaxis(totals, self.place, 0)[self.tree.ids[level]]

    # ------------------------------------------------------------------------------- variances

    @cached_property
    def components(self) -> list[tuple[int | None, MarginNullSpace | None]]:
        """The parts of the other axes by the finest level at which they are held.

        Each with the null space, on the other axes, of what is held at that level or below; the
        last one, held nowhere, has none.
        """
        held = [(i, self._other_space(self._family(i)[0])) for i in self._held_levels]
        return [*held, (None, None)]

    def _other_space(self, family: Sequence[tuple[int, ...]]) -> MarginNullSpace:
        domain = Domain([Axis(self.axis.name, range(1)), *self.others])
        margins = tuple(Margin(tuple(domain.axes), (0, *steps)) for steps in family)
        return MarginNullSpace(HeldMargins(domain=domain, margins=margins))

    @cached_property
    def dimensions(self) -> list[tuple[int | None, int]]:
        """The number of dimensions of every component of the other axes."""
        out: list[tuple[int | None, int]] = []
        before = 0
        for level, space in self.components:
            rank = self.cells if space is None else space.rank
            out.append((level, rank - before))
            before = rank
        return out

    def group_variance(self, margin: Margin) -> FloatArray:
        """The variance of every group total of a margin, in its shape; rounding left out.

        The covariance is Σ_h V_h ⊗ E_h over the components of the other axes, so the variance of a
        group is Σ_h (variance on the tree)·|E_h 1|².
        """
        step = margin.steps[self.place]
        if step not in self.tree.steps:
            return self.asking(step).group_variance(margin)
        level = self.tree.steps.index(step)
        steps = (0, *(s for a, s in enumerate(margin.steps) if a != self.place))
        domain = Domain([Axis(self.axis.name, range(1)), *self.others])
        sizes = Margin(tuple(domain.axes), steps).sizes.astype(np.float64)
        total: Any = 0.0
        outside = sizes
        for held, space in self.components:
            inside = (
                np.zeros(sizes.shape)
                if space is None
                else GroupProfiles(space, Margin(tuple(space.domain.axes), steps)).squared()
            )
            share, outside = outside - inside, inside
            share = np.where(share > ZERO * sizes, share, 0.0)
            on_tree = self.gains.total_variances(held, constrained=self.constrained)[level]
            if level == 0:
                on_tree = self.tree.down(1, on_tree)
            total = total + np.multiply.outer(on_tree, share)
        groups = self.axis.step(step).groups
        out = np.zeros((groups, *total.shape[2:]))
        out[self.tree.ids[level]] = total[:, 0]
        return np.ascontiguousarray(np.moveaxis(out, 0, self.place))

    def asking(self, *steps: int) -> LevelEstimate:
        """The same estimate, ready to be asked about the totals of further levels."""
        return LevelEstimate(
            space=self.space,
            place=self.place,
            precision=self.precision,
            constrained=self.constrained,
            also=(*self.also, *steps),
        )
