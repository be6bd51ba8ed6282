"""What a certificate states beside its mechanism: held values, and what is held of what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.invariants import Held, HeldMargins, HeldMatrix, HeldValues, held_from
from subspacedp.mechanisms.registry import UNREADABLE
from subspacedp.queries import Query, query_from
from subspacedp.stated import check_plain, first_difference, shown_text

__all__ = ["held_values", "rebuild_invariants"]


def rebuild_invariants(data: Mapping[str, Any]) -> tuple[Query, Held]:
    """What is asked and what is held of it, from the plain data of a design."""
    try:
        check_plain({key: data[key] for key in ("query", "held")}, "what is held")
        query = query_from(data["query"], None)
        return query, held_from(data["held"], query)
    except SubspaceDPError as error:
        raise ReleaseError(shown_text(f"What is held cannot be read: {error}")) from None
    except UNREADABLE as error:
        raise ReleaseError(f"What is held cannot be read ({type(error).__name__}).") from None


def held_values(data: Mapping[str, Any], held: HeldMargins | HeldMatrix) -> HeldValues:
    """The held values that a certificate states, in their shapes, each of its own type."""
    kind = np.int64 if held.exact else np.float64
    out = tuple(
        np.asarray(item["values"], kind).reshape(shape)
        for shape, item in zip(held.value_shapes, data["invariants"], strict=True)
    )
    written = [{"shape": list(v.shape), "values": v.ravel().tolist()} for v in out]
    if first_difference(data["invariants"], written) is not None:
        raise ReleaseError("The certificate is not usable: its held totals cannot be read.")
    return out
