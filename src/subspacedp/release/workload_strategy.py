"""What the ways to measure a workload of margins have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from subspacedp.errors import ReleaseError
from subspacedp.noise import KnownLaw, WorkloadNoise
from subspacedp.privacy import Budget
from subspacedp.release.figures import Figures
from subspacedp.release.strategy import Strategy
from subspacedp.release.workload_figures import AllTotals, TotalsOfMargin, totals_apart
from subspacedp.subspace import (
    ContrastPlan,
    Contrasts,
    TablePlan,
    WorkloadDigits,
    WorkloadSpace,
)
from subspacedp.subspace.contrast_plan import total_stays
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from subspacedp.release.design import Design

__all__ = ["ManyScales", "WorkloadStrategy", "contrasts_of", "whole_total_of"]


@dataclass(frozen=True)
class ManyScales:
    """One family of laws with several scales, in units of the answers."""

    largest: KnownLaw
    scale: float
    smallest: float
    number: int

    @property
    def variance(self) -> float:
        """Of the noise with the largest scale."""
        return self.largest.variance

    def as_dict(self) -> dict[str, Any]:
        """As plain data: the law of the largest scale, and how many others there are."""
        return {
            **self.largest.as_dict(),
            "scales": {"number": self.number, "smallest": self.smallest, "largest": self.scale},
        }


class WorkloadStrategy(Strategy):
    """What the two ways to measure a workload have in common."""

    proof: ClassVar[str] = "margins.md"

    plan: ContrastPlan | TablePlan

    @property
    def contrasts(self) -> Contrasts:
        """The parts of the workload."""
        return self.plan.contrasts

    @property
    def parts(self) -> tuple[Margin, ...]:
        """The parts that get noise."""
        return self.plan.parts

    @property
    def whole_total(self) -> bool:
        """Whether the grand total is published as it is, as no neighbouring change alters it."""
        return self.plan.whole_total

    @abstractmethod
    def noise(self, design: Design) -> WorkloadNoise:
        """The joint law of release minus truth."""

    @abstractmethod
    def for_budget(self, design: Design, budget: Budget) -> WorkloadStrategy:
        """What the design measures with another budget: the same, with noise of other scales."""

    def digits(self, design: Design) -> WorkloadDigits | None:
        """How published digits are made to add up; None for a real-valued release."""
        if design.decimals is None or not isinstance(design.space, WorkloadSpace):
            return None
        return WorkloadDigits(design.space, design.decimals, self.whole_total)

    def conditional(self, design: Design) -> str:
        """Why the guarantee holds only given what is held, even for real values; mostly it is ''.

        Where groups of unequal size are split equally, contrasts are not orthogonal to the held
        totals above them.
        """
        del design
        return "" if self.contrasts.orthogonal else "totals of unequal groups are split equally"

    def cell_figures(self, design: Design) -> Figures:
        """Every answer."""
        return AllTotals(noise_of(design))

    def margin_figures(self, design: Design, margin: Margin) -> Figures:
        """The total of every group of a margin that the workload determines."""
        noise = noise_of(design)
        noise.query.source_of(margin)
        used = all(
            s in axis.steps for s, axis in zip(margin.steps, self.contrasts.axes, strict=True)
        )
        return TotalsOfMargin(noise, margin) if used else totals_apart(noise, margin)

    def unit(self, design: Design) -> Fraction:
        """Scales are stated in units of the answers."""
        del design
        return Fraction(1)


def contrasts_of(design: Design) -> Contrasts:
    """The parts of a design's workload."""
    if not isinstance(design.space, WorkloadSpace):
        raise ReleaseError("its strategy is for a workload of margins.")
    return design.space.contrasts


def noise_of(design: Design) -> WorkloadNoise:
    if not isinstance(design.noise, WorkloadNoise):
        raise ReleaseError("This strategy is for a workload of margins.")
    return design.noise


def whole_total_of(design: Design) -> bool:
    """Whether no neighbouring change of what is measured alters the grand total."""
    return total_stays(design.neighbours, capped=design.capped)
