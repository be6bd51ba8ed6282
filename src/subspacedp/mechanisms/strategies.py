"""What the extension framework measures: the answers' part in the null space, in integers.

Measuring Π_N A(x) instead of A(x) needs noise for Δ(Π_N A) only. Two ways to have integers:

- held margins: every entry of Π_N A(x) is a whole number over a public denominator, so the entry
  times its denominator is measured, and no basis is formed (`MarginStrategy`);
- any C: coordinates in an orthonormal basis of N, the basis itself put on a public grid
  (`BasisStrategy`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants.margin_space import MarginNullSpace
from subspacedp.invariants.null_space import NullSpace
from subspacedp.privacy import Neighbours
from subspacedp.queries import Query, Sensitivity
from subspacedp.queries.linear import exact_product, matrix_sensitivity, used_columns

LARGEST_BASIS = 2048
MOST_PAIR_TYPES = 1 << 20
MOST_DIFFERENCES = 1 << 28  # entries of differences of columns that are formed for Δ₁
HALF = 18  # bits of the lower half of a weight


@frozen(eq=False, repr=False)
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
        All in fractions: Π_R is a sum over up to 2^axes meets of margins, whose rounding has no
        bound that is both fixed and safe.
        """
        full = Fraction(neighbours.l2_squared)
        singles = neighbours.persons == 1 or not neighbours.keeps_total
        candidates = [self._largest_single()] if singles else []
        if neighbours.persons == 2:
            candidates.append(self._largest_pair())
        return min(full, neighbours.records**2 * max(candidates))

    def _largest_single(self) -> Fraction:
        """The largest Π_ii, over all combinations of sizes that the axes allow."""
        kinds = [[(i, i, 0) for i in range(len(sizes))] for sizes in self._sizes]
        if math.prod(map(len, kinds)) > MOST_PAIR_TYPES:
            return Fraction(1)
        return 1 - Fraction(self._held_shares(kinds).min(), self._whole)

    def _largest_pair(self) -> Fraction:
        """The largest ‖Π_N(e_i − e_j)‖², over all kinds of pairs that sizes and levels allow.

        On each axis a pair is described by the sizes of both labels' groups and the finest level
        at which they share one. Not every such description need occur, so this is an upper bound.
        """
        kinds = [self._pair_kinds(a) for a in range(len(self._sizes))]
        if math.prod(map(len, kinds)) > MOST_PAIR_TYPES:
            return Fraction(2)
        one = self._held_shares([[(i, i, 0) for i, _, _ in pairs] for pairs in kinds])
        two = self._held_shares([[(j, j, 0) for _, j, _ in pairs] for pairs in kinds])
        moved = one + two - 2 * self._held_shares(kinds)  # by Π_R
        # The same cell twice: on every axis such kinds come first.
        moved[tuple(slice(len(sizes)) for sizes in self._sizes)] = 2 * self._whole
        return 2 - Fraction(moved.min(), self._whole)

    def _held_shares(self, kinds: list[list[tuple[int, int, int]]]) -> AnyArray:
        """(Π_R)_ij times `_whole` for all combinations of kinds, in Python's integers.

        Σ a_k/|group of k| over the meets k with i and j in one group: a sum of products over the
        axes, taken axis by axis.
        """
        left = {k.steps: np.full((), a, object) for k, a in self.space.held.expansion.items()}
        for (_, parts), pairs in zip(self._multiples, kinds, strict=True):
            after: dict[tuple[int, ...], Any] = {}
            for (step, *rest), sums in left.items():
                factors = np.array(
                    [parts[i][step] * (level <= step) for i, _, level in pairs], object
                )
                term = np.multiply.outer(sums, factors)
                key = tuple(rest)
                after[key] = after[key] + term if key in after else term
            left = after
        return np.asarray(left.get((), np.zeros([len(pairs) for pairs in kinds], object)))

    @cached_property
    def _whole(self) -> int:
        """A common multiple of the sizes of all groups of all meets."""
        return math.prod(multiple for multiple, _ in self._multiples)

    @cached_property
    def _steps(self) -> list[list[int]]:
        """For every axis the steps of the meets."""
        meets = self.space.held.expansion
        return [sorted({k.steps[a] for k in meets}) for a in range(len(self.space.domain.axes))]

    @cached_property
    def _sizes(self) -> list[list[dict[int, int]]]:
        """For every axis the distinct sizes of a label's groups, by step."""
        out = []
        for source, steps in zip(self.space.domain.axes, self._steps, strict=True):
            levels = [source.step(s) for s in steps]
            rows = np.array([level.sizes[level.codes] for level in levels], np.int64)
            distinct = np.unique(rows.reshape(len(steps), len(source)), axis=1).T
            out.append([dict(zip(steps, row.tolist(), strict=True)) for row in distinct])
        return out

    @cached_property
    def _multiples(self) -> list[tuple[int, list[dict[int, int]]]]:
        """For every axis the least common multiple of all sizes, and it over each of `_sizes`."""
        out = []
        for sizes in self._sizes:
            multiple = math.lcm(*(size for by_step in sizes for size in by_step.values()))
            out.append(
                (multiple, [{s: multiple // n for s, n in by_step.items()} for by_step in sizes])
            )
        return out

    def _pair_kinds(self, axis: int) -> list[tuple[int, int, int]]:
        """(sizes of one, sizes of the other, finest shared step) for pairs of labels of an axis."""
        source, steps, sizes = self.space.domain.axes[axis], self._steps[axis], self._sizes[axis]
        different = [
            (i, j, level)
            for i, first in enumerate(sizes)
            for j, second in enumerate(sizes)  # both orders: other axes may go the other way
            for level in range(1, source.depth)
            # Two labels share a group of at least two, and the same sizes there and above.
            if int(source.step(level).sizes.max()) > 1
            and all(first[s] == second[s] for s in steps if s >= level)
        ]
        return [*((i, i, 0) for i in range(len(sizes))), *different]


@frozen(eq=False, repr=False)
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
        Whole numbers in units of 2**-bits, one row per coordinate. A basis, orthonormal or not, of
        N or of the part of N that records reach.
    drop
        How many binary places of the product are rounded off; the sensitivity counts this.
    reached
        An orthonormal basis of what records reach, as columns, where that is less than N.
    """

    space: NullSpace
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
        cls, space: NullSpace, bits: int, basis: ArrayLike | None = None
    ) -> BasisStrategy:
        """The strategy of an orthonormal basis of N, by default any."""
        _check_size(space)
        columns = space.basis() if basis is None else np.asarray(basis, np.float64)
        if columns.shape != (space.size, space.dimension):
            raise InvariantError(
                f"A basis must have the shape {(space.size, space.dimension)}; got {columns.shape}."
            )
        inside = _projected(space, columns.T)
        if not np.allclose(inside, columns.T, rtol=0, atol=1e-9) or not np.allclose(
            columns.T @ columns, np.eye(space.dimension), rtol=0, atol=1e-9
        ):
            raise InvariantError(
                "The basis must be orthonormal and lie in the null space of the invariants."
            )
        return cls(space, np.rint(columns.T * 2.0**bits).astype(np.int64), bits)

    @classmethod
    def from_rows(
        cls, space: NullSpace, rows: FloatArray, bits: int, reached: FloatArray | None = None
    ) -> BasisStrategy:
        """The strategy of any basis of N, or of what records reach in it, scaled to entries ≤ 1."""
        _check_size(space)
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
        sensitivity = self._sensitivity(query, neighbours)
        if not self.drop:
            return sensitivity
        # |round(a) − round(b)| ≤ |a − b| + 1 in every coordinate, so Δ₂ grows by √k and Δ₁ by k.
        k = len(self.weights)
        l2 = _root_up(sensitivity.l2_squared) / 2**self.drop + _root_up(Fraction(k))
        return Sensitivity(sensitivity.l1 / 2**self.drop + k, l2 * l2)

    def _sensitivity(self, query: Query, neighbours: Neighbours) -> Sensitivity:
        from scipy.sparse import csr_array

        if query.contributions is not None:
            records = used_columns(query.contributions)
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
        # ‖W v‖₂ ≤ ‖W‖₂·‖v‖₂, and ‖·‖₁ ≤ √k ‖·‖₂ in k dimensions.
        squared = self._squared_norm * known.l2_squared
        return Sensitivity(_root_up(len(self.weights) * squared), squared)

    @cached_property
    def _squared_norm(self) -> Fraction:
        """At least ‖W‖₂², from the whole numbers of W themselves.

        The largest eigenvalue of W Wᵀ is at most its largest sum of sizes of a row, and at most
        Σ w². In float64 an inner product of n numbers is off by at most γ Σ|w||w′| and a sum of k
        positive ones by γ of itself, γ = m·2⁻⁵³/(1 − m·2⁻⁵³) for m roundings, in any order. For an
        orthonormal basis on its grid this is at most (2**bits + kn)², which leaves room for what
        the rounding of the basis may have done; that is kept, so that laws stay as they were.
        """
        k, n = self.weights.shape
        real, guard = self.weights.astype(np.float64), (n + k + 8) * 2.0**-52
        sizes = np.abs(real)
        rows = np.abs(real @ real.T).sum(axis=1) + guard * (sizes @ sizes.sum(axis=0))
        bound = min(float(rows.max()), float(np.square(real).sum()))
        exact = Fraction(bound) * (1 + Fraction(4 * (n * k + 8), 2**53))
        return max(exact, Fraction(2**self.bits + k * n) ** 2)

    @property
    def fits(self) -> bool:
        """Whether the rows lie in N but for the grid, and can be undone there.

        Each entry was rounded by at most half a step, so a row leaves N by at most √n/2 of them.
        Privacy does not rest on this, but that the release is unbiased does.
        """
        rows = self.weights * 2.0**-self.bits
        inside = _projected(self.space, rows)
        slack = math.sqrt(rows.shape[1]) * 2.0**-self.bits + 1e-8
        if not float(np.abs(rows - inside).max()) <= slack:
            return False
        try:
            undone = rows @ self.back
        except np.linalg.LinAlgError:
            return False
        return bool(np.abs(undone - np.eye(len(rows))).max() <= 1e-3)

    @cached_property
    def back(self) -> FloatArray:
        """From measured coordinates (in units of 1) to answers: a basis of N again."""
        rows = self.weights * 2.0**-self.bits
        inside = _projected(self.space, rows).T if self.reached is None else self.reached
        # Undo what putting the basis on the grid did inside N, so that it causes no bias there.
        return np.asarray(inside @ np.linalg.inv(rows @ inside), np.float64)

    def bias_bound(self, total: float) -> float:
        """The most that the grid can move a coordinate, for answers whose sizes add up to this."""
        return total * 2.0 ** -(self.bits + 1)

    def as_dict(self) -> dict[str, Any]:
        """The integers that define what is measured."""
        drop = {"drop": self.drop} if self.drop else {}
        return {"bits": self.bits, **drop, "weights": self.weights.tolist()}


def _check_size(space: NullSpace) -> None:
    if space.size > LARGEST_BASIS:
        raise ReleaseError(
            f"This mechanism forms a basis, and {space.size:,} answers are more than "
            f"{LARGEST_BASIS:,}; use the projected mechanism."
        )


def _projected(space: NullSpace, rows: AnyArray) -> FloatArray:
    """Π_N of every row."""
    return np.stack([space.project(row.reshape(space.shape)).reshape(-1) for row in rows])


def _root_up(value: Fraction) -> Fraction:
    from subspacedp.balls import ball, round_up

    return Fraction(round_up(lambda: ball(value).sqrt()))
