"""The law of a weighted sum of independent noise: tails and margins of error, never too small.

A figure computed from a release is off by S = Σ aᵢeᵢ, plus Σ vⱼuⱼ by controlled rounding. Its
characteristic function is a product, so its law is a Fourier series away:

- where the weights lie on a lattice, S does too, and the series is finite: the exact law;
- otherwise S is smeared by a known bounded variable V, |V| ≤ δ, whose characteristic function
  decays: P(|S| > q + δ) ≤ P(|S + V| > q), and what is left of the series has a bound.

Everything neglected (the other periods, the rest of the series, rounding of float64) is added to
the tail, so margins of error are conservative by at most 0.6 % of a standard deviation.
Proofs: `docs/proofs/intervals.md`.

Rounded Gaussian noise of large scale is normal up to a bound on what rounding moves: a rounded
Gaussian variable is σZ + U with |U| ≤ ½, so Σ wᵢeᵢ is within ½ Σ|wᵢ| of a normal variable of
variance Σ wᵢ²σᵢ². Where that bound is far below a standard deviation this is the quickest proven
law there is.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from subspacedp.arrays import ArrayLike, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen, remembered
from subspacedp.noise.laws import KnownLaw, RoundedGaussian
from subspacedp.special import binomial_at_least, normal_quantile, smooth_length

SMEAR = 0.002  # δ in standard deviations
COARSE = 0.001  # what rounding of weights may move, in standard deviations
UNIFORMS = 6  # V is a sum of so many uniform variables
MOST_POINTS = 2**17  # of a lattice
MOST_FREQUENCIES = 2**19
FLOAT_ERROR = 1e-12  # of a probability, with room to spare
SMALLEST = 1e-9  # beyond it, Chernoff's bound
NEGLECTED = (
    3e-4  # of a tail: other periods, the rest of the series, bounded variables out of bounds
)
MAX_EQUAL_ROUNDINGS = 1024  # whose largest tail is computed
FEW_ROUNDINGS = 16  # whose largest tail needs no table
STRETCH = 64  # frequencies that are bounded, and perhaps left out, together
STEEPEST = 1e4  # values of s that are tried, per unit of a weight: any of them gives a bound


class SumLaw(Protocol):
    """What inference needs of the error of a figure."""

    @property
    def method(self) -> str:
        """How tails are found, in a word."""

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""


@frozen(eq=False, repr=False)
class Part:
    """Independent noise of one law, with positive weights and how often each occurs."""

    law: KnownLaw
    weights: FloatArray
    counts: FloatArray

    @property
    def variance(self) -> float:
        """Of the part's sum."""
        return self.law.variance * float(np.dot(self.counts, self.weights**2))


def part(law: KnownLaw, weights: ArrayLike, occurring: FloatArray | None = None) -> Part:
    """A part from one weight for each noise variable; signs do not matter, zeros drop out.

    Weights that agree to 40 bits are one: rounding error of a projection, far below δ. With
    `occurring` each weight stands for so many variables.
    """
    w = np.abs(np.asarray(weights, np.float64).reshape(-1))
    used = w > 1e-13 * float(w.max(initial=0.0))
    if occurring is not None:
        used &= occurring > 0
    w = w[used]
    if not w.size:
        return Part(law, np.empty(0), np.empty(0))
    mantissa, exponent = np.frexp(w)
    rounded = np.ldexp(np.rint(mantissa * 2.0**40) * 2.0**-40, exponent)
    if occurring is None:
        distinct, counts = np.unique(rounded, return_counts=True)
        return Part(law, distinct, counts.astype(np.float64))
    distinct, place = np.unique(rounded, return_inverse=True)
    return Part(law, distinct, np.bincount(place.reshape(-1), occurring[used]).astype(np.float64))


