"""What several releases spend together.

Every release is dominated by a pair of simple laws: a Gaussian one by N(0, 1) and N(μ, 1), a pure
one by ε-randomised response, one of which only (ε, δ) is known by the same with a part δ lost.
Gaussian pairs compose to one with μ² = Σ μᵢ²; randomised responses have a privacy loss L on a line,
so that for all of them together

    δ(ε) = Σ δᵢ + E[ δ_μ(ε − L) ],     δ_μ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)

(docs/proofs/composition.md). The expectation is a finite sum of positive terms: nothing cancels,
so float64 computes it to a known relative error, which is added.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from subspacedp.balls import ball, certain_compare, round_up
from subspacedp.errors import BudgetError
from subspacedp.privacy.budgets import Budget
from subspacedp.privacy.losses import Losses, concentrated_delta
from subspacedp.privacy.neighbours import Neighbours
from subspacedp.privacy.numbers import decimal_above, exact_decimal, positive, root_above

if TYPE_CHECKING:
    from flint import arb

__all__ = ["Composed", "Spend", "compose"]

# Relative width at which a search for ε ends, on the private side: closed forms, and sums.
CLOSE, CLOSE_MIXED = 1e-10, 1e-7
# Where to convert a stated ρ, in units of √ρ above it; the best of them is taken.
CONVERSIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5, 10.0, 12.0, 15.0)


@dataclass(frozen=True, kw_only=True)
class Spend:
    """What one release spent.

    Parameters
    ----------
    budget
        The budget of the release.
    neighbours
        The change of the data that it was spent for.
    stated
        True when only what the budget says is known, as of a mechanism from elsewhere. Otherwise
        a budget other than `PureDP` bought Gaussian noise, of which everything is known.
    capped
        True when the release itself bounds the records of a person, so that those with more are
        protected too.
    """

    budget: Budget
    neighbours: Neighbours
    stated: bool = False
    capped: bool = False

    def steps_to(self, neighbours: Neighbours) -> int:
        """How many of this spend's changes make one of `neighbours`; refuses where none do."""
        own, other = self.neighbours, neighbours
        if own.persons > other.persons:
            raise BudgetError(
                f"A release spent for {own.name} cannot be counted under {other.name}: replacing "
                "a person says nothing about adding one."
            )
        if not self.capped and (
            own.records < other.records or _cell_bound(own) < _cell_bound(other)
        ):
            raise BudgetError(
                f"A release spent for {own} does not protect against {other}; bound the records "
                "of a person when they are tabulated, or spend for the larger change."
            )
        if own.keeps_total and not other.keeps_total:
            raise BudgetError(
                f"A release spent for {own} does not protect against {other}, which can change "
                "the grand total; say `exactly=False` for the release."
            )
        return other.persons // own.persons


def _cell_bound(neighbours: Neighbours) -> int:
    return neighbours.per_cell or neighbours.records


