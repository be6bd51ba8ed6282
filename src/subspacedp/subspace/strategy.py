"""What the extension framework measures: the answers' part in the null space, in integers.

Measuring Π_N A(x) instead of A(x) needs noise for Δ(Π_N A) only. Two ways to have integers:

- held margins: every entry of Π_N A(x) is a whole number over a public denominator, so the entry
  times its denominator is measured, and no basis is formed (`MarginStrategy`);
- any C: coordinates in an orthonormal basis of N, the basis itself put on a public grid
  (`BasisStrategy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.subspace.general import GeneralNullSpace
from subspacedp.subspace.margins import MarginNullSpace
from subspacedp.tables import Neighbours, Query, Sensitivity
from subspacedp.tables.queries import exact_product, matrix_sensitivity

__all__ = ["BasisStrategy", "MarginStrategy"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

LARGEST_BASIS = 2048
MOST_PAIR_TYPES = 1 << 20
MOST_DIFFERENCES = 1 << 28  # entries of differences of columns that are formed for Δ₁
HALF = 18  # bits of the lower half of a weight


@dataclass(frozen=True, eq=False, repr=False)
class MarginStrategy:
    """Π_N·answers for held margins, each entry in steps of one over its public denominator."""

    space: MarginNullSpace

    @cached_property
    def denominators(self) -> Int64Array:
        """The denominator of every cell, in the domain's shape."""
        self.distinct  # noqa: B018 - refuses what leaves 64 bits
        return np.broadcast_to(self.space.denominators, self.space.shape)

    @cached_property
    def distinct(self) -> Int64Array:
        """The denominators that occur, in ascending order; no array of all cells is made."""
        out = self.space.denominator_classes[0]
        if out.dtype == object:
            raise ReleaseError(
                "The held groups have sizes without a common multiple in 64 bits; use the "
                "projected mechanism."
            )
        return np.unique(out)

    def integers(self, answers: Int64Array) -> Int64Array:
        """Denominator · Π_N·answers, exactly."""
        inside = self.space.lift_exact(self.space.held.sums(answers)).rsub(answers)
        largest = int(np.abs(inside.whole).max(initial=0)) + 1
        if largest * int(self.distinct[-1]) >= 2**62:
            raise ReleaseError(
                "The counts times their denominators leave 64 bits; use the projected mechanism."
            )
        return np.asarray(inside.whole * self.denominators + inside.numerator, np.int64)

    def sensitivity(self, neighbours: Neighbours) -> Fraction:
        """Δ₂(Π_N A)² for counts: closed form for one record, a safe bound for several.

        One record: the largest ‖Π_N e_i‖² = Π_ii (add-remove), or ‖Π_N(e_i − e_j)‖² = Π_ii + Π_jj
        − 2Π_ij (replace-one). Several: ‖Π_N u‖ is at most ‖u‖, and at most the sum over records.
        """
        full = Fraction(neighbours.l2_squared)
        if neighbours.persons == 1:
            one = float(self.space.diagonal_of_classes.max())
        else:
            one = self._largest_pair(maybe_none=not neighbours.keeps_total)
        # Rounding error of a few sums of ratios: far below the part in 10¹² added here.
        return min(full, neighbours.records**2 * Fraction(one) * (1 + Fraction(1, 10**12)))

    def _largest_pair(self, *, maybe_none: bool) -> float:
        """The largest ‖Π_N(e_i − e_j)‖², over all kinds of pairs that sizes and levels allow.

        On each axis a pair is described by the sizes of both labels' groups and the finest level
        at which they share one. Not every such description need occur, so this is an upper bound.
        """
        axes = self.space.domain.axes
        steps = [sorted({k.steps[a] for k in self.space.held.expansion}) for a in range(len(axes))]
        kinds = [self._pair_kinds(a, steps[a]) for a in range(len(axes))]
        if int(np.prod([len(kind) for kind in kinds], dtype=float)) > MOST_PAIR_TYPES:
            return 2.0
        best = float(self.space.diagonal_of_classes.max()) if maybe_none else 0.0
        for pair in product(*kinds):
            first = second = shared = 0.0
            for k, a in self.space.held.expansion.items():
                one = two = 1.0
                together = True
                for axis, (size_i, size_j, level) in enumerate(pair):
                    one *= size_i[k.steps[axis]]
                    two *= size_j[k.steps[axis]]
                    together = together and level <= k.steps[axis]
                first += a / one
                second += a / two
                shared += a / one if together else 0.0
            same = all(level == 0 for _, _, level in pair)
            if not same:
                best = max(best, (1 - first) + (1 - second) + 2 * shared)
        return best

    def _pair_kinds(
        self, axis: int, steps: list[int]
    ) -> list[tuple[dict[int, int], dict[int, int], int]]:
        """(sizes of one, sizes of the other, finest shared step) for pairs of labels of an axis."""
        source = self.space.domain.axes[axis]
        levels = {s: source.step(s) for s in steps}
        rows = np.array([levels[s].sizes[levels[s].codes] for s in steps], np.int64)
        distinct = np.unique(rows.reshape(len(steps), len(source)), axis=1).T
        sizes = [dict(zip(steps, row.tolist(), strict=True)) for row in distinct]
        different = [
            (first, second, level)
            for i, first in enumerate(sizes)
            for second in sizes[: i + 1]
            for level in range(1, source.depth)
            # Two labels share a group of at least two, and the same sizes there and above.
            if int(source.step(level).sizes.max()) > 1
            and all(first[s] == second[s] for s in steps if s >= level)
        ]
        return [*((one, one, 0) for one in sizes), *different]


