"""Privacy budgets: what is promised, as exact numbers.

A kind of budget is one class. It says which noise it buys, what a group of people or a part of it
costs, which pair of simple laws dominates a release that spent it, and, as the limit of an account,
what releases have spent of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

from subspacedp.balls import ball, round_down, round_up
from subspacedp.errors import BudgetError
from subspacedp.frozen import frozen
from subspacedp.privacy.gaussian import largest_mu
from subspacedp.privacy.numbers import decimal_above, decimal_part, exact_decimal, positive, shown

if TYPE_CHECKING:
    from subspacedp.privacy.composition import Composed

GUESS_SLACK = 1e-12  # above the error of the few float64 operations of a best guess


@frozen(kw_only=True)
class Dominating:
    """The pair of laws that dominates a release; one of the three is given.

    `loss` is (ε, δ) of randomised response with a part δ lost, `square` the μ² of N(0, 1) and
    N(μ, 1), `rho` the ρ of which nothing else is known.
    """

    loss: tuple[Fraction, Fraction] | None = None
    square: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def best_guess(self) -> float:
        """How often somebody is right at most, who tells two neighbouring data sets apart.

        Returns
        -------
        float
            A probability, rounded up. Both data sets are equally likely before the release, and
            everything else is known; without any release it would be one half.

        Guarantees
        ----------
        1. No rule that looks at the release is right with a larger probability
           (docs/proofs/guessing.md).

        Examples
        --------
        >>> round(PureDP(1.0).dominating(1, stated=False).best_guess(), 3)
        0.731
        """
        if self.loss is not None:
            epsilon, delta = float(self.loss[0]), float(self.loss[1])
            distance = delta + (1 - delta) * math.tanh(epsilon / 2)
        elif self.square:
            distance = math.erf(math.sqrt(float(self.square) / 8))
        else:
            rho = float(self.rho)
            distance = min(math.sqrt(rho / 2), math.sqrt(-math.expm1(-rho)))
        return min(1.0, (1 + distance) / 2 * (1 + GUESS_SLACK))


@frozen
class Budget(ABC):
    """Base of the budgets. The first field is the amount; the others stay as they are."""

    name: ClassVar[str] = ""
    symbol: ClassVar[str] = "ε"  # of the amount
    pure: ClassVar[bool] = False
    adds_up_in: ClassVar[int] = 1  # the power in which parameters add up under composition
    uncounted: ClassVar[str] = "cannot count it"  # why such an account refuses a release

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, positive(field.name, getattr(self, field.name)))

    @property
    def amount(self) -> float:
        """The number that is spent: ε, ρ or μ."""
        return float(getattr(self, fields(self)[0].name))

    def with_amount(self, amount: float) -> Self:
        """The same kind of budget of another size."""
        return replace(self, **{fields(self)[0].name: amount})

    def as_dict(self) -> dict[str, float | str]:
        """The budget as plain data."""
        return {"name": self.name, **asdict(self)}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The JSON Schema of `as_dict`."""
        names = [field.name for field in fields(cls)]
        numbers = {name: {"type": "number", "exclusiveMinimum": 0} for name in names}
        return {
            "additionalProperties": False,
            "required": names,
            "properties": {"name": {"const": cls.name}, **numbers},
        }

    @property
    def gaussian_mu(self) -> float:
        """The largest Δ₂/σ of Gaussian noise within the budget, rounded toward privacy."""
        raise NotImplementedError

    def variance(self, l1: int, l2_squared: int) -> float:
        """Of the real noise that it buys for Δ₁ and Δ₂²: (Δ₂/μ)², normal."""
        return float(l2_squared / self.gaussian_mu**2)

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

    def for_group(self, people: int) -> Self:
        """What a change by so many people costs, whatever the mechanism; rounded up."""
        return self.with_amount(decimal_above(people * exact_decimal(self.amount)))

    @abstractmethod
    def dominating(self, people: int, *, stated: bool) -> Dominating:
        """What a release that spent it is dominated by, for a change by so many people.

        Parameters
        ----------
        stated
            True when only what the budget says is known; otherwise it bought the noise of this
            package, Gaussian noise unless it is pure.
        """

    @abstractmethod
    def spent(self, total: Composed) -> float | None:
        """What releases spent, in the figure of this budget; None if it cannot count them."""

    @abstractmethod
    def allows(self, total: Composed) -> bool | None:
        """Whether releases together meet it; None if its accounting cannot tell."""

    def left(self, total: Composed) -> float:
        """What is left of the amount."""
        spent = self.spent(total)
        if spent is None or not math.isfinite(spent):
            return 0.0
        return max(0.0, float(exact_decimal(self.amount) - exact_decimal(spent)))

    @property
    def beside(self) -> str:
        """What stands beside an amount of this budget, in words."""
        return ""

    @abstractmethod
    def meaning(self) -> str:
        """What the size of the budget means, in one sentence."""