@dataclass(frozen=True, kw_only=True)
class Composed:
    """What releases spent together, under every accounting; made by `compose`.

    Parameters
    ----------
    releases
        How many there are.
    parts
        ε, δ and number of the releases of which only these are known; pure ones have δ = 0.
    gaussians, square
        The number of Gaussian releases, and Σ μ² over them.
    concentrated, stated_rho
        The number of releases of which only ρ is known, and Σ ρ over them.

    Guarantees
    ----------
    1. The releases together, each chosen in view of the ones before or not, are `pure`-private,
       (`epsilon(δ)`, δ)-private for every δ, `rho`-zero-concentrated, and `mu`-Gaussian private;
       each number that is not None, rounded toward more spent.
    2. Of Gaussian releases `mu`, `rho`, `epsilon` and `delta` are the least such numbers, to 1e-9.
    """

    releases: int
    parts: tuple[tuple[Fraction, Fraction, int], ...] = ()
    gaussians: int = 0
    square: Fraction = Fraction(0)
    concentrated: int = 0
    stated_rho: Fraction = Fraction(0)

    @cached_property
    def exact_pure(self) -> Fraction | None:
        """Σ ε as a fraction; None unless all releases are pure."""
        if self.gaussians or self.concentrated or any(delta for _, delta, _ in self.parts):
            return None
        return self._sum_epsilon

    @cached_property
    def exact_rho(self) -> Fraction | None:
        """Σ ρ as a fraction, a pure ε counting ε²/2; None if (ε, δ) is all that is known of one."""
        if any(delta for _, delta, _ in self.parts):
            return None
        pure = sum((n * e * e for e, _, n in self.parts), Fraction(0))
        return (self.square + pure) / 2 + self.stated_rho

    @cached_property
    def exact_square(self) -> Fraction | None:
        """Σ μ² as a fraction; None unless all releases are Gaussian."""
        return None if self.parts or self.concentrated else self.square

    @property
    def pure(self) -> float | None:
        """Σ ε; None unless all releases are pure."""
        return None if self.exact_pure is None else decimal_above(self.exact_pure)

    @property
    def rho(self) -> float | None:
        """Σ ρ, a pure ε counting ε²/2; None if (ε, δ) is all that is known of a release."""
        return None if self.exact_rho is None else decimal_above(self.exact_rho)

    @property
    def mu(self) -> float | None:
        """√(Σ μ²); None unless all releases are Gaussian."""
        square = self.exact_square
        return None if square is None else root_above(square)

    def delta(self, epsilon: float) -> float:
        """A δ with which the releases together are (ε, δ)-private."""
        number = positive("epsilon", epsilon)
        exact = exact_decimal(number)
        if not self.releases:
            return 0.0
        if self.exact_square is not None:
            return min(round_up(self._gaussian_delta(exact)), 1.0)
        if not self.gaussians and not self.concentrated and exact >= self._sum_epsilon:
            return min(decimal_above(self._sum_delta), 1.0)
        found = [losses.delta(number) for losses in self._losses]
        if self.rho is not None and math.isfinite(self.rho):
            found.append(concentrated_delta(self.rho, number))
        return min([1.0, *found])  # in this order, as nothing is below what is not a number

    def epsilon(self, delta: float) -> float:
        """An ε with which the releases together are (ε, δ)-private; infinite if there is none."""
        number = positive("delta", delta)
        if number >= 1:
            raise BudgetError(f"`delta` must be below 1; got {number!r}.")
        if not self.releases:
            return 0.0
        exact = exact_decimal(number)
        if self.exact_square is not None:

            def private(epsilon: float) -> bool:
                return certain_compare(self._gaussian_delta(exact_decimal(epsilon)), exact) <= 0
        else:

            def private(epsilon: float) -> bool:
                return self.delta(epsilon) <= number

        high = 1.0
        if not self.gaussians and not self.concentrated:
            if self._sum_delta > exact:
                return math.inf
            high = decimal_above(self._sum_epsilon)
        while not private(high):
            high *= 2
            if high > 1e12:
                return math.inf
        low = 0.0
        close = CLOSE_MIXED if self.exact_square is None else CLOSE
        while high - low > close * high and high > 1e-12:
            middle = low + (high - low) / 2
            low, high = (low, middle) if private(middle) else (middle, high)
        return high

    def within(self, limit: Budget) -> bool | None:
        """Whether the releases together meet a budget; None if its accounting cannot tell.

        Guarantees
        ----------
        1. True only if they do: by fractions for ε, ρ and μ, by ball arithmetic for (ε, δ) of
           Gaussian releases, by `delta`, which errs on the safe side, for mixed ones.
        2. Parts of a budget that add up to it are within it.
        """
        return limit.allows(self)

    def meets(self, epsilon: float, delta: float) -> bool:
        """Whether the releases together are (ε, δ)-private; True only if they are."""
        e, d = exact_decimal(epsilon), exact_decimal(delta)
        if not self.releases:
            return True
        if self.exact_square is not None:
            return certain_compare(self._gaussian_delta(e), d) <= 0
        if not self.gaussians and not self.concentrated and self._sum_epsilon <= e:
            return self._sum_delta <= d
        return Fraction(self.delta(epsilon)) <= d

    # ------------------------------------------------------------------------------------------

    @cached_property
    def _sum_epsilon(self) -> Fraction:
        return sum((n * e for e, _, n in self.parts), Fraction(0))

    @cached_property
    def _sum_delta(self) -> Fraction:
        return sum((n * d for _, d, n in self.parts), Fraction(0))

    def _gaussian_delta(self, epsilon: Fraction) -> Callable[[], arb]:
        """δ_μ(ε) as a ball, from μ² itself: √μ² is not rounded first."""

        def delta() -> arb:
            e, m = ball(epsilon), ball(self.square).sqrt()
            root = ball(2).sqrt()
            first = ((e / m - m / 2) / root).erfc() / 2
            return first - e.exp() * ((e / m + m / 2) / root).erfc() / 2

        return delta

    @cached_property
    def _losses(self) -> tuple[Losses, ...]:
        """Dominating pairs, each valid; several where a ρ has to be turned into an (ε, δ)."""
        mu = root_above(self.square)
        if not self.concentrated:
            return (Losses(self.parts, mu),)
        rho, out = decimal_above(self.stated_rho), []
        for c in CONVERSIONS:
            epsilon = rho + c * math.sqrt(rho)
            if math.isinf(epsilon):
                break  # nothing is promised
            pair = (Fraction(epsilon), Fraction(concentrated_delta(rho, epsilon)), 1)
            out.append(Losses((*self.parts, pair), mu))
        return tuple(out)

    def __str__(self) -> str:
        figures = {
            "ε": self.pure,
            "μ": self.mu,
            "ρ": self.rho,
            "ε at δ = 1e-6": self.epsilon(1e-6),
            "ε at δ = 1e-9": self.epsilon(1e-9),
        }
        told = ", ".join(f"{k} = {v:.6g}" for k, v in figures.items() if v is not None)
        return f"{self.releases} release{'s' * (self.releases != 1)}: {told}"


