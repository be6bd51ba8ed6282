"""Measure, then reconstruct: the shape of every mechanism, and what a fitted one knows of itself.

`add_noise` alone touches confidential answers and secret randomness, and it alone carries the proof
of privacy. `reconstruct` receives the noisy integers, the held totals and public words for
rounding; it has no way to see the table or the noise.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.balls import ball, round_up
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import (
    FreeContrasts,
    HeldMargins,
    HeldMatrix,
    HeldValues,
    NullSpace,
    space_of,
)
from subspacedp.mechanisms.block_view import BlockView, OnePiece, check_filled
from subspacedp.mechanisms.error_laws import JointNoise, NoiseModel
from subspacedp.mechanisms.estimates import Accuracy
from subspacedp.mechanisms.figures import (
    Figures,
    checked_weights,
    kept_shape,
    level_names,
    margin_names,
    rows_apart,
)
from subspacedp.mechanisms.optimality import Optimality, optimality
from subspacedp.noise import (
    DeclaredNoise,
    DiscreteLaplace,
    Keystream,
    KnownLaw,
    ReleaseKeys,
    RoundedGaussian,
)
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.problem import Guarantee, Problem, kind_of
from subspacedp.queries import Query, Sensitivity
from subspacedp.rounding import ControlledRounding, rounding_of
from subspacedp.tables import Domain, Margin

if TYPE_CHECKING:
    from subspacedp.mechanisms.knorm.law import KNormLaw

# Sums of noise of this scale over any table leave 64 bits with probability below exp(−2**13).
LARGEST_SCALE = 2.0**40
# Below it all noise is zero for all practical purposes, and a claim of privacy would mislead.
SMALLEST_SCALE = 0.001
# Real values are rounded to float64: up to here by a thousandth of a unit, or of the noise.
REAL_LIMIT = 2**43
# Steps of published decimals must be told apart by float64, with room for a check to recompute.
STEP_LIMIT = 2**51


@frozen(eq=False)
class ExpectedError:
    """Mean squared error, from the mechanism alone; rounding of digits included.

    Under controlled rounding the rounding part is a proven upper bound, close for noise that
    spreads over several whole numbers (docs/proofs/digits.md).
    """

    total: float
    per_cell: FloatArray

    def __repr__(self) -> str:
        return f"ExpectedError(total={self.total:.6g}, {self.per_cell.size:,} cells)"


def calibrated_law(budget: Budget, sensitivity: Sensitivity | Neighbours) -> KnownLaw:
    """The noise on integer answers that a budget buys, on the safe side.

    Pure budgets buy discrete Laplace noise of rate exactly ε/Δ₁; the others rounded Gaussian noise
    with σ = Δ₂/μ rounded up, μ the largest that the budget allows. A neighbour relation stands for
    the sensitivity it gives to counts.
    """
    check_moved(sensitivity)
    if budget.pure:
        return DiscreteLaplace(exact_decimal(budget.amount) / Fraction(sensitivity.l1))
    mu, squared = budget.gaussian_mu, Fraction(sensitivity.l2_squared)
    return RoundedGaussian(round_up(lambda: ball(squared).sqrt() / ball(mu)))


def check_scales(smallest: float, largest: float, *, unit: str = "", remedy: str = "") -> None:
    """Refuse noise that is too wide to be drawn, or too narrow to protect."""
    if largest > LARGEST_SCALE:
        raise BudgetError(
            "The budget is too small for counts in 64 bits: the noise would have a scale of "
            f"{largest:.3g}{unit}, and at most 2**40 is possible{remedy}.",
            scale=largest,
        )
    if smallest < SMALLEST_SCALE:
        raise BudgetError(
            f"The budget is so large that no noise would be left: a scale of {smallest:.3g}, "
            f"where at least {SMALLEST_SCALE:g} is asked for.",
            scale=smallest,
        )


def check_moved(sensitivity: Sensitivity | Neighbours) -> None:
    """Refuse a measurement that no person can change."""
    if sensitivity.l1 == 0 or sensitivity.l2_squared == 0:
        raise BudgetError(
            "No person can change what would be measured: there is nothing to protect by noise."
        )


class Options(ABC):
    """How a mechanism is asked for: `design(..., mechanism=Optimal(importance=w))`."""

    mechanism: ClassVar[type[Mechanism]]

    @abstractmethod
    def fit(self, problem: Problem) -> Mechanism:
        """The mechanism for a problem: scales, shares, norm balls are chosen here; no data."""

    @classmethod
    def quick_for(cls, query: Query) -> bool:
        """Whether fitting takes seconds at most, so that "auto" looks at it."""
        return not cls.mechanism.for_workloads

    def importance_of(self, query: Query) -> FloatArray | None:
        """What the squared error of every answer counts for; None for one each."""
        del query
        return None


@frozen(eq=False, repr=False)
class Mechanism(ABC):
    """How a problem is solved: what is measured, with which noise, and what is made of it.

    All fields are public; confidential data, keys and draws are arguments.

    Guarantees
    ----------
    1. The release is reconstruct(add_noise(answers), held values, words): the data enter through
       these two arguments and nowhere else.
    2. C·release = c exactly.
    3. `from_dict` gives back what `as_dict` wrote, and re-checks what privacy rests on.
    """

    problem: Problem

    name: ClassVar[str] = ""
    laws: ClassVar[tuple[type[KnownLaw | KNormLaw | DeclaredNoise], ...]] = (
        DiscreteLaplace,
        RoundedGaussian,
    )  # those that a certificate may state
    proofs: ClassVar[tuple[str, ...]] = ()
    keys_in_files: ClassVar[tuple[str, ...]] = ()  # what it states beside the problem
    for_workloads: ClassVar[bool] = False  # whether it answers several margins at once
    offers_decimals: ClassVar[bool] = False  # whether it offers controlled rounding
    measures_counts: ClassVar[bool] = False  # noise on every answer itself: cell by cell, in blocks
    linear: ClassVar[bool] = True  # `integers` of parts add up to those of the whole: for agents
    fitted_at_once: ClassVar[bool] = False  # there is nothing to optimise
    # Whether nothing is known of its privacy but what the budget says: it is then composed by that
    # alone, and not as Gaussian noise of which the whole trade-off is known.
    only_stated: ClassVar[bool] = False

    # ------------------------------------------------------------------ what is asked

    @property
    def measured_beside(self) -> tuple[tuple[str, ...], ...]:
        """The levels of tables that are measured and not published: the data must tell them."""
        return ()

    @property
    def designed_for(self) -> tuple[Margin, ...]:
        """The tables that noise was designed for, where it weighs several against each other."""
        return ()

    @property
    def query(self) -> Query:
        """What is asked."""
        return self.problem.query

    @property
    def held(self) -> HeldMargins | HeldMatrix:
        """The invariants."""
        return self.problem.held

    @property
    def budget(self) -> Budget:
        """What is promised."""
        return self.problem.budget

    @property
    def neighbours(self) -> Neighbours:
        """For which change of the data."""
        return self.problem.neighbours

    @property
    def decimals(self) -> int | None:
        """Published digits after the point; None for real values."""
        return self.problem.decimals

    @property
    def capped(self) -> bool:
        """Whether held values count all records while noise protects a bounded table."""
        return self.problem.capped

    @property
    def domain(self) -> Domain:
        """The axes of the answers."""
        return self.problem.domain

    @property
    def space(self) -> FreeContrasts:
        """What the invariants leave open."""
        return self.problem.space

    @property
    def null_space(self) -> NullSpace:
        """The null space of the invariants, in the shape of the answers; a workload has none."""
        return space_of(self.held)

    def for_problem(self, **changes: Any) -> Self:
        """The same mechanism for a problem that differs in these; nothing is fitted anew."""
        return replace(self, problem=replace(self.problem, **changes))

    def protects(self, larger: Neighbours) -> bool:
        """Whether the noise is enough for the changes of a larger relation too."""
        needed, stated = self.for_problem(neighbours=larger).sensitivity, self.sensitivity
        return needed.l1 <= stated.l1 and needed.l2_squared <= stated.l2_squared

    # ------------------------------------------------------------------ facts

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Of the numbers that are measured, in units of `unit`."""
        return self.query.sensitivity(self.neighbours)

    @cached_property
    def law(self) -> Any:
        """The law of the noise on every number that is measured, in units of `unit`."""
        return calibrated_law(self.budget, self.sensitivity)

    @property
    def stated_law(self) -> Any:
        """What the certificate says of the noise: has `as_dict()`."""
        return self.law

    @property
    def unit(self) -> Fraction:
        """One unit of the integer noise."""
        return self.query.grid

    @cached_property
    def rounding(self) -> ControlledRounding | None:
        """How published digits are made to add up; None for a real-valued release."""
        # Records beyond the bound are in the held values, and shift what is rounded.
        return rounding_of(self.held, self.decimals, unit_variance=1 / 4 if self.capped else 1 / 6)

    @cached_property
    def noise(self) -> JointNoise:
        """The joint law of release minus truth."""
        return NoiseModel.on(self.held, self.law, float(self.unit), self.rounding)

    def noise_before_rounding(self) -> JointNoise:
        """The law of release minus truth before digits are rounded, for which there are bounds."""
        return self.noise if self.decimals is None else self.for_problem(decimals=None).noise

    @property
    def conditional(self) -> str:
        """Why real values too are protected only given what is held; empty where they are not."""
        return ""

    @cached_property
    def guarantee(self) -> Guarantee:
        """The strongest guarantee that holds."""
        rounded = self.rounding is not None and self.rounding.needed
        because = self.conditional
        return Guarantee(
            kind=kind_of(
                # A person's records beyond the bound are in the held values all the same.
                fixed=self.held.fixed_by(self.neighbours)
                and (not self.capped or self.space.rank == 0),
                rounded=rounded or bool(because),
            ),
            because="published values are rounded to add up" if rounded else because,
            budget=self.budget,
            neighbours=self.neighbours,
            space=self.space,
            from_data_axes=self.query.axes.from_data_axes if self.query.axes else (),
            capped=self.capped,
            entries=self.query.entry_range,
        )

    # ------------------------------------------------------------------ words for certificates

    @property
    @abstractmethod
    def measured(self) -> str:
        """What gets noise, in words."""

    @property
    def proof(self) -> str:
        """The note in docs/proofs that proves the privacy of the measurement."""
        return self.proofs[0]

    @property
    def uses_quantile(self) -> bool:
        """Whether draws rest on the stated bound of a float64 quantile (large Gaussian noise)."""
        return bool(self.law.float_quantile)

    @property
    def declared(self) -> Any:
        """The noise that another mechanism declared; None for noise of our own."""
        return None

    @property
    def exact_rationals(self) -> bool:
        """Whether real values are whole numbers over public denominators until they are written."""
        return self.held.family is not None

    @property
    def proven_optimality(self) -> Optimality | None:
        """How near the error is to the least possible, where the mechanism itself proves it."""
        return None

    @property
    def stated_optimality(self) -> Optimality | None:
        """What certificates say of how near the error is to the least possible."""
        return self.proven_optimality

    @property
    def rounds_products(self) -> bool:
        """Whether places of what is measured are rounded off, so that parts do not add up."""
        return False

    def without_rounded_products(self) -> Mechanism:
        """The same on a grid so coarse that no place is rounded off, where that can be."""
        return self

    # ------------------------------------------------------------------ errors

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

    def gap_in_words(self, bound: float = 0.0) -> str:
        """How near the error is to the least possible, also by a bound that another proved."""
        optimality = self.optimality()
        return str(replace(optimality, bound=max(optimality.bound, bound)))

    def cell_figures(self) -> Figures:
        """Every answer."""
        return self.noise.cell_figures(self.query.shape)

    def margin_figures(self, margin: Margin) -> Figures:
        """The total of every group of a margin."""
        return self.noise.figures_of(margin)

    def accuracy(self, weights: ArrayLike | None = None) -> Accuracy:
        """Standard errors and margins of error of every answer, or of weighted sums of answers."""
        if weights is None:
            return Accuracy(
                figures=self.cell_figures(), held=str(self.held), labels=self.query.columns
            )
        w = checked_weights(weights, self.query.shape)
        single = w.shape == self.query.shape
        rows = w[None] if single else w
        figures = rows_apart(self.noise, rows, () if single else (len(rows),))
        return Accuracy(figures=figures, held=str(self.held))

    def margin_accuracy(self, *names: str) -> Accuracy:
        """Standard errors and margins of error of the totals of a margin's groups."""
        margin = self.domain.margin(*level_names(names))
        return Accuracy(
            figures=self.margin_figures(margin),
            held=str(self.held),
            labels=partial(margin_names, margin),
            shape=kept_shape(margin),
        )

    # ------------------------------------------------------------------ what a release tells

    @property
    def law_of_answers(self) -> KnownLaw | None:
        """The law of independent noise on every answer itself; None where others are measured."""
        return None

    def coordinates(self, values: FloatArray, exact: HeldValues) -> FloatArray | None:
        """What was measured, from a release in units of the grid, but for the rounding of float64.

        None where several measurements give the same release.
        """
        del values, exact
        return None

    def whole_coordinates(self, answers: Int64Array) -> Int64Array:
        """What would be measured of answers without noise, in the order of `coordinates`."""
        return self.integers(answers)

    def log_probability(self, noise: Int64Array) -> float:
        """The log-probability of the noise on all that is measured; here independent."""
        return math.fsum(self.law.log_mass(noise).reshape(-1).tolist())

    def probability_in_words(self, recovered: bool) -> tuple[bool, str]:
        """Whether `log_probability` of recovered noise is exact, and what it is, in words."""
        how = "exact probability" if recovered else "probability"
        rounded = "" if recovered else ", which float64 carries to within a few steps of their grid"
        family = self.law.as_dict()["family"]
        return recovered, (
            f"the {how} of the measured coordinates{rounded}: the product of the {family} law at "
            "coordinates minus those of the truth"
        )

    # ------------------------------------------------------------------ measure, reconstruct

    def integers(self, answers: Int64Array) -> Int64Array:
        """What is measured of confidential answers, without noise; here the answers themselves.

        For mechanisms that agents carry out together it is linear: `add_noise` of answers is this
        plus `add_noise` of zeros.
        """
        return answers

    @abstractmethod
    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """The differentially private measurement of confidential answers: integers."""

    @abstractmethod
    def reconstruct(
        self, noisy: Int64Array, exact: HeldValues, dither: Keystream, *, overwrite: bool = False
    ) -> AnyArray:
        """The release from the measurement and the held totals.

        With `overwrite` it may take the memory of `noisy`, whose content is then lost.
        """

    def blocks(self) -> BlockView:
        """How the mechanism is carried out piece by piece; here as one piece."""
        return OnePiece(self)

    def without_noise(self, answers: Int64Array, exact: HeldValues) -> FloatArray:
        """What would be released without noise and rounding: confidential, as the answers are.

        answers + C⁺(c − C·answers): the answers, moved to agree with held totals that count more.
        """
        residual = self.held.residual(answers, exact)
        return np.asarray(self.null_space.subtract_lift(answers, residual))

    def nothing(self) -> Int64Array:
        """What `check` returns of an empty table: zeros."""
        return np.zeros(self.query.shape, np.int64)

    def check(self, data: Any, *, everything: Any = None) -> tuple[Int64Array, Int64Array]:
        """Refuse what cannot be released, before any noise is drawn.

        Returns the confidential answers that are measured, and those that held values come from.
        """
        if (everything is not None) != self.capped:
            raise ReleaseError(
                "A design with capped=True takes the bounded table and `everything`, the table of "
                "all records; other designs take one table."
            )
        answers = self.answers(data)
        full = answers if everything is None else self.answers(everything)
        for table in (answers,) if full is answers else (answers, full):
            if self.held.empty is not None:
                check_filled(int(np.count_nonzero(table[self.held.empty])))
            self.check_size(table)
        if self.problem.inequalities is not None:
            self.check_held(self.held.sums(full))
        return answers, full

    def check_held(self, exact: HeldValues, *published: Margin) -> None:
        """Refuse held values that contradict the declared inequalities.

        Of the data they depend on the held values alone, which are published exactly.
        """
        known = self.problem.inequalities
        if known is not None:
            known.given(self.query, self.held, exact, capped=self.capped).check(*published)

    def answers(self, data: Any) -> Int64Array:
        """The confidential answers that are measured."""
        return self.query.answers(data)

    def measure(self, data: Any, keys: ReleaseKeys) -> Int64Array:
        """The differentially private measurement of data: integers, noise included."""
        return self.add_noise(self.answers(data), keys)

    def check_size(self, answers: Int64Array) -> None:
        """Refuse answers whose release float64 could not carry, before any noise is drawn.

        A refusal after the noise was drawn would invite another try, and the release that comes
        through would no longer have the stated law.
        """
        decimals, grid = self.decimals, self.query.grid
        if decimals == 0:
            return  # whole numbers are not carried by float64
        scale = self.law.scale * float(self.unit / grid)  # in units of answers
        largest = max(abs(int(answers.min())), abs(int(answers.max())))
        if decimals is None and grid == 1 and largest >= REAL_LIMIT:
            raise ReleaseError(
                "The counts are too large to publish as real numbers in float64, beyond 2**43; "
                "ask for decimals=0."
            )
        if decimals is None and largest >= REAL_LIMIT * max(1.0, scale):
            raise ReleaseError(
                "The answers are too large to publish as real numbers in float64; scale the query "
                "down."
            )
        if decimals and (largest + 64 * scale) * 10**decimals >= STEP_LIMIT:
            raise ReleaseError(
                f"The counts are too large to carry {decimals} decimals in float64; ask for fewer."
            )

    def check_total(self, most: int) -> None:  # noqa: B027 - most have no such limit
        """Refuse a largest total that could not be carried."""

    # ------------------------------------------------------------------ plain data

    def fitted(self) -> dict[str, Any]:
        """What the mechanism states beside the problem, by `keys_in_files`."""
        return {}

    def as_dict(self) -> dict[str, Any]:
        """The mechanism with its problem as plain data: enough to rebuild it."""
        return {**self._but_query(), "query": self.query.as_dict()}

    def _but_query(self) -> dict[str, Any]:
        return {
            "mechanism": self.name,
            **self.problem.as_dict(),
            **self.fitted(),
            **({"capped": True} if self.capped else {}),
        }

    @classmethod
    def from_dict(cls, problem: Problem, data: Mapping[str, Any]) -> Self:
        """From plain data, with every rule that privacy rests on checked."""
        del data
        return cls(problem)

    @cached_property
    def context(self) -> bytes:
        """A digest that binds random words to this mechanism, budget and order of answers."""
        data = {**self._but_query(), "query": self.problem.query_in_keys()}
        text = json.dumps(data, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).digest()

    @property
    def can_round(self) -> bool:
        """Whether the mechanism can publish values that add up for its problem."""
        return False

    def __repr__(self) -> str:
        return f"{self.name} mechanism on {self.problem!r}"
