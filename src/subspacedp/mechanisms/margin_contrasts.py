"""Margins by their contrasts: Gaussian noise of the best scale on every interaction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.margin_mechanism import MarginMechanism
from subspacedp.noise import ReleaseKeys, RoundedGaussian, add_noise
from subspacedp.release.contrast_strategy import ContrastStrategy
from subspacedp.tables import Margin

__all__ = ["MarginContrasts"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class MarginContrasts(MarginMechanism):
    """Gaussian noise on the contrasts of every interaction, of the best scales."""

    @property
    def own(self) -> ContrastStrategy:
        """What is measured."""
        if not isinstance(self.design.strategy, ContrastStrategy):
            raise ReleaseError("This mechanism measures contrasts.")
        return self.design.strategy

    def scales(self) -> tuple[float, float]:
        """Over all parts; a group without contrasts has no noise."""
        plan = self.own.plan
        sigmas = [plan.sigma(part) for part in plan.parts]
        largest = max(float(plan.scales(part).max()) for part in plan.parts)
        return min(float(s[s > 0].min()) for s in sigmas), largest

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

    def noisy_contrasts(self, noisy: Int64Array) -> dict[Margin, FloatArray]:
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


def _runs(scales: FloatArray) -> list[tuple[float, slice]]:
    starts = np.flatnonzero(np.diff(scales, prepend=-1.0))
    ends = [*starts[1:].tolist(), scales.size]
    return [
        (float(scales[start]), slice(start, end))
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
