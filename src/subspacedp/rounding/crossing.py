"""Controlled rounding where held classifications of one axis cross, two at a time.

Along the other axes it is what `MarginRounding` does: order the positions so that the groups of
held margins are runs, and cumulate, here afresh within every group that all held margins tell
apart. What is cumulated up to one position is a vector over the labels of the crossing axis. The
held margins with a run that ends there fix its totals for their classifications, of which two at
most are not determined by others: whole numbers already. So round the vector in a basis of short
cycles (`CycleBasis`), whose coordinates are rounded at random, each by itself; totals never change.
Then take differences back.

The cycles are a basis of what leaves all totals of two crossing classifications as they are. Labels
are the edges of a graph that joins their group of the one classification to their group of the
other; a label in no group ends at a node without a total, the ground. A vector on the edges leaves
every total as it is if its values around every node but the ground add up to zero. Along a cycle,
values +1 and −1 in turn are such a vector; along one through the ground the turn may break there,
and a label in no group on either side is one by itself.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property, reduce
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array, WordArray
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.frozen import frozen, remembered
from subspacedp.invariants.crossing import CrossingNullSpace, Crossings
from subspacedp.invariants.held import HeldValues
from subspacedp.rounding.controlled import ControlledRounding, WordSource
from subspacedp.rounding.margins import LIMIT
from subspacedp.rounding.merged import MergedAxis, fewest_merged_axes
from subspacedp.tables import Axis, Domain, Margin


@frozen(eq=False, repr=False, kw_only=True)
class CycleBasis:
    """A lattice basis of {v whole : all totals of v are zero}, for labels in up to two groups.

    Parameters
    ----------
    starts, edges, signs
        Cycle j is `edges[starts[j]:starts[j + 1]]` with those signs. Its first edge, its *key*, has
        the sign +1 and is in no later cycle.
    tree, leaves, parents
        The edges that are no key, in an order in which each is the last one left at its leaf;
        `parents` are the nodes at their other ends.
    ends
        (2, labels) the nodes of every edge; `nodes` have totals, and the ground comes after them.

    Guarantees
    ----------
    1. The cycles with their signs are a basis, over the whole numbers, of all whole vectors whose
       totals are zero: keys make a triangular matrix with ones on its diagonal.
    2. The same labels and groups give the same basis on every machine.

    Notes
    -----
    Rounding adds to a label a share of every cycle through it, so cycles should be short and few
    through any label. Labels that share both groups make cycles of two, one after the other. Then,
    as long as there is an edge on a cycle, the one that most cycles go through so far becomes the
    key of a shortest cycle through it, and goes. For a
    rule like this Freedman and Hastings ("Building manifolds from quantum codes", 2021) prove that
    O(log²) cycles go through an edge; of this one it is counted: `most`.
    """

    starts: Int64Array
    edges: Int64Array
    signs: Int64Array
    tree: Int64Array
    leaves: Int64Array
    parents: Int64Array
    ends: Int64Array
    nodes: int

    @classmethod
    def of(cls, codes: Int64Array, groups: tuple[int, ...]) -> CycleBasis:
        """By the group of every label, `groups` for none, in no, one or two classifications."""
        n = codes.shape[1]
        ground = sum(groups)
        ends = np.full((2, n), ground, np.int64)
        shift = 0
        for side, (row, number) in enumerate(zip(codes, groups, strict=True)):
            ends[side] = np.where(row < number, row + shift, ground)
            shift += number
        cycles: list[list[int]] = []
        free = np.flatnonzero((ends == ground).all(axis=0))
        cycles.extend([edge] for edge in free.tolist())
        others = np.flatnonzero((ends != ground).any(axis=0))
        order = others[np.lexsort((others, ends[1, others], ends[0, others]))]
        same = np.all(ends[:, order[:-1]] == ends[:, order[1:]], axis=0)
        cycles.extend(
            [one, other] for one, other in zip(
                order[:-1][same].tolist(), order[1:][same].tolist(), strict=True
            )
        )  # fmt: skip
        last = np.append(~same, True) if order.size else np.zeros(0, bool)
        graph = _Graph(ends, order[last], ground)
        cycles.extend(graph.cycles())
        lengths = np.array([len(cycle) for cycle in cycles], np.int64)
        tree, leaves, parents = _peeled(graph.bridges, ends, ground)
        flat = [edge for cycle in cycles for edge in cycle]
        pairs = dict(enumerate(zip(*ends.tolist(), strict=True)))
        signs = [sign for cycle in cycles for sign in _signs(cycle, pairs, ground)]
        return cls(
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            edges=np.array(flat, np.int64),
            signs=np.array(signs, np.int64),
            tree=tree,
            leaves=leaves,
            parents=parents,
            ends=ends,
            nodes=ground,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def matrix(self) -> Any:
        """B: a row for every label, a column for every cycle."""
        from scipy.sparse import csc_array

        shape = (self.ends.shape[1], len(self))
        return csc_array((self.signs.astype(np.float64), self.edges, self.starts), shape=shape)

    @cached_property
    def through(self) -> Int64Array:
        """How many cycles go through every label."""
        return np.bincount(self.edges, minlength=self.ends.shape[1]).astype(np.int64)

    @property
    def most(self) -> int:
        """The largest number of cycles through a label."""
        return int(self.through.max(initial=0))


class _Graph:
    """Edges with distinct ends, taken away one by one as keys of cycles."""

    def __init__(self, ends: Int64Array, edges: Int64Array, ground: int) -> None:
        self.ground = ground
        self.ends = {e: (a, b) for e, a, b in zip(
            edges.tolist(), ends[0, edges].tolist(), ends[1, edges].tolist(), strict=True
        )}  # fmt: skip
        self.around: dict[int, dict[int, int]] = {}  # node → edge → the node at its other end
        for edge, (a, b) in self.ends.items():
            self.around.setdefault(a, {})[edge] = b
            self.around.setdefault(b, {})[edge] = a
        self.passed = dict.fromkeys(self.ends, 0)
        self.bridges: list[int] = []

    def cycles(self) -> list[list[int]]:
        """A cycle for every edge that is on one when its turn comes; the others are bridges."""
        out: list[list[int]] = []
        self._strip(self.around)
        queue = [(0, edge) for edge in self.ends]
        heapify(queue)
        while queue:
            passed, key = heappop(queue)
            if key not in self.ends or -passed != self.passed[key]:
                continue
            a, b = self.ends[key]
            self._take(key)
            path = self._path(a, b)
            if path is None:  # no cycle goes through it, now or later
                self.bridges.append(key)
            else:
                for edge in path:
                    self.passed[edge] += 1
                    heappush(queue, (-self.passed[edge], edge))
                out.append([key, *path])
            self._strip((a, b))
        return out

    def _take(self, edge: int) -> None:
        a, b = self.ends.pop(edge)
        del self.around[a][edge], self.around[b][edge]

    def _strip(self, nodes: Any) -> None:
        """Take away edges at nodes that have no other: no cycle goes through them."""
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if len(self.around[node]) == 1:
                ((edge, other),) = self.around[node].items()
                self._take(edge)
                self.bridges.append(edge)
                waiting.append(other)

    def _path(self, start: int, goal: int) -> list[int] | None:
        """Edges of a shortest path from the goal to the start, searched from both ends."""
        sides: list[dict[int, tuple[int, int]]] = [{start: (-1, -1)}, {goal: (-1, -1)}]
        fronts = [deque([start]), deque([goal])]
        while fronts[0] and fronts[1]:
            side = 0 if len(fronts[0]) <= len(fronts[1]) else 1
            seen, other = sides[side], sides[1 - side]
            for _ in range(len(fronts[side])):
                node = fronts[side].popleft()
                for edge, beyond in self.around[node].items():
                    if beyond in seen:
                        continue
                    seen[beyond] = (edge, node)
                    if beyond in other:
                        return _traced(sides[1], beyond)[::-1] + _traced(sides[0], beyond)
                    fronts[side].append(beyond)
        return None


def _signs(cycle: list[int], ends: dict[int, tuple[int, int]], ground: int) -> list[int]:
    """+1 and −1 in turn along a closed walk; of odd length, but for one step at the ground.

    Every edge joins a group of the one classification to one of the other, so only walks through
    the ground, which stands for no group on either side, can have odd length.
    """
    out, odd = [1], len(cycle) % 2 == 1
    for one, other in pairwise(cycle):
        broken = odd and ground in ends[one] and ground in ends[other]
        out.append(out[-1] if broken else -out[-1])
    return out


def _traced(seen: dict[int, tuple[int, int]], node: int) -> list[int]:
    out = []
    while seen[node][0] >= 0:
        edge, node = seen[node]
        out.append(edge)
    return out


def _peeled(
    edges: list[int], ends: Int64Array, ground: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The edges of a forest, leaves first; the ground is never a leaf."""
    around: dict[int, dict[int, int]] = {}
    for edge in edges:
        a, b = ends[:, edge].tolist()
        around.setdefault(a, {})[edge] = b
        around.setdefault(b, {})[edge] = a
    out: list[tuple[int, int, int]] = []
    waiting = [node for node, beside in around.items() if len(beside) == 1]
    while waiting:
        node = waiting.pop()
        if node == ground or len(around[node]) != 1:
            continue
        ((edge, parent),) = around[node].items()
        out.append((edge, node, parent))
        del around[node][edge], around[parent][edge]
        if len(around[parent]) == 1:
            waiting.append(parent)
    table = np.array(out, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


MOST_PAIRS = 1 << 24  # of groups with positions, beside the crossing axis


@frozen(eq=False, repr=False)
class _Fixed:
    """The positions beside the crossing axis where the same held margins have ends."""

    positions: Int64Array
    margins: tuple[int, ...]  # by their numbers, one for each classification of the basis
    basis: CycleBasis


@frozen(eq=False, repr=False)
class CrossingRounding(ControlledRounding):
    """Rounding in bases of short cycles, cumulated along the other axes (`crossing.py`).

    Guarantees
    ----------
    1. Totals of all held margins are exact integers, whatever the dither
       (docs/proofs/crossing-digits.md).
    2. `variance` counts the cycles through every label: nothing but the groups decides it.
    """

    space: CrossingNullSpace

    @property
    def of(self) -> Crossings:
        """The classifications that cross."""
        return self.space.crossings

    @cached_property
    def _others(self) -> tuple[int, ...]:
        """The numbers of the other axes."""
        return tuple(a for a in range(len(self.of.domain.axes)) if a != self.of.place)

    @cached_property
    def _flat(self) -> tuple[Domain, tuple[Margin, ...]]:
        """The other axes as a domain, and the held margins there; one position if there is none."""
        axes = tuple(self.of.domain.axes[a] for a in self._others) or (Axis("none", range(1)),)
        domain = Domain(axes)
        steps = (tuple(m.steps[a] for a in self._others) or (0,) for m in self.of.margins)
        return domain, tuple(Margin(axes, s) for s in steps)

    @cached_property
    def axes(self) -> tuple[MergedAxis, ...]:
        """The other axes, merged into as few as the held margins allow."""
        return fewest_merged_axes(*self._flat)

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    @cached_property
    def _coarsest(self) -> Margin:
        """What all held margins determine: sums are cumulated within its groups."""
        return reduce(lambda one, other: one.meet(other), self._flat[1])

    @cached_property
    def _begins(self) -> tuple[Int64Array, ...]:
        """For every position of each merged axis, where its group of the coarsest margin begins."""
        runs = [axis.run(self._coarsest) for axis in self.axes]
        return tuple(np.arange(len(run.place)) - run.place + 1 for run in runs)

    @cached_property
    def fixed(self) -> tuple[_Fixed, ...]:
        """The positions by what is held there; refuses three classifications at once."""
        pattern = np.zeros(self._shape, np.int64)
        for i, flat in enumerate(self._flat[1]):
            ends = np.ones(self._shape, bool)
            for a, axis in enumerate(self.axes):
                run = axis.run(flat)
                shape = [1] * len(self.axes)
                shape[a] = -1
                ends &= (run.place == run.sizes[run.group]).reshape(shape)
            pattern |= ends.astype(np.int64) << i
        out, bases = [], {}
        for number in np.unique(pattern).tolist():
            chosen = [i for i in range(len(self.of.margins)) if number >> i & 1]
            steps = self.of.finest([self.of.margins[i] for i in chosen])
            if len(steps) > 2:
                named = ", ".join(self._name(s) for s in steps)
                raise InvariantError(
                    f"Digits can add up for two classifications of `{self.of.axis.name}` that "
                    f"cross, and {named} are held together; hold two of them, or publish real "
                    "values (decimals=None)."
                )
            sources = tuple(
                next(i for i in chosen if self.of.margins[i].steps[self.of.place] == step)
                for step in steps
            )
            if steps not in bases:
                levels = [self.of.axis.step(step) for step in steps]
                codes = np.array([level.codes for level in levels], np.int64)
                bases[steps] = CycleBasis.of(
                    codes.reshape(len(levels), len(self.of.axis)),
                    tuple(level.groups for level in levels),
                )
            positions = np.flatnonzero(pattern.reshape(-1) == number)
            out.append(_Fixed(positions, sources, bases[steps]))
        return tuple(out)

    def _name(self, step: int) -> str:
        level = self.of.axis.step(step)
        return f"`{level.name}`" if level.name else "the total"

    @cached_property
    def needed(self) -> bool:
        """Whether a lifted integer residual can miss the grid at all: not where nothing is free."""
        return any(len(part.basis) for part in self.fixed)

    @property
    def most(self) -> int:
        """The largest number of roundings that enter a cell."""
        through = max((part.basis.most for part in self.fixed), default=0)
        return int(through * 2 ** sum(bool(np.any(np.diff(b) == 0)) for b in self._begins))

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            "random rounding in a basis of cycles of the graph that joins crossing groups by their "
            f"labels, at most {self.most} roundings a cell, to multiples of 10**-{self.decimals}, "
            "independent of the noise; a bound on its variance is in every stated error"
        )

    def round_in_place(
        self, noisy: Int64Array, residual: HeldValues, dither: WordSource
    ) -> Int64Array:
        """10**decimals · noisy − R with C R = 10**decimals · r."""
        held, r = self.space.held, np.asarray(residual[0], np.int64)
        if r.size and int(np.abs(r).max()) >= LIMIT // self.step:
            raise ReleaseError(
                f"The totals are too large for {self.decimals} decimals; ask for fewer."
            )
        scaled = r * self.step
        lifted = self.space.lift((scaled,))
        whole = np.rint(lifted)
        lifted -= whole  # at most a half, so that cumulated entries stay small
        whole = whole.astype(np.int64)
        rest = scaled - held.sums(whole)[0]
        words = dither.words(0, noisy.size) if self.needed else np.zeros(noisy.size, np.uint64)
        return noisy * self.step - whole - self._rounded(lifted, rest, words)

    def _rounded(self, lifted: FloatArray, residual: Int64Array, words: WordArray) -> Int64Array:
        """Whole numbers with these totals and this mean."""
        labels = len(self.of.axis)
        cumulated = self._cumulated(self._from_domain(lifted)).reshape(-1, labels)
        dither = words.reshape(-1, labels)
        totals = dict(self.space.held.totals((residual,)))
        out = np.zeros(cumulated.shape, np.int64)
        for part in self.fixed:
            at, basis = part.positions, part.basis
            known = [
                self._totals_up_to(i, totals[self.of.margins[i]]).reshape(-1, groups)[at]
                for i, groups in zip(part.margins, self._groups(part), strict=True)
            ]
            entry = _coordinates(basis, cumulated[at].T)
            entry += (dither[at, : len(basis)].T >> np.uint64(12)) * 2.0**-52
            steps = np.floor(entry).astype(np.int64)
            values = basis.matrix.astype(np.int64) @ steps
            _add_tree(basis, values, [t.T for t in known])
            out[at] = values.T
        rounded = self._differences(out.reshape(*self._shape, labels))
        return np.asarray(self._to_domain(rounded), np.int64)

    def _groups(self, part: _Fixed) -> list[int]:
        return [self.of.axis.step(self.of.margins[i].steps[self.of.place]).groups
                for i in part.margins]  # fmt: skip

    def _totals_up_to(self, number: int, totals: Int64Array) -> Int64Array:
        """A held margin's totals, cumulated up to every position: right where its runs end."""
        arranged, flat = np.moveaxis(totals, self.of.place, -1), self._flat[1][number]
        groups = arranged.shape[-1]
        if self._others:
            members = [b for axis in self.axes for b in axis.members]
            arranged = arranged.transpose(*members, len(members))
        arranged = arranged.reshape(*(axis.groups(flat) for axis in self.axes), groups)
        for a, axis in enumerate(self.axes):
            run = axis.run(flat)
            arranged = np.take(arranged, run.ids, axis=a)
            first = self._begins[a][np.cumsum(run.sizes) - run.sizes]  # positions
            begins = run.group[first]  # the run with which its group of the coarsest begins
            arranged = np.take(_cumulated_from(arranged, begins, a), run.group, axis=a)
        return np.asarray(arranged)

    def _cell_variance(self) -> FloatArray:
        out = np.zeros((int(np.prod(self._shape)), len(self.of.axis)))
        for part in self.fixed:
            out[part.positions] = part.basis.through * self.unit_variance
        out = out.reshape(*self._shape, -1)
        for a in range(len(self.axes)):
            out = out + self._before(out, a)
        return np.asarray(self._to_domain(out) / self.step**2)

    def coefficients(self, weights: AnyArray) -> tuple[FloatArray, FloatArray]:
        """What each rounding adds to a weighted sum of cells, and a bound on its variance."""
        if not self.needed:
            return np.zeros(0), np.zeros(0)
        w = self._from_domain(np.asarray(weights, np.float64).reshape(self.of.domain.shape))
        for a in range(len(self.axes)):
            w = w - self._behind(w, a)
        w = w.reshape(-1, len(self.of.axis))
        v = np.concatenate(
            [np.asarray(w[part.positions] @ part.basis.matrix).reshape(-1) for part in self.fixed]
        )
        return v / self.step, np.full(v.shape, self.unit_variance)

    def group_variance(self, margin: Margin) -> FloatArray | None:
        """The variance that rounding adds, at most, to every total of a margin."""
        entered = self._entered(margin)
        if entered is None:
            return None
        of = self.of.axis.step(margin.steps[self.of.place])
        squares = [_grouped_squares(basis, of.codes, of.groups) for basis in self._bases]
        out = entered @ np.array(squares).reshape(len(squares), -1)
        out *= self.unit_variance / self.step**2
        return self._by_group(margin, out)

    def group_kinds(self, margin: Margin) -> Int64Array | None:
        """A number for every group: the same means as many roundings of equal weight."""
        entered = self._entered(margin)
        if entered is None:
            return None
        of = self.of.axis.step(margin.steps[self.of.place])
        if margin.steps[self.of.place] == 0:  # every cycle through a label adds one, or takes one
            through = np.array([basis.through for basis in self._bases]).reshape(-1, of.groups)
            total = np.rint(entered @ through).astype(np.int64)
            return self._by_group(margin, total)
        rows = np.unique(entered, axis=0, return_inverse=True)[1].reshape(-1, 1)
        return self._by_group(margin, rows * of.groups + np.arange(of.groups))

    def group_coefficients(self, margin: Margin, group: int) -> FloatArray:
        """What each rounding adds to the total of one group, in size; zeros are left out."""
        entered = self._entered(margin)
        if entered is None:
            return super().group_coefficients(margin, group)
        chosen = [int(i) for i in np.unravel_index(group, margin.shape)]
        number = chosen.pop(self.of.place)
        shape = [n for a, n in enumerate(margin.shape) if a != self.of.place]
        row = int(np.ravel_multi_index(chosen, shape)) if shape else 0
        if margin.steps[self.of.place] == 0:
            each = (basis.through[number] for basis in self._bases)
            return np.full(round(sum(entered[row] * list(each))), 1.0 / self.step)
        inside = (self.of.axis.step(margin.steps[self.of.place]).codes == number).astype(np.float64)
        out = []
        for basis, positions in zip(self._bases, entered[row].tolist(), strict=True):
            each = np.abs(basis.matrix.T @ inside)
            out.append(np.repeat(each[each > 0], round(positions)))
        return np.concatenate(out or [np.zeros(0)]) / self.step

    @cached_property
    def _bases(self) -> tuple[CycleBasis, ...]:
        """The bases of all positions, each once."""
        return tuple({id(part.basis): part.basis for part in self.fixed}.values())

    def _entered(self, margin: Margin) -> FloatArray | None:
        """For groups beside the crossing axis, at how many positions of a basis roundings enter.

        A group's indicator has differences of 0, 1 and −1 alone, being a product of one on every
        merged axis. None for very many groups and positions.
        """
        return self._entered_by(tuple(margin.steps[a] for a in self._others) or (0,))

    @remembered
    def _entered_by(self, steps: tuple[int, ...]) -> FloatArray | None:
        domain = self._flat[0]
        flat = Margin(tuple(domain.axes), steps)
        groups = int(np.prod(flat.shape))
        if groups * domain.size > MOST_PAIRS:
            return None
        place = {id(basis): i for i, basis in enumerate(self._bases)}
        out = np.zeros((groups, len(place)))
        for g in range(groups):
            one = np.zeros(groups)
            one[g] = 1.0
            inside = np.array(np.broadcast_to(flat.spread(one.reshape(flat.shape)), domain.shape))
            w = self._from_domain(inside[..., None], labels=1)
            for a in range(len(self.axes)):
                w = w - self._behind(w, a)
            changes = np.abs(w.reshape(-1))
            for part in self.fixed:
                out[g, place[id(part.basis)]] += float(changes[part.positions].sum())
        return out

    def _by_group(self, margin: Margin, values: AnyArray) -> AnyArray:
        """In a margin's shape, from rows of groups beside the crossing axis, and its own groups."""
        shape = tuple(n for a, n in enumerate(margin.shape) if a != self.of.place)
        return np.ascontiguousarray(np.moveaxis(values.reshape(*shape, -1), -1, self.of.place))

    def _from_domain(self, values: AnyArray, labels: int | None = None) -> Any:
        """A table with the crossing axis last and the others merged and in order."""
        out = values if labels is not None else np.moveaxis(values, self.of.place, -1)
        if self._others:
            members = [b for axis in self.axes for b in axis.members]
            out = out.transpose(*members, len(members))
        out = out.reshape(*self._shape, -1)
        for a, axis in enumerate(self.axes):
            out = np.take(out, axis.order, axis=a)
        return out

    def _to_domain(self, values: AnyArray) -> Any:
        out = values
        for a, axis in enumerate(self.axes):
            out = np.take(out, np.argsort(axis.order), axis=a)
        if self._others:
            members = [b for axis in self.axes for b in axis.members]
            shape = [self._flat[0].shape[b] for b in members]
            out = out.reshape(*shape, -1).transpose(*np.argsort(members), len(members))
        else:
            out = out.reshape(-1)
        return np.ascontiguousarray(np.moveaxis(out, -1, self.of.place))

    def _cumulated(self, values: FloatArray) -> FloatArray:
        out = values
        for a, begins in enumerate(self._begins):
            out = _cumulated_from(out, begins, a)
        return out

    def _differences(self, values: Int64Array) -> Int64Array:
        out = values
        for a in range(len(self.axes)):
            out = out - self._before(out, a)
        return out

    def _before(self, values: Any, a: int) -> Any:
        """The entry before, and 0 where a group of the coarsest margin begins."""
        inside = self._inside(a)
        return _moved(values, inside - 1, inside, a)

    def _behind(self, values: Any, a: int) -> Any:
        """The entry behind, and 0 where a group of the coarsest margin ends."""
        inside = self._inside(a)
        return _moved(values, inside, inside - 1, a)

    def _inside(self, a: int) -> Int64Array:
        """The positions of a merged axis at which no group of the coarsest margin begins."""
        return np.flatnonzero(self._begins[a] != np.arange(len(self._begins[a])))