@frozen
class Rounding:
    """Σ vⱼuⱼ: given the noise, independent, of mean zero, each u within one step of 0.

    Guarantees
    ----------
    1. Given the noise, P(Σ vⱼuⱼ ≥ s) ≤ `tail(s)`. With `roundings` of equal weight that is the
       largest probability there is, `largest_tail`. Otherwise it is the least of Hoeffding's
       bound (u has a range of one), Cantelli's (its variance is at most 1/4), and 0 from Σ|vⱼ| on.
    """

    squared: float  # Σ vⱼ²
    total: float  # Σ |vⱼ|
    roundings: int = 0  # their number where all weigh equally; 0 where they do not, or are many

    @classmethod
    def of(cls, coefficients: FloatArray) -> Rounding | None:
        """From the weights of the roundings; None where none has any."""
        v = np.abs(coefficients[np.abs(coefficients) > 1e-12])
        if not v.size:
            return None
        equal = v.size <= MAX_EQUAL_ROUNDINGS and float(np.ptp(v)) <= 1e-12 * float(v.max())
        return cls(float(v @ v), float(v.sum()), v.size if equal else 0)

    def tail(self, s: FloatArray) -> FloatArray:
        """A bound on P(Σ vⱼuⱼ ≥ s), whatever the noise."""
        if self.roundings:
            return largest_tail(self.roundings, s * (self.roundings / self.total))
        above = np.maximum(s, 0.0)
        bound = np.minimum(
            np.exp(-2 * above**2 / self.squared), 1 / (1 + 4 * above**2 / self.squared)
        )
        return np.where(s >= self.total, 0.0, bound)

    @property
    def reach(self) -> float:
        """Beyond it the tail is nothing."""
        return min(self.total, math.sqrt(self.squared * 20.0))


def largest_tail(roundings: int, s: FloatArray) -> FloatArray:
    """The largest P(B ≥ E[B] + s) of a sum B of `roundings` independent trials with whole E[B] + s.

    Among trials with a given mean the largest is that of k ≤ `roundings` equal ones beside some
    that are certain, and from s = 1 on k = `roundings` (Hoeffding 1956): the maximum over
    1 ≤ m ≤ k of P(Bin(k, (m − s)/k) ≥ m). For many it is tabulated, and
    taken at the next lower s there.
    """
    if roundings <= FEW_ROUNDINGS:
        near, far = (s > 0) & (s < 1), s >= 1
        out = np.where(s <= 0, 1.0, 0.0)
        out[near] = np.max([_equal_trials(k, s[near]) for k in range(1, roundings + 1)], axis=0)
        out[far] = _equal_trials(roundings, s[far])
        return out
    table, points = _tabulated_tail(roundings)
    place = np.floor(np.maximum(s, 0.0) * points).astype(np.int64)
    return np.asarray(table[np.minimum(place, table.size - 1)])


def _equal_trials(k: int, s: FloatArray) -> FloatArray:
    """The largest P(Bin(k, p) ≥ kp + s) over all p with whole kp + s, for s > 0."""
    m = np.arange(1.0, k + 1)[:, None]
    largest = np.max(binomial_at_least(m, k, np.maximum(m - s, 0.0) / k), axis=0, initial=0.0)
    return np.asarray(np.minimum(largest * (1 + 1e-12), 1.0), np.float64)


@lru_cache(maxsize=128)
def _tabulated_tail(roundings: int) -> tuple[FloatArray, int]:
    """`largest_tail` in equal steps from 0 to beyond `Rounding.reach`, and how many make one."""
    points = 32 if roundings <= 64 else 16 if roundings <= 256 else 8
    most = 64 if roundings <= 64 else 256 if roundings <= 256 else MAX_EQUAL_ROUNDINGS
    last = min(float(roundings), math.sqrt(roundings * 20.0)) + 1.0
    far = _equal_trials(roundings, np.arange(1.0, last, 1 / points))
    return np.concatenate([_tails_below_one(most, points)[roundings - 1], far]), points


@lru_cache(maxsize=4)
def _tails_below_one(most: int, points: int) -> FloatArray:
    """The start of that table for all numbers of roundings up to `most`, in rows."""
    s = np.arange(1, points) / points
    rows = np.maximum.accumulate([_equal_trials(k, s) for k in range(1, most + 1)], axis=0)
    return np.concatenate([np.ones((most, 1)), rows], axis=1)


