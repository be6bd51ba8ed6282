"""Counts in groups whose totals are held: what adding or exchanging a record does to them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, MarginNullSpace
from subspacedp.mechanisms.error_laws.simulated import draws_for, public_generator
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.norm_balls import NormBall, Row, listed
from subspacedp.mechanisms.knorm.sampling import (
    START_BITS,
    Words,
    drawn_level,
    exchange_series,
    geometric,
    median_sums,
    one_of,
    positive_counts,
    series_sums,
    signs_within,
)
from subspacedp.mechanisms.knorm.tails import TotalLaw, above, chance_of, given
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.problem import Problem

if TYPE_CHECKING:
    from flint import arb

BITS = 256  # of sums whose ratios become floats


@frozen(eq=False, repr=False)
class HeldGroups:
    """Cells group after group, where one margin determines all that are held.

    Vectors on the cells are taken up to a constant in every group: that is what the totals of the
    groups leave open.
    """

    space: MarginNullSpace
    order: Int64Array  # cells by group
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, held: HeldMargins | HeldMatrix) -> HeldGroups:
        """The groups of the one margin that determines all that are held."""
        family = held.family
        if family is None or len(family.essential) != 1:
            raise ReleaseError("This needs the totals of disjoint groups to be held.")
        (margin,) = family.essential
        codes = np.ix_(*(level.codes for level in margin.levels))
        code = np.zeros(family.domain.shape, np.int64)
        for axis, size in zip(codes, margin.shape, strict=True):
            code = code * size + axis
        flat = code.reshape(-1)
        sizes = tuple(int(n) for n in np.bincount(flat) if n)
        return cls(family.cell_space, np.argsort(flat, kind="stable"), sizes)

    def placed(self, values: AnyArray) -> AnyArray:
        """Values group after group, in the domain's shape."""
        out = np.empty(values.size, values.dtype)
        out[self.order] = values
        return out.reshape(self.space.shape)

    def differences(self, counts: AnyArray) -> AnyArray:
        """Counts minus that of their group's first cell: all that is left up to constants."""
        flat = counts.reshape(-1)
        starts = np.cumsum([0, *self.sizes[:-1]])
        first = np.repeat(flat[self.order[starts]], self.sizes)
        return self.placed(flat[self.order] - first)


@frozen
class Exchanges(NormBall):
    """‖z‖ = Σ|z_i|/2 on vectors that add up to zero: the hull of all e_i − e_j.

    What replacing one record does to a histogram whose total is held. The norm is a whole number
    for whole vectors, and the law is drawn in closed form for any number of cells.

    >>> Exchanges(3).gauge((2, -1, -1))
    Fraction(2, 1)
    """

    cells: int

    body: ClassVar[str] = "exchanges"
    closed_form: ClassVar[bool] = True
    on_answers: ClassVar[str] = "all answers at once, with noise that adds up to zero"
    adds_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cells < 2:
            raise ReleaseError("A histogram with its total held needs at least two cells.")

    @property
    def entries(self) -> int:
        """One per cell."""
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
            raise ReleaseError("This norm is for vectors that add up to zero, one entry per cell.")
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

        Whole counts have the total of what is measured, which a bound on records makes another.
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
        chance = _chance_of_zero_sum(self, rate)
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
        return {"body": self.body, "cells": self.cells}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """The number of cells."""
        if type(data["cells"]) is not int or data["cells"] != entries:
            raise ReleaseError("The cells of a norm ball do not fit the answers.")
        return cls(entries)


@lru_cache(maxsize=256)
def _chance_of_zero_sum(norm_ball: Exchanges, rate: Fraction) -> float:
    return chance_of(norm_ball.normaliser(rate), rate / 2, norm_ball.cells)


