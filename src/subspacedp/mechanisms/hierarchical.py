"""The hierarchical mechanism: noise at several levels of one axis, combined by least squares.

Measured are the table itself and the tables summed to coarser levels of the axis, each with its
share of the budget. The release is one table of cells: its totals at every level are the estimates
of least squares, so all levels agree, and held totals are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.level_errors import LevelErrors
from subspacedp.mechanisms.level_strategy import (
    WHOLE,
    LevelLaws,
    LevelStrategy,
    constrained,
    level_costs,
)
from subspacedp.noise import Keystream, ReleaseKeys, add_noise
from subspacedp.release import Design
from subspacedp.release.workload_strategy import whole_total_of
from subspacedp.subspace.hierarchy_digits import LevelDigits
from subspacedp.subspace.hierarchy_estimate import LevelEstimate
from subspacedp.subspace.hierarchy_split import LevelSplit
from subspacedp.subspace.margins import MarginNullSpace
from subspacedp.tables import Axis, Cells, Domain

__all__ = ["Hierarchical", "with_levels"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchical(Mechanism):
    """Integer noise on the tables of several levels; all levels of the release agree.

    Guarantees
    ----------
    1. All measurements together are private with the design's budget over all neighbours
       (docs/proofs/hierarchies.md).
    2. Real-valued: Π_N x̃ + C⁺c, x̃ the estimate of least squares without the held totals: S, and
       of least variance among all linear unbiased reconstructions that are S. Where no neighbour
       can change the held totals, least squares under them: plain.
    3. With decimals: least squares under the held totals, of least variance among all linear
       unbiased reconstructions, rounded so that they add up: G.
    4. Unbiased at every level, with the noise model of the design.
    """

    proofs: ClassVar[tuple[str, ...]] = ("hierarchies.md", "guarantees.md", "digits.md")

    @cached_property
    def strategy(self) -> LevelStrategy:
        """What is measured at which level."""
        if not isinstance(self.design.strategy, LevelStrategy):
            raise ReleaseError("This design has no levels to measure.")
        return self.design.strategy

    @cached_property
    def estimate(self) -> LevelEstimate:
        """How the measurements are combined."""
        return self.strategy.estimate(self.design)

    @cached_property
    def laws(self) -> LevelLaws:
        """The noise of every measured level."""
        return self.strategy.law(self.design)

    def shares(self) -> dict[str, float]:
        """The share of the budget of every level: of ε if pure, of μ² otherwise."""
        return {name: part / WHOLE for name, part in self.strategy.shares.items()}

    def split_gap(self) -> float | None:
        """By what share the weighted error may exceed that of the best split over the levels.

        Computed again from the design, whatever found the split. None for a pure budget, where the
        error is not convex in the shares and nothing is proven.
        """
        if self.design.budget.pure:
            return None
        strategy = self.strategy
        split, costs, step_of = _problem(self.design, strategy.axis, strategy.importance)
        shares = {step_of[name]: part / WHOLE for name, part in strategy.shares.items()}
        by_level = [shares.get(step, 0.0) for step in split.tree.steps]
        asked = [i for i, step in enumerate(split.tree.steps) if step in shares]
        return split.gap(by_level, costs, asked)

    def compare_levels(self) -> LevelErrors:
        """The error of every level beside that of noise on the cells alone; no data needed."""
        return LevelErrors.of(self.design, self.strategy)

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """The table and its sums at every measured level, each plus its own noise, in one row."""
        estimate, laws = self.estimate, list(self.laws.of_step.values())
        sizes = estimate.sizes()
        out = np.empty(sum(sizes), np.int64)
        sums = estimate.sums(estimate.rows(answers))
        at = 0
        for size, law, values in zip(sizes, laws, [answers, *sums.values()], strict=True):
            part = out[at : at + size]
            # Numbered on through all levels: no two numbers share a random word.
            add_noise(law, keys, at, np.ascontiguousarray(values).reshape(-1), part)
            at += size
        return out

    def reconstruct(
        self,
        noisy: Int64Array,
        exact: HeldValues,
        coins: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """Least squares over all levels, held totals exact; as real numbers or digits."""
        design, estimate = self.design, self.estimate
        space = estimate.space
        cells = noisy[: space.size].reshape(space.shape)
        residual = space.held.residual(cells, exact)
        correction = self._correction(noisy, cells, residual)
        digits = design.digits
        if isinstance(digits, LevelDigits):
            whole: Int64Array | int = 0
            if not estimate.constrained:
                lifted = space.lift_exact(residual)
                whole = lifted.whole
                correction = space.project(correction, overwrite=True)
                correction -= lifted.numerator / lifted.denominator
            steps = cells * digits.step - digits.round(whole, -correction, coins)
            return steps if digits.decimals == 0 else steps / digits.step
        if estimate.constrained:
            correction += cells
            return correction
        values = space.subtract_lift(cells, residual, overwrite=overwrite)
        values += space.project(correction, overwrite=True)
        return values

    def _correction(self, noisy: Int64Array, cells: Int64Array, residual: HeldValues) -> FloatArray:
        """What least squares adds to the noisy cells: a function of noise alone.

        Measurements enter as their differences from the sums of the noisy cells, whole numbers of
        the size of the noise, so nothing is lost to rounding however large the counts are.
        """
        estimate = self.estimate
        sums = estimate.sums(estimate.rows(cells))
        at, found = cells.size, {}
        for level, total in sums.items():
            measured = noisy[at : at + total.size].reshape(total.shape)
            found[level] = (measured - total).astype(np.float64)
            at += total.size
        return estimate.table(estimate.correction(found, residual))


def with_levels(
    design: Design,
    levels: Sequence[str] | None,
    importance: Mapping[str, float] | None = None,
) -> Design:
    """The design with what it measures: which levels, and the best split of the budget."""
    if not isinstance(design.query, Cells) or not isinstance(design.held, HeldMargins):
        raise ReleaseError(
            "The hierarchical mechanism is for the cells of a table, with margins held by "
            "`hold(...)`."
        )
    axis, names = _levels(design.domain, levels)
    _check_changeable(design, axis, names)
    weights = _importance(axis, names, importance)
    split, costs, step_of = _problem(design, axis.name, weights)
    measured = [split.tree.steps.index(step_of[name]) for name in names]
    found = split.best(costs, measured, pure=design.budget.pure)
    shares = _millionths({name: found.shares[i] for name, i in zip(names, measured, strict=True)})
    strategy = LevelStrategy(axis=axis.name, shares=shares, importance=weights)
    made = replace(design, strategy=strategy)
    if isinstance(made.digits, LevelDigits):
        made.digits.check_scale(made.law.scale)
    return made


def _check_changeable(design: Design, axis: Axis, names: Sequence[str]) -> None:
    """Refuse to spend budget on a total that no neighbouring change alters."""
    domain = design.domain
    if design.space.rank or not whole_total_of(design) or domain.size > len(axis):
        return
    for step, level in enumerate(axis.chain):
        if step and level.nonempty == 1 and level.name in names:
            raise ReleaseError(
                f"No neighbouring change alters the total of `{level.name}`, so noise on it would "
                f"waste budget; hold it with `hold()`, or leave `{level.name}` out of `levels`."
            )


def _problem(
    design: Design, axis_name: str, weights: Mapping[str, float]
) -> tuple[LevelSplit, list[float], dict[str, int]]:
    """The weighted error as a function of shares, what each level costs, and places of levels."""
    space = design.space
    if not isinstance(space, MarginNullSpace):
        raise ReleaseError("The hierarchical mechanism holds margins of the table alone.")
    axis = design.domain.axis(axis_name)
    step_of = {level.name: step for step, level in enumerate(axis.chain)}
    estimate = LevelEstimate(
        space=space,
        place=design.domain.axes.index(axis),
        precision={0: 1.0},
        constrained=constrained(design),
        also=tuple(step_of.values()),
    )
    tree = estimate.tree
    by_step = {step_of[name]: weight for name, weight in weights.items()}
    split = LevelSplit(
        tree=tree,
        components=estimate.dimensions,
        weights=[by_step.get(step, 0.0) for step in tree.steps],
        cells=estimate.cells,
        constrained=estimate.constrained,
    )
    # Only ratios of weights matter: those of levels that are not fixed, so that none over- or
    # underflows.
    free = split.level_errors([1.0] * len(tree.steps)) > 0
    counted = np.where(free, split.weights, 0.0)
    split = replace(split, weights=(counted / (counted.max() or 1.0)).tolist())
    costs = [level_costs(design.neighbours, step) for step in tree.steps]
    pure = design.budget.pure
    return split, [float(cost.l1 if pure else cost.l2_squared) for cost in costs], step_of


def _millionths(found: dict[str, float]) -> dict[str, int]:
    """Shares as whole millionths that sum to a million, finest level first.

    What rounding down leaves goes to the labels.
    """
    labels, *coarser = found
    shares = {name: math.floor(found[name] * WHOLE) for name in coarser}
    return {labels: WHOLE - sum(shares.values()), **shares}


def _levels(domain: Domain, levels: Sequence[str] | None) -> tuple[Axis, list[str]]:
    """The axis with the levels, and their names, finest first."""
    if levels is None:
        nested = [axis for axis in domain.axes if len(axis.chain) > 1]
        if len(nested) != 1:
            raise ReleaseError(
                "`levels` must name the levels to measure: "
                + ("no axis has any." if not nested else "several axes have levels.")
            )
        return nested[0], [level.name for level in nested[0].chain]
    found = [levels] if isinstance(levels, str) else levels
    if not isinstance(found, Iterable) or not all(isinstance(name, str) for name in found):
        raise ReleaseError("`levels` must be a list of names of levels, at least one.")
    names = [str(name) for name in found]
    if not names:
        raise ReleaseError("`levels` must be a list of names of levels, at least one.")
    places = {
        level.name: (a, step)
        for a, axis in enumerate(domain.axes)
        for step, level in enumerate(axis.chain)
    }
    for name in names:
        if name not in places:
            domain.margin(name)  # says which levels there are
        if names.count(name) > 1:
            raise ReleaseError(f"`levels` names the level `{name}` twice.")
    axes = sorted({places[name][0] for name in names})
    if len(axes) > 1:
        first, second = (domain.axes[a].name for a in axes[:2])
        raise ReleaseError(
            f"`levels` must be of one axis; got levels of `{first}` and of `{second}`. The other "
            "axes are measured with all their labels at every level."
        )
    axis = domain.axes[axes[0]]
    if axis.name not in names:
        raise ReleaseError(
            f"`levels` must contain `{axis.name}`, the labels of the axis: without noise on the "
            "cells there is no estimate of them."
        )
    return axis, sorted(names, key=lambda name: places[name][1])


def _importance(
    axis: Axis, names: list[str], importance: Mapping[str, float] | None
) -> dict[str, float]:
    """What the mean squared error of each level counts for: one each of those measured."""
    if importance is None:
        return dict.fromkeys(names, 1.0)
    if not isinstance(importance, Mapping) or not importance:
        raise ReleaseError(
            "For the hierarchical mechanism `importance` must map names of levels to what their "
            "mean squared error counts for."
        )
    known = [level.name for level in axis.chain]
    out: dict[str, float] = {}
    for name, weight in importance.items():
        if name not in known:
            raise DomainError(
                f"`importance` names `{name}`, which is no level of `{axis.name}`; its levels are "
                f"{', '.join(f'`{one}`' for one in known)}.",
                name=name,
            )
        number = isinstance(weight, int | float | np.integer | np.floating)
        if not number or isinstance(weight, bool) or not 0 <= float(weight) < math.inf:
            raise ReleaseError(
                f"The importance of `{name}` must be a finite number of at least 0; got {weight!r}."
            )
        out[str(name)] = float(weight)
    if not any(out.values()):
        raise ReleaseError("At least one level must have an importance above 0.")
    return {name: out[name] for name in known if name in out}