def _moved(values: Any, source: Int64Array, target: Int64Array, axis: int) -> Any:
    """Entries of some places at others along one axis, and 0 elsewhere."""
    out = np.zeros_like(values)
    place: list[Any] = [slice(None)] * values.ndim
    place[axis] = target
    out[tuple(place)] = np.take(values, source, axis=axis)
    return out


def _cumulated_from(values: Any, begins: Int64Array, axis: int) -> Any:
    """Cumulative sums along an axis that begin afresh at `begins` of every place."""
    if np.array_equal(begins, np.arange(len(begins))):
        return values
    shape = [1 if b == axis else n for b, n in enumerate(values.shape)]
    sums = np.concatenate([np.zeros(shape, values.dtype), np.cumsum(values, axis=axis)], axis=axis)
    through = np.take(sums, np.arange(1, len(begins) + 1), axis=axis)
    return through - np.take(sums, begins, axis=axis)


def _coordinates(basis: CycleBasis, values: FloatArray) -> FloatArray:
    """Y with B y equal to the values on all keys: the coordinates of any vector, up to the tree."""
    from scipy.sparse.linalg import splu

    if not len(basis):
        return np.zeros((0, values.shape[1]))
    keys = basis.edges[basis.starts[:-1]]
    triangle = basis.matrix.tocsr()[keys].tocsc()
    factor = splu(triangle, permc_spec="NATURAL", diag_pivot_thresh=0.0)
    return np.asarray(factor.solve(np.ascontiguousarray(values[keys])))


def _add_tree(basis: CycleBasis, values: Int64Array, totals: list[Int64Array]) -> None:
    """Add the whole numbers on the tree that give every group its total: leaves first."""
    missing = np.zeros((basis.nodes + 1, values.shape[1]), np.int64)
    if totals:
        missing[:-1] = np.concatenate(totals)
    pairs = zip(basis.tree.tolist(), basis.leaves.tolist(), basis.parents.tolist(), strict=True)
    for edge, leaf, parent in pairs:
        values[edge] += missing[leaf]
        missing[parent] -= missing[leaf]
        missing[leaf] = 0
    if missing[:-1].any():
        raise ReleaseError("The held totals contradict each other.")


def _grouped_squares(basis: CycleBasis, codes: Int64Array, groups: int) -> FloatArray:
    """Σⱼ (Bᵀ 1_g)ⱼ² of every group g of labels."""
    from scipy.sparse import csr_array

    inside = np.flatnonzero(codes < groups)
    of = csr_array((np.ones(inside.size), (codes[inside], inside)), shape=(groups, len(codes)))
    sums = of @ basis.matrix
    return np.asarray(sums.multiply(sums).sum(axis=1)).reshape(-1)
