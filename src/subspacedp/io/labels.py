"""Labels that are read, said explicitly, off the data."""

from __future__ import annotations

from subspacedp.errors import DataError
from subspacedp.io.engine import Kind, Source
from subspacedp.tables import Label

__all__ = ["distinct_values", "labels_from_data"]


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
