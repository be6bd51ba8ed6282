"""JSON that says one thing: readers differ on which one counts where a key comes twice."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["read_json"]


def read_json(text: str) -> Any:
    """The data of a JSON text; ValueError where a key comes twice or it is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_distinct_keys)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)
