"""A first specification, proposed from the columns of a file.

What it proposes is a guess to be checked by a person, and every guess has a comment that says so.
Labels that were seen in the data are confidential until somebody who knows the subject has
confirmed that they are the public list.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from subspacedp.io.inspect import Column, is_total, prefix_of
from subspacedp.io.sources import source_fault
from subspacedp.publication.faults import SpecificationError
from subspacedp.publication.reading import plain_scalar
from subspacedp.tables.domain import RESERVED

__all__ = ["starter"]

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
MOST_LABELS = 50  # a column with more distinct values is hardly an axis without a code list
MOST_CELLS = 1_000_000
MOST_NAMED = 3  # columns that may name the person
WIDTH = 96
LONGEST = 200  # of a name; YAML allows a key 1024 characters
AGE_BINS = "[0, 5, 18, 25, 45, 65, 85]"
ID_WORDS = {"id", "uuid", "guid", "pid", "ssn", "pin", "person", "respondent", "member", "patient"}
AREA_WORDS = {"area", "block", "county", "district", "fips", "geo", "geoid", "place", "region"}
AREA_WORDS |= {"state", "tract", "zip", "zone"}
CODE_WORDS = {"code", "fips", "geoid", "id", "zip"}  # at the end of a name: no count
AGE_WORDS = {"age", "alter", "edad", "eta", "idade", "leeftijd"}
COUNT_WORDS = {"count", "counts", "n", "pop", "population", "freq", "frequency", "total", "persons"}
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


@dataclass(frozen=True, kw_only=True)
class _Proposal:
    """An axis: its lines of comment, its name, the inside of its braces, its number of labels."""

    comments: list[str]
    name: str
    inside: str
    labels: int
    sure: bool = True  # whether it is proposed, or only mentioned in a comment

    def lines(self, *, active: bool) -> list[str]:
        entry = _wrapped(f"  {quoted(self.name)}: {{", self.inside.split("\n"), "}")
        mark = "" if active else "  #"
        comments = [
            line
            for comment in self.comments
            for line in textwrap.wrap(comment, WIDTH - 4, break_long_words=False)
        ]
        return [f"  # {comment}" for comment in comments] + [mark + line for line in entry]


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """The columns that hold the counts: one, or the side of a wide table."""

    used: list[Column] = field(default_factory=list)
    wide: bool = False
    left: list[Column] = field(default_factory=list)  # counts of the same people
    comments: list[str] = field(default_factory=list)


def starter(columns: Sequence[Column], source: str, table: str | None = None) -> str:
    """A commented specification for a file with these columns, ready to be edited.

    Parameters
    ----------
    columns
        What was seen of the columns.
    source
        The path or address to write into it; a password in an address is left out.
    table
        The table that was looked at, in a database.

    Returns
    -------
    The text of a YAML file that `read_specification` accepts.
    """
    usable, skipped = _usable(columns)
    if not usable:
        raise SpecificationError("The data have no column that could be an axis; name the columns.")
    units = [column for column in usable if _is_id(column)]
    counts = _Counts() if units else _counted(usable)
    others = [c for c in usable if c not in [*units, *counts.used, *counts.left]]
    taken = {column.name for column in usable}
    key = _key(others) if counts.used else None
    axes = [_wide_axis(counts, taken)] if counts.wide else []
    axes += _other_axes(others, taken, key, code_lists=bool(counts.used))
    if not any(axis.sure for axis in axes):  # something has to stand there
        axes = [_any_axis((others or units or usable)[0], taken)]
        units = [column for column in units if column.name != axes[0].name]
        if any(column.name == axes[0].name for column in counts.used):
            counts = _Counts()
    values = [c for c in others if c.kind == "real" and not _has_word(c.name, AGE_WORDS)]
    return "\n".join(
        [
            *_heading(skipped),
            *_data(units, counts, _maybe_persons(others), (source, table)),
            *_axes(axes),
            *_rest(axes, values if not counts.used else [], None if key is None else key.name),
            "",
        ]
    )


def _usable(columns: Sequence[Column]) -> tuple[list[Column], list[str]]:
    usable: list[Column] = []
    skipped: list[str] = []
    for column in columns:
        name = column.name
        if not name.strip() or len(name) > LONGEST or any(_unwritable(c) for c in name):
            skipped.append(f"{quoted(name[:LONGEST])} has a name that cannot be used; rename it.")
        elif any(name == other.name for other in usable):
            skipped.append(f"{quoted(name)} occurs more than once; rename all but one.")
        else:
            usable.append(column)
    return usable, skipped


def _heading(skipped: list[str]) -> list[str]:
    return [
        "# yaml-language-server: $schema=specification.schema.json",
        "#",
        "# A proposal, made by looking at the data. Check every line: what is right cannot be",
        "# seen in a file. Until the labels below are confirmed from public knowledge, keep this",
        "# file as confidential as the data.",
        *(f"# Left out: {sentence}" for sentence in skipped),
        "",
    ]


def _data(
    units: list[Column],
    counts: _Counts,
    persons: list[Column],
    place: tuple[str, str | None],
) -> list[str]:
    source, named = place
    readable = _readable(source)
    where = quoted(readable)
    table = []
    if source_fault(readable, None):
        table = [f"table: {quoted(named or 'persons')}  # the table within the database"]
    lines = ["data:"]
    if counts.used:
        lines += [
            "  # The columns look like counts and not like persons. If every row is a person,",
            f"  # write source: {where} and unit: row here instead.",
            "  counts:",
            f"    source: {where}",
            *(f"    {line}" for line in table),
        ]
        if not counts.wide:
            lines += [f"    value: {quoted(counts.used[0].name)}  # the column with the counts"]
        lines += [
            "  # One person is counted in at most so many cells. Nothing can check this claim.",
            "  records: 1",
            "",
        ]
        return lines
    lines += [f"  source: {where}", *(f"  {line}" for line in table)]
    if units:
        lines += [
            "  # Whose privacy is protected: this column looks like it names the person. If every",
            "  # row is another person, write: unit: row",
            f"  unit: {quoted(units[0].name)}",
            *(f"  # It could also be {quoted(column.name)}." for column in units[1:]),
            "  # The most records of one person that count; further ones are left out. More",
            "  # records need more noise.",
        ]
    else:
        lines += [
            "  # Every row is taken for another person. If a person can have several rows, name",
            "  # the column that says whose they are.",
            *(f"  # {line}" for line in _maybe_sentence(persons)),
            "  unit: row",
        ]
    return [*lines, "  records: 1", ""]


def _maybe_sentence(persons: list[Column]) -> list[str]:
    if not persons:
        return []
    names = ", ".join(f"`{quoted(column.name)}`" for column in persons[:MOST_NAMED])
    sentence = f"By its repeated values, a column that may name the person: {names}."
    return textwrap.wrap(sentence, WIDTH - 4, break_long_words=False)


def _axes(axes: list[_Proposal]) -> list[str]:
    lines = [
        "# One axis for every direction of the table. Labels must come from public knowledge, such",
        "# as a code book, and not from this file: that a label occurs can tell about a person.",
        "# Those listed here were seen in the data, for convenience; check and complete them.",
        "# Where one column groups another (states and their counties), keep the finer one as axis",
        "# and name the other in its `levels`.",
        "axes:",
    ]
    cells = 0
    for axis in axes:
        fits = not cells or cells * axis.labels <= MOST_CELLS
        if axis.sure and not fits:
            lines.append("  # Left out, as the table would have very many cells:")
        active = axis.sure and fits
        cells = max(cells, 1) * axis.labels if active else cells
        lines += axis.lines(active=active)
    return [*lines, ""]


def _rest(axes: list[_Proposal], values: list[Column], key: str | None) -> list[str]:
    sure = [axis.name for axis in axes if axis.sure]
    first = quoted(key if key in sure and key is not None else sure[0])
    lines = [
        "# Margins that are published exactly, for example the totals of one axis. What is held is",
        "# not protected, so hold only what must be exact; [] within the list is the grand total.",
    ]
    if len(sure) > 1:
        lines.append(f"# hold: [[{first}]]")
    lines += [
        "hold: []",
        "",
        "# The promise. epsilon 1.0 is a placeholder: smaller protects more and adds more noise.",
        "# It is a decision for those who answer for the data, not for this file's author alone.",
        "# Instead of epsilon alone: epsilon and delta, or rho, or mu.",
        "privacy: {epsilon: 1.0, neighbours: replace-one}",
        "",
        "# projected, extended, or auto for the one with the smaller expected error.",
        "mechanism: auto",
        "",
    ]
    if values:
        lines += [
            "# Sums of a value beside the counts. lower and upper must be public knowledge, and",
            "# the share of the budget is taken from the counts.",
            "# sums:",
            *(
                f"#   {quoted(_safe_name(c.name))}: {{column: {quoted(c.name)}, lower: 0, "
                "upper: 1000, unit: 1, share: 0.1}"
                for c in values
            ),
            "",
        ]
    return [
        *lines,
        "# decimals 0: whole numbers that add up; null: real values, with the stronger guarantee.",
        "# margins: further totals to publish, which costs nothing.",
        "publish: {decimals: 0, margins: [], to: release}",
    ]


# ------------------------------------------------------------------------------------------ axes


def _other_axes(
    columns: list[Column], taken: set[str], key: Column | None, *, code_lists: bool
) -> list[_Proposal]:
    """The axes that are read from one column each.

    Where a column is another one in every row, it is the only one: what else a row says of itself
    would make cells that nobody can be in.
    """
    found = []
    if key is not None:
        found.append(_axis(key, taken, code_lists=True) or _code_list(key, taken, sure=True))
    for column in columns:
        axis = None if column is key else _axis(column, taken, code_lists=code_lists)
        if axis is not None and key is not None:
            level = (
                f"Every {quoted(key.name)} has one of these: better a level of that axis, as a "
                "further column of its code list."
            )
            axis = replace(axis, sure=False, comments=[level])
        if axis is not None:
            found.append(axis)
    return found


def _axis(column: Column, taken: set[str], *, code_lists: bool) -> _Proposal | None:
    """The axis that a column looks like, or None."""
    if _has_word(column.name, AGE_WORDS) and column.kind in {"whole", "real"}:
        return _entry(
            column,
            taken,
            ["Looks like an age: in groups, with a last one that is open."],
            f"bins: {AGE_BINS}",
            7,
        )
    labels = _labels(column)
    if labels:
        listed = ", \n".join(quoted(label) for label in labels)
        comment = "Seen in the data: to be checked."
        return _entry(column, taken, [comment], f"labels: [{listed}]", len(labels))
    sure = code_lists or _countable(column)
    return _code_list(column, taken, sure=sure) if column.kind == "text" else None


def _labels(column: Column) -> list[str | int]:
    """The labels to propose; none where there are too many, or of a kind that is no label."""
    if column.kind == "bool":
        return ["false", "true"]
    found = [getattr(v, "item", lambda v=v: v)() for v in column.sample or () if v is not None]
    if column.kind == "date":
        found = [str(value) for value in found]
    if column.kind == "whole":  # text files hold numbers as text
        found = [int(v) if isinstance(v, str) and WHOLE.fullmatch(v) else v for v in found]
    kind = int if column.kind == "whole" else str
    fits = all(isinstance(value, kind) and not isinstance(value, bool) for value in found)
    if not _countable(column) or not fits or column.kind == "real":
        return []
    if any(isinstance(v, int) and abs(v) >= 2**63 for v in found):
        return []
    if any(isinstance(v, str) and (not v or any(_unwritable(c) for c in v)) for v in found):
        return []
    return sorted(set(found)) if len(set(found)) <= MOST_LABELS else []


def _countable(column: Column) -> bool:
    return column.distinct is not None and 0 < column.distinct <= MOST_LABELS


def _code_list(column: Column, taken: set[str], *, sure: bool) -> _Proposal:
    made = _entry(
        column,
        taken,
        [
            "Too many labels to list: put the public code list into the file named here, the "
            "label first."
        ],
        f"labels: {quoted(f'codes/{_safe_name(column.name)}.csv')}",
        column.distinct or 1000,
    )
    return replace(made, sure=sure)


def _any_axis(column: Column, taken: set[str]) -> _Proposal:
    if column.kind in {"real", "whole"}:
        return _entry(column, taken, ["Nothing looks like an axis: choose one."], "bins: [0, 1]", 2)
    return _code_list(column, taken, sure=True)


def _wide_axis(counts: _Counts, taken: set[str]) -> _Proposal:
    prefix = prefix_of(counts.used[0].name)
    inside = ", \n".join(
        f"{quoted(c.name.removeprefix(prefix))}: {quoted(c.name)}" for c in counts.used
    )
    return _Proposal(
        comments=["Columns of counts side by side: label and column of each.", *counts.comments],
        name=_free("category", taken),
        inside=f"columns: {{{inside}}}",
        labels=len(counts.used),
    )


def _entry(
    column: Column, taken: set[str], comments: list[str], inside: str, labels: int
) -> _Proposal:
    name = column.name
    if name in RESERVED:
        inside = f"column: {quoted(name)}, \n{inside}"
        name = _free(f"{name}_axis", taken)
    if column.nulls > 0:
        comments = [
            *comments,
            f"About {max(1, round(100 * column.nulls))} % of the rows have nothing here: decide "
            "which label they get.",
        ]
    return _Proposal(comments=comments, name=name, inside=inside, labels=labels)


# --------------------------------------------------------------------------------------- guesses


def _is_id(column: Column) -> bool:
    return (
        column.kind in {"text", "whole"}
        and column.distinct is None
        and column.name != "row"
        and _has_word(column.name, ID_WORDS)
        and not _has_word(column.name, AREA_WORDS)
    )


def _maybe_persons(columns: list[Column]) -> list[Column]:
    """Text with many values that are repeated, that with the most values first."""
    found = [
        (c.per_value, c)
        for c in columns
        if c.kind == "text" and c.distinct is None and c.per_value is not None and c.per_value >= 2
    ]
    return [column for _, column in sorted(found, key=lambda pair: pair[0])]


def _key(columns: list[Column]) -> Column | None:
    """The column of a table of counts that is another one in every row, such as a county's code."""
    unique = [
        c for c in columns if c.kind in {"text", "whole"} and c.per_value == 1 and not c.nulls
    ]
    named = [c for c in unique if _has_word(c.name, AREA_WORDS | ID_WORDS) or _is_code(c)]
    text = [c for c in unique if c.kind == "text"]
    first = [c for c in unique if c is columns[0]]
    return next(iter([*named, *text, *first]), None)


