"""The groups of one axis' levels as nodes; where levels nest, the tree of them in order.

Level 0 is the finest level in use, the last one is the root with everything in it. In a tree the
nodes of a level are numbered so that the children of every node are neighbours; groups without
labels are left out. Where levels and groupings cross, the nodes know which contain which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, FloatArray, Int64Array
from subspacedp.errors import DomainError
from subspacedp.frozen import frozen, remembered
from subspacedp.tables import Axis

if TYPE_CHECKING:
    from scipy.sparse import csr_array


ArrayT = TypeVar("ArrayT", bound=AnyArray)


class Nodes(ABC):
    """Groups of labels at several levels, and which are inside which."""

    @property
    @abstractmethod
    def labels(self) -> int:
        """How many labels of the axis there are in all nodes."""

    @abstractmethod
    def rows(self, level: int) -> slice:
        """Where its nodes of a level are among those of the whole axis."""

    @abstractmethod
    def nodes(self, level: int) -> int:
        """The number of nodes of a level."""

    @abstractmethod
    def determines(self, fine: int, coarse: int) -> bool:
        """Whether every node of a coarse level consists of nodes of a fine one."""

    @abstractmethod
    def climb(self, values: ArrayT, fine: int, coarse: int) -> ArrayT:
        """Sums of the values of a fine level into the nodes of a coarse one."""

    @abstractmethod
    def ancestors(self, fine: int, coarse: int) -> Int64Array:
        """For every node of a fine level the coarse one it is in; −1 where it is in none."""


class Forest(Nodes):
    """Nodes of levels that nest, finest first: the children of every node are neighbours."""

    @property
    @abstractmethod
    def starts(self) -> tuple[Int64Array, ...]:
        """For every level the first label of each node, as a place in the order."""

    @abstractmethod
    def spread(self, values: AnyArray, level: int) -> AnyArray:
        """Every node's value of a level from those of the orbits."""

    @cached_property
    def _first_child(self) -> tuple[Int64Array, ...]:
        pairs = zip(self.starts, self.starts[1:], strict=False)
        return (np.zeros(0, np.int64), *(np.searchsorted(fine, coarse) for fine, coarse in pairs))

    @cached_property
    def children(self) -> tuple[Int64Array, ...]:
        """For every level from 1 on how many children each node has."""
        pairs = zip(self._first_child[1:], self.starts, strict=False)
        return (np.zeros(0, np.int64), *(np.diff(a, append=len(fine)) for a, fine in pairs))

    def nodes(self, level: int) -> int:
        """The number of nodes of a level."""
        return len(self.starts[level])

    def determines(self, fine: int, coarse: int) -> bool:
        """Whether every node of a coarse level consists of nodes of a fine one: levels nest."""
        return fine <= coarse

    def up(self, level: int, values: ArrayT) -> ArrayT:
        """Sums over the children: values of level − 1 into the nodes of a level."""
        out: Any = np.add.reduceat(values, self._first_child[level], axis=0)
        return out  # type: ignore[no-any-return]

    def down(self, level: int, values: ArrayT) -> ArrayT:
        """Every node's value for each of its children on level − 1."""
        out: Any = np.repeat(values, self.children[level], axis=0)
        return out  # type: ignore[no-any-return]

    def climb(self, values: ArrayT, fine: int, coarse: int) -> ArrayT:
        """Sums of the values of a fine level into the nodes of a coarse one."""
        if fine == coarse:
            return values
        first = np.searchsorted(self.starts[fine], self.starts[coarse])
        out: Any = np.add.reduceat(values, first, axis=0)
        return out  # type: ignore[no-any-return]

    def descend(self, values: ArrayT, coarse: int, fine: int) -> ArrayT:
        """Every coarse node's value for each node of a fine level in it."""
        if fine == coarse:
            return values
        out: Any = np.take(values, self.ancestors(fine, coarse), axis=0)
        return out  # type: ignore[no-any-return]

    def ancestors(self, fine: int, coarse: int) -> Int64Array:
        """For every node of a fine level the number of its ancestor at a coarse one."""
        above = np.searchsorted(self.starts[coarse], self.starts[fine], side="right") - 1
        return np.asarray(above, np.int64)


