"""Checks of a specification across its sections, each of which is right by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from subspacedp.errors import BudgetError, DomainError
from subspacedp.mechanisms import MECHANISMS, default_name
from subspacedp.publication.axis_section import AxisEntry
from subspacedp.publication.budgeting import total_of
from subspacedp.publication.data_section import ROW
from subspacedp.publication.document import Document
from subspacedp.publication.noise_checks import no_such, place_of, workload_problems
from subspacedp.publication.problems import Place, Problem
from subspacedp.publication.table_specification import ONLY, TableSpecification, axis_of
from subspacedp.release.files import margin_stem
from subspacedp.release.folder_checks import NAMES
from subspacedp.tables import Label
from subspacedp.tables.domain import RESERVED

if TYPE_CHECKING:
    from subspacedp.publication.specification import Specification

__all__ = ["cross_problems"]

COUNTS = "counts"  # the folder of the counts where sums stand beside them
# Columns of further files, beside those of every release.
COLUMNS = {
    **dict.fromkeys(("lower", "upper"), "margins"),
    **dict.fromkeys(("non_negative_biased", "unbiased_value"), "tables without negative values"),
    **dict.fromkeys(
        (
            "confidential",
            "all_records",
            "without_noise",
            "released",
            "error",
            "error_in_standard_errors",
        ),
        "comparisons",
    ),
}
WHOLE_NUMBERS = ("auto", *(name for name, kind in MECHANISMS.items() if kind.with_digits))
LONGEST = 200  # bytes of a name: file systems take 255, endings included
NOT_IN_FILES = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
FOLDER_NAME = re.compile(r"\w[\w.-]*")


def cross_problems(specification: Specification) -> Iterator[Problem]:
    """What the sections of a specification say against each other."""
    document = specification.document
    yield from _names(document)
    yield from _data(document)
    for name, entry in document.axes.items():
        yield from _groups(name, entry)
    if document.tables is None:
        yield from _table(specification, ONLY, ())
        yield from _folders(specification)
        return
    known = True
    for name, table in document.tables.items():
        place: Place = ("tables", name)
        if not FOLDER_NAME.fullmatch(name):
            yield Problem(
                place, "must be a name of letters, digits, `_`, `-` and `.`, as a folder has it"
            )
        for i, axis in enumerate(table.axes):
            if axis not in document.axes:
                yield Problem((*place, "axes", i), no_such("axis", axis, document.axes))
                known = False
            elif axis in table.axes[:i]:
                yield Problem((*place, "axes", i), f"names the axis `{axis}` a second time")
        if table.share is None and len(document.tables) > 1:
            yield Problem(place, "needs a `share` of the budget")
    if known:
        yield from _shares(specification)
        yield from _folders(specification)
        for name in document.tables:
            yield from _table(specification, name, ("tables", name))


def _names(document: Document) -> Iterator[Problem]:
    """Names of axes and levels are unique in the file, and not those of published columns."""
    seen: dict[str, str] = {}
    for axis, entry in document.axes.items():
        place: Place = ("axes", axis)
        levels: Place = (*place, "levels")
        if axis in RESERVED:
            yield Problem(place, f"may not be named `{axis}`, which is a column of every release")
        if axis in COLUMNS:
            yield Problem(place, f"may not be named `{axis}`, which is a column of {COLUMNS[axis]}")
        if axis in seen:
            yield Problem(place, f"has the name of a level of axis `{seen[axis]}`")
        if axis in entry.level_names:
            yield Problem(levels, f"has a level that is named like the axis, `{axis}`")
        for level in entry.level_names:
            if level in RESERVED:
                yield Problem(
                    levels, f"may not have a level `{level}`, which is a column of every release"
                )
            if level in COLUMNS:
                yield Problem(
                    levels, f"may not have a level `{level}`, a column of {COLUMNS[level]}"
                )
            if level in seen:
                yield Problem(levels, f"has the level `{level}`, a name of axis `{seen[level]}`")
        seen.update(dict.fromkeys((axis, *entry.level_names), axis))


def _data(document: Document) -> Iterator[Problem]:
    counts, unit = document.data.counts, document.data.unit
    wide = [name for name, entry in document.axes.items() if entry.columns is not None]
    for name in wide:
        if counts is None:
            yield Problem(
                ("axes", name, "columns"), "is for a wide table of counts; give `data.counts`"
            )
    if len(wide) > 1:
        yield Problem(
            ("axes", wide[1], "columns"), f"can be given for one axis only; `{wide[0]}` has it"
        )
    if counts is not None and wide and counts.value is not None:
        yield Problem(
            ("data", "counts", "value"), f"cannot stand beside the columns of axis `{wide[0]}`"
        )
    if counts is not None and not wide and counts.value is None:
        yield Problem(("data", "counts"), "needs `value`, the column with the counts")
    if document.privacy.exactly and unit not in (None, ROW) and document.data.records > 1:
        yield Problem(
            ("privacy", "exactly"),
            f"cannot be true with `unit: {unit}` and several `records`: those who have fewer stay "
            "as they are; leave it out",
        )
    for name, entry in document.axes.items():
        if unit not in (None, ROW) and (entry.column or name) == unit:
            yield Problem(("axes", name), f"cannot be the column `{unit}` that names the person")
        if entry.columns is not None:
            columns = list(entry.columns.values())
            twice = next((column for column in columns if columns.count(column) > 1), None)
            if twice is not None:
                yield Problem(("axes", name, "columns"), f"has the column `{twice}` twice")


def _groups(name: str, entry: AxisEntry) -> Iterator[Problem]:
    """Every label that stands in the file is in one group of every level."""
    if not isinstance(entry.levels, Mapping) or entry.inline is None:
        return
    place: Place = ("axes", name, "levels")
    fine = True
    for level, members in entry.levels.items():
        seen: dict[Label, Label] = {}
        for group, inside in members.items():
            for label in inside:
                if label not in entry.inline:
                    yield Problem(
                        (*place, level, group), no_such("label", label, map(str, entry.inline))
                    )
                elif label in seen:
                    yield Problem(
                        (*place, level, group),
                        f"has the label {label!r}, which `{seen[label]}` has already",
                    )
                seen.setdefault(label, group)
        left = [label for label in entry.inline if label not in seen]
        if left:
            yield Problem((*place, level), f"has no group for the label {left[0]!r}")
        fine = fine and not left and set(seen) <= set(entry.inline)
    if fine:
        try:
            axis_of(name, entry, Path())
        except DomainError as error:
            yield Problem(place, f"cannot be used, as {_inner(error)}")


def _shares(specification: Specification) -> Iterator[Problem]:
    tables = specification.document.tables or {}
    total = total_of(table.share for table in tables.values() if table.share is not None)
    if total > 1:
        yield Problem(("tables",), f"has shares that add up to {_decimal(total)}, more than 1")


def _folders(specification: Specification) -> Iterator[Problem]:
    """Every release has a folder of its own, and none is named like a file beside them."""
    alone = specification.document.tables is None
    wanted: list[tuple[str, Place]] = []
    for table in specification.tables:
        place: Place = () if alone else ("tables", table.name)
        if not alone or table.sums:
            wanted.append((COUNTS if alone else table.name, place))
        wanted += [
            (name if alone else f"{table.name}-{name}", (*place, "sums", name))
            for name in table.sums
        ]
    reserved = {name.casefold() for name in NAMES}
    taken: dict[str, str] = {}
    for name, at in wanted:
        other = taken.get(name.casefold())
        if name.casefold() in reserved:
            yield Problem(
                at, f"may not be named `{name}`, like a file of a release; give it another name"
            )
        elif other is not None:
            yield Problem(
                at, f"would be written to the same folder as `{other}`; give it another name"
            )
        taken[name.casefold()] = name
        if len(name.encode()) > LONGEST:
            yield Problem(at, f"would have a folder with a name of more than {LONGEST} bytes")


def _table(specification: Specification, name: str, place: Place) -> Iterator[Problem]:
    table = specification.table(name)
    axis_of_level = {
        level: axis for axis, entry in table.axes.items() for level in (axis, *entry.level_names)
    }
    for i, margin in enumerate(table.hold):
        at: Place = (*place, "hold", i)
        yield from _margin(at, margin, axis_of_level)
        if set(margin) == set(table.axes):
            yield Problem(at, "holds every cell, so that nothing is left to protect")
    for i, margin in enumerate(table.margins):
        yield from _margin((*place, "publish", "margins", i), margin, axis_of_level)
    yield from _margin_files((*place, "publish", "margins"), table.margins)
    if table.margins_alone:  # which are then files too
        yield from _margin_files((*place, "hold"), tuple(dict.fromkeys(table.hold)))
    yield from workload_problems(specification, name)
    real = table.mechanism not in WHOLE_NUMBERS and not table.margins_alone
    if real and table.publish.decimals is not None:
        yield Problem(
            place_of(specification, name, "publish", "decimals"),
            f"needs `mechanism: {default_name()}`; the {table.mechanism} one gives real values "
            "(null)",
        )
    if table.sums:
        yield from _sums(specification, table, place)
    else:
        yield from _budget(table, None)


def _sums(
    specification: Specification, table: TableSpecification, place: Place
) -> Iterator[Problem]:
    at: Place = (*place, "sums")
    if specification.document.data.counts is not None:
        yield Problem(at, "needs records; `data.counts` has none")
    for name in table.sums:
        if not FOLDER_NAME.fullmatch(name):
            yield Problem((*at, name), "must be a name of letters, digits, `_`, `-` and `.`")
    total = total_of(entry.share for entry in table.sums.values())
    if total >= 1:
        yield Problem(
            at, f"has shares that add up to {_decimal(total)}, which leaves nothing for the counts"
        )
        return
    for part in (None, *table.sums):
        yield from _budget(table, part)


def _budget(table: TableSpecification, of: str | None) -> Iterator[Problem]:
    try:
        table.budget(of)
    except BudgetError as error:
        yield Problem(("privacy",), f"cannot be used, as {_inner(error)}")


def _margin(
    place: Place, margin: Sequence[str], axis_of_level: Mapping[str, str]
) -> Iterator[Problem]:
    used: dict[str, str] = {}
    for name in margin:
        if name not in axis_of_level:
            yield Problem(place, no_such("axis or level", name, axis_of_level))
            continue
        axis = axis_of_level[name]
        if axis in used:
            yield Problem(
                place,
                f"names `{name}` twice"
                if used[axis] == name
                else f"names `{used[axis]}` and `{name}`, which are levels of one axis, `{axis}`",
            )
        used[axis] = name


def _margin_files(place: Place, margins: Sequence[Sequence[str]]) -> Iterator[Problem]:
    """Every published margin has a file of its own within the folder of the release."""
    taken: dict[str, int] = {}
    for i, margin in enumerate(margins):
        stem = margin_stem(margin)
        if NOT_IN_FILES.search(stem) or stem.startswith("."):
            yield Problem(
                (*place, i),
                "cannot name a file, as it has `/`, `\\`, a control character or a `.` in front; "
                "give the axis or level another name",
            )
        elif len(stem.encode()) > LONGEST:
            yield Problem(
                (*place, i),
                f"would have a file with a name of more than {LONGEST} bytes; give its axes or "
                "levels shorter names",
            )
        elif stem.casefold() in taken:
            yield Problem(
                (*place, i),
                f"would be written to the same file as margin {taken[stem.casefold()] + 1} of the "
                "list; leave it out, or give an axis or level another name",
            )
        taken.setdefault(stem.casefold(), i)


def _inner(error: Exception) -> str:
    """A sentence of the library within one of ours."""
    text = str(error).removesuffix(".")
    return text[:1].lower() + text[1:]


def _decimal(number: Fraction) -> str:
    """A sum of decimals, all digits; it always ends."""
    digits = 0
    while number * 10**digits % 1:
        digits += 1
    text = f"{int(number * 10**digits):0{digits + 1}d}"
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text
