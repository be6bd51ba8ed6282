"""What columns are by their names and contents, which of them hold counts, and how to name them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import field

from subspacedp.frozen import frozen
from subspacedp.io.inspect import Column, is_total, prefix_of
from subspacedp.publication.reading import plain_scalar

ID_WORDS = {"id", "uuid", "guid", "pid", "ssn", "pin", "person", "respondent", "member", "patient"}
AREA_WORDS = {"area", "block", "county", "district", "fips", "geo", "geoid", "place", "region"}
AREA_WORDS |= {"state", "tract", "zip", "zone"}
CODE_WORDS = {"code", "fips", "geoid", "id", "zip"}  # at the end of a name: no count
AGE_WORDS = {"age", "alter", "edad", "eta", "idade", "leeftijd"}
COUNT_WORDS = {"count", "counts", "n", "pop", "population", "freq", "frequency", "total", "persons"}
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


def has_word(name: str, words: set[str]) -> bool:
    """Whether one of the words is in a name such as person_id, personId or PERSON ID."""
    parts = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    plain = unicodedata.normalize("NFKD", parts).casefold()
    return any(part in words for part in re.findall(r"[a-z]+", plain))


def is_code(name: str) -> bool:
    """Whether a name ends as those of codes do."""
    parts = re.findall(r"[a-z]+", name.casefold())
    return bool(parts) and (parts[-1] in CODE_WORDS or name.lower().endswith("geoid"))


def free(name: str, taken: set[str], end: str = "_") -> str:
    """The name, with endings until it is none of those taken."""
    while name in taken:
        name += end
    return name


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


def unwritable(character: str) -> bool:
    """Whether it is half of a character, and no text in UTF-8."""
    return unicodedata.category(character) == "Cs"


def safe_name(name: str) -> str:
    """The name as that of a file."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")
    return safe or "column"


@frozen(kw_only=True)
class CountColumns:
    """The columns that hold the counts: one, or the side of a wide table."""

    used: list[Column] = field(default_factory=list)
    wide: bool = False
    left: list[Column] = field(default_factory=list)  # counts of the same people
    comments: list[str] = field(default_factory=list)


def key_column(columns: Sequence[Column]) -> Column | None:
    """The column of a table of counts that is another one in every row, such as a county's code."""
    unique = [
        c for c in columns if c.kind in {"text", "whole"} and c.per_value == 1 and not c.nulls
    ]
    named = [c for c in unique if has_word(c.name, AREA_WORDS | ID_WORDS) or is_code(c.name)]
    text = [c for c in unique if c.kind == "text"]
    first = [c for c in unique if c is columns[0]]
    return next(iter([*named, *text, *first]), None)


def counted_columns(columns: Sequence[Column]) -> CountColumns:
    """The columns that hold counts: the side of a wide table, or one column of a long one."""
    whole = [c for c in columns if _may_count(c)]
    families: dict[str, list[Column]] = {}
    for column in whole:
        families.setdefault(prefix_of(column.name), []).append(column)
    families.pop("", None)
    # Answers to questions have prefixes too: one of many values, or a sum, tells counts from them.
    sides = [f for f in families.values() if any(not c.few or c.adds_up for c in f)]
    for side in sides:
        counts = _side(side, [c for other in sides if other is not side for c in other])
        if len(counts.used) > 1:
            return counts
    named = [c for c in whole if not c.few and has_word(c.name, COUNT_WORDS)]
    return CountColumns(used=named[:1])


def _side(family: list[Column], others: Sequence[Column]) -> CountColumns:
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
    return CountColumns(used=used, wide=True, left=[*totals, *sums, *others], comments=comments)


def _may_count(column: Column) -> bool:
    return (
        column.kind == "whole"
        and not column.negative
        and not has_word(column.name, AGE_WORDS)
        and not is_code(column.name)
    )
