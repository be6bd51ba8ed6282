"""Invariants from plain data, such as a certificate's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError
from subspacedp.invariants.held import Held
from subspacedp.invariants.linear import LinearInvariants, StructuralZeros
from subspacedp.queries import Query
from subspacedp.queries.linear import stated_matrix

__all__ = ["held_from"]


def held_from(parts: Sequence[Mapping[str, Any]], query: Query) -> Held:
    """What plain data say is held of a query."""
    held = Held()
    for part in parts:
        if "margin" in part:
            held = held & Held((tuple(part["margin"]),))
        elif "linear" in part:
            values = part["linear"]["values"]
            if part["linear"]["shape"] != [len(part["labels"]), query.size]:
                raise ReleaseError("what it holds does not fit its answers.")
            kind = np.int64 if all(isinstance(v, int) for v in values) else np.float64
            held = held & LinearInvariants(
                stated_matrix(part["linear"], kind), labels=part["labels"]
            )
        else:
            mask = np.zeros(query.size, bool)
            mask[np.asarray(part["zeros"], np.int64)] = True
            held = held & StructuralZeros(mask.reshape(query.shape))
    return held
