"""The projected Laplace and Gaussian mechanisms (the paper's Corollaries 17 and 14).

release = noisy − lift(C·noisy − c), which equals A(x) + Π_N(noise), computed from integers.

Its discrete twin has the law of OpenDP and of the United States Census Bureau: the normal density
on the whole numbers, where the projected mechanism rounds a normal variable to them. Reconstruction
is the same; law and calibration are its own.
"""

from __future__ import annotations

import threading
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, Int64Array
from subspacedp.errors import BudgetError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues, MarginNullSpace
from subspacedp.mechanisms.base import Mechanism, Options, check_moved
from subspacedp.mechanisms.block_view import BlockView, OnePiece, no_totals, split_totals
from subspacedp.noise import (
    CellNoise,
    DiscreteGaussian,
    KeySource,
    Keystream,
    KnownLaw,
    ReleaseKeys,
    add_noise,
)
from subspacedp.parallel import compiled
from subspacedp.privacy import ZCDP
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.problem import Problem
from subspacedp.rounding import ControlledRounding, MarginRounding
from subspacedp.tables import RowPlan
from subspacedp.tables.domain import Box

if TYPE_CHECKING:
    from subspacedp.invariants.margin_space import LiftParts
    from subspacedp.rounding.rows import RowRounding


PIECE = 1 << 20  # cells for which memory is had when noise is only summed
CACHE = 1 << 16  # cells that stay in a core's cache from one step to the next


@frozen(eq=False, repr=False)
class Projected(Mechanism):
    """Integer noise on every count; the part of it that would move a held total is taken out.

    Guarantees
    ----------
    1. The measurement counts + noise is private with its budget over all neighbours
       (docs/proofs/projected-laplace.md, docs/proofs/projected-gaussian.md).
    2. Real-valued: noisy − lift(C·noisy − c), whole parts in integers and fractions in float64:
       within a few units in the last place of 1 + |value| of the exact rational.
    3. With decimals: whole numbers of steps whose group sums equal the held totals as integers.
    4. Unbiased, with its noise model.
    """

    name: ClassVar[str] = "projected"
    offers_decimals: ClassVar[bool] = True
    measures_counts: ClassVar[bool] = True
    fitted_at_once: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = (
        "projected-laplace.md",
        "projected-gaussian.md",
        "guarantees.md",
        "digits.md",
    )

    @property
    def proof(self) -> str:
        """By the law of the noise."""
        return self.proofs[0] if self.budget.pure else self.proofs[1]

    @property
    def measured(self) -> str:
        """What gets noise, in words."""
        return "every answer, independently, before projection onto the null space"

    @property
    def law_of_answers(self) -> KnownLaw:
        """Every answer has its own noise."""
        law: KnownLaw = self.law
        return law

    @property
    def can_round(self) -> bool:
        """Whole answers can be rounded to add up."""
        return self.query.grid == 1

    def check_size(self, answers: Int64Array) -> None:
        """Refuse totals of all records, too, that the bounded ones could not be moved to."""
        super().check_size(answers)
        if self.capped:
            self.check_total(int(np.abs(answers).sum()))

    def check_total(self, most: int) -> None:
        """Refuse a largest total before any noise is drawn."""
        if self.capped and self.rounding is not None:
            self.rounding.check_total(most)

    def add_noise(self, answers: Int64Array, keys: ReleaseKeys) -> Int64Array:
        """Answers plus independent integer noise, modulo 2**64."""
        noisy = np.empty(answers.shape, np.int64)
        add_noise(self.law, keys, 0, answers.reshape(-1), noisy.reshape(-1))
        if self.held.empty is not None:
            noisy[self.held.empty] = 0  # publicly known: no noise is needed there
        return noisy

    def reconstruct(
        self, noisy: Int64Array, exact: HeldValues, dither: Keystream, *, overwrite: bool = False
    ) -> AnyArray:
        """`noisy - lift(C·noisy - c)`, as rationals rounded once or by controlled rounding."""
        residual = self.held.residual(noisy, exact)
        rounding, grid = self.rounding, float(self.query.grid)
        if rounding is None:
            real = self.null_space.subtract_lift(noisy, residual, overwrite=overwrite)
            return real if grid == 1.0 else real * grid
        workspace = noisy if overwrite else noisy.copy()
        steps = rounding.round_in_place(workspace, residual, dither)
        return steps if rounding.decimals == 0 else steps / rounding.step

    def blocks(self) -> BlockView:
        """Piece by piece where margins of the cells are held; small tables are one piece."""
        divisible = self.query.is_histogram and self.held.family is not None
        return ProjectedBlocks(self) if divisible and compiled(self.query.size) else OnePiece(self)