@frozen
class PureDP(Budget):
    """ε-differential privacy; buys Laplace noise.

    >>> PureDP(0.192)
    PureDP(epsilon=0.192)
    """

    epsilon: float
    name: ClassVar[str] = "pure"
    pure: ClassVar[bool] = True
    uncounted: ClassVar[str] = "counts ε of pure releases alone"

    def variance(self, l1: int, l2_squared: int) -> float:
        """Of the real noise that it buys for Δ₁ and Δ₂²: 2(Δ₁/ε)², Laplace."""
        del l2_squared
        return 2.0 * (l1 / float(exact_decimal(self.epsilon))) ** 2

    def dominating(self, people: int, *, stated: bool) -> Dominating:
        """Randomised response of kε."""
        del stated
        return Dominating(loss=(people * exact_decimal(self.epsilon), Fraction(0)))

    def spent(self, total: Composed) -> float | None:
        """Σ ε."""
        return total.pure

    def allows(self, total: Composed) -> bool | None:
        """By fractions."""
        spent = total.exact_pure
        return None if spent is None else spent <= exact_decimal(self.epsilon)

    def meaning(self) -> str:
        """The factor e^ε."""
        return (
            "One person changes the probability of any outcome by a factor of at most "
            f"{factor_words(self.epsilon)}."
        )

    def __str__(self) -> str:
        return f"ε = {shown(self.epsilon)}"


@frozen
class ApproxDP(Budget):
    """(ε, δ)-differential privacy; buys Gaussian noise, calibrated by its exact trade-off."""

    epsilon: float
    delta: float
    name: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta >= 1:
            raise BudgetError(f"`delta` must be below 1; got {self.delta!r}.")

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """With δ below 1."""
        out = super().schema()
        out["properties"]["delta"]["exclusiveMaximum"] = 1
        return out

    @property
    def gaussian_mu(self) -> float:
        """The largest Δ₂/σ of Gaussian noise within the budget, rounded toward privacy."""
        return largest_mu(exact_decimal(self.epsilon), exact_decimal(self.delta))

    def for_group(self, people: int) -> Self:
        """(kε, δ·Σ e^{iε}), i = 0 … k − 1."""
        epsilon, delta = self._loss(people)
        if delta >= 1:
            raise BudgetError(f"(ε, δ) of one person says nothing about {people} people: δ ≥ 1.")
        return type(self)(decimal_above(epsilon), decimal_above(delta))

    def dominating(self, people: int, *, stated: bool) -> Dominating:
        """Gaussian noise, or a randomised response with a part δ lost."""
        if stated:
            return Dominating(loss=self._loss(people))
        return Dominating(square=(people * Fraction(self.gaussian_mu)) ** 2)

    def _loss(self, people: int) -> tuple[Fraction, Fraction]:
        epsilon, delta = exact_decimal(self.epsilon), exact_decimal(self.delta)
        if people == 1:
            return epsilon, delta
        if (people - 1) * epsilon > 750:  # e^750 times the least float64 is above 1
            return people * epsilon, Fraction(1)
        larger = round_up(
            lambda: sum(((i * ball(epsilon)).exp() for i in range(people)), ball(0)) * ball(delta)
        )
        return people * epsilon, Fraction(min(larger, 1.0))

    def spent(self, total: Composed) -> float | None:
        """ε at this δ."""
        return total.epsilon(self.delta)

    def allows(self, total: Composed) -> bool | None:
        """By ball arithmetic for Gaussian releases, by a δ on the safe side for mixed ones."""
        return total.meets(self.epsilon, self.delta)

    @property
    def beside(self) -> str:
        """The δ."""
        return f" at δ = {shown(self.delta)}"

    def meaning(self) -> str:
        """The factor e^ε, and δ."""
        return (
            "One person changes the probability of any outcome by a factor of at most "
            f"{factor_words(self.epsilon)}, and by δ beyond that."
        )

    def __str__(self) -> str:
        return f"ε = {shown(self.epsilon)}, δ = {shown(self.delta)}"


