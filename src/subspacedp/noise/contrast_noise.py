"""The joint noise of margins by contrasts: independent on every group, then projected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import RoundedGaussian
from subspacedp.noise.sums import Part, part
from subspacedp.noise.workload import WorkloadNoise
from subspacedp.subspace import ContrastPlan, Contrasts, WorkloadDigits
from subspacedp.tables import Margin, Margins

__all__ = ["ContrastNoise"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ContrastNoise(WorkloadNoise):
    """Rounded Gaussian noise on the contrasts of every free part, projected onto contrasts."""

    query: Margins
    plan: ContrastPlan
    digits: WorkloadDigits | None = None
    capped: bool = False

    @property
    def contrasts(self) -> Contrasts:
        """The parts of the workload."""
        return self.plan.contrasts

    @cached_property
    def _deviations(self) -> dict[Margin, FloatArray]:
        """The standard deviation of the noise on every group, in units of the answers."""
        out = {}
        for own in self.plan.parts:
            scales = self.plan.scales(own)
            units = self.contrasts.denominators(own) * self.plan.fine(own)
            law = np.sqrt(scales**2 + np.where(scales > 0, 1 / 12, 0.0))
            out[own] = np.where(scales > 0, law / np.maximum(units, 1.0), 0.0)
        return out

    def margin_variance(self, margin: Margin) -> FloatArray:
        """Σ over parts of path² · ∏(1 − 1/k) · Var(e)."""
        out = np.zeros(margin.shape)
        for own in self.contrasts.below(margin):
            if own in self._deviations:
                inner = self._deviations[own] ** 2 * self.contrasts.shares(own)
                out += self.contrasts.spread(inner, own, margin, 2)
        return self._with_rounding(out, margin)

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of the noise on contrasts, times its standard deviations."""
        split = self.query.split(np.asarray(weights, np.float64))
        found = self.contrasts.weights_on(split, self.plan.parts)
        parts = []
        for own in self.plan.parts:
            if own in found:
                inner = self.contrasts.project(np.broadcast_to(found[own], own.shape), own)
                parts.append((inner * self._deviations[own]).reshape(-1))
            else:
                parts.append(np.zeros(math.prod(own.shape)))
        return np.concatenate(parts)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """One law for every part and number of siblings."""
        out: list[Part] = []
        at = 0
        for own in self.plan.parts:
            size = math.prod(own.shape)
            out.extend(self._laws(own, inside[at : at + size]))
            at += size
        return tuple(out)

    def _laws(self, own: Margin, inside: FloatArray) -> list[Part]:
        if not inside.any():
            return []
        scales = np.broadcast_to(self.plan.scales(own), own.shape).reshape(-1)
        out = []
        for scale in np.unique(scales[inside != 0]):
            law = RoundedGaussian(float(scale))
            out.append(part(law, inside[scales == scale] / math.sqrt(law.variance)))
        return out

    def total_parts(self, margin: Margin, weights: FloatArray) -> tuple[Part, ...]:
        """From the parts below the margin alone."""
        out: list[Part] = []
        for own in self.contrasts.below(margin):
            if own in self._deviations:
                gathered = np.broadcast_to(self.contrasts.gather(weights, margin, own), own.shape)
                inner = self.contrasts.project(gathered, own) * self._deviations[own]
                out.extend(self._laws(own, inner.reshape(-1)))
        return tuple(out)
