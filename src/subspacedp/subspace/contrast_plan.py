"""The best Gaussian noise for a workload of margins: one share of the budget for every part.

Noise on a group of part τ has variance ∏(1 − 1/k)/b_τ before it is projected onto contrasts. One
record then spends b_τ of the squared budget on every part, whatever its labels (nothing where it is
alone under its parent), and a pair of records what `PairKinds` says. The split b is the best there
is; where levels do not nest, or nest in equal groups, no Gaussian noise at all does better
(docs/proofs/margins.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from subspacedp.ellipsoids.shares import best_shares, dual_value, shares_for
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.subspace.contrasts import Contrasts
from subspacedp.subspace.pair_kinds import PairKinds
from subspacedp.tables import Margin, Neighbours

__all__ = ["ContrastPlan", "Proof", "noisy_parts", "plan_contrasts", "total_stays"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

FINE = 2.0**10  # noise has at least this scale, in units of what is measured
CHANCES = tuple(i / 20 for i in range(1, 21))
FIRST = 256


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Proof:
    """Weights of kinds of pairs that prove a lower bound.

    `kinds` are their numbers, one axis a column, and −1 in every column for a single record; None
    with one chance for pairs that differ on every axis with that chance, independently.
    """

    kinds: Int64Array | None
    weights: FloatArray


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ContrastPlan:
    """What is measured for a workload: contrasts of every free part, each with its own noise.

    Guarantees
    ----------
    1. `spent` is at least the largest Σ (change/σ)² that one record of a person can cause.
    """

    contrasts: Contrasts
    neighbours: Neighbours
    shares: FloatArray  # b, one for every part in `parts`
    whole_total: bool  # the grand total is free of noise, as no neighbouring change alters it
    proof: Proof

    @cached_property
    def parts(self) -> tuple[Margin, ...]:
        """The parts that get noise."""
        return noisy_parts(self.contrasts, whole_total=self.whole_total)

    @cached_property
    def kinds(self) -> PairKinds:
        """What pairs of records do to the parts."""
        return PairKinds(self.contrasts, self.parts)

    @cached_property
    def spent(self) -> float:
        """Of the squared budget, by one record, at most."""
        return _spent(self.kinds, self.shares, self.neighbours, whole_total=self.whole_total)

    @cached_property
    def costs(self) -> FloatArray:
        """The weighted total error is Σ costs/shares, before noise is rounded."""
        return _costs(self.contrasts, self.parts)

    @cached_property
    def bound(self) -> float:
        """Σ costs/shares is at least this over what `spent` may be, for every split."""
        return dual_value(self.costs, self._mean)

    @cached_property
    def _mean(self) -> FloatArray:
        proof, kinds = self.proof, self.kinds
        if proof.kinds is None:
            return kinds.mixed_row(float(proof.weights[0]))
        single = (
            np.any(proof.kinds < 0, axis=1)
            if proof.kinds.size
            else np.ones(len(proof.weights), bool)
        )
        total = float(proof.weights.sum())
        mean = np.full(len(self.parts), float(proof.weights[single].sum()))
        if np.any(~single):
            mean += proof.weights[~single] @ kinds.rows(kinds.index(proof.kinds[~single]))
        return mean / total

    def sigma(self, part: Margin) -> FloatArray:
        """The scale of the noise on every group of a part; 0 where there is no contrast."""
        return np.sqrt(self.contrasts.shares(part) / self._share[part]) * (1 + 1e-14)

    @cached_property
    def _share(self) -> dict[Margin, float]:
        return {part: float(b) for part, b in zip(self.parts, self.shares, strict=True)}

    def fine(self, part: Margin) -> int:
        """Contrasts are measured in steps of one over this and ∏k: noise spreads over many."""
        scales = self.sigma(part) * self.contrasts.denominators(part)
        least = float(scales[scales > 0].min())
        return 1 << max(0, math.ceil(math.log2(FINE / least)))

    def scales(self, part: Margin) -> FloatArray:
        """The scale of the noise in the units that are measured."""
        return self.sigma(part) * self.contrasts.denominators(part) * self.fine(part) * (1 + 1e-14)


def total_stays(neighbours: Neighbours, *, capped: bool) -> bool:
    """Whether no neighbouring change of what is measured alters the grand total."""
    return neighbours.persons == 2 and neighbours.keeps_total and not capped


def noisy_parts(contrasts: Contrasts, *, whole_total: bool) -> tuple[Margin, ...]:
    """The free parts, without the grand total where no noise is needed for it."""
    found = tuple(p for p in contrasts.free if not whole_total or contrasts.kept(p))
    if not found:
        raise BudgetError("No person can change what would be measured.")
    return found


def plan_contrasts(
    contrasts: Contrasts, neighbours: Neighbours, squared: float, *, capped: bool = False
) -> ContrastPlan:
    """The best split of a squared budget (of one record) over the free parts."""
    whole_total = total_stays(neighbours, capped=capped)
    parts = noisy_parts(contrasts, whole_total=whole_total)
    costs = _costs(contrasts, parts)
    kinds = PairKinds(contrasts, parts)
    if neighbours.persons == 1:
        ones = np.ones(len(parts))
        proof = Proof(kinds=np.full((1, len(kinds.axes)), -1), weights=np.ones(1))
        shares = shares_for(costs, ones)
    elif kinds.listable:
        shares, proof = _best_of_pairs(costs, kinds, single=not whole_total)
    else:
        shares = _best_of_bounds(costs, kinds, single=not whole_total)
        chance = max(CHANCES, key=lambda q: dual_value(costs, kinds.mixed_row(q)))
        proof = Proof(kinds=None, weights=np.array([chance]))
    spent = _spent(kinds, shares, neighbours, whole_total=whole_total)
    return ContrastPlan(
        contrasts=contrasts,
        neighbours=neighbours,
        shares=shares * (squared / spent * (1 - 1e-12)),
        whole_total=whole_total,
        proof=proof,
    )


def _costs(contrasts: Contrasts, parts: tuple[Margin, ...]) -> FloatArray:
    return np.array([contrasts.cost(part, 2) for part in parts])


def _spent(
    kinds: PairKinds, shares: FloatArray, neighbours: Neighbours, *, whole_total: bool
) -> float:
    single = math.fsum(shares)
    if neighbours.persons == 1:
        return single
    pairs = kinds.largest(shares)
    return pairs if whole_total else max(pairs, single)


def _best_of_pairs(
    costs: FloatArray, kinds: PairKinds, *, single: bool
) -> tuple[FloatArray, Proof]:
    """The best split over all kinds of pairs, and single records where a person may have none."""
    number = math.prod(kinds.shape)  # stands for a single record

    def rows(numbers: Int64Array) -> FloatArray:
        out = np.ones((len(numbers), len(kinds.parts)))
        pair = numbers < number
        out[pair] = kinds.rows(numbers[pair])
        return out

    def sticking_out(split: FloatArray, count: int) -> tuple[Int64Array, float]:
        found = kinds.distances(split)
        largest = float(found.max()) + kinds.rounding * float(split.sum())
        if single:
            found = np.append(found, split.sum())
            largest = max(largest, math.fsum(split))
        if count >= found.size:
            return np.arange(found.size), largest
        return np.argpartition(found, -count)[-count:].astype(np.int64), largest

    mixed = max((kinds.mixed_row(q) for q in CHANCES), key=lambda row: dual_value(costs, row))
    usable = np.maximum(mixed, 1e-9)
    first = sticking_out(shares_for(costs, usable), FIRST)[0]
    if np.any(rows(first).sum(axis=0) <= 0):  # some part would be without a row
        first = np.union1d(first, _covering(kinds, number, single=single))
    best = best_shares(costs, first, rows, sticking_out)
    heavy = best.weights > 1e-9
    chosen = best.kinds[heavy]
    places = np.stack(
        [np.where(chosen < number, own, -1)
         for own in np.unravel_index(np.minimum(chosen, number - 1), kinds.shape)], axis=1,
    ) if kinds.shape else np.full((len(chosen), 0), -1)  # fmt: skip
    return best.shares, Proof(kinds=places, weights=best.weights[heavy])


def _best_of_bounds(costs: FloatArray, kinds: PairKinds, *, single: bool) -> FloatArray:
    """The best split where pairs are bounded part by part, and single records where there are any.

    No pair of records changes the grand total, which a single record does.
    """
    bounds = np.stack([kinds.longest, np.ones(len(costs))] if single else [kinds.longest])
    every = np.arange(len(bounds), dtype=np.int64)

    def sticking_out(split: FloatArray, count: int) -> tuple[Int64Array, float]:
        del count
        return every, float((bounds @ split).max())

    return best_shares(costs, every, lambda numbers: bounds[numbers], sticking_out).shares


def _covering(kinds: PairKinds, number: int, *, single: bool) -> Int64Array:
    """Pairs that differ on one axis alone use every part of that axis."""
    if single:
        return np.array([number], np.int64)
    out = [
        tuple(kind if i == axis else 0 for i in range(len(kinds.shape)))
        for axis, size in enumerate(kinds.shape)
        for kind in range(1, size)
    ]
    if not out:
        raise ReleaseError("No replacement changes what would be measured.")
    return kinds.index(out)
