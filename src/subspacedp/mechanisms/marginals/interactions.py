"""A workload taken apart: one tree axis, and interactions of the other axes at its levels.

A published margin is a level l of the tree axis and a margin B of the other axes. It is made of the
interactions τ that B determines: for each of them, a table of contrasts over the nodes of level l.
Contrasts of different interactions do not mix in least squares, so everything that follows is done
interaction by interaction; only the budget is shared. Where groupings of an axis are in use it is
the tree axis, and its levels are a tree only if none of them cross.

Tables here have the nodes of a level of the tree first, then one dimension for every other axis
(length 1 where it is summed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.errors import DomainError, ReleaseError
from subspacedp.frozen import frozen, remembered
from subspacedp.mechanisms.marginals.tree import Nodes, Overlap, Places, Tree
from subspacedp.tables import Axis, Domain, Margin, along
from subspacedp.tables.margin import sum_groups


@frozen(eq=False, repr=False)
class AxisSteps:
    """The steps of an axis that some margin uses, finest first; the last is all in one.

    The contrasts of a step are the deviations of its totals from an equal split of each parent's
    total: T(g) − T(parent)/k, the parent a group of the next step in use, k the number of groups
    in it. Groups without a label have no total and no contrast.
    """

    axis: Axis
    steps: tuple[int, ...]

    @classmethod
    def of(cls, axis: Axis, used: set[int]) -> AxisSteps:
        """Some steps of an axis, in order; groupings by how many groups they have."""
        top = axis.depth - 1
        if max(used) <= top:
            return cls(axis, tuple(sorted({*used, top})))
        fine = sorted(used - {top}, key=lambda step: (-axis.step(step).nonempty, step))
        return cls(axis, (*fine, top))

    @property
    def top(self) -> int:
        """The step that has everything in one group."""
        return self.steps[-1]

    @property
    def grouped(self) -> bool:
        """Whether some step is a grouping."""
        return max(self.steps) > self.top

    @property
    def crossing(self) -> bool:
        """Whether some steps cross, or leave labels out."""
        return self.grouped and not all(
            self.axis.determines(fine, coarse) and not self.axis.step(fine).has_holes
            for fine, coarse in pairwise(self.steps)
        )

    def above(self, step: int) -> int:
        """The next coarser step in use."""
        return self.steps[self.steps.index(step) + 1]

    def coarser(self, step: int) -> tuple[int, ...]:
        """The step itself and all coarser ones in use."""
        return self.steps[self.steps.index(step) :]

    @cached_property
    def _siblings(self) -> dict[int, Int64Array]:
        out = {}
        for step in self.steps[:-1]:
            present = self.axis.step(step).sizes > 0
            up = self.axis.parents(step, self.above(step))
            number = np.bincount(up[present], minlength=self.axis.step(self.above(step)).groups)
            out[step] = np.where(present, number[up], 0).astype(np.int64)
        return out

    def siblings(self, step: int) -> Int64Array:
        """For every group of a step how many its parent has, itself included; 0 for empty ones."""
        return self._siblings[step]

    def share(self, step: int) -> FloatArray:
        """1 − 1/k for every group of a step: the squared length of one record's contrast."""
        k = self.siblings(step)
        return np.where(k > 0, 1.0 - 1.0 / np.maximum(k, 1), 0.0)

    def dimension(self, step: int) -> int:
        """The number of independent contrasts of a step."""
        if step == self.top:
            return 1
        return self.axis.step(step).nonempty - self.axis.step(self.above(step)).nonempty

    def equal(self) -> bool:
        """Whether at every step all parents have equally many groups."""
        return all(len(set(k[k > 0].tolist())) == 1 for k in self._siblings.values())

    @remembered
    def path(self, fine: int, coarse: int) -> FloatArray:
        """The share of every fine group when a coarse total is split equally, step by step."""
        out = (self.axis.step(fine).sizes > 0).astype(np.float64)
        step = fine
        while step != coarse:
            k = self.siblings(step)[self.axis.parents(fine, step)]
            out = np.where(k > 0, out / np.maximum(k, 1), 0.0)
            step = self.above(step)
        return out

    def cost(self, fine: int, step: int, power: int) -> float:
        """Σ over fine groups of path² · share^power: how much noise on contrasts counts there."""
        path = self.path(fine, step)
        if step == self.top:
            return float(path @ path)
        share = self.share(step)[self.axis.parents(fine, step)]
        return float(np.square(path) @ share**power)

    def alike(self, step: int) -> Int64Array:
        """Classes of groups with equally many siblings at every step in use, all the way up."""
        if step == self.top:
            return np.zeros(1, np.int64)
        rows = [
            self.siblings(coarse)[self.axis.parents(step, coarse)]
            for coarse in self.coarser(step)[:-1]
        ]
        classes = np.unique(np.array(rows, np.int64), axis=1, return_inverse=True)[1]
        return np.asarray(classes.reshape(-1), np.int64)

    def kinds(self, step: int) -> Int64Array:
        """One group of every class that `alike` tells."""
        return np.asarray(np.unique(self.alike(step), return_index=True)[1], np.int64)

    def balanced(self, step: int) -> bool:
        """Whether groups of one parent have equally many labels."""
        sizes = self.axis.step(step).sizes
        up = self.axis.parents(step, self.above(step))
        present = sizes > 0
        largest = np.zeros(self.axis.step(self.above(step)).groups, np.int64)
        np.maximum.at(largest, up[present], sizes[present])
        return bool(np.array_equal(largest[up[present]], sizes[present]))

    def sum_up(self, values: AnyArray, fine: int, coarse: int, a: int) -> AnyArray:
        """Totals of coarse groups along dimension `a`."""
        if fine == coarse:
            return values
        up = self.axis.parents(fine, coarse)
        groups = self.axis.step(coarse).groups
        return sum_groups(values, up, groups, a, one=coarse == self.top)

    def spread(self, values: AnyArray, fine: int, coarse: int, a: int) -> AnyArray:
        """Every fine group's value of its coarse group; broadcast where there is only one."""
        if fine == coarse or coarse == self.top:
            return values
        return np.take(values, self.axis.parents(fine, coarse), axis=a)

    def same_parent(self, values: AnyArray, step: int, a: int) -> AnyArray:
        """For every group of a step the total of all groups of its parent."""
        up = self.above(step)
        return self.spread(self.sum_up(values, step, up, a), step, up, a)