@frozen(eq=False, repr=False)
class Places(Nodes):
    """The nodes of some levels and groupings of an axis, all of its labels among them.

    Parameters
    ----------
    axis
        The axis with levels or groupings.
    steps
        The places of the levels on the axis, finer ones first; the last one is all in one.
    """

    axis: Axis
    steps: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def root(self) -> int:
        """The number of the coarsest level: one node."""
        return len(self.steps) - 1

    @property
    def labels(self) -> int:
        """All of the axis."""
        return len(self.axis)

    def rows(self, level: int) -> slice:
        """All of them."""
        return slice(0, self.nodes(level))

    @property
    @abstractmethod
    def groups(self) -> tuple[Int64Array, ...]:
        """For every level the number of each node among the groups of the axis."""

    @property
    @abstractmethod
    def leaves(self) -> tuple[Int64Array, ...]:
        """For every level how many labels of the axis each node has."""

    @property
    @abstractmethod
    def orbits(self) -> OrbitsOfNodes:
        """Which nodes are alike."""

    def in_a_row(self, number: int) -> Int64Array:
        """So many labels that are neighbours in the chain of levels, from the middle."""
        order = np.lexsort([level.codes for level in self.axis.chain])
        first = (len(order) - number) // 2
        return np.sort(order[first : first + number])

    def spread(self, values: AnyArray, level: int) -> AnyArray:
        """Every node's value of a level from those of the orbits."""
        return self.orbits.spread(values, level)

    def gather(self, table: AnyArray, level: int) -> AnyArray:
        """Rows of a table over the axis' groups of a level, in the order of the nodes."""
        return np.take(table, self.groups[level], axis=0)

    def scatter(self, nodes: AnyArray, level: int) -> AnyArray:
        """The inverse of `gather`: groups without labels get zeros."""
        groups = self.axis.step(self.steps[level]).groups
        if len(nodes) == groups and np.array_equal(self.groups[level], np.arange(groups)):
            return nodes
        out = np.zeros((groups, *nodes.shape[1:]), nodes.dtype)
        out[self.groups[level]] = nodes
        return out


@frozen(eq=False, repr=False)
class Tree(Places, Forest):
    """The nodes of levels that nest, from the finest in use to the root.

    Parameters
    ----------
    alike
        Whether levels with the same nodes determine each other.
    """

    alike: bool = True

    def determines(self, fine: int, coarse: int) -> bool:
        """Whether every node of a coarse level consists of nodes of a fine one, or is one."""
        return fine <= coarse or (self.alike and self.nodes(fine) == self.nodes(coarse))

    @cached_property
    def in_order(self) -> bool:
        """Whether the labels of every node are neighbours on the axis already."""
        codes = (self.axis.step(s).codes for s in self.steps[:-1])
        return all(bool(np.all(c[1:] >= c[:-1])) for c in codes)

    @cached_property
    def order(self) -> Int64Array:
        """The labels of the axis in the order of the tree."""
        codes = [self.axis.step(s).codes for s in self.steps[:-1]]
        if self.in_order:
            return np.arange(len(self.axis))
        return np.asarray(np.lexsort(codes) if codes else np.arange(len(self.axis)))

    @cached_property
    def starts(self) -> tuple[Int64Array, ...]:
        """For every level the first label of each node, as a place in the order."""
        out = []
        for step in self.steps:
            codes = self.axis.step(step).codes[self.order]
            out.append(np.flatnonzero(np.diff(codes, prepend=-1)))
        return tuple(out)

    @cached_property
    def leaves(self) -> tuple[Int64Array, ...]:
        """For every level how many labels of the axis each node has."""
        return tuple(np.diff(starts, append=len(self.axis)) for starts in self.starts)

    @cached_property
    def groups(self) -> tuple[Int64Array, ...]:
        """For every level the number of each node among the groups of the axis."""
        return tuple(
            self.axis.step(step).codes[self.order[starts]]
            for step, starts in zip(self.steps, self.starts, strict=True)
        )

    def subtrees(self, level: int, first: int, stop: int) -> Subtrees:
        """The nodes `first` to `stop - 1` of a level, and all below them."""
        return Subtrees(self, level, first, stop)

    @cached_property
    def orbits(self) -> Orbits:
        """Which nodes are alike."""
        return Orbits(self)


