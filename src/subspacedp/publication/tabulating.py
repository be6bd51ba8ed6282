"""From a specification and its source to the confidential tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subspacedp.errors import DataError
from subspacedp.io import (
    AxisColumn,
    ClippedValue,
    Source,
    labels_from_data,
    open_source,
    tabulate,
    tabulate_margins,
)
from subspacedp.publication.releases import MOST_CELLS, Asked, bounded, choice_key
from subspacedp.publication.specification import Specification
from subspacedp.publication.table_specification import TableSpecification
from subspacedp.queries import Margins
from subspacedp.tables import Domain, Label

__all__ = ["Confidential", "found_labels", "open_data", "tabulate_release"]

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Confidential:
    """The data of one release; nothing of them is shown."""

    protected: Any
    everything: Any  # None where nothing was bounded
    dropped: int
    records: int

    def __repr__(self) -> str:
        return "Confidential(hidden)"


def open_data(specification: Specification) -> Source:
    """Open the source of a specification."""
    data = specification.document.data
    table = data.counts.table if data.counts is not None else data.table
    return open_source(data.where, base=specification.folder, table=table)


def found_labels(
    specification: Specification, source: Source, progress: Progress
) -> dict[str, Sequence[Label]]:
    """The labels of axes with `labels: from-data`; they are not protected."""
    axes = {axis for table in specification.tables for axis in table.from_data}
    out: dict[str, Sequence[Label]] = {}
    for axis in sorted(axes):
        progress(f"reading the labels of `{axis}` off the data")
        out[axis] = labels_from_data(source, specification.column(axis))
    return out


def tabulate_release(
    asked: Asked, domain: Domain, source: Source, progress: Progress, *, held_alone: bool = False
) -> Confidential:
    """Tabulate what one release needs: its table, or its margins alone.

    With `held_alone` of margins only those that are held.
    """
    if asked.margins_alone and asked.table.specification.document.data.counts is None:
        names = asked.table.held().margins if held_alone else asked.counted_margins(domain)
        return _margins(asked, Margins(domain, names), source, progress)
    if domain.size > MOST_CELLS:
        raise DataError(
            f"The table `{asked.table.name}` has {domain.size:,} cells, and a table that was "
            f"counted before is read with at most {MOST_CELLS:,}; margins of more are counted from "
            "records."
        )
    specification = asked.table.specification
    data = specification.document.data
    capped = bounded(specification)
    value = None
    if asked.sum is not None:
        entry = asked.table.sums[asked.sum]
        value = ClippedValue(
            column=entry.column or asked.sum,
            lower=entry.lower,
            upper=entry.upper,
            unit=entry.unit,
        )
    found = tabulate(
        source,
        _columns(asked.table, domain),
        unit=data.unit if capped else None,
        records=specification.neighbours.records if capped else 1,
        per_cell=specification.neighbours.per_cell if capped else None,
        key=choice_key(specification) if capped else None,
        value=value,
        count=data.counts.value if data.counts is not None else None,
        without_unit=data.without_unit == "leave-out",
        progress=progress,
    )
    records = int(found.everything.counts.sum())
    if asked.sum is None:
        everything = found.everything if capped else None
        return Confidential(found.bounded, everything, found.dropped, records)
    sums = found.sums_everything if capped else None
    return Confidential(found.sums, sums, found.dropped, records)


def _margins(asked: Asked, workload: Margins, source: Source, progress: Progress) -> Confidential:
    """Margins counted one by one: the table of all cells is never formed."""
    specification = asked.table.specification
    data, capped = specification.document.data, bounded(specification)
    domain = workload.domain
    found = tabulate_margins(
        source,
        _columns(asked.table, domain),
        workload,
        asked.table.held(),
        unit=data.unit if capped else None,
        records=specification.neighbours.records if capped else 1,
        per_cell=specification.neighbours.per_cell if capped else None,
        key=choice_key(specification) if capped else None,
        without_unit=data.without_unit == "leave-out",
        progress=progress,
    )
    records = int(found.everything.of(domain.margin()).sum())
    everything = found.everything if capped else None
    return Confidential(found.bounded, everything, found.dropped, records)


def _columns(table: TableSpecification, domain: Domain) -> list[AxisColumn]:
    entries: Mapping[str, Any] = table.axes
    return [
        AxisColumn(
            axis,
            column=entry.column,
            bins=tuple(entry.bins) if entry.bins is not None else None,
            columns=dict(entry.columns) if entry.columns is not None else None,
        )
        for axis, entry in zip(domain.axes, entries.values(), strict=True)
    ]
