"""Typing errors: the known word that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a typing error turns into this one, or None.

    >>> nearest("lables", ["labels", "levels"]), nearest("ot", ["to", "sign"]), nearest("x", ["to"])
    ('labels', 'to', None)
    """
    folded = word.casefold().replace("_", "-")

    def rank(candidate: str) -> tuple[int, float]:
        other = candidate.casefold().replace("_", "-")
        return _distance(folded, other), -difflib.SequenceMatcher(None, folded, other).ratio()

    words = list(known)
    best = min(words, key=rank, default=None)
    if best is None:
        return None
    # A single letter is one typing error away from every other: no hint.
    if len(best) > 1 and rank(best)[0] <= max(1, min(len(best), len(word)) // 3):
        return best
    begun = [word for word in words if len(folded) > 2 and word.casefold().startswith(folded)]
    return begun[0] if len(begun) == 1 else None


def _distance(a: str, b: str) -> int:
    """Letters to insert, delete, replace or swap with their neighbour."""
    if abs(len(a) - len(b)) > 8 or max(len(a), len(b)) > 200:
        return max(len(a), len(b))
    before: list[int] = []
    above = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, above = above, row
    return above[-1]
