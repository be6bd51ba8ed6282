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
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import FloatArray
from subspacedp.balls import certain_compare, round_up
from subspacedp.errors import BudgetError
from subspacedp.frozen import frozen
from subspacedp.privacy.budgets import Budget, budget_from
from subspacedp.privacy.gaussian import delta_ball
from subspacedp.privacy.neighbours import Neighbours, neighbours_from
from subspacedp.privacy.numbers import (
    decimal_above,
    exact_decimal,
    positive,
    root_above,
    six_digits,
)

# Relative width at which a search for ε ends, on the private side: closed forms, and sums.
EPSILON_WIDTH, MIXED_EPSILON_WIDTH = 1e-10, 1e-7
# Where to convert a stated ρ, in units of √ρ above it; the best of them is taken.
CONVERSIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5, 10.0, 12.0, 15.0)

INFLATION = 1 + 1e-9  # float64 computes δ to a relative 1e-10: its terms are positive
TERM_ERROR = 1e-13  # relative error of erfcx and of the weights of one term, with room
MIN_GRID_POINTS = 1 << 13  # grid points at least, where the losses have no grid of their own
MAX_GRID_POINTS = 1 << 17  # ... and at most
MAX_MESH = 0.05  # of the grid's own spread to that of the losses


@frozen(kw_only=True)
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

    def as_dict(self) -> dict[str, Any]:
        """The spend as plain data."""
        return {
            "budget": self.budget.as_dict(),
            "neighbours": self.neighbours.as_dict(),
            "stated": self.stated,
            "capped": self.capped,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spend:
        """The spend that plain data state."""
        return cls(
            budget=budget_from(data["budget"]),
            neighbours=neighbours_from(data["neighbours"]),
            stated=data["stated"] is True,
            capped=data["capped"] is True,
        )

    def steps_to(self, neighbours: Neighbours) -> int:
        """How many of this spend's changes make one of `neighbours`; refuses where none do."""
        paid, wanted = self.neighbours, neighbours
        if paid.persons > wanted.persons:
            raise BudgetError(
                f"A release spent for {paid.name} cannot be counted under {wanted.name}: replacing "
                "a person says nothing about adding one."
            )
        if not self.capped and (
            paid.records < wanted.records or _cell_bound(paid) < _cell_bound(wanted)
        ):
            raise BudgetError(
                f"A release spent for {paid} does not protect against {wanted}; bound the records "
                "of a person when they are tabulated, or spend for the larger change."
            )
        if paid.keeps_total and not wanted.keeps_total:
            raise BudgetError(
                f"A release spent for {paid} does not protect against {wanted}, which can change "
                "the grand total; say `exactly=False` for the release."
            )
        return wanted.persons // paid.persons


def _cell_bound(neighbours: Neighbours) -> int:
    return neighbours.per_cell or neighbours.records


@frozen(kw_only=True)
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
            return min(round_up(delta_ball(exact, self.square)), 1.0)
        if not self.gaussians and not self.concentrated and exact >= self._sum_epsilon:
            return min(decimal_above(self._sum_delta), 1.0)
        deltas = [each.delta(number) for each in self._distributions]
        if self.rho is not None and math.isfinite(self.rho):
            deltas.append(concentrated_delta(self.rho, number))
        return min([1.0, *deltas])  # in this order, as nothing is below what is not a number

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
                return certain_compare(delta_ball(exact_decimal(epsilon), self.square), exact) <= 0
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
        close = MIXED_EPSILON_WIDTH if self.exact_square is None else EPSILON_WIDTH
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
            return certain_compare(delta_ball(e, self.square), d) <= 0
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

    @cached_property
    def _distributions(self) -> tuple[PrivacyLossDistribution, ...]:
        """Dominating pairs, each valid; several where a ρ has to be turned into an (ε, δ)."""
        mu = root_above(self.square)
        if not self.concentrated:
            return (PrivacyLossDistribution(self.parts, mu),)
        rho, out = decimal_above(self.stated_rho), []
        for c in CONVERSIONS:
            epsilon = rho + c * math.sqrt(rho)
            if math.isinf(epsilon):
                break  # nothing is promised
            pair = (Fraction(epsilon), Fraction(concentrated_delta(rho, epsilon)), 1)
            out.append(PrivacyLossDistribution((*self.parts, pair), mu))
        return tuple(out)

    def __str__(self) -> str:
        figures = {
            "ε": self.pure,
            "μ": self.mu,
            "ρ": self.rho,
            "ε at δ = 1e-6": self.epsilon(1e-6),
            "ε at δ = 1e-9": self.epsilon(1e-9),
        }
        known = ", ".join(f"{k} = {six_digits(v)}" for k, v in figures.items() if v is not None)
        return f"{self.releases} release{'s' * (self.releases != 1)}: {known}"


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


class PrivacyLossDistribution:
    """The privacy loss of randomised responses beside one Gaussian pair, and its δ(ε) from above.

    Parameters
    ----------
    parts
        ε, δ and number of the responses.
    mu
        Of the Gaussian pair; 0 for none.

    Notes
    -----
    The loss of n responses with ε is (2j − n)ε with the binomial probability of j. It is put on a
    grid by splitting each atom between its two neighbours on the grid such that the mass under
    both laws stays: merging the two again gives the atom back, so the pair with split atoms
    dominates.
    """

    def __init__(self, parts: Iterable[tuple[Fraction, Fraction, int]], mu: float) -> None:
        listed = [part for part in parts if part[1] < 1]
        self.mu = mu
        self.lost = sum((n * d for _, d, n in parts), Fraction(0))
        step = _grid_step([(e, n) for e, _, n in listed])
        masses, start = np.ones(1), 0
        for epsilon, _, number in listed:
            masses, start = _add_responses(masses, start, epsilon, number, step)
        used = np.flatnonzero(masses)
        self.masses = masses[used]
        self.losses = (used + start) * float(step)

    def delta(self, epsilon: float) -> float:
        """Σ δᵢ + E[δ_μ(ε − L)], rounded up."""
        # A loss is right to 1e-15 of its size: taken that much larger, it is on the safe side.
        excess = epsilon - self.losses - 1e-14 * (epsilon + np.abs(self.losses))
        expectation = float(self.masses @ gaussian_profile(excess, self.mu)) + 1e-300
        return (float(self.lost) + expectation) * INFLATION


def _grid_step(parts: Sequence[tuple[Fraction, int]]) -> Fraction:
    """A grid for the losses: their own where it has few points, else one fine beside them."""
    if not parts:
        return Fraction(1)
    total = sum((n * e for e, n in parts), Fraction(0))
    bottom = math.lcm(*(e.denominator for e, _ in parts))
    common = Fraction(math.gcd(*(int(e * bottom) for e, _ in parts)), bottom)
    if 2 * total / common <= MAX_GRID_POINTS // 2:
        return common
    spread = math.sqrt(sum(n * float(e) ** 2 for e, n in parts) / len(parts))
    fine = min(float(2 * total) / MIN_GRID_POINTS, MAX_MESH * spread)
    return Fraction(max(fine, float(2 * total) / MAX_GRID_POINTS))


def _add_responses(
    masses: FloatArray, start: int, epsilon: Fraction, number: int, step: Fraction
) -> tuple[FloatArray, int]:
    """The law of a loss on the grid after adding `number` responses with ε."""
    law, low = _binomial_on_grid(epsilon, number, step)
    out = np.zeros(masses.size + law.size - 1)
    short, long = (masses, law) if masses.size < law.size else (law, masses)
    for shift in np.flatnonzero(short):  # sums of positive numbers, not a Fourier transform
        out[shift : shift + long.size] += short[shift] * long
    return out, start + low


def _binomial_on_grid(epsilon: Fraction, number: int, step: Fraction) -> tuple[FloatArray, int]:
    from scipy.special import gammaln

    j = np.arange(number + 1)
    e = float(epsilon)
    # log p = −log(1 + e^−ε), log(1 − p) = −ε − log(1 + e^−ε); a relative 1e-16 of each, times n.
    log_choose = gammaln(number + 1.0) - gammaln(j + 1.0) - gammaln(number - j + 1.0)
    log_mass = log_choose - (number - j) * e - number * math.log1p(math.exp(-e))
    slack = 1e-15 * (number + 10) * (1 + e + math.log(number + 1))
    mass = np.exp(np.minimum(log_mass + slack, 0.0))
    ratio = epsilon / step
    places = [(2 * int(i) - number) * ratio for i in j]
    floors = np.array([math.floor(place) for place in places])
    rest = np.array([float(place - math.floor(place)) for place in places])
    h, low = float(step), int(floors[0])
    upper = np.expm1(-rest * h) / math.expm1(-h)  # the share whose mass under both laws is kept
    law = np.zeros(int(floors[-1]) - low + 2)
    np.add.at(law, floors - low, mass * (1 - upper))
    np.add.at(law, floors - low + 1, mass * upper)
    return np.trim_zeros(law, "b"), low


def gaussian_profile(epsilon: FloatArray, mu: float) -> FloatArray:
    """δ_μ at every ε of any sign, from above; μ = 0 stands for no Gaussian."""
    from scipy.special import erfcx, ndtr

    size = np.abs(epsilon)
    tail = np.zeros_like(size)
    if mu > 0:
        # e^ε φ(b) = φ(a), so δ = φ(a)·(m(a) − m(b)) with Mills' ratio m, a = ε/μ − μ/2, b = a + μ.
        a = size / mu - mu / 2
        density = np.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        mills = math.sqrt(math.pi / 2) * erfcx(np.maximum(a, 0) / math.sqrt(2))
        first = np.where(a < 0, ndtr(-a), density * mills)
        second = density * math.sqrt(math.pi / 2) * erfcx((a + mu) / math.sqrt(2))
        tail = np.maximum(first * (1 + TERM_ERROR) - second, 0) * (1 + 1e-15 * a * a)
    # δ(−ε) = 1 − e^−ε + e^−ε δ(ε)
    return np.where(epsilon < 0, -np.expm1(-size) + np.exp(-size) * tail, tail)


def concentrated_delta(rho: float, epsilon: float) -> float:
    """A δ of ρ-zero-concentrated privacy at ε (Canonne, Kamath and Steinke 2020, Corollary 13).

    Every α > 1 gives one; the best of many is taken.
    """
    if rho == 0:
        return 0.0
    best = max((epsilon + rho) / (2 * rho), 1.01)
    alpha = np.concatenate([1 + (best - 1) * np.linspace(0.2, 2, 400), [1.01, 1.1, 1.5, 2.0]])
    log_delta = (
        (alpha - 1) * (alpha * rho - epsilon) - np.log(alpha - 1) + alpha * np.log1p(-1 / alpha)
    )
    return min(1.0, math.exp(min(0.0, float(log_delta.min()))) * INFLATION + 1e-300)
