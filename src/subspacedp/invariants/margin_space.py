"""The null space of held margins, without a matrix.

A workload's held margins leave open what the same algebra says, without a table of all cells.
Proofs: `docs/proofs/structured-projection.md`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants.held import Held, HeldMargins, HeldValues
from subspacedp.invariants.mixed import Mixed, centred_divmod, lcm
from subspacedp.invariants.null_space import (
    FreeContrasts,
    NullSpace,
    echelon_basis,
    scaled_question,
    share,
)
from subspacedp.parallel import compiled, for_each
from subspacedp.queries import Margins
from subspacedp.tables import Domain, Margin, RowPlan, margin_sums, outer
from subspacedp.tables.domain import Box
from subspacedp.tables.margin import sum_groups
from subspacedp.tables.rows import subtract_rows, subtract_rows_exactly

LiftParts = tuple[Int64Array, FloatArray]  # whole and fractional parts of its terms
MAX_DENSE = 5000


@frozen(eq=False, repr=False)
class MarginNullSpace(NullSpace):
    """N = {v : C v = 0} for a family of held margins.

    Guarantees
    ----------
    1. `lift_exact` and `dimension` are exact integer or rational arithmetic.
    2. `project` and `lift` agree with the dense orthogonal projector to rounding error.

    Notes
    -----
    The averaging operators of the margins commute, so Π_N = ∏_m (I − P_m): subtracting the group
    means of one margin after another is the projection, in one sweep. Expanding the product gives
    Π_R = Σ_k a_k P_k over the meets k of the margins, and (P_k v) needs only the group totals
    T_k of v: lift(r) = Σ_k a_k T_k / |group of k|, with T_k an integer that r determines.
    """

    held: HeldMargins

    @property
    def domain(self) -> Domain:
        """The domain of the table."""
        return self.held.domain

    def as_dict(self) -> dict[str, Any]:
        """The margins whose group means Π_N takes off, one after another in any order."""
        return {"kind": "margins", "margins": [list(m.names) for m in self.held.essential]}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return self.domain.shape

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.domain.size

    @property
    def rank(self) -> int:
        """The dimension of R: how many independent figures are published exactly."""
        return self.held.rank

    @cached_property
    def _sizes(self) -> dict[Margin, Int64Array]:
        # An empty group has no cell to spread to; 1 keeps the division defined.
        return {k: np.maximum(k.sizes, 1) for k in self.held.expansion}

    def project(self, values: ArrayLike, *, overwrite: bool = False) -> FloatArray:
        """Π_N v: subtract the group means of every held margin, one after another.

        With `overwrite` a float64 array in C order is projected in place, and a large one costs
        little more than reading it twice and writing it once.
        """
        out = self._table(values)
        if not overwrite or not out.flags.c_contiguous or not out.flags.writeable:
            out = np.array(out, np.float64, order="C")
        if compiled(out.size) and self.held.essential:
            self._subtract_means(out)
            return out
        for margin in self.held.essential:
            out -= margin.spread(margin.sum(out) / np.maximum(margin.sizes, 1))
        return out

    def _subtract_means(self, table: FloatArray) -> None:
        """Both sweeps compiled: sums of the margins, then Σ_k a_k (means of k) from every cell."""
        sums = margin_sums(table, self.held.essential)
        essential = HeldMargins(domain=self.domain, margins=self.held.essential)
        plan = self._rows
        means = plan.join(
            [a * essential.of(sums, k) / self._sizes[k] for k, a in self.held.expansion.items()],
            np.float64,
        )
        flat = table.reshape(-1)
        for_each(
            lambda stretch: subtract_rows(flat, *stretch, *plan.seen, means), plan.fixed_parts()
        )

    @cached_property
    def _rows(self) -> RowPlan:
        return RowPlan(tuple(self.held.expansion))

    def lift(self, residual: HeldValues, *, error: float = 0.0) -> FloatArray:
        """The z of least norm with C z = r; `residual` has one array per held margin.

        `error` says how far each number may be from the exact one, for an r computed in floating
        point; margins that disagree are an error only without it.
        """
        if error == 0.0:
            self.held.check_agreement(residual)
        if all(np.asarray(r).dtype.kind in "iu" for r in residual):
            return self.lift_exact(residual).to_float()
        out = np.zeros(self.shape)
        for k, a in self.held.expansion.items():
            out += k.spread(a * self.held.of(residual, k) / self._sizes[k])
        return out

    def rounding(self, answers: AnyArray) -> float:
        """How far C·answers may be off in float64; nothing for integers."""
        if answers.dtype.kind in "iu":
            return 0.0
        return 2.0**-45 * self.held.largest_row * float(np.abs(answers).max(initial=0.0))

    def squared_ones(self) -> float:
        """|Π_N 1|²: any held margin tells the total, and then nothing is left of it."""
        return 0.0 if self.rank else float(self.size)

    def lift_exact(self, residual: HeldValues) -> Mixed:
        """The z of least norm with C z = r, as exact rationals."""
        whole = np.zeros(self.domain.shape, np.int64)
        numerator: AnyArray = np.zeros(self.domain.shape, self.denominators.dtype)
        for k, a in self.held.expansion.items():
            quotient, rest = np.divmod(self.held.of(residual, k), self._sizes[k])
            whole += a * k.spread(quotient)
            common = np.gcd(self._sizes[k], a)  # a·rest/size = (a/g)·rest/(size/g)
            scale = self.denominators // k.spread(self._sizes[k] // common)
            numerator += k.spread(a // common * rest) * scale
        return Mixed.normal(whole, numerator, self.denominators)

    def subtract_lift(
        self, noisy: Int64Array, residual: HeldValues, *, overwrite: bool = False
    ) -> FloatArray:
        """Noisy − lift(r) in float64; whole parts are subtracted as integers.

        With `overwrite` the result takes the memory of a large `noisy`.
        """
        if not compiled(noisy.size) or not self.held.margins or not noisy.flags.c_contiguous:
            return self.lift_exact(residual).rsub(noisy).to_float()
        parts = self.lift_parts(residual)
        flat = noisy.reshape(-1)
        out = flat.view(np.float64) if overwrite else np.empty(flat.shape, np.float64)
        plan = self._rows
        for_each(
            lambda stretch: subtract_rows_exactly(flat, out, *stretch, *plan.seen, *parts),
            plan.fixed_parts(),
        )
        return out.reshape(noisy.shape)

    def lift_parts(self, residual: HeldValues) -> LiftParts:
        """The terms of lift(r) group by group, for `subtract_parts`."""
        whole, fraction = [], []
        for k, a in self.held.expansion.items():
            quotient, rest = centred_divmod(self.held.of(residual, k), self._sizes[k])
            whole.append(a * quotient)
            fraction.append(a * rest / self._sizes[k])
        plan = self._rows
        return plan.join(whole, np.int64), plan.join(fraction, np.float64)

    def subtract_parts(self, noisy: Int64Array, parts: LiftParts, box: Box) -> FloatArray:
        """Noisy − lift(r) for a box of cells, in the memory of `noisy`, on this thread.

        The same numbers as those of `subtract_lift` by its compiled kernel, bit for bit.
        """
        flat = noisy.reshape(-1)
        out = flat.view(np.float64)
        plan = RowPlan(tuple(self.held.expansion), box)
        subtract_rows_exactly(flat, out, *plan.all, *plan.seen, *parts)
        return out.reshape(noisy.shape)

    def subtract_whole(self, noisy: Int64Array, parts: LiftParts, box: Box) -> None:
        """Noisy − lift(r) for a box, in place, where every value of the lift is a whole number."""
        plan = RowPlan(tuple(self.held.expansion), box)
        fractions = np.zeros(noisy.size)
        for table, values in zip((noisy.reshape(-1), fractions), parts, strict=True):
            subtract_rows(table, *plan.all, *plan.seen, values)
        # At most half for every term, so float64 tells which whole number they add up to.
        noisy += np.rint(fractions).astype(np.int64).reshape(noisy.shape)

    @cached_property
    def _size_classes(self) -> tuple[list[Int64Array], dict[Margin, Int64Array]]:
        """For every axis the class of each label, and the sizes of groups by classes.

        Labels of an axis whose groups have the same sizes at every level in use are one class, so
        this stays tiny however large the table.
        """
        dimensions = len(self.domain.shape)
        members, columns = [], []
        for a in range(dimensions):
            steps = sorted({k.steps[a] for k in self.held.expansion})
            levels = [self.domain.axes[a].step(step) for step in steps]
            sizes = np.array([level.sizes[level.codes] for level in levels], np.int64)
            sizes = sizes.reshape(len(levels), len(self.domain.axes[a]))
            distinct, member = distinct_columns(sizes)
            members.append(member)
            columns.append(dict(zip(steps, distinct, strict=False)))
        return members, {
            k: outer(column[step] for column, step in zip(columns, k.steps, strict=True))
            for k in self.held.expansion
        }

    @cached_property
    def denominator_classes(self) -> tuple[AnyArray, list[Int64Array]]:
        """The distinct denominators, and for every axis the class of each label.

        A cell's denominator depends only on the sizes of the groups it is in.
        """
        members, sizes_of = self._size_classes
        terms = [np.ones((1,) * len(members), np.int64)]
        for k, factor in self.held.expansion.items():
            terms.append(sizes_of[k] // np.gcd(sizes_of[k], factor))
        out = lcm(terms)
        # Numerators add up to Σ|a_k| denominators before they are reduced.
        weight = sum(abs(a) for a in self.held.expansion.values())
        if out.dtype != object and int(out.max()) * max(weight, 1) >= 2**62:
            out = out.astype(object)
        return out, members

    @cached_property
    def denominators(self) -> AnyArray:
        """A public denominator for every cell of any lifted integer residual.

        Broadcastable to the domain's shape; Python integers where 64 bits do not suffice.
        """
        out, members = self.denominator_classes
        for a, member in enumerate(members):
            if out.shape[a] > 1:
                out = np.take(out, member, axis=a)
        return out

    @cached_property
    def diagonal_of_classes(self) -> FloatArray:
        """diag(Π_N) of every kind of cell: what share of its noise remains."""
        members, sizes_of = self._size_classes
        out = np.ones([int(classes.max()) + 1 for classes in members])
        for k, a in self.held.expansion.items():
            out -= a / sizes_of[k]
        # A cell that is not fixed keeps at least 2**-axes: smaller is rounding error of zero.
        out[out < 2.0**-40] = 0.0
        return out

    def diagonal(self) -> FloatArray:
        """diag(Π_N) in the domain's shape: what share of a cell's noise remains."""
        members, _ = self._size_classes
        out = self.diagonal_of_classes
        for a, member in enumerate(members):
            if out.shape[a] > 1:
                out = np.take(out, member, axis=a)
        return np.array(np.broadcast_to(out, self.shape))

    def group_squares(self, margin: Margin) -> FloatArray:
        """|Π_N 1_G|² of every group of any margin, also of one that names a grouping.

        |P_k 1_G|² = Σ |G ∩ κ|²/|κ| over the groups κ of k, a product over the axes.
        """
        from subspacedp.invariants.crossing import LabelSpace

        whole = margin.sizes.astype(np.float64)
        out = np.array(whole)
        for k, a in self.held.expansion.items():
            out -= a * outer(
                LabelSpace(axis, (step,)).squared(asked_step)
                for axis, step, asked_step in zip(
                    self.domain.axes, k.steps, margin.steps, strict=True
                )
            )
        out[out < 1e-11 * whole] = 0.0  # rounding error of a difference that is zero
        return out

    def share_exposed(self, weights: ArrayLike) -> float:
        """|Π_R w|² / |w|²: how much of a linear question the invariants answer."""
        w = scaled_question(self._table(weights))
        norm = float(np.vdot(w, w))
        inside = self.project(w)
        return share(1.0 - float(np.vdot(inside, inside)) / norm)

    def contains(self, values: ArrayLike) -> bool:
        """Whether C v = 0: exactly for integers, to 1e-9 of the largest entry for floats."""
        array = np.asarray(values)
        if array.shape == (self.size,):
            array = array.reshape(self.shape)
        if array.shape != self.shape:
            array = self._table(values)  # which says what is wrong
        if array.dtype.kind in "iu":
            return not any((m.exact_sum(array) != 0).any() for m in self.held.essential)
        scale = float(np.abs(array).max(initial=0.0))
        return all(
            bool(np.all(np.abs(m.sum(array)) <= 1e-9 * scale * np.maximum(m.sizes, 1)))
            for m in self.held.essential
        )

    def basis(self) -> FloatArray:
        """An orthonormal basis of N as columns; only for small tables."""
        n = self.domain.size
        if n > MAX_DENSE:
            raise InvariantError(
                f"A dense basis of {n:,} cells is out of reach; `project` needs none."
            )
        eye = np.eye(n).reshape((n, *self.domain.shape))
        projector = np.stack([self.project(e).ravel() for e in eye])
        return echelon_basis(projector, self.dimension)

    def _table(self, values: ArrayLike) -> FloatArray:
        array = np.asarray(values, np.float64)
        if array.shape == (self.domain.size,):
            array = array.reshape(self.domain.shape)
        if array.shape != self.domain.shape:
            raise InvariantError(
                f"Expected an array of the domain's shape {self.domain.shape}; got {array.shape}."
            )
        return array


def distinct_columns(rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The distinct columns in order, and which of them each column is.

    Row by row: sorting numbers is far faster than sorting columns.
    """
    code = np.zeros(rows.shape[1], np.int64)
    first = np.zeros(min(1, len(code)), np.int64)
    for row in rows:
        values, rank = np.unique(row, return_inverse=True)
        _, first, code = np.unique(
            code * len(values) + rank, return_index=True, return_inverse=True
        )
    return rows[:, first], code