@dataclass(frozen=True, eq=False, repr=False)
class BasisStrategy:
    """Coordinates of the answers in a basis of N, the basis put on a public grid of 2**-bits.

    Guarantees
    ----------
    1. What is measured is `weights · answers` in exact integers; sensitivities are those of exactly
       these integers.
    2. Putting the basis on the grid moves no coordinate by more than 2**-(bits+1) times the sum of
       the answers' sizes: a public bound on the bias it causes.
    3. Reconstruction undoes the weights exactly on N, or on the part of it that records reach.

    Parameters
    ----------
    weights
        Whole numbers in units of 2**-bits, one row a coordinate. A basis, orthonormal or not, of
        N or of the part of N that records reach.
    drop
        How many binary places of the product are rounded off; the sensitivity counts this.
    reached
        An orthonormal basis of what records reach, as columns, where that is less than N.
    """

    space: MarginNullSpace | GeneralNullSpace
    weights: Int64Array  # (coordinates, answers)
    bits: int
    drop: int = 0
    reached: FloatArray | None = None

    def __post_init__(self) -> None:
        wanted = self.space.dimension if self.reached is None else self.reached.shape[1]
        if len(self.weights) != wanted:
            raise ReleaseError(
                f"A basis of {wanted} directions cannot have {len(self.weights)} rows; where "
                "answers or their importance differ by very many powers of ten, scale them."
            )

    @classmethod
    def from_basis(
        cls,
        space: MarginNullSpace | GeneralNullSpace,
        bits: int,
        basis: npt.ArrayLike | None = None,
    ) -> BasisStrategy:
        """The strategy of an orthonormal basis of N, by default any."""
        if space.size > LARGEST_BASIS:
            raise ReleaseError(
                f"This mechanism forms a basis, and {space.size:,} answers are more than "
                f"{LARGEST_BASIS:,}; use the projected mechanism."
            )
        columns = space.basis() if basis is None else np.asarray(basis, np.float64)
        if columns.shape != (space.size, space.dimension):
            raise InvariantError(
                f"A basis must have the shape {(space.size, space.dimension)}; got {columns.shape}."
            )
        inside = np.stack([space.project(c.reshape(space.shape)).reshape(-1) for c in columns.T])
        if not np.allclose(inside, columns.T, rtol=0, atol=1e-9) or not np.allclose(
            columns.T @ columns, np.eye(space.dimension), rtol=0, atol=1e-9
        ):
            raise InvariantError(
                "The basis must be orthonormal and lie in the null space of the invariants."
            )
        return cls(space, np.rint(columns.T * 2.0**bits).astype(np.int64), bits)

    @classmethod
    def from_rows(
        cls,
        space: MarginNullSpace | GeneralNullSpace,
        rows: FloatArray,
        bits: int,
        reached: FloatArray | None = None,
    ) -> BasisStrategy:
        """The strategy of any basis of N, or of what records reach in it, scaled to entries ≤ 1."""
        if space.size > LARGEST_BASIS:
            raise ReleaseError(
                f"This mechanism forms a basis, and {space.size:,} answers are more than "
                f"{LARGEST_BASIS:,}; use the projected mechanism."
            )
        scaled = rows * (2.0**bits / float(np.abs(rows).max()))
        part = reached if len(rows) < space.dimension else None
        return cls(space, np.rint(scaled).astype(np.int64), bits, reached=part)

    @property
    def step(self) -> Fraction:
        """One unit of the measured integers, in units of the answers."""
        return Fraction(2) ** (self.drop - self.bits)

    def integers(self, answers: Int64Array) -> Int64Array:
        """Weights · answers, exactly; then rounded to steps of 2**drop."""
        from scipy.sparse import csr_array

        if not self.drop:
            return exact_product(csr_array(self.weights), answers.reshape(-1))
        # Python's integers: before the last places are dropped, 64 bits may not be enough.
        whole = self.weights.astype(object) @ answers.reshape(-1).astype(object)
        rounded = (whole + (1 << (self.drop - 1))) >> self.drop
        if max(map(abs, rounded.tolist()), default=0) >= 2**62:
            raise ReleaseError("The answers are too large for 64 bits; scale the query down.")
        return np.asarray(rounded, np.int64)

    def coordinates(self, inside: FloatArray) -> FloatArray:
        """The measured numbers that belong to answers inside N, as real numbers."""
        flat: Any = inside.reshape(-1)
        return np.asarray(self.weights.astype(np.float64) @ flat * 2.0**-self.drop)

    def sensitivity(self, query: Query, neighbours: Neighbours) -> Sensitivity:
        """Of exactly the integers measured; from the declared one for a black box."""
        found = self._sensitivity(query, neighbours)
        if not self.drop:
            return found
        # |round(a) − round(b)| ≤ |a − b| + 1 in every coordinate, so Δ₂ grows by √k and Δ₁ by k.
        k = len(self.weights)
        l2 = _root_up(found.l2_squared) / 2**self.drop + _root_up(Fraction(k))
        return Sensitivity(found.l1 / 2**self.drop + k, l2 * l2)

    def _sensitivity(self, query: Query, neighbours: Neighbours) -> Sensitivity:
        from scipy.sparse import csr_array

        if query.contributions is not None:
            records = query.contributions
            largest = int(np.abs(self.weights).sum(axis=1).max()) * int(abs(records).max())
            if largest < 2**62:
                return matrix_sensitivity(
                    csr_array(self.weights @ records), neighbours, most=MOST_DIFFERENCES
                )
            # In two halves, each an exact product of 64-bit integers, then as float64.
            low = self.weights & (2**HALF - 1)
            halves = [(self.weights - low) >> HALF, low]
            if (
                max(int(np.abs(h).sum(axis=1).max()) for h in halves) * int(abs(records).max())
                >= 2**62
            ):
                raise ReleaseError("The query's entries are too large for this mechanism.")
            high, rest = (np.asarray(h @ records).astype(np.float64) for h in halves)
            size = float(np.abs(high).max()) * 2.0**HALF + float(np.abs(rest).max())
            return matrix_sensitivity(
                csr_array(high * 2.0**HALF + rest), neighbours, size * 2.0**-51, MOST_DIFFERENCES
            )
        known = query.sensitivity(neighbours)
        # ‖W v‖₂ ≤ ‖W‖_F-safe norm · ‖v‖₂, and ‖·‖₁ ≤ √k ‖·‖₂ in k dimensions.
        k, n = self.weights.shape
        norm = Fraction(2**self.bits + k * n)
        squared = norm * norm * known.l2_squared
        return Sensitivity(_root_up(k * squared), squared)

    @cached_property
    def back(self) -> FloatArray:
        """From measured coordinates (in units of 1) to answers: a basis of N again."""
        rows = self.weights * 2.0**-self.bits
        inside = self.reached
        if inside is None:
            shape = self.space.shape
            inside = np.stack([self.space.project(r.reshape(shape)).reshape(-1) for r in rows], 1)
        # Undo what putting the basis on the grid did inside N, so that it causes no bias there.
        return np.asarray(inside @ np.linalg.inv(rows @ inside), np.float64)

    def bias_bound(self, total: float) -> float:
        """The most that the grid can move a coordinate, for answers whose sizes add up to this."""
        return total * 2.0 ** -(self.bits + 1)

    def as_dict(self) -> dict[str, Any]:
        """The integers that define what is measured."""
        drop = {"drop": self.drop} if self.drop else {}
        return {"bits": self.bits, **drop, "weights": self.weights.tolist()}


def _root_up(value: Fraction) -> Fraction:
    from subspacedp.balls import ball, round_up

    return Fraction(round_up(lambda: ball(value).sqrt()))
