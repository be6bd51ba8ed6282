"""The labels and groups of an axis, as a specification or a public code list has them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from subspacedp.errors import DomainError
from subspacedp.frozen import frozen
from subspacedp.io import AxisColumn
from subspacedp.io.files import delimiter_of
from subspacedp.io.foreign import is_foreign, open_foreign
from subspacedp.publication.document import AxisEntry
from subspacedp.publication.faults import SpecificationError, nearest
from subspacedp.publication.reading import read_text
from subspacedp.tables import Axis, Label


@frozen(kw_only=True)
class CodeList:
    """A public list of labels and, for every level, the group of each of them.

    Parameters
    ----------
    labels, levels, groupings
        The labels, and by level or grouping the group of each; None for one in no group.
    names
        The name that each label is published under, where the list has names.
    """

    labels: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    groupings: Mapping[str, tuple[str | None, ...]]
    names: tuple[str, ...] | None = None


def axis_of(
    name: str, entry: AxisEntry, folder: Path, found: Sequence[Label] | None = None
) -> Axis:
    """The axis that an entry describes; reads its code list.

    Parameters
    ----------
    found
        For `labels: from-data`, the labels that were read off the data.

    Notes
    -----
    `other` and `missing` join the labels where they are none of them, and are groups of their own
    at every level; they are in no group of a grouping. Whole-number labels become text where one
    of these is text.
    """
    labels: Sequence[Label] = entry.inline or found or ()
    levels: dict[str, Sequence[Label]] = {}
    groups: dict[str, Sequence[Label]] = {}
    groupings: dict[str, Sequence[Label | None]] = {}
    if entry.code_list is not None:
        codes = _code_list(name, entry, folder)
        labels, levels = codes.names or codes.labels, dict(codes.levels)
        groupings = dict(codes.groupings)
    if entry.periods is not None:
        levels = {level: entry.periods.groups(level) for level in entry.level_names}
    extra = [label for label in entry.extra if label not in labels]
    if extra:
        labels = (*labels, *extra)
        for level, of_each in levels.items():
            _check_own_groups(name, level, extra, of_each)
        levels = {level: (*of_each, *extra) for level, of_each in levels.items()}
        nowhere = (None,) * len(extra)
        groupings = {grouping: (*of_each, *nowhere) for grouping, of_each in groupings.items()}
    for level, members in entry.groups.items():
        group_of = {label: label for label in entry.extra}
        listed = {label: group for group, inside in members.items() for label in inside}
        _check_own_groups(name, level, [label for label in extra if label not in listed], members)
        group_of |= listed
        levels[level] = [group_of[label] for label in labels]
        groups[level] = tuple(dict.fromkeys((*members, *levels[level])))
    for grouping, members in entry.grouped.items():
        of_label = {label: group for group, inside in members.items() for label in inside}
        groupings[grouping] = [of_label.get(label) for label in labels]
        groups[grouping] = tuple(members)
    return Axis(
        name,
        _alike(labels),
        levels={level: _alike(of_each) for level, of_each in levels.items()},
        groups={level: _alike(listed) for level, listed in groups.items()},
        from_data=entry.from_data,
        titles=entry.titles(name),
        groupings=groupings,
    )


def _check_own_groups(
    axis: str, level: str, extra: Sequence[Label], groups: Iterable[Label]
) -> None:
    """Refuse labels of rows without a place that would join a group by their name alone."""
    taken = next((label for label in extra if str(label) in set(map(str, groups))), None)
    if taken is not None:
        raise DomainError(
            f"Axis `{axis}` has a group {str(taken)!r} of `{level}`, which rows without a place "
            "would join as that is their label too; list the label in a group, or choose another."
        )


def _alike(labels: Sequence[Label]) -> Sequence[Label]:
    """Labels as they are, or all as text where some are text and some numbers."""
    if isinstance(labels, range) or len({isinstance(label, str) for label in labels}) < 2:
        return labels
    return tuple(map(str, labels))


def column_of(axis: Axis, entry: AxisEntry, folder: Path, where: str) -> AxisColumn:
    """Where an axis stands in the data, and what the data write for its labels.

    Parameters
    ----------
    where
        Where the entry stands in the specification, for messages.
    """
    written: Mapping[Label, Label] | None = None
    labels = entry.inline or ()
    if isinstance(entry.labels, Mapping):
        written = entry.labels
    elif entry.names is not None:
        codes = _code_list(axis.name, entry, folder)
        written = dict(zip(codes.labels, codes.names or (), strict=True))
    elif isinstance(entry.labels, tuple) and labels[0] not in axis.labels:
        written = {label: str(label) for label in labels}
    text = isinstance(axis.labels[0], str)
    missing, other = (
        str(label) if text and label is not None else label
        for label in (entry.missing, entry.other)
    )
    return AxisColumn(
        axis,
        column=entry.column,
        bins=entry.bins,
        columns=entry.columns,
        values=written,
        periods=entry.periods,
        missing=missing,
        other=other,
        where=where,
    )


def _code_list(name: str, entry: AxisEntry, folder: Path) -> CodeList:
    path = folder / str(entry.code_list)
    return read_code_list(
        path, name, entry.level_names, names=entry.names, groupings=entry.grouping_names
    )


def read_code_list(
    path: Path,
    axis: str,
    levels: Sequence[str] = (),
    *,
    names: str | None = None,
    groupings: Sequence[str] = (),
) -> CodeList:
    """Read labels and groups from a csv file with a header, or a spreadsheet.

    Parameters
    ----------
    path
        The file; csv in UTF-8, with or without a byte order mark.
    axis
        Labels are in the column of this name, or else in the first one. They are text as it
        stands there: `01001` keeps its zero.
    levels
        The columns that give the groups, finest first.
    names
        The column with the name of each label; no two labels may have the same.
    groupings
        The columns of groupings; blank for a label in no group.
    """
    header, rows = read_rows(path, "code list")
    wanted = levels if names is None else (*levels, names)
    check_columns((*wanted, *groupings), header, f"The code list `{path}`")
    where = header.index(axis) if axis in header else 0
    for what, known in (("level", levels), ("grouping", groupings)):
        if header[where] in known:
            raise SpecificationError(
                f"The code list `{path}` has no column for the labels: its first column is the "
                f"{what} `{header[where]}`."
            )
    lines: dict[str, int] = {}
    named: dict[str, int] = {}
    for line, row in rows:
        for name in (header[where], *wanted):
            if not row[header.index(name)]:
                raise SpecificationError(
                    f"The code list `{path}` has nothing in column `{name}` in line {line}."
                )
        for seen, column, what in (
            (lines, where, "label"),
            (named, where if names is None else header.index(names), "name"),
        ):
            text = row[column]
            if text in seen:
                raise SpecificationError(
                    f"The code list `{path}` has the {what} '{text}' in line {seen[text]} and "
                    f"again in line {line}."
                )
            seen[text] = line
    if not lines:
        raise SpecificationError(f"The code list `{path}` has no labels.")
    return CodeList(
        labels=tuple(lines),
        levels={
            name: tuple(row[header.index(name)] for _, row in rows) for name in levels
        },
        groupings={
            name: tuple(row[header.index(name)] or None for _, row in rows) for name in groupings
        },
        names=None if names is None else tuple(named),
    )  # fmt: skip


def check_columns(wanted: Iterable[str], header: Sequence[str], file: str) -> None:
    """Refuse a file that lacks a column; `file` is what it is called."""
    for name in wanted:
        if name not in header:
            near = nearest(name, header)
            columns = ", ".join(f"`{column}`" for column in header)
            hint = f"did you mean `{near}`?" if near else f"its columns are {columns}."
            raise SpecificationError(f"{file} has no column `{name}`; {hint}")


def read_rows(path: Path, what: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the rows that are not blank, each with its line.

    Parameters
    ----------
    what
        What the file is called in messages, such as `code list`.
    """
    if is_foreign(path):
        foreign = open_foreign(path)
        return list(foreign.columns), list(enumerate(foreign.texts(), 2))
    text = read_text(path, what)
    sign = delimiter_of(text.partition("\n")[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error:
        raise SpecificationError(
            f"The {what} `{path}` is not valid csv in line {reader.line_num}."
        ) from None
    if not rows:
        raise SpecificationError(f"The {what} `{path}` is empty.")
    header = rows[0][1]
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise SpecificationError(f"The {what} `{path}` has two columns `{repeated}`.")
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise SpecificationError(
                f"The {what} `{path}` has {len(row)} fields in line {line} and {len(header)} "
                "columns."
            )
    return header, rows[1:]
