"""Checks of a specification across its sections, each of which is right by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspacedp.errors import BudgetError, DomainError
from subspacedp.mechanisms import MECHANISMS, default_name
from subspacedp.privacy.numbers import exact_total
from subspacedp.publication.code_lists import axis_of
from subspacedp.publication.document import AxisEntry, Document
from subspacedp.publication.faults import Fault, Place, nearest
from subspacedp.queries.margins import COLUMN, MAX_AXES
from subspacedp.release.files import margin_stem
from subspacedp.release.folder_checks import NAMES
from subspacedp.tables import Label
from subspacedp.tables.domain import RESERVED

if TYPE_CHECKING:
    from subspacedp.publication.specification import Specification, TableSpecification

# Columns of further files, beside those of every release.
COLUMNS = {
    **dict.fromkeys(("lower", "upper"), "margins"),
    **dict.fromkeys(("non_negative_biased", "unbiased_value"), "tables without negative values"),
    "calibration_weight": "synthetic records",
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


def for_margins() -> tuple[str, ...]:
    """The mechanisms that publish margins without a table, as a specification names them."""
    return ("auto", *(name for name, kind in MECHANISMS.items() if kind.for_workloads))


def whole_numbers() -> tuple[str, ...]:
    """Those that publish values which add up."""
    return ("auto", *(name for name, kind in MECHANISMS.items() if kind.offers_decimals))


LONGEST = 200  # bytes of a name: file systems take 255, endings included
NOT_IN_FILES = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
FOLDER_NAME = re.compile(r"\w[\w.-]*")


def document_faults(document: Document) -> Iterator[Fault]:
    """What the sections of a specification say against each other, all tables aside."""
    yield from _names(document)
    yield from _data(document)
    for name, entry in document.axes.items():
        yield from _groups(name, entry)
    tables = document.tables or {}
    for name, table in tables.items():
        place: Place = ("tables", name)
        if not FOLDER_NAME.fullmatch(name):
            yield Fault(
                place, "must be a name of letters, digits, `_`, `-` and `.`, as a folder has it"
            )
        for i, axis in enumerate(table.axes):
            if axis not in document.axes:
                yield Fault((*place, "axes", i), _no_such("axis", axis, document.axes))
            elif axis in table.axes[:i]:
                yield Fault((*place, "axes", i), f"names the axis `{axis}` a second time")
        least = document.privacy.least
        if least is not None and table.share is not None:
            yield Fault(
                (*place, "share"),
                f"cannot stand beside `{least}: least`, with which every table takes what its "
                "targets need; leave it out",
            )
        if table.share is None and len(tables) > 1 and least is None:
            yield Fault(place, "needs a `share` of the budget")


def table_faults(specification: Specification) -> Iterator[Fault]:
    """What the tables of a specification, whose axes are known, say against each other."""
    shares = (table.entry.share for table in specification.tables)
    total = exact_total(share for share in shares if share is not None)
    if total > 1:
        yield Fault(("tables",), f"has shares that add up to {_decimal(total)}, more than 1")
    yield from _folders(specification)
    for table in specification.tables:
        yield from _table(table)


def _names(document: Document) -> Iterator[Fault]:
    """Names of axes and levels are unique in the file, and not those of published columns."""
    seen: dict[str, str] = {}
    titles: dict[str, str] = {}
    for axis, entry in document.axes.items():
        place: Place = ("axes", axis)
        levels: Place = (*place, "levels")
        if axis in RESERVED:
            yield Fault(place, f"may not be named `{axis}`, which is a column of every release")
        if axis in COLUMNS:
            yield Fault(place, f"may not be named `{axis}`, which is a column of {COLUMNS[axis]}")
        if axis in seen:
            yield Fault(place, f"has the name of a level of axis `{seen[axis]}`")
        if axis in entry.level_names:
            yield Fault(levels, f"has a level that is named like the axis, `{axis}`")
        for key, kind, names in (
            ("levels", "level", entry.level_names), ("groupings", "grouping", entry.grouping_names)
        ):  # fmt: skip
            at: Place = (*place, key)
            for level in names:
                if level in RESERVED:
                    yield Fault(
                        at, f"may not have a {kind} `{level}`, which is a column of every release"
                    )
                if level in COLUMNS:
                    yield Fault(
                        at, f"may not have a {kind} `{level}`, a column of {COLUMNS[level]}"
                    )
                if level in seen:
                    yield Fault(at, f"has the {kind} `{level}`, a name of axis `{seen[level]}`")
        both = next((n for n in entry.grouping_names if n in (axis, *entry.level_names)), None)
        if both is not None:
            yield Fault((*place, "groupings"), f"has the name `{both}`, which it has already")
        seen.update(dict.fromkeys((axis, *entry.above), axis))
        for name in entry.titles(axis):
            if name not in (axis, *entry.above):
                known = (axis, *entry.above)
                kind = "axis, level or grouping" if entry.grouping_names else "axis or level"
                yield Fault((*place, "title"), _no_such(kind, name, known))
        for name in (axis, *entry.above):
            title = entry.titles(axis).get(name, name)
            other = titles.setdefault(title, name)
            if other != name:
                yield Fault((*place, "title"), f"is `{title}`, which is that of `{other}` too")


def _data(document: Document) -> Iterator[Fault]:
    counts, person = document.data.counts, document.data.person
    wide = [name for name, entry in document.axes.items() if entry.columns is not None]
    for name in wide:
        if counts is None:
            yield Fault(
                ("axes", name, "columns"), "is for a wide table of counts; give `data.counts`"
            )
    if len(wide) > 1:
        yield Fault(
            ("axes", wide[1], "columns"), f"can be given for one axis only; `{wide[0]}` has it"
        )
    if counts is not None and wide and counts.value is not None:
        yield Fault(
            ("data", "counts", "value"), f"cannot stand beside the columns of axis `{wide[0]}`"
        )
    if counts is not None and counts.cells_in_order:
        yield from _in_order(document)
    elif counts is not None and not wide and counts.value is None:
        yield Fault(("data", "counts"), "needs `value`, the column with the counts")
    if document.privacy.exactly and person is not None and document.data.records > 1:
        yield Fault(
            ("privacy", "exactly"),
            f"cannot be true with `unit: {person}` and several `records`: those who have fewer "
            "stay as they are; leave it out",
        )
    for name, entry in document.axes.items():
        if person is not None and (entry.column or name) == person:
            yield Fault(("axes", name), f"cannot be the column `{person}` that names the person")
        if entry.columns is not None:
            columns = list(entry.columns.values())
            twice = next((column for column in columns if columns.count(column) > 1), None)
            if twice is not None:
                yield Fault(("axes", name, "columns"), f"has the column `{twice}` twice")


def _in_order(document: Document) -> Iterator[Fault]:
    """A table whose cells are known by their place has neither labels nor columns to read."""
    for name, entry in document.axes.items():
        if entry.from_data:
            yield Fault(
                ("axes", name, "labels"), "must be listed, as `data.counts` has cells without them"
            )
        for key in ("missing", "other"):
            if getattr(entry, key) is not None:
                yield Fault(("axes", name, key), "is for rows; `data.counts` has cells in order")
        if entry.columns is not None:
            yield Fault(("axes", name, "columns"), "is for rows; `data.counts` has cells in order")


def _groups(name: str, entry: AxisEntry) -> Iterator[Fault]:
    """Every label that stands in the file is in one group of every level."""
    place: Place = ("axes", name, "levels")
    labels = entry.inline or ()
    fine = bool(entry.groups)
    for level, members in entry.groups.items():
        seen: dict[Label, Label] = {}
        for group, inside in members.items():
            for label in inside:
                if label not in (*labels, *entry.extra):
                    yield Fault((*place, level, group), _no_such("label", label, map(str, labels)))
                elif label in seen:
                    yield Fault(
                        (*place, level, group),
                        f"has the label {label!r}, which `{seen[label]}` has already",
                    )
                seen.setdefault(label, group)
        left = [label for label in labels if label not in seen and label not in entry.extra]
        if left:
            yield Fault((*place, level), f"has no group for the label {left[0]!r}")
        fine = fine and not left and set(seen) <= {*labels, *entry.extra}
    for grouping, members in entry.grouped.items():
        at: Place = ("axes", name, "groupings", grouping)
        placed: dict[Label, Label] = {}
        for group, inside in members.items():
            for label in inside:
                if label not in labels:
                    yield Fault((*at, group), _no_such("label", label, map(str, labels)))
                    fine = False
                elif label in placed:
                    yield Fault(
                        (*at, group),
                        f"has the label {label!r}, which `{placed[label]}` has already",
                    )
                placed.setdefault(label, group)
    if fine:
        try:
            axis_of(name, entry, Path())
        except DomainError as error:
            yield Fault(place, f"cannot be used, as {_inner(error)}")


def _folders(specification: Specification) -> Iterator[Fault]:
    """Every release has a folder of its own, and none is named like a file beside them."""
    wanted: list[tuple[str, Place]] = []
    for table in specification.tables:
        wanted.append((table.release_folder(), table.place))
        wanted += [(table.release_folder(n), (*table.place, "sums", n)) for n in table.sums]
    reserved = {name.casefold() for name in NAMES}
    taken: dict[str, str] = {}
    for name, at in wanted:
        other = taken.get(name.casefold())
        if name.casefold() in reserved:
            yield Fault(
                at, f"may not be named `{name}`, like a file of a release; give it another name"
            )
        elif other is not None:
            yield Fault(
                at, f"would be written to the same folder as `{other}`; give it another name"
            )
        taken[name.casefold()] = name
        if len(name.encode()) > LONGEST:
            yield Fault(at, f"would have a folder with a name of more than {LONGEST} bytes")


def _table(table: TableSpecification) -> Iterator[Fault]:
    for i, margin in enumerate(table.hold):
        at: Place = (*table.place, "hold", i)
        yield from _margin(at, margin, table)
        if set(margin) == set(table.axes):
            yield Fault(at, "holds every cell, so that nothing is left to protect")
    published: Place = (*table.place, "publish", "margins")
    for i, margin in enumerate(table.margins):
        yield from _margin((*published, i), margin, table)
    yield from _margin_files(published, table.margins)
    if table.margins_alone:  # those that are held are then files too
        yield from _margin_files((*table.place, "hold"), tuple(dict.fromkeys(table.hold)))
        yield from _margins_alone(table)
    else:
        yield from _beside_cells(table)
    yield from _inequalities(table)
    yield from _targets(table)
    real = table.mechanism not in whole_numbers() and not table.margins_alone
    if real and table.publish.decimals is not None:
        yield Fault(
            table.place_of("publish", "decimals"),
            f"needs `mechanism: {default_name()}`; the {table.mechanism} one gives real values "
            "(null)",
        )
    if table.sums:
        yield from _sums(table)
    else:
        yield from _budget(table, None)


def _sums(table: TableSpecification) -> Iterator[Fault]:
    at: Place = (*table.place, "sums")
    if table.specification.data.counted:
        yield Fault(at, "needs records; `data.counts` has none")
    for name in table.sums:
        if not FOLDER_NAME.fullmatch(name):
            yield Fault((*at, name), "must be a name of letters, digits, `_`, `-` and `.`")
    total = exact_total(entry.share for entry in table.sums.values())
    if total >= 1:
        yield Fault(
            at, f"has shares that add up to {_decimal(total)}, which leaves nothing for the counts"
        )
        return
    for part in (None, *table.sums):
        yield from _budget(table, part)


def _targets(table: TableSpecification) -> Iterator[Fault]:
    """What is wrong with targets, and with a budget that is to be the least for them."""
    at, least = table.place_of, table.specification.document.privacy.least
    if least is not None and table.sums:
        yield Fault(at("sums"), f"needs a share of a budget; `{least}: least` is for counts alone")
    if not table.has_targets:
        if least is not None:
            what = f" of table `{table.name}`" if table.place else ""
            yield Fault(
                ("privacy", least),
                f"may be `least` where the margins{what} say how far off they may be, such as "
                "`{margin: [county], error: 20}`",
            )
        return
    if table.mechanism not in for_margins():
        yield Fault(
            at("mechanism"),
            f"must be {' or '.join(f'`{m}`' for m in for_margins())} where margins have targets; "
            f"got `{table.mechanism}`",
        )
    if table.publish.weights is not None:
        yield Fault(at("publish", "weights"), "cannot stand beside targets; leave one of them out")
    if table.publish.cells_at_most is not None:
        yield Fault(
            at("publish", "cells"), "cannot stand beside targets; give the cells one, as a margin"
        )
    for axis in table.from_data:
        yield Fault(
            ("axes", axis, "labels"), "must be listed where margins have targets; the error depends"
            " on how many there are",
        )  # fmt: skip
    for i, entry in enumerate(table.publish.entries):
        known = all(_known(table, m) for m in (entry.margin, *table.hold))
        if (
            entry.has_target
            and known
            and any(_determines(table, h, entry.margin) for h in table.hold)
        ):
            yield Fault(
                (*at("publish", "margins"), i),
                "has a target, and is published exactly, as what is held fixes it; leave out its "
                "target",
            )


def _inequalities(table: TableSpecification) -> Iterator[Fault]:
    """What is wrong with what is said to be known of the counts."""
    given = table.entry.inequalities
    if given is None:
        return
    at: Place = (*table.place, "inequalities")
    seen: dict[frozenset[str], int] = {}
    for i, entry in enumerate(given.at_most):
        place = (*at, "at_most", i)
        yield from _margin(place, entry.margin, table)
        first = seen.setdefault(frozenset(entry.margin), i)
        if first != i:
            yield Fault(place, f"limits the same margin as item {first + 1}")
    if table.specification.data.bounded and given.part_of:
        yield Fault(
            (*at, "part_of"),
            "need not hold where the records of a person are bounded: a part may stay where its "
            "whole is left out; leave it out",
        )
    if table.specification.data.bounded and given.at_most and table.hold:
        yield Fault(
            (*at, "at_most"),
            "need not hold of figures of bounded records, which are moved to agree with the held "
            "ones that count all records; leave it out",
        )
    labels = table.from_data and (given.part_of or any(entry.path for entry in given.at_most))
    for axis in table.from_data if labels else ():
        yield Fault(("axes", axis, "labels"), "must be listed where `inequalities` speak of labels")


def _budget(table: TableSpecification, of: str | None) -> Iterator[Fault]:
    if table.specification.document.privacy.least is not None:
        return
    try:
        table.budget(of)
    except BudgetError as error:
        yield Fault(("privacy",), f"cannot be used, as {_inner(error)}")


def _margin(place: Place, margin: Sequence[str], table: TableSpecification) -> Iterator[Fault]:
    used: dict[str, str] = {}
    axes = {name: axis for name, (axis, _) in table.levels.items()} | table.groupings
    for name in margin:
        if name not in axes:
            kind = "axis, level or grouping" if table.groupings else "axis or level"
            yield Fault(place, _no_such(kind, name, axes))
            continue
        axis = axes[name]
        if axis in used:
            yield Fault(
                place,
                f"names `{name}` twice"
                if used[axis] == name
                else f"names `{used[axis]}` and `{name}`, which are levels of one axis, `{axis}`",
            )
        used[axis] = name


def _margin_files(place: Place, margins: Sequence[Sequence[str]]) -> Iterator[Fault]:
    """Every published margin has a file of its own within the folder of the release."""
    taken: dict[str, int] = {}
    for i, margin in enumerate(margins):
        stem = margin_stem(margin)
        if NOT_IN_FILES.search(stem) or stem.startswith("."):
            yield Fault(
                (*place, i),
                "cannot name a file, as it has `/`, `\\`, a control character or a `.` in front; "
                "give the axis or level another name",
            )
        elif len(stem.encode()) > LONGEST:
            yield Fault(
                (*place, i),
                f"would have a file with a name of more than {LONGEST} bytes; give its axes or "
                "levels shorter names",
            )
        elif stem.casefold() in taken:
            yield Fault(
                (*place, i),
                f"would be written to the same file as margin {taken[stem.casefold()] + 1} of the "
                "list; leave it out, or give an axis or level another name",
            )
        taken.setdefault(stem.casefold(), i)


def _margins_alone(table: TableSpecification) -> Iterator[Fault]:
    """What is wrong with a table of which margins are published and no cells."""
    at, weights = table.place_of, table.publish.weights
    if not table.margins:
        yield Fault(
            at("publish", "cells"),
            "needs `margins` beside it, then all that is published",
        )
        return
    if weights is not None and len(weights) != len(table.margins):
        yield Fault(
            at("publish", "weights"),
            f"must be {len(table.margins)} numbers, one for each of the margins; got "
            f"{len(weights)}",
        )
    if table.sums:
        yield Fault(
            at("sums"), "cannot stand beside `cells: false`; sums need the cells of their table"
        )
    for key in ("non_negative", "records", "values"):
        if getattr(table.publish, key):
            yield Fault(at("publish", key), "needs the cells; leave out `cells: false`")
    if table.mechanism not in for_margins():
        yield Fault(
            at("mechanism"),
            f"must be {', '.join(f'`{m}`' for m in for_margins())} with `cells: false`; got "
            f"`{table.mechanism}`",
        )
    for key, listed in (("publish", table.margins), ("hold", table.hold)):
        for i, margin in enumerate(listed):
            grouping = table.grouped(margin)
            if grouping is not None:
                yield Fault(
                    (*at("publish", "margins"), i) if key == "publish" else (*at("hold"), i),
                    f"names the grouping `{grouping}`, which is a sum of cells; leave out "
                    "`cells: false`",
                )
    if len(table.axes) > MAX_AXES:
        yield Fault(("axes",), f"has {len(table.axes)} axes, and margins alone take {MAX_AXES}")
    for axis, entry in table.axes.items():
        if COLUMN in (axis, *entry.above):
            yield Fault(
                ("axes", axis), f"may not have the name `{COLUMN}`, a column of releases of margins"
            )
    yield from _margins(table, at("publish", "margins"))


def _beside_cells(table: TableSpecification) -> Iterator[Fault]:
    """What is said to count where cells are published: weights, or a limit for the cells."""
    weights, cells = table.place_of("publish", "weights"), table.place_of("publish", "cells")
    given, limit = table.publish.weights, table.publish.cells_at_most
    for at, given_here in ((weights, given is not None), (cells, limit is not None)):
        if given_here and table.mechanism not in for_margins():
            yield Fault(at, "is for `mechanism: marginals` or `auto`")
        elif given_here and not table.margins:
            yield Fault(at, "needs `margins` beside it, which the noise is designed for too")
    number = len(table.margins) + 1
    if given is not None and len(given) != number:
        yield Fault(
            weights,
            f"must be {number} numbers, one for the cells and one for each of the margins; got "
            f"{len(given)}",
        )
    if given is not None and limit is not None:
        yield Fault(weights, "cannot stand beside a limit for the cells; leave one of them out")
    if limit is not None and limit <= 1:
        yield Fault(cells, f"must allow more than 0 %; got '{table.publish.cells}'")


def _margins(table: TableSpecification, at: Place) -> Iterator[Fault]:
    """No margin twice, in whatever order it is written; not all of them held."""
    if not all(_known(table, m) for m in (*table.margins, *table.hold)):
        return  # is told of the margin itself
    seen: dict[frozenset[str], int] = {}
    for i, margin in enumerate(table.margins):
        first = seen.setdefault(frozenset(margin), i)
        if first != i:
            yield Fault((*at, i), f"is the same margin as item {first + 1}")
    if all(any(_determines(table, held, m) for held in table.hold) for m in table.margins):
        yield Fault(at, "is fixed entirely by what is held, so that nothing is left to protect")


def _known(table: TableSpecification, margin: Sequence[str]) -> bool:
    return all(name in table.levels or name in table.groupings for name in margin)


def _determines(table: TableSpecification, fine: Sequence[str], coarse: Sequence[str]) -> bool:
    """Whether the totals of one margin follow from those of another, whatever the groups are."""
    if table.grouped(fine) is not None:
        return frozenset(fine) == frozenset(coarse)
    if table.grouped(coarse) is not None:
        coarse = [table.groupings.get(name, name) for name in coarse]
    known = dict(table.levels[level] for level in fine)
    wanted = (table.levels[level] for level in coarse)
    return all(known.get(axis, math.inf) <= step for axis, step in wanted)


def _no_such(kind: str, name: object, known: Any) -> str:
    """A phrase for a name that is none, with the nearest one that is."""
    near = nearest(str(name), known)
    hint = f"; did you mean `{near}`?" if near else ""
    article = "an" if kind.startswith("a") else "a"
    return f"names `{name}`, which is not {article} {kind} here{hint}"


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
