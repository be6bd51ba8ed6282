"""Margins by contrasts of their interactions, with Gaussian noise of the best scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.noise import ContrastNoise, RoundedGaussian, uses_float_quantile
from subspacedp.privacy import Budget
from subspacedp.release.optimality import Optimality, moved_alike
from subspacedp.release.workload_strategy import (
    ManyScales,
    WorkloadStrategy,
    contrasts_of,
    whole_total_of,
)
from subspacedp.subspace import ContrastPlan, Proof, regular_bound
from subspacedp.tables import Margins, Neighbours, Sensitivity

if TYPE_CHECKING:
    from subspacedp.release.design import Design

__all__ = ["ContrastStrategy", "squared_budget"]


def squared_budget(budget: Budget, neighbours: Neighbours) -> float:
    """The squared budget of one of a person's records: norms of several add up at most."""
    return (budget.gaussian_mu / neighbours.records) ** 2 * (1 - 1e-12)


@dataclass(frozen=True, eq=False, repr=False)
class ContrastStrategy(WorkloadStrategy):
    """Contrasts of every free part with Gaussian noise of the best scales."""

    plan: ContrastPlan

    key: ClassVar[str] = "contrasts"

    @cached_property
    def _scales(self) -> list[float]:
        return [float(s) for p in self.parts for s in np.unique(self.plan.sigma(p)) if s > 0]

    def law(self, design: Design) -> ManyScales:
        """Rounded Gaussian, one scale for every part and number of siblings."""
        del design
        largest = max(self._scales)
        return ManyScales(RoundedGaussian(largest), largest, min(self._scales), len(self._scales))

    def sensitivity(self, design: Design) -> Sensitivity:
        """Of the contrasts, in units of the answers, without the scales: part by part."""
        n = design.neighbours
        own = [float(self.contrasts.shares(p).max()) for p in self.parts]
        longest = self.plan.kinds.longest if n.persons == 2 else np.ones(len(own))
        squared = math.fsum(s * max(float(d), 1.0) for s, d in zip(own, longest, strict=True))
        l1 = sum(2 ** len(self.contrasts.kept(p)) for p in self.parts) * n.persons
        exact = Fraction(squared) * (1 + Fraction(1, 2**40))
        return Sensitivity(Fraction(l1 * n.records), exact * n.records**2)

    def for_budget(self, design: Design, budget: Budget) -> ContrastStrategy:
        """The best split is the same for every budget, and shares are in proportion to it."""
        n = design.neighbours
        ratio = squared_budget(budget, n) / squared_budget(design.budget, n)
        return ContrastStrategy(replace(self.plan, shares=self.plan.shares * ratio))

    def noise(self, design: Design) -> ContrastNoise:
        """The joint law of release minus truth."""
        query = design.query
        if not isinstance(query, Margins):
            raise ReleaseError("This strategy is for a workload of margins.")
        return ContrastNoise(
            query=query, plan=self.plan, digits=self.digits(design), capped=design.capped
        )

    def measured(self, design: Design) -> str:
        """What gets noise, in words."""
        del design
        return (
            f"the contrasts of {len(self.parts):,} interactions of the margins, every contrast "
            "independently, in steps of one over its denominator, then projected onto contrasts"
            + ("; the grand total, which no neighbouring change alters, gets none"
               if self.whole_total and self._total_free else "")
        )  # fmt: skip

    @property
    def _total_free(self) -> bool:
        return any(not self.contrasts.kept(p) for p in self.contrasts.free)

    def uses_quantile(self, design: Design) -> bool:
        """Whether draws rest on the stated bound of a float64 quantile."""
        del design
        return any(
            uses_float_quantile(RoundedGaussian(float(s)))
            for p in self.parts for s in np.unique(self.plan.scales(p)) if s > 0
        )  # fmt: skip

    def optimality(self, design: Design) -> Optimality | None:
        """By the weights of pairs in the design; with unequal groups by a regular tree inside."""
        neighbours, alike = design.neighbours, moved_alike(design)
        if not alike:
            return None  # no person can change anything
        error = design.expected_error().per_cell
        sizes = [math.prod(m.shape) for m in self.contrasts.workload]
        weights = np.repeat(self.contrasts.weights, sizes)
        equal = self.contrasts.equal
        base = (
            self.plan.bound
            if equal
            else regular_bound(self.contrasts, neighbours, capped=design.capped)
        )
        return Optimality(
            error=float(error @ weights),
            bound=base * (alike / design.budget.gaussian_mu) ** 2 * (1 - 1e-12),
            how="dual weights of kinds of pairs" if equal else "a regular tree inside the levels",
            weighted=len(set(self.contrasts.weights)) > 1,
        )

    def as_dict(self) -> dict[str, Any]:
        """The shares of the squared budget, and the weights that prove a bound."""
        proof = self.plan.proof
        return {
            "parts": [list(p.names) for p in self.parts],
            "shares": self.plan.shares.tolist(),
            "proof": {
                "kinds": None if proof.kinds is None else proof.kinds.tolist(),
                "weights": proof.weights.tolist(),
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], design: Design) -> ContrastStrategy:
        """From plain data: the parts must be those of the workload, the shares within budget."""
        contrasts = contrasts_of(design)
        neighbours = design.neighbours
        kinds = data["proof"]["kinds"]
        plan = ContrastPlan(
            contrasts=contrasts,
            neighbours=neighbours,
            shares=np.asarray(data["shares"], np.float64),
            whole_total=whole_total_of(design),
            proof=Proof(
                kinds=None if kinds is None else np.asarray(kinds, np.int64),
                weights=np.asarray(data["proof"]["weights"], np.float64),
            ),
        )
        if [list(p.names) for p in plan.parts] != data["parts"]:
            raise ReleaseError("its interactions are not those of the workload.")
        usable = plan.shares.shape == (len(plan.parts),) and bool(
            np.all(np.isfinite(plan.shares)) and np.all(plan.shares > 0)
        )
        if not usable or plan.spent > squared_budget(design.budget, neighbours) * (1 + 1e-12):
            raise ReleaseError("its noise is too small for the budget.")
        if not _proves(plan):
            raise ReleaseError("the weights that prove a bound are out of range.")
        return cls(plan)


def _proves(plan: ContrastPlan) -> bool:
    """Whether the weights are those of changes that neighbours can make, and some are positive.

    A single record is such a change only where a person may have none, a pair only under
    replace-one.
    """
    proof, pairs = plan.proof, plan.neighbours.persons == 2
    weights = proof.weights
    if weights.ndim != 1 or not np.all(np.isfinite(weights)) or np.any(weights < 0):
        return False
    if proof.kinds is None:
        return pairs and weights.size == 1 and 0 < float(weights[0]) <= 1
    if proof.kinds.shape != (weights.size, len(plan.kinds.axes)) or not weights.sum() > 0:
        return False
    single = np.all(proof.kinds == -1, axis=1)
    inside = np.all((proof.kinds >= 0) & (proof.kinds < np.array(plan.kinds.shape)), axis=1)
    known = (single & (not plan.whole_total)) | (inside & ~single & pairs)
    return bool(np.all(known))
