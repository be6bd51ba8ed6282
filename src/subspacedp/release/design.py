"""Everything public about a release, known before any data are touched."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball, round_up
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.noise import (
    BasisNoise,
    DeclaredNoise,
    DiscreteLaplace,
    JointNoise,
    KnownLaw,
    NoiseModel,
    RoundedGaussian,
)
from subspacedp.privacy import Budget, Guarantee, PureDP, kind_of
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.release.estimates import Accuracy
from subspacedp.release.optimality import DualWeights, Optimality, optimality
from subspacedp.release.strategy import Strategy
from subspacedp.subspace import (
    BasisStrategy,
    Digits,
    MarginNullSpace,
    MarginStrategy,
    NullSpace,
    digits_of,
    space_of,
)
from subspacedp.tables import Axis, Cells, Domain, LocalEntries, Neighbours, Query, Sensitivity

MAX_DECIMALS = 12
LONG = 1 << 18  # labels of an axis beyond which its digest stands for it in keys

__all__ = ["MAX_DECIMALS", "Design", "ExpectedError", "calibrated_law", "design_digest"]


@dataclass(frozen=True, eq=False)
class ExpectedError:
    """Mean squared error, from the design alone; rounding of digits included.

    With digits that add up the rounding part is a proven upper bound, close for noise that
    spreads over several whole numbers (docs/proofs/digits.md).
    """

    total: float
    per_cell: npt.NDArray[np.float64]

    def __repr__(self) -> str:
        return f"ExpectedError(total={self.total:.6g}, {self.per_cell.size:,} cells)"


def calibrated_law(budget: Budget, sensitivity: Sensitivity | Neighbours) -> KnownLaw:
    """The noise on integer answers that a budget buys, on the safe side.

    Pure budgets buy discrete Laplace noise of rate exactly ε/Δ₁; the others rounded Gaussian noise
    with σ = Δ₂/μ rounded up, μ the largest that the budget allows. A neighbour relation stands for
    the sensitivity it gives to counts.
    """
    if sensitivity.l1 == 0 or sensitivity.l2_squared == 0:
        raise BudgetError(
            "No person can change what would be measured: there is nothing to protect by noise."
        )
    if isinstance(budget, PureDP):
        return DiscreteLaplace(exact_decimal(budget.epsilon) / Fraction(sensitivity.l1))
    mu, squared = budget.gaussian_mu, Fraction(sensitivity.l2_squared)
    return RoundedGaussian(round_up(lambda: ball(squared).sqrt() / ball(mu)))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Design:
    """What will be published, what is held, what is promised, and how large the error will be.

    All fields can be printed in a methods report; nothing here depends on data.
    """

    mechanism: str
    query: Query
    held: HeldMargins | HeldMatrix
    budget: Budget
    neighbours: Neighbours
    decimals: int | None
    basis: BasisStrategy | None = None  # what is measured instead of the answers themselves
    declared: DeclaredNoise | None = None  # for invariants imposed on another mechanism
    dual: DualWeights | None = None  # what proves how near to the best possible the error is
    strategy: Strategy | None = None  # how something else than these is measured
    capped: bool = False  # held values count all records, noise protects a bounded table

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        if self.query.axes is None:
            raise ReleaseError("The answers of this query have no axes.")
        return self.query.axes

    @cached_property
    def space(self) -> NullSpace:
        """The null space of the invariants."""
        return space_of(self.held)

    @cached_property
    def digits(self) -> Digits | None:
        """How published digits are made to add up; None for a real-valued release."""
        if self.strategy is not None:
            return self.strategy.digits(self)
        # Records beyond the bound are in the held values, and shift what is rounded.
        return digits_of(self.space, self.decimals, coin=1 / 4 if self.capped else 1 / 6)

    @cached_property
    def law(self) -> KnownLaw:
        """The law of the noise on every number that is measured, in units of `unit`.

        For the extended mechanism on margins, before rounding: each number is rounded to steps of
        one over its denominator.
        """
        if self.strategy is not None:
            law: KnownLaw = self.strategy.law(self)
            return law
        return calibrated_law(self.budget, self.sensitivity)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Of the numbers that are measured, in units of `unit`."""
        if self.strategy is not None:
            return self.strategy.sensitivity(self)
        if self.basis is not None:
            return self.basis.sensitivity(self.query, self.neighbours)
        if self.mechanism != "extended":
            return self.query.sensitivity(self.neighbours)
        squared = self.on_margins.sensitivity(self.neighbours)
        return Sensitivity(self.query.sensitivity(self.neighbours).l1, squared)

    @cached_property
    def on_margins(self) -> MarginStrategy:
        """What the extended mechanism measures when margins are held."""
        if not isinstance(self.space, MarginNullSpace):
            raise ReleaseError("This strategy is for held margins alone.")
        return MarginStrategy(self.space)

    @property
    def unit(self) -> Fraction:
        """One unit of the integer noise."""
        if self.strategy is not None:
            return self.strategy.unit(self)
        return self.query.grid if self.basis is None else self.query.grid * self.basis.step

    @cached_property
    def guarantee(self) -> Guarantee:
        """The strongest guarantee that holds."""
        rounded = self.digits is not None and self.digits.needed
        because = "" if self.strategy is None else self.strategy.conditional(self)
        return Guarantee(
            kind=kind_of(
                # A person's records beyond the bound are in the held values all the same.
                fixed=self.held.fixed_by(self.neighbours)
                and (not self.capped or self.space.rank == 0),
                rounded=rounded or bool(because),
            ),
            because="published digits must add up" if rounded else because,
            budget=self.budget,
            neighbours=self.neighbours,
            space=self.space,
            from_data_axes=self.query.axes.from_data_axes if self.query.axes else (),
            capped=self.capped,
            entries=(
                (self.query.lower, self.query.upper)
                if isinstance(self.query, LocalEntries)
                else None
            ),
        )

    @cached_property
    def noise(self) -> JointNoise:
        """The joint law of release minus truth."""
        if self.strategy is not None:
            return self.strategy.noise(self)
        if self.basis is not None:
            return BasisNoise(law=self.law, unit=float(self.unit), strategy=self.basis)
        return NoiseModel(
            law=self.law if self.declared is None else self.declared,
            unit=float(self.unit),
            space=self.space,
            digits=self.digits,
            grids=self.on_margins if self.mechanism == "extended" else None,
        )

    def expected_error(self) -> ExpectedError:
        """The mean squared error in total and cell by cell; no data needed."""
        per_cell = self.noise.expected_variance()
        return ExpectedError(total=float(per_cell.sum()), per_cell=per_cell)

    @cached_property
    def stated_error(self) -> float:
        """The total of `expected_error`, to the last bit: what certificates state."""
        return self.expected_error().total

    def total_error(self) -> float:
        """The mean squared error in total, to rounding error: from kinds of cells, where known."""
        total = self.noise.total_variance()
        return self.expected_error().total if total is None else total

    def optimality(self) -> Optimality:
        """How near the error is to that of the best Gaussian noise, with a proof."""
        return optimality(self)

    def accuracy(self, weights: npt.ArrayLike | None = None) -> Accuracy:
        """Standard errors and margins of error of every answer, or of weighted sums of answers."""
        from subspacedp.release.questions import cell_figures, checked_weights, weighted_figures

        if weights is None:
            return Accuracy(
                figures=cell_figures(self), held=str(self.held), labels=self.query.columns
            )
        figures = weighted_figures(self, checked_weights(weights, self.query.shape))
        return Accuracy(figures=figures, held=str(self.held))

    def margin_accuracy(self, *names: str) -> Accuracy:
        """Standard errors and margins of error of the totals of a margin's groups."""
        from subspacedp.release.questions import (
            kept_shape,
            level_names,
            margin_figures,
            margin_names,
        )

        margin = self.domain.margin(*level_names(names))
        return Accuracy(
            figures=margin_figures(self, margin),
            held=str(self.held),
            labels=partial(margin_names, margin),
            shape=kept_shape(margin),
        )

    def as_dict(self) -> dict[str, Any]:
        """The design as plain data: enough to rebuild it."""
        return {**self._but_query(), "query": self.query.as_dict()}

    def _but_query(self) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism,
            "held": self.held.as_list(),
            "budget": self.budget.as_dict(),
            "neighbours": neighbours_data(self.neighbours),
            "decimals": self.decimals,
            **({"basis": self.basis.as_dict()} if self.basis is not None else {}),
            **({self.strategy.key: self.strategy.as_dict()} if self.strategy is not None else {}),
            **({"optimality": self.dual.as_dict()} if self.dual is not None else {}),
            **({"declared": asdict(self.declared)} if self.declared is not None else {}),
            **({"capped": True} if self.capped else {}),
        }

    @cached_property
    def context(self) -> bytes:
        """A digest that binds random words to this mechanism, budget and order of answers."""
        query = self.query
        asked = (
            {"kind": "cells", "axes": [axis_digest(axis) for axis in query.domain.axes]}
            if isinstance(query, Cells) and max(query.shape) > LONG
            else query.as_dict()
        )
        data = {**self._but_query(), "query": asked}
        text = json.dumps(data, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).digest()

    def __repr__(self) -> str:
        digits = "real" if self.decimals is None else f"decimals={self.decimals}"
        return (
            f"{self.mechanism} mechanism on {self.query!r}, held: {self.held}, {self.budget}, "
            f"{self.neighbours.name}, {digits}"
        )


def design_digest(design: Any) -> str:
    """SHA-256 of a design's plain data as JSON with sorted keys and no spaces."""
    text = json.dumps(design, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def axis_digest(axis: Axis) -> str:
    """SHA-256 of an axis with its labels and levels; millions of them are not spelled out."""
    out = hashlib.sha256(json.dumps([axis.name, axis.from_data]).encode())
    labels = axis.labels
    out.update((repr(labels) if isinstance(labels, range) else json.dumps(list(labels))).encode())
    for level in axis.chain[1:]:
        out.update(json.dumps([level.name, list(level.labels)]).encode())
        out.update(np.ascontiguousarray(level.codes, "<i8").data)
    return out.hexdigest()


def neighbours_data(neighbours: Neighbours) -> dict[str, Any]:
    """A neighbour relation as plain data."""
    data: dict[str, Any] = {
        "name": neighbours.name,
        "records": neighbours.records,
        "per_cell": neighbours.per_cell,
    }
    if neighbours.persons == 2:
        data["exactly"] = neighbours.keeps_total
    return data