def _counted(columns: list[Column]) -> _Counts:
    """The columns that hold counts: the side of a wide table, or one column of a long one."""
    whole = [c for c in columns if _may_count(c)]
    families: dict[str, list[Column]] = {}
    for column in whole:
        families.setdefault(prefix_of(column.name), []).append(column)
    families.pop("", None)
    # Answers to questions have prefixes too: one of many values, or a sum, tells counts from them.
    sides = [f for f in families.values() if any(not _countable(c) or c.adds_up for c in f)]
    for side in sides:
        made = _side(side, [c for other in sides if other is not side for c in other])
        if len(made.used) > 1:
            return made
    named = [c for c in whole if not _countable(c) and _has_word(c.name, COUNT_WORDS)]
    return _Counts(used=named[:1])


def _side(family: list[Column], others: list[Column]) -> _Counts:
    """The columns of a wide table without those in which people would be counted twice."""
    totals = [c for c in family if is_total(c.name)]
    sums = [c for c in family if c.adds_up and c not in totals][:1]
    used = [c for c in family if c not in [*totals, *sums]]
    comments = []
    for column in (*totals, *sums):
        why = "is the sum of the others" if column.adds_up else "is named a total"
        comments.append(
            f"Without {quoted(column.name)}, which {why}: people would be counted twice."
        )
        if not column.adds_up and len(used) > 1:
            comments.append(
                "The columns do not add up to it: check that nobody is in two of them, or in none."
            )
    if others:
        names = ", ".join(quoted(column.name) for column in others)
        comments.append(
            f"Without {names}, which look like counts too: one axis can lie in columns, and people "
            "would be counted twice. Reshape the file for a table with both."
        )
    return _Counts(used=used, wide=True, left=[*totals, *sums, *others], comments=comments)


