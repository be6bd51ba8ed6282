"""What is in the files of a release: the data dictionary, and the files themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from subspacedp.queries import Cells, ClippedSums, Margins, Query
from subspacedp.release import Release
from subspacedp.release.files import CERTIFICATE, CSV, PARQUET
from subspacedp.report.notes import PublishedColumn, PublishedFile
from subspacedp.report.words import figure_words

__all__ = ["default_files", "share_words", "size_words", "value_columns"]


def default_files() -> tuple[PublishedFile, ...]:
    """What `Release.save` writes."""
    return (
        PublishedFile(name=CSV, holds="Labels, value and standard error, one row a cell, as text."),
        PublishedFile(name=PARQUET, holds="The same, for programs; numbers keep their type."),
        PublishedFile(
            name=CERTIFICATE,
            holds="The promise, its terms, the held figures, and a digest of the values.",
        ),
    )


def value_columns(release: Release) -> Sequence[PublishedColumn]:
    """The columns of the values files."""
    query = release.mechanism.query
    noun = "cell" if query.axes is not None else "answer"
    of = f" of the {noun}" if query.workload is None else ""
    noise = (
        "noise of mean zero" if release.mechanism.declared is None else "another mechanism's noise"
    )
    value = PublishedColumn(
        name="value",
        meaning=f"the published figure{of}, which has {noise}{_of(release)}",
        type="whole number" if release.whole else "decimal number",
        unit=_unit(query),
    )
    stderr = PublishedColumn(
        name="stderr",
        meaning="its standard error, the noise alone; 0 where the held figures fix the value",
        type="decimal number",
        unit=value.unit,
    )
    return (*_label_columns(release), value, stderr)


def _of(release: Release) -> str:
    """What the figure is apart from the noise, where that is not plain from the table."""
    plain = release.mechanism.query.counts_records and not release.mechanism.capped
    return (
        ""
        if plain or release.mechanism.query.axes is None
        else f": {figure_words(release.mechanism)}"
    )


@singledispatch
def _unit(query: Query) -> str:
    return "that of the question"


@_unit.register
def _(query: Cells) -> str:
    return "records"


@_unit.register
def _(query: Margins) -> str:
    return "records"


@_unit.register
def _(query: ClippedSums) -> str:
    return f"that of `{query.value}`"


def _label_columns(release: Release) -> list[PublishedColumn]:
    domain = release.mechanism.query.axes
    if domain is None:
        return [PublishedColumn(name="question", meaning="the name of the question", type="text")]
    out, query = [], release.mechanism.query
    if query.workload is not None:
        meaning = "the margin of the row, by its levels; labels of other levels are empty"
        out.append(PublishedColumn(name="margin", meaning=meaning, type="text"))
    for axis in domain.axes:
        for step, level in enumerate(axis.chain):
            if level.name not in query.level_names:
                continue
            kind = "text" if isinstance(level.labels[0], str) else "whole number"
            meaning = (
                f"label on the axis {axis.name}, one of {level.groups:,}"
                if step == 0
                else f"group of {axis.name}, one of {level.groups:,}"
            )
            out.append(PublishedColumn(name=level.name, meaning=meaning, type=kind))
    return out


def size_words(size: int | None) -> str:
    """A number of bytes as people say it."""
    if size is None:
        return ""
    for unit, step in (("MB", 10**6), ("kB", 10**3)):
        if size >= step:
            return f"{size / step:,.1f} {unit}"
    return f"{size:,} bytes"


def share_words(share: float) -> str:
    """A part of the whole, rounded down: only all of it is 100 %."""
    tenths = int(share * 1000 + 1e-9) / 10
    return f"{tenths:g} %" if tenths in (0.0, 100.0) else f"{tenths:.1f} %"
