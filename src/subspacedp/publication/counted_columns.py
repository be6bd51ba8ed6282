"""Which columns of a table hold counts, and which one names its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from subspacedp.io.inspect import Column, is_total, prefix_of
from subspacedp.publication.column_names import (
    AGE_WORDS,
    AREA_WORDS,
    COUNT_WORDS,
    ID_WORDS,
    has_word,
    is_code,
    quoted,
)

__all__ = ["CountColumns", "counted_columns", "key_column"]


@dataclass(frozen=True, kw_only=True)
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
