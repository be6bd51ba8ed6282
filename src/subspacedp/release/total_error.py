"""What the rounding of digits adds to all variances together, without a table of cells.

An entry of the cumulative table enters the cells at its own place and just after it along every
axis: two of them on an axis, one at its end. So the sum over all cells is Σ v(entry)·∏ (2 or 1),
and entries with the same denominators have the same v: a few classes on every axis say it all.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.rounding import MarginRounding
from subspacedp.rounding.merged import MergedAxis
from subspacedp.rounding.merged_parts import ordered_groups
from subspacedp.tables import Margin, along

__all__ = ["total_rounding_variance", "total_squared_error"]

Int64Array = npt.NDArray[np.int64]
LONGEST = 1 << 22  # positions of an axis that are sorted into classes
MOST = 1 << 22  # combinations of classes
SATURATED = 1 << 20


def total_squared_error(mechanism: Mechanism) -> float:
    """`design.expected_error().total` to rounding error, without a table of cells."""
    each = float(mechanism.law.variance) * float(mechanism.unit) ** 2
    noise = each * mechanism.space.dimension
    rounding = mechanism.rounding
    if not isinstance(rounding, MarginRounding | None):
        raise ReleaseError("Digits of held margins are rounded along merged axes.")
    return noise + (0.0 if rounding is None else total_rounding_variance(rounding))


def total_rounding_variance(plan: MarginRounding) -> float:
    """The sum of `plan.variance()` over all cells, to rounding error.

    For axes too long to look at every position, the bound of 1/6 for every rounding: a little more.
    """
    if not plan.held.margins or not plan.needed:
        return 0.0
    unit = 1.0 / plan.step**2
    if max(plan.shape) > LONGEST:
        return unit * _most(plan)
    classes = [_classes(plan, axis) for axis in plan.axes]
    if math.prod(len(weights) for weights, _, _ in classes) > MOST:
        return unit * _most(plan)
    dimensions = len(classes)
    shape = tuple(len(weights) for weights, _, _ in classes)
    multiple, saturated = np.ones(shape, np.int64), np.zeros(shape, bool)
    for i, factor in enumerate(plan.held.expansion.values()):
        denominator = np.ones((1,) * dimensions, np.int64)
        for a, (_, parts, _) in enumerate(classes):
            denominator = denominator * along(parts[i], a, dimensions)
        denominator = denominator // np.gcd(denominator, factor * plan.step)
        saturated |= denominator > SATURATED
        multiple = np.lcm(multiple, np.where(denominator > SATURATED, 1, denominator))
        saturated |= multiple > SATURATED
        multiple[saturated] = 1
    each = np.where(saturated, 1.0, 1.0 - 1.0 / multiple.astype(np.float64) ** 2) / 6.0
    for m in range(len(plan.held.essential)):
        fixed = np.ones((1,) * dimensions, bool)
        for a, (_, _, ends) in enumerate(classes):
            fixed = fixed & along(ends[m], a, dimensions)
        each[np.broadcast_to(fixed, shape)] = 0.0
    for a, (weights, _, _) in enumerate(classes):
        each = each * along(weights, a, dimensions)
    return unit * float(each.sum())


def _classes(
    plan: MarginRounding, axis: MergedAxis
) -> tuple[npt.NDArray[np.float64], Int64Array, npt.NDArray[np.bool_]]:
    """Classes of positions: how many cells each enters in all, denominators, ends of runs."""
    length = len(axis)
    runs = {k: axis.run(k) for k in (*plan.held.expansion, *plan.held.essential)}
    parts, code = [], np.zeros(length, np.int64)
    for k in plan.held.expansion:
        sizes = runs[k].sizes[runs[k].group]
        parts.append(sizes // np.gcd(sizes, runs[k].place))
    ends = [runs[m].place == runs[m].sizes[runs[m].group] for m in plan.held.essential]
    for column in (*parts, *ends):
        _, number = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (int(number.max()) + 1) + number, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    twice = np.full(length, 2.0)
    twice[-1] = 1.0
    return (
        np.bincount(code, twice).astype(np.float64),
        np.stack([part[first] for part in parts]),
        np.stack([end[first] for end in ends]),
    )


def _most(plan: MarginRounding) -> float:
    """1/6 for every rounding, by inclusion and exclusion over the entries without one."""
    total = 0.0
    for number in range(len(plan.held.essential) + 1):
        for chosen in combinations(plan.held.essential, number):
            term = math.prod(2.0 * _ends(axis, chosen) - 1.0 for axis in plan.axes)
            total += (-1) ** number * term
    return total / 6.0


def _ends(axis: MergedAxis, chosen: tuple[Margin, ...]) -> int:
    """How many positions end a run of all these margins: those of the coarsest do."""
    return min((len(ordered_groups(axis, m)[1]) for m in chosen), default=len(axis))