@frozen(eq=False, kw_only=True, repr=False)
class HeldOfWorkload(HeldMargins):
    """Margins held exact while the margins of a workload are published.

    Held values come from the totals of `sources`: the workload, and the held margins that it does
    not determine.
    """

    query: Margins

    @cached_property
    def space(self) -> FreeContrasts:
        """The contrasts that are free, without a table of all cells."""
        return WorkloadSpace(self)

    @cached_property
    def beyond_answers(self) -> tuple[Margin, ...]:
        """The held margins that do not follow from the workload."""
        published = self.query.margins
        return tuple(h for h in self.essential if not any(m.determines(h) for m in published))

    @property
    def sources(self) -> tuple[Margin, ...]:
        """The margins whose exact totals a release needs, without repetition."""
        return (*self.query.margins, *self.beyond_answers)

    def split(self, answers: AnyArray) -> list[AnyArray]:
        """The totals of `sources`, each in its margin's shape."""
        out, at = [], 0
        for margin in self.sources:
            size = math.prod(margin.shape)
            out.append(answers[at : at + size].reshape(margin.shape))
            at += size
        return out

    def sums(self, answers: Int64Array) -> HeldValues:
        """The exact totals of every held margin, from the totals of `sources`."""
        tables = self.split(answers)
        return tuple(self.of_sources(tables, margin) for margin in self.margins)

    def agrees(self, answers: Int64Array, values: HeldValues) -> bool:
        """Whether some table has these answers and the held values, decided in whole numbers.

        Margins on nested levels come from a table (of any sign) if every two of them agree on what
        they have in common.
        """
        tables = self.query.split(np.asarray(answers, np.int64))
        margins = (*self.query.margins, *self.margins)
        family = HeldMargins(domain=self.domain, margins=margins)
        return not family.contradiction([*tables, *values])

    def of_sources(self, tables: list[AnyArray], margin: Margin) -> Int64Array:
        """The totals of any margin that the sources determine, from their tables."""
        able = (i for i, m in enumerate(self.sources) if m.determines(margin))
        i = min(able, key=lambda i: tables[i].size)
        return np.asarray(self.sources[i].coarsen(tables[i], margin), np.int64)


