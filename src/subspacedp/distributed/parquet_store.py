"""Large tables in Parquet: one row a cell in row-major order, in one file or several."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import whole_counts
from subspacedp.distributed.stores import first_cell
from subspacedp.errors import DataError, ReleaseError
from subspacedp.release.durable import sync_folder
from subspacedp.release.stored_values import PART, VALUE
from subspacedp.tables.boxes import Box

__all__ = ["ParquetFolder", "ParquetSource"]

Int64Array = npt.NDArray[np.int64]


class ParquetSource:
    """Counts in one column; files of a folder follow each other in the order of their names."""

    def __init__(self, path: Path, column: str | None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path = path
        self._files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if self._files != sorted(self._files, key=_by_number):
            raise DataError(
                f"The files of `{path}` have numbers of different lengths in their names, so their "
                "order is not certain; fill them up with zeros."
            )
        schemas: list[tuple[Path, Any]] = []
        groups, starts, at = [], [0], 0
        try:
            for file in self._files:
                meta = pq.read_metadata(file)
                schemas.append((file, meta.schema.to_arrow_schema()))
                for i in range(meta.num_row_groups):
                    groups.append((file, i))
                    at += meta.row_group(i).num_rows
                    starts.append(at)
        except (OSError, pa.ArrowException):
            raise DataError(f"`{path}` is not readable Parquet.") from None
        self._groups, self._starts = groups, np.array(starts, np.int64)
        self._column = _column(schemas[0][1], column, path)
        for file, schema in schemas:
            _column(schema, self._column, file)  # every file has it, as whole numbers
        self._last = threading.local()  # the row group that each thread read last

    @property
    def shape(self) -> tuple[int, ...]:
        """A list of cells."""
        return (int(self._starts[-1]),)

    @property
    def fingerprint(self) -> str:
        """The files' sizes and times."""
        states = [file.stat() for file in self._files]
        size, time = sum(s.st_size for s in states), max(s.st_mtime_ns for s in states)
        return f"parquet {self._column} {len(states)} {size} {time}"

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        at = first_cell(box, shape)
        stop, done = at + box.size, 0
        group = int(np.searchsorted(self._starts, at, side="right")) - 1
        while at < stop:
            own, first = self._read_group(group), int(self._starts[group])
            part = own[at - first : stop - first]
            whole_counts(part, out[done : done + part.size])
            at, done, group = at + part.size, done + part.size, group + 1

    def _read_group(self, number: int) -> npt.NDArray[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kept: tuple[int, npt.NDArray[Any]] | None = getattr(self._last, "group", None)
        if kept is not None and kept[0] == number:
            return kept[1]
        file, group = self._groups[number]
        try:
            with pq.ParquetFile(file) as opened:
                column = opened.read_row_group(group, columns=[self._column])[self._column]
        except (OSError, pa.ArrowException):
            raise DataError(f"`{file}` cannot be read.", changed=True) from None
        if column.null_count:
            raise DataError(f"{column.null_count} counts of a row group are missing.")
        values = column.to_numpy()
        self._last.group = (number, values)
        return np.asarray(values)


def _column(schema: Any, asked: str | None, path: Path) -> str:
    import pyarrow as pa

    if asked is not None and asked not in schema.names:
        raise DataError(f"`{path}` has no column `{asked}`.")
    whole = [f.name for f in schema if pa.types.is_integer(f.type)]
    if asked is None and len(whole) != 1:
        raise DataError(f"`{path}` has {len(whole)} columns of whole numbers; name one.")
    name = whole[0] if asked is None else asked
    if name not in whole:
        raise DataError(f"Column `{name}` of `{path}` must hold whole numbers.")
    return name


def _by_number(file: Path) -> list[tuple[int, str]]:
    """Sorts names as a person would: part.2 before part.10."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", file.name)]


class ParquetFolder:
    """Released values, one file a block, in the order of their names."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._path, self._dtype = path, dtype

    def create(self) -> None:
        """An empty folder."""
        self._path.mkdir(exist_ok=True)

    def check(self) -> None:
        """The folder is there; every block is checked when it is read."""
        if not self._path.is_dir():
            raise ReleaseError(f"The unfinished store `{self._path}` is gone.")

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write a block to a file of its own, which appears complete or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        final = self._file(number)
        scratch = final.with_suffix(".writing")
        table = pa.table({VALUE: pa.array(np.asarray(values, self._dtype))})
        with scratch.open("wb") as file:
            pq.write_table(table, file, use_dictionary=False)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(final)
        sync_folder(self._path)

    def read(self, number: int, box: Box) -> npt.NDArray[Any]:
        """The values of a block."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self._file(number)
        try:
            values = np.asarray(pq.read_table(file)[VALUE].to_numpy())
        except (OSError, KeyError, pa.ArrowException):
            raise ReleaseError(f"`{file}` cannot be read: it is truncated or missing.") from None
        if values.size != box.size or values.dtype != self._dtype:
            raise ReleaseError(f"`{file}` does not have the values of its block.")
        return values

    def open(self) -> Any:
        """All files as one dataset, read when asked for."""
        import pyarrow.dataset

        return pyarrow.dataset.dataset(sorted(map(str, self._path.glob("*.parquet"))))

    def close(self) -> None:
        """No file stays open between calls."""

    def _file(self, number: int) -> Path:
        return self._path / PART.format(number)
