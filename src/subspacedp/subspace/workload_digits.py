"""Published digits of many margins that add up: with each other, and to what is held.

Margins are rounded from coarse to fine. Before a margin is rounded, its contrasts below the
coarser margins are replaced by those of the rounded ones, so its real totals there are whole; then
it is rounded with those totals kept (`Cumulated`). Every meet of two margins is rounded first, so
two margins agree wherever both know a total. Proof: docs/proofs/margins.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldOfWorkload, HeldValues
from subspacedp.subspace.contrasts import Contrasts
from subspacedp.subspace.cumulated import Cumulated
from subspacedp.subspace.digits import WordSource
from subspacedp.subspace.total_coins import coin_squares
from subspacedp.subspace.workload_space import WorkloadSpace
from subspacedp.tables import Margin
from subspacedp.tables.meets import all_meets, steps_of

__all__ = ["WorkloadDigits"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class WorkloadDigits:
    """How the margins of a workload are rounded to multiples of 10**-decimals.

    Guarantees
    ----------
    1. All margins agree with each other and with the held ones, exactly, as integers.
    2. Unbiased over the coins, up to the rounding of float64.
    3. `variance` and `coefficients` bound what rounding adds: given everything before it a coin has
       mean 0, a range of one step and so a variance of at most a quarter of a squared step.
    """

    space: WorkloadSpace
    decimals: int
    whole_total: bool = False  # the grand total is measured without noise and must stay as it is

    @property
    def contrasts(self) -> Contrasts:
        """The parts of the workload."""
        return self.space.contrasts

    @property
    def held(self) -> HeldOfWorkload:
        """What is held."""
        return self.space.held

    @property
    def step(self) -> int:
        """How many grid steps make one: 10**decimals."""
        return int(10**self.decimals)

    @property
    def needed(self) -> bool:
        """Noise on contrasts is real: whole totals are always rounded."""
        return True

    def describe(self) -> str:
        """The rounding in words, for certificates."""
        return (
            "margin by margin from coarse to fine, cumulative random rounding to multiples of "
            f"10**-{self.decimals} that keeps the totals of coarser margins, independent of the "
            "noise; a bound on its variance is in every stated error"
        )

    @cached_property
    def family(self) -> tuple[Margin, ...]:
        """All meets of asked and held margins that the workload determines, coarse ones first.

        A grand total without noise is one of them: rounded first, it stays what it is.
        """
        asked, total = self.contrasts.workload, self.contrasts.domain.margin()
        margins = all_meets((*asked, *self.contrasts.held, *((total,) if self.whole_total else ())))
        steps = steps_of(asked)
        known = [m for m in margins if np.any(np.all(steps <= np.array(m.steps), axis=1))]
        return tuple(sorted(known, key=lambda m: (-sum(m.steps), m.steps)))

    @cached_property
    def plans(self) -> dict[Margin, Cumulated]:
        """For every margin that is rounded its layout and the coarser margins it keeps."""
        steps = np.array([m.steps for m in self.family], np.int64)
        out = {}
        for i, margin in enumerate(self.family):
            if any(h.determines(margin) for h in self.contrasts.held):
                continue
            below = np.flatnonzero(np.all(steps >= steps[i], axis=1))
            below = below[below != i]
            largest = [
                self.family[j]
                for j in below.tolist()
                if np.count_nonzero(np.all(steps[below] <= steps[j], axis=1)) == 1
            ]
            out[margin] = Cumulated(self.contrasts, margin, tuple(largest))
        return out

    def round_in_place(
        self, noisy: Int64Array, residual: HeldValues, coins: WordSource
    ) -> NoReturn:
        """Margins are rounded from contrasts, by `round`."""
        del noisy, residual, coins
        raise ReleaseError("Margins of a workload are rounded from their contrasts.")

    def round(
        self, contrasts: Mapping[Margin, FloatArray], exact: HeldValues, coins: WordSource
    ) -> dict[Margin, Int64Array]:
        """Whole numbers of steps for every margin of the family, from real contrasts."""
        rounded: dict[Margin, Int64Array] = {}
        known: dict[Margin, FloatArray] = {}
        at = 0

        def words(count: int) -> npt.NDArray[np.uint64]:
            nonlocal at
            at += count
            return coins.words(at - count, count)

        for margin in self.family:
            plan = self.plans.get(margin)
            if plan is None:
                rounded[margin] = self.held.of(exact, margin) * self.step
                continue
            parts: dict[Margin, FloatArray] = {}
            for part in self.contrasts.below(margin):
                source = next((k for k in plan.lower if k.determines(part)), None)
                if source is not None:
                    if part not in known:
                        totals = source.coarsen(rounded[source], part).astype(np.float64)
                        known[part] = self.contrasts.project(totals, part)
                    parts[part] = known[part]
                elif part in contrasts:
                    parts[part] = contrasts[part] * float(self.step)
            real = self.contrasts.margin_from(parts, margin)
            rounded[margin] = plan.round(real, [rounded[k] for k in plan.lower], words)
        return rounded

    def margin_variance(self, margin: Margin) -> FloatArray:
        """A bound on what rounding adds to every total of a margin that the workload determines."""
        out = np.zeros(margin.shape)
        if margin not in self.family:
            query = self.held.query
            source = query.margins[query.source_of(margin)]
            for own, plan in self.plans.items():
                if source.determines(own):
                    out += coin_squares(plan, source, margin) / (4.0 * self.step**2)
            return out
        for own, plan in self.plans.items():
            if margin.determines(own):
                ones = np.full(own.shape, plan.corners / (4.0 * self.step**2))
                out += self.contrasts.spread(ones, own, margin, 2)
        return out

    def largest_coins(self, margin: Margin, place: tuple[int, ...]) -> FloatArray:
        """Sizes of coins, at least as many and as large as those in one total of a margin."""
        out = []
        for own, plan in self.plans.items():
            if margin.determines(own):
                share = self.contrasts.spread(np.ones(own.shape), own, margin)[place]
                out.append(np.full(plan.corners, float(share) / self.step))
        return np.concatenate(out) if out else np.zeros(0)

    def variance(self, weights: npt.NDArray[Any] | None = None) -> Any:
        """A bound on the variance that rounding adds: to every answer, or to a weighted sum."""
        if weights is None:
            own = [self.margin_variance(m).reshape(-1) for m in self.contrasts.workload]
            return np.concatenate(own)
        coefficients, bound = self.coefficients(weights)
        return float(coefficients**2 @ bound)

    def coefficients(self, weights: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """What each coin adds to a weighted sum of answers, and a bound on its variance."""
        split = self.held.query.split(np.asarray(weights, np.float64))
        margins = tuple(self.plans)
        own = self.contrasts.weights_on(split, margins)
        parts = [
            self.plans[m].coins(np.broadcast_to(own[m], m.shape)) / self.step if m in own
            else np.zeros(int(np.count_nonzero(~self.plans[m].determined())))
            for m in margins
        ]  # fmt: skip
        found = np.concatenate(parts) if parts else np.zeros(0)
        return found, np.full(found.size, 0.25)
