"""About how much memory and disk a publication takes, from its designs alone, and what there is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from subspacedp.blocks.memory import available_memory
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.publication.releases import ReleaseSpecification
from subspacedp.release import Design
from subspacedp.release.folders import check_room

__all__ = ["check_publication_memory", "check_publication_room"]

# Measured: what is kept of every figure until the end, and what the widest step takes beside it.
KEPT, EVERYTHING, WORKING = 16, 8, 72
FIXED_MEMORY = 250_000_000  # the engine and the libraries, whatever the tables are
NUMBER = 25  # bytes of a number as text, and of what separates it from the next
FIXED_FILES = 5_000_000  # report and words, whatever the tables are
SOME = 10_000  # labels that are looked at for their length


def check_publication_memory(
    wanted: Sequence[ReleaseSpecification], designs: Mapping[str, Design]
) -> None:
    """Refuse a publication that would not fit into memory; ask before data are opened.

    The engine that counts is not in this: it has a limit of its own, and spills to disk.
    """
    known = [one for one in wanted if one.name in designs]
    if not known:
        return
    sizes = {one.name: designs[one.name].mechanism.query.size for one in known}
    kept = sum(
        sizes[one.name] * (KEPT + EVERYTHING * one.specification.data.bounded) for one in known
    )
    needed = FIXED_MEMORY + kept + WORKING * max(sizes.values())
    free = available_memory()
    if free is None or needed <= free:
        return
    raise ReleaseError(
        f"{sum(sizes.values()):,} figures take about {needed / 1e9:,.1f} GB of memory, and "
        f"{free / 1e9:,.1f} GB are available; nothing was spent. Leave out an axis, take coarser "
        "labels, or publish margins alone (`cells: false`).",
        needed=needed,
        available=free,
    )


def check_publication_room(
    wanted: Sequence[ReleaseSpecification],
    designs: Mapping[str, Design],
    target: Path,
    comparison: Path | None,
) -> None:
    """Refuse a publication that would not fit where it is to be written."""
    needed = {
        target: FIXED_FILES + sum(_published(one, designs[one.name].mechanism) for one in wanted)
    }
    if comparison is not None:
        needed[comparison] = sum(
            design.mechanism.query.size * (_labels(design.mechanism) + 6 * NUMBER)
            for design in designs.values()
        )
    check_room(needed)


def _published(wanted: ReleaseSpecification, mechanism: Mechanism) -> int:
    """Values twice, margins twice, held figures, and a table without negative values."""
    labels, cells = _labels(mechanism), mechanism.query.size
    margins = (*wanted.margins, *wanted.held_margins)
    rows = [(cells, 2)] + [(math.prod(mechanism.domain.margin(*m).shape), 4) for m in margins]
    if wanted.non_negative:
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
