"""What the hierarchical mechanism measures: a table at several levels of one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.balls import ball, round_up
from subspacedp.errors import ReleaseError
from subspacedp.noise import (
    DiscreteLaplace,
    KnownLaw,
    RoundedGaussian,
    SumLaw,
    uses_float_quantile,
)
from subspacedp.noise.level_noise import LevelNoise
from subspacedp.noise.sums import WeightedSum
from subspacedp.privacy import PureDP
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.release import Design
from subspacedp.release.figures import Figures, MarginFigures
from subspacedp.release.strategy import Strategy
from subspacedp.subspace import MarginNullSpace
from subspacedp.subspace.hierarchy_classes import place_classes
from subspacedp.subspace.hierarchy_digits import LevelDigits
from subspacedp.subspace.hierarchy_estimate import LevelEstimate
from subspacedp.tables import Axis, Cells, Margin, Neighbours, Sensitivity, along

__all__ = ["WHOLE", "LevelLaws", "LevelStrategy", "LevelTotals", "constrained", "level_costs"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MOST_EXACT = 2000  # classes of groups whose laws are found one by one
WHOLE = 10**6  # shares of the budget are whole parts of it
LEAST = WHOLE // 20_000  # of the labels: below, variances would be lost to rounding


@dataclass(frozen=True, eq=False)
class LevelLaws:
    """The laws of the noise, one a measured level."""

    of_step: Mapping[int, KnownLaw]
    names: Mapping[int, str]

    @property
    def scale(self) -> float:
        """The largest scale."""
        return max(law.scale for law in self.of_step.values())

    @property
    def smallest(self) -> float:
        """The smallest scale."""
        return min(law.scale for law in self.of_step.values())

    def as_dict(self) -> dict[str, Any]:
        """The law of the cells, and those of the totals of every further level."""
        levels = [
            {"level": self.names[step], **law.as_dict()} for step, law in self.of_step.items()
        ]
        return {**self.of_step[0].as_dict(), "levels": levels[1:]}


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelStrategy(Strategy):
    """Noise on the tables of several levels of an axis, each with its share of the budget.

    Parameters
    ----------
    axis
        The axis with the levels.
    shares
        For every level asked for, by name, its share in millionths: of ε for a pure budget, of μ²
        otherwise. They sum to at most a million; a level with none is not measured.
    importance
        What the mean squared error of each level counted for when the shares were chosen.

    Guarantees
    ----------
    1. All measurements together are private with the design's budget over all neighbours
       (docs/proofs/hierarchies.md).
    """

    axis: str
    shares: Mapping[str, int]
    importance: Mapping[str, float]

    key: ClassVar[str] = "levels"
    proof: ClassVar[str] = "hierarchies.md"

    def place(self, design: Design) -> int:
        """Which axis of the domain has the levels."""
        return [axis.name for axis in design.domain.axes].index(self.axis)

    def steps(self, design: Design) -> dict[int, str]:
        """The measured levels by their place in the chain of the axis, finest first."""
        chain = design.domain.axis(self.axis).chain
        return {step: lv.name for step, lv in enumerate(chain) if self.shares.get(lv.name, 0)}

    def estimate(self, design: Design) -> LevelEstimate:
        """How the measurements are combined."""
        space = design.space
        if not isinstance(space, MarginNullSpace):
            raise ReleaseError("The hierarchical mechanism holds margins of the table alone.")
        laws = self.law(design).of_step
        return LevelEstimate(
            space=space,
            place=self.place(design),
            precision={step: 1 / law.variance for step, law in laws.items()},
            constrained=constrained(design),
        )

    def law(self, design: Design) -> LevelLaws:
        """One law a level: a share s of ε buys the rate sε/Δ₁, of μ² the scale Δ₂/(μ√s)."""
        laws: dict[int, KnownLaw] = {}
        names = self.steps(design)
        for step, name in names.items():
            own, share = level_costs(design.neighbours, step), Fraction(self.shares[name], WHOLE)
            if isinstance(design.budget, PureDP):
                rate = exact_decimal(design.budget.epsilon) * share / own.l1
                laws[step] = DiscreteLaplace(rate)
            else:
                laws[step] = _gaussian(own.l2_squared / share, design.budget.gaussian_mu)
        return LevelLaws(laws, names)

    def sensitivity(self, design: Design) -> Sensitivity:
        """Of all numbers that are measured together."""
        each = [level_costs(design.neighbours, step) for step in self.steps(design)]
        return Sensitivity(
            sum((s.l1 for s in each), Fraction(0)), sum((s.l2_squared for s in each), Fraction(0))
        )

    def noise(self, design: Design) -> LevelNoise:
        """The joint law of release minus truth."""
        digits = design.digits
        return LevelNoise(
            estimate=self.estimate(design),
            laws=self.law(design).of_step,
            digits=digits if isinstance(digits, LevelDigits) else None,
        )

    def digits(self, design: Design) -> LevelDigits | None:
        """Rounding of the whole correction, all measured levels in runs."""
        space = design.space
        if design.decimals is None or not isinstance(space, MarginNullSpace):
            return None
        steps = tuple(range(design.domain.axes[self.place(design)].depth))
        coin = 1 / 4 if design.capped else 1 / 6  # capped: records beyond the bound shift it
        return LevelDigits(space, design.decimals, self.place(design), steps, coin=coin)

    def measured(self, design: Design) -> str:
        """What gets noise, in words."""
        of = "epsilon" if design.budget.pure else "mu squared"
        shares = ", ".join(
            f"`{name}` {part / WHOLE:.4%}" for name, part in self.shares.items() if part
        )
        how = (
            "combined by least squares under the held totals"
            if constrained(design)
            else "combined by least squares, then projected onto the null space"
        )
        return (
            f"every cell, and every cell of the table summed to coarser levels of `{self.axis}`, "
            f"independently, with these shares of {of}: {shares}; {how}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Shares and importance by level."""
        return {
            "axis": self.axis,
            "shares": dict(self.shares),
            "of": WHOLE,
            "importance": dict(self.importance),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], design: Design) -> LevelStrategy:
        """From plain data; shares must not spend more than the budget."""
        axis = design.domain.axis(data["axis"])
        shares, importance = dict(data["shares"]), dict(data["importance"])
        known = {level.name for level in axis.chain}
        usable = (
            isinstance(design.query, Cells)
            and isinstance(design.space, MarginNullSpace)
            and type(data["of"]) is int
            and data["of"] == WHOLE
            and all(type(part) is int and part >= 0 for part in shares.values())
            and shares.get(axis.name, 0) >= LEAST
            and sum(shares.values()) <= WHOLE
            and {*shares, *importance} <= known
            and all(type(w) is float and 0 <= w < math.inf for w in importance.values())
            and any(importance.values())
        )
        if not usable:
            raise ReleaseError("its shares of the budget over levels are out of range.")
        return cls(axis=axis.name, shares=shares, importance=importance)

    def cell_figures(self, design: Design) -> Figures | None:
        """Every cell, in closed form."""
        return self.margin_figures(design, design.domain.cells)

    def margin_figures(self, design: Design, margin: Margin) -> Figures | None:
        """The totals of a margin's groups, in closed form."""
        noise = design.noise
        return LevelTotals(noise, margin) if isinstance(noise, LevelNoise) else None

    def uses_quantile(self, design: Design) -> bool:
        """Whether the noise of some level is so large that draws rest on a float64 quantile."""
        return any(uses_float_quantile(law) for law in self.law(design).of_step.values())


