"""A basis of what leaves all totals of two crossing classifications as they are: short cycles.

Labels are the edges of a graph that joins their group of the one classification to their group of
the other; a label in no group ends at a node without a total, the ground. A vector on the edges
leaves every total as it is if its values around every node but the ground add up to zero. Along a
cycle, values +1 and −1 in turn are such a vector; along one through the ground the turn may break
there, and a label in no group on either side is one by itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from subspacedp.arrays import Int64Array


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
