"""A first specification, proposed from the columns of a file.

What it proposes is a guess to be checked by a person, and every guess has a comment that says so.
Labels that were seen in the data are confidential until somebody who knows the subject has
confirmed that they are the public list.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import combinations, product
from pathlib import Path

from subspacedp.errors import DataError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.io import look, open_source
from subspacedp.io.inspect import MANY, Column, Seen, prefix_of
from subspacedp.io.sources import source_fault
from subspacedp.publication.checks import COLUMNS
from subspacedp.publication.columns import (
    AGE_WORDS,
    AREA_WORDS,
    ID_WORDS,
    CountColumns,
    counted_columns,
    free,
    has_word,
    key_column,
    quoted,
    safe_name,
    unwritable,
)
from subspacedp.publication.faults import SpecificationError
from subspacedp.publication.schema import specification_schema
from subspacedp.tables.domain import RESERVED

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
PERSONS_PER_CELL = 10  # cells with fewer persons on average are mostly noise
MOST_PAIRED = 20  # axes of which all pairs are published
MOST_NUMBERS = 30  # distinct whole numbers that still look like codes
BOUNDS = (1, 2, 3, 5, 10, 20, 50)  # proposed for the records of a person
LEFT_OUT = 0.01  # the share of records that a proposed bound may leave out
WIDTH = 96
LONGEST = 200  # of a name; YAML allows a key 1024 characters
AGE_BINS = "[0, 5, 18, 25, 45, 65, 85]"
MISSING, OTHER = "not stated", "all other"


@frozen(kw_only=True, repr=False)
class Starter:
    """A proposal. Confidential: it was made by looking at the data.

    Parameters
    ----------
    text
        The specification.
    code_lists
        By path beside it: the code lists that it names.
    """

    text: str
    code_lists: Mapping[str, str]


@frozen(kw_only=True)
class _Proposal:
    """An axis: its comments, its name, the inside of its braces, its labels and levels."""

    name: str
    inside: list[str]
    labels: int
    comments: list[str]
    levels: dict[str, int] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """By name, finest first: how many labels the axis and its levels have."""
        return {self.name: self.labels, **self.levels}

    def lines(self) -> list[str]:
        pieces = ", \n".join(self.inside).split("\n")
        return [
            *_comment(self.comments, "  "),
            *_wrapped(f"  {quoted(self.name)}: {{", pieces, "}"),
        ]


def starter(seen: Seen, source: str, table: str | None = None) -> Starter:
    """A commented specification for data that look like this, ready to be edited.

    Parameters
    ----------
    seen
        What was seen of the data.
    source
        The path or address to write into it; a password in an address is left out.
    table
        The table that was looked at, in a database.

    Returns
    -------
    The text of a YAML file that `read_specification` accepts, and the code lists that it names.
    """
    if not seen.rows:
        raise DataError("The source has no rows, from which something could be proposed.")
    proposing = _Proposing(seen)
    return Starter(text=proposing.text(source, table), code_lists=proposing.code_lists)


def write_starter(source: str, out: Path, table: str | None = None) -> list[Path]:
    """Look at the data and write the proposal with its code lists, for their owner alone.

    Returns the files that are the proposal; the schema for editors is beside them.
    """
    if out.exists():
        raise ReleaseError(f"`{out}` exists already; it is not overwritten.")
    with open_source(source, table=table) as opened:
        proposal = starter(look(opened), _as_seen_from(out, source), table)
    lists = {out.parent / path: text for path, text in proposal.code_lists.items()}
    for path, text in lists.items():
        if path.exists() and path.read_text("utf-8") != text:
            raise ReleaseError(
                f"`{path}` exists already and is not overwritten; move it, or write the "
                "specification to another folder with `--out`."
            )
    schema = out.parent / "specification.schema.json"
    for path, text in {**lists, out: proposal.text}.items():
        if not path.exists():
            _write(path, text)
    if not schema.exists():
        _write(schema, specification_schema(), mode=0o644)
    return [out, *lists]


def _as_seen_from(out: Path, source: str) -> str:
    """Paths in a specification are relative to it."""
    path = Path(source).expanduser()
    if not path.exists() or path.is_absolute() or out.resolve().parent == Path.cwd():
        return source
    return Path(os.path.relpath(path, out.parent)).as_posix()


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    try:
        if path.parent.name == "codes":
            path.parent.mkdir(exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{path}`: {error.strerror}.") from None


class _Proposing:
    """The guesses, in the order in which they rest on each other."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.left: dict[str, str] = {}  # columns that are left out, and why
        self.unnamed: list[tuple[str, str]] = []  # those that cannot even be named, and why
        self.code_lists: dict[str, str] = {}
        self.titles: set[str] = set()
        self.usable = self._usable()
        if not self.usable:
            raise SpecificationError(
                "The data have no column that could be an axis; name the columns."
            )
        self.taken = {column.name for column in self.usable}
        self._by_name = {column.name: column for column in self.usable}
        units = [column for column in self.usable if _is_id(column)]
        self.counts = CountColumns() if units else counted_columns(self.usable)
        self.unit = units[0] if units else None
        for column in units[1:]:
            self.left[column.name] = "it could also name the person: then write it as `unit`"
        self.persons = self._persons()
        self.room = max(self.persons // PERSONS_PER_CELL, 2)
        used = [*units, *self.counts.used, *self.counts.left]
        rest = [c for c in self.usable if c not in used]
        self.key = key_column(rest) if self.counts.used else None
        self.axes = self._counted_axes(rest) if self.counts.used else self._axes(rest)
        if not self.axes:  # something has to stand there
            self.axes = [self._any_axis((rest or self.usable)[0])]
            if self.unit is not None and self.axes[0].name == self.unit.name:
                self.unit = None

    def _usable(self) -> list[Column]:
        usable: list[Column] = []
        for column in self.seen.columns:
            name = column.name
            if not name.strip() or len(name) > LONGEST or any(map(unwritable, name)):
                self.unnamed.append((name[:LONGEST], "its name cannot be used; rename it"))
            elif any(name == other.name for other in usable):
                self.unnamed.append((name, "it occurs more than once; rename all but one"))
            else:
                usable.append(column)
        return usable

    def _persons(self) -> int:
        if self.unit is None:
            return self.seen.rows
        return sum(number for _, number in self.unit.records) or self.seen.rows

    # -------------------------------------------------------------------------------------- axes

    def _counted_axes(self, columns: Sequence[Column]) -> list[_Proposal]:
        """Those of a counted table; beside a column that names its rows there is no other.

        What else a row says of itself would make cells that nobody can be in.
        """
        axes = [self._wide_axis()] if self.counts.wide else []
        for column in self.counts.left:
            self.left[column.name] = "people would be counted twice"
        for column in columns:
            if self.key is None or column is self.key:
                listed = self._listed(column) if column.kind in {"text", "whole", "bool"} else None
                if listed is None and column.kind == "text":
                    listed = self._any_axis(column)
                if listed is not None:
                    axes.append(listed)
                    continue
            self.left[column.name] = (
                "it is no list of labels; give it `bins` or `by`"
                if self.key is None
                else f"every {quoted(self.key.name)} has one of these: better a level of "
                "that axis, as a further column of its code list"
            )
        return axes

    def _wide_axis(self) -> _Proposal:
        used = self.counts.used
        prefix = prefix_of(used[0].name)
        pieces = [f"{quoted(c.name.removeprefix(prefix))}: {quoted(c.name)}" for c in used]
        return _Proposal(
            comments=[
                "Columns of counts side by side: label and column of each.",
                *self.counts.comments,
            ],
            name=free("category", self.taken),
            inside=["columns: {" + ", \n".join(pieces) + "}"],
            labels=len(used),
        )

    def _axes(self, columns: Sequence[Column]) -> list[_Proposal]:
        """The columns of person records that look like classifications, nested where they are."""
        listed = [c for c in columns if self._is_list(c)]
        nested = self._nested(listed)
        inner = {name for levels in nested.values() for name in levels}
        axes: list[_Proposal] = []
        for column in columns:
            axis = None
            if column.name in inner or column.name in self.left:
                continue
            if column in listed:
                axis = self._listed(column, nested.get(column.name, []))
            elif has_word(column.name, AGE_WORDS) and column.kind in {"whole", "real"}:
                odd = column.negative or column.kind == "real"
                comment = "Looks like an age: in groups, with a last one that is open."
                axis = self._entry(column, [f"bins: {AGE_BINS}"], 7, [comment], other=odd)
            elif column.span is not None:
                axis = self._dated(column)
            if axis is None:
                self.left[column.name] = self._why_not(column)
            elif len(axes) == MOST_PAIRED:
                self.left[column.name] = f"{MOST_PAIRED} axes come before it"
            else:
                axes.append(axis)
        return axes

    def _is_list(self, column: Column) -> bool:
        """Whether the values are few enough, and of a kind, to be labels."""
        if column.kind == "bool":
            return True
        if column.kind == "whole" and has_word(column.name, AGE_WORDS):
            return False
        most = MOST_NUMBERS if column.kind == "whole" else self.room
        return (
            column.kind in {"text", "whole"}
            and column.distinct is not None
            and 1 < column.distinct <= max(min(most, self.room), 2)
            and bool(_labels(column))
        )

    def _why_not(self, column: Column) -> str:
        if column.distinct == 0:
            return "it has no values"
        if column.distinct == 1:
            return "it has one value alone"
        if column.kind in {"whole", "real"}:
            return "numbers with many values; give it `bins` whose edges are public"
        if column.kind in {"text", "date", "time"} and column.per_value == 1:
            return "it has another value in every row, and would name single persons"
        if column.kind in {"text", "whole"}:
            return "it has too many values for the number of persons; give a coarser list"
        return "it holds nothing that could be labels"

    def _nested(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        """By column: the columns that group its labels, finest first; equals are left out."""
        by_name = {c.name: c for c in columns if _is_axis_name(c.name)}
        for first, second in combinations(by_name.values(), 2):
            if second.name in first.groups and first.name in second.groups:
                self.left[second.name] = f"it says the same as {quoted(first.name)}"
        kept = {name: c for name, c in by_name.items() if name not in self.left}
        below = {name for c in kept.values() for name in c.groups if name in kept}
        nested: dict[str, list[str]] = {}
        assigned: set[str] = set()
        for root in sorted(kept.values(), key=lambda c: -(c.distinct or 0)):
            if root.name in below:
                continue
            chain: list[str] = []
            inside = [kept[name] for name in root.groups if name in kept and name not in assigned]
            for column in sorted(inside, key=lambda c: -(c.distinct or 0)):
                if not chain or column.name in kept[chain[-1]].groups:
                    chain.append(column.name)
            assigned |= set(chain)
            nested[root.name] = chain
        return {name: chain for name, chain in nested.items() if chain}

    def _listed(self, column: Column, levels: Sequence[str] = ()) -> _Proposal | None:
        """An axis of the values that were seen: listed if few, in a code list if many or nested."""
        labels = _labels(column)
        if not labels:
            return None
        comment = "Seen in the data: to be checked."
        codes = _codes(column)
        if codes and not levels and len(codes) <= MANY:
            text = ", \n".join(f"{quoted(code)}: {quoted(name)}" for code, name in codes.items())
            comment = "Codes and names as the file lists them, whether or not they occur: check."
            number = len(set(codes.values()))
            return self._entry(column, [f"labels: {{{text}}}"], number, [comment])
        if column.few and not levels:
            text = ", \n".join(map(quoted, labels))
            return self._entry(column, [f"labels: [{text}]"], len(labels), [comment])
        header, columns = [column.name], [list(map(str, labels))]
        inside = []
        if codes and len(set(codes.values())) == len(codes):
            header.append(free("name", {column.name, *levels}))
            columns.append([codes[label] for label in labels])
            inside.append(f"names: {header[-1]}")
        header += levels
        columns += [self._groups(column, name) for name in levels]
        path = self._code_list(header, list(zip(*columns, strict=True)))
        inside.insert(0, f"labels: {quoted(path)}")
        if levels:
            inside.append(f"levels: [{', '.join(map(quoted, levels))}]")
            comment = (
                "Seen in the data, to be checked with its code list: every "
                f"{quoted(column.name)} is of one {quoted(levels[0])} in all rows that have both."
            )
        sizes = {name: len(set(column.groups[name])) for name in levels}
        return self._entry(column, inside, len(labels), [comment], levels=sizes)

    def _groups(self, column: Column, level: str) -> list[str]:
        """The group of every label, by its name where the file names all groups apart."""
        groups = list(column.groups[level])
        names = {str(code): name for code, name in _codes(self._by_name[level]).items()}
        apart = len(set(names.values())) == len(names) and not set(groups) - set(names)
        return [names[group] for group in groups] if apart else groups

    def _title(self, name: str, column: Column, levels: Iterable[str]) -> list[str]:
        """What the file calls an axis and its levels, where readers can tell these titles apart."""
        titles: dict[str, str] = {}
        for level in (column.name, *levels):
            title = self._by_name[level].title[:LONGEST] if level in self._by_name else ""
            if title and title.isprintable() and title not in {*self.taken, *self.titles}:
                self.titles.add(title)
                titles[name if level == column.name else level] = title
        if list(titles) == [name]:
            return [f"title: {quoted(titles[name])}"]
        pairs = ", \n".join(f"{quoted(level)}: {quoted(title)}" for level, title in titles.items())
        return [f"title: {{{pairs}}}"] if titles else []

    def _code_list(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([header, *rows])
        taken = {path.casefold() for path in self.code_lists}
        name, number = safe_name(header[0]), 1
        while f"codes/{name}.csv".casefold() in taken:
            number += 1
            name = f"{safe_name(header[0])}-{number}"
        self.code_lists[f"codes/{name}.csv"] = text.getvalue()
        return f"codes/{name}.csv"

    def _dated(self, column: Column) -> _Proposal | None:
        """By month, year or decade, whichever gives few labels; the range is to be made public."""
        first, last = column.span or ("", "")
        if not DAY.fullmatch(first) or not DAY.fullmatch(last):
            return None
        start, end = int(first[:4]), int(last[:4])
        months = 12 * (end - start) + int(last[5:7]) - int(first[5:7]) + 1
        comment = "The range was seen in the data: give the public one."
        levels = {}
        if months <= 36:
            inside = ["by: month", f"first: {first[:7]}", f"last: {last[:7]}"]
            if "year" not in self.taken:
                inside.append("levels: [year]")
                levels = {"year": end - start + 2}
                self.taken.add("year")
        elif end - start < 30:
            inside, months = ["by: year", f"first: {start}", f"last: {end}"], end - start + 1
        else:
            decades = range(start // 10 * 10, end + 1, 10)
            edges = ", \n".join(f'"{max(year, 1):04d}-01-01"' for year in decades)
            inside, months = [f"bins: [{edges}]"], len(decades)
        return self._entry(column, inside, months, [comment], levels=levels, other=True)

    def _entry(
        self,
        column: Column,
        inside: list[str],
        labels: int,
        comments: list[str],
        *,
        levels: Mapping[str, int] | None = None,
        other: bool = False,
    ) -> _Proposal:
        name, inside = column.name, list(inside)
        if not _is_axis_name(name):
            inside.insert(0, f"column: {quoted(name)}")
            name = free(f"{safe_name(name)}_axis", self.taken)
            self.taken.add(name)
        inside = [*self._title(name, column, levels or ()), *inside]
        extra = 0
        if other:
            inside.append(f"other: {quoted(OTHER)}")
            extra += 1
        if column.nulls > 0 and not self.counts.used:
            inside.append(f"missing: {quoted(MISSING)}")
            extra += 1
        sizes = {level: size + extra for level, size in (levels or {}).items()}
        return _Proposal(
            name=name, inside=inside, labels=labels + extra, comments=comments, levels=sizes
        )

    def _any_axis(self, column: Column) -> _Proposal:
        self.left.pop(column.name, None)
        comment = "Nothing looks like an axis: choose one."
        if column.kind in {"real", "whole"}:
            return self._entry(column, ["bins: [0, 1]"], 2, [comment])
        comment = "Too many labels to list: put the public code list into the file named here."
        path = f"codes/{safe_name(column.name)}.csv"
        return self._entry(column, [f"labels: {quoted(path)}"], 1000, [comment])

    # ------------------------------------------------------------------------------------- words

    def text(self, source: str, table: str | None) -> str:
        """The specification."""
        return "\n".join(
            [
                "# yaml-language-server: $schema=specification.schema.json",
                "#",
                "# A proposal, made by looking at the data. Check every line: what is right cannot "
                "be",
                "# seen in a file. Until the labels below are confirmed from public knowledge, "
                "keep this",
                "# file and its code lists as confidential as the data.",
                "",
                *self._data(source, table),
                "# One axis for every direction of the table. Labels must come from public "
                "knowledge, such",
                "# as a code book, and not from this file: that a label occurs can tell about a "
                "person.",
                "# Those listed here were seen in the data, for convenience; check and complete "
                "them.",
                "# With title: Age in years beside its labels, readers see that and not the name.",
                "axes:",
                *(line for axis in self.axes for line in axis.lines()),
                "",
                *self._rest(),
                *self._confidential(),
                "",
            ]
        )

    def _data(self, source: str, named: str | None) -> list[str]:
        readable = _readable(source)
        where = quoted(readable)
        table = []
        if named or source_fault(readable, None):
            table = [f"table: {quoted(named or 'persons')}  # the table or sheet in it"]
        decimal = ['decimal: ","'] if self.seen.decimal == "," else []
        lines = ["data:"]
        if self.counts.used:
            value = []
            if not self.counts.wide:
                column = quoted(self.counts.used[0].name)
                value = [f"    value: {column}  # the column with the counts"]
            return [
                *lines,
                "  # The columns look like counts and not like persons. If every row is a person,",
                f"  # write source: {where} and unit: row here instead.",
                "  counts:",
                f"    source: {where}",
                *(f"    {line}" for line in table),
                *value,
                "  # One person is counted in at most so many cells. Nothing can check this claim.",
                "  records: 1",
                *(f"  {line}" for line in decimal),
                "",
            ]
        lines += [f"  source: {where}", *(f"  {line}" for line in [*table, *decimal])]
        if self.unit is None:
            return [
                *lines,
                "  # Every row is taken for another person. If a person can have several rows, "
                "name",
                "  # the column that says whose they are.",
                "  unit: row",
                "  records: 1",
                "",
            ]
        return [
            *lines,
            "  # Whose privacy is protected: this column looks like it names the person. If every",
            "  # row is another person, write: unit: row",
            f"  unit: {quoted(self.unit.name)}",
            *(["  without_unit: leave-out"] if self.unit.nulls > 0 else []),
            "  # The most records of one person that count; further ones are left out, and more",
            "  # records need more noise. Better from public knowledge than from the figures at",
            "  # the end of this file.",
            f"  records: {self._bound()}",
            "",
        ]

    def _bound(self) -> int:
        return next((b for b in BOUNDS if self._beyond(b) <= LEFT_OUT), BOUNDS[-1])

    def _beyond(self, bound: int) -> float:
        """The share of records that a bound leaves out."""
        records = self.unit.records if self.unit is not None else ()
        total = sum(n * persons for n, persons in records)
        return sum((n - bound) * persons for n, persons in records if n > bound) / max(total, 1)

    def _rest(self) -> list[str]:
        return [
            *self._hold(),
            "",
            "# The promise. The figure is a placeholder: smaller protects more, with more noise.",
            "# It is a decision for those who answer for the data, not for this file's author "
            "alone.",
            "# One of: epsilon, epsilon and delta, rho, mu.",
            f"privacy: {{{'epsilon: 1.0' if self._cells_fit else 'rho: 0.5'}, "
            "neighbours: replace-one}",
            "",
            "# auto: the mechanism with the narrowest 95 % intervals.",
            "mechanism: auto",
            "",
            *self._sums(),
            *self._publish(),
        ]

    def _hold(self) -> list[str]:
        lines = [
            "# Margins that are published exactly, and so not protected: hold only what must be",
            "# exact. [] within the list is the grand total.",
        ]
        if self.counts.used:
            names = [axis.name for axis in self.axes]
            if len(names) > 1:
                key = self.key.name if self.key is not None else names[0]
                lines.append(f"# hold: [[{quoted(key if key in names else names[0])}]]")
            return [*lines, "hold: []"]
        if self.unit is None:
            lines.append(
                "# It costs nothing here: replacing one person by another cannot alter it."
            )
        else:
            lines += [
                "# It is the number of records, which a person with more or fewer records alters.",
                "# Where that number is not public anyway, write: hold: []",
            ]
        return [*lines, "hold: [[]]"]

    @property
    def _cells_fit(self) -> bool:
        cells = math.prod(axis.labels for axis in self.axes)
        return bool(self.counts.used) or len(self.axes) == 1 or cells <= self.room

    def _sums(self) -> list[str]:
        if not self._cells_fit or self.counts.used:
            return []
        values = [
            c
            for c in self.usable
            if c.kind == "real" and c.name in self.left and c.name not in RESERVED
        ]
        if not values:
            return []
        return [
            "# Sums of a value beside the counts. lower and upper must be public knowledge, and",
            "# the share of the budget is taken from the counts.",
            "# sums:",
            *(
                f"#   {quoted(safe_name(c.name))}: {{column: {quoted(c.name)}, lower: 0, "
                "upper: 1000, unit: 1, share: 0.1}"
                for c in values
            ),
            "",
        ]

    def _publish(self) -> list[str]:
        digits = "# decimals 0: whole numbers that add up; null: real values, a stronger guarantee."
        if self._cells_fit:
            margins = [[name] for axis in self.axes for name in axis.sizes]
            margins = [] if len(self.axes) == 1 or self.counts.used else margins
            listed = ", ".join(f"[{quoted(name)}]" for (name,) in margins)
            return [
                digits,
                "# margins: further totals to publish; noise is designed for them too.",
                *_wrapped(
                    "publish: {decimals: 0, ", [f"margins: [{listed}], ", "to: release"], "}"
                ),
            ]
        pieces = [f"[{', '.join(map(quoted, margin))}], " for margin in self._margins()]
        pieces[-1] = pieces[-1].removesuffix(", ")
        return [
            f"# All cells would be more than one for every {PERSONS_PER_CELL} persons, and mostly "
            "noise. Instead, margins",
            "# alone: every axis and every pair of axes, at the finest level that persons fill.",
            digits,
            "publish:",
            "  decimals: 0",
            "  cells: false",
            *_wrapped("  margins: [", pieces, "]"),
            "  to: release",
        ]

    def _margins(self) -> list[list[str]]:
        """Every axis and level, and every pair of axes at the finest levels that fit."""
        margins = [[name] for axis in self.axes for name in axis.sizes]
        for first, second in combinations(self.axes, 2):
            fitting = [
                (a * b, [one, other])
                for (one, a), (other, b) in product(first.sizes.items(), second.sizes.items())
                if a * b <= self.room
            ]
            if fitting:
                margins.append(max(fitting, key=lambda pair: pair[0])[1])
        return margins

    def _confidential(self) -> list[str]:
        """What was seen and is no part of the specification, apart from it."""
        sentences = [
            f"{self.seen.rows:,} rows"
            + (f" of {self.persons:,} persons." if self.unit is not None else ".")
        ]
        if self.unit is not None and self.unit.records:
            most = self.unit.records[-1][0]
            bound = self._bound()
            tried = sorted({b for b in BOUNDS if b <= most} | {bound})
            shares = ", ".join(f"{b}: {100 * self._beyond(b):.3g} %" for b in tried)
            sentences += [
                f"Persons have up to {most:,} records. A bound leaves out this share of records: "
                f"{shares}. Proposed is {bound}: figures count the records that stay, and "
                "intervals say nothing of those left out."
            ]
        for column in self.usable:
            if column.nulls > 0:
                share = max(1, round(100 * column.nulls))
                sentences.append(f"{quoted(column.name)}: about {share} % of rows have nothing.")
        left = [*self.unnamed, *self.left.items()]
        sentences += [f"Left out: {quoted(name)}: {why}." for name, why in left]
        return [
            "",
            "# ---------------------------------------------------------------------------------",
            "# Seen in the data, without any protection: for you alone. Delete everything from",
            "# here on before anybody else gets this file.",
            *_comment(sentences, ""),
        ]


# --------------------------------------------------------------------------------------- guesses


def _labels(column: Column) -> list[str | int]:
    """The labels to propose; none where they are of a kind that is no label."""
    if column.kind == "bool":
        return ["false", "true"]
    values = [getattr(v, "item", lambda v=v: v)() for v in column.sample or () if v is not None]
    if column.kind == "whole":  # text files hold numbers as text
        values = [int(v) if isinstance(v, str) and WHOLE.fullmatch(v) else v for v in values]
    kind = int if column.kind == "whole" else str
    if not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
        return []
    if any(isinstance(v, int) and abs(v) >= 2**63 for v in values):
        return []
    if any(isinstance(v, str) and (not v.strip() or any(map(unwritable, v))) for v in values):
        return []
    return values if len(set(values)) == len(values) and column.distinct else []


def _codes(column: Column) -> dict[str | int, str]:
    """What the file says that codes are called; none unless it names every value there is."""
    names = column.names
    if not all(str(label) in names for label in _labels(column)):
        return {}
    whole = column.kind == "whole" and all(WHOLE.fullmatch(code) for code in names)
    if column.kind == "whole" and not whole:
        return {}
    return {int(code) if whole else code: name.strip() or code for code, name in names.items()}


def _is_axis_name(name: str) -> bool:
    """Whether an axis can be called so: margins are files of their axes' names."""
    taken = {*RESERVED, *COLUMNS}
    return name not in taken and not re.search(r"[/\\\x00-\x1f\x7f-\x9f]|^\.", name)


def _is_id(column: Column) -> bool:
    return (
        column.kind in {"text", "whole"}
        and not column.few
        and column.name != "row"
        and has_word(column.name, ID_WORDS)
        and not has_word(column.name, AREA_WORDS)
    )


# --------------------------------------------------------------------------------------- writing


def _comment(sentences: Iterable[str], indent: str) -> list[str]:
    return [
        f"{indent}# {line}"
        for sentence in sentences
        for line in textwrap.wrap(sentence, WIDTH - len(indent) - 2, break_long_words=False)
    ]


def _readable(source: str) -> str:
    """The source without a password; a placeholder where a specification would refuse it."""
    source = re.sub(r"(://[^/@\s:]*):[^@\s]*@", r"\1@", source)
    source = re.sub(r"(?i)([?&;\s])(\w*password|pwd)=[^&;\s]*", r"\1", source)
    return "data.csv" if not source or source_fault(source, "table") else source


def _wrapped(start: str, pieces: Sequence[str], end: str) -> list[str]:
    """Pieces after one another, on further lines where they are too long for one."""
    lines = [start]
    for piece in pieces:
        if len(lines[-1]) + len(piece) > WIDTH and lines[-1].strip():
            lines.append("    ")
        lines[-1] += piece
    lines[-1] = lines[-1].rstrip() + end
    return [line.rstrip() for line in lines]
