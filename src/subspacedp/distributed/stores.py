"""Where large tables come from and go to: one box of cells at a time."""

from __future__ import annotations

import errno
import math
import os
import threading
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import whole_counts
from subspacedp.errors import DataError, ReleaseError
from subspacedp.release.stored_values import STORES
from subspacedp.tables.boxes import Box

__all__ = ["ArraySource", "NpyFile", "NpySource", "Source", "Store", "open_source", "open_store"]

Int64Array = npt.NDArray[np.int64]
T = TypeVar("T")
NPY, PARQUET, ZARR = (STORES[kind] for kind in ("npy", "parquet", "zarr"))
AT_ONCE = 1 << 26  # bytes read or written at a time


class Source(Protocol):
    """A confidential table of counts that is read in boxes, by several threads."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; a list of all cells in row-major order has one axis."""

    @property
    def fingerprint(self) -> str:
        """What can be seen of a change without reading it: sizes and times."""

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box of a table of that shape, flat; the box is one stretch of cells."""


class Store(Protocol):
    """Released values in blocks."""

    def create(self) -> None:
        """Make an empty store."""

    def check(self) -> None:
        """An error if it is not the store that `create` made."""

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write a block; it is on disk when this returns."""

    def read(self, number: int, box: Box) -> npt.NDArray[Any]:
        """The values of a block, flat."""

    def open(self) -> Any:
        """All values as an array that is read when asked for."""

    def close(self) -> None:
        """Let go of open files."""


