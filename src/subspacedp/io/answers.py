"""An engine's answer as arrays, and how many rows a sentence is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["read_whole", "rows_have"]


def read_whole(batches: Iterable[Any], names: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """The named columns of arrow batches as int64 arrays."""
    import pyarrow as pa

    parts: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in names}
    for batch in batches:
        for name in names:
            # An engine's sum of integers may be a decimal; the cast refuses what does not fit.
            column = batch.column(batch.schema.get_field_index(name)).cast(pa.int64())
            parts[name].append(column.to_numpy(zero_copy_only=False))
    empty = np.zeros(0, np.int64)
    return {name: np.concatenate([empty, *found]) for name, found in parts.items()}


def rows_have(number: int) -> str:
    """The start of a sentence about rows of confidential data: how many, never which."""
    return "1 row has" if number == 1 else f"{number} rows have"
