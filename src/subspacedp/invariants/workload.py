"""Held margins of a workload, and what they leave open: the same algebra, no table of all cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.invariants.held import Held, HeldMargins, HeldValues
from subspacedp.invariants.null_space import FreeContrasts, scaled_question, share
from subspacedp.queries import Margins
from subspacedp.tables import Domain, Margin
from subspacedp.tables.margin import sum_groups

if TYPE_CHECKING:
    from subspacedp.invariants.null_space import FreeContrasts


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
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
