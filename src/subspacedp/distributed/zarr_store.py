"""Large tables as zarr arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import whole_counts
from subspacedp.distributed.stores import check_kind
from subspacedp.errors import DataError, ReleaseError
from subspacedp.release.durable import sync_folder, sync_tree
from subspacedp.tables.boxes import Box

__all__ = ["ZarrFolder", "ZarrSource"]

Int64Array = npt.NDArray[np.int64]


def _zarr() -> Any:
    try:
        import zarr
    except ImportError:
        raise ReleaseError("`zarr` is not installed; it comes with subspacedp[large].") from None
    return zarr


def _place(box: Box) -> tuple[slice, ...]:
    return tuple(slice(lo, hi) for lo, hi in zip(box.lower, box.upper, strict=True))


def _sync(file: Path, root: Path) -> None:
    """Wait until a chunk is on disk, with the names that lead to it; one of zeros has no file."""
    if file.is_file():
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    for folder in file.parents:
        sync_folder(folder)
        if folder == root:
            break


class ZarrSource:
    """Counts in a zarr array of the table's shape."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._array = _zarr().open_array(str(path), mode="r")
        except ReleaseError:
            raise
        except Exception:  # zarr has no base class for what may be wrong with a folder
            raise DataError(f"`{path}` is not a readable zarr array.") from None
        check_kind(self._array.dtype, f"`{path}`")

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self._array.shape)

    @property
    def fingerprint(self) -> str:
        """The files' sizes and times."""
        states = [file.stat() for file in self._path.rglob("*") if file.is_file()]
        size, time = sum(s.st_size for s in states), max(s.st_mtime_ns for s in states)
        return f"zarr {self._array.dtype.str} {len(states)} {size} {time}"

    def read(self, box: Box, shape: tuple[int, ...], out: Int64Array) -> None:
        """The counts of a box."""
        try:
            own = np.asarray(self._array[_place(box)])
        except Exception:  # a chunk that cannot be decoded raises whatever its codec does
            raise DataError(f"A chunk of `{self._path}` cannot be read.", changed=True) from None
        whole_counts(own, out)


class ZarrFolder:
    """Released values in a zarr array whose chunks are the blocks."""

    def __init__(
        self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...]
    ) -> None:
        self._path, self._shape, self._dtype, self._chunks = path, shape, dtype, chunks
        self._array: Any = None

    def create(self) -> None:
        """An empty array."""
        self._array = _zarr().create_array(
            str(self._path),
            shape=self._shape,
            chunks=self._chunks,
            dtype=self._dtype,
            overwrite=True,
        )
        sync_tree(self._path)  # its metadata: without them no chunk can be read

    def check(self) -> None:
        """The array has the shape and type of these values."""
        array = self._open()
        if tuple(array.shape) != self._shape or array.dtype != self._dtype:
            raise ReleaseError(f"`{self._path}` was written by another release.")

    def write(self, number: int, box: Box, values: npt.NDArray[Any]) -> None:
        """Write a block, which is a chunk, and wait for the disk."""
        array = self._open()
        array[_place(box)] = values.reshape(box.shape)
        chunk = (lo // size for lo, size in zip(box.lower, array.chunks, strict=True))
        _sync(self._path / array.metadata.encode_chunk_key(tuple(chunk)), self._path)

    def read(self, number: int, box: Box) -> npt.NDArray[Any]:
        """The values of a block."""
        try:
            return np.asarray(self._open()[_place(box)]).reshape(-1)
        except ReleaseError:
            raise
        except Exception:  # a chunk that cannot be decoded raises whatever its codec does
            raise ReleaseError(f"A chunk of `{self._path}` is truncated or altered.") from None

    def open(self) -> Any:
        """The array, read when asked for."""
        return _zarr().open_array(str(self._path), mode="r")

    def close(self) -> None:
        """No file stays open between calls."""

    def _open(self) -> Any:
        if self._array is None:
            mode = "r+" if os.access(self._path, os.W_OK) else "r"
            try:
                self._array = _zarr().open_array(str(self._path), mode=mode)
            except ReleaseError:
                raise
            except Exception:  # as in ZarrSource
                raise ReleaseError(f"`{self._path}` is not a readable zarr array.") from None
        return self._array
