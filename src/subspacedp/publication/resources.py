"""How releases are made, and about what that takes, from their designs alone; and what there is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from subspacedp.blocks.memory import available_memory, block_cells, memory_limit
from subspacedp.blocks.progress import duration
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.base import Mechanism
from subspacedp.publication.releases import ReleaseSpecification, in_one_piece
from subspacedp.release.drawing import LABELLED, store_kind
from subspacedp.release.folders import check_room

# Measured, in bytes per figure: what is kept of it until the end, and what the widest step takes.
COUNT, WITH_LABELS, ON_SHEETS = 8, 72, 2_000
SECOND = 800  # of a table without negative values
FIXED_MEMORY = 250_000_000  # the engine and the libraries, whatever the tables are
NUMBER = 25  # bytes of a number as text, and of what separates it from the next
FIXED_FILES = 5_000_000  # report and words, whatever the tables are
SOME = 10_000  # labels that are looked at for their length
# Measured, in seconds per figure: drawn and written as an array, or as text with its error.
STORED_SECONDS, LABELLED_SECONDS, FIXED_SECONDS = 1e-7, 3e-6, 2.0
SECOND_SECONDS, TIMES_MADE = 1.5e-5, 3  # a second table: rehearsed, published, verified
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|k|M|G|T)(|i?B)", re.IGNORECASE)


@frozen(kw_only=True)
class Making:
    """How one release is made, and about what that takes; nothing confidential.

    Parameters
    ----------
    figures, blocks
        How many figures it has, and in how many blocks they are made.
    on_disk
        Whether its counts go to files while it is made, instead of memory.
    kept, working
        Bytes of memory: until the publication is complete, and while this release is made.
    files, scratch, compared
        Bytes on disk: of what is published, of counts while it is made, and of a comparison.
    seconds
        About how long noise and files take; what an engine needs to count comes to it.
    """

    figures: int
    blocks: int
    on_disk: bool
    kept: int
    working: int
    files: int
    scratch: int
    compared: int
    seconds: float

    @property
    def memory(self) -> int:
        """Bytes of memory."""
        return FIXED_MEMORY + self.kept + self.working

    def __str__(self) -> str:
        where = f"in about {self.blocks:,} blocks" if self.blocks > 1 else "in memory, at once"
        counts = ", counts on disk" if self.on_disk else ""
        return (
            f"Made {where}{counts}; it takes about {_bytes(self.memory)} of memory, "
            f"{_bytes(self.files + self.scratch)} of disk and {duration(self.seconds)}, beside "
            "the counting."
        )

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "blocks": self.blocks,
            "counts_on_disk": self.on_disk,
            "memory": self.memory,
            "disk": self.files + self.scratch,
            "seconds": round(self.seconds, 1),
        }


def _of_sheets(figures: int) -> int:
    from subspacedp.publication.formats.workbook import MOST_ROWS

    return ON_SHEETS * min(figures, MOST_ROWS)


def making_of(wanted: ReleaseSpecification, mechanism: Mechanism, memory: int | None) -> Making:
    """How a release is made with so much memory, or with what is free."""
    size, data = mechanism.query.size, wanted.specification.data
    view, limit = mechanism.blocks(), memory_limit(memory)
    blocks = len(view.boxes(block_cells(math.prod(view.answers_shape))))
    whole, tables = in_one_piece(mechanism), 1 + data.bounded
    shared = wanted.specification.engine is not None and blocks > 1
    on_disk = not (data.in_order or whole) and (shared or COUNT * tables * size > limit)
    labelled = store_kind(mechanism, wanted.store) == LABELLED
    counts = 0 if on_disk or (data.in_order and not whole) else COUNT * tables * size
    return Making(
        figures=size,
        blocks=blocks,
        on_disk=on_disk,
        kept=counts + (COUNT * size if labelled else 0),
        working=max(
            WITH_LABELS * size if labelled else 0,
            _of_sheets(size) if "xlsx" in wanted.formats else 0,
            SECOND * size if wanted.non_negative else 0,
            view.bytes_per_cell * size if blocks == 1 else min(limit, view.bytes_per_cell * size),
        ),
        files=_published(wanted, mechanism, labelled=labelled),
        scratch=COUNT * tables * size if on_disk else 0,
        compared=size * (_labels(mechanism) + 6 * NUMBER),
        seconds=FIXED_SECONDS
        + size * (LABELLED_SECONDS if labelled else STORED_SECONDS)
        + size * (TIMES_MADE * SECOND_SECONDS if wanted.non_negative else 0.0),
    )


def check_publication_memory(making: Mapping[str, Making]) -> None:
    """Refuse a publication that would not fit into memory; ask before data are opened.

    The engine that counts is not in this: it has a limit of its own, and spills to disk.
    """
    if not making:
        return
    figures = sum(one.figures for one in making.values())
    kept = sum(one.kept for one in making.values())
    needed = FIXED_MEMORY + kept + max(one.working for one in making.values())
    free = available_memory()
    if free is None or needed <= free:
        return
    raise ReleaseError(
        f"{figures:,} figures take about {needed / 1e9:,.1f} GB of memory, and "
        f"{free / 1e9:,.1f} GB are available; nothing was spent. Leave out an axis, take coarser "
        "labels, publish margins alone (`cells: false`), or write values that are made block by "
        "block (`values: npy`), without a second table (`non_negative`, `records`).",
        needed=needed,
        available=free,
    )


def check_publication_room(
    making: Mapping[str, Making], target: Path, comparison: Path | None
) -> None:
    """Refuse a publication that would not fit where it is to be written."""
    needed = {target: FIXED_FILES + sum(one.files for one in making.values())}
    if comparison is not None:
        needed[comparison] = sum(one.compared for one in making.values())
    check_room(needed)


def memory_of(memory: int | str) -> int:
    """Bytes, from a number or from words such as "2GiB".

    >>> memory_of("2GiB"), memory_of("1.5 GB"), memory_of(4096)
    (2147483648, 1500000000, 4096)
    """
    size = SIZE.fullmatch(str(memory).strip())
    if isinstance(memory, bool) or size is None or Fraction(size[1]) <= 0:
        raise ReleaseError(f"`memory` must be bytes, or such as `2GiB` or `500MB`; got {memory!r}.")
    base = 1024 if size[3].casefold() == "ib" else 1000
    return int(Fraction(size[1]) * base ** ("", "k", "m", "g", "t").index(size[2].casefold()))


def _bytes(number: int) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{math.ceil(number / 1e6):,} MB"


def _published(wanted: ReleaseSpecification, mechanism: Mechanism, *, labelled: bool) -> int:
    """Values, twice where they have labels; margins twice, held figures, values not negative."""
    labels, cells = _labels(mechanism), mechanism.query.size
    margins = (*wanted.margins, *wanted.held_margins)
    rows = [(cells if labelled else 0, 2)] + [
        (math.prod(mechanism.domain.margin(*m).shape), 4) for m in margins
    ]
    if wanted.non_negative:
        rows.append((cells, 2))
    if wanted.records:
        from subspacedp.microdata import MAX_CSV_RECORDS

        # How many is the noise's to say, unless it is publicly known.
        rows.append((min(wanted.specification.document.persons or cells, MAX_CSV_RECORDS), 1))
    tables = sum(number * (2 * labels + columns * (NUMBER + 8)) for number, columns in rows)
    stored = 0 if labelled else COUNT * cells
    tables *= 1 + len(wanted.formats)
    return stored + tables + NUMBER * sum(math.prod(shape) for shape in mechanism.held.value_shapes)


def _labels(mechanism: Mechanism) -> int:
    """Bytes of the labels of one row, with quotes and commas, on average."""
    total = 0
    for axis in mechanism.domain.axes:
        for level in axis.named:
            some = level.labels[:: max(1, level.groups // SOME)]
            lengths = [len(str(label).encode(errors="replace")) for label in some]
            total += math.ceil(sum(lengths) / len(lengths)) + 3
    return total
