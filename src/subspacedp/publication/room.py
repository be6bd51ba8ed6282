"""About how many bytes a publication takes, from its designs alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from subspacedp.mechanisms.base import Mechanism
from subspacedp.publication.releases import Asked
from subspacedp.release.folders import check_room

__all__ = ["check_publication_room"]

NUMBER = 25  # bytes of a number as text, and of what separates it from the next
FIXED = 5_000_000  # report and words, whatever the tables are
SOME = 10_000  # labels that are looked at for their length


def check_publication_room(
    asked: Sequence[Asked], designs: Mapping[str, Mechanism], target: Path, comparison: Path | None
) -> None:
    """Refuse a publication that would not fit where it is to be written."""
    needed = {target: FIXED + sum(_published(one, designs[one.name]) for one in asked)}
    if comparison is not None:
        needed[comparison] = sum(
            mechanism.query.size * (_labels(mechanism) + 6 * NUMBER)
            for mechanism in designs.values()
        )
    check_room(needed)


def _published(asked: Asked, mechanism: Mechanism) -> int:
    """Values twice, margins twice, held figures, and a table without negative values."""
    labels, cells = _labels(mechanism), mechanism.query.size
    margins = (*asked.margins, *asked.held_margins)
    rows = [(cells, 2)] + [(math.prod(mechanism.domain.margin(*m).shape), 4) for m in margins]
    if asked.table.publish.non_negative and asked.sum is None:
        rows.append((cells, 2))
    tables = sum(number * (2 * labels + columns * (NUMBER + 8)) for number, columns in rows)
    return tables + NUMBER * sum(math.prod(shape) for shape in mechanism.held.value_shapes)


def _labels(mechanism: Mechanism) -> int:
    """Bytes of the labels of one row, with quotes and commas, on average."""
    total = 0
    for axis in mechanism.domain.axes:
        for level in axis.chain:
            some = level.labels[:: max(1, level.groups // SOME)]
            lengths = [len(str(label).encode(errors="replace")) for label in some]
            total += math.ceil(sum(lengths) / len(lengths)) + 3
    return total
