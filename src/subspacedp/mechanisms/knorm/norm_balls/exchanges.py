"""What replacing records does to counts whose total is held."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.invariants.groups import HeldGroups
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.counting import (
    drawn_level,
    exchange_series,
    positive_counts,
    series_sums,
)
from subspacedp.mechanisms.knorm.lazy import START_BITS, Words
from subspacedp.mechanisms.knorm.norm_balls.base import FloatArray, NormBall, Row
from subspacedp.mechanisms.knorm.simulation import exchange_noise
from subspacedp.mechanisms.knorm.totals import TotalLaw, above, chance_of, given
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.problem import Problem

if TYPE_CHECKING:
    from flint import arb

__all__ = ["Exchanges"]


@dataclass(frozen=True)
class Exchanges(NormBall):
    """‖z‖ = Σ|z_i|/2 on vectors that add up to zero: the hull of all e_i − e_j.

    What replacing one record does to a histogram whose total is held. The norm is a whole number
    for whole vectors, and the law is drawn in closed form for any number of cells.

    >>> Exchanges(3).gauge((2, -1, -1))
    Fraction(2, 1)
    """

    cells: int

    closed_form: ClassVar[bool] = True
    on_answers: ClassVar[str] = "all answers at once, with noise that adds up to zero"
    adds_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cells < 2:
            raise ReleaseError("A histogram with its total held needs at least two cells.")

    @property
    def entries(self) -> int:
        """One a cell."""
        return self.cells

    @property
    def groups(self) -> tuple[int, ...]:
        """All cells."""
        return (self.cells,)

    @property
    def dimension(self) -> int:
        """One less than the cells."""
        return self.cells - 1

    def gauge(self, z: Sequence[int]) -> Fraction:
        """The sum of the positive entries."""
        if len(z) != self.cells or sum(z) != 0:
            raise ReleaseError("This norm is for vectors that add up to zero, one entry a cell.")
        return Fraction(sum(int(v) for v in z if v > 0))

    @property
    def half_cell(self) -> Fraction:
        """A quarter of the cells; no draw needs it."""
        return Fraction(self.cells, 4)

    @property
    def log_volume(self) -> float:
        """Binomial(2k, k)/k! cells of the lattice, each of volume √(k + 1)."""
        k = self.dimension
        return math.lgamma(2 * k + 1) - 3 * math.lgamma(k + 1) + 0.5 * math.log(k + 1)

    @property
    def second_moment(self) -> FloatArray:
        """E|U|² = 4(n − 1)(2n − 1)/(n(n + 1)²), shared equally by all directions."""
        n = self.cells
        each = 4 * (2 * n - 1) / (n * (n + 1) ** 2)
        return each * (np.eye(n) - 1.0 / n)

    def lengths(self, points: FloatArray) -> FloatArray:
        """Σ |z_i|/2."""
        return np.asarray(np.abs(points).sum(axis=1) / 2)

    @property
    def reach(self) -> FloatArray:
        """One record moves a cell by one."""
        return np.ones(self.cells)

    def draw(self, rate: Fraction, words: Words) -> Row:
        """The norm m first, then how many entries are positive, which ones, and how m is shared."""
        n = self.cells
        m = drawn_level(exchange_series, n - 1, rate, n - 1, words)
        if m == 0:
            return (0,) * n
        sums = list(accumulate(positive_counts(n, m)))
        pick = words.below(sums[-1])
        a = 1 + bisect_right(sums, pick)
        places = words.subset(a, n)
        z = [0] * n
        for place, part in zip(places, words.composition(m - a, a), strict=True):
            z[place] = part + 1
        rest = sorted(set(range(n)) - set(places))
        for place, part in zip(rest, words.composition(m, n - a), strict=True):
            z[place] = -part
        return tuple(z)

    def normaliser(self, rate: Fraction) -> Callable[[], arb]:
        """Σ C(k, j)² q^j/(1 − q)^k."""
        k = self.dimension

        def value() -> arb:
            from flint import ctx

            return (
                series_sums(exchange_series, k, rate, ctx.prec)[-1] / (1 - (-ball(rate)).exp()) ** k
            )

        return value

    def covariance(self, rate: Fraction) -> FloatArray:
        """All entries have one variance, and they add up to zero."""
        n = self.cells
        return self.mean_variance(rate) * n / (n - 1) * (np.eye(n) - 1.0 / n)

    def mean_variance(self, rate: Fraction) -> float:
        """E[z_i²] = (n − 1)/(n + 1)·(ρ P_n(ρ)/P_{n−1}(ρ) − 1), ρ = coth(rate/2), P_n Legendre's."""
        from flint import ctx

        n = self.cells
        with ctx.workprec(START_BITS + 2 * n):
            rho = 1 / (ball(rate) / 2).tanh()
            ratio = rho  # P_1/P_0
            for j in range(1, n):  # (j + 1)P_{j+1} = (2j + 1)ρP_j − jP_{j−1}
                ratio = ((2 * j + 1) * rho - j / ratio) / (j + 1)
            return float((n - 1) * (rho * ratio - 1) / (n + 1))

    def group_variances(self, rate: Fraction) -> list[float]:
        """One group."""
        n = self.cells
        return [self.mean_variance(rate) * n / (n - 1)]

    def protects(self, problem: Problem, within: Fraction) -> bool:
        """Where replacing a record is all that happens to a histogram with its total held.

        Digits have the total of what is measured, which a bound on records makes another one.
        """
        query, relation = problem.query, problem.neighbours
        fits = query.is_histogram and self.cells == query.size
        fits = fits and (problem.decimals is None or not problem.capped)
        fits = fits and relation.keeps_total and within >= 1
        return fits and HeldGroups.of(problem.held).sizes == self.groups

    @property
    def free_half_cell(self) -> Fraction:
        """Half a unit in all cells but one, which the others fix."""
        return Fraction(self.dimension, 2)

    def rounded_off(self, weights: FloatArray) -> float:
        """Noise adds up to zero: a constant weighs nothing."""
        return super().rounded_off(weights - float(np.median(weights)))

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """E[U Uᵀ] is a multiple of I − 11ᵀ/n."""
        n = self.cells
        squared = float(np.square(weights - weights.mean()).sum())
        return self.unimodal(rate, 4 * (2 * n - 1) / (n * (n + 1) ** 2) * squared)

    def conditioned(self, rate: Fraction, weights: FloatArray) -> SumLaw:
        """Discrete Laplace noise of half the rate, given that it adds up to zero."""
        chance = _chance(self, rate)
        far = given(DiscreteLaplace(rate / 2), weights - weights.mean(), chance)
        size = float(np.abs(weights).max())
        kinds, counts = np.unique(np.round(weights / size, 11), return_counts=True)
        tail = above(self.cells, int(counts.min()), rate, chance) if kinds.size == 2 else None
        if tail is None:
            return far
        return TotalLaw(step=float(kinds[1] - kinds[0]) * size, above=tail, far=far)

    def whole_noise(self, rate: Fraction) -> FloatArray | None:
        """Many draws in floats."""
        return exchange_noise(self.cells, rate)

    def as_dict(self) -> dict[str, Any]:
        """The number of cells."""
        return {"body": "exchanges", "cells": self.cells}


@lru_cache(maxsize=256)
def _chance(norm_ball: Exchanges, rate: Fraction) -> float:
    return chance_of(norm_ball.normaliser(rate), rate / 2, norm_ball.cells)
