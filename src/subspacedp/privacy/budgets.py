"""Privacy budgets: what is promised, as exact numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from subspacedp.balls import ball, round_down
from subspacedp.errors import BudgetError
from subspacedp.privacy.gaussian import largest_mu
from subspacedp.privacy.numbers import exact_decimal, positive, shown

__all__ = ["ZCDP", "ApproxDP", "Budget", "GaussianDP", "PureDP", "budget_from", "exact_decimal"]


@dataclass(frozen=True)
class Budget:
    """Base of the budgets; says which family of noise they buy."""

    pure: ClassVar[bool] = False
    name: ClassVar[str] = ""

    @property
    def gaussian_mu(self) -> float:
        """The largest Δ₂/σ of Gaussian noise within the budget, rounded toward privacy."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, float | str]:
        """The budget as plain data."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class PureDP(Budget):
    """ε-differential privacy; buys Laplace noise.

    >>> PureDP(0.192)
    PureDP(epsilon=0.192)
    """

    epsilon: float
    pure: ClassVar[bool] = True
    name: ClassVar[str] = "pure"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))

    def __str__(self) -> str:
        return f"ε = {shown(self.epsilon)}"


@dataclass(frozen=True)
class ApproxDP(Budget):
    """(ε, δ)-differential privacy; buys Gaussian noise, calibrated by its exact trade-off."""

    epsilon: float
    delta: float
    name: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", positive("delta", self.delta))
        if self.delta >= 1:
            raise BudgetError(f"`delta` must be below 1; got {self.delta!r}.")

    @property
    def gaussian_mu(self) -> float:
        """The largest Δ₂/σ of Gaussian noise within the budget, rounded toward privacy."""
        return largest_mu(exact_decimal(self.epsilon), exact_decimal(self.delta))

    def __str__(self) -> str:
        return f"ε = {shown(self.epsilon)}, δ = {shown(self.delta)}"


@dataclass(frozen=True)
class ZCDP(Budget):
    """ρ-zero-concentrated differential privacy; buys Gaussian noise with Δ₂²/(2σ²) = ρ."""

    rho: float
    name: ClassVar[str] = "zero-concentrated"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", positive("rho", self.rho))

    @property
    def gaussian_mu(self) -> float:
        """√(2ρ), rounded toward privacy."""
        return round_down(lambda: (2 * ball(exact_decimal(self.rho))).sqrt())

    def __str__(self) -> str:
        return f"ρ = {shown(self.rho)} (zero-concentrated)"


@dataclass(frozen=True)
class GaussianDP(Budget):
    """μ-Gaussian differential privacy; buys Gaussian noise with Δ₂/σ = μ."""

    mu: float
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", positive("mu", self.mu))

    @property
    def gaussian_mu(self) -> float:
        """The μ asked for, rounded toward privacy."""
        return round_down(lambda: ball(exact_decimal(self.mu)))

    def __str__(self) -> str:
        return f"μ = {shown(self.mu)} (Gaussian)"


BUDGETS: dict[str, type[Budget]] = {c.name: c for c in (PureDP, ApproxDP, ZCDP, GaussianDP)}


def budget_from(data: Mapping[str, Any]) -> Budget:
    """The budget that plain data state, with its own checks."""
    fields = dict(data)
    return BUDGETS[str(fields.pop("name"))](**fields)
