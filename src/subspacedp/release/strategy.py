"""What a mechanism measures, where that is neither the answers nor coordinates in a basis.

A design asks its strategy for everything that depends on how the measurement is made. A new kind of
measurement is a subclass, named in `STRATEGIES` so that certificates can be read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from subspacedp.noise import JointNoise
from subspacedp.release.figures import Figures
from subspacedp.release.optimality import Optimality
from subspacedp.subspace import Digits, digits_of
from subspacedp.tables import Margin, Sensitivity

if TYPE_CHECKING:
    from subspacedp.release.design import Design

__all__ = ["STRATEGIES", "Strategy", "strategy_from"]

# The key in a certificate's design, and the class it stands for.
STRATEGIES: dict[str, tuple[str, str]] = {
    "body": ("subspacedp.release.body", "BodyStrategy"),
    "marginals": ("subspacedp.mechanisms.marginals.strategy", "MarginalsStrategy"),
}


class Strategy(ABC):
    """How numbers are measured. All of it is public, and nothing of it depends on data.

    Guarantees
    ----------
    1. `as_dict` is enough for `from_dict` to give the same strategy again; numbers that privacy
       rests on are checked there, not believed.
    """

    key: ClassVar[str]
    proof: ClassVar[str]  # the note in docs/proofs that proves its privacy

    @abstractmethod
    def law(self, design: Design) -> Any:
        """The law of the noise in units of `unit`; has `scale`, the largest, and `as_dict()`."""

    @abstractmethod
    def sensitivity(self, design: Design) -> Sensitivity:
        """Of the numbers that are measured, in units of `unit`."""

    @abstractmethod
    def noise(self, design: Design) -> JointNoise:
        """The joint law of release minus truth."""

    @abstractmethod
    def measured(self, design: Design) -> str:
        """What gets noise, in words, for the certificate."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The strategy as plain data."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any], design: Design) -> Strategy:
        """From plain data, with every rule checked; `design` is the rest of the certificate's."""

    def unit(self, design: Design) -> Fraction:
        """One unit of the integer noise."""
        return design.query.grid

    def digits(self, design: Design) -> Digits | None:
        """How published digits are made to add up; None for a real-valued release."""
        return digits_of(design.space, design.decimals, coin=1 / 4 if design.capped else 1 / 6)

    def cell_figures(self, design: Design) -> Figures | None:
        """Every answer, where closed forms are known."""
        return None

    def margin_figures(self, design: Design, margin: Margin) -> Figures | None:
        """The total of every group of a margin, where closed forms are known."""
        return None

    def conditional(self, design: Design) -> str:
        """Why real values too are protected only given what is held; empty where they are not."""
        del design
        return ""

    def uses_quantile(self, design: Design) -> bool:
        """Whether draws rest on the stated bound of a float64 quantile (large Gaussian noise)."""
        return False

    def optimality(self, design: Design) -> Optimality | None:
        """How near the error is to the least possible, where the strategy itself proves it."""
        return None


def strategy_from(data: Mapping[str, Any], design: Design) -> Strategy | None:
    """The strategy in a certificate's design, if it has one."""
    for key, (module, name) in STRATEGIES.items():
        if key in data:
            made: Strategy = getattr(import_module(module), name).from_dict(data[key], design)
            return made
    return None