def _may_count(column: Column) -> bool:
    return (
        column.kind == "whole"
        and not column.negative
        and not _has_word(column.name, AGE_WORDS)
        and not _is_code(column)
    )


def _is_code(column: Column) -> bool:
    parts = re.findall(r"[a-z]+", column.name.casefold())
    return bool(parts) and (parts[-1] in CODE_WORDS or column.name.lower().endswith("geoid"))


def _has_word(name: str, words: set[str]) -> bool:
    """Whether one of the words is in a name such as person_id, personId or PERSON ID."""
    parts = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    plain = unicodedata.normalize("NFKD", parts).casefold()
    return any(part in words for part in re.findall(r"[a-z]+", plain))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


# --------------------------------------------------------------------------------------- writing


def quoted(value: str | int) -> str:
    r"""A text or whole number as YAML: plain where that is safe, in double quotes otherwise.

    >>> print(quoted("county"), quoted("no"), quoted("a: b"), quoted("007"), quoted(7))
    county "no" "a: b" "007" 7
    """
    if isinstance(value, int):
        return str(int(value))
    if PLAIN.fullmatch(value) and plain_scalar(value) == (value, False):
        return value
    return f'"{"".join(_escaped(character) for character in value)}"'


def _escaped(character: str) -> str:
    if character in {'"', "\\"}:
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _unwritable(character: str) -> bool:
    return unicodedata.category(character) == "Cs"  # half of a character: no text in UTF-8


def _safe_name(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")
    return safe or "column"


def _readable(source: str) -> str:
    """The source without a password; a placeholder where a specification would refuse it."""
    source = re.sub(r"(://[^/@\s:]*):[^@\s]*@", r"\1@", source)
    source = re.sub(r"(?i)([?&;\s])(\w*password|pwd)=[^&;\s]*", r"\1", source)
    return "data.csv" if not source or source_fault(source, "table") else source


def _wrapped(start: str, pieces: list[str], end: str) -> list[str]:
    """Pieces after one another, on further lines where they are too long for one."""
    lines = [start]
    for piece in pieces:
        if len(lines[-1]) + len(piece) > WIDTH and lines[-1].strip():
            lines.append("    ")
        lines[-1] += piece
    lines[-1] = lines[-1].rstrip() + end
    return [line.rstrip() for line in lines]
