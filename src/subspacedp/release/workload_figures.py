"""Totals of a margin from a release of a workload: closed forms, however many cells there are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.noise import SumLaw, WorkloadNoise
from subspacedp.release.figures import EachApart, Figures, MarginFigures
from subspacedp.subspace import Contrasts
from subspacedp.tables import Margin, along

__all__ = ["AllTotals", "TotalsOfMargin", "totals_apart"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class TotalsOfMargin(MarginFigures):
    """The totals of one margin; those whose groups have equal sizes all the way up share a law."""

    noise: WorkloadNoise
    margin: Margin

    def variance(self) -> FloatArray:
        """In closed form."""
        return self._variance

    @cached_property
    def _variance(self) -> FloatArray:
        return self.noise.margin_variance(self.margin)

    @cached_property
    def _axis_classes(self) -> list[Int64Array]:
        contrasts = self.noise.contrasts
        return [axis_classes(contrasts, a, step) for a, step in enumerate(self.margin.steps)]

    def classes(self) -> Int64Array:
        """One number for equal profiles on every axis."""
        out = np.zeros((1,) * len(self.shape), np.int64)
        for a, own in enumerate(self._axis_classes):
            out = out * (int(own.max()) + 1) + along(own, a, len(self.shape))
        return np.broadcast_to(out, self.shape)

    def law(self, number: int) -> SumLaw:
        """That of the first total with this profile."""
        place = []
        for own in reversed(self._axis_classes):
            number, kind = divmod(number, int(own.max()) + 1)
            place.append(int(np.argmax(own == kind)))
        return self.noise.total_law(self.margin, tuple(reversed(place)))


def axis_classes(contrasts: Contrasts, a: int, step: int) -> Int64Array:
    """Groups of a step with equal numbers of groups at every step in use, all the way up."""
    axis = contrasts.axes[a]
    if step == axis.top:
        return np.zeros(1, np.int64)
    rows: list[npt.NDArray[Any]] = [axis.axis.step(step).sizes > 0]
    rows += [
        axis.siblings(coarse)[axis.axis.parents(step, coarse)] for coarse in axis.coarser(step)[:-1]
    ]
    for coarse in axis.coarser(step):
        for fine in axis.steps[: axis.steps.index(coarse) + 1]:
            present = axis.axis.step(fine).sizes > 0
            number = np.bincount(
                axis.axis.parents(fine, coarse)[present],
                minlength=axis.axis.step(coarse).groups,
            )
            rows.append(number[axis.axis.parents(step, coarse)])
    found = np.unique(np.array(rows, np.int64), axis=1, return_inverse=True)[1]
    return np.asarray(found.reshape(-1), np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class AllTotals(Figures):
    """Every answer of a workload, margin after margin."""

    noise: WorkloadNoise

    @cached_property
    def _margins(self) -> list[TotalsOfMargin]:
        return [TotalsOfMargin(self.noise, m) for m in self.noise.query.margins]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """One vector."""
        return self.noise.query.shape

    @property
    def whole(self) -> bool:
        """Whether all figures are published as whole numbers, and so are the true ones."""
        return self.noise.grid == 1.0

    def variance(self) -> FloatArray:
        """In closed form."""
        return np.concatenate([own.variance().reshape(-1) for own in self._margins])

    @cached_property
    def _starts(self) -> list[int]:
        sizes = [int(own.classes().max()) + 1 for own in self._margins]
        return [0, *np.cumsum(sizes).tolist()]

    def classes(self) -> Int64Array:
        """The classes of every margin, counted on."""
        return np.concatenate(
            [own.classes().reshape(-1) + start
             for own, start in zip(self._margins, self._starts, strict=False)]
        )  # fmt: skip

    def law(self, number: int) -> SumLaw:
        """By margin."""
        which = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self._margins[which].law(number - self._starts[which])


def totals_apart(noise: WorkloadNoise, margin: Margin) -> EachApart:
    """Totals of a margin at a level that no margin of the workload uses."""

    def weights(i: int) -> FloatArray:
        one = np.zeros(margin.shape)
        one.reshape(-1)[i] = 1.0
        return noise.query.indicator(margin, one)

    return EachApart(noise, margin.shape, weights)
