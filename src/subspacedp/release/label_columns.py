"""Columns of labels for files, made a run of rows at a time: codes and a short dictionary.

A table of ten million cells has ten million rows of labels, and only a few thousand labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, Int64Array
from subspacedp.arrow import arrow_array
from subspacedp.queries import Query
from subspacedp.tables import Domain, Margin

ROWS = 1 << 20  # at a time: one row group of a Parquet file


@dataclass(frozen=True, eq=False, repr=False)
class LabelColumns:
    """The labels of rows in row-major order of a shape.

    Parameters
    ----------
    shape
        Of the figures, one row each.
    columns
        By name: the axis, the code of every position on it, and the labels by code.
    plain
        Columns that have no such structure, whole.
    """

    shape: tuple[int, ...]
    columns: Mapping[str, tuple[int, Int64Array, AnyArray]]
    plain: Mapping[str, AnyArray]

    @classmethod
    def of_query(cls, query: Query) -> LabelColumns:
        """Those of the answers: as `query.columns()` has them."""
        domain = query.axes
        if query.workload is not None or domain is None or domain.shape != query.shape:
            return cls(query.shape, {}, query.columns())
        return cls.of_domain(domain)

    @classmethod
    def of_domain(cls, domain: Domain) -> LabelColumns:
        """Every label and level of a table's cells."""
        columns = {
            level.name: (a, level.codes, np.asarray(level.labels))
            for a, axis in enumerate(domain.axes)
            for level in axis.named
        }
        return cls(domain.shape, columns, {})

    @classmethod
    def of_margin(cls, margin: Margin) -> LabelColumns:
        """The levels that a margin keeps."""
        columns = {
            level.name: (a, np.arange(level.groups), np.asarray(level.labels))
            for a, level in enumerate(margin.levels)
            if level.name
        }
        return cls(margin.shape, columns, {})

    def part(self, start: int, stop: int) -> dict[str, Any]:
        """Some of the rows, as arrow arrays with dictionaries."""
        return self.of(np.arange(start, stop))

    def of(self, row: Int64Array) -> dict[str, Any]:
        """The rows of these numbers, in their order and as often as they occur."""
        import pyarrow as pa

        out: dict[str, Any] = {}
        for name, column in self.plain.items():
            out[name] = arrow_array(column[row]).dictionary_encode()
        for name, (axis, codes, labels) in self.columns.items():
            position = row // math.prod(self.shape[axis + 1 :]) % self.shape[axis]
            code = codes[position]
            low, high = (int(code.min()), int(code.max()) + 1) if code.size else (0, 0)
            out[name] = pa.DictionaryArray.from_arrays(
                _places(code - low, code == len(labels)), arrow_array(labels[low:high])
            )
        return out

    def parts(self, numbers: Mapping[str, AnyArray]) -> Iterator[Any]:
        """All rows with columns of numbers beside them, as arrow tables of one schema."""
        import pyarrow as pa

        rows = math.prod(self.shape)
        for start in range(0, rows, ROWS):
            stop = min(start + ROWS, rows)
            flat = {name: arrow_array(n.reshape(-1)[start:stop]) for name, n in numbers.items()}
            yield pa.table({**self.part(start, stop), **flat})


def _places(places: Int64Array, nowhere: BoolArray) -> Any:
    """Places in a list of labels; nothing for what is in no group."""
    import pyarrow as pa

    numbers = places.astype(np.int32)
    return pa.array(numbers, mask=nowhere) if nowhere.any() else arrow_array(numbers)


def write_rows(
    labels: LabelColumns,
    numbers: Mapping[str, AnyArray],
    *,
    csv: Path | Any,
    parquet: Path | None = None,
) -> None:
    """Write labels and numbers to a CSV file, or an open one, and to a Parquet file."""
    import pyarrow.csv
    import pyarrow.parquet

    with ExitStack() as files:
        writers: list[Any] = []
        for part in labels.parts(numbers):
            if not writers:
                writers.append(pyarrow.csv.CSVWriter(csv, part.schema))
                if parquet is not None:
                    writers.append(pyarrow.parquet.ParquetWriter(parquet, part.schema))
                for writer in writers:
                    files.enter_context(writer)
            for writer in writers:
                writer.write_table(part)
