"""Privacy budgets: what is promised, as exact numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

from subspacedp.balls import ball, round_down
from subspacedp.errors import BudgetError
from subspacedp.privacy.gaussian import largest_mu
from subspacedp.privacy.numbers import decimal_part, exact_decimal, positive, shown

__all__ = [
    "ZCDP",
    "ApproxDP",
    "Budget",
    "GaussianDP",
    "PureDP",
    "budget_from",
    "budget_with",
    "exact_decimal",
]


@dataclass(frozen=True)
class Budget:
    """Base of the budgets; says which family of noise they buy."""

    pure: ClassVar[bool] = False
    name: ClassVar[str] = ""
    adds_up_in: ClassVar[int] = 1  # the power in which parameters add up under composition

    @property
    def gaussian_mu(self) -> float:
        """The largest Δ₂/σ of Gaussian noise within the budget, rounded toward privacy."""
        raise NotImplementedError

    def part(self, share: Fraction | int) -> Self:
        """The part of the budget that a share buys: s·ε and s·δ, s·ρ, or √s·μ.

        Guarantees
        ----------
        1. For shares that add up to at most 1, the ε, δ and ρ of the parts, and the squares of
           their μ, add up to at most those of the whole, as decimals are read and without rounding.
        2. A share of 1 is the budget as written.

        Examples
        --------
        >>> PureDP(0.3).part(Fraction(1, 10))
        PureDP(epsilon=0.03)
        """
        if not 0 < share <= 1:
            raise BudgetError("A share of a budget must be above 0 and at most 1.")
        stated = asdict(self).items()
        return replace(self, **{n: decimal_part(x, share, self.adds_up_in) for n, x in stated})

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
    adds_up_in: ClassVar[int] = 2

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
    stated = dict(data)
    return BUDGETS[str(stated.pop("name"))](**stated)


def budget_with(parameters: Mapping[str, float]) -> Budget:
    """The budget that has exactly these parameters.

    >>> budget_with({"epsilon": 1.0, "delta": 1e-6})
    ApproxDP(epsilon=1.0, delta=1e-06)
    """
    for kind in BUDGETS.values():
        if {field.name for field in fields(kind)} == set(parameters):
            return kind(**parameters)
    raise BudgetError("A budget needs `epsilon`, `epsilon` and `delta`, `rho`, or `mu`.")