@frozen(eq=False, repr=False)
class Subtrees(Forest):
    """Neighbouring nodes of one level of a tree, with everything below them.

    Its levels are those of the tree up to `level`; nodes are numbered from its own first one on.
    """

    tree: Tree
    level: int
    first: int
    stop: int

    @cached_property
    def range(self) -> tuple[int, int]:
        """Its labels, as places in the order of the tree."""
        ends = np.append(self.tree.starts[self.level], self.tree.labels)
        return int(ends[self.first]), int(ends[self.stop])

    @property
    def labels(self) -> int:
        """Those below its nodes."""
        return self.range[1] - self.range[0]

    def rows(self, level: int) -> slice:
        """Where its nodes of a level are among those of the whole tree."""
        first, stop = np.searchsorted(self.tree.starts[level], self.range)
        return slice(int(first), int(stop))

    @cached_property
    def starts(self) -> tuple[Int64Array, ...]:
        """For every level the first label of each node, from its first label on."""
        levels = range(self.level + 1)
        return tuple(self.tree.starts[lv][self.rows(lv)] - self.range[0] for lv in levels)

    def spread(self, values: AnyArray, level: int) -> AnyArray:
        """Every node's value of a level from those of the orbits."""
        return np.take(values, self.tree.orbits.of_node[level][self.rows(level)], axis=0)


class OrbitsOfNodes(ABC):
    """Which nodes are alike: variances are the same for all of an orbit."""

    @property
    @abstractmethod
    def of_node(self) -> tuple[Int64Array, ...]:
        """For every level the orbit of each node."""

    @property
    @abstractmethod
    def number(self) -> tuple[FloatArray, ...]:
        """How many nodes each orbit has."""

    def spread(self, values: AnyArray, level: int) -> AnyArray:
        """Every node's value from those of the orbits."""
        return np.take(values, self.of_node[level], axis=0)


@frozen(eq=False, repr=False)
class Orbits(OrbitsOfNodes):
    """Nodes of a tree that some symmetry takes to each other: variances are the same for all.

    Two nodes are alike when their subtrees are (numbers of labels included) and their parents are.
    Quantities that depend on the tree alone are computed once per orbit, so a design of 10⁶ leaves
    costs what its different kinds of places cost.
    """

    tree: Tree

    @cached_property
    def _shapes(self) -> list[Int64Array]:
        """For every level a number for the shape of each node's subtree."""
        tree = self.tree
        out = [np.unique(tree.leaves[0], return_inverse=True)[1].reshape(-1)]
        for level in range(1, len(tree)):
            parent = np.repeat(np.arange(tree.nodes(level)), tree.children[level])
            order = np.lexsort((out[-1], parent))
            ordered = out[-1][order]
            ends = np.cumsum(tree.children[level])
            known: dict[bytes, int] = {}
            shape = np.empty(tree.nodes(level), np.int64)
            first = 0
            for node, end in enumerate(ends.tolist()):
                shape[node] = known.setdefault(ordered[first:end].tobytes(), len(known))
                first = end
            out.append(shape)
        return out

    @cached_property
    def of_node(self) -> tuple[Int64Array, ...]:
        """For every level the orbit of each node."""
        tree = self.tree
        out: list[Int64Array] = [np.zeros(1, np.int64)]
        for level in range(tree.root - 1, -1, -1):
            above = tree.down(level + 1, out[0])
            keys = above * (int(self._shapes[level].max(initial=0)) + 1) + self._shapes[level]
            out.insert(0, np.unique(keys, return_inverse=True)[1].reshape(-1))
        return tuple(out)

    @cached_property
    def _first(self) -> tuple[Int64Array, ...]:
        return tuple(np.unique(orbits, return_index=True)[1] for orbits in self.of_node)

    @cached_property
    def number(self) -> tuple[FloatArray, ...]:
        """How many nodes each orbit has."""
        return tuple(np.bincount(orbits).astype(np.float64) for orbits in self.of_node)

    @cached_property
    def parent(self) -> tuple[Int64Array, ...]:
        """For every level but the root's the orbit of the parent."""
        out = []
        for level in range(self.tree.root):
            above = self.tree.ancestors(level, level + 1)[self._first[level]]
            out.append(self.of_node[level + 1][above])
        return tuple(out)

    @cached_property
    def siblings(self) -> tuple[FloatArray, ...]:
        """How many nodes of an orbit one parent has."""
        return tuple(
            self.number[level] / self.number[level + 1][self.parent[level]]
            for level in range(self.tree.root)
        )

    @cached_property
    def leaves(self) -> tuple[FloatArray, ...]:
        """How many labels of the axis a node of each orbit has."""
        pairs = zip(self.tree.leaves, self._first, strict=True)
        return tuple(leaves[first].astype(np.float64) for leaves, first in pairs)

    def ancestors(self, fine: int, coarse: int) -> Int64Array:
        """For every orbit of a fine level that of its ancestor at a coarse one."""
        out = np.arange(len(self.number[fine]))
        for level in range(fine, coarse):
            out = self.parent[level][out]
        return out


