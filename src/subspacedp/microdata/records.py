"""Records made from a table of whole numbers: as many rows per cell as it counts.

Rows are made a piece at a time, in the order of the cells, and never held together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.arrow import arrow_array
from subspacedp.queries import Query
from subspacedp.release.label_columns import LabelColumns

WEIGHT = "calibration_weight"
ROWS = 1 << 20  # at a time: one row group of a Parquet file
MAX_CSV_RECORDS = 10_000_000  # beyond, text files are larger than anybody opens


def record_tables(query: Query, table: Int64Array, weights: FloatArray) -> Iterator[Any]:
    """The records of every cell, in row-major order, as arrow tables of one schema.

    Parameters
    ----------
    query
        Of the cells, for their labels.
    table, weights
        How many records each has, and what one of them counts for.
    """
    import pyarrow as pa

    labels = LabelColumns.of_query(query)
    ends = np.cumsum(table.reshape(-1))
    weight = weights.reshape(-1)
    total = int(ends[-1]) if ends.size else 0
    for start in range(0, max(total, 1), ROWS):  # one empty table where there is no record
        stop = min(start + ROWS, total)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        inside = np.arange(first, min(last + 1, ends.size))
        begins = np.concatenate([[0], ends])[inside] if inside.size else np.zeros(0, np.int64)
        number = np.minimum(ends[inside], stop) - np.maximum(begins, start)
        cell = np.repeat(inside, np.maximum(number, 0))
        # Plain values: programs that add up rows stumble over a dictionary for every piece.
        plain = {name: column.dictionary_decode() for name, column in labels.of(cell).items()}
        yield pa.table({**plain, WEIGHT: arrow_array(weight[cell])})


def write_records(
    query: Query, table: Int64Array, weights: FloatArray, *, parquet: Path, csv: Path | None
) -> None:
    """Write records to a Parquet file, and to a CSV file where one is named."""
    import pyarrow.csv
    import pyarrow.parquet

    with ExitStack() as files:
        writers: list[Any] = []
        for part in record_tables(query, table, weights):
            if not writers:
                writers.append(pyarrow.parquet.ParquetWriter(parquet, part.schema))
                if csv is not None:
                    writers.append(pyarrow.csv.CSVWriter(csv, part.schema))
                for writer in writers:
                    files.enter_context(writer)
            for writer in writers:
                writer.write_table(part)
