"""The queries of the accuracy gallery, with and without something held."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import Held, LinearInvariants, hold
from subspacedp.tables import Axis, Domain, LinearQuery, Query

__all__ = ["EXAMPLES", "Example"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A query and what is held of its answers."""

    name: str
    query: Callable[[], Domain | Query]
    held: Callable[[], Held | LinearInvariants | None] = lambda: None


def _cube(*sizes: int) -> Domain:
    names = ("group", "hour", "building")
    return Domain([Axis(name, range(n)) for name, n in zip(names, sizes, strict=False)])


def _campus() -> Held:
    return hold("hour", "building") & hold("group", "building")


def _two_way(*sizes: int) -> FloatArray:
    """All margins that leave one axis out."""
    cells = np.eye(math.prod(sizes)).reshape(-1, *sizes)
    return np.vstack(
        [cells.sum(axis=axis + 1).reshape(len(cells), -1).T for axis in range(len(sizes))]
    )


def _ranges(n: int) -> FloatArray:
    ends = [(a, b) for a in range(n) for b in range(a + 1, n + 1)]
    return np.array([[float(a <= i < b) for i in range(n)] for a, b in ends])


def _tree(depth: int) -> FloatArray:
    """Sums over all nodes of a binary tree, the root first."""
    leaves = np.arange(2**depth)
    return np.vstack(
        [leaves >> (depth - k) == np.arange(2**k)[:, None] for k in range(depth + 1)]
    ).astype(float)


def _random(n: int, d: int) -> FloatArray:
    """Whole numbers from −8 to 8."""
    return np.random.default_rng(n * d).integers(-8, 9, size=(n, d)).astype(float)


def _scaled(rows: bool) -> FloatArray:
    """Sizes from 1 to 1,000, over the rows or over the columns."""
    n, d = 40, 120
    sizes = np.rint(np.logspace(0, 3, n if rows else d))
    return _random(n, d) * (sizes[:, None] if rows else sizes)


def _sums(n: int) -> LinearInvariants:
    """The sum of all answers, and of the first half of them."""
    return LinearInvariants(np.array([np.ones(n), np.arange(n) < n // 2], float))


def _top(depth: int, levels: int) -> LinearInvariants:
    return LinearInvariants(np.eye(2**levels - 1, 2 ** (depth + 1) - 1))


EXAMPLES = (
    Example(name="cells 8 × 10", query=lambda: _cube(8, 10)),
    Example(name="cells 8 × 10, rows held", query=lambda: _cube(8, 10), held=lambda: hold("group")),
    Example(name="cube 4 × 6 × 5, margins held", query=lambda: _cube(4, 6, 5), held=_campus),
    Example(
        name="campus 14 × 24 × 20, margins held", query=lambda: _cube(14, 24, 20), held=_campus
    ),
    Example(name="two-way margins of 4 × 5 × 6", query=lambda: LinearQuery(_two_way(4, 5, 6))),
    Example(name="tree of 63 sums", query=lambda: LinearQuery(_tree(5))),
    Example(
        name="tree of 63 sums, top 7 held",
        query=lambda: LinearQuery(_tree(5)),
        held=lambda: _top(5, 3),
    ),
    Example(name="64 prefix sums", query=lambda: LinearQuery(np.tril(np.ones((64, 64))))),
    Example(
        name="64 prefix sums, two sums held",
        query=lambda: LinearQuery(np.tril(np.ones((64, 64)))),
        held=lambda: _sums(64),
    ),
    Example(name="all 300 ranges of 24", query=lambda: LinearQuery(_ranges(24))),
    Example(name="random 40 × 200", query=lambda: LinearQuery(_random(40, 200))),
    Example(
        name="random 40 × 200, two sums held",
        query=lambda: LinearQuery(_random(40, 200)),
        held=lambda: _sums(40),
    ),
    Example(name="rows from 1 to 1,000", query=lambda: LinearQuery(_scaled(rows=True))),
    Example(name="columns from 1 to 1,000", query=lambda: LinearQuery(_scaled(rows=False))),
)
