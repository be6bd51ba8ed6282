"""How good a design for margins is: what the error of no Gaussian noise is below, and comparisons.

For margins over the levels of a tree, any weights λ of records with sum one prove a bound
(docs/proofs/marginals.md, Theorem 6):

    Σ weight · squared error ≥ (Σ_τ d_τ tr (K_τ^½ Λ_τ K_τ^½)^½)² / (N μ²)

K_τ = Σ_l κ[l,τ] S_lᵀS_l is what interaction τ counts for on the labels of the tree, d_τ the number
of its contrasts, N the number of cells of the other axes, Λ_τ the weights of labels, seen inside
what is not held. Weights are the same for alike labels, and functions on labels fall apart into
those that are alike on alike nodes and contrasts between alike siblings, so matrices have a row for
every kind of label and not for every label. Where neighbours replace a record, weights are those of
pairs: two labels of the tree drawn by λ, or with some chance one label twice, and on every other
axis two different groups with some chance.

Errors are compared with those of noise on the cells alone, and of a tree, without data. One axis is
treated exactly, as a tree. On every other one contrasts of a level are deviations from an equal
split of the next coarser one, which for groups of unequal size is private and unbiased and not the
best. How much it costs is said for the axis alone: the levels that are in use there, all counting
the same, once as nested contrasts and once as a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, bind
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.marginals.error_model import MarginalsNoise
from subspacedp.mechanisms.marginals.fitting import alone, best_contrasts, best_tables
from subspacedp.mechanisms.marginals.interactions import AxisSteps, Interactions
from subspacedp.mechanisms.marginals.measurement import (
    ContrastMeasurement,
    Measurement,
    TableMeasurement,
)
from subspacedp.mechanisms.marginals.plan import TableErrors
from subspacedp.mechanisms.marginals.strategy import errors_of, table_laws, whole_parts
from subspacedp.mechanisms.projected import Projected
from subspacedp.problem import Problem
from subspacedp.queries import Cells, Margins
from subspacedp.tables import Domain, Margin

MAX_LABEL_KINDS = 512
MAX_WORK = 1 << 31  # of all eigenvalue problems of one step
STEPS = 40
CLOSE = 1e-3  # weights are not improved any further
SAME_PLACE = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97)  # chances that a pair has one label of the tree
DIFFERENT = (
    0.0,
    0.25,
    0.5,
    0.75,
    1.0,
)  # from independent groups of an axis to different ones
SAFE = 1e-10  # of the largest eigenvalue: less is rounding error and is left out of the bound


@frozen
class _Block:
    """Functions of one kind on the labels under a node: which kinds of labels, and how often."""

    labels: Int64Array
    counts: FloatArray  # of labels of each kind under one node
    base: FloatArray  # Σ_l κ_l √(c c′)/m over common nodes
    times: float  # how often it occurs, times the number of contrasts
    zero_sum: bool
    whole: bool  # whether it is not one of contrasts between siblings
    kept: tuple[int, ...]  # the other axes with contrasts


@frozen(eq=False, repr=False)
class LowerBound:
    """The bound for given weights of tables, with weights of records that make it large.

    Parameters
    ----------
    errors
        The workload and what is held.
    weights
        What the mean squared error of each published table is multiplied with.
    pairs
        Whether neighbours replace a record; otherwise one comes or goes.
    """

    errors: TableErrors
    weights: FloatArray
    pairs: bool

    def __post_init__(self) -> None:
        inter = self.interactions
        if inter.uneven_axes:
            names = ", ".join(f"`{name}`" for name in inter.uneven_axes)
            raise ReleaseError(
                f"No lower bound is known for all Gaussian noise beside a second axis with groups "
                f"of unequal size ({names}); gap_in_words() has one for splits of the budget."
            )
        kinds = len(self._numbers)
        if kinds > MAX_LABEL_KINDS or sum(len(b.labels) ** 3 for b in self._blocks) > MAX_WORK:
            raise ReleaseError(
                f"The lower bound for all Gaussian noise takes at most {MAX_LABEL_KINDS} kinds of "
                f"places; there are {kinds:,}. gap_in_words() has one for splits of the budget."
            )

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.errors.interactions

    @cached_property
    def _numbers(self) -> FloatArray:
        """How many labels of the tree axis each kind has."""
        orbits = self.interactions.as_tree.orbits
        return np.asarray(orbits.number[0] * orbits.leaves[0])

    @cached_property
    def _flat(self) -> float:
        """N: the cells of the other axes."""
        return float(math.prod(axis.axis.step(0).nonempty for axis in self.interactions.axes))

    @cached_property
    def _counted(self) -> dict[tuple[tuple[float, ...], int | None, tuple[int, ...]], float]:
        """By κ, held level and axes with contrasts: Σ d over such interactions."""
        inter = self.interactions
        out: dict[tuple[tuple[float, ...], int | None, tuple[int, ...]], float] = {}
        below = [set(inter.below(table.steps)) for table in inter.published]
        for interaction in self.errors.measured:
            kappa = np.zeros(len(inter.as_tree))
            for table, weight, known in zip(inter.published, self.weights, below, strict=True):
                if interaction.steps not in known:
                    continue
                cells = inter.as_tree.nodes(table.level) * math.prod(inter.shape(table.steps))
                size = math.prod(
                    axis.axis.step(0).nonempty / axis.axis.step(s).nonempty
                    for axis, s in zip(inter.axes, table.steps, strict=True)
                )
                kappa[table.level] += weight / cells * size
            if np.any(kappa > 0):
                key = (tuple(kappa.tolist()), interaction.held, self._kept(interaction.steps))
                out[key] = out.get(key, 0.0) + inter.dimension(interaction.steps)
        return out

    def _kept(self, steps: tuple[int, ...]) -> tuple[int, ...]:
        """The other axes with contrasts, where neighbours replace a record; else it is one."""
        return tuple(self.interactions.kept(steps)) if self.pairs else (0,)

    @cached_property
    def _blocks(self) -> list[_Block]:
        return list(self._all_blocks())

    def _all_blocks(self) -> Iterator[_Block]:
        tree = self.interactions.as_tree
        orbits = tree.orbits
        for (kappa, held, kept), contrasts in self._counted.items():
            top = tree.root if held is None else held
            for level in range(top + 1):
                whole = level == top
                siblings = np.ones(1) if level == tree.root else orbits.siblings[level]
                for node, number in enumerate(orbits.number[level].tolist()):
                    if not whole and siblings[node] <= 1:
                        continue
                    times = number if whole else number * (1 - 1 / siblings[node])
                    used = level if held is not None and whole else level + 1
                    yield self._block(
                        level,
                        node,
                        kappa[:used],
                        times * contrasts,
                        zero_sum=held is not None and whole,
                        whole=whole,
                        kept=kept,
                    )

    def _block(
        self,
        level: int,
        node: int,
        kappa: tuple[float, ...],
        times: float,
        *,
        zero_sum: bool,
        whole: bool,
        kept: tuple[int, ...],
    ) -> _Block:
        orbits = self.interactions.as_tree.orbits
        labels = np.flatnonzero(orbits.ancestors(0, level) == node)
        number = orbits.number[level][node]
        counts = self._numbers[labels] / number
        roots = np.sqrt(counts)
        base = np.zeros((len(labels), len(labels)))
        for at, weight in enumerate(kappa):
            if weight > 0:
                up = orbits.ancestors(0, at)[labels]
                inside = orbits.number[at][up] / number  # nodes of that level in this one
                same = up[:, None] == up[None, :]
                base += np.where(same, weight * np.outer(roots, roots) / inside, 0.0)
        return _Block(labels, counts, base, times, zero_sum, whole, kept)

    def _alike(self, different: float) -> FloatArray:
        """For every other axis the mean product of two records' contrasts, and the chance to meet.

        Groups of an axis with nested levels are independent: products are zero there.
        """
        out = np.zeros((len(self.interactions.axes), 2))
        for a, axis in enumerate(self.interactions.axes):
            n = axis.axis.step(0).nonempty
            more = different if len(axis.steps) == 2 else 0.0
            chance = 1 - 1 / n + more / n
            out[a] = 1 - chance * n / (n - 1) if n > 1 else 1.0, 1 - chance
        return out

    def __call__(
        self, shares: FloatArray, *, given: bool, same: float = 0.0, different: float = 0.0
    ) -> tuple[float, FloatArray]:
        """The bound for unit budget and shares of kinds of labels, and what each is worth.

        With `given` it holds for every release that is private given what is held, otherwise for
        those with noise that does not depend on it. Pairs have one label of the tree with the
        chance `same`, and groups of other axes between independent and always `different`.
        """
        each = shares / shares.sum() / self._numbers
        total, worth = 0.0, np.zeros(len(shares))
        axes = self._alike(different)
        for block in self._blocks:
            factor, trivial = 1.0, self.pairs and not block.kept
            if trivial:
                factor = 1.0 - same
            elif self.pairs:
                # Λ = L − x(same·L + (1 − same)·λλᵀ), and λλᵀ is at most L.
                x = float(np.prod(axes[list(block.kept), 0]))
                factor = 1.0 - x * same - (max(x, 0.0) * (1.0 - same) if block.whole else 0.0)
            if factor <= 0:
                continue
            roots, slopes = _trace(
                block,
                each[block.labels],
                given=given or trivial,
                centred=trivial and block.whole and not block.zero_sum,
            )
            total += block.times * math.sqrt(factor) * roots
            worth[block.labels] += block.times * math.sqrt(factor) * slopes
        bound = total**2 / self._flat
        if self.pairs:
            meet = same + (1.0 - same) * float((self._numbers * each**2).sum())
            bound *= 2.0 / max(1.0 - meet * float(np.prod(axes[:, 1])), 1e-12)
        return bound, worth / self._numbers

    def best(self, *, given: bool) -> float:
        """The largest bound that was found: any weights prove theirs."""
        best, shares = self._improved(given, 0.0, 0.0)
        if not self.pairs:
            return best
        grid = [
            (self(shares, given=given, same=s, different=d)[0], s, d)
            for s in SAME_PLACE
            for d in DIFFERENT
        ]
        _, same, different = max(grid)
        return max(best, self._improved(given, same, different)[0])

    def _improved(self, given: bool, same: float, different: float) -> tuple[float, FloatArray]:
        """Weights that make the bound large, by multiplicative updates."""
        shares = self._numbers / self._numbers.sum()
        best, chosen = 0.0, shares
        for _ in range(STEPS):
            bound, worth = self(shares, given=given, same=same, different=different)
            if bound > best:
                best, chosen = bound, shares
            gains = worth * shares.sum()
            mean = float(shares @ gains) / float(shares.sum())
            if not mean > 0 or float(gains.max()) <= mean * (1 + CLOSE):
                break
            shares = shares * np.maximum(gains / mean, 1e-6)
            shares = np.maximum(shares / shares.sum(), 1e-12)
        return best, chosen


def _trace(
    block: _Block, each: FloatArray, *, given: bool, centred: bool
) -> tuple[float, FloatArray]:
    """The trace of (K^½ Λ K^½)^½ inside what is not held, and twice its slopes by weights."""
    size = len(each)
    inner = np.eye(size)
    if block.zero_sum:
        normal = np.sqrt(block.counts)
        inner = np.linalg.svd(normal[None, :])[2][1:].T
        if size == 1:
            return 0.0, np.zeros(1)
    values, vectors = np.linalg.eigh(inner.T @ block.base @ inner)
    kept = values > SAFE * max(float(values.max(initial=0.0)), 0.0)
    # Rows of `root` map labels to coordinates in which the error is a plain sum of squares.
    root = (vectors[:, kept] * np.sqrt(values[kept])).T @ inner.T
    if not root.size:
        return 0.0, np.zeros(size)
    reach = root
    if given and block.zero_sum:
        small = np.linalg.inv(inner.T @ (inner / each[:, None]))
        middle = root @ inner @ small @ inner.T @ root.T
        reach = (root @ inner @ small @ inner.T) / each
    else:
        middle = (root * each) @ root.T
        if centred:
            mean = root @ (each * np.sqrt(block.counts))
            middle = middle - np.outer(mean, mean)
    values, vectors = np.linalg.eigh((middle + middle.T) / 2)
    top = max(float(values.max(initial=0.0)), 0.0)
    kept = values > SAFE * top
    lengths = np.sqrt(values[kept] - SAFE * top * 0.5)
    turned = (vectors[:, kept] / np.sqrt(lengths)).T @ reach
    return float(lengths.sum()), np.asarray((turned**2).sum(axis=0))


MAX_LABELS = 4096  # of an axis for which the cost of nested contrasts is computed
MAX_CELLS = 10**6  # of a table whose margins are compared with those of noise on its cells


@frozen(eq=False)
class TableComparison:
    """Root mean squared errors of tables: here, and from noise on every cell alone."""

    names: tuple[str, ...]
    figures: tuple[int, ...]
    here: FloatArray
    cells_alone: FloatArray


def compare_tables(mechanism: Mechanism) -> TableComparison | None:
    """Every table that noise was designed for, with the same budget.

    None where that was not for several tables, or where no table of cells exists.
    """
    problem, margins = mechanism.problem, mechanism.designed_for
    if not margins or math.prod(mechanism.domain.shape) > MAX_CELLS:
        return None
    cells = Cells(mechanism.domain)
    held = bind(mechanism.held.expression(), cells)
    alone = Projected(replace(problem, query=cells, held=held, decimals=None))
    return TableComparison(
        names=tuple(m.title for m in margins),
        figures=tuple(math.prod(m.shape) for m in margins),
        here=np.array([_root_mean(mechanism, m) for m in margins]),
        cells_alone=np.array([_root_mean(alone, m) for m in margins]),
    )


def _root_mean(mechanism: Mechanism, margin: Margin) -> float:
    stderr = np.asarray(mechanism.margin_accuracy(*margin.names).stderr, np.float64)
    return float(np.sqrt(np.mean(stderr**2)))


def nesting_cost(problem: Problem, axis: AxisSteps, *, contrasts: bool) -> float | None:
    """Squared error of nested contrasts over that of a tree on one axis; None if it is too long."""
    if len(axis.axis) > MAX_LABELS:
        return None
    domain = Domain([axis.axis])
    # Everything in one group has no error where the grand total is known.
    known = problem.neighbours.keeps_total
    filled = {s: np.count_nonzero(axis.axis.step(s).sizes) for s in axis.steps[:-1]}
    steps = [s for s, groups in filled.items() if groups > 1 or not known]
    margins = tuple(Margin((axis.axis,), (step,)) for step in steps)
    workload = Margins(domain, [list(m.names) for m in margins])
    one_axis = replace(
        problem,
        query=workload,
        held=bind(Held(), workload),
        decimals=None,
        capped=False,
    )
    tree = errors_of(
        one_axis, Interactions(domain=domain, workload=margins, held=()), contrasts=contrasts
    )
    counted = 1.0 / (alone(tree) * np.array([m.shape[0] for m in margins]))
    nested = errors_of(
        one_axis,
        Interactions(domain=domain, workload=margins, held=(), with_tree=False),
        contrasts=contrasts,
    )
    by_nesting, by_tree = (
        _error(one_axis, errors, counted, contrasts=contrasts) for errors in (nested, tree)
    )
    return max(by_nesting / by_tree, 1.0)


def _error(problem: Problem, errors: TableErrors, counted: FloatArray, *, contrasts: bool) -> float:
    """The least sum of squared errors by weight that was found, as it comes out."""
    measurement: Measurement
    if contrasts:
        best = best_contrasts(errors, problem.neighbours, "sum", counted)
        measurement = ContrastMeasurement(errors, best.shares)
    else:
        split = best_tables(errors, "sum", counted, pure=problem.budget.pure)
        laws = table_laws(problem, list(whole_parts(split.shares)))
        measurement = TableMeasurement(errors, split.tables, laws)
    inter = errors.interactions
    workload = Margins(inter.domain, [list(m.names) for m in inter.workload])
    noise = MarginalsNoise(workload=workload, measurement=measurement)
    sums = [float(noise.margin_variance(m).sum()) for m in inter.workload]
    return float(counted @ np.array(sums))
