"""Where labels come from: a public code list, or, said explicitly, the data."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from subspacedp.errors import DataError, DomainError
from subspacedp.io.engine import Kind, Source
from subspacedp.tables import Axis, Label

__all__ = ["Codes", "labels_from_data", "read_codes"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Codes:
    """A public code list: labels, and the group of every label on each level, finest first."""

    name: str
    labels: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]

    def axis(self, name: str | None = None) -> Axis:
        """The axis with these labels and levels."""
        return Axis(name or self.name, self.labels, levels=self.levels)

    def __repr__(self) -> str:
        return f"Codes({self.name!r}, {len(self.labels)} labels, levels: {', '.join(self.levels)})"


def read_codes(path: str | Path) -> Codes:
    """Read a public code list: a CSV file with the labels first, then one column a level.

    Labels are text, with their leading zeros. The list is public, so errors may quote it.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise DomainError(
            f"The code list `{path}` could not be read ({type(error).__name__})."
        ) from None
    except (UnicodeDecodeError, csv.Error):
        raise DomainError(f"The code list `{path.name}` is not CSV in UTF-8.") from None
    if len(rows) < 2:
        raise DomainError(f"The code list `{path.name}` needs a line of names and a line a label.")
    names, lines = [name.strip() for name in rows[0]], rows[1:]
    if not all(names) or len(set(names)) != len(names):
        raise DomainError(f"The code list `{path.name}` must start with distinct column names.")
    for number, line in enumerate(lines, 2):
        if len(line) != len(names):
            raise DomainError(
                f"Line {number} of the code list `{path.name}` has {len(line)} entries; its first "
                f"line names {len(names)} columns.",
                line=number,
            )
        if not all(line):
            raise DomainError(
                f"Line {number} of the code list `{path.name}` has an empty entry.", line=number
            )
    first, *others = (tuple(column) for column in zip(*lines, strict=True))
    codes = Codes(name=names[0], labels=first, levels=dict(zip(names[1:], others, strict=True)))
    codes.axis()  # distinct labels, levels that nest
    return codes


def labels_from_data(source: Source, column: str, *, limit: int = 100_000) -> list[Label]:
    """The distinct values of a column, sorted: labels that are *not protected*.

    That a value occurs is itself information about the people in the data; an axis with these
    labels must say `from_data=True`, and the certificate then reports it.
    """
    kind = source.column(column, "labels")
    if kind not in (Kind.TEXT, Kind.WHOLE, Kind.BOOL, Kind.DATE):
        raise DataError(
            f"Column `{column}` holds {kind.value} values, which make no labels; give `bins`.",
            column=column,
        )
    values = distinct_values(source, column, limit)
    if values is None:
        raise DataError(
            f"Column `{column}` has more than {limit} distinct values; that is no list of labels.",
            column=column,
        )
    if not values:
        raise DataError(f"Column `{column}` has no values.", column=column)
    return values


def distinct_values(source: Source, column: str, limit: int) -> list[Label] | None:
    """The distinct values without NULL, sorted; None when there are more than `limit`."""
    table = source.table
    value = table[column]
    if source.kinds[column] is not Kind.WHOLE:
        value = value.cast("string")
    found = table.filter(table[column].notnull()).select(value=value).distinct().limit(limit + 1)
    values: list[Label] = []
    for batch in source.batches(found):
        values.extend(batch.column(0).to_pylist())
    # Sorted here: engines order text by their own rules.
    return None if len(values) > limit else sorted(values)
