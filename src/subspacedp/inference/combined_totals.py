"""The totals of a margin's groups in combined releases, one law for all groups of equal sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.inference.combined_noise import CombinedNoise, DenseCombinedNoise, rounded_digits
from subspacedp.invariants import MarginNullSpace
from subspacedp.mechanisms.error_laws import NoiseModel, SumLaw
from subspacedp.mechanisms.figures import Figures
from subspacedp.rounding import DigitPlan, GroupProfiles, corner_counts

__all__ = ["CombinedTotals", "by_class"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


def by_class(noise: CombinedNoise | DenseCombinedNoise) -> bool:
    """Whether groups of equal sizes have equal laws."""
    return (
        isinstance(noise, CombinedNoise)
        and isinstance(noise.space, MarginNullSpace)
        and all(isinstance(n, NoiseModel) and n.one_grid for n in noise.noises)
        and all(
            d is None or d.space.rank == noise.space.rank for d in map(rounded_digits, noise.noises)
        )
    )


@dataclass(frozen=True, eq=False, repr=False)
class CombinedTotals(Figures):
    """The totals of a margin's groups where all releases hold margins: one law a class."""

    noise: CombinedNoise
    profiles: GroupProfiles

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The margin's shape."""
        return self.profiles.margin.shape

    @cached_property
    def _coins(self) -> list[tuple[float, float, Int64Array, int]]:
        """What a coin adds, its variance, how many each group has, and a number above them all."""
        plans = [
            (w, d) for w, n in self.noise.shared if isinstance(d := rounded_digits(n), DigitPlan)
        ]
        counts = [corner_counts(plan, self.profiles.margin) for _, plan in plans]
        return [
            (w / plan.step, plan.coin, c, int(c.max(initial=0)) + 1)
            for (w, plan), c in zip(plans, counts, strict=True)
        ]

    def variance(self) -> FloatArray:
        """Var(e)·|Π_N 1_G|², and at most `coin` squared steps for every coin."""
        if self.profiles.margin == self.profiles.space.domain.cells:
            return self.noise.cell_variance()
        squared = self.profiles.squared()
        out = squared * self.noise.each
        for step, coin, counts, _ in self._coins:
            out += np.where(squared > 0, counts * (step**2 * coin), 0.0)
        return out

    def classes(self) -> Int64Array:
        """Equal sizes of all containing groups, and equally many coins of every release."""
        out = self.profiles.classes()
        for _, _, counts, radix in self._coins:
            out = out * radix + counts
        return np.asarray(out)

    def law(self, number: int) -> SumLaw:
        """From the values of Π_N 1_G and how often each occurs."""
        kind, coefficients, rounding = int(number), [np.zeros(0)], 0.0
        for step, coin, _, radix in reversed(self._coins):
            kind, coins = divmod(kind, radix)
            coefficients.append(np.full(coins, step))
            rounding += coins * step**2 * coin
        weights, counts = self.profiles.profile(kind)
        parts = tuple(
            p
            for w, noise in self.noise.shared
            if isinstance(noise, NoiseModel)
            for p in noise.counted(w * weights, counts)
        )
        variance = self.noise.each * float(counts @ weights**2) + rounding
        return self.noise.law_from(parts, np.concatenate(coefficients), None, variance)
