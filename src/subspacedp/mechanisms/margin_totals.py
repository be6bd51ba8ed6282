"""Margins by the totals of whole tables with noise, combined interaction by interaction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.margin_mechanism import MarginMechanism
from subspacedp.noise import ReleaseKeys, TableNoise, add_noise
from subspacedp.release.table_strategy import TableStrategy
from subspacedp.tables import Margin

__all__ = ["MarginTotals"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class MarginTotals(MarginMechanism):
    """Noise on the totals of tables of margins, combined part by part."""

    @property
    def own(self) -> TableStrategy:
        """What is measured."""
        if not isinstance(self.design.strategy, TableStrategy):
            raise ReleaseError("This mechanism measures tables.")
        return self.design.strategy

    def scales(self) -> tuple[float, float]:
        """Over all tables."""
        scales = [law.scale for law in self.own.laws]
        return min(scales), max(scales)

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

    def noisy_contrasts(self, noisy: Int64Array) -> dict[Margin, FloatArray]:
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
