"""The joint noise of margins by tables: independent on their totals, combined part by part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.noise.laws import KnownLaw
from subspacedp.noise.sums import Part, part
from subspacedp.noise.workload import WorkloadNoise
from subspacedp.subspace import Contrasts, TablePlan, WorkloadDigits
from subspacedp.tables import Margin, Margins, along

__all__ = ["TableNoise"]

FloatArray = npt.NDArray[np.float64]


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
