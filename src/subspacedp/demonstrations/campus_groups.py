"""Groups of like behaviour by k-means: Lloyd's algorithm from a k-means++ start.

Whoever computes groups from people's data has looked at the data. A group is then a figure like
any other: its label tells about the person in it, and about everybody who shaped the centres.
Nothing here is protected, and a publication needs groups that are known beforehand.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError

__all__ = ["k_means"]

FloatArray = npt.NDArray[np.float64]
ROUNDS = 100


def k_means(points: FloatArray, groups: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """The group of every point, numbered from the largest to the smallest.

    The same points, number and seed give the same groups.

    Examples
    --------
    >>> k_means(np.array([[0.0], [0.1], [0.2], [9.0], [9.1]]), 2).tolist()
    [0, 0, 0, 1, 1]
    """
    if not 1 <= groups <= len(np.unique(points, axis=0)):
        raise DataError("There must be at least one group, and no more than different points.")
    centres = _spread(points, groups, np.random.default_rng(seed))
    nearest = _distances(points, centres).argmin(axis=1)
    for _ in range(ROUNDS):
        members = nearest == np.arange(groups)[:, None]  # (groups, points)
        sizes = members.sum(axis=1)
        moved = (members @ points) / np.maximum(sizes, 1)[:, None]
        centres = np.where(sizes[:, None] > 0, moved, centres)
        again = _distances(points, centres).argmin(axis=1)
        if np.array_equal(again, nearest):
            break
        nearest = again
    order = np.argsort(-np.bincount(nearest, minlength=groups), kind="stable")
    return np.asarray(np.argsort(order)[nearest])


def _spread(points: FloatArray, groups: int, random: np.random.Generator) -> FloatArray:
    """Starting centres, each drawn with probability proportional to the squared distance so far."""
    chosen = [int(random.integers(len(points)))]
    least = _distances(points, points[chosen]).min(axis=1)
    while len(chosen) < groups:
        chosen.append(int(random.choice(len(points), p=least / least.sum())))
        least = np.minimum(least, _distances(points, points[chosen[-1:]])[:, 0])
    return np.asarray(points[chosen])


def _distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Squared distances, not below zero."""
    squares = np.square(points).sum(axis=1)[:, None] + np.square(centres).sum(axis=1)
    return np.asarray(np.maximum(squares - 2 * points @ centres.T, 0.0))
