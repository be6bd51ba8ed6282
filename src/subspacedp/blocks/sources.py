"""Confidential tables of counts that are read box by box: arrays, `.npy`, Parquet and zarr."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import Int64Array
from subspacedp.errors import DataError, ReleaseError
from subspacedp.tables import MAX_TOTAL
from subspacedp.tables.domain import Box, inside

AT_ONCE = 1 << 26  # bytes read or written at a time


class Source(Protocol):
    """A confidential table of counts that is read in boxes, by several threads."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; a list of all cells in row-major order has one axis."""

    @property
    def shared(self) -> bool:
        """Whether other processes can read it: it can be pickled, and leads to files."""

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box of a table of that shape, flat; the box is one run of cells."""

    def close(self) -> None:
        """Let go of open files."""


def open_source(source: Any, column: str | None = None) -> Source:
    """A table to be read in blocks: an array, or a path to `.npy`, Parquet or zarr.

    Parameters
    ----------
    source
        A path to a `.npy` file, to Parquet (one row per cell in row-major order; a file, or a
        folder of files in the order of their names) or to a zarr array; an array; or a `Source`.
    column
        The column with the counts, in Parquet; needed where several hold whole numbers.
    """
    if isinstance(source, str | PathLike):
        path = Path(source)
        if not path.exists():
            raise DataError(f"There is no table `{path}`.")
        if path.suffix == ".npy":
            return NpySource(path)
        if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
            return ParquetSource(path, column)
        if path.is_dir() and (path.suffix == ".zarr" or _is_zarr(path)):
            return ZarrSource(path)
        raise DataError(f"`{path}` is neither .npy, nor .parquet (a file or folder), nor zarr.")
    if isinstance(source, np.ndarray):
        return ArraySource(source)
    if hasattr(source, "read") and hasattr(source, "shared"):
        return source  # type: ignore[no-any-return]
    raise DataError(f"A large table is an array or a path to one; got a {type(source).__name__}.")


def is_large_table(source: Any) -> bool:
    """Whether `open_source` is meant: a path, an array, or a source itself."""
    return isinstance(source, str | PathLike | np.ndarray) or hasattr(source, "shared")


def check_kind(dtype: np.dtype[Any], what: str) -> None:
    """Counts are stored as whole numbers."""
    if dtype.kind not in "iu":
        raise DataError(f"{what} must hold whole numbers; it holds {dtype}.")


def whole_counts(values: npt.NDArray[Any], out: Int64Array) -> None:
    """Whole numbers of any type as int64."""
    if values.dtype.kind not in "iu" or values.size != out.size:
        raise DataError("A block of the table does not have a whole number for each of its cells.")
    if np.any(getattr(values, "mask", False)):  # of a masked array; `np.ma` is not loaded for it
        raise DataError("Some counts are masked: missing.")
    if values.dtype == np.uint64 and values.size and int(values.max()) > MAX_TOTAL:
        raise DataError("The counts must sum to at most 2**62.")
    np.copyto(out, values.reshape(-1), casting="unsafe")


def first_cell(box: Box, shape: tuple[int, ...]) -> int:
    """The number of the first cell of a box."""
    return int(np.ravel_multi_index(box.lower, shape)) if shape else 0


class ArraySource:
    """Counts in memory, or mapped into it."""

    shared = False

    def __init__(self, counts: npt.NDArray[Any]) -> None:
        check_kind(counts.dtype, "The table")
        self._counts = counts

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._counts.shape

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        if self._counts.shape == shape:
            whole_counts(self._counts[inside(box)], out)
        else:
            start = first_cell(box, shape)
            whole_counts(self._counts[start : start + box.size], out)

    def close(self) -> None:
        """Nothing is open."""


class NpyHeader:
    """Where the numbers of a `.npy` file are."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                version = np.lib.format.read_magic(file)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[version]
                self.shape, fortran, self.dtype = read(file)
                self.offset = file.tell()
        except (OSError, ValueError, KeyError):
            raise DataError(f"`{path}` is not a readable .npy file.") from None
        if fortran and len(self.shape) > 1:
            raise DataError(f"`{path}` is in column-major order; save it with order='C'.")
        wanted = self.offset + math.prod(self.shape) * self.dtype.itemsize
        if path.stat().st_size < wanted:
            raise DataError(f"`{path}` is truncated: it is shorter than its header says.")


