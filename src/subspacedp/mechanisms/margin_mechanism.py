"""Margins of a table that is never formed: what is measured is small, margins are rebuilt.

What is measured is a list of small tables of integers. The release is rebuilt from their noisy
versions and the held totals: contrasts part by part, then every margin as a sum of spread-out
contrasts, so margins agree with each other and with what is held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldOfWorkload, HeldValues
from subspacedp.mechanisms.base import REAL_LIMIT, Mechanism
from subspacedp.noise import Keystream, ReleaseKeys
from subspacedp.release.workload_strategy import WorkloadStrategy
from subspacedp.subspace import WorkloadDigits
from subspacedp.tables import Margin

__all__ = ["MarginMechanism"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


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
        found = self.noisy_contrasts(noisy)
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

    def noisy_contrasts(self, noisy: Int64Array) -> dict[Margin, FloatArray]:
        """The contrasts of every free part, from the measurement alone."""
        raise NotImplementedError

    def scales(self) -> tuple[float, float]:
        """The least scale of noise in units of the answers, the largest in measured units."""
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