class ProjectedBlocks(BlockView):
    """The projected mechanism piece by piece: pieces share the residual C·noisy − c alone.

    Without a contribution bound c = C·counts, so the residual is C·noise: the first pass draws the
    noise, sums it up and forgets it, and no data are read.
    """

    mechanism: Projected

    @property
    def reads_first(self) -> bool:
        """With a contribution bound c counts records that are not measured."""
        return self.mechanism.capped

    def first(
        self, keys: KeySource, box: Box, counts: Int64Array | None, total: Any = None
    ) -> Int64Array:
        """C·noise of a piece, or C·noisy where c is of another table; modulo 2**64."""
        held = self._margins
        out: Int64Array = no_totals(held) if total is None else total
        if not held.margins:
            return out
        noise = CellNoise(self.mechanism.law, keys)
        buffer = _room(min(PIECE, box.size))
        done = 0
        for part in box.split(PIECE):
            starts, _ = part.runs(self.mechanism.query.shape)
            plan, noisy = RowPlan(held.margins, part), buffer[: part.size]
            for run in plan.ranges(CACHE):  # each still in the cache when it is summed
                at, stop = _cells_of(plan, run)
                base = _zeros(stop - at) if counts is None else counts[done + at : done + stop]
                noise.add(starts + at, stop - at, base, noisy[at:stop])
                plan.add_sums(noisy, out, run)
            done += part.size
        return out

    def shared(self, total: Int64Array, keys: KeySource, exact: HeldValues) -> Correction:
        """The tables of the correction, from the residual."""
        del keys
        residual = split_totals(self._margins, total)
        if self.reads_first:
            residual = tuple(r - c for r, c in zip(residual, exact, strict=True))
        return Correction.of(self.mechanism, residual)

    def values(self, shared: Correction, keys: KeySource, box: Box, counts: Int64Array) -> AnyArray:
        """Noisy − lift(residual), in the memory of the counts."""
        starts, length = box.runs(self.mechanism.query.shape)
        CellNoise(self.mechanism.law, keys).add(starts, length, counts, counts)
        return shared.subtract(counts, box, keys.stream("dither"))


@frozen(eq=False, repr=False)
class Correction:
    """lift(residual), or the rounded one, for any box of cells.

    Guarantees
    ----------
    1. The same numbers as those of `Projected.reconstruct` for the whole table, bit for bit.
    """

    space: MarginNullSpace
    controlled: ControlledRounding | None
    parts: LiftParts | None  # of the lift, group by group
    rows: RowRounding | None  # where values have to be rounded

    @classmethod
    def of(cls, mechanism: Projected, residual: HeldValues) -> Correction:
        """From the residual, in exact integers."""
        from subspacedp.rounding.rows import RowRounding

        family, controlled = mechanism.held.family, mechanism.rounding
        if family is None or not isinstance(controlled, MarginRounding | None):
            raise ReleaseError("This design holds more than margins.")
        space = family.cell_space
        if not family.margins:
            return cls(space, controlled, None, None)
        if controlled is None:
            return cls(space, controlled, space.lift_parts(residual), None)
        scaled = controlled.scaled(residual)
        if controlled.needed:
            return cls(space, controlled, None, RowRounding(controlled, scaled))
        return cls(space, controlled, space.lift_parts(scaled), None)

    def subtract(self, noisy: Int64Array, box: Box, dither: Keystream) -> AnyArray:
        """Released values of a box, flat, in the memory of its noisy counts."""
        if self.controlled is None:
            if self.parts is None:
                return noisy.astype(np.float64)
            return self.space.subtract_parts(noisy, self.parts, box).reshape(-1)
        if self.rows is not None:
            self.rows.run_box(noisy, box, dither)
        else:
            noisy *= self.controlled.step
            if self.parts is not None:
                self.space.subtract_whole(noisy, self.parts, box)
        if self.controlled.decimals == 0:
            return noisy
        return np.divide(noisy, self.controlled.step, out=noisy.view(np.float64))