def check_variance(variance: ArrayLike) -> None:
    """Refuse noise of which not even the variance is known."""
    if not np.all(np.isfinite(variance)):
        raise ReleaseError(
            "The noise of this release was declared without a variance, so nothing can be said "
            "about its errors."
        )


@frozen
class OnlyVariance:
    """Noise of which only the variance is known: Chebyshev's inequality."""

    variance: float
    method: str = "Chebyshev"

    def tail(self, distance: float) -> float:
        """At most Var/distance²."""
        return 1.0 if distance <= 0 else min(1.0, self.variance / distance**2)

    def margin_of_error(self, alpha: float) -> float:
        """√(Var/α)."""
        return math.sqrt(self.variance / alpha)


@frozen
class Least:
    """The least of several valid bounds; the first names the method."""

    bounds: Sequence[SumLaw]

    @property
    def method(self) -> str:
        """That of the first bound."""
        return self.bounds[0].method

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        return min(bound.tail(distance) for bound in self.bounds)

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        return min(bound.margin_of_error(alpha) for bound in self.bounds)


@frozen(eq=False)
class _Tail:
    """P(S ≥ points[j]) ≤ above[j], for points in equal steps from 0 on."""

    points: FloatArray
    above: FloatArray
    step: float | None = None  # where S itself lies on the points


@frozen(eq=False)
class _Grid:
    """The law of noise alone on a grid, before roundings."""

    tail: _Tail
    mass: FloatArray  # of the grid symmetric about 0
    step: float
    shift: int  # 1: mass stands for what lies up to one step above it, and is placed there


