"""Errors beside those of another design, no data needed: noise on the cells alone, and a tree.

One axis is treated exactly, as a tree. On every other one contrasts of a level are deviations from
an equal split of the next coarser one, which for groups of unequal size is private and unbiased and
not the best. How much it costs is said for the axis alone: the levels that are in use there, all
counting the same, once as nested contrasts and once as a tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from subspacedp.arrays import FloatArray
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

MAX_LABELS = 4096  # of an axis for which the cost of nested contrasts is computed
MAX_CELLS = 10**6  # of a table whose margins are compared with those of noise on its cells


@dataclass(frozen=True, eq=False)
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
    margins = tuple(Margin((axis.axis,), (step,)) for step in axis.steps[:-1])
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