def _cells_of(plan: RowPlan, run: tuple[int, int, int, int]) -> tuple[int, int]:
    """Where a range of rows, or of places in a row, begins and ends among the cells of a box."""
    first, last, lo, hi = run
    return first * plan.row + lo, (last - 1) * plan.row + hi


_KEPT = threading.local()


def _room(size: int) -> Int64Array:
    """Memory of this thread, kept for its next box: fresh memory costs as much as the sums."""
    if getattr(_KEPT, "room", np.empty(0)).size < size:
        _KEPT.room = np.empty(size, np.int64)
    return _KEPT.room[:size]  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def _zeros(size: int) -> Int64Array:
    out = np.zeros(size, np.int64)
    out.setflags(write=False)
    return out


@frozen
class ProjectedOptions(Options):
    """Noise on every answer, projected onto the null space of the invariants."""

    mechanism: ClassVar[type[Mechanism]] = Projected

    def fit(self, problem: Problem) -> Projected:
        """There is nothing to choose."""
        return Projected(problem)


@frozen(eq=False, repr=False)
class Discrete(Projected):
    """Discrete Gaussian noise on every answer; what would move a held total is taken out.

    Guarantees
    ----------
    1. The measurement answers + noise is ρ-zero-concentrated private over all neighbours, with
       σ² = Δ₂²/(2ρ) as a fraction (docs/proofs/discrete-gaussian.md). Nothing more is claimed: it
       is composed by ρ, and not as Gaussian noise.
    2. The variance of the noise is at most σ², where rounded Gaussian noise has about σ² + 1/12.
    3. All else as for the projected mechanism.
    """

    name: ClassVar[str] = "discrete"
    laws: ClassVar[tuple[type[DiscreteGaussian], ...]] = (DiscreteGaussian,)
    only_stated: ClassVar[bool] = True
    proofs: ClassVar[tuple[str, ...]] = ("discrete-gaussian.md", "guarantees.md", "digits.md")

    @property
    def proof(self) -> str:
        """That of the discrete Gaussian law."""
        return self.proofs[0]

    @cached_property
    def law(self) -> DiscreteGaussian:
        """σ² = Δ₂²/(2ρ), without any rounding."""
        check_moved(self.sensitivity)
        if not isinstance(self.budget, ZCDP):
            raise BudgetError(
                f"The {self.name} mechanism is proven private for zero-concentrated budgets; give "
                f"ZCDP(rho), or take the {Projected.name} mechanism."
            )
        rho = exact_decimal(self.budget.rho)
        sigma_squared = Fraction(self.sensitivity.l2_squared) / (2 * rho)
        if sigma_squared > DiscreteGaussian.LARGEST:
            raise BudgetError(
                f"The {self.name} mechanism draws noise with a sigma of at most "
                f"{float(DiscreteGaussian.LARGEST) ** 0.5:,.0f}, and {self.budget} asks for "
                f"{float(sigma_squared) ** 0.5:,.4g}; take the {Projected.name} mechanism, whose "
                "error is then the same to six digits."
            )
        return DiscreteGaussian(sigma_squared)


@frozen
class DiscreteOptions(Options):
    """Discrete Gaussian noise on every answer, for a zero-concentrated budget."""

    mechanism: ClassVar[type[Mechanism]] = Discrete

    def fit(self, problem: Problem) -> Discrete:
        """There is nothing to choose."""
        return Discrete(problem)
