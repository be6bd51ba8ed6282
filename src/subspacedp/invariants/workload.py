"""Held margins of a workload: the same algebra, without a table of all cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError
from subspacedp.invariants.held import Held, HeldMargins, HeldValues
from subspacedp.queries import Margins
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from subspacedp.invariants.null_space import FreeContrasts

__all__ = ["HeldOfWorkload", "hold_of_workload"]


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
        from subspacedp.invariants.workload_space import WorkloadSpace

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

    def split(self, answers: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """The totals of `sources`, each in its margin's shape."""
        out, at = [], 0
        for margin in self.sources:
            size = math.prod(margin.shape)
            out.append(answers[at : at + size].reshape(margin.shape))
            at += size
        return out

    def sums(self, answers: npt.NDArray[np.int64]) -> HeldValues:
        """The exact totals of every held margin, from the totals of `sources`."""
        tables = self.split(answers)
        return tuple(self.of_sources(tables, margin) for margin in self.margins)

    def agrees(self, answers: npt.NDArray[np.int64], values: HeldValues) -> bool:
        """Whether some table has these answers and the held values, decided in whole numbers.

        Margins on nested levels come from a table (of any sign) if every two of them agree on what
        they have in common.
        """
        tables = self.query.split(np.asarray(answers, np.int64))
        margins = (*self.query.margins, *self.margins)
        family = HeldMargins(domain=self.domain, margins=margins)
        return not family.contradiction([*tables, *values])

    def of_sources(self, tables: list[npt.NDArray[Any]], margin: Margin) -> npt.NDArray[np.int64]:
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
    return HeldOfWorkload(
        domain=query.domain, margins=held.margins_on(query.domain), counts=True, query=query
    )