def hold_of_workload(held: Held, query: Margins) -> HeldOfWorkload:
    """What an expression holds of a workload; margins only."""
    if held.linear or held.zeros:
        raise InvariantError(
            "A workload of margins can hold margins alone: hold(...), combined with &; for cells "
            "known to be empty ask for the cells of the table, design(domain, ..., "
            "mechanism=Marginals(margins=[...]))."
        )
    margins = (*query.margins, *held.margins_on(query.domain))
    crossing = next((m for m in margins if m.grouped), None)
    if crossing is not None:
        raise InvariantError(
            f"Margins alone are released on levels that nest, and {crossing!r} names a grouping; "
            "release the cells, and Marginals(margins=[...]) measures the grouping beside them."
        )
    return HeldOfWorkload(
        domain=query.domain, margins=held.margins_on(query.domain), counts=True, query=query
    )


@frozen(eq=False, repr=False)
class WorkloadSpace(FreeContrasts):
    """The free contrasts of a workload, in place of a null space of all cells.

    Questions are weights of the workload's answers. Nothing here forms an array of all cells.
    """

    held: HeldOfWorkload

    @property
    def domain(self) -> Domain:
        """The domain, of which no table is formed."""
        return self.held.domain

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the answers."""
        return self.held.query.shape

    @cached_property
    def size(self) -> int:
        """The number of independent figures, of the workload and held."""
        margins = (*self.held.query.margins, *self.held.essential)
        return HeldMargins(domain=self.domain, margins=margins).rank

    @property
    def rank(self) -> int:
        """How many independent figures are published exactly."""
        return self.held.rank

    def share_exposed(self, weights: ArrayLike) -> float:
        """|Π_R w|²/|w|² of the question that weights of answers ask of the table.

        The squared length of a question's part in a margin's row space is Σ (its mean over a
        group)² · |group|, and Π_R = Σ a_k P_k over the meets k of the held margins. Lengths are
        taken relative to the number of cells, so that no size leaves float64.
        """
        w = scaled_question(self._vector(weights))
        split = self.held.query.split(w)
        whole = self._squared(split, self._everything)
        if not self.held.margins:
            return 0.0
        inside = self._squared(split, self.held)
        return share(inside / whole if whole > 0 else 1.0)

    @cached_property
    def _everything(self) -> HeldMargins:
        return HeldMargins(domain=self.domain, margins=tuple(self.held.query.margins))

    def _squared(self, split: list[FloatArray], family: HeldMargins) -> float:
        """|Π w|² for the row space of a family, over the number of cells."""
        terms = [
            a * self._mean_square(split, k)
            for k, a in family.expansion.items()
        ]  # fmt: skip
        return max(math.fsum(terms), 0.0)

    def _mean_square(self, split: list[FloatArray], k: Margin) -> float:
        """Σ_g (mean of the question over group g of k)² · |g|/cells."""
        means = np.zeros(k.shape)
        for margin, weights in zip(self.held.query.margins, split, strict=True):
            if not np.any(weights):
                continue
            # The question is own[c] on every cell of group c; its mean over a group of k.
            meet = k.meet(margin)
            means = means + self._conditional(weights, margin, meet, k)
        return float(np.square(means).ravel() @ self._chance(k).ravel())

    def _conditional(
        self, weights: FloatArray, margin: Margin, meet: Margin, k: Margin
    ) -> FloatArray:
        """E[weights | group of k] for a uniform cell: margins of one domain are independent."""
        dims = len(self.domain.axes)
        out: FloatArray = weights
        for a, axis in enumerate(self.domain.axes):
            fine, coarse = margin.steps[a], meet.steps[a]
            if fine != coarse:  # k is coarser here: average over the fine groups in it
                level, up = axis.step(fine), axis.parents(fine, coarse)
                size = axis.step(coarse).sizes
                share = level.sizes / np.maximum(size[up], 1)
                shape = [1] * dims
                shape[a] = len(share)
                out = sum_groups(
                    out * share.reshape(shape), up, axis.step(coarse).groups, a,
                    one=coarse == axis.depth - 1,
                )  # fmt: skip
            elif k.steps[a] != coarse:  # k is finer here: the same for all groups inside
                out = np.take(out, axis.parents(k.steps[a], coarse), axis=a)
        return out

    def _chance(self, k: Margin) -> FloatArray:
        out = np.ones(k.shape)
        for a, level in enumerate(k.levels):
            shape = [1] * len(k.shape)
            shape[a] = level.groups
            out = out * (level.sizes / len(self.domain.axes[a])).reshape(shape)
        return out

    def _vector(self, weights: ArrayLike) -> FloatArray:
        array = np.asarray(weights, np.float64)
        if array.shape != self.shape:
            raise InvariantError(
                f"Expected weights of the {self.shape[0]:,} answers; got shape {array.shape}."
            )
        return array

    def imposed(self, values: FloatArray, wanted: HeldValues) -> FloatArray:
        """The held totals in the place of those that are known of every margin."""
        tables = []
        query = self.held.query
        for margin, table in zip(query.margins, query.split(values), strict=True):
            exact = self.held.known(wanted, margin)
            tables.append((table if exact is None else exact).reshape(-1))
        return np.concatenate(tables).astype(np.float64)

    def __repr__(self) -> str:
        return (
            f"WorkloadSpace(dimension {self.dimension:,} of {self.size:,}; "
            f"held exactly: {self.held})"
        )
