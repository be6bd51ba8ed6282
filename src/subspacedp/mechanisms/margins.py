"""Margins of a table that is never formed: contrasts or tables are measured, margins rebuilt.

What is measured is a list of small tables of integers. The release is rebuilt from their noisy
versions and the held totals: contrasts part by part, then every margin as a sum of spread-out
contrasts, so margins agree with each other and with what is held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import BudgetError, InvariantError, ReleaseError
from subspacedp.invariants import HeldOfWorkload, HeldValues
from subspacedp.mechanisms.base import REAL_LIMIT, Mechanism
from subspacedp.noise import Keystream, ReleaseKeys, RoundedGaussian, TableNoise, add_noise
from subspacedp.release import Design
from subspacedp.release.contrast_strategy import ContrastStrategy, squared_budget
from subspacedp.release.table_strategy import TableStrategy
from subspacedp.release.workload_strategy import WorkloadStrategy
from subspacedp.subspace import (
    Contrasts,
    WorkloadDigits,
    WorkloadSpace,
    plan_contrasts,
    plan_tables,
)
from subspacedp.tables import Margin

__all__ = ["MarginContrasts", "MarginMechanism", "MarginTotals", "for_margins", "of_margins"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

LARGEST_SCALE = 2.0**40  # of noise in the units that are measured
SMALLEST_SCALE = 0.001  # of noise in units of the answers


@dataclass(frozen=True, eq=False, repr=False)
class MarginMechanism(Mechanism):
    """What the two mechanisms for workloads have in common.

    Guarantees
    ----------
    1. The measurement is private with the design's budget over all neighbours
       (docs/proofs/margins.md).
    2. Margins agree with each other and with the held totals; with decimals, in exact integers.
    3. Unbiased, with the noise model of the design.
    """

    proofs: ClassVar[tuple[str, ...]] = ("margins.md", "guarantees.md")

    @property
    def strategy(self) -> WorkloadStrategy:
        """What is measured."""
        if not isinstance(self.design.strategy, WorkloadStrategy):
            raise ReleaseError("This mechanism is for a workload of margins.")
        return self.design.strategy

    @property
    def held(self) -> HeldOfWorkload:
        """What is held of the workload."""
        if not isinstance(self.design.held, HeldOfWorkload):
            raise ReleaseError("This mechanism is for a workload of margins.")
        return self.design.held

    def measure(self, data: Any, keys: ReleaseKeys) -> Int64Array:
        """The differentially private measurement: integers, noise included."""
        return self.add_noise(self._totals(data), keys)

    def _totals(self, data: Any) -> Int64Array:
        """The totals of the workload and of held margins beyond it."""
        return self.held.query.vector(data, self.held.sources)

    def nothing(self) -> Int64Array:
        """What `check` returns of an empty table: zeros."""
        return np.zeros(sum(math.prod(m.shape) for m in self.held.sources), np.int64)

    def check(self, data: Any, *, everything: Any = None) -> tuple[Int64Array, Int64Array]:
        """Refuse what cannot be released, before any noise is drawn."""
        if (everything is not None) != self.design.capped:
            raise ReleaseError(
                "A design with capped=True takes the bounded tables and `everything`, the tables "
                "of all records; other designs take one."
            )
        totals = self._totals(data)
        full = totals if everything is None else self._totals(everything)
        for vector in (totals,) if full is totals else (totals, full):
            self.check_size(vector)
        return totals, full

    def check_size(self, answers: Int64Array) -> None:
        """Refuse totals that float64 could not carry through the sums over contrasts."""
        super().check_size(answers)
        if int(answers.max(initial=0)) >= REAL_LIMIT:
            raise ReleaseError("The totals are too large: margins take totals below 2**43.")

    def reconstruct(
        self,
        noisy: Int64Array,
        exact: HeldValues,
        coins: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """Margins from noisy contrasts and the contrasts of the held totals."""
        del overwrite
        held, contrasts = self.held, self.strategy.contrasts
        found = self.contrasts_of(noisy)
        for part in contrasts.parts:
            if part not in found:
                totals = held.of(exact, part).astype(np.float64)
                found[part] = contrasts.project(totals, part)
        digits = self.design.digits
        if isinstance(digits, WorkloadDigits):
            tables = digits.round(found, exact, coins)
            steps = np.concatenate([tables[m].reshape(-1) for m in held.query.margins])
            return steps if digits.decimals == 0 else steps / digits.step
        out = [
            held.of(exact, m).astype(np.float64)
            if any(h.determines(m) for h in held.margins)
            else contrasts.margin_from(found, m)
            for m in held.query.margins
        ]
        return np.concatenate([table.reshape(-1) for table in out])

    def contrasts_of(self, noisy: Int64Array) -> dict[Margin, FloatArray]:
        """The contrasts of every free part, from the measurement alone."""
        raise NotImplementedError

    def _total(self, totals: Int64Array) -> list[Int64Array]:
        """The grand total where it is measured without noise."""
        if not self._total_measured:
            return []
        empty = self.strategy.contrasts.domain.margin()
        return [self.held.of_sources(self.held.split(totals), empty).reshape(-1)]

    @property
    def _total_measured(self) -> bool:
        contrasts = self.strategy.contrasts
        return self.strategy.whole_total and any(not contrasts.kept(p) for p in contrasts.free)

    def _with_total(self, found: dict[Margin, FloatArray], noisy: Int64Array) -> None:
        if self._total_measured:
            margin = self.strategy.contrasts.domain.margin()
            found[margin] = noisy[-1:].astype(np.float64).reshape(margin.shape)


@dataclass(frozen=True, eq=False, repr=False)
class MarginContrasts(MarginMechanism):
    """Gaussian noise on the contrasts of every interaction, of the best scales."""

    @property
    def own(self) -> ContrastStrategy:
        """What is measured."""
        if not isinstance(self.design.strategy, ContrastStrategy):
            raise ReleaseError("This mechanism measures contrasts.")
        return self.design.strategy

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """Contrasts as integers, plus noise; groups of one law stand together."""
        plan, contrasts = self.own.plan, self.own.contrasts
        out, at = [], 0
        tables = self.held.split(answers)
        for part in plan.parts:
            totals = self.held.of_sources(tables, part)
            measured = contrasts.whole_contrasts(totals, part, plan.fine(part)).reshape(-1)
            scales = np.broadcast_to(plan.scales(part), part.shape).reshape(-1)
            order = np.argsort(scales, kind="stable")
            noisy = measured[order]
            for scale, stretch in _runs(scales[order]):
                if scale > 0:
                    law = RoundedGaussian(scale)
                    piece = noisy[stretch]
                    add_noise(law, keys, at + stretch.start, piece, piece)
            back = np.empty_like(noisy)
            back[order] = noisy
            out.append(back)
            at += back.size
        return np.concatenate([*out, *self._total(answers)])

    def contrasts_of(self, noisy: Int64Array) -> dict[Margin, FloatArray]:
        """Noisy contrasts in units of the answers, projected onto contrasts."""
        plan, contrasts = self.own.plan, self.own.contrasts
        found: dict[Margin, FloatArray] = {}
        at = 0
        for part in plan.parts:
            size = math.prod(part.shape)
            units = np.maximum(contrasts.denominators(part), 1.0) * plan.fine(part)
            own = noisy[at : at + size].reshape(part.shape) / units
            found[part] = contrasts.project(own, part)
            at += size
        self._with_total(found, noisy)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class MarginTotals(MarginMechanism):
    """Noise on the totals of tables of margins, combined part by part."""

    @property
    def own(self) -> TableStrategy:
        """What is measured."""
        if not isinstance(self.design.strategy, TableStrategy):
            raise ReleaseError("This mechanism measures tables.")
        return self.design.strategy

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """The totals of every table, plus noise of its own law."""
        out, at = [], 0
        tables = self.held.split(answers)
        for table, law in zip(self.own.plan.tables, self.own.laws, strict=True):
            noisy = self.held.of_sources(tables, table).reshape(-1).copy()
            add_noise(law, keys, at, noisy, noisy)
            noisy.reshape(table.shape)[table.empty] = 0
            out.append(noisy)
            at += noisy.size
        return np.concatenate([*out, *self._total(answers)])

    def contrasts_of(self, noisy: Int64Array) -> dict[Margin, FloatArray]:
        """The weighted mean of what every table says of a part."""
        plan, contrasts = self.own.plan, self.own.contrasts
        noise = self.design.noise
        if not isinstance(noise, TableNoise):
            raise ReleaseError("This mechanism measures tables.")
        tables, at = [], 0
        for table in plan.tables:
            size = math.prod(table.shape)
            tables.append(noisy[at : at + size].reshape(table.shape).astype(np.float64))
            at += size
        found: dict[Margin, FloatArray] = {}
        for i, part in enumerate(plan.parts):
            mean = np.zeros(part.shape)
            for j, table in enumerate(plan.tables):
                if noise.mixing[i, j] > 0:
                    mean += noise.mixing[i, j] * table.coarsen(tables[j], part)
            found[part] = contrasts.project(mean, part)
        self._with_total(found, noisy)
        return found


def _runs(scales: FloatArray) -> list[tuple[float, slice]]:
    starts = np.flatnonzero(np.diff(scales, prepend=-1.0))
    ends = [*starts[1:].tolist(), scales.size]
    return [
        (float(scales[start]), slice(start, end))
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]


def for_margins(design: Design, importance: npt.ArrayLike | None = None) -> MarginMechanism:
    """The mechanism for a workload: contrasts for "optimal", tables for "projected"."""
    if importance is not None:
        raise ReleaseError("A workload has its weights: Margins(domain, [...], weights=[...]).")
    contrasts = _contrasts(design)
    if design.mechanism == "auto":
        return _least(design, contrasts)
    if design.mechanism == "projected":
        tables = plan_tables(
            contrasts, design.neighbours, pure=design.budget.pure, capped=design.capped
        )
        own = TableStrategy(tables, design.budget)
        made: MarginMechanism = MarginTotals(replace(design, strategy=own))
        _check_scales(min(law.scale for law in own.laws), max(law.scale for law in own.laws))
        return made
    if design.mechanism != "optimal":
        raise ReleaseError(
            f"The {design.mechanism} mechanism is not for workloads of margins; take 'optimal' for "
            "Gaussian budgets, or 'projected'."
        )
    if design.budget.pure:
        raise BudgetError(
            "The optimal mechanism adds Gaussian noise: use ApproxDP, ZCDP or GaussianDP, or the "
            "projected mechanism for PureDP."
        )
    squared = squared_budget(design.budget, design.neighbours)
    plan = plan_contrasts(contrasts, design.neighbours, squared, capped=design.capped)
    scales = [plan.sigma(part) for part in plan.parts]
    largest = max(float(plan.scales(part).max()) for part in plan.parts)
    _check_scales(min(float(s[s > 0].min()) for s in scales), largest)
    return MarginContrasts(replace(design, strategy=ContrastStrategy(plan)))


def of_margins(design: Design) -> MarginMechanism | None:
    """The mechanism of a design that is made already; None if it is not one of these."""
    if isinstance(design.strategy, ContrastStrategy):
        return MarginContrasts(design)
    return MarginTotals(design) if isinstance(design.strategy, TableStrategy) else None


def _least(design: Design, contrasts: Contrasts) -> MarginMechanism:
    """Contrasts where they are known to be best; with unequal groups the better of the two."""
    if design.budget.pure:
        names = ["projected"]
    else:
        names = ["optimal"] if contrasts.equal else ["optimal", "projected"]
    made = [for_margins(replace(design, mechanism=name)) for name in names]
    errors = [float(_weighted_error(m)) for m in made]
    best = int(np.argmin(errors))
    others = ", ".join(
        f"{n} {e:,.4g}" for n, e in zip(names, errors, strict=True) if n != names[best]
    )
    least = f", the least (the others: {others})" if others else ""
    why = f"{names[best]}: expected squared error {errors[best]:,.4g}{least}."
    return replace(made[best], why=why)


def _weighted_error(mechanism: MarginMechanism) -> float:
    contrasts = mechanism.strategy.contrasts
    per_cell = mechanism.expected_error().per_cell
    weights = np.repeat(contrasts.weights, [math.prod(m.shape) for m in contrasts.workload])
    return float(per_cell @ weights)


def _contrasts(design: Design) -> Contrasts:
    if not isinstance(design.space, WorkloadSpace):
        raise ReleaseError("This mechanism is for a workload of margins.")
    contrasts = design.space.contrasts
    if not contrasts.free:
        raise InvariantError(
            "What is held fixes every margin of the workload: nothing is left to protect."
        )
    return contrasts


def _check_scales(smallest: float, largest: float) -> None:
    if largest > LARGEST_SCALE:
        raise BudgetError(
            f"The budget is too small for counts in 64 bits: the noise would have a scale of "
            f"{largest:.3g}, and at most 2**40 is possible.",
            scale=largest,
        )
    if smallest < SMALLEST_SCALE:
        raise BudgetError(
            f"The budget is so large that no noise would be left: a scale of {smallest:.3g}, "
            f"where at least {SMALLEST_SCALE:g} is asked for.",
            scale=smallest,
        )
