"""Figures of combined releases that share a law: computed once for all of a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.error_laws import JointNoise, SumLaw
from subspacedp.mechanisms.figures import Figures
from subspacedp.rounding import GroupProfiles

__all__ = ["CombinedTotals", "PooledFigures"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class PooledFigures(Figures):
    """Figures with one law for all that have one law in every release."""

    noise: JointNoise  # of the estimate
    shape: tuple[int, ...]
    weights: Callable[[int], FloatArray]  # of the answers, by the number of a figure
    figures: tuple[Figures, ...]  # the same in every release
    known_variance: FloatArray

    def variance(self) -> FloatArray:
        """In closed form."""
        return self.known_variance

    @cached_property
    def _numbered(self) -> tuple[Int64Array, Int64Array]:
        """The first figure of every class, and the class of every figure."""
        rows = np.stack([f.classes().reshape(-1) for f in self.figures], axis=1)
        _, first, member = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first, member.reshape(self.shape)

    def classes(self) -> Int64Array:
        """One number for equal classes in every release."""
        return self._numbered[1]

    def law(self, number: int) -> SumLaw:
        """That of the first figure of its class."""
        return self.noise.law_of(self.weights(int(self._numbered[0][int(number)])))


@dataclass(frozen=True, eq=False, repr=False)
class CombinedTotals(Figures):
    """The totals of a margin's groups where all releases hold margins: one law a class."""

    noise: JointNoise
    shared: list[tuple[float, JointNoise]]  # ω_r, and the noise of every release
    profiles: GroupProfiles

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The margin's shape."""
        return self.profiles.margin.shape

    @cached_property
    def _roundings(self) -> list[tuple[float, float, Int64Array, int]]:
        """What a rounding adds, its variance, how many each group has, and more than the most."""
        found = [(w, noise.rounding_counts(self.profiles.margin)) for w, noise in self.shared]
        return [
            (w * roundings[0], roundings[1], roundings[2], int(roundings[2].max(initial=0)) + 1)
            for w, roundings in found
            if roundings is not None
        ]

    def variance(self) -> FloatArray:
        """Var(e)·|Π_N 1_G|², and at most `unit_variance` squared steps for every rounding."""
        if self.profiles.margin == self.profiles.space.domain.cells:
            return self.noise.cell_variance()
        squared = self.profiles.squared()
        out = squared * self.noise.each
        for step, unit_variance, counts, _ in self._roundings:
            out += np.where(squared > 0, counts * (step**2 * unit_variance), 0.0)
        return out

    def classes(self) -> Int64Array:
        """Equal sizes of all containing groups, and equally many roundings of every release."""
        out = self.profiles.classes()
        for _, _, counts, radix in self._roundings:
            out = out * radix + counts
        return np.asarray(out)

    def law(self, number: int) -> SumLaw:
        """From the values of Π_N 1_G and how often each occurs."""
        kind, coefficients, rounding = int(number), [np.zeros(0)], 0.0
        for step, unit_variance, _, radix in reversed(self._roundings):
            kind, roundings = divmod(kind, radix)
            coefficients.append(np.full(roundings, step))
            rounding += roundings * step**2 * unit_variance
        weights, counts = self.profiles.profile(kind)
        parts = tuple(p for w, n in self.shared for p in n.counted(w * weights, counts) or ())
        variance = self.noise.each * float(counts @ weights**2) + rounding
        return self.noise.law_from(parts, np.concatenate(coefficients), None, variance)
