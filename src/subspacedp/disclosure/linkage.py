"""What several releases fix together that none of them fixes alone.

The paper's example: the age margin is held in one release and the zip margin in another, as in a
linkage attack. Linearly the invariants span the sum of their row spaces; with counts that cannot be
negative they may pin cells that neither pins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from subspacedp.disclosure.bounds import CellBounds
from subspacedp.disclosure.ranges import CellRange, cell_bounds, cell_range
from subspacedp.disclosure.values import Given
from subspacedp.invariants import space_of

__all__ = ["Linkage", "linkage"]

LISTED = 20


@dataclass(frozen=True, kw_only=True)
class Linkage:
    """Ranks of the invariants alone and together, and the cells pinned only jointly.

    `new_fixed` counts cells that the invariants fix together whatever their values; `pinned` the
    cells pinned by the values and non-negativity; None without values.
    """

    held: tuple[str, ...]
    ranks: tuple[int, ...]
    rank: int
    new_fixed: int
    pinned: int | None
    narrow: int | None
    examples: tuple[CellRange, ...]

    @property
    def shared(self) -> int:
        """How many independent figures are held more than once: Σ ranks − rank of all."""
        return sum(self.ranks) - self.rank

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "held": list(self.held),
            "ranks": list(self.ranks),
            "rank": self.rank,
            "shared": self.shared,
            "fixed_only_jointly": self.new_fixed,
            "pinned_only_jointly": self.pinned,
            "narrow_only_jointly": self.narrow,
            "examples": [cell.as_dict() for cell in self.examples],
        }

    def __str__(self) -> str:
        each = " and ".join(f"{h} ({r:,})" for h, r in zip(self.held, self.ranks, strict=True))
        text = (
            f"Linkage: counted in independent figures, the releases hold {each}, together "
            f"{self.rank:,}."
        )
        if self.pinned is None:
            return text + f" Fixed only jointly, whatever the values: {self.new_fixed:,} cells."
        text += (
            f" Pinned by all together and by none alone: {self.pinned:,} cells; narrow only "
            f"jointly: {self.narrow:,}."
        )
        if self.examples:
            text += f" For example {'; '.join(map(str, self.examples[:3]))}."
        return text


def linkage(
    parts: Sequence[Given], whole: Given, found: CellBounds | None, *, narrow: int, programs: int
) -> Linkage | None:
    """What the parts determine together; None for a single release."""
    if len(parts) < 2:
        return None
    spaces = [space_of(part.bound) for part in parts]
    joint = space_of(whole.bound)
    fixed = joint.diagonal() < 1e-9
    for space in spaces:
        fixed &= space.diagonal() >= 1e-9
    pinned = close = None
    examples: list[CellRange] = []
    if found is not None:
        alone = [cell_bounds(part, narrow=narrow, programs=programs) for part in parts]
        new = found.pinned & ~np.any([a.pinned for a in alone], axis=0)
        near = (found.width <= narrow) & ~np.any([a.width <= narrow for a in alone], axis=0)
        pinned, close = int(new.sum()), int(np.count_nonzero(near & ~found.pinned))
        cells = np.flatnonzero(new)
        order = np.lexsort((found.upper.reshape(-1)[cells], found.upper.reshape(-1)[cells] == 0))
        examples = [cell_range(whole.domain, found, int(c)) for c in cells[order[:LISTED]]]
    return Linkage(
        held=tuple(str(part.bound) for part in parts),
        ranks=tuple(space.rank for space in spaces),
        rank=joint.rank,
        new_fixed=int(np.count_nonzero(fixed)),
        pinned=pinned,
        narrow=close,
        examples=tuple(examples),
    )
