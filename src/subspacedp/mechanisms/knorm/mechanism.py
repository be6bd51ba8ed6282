"""The k-norm mechanism: pure ε, with noise in the shape of what one person can change.

Several ways to have integers. A histogram of which only the total is held, and no neighbouring
change alters that: the counts are measured with noise that adds up to zero. The totals of disjoint
groups: differences of counts within each group are measured. Everything else: coordinates in a
basis of the null space on a public grid, or the answers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array, ObjectArray
from subspacedp.errors import BudgetError, InvariantError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.error_laws import JointNoise, NoiseModel
from subspacedp.mechanisms.error_laws.joint import stated_law, stated_matrix
from subspacedp.mechanisms.error_laws.simulated import Simulated
from subspacedp.mechanisms.error_laws.sums import (
    Least,
    OnlyVariance,
    Part,
    SumLaw,
    WeightedSum,
    part,
)
from subspacedp.mechanisms.extended import (
    LARGEST_UNITS,
    LEAST_BITS,
    MOST_BITS,
    Extended,
    basis_from,
)
from subspacedp.mechanisms.knorm.fitting import Ellipsoid, Fit, fit, least_spread, norm_ball_from
from subspacedp.mechanisms.knorm.groups import Deviations, Exchanges, HeldGroups
from subspacedp.mechanisms.knorm.images import Swaps
from subspacedp.mechanisms.knorm.law import KNormLaw
from subspacedp.mechanisms.knorm.norm_balls import CrossPolytope, NormBall, scaled
from subspacedp.mechanisms.knorm.polytope import MOST_DIMENSIONS
from subspacedp.mechanisms.knorm.tails import Dominated
from subspacedp.mechanisms.optimality import inner_columns, reached_by
from subspacedp.mechanisms.strategies import BasisStrategy
from subspacedp.noise import DiscreteLaplace, Keystream, ReleaseKeys
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.problem import Problem
from subspacedp.queries import Query, Sensitivity
from subspacedp.queries.linear import used_columns
from subspacedp.rounding import ControlledRounding
from subspacedp.stated import stated_fraction


@frozen(eq=False, repr=False, kw_only=True)
class KNormNoise(JointNoise):
    """Release minus truth: B z, z with a k-norm law.

    Guarantees
    ----------
    1. The mean is zero, and stated variances are never too small.
    2. Laws of weighted sums are exact for a cross-polytope, whose entries are independent;
       otherwise proven bounds on their tails.
    """

    law: KNormLaw
    unit: float
    back: FloatArray  # (answers, entries of z)
    shape: tuple[int, ...]
    excess: ClassVar[float] = 3.0  # the noise is log-concave, so that no direction has more than 3

    @property
    def known(self) -> bool:
        """Whether a weighted sum has independent parts."""
        return self.law.norm_ball.independent is not None

    @cached_property
    def _deviations(self) -> FloatArray:
        """Of independent entries."""
        return np.sqrt(np.diag(self.law.covariance))

    @cached_property
    def _root(self) -> FloatArray:
        """L with L Lᵀ = B E[z zᵀ] Bᵀ."""
        if self.known:
            return np.asarray(self.unit * self.back * self._deviations)
        values, vectors = np.linalg.eigh(self.law.covariance)
        return np.asarray(self.unit * self.back @ (vectors * np.sqrt(np.maximum(values, 0.0))))

    def stated_noise(self) -> dict[str, Any]:
        """B times Cholesky's factor, which is the same on every machine; its entries depend."""
        root = self.unit * self.back @ np.linalg.cholesky(self.law.covariance)
        return {"kind": "matrix", "matrix": stated_matrix(root)} | stated_law(None, 1.0, self.each)

    @property
    def nothing(self) -> float:
        """Relative to weights in units of the answers, which noise multiplies."""
        return 1e-20 * max(self.law.variance * self.unit**2, 1e-300)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return np.asarray(np.square(self._root).sum(axis=1)).reshape(self.shape)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Lᵀw."""
        return np.asarray(self._root.T @ weights.reshape(-1))

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """Those of a cross-polytope; none for others."""
        widths = self.law.norm_ball.independent
        if widths is None:
            return ()
        return independent_parts(widths, self.law.rate, inside / self._deviations)

    def law_of(self, weights: ArrayLike) -> SumLaw:
        """The law of the error of Σ wᵢ·answerᵢ, or a bound on its tails."""
        w = np.asarray(weights, np.float64)
        if self.known or self.is_fixed(w):
            return super().law_of(w)
        flat = np.asarray(self.unit * (w.reshape(-1) @ self.back))
        return weighted_sum(self.law, flat, self.variance(w))


@frozen(eq=False, repr=False, kw_only=True)
class GroupedNoise(JointNoise):
    """Release minus truth: Π_N z for k-norm noise on counts, of one variance in every group.

    Guarantees
    ----------
    1. The mean is zero, and variances and covariances are exact.
    2. The total of some cells has an exact law where one total is held and noise is exchanged;
       other weighted sums have proven bounds on their tails.
    """

    law: KNormLaw
    groups: HeldGroups
    known: ClassVar[bool] = False  # there are no independent parts
    excess: ClassVar[float] = 3.0  # the noise is log-concave, so that no direction has more than 3

    @cached_property
    def _deviations(self) -> FloatArray:
        """√s² of the group of every cell, in the domain's shape."""
        each = np.repeat(np.sqrt(self.law.group_variances), self.groups.sizes)
        return self.groups.placed(each)

    def stated_noise(self) -> dict[str, Any]:
        """Π_N by group means, times the deviation of each group."""
        deviations = {"deviations": self._deviations.reshape(-1).tolist()}
        return self.groups.space.as_dict() | deviations | stated_law(None, 1.0, self.each)

    @property
    def nothing(self) -> float:
        """Relative to weights in units of the answers, which noise multiplies."""
        return 1e-26 * max(float(self._deviations.max()) ** 2, 1e-300)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return np.asarray(self.groups.space.diagonal() * self._deviations**2)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w times the deviation of each group; groups do not mix."""
        return np.asarray(self.groups.space.project(weights) * self._deviations)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """None."""
        return ()

    def law_of(self, weights: ArrayLike) -> SumLaw:
        """The law of the error of Σ wᵢ·answerᵢ, or a bound on its tails."""
        w = np.asarray(weights, np.float64)
        if self.is_fixed(w):
            return WeightedSum(parts=())
        inside = self.groups.space.project(w).reshape(-1)[self.groups.order]
        inside[np.abs(inside) < 1e-13 * np.abs(inside).max()] = 0.0
        return weighted_sum(self.law, inside, self.variance(w))


def weighted_sum(law: KNormLaw, weights: FloatArray, variance: float) -> SumLaw:
    """Σ aᵢzᵢ for dependent entries, its variance known: exact, simulated, or a proven bound.

    The noise is at most e^(2·rate·c) times as likely as continuous noise that is rounded, c the
    norm of half a cell; and noise on groups of counts is independent noise under a condition, or
    is simulated. The least of these bounds and Chebyshev's is taken (docs/proofs/knorm.md).
    """
    bounds: list[SumLaw] = [_rounded(law, weights), OnlyVariance(variance)]
    near = law.norm_ball.conditioned(law.rate, weights)
    if near is not None:
        bounds = [near, *bounds]
        drawn = None if near.method == "exact" else law.norm_ball.whole_noise(law.rate)
        if drawn is not None:
            bounds = [Simulated.of(drawn @ weights), *bounds]
    return Least(tuple(bounds))


def _rounded(law: KNormLaw, weights: FloatArray) -> Dominated:
    """By continuous noise."""
    norm_ball, rate = law.norm_ball, law.rate
    factor = math.exp(min(2 * float(rate * norm_ball.free_half_cell), 700.0))
    return Dominated(
        norm_ball.smooth_sum(float(rate), weights), factor, norm_ball.rounded_off(weights)
    )


def independent_parts(
    widths: tuple[Fraction, ...], rate: Fraction, weights: FloatArray
) -> tuple[Part, ...]:
    """Σ aᵢzᵢ for the independent entries of a cross-polytope's noise, one part per width."""
    kinds = {w: j for j, w in enumerate(sorted(set(widths)))}
    member = np.array([kinds[w] for w in widths])
    return tuple(part(DiscreteLaplace(rate / w), weights[member == j]) for w, j in kinds.items())


