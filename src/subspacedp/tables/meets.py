"""Meets of many margins at once, on their steps alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from subspacedp.tables.margin import Margin

__all__ = ["all_meets", "meets_with", "steps_of"]

Steps = npt.NDArray[np.int16]


def steps_of(margins: Iterable[Margin]) -> Steps:
    """The steps of margins, one a row."""
    return np.array([m.steps for m in margins], np.int16)


def meets_with(margin: Margin, others: Steps) -> list[Margin]:
    """The distinct meets of a margin with others."""
    found = np.maximum(others, np.array([margin.steps], np.int16))
    return [Margin(margin.axes, tuple(found[i].tolist())) for i in _rows(found).values()]


def all_meets(margins: Iterable[Margin]) -> list[Margin]:
    """The margins and all meets of any number of them, one margin at a time.

    After a margin is taken in, the meets so far are those of all subsets up to it.
    """
    given = list(margins)
    found = np.zeros((0, len(given[0].steps)), np.int16)
    seen: set[bytes] = set()
    for own in steps_of(given)[:, None, :]:
        meets = np.concatenate([own, np.maximum(found, own)])
        fresh = {row: i for row, i in _rows(meets).items() if row not in seen}
        seen.update(fresh)
        found = np.concatenate([found, meets[list(fresh.values())]])
    return [Margin(given[0].axes, tuple(row)) for row in found.tolist()]


def _rows(steps: Steps) -> dict[bytes, int]:
    """The distinct rows, as bytes, and where one of each is."""
    text = np.ascontiguousarray(steps).view(f"S{steps.shape[1] * steps.itemsize}")
    return {row: i for i, row in enumerate(text.reshape(-1).tolist())}
