"""What adding a record does to counts in groups whose totals are held."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball
from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.invariants.groups import HeldGroups
from subspacedp.mechanisms.error_laws.sums import SumLaw
from subspacedp.mechanisms.knorm.counting import median_sums, signs_within
from subspacedp.mechanisms.knorm.lazy import START_BITS, Words, geometric, one_of
from subspacedp.mechanisms.knorm.norm_balls.base import FloatArray, NormBall, Row
from subspacedp.mechanisms.knorm.simulation import deviation_noise
from subspacedp.mechanisms.knorm.totals import chance_of, given
from subspacedp.noise.laws import DiscreteLaplace
from subspacedp.problem import Problem

if TYPE_CHECKING:
    from flint import arb

__all__ = ["Deviations"]


@dataclass(frozen=True)
class Deviations(NormBall):
    """‖z‖ = Σ_g Σ_{i in g} |z_i − median of g|, for vectors up to a constant in every group.

    The hull of all ±Π e_i, Π taking out the means of the groups: what adding or removing one
    record does to a histogram whose groups' totals are held. Whole for whole vectors; drawn in
    closed form, group by group. Vectors are cells in order, group after group.

    >>> Deviations((3, 2)).gauge((5, 1, 0, 7, 7))
    Fraction(5, 1)
    """

    groups: tuple[int, ...]

    closed_form: ClassVar[bool] = True
    on_answers: ClassVar[str] = "the differences of answers within every held group, at once"

    def __post_init__(self) -> None:
        if not self.groups or min(self.groups) < 1 or max(self.groups) < 2:
            raise ReleaseError("Held groups need at least one cell each, and one of them two.")

    @property
    def entries(self) -> int:
        """One a cell."""
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
        found = {n: 2 - (1 + (1 - n % 2) / (n - 1)) / n for n in sizes}
        return [found.get(n, 0.0) for n in self.groups]

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

    def measured(
        self, answers: npt.NDArray[Any], held: HeldMargins | HeldMatrix
    ) -> npt.NDArray[Any]:
        """Counts minus that of their group's first cell."""
        return HeldGroups.of(held).differences(answers)

    def placed(self, noise: npt.NDArray[Any], held: HeldMargins | HeldMatrix) -> npt.NDArray[Any]:
        """Group after group."""
        return HeldGroups.of(held).placed(noise)

    @property
    def free_half_cell(self) -> Fraction:
        """Half a unit in all cells but one a group, which is fixed by the others."""
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
                chance *= _chance(n, rate)
                kept.append(inside - inside.mean())
            at += n
        return given(DiscreteLaplace(rate), np.concatenate(kept), chance)

    def whole_noise(self, rate: Fraction) -> FloatArray | None:
        """Many draws in floats."""
        return deviation_noise(self.groups, rate)

    def as_dict(self) -> dict[str, Any]:
        """The sizes of the groups."""
        return {"body": "deviations", "groups": list(self.groups)}


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
def _chance(n: int, rate: Fraction) -> float:
    """Of a lower median of zero."""

    def total() -> arb:
        from flint import ctx

        return median_sums(n, rate, ctx.prec)[-1]

    return chance_of(total, rate, n)