OWN = Fraction(1, 10**6)  # by which rounding may widen the sensitivity polytope itself
TOO_LITTLE = "The norm ball of the noise does not hold what one record changes: too little noise."
NO_COLUMNS = (
    "The k-norm mechanism needs to know what a record adds to the answers; a query of which only "
    "the sensitivity is declared has no such columns."
)
TOO_SMALL = "The budget is too small for this mechanism's grid; use the projected mechanism."
QUICK_ANSWERS, QUICK_COLUMNS, QUICK_CELLS = 32, 64, 16
FREE = 1e-3  # of the others' size: noise in a direction that no replacement can change
MOST_VECTORS = 50_000  # pairs of kinds of records


@frozen(eq=False, repr=False)
class KNorm(Extended):
    """Noise in the shape of the sensitivity polytope.

    Guarantees
    ----------
    1. The measurement is ε-private over all neighbours: every change of the measured integers lies
       in `records · within` times the norm ball, decided in whole numbers (docs/proofs/knorm.md).
    2. The law of the noise is exactly the stated one; no Markov chain is run.
    3. A histogram with its total held: whole counts whose total is exact, and plain privacy.
       Otherwise the release is g(noisy) + C⁺c with g(noisy) in the null space: S.
    """

    fit: Fit | None = None  # the norm ball of the noise; None while it is still to be chosen

    name: ClassVar[str] = "knorm"
    laws: ClassVar[tuple[type[KNormLaw], ...]] = (KNormLaw,)
    fitted_at_once: ClassVar[bool] = False
    offers_decimals: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("knorm.md", "guarantees.md")
    keys_in_files: ClassVar[tuple[str, ...]] = ("basis", "body")
    uses_quantile: ClassVar[bool] = False  # no draw rests on a float quantile
    # Whole counts stay whole, and everything else is published as real values.
    rounding: ClassVar[ControlledRounding | None] = None

    @property
    def choice(self) -> Fit:
        """The norm ball, whether it is the sensitivity polytope itself, and its price if not."""
        if self.fit is None:
            raise ReleaseError("its norm ball is missing.")
        return self.fit

    @property
    def rate(self) -> Fraction:
        """ε over what all records of a person change, in multiples of the norm ball."""
        return pure_epsilon(self.budget) / (self.neighbours.records * self.choice.within)

    @cached_property
    def law(self) -> KNormLaw:
        """The law of the noise on the vector that is measured, in units of `unit`."""
        return KNormLaw(self.choice.norm_ball, self.rate)

    @property
    def can_round(self) -> bool:
        """Whole counts whose noise adds up to zero; `check_norm_ball` has the last word."""
        return self.query.grid == 1 and self.basis is None

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Δ₁ and Δ₂² of the numbers that are measured, for comparison."""
        if self.basis is None:
            return self.query.sensitivity(self.neighbours)
        return self.basis.sensitivity(self.query, self.neighbours)

    def without_rounded_products(self) -> Mechanism:
        """The norm ball is one of the integers as they are."""
        return self

    @cached_property
    def noise(self) -> JointNoise:
        """The law of release minus truth."""
        law, unit = self.law, float(self.unit)
        if self.basis is not None:
            return KNormNoise(law=law, unit=unit, back=self.basis.back, shape=self.query.shape)
        each = self.law_of_answers
        if each is not None:
            return NoiseModel.on(self.held, each, unit)
        return GroupedNoise(law=law, groups=HeldGroups.of(self.held))

    @property
    def law_of_answers(self) -> DiscreteLaplace | None:
        """Noise of a cross-polytope is independent."""
        law = self.law
        if self.basis is not None or law.norm_ball.independent is None:
            return None
        return DiscreteLaplace(law.rate / law.norm_ball.independent[0])

    def coordinates(self, values: FloatArray, exact: HeldValues) -> FloatArray | None:
        """In the basis; or counts or their differences, group after group, as they are drawn."""
        if self.law_of_answers is not None:
            return None
        if self.basis is not None:
            return super().coordinates(values, exact)
        return np.asarray(self.integers(values).reshape(-1)[HeldGroups.of(self.held).order])

    def whole_coordinates(self, answers: Int64Array) -> Int64Array:
        """The same for answers without noise."""
        whole = self.integers(answers)
        if self.basis is not None:
            return whole
        return np.asarray(whole.reshape(-1)[HeldGroups.of(self.held).order])

    def log_probability(self, noise: Int64Array) -> float:
        """−rate·‖z‖ − log Σ exp(−rate·‖·‖)."""
        norm = self.law.norm_ball.norm(noise.tolist())
        return -float(self.law.rate) * float(norm()) - self.law.log_normaliser

    def probability_in_words(self, recovered: bool) -> tuple[bool, str]:
        """Exact where the sum of all weights has a closed form."""
        words = "the probability of all measured numbers at once, by the norm of their noise"
        if not self.law.closed:
            words += "; its constant is that of continuous noise"
        return recovered and self.law.closed, words

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        if self.basis is not None:
            what = (
                "all coordinates of the answers in a basis of the null space at once, the basis "
                f"on a grid of 2**-{self.basis.bits}"
            )
        else:
            what = self.choice.norm_ball.on_answers
        return f"{what}; {self.price_in_words()}"

    def price_in_words(self) -> str:
        """Whose noise it is, and at what price relative to the sensitivity polytope."""
        fitted = self.choice
        kind = fitted.norm_ball.body
        if fitted.is_hull:
            return f"noise of the sensitivity polytope itself ({kind})"
        price = math.ceil(fitted.price * 1000 - 1e-6) / 1000
        most = "at most " if fitted.bound else ""
        return (
            f"noise of a norm ball around the sensitivity polytope ({kind}), with "
            f"{most}{price:,.4g} times the expected squared error of that "
            "polytope's own noise on a fine grid"
        )

    def check_norm_ball(self) -> None:
        """Refuse a norm ball that does not hold what one record changes, in whole numbers."""
        _ = self.rate
        norm_ball, within = self.choice.norm_ball, self.choice.within
        query, relation = self.query, self.neighbours
        if self.basis is not None:
            moves = changes(self.basis, query, relation)
            fits = norm_ball.entries == norm_ball.dimension == moves.shape[1]
            # What is rounded off two measurements differs by at most one in every number.
            room = within - (2 * cell_norm(norm_ball) if self.basis.drop else 0)
            held = fits and room > 0 and norm_ball.holds(moves, room * 2**self.basis.drop)
        else:
            held = norm_ball.protects(self.problem, within)
        if not held:
            raise ReleaseError(TOO_LITTLE)
        if self.decimals is not None and not norm_ball.adds_up:
            raise ReleaseError("Only whole counts whose noise adds up to zero have digits.")

    def protects(self, larger: Neighbours) -> bool:
        """The norm ball decides, not how long a change is."""
        try:
            self.for_problem(neighbours=larger).check_norm_ball()
        except ReleaseError:
            return False
        return True

    def fitted(self) -> dict[str, Any]:
        """The basis, if any; the norm ball, how it holds what a record does, the price."""
        fit = self.choice
        norm_ball = {
            **fit.norm_ball.as_dict(),
            "own": fit.is_hull,
            "within": str(fit.within),
            "price": fit.price,
            "bound": fit.bound,
        }
        basis = {} if self.basis is None else {"basis": self.basis.as_dict()}
        return {**basis, "body": norm_ball}

    @classmethod
    def from_dict(cls, problem: Problem, data: Mapping[str, Any]) -> Self:
        """The norm ball is not fitted again, and what privacy rests on is checked."""
        if "body" not in data:
            raise ReleaseError("what it measures is not what its mechanism measures.")
        basis = basis_from(data["basis"], problem) if "basis" in data else None
        stated = data["body"]
        is_hull, bound, price = stated["own"], stated["bound"], stated["price"]
        within = stated_fraction(stated["within"])
        usable = isinstance(is_hull, bool) and isinstance(bound, bool) and isinstance(price, float)
        if not usable or not math.isfinite(price) or price <= 0 or within <= 0:
            raise ReleaseError("what is said of its norm ball is out of range.")
        if is_hull and (not 1 <= within <= 1 + OWN or price != 1.0 or bound):
            raise ReleaseError("the sensitivity polytope itself has no price.")
        norm_ball = norm_ball_from(
            stated, problem.query.size if basis is None else len(basis.weights)
        )
        if is_hull and isinstance(norm_ball, Ellipsoid) and norm_ball.dimension > 1:
            raise ReleaseError("an ellipsoid is no hull of what records change.")
        fit = Fit(norm_ball=norm_ball, is_hull=is_hull, within=within, price=price, bound=bound)
        mechanism = cls(problem, basis=basis, fit=fit)
        mechanism.check_norm_ball()
        return mechanism

    def integers(self, answers: AnyArray) -> AnyArray:
        """Answers, their differences in groups, or coordinates in the basis."""
        if self.basis is not None:
            return self.basis.integers(answers)
        return self.law.norm_ball.measured(answers, self.held)

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """Answers, their differences in groups, or coordinates in the basis, plus one draw."""
        norm_ball, noise = self.law.norm_ball, self.law.draw(keys)[0]
        if self.basis is not None:
            return np.asarray(self.basis.integers(answers) + noise)
        placed = norm_ball.placed(noise, self.held).reshape(answers.shape)
        return norm_ball.measured(answers + placed, self.held)

    def reconstruct(
        self, noisy: Int64Array, exact: HeldValues, dither: Keystream, *, overwrite: bool = False
    ) -> AnyArray:
        """Π_N·noisy + C⁺c; for counts as noisy − lift(C·noisy − c), in integers."""
        if self.basis is not None:
            return super().reconstruct(noisy, exact, dither, overwrite=overwrite)
        if self.decimals is not None:  # whole counts, of the right total already
            return noisy if self.decimals == 0 else noisy.astype(np.float64)
        # The residual is zero unless held values count records that were not measured.
        residual = self.held.residual(noisy, exact)
        real = self.null_space.subtract_lift(noisy, residual, overwrite=overwrite)
        return real if self.query.grid == 1 else real * float(self.query.grid)


def with_norm_ball(mechanism: KNorm, *, exact: bool = False) -> KNorm:
    """The mechanism with what it measures and the norm ball of its noise.

    Of what can be drawn exactly, that of least expected error: the sensitivity polytope K itself on
    a fine grid, held groups on whole counts, or the answers with the cross-polytope of Δ₁. Where K
    cannot be drawn from, the best norm ball around it takes its place.

    Parameters
    ----------
    exact
        Refuse everything but K itself.
    """
    pure_epsilon(mechanism.budget)
    if mechanism.query.record_kinds is None:
        raise ReleaseError(NO_COLUMNS)
    chosen = _chosen(mechanism, exact=exact)
    chosen.check_norm_ball()
    relation = mechanism.neighbours
    if relation.per_cell is None or relation.per_cell == relation.records:
        return chosen
    # K is smaller than m times the hull for one record, and not smaller than that hull.
    if exact:
        raise ReleaseError(
            "`exact=True` asks for noise of the sensitivity polytope itself, and with `per_cell` "
            "below `records` only norm balls around it can be sampled exactly; leave it out to use "
            "one."
        )
    fitted = chosen.choice
    if fitted.is_hull:
        one = fitted.norm_ball
        least = least_spread(one.dimension, one.log_volume)
        fitted = replace(fitted, is_hull=False, price=one.spread() / least)
    elif not fitted.bound:
        fitted = replace(fitted, price=fitted.price * _smaller_spread(fitted.norm_ball.dimension))
    return replace(
        chosen, fit=replace(fitted, price=relation.records**2 * fitted.price, bound=True)
    )


def _smaller_spread(d: int) -> float:
    """By what factor a symmetric convex body may spread less than one inside it, at most.

    In a direction where a norm ball reaches h, E⟨u, θ⟩² is between that of a double cone,
    2h²/((d + 1)(d + 2)), and that of a box, h²/3.
    """
    return (d + 1) * (d + 2) / 6


def _chosen(mechanism: KNorm, *, exact: bool) -> KNorm:
    """What is measured, and the norm ball, for records without a bound per cell."""
    grouped = _grouped(mechanism)
    if grouped is not None and grouped.norm_ball.adds_up and not mechanism.capped:
        return replace(mechanism, fit=grouped)
    if mechanism.decimals is not None:
        raise ReleaseError(
            "Digits that add up need the projected mechanism here; publish real values "
            "(decimals=None) with the k-norm mechanism, or hold the grand total alone."
        )
    if grouped is not None and grouped.is_hull:
        return replace(mechanism, fit=grouped)
    if (
        mechanism.query.is_histogram
        and mechanism.space.rank == 0
        and mechanism.neighbours.persons == 1
    ):
        return replace(mechanism, fit=Fit(norm_ball=_cross(mechanism), is_hull=True))
    small = mechanism.space.dimension <= MOST_DIMENSIONS
    if grouped is not None and not small and not exact:
        return _best(replace(mechanism, fit=grouped), _on_answers(mechanism))
    try:
        shaped = _in_basis(mechanism, exact=exact or grouped is not None)
    except ReleaseError:
        if grouped is None or exact:
            raise
        return _best(replace(mechanism, fit=grouped), _on_answers(mechanism))
    if exact:
        return shaped
    others = [_on_answers(mechanism)] if grouped is None else [replace(mechanism, fit=grouped)]
    return _best(shaped, *others)


def _in_basis(mechanism: KNorm, *, exact: bool) -> KNorm:
    """Coordinates in a basis, and the hull of what one record does to them.

    The grid is 2**-30, or coarser where the noise would otherwise leave its range; for a query on
    a fine grid of its own, places of the product are rounded off instead.
    """
    rate = pure_epsilon(mechanism.budget) / mechanism.neighbours.records
    basis, moves = _measured(mechanism, MOST_BITS)
    size = float(np.abs(moves).max(initial=0))
    # The noise reaches about (k + 1)/rate times the norm ball.
    reach = (moves.shape[1] + 1) / float(rate) * size
    spare = math.ceil(math.log2(max(reach / LARGEST_UNITS, 1.0)))
    if 0 < spare <= MOST_BITS - LEAST_BITS:
        basis, moves = _measured(mechanism, MOST_BITS - spare)
    elif spare:
        if size * 2.0**-spare < 2.0**LEAST_BITS * math.sqrt(moves.shape[1]):
            raise BudgetError(TOO_SMALL)
        basis, half = replace(basis, drop=spare), 1 << (spare - 1)
        moves = (moves + half) >> spare
        if np.linalg.matrix_rank(scaled(moves)) < moves.shape[1]:
            raise BudgetError(TOO_SMALL)  # some direction is rounded off altogether
    fitted = fit(moves, rate, exact=exact, swaps=_swaps(basis, mechanism))
    if basis.drop:
        fitted = _widened(fitted, exact=exact)
    return replace(replace(mechanism, basis=basis), fit=fitted)


def _widened(fitted: Fit, *, exact: bool) -> Fit:
    """With room for rounding of the vectors and of both measurements: docs/proofs/knorm.md."""
    within = 1 + 4 * cell_norm(fitted.norm_ball)
    if within <= 1 + OWN:
        return replace(fitted, within=within)
    if exact:
        raise ReleaseError(
            "`exact=True` asks for noise of the sensitivity polytope itself, and on the grid that "
            "this budget allows only wider noise is private; leave it out to use that."
        )
    price = fitted.price * float(within) ** 2
    return replace(fitted, within=within, is_hull=False, price=price)


def _measured(mechanism: KNorm, bits: int) -> tuple[BasisStrategy, ObjectArray]:
    """A basis on a grid, and what one record does to the integers measured in it."""
    basis = _basis(mechanism, bits)
    moves = changes(basis, mechanism.query, mechanism.neighbours)
    return basis, np.concatenate([moves, _free(basis, mechanism)])


def _swaps(basis: BasisStrategy, mechanism: KNorm) -> Swaps | None:
    """K itself, where it is that of exchanges of kinds of records without a common direction."""
    columns, apart = measured_columns(basis, mechanism.query), _free(basis, mechanism)
    if not mechanism.neighbours.keeps_total or len(columns) - 1 + len(apart) != columns.shape[1]:
        return None
    rows = [(part + (1 << basis.drop >> 1)) >> basis.drop for part in (columns, apart)]
    try:
        return Swaps(*(tuple(tuple(map(int, row)) for row in part.tolist()) for part in rows))
    except ReleaseError:  # independent in floats alone
        return None


def _basis(mechanism: KNorm, bits: int) -> BasisStrategy:
    """A basis of the null space, or of the part of it that records reach."""
    query, space = mechanism.query, mechanism.null_space
    if query.is_histogram:
        return BasisStrategy.from_basis(space, bits)
    if not inner_columns(query, space).any():
        raise InvariantError(
            "What is held fixes everything that a record can change: nothing is left to protect.",
            rank=0,
        )
    reached = reached_by(query, space)
    if reached.shape[1] == space.dimension:
        return BasisStrategy.from_basis(space, bits)
    return BasisStrategy.from_rows(space, reached.T, bits, reached)


def _free(basis: BasisStrategy, mechanism: KNorm) -> ObjectArray:
    """A short vector in the direction that records reach and no replacement changes, if any.

    All records share what they add there. It needs no noise; a little keeps the ball solid, and
    noise of the others is not touched, as the hull with a vector apart is a sum of norms.
    """
    columns = np.asarray(measured_columns(basis, mechanism.query), np.float64)
    none = np.empty((0, columns.shape[1]), object)
    if not mechanism.neighbours.keeps_total or len(columns) == 1:
        return none
    left = columns.mean(axis=0)
    centred, whole = columns - left, float(np.linalg.norm(left))
    _, sizes, rows = np.linalg.svd(centred, full_matrices=False)
    span = rows[sizes > 1e-9 * sizes.max()]
    for _ in range(2):
        left = left - span.T @ (span @ left)
    length = float(np.linalg.norm(left))
    if len(span) == columns.shape[1] or length <= 1e-9 * whole:
        return none
    mean = float(np.linalg.norm(centred, axis=1).mean())
    return np.array([[int(x) for x in np.rint(FREE * mean / length * left)]], object)


def _cross(mechanism: KNorm) -> CrossPolytope:
    return CrossPolytope((Fraction(1),) * mechanism.query.size)


def _on_answers(mechanism: KNorm) -> KNorm | None:
    """The answers with noise of the cross-polytope of Δ₁: projected Laplace noise.

    The part of it that would move held values is taken out.
    """
    if getattr(mechanism.held, "empty", None) is not None:
        return None
    relation = mechanism.neighbours
    within = Fraction(mechanism.query.sensitivity(relation).l1) / relation.records
    return replace(mechanism, fit=Fit(norm_ball=_cross(mechanism), is_hull=False, within=within))


def _best(first: KNorm, *others: KNorm | None) -> KNorm:
    """The mechanism of least expected error; prices of others are relative to that of the first.

    Noise of a large budget is mostly zero on whole numbers, and never on a fine grid, so a ball
    around K may have less error than K itself.
    """
    base, fitted = first.expected_error().total, first.choice
    best, least = first, base
    for other in others:
        if other is not None and (error := other.expected_error().total) < least:
            price = replace(other.choice, price=fitted.price * error / base, bound=fitted.bound)
            best, least = replace(other, fit=price), error
    return best


def _grouped(mechanism: KNorm) -> Fit | None:
    """The norm ball of counts whose held totals are those of disjoint groups; None for others."""
    held, relation = mechanism.held, mechanism.neighbours
    if not mechanism.query.is_histogram or len(held.essential) != 1:
        return None
    sizes = HeldGroups.of(held).sizes
    if len(sizes) == 1 and relation.keeps_total:
        return Fit(norm_ball=Exchanges(mechanism.query.size), is_hull=True)
    norm_ball = Deviations(sizes)
    if relation.persons == 1:
        return Fit(norm_ball=norm_ball, is_hull=True)
    # Π(e_i − e_j) has a norm of at most 2. The hull of these holds every Π e_i, the mean of such
    # vectors over the j of another group, so that its volume is at least this norm ball's.
    least = least_spread(norm_ball.dimension, norm_ball.log_volume)
    return Fit(
        norm_ball=norm_ball,
        is_hull=False,
        within=Fraction(2),
        price=4 * norm_ball.spread() / least,
        bound=True,
    )


def measured_columns(basis: BasisStrategy, query: Query) -> ObjectArray:
    """What each kind of record adds to the measured integers, one per row, each once."""
    if query.contributions is None:
        raise ReleaseError(NO_COLUMNS)
    records = used_columns(query.contributions)
    largest = int(np.abs(basis.weights).sum(axis=1).max()) * int(abs(records).max())
    if largest < 2**62:
        rows = np.unique(np.asarray(basis.weights @ records).T, axis=0).tolist()
    else:
        from flint import fmpz_mat

        product = fmpz_mat(basis.weights.tolist()) * fmpz_mat(records.toarray().tolist())
        rows = sorted({tuple(map(int, row)) for row in zip(*product.tolist(), strict=True)})
    return np.array(rows, object)


def changes(basis: BasisStrategy, query: Query, relation: Neighbours) -> ObjectArray:
    """What one record's worth of change does to the measured integers, up to sign, as rows.

    Columns, and under replace-one their differences; columns beside these where one person may
    have no record.
    """
    columns = measured_columns(basis, query)
    if relation.persons == 1:
        return columns
    if len(columns) * (len(columns) - 1) // 2 > MOST_VECTORS:
        raise ReleaseError(
            f"{len(columns):,} kinds of records have too many pairs for this mechanism; use the "
            "projected mechanism."
        )
    first, second = np.triu_indices(len(columns), 1)
    pairs = columns[first] - columns[second]
    return pairs if relation.keeps_total else np.concatenate([pairs, columns])


def pure_epsilon(budget: Budget) -> Fraction:
    """ε of a pure budget, and no other."""
    if not budget.pure:
        raise BudgetError(
            "The k-norm mechanism is for pure budgets: use PureDP(...), or another mechanism."
        )
    return exact_decimal(budget.amount)


def cell_norm(norm_ball: NormBall) -> Fraction:
    """At least the norm of half a cell, in the norm ball and in its cover."""
    return max(norm_ball.half_cell, norm_ball.cover.half_cell)


@frozen
class KNormOptions(Options):
    """Noise in the shape of what one person can change; pure budgets.

    Parameters
    ----------
    exact
        Take noise of the sensitivity polytope itself, and refuse where it cannot be drawn exactly.
    """

    exact: bool = False

    mechanism: ClassVar[type[Mechanism]] = KNorm

    @classmethod
    def quick_for(cls, query: Query) -> bool:
        """A norm ball around what records do is fitted in about a second for small queries."""
        answers, columns = (
            (QUICK_CELLS, QUICK_CELLS) if query.is_histogram else (QUICK_ANSWERS, QUICK_COLUMNS)
        )
        kinds = query.record_kinds
        return kinds is not None and query.size <= answers and kinds <= columns

    def fit(self, problem: Problem) -> KNorm:
        """Of what can be drawn exactly, that of least expected error."""
        return with_norm_ball(KNorm(problem), exact=self.exact)
