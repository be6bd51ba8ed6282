"""Interactions of a workload of margins: what margins are made of, part by part.

A part τ picks a step on every axis, like a margin; its contrasts are those of its steps, axis by
axis, applied to the totals T_τ of that margin. Every margin is a sum of spread-out contrasts of the
parts it determines,

    T_m(c) = Σ_{τ ≤ m} (contrasts of τ at c's group) · ∏ (shares of c in an equal split),

and for axes without nested levels parts are the usual interactions, orthogonal to each other. No
array here is larger than the largest margin: the table itself is never formed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DomainError, ReleaseError
from subspacedp.subspace.axis_steps import AxisSteps
from subspacedp.tables import Domain, Margin, along

__all__ = ["Contrasts"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MOST_PARTS = 1 << 17


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Contrasts:
    """The parts of a workload: which are free, and how margins are made of them.

    Guarantees
    ----------
    1. `whole_contrasts` and sums are exact in 64 bits, or refused.
    2. `margin_from(contrasts of T)` is T, and `gather` is its adjoint.
    """

    domain: Domain
    workload: tuple[Margin, ...]
    weights: tuple[float, ...]
    held: tuple[Margin, ...]

    @cached_property
    def axes(self) -> tuple[AxisSteps, ...]:
        """The steps in use on every axis."""
        margins = (*self.workload, *self.held)
        return tuple(
            AxisSteps(axis, tuple(sorted({*(m.steps[a] for m in margins), axis.depth - 1})))
            for a, axis in enumerate(self.domain.axes)
        )

    def below(self, margin: Margin) -> list[Margin]:
        """The parts that a margin determines, coarse ones first."""
        steps = [reversed(axis.coarser(s)) for axis, s in zip(self.axes, margin.steps, strict=True)]
        axes = tuple(self.domain.axes)
        return [Margin(axes, combination) for combination in product(*steps)]

    @cached_property
    def parts(self) -> tuple[Margin, ...]:
        """All parts of the workload that have a contrast at all, coarse ones first."""
        found: dict[tuple[int, ...], Margin] = {}
        for margin in self.workload:
            lengths = [
                len(axis.coarser(s)) for axis, s in zip(self.axes, margin.steps, strict=True)
            ]
            if math.prod(lengths) > MOST_PARTS:
                raise DomainError("A margin of the workload has too many levels to be taken apart.")
            for part in self.below(margin):
                found.setdefault(part.steps, part)
            if len(found) > MOST_PARTS:
                raise DomainError("The workload has too many interactions.")
        able = [part for part in found.values() if self.dimension(part) > 0]
        return tuple(sorted(able, key=lambda part: (len(self.kept(part)), part.steps)))

    @cached_property
    def free(self) -> tuple[Margin, ...]:
        """The parts that no held margin determines: these get noise."""
        return tuple(p for p in self.parts if not any(h.determines(p) for h in self.held))

    def kept(self, part: Margin) -> list[int]:
        """The axes on which a part has contrasts."""
        return [a for a, axis in enumerate(self.axes) if part.steps[a] != axis.top]

    def dimension(self, part: Margin) -> int:
        """The number of independent contrasts of a part."""
        return math.prod(self.axes[a].dimension(part.steps[a]) for a in self.kept(part))

    @cached_property
    def equal(self) -> bool:
        """Whether all groups are of equal size wherever levels nest: parts are then orthogonal."""
        return all(axis.equal() for axis in self.axes)

    def cost(self, part: Margin, power: int) -> float:
        """The weighted total error for unit noise on a part: variances of share^(power − 1)."""
        return math.fsum(
            w * math.prod(
                self._axis_cost(a, m.steps[a], part.steps[a], power)
                for a, axis in enumerate(self.axes)
                if m.steps[a] != axis.top
            )
            for m, w in zip(self.workload, self.weights, strict=True) if m.determines(part)
        )  # fmt: skip

    def _axis_cost(self, a: int, fine: int, step: int, power: int) -> float:
        key = (a, fine, step, power)
        if key not in self._known:
            self._known[key] = self.axes[a].cost(fine, step, power)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, int, int, int], float]:
        return {}

    @cached_property
    def orthogonal(self) -> bool:
        """Whether all free parts are orthogonal to what is held, as questions to the table."""
        balanced = [[s for s in axis.steps[:-1] if axis.balanced(s)] for axis in self.axes]
        return all(
            any(
                part.steps[a] < h.steps[a] and part.steps[a] in balanced[a]
                for a in range(len(self.axes))
            )
            for h in self.held
            for part in self.free
        )

    # ------------------------------------------------------------ from totals to contrasts

    def outer(self, part: Margin, of_axis: Any) -> npt.NDArray[Any]:
        """A product over the axes of a part, in its shape."""
        out: npt.NDArray[Any] = np.ones((1,) * len(self.axes))
        for a in self.kept(part):
            out = out * along(of_axis(self.axes[a], part.steps[a]), a, len(self.axes))
        return out

    def shares(self, part: Margin) -> FloatArray:
        """∏ (1 − 1/k) for every group of a part."""
        return self.outer(part, lambda axis, step: axis.share(step))

    def denominators(self, part: Margin) -> FloatArray:
        """∏ k for every group of a part, exact below 2**53; 0 for groups without cells."""
        return self.outer(part, lambda axis, step: axis.siblings(step).astype(np.float64))

    def whole_contrasts(self, totals: Int64Array, part: Margin, fine: int) -> Int64Array:
        """`fine` · ∏k · contrasts of a part, from its totals, in exact integers."""
        largest = float(np.abs(totals).max(initial=0)) * float(self.denominators(part).max())
        if 2.0 ** len(self.kept(part)) * largest * fine >= 2.0**62:
            raise ReleaseError(
                "The totals times their denominators leave 64 bits; ask for margins of fewer cells."
            )
        out = totals.reshape(part.shape) * np.int64(fine)
        for a in self.kept(part):
            axis, step = self.axes[a], part.steps[a]
            k = along(axis.siblings(step), a, out.ndim)
            out = np.where(k > 0, k * out - axis.same_parent(out, step, a), 0)
        return np.asarray(out, np.int64)

    def project(self, values: FloatArray, part: Margin) -> FloatArray:
        """The contrasts of a part, from its totals: T − (mean over the groups of one parent)."""
        out = values.reshape(part.shape)
        for a in self.kept(part):
            axis, step = self.axes[a], part.steps[a]
            k = along(axis.siblings(step), a, out.ndim)
            out = np.where(k > 0, out, 0.0)  # what is said of a group without labels is ignored
            out = np.where(k > 0, out - axis.same_parent(out, step, a) / np.maximum(k, 1), 0.0)
        return np.asarray(out, np.float64)

    # ------------------------------------------------------------ between contrasts and margins

    def spread(
        self, values: FloatArray, part: Margin, margin: Margin, power: int = 1
    ) -> FloatArray:
        """What contrasts (or totals) of a part add to a margin by equal splits.

        With power 2 the shares are squared: what variances of independent parts add.
        """
        out = values
        for a, axis in enumerate(self.axes):
            fine, coarse = margin.steps[a], part.steps[a]
            if fine != coarse:
                weights = along(axis.path(fine, coarse) ** power, a, out.ndim)
                out = axis.spread(out, fine, coarse, a) * weights
        return out

    def gather(self, weights: FloatArray, margin: Margin, part: Margin) -> FloatArray:
        """The adjoint of `spread`: weights on a part from weights on a margin."""
        out = weights
        for a, axis in enumerate(self.axes):
            fine, coarse = margin.steps[a], part.steps[a]
            if fine != coarse:
                out = axis.sum_up(
                    out * along(axis.path(fine, coarse), a, out.ndim), fine, coarse, a
                )
        return out

    def margin_from(self, contrasts: Mapping[Margin, FloatArray], margin: Margin) -> FloatArray:
        """The totals of a margin from the contrasts of all parts below it."""
        out = np.zeros(margin.shape)
        for part in self.below(margin):
            own = contrasts.get(part)
            if own is not None:
                out += self.spread(own, part, margin)
        return out

    def weights_on(
        self, weights: Sequence[FloatArray], parts: Sequence[Margin]
    ) -> dict[Margin, FloatArray]:
        """Weights on the totals of parts, from weights on the margins of the workload."""
        wanted = set(parts)
        out: dict[Margin, FloatArray] = {}
        for margin, own in zip(self.workload, weights, strict=True):
            if not np.any(own):
                continue
            for part in self.below(margin):
                if part in wanted:
                    found = self.gather(own, margin, part)
                    out[part] = out[part] + found if part in out else found
        return out
