"""The marginals mechanism: margins at the levels of a tree, noise where it pays.

Measured are contrasts of interactions at several levels, or whole tables; the release is rebuilt
from their noisy versions and the held totals by least squares, interaction by interaction, so that
all margins agree with each other and with what is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins, HeldOfWorkload, HeldValues
from subspacedp.mechanisms.base import REAL_LIMIT, Mechanism
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.measurement import ByLevel, Measurement
from subspacedp.mechanisms.marginals.prefix_rounding import PrefixRounding
from subspacedp.mechanisms.marginals.strategy import (
    MarginalsStrategy,
    measurement_of,
    noise_of,
    total_known,
)
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.subspace.hierarchy_digits import LevelDigits
from subspacedp.tables import Cells, Margin

__all__ = ["Marginals"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Marginals(Mechanism):
    """Noise at the levels and interactions of a workload, combined by least squares.

    Guarantees
    ----------
    1. The measurement is private with the design's budget over all neighbours
       (docs/proofs/marginals.md).
    2. Margins agree with each other and with the held totals; with decimals, in exact integers.
    3. Unbiased, with the noise model of the design.
    4. Real-valued, and contrasts orthogonal to what is held: S. For every question w with Aᵀw in
       the null space of the held totals in the domain's cells, wᵀ(answers) is a function of the
       measurement alone.
    """

    proofs: ClassVar[tuple[str, ...]] = ("marginals.md", "guarantees.md")

    @property
    def strategy(self) -> MarginalsStrategy:
        """What is measured."""
        if not isinstance(self.design.strategy, MarginalsStrategy):
            raise ReleaseError("This mechanism is for a workload of margins.")
        return self.design.strategy

    @property
    def held(self) -> HeldMargins:
        """What is held exact."""
        if not isinstance(self.design.held, HeldMargins):
            raise ReleaseError("This mechanism holds margins alone.")
        return self.design.held

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.strategy.interactions

    @cached_property
    def measurement(self) -> Measurement:
        """What gets noise."""
        return noise_of(self.design).measurement

    def scales(self) -> tuple[float, float]:
        """The least scale of noise in units of the answers, the largest in drawn units."""
        measurement = measurement_of(self.design)
        return measurement.scales()[0], measurement.largest_drawn()

    def gap(self) -> float:
        """By what share the goal may exceed that of the best split of the budget."""
        return max(self.strategy.goal / self.strategy.bound - 1.0, 0.0)

    def gap_in_words(self) -> str:
        """How near the split is to the best one over these levels and interactions."""
        percent = math.ceil(max(100 * self.gap(), 0.01) * 100) / 100
        if self.design.budget.pure:
            return f"at most {1 + self.gap():.3g} times that of the best split over these tables"
        return f"within {percent:.2g} % of that of the best split over levels and interactions"

    # ------------------------------------------------------------------------ data

    def _answers(self, data: Any) -> Int64Array:
        """The table of cells, or the totals of the workload and of held margins beyond it."""
        held = self.held
        if isinstance(held, HeldOfWorkload):
            return held.query.vector(data, held.sources)
        return self.design.query.answers(data)

    def _totals(self, answers: Int64Array) -> Callable[[Margin], Int64Array]:
        """The exact totals of any margin that is measured, from the answers."""
        held = self.held
        if isinstance(held, HeldOfWorkload):
            tables = held.split(answers)
            return lambda margin: held.of_sources(tables, margin)
        return lambda margin: np.asarray(margin.sum(answers), np.int64)

    def measure(self, data: Any, keys: ReleaseKeys) -> Int64Array:
        """The differentially private measurement: integers, noise included."""
        return self.add_noise(self._answers(data), keys)

    def nothing(self) -> Int64Array:
        """What `check` returns of an empty table: zeros."""
        held = self.held
        if isinstance(held, HeldOfWorkload):
            return np.zeros(sum(math.prod(m.shape) for m in held.sources), np.int64)
        return super().nothing()

    def check(self, data: Any, *, everything: Any = None) -> tuple[Int64Array, Int64Array]:
        """Refuse what cannot be released, before any noise is drawn."""
        if not isinstance(self.held, HeldOfWorkload):
            return super().check(data, everything=everything)
        if (everything is not None) != self.design.capped:
            raise ReleaseError(
                "A design with capped=True takes the bounded tables and `everything`, the tables "
                "of all records; other designs take one."
            )
        totals = self._answers(data)
        full = totals if everything is None else self._answers(everything)
        for vector in (totals,) if full is totals else (totals, full):
            self.check_size(vector)
        return totals, full

    def check_size(self, answers: Int64Array) -> None:
        """Refuse totals that float64 could not carry through the sums over contrasts."""
        super().check_size(answers)
        whole = self.held.query.bounds if isinstance(self.held, HeldOfWorkload) else None
        most = int(answers.max(initial=0)) if whole else int(np.abs(answers).sum(dtype=np.float64))
        if most >= REAL_LIMIT:
            raise ReleaseError("The totals are too large: margins take totals below 2**43.")
        if most >= self.measurement.largest_total():
            raise ReleaseError(
                "The totals times the denominators of their contrasts leave 64 bits; ask for "
                "margins of fewer cells, or measure whole tables."
            )

    # ------------------------------------------------------------------------ measure

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """Contrasts or tables plus noise; last the grand total where none is needed."""
        of = self._totals(answers)

        def totals(level: int, steps: tuple[int, ...]) -> Int64Array:
            table = of(self.interactions.margin(level, steps))
            return np.asarray(self.interactions.to_nodes(table, level), np.int64)

        noisy = self.measurement.measure(totals, keys)
        if not self._total_measured:
            return noisy
        empty = self.interactions.domain.margin()
        return np.concatenate([noisy, of(empty).reshape(-1)])

    @cached_property
    def _total_measured(self) -> bool:
        """Whether the grand total is measured as it is: no neighbouring change alters it."""
        inter = self.interactions
        return total_known(self.design) and any(not inter.kept(i.steps) for i in inter.measured)

    # ------------------------------------------------------------------------ reconstruct

    def reconstruct(
        self,
        noisy: Int64Array,
        exact: HeldValues,
        coins: Keystream,
        *,
        overwrite: bool = False,
    ) -> npt.NDArray[Any]:
        """Every margin of the workload from the measurement and the held totals."""
        del overwrite
        inter = self.interactions
        total = float(noisy[-1]) if self._total_measured else None
        estimates = self._estimates(noisy, exact, total)
        rounding = self.design.digits
        if isinstance(rounding, PrefixRounding):
            steps = self._rounded(rounding, estimates, exact, noisy, coins)
            tables = [
                inter.from_nodes(rounding.table(steps, p.level, p.steps), p.level)
                for p in inter.published
            ]
            whole = np.concatenate([t.reshape(-1) for t in tables])
            return whole if rounding.decimals == 0 else whole / rounding.step
        if isinstance(rounding, LevelDigits):
            near, rest = self._in_parts(self._table(estimates, exact, 0), exact, rounding)
            whole = rounding.round(near, rest, coins)
            return whole if rounding.decimals == 0 else whole / rounding.step
        return self._real(estimates, exact)

    def _real(self, estimates: Mapping[tuple[int, ...], ByLevel], exact: HeldValues) -> FloatArray:
        """The answers, real-valued."""
        if isinstance(self.design.query, Cells):
            return self._table(estimates, exact, 0)
        number = len(self.interactions.published)
        return np.concatenate([self._table(estimates, exact, t).reshape(-1) for t in range(number)])

    def _in_parts(
        self, cells: FloatArray, exact: HeldValues, rounding: LevelDigits
    ) -> tuple[Int64Array, FloatArray]:
        """Whole numbers and what is left of cells, whose sums keep the held totals.

        Of large counts float64 loses the sums of what is left. These are known: the held totals
        less the sums of whole numbers, and the difference, of rounding error, is spread evenly.
        """
        near = np.rint(cells)
        whole, rest = near.astype(np.int64), cells - near
        off = tuple(
            margin.sum(rest) - (totals - margin.sum(whole))
            for margin, totals in zip(self.held.margins, exact, strict=True)
        )
        return whole, rest - rounding.space.lift(off, error=1.0) if off else rest

    def _table(
        self, estimates: Mapping[tuple[int, ...], ByLevel], exact: HeldValues, number: int
    ) -> FloatArray:
        """A table of the workload, real-valued, in its margin's shape."""
        inter = self.interactions
        margin, where = inter.workload[number], inter.published[number]
        if any(h.determines(margin) for h in self.held.margins):
            return self.held.of(exact, margin).astype(np.float64)
        by_interaction = {s: e[where.level] for s, e in estimates.items() if where.level in e}
        table = inter.table_from(by_interaction, where.level, where.steps)
        return inter.from_nodes(table, where.level)

    def without_noise(self, answers: Int64Array, exact: HeldValues) -> FloatArray:
        """What would be released without noise and rounding: confidential, as the answers are."""
        inter, of = self.interactions, self._totals(answers)
        measured: dict[tuple[int, ...], ByLevel] = {}
        for own in self.measurement.errors.measured:
            for level, _ in self.measurement.errors.places(own):
                totals = inter.to_nodes(of(inter.margin(level, own.steps)), level)
                by_level = measured.setdefault(own.steps, {})
                by_level[level] = inter.contrasts(totals, own.steps)
        total = None
        if self._total_measured:
            total = float(of(inter.domain.margin()).reshape(()))
        return self._real(self._combined(measured, exact, total), exact)

    def _exact(self, exact: HeldValues, own: Interaction, level: int) -> FloatArray:
        """The contrasts of an interaction at a level that is held."""
        inter = self.interactions
        totals = self.held.of(exact, inter.margin(level, own.steps))
        return inter.contrasts(inter.to_nodes(totals, level), own.steps)

    def _estimates(
        self, noisy: Int64Array, exact: HeldValues, total: float | None
    ) -> dict[tuple[int, ...], ByLevel]:
        """For every interaction its contrasts at every level from its finest one on."""
        return self._combined(self.measurement.contrasts(noisy), exact, total)

    def _combined(
        self,
        measured: Mapping[tuple[int, ...], ByLevel],
        exact: HeldValues,
        total: float | None,
    ) -> dict[tuple[int, ...], ByLevel]:
        """Least squares for every interaction; what is held is taken from the held totals."""
        inter, tree = self.interactions, self.interactions.tree
        out: dict[tuple[int, ...], ByLevel] = {}
        for own in inter.all.values():
            known = None
            if own.held is not None:
                known = self._exact(exact, own, own.held)
            root = None
            if total is not None and not inter.kept(own.steps):
                root = np.full((1, *(1,) * len(inter.axes)), total)
            if own.steps in measured:
                smoother = self.measurement.smoother(own)
                out[own.steps] = smoother.estimate(measured[own.steps], known, root)
            elif known is not None and own.held is not None:
                out[own.steps] = {
                    level: tree.climb(known, own.held, level)
                    for level in range(own.finest, len(tree))
                }
            elif root is not None:
                out[own.steps] = {tree.root: root}
        return out

    def _rounded(
        self,
        rounding: PrefixRounding,
        estimates: Mapping[tuple[int, ...], ByLevel],
        exact: HeldValues,
        noisy: Int64Array,
        coins: Keystream,
    ) -> dict[tuple[int, ...], Int64Array]:
        inter = self.interactions
        real: dict[tuple[int, ...], FloatArray] = {}
        known: dict[tuple[int, ...], Int64Array] = {}
        for own in inter.all.values():
            level = rounding.exact_level(own)
            if level is not None:
                if own.held is not None:
                    totals = self.held.of(exact, inter.margin(level, own.steps))
                    known[own.steps] = np.asarray(inter.to_nodes(totals, level), np.int64)
                else:
                    known[own.steps] = noisy[-1:].reshape(1, *(1,) * len(inter.axes))
            if level is None or level > own.finest:
                here = {s: e[own.finest] for s, e in estimates.items() if own.finest in e}
                real[own.steps] = inter.table_from(here, own.finest, own.steps)
        return rounding.round(real, known, coins)