def compose(
    spends: Iterable[Spend] | Mapping[Spend, int], *, neighbours: Neighbours | None = None
) -> Composed:
    """What releases spent together.

    Parameters
    ----------
    spends
        One for each release, or how many there are of each.
    neighbours
        The change of the data to account for. By default that of the spends: the same for all, or
        the one replacement where others add or remove.

    Notes
    -----
    Replacing a person is removing one and adding one: add-remove ε counts 2ε, (ε, δ) counts
    (2ε, (1 + e^ε)δ), ρ counts 4ρ, μ counts 2μ. The reverse does not hold and is refused.

    Examples
    --------
    >>> from subspacedp.privacy import GaussianDP, PureDP, ReplaceOne
    >>> spends = [Spend(budget=PureDP(0.1), neighbours=ReplaceOne())] * 3
    >>> compose(spends).pure
    0.3
    >>> spends = [Spend(budget=GaussianDP(mu), neighbours=ReplaceOne()) for mu in (0.3, 0.4)]
    >>> compose(spends).mu
    0.5
    """
    counted = dict(spends) if isinstance(spends, Mapping) else dict(Counter(spends))
    relation = common_relation(counted) if neighbours is None else neighbours
    parts: Counter[tuple[Fraction, Fraction]] = Counter()
    gaussians, square, concentrated, rho = 0, Fraction(0), 0, Fraction(0)
    for spend, number in counted.items():
        steps = 1 if relation is None else spend.steps_to(relation)
        pair = spend.budget.dominating(steps, stated=spend.stated)
        if pair.loss is not None:
            parts[pair.loss] += number
        gaussians += number * (pair.square > 0)
        square += number * pair.square
        concentrated += number * (pair.rho > 0)
        rho += number * pair.rho
    return Composed(
        releases=sum(counted.values()),
        parts=tuple((e, d, n) for (e, d), n in sorted(parts.items()) if n),
        gaussians=gaussians,
        square=square,
        concentrated=concentrated,
        stated_rho=rho,
    )


def common_relation(spends: Iterable[Spend]) -> Neighbours | None:
    """The relation that all spends can be counted under; None without spends."""
    relations = list(dict.fromkeys(spend.neighbours for spend in spends))
    if len(relations) < 2:
        return relations[0] if relations else None
    replacing = [relation for relation in relations if relation.persons == 2]
    if len(replacing) == 1:
        return replacing[0]
    raise BudgetError(
        "The releases were spent for several changes of the data "
        f"({'; '.join(map(str, relations))}): name the one to account for as `neighbours`."
    )
