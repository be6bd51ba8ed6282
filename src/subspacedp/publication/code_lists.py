"""The labels and groups of an axis, as a specification or a public code list has them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from subspacedp.publication.document import AxisEntry
from subspacedp.publication.faults import SpecificationError, nearest
from subspacedp.publication.reading import read_text
from subspacedp.tables import Axis

__all__ = ["CodeList", "axis_of", "read_code_list"]


@dataclass(frozen=True, kw_only=True)
class CodeList:
    """A public list of labels and, for every level, the group of each of them."""

    labels: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]


def axis_of(name: str, entry: AxisEntry, folder: Path) -> Axis:
    """The axis that an entry describes; reads its code list."""
    if entry.code_list is not None:
        codes = read_code_list(folder / entry.code_list, name, entry.level_names)
        return Axis(name, codes.labels, levels=codes.levels)
    labels = entry.inline or ()
    levels, groups = {}, {}
    for level, members in entry.groups.items():
        group_of = {label: group for group, inside in members.items() for label in inside}
        levels[level] = [group_of[label] for label in labels]
        groups[level] = list(members)
    return Axis(name, labels, levels=levels, groups=groups)


def read_code_list(path: Path, axis: str, levels: Sequence[str] = ()) -> CodeList:
    """Read labels and groups from a csv file with a header, separated by commas.

    Parameters
    ----------
    path
        The file; UTF-8, with or without a byte order mark.
    axis
        Labels are in the column of this name, or else in the first one. They are text as it
        stands there: `01001` keeps its zero.
    levels
        The columns that give the groups, finest first.
    """
    rows = _rows(path)
    if not rows:
        raise SpecificationError(f"The code list `{path}` is empty.")
    header = rows[0][1]
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise SpecificationError(
            f"The code list `{path}` must be separated by commas; its first line is not."
        )
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise SpecificationError(f"The code list `{path}` has two columns `{repeated}`.")
    for name in levels:
        if name not in header:
            near = nearest(name, header)
            columns = ", ".join(f"`{column}`" for column in header)
            hint = f"did you mean `{near}`?" if near else f"its columns are {columns}."
            raise SpecificationError(f"The code list `{path}` has no column `{name}`; {hint}")
    where = header.index(axis) if axis in header else 0
    if header[where] in levels:
        raise SpecificationError(
            f"The code list `{path}` has no column for the labels: its first column is the level "
            f"`{header[where]}`."
        )
    lines: dict[str, int] = {}
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise SpecificationError(
                f"The code list `{path}` has {len(row)} fields in line {line} and "
                f"{len(header)} columns."
            )
        for name in (header[where], *levels):
            if not row[header.index(name)]:
                raise SpecificationError(
                    f"The code list `{path}` has nothing in column `{name}` in line {line}."
                )
        label = row[where]
        if label in lines:
            raise SpecificationError(
                f"The code list `{path}` has the label '{label}' in line {lines[label]} and again "
                f"in line {line}."
            )
        lines[label] = line
    if not lines:
        raise SpecificationError(f"The code list `{path}` has no labels.")
    return CodeList(
        labels=tuple(lines),
        levels={
            name: tuple(row[header.index(name)] for _, row in rows[1:]) for name in levels
        },
    )  # fmt: skip


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, each with its line."""
    reader = csv.reader(io.StringIO(read_text(path, "code list"), newline=""), strict=True)
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error:
        raise SpecificationError(
            f"The code list `{path}` is not valid csv in line {reader.line_num}."
        ) from None