class NpySource:
    """A `.npy` file of whole numbers in row-major order."""

    shared = True

    def __init__(self, path: Path) -> None:
        self._path, self._header = path.absolute(), NpyHeader(path)
        check_kind(self._header.dtype, f"`{path}`")
        self._file = os.open(path, os.O_RDONLY)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self._header.shape)

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        kind = self._header.dtype
        at = self._header.offset + first_cell(box, shape) * kind.itemsize
        same = kind == np.dtype("<i8") and out.dtype == kind
        room = out if same else np.empty(box.size, kind)
        try:
            whole = read_into(self._file, room, at) == room.nbytes
        except OSError as error:
            raise DataError(f"`{self._path}` cannot be read: {error.strerror}.") from None
        if not whole:
            raise DataError(f"`{self._path}` became shorter while it was read.")
        if not same:
            whole_counts(room, out)

    def close(self) -> None:
        """Let go of the file."""
        file = self.__dict__.pop("_file", None)
        if file is not None:
            os.close(file)

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return OnWorker, (NpySource, self._path)


def read_into(file: int, out: npt.NDArray[Any], at: int) -> int:
    """Fill an array from a place in a file; how many bytes there were."""
    data = out.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(data):
        count = os.preadv(file, [data[done : done + AT_ONCE]], at + done)
        if count == 0:
            break
        done += count
    return done


class ParquetSource:
    """Counts in one column; files of a folder follow each other in the order of their names."""

    shared = True

    def __init__(self, path: Path, column: str | None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path = path.absolute()
        self._files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not self._files:
            raise DataError(f"The folder `{path}` has no .parquet files.")
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

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        at = first_cell(box, shape)
        stop, done = at + box.size, 0
        group = int(np.searchsorted(self._starts, at, side="right")) - 1
        while at < stop:
            values, first = self._read_group(group), int(self._starts[group])
            part = values[at - first : stop - first]
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
        except (OSError, KeyError, pa.ArrowException):
            raise DataError(f"`{file}` cannot be read.") from None
        if len(column) != self._starts[number + 1] - self._starts[number]:
            raise DataError(f"`{file}` changed while it was read.")
        if column.null_count:
            raise DataError(f"{column.null_count} counts of a row group are missing.")
        values = column.to_numpy()
        self._last.group = (number, values)
        return np.asarray(values)

    def close(self) -> None:
        """No file stays open between calls."""
        self._last = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return OnWorker, (ParquetSource, self._path, self._column)


def _column(schema: Any, wanted: str | None, path: Path) -> str:
    import pyarrow as pa

    if wanted is not None and wanted not in schema.names:
        raise DataError(f"`{path}` has no column `{wanted}`.")
    whole = [f.name for f in schema if pa.types.is_integer(f.type)]
    if wanted is None and len(whole) != 1:
        raise DataError(f"`{path}` has {len(whole)} columns of whole numbers; name one.")
    name = whole[0] if wanted is None else wanted
    if name not in whole:
        raise DataError(f"Column `{name}` of `{path}` must hold whole numbers.")
    return name


def _by_number(file: Path) -> list[tuple[int, str]]:
    """Sorts names as a person would: part.2 before part.10."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", file.name)]


class ZarrSource:
    """Counts in a zarr array of the table's shape."""

    shared = True

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        try:
            self._array = zarr_module().open_array(str(path), mode="r")
        except ReleaseError:
            raise
        except Exception:  # zarr has no base class for what may be wrong with a folder
            raise DataError(f"`{path}` is not a readable zarr array.") from None
        check_kind(self._array.dtype, f"`{path}`")

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self._array.shape)

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        if self.shape != shape:
            raise DataError(f"`{self._path}` must have the domain's shape {shape}.")
        try:
            counts = np.asarray(self._array[inside(box)])
        except Exception:  # a chunk that cannot be decoded raises whatever its codec does
            raise DataError(f"A chunk of `{self._path}` cannot be read.") from None
        whole_counts(counts, out)

    def close(self) -> None:
        """No file stays open between calls."""

    def __reduce__(self) -> tuple[Any, ...]:
        return OnWorker, (ZarrSource, self._path)


class OnWorker:
    """A table in files, as another process gets it: opened when it is first read.

    What cannot be opened there is told like any other error of a task; a task that cannot be
    unpickled is waited for without a word.
    """

    shared = True

    def __init__(self, kind: Callable[..., Source], *arguments: Any) -> None:
        self._kind, self._arguments = kind, arguments

    @cached_property
    def _source(self) -> Source:
        try:
            return self._kind(*self._arguments)
        except (DataError, OSError, ImportError):
            raise DataError(
                f"`{self._arguments[0]}` cannot be read by a worker of the cluster: every "
                "one must see the same files, and have what reads them."
            ) from None

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._source.shape

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        self._source.read(box, shape, out)

    def close(self) -> None:
        """Let go of open files."""
        if "_source" in self.__dict__:
            self.__dict__.pop("_source").close()

    def __reduce__(self) -> tuple[Any, ...]:
        return OnWorker, (self._kind, *self._arguments)


def zarr_module() -> Any:
    """The library, or where it comes from."""
    try:
        import zarr
    except ImportError:
        raise ReleaseError("`zarr` is not installed; it comes with subspacedp[large].") from None
    return zarr


def _is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zarray"))