@frozen(eq=False, repr=False, kw_only=True)
class WeightedSum:
    """The law of S = Σ aᵢeᵢ + Σ vⱼuⱼ.

    Parameters
    ----------
    parts
        Independent noise with its weights.
    rounding
        What controlled rounding contributes.
    step
        S is known to lie on multiples of it; None when nothing is known.

    Guarantees
    ----------
    1. `tail(x)` is at least P(|S| ≥ x), and `margin_of_error(alpha)` a q with P(|S| > q) ≤ alpha.
    2. Without rounding they are exact up to a part in 1000 of the probability, and up to 0.6 % of a
       standard deviation where no lattice of moderate size carries S.
    """

    parts: Sequence[Part]
    rounding: Rounding | None = None
    step: float | None = None
    _tails: dict[tuple[float, Rounding | None], _Tail] = field(default_factory=dict, init=False)
    _moments: dict[float, tuple[FloatArray, FloatArray]] = field(default_factory=dict, init=False)

    @cached_property
    def _noise(self) -> WeightedSum:
        """The noise alone: sums that differ by their roundings share it."""
        if self.rounding is None:
            return self
        laws = ((p.variance, p.weights.tobytes(), p.counts.tobytes(), p.law) for p in self.parts)
        return _noise_of(*sorted(laws, key=lambda law: law[:3]))

    @cached_property
    def variance(self) -> float:
        """Of the noise; rounding is left out."""
        return math.fsum(part.variance for part in self.parts)

    @property
    def fixed(self) -> bool:
        """Whether there is no noise at all."""
        return self.variance == 0.0

    @cached_property
    def lattice(self) -> float | None:
        """A step g of which all weights are multiples, when a few weights allow it."""
        if self is not self._noise:
            return self._noise.lattice
        weights = np.concatenate([p.weights for p in self.parts])
        if not 0 < weights.size <= 64:
            return None
        least, common = float(weights.min()), 1
        for w in weights.tolist():
            ratio = Fraction(w / least).limit_denominator(10_000)
            common = math.lcm(common, ratio.denominator)
            if abs(float(ratio) * least - w) > 1e-10 * w or common > 10**6:
                return None
        return least / common

    @property
    def method(self) -> str:
        """How the law is found."""
        if self.fixed:
            return "fixed"
        if self.rounding is not None:
            return "conservative"
        return "smeared" if self._tail(0.05).step is None else "exact"

    def _on_few_points(self, reach: float) -> bool:
        lattice = self.lattice
        return lattice is not None and 2 * reach / lattice < MOST_POINTS

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        if not distance > 0:
            return 1.0
        if self.fixed:
            return 0.0
        law = self._tail(1e-6)
        if law.step is not None:
            # P(S ≥ x) is that of the next point; x a hair above a point is that point.
            place = int(np.searchsorted(law.points, distance - 1e-6 * law.step, side="left"))
            place = min(place, law.points.size - 1)
        else:
            place = int(np.searchsorted(law.points, distance, side="right")) - 1
        probability = 2 * float(law.above[place]) if place >= 0 else 1.0
        return max(min(1.0, probability, 2 * self._chernoff(distance)), sys.float_info.min)

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha, the least the method finds."""
        if self.fixed:
            return 0.0
        if alpha < SMALLEST:
            return self._reach(alpha)
        law = self._tail(alpha)
        enough = 2 * law.above <= alpha
        if not enough.any():
            return self._reach(alpha)
        first = float(law.points[int(np.argmax(enough))])
        step = law.step if self.rounding is None else self.step
        if step is not None:
            # P(|S| > q) = P(|S| ≥ q + step): the last multiple below the first point is enough.
            first = (math.ceil(first / step - 1e-6) - 1) * step
            if self.step is not None and self.step.is_integer() and first.is_integer():
                return max(first, 0.0)  # whole figures: endpoints have no rounding
        # Endpoints on a lattice must survive the rounding of float64.
        return max(first, 0.0) * (1 + 1e-9) + 1e-9 * math.sqrt(self.variance)

    def _tail(self, alpha: float) -> _Tail:
        key = (alpha, self.rounding)
        table = self._noise._tails.get(key)
        if table is None:
            reach = self._far_enough(alpha)
            if self.lattice is not None and self._on_few_points(reach):
                g = self.lattice / self._finer(reach)
                table = self._rounded(self._noise._on_lattice(g, reach, alpha))
            else:
                coarse, off = self._coarser(alpha)
                grid = coarse._noise._smeared(coarse._far_enough(alpha), alpha)
                table = coarse._rounded(grid)
                if off:
                    table = _Tail(table.points + off, table.above + alpha * NEGLECTED)
            self._noise._tails[key] = table
        return table

    def _finer(self, reach: float) -> int:
        """By how much a lattice is divided where published steps, which need tails, are finer."""
        if self.rounding is None or self.lattice is None or not self.rounding.roundings:
            return 1
        wanted = math.ceil(4 * self.lattice * self.rounding.roundings / self.rounding.total)
        return max(1, min(wanted, int(MOST_POINTS * self.lattice / (2 * reach))))

    def _far_enough(self, alpha: float) -> float:
        """Beyond it the noise is with probability alpha·NEGLECTED, and all of S with alpha."""
        reach = self._noise._reach(alpha * NEGLECTED)
        return reach if self.rounding is None else max(reach, self._reach(alpha))

    # ------------------------------------------------------------------ the two ways to the law

    @remembered
    def _on_lattice(self, g: float, reach: float, alpha: float) -> _Grid:
        """The exact law on multiples of g, up to what lies beyond `reach`."""
        n = smooth_length(2 * math.ceil(reach / g) + 2)
        mass = np.fft.irfft(self._characteristic(np.arange(n // 2 + 1.0), lattice=(g, n)), n)
        upper = np.maximum(mass[: n // 2 + 1], 0.0)
        above = np.cumsum(upper[::-1])[::-1] + alpha * NEGLECTED + FLOAT_ERROR
        points = np.arange(upper.size) * np.float64(g)
        both = np.concatenate([upper[:0:-1], upper])
        return _Grid(_Tail(points, above, step=g), both, g, shift=0)

    def _coarser(self, alpha: float) -> tuple[WeightedSum, float]:
        """The sum with coarser weights, and how far that may be off."""
        coarse, off = self._noise._with_fewer_weights(alpha)
        if coarse is self._noise:
            return self, off
        if self.rounding is not None:
            coarse = WeightedSum(parts=coarse.parts, rounding=self.rounding, step=self.step)
        return coarse, off

    @remembered
    def _with_fewer_weights(self, alpha: float) -> tuple[WeightedSum, float]:
        """The sum with weights rounded to multiples of a step, and how far that may be off.

        Many weights of different sizes become a few. What rounding them leaves is a sum of noise
        with weights of at most half a step, within `off` except with probability alpha·NEGLECTED.
        """
        if sum(p.weights.size for p in self.parts) <= 64:
            return self, 0.0
        noise = math.fsum(p.law.variance * float(p.counts.sum()) for p in self.parts)
        allowed = COARSE * math.sqrt(self.variance)
        step = 2 * allowed / math.sqrt(noise * 2 * math.log(2 / (alpha * NEGLECTED)))
        while True:
            left = [Part(p.law, np.array([step / 2]), p.counts.sum(keepdims=True))
                    for p in self.parts if p.weights.size]  # fmt: skip
            off = WeightedSum(parts=left)._reach(alpha * NEGLECTED)
            if off <= allowed:
                break
            step *= 0.9 * allowed / off
        parts = []
        for p in self.parts:
            whole, place = np.unique(np.rint(p.weights / step), return_inverse=True)
            counts = np.bincount(place.reshape(-1), p.counts, whole.size).astype(np.float64)
            kept = whole > 0
            parts.append(Part(p.law, whole[kept] * step, counts[kept]))
        return WeightedSum(parts=tuple(parts)), off

    @remembered
    def _smeared(self, reach: float, alpha: float) -> _Grid:
        """The law of S + V on a grid; its tail at q bounds that of S at q + δ."""
        delta = SMEAR * math.sqrt(self.variance)
        period = 2 * (reach + delta)
        terms, rest = self._series(period, delta, alpha)
        n = smooth_length(max(2**14, 4 * terms.size))
        spectrum = np.zeros(n // 2 + 1, np.complex128)
        spectrum[1 : terms.size + 1] = -0.5j * n * terms
        x = np.arange(n // 2 + 1) * np.float64(period / n)
        inside = np.fft.irfft(spectrum, n)[: x.size] + 2 * x / period  # P(|S + V| ≤ x)
        above = np.maximum.accumulate(((1 - inside) / 2)[::-1])[::-1]
        above = np.clip(above, 0.0, 0.5) + alpha * NEGLECTED + FLOAT_ERROR + rest
        mass = np.maximum(np.diff(above, append=0.0) * -1.0, 0.0)
        both = np.concatenate([mass[::-1], mass])  # mass between grid points j and j + 1
        return _Grid(_Tail(x + delta, above), both, period / n, shift=1)

    def _series(self, period: float, delta: float, alpha: float) -> tuple[FloatArray, float]:
        """Coefficients of P(|S + V| ≤ x), and a bound on the sum of those left out.

        Frequencies are taken until the bound on the rest is small enough. Where the bound by
        octaves does not get there soon, stretches of frequencies are bounded one by one: far from
        the lattice of any weight nothing is left of the noise, and such a stretch is skipped.
        """
        small = alpha * NEGLECTED
        unit = 2 * np.pi / period
        first, octaves = STRETCH // 4, self._octaves(STRETCH // 4 * unit, delta)
        while (rest := float(octaves.sum())) > small and first < 16 * STRETCH:
            first, octaves = 2 * first, octaves[1:]
        blocks = [self._terms(1, first, unit, delta)]
        if rest <= small:
            return blocks[0], rest
        # From here on V alone makes the rest small.
        last = UNIFORMS / (delta * unit) * (4 / small) ** (1 / UNIFORMS)
        last = min(MOST_FREQUENCIES, math.ceil(last / STRETCH) * STRETCH)
        rest = float(self._octaves(last * unit, delta).sum())
        starts = np.arange(first, last, STRETCH)
        bounds = self._bounds(starts * unit, (starts + STRETCH) * unit)
        for start, bound in zip(starts.tolist(), bounds.tolist(), strict=True):
            if bound <= small / 32:  # Σ 1/k over all stretches is below 16
                rest += bound * STRETCH / start
                blocks.append(np.zeros(STRETCH))
            else:
                blocks.append(self._terms(start + 1, STRETCH, unit, delta))
        return np.concatenate(blocks), rest

    def _terms(self, start: int, count: int, unit: float, delta: float) -> FloatArray:
        k = np.arange(start, start + count, dtype=np.float64)
        theta = unit * k
        smear = np.sinc(theta * delta / (np.pi * UNIFORMS)) ** UNIFORMS
        return 2 / (np.pi * k) * self._characteristic(theta) * smear

    def _octaves(self, theta: float, delta: float) -> FloatArray:
        """2|φ|/(πk) of the frequencies beyond θ summed, by octaves: each has Σ 1/k ≤ 1."""
        t = np.asarray(theta * 2.0 ** np.arange(60), np.float64)
        smear = np.minimum(1.0, (UNIFORMS / (t * delta)) ** UNIFORMS)
        kept = int(np.argmax(smear < 1e-14)) + 1 if smear[-1] < 1e-14 else smear.size
        return np.asarray(smear[:kept] * self._bounds(t[:kept], 2 * t[:kept]))

    def _bounds(self, lows: FloatArray, highs: FloatArray) -> FloatArray:
        """Bounds on |φ(θ)| for low ≤ θ ≤ high, by each weight's distance from its lattice."""
        logs = np.zeros(lows.size)
        for p in self.parts:
            rows = max(1, 2**19 // max(1, p.weights.size))
            for at in range(0, lows.size, rows):
                piece = slice(at, at + rows)
                first = np.multiply.outer(lows[piece] / (2 * np.pi), p.weights)
                last = np.multiply.outer(highs[piece] / (2 * np.pi), p.weights)
                turn = np.floor(first)
                near = np.minimum(np.minimum(first - turn, turn + 1 - last), 0.5)
                between = np.floor(last) == turn
                with np.errstate(divide="ignore", under="ignore"):
                    factors = np.log(p.law.envelope(2 * np.pi * np.maximum(near, 0.0)))
                # A factor of 0 has the logarithm −∞; a multiple of 2π inside allows only 1.
                logs[piece] += np.where(between, np.maximum(factors, -1e4), 0.0) @ p.counts
        return np.where(logs < -700, 0.0, np.exp(np.clip(logs, -700, 0.0)))

    def _characteristic(
        self, theta: FloatArray, lattice: tuple[float, int] | None = None
    ) -> FloatArray:
        """The characteristic function at θ; with a lattice of step g, at 2πk/(ng) for whole k = θ.

        There the weights are taken as the multiples of g they are, and angles are reduced in whole
        numbers: an error of 1e-12 in a weight would be one of 1e-8 in an angle of 10⁴ turns.
        """
        out = np.ones(theta.shape)
        for p in self.parts:
            rows = max(1, 2**19 // max(1, theta.size))
            for start in range(0, p.weights.size, rows):
                w, c = p.weights[start : start + rows], p.counts[start : start + rows]
                if lattice is None:
                    t = np.multiply.outer(w, theta)
                else:
                    g, n = lattice
                    t = np.remainder(np.multiply.outer(np.rint(w / g), theta), n)
                    t *= 2 * np.pi / n
                with np.errstate(over="ignore", under="ignore"):
                    p.law.multiply_characteristic(out, t, c)
        return out

    def _rounded(self, noise: _Grid) -> _Tail:
        """Σ_y P(Y = y) · bound on P(rounding ≥ x − y), for x on the grid of the noise."""
        rounding, mass, g, above = self.rounding, noise.mass, noise.step, noise.tail.above
        if rounding is None:
            return noise.tail
        longest = min(mass.size, math.ceil(rounding.reach / g) + 1)
        steps = (np.arange(longest + 1) - noise.shift) * np.float64(g)
        bound = rounding.tail(steps)
        bound[0] = 0.0 if noise.shift == 0 else 1.0  # what is at x or beyond counts in `above`
        bound[: noise.shift] = 0.0
        n = smooth_length(mass.size + bound.size)
        spread = np.fft.irfft(np.fft.rfft(mass, n) * np.fft.rfft(bound, n), n)[mass.size // 2 :][
            : above.size
        ]
        return _Tail(
            noise.tail.points, np.minimum(1.0, above + np.maximum(spread, 0.0) + FLOAT_ERROR)
        )

    # ----------------------------------------------------------------------- Chernoff's bound

    def _log_moment(self, s: FloatArray) -> FloatArray:
        """Of the noise alone."""
        out = np.zeros(s.shape)
        for p in self.parts:
            out += p.counts @ p.law.log_moment(np.multiply.outer(p.weights, s))
        return out

    def _exponents(self, s: FloatArray, of_noise: FloatArray) -> FloatArray:
        """The logarithm of E e^{sS} at most, from that of the noise."""
        if self.rounding is None:
            return of_noise
        return of_noise + s**2 * self.rounding.squared / 8  # Hoeffding's lemma

    def _slopes(self, scale: float) -> FloatArray:
        """Values of s to try, from far below scale/σ up to the end of the moments."""
        squared = math.fsum(
            p.law.tail_variance * float(p.counts @ p.weights**2) for p in self.parts
        )
        top = scale / math.sqrt(squared)
        ends = [
            (STEEPEST if p.law.geometric_rate is None else p.law.geometric_rate)
            / float(p.weights.max())
            for p in self.parts
            if p.weights.size
        ]
        top = min([top, *(0.995 * end for end in ends)])
        return top * np.array([0.3, 0.45, 0.6, 0.75, 0.85, 0.95, 1.0])

    def _reach(self, alpha: float) -> float:
        """An x with P(|S| > x) ≤ alpha, by Chernoff's bound."""
        log = math.log(2 / alpha)
        if alpha not in self._noise._moments:
            s = self._noise._slopes(math.sqrt(2 * log))
            self._noise._moments[alpha] = s, self._noise._log_moment(s)
        s, of_noise = self._noise._moments[alpha]
        return float(np.min((self._exponents(s, of_noise) + log) / s))

    def _chernoff(self, x: float) -> float:
        """At least P(S ≥ x)."""
        s = self._slopes(x / math.sqrt(self.variance))
        return math.exp(min(0.0, float(np.min(self._exponents(s, self._log_moment(s)) - s * x))))


@lru_cache(maxsize=16)
def _noise_of(*laws: tuple[float, bytes, bytes, KnownLaw]) -> WeightedSum:
    """The sum of parts as they are told: totals of many tables have the same noise."""
    return WeightedSum(
        parts=[Part(law, np.frombuffer(w), np.frombuffer(c)) for _, w, c, law in laws]
    )


NEAR = 0.002  # of a standard deviation: what rounding may move at most
CELLS = 500.0  # a standard deviation in steps of the lattice that carries roundings
WIDEST = 1e-4  # of the largest deviation that keeps a target


@lru_cache(maxsize=64)
def _on_lattice(deviation: float, rounding: Rounding) -> tuple[WeightedSum, float]:
    """A normal variable rounded to a lattice, with roundings; the lattice is fine beside both."""
    cell = math.sqrt(deviation**2 + rounding.squared / 4) / CELLS
    lattice = Part(RoundedGaussian(deviation / cell), np.array([cell]), np.ones(1))
    return WeightedSum(parts=(lattice,), rounding=rounding), cell


@frozen(eq=False, repr=False)
class NearNormal:
    """A variable within `off` of a normal one, or of a normal one and roundings.

    Parameters
    ----------
    deviation
        At least that of the normal variable.
    step
        The variable is a multiple of it; None when nothing is known.

    Guarantees
    ----------
    1. `tail(x)` is at least P(|S| ≥ x), and `margin_of_error(alpha)` a q with P(|S| > q) ≤ alpha.
    """

    deviation: float
    off: float
    rounding: Rounding | None = None
    step: float | None = None
    method: str = "conservative"

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        if self.step is not None:
            distance = math.ceil(distance / self.step - 1e-6) * self.step
        left = distance - self.off
        if left <= 0:
            return 1.0
        if self.rounding is not None:
            law, cell = _on_lattice(self.deviation, self.rounding)
            return law.tail(left - cell / 2)
        return min(1.0, math.erfc(left / (self.deviation * math.sqrt(2.0))) * (1 + 1e-12))

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        if self.rounding is None:
            return -normal_quantile(alpha / 2) * self.deviation * (1 + 1e-12) + self.off
        # A normal variable is within half a step of its rounding to a lattice.
        law, cell = _on_lattice(self.deviation, self.rounding)
        reached = law.margin_of_error(alpha) + cell / 2 + self.off
        if self.step is None:
            return reached
        # P(|S| ≥ reached) ≤ alpha, and S is a multiple of the step: the last one below is enough.
        return max(math.ceil(reached / self.step) - 1, 0) * self.step


@frozen(eq=False, repr=False)
class NormalAndBounded:
    """Rounded Gaussian noise of which only sums of squares are known, and perhaps roundings.

    Parameters
    ----------
    deviation
        At least √Σ wᵢ²σᵢ².
    squared
        At least Σ wᵢ².
    rounding, step
        The randomised roundings, and what the figure is off by multiples of.

    Guarantees
    ----------
    1. `tail(x)` is at least P(|S| ≥ x), and `margin_of_error(alpha)` a q with P(|S| > q) ≤ alpha.

    Notes
    -----
    S = N + D + U, N normal, D a sum of independent wᵢUᵢ with |Uᵢ| ≤ ½ and mean zero, U of roundings
    that are bounded whatever the noise. Hoeffding: P(|D| ≥ s) ≤ 2exp(−2s²/squared).
    """

    deviation: float
    squared: float
    rounding: Rounding | None = None
    step: float | None = None
    method: str = "conservative"

    def _unless(self, probability: float) -> NearNormal:
        """The law where |D| is no larger than it is but for this probability."""
        bound = math.sqrt(self.squared * math.log(2 / probability) / 2)
        return NearNormal(self.deviation, bound, self.rounding, self.step)

    def tail(self, distance: float) -> float:
        """At least P(|S| ≥ distance)."""
        given = [10.0**-k for k in (2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 30, 50, 80, 120, 200, 300)]
        return min(1.0, min(self._unless(p).tail(distance) + p for p in given))

    def margin_of_error(self, alpha: float) -> float:
        """A q with P(|S| > q) ≤ alpha."""
        shares = [NEGLECTED] if self.rounding else [0.3, 0.2, 0.1, 0.05, 0.02, 0.01]
        return min(
            self._unless(alpha * share).margin_of_error(alpha * (1 - share)) for share in shares
        )


def near_normal(
    parts: Sequence[Part], rounding: Rounding | None, step: float | None = None
) -> SumLaw | None:
    """The law of a sum of parts where all are Gaussian and rounding moves it little; else None."""
    variance = moved = 0.0
    for p in parts:
        sigma = p.law.normal_within
        if sigma is None:
            return None
        variance += sigma**2 * float(p.counts @ p.weights**2)
        moved += 0.5 * float(p.counts @ p.weights)
    deviation = math.sqrt(variance)
    if not 0 < moved <= NEAR * deviation:
        return None
    return NearNormal(deviation, moved, rounding, step if rounding else None)


def widest_normal(
    target: float, alpha: float, rounding: Rounding | None, step: float | None
) -> float | None:
    """The largest deviation of normal noise that keeps a margin of error, beside roundings.

    To a part in 10⁴, from below; None where the roundings alone are beyond the target.
    """

    def meets(deviation: float) -> bool:
        law = NearNormal(deviation, 0.0, rounding, step if rounding else None)
        return law.margin_of_error(alpha) <= target

    low, high = target / 100, target
    if not meets(low):
        return None
    while high > low * (1 + WIDEST):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