def open_source(source: Any, column: str | None = None) -> Source:
    """A table to be read in blocks: an array, or a path to `.npy`, Parquet or zarr."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        if not path.exists():
            raise DataError(f"There is no table `{path}`.")
        if path.suffix == ".npy":
            return NpySource(path)
        if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
            from subspacedp.distributed.parquet_store import ParquetSource

            return ParquetSource(path, column)
        if path.is_dir() and (path.suffix == ".zarr" or _is_zarr(path)):
            from subspacedp.distributed.zarr_store import ZarrSource

            return ZarrSource(path)
        raise DataError(f"`{path}` is neither .npy, nor .parquet (a file or folder), nor zarr.")
    if isinstance(source, np.ndarray):
        return ArraySource(source)
    if hasattr(source, "read") and hasattr(source, "fingerprint"):
        return source  # type: ignore[no-any-return]
    raise DataError(f"A large table is an array or a path to one; got a {type(source).__name__}.")


def open_store(
    kind: str, folder: Path, shape: tuple[int, ...], dtype: npt.DTypeLike, boxes: list[Box]
) -> Store:
    """The store of a release in its folder."""
    if kind == "npy":
        return NpyFile(folder / NPY, shape, np.dtype(dtype))
    if kind == "parquet":
        from subspacedp.distributed.parquet_store import ParquetFolder

        return ParquetFolder(folder / PARQUET, np.dtype(dtype))
    if kind == "zarr":
        from subspacedp.distributed.zarr_store import ZarrFolder

        return ZarrFolder(folder / ZARR, shape, np.dtype(dtype), boxes[0].shape)
    raise ReleaseError(f'`store` must be "npy", "parquet" or "zarr"; got {kind!r}.')


def check_kind(dtype: np.dtype[Any], what: str) -> None:
    """Counts are stored as whole numbers."""
    if dtype.kind not in "iu":
        raise DataError(f"{what} must hold whole numbers; it holds {dtype}.")


def first_cell(box: Box, shape: tuple[int, ...]) -> int:
    """The number of the first cell of a box."""
    return int(np.ravel_multi_index(box.lower, shape))


class ArraySource:
    """Counts in memory, or mapped into it."""

    def __init__(self, counts: npt.NDArray[Any]) -> None:
        check_kind(counts.dtype, "The table")
        self._counts = counts

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._counts.shape

    @property
    def fingerprint(self) -> str:
        """An array has no history; its blocks are compared when they are read again."""
        return f"array {self._counts.dtype}"

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        if self._counts.shape == shape:
            place = tuple(slice(lo, hi) for lo, hi in zip(box.lower, box.upper, strict=True))
            whole_counts(self._counts[place], out)
        else:
            start = first_cell(box, shape)
            whole_counts(self._counts[start : start + box.size], out)


class _NpyHeader:
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

    def __init__(self, path: Path) -> None:
        self._path, self._header = path, _NpyHeader(path)
        check_kind(self._header.dtype, f"`{path}`")
        self._file = os.open(path, os.O_RDONLY)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self._header.shape)

    @property
    def fingerprint(self) -> str:
        """Size and time of the last change."""
        state = self._path.stat()
        return f"npy {self._header.dtype.str} {state.st_size} {state.st_mtime_ns}"

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        kind = self._header.dtype
        at = self._header.offset + first_cell(box, shape) * kind.itemsize
        same = kind == np.dtype("<i8") and out.dtype == kind
        room = out if same else np.empty(box.size, kind)
        try:
            whole = _read(self._file, room, at) == room.nbytes
        except OSError as error:
            raise DataError(
                f"`{self._path}` cannot be read: {error.strerror}.", changed=True
            ) from None
        if not whole:
            raise DataError(f"`{self._path}` became shorter while it was read.", changed=True)
        if not same:
            whole_counts(room, out)

    def close(self) -> None:
        """Let go of the file."""
        file = self.__dict__.pop("_file", None)
        if file is not None:
            os.close(file)

    def __del__(self) -> None:
        self.close()


class NpyFile:
    """Released values in one `.npy` file, written where they belong in any order."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._path, self._shape, self._dtype = path, shape, dtype.newbyteorder("<")
        self._file: int | None = None
        self._offset = 0
        self._opening = threading.Lock()

    def create(self) -> None:
        """An empty file of the full length."""
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": self._shape}
        with self._path.open("wb") as file:
            np.lib.format.write_array_header_2_0(file, header)
            file.truncate(file.tell() + math.prod(self._shape) * self._dtype.itemsize)

    def check(self) -> None:
        """The file has the shape and length of these values."""
        try:
            header = _NpyHeader(self._path)
        except DataError as error:
            raise ReleaseError(f"The unfinished store cannot be used: {error}") from None
        if tuple(header.shape) != self._shape or header.dtype != self._dtype:
            raise ReleaseError(f"`{self._path}` was written by another release.")

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write the values where they belong, and wait for the disk."""
        file = self._open()
        data = np.ascontiguousarray(values, self._dtype).reshape(-1).view(np.uint8).data
        at = self._offset + first_cell(box, self._shape) * self._dtype.itemsize
        while data:
            done = os.pwrite(file, data[:AT_ONCE], at)
            data, at = data[done:], at + done
        os.fdatasync(file) if hasattr(os, "fdatasync") else os.fsync(file)

    def read(self, number: int, box: Box) -> npt.NDArray[Any]:
        """The values of a block."""
        out = np.empty(box.size, self._dtype)
        file = self._open()
        at = self._offset + first_cell(box, self._shape) * self._dtype.itemsize
        if _read(file, out, at) < out.nbytes:
            raise ReleaseError(f"`{self._path}` is truncated.")
        return out

    def open(self) -> Any:
        """The values, mapped into memory."""
        return np.load(self._path, mmap_mode="r")

    def _open(self) -> int:
        with self._opening:  # several threads ask at once, and one handle serves all
            if self._file is None:
                self._offset = _NpyHeader(self._path).offset
                flags = os.O_RDWR if os.access(self._path, os.W_OK) else os.O_RDONLY
                self._file = os.open(self._path, flags)
            return self._file

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()


def _read(file: int, out: npt.NDArray[Any], at: int) -> int:
    data = out.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(data):
        count = os.preadv(file, [data[done : done + AT_ONCE]], at + done)
        if count == 0:
            break
        done += count
    return done


FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def writing(call: Callable[[], T], folder: Path) -> T:
    """Call what writes; a full disk, or any other refusal, in one sentence."""
    try:
        return call()
    except OSError as error:
        if error.errno in FULL:
            raise ReleaseError(
                f"The disk of `{folder}` is full; what was written is kept: make room, then "
                "resume.",
                full=True,
            ) from None
        raise ReleaseError(
            f"Cannot write to `{folder}`: {error.strerror or error}; what was written is kept."
        ) from None


def _is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zarray"))
