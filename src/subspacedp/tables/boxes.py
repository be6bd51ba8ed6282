"""A box of cells: a range of positions on every axis, and where its cells are in the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from subspacedp.arrays import Int64Array


@dataclass(frozen=True)
class Box:
    """The cells with positions `lower` to `upper - 1` on every axis.

    Examples
    --------
    >>> box = Box((0, 2), (2, 4))
    >>> box.shape, box.size
    ((2, 2), 4)
    >>> starts, length = box.runs((3, 4))
    >>> starts.tolist(), length
    ([2, 6], 2)
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of positions on every axis."""
        return tuple(hi - lo for lo, hi in zip(self.lower, self.upper, strict=True))

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def runs(self, table: Sequence[int]) -> tuple[Int64Array, int]:
        """Numbers of cells of a table in row-major order: where each run begins, and its length.

        The cells of the box in row-major order are these runs one after another.
        """
        inner, length = len(table), 1
        while inner > 0:
            inner -= 1
            length *= self.shape[inner]
            if self.shape[inner] < table[inner]:
                break
        starts = np.zeros(1, np.int64)
        for b, n in enumerate(table):
            stop = self.upper[b] if b < inner else self.lower[b] + 1
            places = np.arange(self.lower[b], stop, dtype=np.int64)
            starts = (starts[:, None] * n + places).ravel()
        return starts, length

    def split(self, most: int) -> list[Box]:
        """Boxes of at most `most` cells, consecutive in the row-major order of this box."""
        inner, axis = 1, len(self.shape)
        while axis > 0 and inner * self.shape[axis - 1] <= most:
            axis -= 1
            inner *= self.shape[axis]
        if axis == 0:
            return [self]
        axis -= 1
        thick, stop = max(1, most // inner), self.upper[axis]
        return [
            Box(
                (*before, at, *self.lower[axis + 1 :]),
                (*(p + 1 for p in before), min(at + thick, stop), *self.upper[axis + 1 :]),
            )
            for before in product(*map(range, self.lower[:axis], self.upper[:axis]))
            for at in range(self.lower[axis], stop, thick)
        ]


def blocks(shape: Sequence[int], most: int) -> list[Box]:
    """A table cut into boxes of at most `most` cells, each a run of row-major order."""
    return Box((0,) * len(shape), tuple(shape)).split(most)


def inside(box: Box) -> tuple[slice, ...]:
    """The cells of a box as an index of the table."""
    return tuple(slice(lo, hi) for lo, hi in zip(box.lower, box.upper, strict=True))