@dataclass(frozen=True, eq=False, repr=False)
class LevelTotals(MarginFigures):
    """The totals of a margin's groups: variances in closed form, one law for groups alike."""

    noise: LevelNoise
    margin: Margin

    def variance(self) -> FloatArray:
        """In closed form, the bound for rounding included."""
        return self.noise.group_variance(self.margin)

    def classes(self) -> Int64Array:
        """Groups that a symmetry of all levels in use takes to each other, and equal coins."""
        return self._classes

    @cached_property
    def _classes(self) -> Int64Array:
        out = np.zeros((1,) * len(self.shape), np.int64)
        for a, axis in enumerate(self.margin.axes):
            places = place_classes(axis, self._steps(a, axis), self.margin.steps[a])
            out = out * (int(places.max()) + 2) + along(places + 1, a, len(self.shape))
        out = out * (int(self._coins.max(initial=0)) + 1) + self._coins
        return np.ascontiguousarray(np.broadcast_to(out, self.shape))

    @cached_property
    def _coins(self) -> Int64Array:
        digits = self.noise.digits
        if digits is None:
            return np.zeros(self.shape, np.int64)
        return np.broadcast_to(digits.coin_counts(self.margin), self.shape)

    @cached_property
    def _first(self) -> dict[int, int]:
        """For every class its first group."""
        numbers, first = np.unique(self._classes, return_index=True)
        return dict(zip(numbers.tolist(), first.tolist(), strict=True))

    @cached_property
    def _of_noise(self) -> FloatArray:
        return self.noise.estimate.group_variance(self.margin)

    def _steps(self, a: int, axis: Axis) -> tuple[int, ...]:
        estimate = self.noise.estimate
        if a == estimate.place:
            return estimate.tree.steps
        held = {m.steps[a] for m in estimate.held.essential}
        return tuple(sorted({0, *held, axis.depth - 1}))

    def law(self, number: int) -> SumLaw:
        """That of the first group of its class; with very many of them a bound, where there is one.

        An exact law takes the time of all groups, and many classes would take its square.
        """
        first = self._first[int(number)]
        coins = int(self._coins.reshape(-1)[first])
        variance = float(self._of_noise.reshape(-1)[first])
        if variance == 0:
            return WeightedSum(parts=())
        if len(self._first) > MOST_EXACT:
            bound = self.noise.law_by_variance(variance, coins)
            if bound is not None:
                return bound
        place = tuple(int(p) for p in np.unravel_index(first, self.shape))
        return self.noise.total_law(self.margin, place, coins)


def level_costs(neighbours: Neighbours, step: int) -> Sensitivity:
    """What a neighbouring change does to the table of one level, at most.

    Every level's table counts the same records. How many fall in one cell is bounded for the cells
    of the table alone: coarser ones may have all of a person's records in one.
    """
    if step == 0:
        return Sensitivity(Fraction(neighbours.l1), Fraction(neighbours.l2_squared))
    return Sensitivity(
        Fraction(neighbours.l1), Fraction(neighbours.persons * neighbours.records**2)
    )


def constrained(design: Design) -> bool:
    """Whether held totals enter the least squares.

    They do wherever the guarantee does not rest on the contrary: with digits that add up (G), and
    where no neighbouring change can alter them (plain). For S the part of the estimate in N must
    not depend on them (docs/adr/0021-least-squares-without-the-totals.md).
    """
    if design.capped:
        return False  # the held totals are then not those of the table that is measured
    return design.decimals is not None or design.held.fixed_by(design.neighbours)


def _gaussian(squared: Fraction, mu: float) -> RoundedGaussian:
    return RoundedGaussian(round_up(lambda: ball(squared).sqrt() / ball(mu)))
