"""A lower bound on the error of any Gaussian noise where levels nest in unequal groups.

Take k* groups under every parent that has so many, at every step, and leave out everything else. On
records from such a regular tree the best noise is known (`ContrastPlan`), and its error is at least
that on the margins' totals inside. Over all choices of the groups at random, a total is inside with
probability π ≤ π_max, so the error of all totals is at least that of the regular tree with each
margin's weight divided by its π_max.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
import numpy.typing as npt

from subspacedp.errors import SubspaceDPError
from subspacedp.subspace.axis_steps import AxisSteps
from subspacedp.subspace.contrast_plan import ContrastPlan, plan_contrasts
from subspacedp.subspace.contrasts import Contrasts
from subspacedp.tables import Axis, Domain, Margin, Neighbours

__all__ = ["regular_bound"]

Int64Array = npt.NDArray[np.int64]

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
MOST_TRIED = 64


@dataclass(frozen=True)
class _Regular:
    """A regular tree inside an axis: how many groups under each parent, and the largest π."""

    children: tuple[int, ...]  # by step in use, finest first
    inside: tuple[float, ...]  # the largest π of a group of every step in use


def regular_bound(contrasts: Contrasts, neighbours: Neighbours, *, capped: bool = False) -> float:
    """The largest bound found, for a squared budget of one and one record a person; 0 if none."""
    choices = [list(_regular_trees(axis)) for axis in contrasts.axes]
    best = 0.0
    for trees in islice(product(*choices), MOST_TRIED):
        try:
            plan = _plan(contrasts, trees, neighbours, capped=capped)
        except SubspaceDPError:  # nothing is free in so small a tree
            continue
        best = max(best, plan.bound)
    return best


def _regular_trees(axis: AxisSteps) -> Iterator[_Regular]:
    """Trees by the numbers of groups under a parent: quantiles of those that there are."""
    present = axis.axis.step(axis.steps[0]).sizes > 0
    for children, numbers, usable in _grown(axis, 0, present):
        chance = np.ones(1)
        inside = [1.0]
        for i in reversed(range(len(children))):
            step = axis.steps[i]
            up = axis.axis.parents(step, axis.above(step))
            own = chance[up] * children[i] / np.maximum(numbers[i][up], 1)
            chance = np.where(usable[i], own, 0.0)
            inside.append(float(chance.max()))
        yield _Regular(children, tuple(reversed(inside)))


def _grown(
    axis: AxisSteps, place: int, able: npt.NDArray[np.bool_]
) -> Iterator[tuple[tuple[int, ...], list[Int64Array], list[npt.NDArray[np.bool_]]]]:
    """Choices of k* from a step on upwards, given which of its groups have a tree below them."""
    step = axis.steps[place]
    if step == axis.top:
        yield (), [], []
        return
    up = axis.axis.parents(step, axis.above(step))
    number = np.bincount(up[able], minlength=axis.axis.step(axis.above(step)).groups)
    for wanted in sorted(
        {int(np.quantile(number[number > 0], q, method="higher")) for q in QUANTILES}
    ):
        for children, numbers, usable in _grown(axis, place + 1, number >= wanted):
            yield (wanted, *children), [number, *numbers], [able, *usable]


def _plan(
    contrasts: Contrasts, trees: tuple[_Regular, ...], neighbours: Neighbours, *, capped: bool
) -> ContrastPlan:
    axes, places = [], []
    for a, (source, tree) in enumerate(zip(contrasts.axes, trees, strict=True)):
        size = math.prod(tree.children)
        levels = {}
        width = 1
        for i in range(1, len(tree.children)):
            width *= tree.children[i - 1]
            levels[f"{a}/{i}"] = (np.arange(size) // width).tolist()
        axes.append(Axis(f"{a}", range(size), levels=levels))
        places.append({step: i for i, step in enumerate(source.steps)})
    domain = Domain(axes)

    def regular(margin: Margin) -> Margin:
        steps = []
        for a, step in enumerate(margin.steps):
            place = places[a][step]
            top = place == len(contrasts.axes[a].steps) - 1
            steps.append(axes[a].depth - 1 if top else place)
        return Margin(tuple(domain.axes), tuple(steps))

    weights = tuple(
        w / math.prod(trees[a].inside[places[a][step]] for a, step in enumerate(m.steps))
        for m, w in zip(contrasts.workload, contrasts.weights, strict=True)
    )
    made = Contrasts(
        domain=domain,
        workload=tuple(regular(m) for m in contrasts.workload),
        weights=weights,
        held=tuple(regular(h) for h in contrasts.held),
    )
    return plan_contrasts(made, neighbours, 1.0, capped=capped)
