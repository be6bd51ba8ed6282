"""What is asked of a release: query, invariants, budget, neighbours, digits and bound.

A problem is public, frozen and free of data. How it is solved is a mechanism's affair; what was
solved is stated again, word for word, in every certificate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from subspacedp.errors import AlteredError, ReleaseError
from subspacedp.invariants import FreeContrasts, HeldMargins, HeldMatrix, bind, held_from
from subspacedp.privacy import Budget, Neighbours, budget_from, neighbours_from
from subspacedp.queries import Query, query_from
from subspacedp.tables import Axis, Domain

__all__ = ["MAX_DECIMALS", "Problem"]

MAX_DECIMALS = 12
LONG_AXIS = 1 << 18  # labels of an axis beyond which its digest stands for it in keys


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Problem:
    """What will be published, what is held, and what is promised.

    Parameters
    ----------
    query, held
        What is asked, and the invariants bound to it.
    budget, neighbours
        What is promised, and for which change of the data.
    decimals
        None for real values; 0 or k for digits that add up.
    capped
        Whether held values count all records while noise protects a bounded table.
    """

    query: Query
    held: HeldMargins | HeldMatrix
    budget: Budget
    neighbours: Neighbours
    decimals: int | None = None
    capped: bool = False

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        if self.query.axes is None:
            raise ReleaseError("The answers of this query have no axes.")
        return self.query.axes

    @property
    def space(self) -> FreeContrasts:
        """What the invariants leave open: for all but workloads, their null space."""
        return self.held.space

    def as_dict(self) -> dict[str, Any]:
        """The problem as plain data, but for the query."""
        return {
            "held": self.held.as_list(),
            "budget": self.budget.as_dict(),
            "neighbours": self.neighbours.as_dict(),
            "decimals": self.decimals,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], answers: int | None = None) -> Problem:
        """From plain data; `answers` is how many values there are, where that is known."""
        query = query_from(data["query"], answers)
        if answers is not None and query.size != answers:
            raise AlteredError(
                f"it is about {query.size:,} answers, and there are {answers:,} values."
            )
        decimals, capped = data["decimals"], data.get("capped", False)
        if decimals is not None and (
            type(decimals) is not int or not 0 <= decimals <= MAX_DECIMALS
        ):
            raise ReleaseError("its decimals are out of range.")
        if not isinstance(capped, bool):
            raise ReleaseError("`capped` must be true or absent.")
        return cls(
            query=query,
            held=bind(held_from(data["held"], query), query),
            budget=budget_from(data["budget"]),
            neighbours=neighbours_from(data["neighbours"]),
            decimals=decimals,
            capped=capped,
        )

    def query_in_keys(self) -> dict[str, Any]:
        """The query as it is bound into keys: millions of labels are not spelled out."""
        query = self.query
        if query.is_histogram and query.axes is not None and max(query.shape) > LONG_AXIS:
            return {"kind": "cells", "axes": [_axis_digest(axis) for axis in query.axes.axes]}
        return query.as_dict()

    def __repr__(self) -> str:
        digits = "real" if self.decimals is None else f"decimals={self.decimals}"
        return f"{self.query!r}, held: {self.held}, {self.budget}, {self.neighbours.name}, {digits}"


def _axis_digest(axis: Axis) -> str:
    """SHA-256 of an axis with its labels and levels."""
    out = hashlib.sha256(json.dumps([axis.name, axis.from_data]).encode())
    labels = axis.labels
    out.update((repr(labels) if isinstance(labels, range) else json.dumps(list(labels))).encode())
    for level in axis.chain[1:]:
        out.update(json.dumps([level.name, list(level.labels)]).encode())
        out.update(np.ascontiguousarray(level.codes, "<i8").data)
    return out.hexdigest()