@frozen
class Deviations(NormBall):
    """‖z‖ = Σ_g Σ_{i in g} |z_i − median of g|, for vectors up to a constant in every group.

    The hull of all ±Π e_i, Π taking out the means of the groups: what adding or removing one
    record does to a histogram whose groups' totals are held. Whole for whole vectors; drawn in
    closed form, group by group. Vectors are cells in order, group after group.

    >>> Deviations((3, 2)).gauge((5, 1, 0, 7, 7))
    Fraction(5, 1)
    """

    groups: tuple[int, ...]

    body: ClassVar[str] = "deviations"
    closed_form: ClassVar[bool] = True
    on_answers: ClassVar[str] = "the differences of answers within every held group, at once"

    def __post_init__(self) -> None:
        if not self.groups or min(self.groups) < 1 or max(self.groups) < 2:
            raise ReleaseError("Held groups need at least one cell each, and one of them two.")

    @property
    def entries(self) -> int:
        """One per cell."""
        return sum(self.groups)

    @property
    def dimension(self) -> int:
        """One less for every group."""
        return sum(self.groups) - len(self.groups)

    def gauge(self, z: Sequence[int]) -> Fraction:
        """The sum of distances from the medians."""
        total, at = 0, 0
        for size in self.groups:
            part = sorted(int(v) for v in z[at : at + size])
            total += sum(abs(v - part[(size - 1) // 2]) for v in part)
            at += size
        return Fraction(total)

    @property
    def half_cell(self) -> Fraction:
        """Half a unit in every cell; no draw needs it."""
        return Fraction(self.entries, 2)

    @property
    def log_volume(self) -> float:
        """Π_g n·C(n − 1, ⌈n/2⌉ − 1)/k! cells of the lattice, each of volume Π_g n^(−1/2)."""
        logs = [
            0.5 * math.log(n)
            + math.lgamma(n)
            - math.lgamma((n + 1) // 2)
            - math.lgamma(n - (n + 1) // 2 + 1)
            for n in self.groups
        ]
        return math.fsum(logs) - math.lgamma(self.dimension + 1)

    @property
    def spreads(self) -> list[float]:
        """What (k + 1)(k + 2)·E[U Uᵀ] is in each group, as a multiple of I − 11ᵀ/n."""
        sizes = [n for n in self.groups if n > 1]
        by_size = {n: 2 - (1 + (1 - n % 2) / (n - 1)) / n for n in sizes}
        return [by_size.get(n, 0.0) for n in self.groups]

    def spread(self) -> float:
        """Without the matrix."""
        k = self.dimension
        each = zip(self.groups, self.spreads, strict=True)
        return math.fsum((n - 1) * s for n, s in each) / ((k + 1) * (k + 2))

    @property
    def second_moment(self) -> FloatArray:
        """That of exponential sizes with balanced signs around a median."""
        k, at = self.dimension, 0
        out = np.zeros((self.entries, self.entries))
        for n, each in zip(self.groups, self.spreads, strict=True):
            out[at : at + n, at : at + n] = each * (np.eye(n) - 1.0 / n)
            at += n
        return out / ((k + 1) * (k + 2))

    def lengths(self, points: FloatArray) -> FloatArray:
        """Distances from the medians."""
        parts = np.split(points, np.cumsum(self.groups)[:-1], axis=1)
        out = np.zeros(len(points))
        for part in parts:
            out += np.abs(part - np.median(part, axis=1)[:, None]).sum(axis=1)
        return out

    @property
    def reach(self) -> FloatArray:
        """One record moves a cell by one."""
        return np.ones(self.entries)

    def draw(self, rate: Fraction, words: Words) -> Row:
        """In each group entries with lower median 0: how many are not, their signs and sizes."""
        from flint import ctx

        out: list[int] = []
        for n in self.groups:
            moved = one_of(lambda n=n: median_sums(n, rate, ctx.prec), words)  # type: ignore[misc]  # not inferred with a default
            h = (n + 1) // 2
            least = max(0, moved - n + h)
            sums, count = [0], math.comb(moved, least)
            for a in range(least, min(moved, h - 1) + 1):
                sums.append(sums[-1] + count)
                count = count * (moved - a) // (a + 1)
            pick = words.below(sums[-1])
            negative = least + bisect_right(sums, pick) - 1
            places = words.subset(moved, n)
            signs = set(words.subset(negative, moved))
            z = [0] * n
            for i, place in enumerate(places):
                size = 1 + geometric(rate, words)
                z[place] = -size if i in signs else size
            out += z
        return tuple(out)

    def normaliser(self, rate: Fraction) -> Callable[[], arb]:
        """The product over groups."""

        def value() -> arb:
            from flint import ctx

            out = ball(1)
            for n in self.groups:
                out *= median_sums(n, rate, ctx.prec)[-1]
            return out

        return value

    def covariance(self, rate: Fraction) -> FloatArray:
        """Of the part without the groups' means; groups are independent."""
        out = np.zeros((self.entries, self.entries))
        at = 0
        for n in self.groups:
            block = slice(at, at + n)
            out[block, block] = deviated(n, rate) * (np.eye(n) - 1.0 / n)
            at += n
        return out

    def group_variances(self, rate: Fraction) -> list[float]:
        """Of each group on its own."""
        return [deviated(n, rate) for n in self.groups]

    def mean_variance(self, rate: Fraction) -> float:
        """Without the matrix."""
        pairs = zip(self.groups, self.group_variances(rate), strict=True)
        return sum((n - 1) * each for n, each in pairs) / self.entries

    def protects(self, problem: Problem, within: Fraction) -> bool:
        """Where these are the groups whose totals are held."""
        fits = problem.query.is_histogram and within >= problem.neighbours.persons
        return fits and HeldGroups.of(problem.held).sizes == self.groups

    def measured(self, answers: AnyArray, held: HeldMargins | HeldMatrix) -> AnyArray:
        """Counts minus that of their group's first cell."""
        return HeldGroups.of(held).differences(answers)

    def placed(self, noise: AnyArray, held: HeldMargins | HeldMatrix) -> AnyArray:
        """Group after group."""
        return HeldGroups.of(held).placed(noise)

    @property
    def free_half_cell(self) -> Fraction:
        """Half a unit in all cells but one per group, which is fixed by the others."""
        return Fraction(self.dimension, 2)

    def smooth_sum(self, rate: float, weights: FloatArray) -> SumLaw:
        """In each group a multiple of I − 11ᵀ/n."""
        k = self.dimension
        parts = np.split(weights, np.cumsum(self.groups)[:-1])
        pairs = zip(parts, self.spreads, strict=True)
        squared = math.fsum(s * float(np.square(w - w.mean()).sum()) for w, s in pairs)
        return self.unimodal(rate, squared / ((k + 1) * (k + 2)))

    def conditioned(self, rate: Fraction, weights: FloatArray) -> SumLaw:
        """Discrete Laplace noise, given that the lower median of every group is zero."""
        chance, at, kept = 1.0, 0, []
        for n in self.groups:
            inside = weights[at : at + n]
            if inside.any():
                chance *= _chance_of_zero_median(n, rate)
                kept.append(inside - inside.mean())
            at += n
        return given(DiscreteLaplace(rate), np.concatenate(kept), chance)

    def whole_noise(self, rate: Fraction) -> FloatArray | None:
        """Many draws in floats."""
        return deviation_noise(self.groups, rate)

    def as_dict(self) -> dict[str, Any]:
        """The sizes of the groups."""
        return {"body": self.body, "groups": list(self.groups)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entries: int) -> Self:
        """The sizes of the groups."""
        groups = listed(data["groups"])
        if not all(type(size) is int for size in groups) or sum(groups) != entries:
            raise ReleaseError("The groups of a norm ball do not fit the answers.")
        return cls(tuple(groups))


@lru_cache(maxsize=256)
def deviated(n: int, rate: Fraction) -> float:
    """E|z − mean|²/(n − 1) in one group: |z − mean|² = Σ z² − (Σ z)²/n, sizes independent.

    Given T entries other than 0, A of them negative, with sizes of mean μ and variance v,
    E Σ z² = T(v + μ²) and E(Σ z)² = T·v + E(T − 2A)²·μ².
    """
    from flint import ctx

    if n == 1:
        return 0.0
    h = (n + 1) // 2
    with ctx.workprec(START_BITS + 4 * n):
        q = (-ball(rate)).exp()
        mean, spread = 1 / (1 - q), q / (1 - q) ** 2
        sums = median_sums(n, rate, ctx.prec)
        # E(T − 2A)² by C(T, A)·A(T − A) = T(T − 1)·C(T − 2, A − 1).
        all_signs, inner = signs_within(n, h - 1, n - h), [0, 0, *signs_within(n, h - 2, n - h - 1)]
        total, before = ball(0), ball(0)
        for t, level in enumerate(sums):
            chance, before = (level - before) / sums[-1], level
            tilt = t * t - ball(Fraction(4 * t * (t - 1) * inner[t], all_signs[t]))
            total += chance * (t * (spread + mean**2) - (t * spread + tilt * mean**2) / n)
        return float(total / (n - 1))


@lru_cache(maxsize=256)
def _chance_of_zero_median(n: int, rate: Fraction) -> float:
    """Of a lower median of zero."""

    def total() -> arb:
        from flint import ctx

        return median_sums(n, rate, ctx.prec)[-1]

    return chance_of(total, rate, n)


# ------------------------------------- many draws in floats: for laws of sums, not for releases


@lru_cache(maxsize=4)
def exchange_noise(n: int, rate: Fraction) -> FloatArray | None:
    """Draws of the discrete law of exchanges, one per row; None for too many cells."""
    number = draws_for(n)
    return None if number is None else _exchanges(n, rate, number, public_generator())


@lru_cache(maxsize=4)
def deviation_noise(groups: tuple[int, ...], rate: Fraction) -> FloatArray | None:
    """Draws of the discrete law of deviations, one per row; None for too many cells."""
    number = draws_for(sum(groups))
    if number is None:
        return None
    rng = public_generator()
    return np.concatenate([_group(n, rate, number, rng) for n in groups], axis=1)


def _exchanges(n: int, rate: Fraction, number: int, rng: np.random.Generator) -> FloatArray:
    """The norm first, then how many entries are positive, which ones, and how it is shared."""
    from flint import ctx
    from scipy.special import gammaln

    with ctx.workprec(BITS + 4 * n):
        levels = _chances(series_sums(exchange_series, n - 1, rate, ctx.prec))
    norm = np.searchsorted(levels, rng.random(number), side="right")
    norm = norm + rng.negative_binomial(n - 1, -np.expm1(-float(rate)), number)
    sizes, which = np.unique(norm, return_inverse=True)
    m, a = sizes[:, None].astype(np.float64), np.arange(1, n)[None, :].astype(np.float64)
    inside = (a <= m) & (m > 0)
    log = np.where(inside, -gammaln(a + 1) - gammaln(n - a + 1), -np.inf)
    # C(n, a)·C(m − 1, a − 1)·C(m + n − a − 1, n − a − 1)
    more = -gammaln(a) - gammaln(np.where(inside, m - a + 1, 1.0))
    log = log + more + gammaln(m + n - a) - gammaln(n - a)
    chances = np.exp(log - np.where(inside.any(1, keepdims=True), log.max(1, keepdims=True), 0.0))
    sums = np.cumsum(np.where(inside, chances, 0.0), axis=1)
    u = rng.random(number) * sums[which.reshape(-1), -1]
    positive = 1 + (sums[which.reshape(-1)] <= u[:, None]).sum(axis=1)
    positive = np.minimum(positive, np.minimum(np.maximum(norm, 1), n - 1))
    up = random_ranks(number, n, rng) < positive[:, None]
    # A uniform composition is multinomial with uniform shares of a simplex.
    shares = rng.exponential(size=(number, n))
    above, below = np.where(up, shares, 0.0), np.where(up, 0.0, shares)
    gained = rng.multinomial(
        np.maximum(norm - positive, 0), above / above.sum(axis=1, keepdims=True)
    )
    lost = rng.multinomial(norm, below / below.sum(axis=1, keepdims=True))
    return np.where(norm[:, None] > 0, gained + up - lost, 0).astype(np.float64)


def _group(n: int, rate: Fraction, number: int, rng: np.random.Generator) -> FloatArray:
    """Entries with lower median 0: how many are not, how many of these negative, and sizes."""
    from flint import ctx
    from scipy.special import gammaln

    if n == 1:
        return np.zeros((number, 1))
    with ctx.workprec(BITS + 4 * n):
        chances = _chances(median_sums(n, rate, ctx.prec))
    moved = np.searchsorted(chances, rng.random(number), side="right")
    half = (n + 1) // 2
    t, a = np.arange(n + 1.0)[:, None], np.arange(n + 1.0)[None, :]
    allowed = (a >= t - n + half) & (a <= np.minimum(t, half - 1))
    log = -gammaln(a + 1) - gammaln(np.maximum(t - a, 0.0) + 1)
    sums = np.cumsum(np.where(allowed, np.exp(log + gammaln(t + 1) - t * np.log(2)), 0.0), axis=1)
    u = rng.random(number) * sums[moved, -1]
    negative = (sums[moved] <= u[:, None]).sum(axis=1)
    ranks = random_ranks(number, n, rng)
    size = rng.geometric(-np.expm1(-float(rate)), (number, n)).astype(np.float64)
    size[ranks < negative[:, None]] *= -1
    size[ranks >= moved[:, None]] = 0.0
    return size


def _chances(sums: tuple[arb, ...]) -> FloatArray:
    """Cumulative sums over the last of them."""
    return np.array([float(s / sums[-1]) for s in sums])


def random_ranks(number: int, n: int, rng: np.random.Generator) -> Int64Array:
    """Random permutations, one per row."""
    return np.argsort(np.argsort(rng.random((number, n)), axis=1), axis=1)