@frozen
class ZCDP(Budget):
    """ρ-zero-concentrated differential privacy; buys Gaussian noise with Δ₂²/(2σ²) = ρ."""

    rho: float
    name: ClassVar[str] = "zero-concentrated"
    symbol: ClassVar[str] = "ρ"
    uncounted: ClassVar[str] = "cannot count a release of which only (ε, δ) is known"

    @property
    def gaussian_mu(self) -> float:
        """√(2ρ), rounded toward privacy."""
        return round_down(lambda: (2 * ball(exact_decimal(self.rho))).sqrt())

    def for_group(self, people: int) -> Self:
        """k²ρ."""
        return super().for_group(people**2)

    def dominating(self, people: int, *, stated: bool) -> Dominating:
        """Gaussian noise of μ² = 2k²ρ, or k²ρ alone."""
        rho = people**2 * exact_decimal(self.rho)
        return Dominating(rho=rho) if stated else Dominating(square=2 * rho)

    def spent(self, total: Composed) -> float | None:
        """Σ ρ."""
        return total.rho

    def allows(self, total: Composed) -> bool | None:
        """By fractions."""
        spent = total.exact_rho
        return None if spent is None else spent <= exact_decimal(self.rho)

    def meaning(self) -> str:
        """Rényi divergences."""
        return (
            "One person moves the distribution of the outcomes by a Rényi divergence of at most ρ "
            "times its order."
        )

    def __str__(self) -> str:
        return f"ρ = {shown(self.rho)} (zero-concentrated)"


@frozen
class GaussianDP(Budget):
    """μ-Gaussian differential privacy; buys Gaussian noise with Δ₂/σ = μ."""

    mu: float
    name: ClassVar[str] = "gaussian"
    symbol: ClassVar[str] = "μ"
    adds_up_in: ClassVar[int] = 2
    uncounted: ClassVar[str] = "counts Gaussian noise alone"

    @property
    def gaussian_mu(self) -> float:
        """The μ asked for, rounded toward privacy."""
        return round_down(lambda: ball(exact_decimal(self.mu)))

    def dominating(self, people: int, *, stated: bool) -> Dominating:
        """Gaussian noise of kμ, which is what the budget says."""
        del stated
        return Dominating(square=(people * exact_decimal(self.mu)) ** 2)

    def spent(self, total: Composed) -> float | None:
        """√(Σ μ²)."""
        return total.mu

    def allows(self, total: Composed) -> bool | None:
        """By fractions."""
        spent = total.exact_square
        return None if spent is None else spent <= exact_decimal(self.mu) ** 2

    def left(self, total: Composed) -> float:
        """√(μ² − Σ μ²)."""
        if total.exact_square is None:
            return 0.0
        return math.sqrt(max(Fraction(0), exact_decimal(self.mu) ** 2 - total.exact_square))

    def meaning(self) -> str:
        """A test between two normal laws."""
        return (
            "Telling from the outcome whether one person's data were changed is at least as hard "
            "as telling, from one draw, a normal variable with mean 0 from one with mean μ."
        )

    def __str__(self) -> str:
        return f"μ = {shown(self.mu)} (Gaussian)"


# A budget of a new kind is its class above and its place in this list.
BUDGETS: dict[str, type[Budget]] = {c.name: c for c in (PureDP, ApproxDP, ZCDP, GaussianDP)}


def budget_from(data: Mapping[str, Any]) -> Budget:
    """The budget that plain data state, with its own checks."""
    given = dict(data)
    return BUDGETS[str(given.pop("name"))](**given)


def budget_of_fields(**given: float | None) -> Budget | None:
    """The budget whose parameters are those given, None standing for one that is not.

    >>> budget_of_fields(epsilon=0.5, rho=None)
    PureDP(epsilon=0.5)
    """
    stated = {name: value for name, value in given.items() if value is not None}
    for kind in BUDGETS.values():
        if {field.name for field in fields(kind)} == set(stated):
            return kind(**stated)
    return None


def kinds_of_budgets() -> str:
    """All kinds, for sentences: "PureDP, ApproxDP, ZCDP or GaussianDP"."""
    *others, last = (kind.__name__ for kind in BUDGETS.values())
    return f"{', '.join(others)} or {last}"


def factor_words(epsilon: float) -> str:
    """e^ε in three figures, rounded up: never more private than it is."""
    if epsilon > 30:
        return f"e to the power {epsilon:g}"
    factor = math.exp(epsilon) * (1 + 1e-12)
    digits = max(0, 2 - math.floor(math.log10(factor)))
    return f"{math.ceil(factor * 10**digits) / 10**digits:,.{digits}f}"