MAX_INTERACTIONS = 1 << 17


@frozen
class Published:
    """A margin as a level of the tree and steps on the other axes."""

    level: int
    steps: tuple[int, ...]


@frozen
class Interaction:
    """Contrasts of some steps on the other axes, and where they occur.

    `finest` is the level at which a published margin contains them that determines the others,
    `exact` the finest levels at which a held one does: one at most in a tree. What is not
    `measured` follows from what is held and gets no noise.
    """

    steps: tuple[int, ...]
    finest: int
    exact: tuple[int, ...]
    measured: bool

    @property
    def held(self) -> int | None:
        """The finest level of a tree that is exact; None if none is."""
        return self.exact[0] if self.exact else None


@frozen(eq=False, repr=False, kw_only=True)
class Interactions:
    """The interactions of a workload, and how margins are made of their contrasts.

    Parameters
    ----------
    with_tree
        Whether the axis with the most unequal groups is treated as a tree; otherwise all axes are
        taken apart by nested contrasts.
    beside
        Margins that may be measured although they are not published.
    with_held
        Whether the held margins may be measured too.
    alike
        Whether levels that nest and have the same groups determine each other. Certificates of
        earlier versions have shares for each.

    Guarantees
    ----------
    1. `whole_contrasts` is exact in 64 bits, or refused.
    2. `table_from` of the contrasts of a table is that table.
    """

    domain: Domain
    workload: tuple[Margin, ...]
    held: tuple[Margin, ...]
    with_tree: bool = True
    beside: tuple[Margin, ...] = ()
    with_held: bool = False
    alike: bool = True

    # ------------------------------------------------------------------------ the axes

    @cached_property
    def _used(self) -> list[AxisSteps]:
        """On every axis of the domain the steps that some margin uses."""
        margins = (*self.workload, *self.held, *self.beside)
        return [
            AxisSteps.of(axis, {m.steps[a] for m in margins})
            for a, axis in enumerate(self.domain.axes)
        ]

    @cached_property
    def place(self) -> int | None:
        """The tree axis: that with groupings in use, or else the one with the most unequal groups.

        Axes whose groups are of equal size at every level need no tree: their nested contrasts are
        orthogonal.
        """
        grouped = [a for a, axis in enumerate(self._used) if axis.grouped]
        if len(grouped) > 1:
            named = " and ".join(f"`{self.domain.axes[a].name}`" for a in grouped)
            raise DomainError(
                f"Groupings of one axis can be measured, and these are of {named}; ask for those "
                "of one, and publish the others as sums of cells."
            )
        if grouped:
            return grouped[0]
        uneven = {a: _unevenness(axis) for a, axis in enumerate(self._used) if not _even(axis)}
        return max(uneven, key=lambda a: uneven[a]) if uneven and self.with_tree else None

    @cached_property
    def uneven_axes(self) -> tuple[str, ...]:
        """Other axes whose groups are of unequal size: best only up to a factor."""
        return tuple(axis.axis.name for axis in self.axes if not _even(axis))

    @cached_property
    def tree(self) -> Places:
        """The levels of the tree axis in use; a root alone where no axis needs a tree."""
        if self.place is None:
            return Tree(Axis("all", ["all"]), (1,))
        axis = self._used[self.place]
        if axis.crossing:
            return Overlap(axis.axis, axis.steps)
        return Tree(axis.axis, axis.steps, self.alike)

    @property
    def nested(self) -> bool:
        """Whether no levels in use cross."""
        return not isinstance(self.tree, Overlap)

    @property
    def as_tree(self) -> Tree:
        """The tree, where no levels in use cross."""
        if isinstance(self.tree, Tree):
            return self.tree
        raise ReleaseError(f"Groupings of `{self.tree.axis.name}` cross: they make no tree.")

    @property
    def as_overlap(self) -> Overlap:
        """The levels, where some cross."""
        if isinstance(self.tree, Overlap):
            return self.tree
        raise ReleaseError(f"The levels of `{self.tree.axis.name}` nest.")

    def of_labels(self, labels: Int64Array) -> Interactions:
        """The same workload of a domain with some labels of the tree axis alone."""
        axis = self.tree.axis
        kept: dict[str, Any] = {
            level.name: [None if c == level.groups else c for c in level.codes[labels].tolist()]
            for level in axis.named[1:]
        }
        coarser = {level.name for level in axis.chain}
        few = Axis(
            axis.name,
            range(len(labels)),
            levels={name: codes for name, codes in kept.items() if name in coarser},
            groupings={name: codes for name, codes in kept.items() if name not in coarser},
        )
        axes = [few if a == self.place else other for a, other in enumerate(self.domain.axes)]
        domain = Domain(axes)

        def same(margins: tuple[Margin, ...]) -> tuple[Margin, ...]:
            return tuple(Margin(tuple(axes), m.steps) for m in margins)

        return replace(
            self,
            domain=domain,
            workload=same(self.workload),
            held=same(self.held),
            beside=same(self.beside),
        )

    @cached_property
    def axes(self) -> tuple[AxisSteps, ...]:
        """The other axes, with the steps in use."""
        return tuple(axis for a, axis in enumerate(self._used) if a != self.place)

    def as_dict(self) -> dict[str, Any]:
        """On every axis the levels in use, finest first; the tree axis, if any.

        Everything in one group comes after the last of them.
        """
        return {
            "axes": [
                {"name": x.axis.name, "levels": [x.axis.step(s).name for s in x.steps[:-1]]}
                for x in self._used
            ],
            "tree": None if self.place is None else self.domain.axes[self.place].name,
        }

    def level_names(self, steps: Sequence[int]) -> list[str]:
        """The names of some steps on the other axes; without those that have all in one group."""
        return [self.axes[a].axis.step(steps[a]).name for a in self.kept(steps)]

    def locate(self, margin: Margin) -> Published:
        """A margin of the domain as a level of the tree and steps on the other axes."""
        others = tuple(s for a, s in enumerate(margin.steps) if a != self.place)
        if self.place is None:
            return Published(0, others)
        step = margin.steps[self.place]
        if step not in self.tree.steps:
            raise ReleaseError("This level of the tree axis is not in use.")
        return Published(self.tree.steps.index(step), others)

    def margin(self, level: int, steps: Sequence[int]) -> Margin:
        """The margin of the domain for a level of the tree and steps on the other axes."""
        out = list(steps)
        if self.place is not None:
            out.insert(self.place, self.tree.steps[level])
        return Margin(tuple(self.domain.axes), tuple(out))

    def to_nodes(self, table: AnyArray, level: int) -> AnyArray:
        """A table in a margin's shape with the nodes of the tree first."""
        if self.place is None:
            return table[None]
        return self.tree.gather(np.moveaxis(table, self.place, 0), level)

    def from_nodes(self, table: AnyArray, level: int) -> AnyArray:
        """The inverse of `to_nodes`; groups without labels get zeros."""
        if self.place is None:
            return np.asarray(table[0])
        return np.asarray(np.moveaxis(self.tree.scatter(table, level), 0, self.place))

    def tables_of(self, answers: AnyArray) -> list[tuple[Published, FloatArray]]:
        """Answers table by table, nodes of the tree first.

        They are those of the whole workload, or of its first tables alone.
        """
        flat, at, out = np.asarray(answers, np.float64).reshape(-1), 0, []
        for margin, where in zip(self.workload, self.published, strict=True):
            if at == flat.size:
                break
            block = flat[at : at + math.prod(margin.shape)]
            out.append((where, self.to_nodes(block.reshape(margin.shape), where.level)))
            at += block.size
        return out

    def node_of(self, place: Sequence[int], level: int) -> tuple[int, tuple[int, ...]]:
        """A place in a margin's shape as a node of the tree and groups of the other axes."""
        if self.place is None:
            return 0, tuple(place)
        node = int(np.flatnonzero(self.tree.groups[level] == place[self.place])[0])
        return node, tuple(g for a, g in enumerate(place) if a != self.place)

    # ------------------------------------------------------------------- the interactions

    @cached_property
    def published(self) -> tuple[Published, ...]:
        """The margins of the workload."""
        return tuple(self.locate(m) for m in self.workload)

    @cached_property
    def measured_beside(self) -> tuple[Published, ...]:
        """The margins that may be measured beside what is published.

        Of held ones those whose level no table with noise tells.
        """
        beside = [self.locate(m) for m in self.beside]
        for h in self.held_at if self.with_held else ():
            finer = (p for p in self.published if p.level == h.level and p != h)
            if not any(determines(p.steps, h.steps) for p in finer):
                beside.append(h)
        return tuple(beside)

    @cached_property
    def joint(self) -> Margin:
        """The coarsest of the levels in use that determines every margin of the workload."""
        steps = zip(self.domain.axes, *(m.steps for m in self.workload), strict=True)
        return Margin(tuple(self.domain.axes), tuple(_finest(axis, set(s)) for axis, *s in steps))

    @cached_property
    def held_at(self) -> tuple[Published, ...]:
        """The held margins."""
        return tuple(self.locate(m) for m in self.held)

    @cached_property
    def all(self) -> dict[tuple[int, ...], Interaction]:
        """All interactions that have a contrast at all, by their steps; coarse ones first."""
        levels, out = self._levels, {}
        for steps in sorted(levels, key=lambda s: (len(self.kept(s)), s)):
            if self.dimension(steps) > 0:
                out[steps] = self._interaction(steps, levels[steps])
        return out

    @cached_property
    def _levels(self) -> dict[tuple[int, ...], set[int]]:
        """By steps the levels at which margins that are published or beside have contrasts."""
        levels: dict[tuple[int, ...], set[int]] = {}
        for margin in (*self.published, *self.measured_beside):
            number = math.prod(
                len(axis.coarser(s)) for axis, s in zip(self.axes, margin.steps, strict=True)
            )
            if number > MAX_INTERACTIONS:
                raise DomainError(
                    f"A margin of the workload is made of {number:,} interactions, and at most "
                    f"{MAX_INTERACTIONS:,} can be taken apart; ask for margins of fewer axes."
                )
            for steps in self.below(margin.steps):
                levels.setdefault(steps, set()).add(margin.level)
            if len(levels) > MAX_INTERACTIONS:
                raise DomainError(
                    f"The margins of the workload are made of more than {MAX_INTERACTIONS:,} "
                    "interactions; ask for fewer margins, or for margins of fewer axes."
                )
        return levels

    def _interaction(self, steps: tuple[int, ...], levels: set[int]) -> Interaction:
        exact = self._exact(steps)
        if all(any(self.tree.determines(e, level) for e in exact) for level in levels):
            return Interaction(steps, min(levels), exact, measured=False)
        finest = self._telling(levels, exact)
        if finest is None:
            raise ReleaseError("Levels that cross need a finer one to be estimated from.")
        return Interaction(steps, finest, exact, measured=True)

    def _telling(self, levels: set[int], exact: tuple[int, ...]) -> int | None:
        """The first of some levels that determines the others and what is exact."""
        needed = levels | set(exact)
        able = (f for f in sorted(levels) if all(self.tree.determines(f, lv) for lv in needed))
        return next(able, None)

    def _exact(self, steps: tuple[int, ...]) -> tuple[int, ...]:
        """The finest levels at which what is held has contrasts of some steps."""
        out: list[int] = []
        for level in sorted({h.level for h in self.held_at if determines(h.steps, steps)}):
            if not any(self.tree.determines(fine, level) for fine in out):
                everything = self.tree.determines(self.tree.root, level)
                out.append(self.tree.root if everything else level)
        return tuple(out)

    def below(self, steps: Sequence[int]) -> list[tuple[int, ...]]:
        """The interactions that a margin of the other axes determines, coarse ones first."""
        each = [reversed(axis.coarser(s)) for axis, s in zip(self.axes, steps, strict=True)]
        return list(product(*each))

    def inside(self, steps: Sequence[int]) -> list[Interaction]:
        """The same, those without contrasts left out."""
        return [self.all[tau] for tau in self.below(steps) if tau in self.all]

    def taken(
        self, fine: Sequence[int], steps: Sequence[int], groups: Sequence[Int64Array]
    ) -> FloatArray:
        """What variances of some groups of a margin take of an interaction's: path² · ∏(1 − 1/k)².

        `groups` has those of every other axis at the steps of the margin.
        """
        out = np.ones(())
        for axis, f, step, some in zip(self.axes, fine, steps, groups, strict=True):
            if f == axis.top:
                out = out[..., None]  # one group, all of it
                continue
            factor = axis.path(f, step)[some]
            if step != axis.top:
                factor = factor * axis.share(step)[axis.axis.parents(f, step)[some]]
            out = np.multiply.outer(out, factor**2)
        return out

    @cached_property
    def measured(self) -> tuple[Interaction, ...]:
        """The interactions that get noise."""
        return tuple(i for i in self.all.values() if i.measured)

    def kept(self, steps: Sequence[int]) -> list[int]:
        """The other axes on which an interaction has contrasts."""
        return [a for a, axis in enumerate(self.axes) if steps[a] != axis.top]

    def dimension(self, steps: Sequence[int]) -> int:
        """The number of independent contrasts at one node."""
        return math.prod(self.axes[a].dimension(steps[a]) for a in self.kept(steps))

    @cached_property
    def orthogonal(self) -> bool:
        """Whether contrasts are orthogonal to what is held on the other axes.

        An interaction that no held margin contains differs from each of them on some axis. Where
        groups of one parent are all of one size there, nothing of the held totals is in it.
        """
        even = [{s for s in axis.steps[:-1] if axis.balanced(s)} for axis in self.axes]
        return all(
            determines(h.steps, i.steps)
            or any(i.steps[a] < h.steps[a] and i.steps[a] in even[a] for a in range(len(even)))
            for h in self.held_at
            for i in self.measured
        )

    # ----------------------------------------------------------- from totals to contrasts

    def shape(self, steps: Sequence[int]) -> tuple[int, ...]:
        """The number of groups on every other axis."""
        return tuple(axis.axis.step(s).groups for axis, s in zip(self.axes, steps, strict=True))

    def shares(self, steps: Sequence[int]) -> FloatArray:
        """∏ (1 − 1/k): the squared length of one record's contrasts, for every group."""
        return self._outer(steps, lambda axis, step: axis.share(step))

    def denominators(self, steps: Sequence[int]) -> FloatArray:
        """∏ k for every group, exact below 2**53; 0 for groups without labels."""
        return self._outer(steps, lambda axis, step: axis.siblings(step).astype(np.float64))

    def _outer(self, steps: Sequence[int], of_axis: Any) -> FloatArray:
        out: AnyArray = np.ones((1,) * len(self.axes))
        for a in self.kept(steps):
            out = out * along(of_axis(self.axes[a], steps[a]), a, len(self.axes))
        return out

    def whole_contrasts(self, totals: Int64Array, steps: Sequence[int], fine: int) -> Int64Array:
        """`fine` · ∏k · contrasts, from totals, in exact integers."""
        largest = float(np.abs(totals).max(initial=0)) * float(self.denominators(steps).max())
        if 2.0 ** len(self.kept(steps)) * largest * fine >= 2.0**62:
            raise ReleaseError(
                "The totals times their denominators leave 64 bits; ask for margins of fewer cells."
            )
        out = totals * np.int64(fine)
        for a in self.kept(steps):
            axis, step = self.axes[a], steps[a]
            k = along(axis.siblings(step), a + 1, out.ndim)
            out = np.where(k > 0, k * out - axis.same_parent(out, step, a + 1), 0)
        return np.asarray(out, np.int64)

    def contrasts(self, totals: AnyArray, steps: Sequence[int]) -> FloatArray:
        """Totals minus the mean over the groups of one parent, axis by axis."""
        out = np.asarray(totals, np.float64)
        for a in self.kept(steps):
            axis, step = self.axes[a], steps[a]
            k = along(axis.siblings(step), a + 1, out.ndim)
            out = np.where(k > 0, out, 0.0)  # what is said of a group without labels is ignored
            out = np.where(k > 0, out - axis.same_parent(out, step, a + 1) / np.maximum(k, 1), 0.0)
        return out

    # ----------------------------------------------------------- between contrasts and tables

    def spread(
        self, values: FloatArray, steps: Sequence[int], to: Sequence[int], power: int = 1
    ) -> FloatArray:
        """What contrasts add to a table of finer steps, split equally; with power 2 variances."""
        out = values
        for a, axis in enumerate(self.axes):
            fine, coarse = to[a], steps[a]
            if fine != coarse:
                weights = along(axis.path(fine, coarse) ** power, a + 1, out.ndim)
                out = axis.spread(out, fine, coarse, a + 1) * weights
        return out

    def gather(self, weights: FloatArray, steps: Sequence[int], to: Sequence[int]) -> FloatArray:
        """The adjoint of `spread`: weights on coarser steps from weights on a table."""
        out = weights
        for a, axis in enumerate(self.axes):
            fine, coarse = steps[a], to[a]
            if fine != coarse:
                out = axis.sum_up(
                    out * along(axis.path(fine, coarse), a + 1, out.ndim), fine, coarse, a + 1
                )
        return out

    def sum_up(self, table: AnyArray, steps: Sequence[int], to: Sequence[int]) -> AnyArray:
        """Totals of coarser steps from those of finer ones."""
        out = table
        for a, axis in enumerate(self.axes):
            out = axis.sum_up(out, steps[a], to[a], a + 1)
        return out

    def totals_of(
        self, nodes: Nodes, table: Int64Array, steps: Sequence[int], level: int = 0
    ) -> Callable[[int, tuple[int, ...]], Int64Array]:
        """The totals of all coarser tables at some nodes, by level and steps."""
        at_level = {level: table}

        def of(coarse: int, to: tuple[int, ...]) -> Int64Array:
            if coarse not in at_level:
                fine = max(known for known in at_level if nodes.determines(known, coarse))
                at_level[coarse] = nodes.climb(at_level[fine], fine, coarse)
            return self.sum_up(at_level[coarse], steps, to)

        return of

    def table_from(
        self, contrasts: Mapping[tuple[int, ...], FloatArray], steps: Sequence[int]
    ) -> FloatArray:
        """A table from the contrasts, at its nodes, of all interactions it contains."""
        out = np.zeros((len(next(iter(contrasts.values()))), *self.shape(steps)))
        for interaction in self.inside(steps):
            out += self.spread(contrasts[interaction.steps], interaction.steps, steps)
        return out

    def source(self, interaction: Interaction, number: int) -> int:
        """The smallest of the first so many published tables that has an interaction at its finest.

        Every interaction occurs in some published table at its finest level.
        """
        able = [
            t
            for t, table in enumerate(self.published[:number])
            if table.level == interaction.finest and determines(table.steps, interaction.steps)
        ]
        return min(able, key=lambda t: math.prod(self.shape(self.published[t].steps)))

    def contrasts_from(self, tables: Sequence[FloatArray], interaction: Interaction) -> FloatArray:
        """The contrasts of an interaction at its finest level, from published tables."""
        t = self.source(interaction, len(tables))
        return self.contrasts(
            self.sum_up(tables[t], self.published[t].steps, interaction.steps), interaction.steps
        )

    def weights_to(
        self, tables: Sequence[FloatArray], interaction: Interaction, weights: FloatArray
    ) -> None:
        """The adjoint of `contrasts_from`: adds weights of contrasts to those of the tables."""
        t = self.source(interaction, len(tables))
        spread = self.contrasts(weights, interaction.steps)
        for a, axis in enumerate(self.axes):
            spread = axis.spread(spread, self.published[t].steps[a], interaction.steps[a], a + 1)
        tables[t] += spread

    def cost(self, steps: Sequence[int], to: Sequence[int]) -> float:
        """Σ over the cells of a table of what unit noise on an interaction adds to variances."""
        return math.prod(
            axis.cost(fine, step, 2)
            for axis, fine, step in zip(self.axes, to, steps, strict=True)
            if fine != axis.top
        )


def determines(fine: Sequence[int], coarse: Sequence[int]) -> bool:
    """Whether a margin of the other axes determines another one, by their steps."""
    return all(s <= t for s, t in zip(fine, coarse, strict=True))


def _finest(axis: Axis, steps: set[int]) -> int:
    """The one of some steps of an axis that determines the others, or else its labels."""
    able = (s for s in sorted(steps) if all(axis.determines(s, other) for other in steps))
    return next(able, 0)


def _even(axis: AxisSteps) -> bool:
    """Whether nested contrasts are orthogonal: groups of one parent have equally many labels."""
    return axis.equal() and all(axis.balanced(step) for step in axis.steps[:-1])


def _unevenness(axis: AxisSteps) -> float:
    """How unequal the groups of one parent are, over all steps in use."""
    out = 0.0
    for step in axis.steps[:-1]:
        k = axis.siblings(step)
        k = k[k > 0]
        if k.size:
            out = max(out, math.log(float(k.max()) / float(k.min())))
    return out + math.log(len(axis.axis)) * 1e-3
