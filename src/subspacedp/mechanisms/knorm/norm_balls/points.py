"""Whole vectors up to sign: what bodies are the hulls of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.knorm.norm_balls.base import FloatArray, ObjectArray, Row

__all__ = ["distinct", "dot", "scaled", "signed", "spanning"]


def distinct(vectors: npt.ArrayLike) -> ObjectArray:
    """Distinct rows up to sign, as whole numbers, without zeros."""
    rows = {signed(tuple(int(x) for x in row)) for row in np.asarray(vectors, object).tolist()}
    kept = sorted(row for row in rows if any(row))
    if not kept:
        raise ReleaseError(
            "No record changes what would be measured: there is nothing to protect by noise."
        )
    return np.array(kept, object)


def spanning(vectors: npt.ArrayLike) -> ObjectArray:
    """The same, refused where the hull would be flat."""
    points = distinct(vectors)
    if np.linalg.matrix_rank(scaled(points)) < points.shape[1]:
        raise ReleaseError(
            "The changes that one person can make do not reach all that would be measured; hold "
            "what no person can change, such as the grand total."
        )
    return points


def signed(row: Row) -> Row:
    """The row or its opposite, the first entry that is not zero positive."""
    first = next((x for x in row if x), 1)
    return row if first > 0 else tuple(-x for x in row)


def dot(a: Sequence[int], b: Sequence[int]) -> int:
    """Σ a_i b_i in whole numbers."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def scaled(points: ObjectArray) -> FloatArray:
    """The points over the largest entry of all."""
    return np.asarray(points / int(np.abs(points).max()), np.float64)
