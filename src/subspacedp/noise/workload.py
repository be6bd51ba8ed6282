"""The joint noise of a release of margins: independent noise on contrasts, or on tables."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import KnownLaw, RoundedGaussian
from subspacedp.noise.model import JointNoise
from subspacedp.noise.near_normal import near_normal
from subspacedp.noise.sums import Part, Rounding, SumLaw, WeightedSum, part
from subspacedp.subspace import ContrastPlan, Contrasts, TablePlan, WorkloadDigits
from subspacedp.tables import Margin, Margins, along

__all__ = ["ContrastNoise", "TableNoise", "WorkloadNoise"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class WorkloadNoise(JointNoise):
    """Noise whose weights in any question follow from the question's weights on parts."""

    query: Margins
    digits: WorkloadDigits | None
    capped: bool  # held totals count all records: what is true of the bounded ones is a fraction

    @property
    @abstractmethod
    def contrasts(self) -> Contrasts:
        """The parts of the workload."""

    @abstractmethod
    def margin_variance(self, margin: Margin) -> FloatArray:
        """The variance of every total of a margin whose levels are in use."""

    @property
    def each(self) -> float:
        """`inside` counts in standard deviations."""
        return 1.0

    @property
    def grid(self) -> float | None:
        """What published and true values are multiples of; None where either can be real."""
        return None if self.digits is None or self.capped else 1.0 / self.digits.step

    def cell_variance(self) -> FloatArray:
        """The variance of every answer; with digits the rounding part is a bound."""
        return np.concatenate([self.margin_variance(m).reshape(-1) for m in self.query.margins])

    def coins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What each coin of the rounding adds, and a bound on its variance."""
        if self.digits is None:
            return np.zeros(0), np.zeros(0)
        return self.digits.coefficients(weights)

    def law_from(
        self,
        parts: tuple[Part, ...],
        coefficients: FloatArray,
        step: float | None,
        variance: float,
    ) -> SumLaw:
        """The law of a weighted sum: as a normal one with a bound where that is close."""
        used = coefficients[np.abs(coefficients) > 1e-12]
        rounding = Rounding(float(used @ used), float(np.abs(used).sum())) if used.size else None
        found = near_normal(parts, rounding)
        return found or super().law_from(parts, coefficients, step, variance)

    def total_law(self, margin: Margin, place: tuple[int, ...]) -> SumLaw:
        """The law of the error of one total of a margin whose levels are in use."""
        one = np.zeros(margin.shape)
        one[place] = 1.0
        if self.digits is not None and margin not in self.digits.family:
            return self.law_of(self.query.indicator(margin, one))
        parts = self.total_parts(margin, one)
        if not parts:
            return WeightedSum(parts=())
        coins = self.digits.largest_coins(margin, place) if self.digits else np.zeros(0)
        variance = float(self.margin_variance(margin)[place])
        return self.law_from(parts, coins, self.grid, variance)

    @abstractmethod
    def total_parts(self, margin: Margin, weights: FloatArray) -> tuple[Part, ...]:
        """The independent noise in a weighted sum of totals of one margin."""

    def _with_rounding(self, found: FloatArray, margin: Margin) -> FloatArray:
        if self.digits is None:
            return found
        if margin in self.digits.family:
            return np.where(found > 0, found + self.digits.margin_variance(margin), 0.0)
        out = found.copy()
        for place in zip(*np.nonzero(found), strict=True):
            one = np.zeros(margin.shape)
            one[place] = 1.0
            coefficients, bound = self.coins(self.query.indicator(margin, one))
            out[place] += float(coefficients**2 @ bound)
        return out


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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TableNoise(WorkloadNoise):
    """Independent noise on the totals of some tables, combined part by part."""

    query: Margins
    plan: TablePlan
    laws: Sequence[KnownLaw]  # one for every table
    digits: WorkloadDigits | None = None
    capped: bool = False

    @property
    def contrasts(self) -> Contrasts:
        """The parts of the workload."""
        return self.plan.contrasts

    @cached_property
    def variances(self) -> FloatArray:
        """Of the noise on a total of every table."""
        return np.array([law.variance for law in self.laws])

    @cached_property
    def mixing(self) -> FloatArray:
        """What each table counts for in each part."""
        return self.plan.mixing(self.variances)

    def margin_variance(self, margin: Margin) -> FloatArray:
        """Σ over tables of Var(e) times the squared weights of its totals.

        In a table's totals the weights of a question are Σ_τ path_τ·α_τ·(contrast of τ), products
        over axes, so their squares add up axis by axis. Where groups are of equal size, different
        parts are orthogonal.
        """
        place = {own: i for i, own in enumerate(self.plan.parts)}
        below = [own for own in self.contrasts.below(margin) if own in place]
        out = np.zeros(margin.shape)
        if self.contrasts.equal:
            for own in below:
                inner = self._part_variances[place[own]] * self.contrasts.shares(own)
                out += self.contrasts.spread(np.broadcast_to(inner, own.shape), own, margin, 2)
            return self._with_rounding(out, margin)
        for j, table in enumerate(self.plan.tables):
            told = [own for own in below if self.mixing[place[own], j] > 0]
            for i, own in enumerate(told):
                for other in told[: i + 1]:
                    factor = self.mixing[place[own], j] * self.mixing[place[other], j]
                    factor *= self.variances[j] * (1.0 if own is other else 2.0)
                    out += factor * self._products(margin, own, other, table)
        return self._with_rounding(out, margin)

    @cached_property
    def _part_variances(self) -> FloatArray:
        """Of every part's totals before projection, where all groups are of equal size."""
        return np.asarray((self.mixing**2 * self.plan.cells) @ self.variances)

    def _products(self, margin: Margin, one: Margin, two: Margin, table: Margin) -> FloatArray:
        """Σ over a table's totals of the product of two parts' weights, for every margin total."""
        out = np.ones((1,) * len(margin.shape))
        for a, axis in enumerate(self.contrasts.axes):
            fine = margin.steps[a]
            if fine == axis.top and table.steps[a] == axis.top:
                continue
            key = (a, fine, one.steps[a], two.steps[a], table.steps[a])
            if key not in self._known:
                self._known[key] = self._axis_products(*key)
            out = out * along(self._known[key], a, out.ndim)
        return np.broadcast_to(out, margin.shape)

    @cached_property
    def _known(self) -> dict[tuple[int, int, int, int, int], FloatArray]:
        return {}

    def _axis_products(self, a: int, fine: int, s: int, t: int, table: int) -> FloatArray:
        """On one axis: path·path'·Σ over the table's groups of both contrast weights."""
        axis = self.contrasts.axes[a]
        path = axis.path(fine, s) * axis.path(fine, t)
        coarse, finer = max(s, t), min(s, t)
        # The finer contrast lives under one parent, within one group of the coarser step or not.
        sizes = np.bincount(
            axis.axis.parents(table, finer)[axis.axis.step(table).sizes > 0],
            minlength=axis.axis.step(finer).groups,
        ).astype(np.float64)
        own = axis.axis.parents(fine, finer) if fine != finer else np.arange(len(sizes))
        if finer == axis.top:
            return path * sizes[own]
        k = np.maximum(axis.siblings(finer), 1)
        family = axis.same_parent(sizes, finer, 0)
        if s == t:  # (1 − 1/k)² of its own group, 1/k² of the others under its parent
            found = sizes * (1 - 2.0 / k) + family / k.astype(np.float64) ** 2
        else:
            found = sizes - family / k  # Σ of the finer contrast, where the coarser is constant
            if coarse != axis.top:
                found = (
                    found
                    * (1 - 1.0 / np.maximum(axis.siblings(coarse), 1))[
                        axis.axis.parents(finer, coarse)
                    ]
                )
        return path * found[own]

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of the noise on tables, times its standard deviations."""
        split = self.query.split(np.asarray(weights, np.float64))
        found = self.contrasts.weights_on(split, self.plan.parts)
        return np.concatenate([table for _, table in self._on_tables(found)])

    def _on_tables(self, found: dict[Margin, FloatArray]) -> Iterator[tuple[int, FloatArray]]:
        """The weights of the noise on every table, from weights on parts."""
        inner = {
            i: self.contrasts.project(np.broadcast_to(found[own], own.shape), own)
            for i, own in enumerate(self.plan.parts) if own in found
        }  # fmt: skip
        for j, table in enumerate(self.plan.tables):
            total = np.zeros(table.shape)
            for i, weights in inner.items():
                if self.mixing[i, j] > 0:
                    total += self.mixing[i, j] * self._expand(weights, self.plan.parts[i], table)
            total[table.empty] = 0.0
            yield j, total.reshape(-1) * math.sqrt(self.variances[j])

    def total_parts(self, margin: Margin, weights: FloatArray) -> tuple[Part, ...]:
        """From the parts below the margin alone."""
        below = set(self.contrasts.below(margin)) & set(self.plan.parts)
        found = {own: self.contrasts.gather(weights, margin, own) for own in below}
        return tuple(
            part(self.laws[j], table / math.sqrt(self.variances[j]))
            for j, table in self._on_tables(found) if table.any()
        )  # fmt: skip

    def _expand(self, values: FloatArray, own: Margin, table: Margin) -> FloatArray:
        out = values
        for a, axis in enumerate(self.contrasts.axes):
            out = axis.spread(out, table.steps[a], own.steps[a], a)
        return out

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """One law for every table."""
        out, at = [], 0
        for table, law in zip(self.plan.tables, self.laws, strict=True):
            size = math.prod(table.shape)
            weights = inside[at : at + size] / math.sqrt(law.variance)
            at += size
            if weights.any():
                out.append(part(law, weights))
        return tuple(out)