MOST_SHARED = 1 << 12  # sets of levels at which two labels can be together


@frozen(eq=False, repr=False)
class Overlap(Places):
    """The nodes of levels and groupings of which some cross.

    A label may be in no group of a grouping. Nodes of a level are numbered like its groups that
    have labels.
    """

    def nodes(self, level: int) -> int:
        """The groups that have labels."""
        return len(self.groups[level])

    def determines(self, fine: int, coarse: int) -> bool:
        """Whether every node of a coarse level consists of nodes of a fine one."""
        return self.axis.determines(self.steps[fine], self.steps[coarse])

    @cached_property
    def groups(self) -> tuple[Int64Array, ...]:
        """For every level the number of each node among the groups of the axis."""
        return tuple(np.flatnonzero(self.axis.step(s).sizes) for s in self.steps)

    @cached_property
    def leaves(self) -> tuple[Int64Array, ...]:
        """For every level how many labels of the axis each node has."""
        pairs = zip(self.steps, self.groups, strict=True)
        return tuple(self.axis.step(s).sizes[groups] for s, groups in pairs)

    @cached_property
    def of_label(self) -> tuple[Int64Array, ...]:
        """For every level the node of each label; −1 where it is in none."""
        out = []
        for step, groups in zip(self.steps, self.groups, strict=True):
            level = self.axis.step(step)
            number = np.full(level.groups + 1, -1)
            number[groups] = np.arange(len(groups))
            out.append(number[level.codes])
        return tuple(out)

    @remembered
    def ancestors(self, fine: int, coarse: int) -> Int64Array:
        """For every node of a fine level the coarse one it is in; −1 where it is in none."""
        out, below = np.full(self.nodes(fine), -1), self.of_label[fine]
        out[below[below >= 0]] = self.of_label[coarse][below >= 0]
        return out

    def sums(self, fine: int, coarse: int) -> csr_array:
        """The matrix of the sums of a fine level's values into the nodes of a coarse one."""
        from scipy.sparse import csr_array

        up = self.ancestors(fine, coarse)
        inside = np.flatnonzero(up >= 0)
        ones = np.ones(inside.size, np.int64)
        return csr_array((ones, (up[inside], inside)), shape=(self.nodes(coarse), len(up)))

    def climb(self, values: ArrayT, fine: int, coarse: int) -> ArrayT:
        """Sums of the values of a fine level into the nodes of a coarse one."""
        if fine == coarse:
            return values
        flat = values.reshape(len(values), -1)
        out: Any = np.asarray(self.sums(fine, coarse) @ flat)
        return out.reshape(-1, *values.shape[1:])  # type: ignore[no-any-return]

    @cached_property
    def orbits(self) -> EachApart:
        """Every node by itself."""
        return EachApart(self)

    # --------------------------------------------------------------------- pairs of labels

    @cached_property
    def inside(self) -> BoolArray:
        """The distinct sets of levels in which labels have a group, in rows."""
        return self._patterns[0]

    @cached_property
    def _patterns(self) -> tuple[BoolArray, Int64Array]:
        """The distinct sets, and the number of each label's."""
        inside = np.stack([of >= 0 for of in self.of_label], axis=1)
        rows, of_label = np.unique(inside, axis=0, return_inverse=True)
        return rows, np.asarray(of_label.reshape(-1), np.int64)

    @cached_property
    def meetings(self) -> list[tuple[int, int, BoolArray]]:
        """All that occurs between two records: two rows of `inside`, and where they are together.

        Counted are the pairs of labels that are together at least at the levels of a set, for every
        closed set. The number of those together at no others follows by exclusion, larger sets
        first.
        """
        rows, patterns = self._patterns
        exact: dict[frozenset[int], Int64Array] = {}
        out: list[tuple[int, int, BoolArray]] = []
        for chosen in sorted(self._closed_sets(), key=len, reverse=True):
            pairs = self._pairs(sorted(chosen), patterns, len(rows))
            for larger, counted in exact.items():
                if chosen < larger:
                    pairs = pairs - counted
            exact[chosen] = pairs
            together = np.isin(np.arange(len(self)), sorted(chosen))
            found = np.argwhere(pairs).tolist()
            out.extend((p, q, together) for p, q in found if p <= q)
        return out

    def _closed_sets(self) -> set[frozenset[int]]:
        """Sets of levels that hold, with each one, all that it determines and a label is inside."""
        out: set[frozenset[int]] = set()
        for inside in self.inside:
            known = {frozenset[int]()}
            for level in np.flatnonzero(inside)[::-1].tolist():
                above = (m for m in np.flatnonzero(inside).tolist() if self.determines(level, m))
                closed = frozenset(above)
                known |= {one | closed for one in known}
                if len(known) > MOST_SHARED:
                    raise DomainError(
                        f"Axis `{self.axis.name}` has too many groupings that cross to be measured "
                        "together; publish some of them as sums of cells."
                    )
            out |= known
        return out

    def _pairs(self, levels: list[int], patterns: Int64Array, number: int) -> Int64Array:
        """Ordered pairs of labels in one node at all these levels, by what both are inside of.

        A label makes a pair with itself: two records can share it.
        """
        kept = np.ones(len(patterns), bool)
        code = np.zeros(len(patterns), np.int64)
        for level in levels:
            of = self.of_label[level]
            kept &= of >= 0
            code = np.unique(code * (self.nodes(level) + 1) + of, return_inverse=True)[1]
        together, of_kept = code.reshape(-1)[kept], patterns[kept]
        if not of_kept.size:
            return np.zeros((number, number), np.int64)
        classes = np.unique(together, return_inverse=True)[1].reshape(-1)
        counts = np.bincount(classes * number + of_kept, minlength=(classes.max() + 1) * number)
        table = counts.reshape(-1, number)
        return np.asarray(table.T @ table)


@frozen(eq=False, repr=False)
class EachApart(OrbitsOfNodes):
    """No two nodes are taken to be alike: what crosses them tells them apart."""

    places: Overlap

    @cached_property
    def of_node(self) -> tuple[Int64Array, ...]:
        """For every level the numbers of its nodes."""
        return tuple(np.arange(self.places.nodes(level)) for level in range(len(self.places)))

    @cached_property
    def number(self) -> tuple[FloatArray, ...]:
        """One node each."""
        return tuple(np.ones(len(nodes)) for nodes in self.of_node)

    def spread(self, values: AnyArray, level: int) -> AnyArray:
        """The values themselves."""
        del level
        return values
