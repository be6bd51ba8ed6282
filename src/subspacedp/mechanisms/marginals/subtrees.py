"""The marginals mechanism piece by piece: a table of cells as runs of whole subtrees.

The two passes of least squares go up and down the tree, so what a piece must know of the others is
what stands above its roots. First pass: a piece measures its own levels, goes up to its roots, and
hands on their estimates and their true totals. Between the passes the levels above are measured and
smoothed, down to the roots again. Second pass: the piece is measured again, with the same noise,
and goes down from its roots. Everything is that of the release in memory, bit for bit: noise is
drawn by place in the tree, and no sum of real numbers crosses the border of a piece.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.block_view import BlockView
from subspacedp.mechanisms.marginals.cell_rounding import Carried, Cut, SubtreeRounding
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.measurement import ByLevel
from subspacedp.mechanisms.marginals.smoother import Smoother
from subspacedp.mechanisms.marginals.tree import Forest, Subtrees, Tree
from subspacedp.noise.words import KeySource
from subspacedp.tables.domain import Box

if TYPE_CHECKING:
    from subspacedp.mechanisms.marginals.mechanism import Marginals

Steps = tuple[int, ...]

MAX_SUBTREE_CELLS = 1 << 20  # of a subtree that is never cut, where the tree has such a level
MAX_PARTS = 1 << 27  # sums of so many fractions are exact


def cut_of(mechanism: Marginals) -> Cut | None:
    """Where a table of cells is cut into subtrees; None where it is one piece.

    The tree axis must be the first one, with the labels of every group side by side: then a run of
    subtrees is a run of cells.
    """
    inter = mechanism.interactions
    if not inter.nested:
        return None
    tree = inter.as_tree
    if (
        not mechanism.query.is_histogram
        or mechanism.held.family is None
        or inter.place != 0
        or not tree.in_order
        or mechanism.query.size <= MAX_SUBTREE_CELLS
    ):
        return None
    others = mechanism.query.size // tree.labels
    largest = [int(leaves.max()) * others for leaves in tree.leaves]
    small = [level for level in range(1, tree.root) if largest[level] <= MAX_SUBTREE_CELLS]
    level = max(small, default=1)
    fits = max(largest[level], tree.nodes(level) * others) <= MAX_PARTS
    return Cut(tree, level) if fits else None


@frozen(eq=False, repr=False)
class Roots:
    """What pieces hand on of their roots, by the first of them. Confidential.

    Parameters
    ----------
    totals
        The true totals of the roots.
    estimates
        By interaction, from what was measured in their subtrees.
    """

    totals: dict[int, Int64Array]
    estimates: dict[int, dict[Steps, FloatArray]]

    def __add__(self, other: Roots) -> Roots:
        return Roots(self.totals | other.totals, self.estimates | other.estimates)

    def all_totals(self) -> Int64Array:
        """Those of all roots, in order."""
        return np.concatenate([self.totals[first] for first in sorted(self.totals)])

    def all_estimates(self, steps: Steps) -> FloatArray:
        """Those of all roots, in order."""
        pieces = sorted(self.estimates)
        return np.concatenate([self.estimates[first][steps] for first in pieces])


@frozen(eq=False, repr=False)
class Above:
    """What pieces need to know of what stands above their roots, by interaction.

    Parameters
    ----------
    estimates
        At all roots, where the pass down comes from above them.
    off
        What the estimate of the held node above every root is off, where it is projected.
    exact
        The totals of the held level, where that is not above the roots.
    carried
        Where the rounding of every subtree begins.
    """

    estimates: dict[Steps, FloatArray]
    off: dict[Steps, FloatArray]
    exact: dict[Steps, Int64Array]
    carried: Carried | None


class SubtreeBlocks(BlockView):
    """Pieces are runs of whole subtrees of the tree axis, the first axis of the table.

    Guarantees
    ----------
    1. Values are those of `Marginals.reconstruct` of the whole measurement, bit for bit, whatever
       the pieces.
    2. A piece takes memory in proportion to its cells; what is shared, to the totals of the roots.
    """

    mechanism: Marginals
    reads_first: ClassVar[bool] = True  # totals above the roots are those of the data

    @property
    def purposes(self) -> tuple[str, ...]:
        """Dither, and the noise of the law with the most components."""
        parts = range(len(self.mechanism.measurement.widest.components()))
        return ("dither", *(f"{what}/{i}" for i in parts for what in ("noise", "refinement")))

    @property
    def bytes_per_cell(self) -> int:
        """Counts, measurements and estimates of all interactions, and the rounding of cells."""
        shape = self._inter.shape
        contrasts = sum(math.prod(shape(steps)) for steps in self._inter.all)
        return int(8 * (8 + 4 * contrasts / math.prod(shape(self._cells))))

    @property
    def _inter(self) -> Interactions:
        return self.mechanism.interactions

    @property
    def _cells(self) -> Steps:
        """The steps of the table of cells on the other axes."""
        return self._inter.published[0].steps

    @cached_property
    def _cut(self) -> Cut:
        cut = self.mechanism.cut
        if cut is None:
            raise ValueError("this table is one piece")
        return cut

    @property
    def _tree(self) -> Tree:
        return self._cut.tree

    @property
    def _roots(self) -> int:
        return self._cut.level

    def boxes(self, cells: int) -> list[Box]:
        """Runs of subtrees of at most so many cells, or a single one that has more."""
        shape, starts = self.answers_shape, self._tree.starts[self._roots]
        ends = np.append(starts[1:], shape[0])
        most = max(1, cells // int(np.prod(shape[1:], dtype=np.int64)))
        out, first = [], 0
        while first < len(starts):
            lower = int(starts[first])
            stop = max(first + 1, int(np.searchsorted(ends, lower + most, side="right")))
            zeros = (0,) * (len(shape) - 1)
            out.append(Box((lower, *zeros), (int(ends[stop - 1]), *shape[1:])))
            first = stop
        return out

    def _piece(self, box: Box) -> Subtrees:
        starts = np.append(self._tree.starts[self._roots], self._tree.labels)
        first, stop = np.searchsorted(starts, (box.lower[0], box.upper[0])).tolist()
        return self._tree.subtrees(self._roots, first, stop)

    # ------------------------------------------------------------------------ the two passes

    def first(
        self, keys: KeySource, box: Box, counts: Int64Array | None, total: Any = None
    ) -> Roots:
        """The totals of the roots of a piece, and estimates from their subtrees."""
        if counts is None:
            raise ValueError("the first pass reads the counts")
        piece = self._piece(box)
        table = counts.reshape(box.shape)
        passes = self._upward(keys, piece, table)
        level = self._roots
        estimates = {
            steps: passed[level]
            for steps, (passed, _) in passes.items()
            if self._smoother(steps).top > level
        }
        roots = Roots({piece.first: piece.climb(table, 0, level)}, {piece.first: estimates})
        return roots if total is None else total + roots

    def shared(self, total: Roots, keys: KeySource, exact: HeldValues) -> Above:
        """The levels above the roots are measured and smoothed, down to the roots."""
        mechanism, inter, tree, roots = self.mechanism, self._inter, self._tree, self._roots
        totals = total.all_totals()
        levels = range(roots + 1, len(tree))
        measured = self._measured(keys, tree, totals, roots, levels)
        grand = int(totals.sum()) if mechanism.total_measured else None
        held = mechanism.estimate_of(measured, exact, grand)
        estimates: dict[Steps, FloatArray] = {}
        off: dict[Steps, FloatArray] = {}
        known: dict[Steps, Int64Array] = {}
        at_roots: dict[Steps, FloatArray] = {}
        for interaction in inter.all.values():
            steps, at = interaction.steps, interaction.held
            if at is not None and at <= roots:
                known[steps] = held.exact(interaction, at)
            if interaction in self._with_noise and self._smoother(steps).top > roots:
                smoother = self._smoother(steps)
                below = {roots: total.all_estimates(steps)}
                sums = smoother.upward(tree, measured.get(steps, {}), below, roots, smoother.top)
                exactly = held.exact_contrasts(interaction)
                above = None if at is None else exactly[at]
                smoother.start_from(below, held.root(interaction), exactly)
                smoother.downward(tree, below, sums, roots, smoother.top)
                estimates[steps] = at_roots[steps] = below[roots]
                if at is not None and at > roots and smoother.projected and above is not None:
                    off[steps] = tree.descend(above - below[at], at, roots)
                    at_roots[steps] = smoother.moved(tree, below[roots], off[steps], roots)
            if at is not None and at <= roots:
                at_roots[steps] = tree.climb(inter.contrasts(known[steps], steps), at, roots)
        carried = None
        if self._rounding is not None:
            table = inter.table_from(at_roots, self._cells)
            carried = self._rounding.carry(table, held.held_totals)
        return Above(estimates, off, known, carried)

    def values(self, shared: Above, keys: KeySource, box: Box, counts: Int64Array) -> AnyArray:
        """Down from the roots to the cells, with the noise of the first pass."""
        piece, inter, roots = self._piece(box), self._inter, self._roots
        passes = self._upward(keys, piece, counts.reshape(box.shape))
        rows = slice(piece.first, piece.stop)
        contrasts: dict[Steps, FloatArray] = {}
        for interaction in inter.all.values():
            steps, held = interaction.steps, interaction.held
            exact = None
            if held is not None and held <= roots:
                exact = inter.contrasts(shared.exact[steps][piece.rows(held)], steps)
            if steps not in passes:
                if exact is not None:  # held for every label
                    contrasts[steps] = exact
                continue
            estimates, sums = passes.pop(steps)
            smoother = self._smoother(steps)
            if smoother.top > roots:
                estimates[roots] = shared.estimates[steps][rows]
            else:
                smoother.start_from(estimates, {}, {} if exact is None else {smoother.top: exact})
            smoother.downward(piece, estimates, sums, 0, min(smoother.top, roots))
            contrasts[steps] = estimates[0]
            if smoother.projected and held is not None:
                if exact is None:
                    over = piece.descend(shared.off[steps][rows], roots, 0)
                else:
                    over = piece.descend(exact - estimates[held], held, 0)
                contrasts[steps] = smoother.moved(piece, estimates[0], over, 0)
        cells = inter.table_from(contrasts, self._cells)
        if self._rounding is None or shared.carried is None:
            return cells.reshape(-1)
        dither = keys.stream("dither")
        rounded = self._rounding.round(shared.carried, piece, cells, dither)
        return self.mechanism.in_answers(rounded).reshape(-1)

    # ------------------------------------------------------------------------ one piece

    def _upward(
        self, keys: KeySource, piece: Subtrees, counts: Int64Array
    ) -> dict[Steps, tuple[ByLevel, ByLevel]]:
        """Measure the levels of a piece, and go up to its roots: estimates, sums of children."""
        measured = self._measured(keys, piece, counts, 0, range(self._roots + 1))
        out = {}
        for interaction in self._with_noise:
            steps = interaction.steps
            smoother, contrasts = self._smoother(steps), measured[steps]
            estimates = {0: contrasts[0]}
            high = min(smoother.top, self._roots)
            out[steps] = estimates, smoother.upward(piece, contrasts, estimates, 0, high)
        return out

    def _measured(
        self, keys: KeySource, forest: Forest, table: Int64Array, level: int, levels: range
    ) -> dict[Steps, ByLevel]:
        """What is measured at some levels, from the true table of one of them or a finer one."""
        totals = self._inter.totals_of(forest, table, self._cells, level)
        measurement = self.mechanism.measurement
        return measurement.contrasts(measurement.measure(totals, keys, forest, levels))

    @cached_property
    def _with_noise(self) -> tuple[Interaction, ...]:
        return self.mechanism.measurement.errors.measured

    def _smoother(self, steps: Steps) -> Smoother:
        return self.mechanism.measurement.tree_smoother(self._inter.all[steps])

    @property
    def _rounding(self) -> SubtreeRounding | None:
        rounding = self.mechanism.rounding
        return None if rounding is None else rounding.by_subtree
