"""The joint noise of combined releases: the law of combined estimate minus truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.combined_totals import CombinedTotals, PooledFigures
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, NullSpace
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import JointNoise, SumLaw
from subspacedp.mechanisms.error_laws.pooling import Pooling
from subspacedp.mechanisms.error_laws.sums import Part
from subspacedp.mechanisms.figures import EachApart, Figures, cells_apart
from subspacedp.mechanisms.impose import impose_bound
from subspacedp.queries import Query
from subspacedp.rounding import GroupProfiles
from subspacedp.tables import Margin

__all__ = ["CombinedNoise", "Projection", "UniformNoise"]

FloatArray = npt.NDArray[np.float64]

MOST_CELLS = 20_000  # whose variances are worked out one by one


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CombinedNoise(JointNoise):
    """Combined estimate minus truth: Σ_r T_r ξ_r, the releases' noises ξ_r independent.

    Guarantees
    ----------
    1. Variances and covariances are those of exactly this sum, for whatever maps T_r; with digits
       that add up, upper bounds.
    """

    designs: tuple[Mechanism, ...]
    noises: tuple[JointNoise, ...]
    pooling: Pooling
    query: Query  # what the estimate answers

    @property
    def known(self) -> bool:
        """Whether all laws are known, and not only their variances."""
        return all(noise.known for noise in self.noises)

    @property
    def excess(self) -> float:
        """The largest of all releases."""
        return max(noise.excess for noise in self.noises)

    def fourth_roots(self, weights: FloatArray) -> FloatArray:
        """Those of every release under its weights."""
        pairs = zip(self.noises, self.pooling.under(weights), strict=True)
        return np.concatenate([noise.fourth_roots(w) for noise, w in pairs])

    def without_rounding(self, plain: tuple[JointNoise, ...]) -> JointNoise:
        """The same maps of other noises."""
        return replace(self, noises=plain)

    # ------------------------------------------------------------------ weighted sums

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of the noise variables of every release."""
        weights = self.pooling.under(np.zeros(self.query.shape))
        return [n.inside(w).shape for n, w in zip(self.noises, weights, strict=True)]

    @cached_property
    def _variances(self) -> list[FloatArray]:
        pairs = zip(self.noises, self._shapes, strict=True)
        return [noise.variances(math.prod(shape)) for noise, shape in pairs]

    @property
    def each(self) -> float:
        """The largest variance of a noise variable; `inside` is in these units."""
        return max(float(v.max()) for v in self._variances)

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of all noise variables, each times its relative standard deviation."""
        pieces = [
            noise.inside(w).reshape(-1) * np.sqrt(v / self.each)
            for noise, w, v in zip(
                self.noises, self.pooling.under(weights), self._variances, strict=True
            )
        ]
        return np.concatenate(pieces)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release."""
        out: list[Part] = []
        at = 0
        for noise, v, shape in zip(self.noises, self._variances, self._shapes, strict=True):
            piece = inside[at : at + v.size] / np.sqrt(v / self.each)
            out.extend(noise.parts(piece.reshape(shape)))
            at += v.size
        return tuple(out)

    def roundings(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The roundings of every release under its weights."""
        pairs = zip(self.noises, self.pooling.under(weights), strict=True)
        return _joined(noise.roundings(w) for noise, w in pairs)

    def law_from(
        self,
        parts: tuple[Part, ...],
        coefficients: FloatArray,
        step: float | None,
        variance: float,
    ) -> SumLaw:
        """As the first release takes its own, where all laws are known."""
        if not self.known:
            return super().law_from(parts, coefficients, step, variance)
        return self.noises[0].law_from(parts, coefficients, step, variance)

    # ------------------------------------------------------------------ figures

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return self.cell_figures(self.query.shape).variance()

    def cell_figures(self, shape: tuple[int, ...]) -> Figures:
        """Every answer."""

        def weights(i: int) -> FloatArray:
            out = np.zeros(shape)
            out.flat[i] = 1.0
            return out

        return self._pooled(
            [design.cell_figures() for design in self.designs] if self._alike else [],
            self.query.margins_asked or (),
            shape,
            weights,
        )

    def margin_figures(self, margin: Margin, *, fixed: bool = False) -> Figures:
        """The total of every group of a margin; `fixed` says that what is held determines them."""

        def weights(i: int) -> FloatArray:
            groups = np.zeros(math.prod(margin.shape))
            groups[i] = 1.0
            return self.query.indicator(margin, groups)

        if fixed:
            return EachApart(self, margin.shape, weights, np.zeros(margin.shape))
        designs = self.designs if self._alike else ()
        return self._pooled(
            [design.margin_figures(design.domain.margin(*margin.names)) for design in designs],
            (margin,),
            margin.shape,
            weights,
        )

    @cached_property
    def _alike(self) -> bool:
        """Whether every release answers what the estimate answers."""
        return all(self.query.same_as(design.query) for design in self.designs)

    def _pooled(
        self,
        figures: list[Figures],
        margins: Sequence[Margin],
        shape: tuple[int, ...],
        weights: Callable[[int], FloatArray],
    ) -> Figures:
        """By class where the maps allow it, else each by itself."""
        variance = None
        if figures:
            variance = self.pooling.figure_variance([f.variance() for f in figures], margins)
        if variance is not None:
            return PooledFigures(self, shape, weights, tuple(figures), variance.reshape(shape))
        if math.prod(shape) > MOST_CELLS:
            raise ReleaseError(
                f"The standard errors of {math.prod(shape):,} figures have no closed form here, "
                "because the combined releases differ in what they hold, measure or round; ask for "
                "those of interest with `estimate`."
            )
        return EachApart(self, shape, weights)


@dataclass(frozen=True, eq=False, repr=False)
class Projection(Pooling):
    """Π_N Σ ω_r y_r + lift(c): for noise alike in all directions of each null space N_r ⊇ N."""

    shares: tuple[float, ...]  # ω_r
    space: NullSpace  # N

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """ω_r Π_N w for every release."""
        inside = self.space.project(weights)
        return [share * inside for share in self.shares]

    def mix(
        self,
        values: Sequence[npt.NDArray[Any]],
        held: HeldMargins | HeldMatrix,
        exact: HeldValues,
    ) -> FloatArray:
        """The average, with all that is held put on it."""
        pairs = zip(self.shares, values, strict=True)
        mixed = sum((w * v for w, v in pairs), np.zeros(self.space.shape))
        return impose_bound(held, mixed, exact)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UniformNoise(CombinedNoise):
    """The same where noise is alike in all directions: one projection serves all releases."""

    pooling: Projection

    @property
    def null_space(self) -> NullSpace:
        """N."""
        return self.pooling.space

    @property
    def uniform(self) -> bool:
        """As in every release."""
        return True

    @property
    def shared(self) -> list[tuple[float, JointNoise]]:
        """Every release's noise with its share."""
        return list(zip(self.pooling.shares, self.noises, strict=True))

    @property
    def each(self) -> float:
        """Σ ω_r² Var(e_r)."""
        return math.fsum(w * w * noise.each for w, noise in self.shared)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w."""
        return self.pooling.space.project(weights)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release under ω_r Π_N w."""
        return tuple(p for w, noise in self.shared for p in noise.parts(noise.inside(w * inside)))

    @cached_property
    def _same_rounding(self) -> bool:
        """Whether every release that was rounded leaves open what all together leave open."""
        rank = self.pooling.space.rank
        rounding = (noise.rounded for noise in self.noises)
        return all(d is None or d.space.rank == rank for d in rounding)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        if not self._same_rounding:
            return super().cell_figures(self.query.shape).variance()
        out = self.pooling.space.diagonal() * self.each
        # N is the null space of every release that was rounded, and there 1_i and Π_N 1_i differ by
        # what is held: they have the same roundings.
        for w, noise in self.shared:
            if noise.rounded is not None:
                out += np.where(out > 0, w * w * noise.rounded.variance(), 0.0)
        return out

    def cell_figures(self, shape: tuple[int, ...]) -> Figures:
        """Every answer: one law for all of equal sizes of groups, where margins are held."""
        axes = self.query.axes
        totals = None if axes is None else self._totals(axes.cells)
        if totals is not None:
            return totals
        return cells_apart(self, shape)

    def margin_figures(self, margin: Margin, *, fixed: bool = False) -> Figures:
        """The total of every group of a margin, in the same way."""
        return self._totals(margin) or super().margin_figures(margin, fixed=fixed)

    def _totals(self, margin: Margin) -> Figures | None:
        family = self.pooling.space.held.family
        nothing = np.zeros(0)
        alike = all(noise.counted(nothing, nothing) is not None for noise in self.noises)
        if family is None or not alike or not self._same_rounding:
            return None
        return CombinedTotals(self, self.shared, GroupProfiles(family.cell_space, margin))


def _joined(pairs: Iterable[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    coefficients, variances = zip(*pairs, strict=True)
    return np.concatenate(coefficients), np.concatenate(variances)
