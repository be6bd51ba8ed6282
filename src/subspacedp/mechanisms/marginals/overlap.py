"""Levels and groupings of one axis that cross: groups as nodes, and which contain which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.errors import DomainError
from subspacedp.mechanisms.marginals.tree import ArrayT, OrbitsOfNodes, Places

if TYPE_CHECKING:
    from scipy.sparse import csr_array


MOST_SHARED = 1 << 12  # sets of levels at which two labels can be together


@dataclass(frozen=True, eq=False, repr=False)
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

    @cached_property
    def _ancestors(self) -> dict[tuple[int, int], Int64Array]:
        return {}

    def ancestors(self, fine: int, coarse: int) -> Int64Array:
        """For every node of a fine level the coarse one it is in; −1 where it is in none."""
        if (fine, coarse) not in self._ancestors:
            out, below = np.full(self.nodes(fine), -1), self.of_label[fine]
            out[below[below >= 0]] = self.of_label[coarse][below >= 0]
            self._ancestors[fine, coarse] = out
        return self._ancestors[fine, coarse]

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


@dataclass(frozen=True, eq=False, repr=False)
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

    def spread(self, values: npt.NDArray[Any], level: int) -> npt.NDArray[Any]:
        """The values themselves."""
        del level
        return values
