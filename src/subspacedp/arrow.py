"""NumPy's arrays to Arrow's and back, without pandas, which Arrow imports for it where it can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, Int64Array

FEW = 1 << 16  # rows; for more, the import of pandas does not matter


def arrow_array(array: ArrayLike) -> Any:
    """What `pyarrow.array` makes of an array."""
    import pyarrow as pa

    values = np.ascontiguousarray(array)
    if values.ndim == 1 and values.dtype.kind in "iuf" and values.dtype.isnative:
        kind = pa.from_numpy_dtype(values.dtype)
        return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)])
    if values.ndim == 1 and values.size <= FEW and values.dtype.kind in "UO":
        texts = values.tolist()
        if all(type(text) is str for text in texts):
            encoded = [text.encode() for text in texts]
            ends = np.cumsum([0, *map(len, encoded)])
            if ends[-1] < 1 << 31:
                ends = pa.py_buffer(ends.astype(np.int32))
                return pa.StringArray.from_buffers(
                    len(texts), ends, pa.py_buffer(b"".join(encoded))
                )
    return pa.array(values)


def arrow_table(columns: Mapping[str, ArrayLike]) -> Any:
    """What `pyarrow.table` makes of arrays."""
    import pyarrow as pa

    return pa.table({name: arrow_array(column) for name, column in columns.items()})


def numpy_array(column: Any) -> AnyArray:
    """What `to_numpy` of an Arrow array, in one piece or several, gives; text is of type object."""
    import pyarrow as pa

    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    kind = column.type
    if len(column) > FEW or column.null_count:
        return np.asarray(column.to_numpy())
    if pa.types.is_integer(kind) or pa.types.is_float64(kind):
        number = np.dtype("float64" if pa.types.is_float64(kind) else str(kind))
        chunks = [(c.buffers()[1], c.offset, len(c)) for c in column.chunks]
        parts = [np.frombuffer(held, number)[at : at + size] for held, at, size in chunks if size]
        return np.concatenate([np.zeros(0, number), *parts])
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        texts = [
            labels[place]
            for chunk in column.chunks
            for labels in [chunk.dictionary.to_pylist()]
            for place in chunk.indices.to_pylist()
        ]
        return np.array(texts, object)
    if pa.types.is_string(kind):
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy())


def whole_array(column: Any) -> Int64Array:
    """An Arrow array of whole numbers as int64; what does not fit raises `pyarrow.ArrowInvalid`.

    An engine's sum of integers may be a decimal: 128 bits, whose upper half is the sign of the
    lower one where the number fits. Other types are cast, which loads what computes on arrays.
    """
    import pyarrow as pa

    kind = column.type
    if not column.null_count and pa.types.is_signed_integer(kind):
        return np.asarray(numpy_array(column), np.int64)
    if not column.null_count and pa.types.is_decimal128(kind) and kind.scale == 0 and len(column):
        halves = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
        low, high = halves[column.offset : column.offset + len(column)].T
        if np.array_equal(high, low >> 63):
            return np.array(low, np.int64)
    return np.asarray(numpy_array(column.cast(pa.int64())), np.int64)


def label_array(column: Any) -> AnyArray:
    """A column of labels: as text, and empty for what is in no group, where some labels are.

    Real numbers are no labels, and stay what they are.
    """
    import pyarrow as pa

    if not column.null_count or pa.types.is_floating(column.type):
        return numpy_array(column)
    return np.array(["" if label is None else str(label) for label in column.to_pylist()], object)


def write_parts(
    parts: Iterable[Any], *, csv: Path | Any = None, parquet: Path | None = None
) -> None:
    """Write the parts of one table to a CSV file, or an open one, and to a Parquet file."""
    import pyarrow.csv
    import pyarrow.parquet

    kinds = ((csv, pyarrow.csv.CSVWriter), (parquet, pyarrow.parquet.ParquetWriter))
    with ExitStack() as files:
        writers: list[Any] = []
        for part in parts:
            if not writers:
                named = [kind(file, part.schema) for file, kind in kinds if file is not None]
                writers = [files.enter_context(writer) for writer in named]
            for writer in writers:
                writer.write_table(part)
